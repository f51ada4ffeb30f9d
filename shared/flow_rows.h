/*
 * flow_rows.h - the records of flows: found or made by name, their terms, what was used in the last
 * 60 s, burial, views. The part of flow.h that decides nothing; for flow.c.
 */
#ifndef SHARED_FLOW_ROWS_H
#define SHARED_FLOW_ROWS_H

#include "base/check.h"
#include "shared/flow.h"

/* Who stays away for longer than this comes back to a cold start (F4). */
#define FLOW_IDLE_NS (60 * NS_PER_S)
/* The controller's own period (research 3.7): it makes more of a longer absence. */
#define ADAPTIVE_IDLE_NS (10 * NS_PER_S)

/* What one grant must keep to now. */
struct flow_limits {
    uint32_t in_flight; /* UINT32_MAX = no bound */
    uint32_t epoch;
    int64_t interval_ns;
    int64_t not_before_ns; /* DRAIN, Retry-After; 0 = no such thing */
};
/* Brings what depends on time up to now. */
struct flow_limits flow_limits_locked(struct flow_row *flow, int64_t now_ns);
/* Is anything held back at all? */
bool flow_holds_back(const struct flow_row *flow);
/* What is configured or told of its quotas is another now: budgets, pace and controller follow. What is
 * owed or saved stays, as far as it can. */
void flow_set_quotas_locked(struct flow_row *flow, int64_t now_ns);
/* The target's own row, if there is one, and renewed terms for it. NO_INDEX: there is none. */
MUST_CHECK uint32_t flow_renew_locked(struct gate *gate, const struct flow_target *target,
                                      int64_t now_ns);
/* Before a decision: somebody comes after nobody was there for a while. */
void flow_wake_locked(struct flow_row *flow, int64_t now_ns);

/* What a caller who is turned away is told. */
void flow_tell_standing_locked(struct flow_row *flow, int64_t now_ns, struct flow_answer *answer);

/* A call was granted; one that is given back without having been sent does not count. */
void flow_count_grant_locked(struct flow_row *flow, int64_t units, int64_t now_ns);
void flow_uncount_grant_locked(struct flow_row *flow, int64_t units, int64_t granted_ns);
/* More was used than was booked, or less: units may be negative. */
void flow_count_units_locked(struct flow_row *flow, int64_t units, int64_t now_ns);

#endif
