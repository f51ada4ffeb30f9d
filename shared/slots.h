/*
 * slots.h - how many slots are in use, and whose they are: the only door to the System V semaphore.
 *
 * What counts as in use (M1): used = max(semaphore value, held rows) + leases in force. The
 * semaphore's value is the number of slots in use, changed only with SEM_UNDO, so the kernel itself
 * takes a dead process's share away. It does that a little before the process's sockets are closed;
 * therefore the dead process's held rows go on counting until its burial, which happens after its
 * pidfd reported its end. semctl(SETVAL) is never called: it would wipe everybody's undo.
 *
 * The set can be removed under us (ipcrm). Then everybody is called to roll (M9): a new set, a new
 * epoch; every living process takes its held rows' number again in the new set; until all have,
 * nothing is granted.
 *
 * Invariants: a held row's owner is a roster row's index and incarnation; owner is written first,
 * held last; only the owner sets a row, only the owner or its burial clears it; the sum of a living
 * process's held rows equals its undo in the current epoch, except between the two steps of a take
 * or a give, which are ordered so that what counts is never too small: take = semop then row; give
 * = row is cleared after semop.
 *
 * All functions: lock held.
 */
#ifndef SHARED_SLOTS_H
#define SHARED_SLOTS_H

#include "base/check.h"
#include "shared/layout.h"

#include <stdbool.h>

/* Count held rows and leases again from the rows (a holder of the lock died). */
void slots_rebuild_locked(struct core_area *core);
/* Make the set for a new segment. False: errno tells why (ENOSPC: kernel.sem limits). */
MUST_CHECK bool slots_create_locked(struct core_area *core);

struct slots_use {
    uint32_t semaphore; /* value of the set; 0 when it is gone */
    uint32_t held;      /* held rows, also of the dead who are not buried yet */
    uint32_t leases;
    uint32_t used;
    uint32_t free; /* UINT32_MAX when there is no limit; 0 during a roll call */
    bool roll_call;
};
/* Also finds out that the set was removed, and then calls the roll. */
struct slots_use slots_use_locked(struct core_area *core, int64_t now_ns);

/* Take one for the calling process, whose roster row is owner. Returns the held row's index,
 * NO_INDEX when the kernel refused (set removed: roll call; undo table full) or all rows are taken.
 * The caller has seen slots_use.free > 0 under the same lock. */
MUST_CHECK uint32_t slots_take_locked(struct core_area *core, uint32_t owner, uint32_t place,
                                      int64_t now_ns);
/* Give back the calling process's own. */
void slots_give_locked(struct core_area *core, uint32_t held);
/* Clear all rows of a dead process; the kernel has taken its share already. Returns their number.
 */
unsigned slots_bury_locked(struct core_area *core, uint32_t owner, uint64_t incarnation);
/* The calling process answers a roll call, if there is one it has not answered. */
void slots_answer_roll_call_locked(struct core_area *core, uint32_t owner);

#endif
