/* test_calibration.c - the ratios of usage to estimate, and the length of answers, as they are learned
 * (F6). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shared/calibration.h"

#include <math.h>
#include <stdlib.h>

static int64_t input_of(const struct estimate_row *row, int64_t tokens, int64_t script)
{
    const struct token_estimate estimate = {.tokens = tokens, .script = script};

    return calibration_tokens(calibration_ratios(row), &estimate);
}

static void learn(struct estimate_row *row, int64_t tokens, int64_t script, int64_t input,
                  int64_t output)
{
    const struct token_estimate estimate = {.tokens = tokens, .script = script};

    calibration_learn(row, &estimate, input, output);
}

static bool is_near(double a, double b, double by)
{
    return fabs(a - b) <= by;
}

static double chance(void)
{
    return rand() / (double)RAND_MAX;
}

static void F6_nothing_learned_changes_nothing(void **state)
{
    const struct estimate_row row = {0};

    (void)state;
    assert_int_equal(input_of(&row, 1234, 0), 1234);
    assert_int_equal(input_of(&row, 1234, 1000), 1234);
    assert_int_equal(input_of(&row, 0, 0), 0);
    assert_int_equal(input_of(&row, -5, 7), 0);
    assert_int_equal(calibration_output(&row, -1), CALIBRATION_OUTPUT_TOKENS);
    assert_int_equal(calibration_output(&row, 20), 20);
    assert_int_equal(calibration_output(&row, 0), 0);
}

/* Whatever they are written in: one kind of calls has one ratio, and it is taken for other kinds, too. */
static void F6_a_young_average_is_the_mean(void **state)
{
    (void)state;
    for (int64_t script = 0; script <= 100; script += 25) {
        struct estimate_row row = {0};

        learn(&row, 100, script, 150, 10);
        assert_int_equal(input_of(&row, 1000, 10 * script), 1500);
        assert_int_equal(calibration_output(&row, -1), 10);
        learn(&row, 100, script, 50, 30);
        assert_int_equal(input_of(&row, 1000, 10 * script), 1000);
        assert_int_equal(input_of(&row, 1000, 1000 - 10 * script), 1000);
        assert_int_equal(calibration_output(&row, -1), 20);
        learn(&row, 100, script, 130, 50);
        assert_int_equal(input_of(&row, 1000, 10 * script), 1100);
        assert_int_equal(calibration_output(&row, 25), 25);
    }
}

/* Of one kind of calls: the moving average with alpha = max(0.05, 1/n). */
static void F6_follows_the_formula(void **state)
{
    (void)state;
    srand(4);
    for (int64_t kind = 0; kind < 2; kind++) {
        struct estimate_row row = {0};
        double ratio = 0, output = 0;

        for (int n = 1; n <= 5000; n++) {
            int64_t estimate = 1 + rand() % 100000;
            int64_t used = estimate * (50 + rand() % 200) / 100 + 1;
            int64_t answer = 1 + rand() % 5000;
            double sample = (double)used / (double)estimate;
            double alpha = n < 20 ? 1.0 / n : 0.05;

            sample = sample < 0.4 ? 0.4 : sample > 2.5 ? 2.5 : sample;
            ratio += (sample - ratio) * alpha;
            output += ((double)answer - output) * alpha;
            learn(&row, estimate, kind * estimate, used, answer);
            assert_true(is_near(calibration_ratios(&row).latin, ratio, 1e-9));
            assert_true(is_near(calibration_ratios(&row).script, ratio, 1e-9));
            assert_true(is_near((double)row.output_parts / 1e3, output, 0.05));
        }
    }
}

/* The first calls against the least squares themselves: no other pair of ratios has a smaller sum. */
static void F6_two_ratios_are_the_least_squares(void **state)
{
    (void)state;
    srand(5);
    for (int round = 0; round < 200; round++) {
        struct estimate_row row = {0};
        double share[20], y[20];
        int count = 2 + rand() % 18;

        for (int i = 0; i < count; i++) {
            int64_t script = rand() % 1001, used = 600 + rand() % 1400;

            share[i] = (double)script / 1000;
            y[i] = (double)used / 1000;
            learn(&row, 1000, script, used, 0);
        }
        const struct token_ratios best = calibration_ratios(&row);

        for (int step = 0; step < 9; step++) {
            double latin = best.latin + (step % 3 - 1) * 0.01;
            double script = best.script + (step / 3 - 1) * 0.01;
            double sum = 0.1 * (script - latin) * (script - latin), least;

            least = 0.1 * (best.script - best.latin) * (best.script - best.latin);
            for (int i = 0; i < count; i++) {
                double off = (1 - share[i]) * latin + share[i] * script - y[i];
                double at_best = (1 - share[i]) * best.latin + share[i] * best.script - y[i];

                sum += off * off;
                least += at_best * at_best;
            }
            /* At a bound the best pair of all may lie beyond. */
            if (best.latin > 0.41 && best.latin < 2.49 && best.script > 0.41 && best.script < 2.49)
                assert_true(sum >= least - 1e-9);
        }
    }
}

static void F6_mixed_scripts_are_told_apart(void **state)
{
    (void)state;
    srand(6);
    for (int round = 0; round < 100; round++) {
        const double latin = 0.5 + 1.5 * chance(), script = 0.5 + 1.5 * chance();
        struct estimate_row row = {0};

        for (int i = 0; i < 300; i++) {
            int64_t tokens = 1000 + rand() % 100000;
            int64_t of_script = rand() % 4 ? 0 : (int64_t)(chance() * (double)tokens);
            double used = (double)(tokens - of_script) * latin + (double)of_script * script;

            learn(&row, tokens, of_script, (int64_t)(used * (0.97 + 0.06 * chance())), 100);
        }
        assert_true(is_near(calibration_ratios(&row).latin, latin, 0.06));
        assert_true(is_near(calibration_ratios(&row).script, script, 0.25));
        assert_true(calibration_is_possible(&row));
    }
}

/* Chinese once a month is not learned anew each time. */
static void F6_what_is_seldom_is_not_forgotten(void **state)
{
    struct estimate_row row = {0};

    (void)state;
    for (int i = 0; i < 20; i++)
        learn(&row, 1000, 800, 1600, 100);
    for (int i = 0; i < 100000; i++)
        learn(&row, 1000, i % 3, 1000, 100);
    assert_in_range(input_of(&row, 1000, 0), 995, 1005);
    assert_in_range(input_of(&row, 1000, 800), 1550, 1650);
}

static void F6_old_averages_forget(void **state)
{
    struct estimate_row row = {0};
    int calls = 0;

    (void)state;
    for (int i = 0; i < 1000; i++)
        learn(&row, 1000, 300, 1000, 100);
    for (; input_of(&row, 1000, 300) < 1900; calls++)
        learn(&row, 1000, 300, 2000, 100);
    assert_in_range(calls, 43, 47); /* 0.95^45 = 0.1 */
}

/* No rounding may hold the average back: it arrives. */
static void F6_small_differences_are_learned_too(void **state)
{
    struct estimate_row row = {0};

    (void)state;
    for (int i = 0; i < 100; i++)
        learn(&row, 1000000, 0, 1000000, 100);
    for (int i = 0; i < 1000; i++)
        learn(&row, 1000000, 0, 1001000, 101);
    assert_in_range(input_of(&row, 1000000, 0), 1000985, 1001000);
    assert_in_range(row.output_parts, 100985, 101000);
}

static void F6_what_was_not_told_teaches_nothing(void **state)
{
    struct estimate_row row = {0};

    (void)state;
    learn(&row, 100, 10, 120, 40);
    const struct estimate_row before = row;

    learn(&row, 100, 10, 0, 0);
    learn(&row, 100, 10, -1, -1);
    learn(&row, 0, 0, 50, 0);
    learn(&row, -3, 5, 50, -7);
    assert_memory_equal(&row, &before, sizeof row);
    learn(&row, 100, 10, 120, 0);
    assert_int_equal(row.ratio_samples, 2);
    assert_int_equal(row.output_samples, 1);
}

static void F6_stays_within_its_bounds(void **state)
{
    static const int64_t odd[] = {1, 2, 1000, INT64_C(1) << 40, INT64_C(1) << 41, INT64_MAX};
    static const int64_t scripts[] = {0, 1, 500, INT64_MAX, INT64_MIN, INT64_C(1) << 39};
    struct estimate_row row = {0};

    (void)state;
    srand(7);
    for (int i = 0; i < 20000; i++) {
        int64_t estimate = odd[rand() % 6], input = odd[rand() % 6], output = odd[rand() % 6];
        int64_t script = scripts[rand() % 6];

        if (i == 10000)
            row.ratio_samples = row.output_samples = UINT32_MAX;
        if (i % 5000 > 2500) /* also long runs of one kind */
            script = 0;
        learn(&row, estimate, script, input, output);
        const struct token_ratios ratios = calibration_ratios(&row);

        assert_true(ratios.latin >= 0.4 && ratios.latin <= 2.5);
        assert_true(ratios.script >= 0.4 && ratios.script <= 2.5);
        assert_true(calibration_is_possible(&row));
        assert_true(row.output_parts > 0 && row.output_parts <= CALIBRATION_TOKENS_MAX * 1000);
        assert_true(input_of(&row, estimate, script) >= 1);
        assert_true(calibration_output(&row, -1) >= 0);
        assert_true(i < 10000 || row.ratio_samples == UINT32_MAX);
    }
}

static void F5_what_learning_cannot_bring_about(void **state)
{
    struct estimate_row row = {0}, wrong;

    (void)state;
    assert_false(calibration_is_possible(&row)); /* nothing is no memory */
    learn(&row, 1000, 300, 1200, 100);
    learn(&row, 1000, 700, 1300, 100);
    assert_true(calibration_is_possible(&row));
#define WRONG(field, value)                                                                        \
    do {                                                                                           \
        wrong = row;                                                                               \
        wrong.field = (value);                                                                     \
        assert_false(calibration_is_possible(&wrong));                                             \
    } while (0)
    WRONG(latin_latin, (double)NAN);
    WRONG(latin_script, (double)NAN);
    WRONG(script_script, (double)INFINITY);
    WRONG(latin_used, (double)NAN);
    WRONG(script_used, -(double)INFINITY);
    WRONG(latin_latin, -1);
    WRONG(script_script, 1e300);
    WRONG(latin_script, 2); /* more than both together */
    WRONG(latin_script, -1e200);
    WRONG(output_parts, 0);
    WRONG(output_parts, INT64_MAX);
#undef WRONG
    wrong = (struct estimate_row){.ratio_samples = 5};
    assert_false(calibration_is_possible(&wrong));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F6_nothing_learned_changes_nothing),
        cmocka_unit_test(F6_a_young_average_is_the_mean),
        cmocka_unit_test(F6_follows_the_formula),
        cmocka_unit_test(F6_two_ratios_are_the_least_squares),
        cmocka_unit_test(F6_mixed_scripts_are_told_apart),
        cmocka_unit_test(F6_what_is_seldom_is_not_forgotten),
        cmocka_unit_test(F6_old_averages_forget),
        cmocka_unit_test(F6_small_differences_are_learned_too),
        cmocka_unit_test(F6_what_was_not_told_teaches_nothing),
        cmocka_unit_test(F6_stays_within_its_bounds),
        cmocka_unit_test(F5_what_learning_cannot_bring_about),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
