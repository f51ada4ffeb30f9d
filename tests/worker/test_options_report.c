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

/* A wrong value counts as the option's default; what is told is the error, not what would follow from
 * that default. */
static void test_what_follows_from_an_error_is_not_told(void **state)
{
#define IN(section, lines) WITH_SOURCE "[" section "]\n" lines
#define IN_SCOPE(lines) WITH_SOURCE ROUTE_TO("s") "[scope s]\n" lines
#define GATE "enabled = true\nmax_concurrent_requests = 4\noverflow_mode = wait\n"
    static const struct {
        const char *conf, *head;
    } cases[] = {
        {IN("image_concurrency", "enabled = true\nmax_concurrent_requests = many\n"),
         "t.conf:5: image_concurrency.max_concurrent_requests: \"many\""},
        {IN("image_concurrency", "max_waiting_requests = 5\noverflow_mode = wiat\n"),
         "t.conf:5: image_concurrency.overflow_mode: \"wiat\""},
        {IN("image_concurrency", "max_waiting_requests = 5\noverflow_mod = wait\n"),
         "t.conf:5: image_concurrency.overflow_mod: unknown option"},
        {IN("penstock",
            "workers = 1\nthreads = 1\nreserve_percent = x\n[image_concurrency]\n" GATE),
         "t.conf:6: penstock.reserve_percent: \"x\""},
        {IN("penstock",
            "workers = 1\nthreads = 5\n[image_concurrency]\n" GATE "max_waiting_requests = x\n"),
         "t.conf:10: image_concurrency.max_waiting_requests: \"x\""},
        {IN("penstock", "spool_max = 10m\nmax_multipart_body = 8x\n"),
         "t.conf:5: penstock.max_multipart_body: \"8x\""},
        {IN("route r", "path = v1/\nstrip_prefix = /v1\nsource = a\n"), "t.conf:4: route r.path: "},
        {IN_SCOPE("backoff_base_s = 20\nbackoff_max_s = x\nsources = a\n"),
         "t.conf:8: scope s.backoff_max_s: \"x\""},
        {IN_SCOPE("hedge_after_s = 3\nsources = a, b\n"), "t.conf:8: scope s.sources: there is no"},
        {IN_SCOPE("sources = a,,a\n"), "t.conf:7: scope s.sources: an entry is empty"},
        {IN_SCOPE("sources = a*3\nbalance = wieghted\n"), "t.conf:8: scope s.balance: "},
        {IN_SCOPE("source = a\n"), "t.conf:7: scope s.source: unknown option"},
        {IN_SCOPE("hedge_after_s = 700\nsources = c, d\n[source c]\nbase_url = https://c.example\n"
                  "timeout_s = x\n[source d]\nbase_url = https://d.example\ntimeout_s = 800\n")
             ROUTE_PAST("a"),
         "t.conf:11: source c.timeout_s: \"x\""},
        {IN_SCOPE("sources = a\nflow = adaptive\nflow_weights = 3,,1\n"),
         "t.conf:9: scope s.flow_weights: an entry is empty"},
        {IN_SCOPE("sources = a\nflow = adaptive\nflow_max_waiting = x\n"
                  "flow_max_waiting_per_client = 3000\n"),
         "t.conf:9: scope s.flow_max_waiting: \"x\""},
        {IN_SCOPE("sources = a\nflow_class = bulk\n[image_concurrency]\nenabled = "
                  "yess\noverflow_mode = wait\n"
                  "class_weights = 3, 2, 1\n"),
         "t.conf:10: image_concurrency.enabled: \"yess\""},
        {WITH_SOURCE
         "flow_unit = taks\nrpm = 4\n" ROUTE_TO("s") "[scope s]\nsources = a\nflow = shaping\n",
         "t.conf:3: source a.flow_unit: \"taks\""},
        {WITH_SOURCE "dialect = dashscop\ndashscope_wait_s = 4\n", "t.conf:3: source a.dialect: "},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct loading loading = load(cases[i].conf);
        const char *report = report_of(&loading);

        assert_null(loading.options);
        assert_memory_equal(report, cases[i].head, strlen(cases[i].head));
        assert_string_equal(strchr(report, '\n') + 1, "");
        unload(&loading);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suggestion_is_at_most_two_edits_away),
        cmocka_unit_test(test_nearest_candidate_wins),
        cmocka_unit_test(test_very_long_words_are_not_measured),
        cmocka_unit_test(test_excerpt_is_cut_and_clean),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_what_follows_from_an_error_is_not_told),
        cmocka_unit_test(test_errors_count_even_when_the_report_is_full),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
