/* upstream.c - waiting for exchanges; see upstream.h. */
#include "worker/upstream.h"

#include "base/clock.h"
#include "worker/flow_usage.h"
#include "worker/heartbeat.h"
#include "worker/watchers.h"

#define DRAIN_BYTES_MAX (1 << 20)

static bool is_to_be_finished(const struct request *request)
{
    return request->reader.intent.background ||
           (request->reader.intent.image &&
            request->worker->options->image.on_client_gone == CLIENT_GONE_FINISH);
}

/* Not for ever, and not whatever comes. */
static void bound_drain(struct request *request)
{
    const int64_t until_ns = clock_monotonic_ns() + request->scope->flow_drain_ms * NS_PER_MS;

    request->deadline_ns = clock_earlier(request->deadline_ns, until_ns);
    request->discard_bytes_max = request->attempt->bytes + DRAIN_BYTES_MAX;
}

/* The client cannot be written to. Does the upstream go on all the same? */
static bool client_left_midway(struct request *request)
{
    const bool finish = is_to_be_finished(request);
    const bool drain = !finish && request->committed && flow_usage_wants_end(request->attempt);

    (void)request_client_left(request);
    request->discard = finish || drain;
    if (drain)
        bound_drain(request);
    request->watch.active = false;
    request->next_heartbeat_ns = CLOCK_NEVER;
    return request->discard;
}

bool upstream_pass_body(struct request *request, const char *bytes, size_t length)
{
    if (request->discard)
        return true;
    if (fastcgi_write(request->fcgi, bytes, length))
        return true;
    return client_left_midway(request);
}

void upstream_give_slot(struct request *request)
{
    const struct attempt *attempt = request->attempt;

    if (attempt->bytes == attempt->length && !request->reader.intent.background)
        ticket_give(&request->ticket, WAIT_DONE, NULL);
}

bool upstream_open(struct request *request)
{
    request->client = http_client_borrow(request->worker->pool);
    if (request->client)
        return true;
    fault_set(&request->fault, FAULT_out_of_memory, "%s", "");
    return false;
}

void upstream_close(struct request *request)
{
    for (unsigned lane = 0; lane < PLAN_LANES; lane++)
        if (request->lanes[lane])
            attempt_end(request->lanes[lane]);
    if (request->client)
        http_client_return(request->worker->pool, request->client);
    request->client = NULL;
}

/* Where an upstream's own head is here, none of ours may come before it; unless its answer has failed,
 * and may never be told of. */
static bool may_beat(const struct request *request)
{
    const struct attempt *attempt = request->attempt;

    return !request->committed && !request->discard &&
           (request->response != RESPONSE_NONE || attempt->status == 0 || attempt->booked);
}

/* Something other than the upstream happened; true when the exchanges go on. */
static bool look_around(struct request *request, const struct http_wait *wait, int64_t now_ns)
{
    if (!request->discard && watchers_client_gone(request, (wait->ready & 1U) != 0) &&
        !client_left_midway(request))
        return false;
    if (wait->ready & 2U) {
        fault_set(&request->fault, FAULT_shutting_down, "%s", "");
        return false;
    }
    if (may_beat(request) && !heartbeat_send(request, now_ns))
        return client_left_midway(request);
    return true;
}

/* Does anybody wait for what it brings? */
static bool is_wanted(const struct request *request, const struct attempt *attempt)
{
    return !attempt->booked || (request->plan.ended && request->attempt == attempt);
}

/* The first deadline of the exchanges that run. */
static int64_t attempts_deadline_ns(const struct request *request)
{
    int64_t at_ns = CLOCK_NEVER;

    for (unsigned lane = 0; lane < PLAN_LANES; lane++) {
        const struct attempt *attempt = request->lanes[lane];

        if (attempt && attempt->exchange && is_wanted(request, attempt) &&
            http_exchange_outcome(attempt->exchange) == HTTP_RUNNING)
            at_ns = clock_earlier(at_ns, attempt_deadline(attempt).at_ns);
    }
    return at_ns;
}

enum upstream_event upstream_run(struct request *request, int64_t until_ns)
{
    for (;;) {
        const int fds[] = {request->discard ? -1 : fastcgi_fd(request->fcgi),
                           request->worker->cut_fd};
        const bool discard = request->discard;
        int64_t now_ns = clock_monotonic_ns();
        struct http_wait wait = {.fds = fds, .fd_count = LENGTH(fds)};
        enum http_wake wake;

        wait.until_ns = clock_earlier(clock_earlier(until_ns, attempts_deadline_ns(request)),
                                      watchers_next_ns(request, now_ns));
        if (may_beat(request))
            wait.until_ns = clock_earlier(wait.until_ns, request->next_heartbeat_ns);
        wake = http_client_run(request->client, &wait);
        if (wake == HTTP_WAKE_FINISHED)
            return UPSTREAM_FINISHED;
        now_ns = clock_monotonic_ns();
        /* An upstream that always has more must not keep the rest from being looked at. */
        if (wake == HTTP_WAKE_SINK && !wait.ready && now_ns < wait.until_ns)
            return UPSTREAM_PROGRESS;
        watchers_begin_late(request, now_ns);
        if (!look_around(request, &wait, now_ns))
            return UPSTREAM_STOPPED;
        if (request->discard && !discard) /* the caller may have to be done sooner now */
            return UPSTREAM_PROGRESS;
        if (now_ns >= clock_earlier(until_ns, attempts_deadline_ns(request)))
            return UPSTREAM_TIME;
        if (wake == HTTP_WAKE_SINK)
            return UPSTREAM_PROGRESS;
    }
}
