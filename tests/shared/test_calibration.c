/* test_calibration.c - the ratio of usage to estimate, and the length of answers, as they are learned
 * (F6). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shared/calibration.h"

#include <math.h>
#include <stdlib.h>

static void F6_nothing_learned_changes_nothing(void **state)
{
    const struct estimate_row row = {0};

    (void)state;
    assert_int_equal(calibration_input(&row, 1234), 1234);
    assert_int_equal(calibration_input(&row, 0), 0);
    assert_int_equal(calibration_input(&row, -5), 0);
    assert_int_equal(calibration_output(&row, -1), CALIBRATION_OUTPUT_TOKENS);
    assert_int_equal(calibration_output(&row, 20), 20);
    assert_int_equal(calibration_output(&row, 0), 0);
}

static void F6_a_young_average_is_the_mean(void **state)
{
    struct estimate_row row = {0};

    (void)state;
    calibration_learn(&row, 100, 150, 10);
    assert_int_equal(row.ratio_ppm, 1500000);
    assert_int_equal(calibration_input(&row, 1000), 1500);
    assert_int_equal(calibration_output(&row, -1), 10);
    calibration_learn(&row, 100, 50, 30);
    assert_int_equal(row.ratio_ppm, 1000000);
    assert_int_equal(calibration_output(&row, -1), 20);
    calibration_learn(&row, 100, 130, 50);
    assert_int_equal(row.ratio_ppm, 1100000);
    assert_int_equal(calibration_output(&row, 25), 25);
}

/* Against the formula in floating point, alpha = max(0.05, 1/n). */
static void F6_follows_the_formula(void **state)
{
    struct estimate_row row = {0};
    double ratio = 0, output = 0;

    (void)state;
    srand(4);
    for (int n = 1; n <= 5000; n++) {
        int64_t estimate = 1 + rand() % 100000;
        int64_t used = estimate * (50 + rand() % 200) / 100 + 1;
        int64_t answer = 1 + rand() % 5000;
        double sample = (double)used / (double)estimate;
        double alpha = n < 20 ? 1.0 / n : 0.05;

        sample = sample < 0.4 ? 0.4 : sample > 2.5 ? 2.5 : sample;
        ratio += (sample - ratio) * alpha;
        output += ((double)answer - output) * alpha;
        calibration_learn(&row, estimate, used, answer);
        assert_true(fabs(row.ratio_ppm / 1e6 - ratio) < 3e-5);
        assert_true(fabs((double)row.output_parts / 1e3 - output) < 0.05);
    }
}

static void F6_old_averages_forget(void **state)
{
    struct estimate_row row = {0};
    int calls = 0;

    (void)state;
    for (int i = 0; i < 1000; i++)
        calibration_learn(&row, 1000, 1000, 100);
    for (; row.ratio_ppm < 1900000; calls++)
        calibration_learn(&row, 1000, 2000, 100);
    assert_in_range(calls, 43, 47); /* 0.95^45 = 0.1 */
}

/* No rounding may hold the average back: it arrives. */
static void F6_small_differences_are_learned_too(void **state)
{
    struct estimate_row row = {0};

    (void)state;
    for (int i = 0; i < 100; i++)
        calibration_learn(&row, 1000000, 1000000, 100);
    for (int i = 0; i < 1000; i++)
        calibration_learn(&row, 1000000, 1001000, 101);
    assert_in_range(row.ratio_ppm, 1000985, 1001000);
    assert_in_range(row.output_parts, 100985, 101000);
}

static void F6_what_was_not_told_teaches_nothing(void **state)
{
    struct estimate_row row = {0};

    (void)state;
    calibration_learn(&row, 100, 120, 40);
    const struct estimate_row before = row;

    calibration_learn(&row, 100, 0, 0);
    calibration_learn(&row, 100, -1, -1);
    calibration_learn(&row, 0, 50, 0);
    calibration_learn(&row, -3, 50, -7);
    assert_memory_equal(&row, &before, sizeof row);
    calibration_learn(&row, 100, 120, 0);
    assert_int_equal(row.ratio_samples, 2);
    assert_int_equal(row.output_samples, 1);
}

static void F6_stays_within_its_bounds(void **state)
{
    static const int64_t odd[] = {1, 2, 1000, INT64_C(1) << 40, INT64_C(1) << 41, INT64_MAX};
    struct estimate_row row = {.ratio_samples = UINT32_MAX,
                               .output_samples = UINT32_MAX,
                               .ratio_ppm = 1000000,
                               .output_parts = 1000};

    (void)state;
    for (int i = 0; i < 2000; i++) {
        int64_t estimate = odd[rand() % 6], input = odd[rand() % 6], output = odd[rand() % 6];

        calibration_learn(&row, estimate, input, output);
        assert_in_range(row.ratio_ppm, CALIBRATION_RATIO_MIN_PPM, CALIBRATION_RATIO_MAX_PPM);
        assert_true(row.output_parts > 0 && row.output_parts <= CALIBRATION_TOKENS_MAX * 1000);
        assert_true(calibration_input(&row, estimate) >= 1);
        assert_true(calibration_output(&row, -1) >= 0);
        assert_int_equal(row.ratio_samples, UINT32_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F6_nothing_learned_changes_nothing),
        cmocka_unit_test(F6_a_young_average_is_the_mean),
        cmocka_unit_test(F6_follows_the_formula),
        cmocka_unit_test(F6_old_averages_forget),
        cmocka_unit_test(F6_small_differences_are_learned_too),
        cmocka_unit_test(F6_what_was_not_told_teaches_nothing),
        cmocka_unit_test(F6_stays_within_its_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
