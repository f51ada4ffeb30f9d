/* journal.c - rings of whole records between the request path and the ledger; see journal.h. */
#include "shared/journal.h"

#include "base/clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Why it holds without a lock between writer and drainer:
 *   the writer alone (it has the segment's lock) moves head, after the row is whole;
 *   the drainer alone (it has the seat) moves tail, after it needs the row no more;
 *   a row between tail and head is never written, one outside is never read.
 * A writer that dies before it moved head has written nothing; the next one overwrites the row.
 * A drainer that dies between COMMIT and the tail leaves records to be written again: as the same
 * rows.
 *
 * The doorbell says whether the drainer sleeps, so that a writer makes a system call only then. The
 * drainer says SLEEPING first and looks at the rings after; the writer moves head first and looks
 * at the doorbell after: one of the two sees the other.
 */
enum { DOORBELL_QUIET, DOORBELL_SLEEPING };

/* The part of each ring that refusals may fill: they must not push out grants (N8). */
#define JOURNAL_REFUSALS (JOURNAL_WAITS / 4 * 3)
/* From so many on, calls and attempts are urgent too. */
#define JOURNAL_CALLS_URGENT (JOURNAL_CALLS / 4)
#define JOURNAL_ATTEMPTS_URGENT (JOURNAL_ATTEMPTS / 4)

static void doorbell_ring(struct journal_area *journal)
{
    if (atomic_exchange(&journal->doorbell, DOORBELL_QUIET) == DOORBELL_SLEEPING)
        (void)syscall(SYS_futex, &journal->doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

struct ring {
    _Atomic uint64_t *head, *tail, *lost;
};

static struct ring ring_of_waits(struct journal_area *journal)
{
    return (struct ring){&journal->waits_head, &journal->waits_tail, &journal->waits_lost};
}

static struct ring ring_of_calls(struct journal_area *journal)
{
    return (struct ring){&journal->calls_head, &journal->calls_tail, &journal->calls_lost};
}

static struct ring ring_of_attempts(struct journal_area *journal)
{
    return (struct ring){&journal->attempts_head, &journal->attempts_tail, &journal->attempts_lost};
}

static struct ring ring_of_events(struct journal_area *journal)
{
    return (struct ring){&journal->events_head, &journal->events_tail, &journal->events_lost};
}

static uint64_t ring_filled(const struct ring *ring)
{
    return atomic_load(ring->head) - atomic_load(ring->tail);
}

/* Is there room below bound? If not, one more is lost. */
static bool ring_has_room(const struct ring *ring, uint64_t bound)
{
    if (ring_filled(ring) < bound)
        return true;
    atomic_fetch_add(ring->lost, 1);
    return false;
}

void journal_wait_locked(struct journal_area *journal, const struct wait_record *record)
{
    struct ring ring = ring_of_waits(journal);
    uint64_t bound = record->state == WAIT_REFUSED ? JOURNAL_REFUSALS : JOURNAL_WAITS;

    if (!ring_has_room(&ring, bound))
        return;
    journal->waits[atomic_load(ring.head) % JOURNAL_WAITS] = *record;
    atomic_fetch_add(ring.head, 1);
    doorbell_ring(journal);
}

void journal_call_locked(struct journal_area *journal, const struct call_record *record)
{
    struct ring ring = ring_of_calls(journal);

    if (!ring_has_room(&ring, JOURNAL_CALLS))
        return;
    journal->calls[atomic_load(ring.head) % JOURNAL_CALLS] = *record;
    atomic_fetch_add(ring.head, 1);
    if (ring_filled(&ring) >= JOURNAL_CALLS_URGENT)
        doorbell_ring(journal);
}

void journal_attempt_locked(struct journal_area *journal, const struct attempt_record *record)
{
    struct ring ring = ring_of_attempts(journal);

    if (!ring_has_room(&ring, JOURNAL_ATTEMPTS))
        return;
    journal->attempts[atomic_load(ring.head) % JOURNAL_ATTEMPTS] = *record;
    atomic_fetch_add(ring.head, 1);
    if (ring_filled(&ring) >= JOURNAL_ATTEMPTS_URGENT)
        doorbell_ring(journal);
}

void journal_event_locked(struct journal_area *journal, const struct event_record *record)
{
    struct ring ring = ring_of_events(journal);

    if (!ring_has_room(&ring, JOURNAL_EVENTS))
        return;
    journal->events[atomic_load(ring.head) % JOURNAL_EVENTS] = *record;
    atomic_fetch_add(ring.head, 1);
    doorbell_ring(journal);
}

void journal_init_locked(struct journal_area *journal)
{
    pthread_mutexattr_t attributes;

    if (journal->seat_ready)
        return;
    INVARIANT(pthread_mutexattr_init(&attributes) == 0);
    INVARIANT(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
    INVARIANT(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    INVARIANT(pthread_mutex_init(&journal->seat, &attributes) == 0);
    (void)pthread_mutexattr_destroy(&attributes);
    journal->seat_ready = 1;
}

bool journal_sit_down(struct journal_area *journal)
{
    REQUIRE(journal->seat_ready);
    switch (pthread_mutex_trylock(&journal->seat)) {
    case 0:
        return true;
    case EOWNERDEAD: /* what it left is in order: see the top of this file */
        INVARIANT(pthread_mutex_consistent(&journal->seat) == 0);
        return true;
    default:
        return false;
    }
}

void journal_stand_up(struct journal_area *journal)
{
    INVARIANT(pthread_mutex_unlock(&journal->seat) == 0);
}

const struct wait_record *journal_peek_wait(const struct journal_area *journal, uint64_t index)
{
    uint64_t at = atomic_load(&journal->waits_tail) + index;

    return at < atomic_load(&journal->waits_head) ? &journal->waits[at % JOURNAL_WAITS] : NULL;
}

const struct call_record *journal_peek_call(const struct journal_area *journal, uint64_t index)
{
    uint64_t at = atomic_load(&journal->calls_tail) + index;

    return at < atomic_load(&journal->calls_head) ? &journal->calls[at % JOURNAL_CALLS] : NULL;
}

const struct attempt_record *journal_peek_attempt(const struct journal_area *journal,
                                                  uint64_t index)
{
    uint64_t at = atomic_load(&journal->attempts_tail) + index;

    return at < atomic_load(&journal->attempts_head) ? &journal->attempts[at % JOURNAL_ATTEMPTS]
                                                     : NULL;
}

const struct event_record *journal_peek_event(const struct journal_area *journal, uint64_t index)
{
    uint64_t at = atomic_load(&journal->events_tail) + index;

    return at < atomic_load(&journal->events_head) ? &journal->events[at % JOURNAL_EVENTS] : NULL;
}

struct journal_count journal_ready(const struct journal_area *journal)
{
    return (struct journal_count){
        .waits = atomic_load(&journal->waits_head) - atomic_load(&journal->waits_tail),
        .calls = atomic_load(&journal->calls_head) - atomic_load(&journal->calls_tail),
        .attempts = atomic_load(&journal->attempts_head) - atomic_load(&journal->attempts_tail),
        .events = atomic_load(&journal->events_head) - atomic_load(&journal->events_tail),
    };
}

uint64_t journal_count_sum(const struct journal_count *count)
{
    return count->waits + count->calls + count->attempts + count->events;
}

static void pass_over(struct journal_area *journal, const struct journal_count *by)
{
    struct journal_count ready = journal_ready(journal);

    REQUIRE(by->waits <= ready.waits && by->calls <= ready.calls &&
            by->attempts <= ready.attempts && by->events <= ready.events);
    atomic_fetch_add(&journal->waits_tail, by->waits);
    atomic_fetch_add(&journal->calls_tail, by->calls);
    atomic_fetch_add(&journal->attempts_tail, by->attempts);
    atomic_fetch_add(&journal->events_tail, by->events);
}

void journal_advance(struct journal_area *journal, const struct journal_count *by)
{
    pass_over(journal, by);
    atomic_fetch_add(&journal->written, journal_count_sum(by));
}

void journal_discard(struct journal_area *journal)
{
    struct journal_count all = journal_ready(journal);

    pass_over(journal, &all);
}

void journal_count_failure(struct journal_area *journal)
{
    atomic_fetch_add(&journal->failures, 1);
}

static bool is_urgent(const struct journal_area *journal)
{
    struct journal_count ready = journal_ready(journal);

    return ready.waits > 0 || ready.events > 0 || ready.calls >= JOURNAL_CALLS_URGENT ||
           ready.attempts >= JOURNAL_ATTEMPTS_URGENT;
}

void journal_wait_doorbell(struct journal_area *journal, int64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = timeout_ns / NS_PER_S, .tv_nsec = timeout_ns % NS_PER_S};

    if (timeout_ns <= 0)
        return;
    atomic_store(&journal->doorbell, DOORBELL_SLEEPING);
    if (!is_urgent(journal))
        (void)syscall(SYS_futex, &journal->doorbell, FUTEX_WAIT, DOORBELL_SLEEPING, &timeout, NULL,
                      0);
    atomic_store(&journal->doorbell, DOORBELL_QUIET);
}

void journal_ring_doorbell(struct journal_area *journal)
{
    doorbell_ring(journal);
}
