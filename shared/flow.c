/*
 * flow.c - when a call may go, and what it costs; see flow.h.
 *
 * What holds whenever the lock is free:
 *   - in_flight is the number of GRANTED and SENT places; a place is in its class's queue exactly when
 *     it is WAITING
 *   - of each GRANTED place one request and `charged` units are taken; of a SENT one, too
 *   - if somebody could go, the one whose turn it is has been rung, or asks by itself in time
 * A holder that dies inside leaves the first to be built again from the rows (flow_queue.c), the second
 * to flow_undo, and the last to the next tick.
 */
#include "shared/flow.h"

#include "base/clock.h"
#include "shared/bucket.h"
#include "shared/flow_clients.h"
#include "shared/flow_inside.h"
#include "shared/flow_queue.h"
#include "shared/flow_rows.h"
#include "shared/wait_queue.h"

/* When all rows or places are taken: one is free again soon. */
#define FULL_RETRY_NS NS_PER_S

static struct layout_area *layout_of(const struct gate *gate)
{
    return segment_layout(gate->segment);
}

static int64_t after(int64_t now_ns, int64_t wait_ns)
{
    return wait_ns > CLOCK_NEVER - now_ns ? CLOCK_NEVER : now_ns + wait_ns;
}

/* The clock was read before the lock was taken: others may have decided since. Who seemed to come before
 * them would wait for what is there, and all who come then behind it. */
static int64_t moment_ns(const struct flow_row *flow, int64_t now_ns)
{
    return flow_later(now_ns, flow->last_demand_ns);
}

/* ---- arrival --------------------------------------------------------------------------------- */

enum flow_verdict flow_look_locked(struct gate *gate, uint32_t flow_index,
                                   const struct flow_target *target, const struct flow_call *call,
                                   int64_t *ret_predicted_wait_ns)
{
    struct layout_area *layout = layout_of(gate);
    struct flow_row *flow = &layout->flows[flow_index];
    const struct flow_terms *terms = target->terms;
    const int64_t now_ns = moment_ns(flow, call->now_ns);
    const struct flow_moment moment = flow_moment_of(gate, flow, now_ns);
    const int64_t cost = flow_bounded(target->cost);
    int64_t patience_ns =
        clock_earlier(terms->max_wait_ns[call->class], flow_later(0, call->deadline_ns - now_ns));

    *ret_predicted_wait_ns = 0;
    if (!flow_holds_back(flow))
        return layout->flow_places_used < FLOW_PLACES_MAX ? FLOW_GRANTED : FLOW_OPEN;
    if (layout->flow_places_used == FLOW_PLACES_MAX) {
        *ret_predicted_wait_ns = FULL_RETRY_NS;
        return FLOW_REFUSED_FULL;
    }
    flow_wake_locked(flow, now_ns);
    if (flow_budget_locked(flow, cost, now_ns).due_ns <= now_ns &&
        flow_queue_is_next_new_locked(layout, flow, call->class, &moment))
        return FLOW_GRANTED;
    *ret_predicted_wait_ns = flow_predict_ns(flow, call->class, cost, now_ns);
    if (!call->may_wait)
        return FLOW_REFUSED_BUSY;
    if (call->no_thread)
        return FLOW_REFUSED_THREADS;
    if (flow->classes[call->class].waiting >= terms->max_waiting)
        return FLOW_REFUSED_FULL;
    if (terms->max_waiting_per_client > 0 && call->client != 0 &&
        flow_clients_waiting_locked(layout, flow_client_key(flow_index, call->client)) >=
            terms->max_waiting_per_client)
        return FLOW_REFUSED_CLIENT;
    return *ret_predicted_wait_ns > patience_ns ? FLOW_REFUSED_HOPELESS : FLOW_QUEUED;
}

static void count_refusal(struct flow_row *flow, enum flow_verdict verdict)
{
    flow->refused_full += verdict == FLOW_REFUSED_FULL;
    flow->refused_client += verdict == FLOW_REFUSED_CLIENT;
    flow->refused_hopeless += verdict == FLOW_REFUSED_HOPELESS;
    flow->refused_threads += verdict == FLOW_REFUSED_THREADS;
}

/* All at once: a request, the units, the next instant of the pace, one in flight. */
static void grant_locked(struct gate *gate, uint32_t place, int64_t now_ns)
{
    struct flow_place_row *row = flow_place_of(gate, place);
    struct flow_row *flow = flow_row_of(gate, row);
    const struct flow_limits limits = flow_limits_locked(flow, now_ns);

    flow_step_begins(flow, layout_of(gate), place, FLOW_PLACE_GRANTED, now_ns);
    row->charged = row->cost;
    row->granted_ns = now_ns;
    row->epoch = limits.epoch;
    flow_count_grant_locked(flow, row->charged, now_ns);
    if (flow_holds_back(flow)) {
        bucket_take(&flow->requests, BUCKET_UNIT, now_ns);
        bucket_take(&flow->units, row->cost * BUCKET_UNIT, now_ns);
        row->pace_from_ns = flow->next_send_ns;
        row->pace_until_ns = flow_later(now_ns, flow->next_send_ns) + limits.interval_ns;
        flow->next_send_ns = row->pace_until_ns;
    }
    row->requests_taken = flow->requests.taken_micro;
    row->units_taken = flow->units.taken_micro;
    flow_queue_grant_locked(layout_of(gate), place);
    flow_step_ends(flow);
    if (flow->strategy == FLOW_STRATEGY_ADAPTIVE) {
        adaptive_set_in_flight(&flow->adaptive, flow->in_flight, now_ns);
        adaptive_sent(&flow->adaptive, now_ns);
    }
}

static void fill_place(struct flow_place_row *row, const struct flow_target *target,
                       const struct flow_call *call)
{
    row->class_index = call->class;
    row->cost = flow_bounded(target->cost);
    row->predicted = flow_bounded(target->predicted);
    row->arrived_ns = call->now_ns;
    row->client_key = call->client ? flow_client_key(row->flow, call->client) : 0;
}

static void join_locked(struct gate *gate, uint32_t place, struct flow_answer *answer)
{
    struct flow_place_row *row = flow_place_of(gate, place);
    struct flow_row *flow = flow_row_of(gate, row);
    struct flow_budget budget;
    struct flow_moment moment;

    flow_queue_join_locked(layout_of(gate), place);
    answer->position = flow->classes[row->class_index].waiting;
    answer->until_ns = row->deadline_ns;
    answer->due_ns = CLOCK_NEVER;
    moment = flow_moment_of(gate, flow, row->arrived_ns);
    if (flow_queue_next_locked(layout_of(gate), flow, &moment) != place)
        return;
    budget = flow_budget_locked(flow, row->cost, row->arrived_ns);
    if (budget.due_ns <= row->arrived_ns)
        return; /* it waits for a slot */
    flow_tell_locked(flow, &budget);
    answer->due_ns = budget.due_ns;
    row->due_ns = budget.due_ns == CLOCK_NEVER ? 0 : budget.due_ns;
}

/* The longer of what the slot and the class allow, but not beyond the call's own deadline. */
static int64_t patience_ends_ns(const struct flow_entry *entry)
{
    const struct flow_call *call = entry->call;
    const int64_t class_wait_ns = entry->target->terms->max_wait_ns[call->class];

    return clock_earlier(call->deadline_ns,
                         after(call->now_ns, flow_later(entry->image_wait_ns, class_wait_ns)));
}

void flow_enter_locked(struct gate *gate, const struct flow_entry *entry,
                       struct flow_answer *answer)
{
    struct flow_row *flow = &layout_of(gate)->flows[entry->flow];
    const int64_t now_ns = entry->call->now_ns;
    struct flow_place_row *row;
    uint32_t place;

    answer->waiting = flow->waiting;
    answer->in_flight = flow->in_flight;
    answer->place = NO_INDEX;
    if (answer->verdict != FLOW_GRANTED && answer->verdict != FLOW_QUEUED) {
        count_refusal(flow, answer->verdict);
        flow_tell_standing_locked(flow, now_ns, answer);
        return;
    }
    place = flow_queue_new_place_locked(segment_core(gate->segment), layout_of(gate), gate->self);
    INVARIANT(place != NO_INDEX); /* the look saw one */
    answer->place = place;
    row = flow_place_of(gate, place);
    row->flow = entry->flow;
    fill_place(row, entry->target, entry->call);
    flow->last_demand_ns = flow->last_used_ns = flow_later(now_ns, flow->last_used_ns);
    if (answer->verdict == FLOW_GRANTED) {
        grant_locked(gate, place, now_ns);
        flow_ring_locked(gate, flow, now_ns);
        return;
    }
    row->image_place = entry->image == NO_INDEX ? 0 : entry->image + 1;
    row->deadline_ns = patience_ends_ns(entry);
    join_locked(gate, place, answer);
}

void flow_arrive(struct gate *gate, const struct flow_target *target, const struct flow_call *call,
                 struct flow_answer *ret)
{
    uint32_t flow;

    *ret = (struct flow_answer){
        .verdict = FLOW_OPEN, .place = NO_INDEX, .due_ns = CLOCK_NEVER, .until_ns = CLOCK_NEVER};
    if (!target->terms || target->terms->strategy == FLOW_STRATEGY_NONE)
        return;
    gate_lock(gate);
    queue_answer_locked(layout_of(gate), gate->self, call->now_ns);
    flow = flow_find_locked(gate, target, call->now_ns);
    if (flow != NO_INDEX) {
        ret->verdict = flow_look_locked(gate, flow, target, call, &ret->predicted_wait_ns);
        flow_enter_locked(
            gate,
            &(struct flow_entry){.flow = flow, .target = target, .call = call, .image = NO_INDEX},
            ret);
    } else if (target->terms->strategy >= FLOW_STRATEGY_RATE) {
        ret->verdict = FLOW_REFUSED_BUSY;
        ret->predicted_wait_ns = FULL_RETRY_NS;
    }
    gate_unlock(gate);
}

void flow_renew(struct gate *gate, const struct flow_target *target, int64_t now_ns)
{
    uint32_t flow;

    gate_lock(gate);
    queue_answer_locked(layout_of(gate), gate->self, now_ns);
    flow = flow_renew_locked(gate, target, now_ns);
    if (flow != NO_INDEX)
        flow_ring_locked(gate, &layout_of(gate)->flows[flow], now_ns);
    gate_unlock(gate);
}

/* ---- waiting --------------------------------------------------------------------------------- */

uint32_t flow_due_locked(struct layout_area *layout, uint32_t flow_index, int64_t now_ns,
                         int64_t *ret_due_ns)
{
    const struct flow_moment moment = {.now_ns = now_ns, .slot_free = true};
    struct flow_row *flow = &layout->flows[flow_index];
    uint32_t next = flow_queue_next_locked(layout, flow, &moment);

    *ret_due_ns = CLOCK_NEVER;
    if (next != NO_INDEX)
        *ret_due_ns = flow_budget_locked(flow, layout->flow_places[next].cost, now_ns).due_ns;
    return next;
}

/* It is not too late: is it its turn, and is there what it needs? */
static void ask_in_time_locked(struct gate *gate, const struct flow_question *question,
                               struct flow_answer *answer)
{
    const uint32_t place = question->place;
    struct flow_place_row *row = flow_own_place(gate, place);
    struct flow_row *flow = flow_row_of(gate, row);
    const int64_t now_ns = moment_ns(flow, question->now_ns);
    struct flow_moment moment = flow_moment_of(gate, flow, now_ns);
    struct flow_budget budget;

    moment.slot_free = moment.slot_free || question->slot;
    if (flow_queue_next_locked(layout_of(gate), flow, &moment) != place)
        return;
    budget = flow_budget_locked(flow, row->cost, now_ns);
    if (budget.due_ns > now_ns) {
        flow_tell_locked(flow, &budget);
        answer->due_ns = budget.due_ns;
        row->due_ns = budget.due_ns == CLOCK_NEVER ? 0 : budget.due_ns;
    } else if (question->slot) {
        answer->verdict = FLOW_GRANTED;
        if (question->take) {
            grant_locked(gate, place, now_ns);
            flow_ring_locked(gate, flow, now_ns);
        }
    }
}

void flow_ask_locked(struct gate *gate, const struct flow_question *question,
                     struct flow_answer *answer)
{
    const uint32_t place = question->place;
    const int64_t now_ns = question->now_ns;
    struct flow_place_row *row = flow_own_place(gate, place);
    struct flow_row *flow = flow_row_of(gate, row);

    REQUIRE(atomic_load(&row->state) == FLOW_PLACE_WAITING);
    atomic_store(&row->rung, 0);
    row->rung_ns = row->due_ns = 0;
    answer->verdict = now_ns > row->deadline_ns ? FLOW_EXPIRED : FLOW_QUEUED;
    answer->place = place;
    answer->waiting = flow->waiting;
    answer->in_flight = flow->in_flight;
    answer->until_ns = row->deadline_ns;
    answer->due_ns = row->aside_until_ns > now_ns ? row->aside_until_ns : CLOCK_NEVER;
    if (answer->verdict == FLOW_QUEUED)
        ask_in_time_locked(gate, question, answer);
    if (answer->verdict == FLOW_QUEUED && row->hopeless != 0)
        answer->verdict = FLOW_REFUSED_HOPELESS;
    if (answer->verdict == FLOW_EXPIRED || answer->verdict == FLOW_REFUSED_HOPELESS) {
        answer->predicted_wait_ns = flow_wait_left_ns(flow, row, now_ns);
        flow_tell_standing_locked(flow, now_ns, answer);
    }
}

void flow_try(struct gate *gate, uint32_t place, int64_t now_ns, struct flow_answer *answer)
{
    struct flow_question question = {.place = place, .take = true, .now_ns = now_ns};

    gate_lock(gate);
    queue_answer_locked(layout_of(gate), gate->self, now_ns);
    question.slot = flow_own_place(gate, place)->image_place == 0;
    flow_ask_locked(gate, &question, answer);
    if (answer->verdict != FLOW_GRANTED) /* woken too early: another may be the one */
        flow_seat_kept_locked(gate, place, now_ns);
    gate_unlock(gate);
}

/* Not itself: what it still lacks will ring it, a slot that another takes first among them. */
void flow_seat_kept_locked(struct gate *gate, uint32_t place, int64_t now_ns)
{
    struct flow_row *flow;
    struct flow_moment moment;

    if (place == NO_INDEX)
        return;
    flow = flow_row_of(gate, flow_place_of(gate, place));
    moment = flow_moment_of(gate, flow, now_ns);
    if (flow_queue_next_locked(layout_of(gate), flow, &moment) != place)
        flow_ring_locked(gate, flow, now_ns);
}

void flow_set_aside_locked(struct gate *gate, uint32_t place, int64_t until_ns, int64_t now_ns)
{
    struct flow_place_row *row = flow_own_place(gate, place);

    row->aside_until_ns = until_ns;
    flow_ring_locked(gate, flow_row_of(gate, row), now_ns);
}
