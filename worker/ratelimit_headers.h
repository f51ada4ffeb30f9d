/*
 * ratelimit_headers.h - what an upstream says about its own limits in the head of every answer (F7):
 * x-ratelimit-*, anthropic-ratelimit-*. Collected header by header, like judge_hints. Pure.
 *
 * What is missing, negative, not a number, or a limit of 0 (Azure sends -1 and 0 for "not told") is
 * unknown: -1. Take care with the numbers: `remaining` is older than what was sent since, and the head
 * does not tell the period of a limit (Groq's requests are per day). `reset` is not read: it is the
 * time until all of the quota is back, no time to wait.
 */
#ifndef WORKER_RATELIMIT_HEADERS_H
#define WORKER_RATELIMIT_HEADERS_H

#include <stdbool.h>
#include <stdint.h>

enum ratelimit_unit {
    RATELIMIT_REQUESTS,
    RATELIMIT_TOKENS,        /* of all kinds */
    RATELIMIT_INPUT_TOKENS,  /* where they are counted apart (Anthropic) */
    RATELIMIT_OUTPUT_TOKENS, /* likewise */
    RATELIMIT_UNITS,
};

struct ratelimit {
    int64_t limit, remaining; /* each -1 = unknown */
    /* The collector's own: the limit was told as none. */
    bool void_limit;
};

struct ratelimit_headers {
    struct ratelimit units[RATELIMIT_UNITS];
    bool any; /* something is known */
};

void ratelimit_headers_begin(struct ratelimit_headers *headers);
void ratelimit_headers_read(struct ratelimit_headers *headers, const char *name, const char *value);

#endif
