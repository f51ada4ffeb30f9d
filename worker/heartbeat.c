/* heartbeat.c - signs of life before the answer; see heartbeat.h. */
#include "worker/heartbeat.h"

#include "base/clock.h"
#include "worker/respond.h"

static bool is_image_document(const struct request *request)
{
    return request->reader.intent.image && !request_wants_stream(request);
}

static void begin_after(struct request *request, int64_t first_ms)
{
    if (request->next_heartbeat_ns == CLOCK_NEVER && first_ms > 0)
        request->next_heartbeat_ns = request->arrived_ns + first_ms * NS_PER_MS;
}

void heartbeat_begin(struct request *request)
{
    const struct image_concurrency_options *image = &request->worker->options->image;
    int64_t first_ms = 0;

    if (!image->active)
        return;
    if (is_image_document(request))
        first_ms = image->nonstream_heartbeat_ms;
    else if (request_wants_stream(request) && request->ticket.place != NO_INDEX &&
             !request->ticket.granted)
        first_ms = image->queue_stream_headers_after_ms;
    begin_after(request, first_ms);
}

void heartbeat_begin_in_flow(struct request *request)
{
    if (request_wants_stream(request))
        begin_after(request, request->worker->options->image.queue_stream_headers_after_ms);
}

bool heartbeat_send(struct request *request, int64_t now_ns)
{
    const struct image_concurrency_options *image = &request->worker->options->image;
    int64_t interval_ms = image->queue_heartbeat_ms;
    bool document = is_image_document(request);
    bool alive;

    if (now_ns < request->next_heartbeat_ns)
        return true;
    if (document)
        interval_ms = image->nonstream_heartbeat_ms;
    request->next_heartbeat_ns = now_ns + interval_ms * NS_PER_MS;
    if (request->response == RESPONSE_NONE &&
        !respond_begin(request, document ? RESPONSE_HEARTBEAT : RESPONSE_STREAM))
        return false;
    alive = document ? fastcgi_write(request->fcgi, " ", 1)
                     : fastcgi_write(request->fcgi, ": waiting\n\n", 11);
    return alive && fastcgi_flush(request->fcgi);
}
