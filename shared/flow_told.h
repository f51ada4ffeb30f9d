/*
 * flow_told.h - what the upstream itself says of its quotas, in the head of every answer (F7): a flow
 * learns its quota from it, and that somebody else uses the account.
 *
 *   limit      is the quota where none is configured, and lowers a configured one; never raises it. It
 *              is believed when three calls in a row that were let through tell it (within 5 %), unless
 *              they were more than it.
 *   remaining  lowers the budget to what was left when the call was counted there, less what was sent
 *              since. Where others use the account or little is left, it fills more slowly, down
 *              to a fifth.
 *
 * docs/why/told-quotas.md says why, and what values that cannot be do.
 */
#ifndef SHARED_FLOW_TOLD_H
#define SHARED_FLOW_TOLD_H

#include "shared/flow.h"

#define FLOW_TOLD_TIMES 3U
#define FLOW_TOLD_NS (3600 * NS_PER_S) /* in use but not told again for so long: forgotten */
/* Fewer are not believed: broken upstreams tell them, refusals teach the rest. */
#define FLOW_TOLD_REQUESTS_MIN 3
#define FLOW_TOLD_UNITS_MIN 1000

struct flow_told_quota {
    int64_t limit, left; /* per minute; limit <= 0, left < 0: not told */
};
struct flow_told {
    struct flow_told_quota requests, units;
    bool refused; /* the answer is an error: the call's units will come back */
};

/* The answer to a call that was sent. Takes the lock. */
void flow_hear(struct gate *gate, uint32_t place, const struct flow_told *told, int64_t now_ns);

/* ---- lock held: for the other files of flows -------------------------------------------------- */

/* The quota in force; 0 = not known. */
int64_t flow_quota_of(const struct flow_quota_row *quota);
/* How open the budget is for what is left of its quota there: 200 to 1000. */
#define FLOW_OPEN_FULL 1000
int64_t flow_open_of(const struct flow_quota_row *quota, int64_t now_ns);
/* Every 250 ms: what is no longer told is forgotten, and what is known comes into force where a process
 * died before it did that. */
void flow_forget_told_locked(struct flow_row *flow, int64_t now_ns);

#endif
