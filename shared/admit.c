/*
 * admit.c - slot, flow and source in one decision; see admit.h.
 *
 * Every decision looks first and takes then, all under the lock: the look changes nothing that counts,
 * and what it found can be taken, with one exception: the kernel may refuse a slot (slots.h). So the
 * slot is taken first.
 */
#include "shared/admit.h"

#include "base/clock.h"
#include "shared/flow_estimate.h"
#include "shared/flow_queue.h"
#include "shared/source_rows.h"
#include "shared/wait_queue.h"

#define NO_ROOM_RETRY_NS NS_PER_S /* no row for another flow: one is free again soon */

static struct layout_area *layout_of(const struct gate *gate)
{
    return segment_layout(gate->segment);
}

static unsigned first_of(uint64_t mask)
{
    return (unsigned)__builtin_ctzll(mask);
}

static bool wants_flow(const struct admit_call *call)
{
    for (size_t i = 0; call->targets && i < call->wish->count; i++)
        if (call->targets[i].terms && call->targets[i].terms->strategy != FLOW_STRATEGY_NONE)
            return true;
    return false;
}

static struct flow_answer no_flow(void)
{
    return (struct flow_answer){
        .verdict = FLOW_OPEN, .place = NO_INDEX, .due_ns = CLOCK_NEVER, .until_ns = CLOCK_NEVER};
}

/* The candidate's flow by the names of the configuration, or of its source's account. */
static struct flow_target target_of(const struct gate *gate, const struct admit_call *call,
                                    unsigned candidate)
{
    struct flow_target target = call->targets[candidate];

    if (!target.quota_group)
        target.quota_group = segment_instance(gate->segment)
                                 ->sources[call->wish->candidates[candidate].row]
                                 .quota_group;
    return target;
}

static void set_price(struct flow_target *target, const struct flow_price *price)
{
    target->cost = price->cost;
    target->predicted = price->predicted;
}

static struct flow_call flow_call_of(const struct admit_call *call)
{
    struct flow_call flow = call->flow;

    flow.now_ns = call->wish->now_ns;
    flow.may_wait = flow.may_wait && !call->wish->hedge;
    return flow;
}

/* ---- what the flows of the candidates say ---------------------------------------------------- */

struct option {
    unsigned candidate;
    uint32_t flow; /* NO_INDEX = none */
    enum flow_verdict verdict;
    int64_t predicted_wait_ns;
    struct flow_price price;
};

struct options {
    struct option of[64];
    uint64_t now, later; /* could go at once; could wait */
};

static struct option look_at(struct gate *gate, const struct admit_call *call, unsigned candidate)
{
    struct option option = {.candidate = candidate, .flow = NO_INDEX, .verdict = FLOW_OPEN};
    const struct flow_call flow_call = flow_call_of(call);
    struct flow_target target;

    if (!call->targets || !call->targets[candidate].terms ||
        call->targets[candidate].terms->strategy == FLOW_STRATEGY_NONE)
        return option;
    target = target_of(gate, call, candidate);
    option.flow = flow_find_locked(gate, &target, flow_call.now_ns);
    option.price = flow_price_locked(gate, option.flow, &target);
    set_price(&target, &option.price);
    if (option.flow != NO_INDEX) {
        option.verdict =
            flow_look_locked(gate, option.flow, &target, &flow_call, &option.predicted_wait_ns);
    } else if (target.terms->strategy >= FLOW_STRATEGY_RATE) {
        option.verdict = FLOW_REFUSED_BUSY;
        option.predicted_wait_ns = NO_ROOM_RETRY_NS;
    }
    return option;
}

static void look_at_all(struct gate *gate, const struct admit_call *call, uint64_t choices,
                        struct options *ret)
{
    ret->now = ret->later = 0;
    for (uint64_t rest = choices; rest; rest &= rest - 1) {
        const uint64_t bit = rest & -rest;
        struct option *option = &ret->of[first_of(rest)];

        *option = look_at(gate, call, first_of(rest));
        if (option->verdict == FLOW_OPEN || option->verdict == FLOW_GRANTED)
            ret->now |= bit;
        else if (option->verdict == FLOW_QUEUED)
            ret->later |= bit;
    }
}

/* Of the mask, where the wait is shortest; among equals the preferred one. */
static unsigned shortest_of(const struct options *options, uint64_t mask)
{
    unsigned best = first_of(mask);

    for (uint64_t rest = mask; rest; rest &= rest - 1)
        if (options->of[first_of(rest)].predicted_wait_ns < options->of[best].predicted_wait_ns)
            best = first_of(rest);
    return best;
}

/* Of those that lack nothing but a slot: where fewest wait for one already, so that calls that wait for
 * slots are spread over the accounts that have room. */
static unsigned calmest_of(const struct gate *gate, const struct options *options, uint64_t mask)
{
    const struct flow_row *flows = layout_of(gate)->flows;
    unsigned best = first_of(mask);

    for (uint64_t rest = mask; rest; rest &= rest - 1) {
        const struct option *option = &options->of[first_of(rest)];

        if (option->flow != NO_INDEX && options->of[best].flow != NO_INDEX &&
            flows[option->flow].waiting < flows[options->of[best].flow].waiting)
            best = first_of(rest);
    }
    return best;
}

/* ---- taking ---------------------------------------------------------------------------------- */

static void take_source(struct gate *gate, const struct admit_call *call, uint64_t among,
                        struct admit_seat *seat, struct admit_answer *ret)
{
    struct source_wish wish = *call->wish;

    wish.excluded |= ~among;
    source_admit_locked(gate, &wish, &ret->source);
    INVARIANT(ret->source.verdict == SOURCE_ADMITTED);
    seat->candidate = ret->source.candidate;
    seat->permit = ret->source.permit;
}

static void enter_flow(struct gate *gate, const struct admit_call *call,
                       const struct option *option, struct admit_seat *seat,
                       struct admit_answer *ret)
{
    const struct flow_call flow_call = flow_call_of(call);
    struct flow_target target;
    struct flow_entry entry;

    ret->flow.verdict = option->verdict;
    ret->flow.predicted_wait_ns = option->predicted_wait_ns;
    ret->price = option->price;
    if (option->flow == NO_INDEX)
        return;
    target = target_of(gate, call, option->candidate);
    set_price(&target, &option->price);
    entry = (struct flow_entry){
        .flow = option->flow,
        .target = &target,
        .call = &flow_call,
        .image = seat->image_held ? NO_INDEX : seat->image_place,
        .image_wait_ns = call->image && !seat->image_held ? call->image->wait_timeout_ns : 0,
    };
    flow_enter_locked(gate, &entry, &ret->flow);
    seat->flow_place = ret->flow.place;
    seat->flow_granted = ret->flow.verdict == FLOW_GRANTED;
}

/* The slot is there (or not needed), and the flows of `now` let the call go. */
static void take_all(struct gate *gate, const struct admit_call *call, struct options *options,
                     struct admit_seat *seat, struct admit_answer *ret)
{
    take_source(gate, call, options->now, seat, ret);
    enter_flow(gate, call, &options->of[seat->candidate], seat, ret);
    ret->verdict = ADMIT_GRANTED;
}

/* ---- arrival --------------------------------------------------------------------------------- */

struct arrival {
    uint64_t choices; /* the sources that would take the call */
    struct options options;
    struct gate_weighing weighing;
    bool slot_wanted;
};

static void refuse_flow(struct gate *gate, const struct admit_call *call,
                        const struct arrival *arrival, struct admit_seat *seat,
                        struct admit_answer *ret)
{
    const unsigned candidate = shortest_of(&arrival->options, arrival->choices);

    enter_flow(gate, call, &arrival->options.of[candidate], seat, ret);
    ret->verdict = ADMIT_REFUSED_FLOW;
}

/* Waits for what is missing: in the image queue, in its flow's, or in both. */
static void wait_locked(struct gate *gate, const struct admit_call *call,
                        const struct arrival *arrival, struct admit_seat *seat,
                        struct admit_answer *ret)
{
    const struct options *options = &arrival->options;
    const unsigned candidate = options->now ? calmest_of(gate, options, options->now)
                                            : shortest_of(options, options->later);
    struct option option = options->of[candidate];

    if (option.verdict == FLOW_GRANTED)
        option.verdict = FLOW_QUEUED; /* for the slot's sake */
    if (arrival->slot_wanted) {
        gate_enter_locked(gate, call->image, &arrival->weighing, GATE_STEP_WAIT, &ret->image);
        if (ret->image.verdict != GATE_QUEUED) {
            ret->verdict = ADMIT_REFUSED_IMAGE;
            return;
        }
        seat->image_place = ret->image.place;
    }
    enter_flow(gate, call, &option, seat, ret);
    if (arrival->slot_wanted && seat->flow_place != NO_INDEX)
        layout_of(gate)->places[seat->image_place].flow_place = seat->flow_place + 1;
    ret->verdict = ADMIT_QUEUED;
    ret->wake_ns = ret->flow.due_ns;
}

/* False: the kernel had none. */
static bool take_slot(struct gate *gate, const struct admit_call *call,
                      const struct arrival *arrival, struct admit_seat *seat,
                      struct admit_answer *ret)
{
    if (!arrival->slot_wanted)
        return true;
    gate_enter_locked(gate, call->image, &arrival->weighing, GATE_STEP_TAKE, &ret->image);
    if (ret->image.verdict == GATE_GRANTED) {
        seat->image_place = ret->image.place;
        seat->image_held = true;
        return true;
    }
    if (ret->image.verdict == GATE_QUEUED) /* a rare thing: it asks again as a new one */
        gate_leave_locked(gate, ret->image.place, WAIT_REFUSED, call->wish->now_ns, NULL);
    ret->image.place = NO_INDEX;
    ret->image.verdict = GATE_REFUSED_LIMIT;
    return false;
}

/* Who needs a slot has the gate's patience, for its flow too. */
static struct admit_call within_patience(const struct admit_call *call)
{
    struct admit_call bounded = *call;
    const int64_t now_ns = call->wish->now_ns;

    if (call->image->wait_timeout_ns < bounded.flow.deadline_ns - now_ns)
        bounded.flow.deadline_ns = now_ns + call->image->wait_timeout_ns;
    return bounded;
}

static void arrive_locked(struct gate *gate, const struct admit_call *asked,
                          struct admit_seat *seat, struct admit_answer *ret)
{
    const bool slot_wanted = asked->image && !seat->image_held && gate_is_on_locked(gate);
    const struct admit_call bounded = slot_wanted ? within_patience(asked) : *asked;
    const struct admit_call *call = &bounded;
    struct arrival arrival WRITTEN_FIRST;

    arrival.slot_wanted = slot_wanted;
    arrival.weighing = (struct gate_weighing){0};
    ret->verdict = ADMIT_REFUSED_SOURCE;
    arrival.choices = source_choices_locked(gate, call->wish, &ret->source);
    if (arrival.choices == 0)
        return;
    if (arrival.slot_wanted)
        gate_weigh_locked(gate, call->image, &arrival.weighing, &ret->image);
    look_at_all(gate, call, arrival.choices, &arrival.options);
    if (arrival.options.now && (!arrival.slot_wanted || arrival.weighing.may_take)) {
        ret->verdict = ADMIT_REFUSED_IMAGE;
        if (take_slot(gate, call, &arrival, seat, ret))
            take_all(gate, call, &arrival.options, seat, ret);
        return;
    }
    if (arrival.slot_wanted && arrival.weighing.wait_refusal != GATE_REFUSAL_NONE) {
        gate_enter_locked(gate, call->image, &arrival.weighing, GATE_STEP_REFUSE, &ret->image);
        ret->verdict = ADMIT_REFUSED_IMAGE;
    } else if ((arrival.options.now | arrival.options.later) == 0) {
        refuse_flow(gate, call, &arrival, seat, ret);
    } else {
        wait_locked(gate, call, &arrival, seat, ret);
    }
}

void admit_arrive(struct gate *gate, const struct admit_call *call, struct admit_seat *seat,
                  struct admit_answer *ret)
{
    REQUIRE(seat->flow_place == NO_INDEX && seat->permit.row == NO_INDEX &&
            (seat->image_place == NO_INDEX || seat->image_held));
    *ret = (struct admit_answer){.image = {.verdict = GATE_OPEN, .place = NO_INDEX},
                                 .flow = no_flow(),
                                 .wake_ns = CLOCK_NEVER};
    if ((!call->image || seat->image_held) && !wants_flow(call)) {
        source_admit(gate, call->wish, &ret->source);
        ret->verdict =
            ret->source.verdict == SOURCE_ADMITTED ? ADMIT_GRANTED : ADMIT_REFUSED_SOURCE;
        seat->candidate = ret->source.candidate;
        seat->permit = ret->source.permit;
        return;
    }
    gate_lock(gate);
    queue_answer_locked(layout_of(gate), gate->self, call->wish->now_ns);
    arrive_locked(gate, call, seat, ret);
    gate_unlock(gate);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool waits_for_slot(const struct admit_seat *seat)
{
    return seat->image_place != NO_INDEX && !seat->image_held;
}

static bool waits_for_flow(const struct admit_seat *seat)
{
    return seat->flow_place != NO_INDEX && !seat->flow_granted;
}

/* Candidates whose flow is the one that the seat waits in; without one, those that have none. */
static uint64_t of_same_flow(struct gate *gate, const struct admit_call *call,
                             const struct admit_seat *seat)
{
    const uint32_t flow = seat->flow_place == NO_INDEX
                              ? NO_INDEX
                              : layout_of(gate)->flow_places[seat->flow_place].flow;
    uint64_t mask = 0;

    for (unsigned i = 0; i < call->wish->count; i++) {
        bool serves = flow == NO_INDEX;

        if (call->targets) {
            const struct flow_target target = target_of(gate, call, i);

            serves = flow_serves_locked(gate, flow, &target);
        }
        mask |= serves ? UINT64_C(1) << i : 0;
    }
    return mask;
}

/* Slot and flow are there: is a source? What is only busy is waited for, behind the others. */
static uint64_t find_source(struct gate *gate, const struct admit_call *call,
                            const struct admit_seat *seat, struct admit_answer *ret)
{
    struct source_wish wish = *call->wish;
    uint64_t choices;

    wish.excluded |= ~of_same_flow(gate, call, seat);
    choices = source_choices_locked(gate, &wish, &ret->source);
    if (choices != 0)
        return choices;
    if (ret->source.verdict == SOURCE_BUSY && waits_for_flow(seat)) {
        flow_set_aside_locked(gate, seat->flow_place, ret->source.earliest_ns, wish.now_ns);
        ret->verdict = ADMIT_QUEUED;
        ret->wake_ns = ret->source.earliest_ns;
    } else {
        ret->verdict = ADMIT_REFUSED_SOURCE;
    }
    return 0;
}

static void take_waiting(struct gate *gate, const struct admit_call *call, uint64_t choices,
                         struct admit_seat *seat, struct admit_answer *ret)
{
    const int64_t now_ns = call->wish->now_ns;

    if (waits_for_slot(seat)) {
        gate_ask_locked(gate, seat->image_place, true, now_ns, &ret->image);
        if (ret->image.verdict == GATE_QUEUED)
            return; /* the kernel had none: the next tick rings again */
        seat->image_held = true;
    }
    if (waits_for_flow(seat)) {
        const struct flow_question question = {
            .place = seat->flow_place, .slot = true, .take = true, .now_ns = now_ns};

        flow_ask_locked(gate, &question, &ret->flow);
        INVARIANT(ret->flow.verdict == FLOW_GRANTED);
        seat->flow_granted = true;
    }
    take_source(gate, call, choices, seat, ret);
    ret->verdict = ADMIT_GRANTED;
}

static void try_locked(struct gate *gate, const struct admit_call *call, struct admit_seat *seat,
                       struct admit_answer *ret)
{
    const int64_t now_ns = call->wish->now_ns;
    bool slot = true;
    bool flow = true;
    uint64_t choices;

    ret->verdict = ADMIT_QUEUED;
    if (waits_for_slot(seat))
        slot = !gate_is_on_locked(gate) || gate_slot_is_free_locked(gate, now_ns);
    if (waits_for_flow(seat)) {
        const struct flow_question question = {
            .place = seat->flow_place, .slot = slot, .now_ns = now_ns};

        flow_ask_locked(gate, &question, &ret->flow);
        flow = ret->flow.verdict == FLOW_GRANTED;
        ret->wake_ns = ret->flow.due_ns;
    }
    /* Whose turn it is at the gate is looked for in the whole queue: last. */
    if (waits_for_slot(seat) && slot && flow) {
        gate_ask_locked(gate, seat->image_place, false, now_ns, &ret->image);
        slot = ret->image.verdict != GATE_QUEUED;
    } else if (waits_for_slot(seat)) {
        gate_heard_locked(gate, seat->image_place, &ret->image);
    }
    if (ret->flow.verdict == FLOW_EXPIRED && !slot) {
        ret->verdict = ADMIT_REFUSED_IMAGE;
        ret->image.verdict = GATE_REFUSED_HOPELESS;
    } else if (ret->flow.verdict == FLOW_EXPIRED || ret->flow.verdict == FLOW_REFUSED_HOPELESS) {
        ret->verdict = ADMIT_REFUSED_FLOW;
    } else if (slot && flow) {
        choices = find_source(gate, call, seat, ret);
        if (choices != 0)
            take_waiting(gate, call, choices, seat, ret);
    }
}

void admit_try(struct gate *gate, const struct admit_call *call, struct admit_seat *seat,
               struct admit_answer *ret)
{
    REQUIRE(waits_for_slot(seat) || waits_for_flow(seat));
    *ret = (struct admit_answer){.image = {.verdict = GATE_OPEN, .place = NO_INDEX},
                                 .flow = no_flow(),
                                 .source = {.permit.row = NO_INDEX},
                                 .wake_ns = CLOCK_NEVER};
    gate_lock(gate);
    queue_answer_locked(layout_of(gate), gate->self, call->wish->now_ns);
    try_locked(gate, call, seat, ret);
    if (ret->verdict != ADMIT_GRANTED) /* woken too early: others may be the ones */
        flow_seat_kept_locked(gate, seat->flow_place, call->wish->now_ns);
    gate_unlock(gate);
}

void admit_leave(struct gate *gate, struct admit_seat *seat, enum wait_state end, int64_t now_ns)
{
    gate_lock(gate);
    if (waits_for_flow(seat)) {
        flow_leave_locked(gate, seat->flow_place, now_ns);
        seat->flow_place = NO_INDEX;
    }
    if (waits_for_slot(seat)) {
        gate_leave_locked(gate, seat->image_place, end, now_ns, NULL);
        seat->image_place = NO_INDEX;
    }
    gate_unlock(gate);
}

bool admit_is_rung(const struct gate *gate, uint32_t image_place, uint32_t flow_place)
{
    return (image_place != NO_INDEX && gate_is_rung(gate, image_place)) ||
           (flow_place != NO_INDEX && flow_is_rung(gate, flow_place));
}
