/*
 * upstream.h - one exchange with one source on behalf of a request: started, run until something of
 * interest happens, ended. Owns the sink that takes the upstream's head and body.
 */
#ifndef WORKER_UPSTREAM_H
#define WORKER_UPSTREAM_H

#include "worker/request.h"

/* Borrow a client and start the exchange; request->url and headers are built. Fault on failure. */
MUST_CHECK bool upstream_start(struct request *request);

enum upstream_event {
    UPSTREAM_PROGRESS, /* a head or body bytes came: request's fields tell */
    UPSTREAM_FINISHED, /* http_exchange_outcome has its outcome */
    UPSTREAM_FAILED,   /* given up: request->fault says why (time-out, client gone, fast stop) */
};
/* Run until one of these. Deadlines, the client's leaving and heartbeats are looked after. */
enum upstream_event upstream_run(struct request *request);
/* The exchange has finished: a fault for every outcome but a whole answer. */
void upstream_judge(struct request *request);
/* End the exchange and give the client back; harmless when there is none. */
void upstream_end(struct request *request);

/* Hand body bytes on to the client (or nowhere, when it left). False: abort the exchange. */
MUST_CHECK bool upstream_pass_body(struct request *request, const char *bytes, size_t length);

#endif
