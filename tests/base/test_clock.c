/* test_clock.c - true and false clocks, poll's milliseconds, times as people read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"

#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static void a_false_clock_moves_only_when_told(void **state)
{
    (void)state;
    clock_set_false(5 * NS_PER_S, 1700000000000);
    assert_int_equal(clock_monotonic_ns(), 5 * NS_PER_S);
    assert_int_equal(clock_monotonic_ns(), 5 * NS_PER_S);
    assert_int_equal(clock_wall_ms(), 1700000000000);
    clock_advance_false(1500 * NS_PER_MS);
    assert_int_equal(clock_monotonic_ns(), 6500 * NS_PER_MS);
    assert_int_equal(clock_wall_ms(), 1700000001500);
    clock_set_false(1, 2);
    assert_int_equal(clock_monotonic_ns(), 1);
    assert_int_equal(clock_wall_ms(), 2);
    clock_set_true();
}

static void the_true_clocks_are_the_kernels(void **state)
{
    struct timespec before;
    struct timespec wall;
    int64_t now_ns;

    (void)state;
    clock_set_false(1, 1);
    clock_set_true();
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &before), 0);
    now_ns = clock_monotonic_ns();
    assert_true(now_ns >= before.tv_sec * NS_PER_S + before.tv_nsec);
    assert_true(clock_monotonic_ns() >= now_ns);
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &wall), 0);
    assert_in_range(clock_wall_ms() - (int64_t)wall.tv_sec * 1000, 0, 60000);
}

static void poll_never_wakes_too_early(void **state)
{
    static const struct {
        int64_t now_ns, until_ns;
        int ms;
    } cases[] = {
        {0, CLOCK_NEVER, -1},
        {5, 5, 0},
        {6, 5, 0},
        {0, 1, 1}, /* 0 would spin until the nanosecond has passed */
        {0, NS_PER_MS, 1},
        {0, NS_PER_MS + 1, 2},
        {NS_PER_S, 2 * NS_PER_S, 1000},
        {0, CLOCK_NEVER - 1, INT_MAX},
        {-NS_PER_MS, NS_PER_MS, 2},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++)
        assert_int_equal(clock_poll_ms(cases[i].now_ns, cases[i].until_ns), cases[i].ms);
}

static void people_read_utc_with_milliseconds(void **state)
{
    static const struct {
        int64_t wall_ms;
        const char *text;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {999, "1970-01-01T00:00:00.999Z"},
        {1709210096007, "2024-02-29T12:34:56.007Z"},
        {253402300799999, "9999-12-31T23:59:59.999Z"},
    };
    char text[CLOCK_ISO_SIZE];

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        clock_iso(cases[i].wall_ms, text);
        assert_string_equal(text, cases[i].text);
    }
}

/* Every day of 1,100 years, against the library. */
static void the_calendar_is_the_librarys(void **state)
{
    char text[CLOCK_ISO_SIZE], expected[CLOCK_ISO_SIZE];

    (void)state;
    for (int64_t day = 0; day < 401768; day++) {
        time_t seconds = (time_t)(day * 86400 + day % 86400);
        struct tm parts;

        assert_non_null(gmtime_r(&seconds, &parts));
        assert_int_equal(strftime(expected, sizeof expected, "%Y-%m-%dT%H:%M:%S.042Z", &parts), 24);
        clock_iso(seconds * 1000 + 42, text);
        assert_string_equal(text, expected);
    }
}

/* A time no calendar of four digits has must not overrun the buffer either. */
static void an_absurd_time_stays_within_its_buffer(void **state)
{
    char text[CLOCK_ISO_SIZE + 8];

    (void)state;
    memset(text, '#', sizeof text);
    clock_iso(INT64_MAX, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
    clock_iso(INT64_MIN, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    assert_memory_equal(text + CLOCK_ISO_SIZE, "########", 8);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

static void sleep_goes_on_through_signals(void **state)
{
    const struct sigaction act = {.sa_handler = on_alarm};
    const struct itimerval often = {.it_interval = {.tv_usec = 2000}, .it_value = {.tv_usec = 1}};
    const struct itimerval never = {.it_value = {.tv_sec = 0}};
    struct sigaction old;
    int64_t began_ns;

    (void)state;
    alarms = 0;
    assert_int_equal(sigaction(SIGALRM, &act, &old), 0);
    began_ns = clock_monotonic_ns();
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    clock_sleep_ns(20 * NS_PER_MS);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_true(clock_monotonic_ns() - began_ns >= 20 * NS_PER_MS);
    assert_true(alarms > 0);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_false_clock_moves_only_when_told),
        cmocka_unit_test(the_true_clocks_are_the_kernels),
        cmocka_unit_test(poll_never_wakes_too_early),
        cmocka_unit_test(people_read_utc_with_milliseconds),
        cmocka_unit_test(the_calendar_is_the_librarys),
        cmocka_unit_test(an_absurd_time_stays_within_its_buffer),
        cmocka_unit_test(sleep_goes_on_through_signals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
