/*
 * flow_terms.h - what a scope's configuration says of its flow control (F1): constant for a
 * generation, the same for all calls of one (quota group, model).
 */
#ifndef SHARED_FLOW_TERMS_H
#define SHARED_FLOW_TERMS_H

#include "shared/layout.h"

#include <stdbool.h>
#include <stdint.h>

/* Each does what those before it do. */
enum flow_strategy {
    FLOW_STRATEGY_NONE,     /* nothing is counted */
    FLOW_STRATEGY_RETRY,    /* counted for the diagnosis; nothing is held back */
    FLOW_STRATEGY_RATE,     /* requests per minute, then the bound of calls in flight */
    FLOW_STRATEGY_SHAPING,  /* and units per minute, evenly spaced, with a warm-up */
    FLOW_STRATEGY_ADAPTIVE, /* the bounds are learned (adaptive.h) */
};
/* What units_quota counts. */
enum flow_unit { FLOW_UNIT_TOKENS, FLOW_UNIT_IMAGES, FLOW_UNIT_SECONDS, FLOW_UNIT_TASKS };
enum flow_class { FLOW_INTERACTIVE, FLOW_NORMAL, FLOW_BULK };

#define FLOW_INITIAL_ALL INT64_C(1000000000) /* more than any quota */

struct flow_terms {
    uint64_t origin; /* the scope that says so: a hash of its name */
    enum flow_strategy strategy;
    enum flow_unit unit;
    int64_t requests_quota;   /* of the upstream, per minute; 0 = not known: no bound */
    int64_t units_quota;      /* likewise */
    bool ignores_told;        /* what the upstream itself tells of them is not believed */
    int64_t initial_requests; /* RATE, SHAPING: may go at once after a start or a long pause */
    int64_t warmup_ns;        /* SHAPING */
    uint32_t max_concurrent;  /* calls in flight; 0 = no bound (adaptive: its own) */
    bool server_queueing;     /* the upstream lets calls wait (F10) */
    uint32_t weights[FLOW_CLASSES]; /* >= 1 */
    /* Of the calls that bring them; they may differ between scopes that share an upstream. */
    int64_t max_wait_ns[FLOW_CLASSES];
    uint32_t max_waiting;            /* of each class */
    uint32_t max_waiting_per_client; /* of all classes together; 0 = no bound of its own */
};

#endif
