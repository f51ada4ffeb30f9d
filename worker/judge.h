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
#include "worker/judge_hints.h"
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

/* An answer that came. body: of an error, or, when stream, the events that came before any content
 * (an error in the stream counts as the answer's); may be cut. An error object in the body of a 2xx
 * counts, too, where the caller gives it. */
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
                               2.5s"), or the reset of a day's quota where that is known */
    int should_retry;       /* as in the hints */
    int64_t out_ms;         /* QUOTA_DAY, MONEY, CREDENTIAL: how long the source is out; 0 = not */
    bool maybe_billed; /* somebody gave up waiting for an answer: the work may have been done; true
                         for all UNKNOWN and for TRANSIENT by 408, 502 and 504 */
    char error[48];    /* for ledger and log: the upstream's code, else type, else the class's name;
                         only letters, digits, _ . -; "" for OK */
};
void judge_answer(const struct judge_evidence *evidence, struct judgement *ret);
/* No answer, or half of one. sent: some byte of the request went out. RUNNING: we gave up waiting;
 * COMPLETE: a whole answer without content (a stream that ended before any). */
void judge_transport(enum http_outcome outcome, bool sent, struct judgement *ret);

#endif
