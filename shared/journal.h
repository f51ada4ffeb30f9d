/*
 * journal.h - hand-off from the request path to the ledger: rings of whole records in the segment,
 * so that what was written survives its writer (M10, L4).
 *
 * Writers (request threads, burial) hold the segment's lock and never wait: when a ring is full the
 * record is counted as lost. Refusals may fill only three quarters of the ring of waits, so that
 * they cannot push out grants (N8). The one drainer holds the seat, reads without the lock what
 * lies between tail and head, and advances the tail after COMMIT.
 */
#ifndef SHARED_JOURNAL_H
#define SHARED_JOURNAL_H

#include "base/check.h"
#include "shared/layout.h"

#include <stdbool.h>

/* Lock held. Each copies the record and rings the drainer's doorbell (waits and events at once,
 * calls and attempts only when a quarter of their ring is filled: they are batched). */
void journal_wait_locked(struct journal_area *journal, const struct wait_record *record);
void journal_call_locked(struct journal_area *journal, const struct call_record *record);
void journal_attempt_locked(struct journal_area *journal, const struct attempt_record *record);
void journal_event_locked(struct journal_area *journal, const struct event_record *record);

/* Try to sit down as the one drainer. False: somebody alive sits there. The seat of a dead drainer
 * is taken over. Stand up with journal_stand_up, in the same thread. */
MUST_CHECK bool journal_sit_down(struct journal_area *journal);
void journal_stand_up(struct journal_area *journal);
/* Make the seat, once, under the lock, when the instance's row is taken. */
void journal_init_locked(struct journal_area *journal);

/* Records from tail to head of each ring that can be read now (seat held). A pointer is valid until
 * the matching advance. journal_peek_* returns NULL at the end. index counts from 0 at the tail. */
const struct wait_record *journal_peek_wait(const struct journal_area *journal, uint64_t index);
const struct call_record *journal_peek_call(const struct journal_area *journal, uint64_t index);
const struct attempt_record *journal_peek_attempt(const struct journal_area *journal,
                                                  uint64_t index);
const struct event_record *journal_peek_event(const struct journal_area *journal, uint64_t index);
struct journal_count {
    uint64_t waits, calls, attempts, events;
};
/* What lies ready. */
struct journal_count journal_ready(const struct journal_area *journal);
/* All kinds together. */
uint64_t journal_count_sum(const struct journal_count *count);
/* by: records that are committed. */
void journal_advance(struct journal_area *journal, const struct journal_count *by);
/* Throw away what lies ready (the ledger is switched off). */
void journal_discard(struct journal_area *journal);
/* One more transaction failed; its records stay. */
void journal_count_failure(struct journal_area *journal);
/* Sleep until something urgent was written, at most timeout_ns. Returns at once when something
 * urgent lies ready already. */
void journal_wait_doorbell(struct journal_area *journal, int64_t timeout_ns);
/* Wake the drainer for another reason. */
void journal_ring_doorbell(struct journal_area *journal);

#endif
