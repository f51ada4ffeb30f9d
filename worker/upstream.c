/* upstream.c - one exchange with one source; see upstream.h. */
#include "worker/upstream.h"

#include "base/clock.h"
#include "worker/heartbeat.h"
#include "worker/upstream_head.h"
#include "worker/watchers.h"

#include <string.h>
#include <strings.h>

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

static bool on_head(void *context, const struct http_head *head)
{
    struct request *request = context;
    const char *type = header_value(head, "content-type");

    request->upstream_status = head->status;
    request->upstream_length = head->content_length;
    request->upstream_is_stream = type && strncasecmp(type, "text/event-stream", 17) == 0;
    request->upstream_by_close = head->content_length < 0 && !is_chunked(head);
    request->last_upstream_ns = clock_monotonic_ns();
    upstream_head_translate(request, head);
    if (request->head.overflowed) { /* half a head would swallow the body's beginning */
        fault_set(&request->fault, FAULT_out_of_memory, "%s", "");
        request->upstream_status = 0;
        return false;
    }
    pictures_begin(&request->pictures, request->reader.intent.endpoint, type,
                   header_value(head, "content-encoding"));
    request->counting = true;
    http_client_wake(request->client);
    return true;
}

/* The client cannot be written to. Does the upstream go on all the same? */
static bool client_left_midway(struct request *request)
{
    bool finish = request->reader.intent.background ||
                  (request->reader.intent.image &&
                   request->worker->options->image.on_client_gone == CLIENT_GONE_FINISH);

    (void)request_client_left(request);
    request->discard = finish;
    request->watch.active = false;
    request->next_heartbeat_ns = CLOCK_NEVER;
    return finish;
}

bool upstream_pass_body(struct request *request, const char *bytes, size_t length)
{
    if (request->discard)
        return true;
    if (fastcgi_write(request->fcgi, bytes, length))
        return true;
    return client_left_midway(request);
}

static enum http_take on_body(void *context, const char *bytes, size_t length)
{
    struct request *request = context;

    if (!request->committed && request->held.length + length > request->held.limit)
        return HTTP_PAUSE;
    request->last_upstream_ns = clock_monotonic_ns();
    if (request->ttft_ns == 0)
        request->ttft_ns = request->last_upstream_ns - request->attempt_started_ns;
    request->upstream_bytes += (int64_t)length;
    pictures_feed(&request->pictures, bytes, length);
    http_client_wake(request->client);
    if (!request->committed) {
        text_append(&request->held, bytes, length);
        if (!request->held.overflowed)
            return HTTP_TAKEN;
        fault_set(&request->fault, FAULT_out_of_memory, "%s", "");
        return HTTP_ABORT;
    }
    /* The upstream has sent all it announced: its work is over, and the slot goes before our last
     * write (G9). */
    if (request->upstream_bytes == request->upstream_length && !request->reader.intent.background)
        ticket_give(&request->ticket, WAIT_DONE, NULL);
    return upstream_pass_body(request, bytes, length) ? HTTP_TAKEN : HTTP_ABORT;
}

/* How long a body goes upstream; -1 = none at all. */
static int64_t body_bytes(const struct request *request)
{
    /* A body of HEAD has no meaning (RFC 9110, 9.3.2). */
    if (strcmp(request->method, "HEAD") == 0)
        return -1;
    if (request->body.bytes > 0)
        return request->body.bytes;
    return request->announced_bytes < 0 || strcmp(request->method, "GET") == 0 ? -1 : 0;
}

bool upstream_start(struct request *request)
{
    const struct http_request asked = {
        .method = request->method,
        .url = text_string(&request->url),
        .headers = request->headers,
        .header_count = request->header_count,
        .body_bytes = body_bytes(request),
        .read_body = spool_read,
        .body_context = &request->body,
        .fresh_connection = request->reader.intent.image || request->attempts > 0,
        .connect_timeout_ms = request->source->connect_timeout_ms,
        .ca_file = request->source->ca_file,
    };
    const struct http_sink sink = {.context = request, .on_head = on_head, .on_body = on_body};

    spool_rewind(&request->body);
    request->attempts++;
    request->attempt_started_ns = clock_monotonic_ns();
    request->client = http_client_borrow(request->worker->pool);
    if (request->client)
        request->exchange = http_exchange_start(request->client, &asked, &sink);
    if (request->exchange)
        return true;
    fault_set(&request->fault, FAULT_out_of_memory, "%s", "");
    return false;
}

void upstream_end(struct request *request)
{
    if (request->exchange)
        http_exchange_end(request->exchange);
    request->exchange = NULL;
    if (request->client)
        http_client_return(request->worker->pool, request->client);
    request->client = NULL;
}

struct deadline {
    int64_t at_ns;
    enum fault_code code;
};

static void sooner(struct deadline *deadline, int64_t from_ns, int64_t after_ms,
                   enum fault_code code)
{
    int64_t at_ns = from_ns + after_ms * NS_PER_MS;

    if (after_ms > 0 && at_ns < deadline->at_ns)
        *deadline = (struct deadline){.at_ns = at_ns, .code = code};
}

/* What falls first: the whole exchange, the first byte, or silence in the body. */
static struct deadline next_deadline(const struct request *request)
{
    const struct image_concurrency_options *image = &request->worker->options->image;
    const struct source_options *source = request->source;
    bool is_image = request->reader.intent.image;
    bool begun = request->upstream_status != 0;
    struct deadline deadline = {.at_ns = CLOCK_NEVER, .code = FAULT_NONE};
    int64_t idle_ms = source->stream_idle_timeout_ms;

    sooner(&deadline, request->attempt_started_ns, source->timeout_ms,
           request->committed ? FAULT_upstream_stalled : FAULT_upstream_timeout);
    if (is_image && request->upstream_bytes == 0)
        sooner(&deadline, request->attempt_started_ns, image->image_first_byte_timeout_ms,
               begun ? FAULT_upstream_stalled : FAULT_upstream_timeout);
    /* A document's early head tells no more of its first byte than none. */
    if (!begun || (is_image && request->upstream_bytes == 0 && !request->upstream_is_stream &&
                   image->image_first_byte_timeout_ms >= 0))
        return deadline;
    if (is_image && request->upstream_is_stream &&
        image->image_stream_data_interval_timeout_ms >= 0)
        idle_ms = image->image_stream_data_interval_timeout_ms;
    sooner(&deadline, request->last_upstream_ns, idle_ms, FAULT_upstream_stalled);
    return deadline;
}

/* Its last event was read, so it is whole however the connection ends. Of pictures there may be several,
 * each with an event that says so. */
static bool stream_has_ended(const struct request *request)
{
    const struct delivered *delivered = &request->pictures.delivered;

    return request->upstream_is_stream && delivered->terminal_seen &&
           (delivered->error_seen || request->reader.intent.endpoint != ENDPOINT_IMAGES);
}

static enum upstream_event give_up(struct request *request, enum fault_code code)
{
    if (stream_has_ended(request))
        return UPSTREAM_FINISHED; /* it is only the connection that lingers */
    fault_set(&request->fault, code, "%s", "");
    return UPSTREAM_FAILED;
}

/* Something other than the upstream happened; true when the exchange goes on. */
static bool look_around(struct request *request, const struct http_wait *wait, int64_t now_ns)
{
    if (!request->discard && watchers_client_gone(request, (wait->ready & 1U) != 0) &&
        !client_left_midway(request))
        return false;
    if (wait->ready & 2U) {
        fault_set(&request->fault, FAULT_shutting_down, "%s", "");
        return false;
    }
    /* The upstream's own head is here: none of ours may come before it. */
    if (request->response == RESPONSE_NONE && request->upstream_status != 0)
        return true;
    if (!request->committed && !request->discard && !heartbeat_send(request, now_ns))
        return client_left_midway(request);
    return true;
}

enum upstream_event upstream_run(struct request *request)
{
    for (;;) {
        const int fds[] = {request->discard ? -1 : fastcgi_fd(request->fcgi),
                           request->worker->cut_fd};
        struct deadline deadline = next_deadline(request);
        int64_t now_ns = clock_monotonic_ns();
        struct http_wait wait = {.fds = fds, .fd_count = LENGTH(fds), .until_ns = deadline.at_ns};
        enum http_wake wake;

        if (watchers_next_ns(request, now_ns) < wait.until_ns)
            wait.until_ns = watchers_next_ns(request, now_ns);
        if (!request->committed && request->next_heartbeat_ns < wait.until_ns)
            wait.until_ns = request->next_heartbeat_ns;
        wake = http_client_run(request->client, &wait);
        if (wake == HTTP_WAKE_FINISHED)
            return UPSTREAM_FINISHED;
        now_ns = clock_monotonic_ns();
        /* An upstream that always has more must not keep the rest from being looked at. */
        if (wake == HTTP_WAKE_SINK && !wait.ready && now_ns < wait.until_ns)
            return UPSTREAM_PROGRESS;
        watchers_begin_late(request, now_ns);
        if (!look_around(request, &wait, now_ns))
            return UPSTREAM_FAILED;
        deadline = next_deadline(request);
        if (now_ns >= deadline.at_ns)
            return give_up(request, deadline.code);
        if (wake == HTTP_WAKE_SINK)
            return UPSTREAM_PROGRESS;
    }
}

/* An event stream that ends without its last event, by nothing but a closed connection, was cut (N4).
 * Not one that is encoded: it is not read, and its own end tells. */
static bool stream_is_whole(const struct request *request, enum http_outcome outcome)
{
    if (stream_has_ended(request))
        return true;
    return outcome == HTTP_COMPLETE &&
           (!request->upstream_by_close || request->pictures.body != PICTURES_SSE ||
            request->pictures.delivered.terminal_seen ||
            request->reader.intent.endpoint == ENDPOINT_OTHER);
}

/* The same of a document: where only the closed connection says that it is over, its JSON must be.
 * An error needs no such proof: half of one is still an error. */
static bool document_is_whole(const struct request *request)
{
    return !request->upstream_by_close || request->upstream_status / 100 != 2 ||
           request->upstream_bytes == 0 || request->pictures.body != PICTURES_JSON ||
           request->pictures.json.state == JSON_SCAN_TOO_DEEP ||
           request->pictures.delivered.terminal_seen;
}

void upstream_judge(struct request *request)
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
    enum http_outcome outcome = http_exchange_outcome(request->exchange);
    enum fault_code code = faults[outcome];

    if (request->upstream_is_stream &&
        (outcome == HTTP_COMPLETE || outcome == HTTP_CUT || outcome == HTTP_RUNNING))
        code = stream_is_whole(request, outcome) ? FAULT_NONE : FAULT_upstream_cut;
    else if (outcome == HTTP_COMPLETE && !document_is_whole(request))
        code = FAULT_upstream_cut;
    if (code == FAULT_NONE)
        return;
    fault_set(&request->fault, code, "%s", "");
    /* It may name the upstream's host: for the log, not for the client. */
    (void)text_copy(request->upstream_error, sizeof request->upstream_error,
                    http_exchange_error(request->exchange));
}
