/*
 * plan_verdict.h - what a failed round means (H15): one attempt, or a pair that failed as one. Part of
 * the plan (plan.h); only plan.c asks.
 */
#ifndef WORKER_PLAN_VERDICT_H
#define WORKER_PLAN_VERDICT_H

#include "worker/plan.h"

enum verdict_kind {
    VERDICT_END,       /* nobody else would answer otherwise, or must not be asked again */
    VERDICT_REAL,      /* may be tried again for one unit of the budget */
    VERDICT_THROTTLED, /* may be tried again free of budget, but not for ever */
    VERDICT_ROTATE,    /* another account may do better, free of budget */
};
struct verdict {
    enum verdict_kind kind;
    unsigned lane; /* whose failure the caller is told of, should it end here (D13) */
    bool refund;   /* the time goes not into the stall account (R22) */
};
/* At least one lane has failed, none is running. unknown_too: an unknown outcome may be repeated. */
void verdict_of_round(const struct plan_lane lanes[PLAN_LANES], bool unknown_too,
                      struct verdict *ret);

/* Which candidates this failure excludes for the rest of the call: 0, the candidate, or account. */
uint64_t verdict_excludes(const struct judgement *judgement, unsigned candidate, uint64_t account);

/* Too much or too fast: a fallback may serve (H20). */
bool verdict_is_throttling(enum attempt_class class);
/* x-should-retry for the caller who is told of this failure: 1, 0, or -1 = say nothing. Where its class
 * leaves it open, the failure's own word. */
int verdict_should_retry(const struct judgement *judgement);

#endif
