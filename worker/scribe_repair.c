/* scribe_repair.c - from the gate and the roster into the ledger; see scribe_repair.h. */
#include "worker/scribe_repair.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

static int compare_seqs(const void *left, const void *right)
{
    const uint64_t *a = left;
    const uint64_t *b = right;

    return *a < *b ? -1 : *a > *b;
}

static void copy_locked(struct scribe_copy *copy, const struct gate *gate)
{
    const struct core_area *core = segment_core(gate->segment);
    const struct layout_area *layout = segment_layout(gate->segment);

    copy->boot = core->boot;
    copy->next_seq = core->next_arrival_seq;
    for (size_t i = 0; i < PLACES_MAX; i++) {
        const struct place_row *place = &layout->places[i];

        if (atomic_load_explicit(&place->state, memory_order_relaxed) != PLACE_FREE &&
            place->owner < ROSTER_MAX &&
            core->roster[place->owner].instance == gate->segment->instance)
            copy->records[copy->count++] = place->record;
    }
}

/* Memory is made, and touched, before the lock is taken. */
bool scribe_copy_gate(struct scribe_copy *copy, struct gate *gate)
{
    *copy = (struct scribe_copy){
        .records = malloc(PLACES_MAX * sizeof *copy->records),
        .seqs = malloc(PLACES_MAX * sizeof *copy->seqs),
    };
    if (!copy->records || !copy->seqs)
        return false;
    memset(copy->records, 0, PLACES_MAX * sizeof *copy->records);
    gate_lock(gate);
    copy_locked(copy, gate);
    gate_unlock(gate);
    for (size_t i = 0; i < copy->count; i++)
        copy->seqs[i] = copy->records[i].arrival_seq;
    qsort(copy->seqs, copy->count, sizeof *copy->seqs, compare_seqs);
    return true;
}

void scribe_copy_release(struct scribe_copy *copy)
{
    free(copy->records);
    free(copy->seqs);
    *copy = (struct scribe_copy){0};
}

bool scribe_put_copy(const struct scribe_copy *copy, struct ledger *ledger)
{
    const struct ledger_open_calls open = {.boot = copy->boot,
                                           .next_seq = copy->next_seq,
                                           .seqs = copy->seqs,
                                           .count = copy->count,
                                           .now_wall_ms = clock_wall_ms()};

    if (!ledger_begin(ledger))
        return false;
    for (size_t i = 0; i < copy->count; i++)
        if (!ledger_put_wait(ledger, &copy->records[i]))
            return false;
    return ledger_close_stale(ledger, &open) && ledger_commit(ledger);
}

bool scribe_close_attempts(struct gate *gate, struct ledger *ledger)
{
    const struct roster_row *roster = segment_core(gate->segment)->roster;
    struct ledger_process list[ROSTER_MAX];
    struct ledger_processes alive = {.list = list, .now_wall_ms = clock_wall_ms()};
    int64_t now_ns = clock_monotonic_ns();

    gate_lock(gate);
    for (size_t i = 0; i < ROSTER_MAX; i++) {
        int32_t pid = atomic_load(&roster[i].pid);

        if (pid != 0)
            list[alive.count++] = (struct ledger_process){
                .pid = pid,
                .since_wall_ms = alive.now_wall_ms - (now_ns - roster[i].since_ns) / NS_PER_MS,
            };
    }
    gate_unlock(gate);
    return ledger_close_attempts(ledger, &alive);
}
