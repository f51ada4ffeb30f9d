/*
 * adaptive_events.h - one controller, and random events that check its invariants after each (iN_...
 * is the research's invariant N). For one test program: the state is static.
 */
#ifndef TESTS_SHARED_ADAPTIVE_EVENTS_H
#define TESTS_SHARED_ADAPTIVE_EVENTS_H

#include "base/clock.h"
#include "shared/adaptive.h"
#include "shared/adaptive_inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define NOW_NS (7200 * NS_PER_S)

static struct adaptive_row row;
static int64_t now_ns;
static const struct adaptive_terms told = {.requests_quota = 600, .tokens_quota = 400000};

static void begin(const struct adaptive_terms *terms)
{
    memset(&row, 0, sizeof row);
    now_ns = NOW_NS;
    adaptive_init(&row, terms, now_ns);
}

static uint64_t seed;

static uint32_t random_bits(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 16);
}

static int64_t random_to(int64_t max)
{
    return (int64_t)(random_bits() % (uint64_t)(max + 1));
}

#define CALLS_MAX 512

static struct {
    uint32_t epochs[CALLS_MAX];
    uint32_t count;
    int64_t next_send_ns;
    uint64_t grants;
} calls;

static void i12_everything_is_finite(void)
{
    const double values[] = {row.limit,
                             row.watermark,
                             row.pace,
                             row.growth,
                             row.mean_output,
                             row.hold_limit,
                             row.last_step,
                             row.best_throughput,
                             row.slowness,
                             row.throughput,
                             row.mean_in_flight,
                             row.requests.used,
                             row.requests.ceiling,
                             row.requests.minute,
                             row.requests.probe,
                             row.tokens.used,
                             row.tokens.ceiling,
                             row.tokens.minute,
                             row.tokens.probe,
                             row.window.decode_s,
                             row.window.decode_tokens,
                             row.window.in_flight_s,
                             adaptive_base_value(&row.tpt_base),
                             adaptive_base_value(&row.whole_base)};

    for (size_t i = 0; i < LENGTH(values); i++)
        assert_true(isfinite(values[i]) && values[i] >= 0);
}

static void i7_everything_is_in_its_range(void)
{
    if (row.requests.told > 0)
        assert_true(row.requests.used >= 0.01 * (double)row.requests.told - 1e-9 &&
                    row.requests.used <= (double)row.requests.told);
    if (row.tokens.told > 0)
        assert_true(row.tokens.used >= 0.01 * (double)row.tokens.told - 1e-9 &&
                    row.tokens.used <= (double)row.tokens.told);
    assert_true(row.growth >= 0.01 && row.growth <= 0.1);
    assert_true(row.pace >= fmin(0.5, adaptive_pace_start(&row) / 2));
    assert_true(row.limit >= 1 && row.limit <= row.in_flight_max);
}

static void i6_a_drain_is_bounded(bool retry_after)
{
    int64_t bound_ns = (retry_after ? 75 : 25) * NS_PER_S;

    if (row.state == ADAPTIVE_DRAIN)
        assert_true(row.drained_until_ns - row.drain_ns <= bound_ns);
}

/* Between two looks: only what a clean window that was limited by places allows. */
static void i4_the_bound_grows_slowly(const struct adaptive_row *before)
{
    double seconds = adaptive_seconds(now_ns - before->window.from_ns);
    double step = row.limit - before->limit;

    if (step <= 0)
        return;
    assert_int_equal(before->window.refusals, 0);
    assert_true(before->window.place_wanted > 0);
    assert_true(before->window.peak >= 0.8 * floor(before->limit));
    assert_true(row.state != ADAPTIVE_HOLD && row.state != ADAPTIVE_DRAIN);
    assert_true(step <= fmax(1, 0.07 * before->limit * fmax(seconds, 1)) + 1e-9);
    assert_true(step <= 1.5 * before->last_step + 1 + 1e-9);
}

static void i10_the_base_does_not_rise(const struct adaptive_row *before)
{
    double was = adaptive_base_value(&before->tpt_base);
    bool stays =
        before->state == row.state && (row.state == ADAPTIVE_HOLD || row.state == ADAPTIVE_DRAIN);

    if (stays && was > 0)
        assert_true(adaptive_base_value(&row.tpt_base) <= was);
}

static void i1_grants_stay_below_the_bound(void)
{
    struct adaptive_limits limits = adaptive_may_send(&row, now_ns);

    while (calls.count < CALLS_MAX && random_to(20) > 0) {
        if (limits.drained_until_ns > 0) {
            assert_true(limits.drained_until_ns > now_ns); /* it always ends */
            return;
        }
        if (calls.count >= limits.in_flight) {
            adaptive_waited(&row, ADAPTIVE_WANT_PLACE);
            return;
        }
        if (now_ns < calls.next_send_ns) {
            adaptive_waited(&row, ADAPTIVE_WANT_PACE);
            return;
        }
        if (random_to(30) == 0)
            adaptive_waited(&row, ADAPTIVE_WANT_BUDGET);
        assert_true(limits.interval_ns > 0 && limits.interval_ns <= 20 * 60 * NS_PER_S);
        calls.next_send_ns = now_ns + limits.interval_ns;
        calls.epochs[calls.count++] = limits.epoch;
        calls.grants++;
        assert_true(calls.count <= floor(row.limit));
        adaptive_set_in_flight(&row, calls.count, now_ns);
        adaptive_sent(&row, now_ns);
    }
}

static int64_t any_number(void)
{
    static const int64_t odd[] = {INT64_MIN, -1, 0, 1, INT64_MAX};

    return random_to(30) == 0 ? odd[random_to(4)] : random_to(1 << random_to(30));
}

static int64_t any_time_ns(void)
{
    return random_to(30) == 0 ? any_number() : random_to(100000) * NS_PER_MS;
}

static void one_ends(double token_s, bool retry_after)
{
    uint32_t at = (uint32_t)random_to(calls.count - 1), epoch = calls.epochs[at];
    int64_t tokens = random_to(600);
    struct adaptive_sample sample = {.epoch = epoch,
                                     .input_tokens = any_number(),
                                     .output_tokens = random_to(9) ? tokens : any_number(),
                                     .streamed_tokens = random_to(9) ? tokens - 1 : any_number(),
                                     .decode_ns = (int64_t)(token_s * 1e9) * tokens,
                                     .unread_ns = random_to(9) ? 0 : any_number(),
                                     .ttft_ns = random_to(9) ? NS_PER_S / 3 : any_number(),
                                     .latency_ns = any_time_ns()};
    struct adaptive_refusal refusal = {.epoch = epoch,
                                       .kind = random_bits() % ADAPTIVE_KINDS,
                                       .requests_60s = any_number(),
                                       .tokens_60s = any_number(),
                                       .random = random_bits()};

    calls.epochs[at] = calls.epochs[--calls.count];
    adaptive_set_in_flight(&row, calls.count, now_ns);
    if (retry_after && random_to(3) == 0)
        refusal.retry_after_ns = any_time_ns();
    if (random_to(40) > 0)
        adaptive_completed(&row, &sample, now_ns);
    else if (random_to(3) > 0) /* otherwise the client left, or the worker died */
        (void)adaptive_refused(&row, &refusal, now_ns);
}

static void any_event(double token_s, bool retry_after)
{
    struct adaptive_row before = row;

    switch (random_to(9)) {
    case 0:
        now_ns += random_to(300) == 0 ? random_to(2000) * NS_PER_S : random_to(4 * NS_PER_S);
        break;
    case 1:
        adaptive_tick(&row, now_ns);
        i4_the_bound_grows_slowly(&before);
        break;
    case 2:
        adaptive_set_minute(&row, any_number(), any_number());
        break;
    case 3:
        if (calls.count == 0)
            adaptive_resume_after_idle(&row, any_time_ns(), now_ns);
        break;
    case 4:
    case 5:
        i1_grants_stay_below_the_bound();
        break;
    default:
        now_ns += random_to(NS_PER_S / 5);
        if (calls.count > 0)
            one_ends(token_s, retry_after);
        break;
    }
    i6_a_drain_is_bounded(retry_after);
    i7_everything_is_in_its_range();
    i10_the_base_does_not_rise(&before);
    i12_everything_is_finite();
    assert_int_equal(row.in_flight, calls.count);
}

#endif
