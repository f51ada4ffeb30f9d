/*
 * sources.c - admission to a source, and its end; see sources.h.
 *
 * Nothing is decided between the look and the taking: both are done under the lock, or without it on
 * rows of which there is nothing to know but that they are well. A row that stops being well between
 * a look without the lock and the taking is noticed, since the taking comes before the second look.
 */
#include "shared/sources.h"

#include "base/clock.h"
#include "base/text.h"
#include "shared/counters.h"
#include "shared/source_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* When nobody can say when asking again helps. No bell is rung for sources. */
#define BUSY_ASK_AGAIN_NS (50 * NS_PER_MS)
#define PROBE_ASK_AGAIN_NS NS_PER_S
/* An upstream that throttles without saying for how long; and the longest that is believed. */
#define THROTTLE_NS NS_PER_S
#define THROTTLE_MAX_NS (300 * NS_PER_S)
/* Out, and nobody said for how long. */
#define OUT_NS (300 * NS_PER_S)
/* A draw leaves to one that always fails a tenth of its share: it could not get well again
 * without. */
#define DRAW_HEALTH_MIN 100U

static struct source_row *row_of(const struct gate *gate, uint32_t index)
{
    REQUIRE(index < SOURCE_ROWS);
    return &segment_instance(gate->segment)->sources[index];
}

static unsigned first_of(uint64_t mask)
{
    return (unsigned)__builtin_ctzll(mask);
}

static void exchange_begins(const struct gate *gate, struct source_row *row)
{
    REQUIRE(gate->self < ROSTER_MAX);
    (void)atomic_fetch_add(&row->in_flight[gate->self], 1);
}

static void exchange_ends(const struct gate *gate, struct source_row *row)
{
    REQUIRE(gate->self < ROSTER_MAX);
    INVARIANT(atomic_fetch_sub(&row->in_flight[gate->self], 1) > 0);
}

/* ---- which of several ------------------------------------------------------------------------- */

/* Health, and speed: the fastest counts whole, one that is twice as slow or slower by half, so that
 * weights stay what the shares are made of. */
static uint64_t score(const struct source_row *row, uint32_t weight, uint32_t fastest_ms)
{
    uint32_t health = atomic_load_explicit(&row->health_permille, memory_order_relaxed);
    uint32_t latency_ms = atomic_load_explicit(&row->latency_ms, memory_order_relaxed);
    uint64_t speed = 1000;

    if (health < DRAW_HEALTH_MIN)
        health = DRAW_HEALTH_MIN;
    if (latency_ms > fastest_ms)
        speed = UINT64_C(1000) * fastest_ms / latency_ms;
    return (uint64_t)weight * health * (speed < 500 ? 500 : speed);
}

static unsigned draw(const struct gate *gate, const struct source_wish *wish, uint64_t mask)
{
    uint64_t scores[64] = {0};
    uint64_t total = 0;
    uint64_t ticket;
    uint32_t fastest_ms = UINT32_MAX;

    for (uint64_t rest = mask; rest; rest &= rest - 1) {
        const struct source_row *row = row_of(gate, wish->candidates[first_of(rest)].row);
        uint32_t latency_ms = atomic_load_explicit(&row->latency_ms, memory_order_relaxed);

        if (latency_ms > 0 && latency_ms < fastest_ms)
            fastest_ms = latency_ms;
    }
    for (uint64_t rest = mask; rest; rest &= rest - 1) {
        const struct source_candidate *candidate = &wish->candidates[first_of(rest)];

        scores[first_of(rest)] = score(row_of(gate, candidate->row), candidate->weight, fastest_ms);
        total += scores[first_of(rest)];
    }
    ticket = total > 0 ? wish->random % total : 0;
    for (uint64_t rest = mask; rest; rest &= rest - 1) {
        if (ticket < scores[first_of(rest)])
            return first_of(rest);
        ticket -= scores[first_of(rest)];
    }
    return first_of(mask); /* no weight at all */
}

static unsigned choose(const struct gate *gate, const struct source_wish *wish, uint64_t mask)
{
    return wish->weighted && (mask & (mask - 1)) ? draw(gate, wish, mask) : first_of(mask);
}

static uint64_t all_candidates(const struct source_wish *wish)
{
    REQUIRE(wish->count <= 64 && wish->probe_ns > 0);
    return wish->count == 64 ? UINT64_MAX : (UINT64_C(1) << wish->count) - 1;
}

/* ---- without the lock ------------------------------------------------------------------------- */

static bool is_well(const struct gate *gate, const struct source_candidate *candidate)
{
    return candidate->max_in_flight == 0 &&
           atomic_load(&row_of(gate, candidate->row)->needs_lock) == 0;
}

/* False: the lock has to be taken to tell. */
static bool admit_well(const struct gate *gate, const struct source_wish *wish,
                       struct source_answer *ret)
{
    const uint64_t mask = all_candidates(wish) & ~wish->excluded & ~wish->tried;
    struct source_row *row;
    unsigned chosen;

    if (mask == 0 || wish->hedge)
        return false;
    if (!is_well(gate, &wish->candidates[first_of(mask)]))
        return false;
    for (uint64_t rest = mask & (mask - 1); rest && wish->weighted; rest &= rest - 1)
        if (!is_well(gate, &wish->candidates[first_of(rest)]))
            return false;
    chosen = choose(gate, wish, mask);
    row = row_of(gate, wish->candidates[chosen].row);
    exchange_begins(gate, row);
    if (atomic_load(&row->needs_lock)) {
        exchange_ends(gate, row);
        return false;
    }
    *ret = (struct source_answer){.verdict = SOURCE_ADMITTED,
                                  .candidate = chosen,
                                  .permit = {.row = wish->candidates[chosen].row},
                                  .earliest_ns = wish->now_ns};
    return true;
}

/* ---- under the lock --------------------------------------------------------------------------- */

static void event_locked(struct gate *gate, const struct source_row *row, const char *name,
                         int64_t for_ns, int64_t now_wall_ms)
{
    char detail[200];
    int length = snprintf(detail, sizeof detail, "source=%s", row->name);

    if (row->out_reason[0])
        length += snprintf(detail + length, sizeof detail - (size_t)length, " reason=%s",
                           row->out_reason);
    if (for_ns > 0)
        (void)snprintf(detail + length, sizeof detail - (size_t)length, " for_ms=%" PRId64,
                       for_ns / NS_PER_MS);
    gate_journal_event_locked(gate, now_wall_ms, name, detail);
}

/* A hedge goes to another account than what it is to overtake (H13, D16). */
static uint64_t for_hedge_locked(const struct gate *gate, const struct source_wish *wish,
                                 uint64_t mask)
{
    const char *group;

    REQUIRE(wish->hedge_of < wish->count);
    group = row_of(gate, wish->candidates[wish->hedge_of].row)->quota_group;
    mask &= ~wish->tried & ~(UINT64_C(1) << wish->hedge_of);
    for (uint64_t rest = mask; rest; rest &= rest - 1)
        if (strcmp(row_of(gate, wish->candidates[first_of(rest)].row)->quota_group, group) == 0)
            mask &= ~(rest & -rest);
    return mask;
}

struct look {
    enum source_verdict verdict;
    bool throttled, full;
    int64_t until_ns; /* not admitted: so long */
};

static struct look look_at_locked(const struct gate *gate, const struct source_wish *wish,
                                  const struct source_candidate *candidate)
{
    struct source_row *row = row_of(gate, candidate->row);
    struct look look = {.verdict = SOURCE_ADMITTED};

    if (is_well(gate, candidate))
        return look;
    breaker_settle_locked(row, wish->now_ns);
    look.throttled = row->throttled_until_ns > wish->now_ns;
    look.full = candidate->max_in_flight > 0 && source_in_flight(row) >= candidate->max_in_flight;
    if (row->drained || (row->out_until_ns > wish->now_ns && !wish->insist)) {
        look.verdict = !row->drained && row->out_is_quota ? SOURCE_OUT_QUOTA : SOURCE_OUT;
        look.until_ns = row->drained ? INT64_MAX : row->out_until_ns;
    } else if (breaker_bars_locked(row, wish->now_ns, &look.until_ns)) {
        look.verdict = SOURCE_OPEN;
        if (look.until_ns == INT64_MAX)
            look.until_ns = breaker_later_ns(wish->now_ns, PROBE_ASK_AGAIN_NS);
    } else if (wish->hedge && look.throttled) {
        look.verdict = SOURCE_WAITING;
        look.until_ns = row->throttled_until_ns;
    } else if (look.full) {
        look.verdict = SOURCE_BUSY;
        look.until_ns = breaker_later_ns(wish->now_ns, BUSY_ASK_AGAIN_NS);
    }
    return look;
}

/* What the looks at all candidates found; bits over them. */
struct finding {
    uint64_t can, calm; /* could be had; of these, not asked to wait */
    uint64_t open;      /* closed to all but a last resort, and not full */
    enum source_verdict refusal;
    int64_t earliest_ns;
};

static struct finding find_locked(const struct gate *gate, const struct source_wish *wish)
{
    struct finding found = {.refusal = SOURCE_NONE, .earliest_ns = INT64_MAX};
    uint64_t mask = all_candidates(wish) & ~wish->excluded;

    if (wish->hedge)
        mask = for_hedge_locked(gate, wish, mask);
    for (uint64_t rest = mask; rest; rest &= rest - 1) {
        const struct look look = look_at_locked(gate, wish, &wish->candidates[first_of(rest)]);
        const uint64_t bit = rest & -rest;

        if (look.verdict == SOURCE_ADMITTED) {
            found.can |= bit;
            found.calm |= look.throttled ? 0 : bit;
            continue;
        }
        if (look.verdict == SOURCE_OPEN && !look.full)
            found.open |= bit;
        if (look.verdict > found.refusal)
            found.refusal = look.verdict;
        if (look.until_ns < found.earliest_ns)
            found.earliest_ns = look.until_ns;
    }
    return found;
}

static unsigned closes_first_locked(const struct gate *gate, const struct source_wish *wish,
                                    uint64_t mask)
{
    unsigned first = first_of(mask);

    for (uint64_t rest = mask; rest; rest &= rest - 1)
        if (row_of(gate, wish->candidates[first_of(rest)].row)->open_until_ns <
            row_of(gate, wish->candidates[first].row)->open_until_ns)
            first = first_of(rest);
    return first;
}

/* The probe first, then the count: both name their process, burial finds either without the other. */
static void take_locked(struct gate *gate, const struct source_wish *wish, bool last_resort,
                        struct source_answer *ret)
{
    struct source_row *row = row_of(gate, wish->candidates[ret->candidate].row);
    const bool was_open = atomic_load(&row->breaker) == BREAKER_OPEN;

    ret->verdict = SOURCE_ADMITTED;
    ret->earliest_ns = wish->now_ns;
    ret->permit = (struct source_permit){.row = wish->candidates[ret->candidate].row,
                                         .last_resort = last_resort};
    if (!last_resort && atomic_load(&row->breaker) != BREAKER_CLOSED) {
        const struct probe_terms terms = {
            .owner = gate->self,
            .incarnation = segment_core(gate->segment)->roster[gate->self].incarnation,
            .expires_ns = breaker_later_ns(wish->now_ns, wish->probe_ns),
        };

        ret->permit.probe = true;
        ret->permit.probe_seq = breaker_give_probe_locked(row, &terms);
        if (was_open)
            event_locked(gate, row, "source_half_open", 0, wish->now_wall_ms);
    }
    exchange_begins(gate, row);
}

static void refuse(const struct source_wish *wish, const struct finding *found,
                   struct source_answer *ret)
{
    *ret = (struct source_answer){
        .verdict = found->refusal, .permit.row = NO_INDEX, .earliest_ns = found->earliest_ns};
    if (found->refusal != SOURCE_OPEN || !wish->last_resort || wish->hedge || found->open)
        return;
    ret->verdict = SOURCE_BUSY; /* all that are open are full as well */
    ret->earliest_ns = breaker_later_ns(wish->now_ns, BUSY_ASK_AGAIN_NS);
}

/* Not while one that is well is only full. */
static uint64_t last_resorts(const struct source_wish *wish, const struct finding *found)
{
    const bool all_open = found->can == 0 && found->refusal == SOURCE_OPEN;

    return all_open && wish->last_resort && !wish->hedge ? found->open : 0;
}

uint64_t source_choices_locked(struct gate *gate, const struct source_wish *wish,
                               struct source_answer *ret)
{
    const struct finding found = find_locked(gate, wish);

    refuse(wish, &found, ret);
    return found.can ? found.can : last_resorts(wish, &found);
}

void source_admit_locked(struct gate *gate, const struct source_wish *wish,
                         struct source_answer *ret)
{
    const struct finding found = find_locked(gate, wish);
    const uint64_t untried = ~wish->tried;
    const uint64_t open = last_resorts(wish, &found);
    const uint64_t tiers[] = {found.can & untried & found.calm, found.can & untried,
                              found.can & found.calm, found.can};

    refuse(wish, &found, ret);
    for (size_t i = 0; i < LENGTH(tiers); i++)
        if (tiers[i]) {
            ret->candidate = choose(gate, wish, tiers[i]);
            take_locked(gate, wish, false, ret);
            return;
        }
    if (open) {
        ret->candidate = closes_first_locked(gate, wish, open & untried ? open & untried : open);
        take_locked(gate, wish, true, ret);
    }
}

void source_admit(struct gate *gate, const struct source_wish *wish, struct source_answer *ret)
{
    if (admit_well(gate, wish, ret))
        return;
    gate_lock(gate);
    source_admit_locked(gate, wish, ret);
    gate_unlock(gate);
}

/* ---- the end ---------------------------------------------------------------------------------- */

static void throttle_locked(struct gate *gate, const struct source_row *throttled,
                            const struct source_outcome *outcome)
{
    struct source_row *rows = segment_instance(gate->segment)->sources;
    const int64_t asked_ns = outcome->out_ns > 0 ? outcome->out_ns : THROTTLE_NS;
    const int64_t until_ns =
        breaker_later_ns(outcome->now_ns, asked_ns < THROTTLE_MAX_NS ? asked_ns : THROTTLE_MAX_NS);

    for (uint32_t i = 0; i < SOURCE_ROWS; i++) {
        struct source_row *row = &rows[i];

        if (!atomic_load(&row->used) || strcmp(row->quota_group, throttled->quota_group) != 0 ||
            row->throttled_until_ns >= until_ns)
            continue;
        breaker_begin_locked(row);
        row->throttled_until_ns = until_ns;
    }
}

static void keep_reason_locked(struct source_row *row, const struct source_outcome *outcome)
{
    (void)text_copy(row->out_reason, sizeof row->out_reason,
                    outcome->reason ? outcome->reason : "");
}

static void put_out_locked(struct gate *gate, struct source_row *row,
                           const struct source_outcome *outcome)
{
    const bool was_out = row->out_until_ns > outcome->now_ns;
    const int64_t until_ns =
        breaker_later_ns(outcome->now_ns, outcome->out_ns > 0 ? outcome->out_ns : OUT_NS);

    row->out_is_quota = outcome->end == SOURCE_END_QUOTA && (!was_out || row->out_is_quota);
    if (row->out_until_ns < until_ns)
        row->out_until_ns = until_ns;
    if (was_out)
        return;
    keep_reason_locked(row, outcome);
    event_locked(gate, row, "source_out", until_ns - outcome->now_ns, outcome->now_wall_ms);
}

static void failed_locked(struct gate *gate, struct source_row *row, bool is_probe,
                          const struct source_outcome *outcome)
{
    if (!breaker_fail_locked(row, &outcome->terms, is_probe, outcome->now_ns))
        return;
    keep_reason_locked(row, outcome);
    counter_add(&segment_instance(gate->segment)->counters, COUNTER_source_openings, 1);
    event_locked(gate, row, "source_open", row->open_until_ns - outcome->now_ns,
                 outcome->now_wall_ms);
}

static void succeeded_locked(struct gate *gate, struct source_row *row, bool closes,
                             const struct source_outcome *outcome)
{
    if (breaker_succeed_locked(row, closes)) {
        if (row->out_until_ns == 0)
            row->out_reason[0] = '\0';
        event_locked(gate, row, "source_closed", 0, outcome->now_wall_ms);
    }
    breaker_count_success(row, outcome->transport_ns, outcome->now_ns);
}

static void end_locked(struct gate *gate, struct source_row *row,
                       const struct source_permit *permit, const struct source_outcome *outcome)
{
    const bool is_probe = permit->probe && breaker_take_probe_back_locked(row, permit->probe_seq);

    if (permit->probe && !is_probe)
        return; /* expired, or the breaker closed without it: its verdict is old */
    switch (outcome->end) {
    case SOURCE_END_UNJUDGED:
        break;
    case SOURCE_END_SUCCESS:
        succeeded_locked(gate, row, is_probe || permit->last_resort, outcome);
        break;
    case SOURCE_END_FAILURE:
        failed_locked(gate, row, is_probe, outcome);
        break;
    case SOURCE_END_THROTTLED:
        throttle_locked(gate, row, outcome);
        break;
    case SOURCE_END_OUT:
    case SOURCE_END_QUOTA:
        put_out_locked(gate, row, outcome);
        break;
    }
}

/* Nothing to be done but to count? */
static bool only_counts(const struct source_row *row, const struct source_permit *permit,
                        enum source_end end)
{
    if (permit->probe)
        return false;
    return end == SOURCE_END_UNJUDGED ||
           (end == SOURCE_END_SUCCESS && atomic_load(&row->needs_lock) == 0);
}

void source_release(struct gate *gate, struct source_permit *permit,
                    const struct source_outcome *outcome)
{
    struct source_row *row;

    if (permit->row == NO_INDEX)
        return;
    row = row_of(gate, permit->row);
    if (!only_counts(row, permit, outcome->end)) {
        gate_lock(gate);
        breaker_settle_locked(row, outcome->now_ns);
        breaker_begin_locked(row);
        end_locked(gate, row, permit, outcome);
        breaker_done_locked(row);
        gate_unlock(gate);
    } else if (outcome->end == SOURCE_END_SUCCESS) {
        breaker_count_success(row, outcome->transport_ns, outcome->now_ns);
    }
    exchange_ends(gate, row);
    permit->row = NO_INDEX;
}
