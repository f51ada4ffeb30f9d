/*
 * lock.h - the one lock of the segment (M3).
 *
 * A robust process-shared mutex, never taken by a plain lock call: a woken waiter that is stopped
 * or killed before it takes a robust mutex leaves the others asleep on a free lock, so waiters come
 * back every 50 ms. A holder that died is reported; a holder that is alive but stopped for
 * LOCK_STUCK_NS is killed, through a pidfd, by whoever waits: that bound is G11's.
 *
 * Nothing that can wait (a system call other than semop/semctl on our own set, I/O, malloc) is done
 * under it. What it protects may be half-changed after LOCK_OWNER_DIED: rebuild before use.
 */
#ifndef SHARED_LOCK_H
#define SHARED_LOCK_H

#include "base/check.h"
#include "base/clock.h"
#include "shared/layout.h"

#include <stdbool.h>

#define LOCK_RETRY_NS (50 * NS_PER_MS)
#define LOCK_STUCK_NS (2 * NS_PER_S)

enum lock_result {
    LOCK_TAKEN,
    LOCK_OWNER_DIED, /* taken; the last holder died inside: rebuild what depends on it */
};

/* Once, by the creator of the segment. */
void lock_init(struct lock_area *lock);
/* roster_index: who takes it (NO_INDEX for a process without a row: it is then not guarded against
 * being stopped inside). roster: for finding and killing a stuck holder. Uses the real monotonic
 * clock, since it guards against real processes. */
MUST_CHECK enum lock_result lock_take(struct lock_area *lock, uint32_t roster_index,
                                      struct roster_row *roster);
void lock_give(struct lock_area *lock);

#endif
