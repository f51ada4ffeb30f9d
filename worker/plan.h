/*
 * plan.h - what to do next with a call: try, wait, hedge, commit, cancel, give up. Pure: no I/O, no
 * clock, no shared memory; attempts.c does what it says and tells it what came of it. Scenario files
 * (tests/scenarios) drive it on a false clock.
 *
 * A call has two lanes. The primary runs in lane 0; a hedge beside it in lane 1. A "round" is one
 * primary with its hedge, if any: a pair costs what one attempt costs (H15).
 *
 *   idle --PLAN_START(0)--> running --content--> PLAN_COMMIT
 *                              |  \--hedge_after--> PLAN_START(1) --> racing: first content wins,
 *                              |                                      PLAN_CANCEL the other
 *                              \--all lanes failed--> judged: PLAN_WAIT (backoff), PLAN_START, or the end
 *   the end: PLAN_FALLBACK (throttled, and a fallback is left), PLAN_ANSWER (the upstream's own error is
 *   passed on), PLAN_FAIL (a fault of ours)
 *
 * A failed attempt costs as follows (plan_verdict.c says it for pairs):
 *   throttle                    free of budget and stall account; at most PLAN_THROTTLE_RETRIES_MAX
 *   quota of the day, money,    free; this candidate (its whole account, but for a credential) is out
 *   credential                  for the call
 *   transient, unsent, unknown  one unit of the retry budget
 *   request, ours               the end
 * The next round starts at once at a candidate not yet tried; only going back to a tried one waits:
 * full jitter above backoff_least, never less than what the upstream asked for. A wait that cannot be
 * waited out within the bounds is not begun; the call ends there and then.
 *
 * Times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef WORKER_PLAN_H
#define WORKER_PLAN_H

#include "worker/judge.h"

#include <stdbool.h>
#include <stdint.h>

#define PLAN_LANES 2U
#define PLAN_CANDIDATES_MAX 64U
#define PLAN_THROTTLE_RETRIES_MAX 5U    /* H3 */
#define PLAN_THROTTLE_WAIT_MAX_MS 60000 /* of a call, all its throttle waits together (H3) */
#define PLAN_RETRY_AFTER_MAX_MS 60000   /* who asks for more is not asked again by this call (H3) */
#define PLAN_ADMISSION_WAIT_MAX_MS 30000 /* for a source below its max_in_flight (H1) */
#define PLAN_ADMISSION_TICK_MS 100       /* how often it is asked again meanwhile */

/* What the scope and the call allow; constant for one pass over a scope. */
struct plan_terms {
    unsigned retry_budget;      /* rounds after the first that real failures may cost */
    bool throttle_retries;      /* false: a direct route, nothing is tried twice */
    bool retry_unknown_outcome; /* paid calls of unknown outcome too (N5); never for images */
    bool is_image;
    bool may_hedge;      /* kind and pinning allow it, the scope has a second candidate */
    unsigned candidates; /* 1..PLAN_CANDIDATES_MAX */
    /* accounts[i]: the candidates of i's account (quota group), i among them, as a mask; NULL = each
     * its own. Not owned, read during the whole life of the plan. */
    const uint64_t *accounts;
    int64_t hedge_after_ns; /* CLOCK_NEVER = off */
    int64_t stall_budget_ns;
    int64_t backoff_base_ns, backoff_max_ns;
    int64_t backoff_least_ns; /* no backoff is shorter (F2) */
    int64_t
        retry_hold_ns; /* image calls hold their slot: all waits together; CLOCK_NEVER = no bound */
    /* Flow control holds calls back: they wait for it for so long, all waits together and those before
     * another try of a throttled call among them. flow_keeps_pauses: what a throttled upstream asks to
     * wait, its flow makes everybody wait, so that it is waited there. */
    bool has_flow, flow_keeps_pauses;
    int64_t flow_wait_ns;
    int64_t deadline_ns; /* absolute; CLOCK_NEVER = none */
    unsigned fallbacks;  /* entries left in the fallback list */
};

enum plan_what {
    PLAN_START,  /* admit and start an attempt in `lane`; then plan_started or plan_not_admitted */
    PLAN_WAIT,   /* nothing to do before until_ns, unless something happens */
    PLAN_CANCEL, /* end the lane's attempt: lost (why = PLAN_LOST), or the deadline fell */
    PLAN_COMMIT, /* the lane has won: its answer goes to the client */
    PLAN_ANSWER, /* the lane failed; its answer, an error of the upstream, goes to the client */
    PLAN_FAIL,   /* a fault of ours: see fail */
    PLAN_FALLBACK, /* go on with the next entry of the fallback list, with a new plan */
};
enum plan_why { PLAN_LOST, PLAN_DEADLINE };
enum plan_fail {
    PLAN_FAIL_DEADLINE,   /* the call's deadline */
    PLAN_FAIL_TRANSPORT,  /* the lane has no answer to pass on: its judgement or outcome tells */
    PLAN_FAIL_CREDENTIAL, /* our own key was refused: nothing of that is told to the caller */
    PLAN_FAIL_NO_SOURCE,  /* every source is out or open: retry_after_ms */
    PLAN_FAIL_BUSY,       /* max_in_flight everywhere for too long: retry_after_ms */
};
struct plan_step {
    enum plan_what what;
    unsigned lane;
    bool hedge;               /* START */
    uint64_t excluded, tried; /* START: masks over the candidates */
    int64_t until_ns;         /* WAIT */
    enum plan_why why;
    enum plan_fail fail;
    int64_t retry_after_ms; /* of an end: an honest wait to tell; -1 = none */
    /* ANSWER, FAIL_TRANSPORT: x-should-retry for the caller; 0 when all was tried, or trying again
     * is no use, 1 = throttled; of a fault of the request what its upstream said, -1 = nothing; -1 on
     * a direct route. */
    int should_retry;
};

enum plan_refusal {
    PLAN_REFUSED_NONE,  /* all are excluded */
    PLAN_REFUSED_OUT,   /* drained, no money, bad key */
    PLAN_REFUSED_QUOTA, /* out for a quota of the day: counts as throttled, a fallback may serve */
    PLAN_REFUSED_OPEN,
    PLAN_REFUSED_BUSY,
};

struct plan {
    struct plan_terms terms;
    /* For the ledger and the headers; the caller may read them. */
    unsigned rounds, retries; /* retries: rounds beyond the first */
    unsigned hedges;          /* really sent (H17) */
    unsigned hedges_skipped;  /* wanted, not admitted (H13) */
    bool hedge_won;
    unsigned budget_used;
    int64_t stall_ns; /* the stall account (H15): time of rounds that ended without result */
    /* What follows is the plan's own. */
    struct plan_lane {
        enum { LANE_IDLE, LANE_RUNNING, LANE_WON, LANE_LOST, LANE_FAILED } state;
        unsigned candidate;
        int64_t started_ns, ended_ns;
        bool has_answer; /* a whole error answer of the upstream is there to be passed on */
        struct judgement judgement;
    } lanes[PLAN_LANES];
    uint64_t excluded, tried;
    uint64_t asked;      /* of the last START in lane 0 */
    bool untried_only;   /* the next START goes to those not yet tried, without a wait */
    uint64_t last_round; /* candidates of the last round */
    unsigned throttle_retries, backoffs;
    bool
        free_round; /* the last verdict was none of real failures: its waits count as throttle waits */
    unsigned told_lane; /* of the last failed round: who is told of, should it be the last */
    int64_t throttle_wait_ns, hold_wait_ns, flow_waited_ns;
    int64_t admission_wait_since_ns; /* CLOCK_NEVER = does not wait */
    int64_t wait_until_ns;    /* backoff, or the next tick of waiting for admission; 0 = none */
    int64_t refused_until_ns; /* what the last refusal called the earliest */
    enum plan_refusal refusal;
    bool hedge_done; /* of this round: sent, or skipped for good */
    bool round_judged;
    bool deadline_fell;
    struct plan_step end; /* once decided, it stays */
    bool ended;
    uint64_t random; /* state of the jitter's generator */
    /* Last, as only that of the candidates there are is made empty. */
    int64_t ready_ns[PLAN_CANDIDATES_MAX]; /* not before, says its upstream; 0 = it did not say */
};

/* Candidates that this call must not go to may be set in plan->excluded right after. */
void plan_begin(struct plan *plan, const struct plan_terms *terms, uint64_t seed);
/* What now? Ask again after every plan_* call and whenever until_ns has come; asked twice without
 * news, it says the same twice. START is to be answered with plan_started or plan_not_admitted,
 * CANCEL with plan_cancelled or plan_taken_back. The last four kinds of step are final.
 *
 * A failed lane's answer may still be wanted (ANSWER) until the next plan_started of lane 0. */
struct plan_step plan_next(struct plan *plan, int64_t now_ns);

/* The attempt's transport begins now, at this candidate. */
void plan_started(struct plan *plan, unsigned lane, unsigned candidate, int64_t now_ns);
/* No candidate could be had; earliest_ns: when asking again may help, CLOCK_NEVER = not by waiting.
 * Only BUSY is waited out. A hedge is dropped without a word, whatever the reason. */
void plan_not_admitted(struct plan *plan, unsigned lane, enum plan_refusal refusal,
                       int64_t earliest_ns, int64_t now_ns);
/* First content of a stream, or a whole valid answer where one is held back; where nothing is held
 * back, the 2xx head. Told of lane 0 first when both have it in one round of poll: it wins (D7). */
void plan_content(struct plan *plan, unsigned lane, int64_t now_ns);
void plan_failed(struct plan *plan, unsigned lane, const struct judgement *judgement,
                 bool has_answer, int64_t now_ns);
void plan_cancelled(struct plan *plan, unsigned lane, int64_t now_ns);
/* Instead of plan_cancelled for a hedge of which no byte had gone out: as if never sent (D9). */
void plan_taken_back(struct plan *plan, unsigned lane, int64_t now_ns);
/* No entry of the fallback list could serve the call after all: what it comes to then, ANSWER or
 * FAIL. Only after FALLBACK. */
struct plan_step plan_without_fallback(struct plan *plan, int64_t now_ns);
/* How long an image call may still wait with its slot; CLOCK_NEVER: as long as it likes. */
int64_t plan_hold_left_ns(const struct plan *plan);
/* It waited so long with its slot for an admission. */
void plan_held(struct plan *plan, int64_t wait_ns);
/* How long the call may still wait for its flow; CLOCK_NEVER: without bound. */
int64_t plan_flow_left_ns(const struct plan *plan);
/* It waited so long in its flow. */
void plan_waited_in_flow(struct plan *plan, int64_t wait_ns);
/* Could nothing more be tried if the running attempt failed now? Then its head may pass at once,
 * whatever it says (but for one that speaks of our own key). */
bool plan_is_last_hope(const struct plan *plan);

#endif
