/*
 * flow_memory.h - what a flow has learned, taken over from before the machine was started again: the
 * segment itself outlives everything but that. Who keeps it meanwhile is not our affair.
 */
#ifndef SHARED_FLOW_MEMORY_H
#define SHARED_FLOW_MEMORY_H

#include "shared/flow.h"

#define FLOW_ESTIMATE_MEMORY_NS (INT64_C(7) * 86400 * 1000000000) /* older ones are not taken */

struct flow_memory {
    struct adaptive_memory learned; /* taken when it is younger than ADAPTIVE_MEMORY_NS */
    struct estimate_row estimate;
    /* What the upstream said of its quotas; for people. It is heard anew. */
    int64_t requests_told, units_told; /* 0 = nothing */
    int64_t age_ns;                    /* since the flow was last used */
};

/* Makes the pair's row. False: it has served calls already, so it knows better; or there is no row for
 * it; or nothing of the memory can be taken: too old, or values that cannot be. Takes the lock. */
MUST_CHECK bool flow_restore(struct gate *gate, const struct flow_target *target,
                             const struct flow_memory *memory, int64_t now_ns);

#endif
