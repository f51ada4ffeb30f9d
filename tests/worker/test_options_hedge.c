/* test_options_hedge.c - the guards of H16: what is an error, what a warning, and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

/* Two sources of two accounts; the scope's options begin in line 8. */
#define SCOPE(a_more, b_more)                                                                      \
    "[source a]\nbase_url = https://a.example\n" a_more                                            \
    "\n[source b]\nbase_url = https://b.example\n" b_more "\n[scope s]\nsources = a, b\n"
#define IN_SCOPE SCOPE("", "")
#define AFTER "scope s.hedge_after_s: "

static void check_all(const struct load_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_load_case(&cases[i]);
}

static void test_H10_off_by_default_and_empty_is_off(void **state)
{
    static const char *const empty[] = {"PENSTOCK__SCOPE__S__HEDGE_AFTER_S=", NULL};
    struct loading loading = load(IN_SCOPE);

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_int_equal(loading.options->scopes[0].hedge_after_ms, -1);
    unload(&loading);
    /* The variable takes away what a file sets. */
    loading = load_with(IN_SCOPE "hedge_after_s = 5\n", empty);
    assert_string_equal(report_of(&loading), "");
    assert_int_equal(loading.options->scopes[0].hedge_after_ms, -1);
    unload(&loading);
}

static void test_R40_hedge_after_is_finite_and_above_zero(void **state)
{
    static const char *const bad[] = {"-1", "nan", "NaN", "inf", "Infinity", "x", "1e400", "1 2"};
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"1", 1000}, {"0.25", 250}, {"800ms", 800}, {"1m", 60000}, {"", -1}};
    static const char *const zero[] = {"0", "0.0", "0s", "0ms", "86401"};
    char conf[400];
    char report[400];
    struct loading loading;

    (void)state;
    for (size_t i = 0; i < LENGTH(bad) + LENGTH(zero); i++) {
        bool is_bad = i < LENGTH(bad);
        const char *text = is_bad ? bad[i] : zero[i - LENGTH(bad)];

        (void)snprintf(conf, sizeof conf, IN_SCOPE "hedge_after_s = %s\n", text);
        (void)snprintf(report, sizeof report,
                       "t.conf:9: " AFTER "%s%s%s; allowed: more than 0, to 86400 seconds, or with "
                       "a unit: ms, s, m, h, d%s\n",
                       is_bad ? "\"" : "", text, is_bad ? "\" is not a time" : " is out of range",
                       strcmp(text, "0") == 0 ? "; to send no second attempt leave it empty" : "");
        loading = load(conf);
        assert_string_equal(report_of(&loading), report);
        assert_null(loading.options);
        unload(&loading);
    }
    for (size_t i = 0; i < LENGTH(good); i++) {
        (void)snprintf(conf, sizeof conf, IN_SCOPE "hedge_after_s = %s\n", good[i].text);
        loading = load(conf);
        assert_string_equal(report_of(&loading), "");
        assert_int_equal(loading.options->scopes[0].hedge_after_ms, good[i].ms);
        unload(&loading);
    }
}

static void test_R35_at_or_above_call_deadline_is_an_error(void **state)
{
    static const struct load_case cases[] = {
        {IN_SCOPE "call_deadline_s = 30\nhedge_after_s = 29999ms", "", false},
        {IN_SCOPE "call_deadline_s = 30\nhedge_after_s = 30",
         "t.conf:10: " AFTER "30 s is not less than call_deadline_s, so no second attempt could "
         "begin; allowed: less than 30 s\n",
         true},
        {IN_SCOPE "call_deadline_s = 30\nhedge_after_s = 30.5",
         "t.conf:10: " AFTER
         "30500 ms is not less than call_deadline_s, so no second attempt could "
         "begin; allowed: less than 30 s\n",
         true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_R36_at_or_above_the_least_timeout_is_an_error(void **state)
{
    static const struct load_case cases[] = {
        {SCOPE("", "timeout_s = 20") "hedge_after_s = 19.9", "", false},
        {SCOPE("", "timeout_s = 20") "hedge_after_s = 20",
         "t.conf:9: " AFTER "20 s is not less than timeout_s of source b, so no second attempt "
         "could begin beside it; allowed: less than 20 s\n",
         true},
        {SCOPE("timeout_s = 10", "timeout_s = 20") "hedge_after_s = 15",
         "t.conf:9: " AFTER "15 s is not less than timeout_s of source a, so no second attempt "
         "could begin beside it; allowed: less than 10 s\n",
         true},
        /* the default counts as well */
        {IN_SCOPE "hedge_after_s = 600",
         "t.conf:9: " AFTER "600 s is not less than timeout_s of source a, so no second attempt "
         "could begin beside it; allowed: less than 600 s\n",
         true},
        /* a source of another scope does not count */
        {SCOPE("", "") "hedge_after_s = 15\n[source c]\nbase_url = https://c\ntimeout_s = "
                       "1\n" ROUTE_TO("s") ROUTE_PAST("c"),
         "", false},
        /* with R35 at the same time: both are told */
        {SCOPE("timeout_s = 10", "") "hedge_after_s = 10\ncall_deadline_s = 10",
         "t.conf:9: " AFTER "10 s is not less than call_deadline_s, so no second attempt could "
         "begin; allowed: less than 10 s\n"
         "t.conf:9: " AFTER "10 s is not less than timeout_s of source a, so no second attempt "
         "could begin beside it; allowed: less than 10 s\n",
         true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_R37_at_or_above_the_least_ttft_timeout_is_a_warning(void **state)
{
    static const struct load_case cases[] = {
        {SCOPE("ttft_timeout_s = 9", "") "hedge_after_s = 8", "", false},
        {SCOPE("ttft_timeout_s = 9", "") "hedge_after_s = 9",
         "t.conf:9: warning: " AFTER "9 s is not less than ttft_timeout_s of source a, which ends "
         "its streams before a second attempt begins; set less than 9 s\n",
         false},
        {SCOPE("ttft_timeout_s = 9", "ttft_timeout_s = 5") "hedge_after_s = 6",
         "t.conf:9: warning: " AFTER "6 s is not less than ttft_timeout_s of source b, which ends "
         "its streams before a second attempt begins; set less than 5 s\n",
         false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_H16_at_or_above_the_stall_budget_is_a_warning(void **state)
{
    static const struct load_case cases[] = {
        {IN_SCOPE "hedge_after_s = 2\nstall_budget_s = 3", "", false},
        {IN_SCOPE "hedge_after_s = 2\nstall_budget_s = 2",
         "t.conf:9: warning: " AFTER "2 s is not less than stall_budget_s, after which no other "
         "attempt should begin; set less than 2 s\n",
         false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_R38_nobody_to_send_it_to_is_a_warning(void **state)
{
    static const struct load_case cases[] = {
        {WITH_SOURCE "[scope s]\nsources = a\nhedge_after_s = 5",
         "t.conf:5: warning: " AFTER "has no effect with one source; a second attempt goes to "
         "another one\n",
         false},
        {SCOPE("quota_group = g", "quota_group = g") "hedge_after_s = 5",
         "t.conf:9: warning: " AFTER
         "has no effect while all sources have the quota_group \"g\"; a "
         "second attempt goes to one of another\n",
         false},
        {SCOPE("quota_group = g", "quota_group = h") "hedge_after_s = 5", "", false},
        {SCOPE("quota_group = g", "") "hedge_after_s = 5", "", false},
        /* without a threshold there is nothing to warn of */
        {SCOPE("quota_group = g", "quota_group = g"), "", false},
        {WITH_SOURCE "[scope s]\nsources = a\n", "", false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_R41_R17_more_than_one_extra_attempt_warns_and_acts_as_one(void **state)
{
    static const struct load_case bad[] = {
        {IN_SCOPE "hedge_max_extra = 0",
         "t.conf:9: scope s.hedge_max_extra: 0 is out of range; allowed: 1 to 3\n", true},
        {IN_SCOPE "hedge_max_extra = 4",
         "t.conf:9: scope s.hedge_max_extra: 4 is out of range; allowed: 1 to 3\n", true},
        {IN_SCOPE "hedge_max_extra = 1.5",
         "t.conf:9: scope s.hedge_max_extra: \"1.5\" is not a whole number; allowed: 1 to 3\n",
         true},
    };

    (void)state;
    check_all(bad, LENGTH(bad));
    for (int extra = 1; extra <= 3; extra++) {
        char conf[400];
        char report[400] = "";
        struct loading loading;

        (void)snprintf(conf, sizeof conf, IN_SCOPE "hedge_after_s = 5\nhedge_max_extra = %d\n",
                       extra);
        if (extra > 1)
            (void)snprintf(report, sizeof report,
                           "t.conf:10: warning: scope s.hedge_max_extra: %d has the effect of 1: "
                           "no more than one attempt runs beside the first\n",
                           extra);
        loading = load(conf);
        assert_string_equal(report_of(&loading), report);
        assert_int_equal(loading.options->scopes[0].hedge_max_extra, 1);
        unload(&loading);
    }
}

/* The scope's calls are never hedged, but its settings are judged like those of others. */
static void test_R43_guards_run_for_scopes_of_embedding_ocr_and_image_routes(void **state)
{
    static const char *const kinds[] = {"embedding", "ocr", "image"};

    (void)state;
    for (size_t i = 0; i < LENGTH(kinds); i++) {
        char conf[500];
        struct loading loading;

        (void)snprintf(
            conf, sizeof conf,
            SCOPE("timeout_s = 20", "ttft_timeout_s = 20") "hedge_after_s = 20\ncall_deadline_s = "
                                                           "20\nhedge_max_extra = 2\n"
                                                           "[route r]\nscope = s\nkind = %s\n",
            kinds[i]);
        loading = load(conf);
        assert_null(loading.options);
        assert_non_null(strstr(report_of(&loading), "t.conf:9: " AFTER "20 s is not less than "
                                                    "call_deadline_s"));
        assert_non_null(strstr(report_of(&loading), "t.conf:9: " AFTER "20 s is not less than "
                                                    "timeout_s of source a"));
        assert_non_null(strstr(report_of(&loading), "warning: " AFTER "20 s is not less than "
                                                    "ttft_timeout_s of source b"));
        assert_non_null(strstr(report_of(&loading), "warning: scope s.hedge_max_extra: 2 has"));
        unload(&loading);
    }
}

/* R34: a deadline alone, a threshold alone, both. R44: each has a variable with the scope's name. */
static void test_R34_R44_deadline_and_threshold_are_set_apart_for_each_scope(void **state)
{
    static const char *const environment[] = {"PENSTOCK__SCOPE__S__HEDGE_AFTER_S=2",
                                              "PENSTOCK__SCOPE__S__HEDGE_MAX_EXTRA=1",
                                              "PENSTOCK__SCOPE__T__CALL_DEADLINE_S=3", NULL};
    struct loading loading =
        load_with(IN_SCOPE "[scope t]\nsources = a, b\n" ROUTE_TO("s") ROUTE_TO("t"), environment);

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_int_equal(loading.options->scopes[0].hedge_after_ms, 2000);
    assert_int_equal(loading.options->scopes[0].call_deadline_ms, -1);
    assert_int_equal(loading.options->scopes[1].hedge_after_ms, -1);
    assert_int_equal(loading.options->scopes[1].call_deadline_ms, 3000);
    unload(&loading);
    loading = load_with(IN_SCOPE "[scope t]\nsources = a, b\nhedge_after_s = 3\n", environment);
    assert_string_equal(report_of(&loading),
                        "t.conf:11: scope t.hedge_after_s: 3 s is not less than call_deadline_s, "
                        "so no second attempt could begin; allowed: less than 3 s\n");
    unload(&loading);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H10_off_by_default_and_empty_is_off),
        cmocka_unit_test(test_R40_hedge_after_is_finite_and_above_zero),
        cmocka_unit_test(test_R35_at_or_above_call_deadline_is_an_error),
        cmocka_unit_test(test_R36_at_or_above_the_least_timeout_is_an_error),
        cmocka_unit_test(test_R37_at_or_above_the_least_ttft_timeout_is_a_warning),
        cmocka_unit_test(test_H16_at_or_above_the_stall_budget_is_a_warning),
        cmocka_unit_test(test_R38_nobody_to_send_it_to_is_a_warning),
        cmocka_unit_test(test_R41_R17_more_than_one_extra_attempt_warns_and_acts_as_one),
        cmocka_unit_test(test_R43_guards_run_for_scopes_of_embedding_ocr_and_image_routes),
        cmocka_unit_test(test_R34_R44_deadline_and_threshold_are_set_apart_for_each_scope),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
