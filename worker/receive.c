/*
 * receive.c - step 3: the body, read once, to its end, into the spool; what it asks for is read as
 * it goes by (intent.c). Nothing scarce is held meanwhile.
 *
 * CONTENT_LENGTH is only compared, never trusted. Bounds: bytes by kind of body, time by
 * body_read_timeout_s plus a minimum rate (M16): a trickle ends even though each read succeeds.
 */
#include "worker/receive.h"

#include "base/clock.h"
#include "shared/counters.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define READ_BYTES 65536

static bool is_multipart(const char *content_type)
{
    return content_type && strncasecmp(content_type, "multipart/", 10) == 0;
}

static int64_t body_limit(const struct request *request)
{
    const struct penstock_options *options = &request->worker->options->penstock;

    return is_multipart(request->content_type) ? options->max_multipart_body_bytes
                                               : options->max_json_body_bytes;
}

/* When the next byte must be there: the time-out, or later as long as the rate is kept. */
static int64_t body_deadline_ns(const struct request *request)
{
    const struct penstock_options *options = &request->worker->options->penstock;
    int64_t by_rate_ns = 0;

    if (options->body_min_rate_bytes > 0)
        by_rate_ns = request->body.bytes / options->body_min_rate_bytes * NS_PER_S;
    return request->arrived_ns + options->body_read_timeout_ms * NS_PER_MS + by_rate_ns;
}

static enum step_result reject(struct request *request, enum fault_code code)
{
    fault_set(&request->fault, code, "%s", "");
    counter_add(&segment_instance(request->worker->segment)->counters, COUNTER_body_rejected, 1);
    return STEP_FAULT;
}

static enum step_result reject_size(struct request *request)
{
    fault_set(&request->fault, FAULT_body_too_large, "The limit is %lld bytes.",
              (long long)body_limit(request));
    counter_add(&segment_instance(request->worker->segment)->counters, COUNTER_body_rejected, 1);
    return STEP_FAULT;
}

/* What is known to be small is read to where it will lie, with a byte more, which tells what is longer than
 * it said. NULL: it is not, or there is no memory. */
static char *place_of_next(struct request *request, size_t *ret_size)
{
    const struct spool *body = &request->body;
    int64_t left;

    if (request->announced_bytes < 0 || request->announced_bytes >= body->limits->above_bytes)
        return NULL;
    left = request->announced_bytes + 1 - body->bytes;
    *ret_size = left < READ_BYTES ? (size_t)left : READ_BYTES;
    return left > 0 ? spool_room(&request->body, *ret_size) : NULL;
}

/* Read to the body's end, into bytes[size]; in_place: each further piece to its own place. */
static enum step_result read_pieces(struct request *request, char *bytes, size_t size,
                                    bool in_place)
{
    int64_t limit = body_limit(request);

    for (;;) {
        int64_t now_ns = clock_monotonic_ns();
        int64_t until_ns = body_deadline_ns(request);
        ssize_t got;

        if (now_ns >= until_ns)
            return reject(request, FAULT_body_too_slow);
        if (!bytes)
            return reject(request, request->body.bytes > request->announced_bytes
                                       ? FAULT_body_incomplete
                                       : FAULT_out_of_memory);
        got = fastcgi_read(request->fcgi, bytes, size, clock_poll_ms(now_ns, until_ns));
        if (got == 0)
            break;
        if (got == -2)
            return reject(request, FAULT_body_too_slow);
        if (got < 0)
            return reject(request, FAULT_body_incomplete);
        if (request->body.bytes + got > limit)
            return reject_size(request);
        intent_feed(&request->reader, bytes, (size_t)got);
        switch (spool_write(&request->body, bytes, (size_t)got)) {
        case SPOOL_OK:
            break;
        case SPOOL_FULL:
            return reject(request, FAULT_spool_full);
        case SPOOL_NO_MEMORY:
            return reject(request, FAULT_out_of_memory);
        }
        if (in_place)
            bytes = place_of_next(request, &size);
    }
    if (request->announced_bytes >= 0 && request->announced_bytes != request->body.bytes)
        return reject(request, FAULT_body_incomplete);
    return STEP_NEXT;
}

static enum step_result read_body(struct request *request)
{
    enum step_result result;
    char *bytes;
    size_t size;

    if (request->announced_bytes > body_limit(request))
        return reject_size(request);
    bytes = place_of_next(request, &size);
    if (bytes)
        return read_pieces(request, bytes, size, true);
    bytes = malloc(READ_BYTES);
    if (!bytes)
        return reject(request, FAULT_out_of_memory);
    result = read_pieces(request, bytes, READ_BYTES, false);
    free(bytes);
    return result;
}

/* A body whose intent cannot be read must not slip past an active gate. */
static enum step_result judge_problem(struct request *request)
{
    const struct intent *intent = &request->reader.intent;

    if (!request->worker->options->image.active || !intent->bears_intent)
        return STEP_NEXT;
    switch (intent->problem) {
    case INTENT_FINE:
        return STEP_NEXT;
    case INTENT_TOO_DEEP:
        return reject(request, FAULT_body_too_deep);
    case INTENT_ENCODED:
        return reject(request, FAULT_body_encoding);
    }
    UNREACHABLE();
}

static bool query_has(const char *target, const char *pair)
{
    const char *at = strchr(target, '?');
    size_t length = strlen(pair);

    for (; at; at = strchr(at + 1, '&'))
        if (strncmp(at + 1, pair, length) == 0 && (at[1 + length] == '\0' || at[1 + length] == '&'))
            return true;
    return false;
}

/* Where neither path nor body says whether the answer is to be an event stream. */
static bool wants_stream(const struct request *request)
{
    const struct intent *intent = &request->reader.intent;
    const char *sse = fastcgi_param(request->fcgi, "HTTP_X_DASHSCOPE_SSE");

    switch (intent->endpoint) {
    case ENDPOINT_GEMINI: /* without it a list of JSON objects */
        return intent->stream && query_has(request->raw_target, "alt=sse");
    case ENDPOINT_DASHSCOPE:
        return intent->stream || (sse && strcasecmp(sse, "enable") == 0);
    case ENDPOINT_OTHER:
    case ENDPOINT_CHAT:
    case ENDPOINT_COMPLETIONS:
    case ENDPOINT_RESPONSES:
    case ENDPOINT_EMBEDDINGS:
    case ENDPOINT_IMAGES:
    case ENDPOINT_MESSAGES:
        return intent->stream;
    }
    UNREACHABLE();
}

enum step_result receive_step(struct request *request)
{
    const struct image_concurrency_options *image = &request->worker->options->image;
    const char *async = fastcgi_param(request->fcgi, "HTTP_X_DASHSCOPE_ASYNC");
    const struct intent_request asked = {
        .method = request->method,
        .path = request->path,
        .content_type = request->content_type,
        .content_encoding = fastcgi_param(request->fcgi, "HTTP_CONTENT_ENCODING"),
        .image_models = image->image_models,
        .count_chat_images = image->count_chat_images,
        .dashscope_async = async && strcasecmp(async, "enable") == 0,
        .skip_estimate = !request->worker->flows,
    };
    enum step_result result;

    intent_begin(&request->reader, &asked);
    result = read_body(request);
    intent_end(&request->reader);
    counter_add(&segment_instance(request->worker->segment)->counters, COUNTER_bytes_in,
                (uint64_t)request->body.bytes);
    request->reader.intent.stream = wants_stream(request);
    request->kind = request->reader.intent.kind;
    if (result != STEP_NEXT)
        return result;
    return judge_problem(request);
}
