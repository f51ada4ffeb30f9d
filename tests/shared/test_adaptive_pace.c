/*
 * test_adaptive_pace.c - the pace where nobody told a quota, and after idle time; and a quota told
 * far too high (F5). Unit by unit, and the whole loop against the model of an upstream.
 */
#include "base/clock.h"
#include "shared/adaptive.h"
#include "shared/adaptive_inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above first */
#include <cmocka.h>
/* and this needs cmocka */
#include "tests/shared/upstream_model.h"
#include <math.h>
#include <string.h>

static const struct adaptive_terms nothing = {0}, told = {.requests_quota = 600};
static struct adaptive_row row;
static int64_t now_ns;

static void begin(const struct adaptive_terms *terms)
{
    memset(&row, 0, sizeof row);
    now_ns = BEGIN_NS;
    adaptive_init(&row, terms, now_ns);
}

static int fresh(void **state)
{
    (void)state;
    begin(&nothing);
    return 0;
}

/* Within a percent: the growth moves a little by itself. */
static bool near(double value, double expected)
{
    return fabs(value - expected) < 0.01 * expected;
}

/* A second in which more were wanted than the pace let, and so many were answered. */
static void wanted_second(int answers)
{
    const struct adaptive_sample sample = {
        .epoch = row.epoch, .output_tokens = 9, .streamed_tokens = -1};

    adaptive_waited(&row, ADAPTIVE_WANT_PACE);
    for (int i = 0; i < (int)row.pace; i++)
        adaptive_sent(&row, now_ns);
    for (int i = 0; i < answers; i++)
        adaptive_completed(&row, &sample, now_ns);
    now_ns += NS_PER_S;
    adaptive_tick(&row, now_ns);
}

static bool refuse(enum adaptive_kind kind)
{
    const struct adaptive_refusal refusal = {.kind = kind, .epoch = row.epoch};

    return adaptive_refused(&row, &refusal, now_ns);
}

/* ---- slow start ---------------------------------------------------------------------------------- */

static void what_is_answered_doubles_the_pace(void **state)
{
    static const double paces[] = {4, 8, 16, 16 * 1.07 + 0.05};

    (void)state;
    assert_true(near(row.pace, 2));
    for (size_t i = 0; i < LENGTH(paces); i++) {
        wanted_second(1000);
        assert_true(near(row.pace, paces[i]));
    }
}

static void what_is_not_answered_does_not(void **state)
{
    (void)state;
    wanted_second(0);
    assert_true(near(row.pace, 2 * 1.07 + 0.05));
    /* nor is a wait told as if it did: a hundred need longer than by doubling */
    assert_true(adaptive_wait_ns(&row, 40, now_ns) > 10 * NS_PER_S);
    wanted_second(1);
    assert_true(near(row.pace, 2 * 1.07 + 0.05 + 1));
}

static void a_refusal_ends_the_doubling(void **state)
{
    static const enum adaptive_kind kinds[] = {ADAPTIVE_RPS, ADAPTIVE_BURST, ADAPTIVE_CAP,
                                               ADAPTIVE_RPM};

    (void)state;
    for (size_t i = 0; i < LENGTH(kinds); i++) {
        double pace;

        (void)fresh(NULL);
        wanted_second(100);
        wanted_second(100);
        assert_true(near(row.pace, 8));
        assert_true(refuse(kinds[i]));
        if (kinds[i] == ADAPTIVE_RPS)
            assert_true(near(row.pace, 4)); /* went well a second ago */
        if (kinds[i] == ADAPTIVE_BURST)
            assert_true(near(row.pace, 0.6)); /* six in ten seconds */
        now_ns = row.drained_until_ns;
        adaptive_tick(&row, now_ns);
        pace = row.pace;
        wanted_second(100);
        assert_true(row.pace <= pace * 1.08 + 0.051);
    }
}

/* Who told a quota starts with a part of it, and may have a limit on growth. */
static void a_configured_quota_is_not_doubled_into(void **state)
{
    (void)state;
    begin(&told);
    wanted_second(100);
    assert_true(near(row.pace, 2 * 1.07 + 0.05));
    /* but for one that the upstream tells */
    begin(&(struct adaptive_terms){.requests_quota = 600, .requests_heard = true});
    wanted_second(100);
    assert_true(near(row.pace, 4));
}

static void an_interactive_call_is_told_the_doubling(void **state)
{
    (void)state;
    assert_true(adaptive_wait_ns(&row, 39, now_ns) <= 5 * NS_PER_S);
}

/* ---- not used ------------------------------------------------------------------------------------ */

/* Looks at it (a page of the status, the file of memories) change nothing. */
static void looks_at_an_idle_one_do_not_slow_it(void **state)
{
    double learned;

    (void)state;
    for (int i = 0; i < 20; i++)
        wanted_second(100);
    learned = row.pace;
    assert_true(learned > 40);
    for (int i = 0; i < 60; i++) {
        now_ns += NS_PER_S;
        adaptive_tick(&row, now_ns);
        if (i == 12)
            assert_true(row.pace > 0.85 * learned);
        assert_true(adaptive_export(&row).pace > 0.98 * learned);
    }
    assert_true(row.pace > 0.49 * learned);
    adaptive_resume_after_idle(&row, 60 * NS_PER_S, now_ns); /* not for a second time */
    assert_true(row.pace > 0.49 * learned);
    now_ns += 600 * NS_PER_S;
    adaptive_tick(&row, now_ns);
    assert_true(row.pace > 0.2 * learned && row.pace < 0.26 * learned);
}

/* What is in flight and the pace: a minute halves them, and of the pace a quarter is kept. */
static void idle_time_forgets_slowly_what_was_never_refused(void **state)
{
    static const int64_t idle_s[] = {9, 10, 25, 60, 90, 1000};

    (void)state;
    for (size_t i = 0; i < LENGTH(idle_s); i++) {
        const double seconds = (double)idle_s[i];

        begin(&told);
        row.pace = row.pace_learned = 10;
        row.limit = 64;
        row.state = ADAPTIVE_PROBING;
        now_ns += idle_s[i] * NS_PER_S;
        adaptive_resume_after_idle(&row, idle_s[i] * NS_PER_S, now_ns);
        if (idle_s[i] < 10) {
            assert_true(row.pace == 10 && row.limit == 64);
            continue;
        }
        assert_true(near(row.pace, fmax(2.5, 10 * exp2(-seconds / 60))));
        assert_true(near(row.limit, fmax(4, 64 * exp2(-seconds / 60))));
        /* a memory keeps what was learned, which takes an hour to halve */
        assert_true(near(adaptive_export(&row).pace, 10 * exp2(-seconds / 3600)));
    }
}

static void who_refused_growth_forgets_us_quickly(void **state)
{
    (void)state;
    row.pace = 20;
    assert_true(refuse(ADAPTIVE_BURST));
    now_ns = row.drained_until_ns + 13 * NS_PER_S;
    adaptive_tick(&row, now_ns);
    now_ns += NS_PER_S;
    adaptive_tick(&row, now_ns);
    assert_true(row.pace <= 1.001);
}

/* ---- the whole loop ------------------------------------------------------------------------------ */

static const struct model_limits no_limits = {.rpm = 1000000,
                                              .tpm = 1000000000,
                                              .second_requests = 1e6,
                                              .second_tokens = 1e6,
                                              .growth_floor = 1e6,
                                              .saturation = 1000,
                                              .refuse_above = 1000};
static struct model_run run;

static void set_bursts(int32_t calls, int32_t every_s, const struct model_limits *limits)
{
    memset(&run, 0, sizeof run);
    run.client = MODEL_ADAPTIVE;
    run.limits = *limits;
    run.burst_calls = calls;
    run.burst_every_s = every_s;
    run.idle_from_s = run.idle_to_s = RUN_S_MAX;
    run.run_s = 400;
    run.delay_ns = 100 * NS_PER_MS;
    run.wait_s_max = 60;
    run.seed = 1;
}

static double total(const double *by_second, int from_s, int to_s)
{
    return model_mean(by_second, from_s, to_s) * (to_s - from_s);
}

static double mean_wait_s(int from_s, int to_s)
{
    return total(run.waited_s, from_s, to_s) / total(run.sends, from_s, to_s);
}

/* Before: 10.4 s in the first burst, 4 s in later ones, and 10.2 s again after a minute of idle. */
static void bursts_at_an_upstream_without_limits_are_fast(void **state)
{
    (void)state;
    set_bursts(40, 20, &no_limits);
    run.idle_from_s = 100;
    run.idle_to_s = 160;
    model_go(&run);
    assert_true(mean_wait_s(0, 20) < 4);
    for (int s = 20; s < 100; s += 20)
        assert_true(mean_wait_s(s, s + 20) < 2);
    assert_true(mean_wait_s(160, 180) < 3);
    assert_true(mean_wait_s(180, 400) < 2);
    assert_true(total(run.refusals, 0, 400) == 0);
}

/* Before: 33 of 40 were refused for their five seconds. */
static void interactive_calls_of_a_fresh_model_are_taken(void **state)
{
    (void)state;
    set_bursts(40, 1000, &no_limits);
    run.wait_s_max = 5;
    model_go(&run);
    assert_int_equal(run.shed, 0);
    assert_true(total(run.sends, 0, 6) == 40);
}

/* A limit on growth that nobody told: found at the start, and not run into after each silence. */
static void a_limit_on_growth_is_not_run_into_after_a_silence(void **state)
{
    struct model_limits growth = no_limits;
    double refusals = 0;

    (void)state;
    growth.growth = 3;
    growth.growth_floor = 20;
    for (int idle_s = 20; idle_s <= 320; idle_s *= 2)
        for (uint64_t seed = 1; seed <= 4; seed++) {
            set_bursts(0, 0, &growth);
            run.seed = seed;
            run.arrivals_per_s = 8;
            run.idle_from_s = 150;
            run.idle_to_s = 150 + idle_s;
            run.run_s = 150 + idle_s + 60;
            model_go(&run);
            assert_true(total(run.refusals, 0, 150) <= 6);
            assert_true(total(run.refusals, 150 + idle_s, run.run_s) <= 5);
            refusals += total(run.refusals, 150 + idle_s, run.run_s) / 20;
        }
    assert_true(refusals <= 1.5); /* of a restart */
}

/* Before: a fifth of what was told was the least that was used, and 12 of 100 were refused. */
static void a_quota_that_was_told_far_too_high_is_learned(void **state)
{
    struct model_limits sixty = no_limits;

    (void)state;
    sixty.rpm = 60;
    for (int counted = 0; counted < 2; counted++)
        for (int32_t calls = 5; calls <= 7; calls++)
            for (int64_t quota = 600; quota <= 3000; quota *= 5) {
                set_bursts(calls, 4, &sixty);
                run.limits.refusals_count = counted;
                run.terms =
                    (struct adaptive_terms){.requests_quota = quota, .tokens_quota = 1000000};
                run.wait_s_max = 30;
                run.run_s = 1100;
                model_go(&run);
                assert_true(total(run.refusals, 0, 100) <= 16);
                assert_true(total(run.refusals, 100, 200) <= 5);
                assert_true(total(run.refusals, 200, 1100) <= 0.01 * total(run.sends, 200, 1100));
                assert_true(total(run.done, 200, 1100) >= 0.93 * 900); /* 60 a minute */
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_answered_doubles_the_pace, fresh),
        cmocka_unit_test_setup(what_is_not_answered_does_not, fresh),
        cmocka_unit_test_setup(a_refusal_ends_the_doubling, fresh),
        cmocka_unit_test_setup(a_configured_quota_is_not_doubled_into, fresh),
        cmocka_unit_test_setup(an_interactive_call_is_told_the_doubling, fresh),
        cmocka_unit_test_setup(looks_at_an_idle_one_do_not_slow_it, fresh),
        cmocka_unit_test_setup(idle_time_forgets_slowly_what_was_never_refused, fresh),
        cmocka_unit_test_setup(who_refused_growth_forgets_us_quickly, fresh),
        cmocka_unit_test(bursts_at_an_upstream_without_limits_are_fast),
        cmocka_unit_test(interactive_calls_of_a_fresh_model_are_taken),
        cmocka_unit_test(a_limit_on_growth_is_not_run_into_after_a_silence),
        cmocka_unit_test(a_quota_that_was_told_far_too_high_is_learned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
