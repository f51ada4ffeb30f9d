/* gate_journal.c - entries in the journal that are not the gate's own; see gate.h. */
#include "base/text.h"
#include "shared/gate.h"
#include "shared/journal.h"

#include <unistd.h>

void gate_event_locked(struct instance_row *instance, int64_t now_wall_ms, const char *name,
                       const char *detail)
{
    struct event_record event = {.wall_ms = now_wall_ms, .pid = getpid()};

    (void)text_copy(event.name, sizeof event.name, name);
    (void)text_copy(event.detail, sizeof event.detail, detail);
    journal_event_locked(&instance->journal, &event);
}

void gate_journal_call(struct gate *gate, const struct call_record *record,
                       const struct attempt_record *last)
{
    struct journal_area *journal = &segment_instance(gate->segment)->journal;

    gate_lock(gate);
    if (last)
        journal_attempt_locked(journal, last);
    journal_call_locked(journal, record);
    gate_unlock(gate);
}

void gate_journal_attempt(struct gate *gate, const struct attempt_record *record)
{
    gate_lock(gate);
    journal_attempt_locked(&segment_instance(gate->segment)->journal, record);
    gate_unlock(gate);
}

void gate_journal_event_locked(struct gate *gate, int64_t now_wall_ms, const char *name,
                               const char *detail)
{
    gate_event_locked(segment_instance(gate->segment), now_wall_ms, name, detail);
}

void gate_journal_event(struct gate *gate, int64_t now_wall_ms, const char *name,
                        const char *detail)
{
    gate_lock(gate);
    gate_journal_event_locked(gate, now_wall_ms, name, detail);
    gate_unlock(gate);
}
