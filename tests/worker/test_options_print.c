/* test_options_print.c - the dump, the example and the manual hold every option, and the example
 * loads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

/* What the function prints; the caller frees it. */
static char *printed(void (*print)(FILE *out))
{
    char *bytes = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&bytes, &length);

    assert_non_null(out);
    print(out);
    assert_int_equal(fclose(out), 0);
    return bytes;
}

static void assert_line_in(const char *text, const char *line)
{
    char framed[1200];

    (void)snprintf(framed, sizeof framed, "\n%s\n", line);
    if (!strstr(text, framed))
        fail_msg("there is no line: %s", line);
}

static void test_example_has_every_option_with_its_default(void **state)
{
    char *example = printed(options_print_example);

    (void)state;
    for (size_t i = 0; i < option_row_count; i++) {
        char line[1000];

        (void)snprintf(line, sizeof line, ";%s =%s%s", option_rows[i].key,
                       *option_rows[i].fallback ? " " : "", option_rows[i].fallback);
        assert_line_in(example, line);
    }
    assert_line_in(example, "[penstock]");
    assert_line_in(example, "[image_concurrency]");
    assert_line_in(example, ";[source NAME]");
    free(example);
}

static void test_help_is_wrapped_at_78_columns(void **state)
{
    char *example = printed(options_print_example);
    char *rest = example;

    (void)state;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n"))
        if (line[0] == '#')
            assert_true(strlen(line) <= 78);
    free(example);
}

static void test_example_as_it_stands_changes_nothing(void **state)
{
    static const char *const environment[] = {"PENSTOCK_UPSTREAM=https://u.example", NULL};
    char *example = printed(options_print_example);
    struct loading with = load_with(example, environment);
    struct loading without = load_with("", environment);
    char *with_dump;
    char *without_dump;

    (void)state;
    assert_string_equal(report_of(&with), "");
    assert_non_null(with.options);
    with_dump = dump_of(with.options);
    without_dump = dump_of(without.options);
    assert_string_equal(with_dump, without_dump);
    free(with_dump);
    free(without_dump);
    unload(&with);
    unload(&without);
    free(example);
}

/* Every default line without its ";" is a value the loader takes. */
static void test_example_uncommented_loads(void **state)
{
    char *example = printed(options_print_example);
    struct loading loading;
    size_t lines = 0;

    (void)state;
    for (char *at = example; (at = strstr(at, "\n;")) != NULL;)
        at[1] = ' ';
    loading = load(example);
    /* What has no default; everything else is said to be fine. */
    assert_non_null(strstr(report_of(&loading), "source NAME.base_url: is missing"));
    assert_non_null(strstr(report_of(&loading), "route NAME.source: is missing"));
    assert_non_null(strstr(report_of(&loading), "scope NAME.sources: is missing"));
    for (const char *at = report_of(&loading); *at; at++)
        lines += *at == '\n';
    assert_int_equal(lines, 3);
    unload(&loading);
    free(example);
}

static void test_manual_has_every_option_and_is_plain_mdoc(void **state)
{
    char *manual = printed(options_print_manual);
    char *rest = manual;

    (void)state;
    for (size_t i = 0; i < option_row_count; i++) {
        char line[200];

        (void)snprintf(line, sizeof line, ".It Ic %s", option_rows[i].key);
        assert_line_in(manual, line);
    }
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        /* Nothing but the end of a section's head needs an escape. */
        assert_true(!strchr(line, '\\') || strncmp(line, ".Ss ", 4) == 0);
        if (line[0] == '.')
            assert_true(strncmp(line, ".It Ic ", 7) == 0 || strncmp(line, ".Ss ", 4) == 0 ||
                        strcmp(line, ".Bl -tag -width Ds") == 0 || strcmp(line, ".El") == 0);
        assert_true(line[0] != '\'');
    }
    free(manual);
}

static void test_dump_has_every_option_with_its_origin(void **state)
{
    struct loading loading = load(WITH_SOURCE "[penstock]\nworkers = 3\nlog_level = \"debug\"\n"
                                              "[scope s]\nsources = a\nhedge_after_s = 1500ms\n");
    char *dump = dump_of(loading.options);

    (void)state;
    assert_non_null(strstr(dump, "penstock.workers = 3                    "));
    assert_non_null(strstr(dump, "[t.conf:4]\npenstock.threads = auto (64) "));
    assert_non_null(strstr(dump, "penstock.log_level = debug"));
    assert_non_null(strstr(dump, "source a.base_url = https://a.example"));
    assert_non_null(strstr(dump, "scope s.sources = a "));
    assert_non_null(strstr(dump, "scope s.hedge_after_s = 1500ms "));
    assert_non_null(strstr(dump, "scope s.retry_budget = 2   "));
    assert_non_null(strstr(dump, "route default.scope = s "));
    assert_non_null(strstr(dump,
                           "image_concurrency.image_first_byte_timeout_seconds = 900 (idle: the "
                           "gate is off)  [default]\n"));
    for (size_t i = 0; i < option_row_count; i++)
        assert_non_null(strstr(dump, option_rows[i].key));
    free(dump);
    unload(&loading);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_example_has_every_option_with_its_default),
        cmocka_unit_test(test_help_is_wrapped_at_78_columns),
        cmocka_unit_test(test_example_as_it_stands_changes_nothing),
        cmocka_unit_test(test_example_uncommented_loads),
        cmocka_unit_test(test_manual_has_every_option_and_is_plain_mdoc),
        cmocka_unit_test(test_dump_has_every_option_with_its_origin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
