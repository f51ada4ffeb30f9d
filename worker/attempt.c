/* attempt.c - one exchange with one source; see attempt.h. */
#include "worker/attempt.h"

#include "base/clock.h"
#include "worker/flow_call.h"
#include "worker/flow_head.h"
#include "worker/flow_usage.h"
#include "worker/http_head.h"
#include "worker/model_edit.h"
#include "worker/request.h"
#include "worker/upstream.h"
#include "worker/upstream_head.h"
#include "worker/usage_option.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HELD_BYTES_KEPT (16U << 10)

struct attempt *attempt_new(struct request *request, unsigned lane)
{
    struct attempt *attempt = calloc(1, sizeof *attempt);

    if (!attempt)
        return NULL;
    attempt->request = request;
    attempt->lane = lane;
    text_init(&attempt->url, 16384);
    text_init(&attempt->header_bytes, HTTP_HEAD_BYTES_MAX);
    text_init(&attempt->model, MODEL_EDIT_TEXT_MAX);
    text_init(&attempt->head, HTTP_HEAD_BYTES_MAX + 4096);
    text_init(&attempt->held, ATTEMPT_BODY_HELD_MAX);
    text_init(&attempt->error_body, ATTEMPT_ERROR_BODY_MAX);
    attempt_clear(attempt);
    return attempt;
}

void attempt_free(struct attempt *attempt)
{
    if (!attempt)
        return;
    text_release(&attempt->url);
    text_release(&attempt->header_bytes);
    text_release(&attempt->model);
    text_release(&attempt->head);
    text_release(&attempt->held);
    text_release(&attempt->error_body);
    if (attempt->strips_usage)
        usage_strip_release(&attempt->strip);
    free(attempt);
}

void attempt_clear(struct attempt *attempt)
{
    REQUIRE(!attempt->exchange);
    if (attempt->strips_usage)
        usage_strip_release(&attempt->strip);
    attempt->source = NULL;
    attempt->candidate = 0;
    attempt->n = 0;
    attempt->hedge = false;
    attempt->permit = (struct source_permit){.row = NO_INDEX};
    attempt->flow_place = NO_INDEX;
    attempt->flow_sent = attempt->strips_usage = attempt->was_sent = false;
    attempt->flow_progress_ns = attempt->flow_paused_until_ns = 0;
    attempt->started_ns = attempt->started_wall_ms = 0;
    text_clear(&attempt->head);
    text_clear(&attempt->held);
    attempt->held.limit = ATTEMPT_BODY_HELD_MAX;
    text_clear(&attempt->error_body);
    attempt->status = 0;
    attempt->is_stream = attempt->is_encoded = attempt->by_close = false;
    attempt->length = -1;
    attempt->bytes = 0;
    attempt->last_ns = attempt->ttft_ns = 0;
    attempt->counting = attempt->read_to_end = attempt->full = false;
    attempt->booked = attempt->opened = false;
    attempt->fault = FAULT_NONE;
    attempt->transport_error[0] = '\0';
    attempt->judgement = (struct judgement){.class = ATTEMPT_OK, .retry_after_ms = -1};
    attempt->limit_kind = NULL;
    judge_hints_begin(&attempt->hints);
}

/* ---- what comes ------------------------------------------------------------------------------ */

static const char *header_value(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->header_count; i++)
        if (text_same_name(head->headers[i].name, name))
            return head->headers[i].value;
    return NULL;
}

/* Chunks tell a body's end; with any other transfer coding the connection does (RFC 9112, 6.3). */
static bool is_chunked(const struct http_head *head)
{
    for (size_t i = 0; i < head->header_count; i++)
        if (text_same_name(head->headers[i].name, "transfer-encoding") &&
            strcasestr(head->headers[i].value, "chunked"))
            return true;
    return false;
}

static void on_sent(void *context)
{
    flow_call_sent(context);
}

static bool on_head(void *context, const struct http_head *head)
{
    struct attempt *attempt = context;
    struct request *request = attempt->request;
    const char *type = header_value(head, "content-type");
    const char *encoding = header_value(head, "content-encoding");

    attempt->status = head->status;
    attempt->length = head->content_length;
    attempt->is_stream = type && strncasecmp(type, "text/event-stream", 17) == 0;
    attempt->is_encoded = http_head_is_encoding(encoding);
    attempt->by_close = head->content_length < 0 && !is_chunked(head);
    attempt->last_ns = clock_monotonic_ns();
    flow_head_hear(attempt, head);
    upstream_head_translate(attempt, head);
    if (attempt->head.overflowed) { /* half a head would swallow the body's beginning */
        attempt->fault = FAULT_out_of_memory;
        attempt->status = 0;
        return false;
    }
    if (head->status >= 400 || attempt->is_stream) { /* an error may be in the stream */
        attempt->held.limit = ATTEMPT_BODY_HELD_MAX; /* only documents are held for longer */
        for (size_t i = 0; i < head->header_count; i++)
            judge_hints_read(&attempt->hints, head->headers[i].name, head->headers[i].value,
                             clock_wall_ms());
    }
    pictures_begin(&attempt->pictures, request->reader.intent.endpoint, type, encoding);
    attempt->counting = true;
    if (flow_usage_counts_text(attempt))
        pictures_count_text(&attempt->pictures, request->reader.intent.choices > 1);
    http_client_wake(request->client);
    return true;
}

bool attempt_shows_content(const struct attempt *attempt)
{
    return attempt->is_stream && attempt->pictures.body == PICTURES_SSE &&
           attempt->request->reader.intent.endpoint != ENDPOINT_OTHER &&
           attempt->request->reader.intent.endpoint != ENDPOINT_EMBEDDINGS;
}

static void read_along(struct attempt *attempt, const char *bytes, size_t length)
{
    attempt->last_ns = clock_monotonic_ns();
    attempt->bytes += (int64_t)length;
    pictures_feed(&attempt->pictures, bytes, length);
    if (attempt->ttft_ns == 0 &&
        (!attempt_shows_content(attempt) || attempt->pictures.delivered.content_seen))
        attempt->ttft_ns = attempt->last_ns - attempt->started_ns;
    if (attempt->status >= 400) {
        size_t room = attempt->error_body.limit - attempt->error_body.length;

        text_append(&attempt->error_body, bytes, length < room ? length : room);
    }
}

static bool is_committed(const struct attempt *attempt)
{
    return attempt->request->committed && attempt->request->attempt == attempt;
}

static enum http_take on_body(void *context, const char *bytes, size_t length)
{
    struct attempt *attempt = context;
    struct request *request = attempt->request;

    if (!is_committed(attempt) && attempt->held.length + length > attempt->held.limit) {
        attempt->full = true;
        http_client_wake(request->client);
        return HTTP_PAUSE;
    }
    read_along(attempt, bytes, length);
    http_client_wake(request->client);
    if (!is_committed(attempt)) {
        text_append(&attempt->held, bytes, length);
        if (!attempt->held.overflowed)
            return HTTP_TAKEN;
        attempt->fault = FAULT_out_of_memory;
        return HTTP_ABORT;
    }
    upstream_give_slot(request);
    flow_call_progress(attempt);
    return attempt_pass(attempt, bytes, length) ? HTTP_TAKEN : HTTP_ABORT;
}

/* ---- beginning and ending -------------------------------------------------------------------- */

/* How long a body goes upstream; -1 = none at all. */
static int64_t body_bytes(const struct attempt *attempt)
{
    const struct request *request = attempt->request;

    /* A body of HEAD has no meaning (RFC 9110, 9.3.2). */
    if (strcmp(request->method, "HEAD") == 0)
        return -1;
    if (request->body.bytes > 0)
        return body_reader_bytes(&attempt->body);
    return request->announced_bytes < 0 || strcmp(request->method, "GET") == 0 ? -1 : 0;
}

static bool start_exchange(struct attempt *attempt)
{
    struct request *request = attempt->request;
    const struct http_request asked = {
        .method = request->method,
        .url = text_string(&attempt->url),
        .headers = attempt->headers,
        .header_count = attempt->header_count,
        .body_bytes = body_bytes(attempt),
        .read_body = body_reader_read,
        .body_context = &attempt->body,
        .fresh_connection = request->reader.intent.image || request->attempts > 0,
        .connect_timeout_ms = attempt->source->connect_timeout_ms,
        .ca_file = attempt->source->ca_file,
    };
    const struct http_sink sink = {
        .context = attempt, .on_sent = on_sent, .on_head = on_head, .on_body = on_body};

    attempt->body.read_at = 0;
    attempt->started_ns = clock_monotonic_ns();
    attempt->started_wall_ms = clock_wall_ms();
    attempt->exchange = http_exchange_start(request->client, &asked, &sink);
    if (!attempt->exchange) {
        fault_set(&request->fault, FAULT_out_of_memory, "%s", "");
        return false;
    }
    request->attempts++;
    return true;
}

static void emit(void *context, const char *bytes, size_t length)
{
    struct attempt *attempt = context;

    if (!upstream_pass_body(attempt->request, bytes, length))
        attempt->fault = FAULT_client_gone;
}

/* Flow control by tokens must know what a stream used; a client that did not ask gets what it asked
 * for (F6). */
static void ask_for_usage(struct attempt *attempt)
{
    const struct request *request = attempt->request;
    const struct flow_terms *terms = &request->flow_targets.terms[attempt->candidate];
    struct body_edit edit;

    if (attempt->flow_place == NO_INDEX || !request->scope->flow_include_usage ||
        terms->strategy < FLOW_STRATEGY_SHAPING || terms->unit != FLOW_UNIT_TOKENS ||
        !usage_option_edit(&request->reader.intent, &edit))
        return;
    body_reader_edit(&attempt->body, &edit);
    usage_strip_begin(&attempt->strip, emit, attempt);
    attempt->strips_usage = true;
}

/* An error says what it says, and what cannot be read has no event to be found. */
static bool strips_now(const struct attempt *attempt)
{
    return attempt->strips_usage && attempt->is_stream && attempt->status / 100 == 2 &&
           attempt->pictures.body == PICTURES_SSE;
}

bool attempt_pass(struct attempt *attempt, const char *bytes, size_t length)
{
    if (!strips_now(attempt))
        return upstream_pass_body(attempt->request, bytes, length);
    usage_strip_feed(&attempt->strip, bytes, length);
    return attempt->fault != FAULT_client_gone;
}

bool attempt_pass_end(struct attempt *attempt)
{
    if (strips_now(attempt))
        usage_strip_end(&attempt->strip);
    return attempt->fault != FAULT_client_gone;
}

bool attempt_begin(struct attempt *attempt)
{
    struct request *request = attempt->request;
    struct body_edit edit;

    attempt->n = request->attempts + 1;
    if (!candidates_edit(attempt, &edit) || !upstream_head_build(attempt)) {
        fault_set(&request->fault, FAULT_headers_too_large, "%s", "");
        return false;
    }
    body_reader_init(&attempt->body, &request->body, &edit);
    ask_for_usage(attempt);
    return start_exchange(attempt);
}

bool attempt_ask_again(struct attempt *attempt)
{
    attempt_end(attempt);
    return start_exchange(attempt);
}

void attempt_end(struct attempt *attempt)
{
    attempt->was_sent = attempt_was_sent(attempt);
    if (attempt->exchange)
        http_exchange_end(attempt->exchange);
    attempt->exchange = NULL;
    attempt_shed(attempt);
}

void attempt_shed(struct attempt *attempt)
{
    if (attempt->held.capacity > HELD_BYTES_KEPT)
        text_release(&attempt->held);
    else
        text_clear(&attempt->held);
}

void attempt_read_end(struct attempt *attempt)
{
    if (attempt->counting && !attempt->read_to_end)
        pictures_end(&attempt->pictures);
    attempt->read_to_end = true;
}

bool attempt_was_sent(const struct attempt *attempt)
{
    return attempt->was_sent ||
           (attempt->exchange && http_exchange_sent_ns(attempt->exchange) != 0);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void sooner(struct attempt_deadline *deadline, int64_t from_ns, int64_t after_ms,
                   const char *error)
{
    int64_t at_ns = from_ns + after_ms * NS_PER_MS;

    if (after_ms > 0 && at_ns < deadline->at_ns) {
        deadline->at_ns = at_ns;
        deadline->error = error;
    }
}

/* The watchdog of a stream's first content: from the transport's start, over connect and head;
 * nothing but content calls it off (H5). */
static bool waits_for_content(const struct attempt *attempt)
{
    if (attempt->source->ttft_timeout_ms <= 0 || !request_wants_stream(attempt->request) ||
        attempt->status >= 400)
        return false;
    return attempt_shows_content(attempt) ? !attempt->pictures.delivered.content_seen
                                          : attempt->bytes == 0;
}

/* While the upstream lets the call wait, no clock runs against it. */
static int64_t server_wait_ms(const struct attempt *attempt)
{
    int64_t ms = upstream_head_server_wait_ms(attempt);

    return ms > 0 ? ms : 0;
}

struct attempt_deadline attempt_deadline(const struct attempt *attempt)
{
    const struct request *request = attempt->request;
    const struct image_concurrency_options *image = &request->worker->options->image;
    const struct source_options *source = attempt->source;
    bool is_image = request->reader.intent.image;
    bool begun = attempt->status != 0;
    int64_t idle_ms = source->stream_idle_timeout_ms;
    int64_t wait_ms = server_wait_ms(attempt);
    struct attempt_deadline deadline = {
        .at_ns = CLOCK_NEVER,
        .fault = is_committed(attempt) ? FAULT_upstream_stalled : FAULT_upstream_timeout,
        .error = "",
    };

    sooner(&deadline, attempt->started_ns, source->timeout_ms + wait_ms, "timeout");
    if (waits_for_content(attempt))
        sooner(&deadline, attempt->started_ns, source->ttft_timeout_ms + wait_ms, "ttft_timeout");
    if (is_image && attempt->bytes == 0) {
        int64_t before_ns = deadline.at_ns;

        sooner(&deadline, attempt->started_ns, image->image_first_byte_timeout_ms,
               "first_byte_timeout");
        if (begun && deadline.at_ns < before_ns)
            deadline.fault = FAULT_upstream_stalled;
    }
    /* A document's early head tells no more of its first byte than none. */
    if (!begun || (is_image && attempt->bytes == 0 && !attempt->is_stream &&
                   image->image_first_byte_timeout_ms >= 0))
        return deadline;
    if (is_image && attempt->is_stream && image->image_stream_data_interval_timeout_ms >= 0)
        idle_ms = image->image_stream_data_interval_timeout_ms;
    if (idle_ms > 0 && attempt->last_ns + idle_ms * NS_PER_MS < deadline.at_ns)
        deadline = (struct attempt_deadline){.at_ns = attempt->last_ns + idle_ms * NS_PER_MS,
                                             .fault = FAULT_upstream_stalled,
                                             .error = "idle_timeout"};
    return deadline;
}

/* ---- what became of it ----------------------------------------------------------------------- */

/* Of pictures there may be several, each with an event that says so. */
bool attempt_stream_has_ended(const struct attempt *attempt)
{
    const struct delivered *delivered = &attempt->pictures.delivered;

    return attempt->is_stream && delivered->terminal_seen &&
           (delivered->error_seen || attempt->request->reader.intent.endpoint != ENDPOINT_IMAGES);
}

/* An event stream that ends without its last event, by nothing but a closed connection, was cut (N4).
 * Not one that is encoded: it is not read, and its own end tells. */
static bool stream_is_whole(const struct attempt *attempt, enum http_outcome outcome)
{
    if (attempt_stream_has_ended(attempt))
        return true;
    return outcome == HTTP_COMPLETE &&
           (!attempt->by_close || attempt->pictures.body != PICTURES_SSE ||
            attempt->pictures.delivered.terminal_seen ||
            attempt->request->reader.intent.endpoint == ENDPOINT_OTHER);
}

/* The same of a document: where only the closed connection says that it is over, its JSON must be.
 * An error needs no such proof: half of one is still an error. */
static bool document_is_whole(const struct attempt *attempt)
{
    return !attempt->by_close || attempt->status / 100 != 2 || attempt->bytes == 0 ||
           attempt->pictures.body != PICTURES_JSON ||
           attempt->pictures.json.state == JSON_SCAN_TOO_DEEP ||
           attempt->pictures.delivered.terminal_seen;
}

enum fault_code attempt_outcome_fault(struct attempt *attempt)
{
    static const enum fault_code faults[] = {
        [HTTP_RUNNING] = FAULT_internal,
        [HTTP_COMPLETE] = FAULT_NONE,
        [HTTP_NOT_SENT] = FAULT_upstream_connect,
        [HTTP_CONNECT_TIMEOUT] = FAULT_upstream_connect,
        [HTTP_NO_ANSWER] = FAULT_upstream_no_answer,
        [HTTP_CUT] = FAULT_upstream_cut,
        [HTTP_BAD_ANSWER] = FAULT_upstream_bad_answer,
        [HTTP_BODY_FAILED] = FAULT_internal,
        [HTTP_ABORTED] = FAULT_client_gone,
        [HTTP_OUT_OF_MEMORY] = FAULT_out_of_memory,
    };
    enum http_outcome outcome = http_exchange_outcome(attempt->exchange);
    enum fault_code code = faults[outcome];

    if (attempt->fault != FAULT_NONE)
        return attempt->fault;
    if (attempt->is_stream &&
        (outcome == HTTP_COMPLETE || outcome == HTTP_CUT || outcome == HTTP_RUNNING))
        code = stream_is_whole(attempt, outcome) ? FAULT_NONE : FAULT_upstream_cut;
    else if (outcome == HTTP_COMPLETE && !document_is_whole(attempt))
        code = FAULT_upstream_cut;
    attempt->fault = code;
    if (code != FAULT_NONE) /* it may name the upstream's host: for the log, not for the client */
        (void)text_copy(attempt->transport_error, sizeof attempt->transport_error,
                        http_exchange_error(attempt->exchange));
    return code;
}

/* What is judged differently because of whose call it is. A refusal of the key that the caller brought,
 * or of the account behind it, says nothing about the source. A bad key and an empty account are the
 * caller's affair, and will be refused again; his quota of the day is a limit as any other, another
 * account may serve. A picture that may have been paid for is not drawn twice (N5). */
static void settle_whose_fault(struct attempt *attempt)
{
    struct judgement *judgement = &attempt->judgement;

    if (!*attempt->source->api_key) {
        judgement->out_ms = 0;
        if (judgement->class == ATTEMPT_CREDENTIAL || judgement->class == ATTEMPT_MONEY) {
            judgement->class = ATTEMPT_REQUEST;
            judgement->should_retry = 0;
        }
    }
    if (attempt->request->reader.intent.image && judgement->class == ATTEMPT_TRANSIENT &&
        judgement->maybe_billed)
        judgement->class = ATTEMPT_UNKNOWN;
}

/* Half a document is one whatever its connection says of it. */
static enum http_outcome outcome_of(const struct attempt *attempt)
{
    return attempt->fault == FAULT_upstream_cut && !attempt->is_stream
               ? HTTP_CUT
               : http_exchange_outcome(attempt->exchange);
}

void attempt_judge(struct attempt *attempt)
{
    const struct delivered *delivered = &attempt->pictures.delivered;
    bool good = attempt->status / 100 == 2;
    bool in_stream = attempt->is_stream && good;
    const struct text *body = good ? &attempt->held : &attempt->error_body;
    const struct judge_evidence evidence = {
        .dialect = (enum dialect_name)attempt->source->dialect,
        .status = attempt->status,
        .stream = in_stream,
        .body = text_string(body),
        .body_bytes = body->length,
        .hints = &attempt->hints,
    };
    bool answered = attempt->status >= 400 ||
                    (good && (in_stream ? delivered->error_before_content : delivered->error_seen));

    if (answered)
        judge_answer(&evidence, &attempt->judgement);
    else if (attempt->exchange)
        judge_transport(outcome_of(attempt), attempt_was_sent(attempt), &attempt->judgement);
    settle_whose_fault(attempt);
}
