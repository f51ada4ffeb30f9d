/* flow_turn.c - when a call could go, and the ring for whose turn it is; see flow_inside.h. */
#include "shared/flow_inside.h"

#include "shared/bucket.h"
#include "shared/flow_told.h"
#include "shared/roster.h"

static struct layout_area *layout_of(const struct gate *gate)
{
    return segment_layout(gate->segment);
}

struct flow_place_row *flow_place_of(const struct gate *gate, uint32_t place)
{
    REQUIRE(place < FLOW_PLACES_MAX);
    return &layout_of(gate)->flow_places[place];
}

struct flow_row *flow_row_of(const struct gate *gate, const struct flow_place_row *row)
{
    return &layout_of(gate)->flows[row->flow];
}

struct flow_place_row *flow_own_place(const struct gate *gate, uint32_t place)
{
    struct flow_place_row *row = flow_place_of(gate, place);

    REQUIRE(atomic_load(&row->state) != FLOW_PLACE_FREE && row->owner == gate->self);
    return row;
}

void flow_step_begins(struct flow_row *flow, const struct layout_area *layout, uint32_t place,
                      uint32_t wanted_state, int64_t at_ns)
{
    const struct flow_place_row *row = &layout->flow_places[place];
    struct flow_undo *undo = &flow->undo;

    undo->wanted_state = wanted_state;
    undo->charged = row->charged;
    undo->virtual_time = flow->virtual_time;
    undo->finish = flow->classes[row->class_index].finish;
    undo->next_send_ns = flow->next_send_ns;
    undo->requests = flow->requests;
    undo->units = flow->units;
    undo->second_at = (uint32_t)(at_ns / NS_PER_S % FLOW_WINDOW_S);
    undo->second = flow->window[undo->second_at];
    atomic_store(&undo->place, place + 1);
}

void flow_step_ends(struct flow_row *flow)
{
    atomic_store(&flow->undo.place, 0);
}

/* ---- what is there --------------------------------------------------------------------------- */

struct flow_budget flow_budget_locked(struct flow_row *flow, int64_t cost, int64_t now_ns)
{
    const struct flow_limits limits = flow_limits_locked(flow, now_ns);
    struct flow_budget budget = {.due_ns = now_ns, .want = ADAPTIVE_WANT_BUDGET};
    int64_t fills_ns;

    if (!flow_holds_back(flow))
        return budget;
    fills_ns = flow_later(bucket_due_ns(&flow->requests, BUCKET_UNIT, now_ns),
                          bucket_due_ns(&flow->units, cost * BUCKET_UNIT, now_ns));
    budget.due_ns = flow_later(
        fills_ns, flow_later(flow->next_send_ns - FLOW_PACE_SLACK_NS, limits.not_before_ns));
    budget.paused = limits.not_before_ns > now_ns;
    if (fills_ns <= now_ns)
        budget.want = ADAPTIVE_WANT_PACE;
    if (flow->in_flight >= limits.in_flight) {
        budget.due_ns = CLOCK_NEVER;
        budget.want = ADAPTIVE_WANT_PLACE;
    }
    return budget;
}

void flow_tell_locked(struct flow_row *flow, const struct flow_budget *budget)
{
    if (flow->strategy == FLOW_STRATEGY_ADAPTIVE && !budget->paused)
        adaptive_waited(&flow->adaptive, budget->want);
}

static bool slot_is_needed(const struct flow_row *flow)
{
    uint32_t plain = 0;

    for (uint32_t i = 0; i < FLOW_CLASSES; i++)
        plain += flow->classes[i].plain;
    return flow->waiting > plain;
}

struct flow_moment flow_moment_of(struct gate *gate, const struct flow_row *flow, int64_t now_ns)
{
    return (struct flow_moment){
        .now_ns = now_ns,
        .slot_free = slot_is_needed(flow) && gate_slot_is_free_locked(gate, now_ns),
    };
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* The one whose turn it is looks, if it would not by itself in time. Its silence counts from when all
 * is there. */
void flow_ring_locked(struct gate *gate, struct flow_row *flow, int64_t now_ns)
{
    struct flow_place_row *row;
    struct flow_moment moment;
    struct flow_budget budget;
    uint32_t next;

    if (flow->waiting == 0)
        return;
    moment = flow_moment_of(gate, flow, now_ns);
    next = flow_queue_next_locked(layout_of(gate), flow, &moment);
    if (next == NO_INDEX)
        return;
    row = flow_place_of(gate, next);
    budget = flow_budget_locked(flow, row->cost, now_ns);
    if (budget.due_ns > now_ns)
        flow_tell_locked(flow, &budget);
    if (budget.due_ns == CLOCK_NEVER || (row->due_ns != 0 && row->due_ns <= budget.due_ns))
        return;
    if (budget.due_ns <= now_ns && row->rung_ns == 0)
        row->rung_ns = now_ns;
    if (atomic_exchange(&row->rung, 1) == 0)
        roster_ring(&segment_core(gate->segment)->roster[row->owner]);
}

void flow_slot_freed_locked(struct gate *gate, int64_t now_ns)
{
    struct layout_area *layout = layout_of(gate);

    for (uint32_t i = 0; i < FLOWS_MAX && layout->flow_slot_waiters > 0; i++)
        if (layout->flow_hashes[i] != 0 && slot_is_needed(&layout->flows[i]))
            flow_ring_locked(gate, &layout->flows[i], now_ns);
}

void flow_tick_locked(struct gate *gate, int64_t now_ns)
{
    struct layout_area *layout = layout_of(gate);

    for (uint32_t i = 0; i < FLOWS_MAX; i++) {
        struct flow_row *flow = &layout->flows[i];

        if (layout->flow_hashes[i] == 0)
            continue;
        flow_forget_told_locked(flow, now_ns);
        if (flow->strategy == FLOW_STRATEGY_ADAPTIVE)
            adaptive_tick(&flow->adaptive, now_ns);
        flow_outlook_locked(gate, flow, now_ns);
        flow_ring_locked(gate, flow, now_ns);
    }
}

bool flow_is_rung(const struct gate *gate, uint32_t place)
{
    return atomic_load(&flow_place_of(gate, place)->rung) != 0;
}
