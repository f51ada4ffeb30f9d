/*
 * breaker.h - what the outcomes of calls do to the row of one source: breaker (H7), window of recent
 * calls, health (H8). sources.h is what callers use.
 *
 *   closed     a failure opens it when the terms say so
 *   open       when the cool-down is over, the next call that comes is the probe: half-open
 *   half-open  its probe's success closes; its failure opens for twice as long; when the probe
 *              comes back without a verdict, the next call is the probe
 *
 * Every other outcome is counted and changes no state: of twenty calls that fail together, one opens
 * the breaker and nineteen do not double its cool-down. (A success of a call that was admitted as
 * the last resort closes it too: breaker_close_locked.)
 *
 * A process may die between any two writes: needs_lock is set before the first and cleared after the
 * last, what belongs to a state is written before the state. Every intermediate row is a valid one.
 */
#ifndef SHARED_BREAKER_H
#define SHARED_BREAKER_H

#include "base/check.h"
#include "shared/layout.h"

#include <stdbool.h>
#include <stdint.h>

/* When the breaker opens, and for how long; of the scope that the call runs in. */
struct breaker_terms {
    uint32_t failures;                    /* in a row; 0 = never for that */
    uint32_t share_percent;               /* of failures; 0 = never for that ... */
    uint32_t share_calls;                 /* ... of at least so many calls in the window */
    int64_t cooldown_ns, cooldown_max_ns; /* <= 0: BREAKER_COOLDOWN_NS */
};
#define BREAKER_COOLDOWN_NS INT64_C(5000000000)

/* A time that far from now, or the end of time. */
static inline int64_t breaker_later_ns(int64_t now_ns, int64_t by_ns)
{
    return by_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + by_ns;
}

/* A success, in window and averages; needs no lock as long as the row needs none. transport_ns <= 0:
 * not known. */
void breaker_count_success(struct source_row *row, int64_t transport_ns, int64_t now_ns);

/* Lock held from here on. Before the row is looked at: what has ended by time ends. */
void breaker_settle_locked(struct source_row *row, int64_t now_ns);
/* Before and after anything of it is changed: calls take the lock meanwhile, and as long as the row
 * then needs it. */
void breaker_begin_locked(struct source_row *row);
void breaker_done_locked(struct source_row *row);

/* Does it keep calls off? Until *ret_until_ns then; INT64_MAX = until its probe comes back. */
MUST_CHECK bool breaker_bars_locked(const struct source_row *row, int64_t now_ns,
                                    int64_t *ret_until_ns);

struct probe_terms {
    uint32_t owner; /* roster index */
    uint64_t incarnation;
    int64_t expires_ns;
};
/* Not closed and does not bar: it is half-open from now on and this is its probe. Returns its
 * number. */
uint64_t breaker_give_probe_locked(struct source_row *row, const struct probe_terms *terms);
/* Without a verdict; false when it is not the probe that is out. */
MUST_CHECK bool breaker_take_probe_back_locked(struct source_row *row, uint64_t probe_seq);

/* Between begin and done. Count the failure; is_probe: of the probe that just came back. True: it
 * opened. */
MUST_CHECK bool breaker_fail_locked(struct source_row *row, const struct breaker_terms *terms,
                                    bool is_probe, int64_t now_ns);
/* After breaker_count_success. closes: of the probe that just came back, or of a last resort. True:
 * it closed. */
MUST_CHECK bool breaker_succeed_locked(struct source_row *row, bool closes);
/* Closed, as if nothing had ever failed; no probe is out any more. */
void breaker_close_locked(struct source_row *row);

struct breaker_count {
    uint32_t calls, failures;
};
/* The last SOURCE_WINDOW_S seconds; needs no lock. */
struct breaker_count breaker_count(const struct source_row *row, int64_t now_ns);

#endif
