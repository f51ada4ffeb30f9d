/*
 * flow.h - flow control: when a call may be sent to a (quota group, model), and what it is charged.
 * One record per such pair for all processes of the host; one decision under the one lock, all or
 * nothing: a request of the quota, the estimated units, the next instant of the pace, one of the
 * calls in flight. Nothing is held while waiting.
 *
 * Life of a call in a flow (alone; together with a slot and a source see admit.h):
 *
 *   flow_arrive -> FLOW_GRANTED                             -> flow_sent -> flow_settle
 *               -> FLOW_QUEUED: wait for the bell or due_ns,                 or flow_keep
 *                  flow_try -> FLOW_GRANTED ...                              or flow_refund
 *                           -> FLOW_QUEUED
 *                           -> FLOW_EXPIRED, _HOPELESS     -> flow_cancel (also before flow_sent)
 *               -> FLOW_REFUSED_*, FLOW_OPEN: no place, nothing to give back
 *
 * A place is given back exactly once: the functions that do it set it to NO_INDEX and are harmless
 * when it is that. Burial does it for a dead process: what was only granted comes back whole; what
 * was sent stays charged with its estimate and its predicted output.
 *
 * Names without _locked take the lock. All take `now`; no clock here.
 */
#ifndef SHARED_FLOW_H
#define SHARED_FLOW_H

#include "base/check.h"
#include "shared/adaptive.h"
#include "shared/calibration.h"
#include "shared/flow_terms.h"
#include "shared/gate.h"
#include "shared/layout.h"

#include <stdbool.h>

/* A call as it was estimated without a tokenizer, where a unit is a token. */
struct flow_claim {
    struct token_estimate estimate; /* of its input */
    int64_t output_max;             /* -1 = no bound */
    bool whole;                     /* charged is the predicted output, too */
};

/* What it costs by what the answers of its model have taught so far (F6; flow_settle). */
struct flow_price {
    int64_t input;              /* of its tokens, calibrated */
    int64_t cost, predicted;    /* as in flow_target */
    struct token_ratios ratios; /* for whatever else of this model is estimated */
};

/* Where and how much. */
struct flow_target {
    const char *quota_group, *model; /* cut to fit */
    const struct flow_terms *terms;  /* NULL, or strategy NONE: FLOW_OPEN */
    /* admit.h: the two below come of it, by what the flow knows when the call arrives. NULL: they are
     * given. */
    const struct flow_claim *claim;
    int64_t cost;      /* units charged when granted: input, or input and predicted output */
    int64_t predicted; /* units that are likely to come on top; booked if the process dies */
};

struct flow_call {
    enum flow_class class;
    uint64_t client; /* who asks, as a hash: whose bound of waiting calls; 0 = nobody's */
    bool may_wait;
    bool no_thread;      /* it may not, either: nobody could, there */
    int64_t deadline_ns; /* the call's own; CLOCK_NEVER = none */
    int64_t now_ns;
};

/* A call may go this much before its instant of the pace: no timer wakes a thread that exactly, and at a
 * high rate calls would wait for nothing else. The instants stay as they are, so the rate does, too. */
#define FLOW_PACE_SLACK_NS (100 * INT64_C(1000))

enum flow_verdict {
    FLOW_OPEN,    /* no flow control here: nothing held */
    FLOW_GRANTED, /* place must be given back */
    FLOW_QUEUED,  /* likewise */
    FLOW_EXPIRED, /* of a try: its deadline has passed, it will never be granted; to be cancelled */
    FLOW_REFUSED_BUSY,    /* cannot go at once, and may not wait */
    FLOW_REFUSED_THREADS, /* cannot go at once, and has no thread to wait in */
    FLOW_REFUSED_FULL,    /* as many wait as may */
    FLOW_REFUSED_CLIENT,  /* as many of this client */
    FLOW_REFUSED_HOPELESS, /* its turn would come too late; of a try: has become so, to be cancelled */
};

/* A quota as a caller who is turned away is told of it. */
struct flow_standing {
    int64_t quota;   /* per minute; 0 = not known, and then the others say nothing */
    int64_t left;    /* may be used at once */
    int64_t full_ns; /* until all that may be saved up is there */
};

struct flow_answer {
    enum flow_verdict verdict;
    uint32_t place;    /* GRANTED, QUEUED */
    uint32_t position; /* QUEUED: in its class; 1 = first */
    uint32_t waiting, in_flight;
    int64_t due_ns;   /* QUEUED: ask again then; CLOCK_NEVER = only when rung */
    int64_t until_ns; /* QUEUED: when it expires, the deadline or the class's longest wait */
    int64_t
        predicted_wait_ns; /* as reckoned at arrival; of a try that ends the wait: as it is then */
    struct flow_standing requests, units; /* EXPIRED and REFUSED; units in ... */
    enum flow_unit unit;
};

void flow_arrive(struct gate *gate, const struct flow_target *target, const struct flow_call *call,
                 struct flow_answer *ret);
/* A waiting place, when it is rung and when due_ns has come. answer->predicted_wait_ns is left as it
 * is where it goes on waiting. */
void flow_try(struct gate *gate, uint32_t place, int64_t now_ns, struct flow_answer *answer);
/* The configuration is another now, and a flow that is there already goes by it (strategy NONE: goes
 * free), and with it those who wait in it. Nothing if the caller's is not the newest. */
void flow_renew(struct gate *gate, const struct flow_target *target, int64_t now_ns);
/* Read without the lock by the bell thread; cleared by the try. */
bool flow_is_rung(const struct gate *gate, uint32_t place);

/* The first byte goes out: from now on the call counts as made. Takes no lock. */
void flow_sent(struct gate *gate, uint32_t place, int64_t now_ns);
/* A long answer has used so many units until now; what exceeds the charge is taken at once. */
void flow_progress(struct gate *gate, uint32_t place, int64_t units, int64_t now_ns);

/* Leave without having sent anything: from waiting, free; from granted, all comes back. */
void flow_cancel(struct gate *gate, uint32_t *place, int64_t now_ns);

/* Tokens that the answer told of, beside what the request was taken for before. */
struct flow_usage {
    struct token_estimate estimate; /* of its input, not calibrated */
    int64_t input, output;          /* <= 0: not told */
};
struct flow_end {
    int64_t now_ns;
    int64_t units;                  /* settle: really used, all of it */
    const struct flow_usage *usage; /* settle: what later estimates learn from; NULL = nothing */
    /* For the adaptive controller; its epoch is filled in. NULL = nothing to learn. */
    const struct adaptive_sample *sample;
    bool refused; /* by the upstream, for a limit of its own: */
    enum adaptive_kind kind;
    int64_t retry_after_ns; /* as it said; <= 0 = it did not */
    uint32_t random;
};
/* The end of a sent call; of one that was not sent, as flow_cancel. Return the kind of the refusal
 * made right by what we used in the last 60 s (adaptive_refine); end->kind when not refused.
 *   settle  usage is known, or estimated from what was seen
 *   refund  it was not processed (a refusal): the units come back, the request does not (F3)
 *   keep    the answer is not waited for (a hedge that lost): the estimate stays */
enum adaptive_kind flow_settle(struct gate *gate, uint32_t *place, const struct flow_end *end);
enum adaptive_kind flow_refund(struct gate *gate, uint32_t *place, const struct flow_end *end);
enum adaptive_kind flow_keep(struct gate *gate, uint32_t *place, const struct flow_end *end);

/* Until when calls for the target are held back, whosever turn it is: the upstream asked for it, or
 * refused too often. now_ns or earlier = they are not. */
MUST_CHECK int64_t flow_paused_until_ns(struct gate *gate, const struct flow_target *target,
                                        int64_t now_ns);

/* ---- lock held: for admit.c, gate.c and snapshots --------------------------------------------- */

/* The pair's row, found or made, its terms up to date; when no row is left for it, its group's for
 * all such models, named "*". NO_INDEX: not even that (or none is wanted). */
MUST_CHECK uint32_t flow_find_locked(struct gate *gate, const struct flow_target *target,
                                     int64_t now_ns);
/* May a call for the target wait in this flow? NO_INDEX: in none. Makes nothing. */
bool flow_serves_locked(struct gate *gate, uint32_t flow, const struct flow_target *target);

/* Could a call go at once (GRANTED)? If not, may it wait (QUEUED), and how long would it? Takes
 * nothing; a flow that was idle for long starts cold from now on. */
enum flow_verdict flow_look_locked(struct gate *gate, uint32_t flow,
                                   const struct flow_target *target, const struct flow_call *call,
                                   int64_t *ret_predicted_wait_ns);
struct flow_entry {
    uint32_t flow;
    const struct flow_target *target;
    const struct flow_call *call;
    uint32_t image; /* the place at the image gate whose slot it waits for, too; or NO_INDEX */
    int64_t image_wait_ns; /* how long it may for that */
};
/* What flow_look_locked said, done: a refusal counted, a place granted or queued. answer: verdict and
 * predicted_wait_ns are set. */
void flow_enter_locked(struct gate *gate, const struct flow_entry *entry,
                       struct flow_answer *answer);
/* Whose turn it is in the flow if a slot is free, when that one asks, and how long until it could go
 * (<= now: it can); NO_INDEX: nobody's. */
MUST_CHECK uint32_t flow_due_locked(struct layout_area *layout, uint32_t flow, int64_t now_ns,
                                    int64_t *ret_due_ns);
struct flow_question {
    uint32_t place;
    bool slot; /* it has the image slot that it needs too, or needs none */
    bool take; /* else it only looks: GRANTED = could go */
    int64_t now_ns;
};
/* A waiting place asks, as flow_try. */
void flow_ask_locked(struct gate *gate, const struct flow_question *question,
                     struct flow_answer *answer);
/* Others may go before it until then. */
void flow_set_aside_locked(struct gate *gate, uint32_t place, int64_t until_ns, int64_t now_ns);
/* After a try without success: those who could go instead are rung. place may be NO_INDEX. */
void flow_seat_kept_locked(struct gate *gate, uint32_t place, int64_t now_ns);
void flow_leave_locked(struct gate *gate, uint32_t place, int64_t now_ns);
/* A slot was given back: those who need one may be next in their flows. */
void flow_slot_freed_locked(struct gate *gate, int64_t now_ns);

/* Every 250 ms, and whenever something was given back: rings whose turn it is. */
void flow_tick_locked(struct gate *gate, int64_t now_ns);
/* Part of burial and of a clean end (gate.c calls it). Returns the number of places. */
unsigned flow_bury_locked(struct gate *gate, uint32_t roster_index, uint64_t incarnation,
                          int64_t now_ns);

struct flow_use {
    int64_t sends, units; /* of the last 60 s */
};
struct flow_use flow_use_locked(const struct flow_row *flow, int64_t now_ns);

/* Where a quota is known from. */
enum flow_quota_origin {
    FLOW_QUOTA_UNKNOWN,
    FLOW_QUOTA_CONFIGURED,
    FLOW_QUOTA_HEADERS,  /* the upstream tells it itself (flow_told.h) */
    FLOW_QUOTA_REFUSALS, /* ADAPTIVE learned it: see learned */
};

/* For people, and to keep what is learned (flow_memory.h). */
struct flow_view {
    char quota_group[NAME_SIZE], model[NAME_SIZE];
    enum flow_strategy strategy;
    enum flow_unit unit;
    int64_t requests_quota, units_quota; /* in force; 0 = not known */
    int64_t requests_configured, units_configured, requests_told, units_told; /* 0 = not */
    enum flow_quota_origin requests_origin, units_origin;
    int64_t requests_left, units_left;       /* of it, as the upstream told last; -1 = it did not */
    int64_t requests_balance, units_balance; /* whole ones; INT64_MAX = no bound */
    struct flow_use use;
    uint32_t in_flight, in_flight_limit; /* limit: UINT32_MAX = none */
    uint32_t waiting[FLOW_CLASSES];
    uint64_t granted[FLOW_CLASSES];
    int64_t paused_for_ns;   /* DRAIN, or Retry-After; 0 = not */
    uint32_t adaptive_state; /* adaptive_state_name; ADAPTIVE only */
    struct adaptive_memory learned;
    uint64_t refusals[ADAPTIVE_KINDS];
    int64_t last_refusal_age_ns; /* -1 = none yet */
    enum adaptive_kind last_refusal_kind;
    uint64_t refused_full, refused_client, refused_hopeless, refused_threads;
    uint64_t expired, cancelled, buried;
    uint64_t completed;
    /* ADAPTIVE: its bound of calls in flight, the cuts so far, and what the last one was for */
    double limit;
    uint64_t cuts;
    enum adaptive_kind cut_kind;
    struct estimate_row estimate;
    int64_t idle_ns;       /* since it was last used */
    uint64_t terms_origin; /* whose terms it keeps to: the scope, and which Penstock of the host */
    uint32_t terms_instance;
};
/* Returns the number of rows in use. */
unsigned flow_views_locked(struct gate *gate, int64_t now_ns, struct flow_view views[FLOWS_MAX]);

#endif
