/*
 * roster.h - who lives: one row per process of every instance and generation (M6).
 *
 * A process is its row's index and incarnation, never its pid alone; whether it lives is asked of a
 * pidfd that was checked against the start time in the row. A row is taken by the process itself
 * (after fork) and freed by its burial, also after a clean end.
 *
 * Processes: rows are written under the lock. struct roster_watch is one process's own set of
 * pidfds; one thread uses it.
 */
#ifndef SHARED_ROSTER_H
#define SHARED_ROSTER_H

#include "base/check.h"
#include "shared/layout.h"

#include <stdbool.h>

struct roster_member {
    enum process_role role;
    uint32_t instance;
    uint64_t generation;
    uint32_t threads;
};

/* Take a free row for the calling process. NO_INDEX: none is free. Lock held. */
MUST_CHECK uint32_t roster_enter_locked(struct core_area *core, const struct roster_member *member,
                                        int64_t now_ns);
/* Free the row. Lock held; everything the process held has been given back. */
void roster_leave_locked(struct core_area *core, uint32_t index);

/* Make the process look: increments its bell and wakes who sleeps on it. Needs no lock. */
void roster_ring(struct roster_row *row);
/* Sleep until the bell differs from seen, at most for timeout_ns; returns its value. */
uint32_t roster_wait_bell(struct roster_row *row, uint32_t seen, int64_t timeout_ns);

/* Field 22 of /proc/PID/stat, 0 when the process cannot be read. */
uint64_t roster_start_ticks(int32_t pid);

/* pidfds of all rows, opened as rows appear. */
struct roster_watch {
    struct {
        int fd; /* -1 = none */
        uint64_t incarnation;
    } seen[ROSTER_MAX];
};
void roster_watch_init(struct roster_watch *watch);
void roster_watch_release(struct roster_watch *watch);
/* Fill dead[] with the indices of rows whose process has ended; returns their number. Takes no
 * lock: a row may have been buried by another process meanwhile, burial checks the incarnation
 * again. */
struct roster_death {
    uint32_t index;
    uint64_t incarnation;
};
unsigned roster_watch_dead(struct roster_watch *watch, struct core_area *core,
                           struct roster_death *dead, unsigned max);

/* Is the row's process certainly the one meant, alive, right now? For the seat and for killing.
 * Returns a pidfd to close, or -1. */
int roster_open_pidfd(const struct roster_row *row);

#endif
