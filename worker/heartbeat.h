/*
 * heartbeat.h - signs of life to a client that gets no answer yet: comments on an event stream,
 * blanks before a JSON document. Each is also a probe: writing finds out whether the client is
 * still there.
 *
 * The first one commits status 200, so it comes only when the operator's options say so: a stream
 * after queue_stream_headers_after_seconds in the queue, a JSON answer after
 * nonstream_heartbeat_seconds.
 */
#ifndef WORKER_HEARTBEAT_H
#define WORKER_HEARTBEAT_H

#include "worker/request.h"

/* The call begins to wait (in the queue or for its upstream): set when the first one is due. */
void heartbeat_begin(struct request *request);
/* It waits in a flow (shared/flow.h), where every stream is kept alive, with or without a gate. */
void heartbeat_begin_in_flow(struct request *request);
/* Send what is due at now_ns. False: the client is gone. */
bool heartbeat_send(struct request *request, int64_t now_ns);

#endif
