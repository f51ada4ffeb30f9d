/* test_counters.c - counters and histograms in the segment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "shared/counters.h"

#include <pthread.h>
#include <string.h>

static struct counters_area area;

static int set_up(void **state)
{
    (void)state;
    memset(&area, 0, sizeof area);
    return 0;
}

static void counters_add_up(void **state)
{
    (void)state;
    counter_add(&area, COUNTER_requests, 1);
    counter_add(&area, COUNTER_requests, 41);
    assert_int_equal(counter_value(&area, COUNTER_requests), 42);
    assert_int_equal(counter_value(&area, COUNTER_requests_ok), 0);
}

static void every_counter_has_a_name_and_a_sentence(void **state)
{
    (void)state;
    assert_string_equal(counter_name(COUNTER_requests), "requests");
    for (unsigned which = 0; which < COUNTERS; which++) {
        assert_non_null(counter_name((enum counter)which));
        assert_true(strlen(counter_help((enum counter)which)) > 10);
    }
}

static void *add_many(void *context)
{
    (void)context;
    for (unsigned i = 0; i < 50000; i++)
        counter_add(&area, COUNTER_bytes_in, 3);
    return NULL;
}

static void no_addition_is_lost_between_threads(void **state)
{
    pthread_t threads[4];

    (void)state;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, NULL), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(counter_value(&area, COUNTER_bytes_in), 4 * 50000 * 3);
}

static void a_duration_falls_into_the_bucket_whose_bound_it_does_not_pass(void **state)
{
    struct histogram_row *row = &area.queue_wait;

    (void)state;
    histogram_add(row, 0);
    histogram_add(row, -5); /* clocks of two processes: never negative in the sum */
    histogram_add(row, 5 * NS_PER_MS);
    histogram_add(row, 5 * NS_PER_MS + 1);
    histogram_add(row, 900 * NS_PER_S);
    histogram_add(row, 901 * NS_PER_S);
    assert_int_equal(row->buckets[0], 3);
    assert_int_equal(row->buckets[1], 1);
    assert_int_equal(row->buckets[HISTOGRAM_BUCKETS - 1], 1);
    assert_int_equal(row->buckets[HISTOGRAM_BUCKETS], 1);
    assert_int_equal(row->count, 6);
    assert_int_equal(row->sum_us, 10000 + 1801000000);
}

static void bounds_grow(void **state)
{
    (void)state;
    for (unsigned i = 1; i < HISTOGRAM_BUCKETS; i++)
        assert_true(histogram_bounds_s[i] > histogram_bounds_s[i - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(counters_add_up, set_up),
        cmocka_unit_test_setup(every_counter_has_a_name_and_a_sentence, set_up),
        cmocka_unit_test_setup(no_addition_is_lost_between_threads, set_up),
        cmocka_unit_test_setup(a_duration_falls_into_the_bucket_whose_bound_it_does_not_pass,
                               set_up),
        cmocka_unit_test_setup(bounds_grow, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
