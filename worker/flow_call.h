/*
 * flow_call.h - a call's side of flow control: which class it waits in, what it is charged at each
 * source it may go to, and what it really used when an attempt has ended. shared/flow.h decides.
 */
#ifndef WORKER_FLOW_CALL_H
#define WORKER_FLOW_CALL_H

#include "shared/calibration.h"
#include "shared/flow.h"
#include "shared/sources.h"

#include <stdbool.h>
#include <stdint.h>

struct request;
struct attempt;

/* By candidate of the scope. */
struct flow_targets {
    bool any; /* the scope has flow control at all */
    enum flow_class class;
    struct flow_target list[SOURCES_MAX];
    struct flow_terms terms[SOURCES_MAX];
    char models[SOURCES_MAX][NAME_SIZE];
    struct flow_claim claim; /* where tokens are counted */
    struct flow_price
        prices[SOURCES_MAX]; /* what it was granted for, or without a flow is taken for */
};

/* For the scope and the candidates of the request. */
void flow_targets_make(struct request *request);
/* The scope's class, or the one that the call claims and may. */
enum flow_class flow_class_of(const struct request *request);
/* "interactive": the words of the configuration, the header, the status page, labels, the ledger. */
const char *flow_class_name(enum flow_class class);
/* Its class, its client, its deadline. */
struct flow_call flow_call_of(const struct request *request);

/* The first byte of the attempt's request has gone out. */
void flow_call_sent(struct attempt *attempt);
/* Its answer grows: long ones are charged as they come, once a second. */
void flow_call_progress(struct attempt *attempt);
/* The attempt is over; its place is given back, once. lost: cancelled although nothing was wrong with
 * it: a hedge that came second. */
void flow_call_end(struct attempt *attempt, bool lost, int64_t now_ns);

#endif
