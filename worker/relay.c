/*
 * relay.c - step 7: from the commit on: head and body to the client, byte for byte, each upstream
 * flush of a stream at once. What kind of answer it is is told by the upstream's content type,
 * never by the request.
 *
 * Where an early head was sent already (heartbeat.c), the answer must fit it: an event stream goes
 * on as it is; anything else is wrapped in one event, an error in the family's error shape.
 */
#include "worker/relay.h"

#include "base/byte_run.h"
#include "base/clock.h"
#include "shared/leases.h"
#include "worker/respond.h"
#include "worker/upstream.h"

#include <string.h>

/* A larger document than this, for a client that was promised a stream, stalls and ends in an
 * error. */
#define WRAPPED_BYTES_MAX (128U << 20)

/* A document for a client that was promised a stream: held back whole, then sent as one event. */
static bool must_wrap(const struct request *request)
{
    return request->response == RESPONSE_STREAM && !request->attempt->is_stream;
}

/* Can the answer follow the head that was sent before it came? One that is encoded, or of another
 * type, would not be read (a blank or a comment already was). */
static bool fits_early_head(const struct request *request)
{
    switch (request->response) {
    case RESPONSE_NONE:
    case RESPONSE_BODY:
        return true;
    case RESPONSE_STREAM:
        return request->attempt->pictures.body != PICTURES_IGNORED;
    case RESPONSE_HEARTBEAT:
        return request->attempt->pictures.body == PICTURES_JSON;
    }
    UNREACHABLE();
}

static void set_misfit(struct request *request)
{
    fault_set(&request->fault, FAULT_upstream_bad_answer,
              "It answered %d with what does not fit the %s that was begun while waiting.",
              request->attempt->status,
              request->response == RESPONSE_STREAM ? "stream" : "document");
}

static bool send_head(struct request *request)
{
    struct text *head = &request->attempt->head;

    if (request->response != RESPONSE_NONE)
        return true;
    request->response = request->attempt->is_stream ? RESPONSE_STREAM : RESPONSE_BODY;
    if (!respond_finish_head(request, head)) {
        fault_set(&request->fault, FAULT_out_of_memory, "%s", "");
        return false;
    }
    return upstream_pass_body(request, text_string(head), head->length);
}

/* From now on body bytes go straight through. */
static bool commit(struct request *request)
{
    struct attempt *attempt = request->attempt;
    struct text *held = &attempt->held;
    bool passed;

    request->committed = true;
    request->status = attempt->status;
    upstream_give_slot(request);
    passed = send_head(request) && attempt_pass(attempt, text_string(held), held->length);
    attempt_shed(attempt);
    http_exchange_resume(attempt->exchange);
    return passed;
}

static bool is_final_status(const char *status)
{
    static const char *const words[] = {"completed", "failed", "incomplete", "cancelled",
                                        "SUCCEEDED", "FAILED", "CANCELED",   "UNKNOWN"};

    for (size_t i = 0; i < LENGTH(words); i++)
        if (strcmp(status, words[i]) == 0)
            return true;
    return false;
}

/* The upstream has nothing more to do for this call; background work goes on under a lease (G13).
 */
static void give_ticket(struct request *request)
{
    const struct delivered *delivered = &request->attempt->pictures.delivered;
    const struct lease_terms terms = {
        .id = delivered->id,
        .source = request->attempt->source->name,
        .instance = request->worker->segment->instance,
        .duration_ns = request->worker->options->image.background_lease_ms * NS_PER_MS,
    };
    bool goes_on = request->reader.intent.background && request->attempt->status / 100 == 2 &&
                   *delivered->id && !is_final_status(delivered->status);
    enum wait_state end = request->client_gone && !request->discard ? WAIT_CLIENT_GONE : WAIT_DONE;

    ticket_give(&request->ticket, end, goes_on ? &terms : NULL);
    if (!goes_on && *delivered->id && is_final_status(delivered->status) &&
        request->worker->options->image.active)
        (void)gate_end_lease(&request->worker->gate, delivered->id, clock_monotonic_ns());
}

static enum step_result finish(struct request *request)
{
    struct attempt *attempt = request->attempt;
    enum fault_code fault;

    attempt_read_end(attempt);
    if (request->committed && !attempt_pass_end(attempt) && !request->client_gone)
        (void)request_client_left(request);
    fault = attempt_outcome_fault(attempt);
    if (fault != FAULT_NONE)
        fault_set(&request->fault, fault, "%s", "");
    if (attempt->bytes == 0 && (request->response == RESPONSE_HEARTBEAT || must_wrap(request))) {
        request->committed = false; /* there is still no document: ours can be it */
        set_misfit(request);
    }
    if (http_exchange_outcome(attempt->exchange) != HTTP_COMPLETE)
        attempt_end(attempt); /* closed before the slot goes */
    give_ticket(request);
    if (request->client_gone)
        return STEP_OVER;
    return request->fault.code == FAULT_NONE ? STEP_NEXT : STEP_FAULT;
}

/* The held document as one event, a data line for each of its lines: readers join them again. */
static bool write_event(struct request *request)
{
    struct fastcgi *fcgi = request->fcgi;
    const char *at = text_string(&request->attempt->held);
    const char *end = at + request->attempt->held.length;
    bool written = request->attempt->status / 100 == 2 || fastcgi_write(fcgi, "event: error\n", 13);

    while (written && at < end) {
        size_t length = byte_run_until(at, (size_t)(end - at), '\r', '\n');

        written = fastcgi_write(fcgi, "data: ", 6) && fastcgi_write(fcgi, at, length) &&
                  fastcgi_write(fcgi, "\n", 1);
        at += length;
        while (at < end && (*at == '\r' || *at == '\n'))
            at++;
    }
    return written && fastcgi_write(fcgi, "\n", 1);
}

static enum step_result finish_wrapped(struct request *request)
{
    enum step_result result = finish(request);

    request->status = request->attempt->status;
    if (result == STEP_NEXT && !write_event(request))
        result = request_client_left(request);
    attempt_shed(request->attempt);
    return result;
}

/* What came is sent on at once where more will come at its own pace: of event streams, and of all else
 * whose length nobody knows (speech, lines and lists of JSON). */
static bool flush(struct request *request)
{
    bool paced = request->attempt->is_stream || request->attempt->length < 0;

    if (!paced || request->discard || fastcgi_flush(request->fcgi))
        return true;
    return upstream_pass_body(request, "", 0); /* finds the client gone, and decides */
}

/* Time is up, the call's or the exchange's. Where the answer was whole already it is only the
 * connection that lingers. */
static void end_at_deadline(struct request *request)
{
    struct attempt *attempt = request->attempt;
    struct attempt_deadline deadline = attempt_deadline(attempt);

    if (attempt_stream_has_ended(attempt))
        return;
    if (clock_monotonic_ns() >= request->deadline_ns) {
        attempt->fault = FAULT_call_deadline;
        (void)text_copy(attempt->judgement.error, sizeof attempt->judgement.error, "deadline");
    } else {
        attempt->fault = deadline.fault;
        (void)text_copy(attempt->judgement.error, sizeof attempt->judgement.error, deadline.error);
    }
}

static bool is_over(const struct request *request, int64_t now_ns)
{
    return now_ns >= request->deadline_ns || now_ns >= attempt_deadline(request->attempt).at_ns;
}

enum step_result relay_step(struct request *request)
{
    struct attempt *attempt = request->attempt;
    bool wrap = must_wrap(request);

    if (!fits_early_head(request)) {
        set_misfit(request);
        return finish(request);
    }
    if (wrap) {
        attempt->held.limit = WRAPPED_BYTES_MAX;
        http_exchange_resume(attempt->exchange);
    } else if (!commit(request)) {
        return finish(request);
    }
    while (http_exchange_outcome(attempt->exchange) == HTTP_RUNNING) {
        enum upstream_event event;

        if (!wrap && !flush(request))
            break;
        event = upstream_run(request, request->deadline_ns);
        if (event == UPSTREAM_STOPPED || event == UPSTREAM_FINISHED)
            break;
        if (request->discard_bytes_max > 0 && attempt->bytes > request->discard_bytes_max)
            break;
        if (event == UPSTREAM_TIME && is_over(request, clock_monotonic_ns())) {
            end_at_deadline(request);
            break;
        }
    }
    if (!wrap)
        return finish(request);
    return finish_wrapped(request);
}
