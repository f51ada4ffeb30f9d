/*
 * source_rows.c - which sources there are: registration, an operator's drain, burial, views; see
 * sources.h.
 */
#include "shared/source_rows.h"

#include "base/text.h"
#include "shared/sources.h"

#include <stdio.h>
#include <string.h>

uint32_t source_in_flight(const struct source_row *row)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < ROSTER_MAX; i++)
        sum += atomic_load(&row->in_flight[i]);
    return sum;
}

/* ---- registration ----------------------------------------------------------------------------- */

static uint32_t find_locked(const struct instance_row *instance, const char *name)
{
    char cut[NAME_SIZE];

    (void)text_copy(cut, sizeof cut, name);
    for (uint32_t i = 0; i < SOURCE_ROWS; i++)
        if (atomic_load(&instance->sources[i].used) && strcmp(instance->sources[i].name, cut) == 0)
            return i;
    return NO_INDEX;
}

/* Could a living process have learnt the row's index when it was this source's? Its generation
 * tells: every generation registers its sources. */
static bool is_known_locked(const struct gate *gate, const struct source_row *row)
{
    const struct roster_row *roster = segment_core(gate->segment)->roster;

    for (uint32_t i = 0; i < ROSTER_MAX; i++)
        if (atomic_load(&roster[i].pid) != 0 && roster[i].instance == gate->segment->instance &&
            (roster[i].role == PROCESS_MASTER || roster[i].role == PROCESS_WORKER) &&
            roster[i].generation <= row->generation)
            return true;
    return false;
}

/* A free row, else the one that has been gone for longest, else NO_INDEX. */
static uint32_t find_room_locked(const struct gate *gate)
{
    const struct source_row *rows = segment_instance(gate->segment)->sources;
    uint32_t oldest = NO_INDEX;

    for (uint32_t i = 0; i < SOURCE_ROWS; i++) {
        if (!atomic_load(&rows[i].used))
            return i;
        if ((oldest == NO_INDEX || rows[i].generation < rows[oldest].generation) &&
            !is_known_locked(gate, &rows[i]) && source_in_flight(&rows[i]) == 0)
            oldest = i;
    }
    return oldest;
}

/* probe_seq goes on: it is never used twice. */
static void take_row_locked(struct source_row *row, const char *name)
{
    atomic_store(&row->used, 0);
    row->taken++;
    breaker_close_locked(row);
    row->drained = 0;
    row->generation = 0;
    row->out_until_ns = 0;
    row->throttled_until_ns = 0;
    row->out_reason[0] = '\0';
    atomic_store(&row->health_permille, 1000);
    atomic_store(&row->latency_ms, 0);
    (void)text_copy(row->name, sizeof row->name, name);
    breaker_done_locked(row);
}

static void configure_row_locked(struct source_row *row, const struct source_name *name,
                                 uint64_t generation)
{
    breaker_begin_locked(row);
    (void)text_copy(row->quota_group, sizeof row->quota_group,
                    name->quota_group[0] ? name->quota_group : name->name);
    if (generation > row->generation)
        row->out_until_ns = 0;
    breaker_done_locked(row);
    if (generation > row->generation) /* last: who dies before it leaves the rest to the next */
        row->generation = generation;
    atomic_store(&row->used, 1);
}

static bool register_locked(struct gate *gate, const struct source_name *names, size_t count,
                            uint32_t *ret_rows)
{
    struct instance_row *instance = segment_instance(gate->segment);
    const uint64_t generation = segment_core(gate->segment)->roster[gate->self].generation;

    /* Those that have a row first: none of theirs may become room for another. */
    for (size_t i = 0; i < count; i++) {
        ret_rows[i] = find_locked(instance, names[i].name);
        if (ret_rows[i] != NO_INDEX)
            configure_row_locked(&instance->sources[ret_rows[i]], &names[i], generation);
    }
    for (size_t i = 0; i < count; i++) {
        if (ret_rows[i] != NO_INDEX)
            continue;
        ret_rows[i] = find_room_locked(gate);
        if (ret_rows[i] == NO_INDEX)
            return false;
        take_row_locked(&instance->sources[ret_rows[i]], names[i].name);
        configure_row_locked(&instance->sources[ret_rows[i]], &names[i], generation);
    }
    return true;
}

bool sources_register(struct gate *gate, const struct source_name *names, size_t count,
                      uint32_t *ret_rows)
{
    bool registered;

    REQUIRE(gate->self < ROSTER_MAX);
    gate_lock(gate);
    registered = register_locked(gate, names, count, ret_rows);
    gate_unlock(gate);
    return registered;
}

/* ---- an operator's order ---------------------------------------------------------------------- */

static void drain_locked(struct gate *gate, struct source_row *row, bool drained,
                         int64_t now_wall_ms)
{
    char detail[NAME_SIZE + 16];

    breaker_begin_locked(row);
    row->drained = drained;
    if (!drained) {
        breaker_close_locked(row);
        row->out_until_ns = 0;
        row->throttled_until_ns = 0;
        row->out_reason[0] = '\0';
    }
    breaker_done_locked(row);
    (void)snprintf(detail, sizeof detail, "source=%s", row->name);
    gate_journal_event_locked(gate, now_wall_ms, drained ? "source_drained" : "source_undrained",
                              detail);
}

bool source_drain(struct gate *gate, const char *name, bool drained, int64_t now_wall_ms)
{
    uint32_t index;

    gate_lock(gate);
    index = find_locked(segment_instance(gate->segment), name);
    if (index != NO_INDEX)
        drain_locked(gate, &segment_instance(gate->segment)->sources[index], drained, now_wall_ms);
    gate_unlock(gate);
    return index != NO_INDEX;
}

/* ---- burial ----------------------------------------------------------------------------------- */

void sources_bury_locked(struct segment_area *area, uint32_t roster_index, uint64_t incarnation)
{
    const struct roster_row *process;
    struct instance_row *instance;

    REQUIRE(roster_index < ROSTER_MAX);
    process = &area->core.roster[roster_index];
    if (process->incarnation != incarnation)
        return; /* buried already: the row is another's */
    REQUIRE(process->instance < INSTANCES_MAX);
    instance = &area->layout.instances[process->instance];
    for (uint32_t i = 0; i < SOURCE_ROWS; i++) {
        struct source_row *row = &instance->sources[i];

        if (!atomic_load(&row->used))
            continue;
        if (row->probe_owner == roster_index && row->probe_incarnation == incarnation)
            atomic_store(&row->probe_held, 0);
        atomic_store(&row->in_flight[roster_index], 0);
    }
}

/* ---- views ------------------------------------------------------------------------------------ */

static int64_t from_now(int64_t until_ns, int64_t now_ns)
{
    return until_ns > now_ns ? until_ns - now_ns : 0;
}

static void view_locked(const struct source_row *row, int64_t now_ns, struct source_view *ret)
{
    const struct breaker_count count = breaker_count(row, now_ns);

    *ret = (struct source_view){
        .breaker = (enum breaker_state)atomic_load(&row->breaker),
        .drained = row->drained,
        .probing = atomic_load(&row->probe_held) && row->probe_expires_ns > now_ns,
        .in_flight = source_in_flight(row),
        .failures_in_a_row = row->failures_in_a_row,
        .health_permille = atomic_load(&row->health_permille),
        .latency_ms = atomic_load(&row->latency_ms),
        .window_calls = count.calls,
        .window_failures = count.failures,
        .open_for_ns = from_now(row->open_until_ns, now_ns),
        .out_for_ns = from_now(row->out_until_ns, now_ns),
        .throttled_for_ns = from_now(row->throttled_until_ns, now_ns),
    };
    (void)text_copy(ret->name, sizeof ret->name, row->name);
    (void)text_copy(ret->quota_group, sizeof ret->quota_group, row->quota_group);
    if (ret->breaker != BREAKER_CLOSED || ret->out_for_ns > 0)
        (void)text_copy(ret->out_reason, sizeof ret->out_reason, row->out_reason);
}

unsigned sources_view_locked(const struct instance_row *instance, int64_t now_ns,
                             struct source_view views[SOURCE_ROWS])
{
    uint64_t newest = 0;
    unsigned count = 0;

    for (uint32_t i = 0; i < SOURCE_ROWS; i++)
        if (atomic_load(&instance->sources[i].used) && instance->sources[i].generation > newest)
            newest = instance->sources[i].generation;
    for (uint32_t i = 0; i < SOURCE_ROWS; i++) {
        const struct source_row *row = &instance->sources[i];

        if (!atomic_load(&row->used))
            continue;
        view_locked(row, now_ns, &views[count]);
        views[count].leaving = row->generation < newest;
        if (!views[count].leaving || views[count].in_flight > 0)
            count++;
    }
    return count;
}
