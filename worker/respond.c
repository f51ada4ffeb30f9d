/*
 * respond.c - step 8: the end of the answer, or a fault turned into the caller's error dialect.
 *
 * Before anything was sent a fault is a status with the OpenAI error object. In a stream it is one
 * error event of the endpoint's family, never followed by [DONE]. After heartbeats of a JSON answer
 * it is the document itself. In the middle of an upstream's JSON body there is nothing to say: the
 * connection is closed without an end.
 */
#include "worker/respond.h"

#include "base/clock.h"
#include "worker/reason.h"

#include <string.h>

#define RETRY_AFTER_MAX_MS 60000 /* SDKs ignore longer ones and come back in a second */
#define RETRY_AFTER_UNKNOWN_MS 5000
#define RESET_MAX_NS (86400 * NS_PER_S)

void respond_append_own_headers(struct request *request, struct text *head)
{
    text_append_string(head, "x-request-id: ");
    text_append_string(head, request->call_id);
    text_append(head, "\r\n", 2);
    if (request->candidates.model) /* the caller asked for another one (H20) */
        text_printf(head, "x-penstock-model: %s\r\n", request->candidates.model);
    if (!request->worker->options->penstock.penstock_headers)
        return;
    if (request->scope)
        text_printf(head, "x-penstock-scope: %s\r\n", request->scope->name);
    if (request->attempt->source)
        text_printf(head, "x-penstock-source: %s\r\n", request->attempt->source->name);
    text_printf(head, "x-penstock-wait-ms: %lld\r\nx-penstock-attempts: %u\r\n",
                (long long)(request->queue_ns / NS_PER_MS), request->attempts);
    if (request->hedges > 0)
        text_printf(head, "x-penstock-hedges: %u\r\n", request->hedges);
}

bool respond_begin(struct request *request, enum response_state state)
{
    bool stream = state == RESPONSE_STREAM;
    struct text head;
    bool sent;

    REQUIRE(request->response == RESPONSE_NONE);
    text_init(&head, 8192);
    text_printf(&head, "Content-Type: %s\r\nCache-Control: no-cache\r\n",
                stream ? "text/event-stream" : "application/json");
    text_append_string(&head, "X-Accel-Buffering: no\r\n");
    respond_append_own_headers(request, &head);
    text_append_string(&head, "\r\n");
    request->response = state;
    request->status = 200;
    sent = !head.overflowed && fastcgi_write(request->fcgi, text_string(&head), head.length);
    text_release(&head);
    return sent;
}

static void append_retry(struct text *head, int64_t after_ms, int should_retry)
{
    if (should_retry >= 0)
        text_printf(head, "x-should-retry: %s\r\n", should_retry ? "true" : "false");
    if (after_ms >= 0)
        text_printf(head, "Retry-After: %lld\r\nretry-after-ms: %lld\r\n",
                    (long long)((after_ms + 999) / 1000), (long long)after_ms);
}

/* Every 429 and 503 says when; without a prediction it is a guess, unless retrying is vain. */
static int64_t wait_told_ms(int status, int64_t after_ms, int should_retry)
{
    return after_ms < 0 && should_retry != 0 && (status == 429 || status == 503)
               ? RETRY_AFTER_UNKNOWN_MS
               : after_ms;
}

/* A wait that is longer than SDKs heed would make them come back at once: better not at all. */
static int should_retry_after(int64_t after_ms, int should_retry)
{
    return after_ms > RETRY_AFTER_MAX_MS ? 0 : should_retry;
}

bool respond_finish_head(struct request *request, struct text *head)
{
    const int status = request->attempt->status;
    int64_t after_ms = request->retry_after_ms;

    if (!request->scope->direct) /* there the upstream's own words are left */
        after_ms = wait_told_ms(status, after_ms, request->should_retry);
    if (status >= 400)
        append_retry(head, after_ms, should_retry_after(after_ms, request->should_retry));
    respond_append_own_headers(request, head);
    text_append_string(head, "\r\n");
    return !head->overflowed;
}

static void append_retry_headers(const struct request *request, struct text *head)
{
    const struct fault *fault = &request->fault;
    /* Who has tried everything already knows better (H3). */
    int should_retry =
        request->should_retry >= 0 ? request->should_retry : fault_should_retry(fault->code);
    int status = fault_status(fault->code);
    int64_t after_ms = wait_told_ms(status, fault->retry_after_ms, should_retry);

    if (after_ms > RETRY_AFTER_MAX_MS)
        after_ms = RETRY_AFTER_MAX_MS;
    if (after_ms >= 0 && after_ms < 1000)
        after_ms = 1000;
    append_retry(head, after_ms, should_retry);
}

/* Of our quota, in the words of upstreams; reset is when all that may be saved up is there. */
static void append_standing(struct text *head, const char *unit, const struct flow_standing *is)
{
    if (is->quota <= 0)
        return;
    text_printf(head,
                "x-ratelimit-limit-%s: %lld\r\nx-ratelimit-remaining-%s: %lld\r\n"
                "x-ratelimit-reset-%s: %lldms\r\n",
                unit, (long long)is->quota, unit, (long long)is->left, unit,
                (long long)(clock_earlier(is->full_ns, RESET_MAX_NS) / NS_PER_MS));
}

static void append_quotas(const struct request *request, struct text *head)
{
    if (request->fault.code != FAULT_rate_limit)
        return;
    append_standing(head, "requests", &request->requests_standing);
    if (request->standing_unit == FLOW_UNIT_TOKENS)
        append_standing(head, "tokens", &request->units_standing);
}

/* RFC 9110, 15.5.6. Others that the upstream may know are passed on as well. */
static void append_allow(const struct request *request, struct text *head)
{
    if (request->fault.code == FAULT_method)
        text_append_string(head, "Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n");
}

static void send_status(struct request *request)
{
    struct text body, head;

    text_init(&body, 4096);
    text_init(&head, 8192);
    fault_append_json(&request->fault, &body);
    text_printf(&head, "Status: %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n",
                request->status, reason_of(request->status), body.length);
    append_retry_headers(request, &head);
    append_quotas(request, &head);
    append_allow(request, &head);
    respond_append_own_headers(request, &head);
    text_append_string(&head, "\r\n");
    (void)fastcgi_write(request->fcgi, text_string(&head), head.length);
    if (strcmp(request->method ? request->method : "", "HEAD") != 0)
        (void)fastcgi_write(request->fcgi, text_string(&body), body.length);
    text_release(&head);
    text_release(&body);
}

/* One that is encoded was not read, and where the reader stands is where it stood before. */
static bool ends_between_events(const struct request *request)
{
    return request->attempt->counting && request->attempt->pictures.body == PICTURES_SSE &&
           request->attempt->pictures.sse.at_boundary;
}

static void send_event(struct request *request)
{
    struct text event;

    text_init(&event, 4096);
    /* The upstream may have stopped in the middle of a line or event: end it, so that ours is read.
     */
    if (request->committed && !ends_between_events(request))
        text_append_string(&event, "\n\n");
    fault_append_event(&request->fault, request_family(request), &event);
    (void)fastcgi_write(request->fcgi, text_string(&event), event.length);
    text_release(&event);
}

static void send_document(struct request *request)
{
    struct text body;

    text_init(&body, 4096);
    fault_append_json(&request->fault, &body);
    (void)fastcgi_write(request->fcgi, text_string(&body), body.length);
    text_release(&body);
}

/* Tell the fault; false when the answer must be cut off without an end. */
static bool tell_fault(struct request *request)
{
    request->status = fault_status(request->fault.code);
    switch (request->response) {
    case RESPONSE_NONE:
        send_status(request);
        return true;
    case RESPONSE_STREAM:
        send_event(request);
        return true;
    case RESPONSE_HEARTBEAT:
        if (request->committed)
            return false; /* half of the upstream's document was sent */
        send_document(request);
        return true;
    case RESPONSE_BODY:
        return false;
    }
    UNREACHABLE();
}

enum step_result respond_step(struct request *request)
{
    bool whole = true;

    if (request->fault.code != FAULT_NONE)
        whole = tell_fault(request);
    if (whole && !request->client_gone && !fastcgi_end(request->fcgi))
        request->client_gone = true;
    return STEP_NEXT;
}
