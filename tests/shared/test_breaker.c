/* test_breaker.c - breaker, window and health of one row, on passed-in times (H7, H8). */
#include "base/clock.h"
#include "shared/breaker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above first */
#include <cmocka.h>
#include <string.h>

#define NOW_NS (1000 * NS_PER_S)

static struct source_row row;
static const struct breaker_terms terms = {.failures = 5,
                                           .share_percent = 50,
                                           .share_calls = 20,
                                           .cooldown_ns = 5 * NS_PER_S,
                                           .cooldown_max_ns = 300 * NS_PER_S};

static int fresh_row(void **state)
{
    (void)state;
    memset(&row, 0, sizeof row);
    atomic_store(&row.health_permille, 1000);
    return 0;
}

static bool fail_at(int64_t now_ns)
{
    bool opened;

    breaker_begin_locked(&row);
    opened = breaker_fail_locked(&row, &terms, false, now_ns);
    breaker_done_locked(&row);
    return opened;
}

static void succeed_at(int64_t now_ns)
{
    assert_false(breaker_succeed_locked(&row, false));
    breaker_count_success(&row, 0, now_ns);
    breaker_done_locked(&row);
}

static void open_at(int64_t now_ns)
{
    for (int i = 0; i < 4; i++)
        assert_false(fail_at(now_ns));
    assert_true(fail_at(now_ns));
}

static bool bars(int64_t now_ns)
{
    int64_t until_ns = 0;
    bool barred = breaker_bars_locked(&row, now_ns, &until_ns);

    if (barred)
        assert_true(until_ns > now_ns);
    return barred;
}

static uint64_t probe_at(int64_t now_ns)
{
    const struct probe_terms probe = {
        .owner = 3, .incarnation = 7, .expires_ns = now_ns + 60 * NS_PER_S};

    assert_false(bars(now_ns));
    return breaker_give_probe_locked(&row, &probe);
}

/* The probe of an open breaker fails; returns for how long it is open then. */
static int64_t probe_fails_at(int64_t now_ns)
{
    assert_true(breaker_take_probe_back_locked(&row, probe_at(now_ns)));
    assert_true(breaker_fail_locked(&row, &terms, true, now_ns));
    assert_int_equal(row.breaker, BREAKER_OPEN);
    return row.open_until_ns - now_ns;
}

static void h7_opens_after_so_many_failures_in_a_row(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_false(fail_at(NOW_NS));
    succeed_at(NOW_NS);
    assert_int_equal(row.failures_in_a_row, 0);
    for (int i = 0; i < 4; i++) /* 8 failures of 9 calls: too few for the share (I31, I32) */
        assert_false(fail_at(NOW_NS));
    assert_false(bars(NOW_NS));
    assert_true(fail_at(NOW_NS));
    assert_true(bars(NOW_NS));
    assert_int_equal(row.open_until_ns, NOW_NS + 5 * NS_PER_S);
    assert_true(bars(NOW_NS + 5 * NS_PER_S - 1));
    assert_false(bars(NOW_NS + 5 * NS_PER_S));
}

static void h7_opens_on_the_share_of_enough_calls(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++) {
        succeed_at(NOW_NS + i * NS_PER_S);
        assert_false(fail_at(NOW_NS + i * NS_PER_S));
    }
    succeed_at(NOW_NS + 9 * NS_PER_S);
    assert_true(fail_at(NOW_NS + 9 * NS_PER_S)); /* the 20th call, the 10th failure */
    assert_true(bars(NOW_NS + 9 * NS_PER_S));
}

static void h7_what_is_older_than_the_window_is_forgotten(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        succeed_at(NOW_NS);
        assert_true(i == 9 || !fail_at(NOW_NS));
    }
    assert_int_equal(breaker_count(&row, NOW_NS + 29 * NS_PER_S).calls, 19);
    assert_int_equal(breaker_count(&row, NOW_NS + 30 * NS_PER_S).calls, 0);
    assert_false(fail_at(NOW_NS + 30 * NS_PER_S)); /* the same bucket: renewed */
    assert_int_equal(breaker_count(&row, NOW_NS + 30 * NS_PER_S).calls, 1);
    assert_int_equal(breaker_count(&row, NOW_NS + 30 * NS_PER_S).failures, 1);
    assert_false(fail_at(NOW_NS)); /* 30 s late: counts in no bucket */
    assert_int_equal(breaker_count(&row, NOW_NS + 30 * NS_PER_S).failures, 1);
    assert_int_equal(row.failures_in_a_row, 2);
}

static void h7_the_cooldown_doubles_up_to_its_bound_and_a_success_ends_that(void **state)
{
    static const int seconds[] = {10, 20, 40, 80, 160, 300, 300};
    int64_t now_ns = NOW_NS;

    (void)state;
    open_at(now_ns);
    for (size_t i = 0; i < LENGTH(seconds); i++) {
        now_ns = row.open_until_ns;
        assert_int_equal(probe_fails_at(now_ns), seconds[i] * NS_PER_S);
    }
    now_ns = row.open_until_ns;
    assert_true(breaker_take_probe_back_locked(&row, probe_at(now_ns)));
    assert_true(breaker_succeed_locked(&row, true));
    breaker_done_locked(&row);
    assert_int_equal(row.breaker, BREAKER_CLOSED);
    assert_int_equal(row.needs_lock, 0);
    open_at(now_ns);
    assert_int_equal(row.open_until_ns, now_ns + 5 * NS_PER_S);
}

/* A breaker that closed is not opened again by the failures that had opened it. */
static void h7_closing_forgets_the_window(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++) {
        succeed_at(NOW_NS);
        assert_false(fail_at(NOW_NS));
    }
    succeed_at(NOW_NS);
    assert_true(fail_at(NOW_NS));
    assert_true(breaker_take_probe_back_locked(&row, probe_at(NOW_NS + 5 * NS_PER_S)));
    assert_true(breaker_succeed_locked(&row, true));
    assert_false(fail_at(NOW_NS + 5 * NS_PER_S));
    assert_int_equal(breaker_count(&row, NOW_NS + 5 * NS_PER_S).calls, 1);
}

static void i33_a_cooldown_is_never_shortened(void **state)
{
    const struct breaker_terms shorter = {.failures = 1, .cooldown_ns = NS_PER_S};

    (void)state;
    row.open_until_ns = NOW_NS + 100 * NS_PER_S; /* as another scope's terms had it */
    atomic_store(&row.breaker, BREAKER_HALF_OPEN);
    assert_true(breaker_take_probe_back_locked(&row, probe_at(NOW_NS)));
    assert_true(breaker_fail_locked(&row, &shorter, true, NOW_NS));
    assert_int_equal(row.open_until_ns, NOW_NS + 100 * NS_PER_S);
}

static void h7_calls_that_fail_together_open_once(void **state)
{
    (void)state;
    open_at(NOW_NS);
    for (int i = 0; i < 100; i++)
        assert_false(fail_at(NOW_NS + NS_PER_S));
    assert_int_equal(row.openings, 1);
    assert_int_equal(row.open_until_ns, NOW_NS + 5 * NS_PER_S);
    (void)probe_at(NOW_NS + 5 * NS_PER_S);
    assert_false(fail_at(NOW_NS + 5 * NS_PER_S)); /* late, not the probe's */
    assert_int_equal(row.breaker, BREAKER_HALF_OPEN);
    succeed_at(NOW_NS + 5 * NS_PER_S); /* likewise */
    assert_int_equal(row.breaker, BREAKER_HALF_OPEN);
}

static void i21_a_probe_is_one_and_comes_back_once(void **state)
{
    uint64_t first;
    uint64_t second;

    (void)state;
    open_at(NOW_NS);
    first = probe_at(NOW_NS + 5 * NS_PER_S);
    assert_true(bars(NOW_NS + 5 * NS_PER_S));
    assert_true(breaker_take_probe_back_locked(&row, first));
    assert_false(breaker_take_probe_back_locked(&row, first));
    second = probe_at(NOW_NS + 5 * NS_PER_S); /* at once */
    assert_int_not_equal(first, second);
    assert_false(breaker_take_probe_back_locked(&row, first));
    assert_true(bars(NOW_NS + 6 * NS_PER_S));
    assert_false(bars(NOW_NS + 65 * NS_PER_S)); /* expired */
    (void)probe_at(NOW_NS + 65 * NS_PER_S);
    assert_false(breaker_take_probe_back_locked(&row, second));
}

static void h7_without_terms_nothing_opens(void **state)
{
    const struct breaker_terms none = {0};

    (void)state;
    for (int i = 0; i < 1000; i++)
        assert_false(breaker_fail_locked(&row, &none, false, NOW_NS));
    assert_int_equal(row.breaker, BREAKER_CLOSED);
    succeed_at(NOW_NS);
    open_at(NOW_NS + 60 * NS_PER_S);
    assert_true(breaker_take_probe_back_locked(&row, probe_at(NOW_NS + 100 * NS_PER_S)));
    assert_true(breaker_fail_locked(&row, &none, true, NOW_NS + 100 * NS_PER_S));
    assert_int_equal(row.open_until_ns, NOW_NS + 100 * NS_PER_S + BREAKER_COOLDOWN_NS);
}

static void h8_health_reaches_both_ends_and_latency_follows(void **state)
{
    (void)state;
    assert_false(fail_at(NOW_NS));
    assert_int_equal(row.health_permille, 875);
    for (int i = 0; i < 100; i++)
        (void)fail_at(NOW_NS);
    assert_int_equal(row.health_permille, 0);
    for (int i = 0; i < 100; i++)
        breaker_count_success(&row, 80 * NS_PER_MS, NOW_NS);
    assert_int_equal(row.health_permille, 1000);
    assert_int_equal(row.latency_ms, 80);
    breaker_count_success(&row, 160 * NS_PER_MS, NOW_NS);
    assert_int_equal(row.latency_ms, 90);
    breaker_count_success(&row, 10 * NS_PER_MS, NOW_NS);
    assert_int_equal(row.latency_ms, 80);
    breaker_count_success(&row, INT64_MAX, NOW_NS);
    assert_true(row.latency_ms > UINT32_MAX / 9);
}

static void the_lock_is_needed_exactly_while_there_is_something_to_know(void **state)
{
    (void)state;
    breaker_done_locked(&row);
    assert_int_equal(row.needs_lock, 0);
    assert_false(fail_at(NOW_NS));
    assert_int_equal(row.needs_lock, 1);
    succeed_at(NOW_NS);
    assert_int_equal(row.needs_lock, 0);

    breaker_begin_locked(&row);
    row.throttled_until_ns = NOW_NS + 2;
    row.out_until_ns = NOW_NS + 4;
    breaker_done_locked(&row);
    breaker_settle_locked(&row, NOW_NS + 2);
    assert_int_equal(row.throttled_until_ns, 0);
    assert_int_equal(row.needs_lock, 1);
    breaker_settle_locked(&row, NOW_NS + 4);
    assert_int_equal(row.out_until_ns, 0);
    assert_int_equal(row.needs_lock, 0);
    row.drained = 1;
    breaker_done_locked(&row);
    breaker_settle_locked(&row, NOW_NS + 400 * NS_PER_S);
    assert_int_equal(row.needs_lock, 1);
}

/* What a process leaves that dies between two writes of a change (M3). */
static void m3_every_half_made_change_is_a_valid_row(void **state)
{
    (void)state;
    breaker_begin_locked(&row); /* died before it changed anything */
    breaker_settle_locked(&row, NOW_NS);
    assert_int_equal(row.needs_lock, 0);

    breaker_begin_locked(&row); /* opening: the state was still to come */
    row.openings = 1;
    row.open_until_ns = NOW_NS + 5 * NS_PER_S;
    breaker_settle_locked(&row, NOW_NS);
    assert_false(bars(NOW_NS));
    assert_int_equal(row.needs_lock, 0);

    breaker_begin_locked(&row); /* giving the probe: likewise */
    atomic_store(&row.breaker, BREAKER_OPEN);
    row.probe_expires_ns = NOW_NS + 600 * NS_PER_S;
    atomic_store(&row.probe_held, 1);
    assert_true(breaker_take_probe_back_locked(&row, probe_at(NOW_NS + 5 * NS_PER_S)));

    atomic_store(&row.breaker, BREAKER_HALF_OPEN); /* the probe came back, no verdict yet */
    assert_true(breaker_take_probe_back_locked(&row, probe_at(NOW_NS + 5 * NS_PER_S)));

    atomic_store(&row.breaker, BREAKER_OPEN); /* closing: likewise */
    row.openings = 0;
    row.open_until_ns = 0;
    assert_true(breaker_take_probe_back_locked(&row, probe_at(NOW_NS)));
    assert_true(breaker_succeed_locked(&row, true));
    breaker_done_locked(&row);
    assert_int_equal(row.needs_lock, 0);
}

#define BREAKER_TEST(name) cmocka_unit_test_setup(name, fresh_row)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BREAKER_TEST(h7_opens_after_so_many_failures_in_a_row),
        BREAKER_TEST(h7_opens_on_the_share_of_enough_calls),
        BREAKER_TEST(h7_what_is_older_than_the_window_is_forgotten),
        BREAKER_TEST(h7_the_cooldown_doubles_up_to_its_bound_and_a_success_ends_that),
        BREAKER_TEST(h7_closing_forgets_the_window),
        BREAKER_TEST(i33_a_cooldown_is_never_shortened),
        BREAKER_TEST(h7_calls_that_fail_together_open_once),
        BREAKER_TEST(i21_a_probe_is_one_and_comes_back_once),
        BREAKER_TEST(h7_without_terms_nothing_opens),
        BREAKER_TEST(h8_health_reaches_both_ends_and_latency_follows),
        BREAKER_TEST(the_lock_is_needed_exactly_while_there_is_something_to_know),
        BREAKER_TEST(m3_every_half_made_change_is_a_valid_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
