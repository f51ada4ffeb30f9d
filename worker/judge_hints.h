/*
 * judge_hints.h - when to try again, in the words upstreams use: headers, durations, sentences.
 *
 * What is zero, negative, not a number or nonsense says nothing: -1. Waits longer than
 * JUDGE_WAIT_MAX_MS are told as that. Pure.
 */
#ifndef WORKER_JUDGE_HINTS_H
#define WORKER_JUDGE_HINTS_H

#include <stdbool.h>
#include <stdint.h>

#define JUDGE_WAIT_MAX_MS (INT64_C(31) * 24 * 3600 * 1000)

enum throttle_dimension {
    THROTTLE_UNKNOWN,
    THROTTLE_REQUESTS,
    THROTTLE_TOKENS,
    THROTTLE_RAMP,
    THROTTLE_CONCURRENCY,
};

/* What the head says about trying again; collected header by header. */
struct judge_hints {
    int64_t retry_after_ms; /* -1 = not said. Order: retry-after-ms, x-ms-retry-after-ms,
                               retry-after (seconds, also fractions, or a date) */
    int rank;               /* of the header that said it; the collector's own */
    int should_retry;       /* x-should-retry: 1, 0; -1 = not said */
    bool intermediary; /* the head looks like a proxy's own (via/server of a known one, HTML) */
    enum throttle_dimension exhausted; /* whose remaining quota is told to be 0 */
    int64_t now_wall_ms;               /* as given with the last header; 0 = not known */
};
void judge_hints_begin(struct judge_hints *hints);
void judge_hints_read(struct judge_hints *hints, const char *name, const char *value,
                      int64_t now_wall_ms);

/* "37s", "1.5s", "6m0s", "120ms", "1h": the whole string; -1 = no duration, or none to wait. */
int64_t judge_hints_duration_ms(const char *duration);
/* The first "try again in 2.5s", "retry after 20 seconds" and the like in a sentence; -1 = none. */
int64_t judge_hints_sentence_ms(const char *sentence);

#endif
