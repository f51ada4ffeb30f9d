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
 * Times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef WORKER_PLAN_H
#define WORKER_PLAN_H

#include "worker/judge.h"

#include <stdbool.h>
#include <stdint.h>

#define PLAN_LANES 2U
#define PLAN_THROTTLE_RETRIES_MAX 5U        /* H3 */
#define PLAN_THROTTLE_WAIT_MAX_MS 60000     /* of a call, all its throttle waits together (H3) */
#define PLAN_ADMISSION_WAIT_MAX_MS 30000    /* for a source below its max_in_flight (H1) */

/* What the scope and the call allow; constant for one pass over a scope. */
struct plan_terms {
    unsigned retry_budget;      /* rounds after the first that real failures may cost */
    bool throttle_retries;      /* false: a direct route, nothing is tried twice */
    bool retry_unknown_outcome; /* paid calls of unknown outcome too (N5); never for images */
    bool is_image;
    bool may_hedge;         /* kind and pinning allow it, the scope has a second candidate */
    unsigned candidates;    /* at most 64 */
    int64_t hedge_after_ns; /* CLOCK_NEVER = off */
    int64_t stall_budget_ns;
    int64_t backoff_base_ns, backoff_max_ns;
    int64_t retry_hold_ns;  /* image calls hold their slot: all waits together; CLOCK_NEVER = no bound */
    int64_t deadline_ns;    /* absolute; CLOCK_NEVER = none */
    unsigned fallbacks;     /* entries left in the fallback list */
};

enum plan_what {
    PLAN_START,    /* admit and start an attempt in `lane`; then plan_started or plan_not_admitted */
    PLAN_WAIT,     /* nothing to do before until_ns, unless something happens */
    PLAN_CANCEL,   /* end the lane's attempt: lost (why = PLAN_LOST), or the deadline fell */
    PLAN_COMMIT,   /* the lane has won: its answer goes to the client */
    PLAN_ANSWER,   /* the lane failed; its answer, an error of the upstream, goes to the client */
    PLAN_FAIL,     /* a fault of ours: see fail */
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
    bool hedge;       /* START */
    uint64_t excluded, tried; /* START: masks over the candidates */
    int64_t until_ns; /* WAIT */
    enum plan_why why;
    enum plan_fail fail;
    int64_t retry_after_ms; /* FAIL, ANSWER: an honest wait to tell; -1 = none */
    int should_retry;       /* ANSWER of a real failure: 0; of throttling: 1; else -1 */
};

enum plan_refusal { PLAN_REFUSED_NONE, PLAN_REFUSED_OUT, PLAN_REFUSED_OPEN, PLAN_REFUSED_BUSY };

struct plan {
    struct plan_terms terms;
    /* For the ledger and the headers; the caller may read them. */
    unsigned rounds, retries; /* retries: rounds beyond the first */
    unsigned hedges_skipped;  /* wanted, not admitted (H13) */
    int64_t stall_ns;         /* the stall account (H15) */
    /* What follows is the plan's own. */
    struct plan_lane {
        enum { LANE_IDLE, LANE_RUNNING, LANE_WON, LANE_LOST, LANE_FAILED } state;
        unsigned candidate;
        int64_t started_ns, ended_ns;
        bool has_answer; /* a whole error answer of the upstream is there to be passed on */
        struct judgement judgement;
    } lanes[PLAN_LANES];
    uint64_t excluded, tried;
    unsigned budget_used, throttle_retries;
    int64_t throttle_wait_ns, hold_wait_ns, admission_wait_since_ns;
    int64_t wait_until_ns; /* backoff; 0 = none */
    int64_t last_retry_after_ms;
    bool hedge_done; /* of this round: sent, or skipped for good */
    bool round_judged;
    struct plan_step end; /* once decided, it stays */
    bool ended;
    uint64_t random; /* state of the jitter's generator */
};

void plan_begin(struct plan *plan, const struct plan_terms *terms, uint64_t seed);
/* What now? Ask again after every plan_* call and whenever until_ns has come. CANCEL is to be
 * answered with plan_cancelled. */
struct plan_step plan_next(struct plan *plan, int64_t now_ns);

/* The attempt's transport begins now, at this candidate. */
void plan_started(struct plan *plan, unsigned lane, unsigned candidate, int64_t now_ns);
/* No candidate could be had; earliest_ns: when asking again may help, CLOCK_NEVER = not by waiting.
 * A hedge is dropped without a word. */
void plan_not_admitted(struct plan *plan, unsigned lane, enum plan_refusal refusal,
                       int64_t earliest_ns, int64_t now_ns);
/* First content of a stream, or a whole valid answer where one is held back; where nothing is held
 * back, the 2xx head. Told of lane 0 first when both have it in one round of poll: it wins (D7). */
void plan_content(struct plan *plan, unsigned lane, int64_t now_ns);
void plan_failed(struct plan *plan, unsigned lane, const struct judgement *judgement,
                 bool has_answer, int64_t now_ns);
void plan_cancelled(struct plan *plan, unsigned lane, int64_t now_ns);
/* Could anything be done if the running attempt failed now? When not, its head may pass at once. */
bool plan_is_last_hope(const struct plan *plan);

#endif
