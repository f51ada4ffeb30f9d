/*
 * snapshot.h - a copy of what the status page shows, taken under one short lock.
 *
 * All parts of one snapshot belong to the same moment: used slots, holders, queue and positions
 * agree with one another. Counters are read beside it: each is exact, together they may be a call
 * apart.
 */
#ifndef SHARED_SNAPSHOT_H
#define SHARED_SNAPSHOT_H

#include "base/check.h"
#include "shared/flow.h"
#include "shared/gate.h"
#include "shared/layout.h"
#include "shared/slots.h"
#include "shared/sources.h"

#include <stdbool.h>

struct snapshot_process {
    int32_t pid;
    enum process_role role;
    uint64_t generation;
    uint64_t incarnation; /* grows with every process that enters */
    uint32_t draining, threads, threads_busy, instance;
    int64_t since_ns;
};

struct snapshot_place {
    bool holds;        /* else waits ... */
    bool for_flow;     /* ... not for a slot, there is one: for its flow to let it go */
    uint32_t position; /* of a waiting one, now: 1 = first */
    int32_t pid;
    struct wait_record record;
};

struct snapshot {
    int64_t taken_ns;
    char gate[NAME_SIZE + 16];
    char state_directory[256]; /* of the instance that looks */
    uint32_t instance;         /* its index: processes of the others have another one */
    int64_t since_wall_ms;     /* when the instance's row was taken */
    uint32_t limit, max_waiting, waiting;
    struct slots_use use;
    uint64_t semaphore_epoch, owner_deaths;
    int32_t semaphore_id;
    bool gate_on, linked;
    int64_t mean_hold_ms;
    int32_t master_pid;
    uint64_t generation;
    struct journal_count_view {
        uint64_t waits_pending, calls_pending, attempts_pending, events_pending;
        uint64_t waits_lost, calls_lost, attempts_lost, events_lost, written, failures;
    } journal;
    uint64_t counters[COUNTERS];
    unsigned source_count; /* of the instance that looks */
    struct source_view sources[SOURCE_ROWS];
    unsigned flow_count;
    struct flow_view *flows; /* owned; of the host, whoever uses them */
    unsigned process_count;
    struct snapshot_process processes[ROSTER_MAX];
    unsigned place_count; /* holders first, in the order of their grants, then waiters in order */
    struct snapshot_place *places; /* owned */
};

/* Allocates before it locks. False: out of memory. Free with snapshot_release. */
MUST_CHECK bool snapshot_take(struct snapshot *snapshot, struct gate *gate, int64_t now_ns);
void snapshot_release(struct snapshot *snapshot);

#endif
