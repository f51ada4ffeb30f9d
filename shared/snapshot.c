/* snapshot.c - copies what the status page shows; see snapshot.h. */
#include "shared/snapshot.h"

#include "base/text.h"
#include "shared/counters.h"
#include "shared/wait_queue.h"

#include <stdlib.h>
#include <string.h>

/* Memory for all places is only reserved here; what will be needed, and a little more, is also
 * touched, so that the copying below does not fault its pages in under the lock. */
static struct snapshot_place *places_new(const struct layout_area *layout)
{
    struct snapshot_place *places = malloc(PLACES_MAX * sizeof *places);
    size_t taken = 32;

    if (!places)
        return NULL;
    for (size_t i = 0; i < PLACES_MAX; i++)
        if (atomic_load_explicit(&layout->places[i].state, memory_order_relaxed) != PLACE_FREE)
            taken++;
    memset(places, 0, (taken < PLACES_MAX ? taken : PLACES_MAX) * sizeof *places);
    return places;
}

/* Likewise. */
static struct flow_view *flows_new(const struct layout_area *layout)
{
    struct flow_view *flows = malloc(FLOWS_MAX * sizeof *flows);
    size_t taken = 4;

    if (!flows)
        return NULL;
    for (size_t i = 0; i < FLOWS_MAX; i++)
        taken += layout->flow_hashes[i] != 0;
    memset(flows, 0, (taken < FLOWS_MAX ? taken : FLOWS_MAX) * sizeof *flows);
    return flows;
}

static int32_t pid_of(const struct core_area *core, uint32_t owner)
{
    return owner < ROSTER_MAX ? atomic_load(&core->roster[owner].pid) : 0;
}

/* Every held slot yields one holder, also one whose call's place cannot be read (another layout).
 */
static void copy_holders_locked(struct snapshot *snapshot, const struct core_area *core,
                                const struct layout_area *layout)
{
    for (size_t i = 0; i < HELD_MAX; i++) {
        const struct held_row *held = &core->held[i];
        struct snapshot_place *place = &snapshot->places[snapshot->place_count];

        if (!atomic_load(&held->held))
            continue;
        *place = (struct snapshot_place){.holds = true, .pid = pid_of(core, held->owner)};
        if (held->layout == LAYOUT_VERSION && held->place < PLACES_MAX)
            place->record = layout->places[held->place].record;
        else
            place->record.granted_ns = held->since_ns;
        snapshot->place_count++;
    }
}

static void copy_waiters_locked(struct snapshot *snapshot, const struct core_area *core,
                                const struct layout_area *layout)
{
    struct queue_walk walk;
    uint32_t position = 1;
    uint32_t index;

    queue_walk_begin(&walk, layout);
    while (snapshot->place_count < PLACES_MAX && (index = queue_walk_next(&walk)) != NO_INDEX) {
        const struct place_row *row = &layout->places[index];

        queue_walk_grants(&walk);
        snapshot->places[snapshot->place_count++] =
            (struct snapshot_place){.for_flow = row->flow_place != 0 && snapshot->use.free > 0,
                                    .position = position,
                                    .pid = pid_of(core, row->owner),
                                    .record = row->record};
        position++;
    }
}

static void copy_processes_locked(struct snapshot *snapshot, const struct core_area *core)
{
    for (size_t i = 0; i < ROSTER_MAX; i++) {
        const struct roster_row *row = &core->roster[i];
        struct snapshot_process *process = &snapshot->processes[snapshot->process_count];
        int32_t pid = atomic_load(&row->pid);

        if (pid == 0)
            continue;
        *process = (struct snapshot_process){
            .pid = pid,
            .role = row->role <= PROCESS_TOOL ? (enum process_role)row->role : PROCESS_NONE,
            .generation = row->generation,
            .incarnation = row->incarnation,
            .draining = row->draining,
            .threads = atomic_load(&row->threads),
            .threads_busy = atomic_load(&row->threads_busy),
            .instance = row->instance,
            .since_ns = row->since_ns,
        };
        snapshot->process_count++;
    }
}

static uint64_t pending(const _Atomic uint64_t *head, const _Atomic uint64_t *tail)
{
    uint64_t read = atomic_load(tail); /* first: the tail never passes the head */

    return atomic_load(head) - read;
}

static void copy_journal(struct snapshot *snapshot, const struct journal_area *journal)
{
    snapshot->journal = (struct journal_count_view){
        .waits_pending = pending(&journal->waits_head, &journal->waits_tail),
        .calls_pending = pending(&journal->calls_head, &journal->calls_tail),
        .attempts_pending = pending(&journal->attempts_head, &journal->attempts_tail),
        .events_pending = pending(&journal->events_head, &journal->events_tail),
        .waits_lost = atomic_load(&journal->waits_lost),
        .calls_lost = atomic_load(&journal->calls_lost),
        .attempts_lost = atomic_load(&journal->attempts_lost),
        .events_lost = atomic_load(&journal->events_lost),
        .written = atomic_load(&journal->written),
        .failures = atomic_load(&journal->failures),
    };
}

static void copy_locked(struct snapshot *snapshot, struct gate *gate, int64_t now_ns)
{
    struct core_area *core = segment_core(gate->segment);
    const struct layout_area *layout = segment_layout(gate->segment);
    const struct instance_row *instance = &layout->instances[snapshot->instance];

    snapshot->limit = core->limit;
    snapshot->max_waiting = core->max_waiting;
    snapshot->waiting = layout->waiting;
    snapshot->use = slots_use_locked(core, now_ns);
    snapshot->semaphore_epoch = core->semaphore_epoch;
    snapshot->owner_deaths = core->lock.owner_deaths;
    snapshot->semaphore_id = core->semaphore_id;
    snapshot->gate_on = instance->gate_on;
    snapshot->mean_hold_ms = instance->mean_hold_ms;
    snapshot->master_pid = instance->master_pid;
    snapshot->generation = instance->generation;
    snapshot->since_wall_ms = instance->since_wall_ms;
    memcpy(snapshot->state_directory, instance->state_directory, sizeof snapshot->state_directory);
    snapshot->source_count = sources_view_locked(instance, now_ns, snapshot->sources);
    snapshot->flow_count = flow_views_locked(gate, now_ns, snapshot->flows);
    copy_processes_locked(snapshot, core);
    copy_holders_locked(snapshot, core, layout);
    copy_waiters_locked(snapshot, core, layout);
}

/* qsort: holders by grant, and before all waiters, which keep their order. */
static int compare_places(const void *left_place, const void *right_place)
{
    const struct snapshot_place *left = left_place;
    const struct snapshot_place *right = right_place;

    if (left->position != right->position)
        return left->position < right->position ? -1 : 1;
    if (left->record.grant_seq != right->record.grant_seq)
        return left->record.grant_seq < right->record.grant_seq ? -1 : 1;
    return 0;
}

/* "default" of "/penstock-default". */
static const char *gate_name(const char *segment_name)
{
    const char *dash = strchr(segment_name, '-');

    return dash ? dash + 1 : segment_name;
}

bool snapshot_take(struct snapshot *snapshot, struct gate *gate, int64_t now_ns)
{
    const struct layout_area *layout = segment_layout(gate->segment);
    const struct instance_row *instance = segment_instance(gate->segment);
    struct snapshot_place *places = places_new(layout);
    struct flow_view *flows = flows_new(layout);

    if (!places || !flows) {
        free(places);
        free(flows);
        return false;
    }
    *snapshot = (struct snapshot){
        .taken_ns = now_ns, .instance = gate->segment->instance, .places = places, .flows = flows};
    gate_lock(gate);
    copy_locked(snapshot, gate, now_ns);
    gate_unlock(gate);

    qsort(places, snapshot->place_count, sizeof *places, compare_places);
    (void)text_copy(snapshot->gate, sizeof snapshot->gate, gate_name(gate->segment->name));
    snapshot->linked = segment_is_linked(gate->segment);
    copy_journal(snapshot, &instance->journal);
    for (unsigned which = 0; which < COUNTERS; which++)
        snapshot->counters[which] = counter_value(&instance->counters, (enum counter)which);
    return true;
}

void snapshot_release(struct snapshot *snapshot)
{
    free(snapshot->places);
    snapshot->places = NULL;
    snapshot->place_count = 0;
    free(snapshot->flows);
    snapshot->flows = NULL;
    snapshot->flow_count = 0;
}
