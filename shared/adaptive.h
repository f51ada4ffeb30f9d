/*
 * adaptive.h - the controller that finds out how much an upstream takes (flow = adaptive).
 *
 * It turns three knobs, because an upstream has three kinds of limits:
 *   the bound of calls in flight   saturation: slow tokens, 503
 *   the pace, in requests per s    growth and per-second limits
 *   the share of the quotas        RPM and TPM refusals, also when somebody else uses the account
 *
 * States: STARTUP doubles the bound; PROBING pulls it towards the highest number that went well,
 * with a small thrust beyond it; HOLD keeps it while tokens come slowly; DRAIN sends nothing after
 * a refusal; RECOVERY is the time after that. A cut happens once per epoch: every call is sent in an
 * epoch, a DRAIN's end begins the next, and what calls of an older one report changes no state.
 *
 * It counts nothing that the queue counts: who uses it says how many are in flight, what was waited
 * for and what was used in the last 60 s. It knows no clock and no randomness. All numbers it keeps
 * are finite. A row of zeroes is a controller that is not in use: it limits nothing and learns
 * nothing.
 *
 * Order of calls: adaptive_set_in_flight after every grant and every end (before adaptive_completed
 * or adaptive_refused of that end); adaptive_may_send before every decision. All: lock held.
 */
#ifndef SHARED_ADAPTIVE_H
#define SHARED_ADAPTIVE_H

#include "base/check.h"
#include "shared/layout.h"

#include <stdbool.h>
#include <stdint.h>

/* What is known beforehand. A quota that is not told is learned from refusals. */
struct adaptive_terms {
    int64_t requests_quota; /* per minute, of the upstream; 0 = not told */
    int64_t tokens_quota;   /* per minute (or of another unit); 0 = not told */
    /* The upstream told it itself, and may be wrong: it does not begin faster for that. */
    bool requests_heard, tokens_heard;
    uint32_t in_flight_max; /* 0 = ADAPTIVE_IN_FLIGHT_MAX */
    bool server_queueing;   /* the upstream lets calls wait instead of refusing a burst (F10) */
};
#define ADAPTIVE_IN_FLIGHT_MAX 400U

/* Does nothing but take the new terms over when the row is in use already. */
void adaptive_init(struct adaptive_row *row, const struct adaptive_terms *terms, int64_t now_ns);

struct adaptive_budget {
    int64_t capacity_micro, rate_micro; /* for bucket_set_capacity and _set_rate; 0, 0 = no bound */
};
struct adaptive_limits {
    uint32_t in_flight; /* a call may be granted while fewer are in flight; UINT32_MAX = no bound */
    uint32_t epoch;     /* of a call granted now: it reports with it */
    int64_t interval_ns;      /* after a grant, next_send = max(now, next_send) + interval */
    int64_t drained_until_ns; /* nothing is granted before; 0 = not drained */
    struct adaptive_budget requests, tokens;
};
/* What holds now; does all that is due by time first. */
struct adaptive_limits adaptive_may_send(struct adaptive_row *row, int64_t now_ns);
/* What is due by time: the end of a DRAIN, the measuring window, the second. */
void adaptive_tick(struct adaptive_row *row, int64_t now_ns);

/* In words of the queue: why the first one could not go at this look. */
enum adaptive_want { ADAPTIVE_WANT_PLACE, ADAPTIVE_WANT_PACE, ADAPTIVE_WANT_BUDGET };
void adaptive_waited(struct adaptive_row *row, enum adaptive_want want);
void adaptive_set_in_flight(struct adaptive_row *row, uint32_t in_flight, int64_t now_ns);
/* What we sent and used in the last 60 s, before adaptive_may_send. Without it a refused quota is
 * refused more often, and what lies beyond it is tried in the dark. */
void adaptive_set_minute(struct adaptive_row *row, int64_t requests_60s, int64_t tokens_60s);
/* A call was granted and goes out. */
void adaptive_sent(struct adaptive_row *row, int64_t now_ns);

/* A call that ended well. -1 = not known; other values below 0 or beyond reason are not used. */
struct adaptive_sample {
    uint32_t epoch;          /* it was granted in */
    int64_t input_tokens;    /* without cached ones: size class of its time to first token */
    int64_t output_tokens;   /* all that were paid for */
    int64_t streamed_tokens; /* that came one by one after the first, without hidden ones; -1 = no
                                stream */
    int64_t decode_ns;       /* from first to last of them, without the time we did not read */
    int64_t unread_ns;       /* that time */
    int64_t ttft_ns;
    int64_t latency_ns;
};
void adaptive_completed(struct adaptive_row *row, const struct adaptive_sample *sample,
                        int64_t now_ns);

/* Kinds of refusal. rpm or rps, and tpm or tps, are told apart from what we used. */
enum adaptive_kind {
    ADAPTIVE_RPM,
    ADAPTIVE_TPM,
    ADAPTIVE_RPS,
    ADAPTIVE_TPS,
    ADAPTIVE_BURST,
    ADAPTIVE_CAP,   /* 503, 529, overloaded */
    ADAPTIVE_FAULT, /* connection, 5xx, time-out before the first byte: two in a window are a cap */
    ADAPTIVE_KINDS
};
struct adaptive_refusal {
    enum adaptive_kind kind;
    uint32_t epoch;         /* the call was granted in */
    int64_t retry_after_ns; /* as the upstream said; <= 0 = it did not */
    int64_t requests_60s;   /* what we sent in the last 60 s, the refused one included ... */
    int64_t tokens_60s;     /* ... and used, with the refused one's input */
    uint32_t random;        /* any bits */
};
/* So long a wait is that of a minute's quota: a limit per second has forgotten by then. */
bool adaptive_asks_for_minute(int64_t retry_after_ns);
/* The refusal with kinds RPM/RPS and TPM/TPS made right from own use: a per-minute quota is only
 * reached by who used most of it. */
enum adaptive_kind adaptive_refine(const struct adaptive_row *row,
                                   const struct adaptive_refusal *refusal, int64_t now_ns);
/* Refines it first. True: it counted (one per epoch does, and none during a DRAIN). */
bool adaptive_refused(struct adaptive_row *row, const struct adaptive_refusal *refusal,
                      int64_t now_ns);

/* First demand (nobody waited, nobody was in flight) after idle_ns without any. */
void adaptive_resume_after_idle(struct adaptive_row *row, int64_t idle_ns, int64_t now_ns);
/* How long the call behind `ahead` waiting ones waits for pace, requests quota and a DRAIN. */
int64_t adaptive_wait_ns(struct adaptive_row *row, uint32_t ahead, int64_t now_ns);

/* What is worth keeping over a restart of the machine. The caller adds the age. */
struct adaptive_memory {
    double watermark, pace, growth, requests_share, tokens_share;
    double requests_learned,
        tokens_learned; /* quotas per minute that nobody configured; 0 = none */
    double mean_output; /* tokens; 0 = not known */
    double tpt_base_s;  /* seconds per token; 0 = not known */
};
#define ADAPTIVE_MEMORY_NS INT64_C(3600000000000) /* older ones are not taken */
struct adaptive_memory adaptive_export(const struct adaptive_row *row);
/* After adaptive_init, before the first call. A memory with a value that cannot be is not taken:
 * false. */
MUST_CHECK bool adaptive_import(struct adaptive_row *row, const struct adaptive_memory *memory,
                                int64_t age_ns, int64_t now_ns);

const char *adaptive_state_name(uint32_t state);
const char *adaptive_kind_name(enum adaptive_kind kind);

#endif
