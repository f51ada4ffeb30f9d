/*
 * attempts.c - step 6: the exchange with the upstream, until an answer's head commits the call. One
 * attempt at one source; nothing is sent twice.
 */
#include "worker/attempts.h"

#include "worker/heartbeat.h"
#include "worker/upstream.h"
#include "worker/upstream_head.h"

static enum step_result fail(struct request *request)
{
    upstream_end(request);
    /* The upstream's connection is closed: only now does the slot go (N1). */
    ticket_give(&request->ticket, request->client_gone ? WAIT_CLIENT_GONE : WAIT_DONE, NULL);
    return request->client_gone ? STEP_OVER : STEP_FAULT;
}

enum step_result attempts_step(struct request *request)
{
    if (!upstream_head_build(request)) {
        fault_set(&request->fault, FAULT_headers_too_large, "%s", "");
        return fail(request);
    }
    heartbeat_begin(request);
    if (!upstream_start(request))
        return fail(request);
    for (;;) {
        enum upstream_event event = upstream_run(request);

        if (event == UPSTREAM_FAILED)
            return fail(request);
        if (request->upstream_status != 0)
            return STEP_NEXT;
        if (event == UPSTREAM_FINISHED) {
            upstream_judge(request);
            return fail(request);
        }
    }
}
