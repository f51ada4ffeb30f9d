/*
 * judge.h - what an answer, or the lack of one, means (H2): told by status, code, type and dialect
 * together, never by status alone. The rules are data: judge_list.h, read top to bottom, the first
 * match wins; tests/worker/test_judge.c has a row for every known error body.
 *
 * Pure: no I/O, no clock.
 */
#ifndef WORKER_JUDGE_H
#define WORKER_JUDGE_H

#include "worker/http_client.h"
#include "worker/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum attempt_class {
    ATTEMPT_OK,
    ATTEMPT_THROTTLE,   /* too fast, for now: another source, or later */
    ATTEMPT_QUOTA_DAY,  /* too much for today: another source, not later; fallback allowed */
    ATTEMPT_MONEY,      /* the account: another account, never later */
    ATTEMPT_CREDENTIAL, /* the key: another source */
    ATTEMPT_REQUEST,    /* the caller's fault: nobody else would answer otherwise */
    ATTEMPT_TRANSIENT,  /* the upstream's fault: again */
    ATTEMPT_UNSENT,     /* nothing was sent: again, surely not paid */
    ATTEMPT_UNKNOWN,    /* sent, no answer: may have been paid */
    ATTEMPT_OURS,       /* our own failure (memory, body): says nothing about the source */
};
/* "throttle", "quota_day", ...: the words of log and ledger. */
const char *attempt_class_name(enum attempt_class class);

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
};
void judge_hints_begin(struct judge_hints *hints);
void judge_hints_read(struct judge_hints *hints, const char *name, const char *value,
                      int64_t now_wall_ms);

/* An answer that came. body: of an error, or, when stream, the events that came before any content
 * (an error in the stream counts as the answer's); may be cut. */
struct judge_evidence {
    enum dialect_name dialect;
    int status;
    bool stream;
    const char *body;
    size_t body_bytes;
    const struct judge_hints *hints;
};

struct judgement {
    enum attempt_class class;
    enum throttle_dimension dimension;
    int64_t retry_after_ms; /* -1 = not said; from head or body (Gemini's retryDelay, "try again in
                               2.5s") */
    int should_retry;       /* as in the hints */
    int64_t out_ms; /* QUOTA_DAY, MONEY, CREDENTIAL: how long the source is out; 0 = not */
    char error[48]; /* for ledger and log: the upstream's code, else type, else the class's name;
                       only letters, digits, _ . - */
};
void judge_answer(const struct judge_evidence *evidence, struct judgement *ret);
/* No answer, or half of one. sent: some byte of the request went out. */
void judge_transport(enum http_outcome outcome, bool sent, struct judgement *ret);

#endif
