/* layout_adaptive.h - the part of the segment's layout (layout.h) that belongs to the adaptive controller
 * (F5). */
#ifndef SHARED_LAYOUT_ADAPTIVE_H
#define SHARED_LAYOUT_ADAPTIVE_H

#include <stdint.h>

enum adaptive_state {
    ADAPTIVE_NONE, /* not in use */
    ADAPTIVE_STARTUP,
    ADAPTIVE_PROBING,
    ADAPTIVE_HOLD,
    ADAPTIVE_DRAIN,
    ADAPTIVE_RECOVERY,
};

#define ADAPTIVE_BASE_SLOTS 5U /* of two minutes each */
#define ADAPTIVE_SIZES 24U     /* size classes of inputs, by powers of two */
#define ADAPTIVE_RATIOS 32U    /* samples of a window that its medians are made of */
#define ADAPTIVE_SECONDS 10U   /* sends are counted so far back */

/* The smallest value seen lately. Zero = none. */
struct adaptive_base {
    double least[ADAPTIVE_BASE_SLOTS];
    int64_t slot; /* number of the newest one */
};

/* What is measured between two updates. */
struct adaptive_window {
    int64_t from_ns;
    uint32_t completions, refusals, faults;
    uint32_t peak;                                     /* in flight */
    uint32_t place_wanted, pace_wanted, budget_wanted; /* somebody waited for it */
    uint32_t ttft_count, whole_count;
    uint32_t queued_upstream; /* first tokens that an upstream's own queue made late */
    double decode_s, decode_tokens;
    double in_flight_s; /* integral over time */
    float ttft_ratio[ADAPTIVE_RATIOS], whole_ratio[ADAPTIVE_RATIOS];
};

/* A quota per minute as the controller uses it. */
struct adaptive_quota {
    int64_t told;   /* 0 = not */
    uint64_t heard; /* 1: by the upstream itself */
    double used;    /* what we use of it; 0 = not told and never refused: no bound */
    double ceiling; /* our use of a minute when it was refused last; 0 = never */
    double minute;  /* our use of the last one; 0 = not known */
    double probe;   /* per second, while it is tried to use more */
};

/* The adaptive controller of one (quota group, model): see adaptive.h. Doubles, never NaN or Inf. */
struct adaptive_row {
    uint32_t state; /* enum adaptive_state */
    uint32_t epoch;
    uint32_t in_flight, in_flight_max;
    uint32_t server_queueing;
    uint32_t drains;     /* for the same reason, in quick succession: doubles the pause */
    uint32_t slow;       /* windows in a row with slow tokens */
    uint32_t slow_first; /* ... with slow first tokens */
    uint32_t full;       /* windows of STARTUP without more throughput */
    uint32_t thrust;     /* windows at the watermark: exponent of the step beyond */
    uint32_t drain_kind; /* enum adaptive_kind of the last cut */
    uint32_t cut_sends;  /* sends since the last cut */
    struct adaptive_quota requests, tokens;
    double limit;                                 /* L: bound of calls in flight */
    double watermark;                             /* W: highest number in flight that went well */
    double pace;                                  /* rp: requests per second */
    double pace_learned;                          /* the highest that was needed and went well */
    double pace_cut;                              /* after the last cut */
    double answered_share;                        /* of a wanted second's sends, in slow start */
    double growth;                                /* gam: of the pace, per second */
    double mean_output;                           /* tokens; 0 = none yet */
    double hold_limit;                            /* L when HOLD began */
    double last_step;                             /* of the bound */
    double best_throughput;                       /* in STARTUP */
    double slowness;                              /* rho of the last window */
    double throughput;                            /* completions per s of the last window */
    double mean_in_flight;                        /* of the last window */
    int64_t drain_ns, drained_until_ns;           /* last cut */
    int64_t recovery_ns, hold_ns;                 /* begin of the state */
    int64_t counted_ns;                           /* the in_flight integral is made up to then */
    int64_t second_ns;                            /* the pace was last looked at */
    int64_t sends_second;                         /* the newest second in sends[] */
    uint32_t sends[ADAPTIVE_SECONDS];             /* [second % ADAPTIVE_SECONDS] */
    uint32_t second_refusals, second_pace_wanted; /* since second_ns ... */
    uint32_t second_answers, unused;              /* ... likewise */
    uint64_t refusals[8];                         /* ever, by enum adaptive_kind */
    uint64_t cuts;                                /* refusals that counted */
    struct adaptive_base tpt_base;                /* seconds per token, streams */
    struct adaptive_base whole_base;              /* seconds per token, whole answers */
    struct adaptive_base ttft_base[ADAPTIVE_SIZES];
    struct adaptive_window window;
};

#endif
