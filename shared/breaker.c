/* breaker.c - breaker, window and health of one source's row; see breaker.h. */
#include "shared/breaker.h"

#include "base/clock.h"

#include <string.h>

/* Weight of the newest outcome in the moving averages: 1/8, as in TCP's smoothed round-trip time
 * (RFC 6298, section 2). */
#define AVERAGE_SHIFT 3
#define ALL_WELL 1000U

/* ---- the window: one word a second ------------------------------------------------------------ */

/* second | calls | failures. 24 bits of a second's number come again after 194 days. */
#define COUNT_BITS 20
#define COUNT_MAX ((UINT64_C(1) << COUNT_BITS) - 1)
#define SECOND_MASK ((UINT64_C(1) << 24) - 1)

static uint64_t second_of(uint64_t word)
{
    return word >> (2 * COUNT_BITS);
}

static uint64_t calls_of(uint64_t word)
{
    return word >> COUNT_BITS & COUNT_MAX;
}

static void window_add(struct source_row *row, bool failed, int64_t now_ns)
{
    const uint64_t second = (uint64_t)(now_ns / NS_PER_S);
    _Atomic uint64_t *bucket = &row->window[second % SOURCE_WINDOW_S];
    uint64_t old = atomic_load_explicit(bucket, memory_order_relaxed);
    uint64_t next;

    do {
        const uint64_t age = (second - second_of(old)) & SECOND_MASK;

        if (age > SECOND_MASK / 2)
            return; /* the bucket is of a later second: this outcome comes too late to count */
        next = age == 0 ? old : (second & SECOND_MASK) << (2 * COUNT_BITS);
        if (calls_of(next) == COUNT_MAX)
            return;
        next += (UINT64_C(1) << COUNT_BITS) + failed;
    } while (!atomic_compare_exchange_weak_explicit(bucket, &old, next, memory_order_relaxed,
                                                    memory_order_relaxed));
}

struct breaker_count breaker_count(const struct source_row *row, int64_t now_ns)
{
    const uint64_t second = (uint64_t)(now_ns / NS_PER_S);
    struct breaker_count count = {0};

    for (unsigned i = 0; i < SOURCE_WINDOW_S; i++) {
        const uint64_t word = atomic_load_explicit(&row->window[i], memory_order_relaxed);

        if (((second - second_of(word)) & SECOND_MASK) >= SOURCE_WINDOW_S)
            continue;
        count.calls += (uint32_t)calls_of(word);
        count.failures += (uint32_t)(word & COUNT_MAX);
    }
    return count;
}

/* ---- averages --------------------------------------------------------------------------------- */

static void health_add(struct source_row *row, bool failed)
{
    const uint32_t round_up = (1U << AVERAGE_SHIFT) - 1; /* so that both ends are reached */
    uint32_t old = atomic_load_explicit(&row->health_permille, memory_order_relaxed);
    uint32_t next;

    do
        next = failed ? old - ((old + round_up) >> AVERAGE_SHIFT)
                      : old + ((ALL_WELL - old + round_up) >> AVERAGE_SHIFT);
    while (!atomic_compare_exchange_weak_explicit(&row->health_permille, &old, next,
                                                  memory_order_relaxed, memory_order_relaxed));
}

static void latency_add(struct source_row *row, int64_t transport_ns)
{
    const int64_t transport_ms = transport_ns / NS_PER_MS;
    const int64_t newest = transport_ms < 1            ? 1
                           : transport_ms > UINT32_MAX ? UINT32_MAX
                                                       : transport_ms;
    uint32_t old = atomic_load_explicit(&row->latency_ms, memory_order_relaxed);
    uint32_t next;

    do
        next = (uint32_t)(old == 0 ? newest : old + (newest - old) / (1 << AVERAGE_SHIFT));
    while (!atomic_compare_exchange_weak_explicit(&row->latency_ms, &old, next,
                                                  memory_order_relaxed, memory_order_relaxed));
}

void breaker_count_success(struct source_row *row, int64_t transport_ns, int64_t now_ns)
{
    window_add(row, false, now_ns);
    health_add(row, false);
    if (transport_ns > 0)
        latency_add(row, transport_ns);
}

/* ---- states ----------------------------------------------------------------------------------- */

static enum breaker_state state_of(const struct source_row *row)
{
    return (enum breaker_state)atomic_load(&row->breaker);
}

void breaker_begin_locked(struct source_row *row)
{
    atomic_store(&row->needs_lock, 1);
}

void breaker_done_locked(struct source_row *row)
{
    atomic_store(&row->needs_lock, state_of(row) != BREAKER_CLOSED || row->drained ||
                                       row->out_until_ns || row->throttled_until_ns ||
                                       row->failures_in_a_row);
}

void breaker_settle_locked(struct source_row *row, int64_t now_ns)
{
    if (!atomic_load(&row->needs_lock))
        return;
    if (row->throttled_until_ns <= now_ns)
        row->throttled_until_ns = 0;
    if (row->out_until_ns <= now_ns)
        row->out_until_ns = 0;
    if (atomic_load(&row->probe_held) && row->probe_expires_ns <= now_ns)
        atomic_store(&row->probe_held, 0);
    breaker_done_locked(row);
}

bool breaker_bars_locked(const struct source_row *row, int64_t now_ns, int64_t *ret_until_ns)
{
    switch (state_of(row)) {
    case BREAKER_CLOSED:
        return false;
    case BREAKER_OPEN:
        *ret_until_ns = row->open_until_ns;
        return row->open_until_ns > now_ns;
    case BREAKER_HALF_OPEN:
        *ret_until_ns = INT64_MAX;
        return atomic_load(&row->probe_held) && row->probe_expires_ns > now_ns;
    }
    UNREACHABLE();
}

uint64_t breaker_give_probe_locked(struct source_row *row, const struct probe_terms *terms)
{
    REQUIRE(state_of(row) != BREAKER_CLOSED);
    atomic_store(&row->probe_held, 0); /* an expired one */
    row->probe_seq++;
    row->probe_owner = terms->owner;
    row->probe_incarnation = terms->incarnation;
    row->probe_expires_ns = terms->expires_ns;
    atomic_store(&row->probe_held, 1);
    atomic_store(&row->breaker, BREAKER_HALF_OPEN);
    return row->probe_seq;
}

bool breaker_take_probe_back_locked(struct source_row *row, uint64_t probe_seq)
{
    if (!atomic_load(&row->probe_held) || row->probe_seq != probe_seq)
        return false;
    atomic_store(&row->probe_held, 0);
    return true;
}

static int64_t cooldown_ns(const struct breaker_terms *terms, uint32_t openings)
{
    int64_t cooldown = terms->cooldown_ns > 0 ? terms->cooldown_ns : BREAKER_COOLDOWN_NS;

    for (uint32_t i = 1; i < openings && cooldown < terms->cooldown_max_ns; i++)
        cooldown = cooldown > terms->cooldown_max_ns / 2 ? terms->cooldown_max_ns : 2 * cooldown;
    return cooldown;
}

static bool trips(const struct source_row *row, const struct breaker_terms *terms, int64_t now_ns)
{
    struct breaker_count count;

    if (terms->failures > 0 && row->failures_in_a_row >= terms->failures)
        return true;
    if (terms->share_percent == 0)
        return false;
    count = breaker_count(row, now_ns);
    return count.calls >= terms->share_calls &&
           count.failures * UINT64_C(100) >= count.calls * (uint64_t)terms->share_percent;
}

bool breaker_fail_locked(struct source_row *row, const struct breaker_terms *terms, bool is_probe,
                         int64_t now_ns)
{
    const enum breaker_state state = state_of(row);
    int64_t until_ns;

    window_add(row, true, now_ns);
    health_add(row, true);
    if (row->failures_in_a_row < UINT32_MAX)
        row->failures_in_a_row++;
    if (is_probe ? state == BREAKER_CLOSED : state != BREAKER_CLOSED || !trips(row, terms, now_ns))
        return false;
    row->openings++;
    until_ns = breaker_later_ns(now_ns, cooldown_ns(terms, row->openings));
    if (row->open_until_ns < until_ns)
        row->open_until_ns = until_ns;
    atomic_store(&row->breaker, BREAKER_OPEN);
    return true;
}

bool breaker_succeed_locked(struct source_row *row, bool closes)
{
    if (state_of(row) == BREAKER_CLOSED) {
        row->failures_in_a_row = 0;
        return false;
    }
    if (closes)
        breaker_close_locked(row);
    return closes;
}

void breaker_close_locked(struct source_row *row)
{
    atomic_store(&row->probe_held, 0);
    row->openings = 0;
    row->open_until_ns = 0;
    row->failures_in_a_row = 0;
    /* The failures that opened it would open it again at the next one. */
    for (unsigned i = 0; i < SOURCE_WINDOW_S; i++)
        atomic_store_explicit(&row->window[i], 0, memory_order_relaxed);
    atomic_store(&row->breaker, BREAKER_CLOSED);
}
