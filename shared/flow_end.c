/* flow_end.c - what a granted call used in the end, exactly once; burial. See flow.h. */
#include "shared/flow.h"

#include "base/clock.h"
#include "shared/bucket.h"
#include "shared/flow_inside.h"
#include "shared/flow_queue.h"
#include "shared/flow_rows.h"

#define RETRY_AFTER_MIN_NS NS_PER_S
#define RETRY_AFTER_MAX_NS (60 * NS_PER_S)
#define MEAN_HOLD_SHIFT 3 /* weight of the newest: 1/8, as in gate.c */

static struct layout_area *layout_of(const struct gate *gate)
{
    return segment_layout(gate->segment);
}

/* Without the lock: nobody else changes the state of a granted place, and to all it is in flight before
 * and after. */
void flow_sent(struct gate *gate, uint32_t place, int64_t now_ns)
{
    struct flow_place_row *row;

    if (place == NO_INDEX)
        return;
    row = flow_own_place(gate, place);
    REQUIRE(atomic_load(&row->state) != FLOW_PLACE_WAITING);
    if (atomic_load(&row->state) == FLOW_PLACE_SENT)
        return;
    row->sent_ns = now_ns;
    atomic_store(&row->state, FLOW_PLACE_SENT);
}

void flow_progress(struct gate *gate, uint32_t place, int64_t units, int64_t now_ns)
{
    struct flow_place_row *row;
    struct flow_row *flow;

    if (place == NO_INDEX)
        return;
    gate_lock(gate);
    row = flow_own_place(gate, place);
    flow = flow_row_of(gate, row);
    REQUIRE(atomic_load(&row->state) == FLOW_PLACE_SENT);
    units = flow_bounded(units);
    if (units > row->charged) {
        flow_step_begins(flow, layout_of(gate), place, FLOW_NO_STATE, now_ns);
        bucket_take(&flow->units, (units - row->charged) * BUCKET_UNIT, now_ns);
        flow_count_units_locked(flow, units - row->charged, now_ns);
        row->charged = units;
        flow_step_ends(flow);
    }
    gate_unlock(gate);
}

static void learn_hold(struct flow_row *flow, int64_t hold_ns)
{
    if (flow->mean_hold_ns <= 0)
        flow->mean_hold_ns = flow_later(hold_ns, 1);
    else
        flow->mean_hold_ns += (hold_ns - flow->mean_hold_ns) / (1 << MEAN_HOLD_SHIFT);
}

/* The place goes; units is what it used in the end. Never sent: as if it had never been granted. */
static void end_locked(struct gate *gate, uint32_t place, int64_t units, int64_t now_ns)
{
    struct flow_place_row *row = flow_place_of(gate, place);
    struct flow_row *flow = flow_row_of(gate, row);
    const bool sent = atomic_load(&row->state) == FLOW_PLACE_SENT;
    const int64_t charged = row->charged;

    flow_step_begins(flow, layout_of(gate), place, FLOW_PLACE_FREE,
                     sent ? now_ns : row->granted_ns);
    if (flow_holds_back(flow)) {
        bucket_settle(&flow->units, charged * BUCKET_UNIT, units * BUCKET_UNIT, now_ns);
        if (!sent) {
            bucket_give_back(&flow->requests, BUCKET_UNIT, now_ns);
            if (flow->next_send_ns == row->pace_until_ns)
                flow->next_send_ns = row->pace_from_ns;
        }
    }
    flow_queue_correct_locked(layout_of(gate), place, units);
    if (sent) {
        flow_count_units_locked(flow, units - charged, now_ns);
        learn_hold(flow, now_ns - row->granted_ns);
    } else {
        flow_uncount_grant_locked(flow, charged, row->granted_ns);
    }
    flow_queue_free_place_locked(layout_of(gate), place);
    flow_step_ends(flow);
    flow->last_demand_ns = flow->last_used_ns = flow_later(now_ns, flow->last_used_ns);
    if (flow->strategy == FLOW_STRATEGY_ADAPTIVE)
        adaptive_set_in_flight(&flow->adaptive, flow->in_flight, now_ns);
}

void flow_leave_locked(struct gate *gate, uint32_t place, int64_t now_ns)
{
    struct flow_place_row *row = flow_own_place(gate, place);
    struct flow_row *flow = flow_row_of(gate, row);

    REQUIRE(atomic_load(&row->state) != FLOW_PLACE_SENT);
    flow->cancelled++;
    flow->refused_hopeless += row->hopeless;
    flow->expired += now_ns > row->deadline_ns && atomic_load(&row->state) == FLOW_PLACE_WAITING;
    if (atomic_load(&row->state) == FLOW_PLACE_WAITING)
        flow_queue_free_place_locked(layout_of(gate), place);
    else
        end_locked(gate, place, 0, now_ns);
    flow_ring_locked(gate, flow, now_ns);
}

void flow_cancel(struct gate *gate, uint32_t *place, int64_t now_ns)
{
    if (*place == NO_INDEX)
        return;
    gate_lock(gate);
    flow_leave_locked(gate, *place, now_ns);
    gate_unlock(gate);
    *place = NO_INDEX;
}

/* A minute's quota is only reached by who used most of it; otherwise it was a second's, unless it asks
 * for longer than that: then the quota is not what it is taken for. */
static enum adaptive_kind refine(const struct flow_row *flow,
                                 const struct adaptive_refusal *refusal, int64_t now_ns)
{
    if (flow->strategy == FLOW_STRATEGY_ADAPTIVE)
        return adaptive_refine(&flow->adaptive, refusal, now_ns);
    if (refusal->kind == ADAPTIVE_RPS && adaptive_asks_for_minute(refusal->retry_after_ns))
        return ADAPTIVE_RPM;
    if (adaptive_asks_for_minute(refusal->retry_after_ns))
        return refusal->kind;
    if ((refusal->kind == ADAPTIVE_RPM || refusal->kind == ADAPTIVE_RPS) &&
        flow->requests_quota > 0)
        return refusal->requests_60s >= flow->requests_quota * 4 / 5 ? ADAPTIVE_RPM : ADAPTIVE_RPS;
    if ((refusal->kind == ADAPTIVE_TPM || refusal->kind == ADAPTIVE_TPS) && flow->units_quota > 0)
        return refusal->tokens_60s >= flow->units_quota * 4 / 5 ? ADAPTIVE_TPM : ADAPTIVE_TPS;
    return refusal->kind;
}

static enum adaptive_kind refused_locked(struct flow_row *flow, const struct flow_end *end,
                                         const struct flow_use *use, uint32_t epoch)
{
    struct adaptive_refusal refusal = {.kind = end->kind,
                                       .epoch = epoch,
                                       .retry_after_ns = end->retry_after_ns,
                                       .requests_60s = use->sends,
                                       .tokens_60s = use->units,
                                       .random = end->random};

    refusal.kind = refine(flow, &refusal, end->now_ns);
    flow->refusals[refusal.kind]++;
    flow->last_refusal_ns = end->now_ns;
    flow->last_refusal_kind = refusal.kind;
    if (flow->strategy == FLOW_STRATEGY_ADAPTIVE)
        (void)adaptive_refused(&flow->adaptive, &refusal, end->now_ns);
    else if (flow_holds_back(flow) && end->retry_after_ns > 0)
        flow->paused_until_ns = flow_later(
            flow->paused_until_ns,
            end->now_ns + flow_later(RETRY_AFTER_MIN_NS,
                                     clock_earlier(end->retry_after_ns, RETRY_AFTER_MAX_NS)));
    return refusal.kind;
}

enum ending { SETTLE, REFUND, KEEP };

static int64_t used_units(const struct flow_place_row *row, enum ending ending, int64_t units)
{
    switch (ending) {
    case SETTLE:
        return flow_bounded(units);
    case REFUND:
        return 0;
    case KEEP:
        return row->charged;
    }
    UNREACHABLE();
}

static enum adaptive_kind end_sent_locked(struct gate *gate, uint32_t place, enum ending ending,
                                          const struct flow_end *end)
{
    struct flow_place_row *row = flow_place_of(gate, place);
    struct flow_row *flow = flow_row_of(gate, row);
    const uint32_t epoch = (uint32_t)row->epoch;
    const struct flow_use use =
        end->refused ? flow_use_locked(flow, end->now_ns) : (struct flow_use){0};
    enum adaptive_kind kind = end->kind;

    if (end->usage)
        calibration_learn(&flow->estimate, &end->usage->estimate, end->usage->input,
                          end->usage->output);
    end_locked(gate, place, used_units(row, ending, end->units), end->now_ns);
    flow->completed += ending == SETTLE && !end->refused;
    if (end->refused) {
        kind = refused_locked(flow, end, &use, epoch);
    } else if (end->sample && flow->strategy == FLOW_STRATEGY_ADAPTIVE) {
        struct adaptive_sample sample = *end->sample;

        sample.epoch = epoch;
        adaptive_completed(&flow->adaptive, &sample, end->now_ns);
    }
    flow_ring_locked(gate, flow, end->now_ns);
    return kind;
}

static enum adaptive_kind end_call(struct gate *gate, uint32_t *place, enum ending ending,
                                   const struct flow_end *end)
{
    enum adaptive_kind kind = end->kind;

    if (*place == NO_INDEX)
        return kind;
    gate_lock(gate);
    if (atomic_load(&flow_own_place(gate, *place)->state) == FLOW_PLACE_SENT)
        kind = end_sent_locked(gate, *place, ending, end);
    else
        flow_leave_locked(gate, *place, end->now_ns);
    gate_unlock(gate);
    *place = NO_INDEX;
    return kind;
}

enum adaptive_kind flow_settle(struct gate *gate, uint32_t *place, const struct flow_end *end)
{
    return end_call(gate, place, SETTLE, end);
}

enum adaptive_kind flow_refund(struct gate *gate, uint32_t *place, const struct flow_end *end)
{
    return end_call(gate, place, REFUND, end);
}

enum adaptive_kind flow_keep(struct gate *gate, uint32_t *place, const struct flow_end *end)
{
    return end_call(gate, place, KEEP, end);
}

/* What was sent was used, as far as anybody knows: the upstream goes on with it. */
static void bury_place_locked(struct gate *gate, uint32_t place, int64_t now_ns)
{
    struct flow_place_row *row = flow_place_of(gate, place);
    struct flow_row *flow = flow_row_of(gate, row);

    flow->buried++;
    if (atomic_load(&row->state) == FLOW_PLACE_WAITING)
        flow_queue_free_place_locked(layout_of(gate), place);
    else if (atomic_load(&row->state) == FLOW_PLACE_SENT)
        end_locked(gate, place, flow_later(row->charged, row->cost + row->predicted), now_ns);
    else
        end_locked(gate, place, 0, now_ns);
}

unsigned flow_bury_locked(struct gate *gate, uint32_t roster_index, uint64_t incarnation,
                          int64_t now_ns)
{
    struct layout_area *layout = layout_of(gate);
    unsigned places = 0;

    for (uint32_t i = 0; i < FLOW_PLACES_MAX && layout->flow_places_used > 0; i++) {
        const struct flow_place_row *row = &layout->flow_places[i];

        if (row->owner != roster_index || row->incarnation != incarnation ||
            atomic_load(&row->state) == FLOW_PLACE_FREE)
            continue;
        bury_place_locked(gate, i, now_ns);
        places++;
    }
    for (uint32_t i = 0; i < FLOWS_MAX && places > 0; i++)
        if (layout->flow_hashes[i] != 0)
            flow_ring_locked(gate, &layout->flows[i], now_ns);
    return places;
}
