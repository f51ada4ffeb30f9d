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
    {"route", route_step, STEP_BEFORE_ANSWER},         /* which source serves it */
    {"admission", admission_step, STEP_BEFORE_ANSWER}, /* the gate: slot, wait or refusal */
    {"attempts", attempts_step, STEP_BEFORE_ANSWER}, /* upstream, until an answer's head commits */
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
    request->source = NULL;
    request->kind = CALL_OTHER;
    request->add_version = false;
    ticket_init(&request->ticket, &request->worker->gate);
    request->watch.active = false;
    request->watch_asked = false;
    request->queue_ns = 0;
    request->client = NULL;
    request->exchange = NULL;
    text_clear(&request->url);
    text_clear(&request->header_bytes);
    text_clear(&request->head);
    text_clear(&request->held);
    request->header_count = 0;
    request->attempts = 0;
    request->attempt_started_ns = 0;
    request->upstream_status = 0;
    request->upstream_error[0] = '\0';
    request->upstream_is_stream = false;
    request->upstream_length = -1;
    request->upstream_bytes = 0;
    request->last_upstream_ns = 0;
    request->ttft_ns = 0;
    request->upstream_by_close = false;
    request->committed = false;
    request->discard = false;
    request->counting = false;
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
    fastcgi_finish(request->fcgi);
    spool_reset(&request->body); /* the thread may rest for hours; the disk is not its own */
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
    if (!request->fcgi) {
        free(request);
        return NULL;
    }
    spool_init(&request->body, &worker->spool_limits);
    client_watch_init(&request->watch);
    text_init(&request->url, 16384);
    text_init(&request->header_bytes, HTTP_HEAD_BYTES_MAX);
    text_init(&request->head, HTTP_HEAD_BYTES_MAX + 4096);
    text_init(&request->held, REQUEST_BODY_HELD_MAX);
    return request;
}

void request_free(struct request *request)
{
    if (!request)
        return;
    fastcgi_free(request->fcgi);
    spool_release(&request->body);
    client_watch_release(&request->watch);
    text_release(&request->url);
    text_release(&request->header_bytes);
    text_release(&request->head);
    text_release(&request->held);
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
