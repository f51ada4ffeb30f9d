/*
 * gate.c - the admission decision for image calls; see gate.h for the life of a call.
 *
 * What holds whenever the lock is free:
 *   - a place is in its class's queue exactly when its state is WAITING; such a queue is in the order of
 * arrival_seq
 *   - a HELD place has a held row that names it, or NO_INDEX when it runs uncounted
 *   - used <= limit, except after the limit was lowered or work went over into leases
 *   - if there is a free slot and somebody waits, the first of them has been rung
 * A holder that dies inside may leave the first two broken: lists and counts are built again from
 * the rows. The last is restored by every tick.
 */
#include "shared/gate.h"

#include "base/text.h"
#include "shared/counters.h"
#include "shared/flow.h"
#include "shared/flow_queue.h"
#include "shared/journal.h"
#include "shared/leases.h"
#include "shared/lock.h"
#include "shared/slots.h"
#include "shared/sources.h"
#include "shared/wait_queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How long a slot is held when nobody has given one back yet: what a picture takes as a rule. */
#define FIRST_MEAN_HOLD_MS 10000
/* Weight of the newest hold in the moving average: 1/8, as in TCP's smoothed round-trip time
 * (RFC 6298, section 2). */
#define MEAN_HOLD_SHIFT 3

static struct core_area *core_of(const struct gate *gate)
{
    return segment_core(gate->segment);
}

static struct layout_area *layout_of(const struct gate *gate)
{
    return segment_layout(gate->segment);
}

static struct instance_row *own_instance(const struct gate *gate)
{
    return segment_instance(gate->segment);
}

static void count(const struct gate *gate, enum counter which)
{
    counter_add(&own_instance(gate)->counters, which, 1);
}

/* What is in use; a set that was removed is made anew meanwhile, and that is counted. */
static struct slots_use look_locked(struct gate *gate, int64_t now_ns)
{
    struct core_area *core = core_of(gate);
    const int32_t id = core->semaphore_id;
    struct slots_use use = slots_use_locked(core, now_ns);

    if (core->semaphore_id != id)
        count(gate, COUNTER_semaphore_rebuilt);
    return use;
}

void gate_lock(struct gate *gate)
{
    struct core_area *core = core_of(gate);
    struct layout_area *layout = layout_of(gate);
    enum lock_result taken = lock_take(&core->lock, gate->self, core->roster);

    if (taken == LOCK_TAKEN && layout->lists_ready)
        return;
    if (taken == LOCK_OWNER_DIED && gate->segment->instance != NO_INDEX)
        count(gate, COUNTER_lock_owner_deaths);
    layout->lists_ready = 0;
    slots_rebuild_locked(core);
    flow_queue_rebuild_locked(layout);
    queue_rebuild_locked(core, layout);
}

void gate_unlock(struct gate *gate)
{
    lock_give(&core_of(gate)->lock);
}

/* Own places are passed over when there is no sign of life for long. */
static void answer_locked(struct gate *gate, int64_t now_ns)
{
    queue_answer_locked(layout_of(gate), gate->self, now_ns);
}

bool gate_join(struct gate *gate, struct segment *segment, const struct roster_member *member,
               int64_t now_ns)
{
    gate->segment = segment;
    gate->self = NO_INDEX;
    gate_lock(gate);
    gate->self = roster_enter_locked(core_of(gate), member, now_ns);
    if (gate->self != NO_INDEX)
        answer_locked(gate, now_ns);
    gate_unlock(gate);
    return gate->self != NO_INDEX;
}

static struct instance_row *instance_of(const struct gate *gate, const struct roster_row *process)
{
    return &layout_of(gate)->instances[process->instance];
}

/* Waiters of an older layout go first (M8). */
static bool older_layout_waits(const struct core_area *core)
{
    for (uint32_t i = 0; i < LAYOUT_VERSION % LAYOUTS_MAX; i++)
        if (core->waiting_by_layout[i] > 0)
            return true;
    return false;
}

static void ring_locked(struct gate *gate, int64_t now_ns)
{
    struct core_area *core = core_of(gate);
    struct slots_use use;

    if (layout_of(gate)->waiting == 0)
        return;
    use = look_locked(gate, now_ns);
    (void)queue_ring_locked(core, layout_of(gate), older_layout_waits(core) ? 0 : use.free, now_ns);
    flow_slot_freed_locked(gate, now_ns);
}

bool gate_is_on_locked(const struct gate *gate)
{
    return own_instance(gate)->gate_on && core_of(gate)->limit > 0;
}

bool gate_slot_is_free_locked(struct gate *gate, int64_t now_ns)
{
    return look_locked(gate, now_ns).free > 0 && !older_layout_waits(core_of(gate));
}

/* How long the call behind `ahead` others waits for its slot: each slot becomes free once per mean
 * hold. */
static int64_t predict_ns(const struct gate *gate, uint32_t ahead)
{
    const struct core_area *core = core_of(gate);
    int64_t hold_ms = own_instance(gate)->mean_hold_ms;
    int64_t slots = core->limit > 0 ? core->limit : 1;

    if (hold_ms <= 0)
        hold_ms = FIRST_MEAN_HOLD_MS;
    return (ahead + 1) * hold_ms * NS_PER_MS / slots;
}

static void fill_record(const struct gate *gate, struct wait_record *record,
                        const struct gate_call *call, uint32_t used)
{
    struct core_area *core = core_of(gate);

    memset(record, 0, sizeof *record);
    record->boot = core->boot;
    record->arrival_seq = core->next_arrival_seq++;
    record->arrived_wall_ms = call->now_wall_ms;
    record->arrived_ns = call->now_ns;
    record->in_use_at_arrival = used;
    record->waiting_at_arrival = layout_of(gate)->waiting;
    record->pid = getpid();
    (void)text_copy(record->call_id, sizeof record->call_id, call->call_id);
    (void)text_copy(record->class_name, sizeof record->class_name, call->class_name);
    (void)text_copy(record->client, sizeof record->client, call->client);
    (void)text_copy(record->scope, sizeof record->scope, call->scope);
    (void)text_copy(record->model, sizeof record->model, call->model);
    (void)text_copy(record->endpoint, sizeof record->endpoint, call->endpoint);
}

static void grant_locked(struct gate *gate, uint32_t place, uint32_t held, int64_t now_ns,
                         uint32_t in_use)
{
    struct core_area *core = core_of(gate);
    struct layout_area *layout = layout_of(gate);
    struct wait_record *record = &layout->places[place].record;

    queue_hold_locked(core, layout, place, held);
    record->state = WAIT_GRANTED;
    record->grant_seq = core->next_grant_seq++;
    record->granted_ns = now_ns;
    record->in_use_at_grant = in_use;
    record->waiting_at_grant = layout->waiting;
    journal_wait_locked(&own_instance(gate)->journal, record);
    count(gate, COUNTER_image_granted);
    histogram_add(&own_instance(gate)->counters.queue_wait, now_ns - record->arrived_ns);
}

static enum gate_verdict refuse_locked(struct gate *gate, const struct gate_call *call,
                                       uint32_t used, enum gate_refusal refusal)
{
    static const struct {
        enum gate_verdict verdict;
        enum counter counter;
    } kinds[] = {
        [GATE_REFUSAL_LIMIT] = {GATE_REFUSED_LIMIT, COUNTER_image_refused_limit},
        [GATE_REFUSAL_QUEUE_FULL] = {GATE_REFUSED_QUEUE_FULL, COUNTER_image_refused_queue_full},
        [GATE_REFUSAL_HOPELESS] = {GATE_REFUSED_HOPELESS, COUNTER_image_refused_queue_timeout},
    };
    struct wait_record record;

    fill_record(gate, &record, call, used);
    record.state = WAIT_REFUSED;
    record.refusal = refusal;
    record.released_ns = call->now_ns;
    journal_wait_locked(&own_instance(gate)->journal, &record);
    count(gate, kinds[refusal].counter);
    return kinds[refusal].verdict;
}

/* The call stands in the queue from now on. */
static void queue_locked(struct gate *gate, const struct gate_call *call, uint32_t used,
                         struct gate_answer *answer)
{
    struct layout_area *layout = layout_of(gate);
    struct wait_record *record = &layout->places[answer->place].record;

    answer->position = queue_ahead_locked(layout, call->class) + 1;
    answer->verdict = GATE_QUEUED;
    fill_record(gate, record, call, used);
    record->state = WAIT_WAITING;
    record->position = answer->position;
    queue_join_locked(core_of(gate), layout, answer->place);
    journal_wait_locked(&own_instance(gate)->journal, record);
}

static enum gate_refusal refusal_of_wait(struct gate *gate, const struct gate_call *call,
                                         const struct gate_weighing *weighing,
                                         const struct gate_answer *answer)
{
    if (!weighing->may_take && !call->may_wait)
        return GATE_REFUSAL_LIMIT;
    /* Whoever waits for nothing but to wake up, its slot being free, is not in the way. */
    if (layout_of(gate)->waiting >= (uint64_t)core_of(gate)->max_waiting + weighing->free ||
        queue_is_full_locked(layout_of(gate), call->class, weighing->free))
        return GATE_REFUSAL_QUEUE_FULL;
    if (weighing->may_take) /* what it would wait for is not the slot */
        return GATE_REFUSAL_NONE;
    if (call->refuse_hopeless && answer->predicted_wait_ns > call->wait_timeout_ns)
        return GATE_REFUSAL_HOPELESS;
    return GATE_REFUSAL_NONE;
}

void gate_weigh_locked(struct gate *gate, const struct gate_call *call,
                       struct gate_weighing *ret_weighing, struct gate_answer *answer)
{
    struct core_area *core = core_of(gate);
    struct layout_area *layout = layout_of(gate);
    const struct slots_use use = look_locked(gate, call->now_ns);

    answer->in_use = use.used;
    answer->limit = core->limit;
    answer->waiting = layout->waiting;
    answer->predicted_wait_ns = predict_ns(gate, queue_ahead_locked(layout, call->class));
    *ret_weighing = (struct gate_weighing){
        .used = use.used,
        .free = use.free,
        .may_take = use.free > 0 && !older_layout_waits(core) &&
                    !queue_has_answering_locked(layout, call->now_ns),
    };
    ret_weighing->wait_refusal = refusal_of_wait(gate, call, ret_weighing, answer);
}

static void take_new_locked(struct gate *gate, const struct gate_call *call, uint32_t used,
                            uint32_t held, struct gate_answer *answer)
{
    struct layout_area *layout = layout_of(gate);

    fill_record(gate, &layout->places[answer->place].record, call, used);
    if (layout->waiting > 0 && queue_pass_over_locked(layout, NO_INDEX))
        count(gate, COUNTER_image_passed_over);
    answer->in_use = used + 1;
    grant_locked(gate, answer->place, held, call->now_ns, answer->in_use);
    answer->verdict = GATE_GRANTED;
}

void gate_enter_locked(struct gate *gate, const struct gate_call *call,
                       const struct gate_weighing *weighing, enum gate_step step,
                       struct gate_answer *answer)
{
    struct core_area *core = core_of(gate);
    struct layout_area *layout = layout_of(gate);
    uint32_t held = NO_INDEX;

    count(gate, COUNTER_image_requests);
    if (step != GATE_STEP_REFUSE)
        answer->place = queue_new_place_locked(core, layout, gate->self);
    if (answer->place == NO_INDEX) {
        answer->verdict = refuse_locked(gate, call, weighing->used,
                                        step == GATE_STEP_REFUSE ? weighing->wait_refusal
                                                                 : GATE_REFUSAL_QUEUE_FULL);
        return;
    }
    queue_set_class_locked(layout, answer->place, call->class, call->pictures);
    if (step == GATE_STEP_TAKE)
        held = slots_take_locked(core, gate->self, answer->place, call->now_ns);
    if (held != NO_INDEX) {
        take_new_locked(gate, call, weighing->used, held, answer);
    } else if (step == GATE_STEP_TAKE && !call->may_wait) {
        /* the kernel refused: as good as no slot */
        queue_free_place_locked(core, layout, answer->place);
        answer->place = NO_INDEX;
        answer->verdict = refuse_locked(gate, call, weighing->used, GATE_REFUSAL_LIMIT);
    } else {
        queue_locked(gate, call, weighing->used, answer);
    }
}

static enum gate_step step_of(const struct gate_weighing *weighing)
{
    if (weighing->may_take)
        return GATE_STEP_TAKE;
    return weighing->wait_refusal == GATE_REFUSAL_NONE ? GATE_STEP_WAIT : GATE_STEP_REFUSE;
}

void gate_arrive(struct gate *gate, const struct gate_call *call, struct gate_answer *ret_answer)
{
    struct gate_weighing weighing;

    *ret_answer = (struct gate_answer){.verdict = GATE_OPEN, .place = NO_INDEX};
    gate_lock(gate);
    if (gate_is_on_locked(gate)) {
        answer_locked(gate, call->now_ns);
        gate_weigh_locked(gate, call, &weighing, ret_answer);
        gate_enter_locked(gate, call, &weighing, step_of(&weighing), ret_answer);
    }
    gate_unlock(gate);
}

static void require_own(const struct gate *gate, uint32_t place)
{
    const struct place_row *row = &layout_of(gate)->places[place];

    REQUIRE(place < PLACES_MAX && atomic_load(&row->state) != PLACE_FREE &&
            row->owner == gate->self);
}

void gate_heard_locked(struct gate *gate, uint32_t place, struct gate_answer *answer)
{
    struct place_row *row = &layout_of(gate)->places[place];

    require_own(gate, place);
    atomic_store(&row->rung, 0);
    row->rung_ns = 0;
    answer->verdict = GATE_QUEUED;
    answer->place = place;
    answer->in_use = core_of(gate)->held_count + core_of(gate)->lease_count;
    answer->limit = core_of(gate)->limit;
    answer->waiting = layout_of(gate)->waiting;
}

void gate_ask_locked(struct gate *gate, uint32_t place, bool take, int64_t now_ns,
                     struct gate_answer *answer)
{
    struct core_area *core = core_of(gate);
    struct layout_area *layout = layout_of(gate);
    struct slots_use use;
    uint32_t held = NO_INDEX;

    gate_heard_locked(gate, place, answer);
    use = look_locked(gate, now_ns);
    answer->in_use = use.used;
    if (!gate_is_on_locked(gate)) {
        if (take)
            grant_locked(gate, place, NO_INDEX, now_ns, use.used);
        answer->verdict = GATE_OPEN;
        return;
    }
    if (use.free == 0 || older_layout_waits(core) || !queue_is_first_locked(layout, place, now_ns))
        return;
    if (take)
        held = slots_take_locked(core, gate->self, place, now_ns);
    if (held != NO_INDEX) {
        if (queue_pass_over_locked(layout, place))
            count(gate, COUNTER_image_passed_over);
        answer->in_use = use.used + 1;
        grant_locked(gate, place, held, now_ns, answer->in_use);
        ring_locked(gate, now_ns); /* those behind that awoke too early */
    }
    if (held != NO_INDEX || !take)
        answer->verdict = GATE_GRANTED;
}

void gate_try(struct gate *gate, uint32_t place, int64_t now_ns, struct gate_answer *ret_answer)
{
    *ret_answer = (struct gate_answer){.verdict = GATE_QUEUED, .place = place};
    gate_lock(gate);
    answer_locked(gate, now_ns);
    gate_ask_locked(gate, place, true, now_ns, ret_answer);
    gate_unlock(gate);
}

/* A slot's use has ended after held_ms: the average learns it. */
static void learn_hold(struct instance_row *instance, int64_t held_ms)
{
    if (instance->mean_hold_ms <= 0)
        instance->mean_hold_ms = held_ms > 0 ? held_ms : 1;
    else
        instance->mean_hold_ms += (held_ms - instance->mean_hold_ms) / (1 << MEAN_HOLD_SHIFT);
}

void gate_leave_locked(struct gate *gate, uint32_t place, enum wait_state end, int64_t now_ns,
                       const struct lease_terms *terms)
{
    struct core_area *core = core_of(gate);
    struct layout_area *layout = layout_of(gate);
    struct place_row *row = &layout->places[place];
    struct wait_record *record = &row->record;

    require_own(gate, place);
    record->state = end;
    record->released_ns = now_ns;
    if (atomic_load(&row->state) == PLACE_HELD) {
        if (row->held != NO_INDEX) {
            if (terms && !lease_begin_locked(core, terms, now_ns))
                count(gate, COUNTER_leases_lost);
            slots_give_locked(core, row->held);
            learn_hold(own_instance(gate), (now_ns - record->granted_ns) / NS_PER_MS);
        }
    } else if (end == WAIT_TIMED_OUT) {
        count(gate, COUNTER_image_refused_queue_timeout);
    } else {
        count(gate, COUNTER_image_left_queue);
    }
    journal_wait_locked(&own_instance(gate)->journal, record);
    queue_free_place_locked(core, layout, place);
    ring_locked(gate, now_ns);
}

void gate_leave(struct gate *gate, uint32_t place, enum wait_state end, int64_t now_ns,
                const struct lease_terms *terms)
{
    gate_lock(gate);
    gate_leave_locked(gate, place, end, now_ns, terms);
    gate_unlock(gate);
}

bool gate_end_lease(struct gate *gate, const char *id, int64_t now_ns)
{
    bool ended;

    gate_lock(gate);
    ended = lease_end_locked(core_of(gate), id);
    if (ended)
        ring_locked(gate, now_ns);
    gate_unlock(gate);
    return ended;
}

void gate_lease_source(struct gate *gate, const char *id, char source[NAME_SIZE])
{
    gate_lock(gate);
    (void)text_copy(source, NAME_SIZE, lease_source_locked(core_of(gate), id));
    gate_unlock(gate);
}

bool gate_is_rung(const struct gate *gate, uint32_t place)
{
    return atomic_load(&layout_of(gate)->places[place].rung) != 0;
}

void gate_limits_now(struct gate *gate, struct gate_limits *ret_limits)
{
    const struct queue_class_row *classes = layout_of(gate)->queue_classes;

    gate_lock(gate);
    *ret_limits = (struct gate_limits){.limit = core_of(gate)->limit,
                                       .max_waiting = core_of(gate)->max_waiting,
                                       .on = own_instance(gate)->gate_on != 0};
    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        ret_limits->classes[c] = classes[c].terms;
    gate_unlock(gate);
}

void gate_set_limits(struct gate *gate, const struct gate_limits *limits, int64_t now_ns,
                     int64_t now_wall_ms)
{
    struct core_area *core = core_of(gate);
    struct queue_class_row *classes = layout_of(gate)->queue_classes;
    struct instance_row *instance = own_instance(gate);
    char detail[160];

    gate_lock(gate);
    if (core->limit != limits->limit || core->max_waiting != limits->max_waiting ||
        instance->gate_on != limits->on) {
        (void)snprintf(detail, sizeof detail,
                       "limit=%" PRIu32 " was=%" PRIu32 " max_waiting=%" PRIu32 " was=%" PRIu32
                       " gate=%s",
                       limits->limit, core->limit, limits->max_waiting, core->max_waiting,
                       limits->on ? "on" : "off");
        gate_event_locked(instance, now_wall_ms, "limit_changed", detail);
    }
    /* An instance whose gate is off says nothing about the limit of those that share it. */
    if (limits->on) {
        core->limit = limits->limit;
        core->max_waiting = limits->max_waiting;
        for (uint32_t c = 0; c < FLOW_CLASSES; c++)
            classes[c].terms = limits->classes[c];
    }
    instance->gate_on = limits->on;
    ring_locked(gate, now_ns);
    gate_unlock(gate);
}

void gate_tick(struct gate *gate, int64_t now_ns)
{
    struct core_area *core = core_of(gate);

    gate_lock(gate);
    answer_locked(gate, now_ns);
    (void)look_locked(gate, now_ns); /* finds a removed set, lets leases expire */
    if (core->roster[gate->self].role == PROCESS_WORKER)
        slots_answer_roll_call_locked(core, gate->self);
    ring_locked(gate, now_ns);
    flow_tick_locked(gate, now_ns);
    gate_unlock(gate);
}

/* Close every place of a process in the ledger's eyes and free it. */
static unsigned bury_places_locked(struct gate *gate, const struct roster_death *death,
                                   enum wait_state end, int64_t now_ns)
{
    struct layout_area *layout = layout_of(gate);
    struct instance_row *instance = instance_of(gate, &core_of(gate)->roster[death->index]);
    unsigned places = 0;

    for (uint32_t i = 0; i < PLACES_MAX; i++) {
        struct place_row *row = &layout->places[i];

        if (row->owner != death->index || row->incarnation != death->incarnation ||
            atomic_load(&row->state) == PLACE_FREE)
            continue;
        row->record.state = end;
        row->record.released_ns = now_ns;
        journal_wait_locked(&instance->journal, &row->record);
        counter_add(&instance->counters, COUNTER_image_worker_died, end == WAIT_WORKER_DIED);
        queue_free_place_locked(core_of(gate), layout, i);
        places++;
    }
    return places;
}

bool gate_bury(struct gate *gate, const struct roster_death *death, int64_t now_ns,
               int64_t now_wall_ms, struct gate_burial *ret_burial)
{
    struct core_area *core = core_of(gate);
    struct roster_row *row = &core->roster[death->index];
    char detail[120];
    bool ours;

    gate_lock(gate);
    ours = row->incarnation == death->incarnation && atomic_load(&row->pid) != 0;
    if (ours) {
        struct instance_row *instance = instance_of(gate, row);

        ret_burial->pid = atomic_load(&row->pid);
        ret_burial->role = (enum process_role)row->role;
        ret_burial->slots = slots_bury_locked(core, death->index, death->incarnation);
        ret_burial->places = bury_places_locked(gate, death, WAIT_WORKER_DIED, now_ns);
        ret_burial->places += flow_bury_locked(gate, death->index, death->incarnation, now_ns);
        sources_bury_locked(gate->segment->area, death->index, death->incarnation);
        (void)snprintf(detail, sizeof detail, "pid=%d role=%u slots=%u places=%u", ret_burial->pid,
                       row->role, ret_burial->slots, ret_burial->places);
        gate_event_locked(instance, now_wall_ms, "burial", detail);
        counter_add(&instance->counters, COUNTER_burials, 1);
        roster_leave_locked(core, death->index);
        ring_locked(gate, now_ns);
    }
    gate_unlock(gate);
    return ours;
}

void gate_resign(struct gate *gate, int64_t now_ns)
{
    struct core_area *core = core_of(gate);
    struct roster_death own = {.index = gate->self};

    gate_lock(gate);
    own.incarnation = core->roster[gate->self].incarnation;
    for (uint32_t i = 0; i < HELD_MAX; i++)
        if (atomic_load(&core->held[i].held) && core->held[i].owner == own.index &&
            core->held[i].incarnation == own.incarnation)
            slots_give_locked(core, i);
    (void)bury_places_locked(gate, &own, WAIT_SHUTDOWN, now_ns);
    (void)flow_bury_locked(gate, own.index, own.incarnation, now_ns);
    sources_bury_locked(gate->segment->area, own.index, own.incarnation);
    roster_leave_locked(core, gate->self);
    ring_locked(gate, now_ns);
    lock_give(&core->lock);
    gate->self = NO_INDEX;
}
