/*
 * upstream.h - waits for a request's exchanges with everything else in view: the client's leaving,
 * heartbeats, the fast stop, time.
 */
#ifndef WORKER_UPSTREAM_H
#define WORKER_UPSTREAM_H

#include "worker/request.h"

enum upstream_event {
    UPSTREAM_PROGRESS, /* a head or body bytes came: the attempts tell */
    UPSTREAM_FINISHED, /* an exchange has its outcome */
    UPSTREAM_TIME,     /* until_ns has come, or an attempt's own deadline */
    UPSTREAM_STOPPED,  /* nothing goes on: request->fault says why (client gone, fast stop) */
};
/* Run until one of these. */
enum upstream_event upstream_run(struct request *request, int64_t until_ns);

/* Hand body bytes on to the client (or nowhere, when it left). False: abort the exchange. */
MUST_CHECK bool upstream_pass_body(struct request *request, const char *bytes, size_t length);
/* When the upstream has sent all it announced its work is over: the slot goes before our last
 * write (G9). */
void upstream_give_slot(struct request *request);

/* Borrow a client for the request's exchanges. False: a fault. */
MUST_CHECK bool upstream_open(struct request *request);
/* End what runs and give the client back; harmless when there is none. */
void upstream_close(struct request *request);

#endif
