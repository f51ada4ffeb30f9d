/* test_adaptive_signals.c - what makes an upstream look slow, and what must not (F5). */
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
#include <string.h>

#define NOW_NS (7200 * NS_PER_S)

static struct adaptive_row row;
static int64_t now_ns;

static int fresh(void **state)
{
    const struct adaptive_terms terms = {.requests_quota = 600, .tokens_quota = 400000};

    (void)state;
    memset(&row, 0, sizeof row);
    now_ns = NOW_NS;
    adaptive_init(&row, &terms, now_ns);
    return 0;
}

static struct adaptive_sample stream(double token_s, int64_t tokens)
{
    return (struct adaptive_sample){.epoch = row.epoch,
                                    .input_tokens = 400,
                                    .output_tokens = tokens + 1,
                                    .streamed_tokens = tokens,
                                    .decode_ns = (int64_t)(token_s * 1e9) * tokens,
                                    .ttft_ns = 300 * NS_PER_MS,
                                    .latency_ns = 5 * NS_PER_S};
}

/* Six such answers, and the window is closed. */
static void window_of(const struct adaptive_sample *sample)
{
    for (int i = 0; i < 6; i++)
        adaptive_completed(&row, sample, now_ns);
    now_ns += 1100 * NS_PER_MS;
    adaptive_tick(&row, now_ns);
    assert_int_equal(row.window.completions, 0);
}

static void window_at(double token_s)
{
    struct adaptive_sample sample = stream(token_s, 100);

    window_of(&sample);
}

static bool near(double value, double expected)
{
    return fabs(value - expected) < 0.01 * fabs(expected) + 1e-9;
}

static void the_cadence_of_streams_is_the_measure(void **state)
{
    struct adaptive_sample sample = stream(0.03, 100);

    (void)state;
    window_at(0.02);
    assert_true(near(adaptive_base_value(&row.tpt_base), 0.02));
    assert_true(near(row.slowness, 1));
    sample.latency_ns = 500 * NS_PER_S; /* queues and long inputs are not slow tokens */
    sample.input_tokens = 100000;
    window_of(&sample);
    assert_true(near(row.slowness, 1.5));
}

static void a_window_is_a_quotient_of_sums(void **state)
{
    struct adaptive_sample few = stream(0.2, 16), many = stream(0.02, 10000);

    (void)state;
    window_at(0.02);
    adaptive_completed(&row, &few, now_ns); /* ten times slower, and hardly a token */
    window_of(&many);
    assert_true(row.slowness < 1.01);
}

static void short_absurd_and_held_up_streams_say_nothing(void **state)
{
    struct adaptive_sample bad[8];

    (void)state;
    for (size_t i = 0; i < LENGTH(bad); i++)
        bad[i] = stream(1, 100);
    bad[0].streamed_tokens = 15;
    bad[1].decode_ns = 199 * NS_PER_MS;
    bad[2].unread_ns = bad[2].decode_ns / 8; /* more than a tenth of the whole was our own doing */
    bad[3].streamed_tokens = INT64_MAX;
    bad[4].decode_ns = INT64_MAX;
    bad[5].decode_ns = -1;
    bad[6].streamed_tokens = INT64_MIN;
    bad[7].epoch++;
    window_at(0.02);
    for (size_t i = 0; i < LENGTH(bad); i++) {
        adaptive_completed(&row, &bad[i], now_ns);
        assert_true(row.window.decode_tokens == 0);
    }
    bad[2].unread_ns = bad[2].decode_ns / 10;
    adaptive_completed(&row, &bad[2], now_ns);
    assert_true(row.window.decode_tokens == 100);
}

/* I10: the minimum filter does not learn, and does not age, while the upstream is congested. */
static void i10_the_baseline_does_not_rise_in_hold(void **state)
{
    (void)state;
    window_at(0.02);
    window_at(0.05);
    assert_int_equal(row.state, ADAPTIVE_HOLD);
    row.limit = row.hold_limit = 390; /* it may leak for long */
    for (int i = 0; i < 20; i++) {
        window_at(0.031);
        now_ns += 20 * NS_PER_S;
        assert_int_equal(row.state, ADAPTIVE_HOLD);
        assert_true(near(adaptive_base_value(&row.tpt_base), 0.02));
    }
    window_at(0.021);
    assert_int_equal(row.state, ADAPTIVE_PROBING);
}

static void the_baseline_forgets_after_ten_minutes(void **state)
{
    (void)state;
    window_at(0.020);
    for (int i = 0; i < 7; i++) {
        now_ns += 60 * NS_PER_S;
        window_at(0.025);
    }
    assert_true(near(adaptive_base_value(&row.tpt_base), 0.020));
    for (int i = 0; i < 4; i++) {
        now_ns += 60 * NS_PER_S;
        window_at(0.025);
    }
    assert_true(near(adaptive_base_value(&row.tpt_base), 0.025));
}

static void bases_take_any_value_and_time(void **state)
{
    struct adaptive_base base = {0};

    (void)state;
    adaptive_base_add(&base, NAN, NOW_NS);
    adaptive_base_add(&base, INFINITY, NOW_NS);
    adaptive_base_add(&base, -1, NOW_NS);
    adaptive_base_add(&base, 0, NOW_NS);
    assert_true(adaptive_base_value(&base) == 0);
    adaptive_base_add(&base, 5, NOW_NS);
    adaptive_base_add(&base, 7, NOW_NS);
    assert_true(adaptive_base_value(&base) == 5);
    adaptive_base_add(&base, 9, NOW_NS + 86400 * NS_PER_S); /* all of it is old */
    assert_true(adaptive_base_value(&base) == 9);
    adaptive_base_add(&base, 3, NOW_NS); /* a time before: counts as of the newest slot */
    assert_true(adaptive_base_value(&base) == 3);
}

/* First tokens three times as late in two windows: HOLD; each size of input has its own usual. */
static void late_first_tokens_hold_per_size(void **state)
{
    struct adaptive_sample small = stream(0.02, 100), large = stream(0.02, 100);

    (void)state;
    large.input_tokens = 30000;
    large.ttft_ns = 6 * NS_PER_S;
    small.ttft_ns = NS_PER_S;
    window_of(&small);
    window_of(&large);
    window_of(&large);
    window_of(&small);
    assert_int_equal(row.state, ADAPTIVE_STARTUP); /* the large ones are not late */
    small.ttft_ns = 5 * NS_PER_S;
    window_of(&small);
    assert_int_equal(row.state, ADAPTIVE_STARTUP);
    window_of(&small);
    assert_int_equal(row.state, ADAPTIVE_HOLD);
    small.ttft_ns = NS_PER_S;
    window_of(&small);
    assert_int_equal(row.state, ADAPTIVE_PROBING);
}

static void thinking_has_no_usual_first_token(void **state)
{
    struct adaptive_sample sample = stream(0.02, 100);

    (void)state;
    window_of(&sample);
    sample.ttft_ns = 60 * NS_PER_S;
    sample.output_tokens = 3000;
    for (int i = 0; i < 4; i++)
        window_of(&sample);
    assert_int_not_equal(row.state, ADAPTIVE_HOLD);
}

/* F10: the upstream let it wait. Slower growth, no HOLD, and no new idea of what is usual. */
static void f10_an_upstreams_queue_slows_growth_and_nothing_else(void **state)
{
    const struct adaptive_terms terms = {.requests_quota = 600, .server_queueing = true};
    struct adaptive_sample sample = stream(0.02, 100);
    double growth;

    (void)state;
    adaptive_init(&row, &terms, now_ns);
    window_of(&sample);
    growth = row.growth;
    sample.ttft_ns = 20 * NS_PER_S;
    window_of(&sample);
    assert_true(row.growth < 0.6 * growth); /* once per window, not per call */
    assert_true(row.growth > 0.4 * growth);
    window_of(&sample);
    assert_int_not_equal(row.state, ADAPTIVE_HOLD);
    assert_int_not_equal(row.state, ADAPTIVE_DRAIN);
    assert_true(near(adaptive_base_value(&row.ttft_base[8]), 0.3));
}

static void answers_as_a_whole_are_judged_by_their_work(void **state)
{
    struct adaptive_sample sample = {.epoch = row.epoch,
                                     .input_tokens = 200,
                                     .output_tokens = 149,
                                     .streamed_tokens = -1,
                                     .latency_ns = 4 * NS_PER_S};

    (void)state;
    window_of(&sample); /* 200 tokens of work in 4 s */
    assert_true(near(adaptive_base_value(&row.whole_base), 0.02));
    sample.output_tokens = 1149; /* six times the work in six times the time */
    sample.latency_ns = 24 * NS_PER_S;
    window_of(&sample);
    assert_true(near(row.slowness, 1));
    sample.latency_ns = 60 * NS_PER_S;
    window_of(&sample);
    assert_true(near(row.slowness, 2.5));
    assert_int_equal(row.state, ADAPTIVE_HOLD);
}

static void one_odd_answer_does_not_move_the_median(void **state)
{
    struct adaptive_sample sample = {.epoch = row.epoch,
                                     .output_tokens = 150,
                                     .streamed_tokens = -1,
                                     .latency_ns = 4 * NS_PER_S};
    struct adaptive_sample odd = sample;

    (void)state;
    window_of(&sample);
    odd.latency_ns = 4000 * NS_PER_S;
    adaptive_completed(&row, &odd, now_ns);
    adaptive_completed(&row, &odd, now_ns);
    window_of(&sample);
    assert_true(near(row.slowness, 1));
}

static void a_window_holds_thousands_of_answers(void **state)
{
    struct adaptive_sample sample = stream(0.02, 100), whole = stream(0.02, 100);

    (void)state;
    whole.streamed_tokens = -1;
    for (int i = 0; i < 5000; i++) {
        adaptive_completed(&row, &sample, now_ns);
        adaptive_completed(&row, &whole, now_ns);
    }
    window_at(0.02);
    assert_true(near(row.slowness, 1));
}

static void the_mean_output_follows(void **state)
{
    struct adaptive_sample sample = stream(0.02, 499);

    (void)state;
    sample.output_tokens = 500;
    adaptive_completed(&row, &sample, now_ns);
    assert_true(near(row.mean_output, 500));
    sample.epoch--; /* also from answers that say nothing else any more */
    sample.output_tokens = 1000;
    adaptive_completed(&row, &sample, now_ns);
    assert_true(near(row.mean_output, 550));
    sample.output_tokens = 0;
    adaptive_completed(&row, &sample, now_ns);
    sample.output_tokens = INT64_MAX;
    adaptive_completed(&row, &sample, now_ns);
    assert_true(near(row.mean_output, 550));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_cadence_of_streams_is_the_measure, fresh),
        cmocka_unit_test_setup(a_window_is_a_quotient_of_sums, fresh),
        cmocka_unit_test_setup(short_absurd_and_held_up_streams_say_nothing, fresh),
        cmocka_unit_test_setup(i10_the_baseline_does_not_rise_in_hold, fresh),
        cmocka_unit_test_setup(the_baseline_forgets_after_ten_minutes, fresh),
        cmocka_unit_test_setup(bases_take_any_value_and_time, fresh),
        cmocka_unit_test_setup(late_first_tokens_hold_per_size, fresh),
        cmocka_unit_test_setup(thinking_has_no_usual_first_token, fresh),
        cmocka_unit_test_setup(f10_an_upstreams_queue_slows_growth_and_nothing_else, fresh),
        cmocka_unit_test_setup(answers_as_a_whole_are_judged_by_their_work, fresh),
        cmocka_unit_test_setup(one_odd_answer_does_not_move_the_median, fresh),
        cmocka_unit_test_setup(a_window_holds_thousands_of_answers, fresh),
        cmocka_unit_test_setup(the_mean_output_follows, fresh),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
