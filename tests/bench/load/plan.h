/*
 * plan.h - what the load client is asked to do: its command line, and the request it repeats.
 */
#ifndef TESTS_BENCH_LOAD_PLAN_H
#define TESTS_BENCH_LOAD_PLAN_H

#include "base/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PLAN_CONNECTIONS_MAX 20000
#define PLAN_REQUESTS_MAX 10000000
#define PLAN_HEAD_MAX 65536

enum plan_mode {
    PLAN_CLOSED, /* keep-alive connections, the next request when the last is answered */
    PLAN_RATE,   /* so many a second whatever happens; latency counts from the planned time */
    PLAN_ONCE,   /* each connection one request, opened at a rate (0: all at once) */
};

struct plan {
    enum plan_mode mode;
    unsigned port; /* on 127.0.0.1 */
    unsigned connections;
    unsigned requests;
    double rate;          /* a second */
    int64_t duration_ns;  /* longest run */
    int64_t timeout_ns;   /* longest request */
    unsigned leave_every; /* of so many clients one leaves; 0 = none */
    int64_t leave_ns;     /* so long after it sent its request */
    FILE *log;            /* one line for each request, or NULL */
    /* The request: head, upload_bytes of file, tail. */
    char *head; /* owned */
    size_t head_bytes;
    char *call_number; /* six digits within head: the connection's index */
    uint64_t upload_bytes;
    const char *tail;
    size_t tail_bytes;
};

/* False: the command line is wrong (usage was printed) or memory ran out. */
MUST_CHECK bool plan_init(struct plan *plan, int argc, char **argv);
void plan_release(struct plan *plan);
/* All bytes of one request. */
uint64_t plan_request_bytes(const struct plan *plan);
/* The request of connection number index. */
void plan_address(struct plan *plan, unsigned index);

#endif
