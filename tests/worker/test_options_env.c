/* test_options_env.c - the environment over the files: names, collisions, suggestions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

#include <ctype.h>

static void test_variables_override_the_file(void **state)
{
    static const char *const environment[] = {
        "HOME=/root",
        "PENSTOCK__IMAGE_CONCURRENCY__ENABLED=true",
        "PENSTOCK__IMAGE_CONCURRENCY__MAX_CONCURRENT_REQUESTS=8",
        "PENSTOCK__PENSTOCK__WORKERS=4",
        "PENSTOCK__SOURCE__OPENAI_A__BASE_URL=https://b.example/",
        "PENSTOCK__SOURCE__OPENAI_A__TIMEOUT_S=5m",
        "PENSTOCK__ROUTE__R1__PATH=/x/",
        NULL,
    };
    struct loading loading =
        load_with("[penstock]\nworkers = 2\n[source openai-a]\nbase_url = https://a.example\n"
                  "[route R1]\nsource = openai-a\n",
                  environment);

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_non_null(loading.options);
    assert_true(loading.options->image.active);
    assert_int_equal(loading.options->image.max_concurrent_requests, 8);
    assert_int_equal(loading.options->penstock.workers, 4);
    assert_string_equal(loading.options->sources[0].base_url, "https://b.example");
    assert_int_equal(loading.options->sources[0].timeout_ms, 300000);
    assert_string_equal(loading.options->routes[0].path, "/x/");
    unload(&loading);
}

static void test_every_option_has_a_variable(void **state)
{
    (void)state;
    for (size_t i = 0; i < option_row_count; i++) {
        const struct option_row *row = &option_rows[i];
        bool named = row->section >= OPTION_SECTION_source;
        char variable[300];
        const char *environment[] = {variable, NULL};
        struct loading loading;
        char *dump;

        (void)snprintf(variable, sizeof variable, "PENSTOCK__%s__%s%s",
                       option_section_words[row->section], named ? "a__" : "", row->key);
        for (char *at = variable; *at; at++)
            *at = (char)toupper((unsigned char)*at);
        if (strcmp(row->key, "base_url") == 0)
            strcat(variable, "=https://c.example");
        else if (strcmp(row->key, "source") == 0 || strcmp(row->key, "sources") == 0)
            strcat(variable, "=a");
        else
            (void)snprintf(variable + strlen(variable), 150, "=%s", row->fallback);
        loading = load_with(WITH_SOURCE "[scope a]\nsources = a\n[route a]\nsource = a\n"
                                        "[route b]\npath = /b\nscope = a\n",
                            environment);
        assert_string_equal(report_of(&loading), "");
        assert_non_null(loading.options);
        dump = dump_of(loading.options);
        *strchr(variable, '=') = '\0';
        assert_non_null(strstr(dump, "[environment: PENSTOCK__"));
        assert_non_null(strstr(dump, variable));
        free(dump);
        unload(&loading);
    }
}

/* One variable over a source called a; all that is said about it. */
static void check_report(const char *variable, const char *report)
{
    const char *environment[] = {variable, NULL};
    struct loading loading = load_with(WITH_SOURCE, environment);

    assert_string_equal(report_of(&loading), report);
    assert_null(loading.options);
    unload(&loading);
}

#define NO_SUCH                                                                                    \
    ": no such option; allowed: PENSTOCK__SECTION__KEY, or PENSTOCK__SECTION__NAME__KEY for a "    \
    "[source], [scope] or [route] of the configuration"

static void test_wrong_variables_are_errors(void **state)
{
    (void)state;
    check_report("PENSTOCK__IMAGE_CONCURRENCY__ENABELD=true",
                 "environment: PENSTOCK__IMAGE_CONCURRENCY__ENABELD" NO_SUCH
                 "; did you mean \"PENSTOCK__IMAGE_CONCURRENCY__ENABLED\"?\n");
    check_report("PENSTOCK__SOURCE__A__BASEURL=x",
                 "environment: PENSTOCK__SOURCE__A__BASEURL" NO_SUCH
                 "; did you mean \"PENSTOCK__SOURCE__A__BASE_URL\"?\n");
    check_report("PENSTOCK__SOURCE__OTHER__BASE_URL=x",
                 "environment: PENSTOCK__SOURCE__OTHER__BASE_URL" NO_SUCH "\n");
    check_report("PENSTOCK__", "environment: PENSTOCK__: not an option's name\n");
    check_report("PENSTOCK__=1", "environment: PENSTOCK__" NO_SUCH "\n");
    check_report("PENSTOCK__PENSTOCK__WORKERS=x",
                 "environment: PENSTOCK__PENSTOCK__WORKERS: penstock.workers: \"x\" is not a whole "
                 "number; allowed: auto, or 1 to 100\n");
    check_report("PENSTOCK__PENSTOCK__LOG_FILE=/a\nb",
                 "environment: PENSTOCK__PENSTOCK__LOG_FILE: penstock.log_file: the value has a "
                 "control character\n");
}

static void test_long_variables_are_bounded(void **state)
{
    char variable[6000] = "PENSTOCK__PENSTOCK__LOG_FILE=";
    size_t length = strlen(variable);
    const char *environment[] = {variable, NULL};
    struct loading loading;

    (void)state;
    memset(variable + length, 'x', sizeof variable - length - 1);
    loading = load_with(WITH_SOURCE, environment);
    assert_string_equal(report_of(&loading), "environment: PENSTOCK__PENSTOCK__LOG_FILE: "
                                             "penstock.log_file: the value is longer than 4096 "
                                             "bytes\n");
    unload(&loading);
    memset(variable + 10, 'X', 300);
    loading = load_with(WITH_SOURCE, environment);
    assert_non_null(strstr(report_of(&loading), "XXX...: not an option's name\n"));
    unload(&loading);
}

static void test_colliding_names_are_errors(void **state)
{
    struct loading loading =
        load("[source a-b]\nbase_url=http://localhost\n[source a_b]\nbase_url=http://localhost\n");

    (void)state;
    assert_string_equal(report_of(&loading),
                        "t.conf:3: source a_b: its variables PENSTOCK__SOURCE__A_B__* would be "
                        "those of [source a-b] too; take another name\n");
    assert_null(loading.options);
    unload(&loading);
}

static void test_names_that_contain_each_other_are_told_apart(void **state)
{
    static const char *const environment[] = {
        "PENSTOCK__SOURCE__A__BASE_URL=http://localhost:1",
        "PENSTOCK__SOURCE__A__B__BASE_URL=http://localhost:2",
        NULL,
    };
    struct loading loading =
        load_with("[source a]\n[source a--b]\n" ROUTE_PAST("a") ROUTE_PAST("a--b"), environment);

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_string_equal(loading.options->sources[0].base_url, "http://localhost:1");
    assert_string_equal(loading.options->sources[1].base_url, "http://localhost:2");
    unload(&loading);
}

static void test_PENSTOCK_UPSTREAM_is_a_source(void **state)
{
    static const char *const environment[] = {"PENSTOCK_UPSTREAM=https://u.example",
                                              "PENSTOCK__SOURCE__DEFAULT__TIMEOUT_S=7", NULL};
    struct loading loading = load_with("", environment);

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_int_equal(loading.options->source_count, 1);
    assert_string_equal(loading.options->sources[0].name, "default");
    assert_string_equal(loading.options->sources[0].base_url, "https://u.example");
    assert_int_equal(loading.options->sources[0].timeout_ms, 7000);
    assert_int_equal(loading.options->route_count, 1);
    assert_string_equal(loading.options->routes[0].path, "/v1/");
    assert_ptr_equal(loading.options->routes[0].to->members[0].source,
                     &loading.options->sources[0]);
    unload(&loading);
}

static void test_PENSTOCK_UPSTREAM_is_checked_and_its_neglect_is_told(void **state)
{
    static const char *const with_v1[] = {"PENSTOCK_UPSTREAM=https://u.example/v1/", NULL};
    static const char *const empty[] = {"PENSTOCK_UPSTREAM=", NULL};
    struct loading loading = load_with("", with_v1);

    (void)state;
    assert_string_equal(report_of(&loading),
                        "environment: PENSTOCK_UPSTREAM: source default.base_url: ends in /v1, but "
                        "a call's path, which is appended, has it already; write base_url = "
                        "https://u.example\n");
    assert_null(loading.options);
    unload(&loading);
    loading = load_with(WITH_SOURCE, with_v1);
    assert_string_equal(report_of(&loading),
                        "environment: PENSTOCK_UPSTREAM: warning: ignored, because the "
                        "configuration has a [source]; to override its URL set "
                        "PENSTOCK__SOURCE__NAME__BASE_URL\n");
    assert_non_null(loading.options);
    unload(&loading);
    loading = load_with(WITH_SOURCE, empty);
    assert_string_equal(report_of(&loading), "");
    unload(&loading);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables_override_the_file),
        cmocka_unit_test(test_every_option_has_a_variable),
        cmocka_unit_test(test_wrong_variables_are_errors),
        cmocka_unit_test(test_long_variables_are_bounded),
        cmocka_unit_test(test_colliding_names_are_errors),
        cmocka_unit_test(test_names_that_contain_each_other_are_told_apart),
        cmocka_unit_test(test_PENSTOCK_UPSTREAM_is_a_source),
        cmocka_unit_test(test_PENSTOCK_UPSTREAM_is_checked_and_its_neglect_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
