/*
 * admission.c - step 5: the gate. An image call gets a slot, waits for one, or is refused;
 * everything else passes. Nothing is held while waiting but the place in the queue (N9).
 *
 * A waiting thread sleeps in poll over what can happen: its turn (the seat's eventfd), the web
 * server's connection, the fast stop, and time (client watch, heartbeat, end of patience).
 */
#include "worker/admission.h"

#include "base/clock.h"
#include "base/parse.h"
#include "shared/counters.h"
#include "worker/heartbeat.h"
#include "worker/watchers.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

/* The client's own patience (an SDK's time-out for the whole call) bounds its wait. */
static int64_t patience_ms(const struct request *request)
{
    int64_t option_ms = request->worker->options->image.wait_timeout_ms;
    const char *client = fastcgi_param(request->fcgi, "HTTP_X_STAINLESS_TIMEOUT");
    int64_t client_ms;

    if (client && parse_duration_ms(client, 1000, &client_ms) && client_ms > 0 &&
        client_ms < option_ms)
        return client_ms;
    return option_ms;
}

static enum step_result refuse(struct request *request, enum fault_code code,
                               const struct gate_answer *answer)
{
    fault_set(&request->fault, code, "%u of %u image calls are in progress, %u wait.",
              answer->in_use, answer->limit, answer->waiting);
    request->fault.retry_after_ms = answer->predicted_wait_ns / NS_PER_MS;
    return STEP_FAULT;
}

/* Leave the queue without a slot. */
static enum step_result give_up(struct request *request, enum wait_state end,
                                const struct gate_answer *last)
{
    ticket_give(&request->ticket, end, NULL);
    if (end == WAIT_CLIENT_GONE)
        return request_client_left(request);
    if (end == WAIT_SHUTDOWN) {
        fault_set(&request->fault, FAULT_shutting_down, "%s", "");
        request->fault.retry_after_ms = 1000;
        return STEP_FAULT;
    }
    return refuse(request, FAULT_image_queue_timeout, last);
}

static int64_t earliest(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Has the place its slot now? */
static bool try_place(struct request *request, struct gate_answer *answer)
{
    int64_t predicted_ns = answer->predicted_wait_ns;

    gate_try(request->ticket.gate, request->ticket.place, clock_monotonic_ns(), answer);
    answer->predicted_wait_ns = predicted_ns;
    request->ticket.granted = answer->verdict != GATE_QUEUED;
    return request->ticket.granted;
}

static void clear_seat(const struct request *request)
{
    uint64_t rings;

    while (read(request->seat->event_fd, &rings, sizeof rings) > 0)
        continue;
}

static enum step_result wait_for_slot(struct request *request, struct gate_answer *answer)
{
    int64_t until_ns = request->arrived_ns + patience_ms(request) * NS_PER_MS;
    struct pollfd look[] = {
        {.fd = request->seat->event_fd, .events = POLLIN},
        {.fd = fastcgi_fd(request->fcgi), .events = POLLIN | POLLRDHUP},
        {.fd = request->worker->cut_fd, .events = POLLIN},
    };

    for (;;) {
        int64_t now_ns = clock_monotonic_ns();
        int64_t wake_ns = earliest(
            until_ns, earliest(request->next_heartbeat_ns, watchers_next_ns(request, now_ns)));

        (void)poll(look, LENGTH(look), clock_poll_ms(now_ns, wake_ns));
        if (watchers_client_gone(request, look[1].revents != 0))
            return give_up(request, WAIT_CLIENT_GONE, answer);
        if (look[0].revents & POLLIN) {
            clear_seat(request);
            if (try_place(request, answer))
                return STEP_NEXT;
        }
        if (look[2].revents & POLLIN)
            return give_up(request, WAIT_SHUTDOWN, answer);
        now_ns = clock_monotonic_ns();
        if (now_ns >= until_ns)
            return try_place(request, answer) ? STEP_NEXT
                                              : give_up(request, WAIT_TIMED_OUT, answer);
        if (!heartbeat_send(request, now_ns))
            return give_up(request, WAIT_CLIENT_GONE, answer);
    }
}

static enum step_result queue_up(struct request *request, struct gate_answer *answer)
{
    int64_t began_ns = clock_monotonic_ns();
    enum step_result result;

    clear_seat(request);
    atomic_store(&request->seat->place, request->ticket.place);
    /* Rung between arrival and the line above? Then nobody rings again: look once. */
    if (try_place(request, answer)) {
        result = STEP_NEXT;
    } else {
        heartbeat_begin(request);
        result = wait_for_slot(request, answer);
    }
    atomic_store(&request->seat->place, NO_INDEX);
    /* An early head is for those who wait in the queue: from here on the upstream's own is due. */
    if (request->response == RESPONSE_NONE && request_wants_stream(request))
        request->next_heartbeat_ns = CLOCK_NEVER;
    request->queue_ns = clock_monotonic_ns() - began_ns;
    return result;
}

static const char *scope_name(const struct request *request)
{
    return request->route ? request->route->name : "";
}

enum step_result admission_step(struct request *request)
{
    const struct image_concurrency_options *image = &request->worker->options->image;
    const struct gate_call call = {
        .may_wait = image->overflow_mode == OVERFLOW_WAIT,
        .refuse_hopeless = image->refuse_hopeless,
        .wait_timeout_ns = patience_ms(request) * NS_PER_MS,
        .now_ns = clock_monotonic_ns(),
        .now_wall_ms = clock_wall_ms(),
        .call_id = request->call_id,
        .class_name = "",
        .client = request->client_name,
        .scope = scope_name(request),
        .model = request->reader.intent.model,
        .endpoint = request->reader.intent.endpoint_name,
    };
    struct gate_answer answer;

    if (!request->reader.intent.image || !image->active)
        return STEP_NEXT;
    watchers_begin(request);
    if (watchers_client_gone(request, true))
        return request_client_left(request);
    gate_arrive(&request->worker->gate, &call, &answer);
    switch (answer.verdict) {
    case GATE_OPEN:
        return STEP_NEXT;
    case GATE_REFUSED_LIMIT:
        return refuse(request, FAULT_image_limit, &answer);
    case GATE_REFUSED_QUEUE_FULL:
        return refuse(request, FAULT_image_queue_full, &answer);
    case GATE_REFUSED_HOPELESS:
        return refuse(request, FAULT_image_queue_timeout, &answer);
    case GATE_GRANTED:
        request->ticket.place = answer.place;
        request->ticket.granted = true;
        return STEP_NEXT;
    case GATE_QUEUED:
        request->ticket.place = answer.place;
        return queue_up(request, &answer);
    }
    UNREACHABLE();
}
