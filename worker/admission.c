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

/* What a caller is told of the wait for a flow. */
#define FLOW_WAIT_TOLD_MIN_NS NS_PER_S
#define FLOW_WAIT_TOLD_MAX_NS (60 * NS_PER_S)

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

enum wait_event { WAIT_EVENT_RUNG, WAIT_EVENT_TIME, WAIT_EVENT_CLIENT_GONE, WAIT_EVENT_STOP };

/* Sleep until the seat is rung, wake_ns has come, or the wait is over for another reason. */
static enum wait_event wait_event(struct request *request, int64_t wake_ns)
{
    struct pollfd look[] = {
        {.fd = request->seat->event_fd, .events = POLLIN},
        {.fd = fastcgi_fd(request->fcgi), .events = POLLIN | POLLRDHUP},
        {.fd = request->worker->cut_fd, .events = POLLIN},
    };

    for (;;) {
        int64_t now_ns = clock_monotonic_ns();
        int64_t until_ns = clock_earlier(
            wake_ns, clock_earlier(request->next_heartbeat_ns, watchers_next_ns(request, now_ns)));

        (void)poll(look, LENGTH(look), clock_poll_ms(now_ns, until_ns));
        if (watchers_client_gone(request, look[1].revents != 0))
            return WAIT_EVENT_CLIENT_GONE;
        if (look[0].revents & POLLIN) {
            clear_seat(request);
            return WAIT_EVENT_RUNG;
        }
        if (look[2].revents & POLLIN)
            return WAIT_EVENT_STOP;
        now_ns = clock_monotonic_ns();
        if (now_ns >= wake_ns)
            return WAIT_EVENT_TIME;
        if (!heartbeat_send(request, now_ns))
            return WAIT_EVENT_CLIENT_GONE;
    }
}

static enum step_result wait_for_slot(struct request *request, struct gate_answer *answer)
{
    int64_t until_ns = request->arrived_ns + patience_ms(request) * NS_PER_MS;

    for (;;) {
        switch (wait_event(request, until_ns)) {
        case WAIT_EVENT_RUNG:
            if (try_place(request, answer))
                return STEP_NEXT;
            break;
        case WAIT_EVENT_TIME:
            return try_place(request, answer) ? STEP_NEXT
                                              : give_up(request, WAIT_TIMED_OUT, answer);
        case WAIT_EVENT_CLIENT_GONE:
            return give_up(request, WAIT_CLIENT_GONE, answer);
        case WAIT_EVENT_STOP:
            return give_up(request, WAIT_SHUTDOWN, answer);
        }
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
    return request->scope ? request->scope->name : "";
}

static bool needs_slot(const struct request *request)
{
    return request->reader.intent.image && request->worker->options->image.active;
}

static struct gate_call gate_call_of(const struct request *request)
{
    const struct image_concurrency_options *image = &request->worker->options->image;
    const int64_t now_ns = clock_monotonic_ns();
    const int64_t left_ns = request->arrived_ns + patience_ms(request) * NS_PER_MS - now_ns;

    return (struct gate_call){
        .may_wait = image->overflow_mode == OVERFLOW_WAIT,
        .refuse_hopeless = image->refuse_hopeless,
        .wait_timeout_ns = left_ns > 0 ? left_ns : 0,
        .now_ns = now_ns,
        .now_wall_ms = clock_wall_ms(),
        .call_id = request->call_id,
        .class = flow_class_of(request),
        .pictures = request->reader.intent.choices,
        .class_name = flow_class_name(flow_class_of(request)),
        .client = request->client_name,
        .scope = scope_name(request),
        .model = request->reader.intent.model,
        .endpoint = request->reader.intent.endpoint_name,
    };
}

static enum step_result refuse_image(struct request *request, const struct gate_answer *answer)
{
    switch (answer->verdict) {
    case GATE_REFUSED_LIMIT:
        return refuse(request, FAULT_image_limit, answer);
    case GATE_REFUSED_QUEUE_FULL:
        return refuse(request, FAULT_image_queue_full, answer);
    case GATE_REFUSED_HOPELESS:
        return refuse(request, FAULT_image_queue_timeout, answer);
    case GATE_OPEN:
    case GATE_GRANTED:
    case GATE_QUEUED:
        break;
    }
    UNREACHABLE();
}

enum step_result admission_step(struct request *request)
{
    struct gate_call call;
    struct gate_answer answer;

    /* On a scope of several sources the slot is taken together with one of them: admission_take. */
    if (!needs_slot(request) || !request->scope->direct)
        return STEP_NEXT;
    watchers_begin(request);
    if (watchers_client_gone(request, true))
        return request_client_left(request);
    call = gate_call_of(request);
    gate_arrive(&request->worker->gate, &call, &answer);
    switch (answer.verdict) {
    case GATE_OPEN:
        return STEP_NEXT;
    case GATE_REFUSED_LIMIT:
    case GATE_REFUSED_QUEUE_FULL:
    case GATE_REFUSED_HOPELESS:
        return refuse_image(request, &answer);
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

/* ---- slot, flow and source at once ----------------------------------------------------------- */

/* What a decision of admit.h is about, and where it stands. */
struct joint {
    struct request *request;
    struct source_wish wish;
    struct gate_call image;
    struct admit_call call;
    struct admit_seat *seat;
    struct admit_answer answer;
    bool is_counted; /* among worker.flow_waiters */
};

/* Every call that waits has a thread, and calls of other scopes need some too. Image calls have theirs
 * for as long as they are there, waiting or not. */
static void joint_count(struct joint *joint)
{
    struct worker *worker = joint->request->worker;

    if (!joint->call.targets || needs_slot(joint->request) || joint->wish.hedge)
        return;
    joint->is_counted = atomic_fetch_add(&worker->flow_waiters, 1) < worker->flow_waiters_max;
    if (joint->is_counted)
        return;
    atomic_fetch_sub(&worker->flow_waiters, 1);
    joint->call.flow.no_thread = true;
}

static void joint_uncount(const struct joint *joint)
{
    if (joint->is_counted)
        atomic_fetch_sub(&joint->request->worker->flow_waiters, 1);
}

/* Within its class's bound, less what the call has waited already. With a slot to wait for, the gate's
 * patience counts. */
static void joint_bound(struct joint *joint)
{
    struct flow_call *flow = &joint->call.flow;
    const int64_t left_ns = plan_flow_left_ns(&joint->request->plan);

    if (left_ns < flow->deadline_ns - flow->now_ns)
        flow->deadline_ns = flow->now_ns + left_ns;
}

static void joint_begin(struct joint *joint, struct request *request,
                        const struct source_wish *wish, struct admit_seat *seat)
{
    bool slot = needs_slot(request) && request->ticket.place == NO_INDEX;

    *joint = (struct joint){
        .request = request,
        .wish = *wish,
        .seat = seat,
        .call = {.wish = &joint->wish,
                 .targets = request->flow_targets.any ? request->flow_targets.list : NULL,
                 .flow = flow_call_of(request),
                 .image = slot ? &joint->image : NULL},
    };
    *seat = ADMIT_SEAT_EMPTY;
    if (slot)
        joint->image = gate_call_of(request);
    else
        joint_bound(joint);
    joint_count(joint);
}

/* What it costs was told at the arrival. What was predicted there is what there is to tell, unless the try
 * knows better. */
static void joint_try(struct joint *joint)
{
    const struct flow_price price = joint->answer.price;
    const int64_t image_wait_ns = joint->answer.image.predicted_wait_ns;
    const int64_t flow_wait_ns = joint->answer.flow.predicted_wait_ns;

    joint->wish.now_ns = clock_monotonic_ns();
    joint->wish.now_wall_ms = clock_wall_ms();
    admit_try(&joint->request->worker->gate, &joint->call, joint->seat, &joint->answer);
    joint->answer.price = price;
    joint->answer.image.predicted_wait_ns = image_wait_ns;
    if (joint->answer.flow.predicted_wait_ns == 0)
        joint->answer.flow.predicted_wait_ns = flow_wait_ns;
}

static bool waits_for_slot(const struct joint *joint)
{
    return joint->seat->image_place != NO_INDEX && !joint->seat->image_held;
}

/* Leave what it waits in, without having got what it waited for. A slot that the call had before, it
 * keeps. */
static void joint_leave(struct joint *joint, enum wait_state end)
{
    if (joint->call.image)
        joint->request->ticket.place = NO_INDEX;
    admit_leave(&joint->request->worker->gate, joint->seat, end, clock_monotonic_ns());
}

/* Was it the call's own time, then that is the fault. */
static void joint_refuse_image(struct joint *joint)
{
    struct request *request = joint->request;

    if (clock_monotonic_ns() >= request->deadline_ns)
        fault_set(&request->fault, FAULT_call_deadline, "%s", "");
    else
        (void)refuse_image(request, &joint->answer.image);
}

/* The call is over, and its wait with it. */
static enum admission_result joint_over(struct joint *joint, enum wait_state end)
{
    struct request *request = joint->request;

    joint_leave(joint, end);
    if (end == WAIT_CLIENT_GONE) {
        (void)request_client_left(request);
    } else if (end == WAIT_SHUTDOWN) {
        fault_set(&request->fault, FAULT_shutting_down, "%s", "");
        request->fault.retry_after_ms = 1000;
    } else {
        joint->answer.image.verdict = GATE_REFUSED_HOPELESS;
        joint_refuse_image(joint);
    }
    return ADMISSION_OVER;
}

/* When to look again without having been rung: when there will be budget, and when its flow lets it
 * wait no longer, which nobody tells it. */
static int64_t joint_wake_ns(const struct joint *joint)
{
    const int64_t until_ns = joint->answer.flow.until_ns;

    return clock_earlier(joint->answer.wake_ns, until_ns == CLOCK_NEVER ? until_ns : until_ns + 1);
}

/* True: what came of it is final. */
static bool joint_sleep(struct joint *joint, int64_t until_ns, enum admission_result *ret)
{
    switch (wait_event(joint->request, clock_earlier(until_ns, joint_wake_ns(joint)))) {
    case WAIT_EVENT_RUNG:
    case WAIT_EVENT_TIME:
        joint_try(joint);
        if (joint->answer.verdict != ADMIT_QUEUED || clock_monotonic_ns() < until_ns)
            return false;
        *ret = joint_over(joint, WAIT_TIMED_OUT);
        return true;
    case WAIT_EVENT_CLIENT_GONE:
        *ret = joint_over(joint, WAIT_CLIENT_GONE);
        return true;
    case WAIT_EVENT_STOP:
        *ret = joint_over(joint, WAIT_SHUTDOWN);
        return true;
    }
    UNREACHABLE();
}

/* Who waits for a slot has the gate's patience; in a flow alone, the flow's. */
static int64_t joint_until_ns(const struct joint *joint)
{
    const struct request *request = joint->request;

    if (!waits_for_slot(joint))
        return CLOCK_NEVER;
    return clock_earlier(request->deadline_ns,
                         request->arrived_ns + patience_ms(request) * NS_PER_MS);
}

static void joint_begin_watch(struct joint *joint)
{
    watchers_begin(joint->request);
    heartbeat_begin(joint->request);
    if (joint->seat->flow_place != NO_INDEX)
        heartbeat_begin_in_flow(joint->request);
}

static bool joint_wait(struct joint *joint, enum admission_result *ret)
{
    struct request *request = joint->request;
    struct bell_seat *seat = request->seat;
    const int64_t until_ns = joint_until_ns(joint);
    bool final = false;

    if (waits_for_slot(joint))
        request->ticket.place = joint->seat->image_place;
    clear_seat(request);
    atomic_store(&seat->place, waits_for_slot(joint) ? joint->seat->image_place : NO_INDEX);
    atomic_store(&seat->flow_place, joint->seat->flow_place);
    joint_try(joint); /* rung since the arrival? then nobody rings again */
    if (joint->answer.verdict == ADMIT_QUEUED)
        joint_begin_watch(joint);
    while (!final && joint->answer.verdict == ADMIT_QUEUED)
        final = joint_sleep(joint, until_ns, ret);
    atomic_store(&seat->place, NO_INDEX);
    atomic_store(&seat->flow_place, NO_INDEX);
    if (request->response == RESPONSE_NONE && request_wants_stream(request))
        request->next_heartbeat_ns = CLOCK_NEVER;
    return final;
}

/* The predicted wait, as long as a caller may be told. */
static int64_t told_wait_ns(const struct joint *joint)
{
    const int64_t wait_ns = joint->answer.flow.predicted_wait_ns;

    if (wait_ns < FLOW_WAIT_TOLD_MIN_NS)
        return FLOW_WAIT_TOLD_MIN_NS;
    return clock_earlier(wait_ns, FLOW_WAIT_TOLD_MAX_NS);
}

/* Flow control does not let it through in time. Was it the call's own time, and nothing was sent yet
 * that could be told of, then that is the fault. */
static enum admission_result joint_refused_flow(struct joint *joint, struct source_answer *ret)
{
    struct request *request = joint->request;
    int64_t now_ns = clock_monotonic_ns();

    if (joint->answer.flow.verdict == FLOW_EXPIRED && request->attempts == 0 &&
        now_ns >= request->deadline_ns) {
        fault_set(&request->fault, FAULT_call_deadline, "%s", "");
        return ADMISSION_OVER;
    }
    if (!joint->wish.hedge) {
        request->flow_refusal = joint->answer.flow.verdict;
        request->requests_standing = joint->answer.flow.requests;
        request->units_standing = joint->answer.flow.units;
        request->standing_unit = joint->answer.flow.unit;
    }
    ret->earliest_ns = now_ns + told_wait_ns(joint);
    return ADMISSION_REFUSED_FLOW;
}

/* Refused, at once or while it waited; nothing is held any more but a slot that it had before. */
static enum admission_result joint_refused(struct joint *joint, struct source_answer *ret)
{
    joint_leave(joint,
                joint->answer.verdict == ADMIT_REFUSED_SOURCE ? WAIT_REFUSED : WAIT_TIMED_OUT);
    *ret = joint->answer.source;
    if (joint->answer.verdict == ADMIT_REFUSED_SOURCE)
        return ADMISSION_REFUSED_SOURCE;
    if (joint->answer.verdict == ADMIT_REFUSED_IMAGE && !joint->wish.hedge) {
        joint_refuse_image(joint);
        return ADMISSION_OVER;
    }
    return joint_refused_flow(joint, ret);
}

/* Before anything is taken that is scarce. Others find out while they wait, or at their answer: asking
 * the kernel about every call costs more than the rest of its admission. */
static bool left_already(struct request *request)
{
    watchers_begin(request);
    return watchers_client_gone(request, true);
}

static bool holds_slot(const struct request *request)
{
    return request->ticket.granted && request->ticket.place != NO_INDEX;
}

enum admission_result admission_take(struct request *request, const struct source_wish *wish,
                                     struct admit_seat *seat, struct source_answer *ret_refusal)
{
    struct joint joint;
    int64_t began_ns = clock_monotonic_ns();
    enum admission_result result;
    bool final = false;

    joint_begin(&joint, request, wish, seat);
    if (joint.call.image && left_already(request)) {
        (void)request_client_left(request);
        return ADMISSION_OVER;
    }
    admit_arrive(&request->worker->gate, &joint.call, seat, &joint.answer);
    if (joint.answer.verdict == ADMIT_QUEUED) {
        int64_t waited_ns;

        final = joint_wait(&joint, &result);
        waited_ns = clock_monotonic_ns() - began_ns;
        request->queue_ns += waited_ns;
        if (holds_slot(request) && !joint.call.image)
            plan_held(&request->plan, waited_ns);
        if (!joint.call.image)
            plan_waited_in_flow(&request->plan, waited_ns);
    }
    joint_uncount(&joint);
    if (final)
        return result;
    if (joint.answer.verdict != ADMIT_GRANTED)
        return joint_refused(&joint, ret_refusal);
    if (joint.call.targets && joint.call.targets[seat->candidate].claim)
        request->flow_targets.prices[seat->candidate] = joint.answer.price;
    if (joint.call.image) {
        request->ticket.place = seat->image_place;
        request->ticket.granted = true;
    }
    return ADMISSION_GRANTED;
}
