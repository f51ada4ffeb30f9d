/*
 * attempts.c - step 6: the exchange with the upstream, until an answer's head commits the call. One
 * attempt at one source; nothing that could be paid twice is sent twice.
 *
 * An upstream may close a kept connection in the very moment it is used again. A GET that got no answer
 * is therefore asked once more, on a fresh connection; anything else has an unknown outcome and fails.
 */
#include "worker/attempts.h"

#include "worker/heartbeat.h"
#include "worker/upstream.h"
#include "worker/upstream_head.h"

#include <string.h>

static enum step_result fail(struct request *request)
{
    upstream_end(request);
    /* The upstream's connection is closed: only now does the slot go (N1). */
    ticket_give(&request->ticket, request->client_gone ? WAIT_CLIENT_GONE : WAIT_DONE, NULL);
    return request->client_gone ? STEP_OVER : STEP_FAULT;
}

/* Asks for nothing but an answer (RFC 9110, 9.2.1), got none, and was asked only once. */
static bool may_ask_again(const struct request *request)
{
    return request->attempts == 1 && request->body.bytes == 0 &&
           http_exchange_outcome(request->exchange) == HTTP_NO_ANSWER &&
           (strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0);
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
        if (event != UPSTREAM_FINISHED)
            continue;
        if (may_ask_again(request)) {
            upstream_end(request);
            if (upstream_start(request))
                continue;
            return fail(request);
        }
        upstream_judge(request);
        return fail(request);
    }
}
