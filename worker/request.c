/*
 * request.c - the life of one request: the table of steps below, top to bottom.
 *
 * A step says NEXT, or why not: a FAULT goes on at respond (which tells the client), OVER at settle
 * (there is nobody to tell). settle runs on every path, once.
 */
#include "worker/request.h"

#include "base/clock.h"
#include "worker/accept.h"
#include "worker/admission.h"
#include "worker/attempts.h"
#include "worker/identify.h"
#include "worker/receive.h"
#include "worker/relay.h"
#include "worker/respond.h"
#include "worker/route.h"
#include "worker/settle.h"

#include <stdlib.h>
#include <string.h>

enum step_place { STEP_BEFORE_ANSWER, STEP_ANSWER, STEP_ALWAYS };

static const struct step {
    const char *name;
    enum step_result (*run)(struct request *request);
    enum step_place place;
} steps[] = {
    {"accept", accept_step, STEP_BEFORE_ANSWER},       /* parameters, path, call id */
    {"identify", identify_step, STEP_BEFORE_ANSWER},   /* who asks */
    {"receive", receive_step, STEP_BEFORE_ANSWER},     /* the body, and what it asks for (intent) */
    {"route", route_step, STEP_BEFORE_ANSWER},         /* which scope serves it */
    {"admission", admission_step, STEP_BEFORE_ANSWER}, /* the gate: slot, wait or refusal */
    {"attempts", attempts_step, STEP_BEFORE_ANSWER}, /* upstream: try, judge, retry, hedge, until an
                                                        answer commits */
    {"relay", relay_step, STEP_BEFORE_ANSWER},       /* head and body to the client */
    {"respond", respond_step, STEP_ANSWER},          /* the end, or a fault in the caller's words */
    {"settle", settle_step, STEP_ALWAYS},            /* give back, book, log; on every path */
};

static bool step_applies(const struct step *step, enum step_result last)
{
    switch (last) {
    case STEP_NEXT:
        return true;
    case STEP_FAULT:
        return step->place != STEP_BEFORE_ANSWER;
    case STEP_OVER:
        return step->place == STEP_ALWAYS;
    }
    UNREACHABLE();
}

/* What a new request must find empty; buffers keep their memory. */
static void request_clear(struct request *request)
{
    request->accepted = false;
    request->client_name = "";
    request->route = NULL;
    request->scope = NULL;
    request->kind = CALL_OTHER;
    request->add_version = false;
    ticket_init(&request->ticket, &request->worker->gate);
    request->watch.active = false;
    request->watch_asked = false;
    request->queue_ns = request->flow_waited_ns = 0;
    request->client = NULL;
    request->candidates.count = 0;
    request->candidates.model = NULL;
    request->flow_targets.any = false;
    request->flow_refusal = FLOW_OPEN;
    request->attempt = request->lanes[0];
    attempt_clear(request->attempt);
    request->attempts = 0;
    request->retries = request->hedges = request->hedges_skipped = request->fallbacks = 0;
    request->hedge_won = false;
    request->retry_after_ms = -1;
    request->should_retry = -1;
    request->deadline_ns = CLOCK_NEVER;
    request->committed = false;
    request->discard = false;
    request->discard_bytes_max = 0;
    request->response = RESPONSE_NONE;
    request->next_heartbeat_ns = CLOCK_NEVER;
    request->status = 0;
    request->client_gone = false;
    request->fault = (struct fault){.code = FAULT_NONE, .retry_after_ms = -1};
}

enum fastcgi_accepted request_run(struct request *request)
{
    struct worker *worker = request->worker;
    enum fastcgi_accepted accepted;
    enum step_result last = STEP_NEXT;

    accepted = fastcgi_take(request->fcgi, worker->listen_fd,
                            worker->options->penstock.client_stall_timeout_ms);
    if (accepted != FASTCGI_CONNECTION)
        return accepted;
    /* Others must stand at the door while this connection takes its time to say what it wants. */
    door_entered(&worker->door, request->thread);
    atomic_fetch_add_explicit(&worker->accepts, 1, memory_order_relaxed);
    if (fastcgi_read_head(request->fcgi) != FASTCGI_REQUEST)
        return FASTCGI_CONNECTION;
    request_clear(request);
    for (size_t i = 0; i < LENGTH(steps); i++) {
        enum step_result result;

        if (!step_applies(&steps[i], last))
            continue;
        result = steps[i].run(request);
        if (result != STEP_NEXT)
            last = result;
    }
    attempt_free(request->lanes[1]); /* few calls are hedged */
    request->lanes[1] = NULL;
    spool_reset(&request->body); /* the thread may rest for hours; the disk is not its own */
    fastcgi_finish(request->fcgi);
    return FASTCGI_REQUEST;
}

struct request *request_new(struct worker *worker, struct bell_seat *seat)
{
    struct request *request = calloc(1, sizeof *request);

    if (!request)
        return NULL;
    request->worker = worker;
    request->seat = seat;
    request->fcgi = fastcgi_new();
    request->lanes[0] = attempt_new(request, 0);
    if (!request->fcgi || !request->lanes[0]) {
        fastcgi_free(request->fcgi);
        attempt_free(request->lanes[0]);
        free(request);
        return NULL;
    }
    request->attempt = request->lanes[0];
    spool_init(&request->body, &worker->spool_limits);
    client_watch_init(&request->watch);
    return request;
}

void request_free(struct request *request)
{
    if (!request)
        return;
    fastcgi_free(request->fcgi);
    spool_release(&request->body);
    client_watch_release(&request->watch);
    for (unsigned lane = 0; lane < PLAN_LANES; lane++)
        attempt_free(request->lanes[lane]);
    free(request);
}

enum step_result request_client_left(struct request *request)
{
    request->client_gone = true;
    fault_set(&request->fault, FAULT_client_gone, "%s", "");
    return STEP_OVER;
}

bool request_wants_stream(const struct request *request)
{
    return request->reader.intent.stream;
}

enum stream_family request_family(const struct request *request)
{
    switch (request->reader.intent.endpoint) {
    case ENDPOINT_CHAT:
    case ENDPOINT_COMPLETIONS:
        return STREAM_CHAT;
    case ENDPOINT_RESPONSES:
        return STREAM_RESPONSES;
    case ENDPOINT_IMAGES:
        return STREAM_IMAGES;
    case ENDPOINT_OTHER:
    case ENDPOINT_EMBEDDINGS:
    case ENDPOINT_GEMINI:
    case ENDPOINT_DASHSCOPE:
    case ENDPOINT_MESSAGES:
        return STREAM_OTHER;
    }
    UNREACHABLE();
}
