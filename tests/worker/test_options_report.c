/* test_options_report.c - suggestions, excerpts, places: the parts of which messages are made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

static const char *suggested(const char *word, const char *candidate)
{
    struct option_suggestion suggestion;

    option_suggestion_init(&suggestion, word);
    option_suggestion_offer(&suggestion, candidate);
    return suggestion.best;
}

static void test_suggestion_is_at_most_two_edits_away(void **state)
{
    (void)state;
    assert_non_null(suggested("workers", "workers"));
    assert_non_null(suggested("wrkers", "workers"));
    assert_non_null(suggested("workerss", "workers"));
    assert_non_null(suggested("wrokers", "workers"));
    assert_non_null(suggested("WORKERS", "workers"));
    assert_non_null(suggested("wokrs", "workers"));
    assert_null(suggested("wokrse", "workers"));
    assert_null(suggested("work", "workers"));
    assert_null(suggested("", "a"));
    assert_null(suggested("x", "y"));
    assert_null(suggested("ab", "cd"));
}

static void test_nearest_candidate_wins(void **state)
{
    struct option_suggestion suggestion;
    struct text out;

    (void)state;
    text_init(&out, 100);
    option_suggestion_init(&suggestion, "log_fil");
    option_suggestion_append(&suggestion, &out);
    assert_string_equal(text_string(&out), "");
    option_suggestion_offer(&suggestion, "log_fi");
    option_suggestion_offer(&suggestion, "log_file");
    option_suggestion_offer(&suggestion, "log_foil");
    option_suggestion_offer(&suggestion, "log_filexx");
    option_suggestion_append(&suggestion, &out);
    assert_string_equal(text_string(&out), "; did you mean \"log_fi\"?");
    text_release(&out);
}

static void test_very_long_words_are_not_measured(void **state)
{
    char word[4000];

    (void)state;
    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    assert_null(suggested(word, word));
    assert_null(suggested("x", word));
}

static void test_excerpt_is_cut_and_clean(void **state)
{
    char out[OPTION_EXCERPT_SIZE];
    char value[200];

    (void)state;
    assert_string_equal(option_excerpt(out, "plain"), "plain");
    assert_string_equal(option_excerpt(out, "a\tb\xc3\xa4\x1b[31m"), "a?b???[31m");
    memset(value, 'y', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    option_excerpt(out, value);
    assert_int_equal(strlen(out), OPTION_EXCERPT_SIZE - 1);
    assert_string_equal(out + strlen(out) - 4, "y...");
    value[OPTION_EXCERPT_SIZE - 1] = '\0';
    assert_string_equal(option_excerpt(out, value), value);
}

static void test_places(void **state)
{
    static const struct {
        struct option_place place;
        const char *text;
    } cases[] = {
        {{.file = "a.conf", .line = 7}, "a.conf:7"},
        {{.file = "a.conf"}, "a.conf"},
        {{.variable = "PENSTOCK__X"}, "environment: PENSTOCK__X"},
        {{.file = NULL}, "default"},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct text out;

        text_init(&out, 100);
        option_place_text(&cases[i].place, &out);
        assert_string_equal(text_string(&out), cases[i].text);
        text_release(&out);
    }
}

/* A report too small for all lines never turns a refusal into consent. */
static void test_errors_count_even_when_the_report_is_full(void **state)
{
    static const char conf[] = "[nonsense]\n";
    struct options_input input = {.path = "t.conf", .bytes = conf, .length = sizeof conf - 1};
    struct options_surroundings around = {.environment = NULL};
    struct options *options = NULL;
    struct text report;

    (void)state;
    text_init(&report, 10);
    assert_false(options_load_inputs(&input, 1, &around, &report, &options));
    assert_null(options);
    assert_int_equal(report.length, 10);
    assert_true(report.overflowed);
    text_release(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suggestion_is_at_most_two_edits_away),
        cmocka_unit_test(test_nearest_candidate_wins),
        cmocka_unit_test(test_very_long_words_are_not_measured),
        cmocka_unit_test(test_excerpt_is_cut_and_clean),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_errors_count_even_when_the_report_is_full),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
