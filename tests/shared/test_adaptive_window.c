/*
 * test_adaptive_window.c - what the controller does by itself (F5): windows, seconds, DRAIN's end;
 * its invariants under random events (iN_... is the research's invariant N); and the whole loop
 * against a model of an upstream on a false clock. Everything random is the same in every run.
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
/* and these need cmocka */
#include "tests/shared/upstream_model.h"
/* its names would hide those of the model */
#include "tests/shared/adaptive_events.h"
#include <math.h>
#include <string.h>

static int fresh(void **state)
{
    (void)state;
    seed = UINT64_C(0x9e3779b97f4a7c15);
    begin(&told);
    return 0;
}

static bool near(double value, double expected)
{
    return fabs(value - expected) < 1e-6 * fabs(expected) + 1e-9;
}

/* One second with so many in flight all the time and six answers at this cadence. */
static void window(uint32_t in_flight, double token_s, bool wanted)
{
    struct adaptive_sample sample = {.epoch = row.epoch,
                                     .output_tokens = 101,
                                     .streamed_tokens = 100,
                                     .decode_ns = (int64_t)(token_s * 1e11)};

    adaptive_set_in_flight(&row, in_flight, now_ns);
    for (int i = 0; i < 6; i++)
        adaptive_completed(&row, &sample, now_ns);
    if (wanted)
        adaptive_waited(&row, ADAPTIVE_WANT_PLACE);
    now_ns += NS_PER_S;
    adaptive_tick(&row, now_ns);
}

static void full_window(double token_s)
{
    window((uint32_t)row.limit, token_s, true);
}

static void startup_ends_when_more_calls_bring_no_more(void **state)
{
    (void)state;
    full_window(0.02);
    assert_true(near(row.limit, 5)); /* the governor: one more, not twice as many */
    full_window(0.02);
    full_window(0.02);
    assert_int_equal(row.state, ADAPTIVE_STARTUP);
    full_window(0.02); /* three windows with as many answers as the first */
    assert_int_equal(row.state, ADAPTIVE_PROBING);
}

static void the_spring_pulls_to_the_watermark_and_the_thrust_beyond(void **state)
{
    (void)state;
    row.state = ADAPTIVE_PROBING;
    row.limit = 100;
    row.watermark = 200;
    row.last_step = 100;
    full_window(0.02);
    assert_true(near(row.limit, 107)); /* spring 25, thrust 1, governor 7 a second */
    row.limit = 100;
    row.watermark = 100;
    row.last_step = 100;
    full_window(0.02);
    assert_true(near(row.limit, 101)); /* 1, 2, 4, then 1 + 5 %: faster the longer it goes well */
    row.last_step = 100;
    full_window(0.02);
    assert_true(near(row.limit, 103));
    row.last_step = 0;
    full_window(0.02);
    assert_true(near(row.limit, 104)); /* 1.5 times the last step and one: governor of growth */
    row.limit = 400;
    full_window(0.02);
    assert_true(row.limit == 400);
}

static void i4_a_step_is_at_most_half_as_large_again_as_the_last(void **state)
{
    static const double limits[] = {101, 103.5, 108.25, 108.25 * 1.07};

    (void)state;
    row.state = ADAPTIVE_PROBING;
    row.limit = 100;
    row.watermark = 300;
    for (size_t i = 0; i < LENGTH(limits); i++) {
        full_window(0.02);
        assert_true(near(row.limit, limits[i]));
    }
}

static void i4_the_bound_grows_only_when_it_bound_and_nothing_went_wrong(void **state)
{
    (void)state;
    row.state = ADAPTIVE_PROBING;
    row.limit = row.watermark = 50;
    window(50, 0.02, false); /* nobody waited */
    assert_true(row.limit == 50);
    window(39, 0.02, true); /* not even 80 % were there */
    adaptive_set_in_flight(&row, 39, now_ns);
    window(39, 0.02, true);
    assert_true(row.limit == 50);
    row.window.refusals = 1;
    full_window(0.02);
    assert_true(row.limit == 50);
    full_window(0.02);
    assert_true(row.limit > 50);
}

/* Little's law stops growth that the calls in flight do not follow; it never cuts. */
static void the_bound_keeps_to_the_mean_in_flight(void **state)
{
    (void)state;
    row.state = ADAPTIVE_PROBING;
    row.limit = row.watermark = 50;
    row.last_step = 10;
    adaptive_set_in_flight(&row, 50, now_ns); /* a peak */
    window(20, 0.02, true);
    assert_true(row.limit == 50);
}

static void the_watermark_ages(void **state)
{
    (void)state;
    row.state = ADAPTIVE_PROBING;
    row.limit = 10;
    row.watermark = 100;
    for (int i = 0; i < 346; i++)
        window(1, 0.02, false);
    assert_true(fabs(row.watermark - 50) < 0.5);
}

static void slow_tokens_hold_and_then_leak(void **state)
{
    double limit;

    (void)state;
    row.state = ADAPTIVE_PROBING;
    row.limit = row.watermark = 50;
    full_window(0.02);
    limit = row.limit;
    full_window(0.031); /* half as slow again: three windows of it */
    full_window(0.031);
    assert_int_equal(row.state, ADAPTIVE_PROBING);
    limit = row.limit;
    full_window(0.031);
    assert_int_equal(row.state, ADAPTIVE_HOLD);
    for (int i = 0; i < 10; i++) {
        full_window(0.031);
        assert_true(row.limit == limit); /* neither back off nor grow */
    }
    full_window(0.031);
    assert_true(near(row.limit, limit * 1.5 / 1.55));
    full_window(0.06);
    assert_true(near(row.limit, limit * 1.5 / 1.55 * 0.8)); /* never more at once */
    full_window(0.027);
    assert_int_equal(row.state, ADAPTIVE_HOLD);
    full_window(0.025);
    assert_int_equal(row.state, ADAPTIVE_PROBING);
}

static void twice_as_slow_holds_at_once(void **state)
{
    (void)state;
    row.limit = 50;
    full_window(0.02);
    window(30, 0.041, true);
    assert_int_equal(row.state, ADAPTIVE_HOLD);
    assert_true(fabs(row.watermark - 30) < 0.5); /* what was in flight */
}

/* An upstream that became slower for good must not be held at one call for ever. */
static void it_is_not_held_for_ever(void **state)
{
    (void)state;
    row.limit = row.watermark = 40;
    full_window(0.02);
    for (int i = 0; i < 60 && row.limit >= 10; i++)
        full_window(0.05);
    assert_int_equal(row.state, ADAPTIVE_PROBING);
    for (int i = 0; i < 60; i++)
        full_window(0.05);
    assert_true(row.limit > 30);
    /* a little slower, in HOLD, with nothing to leak: ten minutes at most */
    row.state = ADAPTIVE_HOLD;
    row.hold_ns = now_ns;
    for (int i = 0; i < 605; i++)
        full_window(0.07);
    assert_int_not_equal(row.state, ADAPTIVE_HOLD);
}

static void the_pace_follows_demand(void **state)
{
    struct adaptive_refusal late = {.kind = ADAPTIVE_BURST};

    (void)state;
    adaptive_waited(&row, ADAPTIVE_WANT_PACE);
    now_ns += NS_PER_S;
    adaptive_tick(&row, now_ns);
    assert_true(near(row.pace, 2 * 1.07 + 0.05));
    adaptive_waited(&row, ADAPTIVE_WANT_PACE);
    now_ns += NS_PER_S / 2; /* once a second */
    adaptive_tick(&row, now_ns);
    assert_true(near(row.pace, 2 * 1.07 + 0.05));
    now_ns += NS_PER_S / 2;
    late.epoch = row.epoch - 1; /* it changes no state, but nothing grows in its second */
    assert_false(adaptive_refused(&row, &late, now_ns - 1));
    adaptive_tick(&row, now_ns);
    assert_true(near(row.pace, 2 * 1.07 + 0.05));
    for (int i = 0; i < 100; i++) {
        adaptive_waited(&row, ADAPTIVE_WANT_PACE);
        now_ns += NS_PER_S;
        adaptive_tick(&row, now_ns);
    }
    assert_true(near(row.pace, 11)); /* 1.1 times the quota */
    for (int i = 0; i < 40; i++)
        adaptive_sent(&row, now_ns - i % 10 * NS_PER_S);
    now_ns += NS_PER_S;
    adaptive_tick(&row, now_ns); /* not wanted: half as much again as was sent, and one */
    assert_true(row.pace <= 7.001 && row.pace >= 6);
    now_ns += 60 * NS_PER_S;
    adaptive_tick(&row, now_ns);
    assert_true(near(row.pace, 2));
}

static void refused(int64_t requests_60s)
{
    const struct adaptive_refusal refusal = {
        .kind = ADAPTIVE_RPM, .epoch = row.epoch, .requests_60s = requests_60s};

    assert_true(adaptive_refused(&row, &refusal, now_ns));
    now_ns = row.drained_until_ns;
    adaptive_tick(&row, now_ns);
}

/* Sends at the pace that the quota lets, for some seconds; all of it is used and more is wanted. */
static void use_all(int seconds, int64_t minute)
{
    for (int i = 0; i < seconds; i++) {
        for (double sent = 0; sent < row.requests.used / 60; sent++)
            adaptive_sent(&row, now_ns);
        adaptive_waited(&row, ADAPTIVE_WANT_BUDGET);
        adaptive_set_minute(&row, minute, 1000);
        window(1, 0.02, false);
    }
}

static void a_refused_quota_is_a_ceiling_to_try_from(void **state)
{
    (void)state;
    begin(&(struct adaptive_terms){.requests_quota = 1000, .tokens_quota = 400000});
    refused(800);
    refused(640);
    refused(500); /* less and less: what was used when it was refused */
    assert_true(near(row.requests.used, 0.97 * 500) && row.requests.ceiling == 500);
    use_all(6, 480);
    assert_true(near(row.requests.used, 0.97 * 500)); /* rest */
    use_all(12, 480);
    assert_true(row.requests.used > 0.97 * 500);
    use_all(60, 480);
    assert_true(near(row.requests.used,
                     1.6 * row.requests.ceiling)); /* so far, without a minute that shows it */
    use_all(3, 520);
    assert_true(row.requests.used > 1.6 * row.requests.ceiling); /* the limit moved */
    use_all(60, 800);
    assert_true(row.requests.used == 1000);
    assert_true(row.tokens.used == 400000);
}

static void what_is_not_wanted_is_not_tried(void **state)
{
    (void)state;
    refused(500);
    for (int i = 0; i < 200; i++)
        adaptive_sent(&row, now_ns);
    now_ns += 60 * NS_PER_S;
    adaptive_tick(&row, now_ns);
    for (int i = 0; i < 60; i++)
        window(1, 0.02, false);
    assert_true(row.requests.used >= 0.97 * 500 && row.requests.used < 0.97 * 500 * 1.06);
    assert_true(row.requests.probe == 0);
}

/* ---- invariants under random events */

static void i1_i4_i6_i7_i10_i12_hold_whatever_happens(void **state)
{
    uint64_t states[ADAPTIVE_RECOVERY + 1] = {0};

    (void)state;
    for (int run = 0; run < 60; run++) {
        struct adaptive_terms terms = {.requests_quota = run % 3 ? random_to(5000) : 0,
                                       .tokens_quota = run % 4 ? random_to(1000000) : 0,
                                       .in_flight_max = run % 5 ? 0 : (uint32_t)random_to(50),
                                       .server_queueing = run % 7 == 0};
        double token_s = 0.02;

        memset(&calls, 0, sizeof calls);
        begin(&terms);
        for (int event = 0; event < 5000; event++) {
            if (event % 500 == 0)
                token_s = 0.01 + 0.01 * (random_bits() % 10);
            any_event(token_s, run % 2);
            states[row.state]++;
        }
        while (calls.count > 0)
            one_ends(token_s, false);
        assert_int_equal(row.in_flight, 0);
        assert_true(calls.grants > 20);
    }
    for (int i = ADAPTIVE_STARTUP; i <= ADAPTIVE_RECOVERY; i++)
        assert_true(states[i] > 1000); /* all were seen */
}

/* ---- the whole loop ------------------------------------------------------------------------------ */

static const struct model_limits upstream = {.rpm = 600,
                                             .tpm = 400000,
                                             .second_requests = 2,
                                             .second_tokens = 4,
                                             .growth = 3,
                                             .growth_floor = 20,
                                             .saturation = 60,
                                             .refuse_above = 150};
enum load { LOAD_HIGH, LOAD_MIXED };
static const char *const load_names[] = {"high", "mixed"};
static struct model_run run;

static void set_load(enum load load, uint64_t number)
{
    memset(&run, 0, sizeof run);
    run.limits = upstream;
    run.arrivals_per_s = load == LOAD_HIGH ? 20 : 6;
    run.long_share = load == LOAD_HIGH ? 0 : 0.1;
    run.idle_from_s = run.idle_to_s = RUN_S_MAX;
    run.run_s = 400;
    run.delay_ns = 100 * NS_PER_MS;
    run.wait_s_max = 30;
    run.seed = number;
}

/* The best of the settings somebody could have chosen who knows the limits and is hardly refused. */
static double best_static(enum load load, uint64_t number, const struct model_limits *limits)
{
    static const double rates[] = {0.93, 0.9667, 0.98, 1};
    static const uint32_t in_flight[] = {20, 40, 60};
    double best = 0;

    for (size_t i = 0; i < LENGTH(rates); i++)
        for (size_t j = 0; j < LENGTH(in_flight); j++) {
            double tokens, share;

            set_load(load, number);
            run.limits = *limits;
            run.static_rate = rates[i];
            run.static_in_flight = in_flight[j];
            run.run_s = 250;
            model_go(&run);
            tokens = model_mean(run.done_tokens, 90, 250);
            share = model_mean(run.refusals, 90, 250) / model_mean(run.sends, 90, 250);
            if (share < 0.02)
                best = fmax(best, tokens);
        }
    return best;
}

#define SEEDS 6U
#define MANY_SEEDS 16U /* where it is about percents */

/* The mean of several runs, second by second: one run's long answers come and go. */
struct mean_run {
    double done_tokens[RUN_S_MAX], sends[RUN_S_MAX], refusals[RUN_S_MAX];
};

static void add_run(struct mean_run *mean, unsigned runs)
{
    for (int s = 0; s < run.run_s; s++) {
        mean->done_tokens[s] += run.done_tokens[s] / runs;
        mean->sends[s] += run.sends[s] / runs;
        mean->refusals[s] += run.refusals[s] / runs;
    }
    assert_int_equal(run.broken, 0); /* i1, i6 in the loop */
}

/* Seconds from from_s until 20 s of at least this share of best have begun. */
static int until(const struct mean_run *mean, double share, double best, int from_s)
{
    for (int s = from_s; s + 20 <= run.run_s; s++)
        if (model_mean(mean->done_tokens, s, s + 20) >= share * best)
            return s - from_s;
    return RUN_S_MAX;
}

static double refused_share(const struct mean_run *mean, int from_s, int to_s)
{
    return model_mean(mean->refusals, from_s, to_s) / model_mean(mean->sends, from_s, to_s);
}

static void converges(enum load load, const struct adaptive_terms *terms, double share)
{
    static struct mean_run mean;
    double best = 0;
    int seconds;

    memset(&mean, 0, sizeof mean);
    for (uint64_t number = 1; number <= MANY_SEEDS; number++) {
        best += best_static(load, number, &upstream) / MANY_SEEDS;
        set_load(load, number);
        run.client = MODEL_ADAPTIVE;
        run.terms = *terms;
        model_go(&run);
        add_run(&mean, MANY_SEEDS);
    }
    seconds = until(&mean, 0.95, best, 0);
    print_message("%s, %s: 95 %% of %.0f tokens/s after %d s, then %.1f %%, %.2f %% refused\n",
                  load_names[load], terms->requests_quota ? "quotas told" : "nothing told", best,
                  seconds, 100 * model_mean(mean.done_tokens, 150, 400) / best,
                  100 * refused_share(&mean, 120, 400));
    assert_true(seconds <= 90);
    assert_true(model_mean(mean.done_tokens, 150, 400) >= share * best);
    assert_true(refused_share(&mean, 120, 400) <= 0.01);
}

static void f13_it_converges_to_the_best_static_setting(void **state)
{
    const struct adaptive_terms nothing = {0};

    (void)state;
    converges(LOAD_HIGH, &told, 0.95);
    converges(LOAD_MIXED, &told, 0.95);
    converges(LOAD_HIGH, &nothing, 0.95);
    converges(LOAD_MIXED, &nothing, 0.95);
}

/* Capacity falls at 250 s and comes back at various moments: right after a refusal it takes longest
 * to be noticed. */
static void moves(const char *what, const struct model_limits *half,
                  const struct adaptive_terms *terms)
{
    static struct mean_run mean;
    double refusals = 0, down = 0, up = 0;

    for (uint64_t number = 1; number <= SEEDS; number++) {
        double best = best_static(LOAD_HIGH, number, &upstream);
        double less = best_static(LOAD_HIGH, number, half);

        set_load(LOAD_HIGH, number);
        run.client = MODEL_ADAPTIVE;
        run.terms = *terms;
        run.change_s = 250;
        run.changed = *half;
        run.back_s = 400 + 13 * (int)number;
        run.run_s = 600;
        model_go(&run);
        memset(&mean, 0, sizeof mean);
        add_run(&mean, 1);
        /* right after the fall, answers to earlier calls still come */
        down += (until(&mean, 0.9, less, 250 + 20) + 20) / (double)SEEDS;
        up += until(&mean, 0.9, best, run.back_s) / (double)SEEDS;
        refusals += refused_share(&mean, 350, run.back_s) / (double)SEEDS;
    }
    print_message("%s, %s: after halving %.0f s, after doubling %.0f s, %.2f %% refused between\n",
                  what, terms->requests_quota ? "quotas told" : "nothing told", down, up,
                  100 * refusals);
    assert_true(down <= 120);
    assert_true(up <= 45);
    assert_true(refusals <= 0.01);
}

static void f13_it_follows_a_capacity_that_halves_and_doubles(void **state)
{
    const struct adaptive_terms nothing = {0};
    struct model_limits requests = upstream, tokens = upstream, speed = upstream;

    (void)state;
    requests.rpm /= 2;
    tokens.tpm /= 2;
    tokens.saturation = 25;
    speed.saturation = 20;
    speed.refuse_above = 40;
    moves("requests", &requests, &told);
    moves("requests", &requests, &nothing);
    moves("tokens and speed", &tokens, &told);
    moves("tokens and speed", &tokens, &nothing);
    moves("speed", &speed, &told);
}

/* I5, with an upstream that refuses nothing: what was told is kept by ourselves. */
static void i5_no_minute_has_more_than_was_told(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= SEEDS; number++)
        for (enum load load = LOAD_HIGH; load <= LOAD_MIXED; load++) {
            set_load(load, number);
            run.client = MODEL_ADAPTIVE;
            run.terms = told;
            run.limits = (struct model_limits){.rpm = 1000000,
                                               .tpm = 1000000000,
                                               .second_requests = 1e6,
                                               .second_tokens = 1e6,
                                               .growth_floor = 1e6,
                                               .saturation = 1000,
                                               .refuse_above = 1000};
            model_go(&run);
            assert_true(run.worst_minute_requests <= 600);
            assert_true(run.worst_excess <= 0);
            assert_true(run.worst_minute_tokens <= 1.03 * 400000);
        }
}

/* Nothing that is not congestion looks like it: 0 HOLDs at a load that is a sixth of the quota. */
static void a_low_load_is_never_held_nor_refused(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= SEEDS; number++) {
        set_load(LOAD_HIGH, number);
        run.arrivals_per_s = 1;
        run.client = MODEL_ADAPTIVE;
        run.terms = told;
        model_go(&run);
        assert_int_equal(run.holds, 0);
        assert_true(model_mean(run.refusals, 0, 400) == 0);
        assert_true(model_mean(run.waited_s, 0, 400) / model_mean(run.sends, 0, 400) < 0.5);
    }
}

static void after_idle_hardly_anything_is_refused(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= SEEDS; number++) {
        set_load(LOAD_HIGH, number);
        run.arrivals_per_s = 8;
        run.idle_from_s = 150;
        run.idle_to_s = 270;
        run.client = MODEL_ADAPTIVE;
        run.terms = told;
        model_go(&run);
        assert_true(model_mean(run.refusals, 270, 400) * 130 <= 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(startup_ends_when_more_calls_bring_no_more, fresh),
        cmocka_unit_test_setup(the_spring_pulls_to_the_watermark_and_the_thrust_beyond, fresh),
        cmocka_unit_test_setup(i4_the_bound_grows_only_when_it_bound_and_nothing_went_wrong, fresh),
        cmocka_unit_test_setup(i4_a_step_is_at_most_half_as_large_again_as_the_last, fresh),
        cmocka_unit_test_setup(the_bound_keeps_to_the_mean_in_flight, fresh),
        cmocka_unit_test_setup(the_watermark_ages, fresh),
        cmocka_unit_test_setup(slow_tokens_hold_and_then_leak, fresh),
        cmocka_unit_test_setup(twice_as_slow_holds_at_once, fresh),
        cmocka_unit_test_setup(it_is_not_held_for_ever, fresh),
        cmocka_unit_test_setup(the_pace_follows_demand, fresh),
        cmocka_unit_test_setup(a_refused_quota_is_a_ceiling_to_try_from, fresh),
        cmocka_unit_test_setup(what_is_not_wanted_is_not_tried, fresh),
        cmocka_unit_test_setup(i1_i4_i6_i7_i10_i12_hold_whatever_happens, fresh),
        cmocka_unit_test(f13_it_converges_to_the_best_static_setting),
        cmocka_unit_test(f13_it_follows_a_capacity_that_halves_and_doubles),
        cmocka_unit_test(i5_no_minute_has_more_than_was_told),
        cmocka_unit_test(a_low_load_is_never_held_nor_refused),
        cmocka_unit_test(after_idle_hardly_anything_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
