/*
 * test_adaptive.c - events: refusals, idle time, memory, answers (F5). iN_... is the research's
 * invariant N; more of them in test_adaptive_window.c and test_adaptive_signals.c, 8 and 9 are the
 * queue's.
 */
#include "base/clock.h"
#include "shared/adaptive.h"
#include "shared/adaptive_inside.h"
#include "shared/bucket.h"

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
static const struct adaptive_terms told = {.requests_quota = 600, .tokens_quota = 400000};

static void begin(const struct adaptive_terms *terms)
{
    memset(&row, 0, sizeof row);
    now_ns = NOW_NS;
    adaptive_init(&row, terms, now_ns);
}

static int fresh(void **state)
{
    (void)state;
    begin(&told);
    return 0;
}

static bool near(double value, double expected)
{
    return fabs(value - expected) < 1e-6 * fabs(expected) + 1e-9;
}

static bool refuse(enum adaptive_kind kind, int64_t requests_60s, int64_t tokens_60s)
{
    const struct adaptive_refusal refusal = {
        .kind = kind, .epoch = row.epoch, .requests_60s = requests_60s, .tokens_60s = tokens_60s};

    return adaptive_refused(&row, &refusal, now_ns);
}

static double drained_s(void)
{
    struct adaptive_limits limits = adaptive_may_send(&row, now_ns);

    return limits.drained_until_ns == 0 ? 0 : adaptive_seconds(limits.drained_until_ns - now_ns);
}

static void end_drain(void)
{
    now_ns = row.drained_until_ns;
    assert_int_equal(adaptive_may_send(&row, now_ns).drained_until_ns, 0);
}

/* ---- beginning ---------------------------------------------------------------------------------- */

static void zeroes_limit_nothing_and_learn_nothing(void **state)
{
    const struct adaptive_refusal refusal = {.kind = ADAPTIVE_CAP};
    const struct adaptive_sample sample = {.output_tokens = 5};
    struct adaptive_limits limits;

    (void)state;
    memset(&row, 0, sizeof row);
    limits = adaptive_may_send(&row, now_ns);
    assert_int_equal(limits.in_flight, UINT32_MAX);
    assert_int_equal(limits.interval_ns, 0);
    assert_int_equal(limits.drained_until_ns, 0);
    assert_int_equal(limits.requests.capacity_micro, 0);
    adaptive_sent(&row, now_ns);
    adaptive_completed(&row, &sample, now_ns);
    assert_false(adaptive_refused(&row, &refusal, now_ns));
    adaptive_resume_after_idle(&row, 100 * NS_PER_S, now_ns);
    assert_int_equal(adaptive_wait_ns(&row, 1000, now_ns), 0);
    assert_int_equal(row.state, ADAPTIVE_NONE);
}

static void it_begins_low(void **state)
{
    struct adaptive_limits limits = adaptive_may_send(&row, now_ns);

    (void)state;
    assert_int_equal(row.state, ADAPTIVE_STARTUP);
    assert_int_equal(limits.in_flight, 4);
    assert_int_equal(limits.interval_ns, NS_PER_S / 2); /* a fifth of 600 a minute */
    assert_int_equal(limits.requests.capacity_micro, 15 * BUCKET_UNIT);
    assert_int_equal(limits.requests.rate_micro, 580 * BUCKET_UNIT);
    assert_int_equal(limits.tokens.capacity_micro, 400000 / 40 * BUCKET_UNIT);
}

static void without_quotas_nothing_bounds_but_pace_and_calls(void **state)
{
    const struct adaptive_terms nothing = {0};
    struct adaptive_limits limits;

    (void)state;
    begin(&nothing);
    limits = adaptive_may_send(&row, now_ns);
    assert_int_equal(limits.requests.capacity_micro, 0);
    assert_int_equal(limits.tokens.capacity_micro, 0);
    assert_int_equal(limits.interval_ns, NS_PER_S / 2);
}

static void new_terms_keep_what_was_learned(void **state)
{
    const struct adaptive_terms other = {.requests_quota = 1200, .in_flight_max = 3};

    (void)state;
    (void)refuse(ADAPTIVE_RPM, 500, 0);
    assert_true(near(row.requests.used, 0.97 * 500));
    adaptive_init(&row, &told, now_ns);
    assert_true(near(row.requests.used, 0.97 * 500));
    assert_int_equal(row.state, ADAPTIVE_DRAIN);
    adaptive_init(&row, &other, now_ns); /* the share of it */
    assert_true(near(row.requests.used, 2 * 0.97 * 500));
    assert_true(row.tokens.used == 0);
    assert_true(row.limit <= 3);
}

/* ---- what refusals do --------------------------------------------------------------------------- */

static void each_kind_turns_its_own_knob(void **state)
{
    struct adaptive_row before;

    (void)state;
    row.pace = 8;
    row.limit = 50;
    row.watermark = 60;
    adaptive_set_in_flight(&row, 40, now_ns);
    before = row;

    assert_true(refuse(ADAPTIVE_RPM, 590, 1000));
    assert_true(near(row.requests.used, 0.97 * 590));
    assert_true(row.tokens.used == 400000 && row.limit == 50 && row.pace == 8);
    row = before;
    row.pace = 11;
    assert_true(refuse(ADAPTIVE_RPM, 590, 1000));
    assert_true(near(row.pace, 0.97 * 590 / 60)); /* not faster than the quota */
    row = before;
    assert_true(refuse(ADAPTIVE_TPM, 100, 380000));
    assert_true(near(row.tokens.used, 0.97 * 380000));
    assert_true(row.requests.used == 600 && row.limit == 50);
    row = before;
    assert_true(refuse(ADAPTIVE_RPS, 100, 0));
    assert_true(near(row.pace, 6.4) && row.growth == before.growth && row.requests.used == 600);
    row = before;
    assert_true(refuse(ADAPTIVE_BURST, 100, 0));
    assert_true(near(row.pace, 5.6) && near(row.growth, before.growth / 2));
    row = before;
    assert_true(refuse(ADAPTIVE_CAP, 100, 0));
    assert_true(near(row.limit, 0.7 * 41) && near(row.watermark, 0.95 * 40) && row.pace == 8);
}

static void a_minute_is_told_from_a_second_by_own_use(void **state)
{
    struct adaptive_refusal refusal = {.kind = ADAPTIVE_RPS, .requests_60s = 480};

    (void)state;
    assert_int_equal(adaptive_refine(&row, &refusal, now_ns), ADAPTIVE_RPM);
    refusal.requests_60s = 479;
    refusal.kind = ADAPTIVE_RPM;
    assert_int_equal(adaptive_refine(&row, &refusal, now_ns), ADAPTIVE_RPS);
    refusal.kind = ADAPTIVE_TPM;
    refusal.tokens_60s = 319999;
    assert_int_equal(adaptive_refine(&row, &refusal, now_ns), ADAPTIVE_TPS);
    refusal.tokens_60s++;
    assert_int_equal(adaptive_refine(&row, &refusal, now_ns), ADAPTIVE_TPM);
    refusal.kind = ADAPTIVE_BURST;
    assert_int_equal(adaptive_refine(&row, &refusal, now_ns), ADAPTIVE_BURST);
    /* against what it is known to take by now */
    row.requests.used = 300;
    refusal.kind = ADAPTIVE_RPS;
    refusal.requests_60s = 250;
    assert_int_equal(adaptive_refine(&row, &refusal, now_ns), ADAPTIVE_RPM);
}

static void without_a_quota_a_steady_minute_tells(void **state)
{
    const struct adaptive_terms nothing = {0};
    struct adaptive_refusal refusal = {.kind = ADAPTIVE_RPM};

    (void)state;
    begin(&nothing);
    for (int i = 0; i < 100; i++)
        adaptive_sent(&row, now_ns); /* 10 a second */
    refusal.requests_60s = 200;      /* a ramp */
    assert_int_equal(adaptive_refine(&row, &refusal, now_ns), ADAPTIVE_RPS);
    refusal.requests_60s = 590;
    assert_int_equal(adaptive_refine(&row, &refusal, now_ns), ADAPTIVE_RPM);
    assert_true(refuse(ADAPTIVE_RPM, 590, 0));
    assert_true(near(row.requests.used, 0.97 * 590));
    assert_true(adaptive_may_send(&row, now_ns).requests.capacity_micro > 0);
}

/* A limit per second has forgotten before that. */
static void who_asks_for_long_speaks_of_a_minute(void **state)
{
    struct adaptive_refusal refusal = {
        .kind = ADAPTIVE_RPS, .requests_60s = 60, .retry_after_ns = 52 * NS_PER_S};

    (void)state;
    assert_int_equal(adaptive_refine(&row, &refusal, now_ns), ADAPTIVE_RPM);
    refusal.kind = ADAPTIVE_TPS;
    assert_int_equal(adaptive_refine(&row, &refusal, now_ns), ADAPTIVE_TPM);
    refusal.retry_after_ns = 2 * NS_PER_S;
    assert_int_equal(adaptive_refine(&row, &refusal, now_ns), ADAPTIVE_TPS);
    /* but not all of what was used goes at once: who else uses the account may stop */
    refusal = (struct adaptive_refusal){.kind = ADAPTIVE_RPM,
                                        .epoch = row.epoch,
                                        .requests_60s = 3,
                                        .retry_after_ns = 52 * NS_PER_S};
    assert_true(adaptive_refused(&row, &refusal, now_ns));
    assert_true(near(row.requests.used, 0.97 * 120));
}

/* A limit per second forgets in a second: refused a third time after two cuts, it is none. */
static void cuts_that_do_not_help_were_for_the_wrong_reason(void **state)
{
    (void)state;
    row.pace = 8;
    for (int i = 0; i < 2; i++) {
        assert_true(refuse(ADAPTIVE_RPM, 300, 0)); /* told 600, but somebody else uses half */
        assert_int_equal(row.drain_kind, ADAPTIVE_RPS);
        end_drain();
    }
    assert_true(refuse(ADAPTIVE_RPM, 300, 0));
    assert_int_equal(row.drain_kind, ADAPTIVE_RPM);
    assert_true(near(row.requests.used, 0.97 * 300));
}

/* Met again when the pace is what it was before the cut, it may well be one. */
static void a_limit_per_second_is_met_again_at_its_pace(void **state)
{
    (void)state;
    row.pace = 8;
    for (int i = 0; i < 4; i++) {
        assert_true(refuse(ADAPTIVE_RPM, 300, 0));
        assert_int_equal(row.drain_kind, ADAPTIVE_RPS);
        end_drain();
        row.pace = 8;
    }
    row.pace = row.pace_cut = 0.8; /* there is no limit per second below one */
    row.pace *= 1.2;
    assert_true(refuse(ADAPTIVE_RPM, 300, 0));
    assert_int_equal(row.drain_kind, ADAPTIVE_RPM);
}

static void pauses_double_for_the_same_reason_only(void **state)
{
    static const double burst_s[] = {1.5, 3, 6, 12, 20, 20}, rpm_s[] = {1.5, 3, 3, 3};

    (void)state;
    for (size_t i = 0; i < LENGTH(burst_s); i++) {
        assert_true(refuse(ADAPTIVE_BURST, 0, 0));
        assert_true(near(drained_s(), burst_s[i]));
        end_drain();
    }
    for (size_t i = 0; i < LENGTH(rpm_s); i++) {
        assert_true(refuse(ADAPTIVE_RPM, 590, 0));
        assert_true(near(drained_s(), rpm_s[i]));
        end_drain();
    }
    now_ns += 31 * NS_PER_S;
    assert_true(refuse(ADAPTIVE_RPM, 590, 0));
    assert_true(near(drained_s(), 1.5));
}

static void a_limit_per_second_needs_the_shortest_pause(void **state)
{
    static const double first_s[ADAPTIVE_KINDS] = {
        [ADAPTIVE_RPM] = 1.5,   [ADAPTIVE_TPM] = 1.5, [ADAPTIVE_RPS] = 1,   [ADAPTIVE_TPS] = 1,
        [ADAPTIVE_BURST] = 1.5, [ADAPTIVE_CAP] = 2,   [ADAPTIVE_FAULT] = 2,
    };

    (void)state;
    for (int kind = 0; kind < ADAPTIVE_KINDS; kind++) {
        bool minute = kind == ADAPTIVE_RPM || kind == ADAPTIVE_TPM;

        begin(&told);
        if (kind == ADAPTIVE_FAULT)
            assert_false(refuse((enum adaptive_kind)kind, 0, 0));
        assert_true(refuse((enum adaptive_kind)kind, minute ? 590 : 0, minute ? 390000 : 0));
        assert_true(near(drained_s(), first_s[kind]));
    }
}

static void retry_after_replaces_the_pause_within_reason(void **state)
{
    static const struct {
        int64_t asked_ns;
        double pause_s;
    } cases[] = {{1, 1}, {7 * NS_PER_S, 7}, {86400 * NS_PER_S, 60}, {INT64_MAX, 60}, {-5, 2}};

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct adaptive_refusal refusal = {.kind = ADAPTIVE_CAP,
                                           .retry_after_ns = cases[i].asked_ns};

        begin(&told);
        refusal.epoch = row.epoch;
        assert_true(adaptive_refused(&row, &refusal, now_ns));
        assert_true(near(drained_s(), cases[i].pause_s));
        begin(&told);
        refusal.random = UINT32_MAX; /* the most of the jitter */
        assert_true(adaptive_refused(&row, &refusal, now_ns));
        assert_true(near(drained_s(), 1.25 * cases[i].pause_s));
    }
}

static void one_fault_is_none_and_two_are_saturation(void **state)
{
    (void)state;
    row.limit = 50;
    adaptive_set_in_flight(&row, 40, now_ns);
    assert_false(refuse(ADAPTIVE_FAULT, 0, 0));
    assert_true(row.limit == 50);
    assert_true(refuse(ADAPTIVE_FAULT, 0, 0));
    assert_true(near(row.limit, 0.7 * 41));
}

static void i2_many_refusals_of_one_epoch_cut_once(void **state)
{
    (void)state;
    for (int kind = 0; kind < ADAPTIVE_KINDS; kind++) {
        struct adaptive_row once;

        begin(&told);
        row.pace = 8;
        row.limit = 50;
        adaptive_set_in_flight(&row, 40, now_ns);
        if (kind == ADAPTIVE_FAULT)
            assert_false(refuse((enum adaptive_kind)kind, 590, 390000));
        assert_true(refuse((enum adaptive_kind)kind, 590, 390000));
        once = row;
        for (int i = 0; i < 50; i++)
            assert_false(refuse((enum adaptive_kind)kind, 600 + i, 400000));
        assert_int_equal(row.cuts, 1);
        assert_true(row.limit == once.limit && row.pace == once.pace && row.growth == once.growth &&
                    row.watermark == once.watermark && row.requests.used == once.requests.used &&
                    row.tokens.used == once.tokens.used &&
                    row.drained_until_ns == once.drained_until_ns);
    }
}

static void a_drain_ends_by_time_and_begins_an_epoch(void **state)
{
    struct adaptive_refusal refusal = {.kind = ADAPTIVE_BURST, .epoch = row.epoch};
    uint32_t epoch = row.epoch;

    (void)state;
    row.pace = 10;
    row.growth = 0.08;
    refusal.retry_after_ns = 20 * NS_PER_S;
    assert_true(adaptive_refused(&row, &refusal, now_ns));
    now_ns += 20 * NS_PER_S - 1;
    adaptive_tick(&row, now_ns);
    assert_int_equal(row.state, ADAPTIVE_DRAIN);
    assert_int_equal(row.epoch, epoch);
    now_ns += 1;
    adaptive_tick(&row, now_ns);
    assert_int_equal(row.state, ADAPTIVE_RECOVERY);
    assert_int_equal(row.epoch, epoch + 1);
    assert_true(near(row.pace, 7 / 4.0)); /* halved per ten seconds of silence */
    now_ns += NS_PER_S;
    adaptive_tick(&row, now_ns);
    assert_int_equal(row.state, ADAPTIVE_RECOVERY);
    now_ns += 5 * NS_PER_S;
    adaptive_tick(&row, now_ns);
    assert_int_equal(row.state, ADAPTIVE_PROBING);
    assert_true(near(row.growth, 0.04));
    now_ns += 60 * NS_PER_S;
    adaptive_tick(&row, now_ns);
    assert_true(row.growth > 0.04); /* forgiven bit by bit */
}

static void i3_an_older_epoch_changes_no_state(void **state)
{
    struct adaptive_refusal late = {.kind = ADAPTIVE_CAP, .epoch = row.epoch};
    struct adaptive_sample sample = {.epoch = row.epoch,
                                     .output_tokens = 500,
                                     .streamed_tokens = 499,
                                     .decode_ns = 500 * NS_PER_S,
                                     .ttft_ns = 50 * NS_PER_S};
    struct adaptive_row before;

    (void)state;
    assert_true(refuse(ADAPTIVE_BURST, 0, 0));
    adaptive_completed(&row, &sample, now_ns); /* a late success ends no DRAIN */
    assert_int_equal(row.state, ADAPTIVE_DRAIN);
    end_drain();
    assert_int_equal(row.state, ADAPTIVE_RECOVERY);
    before = row;
    assert_false(adaptive_refused(&row, &late, now_ns));
    for (int i = 0; i < 20; i++)
        adaptive_completed(&row, &sample, now_ns);
    assert_int_equal(row.state, ADAPTIVE_RECOVERY);
    assert_true(row.limit == before.limit && row.pace == before.pace);
    assert_int_equal(row.window.completions, 0);
    now_ns += 5 * NS_PER_S;
    adaptive_tick(&row, now_ns);
    assert_int_not_equal(row.state, ADAPTIVE_HOLD);
}

/* ---- what it is asked --------------------------------------------------------------------------- */

/* Of an upstream that refused growth once. */
static void i11_idle_time_buys_no_burst(void **state)
{
    static const int64_t idle_s[] = {9, 10, 25, 40, 1000, 1000000000};

    (void)state;
    for (size_t i = 0; i < LENGTH(idle_s); i++) {
        double halves = (double)(idle_s[i] / 10);
        double pace;

        begin(&told);
        row.pace = 10;
        row.limit = 64;
        row.watermark = 64;
        row.full = 2;
        row.refusals[ADAPTIVE_BURST] = 1;
        row.state = ADAPTIVE_PROBING;
        now_ns += idle_s[i] * NS_PER_S;
        adaptive_resume_after_idle(&row, idle_s[i] * NS_PER_S, now_ns);
        pace = fmax(2, 10 * exp2(-halves));
        assert_true(near(row.pace, pace));
        assert_true(near(row.limit, fmax(4, 64 * exp2(-halves))));
        assert_true(row.watermark == 64);
        assert_int_equal(row.state, halves > 1 ? ADAPTIVE_STARTUP : ADAPTIVE_PROBING);
        assert_int_equal(row.full, halves > 1 ? 0 : 2);
        /* the first second: one at once, then at the pace */
        assert_true(1e9 / (double)adaptive_may_send(&row, now_ns).interval_ns + 1 <= pace + 1.001);
    }
}

static void idle_time_ends_no_drain_and_raises_nothing(void **state)
{
    (void)state;
    row.limit = 2;
    row.pace = 1;
    adaptive_resume_after_idle(&row, 100 * NS_PER_S, now_ns);
    assert_true(row.limit == 2 && row.pace == 1);
    assert_true(refuse(ADAPTIVE_CAP, 0, 0));
    adaptive_resume_after_idle(&row, 100 * NS_PER_S, now_ns);
    assert_int_equal(row.state, ADAPTIVE_DRAIN);
}

static void the_wait_is_that_of_the_ramp(void **state)
{
    (void)state;
    for (uint32_t ahead = 1; ahead < 3000; ahead += 97) {
        double pace = row.pace, left = ahead, seconds = 0;

        for (; left > 0; seconds += 0.001) { /* sent bit by bit, faster after each second */
            left -= 0.001 * fmin(pace, 10);
            if (fmod(seconds + 1e-9, 1) < 0.001 && seconds > 0.5)
                pace = pace * (1 + row.growth) + 0.05;
        }
        assert_true(fabs(adaptive_seconds(adaptive_wait_ns(&row, ahead, now_ns)) - seconds) <
                    0.02 * seconds + 1.1);
    }
    assert_true(refuse(ADAPTIVE_CAP, 0, 0));
    assert_true(adaptive_wait_ns(&row, 0, now_ns) == 2 * NS_PER_S);
}

static void a_full_minute_closes_the_rate(void **state)
{
    (void)state;
    assert_true(refuse(ADAPTIVE_RPM, 500, 0)); /* 485 of 500 are used from here on */
    adaptive_set_minute(&row, 480, 0);
    assert_int_equal(adaptive_may_send(&row, now_ns).requests.rate_micro, 485 * BUCKET_UNIT);
    adaptive_set_minute(&row, 494, 0);
    assert_int_equal(adaptive_may_send(&row, now_ns).requests.rate_micro / BUCKET_UNIT, 194);
    adaptive_set_minute(&row, 600, 0);
    assert_int_equal(adaptive_may_send(&row, now_ns).requests.rate_micro / BUCKET_UNIT, 48);
}

/* ---- memory -------------------------------------------------------------------------------------- */

static void a_memory_warms_the_start(void **state)
{
    struct adaptive_memory memory;

    (void)state;
    row.watermark = 60;
    row.limit = 55;
    row.pace = 9;
    row.growth = 0.03;
    row.tokens.used = 200000;
    row.mean_output = 321;
    adaptive_base_add(&row.tpt_base, 0.021, now_ns);
    memory = adaptive_export(&row);
    begin(&told);
    assert_true(adaptive_import(&row, &memory, 3599 * NS_PER_S, now_ns));
    assert_true(row.limit == 30 && row.watermark == 60 && row.pace == 4.5 && row.growth == 0.03);
    assert_true(near(row.tokens.used, 200000) && row.requests.used == 600);
    assert_true(row.mean_output == 321);
    assert_true(near(adaptive_base_value(&row.tpt_base), 0.021));
    begin(
        &(struct adaptive_terms){0}); /* shares of quotas that nobody tells any more say nothing */
    assert_true(adaptive_import(&row, &memory, 0, now_ns));
    assert_true(row.tokens.used == 0);
}

static void a_learned_quota_is_remembered(void **state)
{
    const struct adaptive_terms nothing = {0};
    struct adaptive_memory memory;

    (void)state;
    begin(&nothing);
    assert_true(refuse(ADAPTIVE_RPM, 300, 0));
    memory = adaptive_export(&row);
    begin(&nothing);
    assert_true(adaptive_import(&row, &memory, 0, now_ns));
    assert_true(near(row.requests.used, 291));
    assert_true(near(row.requests.ceiling, 300));
}

static void no_other_memory_is_taken(void **state)
{
    struct adaptive_memory memory = adaptive_export(&row);
    double *values = (double *)&memory;
    static const double bad[] = {NAN, INFINITY, -INFINITY, -1, 1e300};

    (void)state;
    assert_false(adaptive_import(&row, &memory, 3601 * NS_PER_S, now_ns));
    assert_false(adaptive_import(&row, &memory, -1, now_ns));
    for (size_t i = 0; i < sizeof memory / sizeof *values; i++)
        for (size_t j = 0; j < LENGTH(bad); j++) {
            double good = values[i];

            values[i] = bad[j];
            assert_false(adaptive_import(&row, &memory, 0, now_ns));
            values[i] = good;
        }
    assert_true(adaptive_import(&row, &memory, 0, now_ns));
}

static void names_are_there(void **state)
{
    (void)state;
    for (uint32_t i = 0; i <= ADAPTIVE_RECOVERY; i++)
        assert_string_not_equal(adaptive_state_name(i), "?");
    assert_string_equal(adaptive_state_name(99), "?");
    for (int i = 0; i < ADAPTIVE_KINDS; i++)
        assert_string_not_equal(adaptive_kind_name((enum adaptive_kind)i), "?");
    assert_string_equal(adaptive_kind_name(ADAPTIVE_KINDS), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(zeroes_limit_nothing_and_learn_nothing, fresh),
        cmocka_unit_test_setup(it_begins_low, fresh),
        cmocka_unit_test_setup(without_quotas_nothing_bounds_but_pace_and_calls, fresh),
        cmocka_unit_test_setup(new_terms_keep_what_was_learned, fresh),
        cmocka_unit_test_setup(each_kind_turns_its_own_knob, fresh),
        cmocka_unit_test_setup(a_minute_is_told_from_a_second_by_own_use, fresh),
        cmocka_unit_test_setup(without_a_quota_a_steady_minute_tells, fresh),
        cmocka_unit_test_setup(cuts_that_do_not_help_were_for_the_wrong_reason, fresh),
        cmocka_unit_test_setup(who_asks_for_long_speaks_of_a_minute, fresh),
        cmocka_unit_test_setup(a_limit_per_second_is_met_again_at_its_pace, fresh),
        cmocka_unit_test_setup(pauses_double_for_the_same_reason_only, fresh),
        cmocka_unit_test_setup(a_limit_per_second_needs_the_shortest_pause, fresh),
        cmocka_unit_test_setup(retry_after_replaces_the_pause_within_reason, fresh),
        cmocka_unit_test_setup(one_fault_is_none_and_two_are_saturation, fresh),
        cmocka_unit_test_setup(i2_many_refusals_of_one_epoch_cut_once, fresh),
        cmocka_unit_test_setup(a_drain_ends_by_time_and_begins_an_epoch, fresh),
        cmocka_unit_test_setup(i3_an_older_epoch_changes_no_state, fresh),
        cmocka_unit_test_setup(i11_idle_time_buys_no_burst, fresh),
        cmocka_unit_test_setup(idle_time_ends_no_drain_and_raises_nothing, fresh),
        cmocka_unit_test_setup(the_wait_is_that_of_the_ramp, fresh),
        cmocka_unit_test_setup(a_full_minute_closes_the_rate, fresh),
        cmocka_unit_test_setup(a_memory_warms_the_start, fresh),
        cmocka_unit_test_setup(a_learned_quota_is_remembered, fresh),
        cmocka_unit_test_setup(no_other_memory_is_taken, fresh),
        cmocka_unit_test_setup(names_are_there, fresh),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
