/* test_options_scope.c - members, fallbacks and where routes go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

/* Scopes begin in line 5. */
#define TWO_SOURCES "[source a]\nbase_url = https://a\n[source beta]\nbase_url = https://b\n"
#define TWO_SCOPES TWO_SOURCES "[scope s]\nsources = a\n[scope chat]\nsources = beta\n"

static void check_all(const struct load_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_load_case(&cases[i]);
}

static void test_members_stand_in_order_with_their_weights(void **state)
{
    struct loading loading =
        load(TWO_SOURCES "[source c]\nbase_url = https://c\n[scope s]\n"
                         "balance = weighted\nsources = c, beta*3, a * 1000\n"
                         "[scope t]\nsources = a\n" ROUTE_TO("s") ROUTE_TO("t"));
    const struct options *options = loading.options;
    const struct scope_options *scope = &options->scopes[0];

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_string_equal(scope->name, "s");
    assert_false(scope->direct);
    assert_int_equal(scope->balance, BALANCE_WEIGHTED);
    assert_int_equal(scope->member_count, 3);
    assert_ptr_equal(scope->members[0].source, &options->sources[2]);
    assert_int_equal(scope->members[0].weight, 1);
    assert_ptr_equal(scope->members[1].source, &options->sources[1]);
    assert_int_equal(scope->members[1].weight, 3);
    assert_ptr_equal(scope->members[2].source, &options->sources[0]);
    assert_int_equal(scope->members[2].weight, 1000);
    assert_int_equal(options->scopes[1].member_count, 1);
    assert_int_equal(options->scopes[1].balance, BALANCE_ORDERED);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(options->sources[i].index, i);
    unload(&loading);
}

static void test_members_that_are_wrong(void **state)
{
#define AT "t.conf:6: scope s.sources: "
#define WEIGHT " has no weight; allowed: a*WEIGHT with a whole number from 1 to 1000\n"
    static const struct load_case cases[] = {
        {TWO_SOURCES "[scope s]",
         "t.conf:5: scope s.sources: is missing; allowed: NAME or NAME*WEIGHT, ... of: a, beta\n",
         true},
        {TWO_SOURCES "[scope s]\nsources = a, bta",
         AT "there is no [source bta]; allowed: a, beta; did you mean \"beta\"?\n", true},
        {TWO_SOURCES "[scope s]\nsources = zeta*2",
         AT "there is no [source zeta]; allowed: a, beta; did you mean \"beta\"?\n", true},
        {TWO_SOURCES "[scope s]\nsources = *2", AT "there is no [source ]; allowed: a, beta\n",
         true},
        {TWO_SOURCES "[scope s]\nsources = a, a",
         AT "a stands in it twice; allowed: each source once, with a WEIGHT for a larger share\n",
         true},
        {TWO_SOURCES "[scope s]\nsources = a*0", AT "\"a*0\"" WEIGHT, true},
        {TWO_SOURCES "[scope s]\nsources = a*1001", AT "\"a*1001\"" WEIGHT, true},
        {TWO_SOURCES "[scope s]\nsources = a*", AT "\"a*\"" WEIGHT, true},
        {TWO_SOURCES "[scope s]\nsources = a*1.5", AT "\"a*1.5\"" WEIGHT, true},
        {TWO_SOURCES "[scope s]\nsources = a*2, beta",
         "t.conf:6: warning: scope s.sources: weights have no effect with balance = ordered; set "
         "balance = weighted\n",
         false},
        {TWO_SOURCES "[scope s]\nsources = a*1, beta", "", false},
        {TWO_SOURCES "[scope s]\nsources = a, , beta",
         AT "an entry is empty; allowed: entries separated by single commas\n", true},
        {TWO_SOURCES "[scope]\nsources = a",
         "t.conf:5: [scope NAME] needs a name, not \"\"; allowed: 1 to 63 letters, digits, - and "
         "_, "
         "with a letter or digit at both ends\n",
         true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_64_sources_are_the_most(void **state)
{
    for (unsigned count = 64; count <= 65; count++) {
        struct text conf;
        struct loading loading;

        (void)state;
        text_init(&conf, 16384);
        for (unsigned i = 0; i < count; i++)
            text_printf(&conf, "[source s%u]\nbase_url = https://h\n", i);
        text_append_string(&conf, "[scope all]\nsources = s0");
        for (unsigned i = 1; i < count; i++)
            text_printf(&conf, ", s%u", i);
        loading = load(text_string(&conf));
        assert_string_equal(
            report_of(&loading),
            count == 64 ? "" : "t.conf:129: [source s64] is one too many; allowed: 64 sources\n");
        assert_int_equal(loading.options != NULL, count == 64);
        if (loading.options)
            assert_int_equal(loading.options->scopes[0].member_count, 64);
        unload(&loading);
        text_release(&conf);
    }
}

static void test_stall_budget_is_twice_the_longest_timeout_unless_set(void **state)
{
    struct loading loading =
        load("[source a]\nbase_url = https://a\ntimeout_s = 30\n"
             "[source b]\nbase_url = https://b\ntimeout_s = 45\n"
             "[scope s]\nsources = a, b\n[scope t]\nsources = a, b\nstall_budget_s = 7\n"
             "[route r]\nsource = a\n" ROUTE_TO("s") ROUTE_TO("t"));

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_int_equal(loading.options->scopes[0].stall_budget_settled_ms, 90000);
    assert_int_equal(loading.options->scopes[1].stall_budget_settled_ms, 7000);
    assert_int_equal(loading.options->routes[0].to->stall_budget_settled_ms, 60000);
    unload(&loading);
}

static void test_limits_stand_in_order(void **state)
{
    static const struct load_case cases[] = {
        {TWO_SOURCES "[scope s]\nsources = a, beta\nbackoff_base_s = 8\nbackoff_max_s = 8", "",
         false},
        {TWO_SOURCES "[scope s]\nsources = a, beta\nbackoff_base_s = 2500ms\nbackoff_max_s = 2",
         "t.conf:8: scope s.backoff_max_s: 2 s is less than backoff_base_s; allowed: 2500 ms or "
         "more\n",
         true},
        {TWO_SOURCES "[scope s]\nsources = a, beta\nbreaker_cooldown_s = 301",
         "t.conf:5: scope s.breaker_cooldown_max_s: 300 s is less than breaker_cooldown_s; "
         "allowed: "
         "301 s or more\n",
         true},
        {TWO_SOURCES
         "[scope s]\nsources = a, beta\nbreaker_cooldown_s = 9\nbreaker_cooldown_max_s = 9",
         "", false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_quota_groups(void **state)
{
    static const struct load_case bad = {
        WITH_SOURCE "quota_group = a b",
        "t.conf:3: source a.quota_group: \"a b\" cannot name a group; allowed: up to 63 letters, "
        "digits, -, _ and .\n",
        true};
    struct loading loading = load(TWO_SOURCES "quota_group = acme.eu\n");

    (void)state;
    assert_load_case(&bad);
    /* without one a source is alone in the group of its name */
    assert_string_equal(loading.options->sources[0].quota_group, "a");
    assert_string_equal(loading.options->sources[1].quota_group, "acme.eu");
    unload(&loading);
}

/* ---- fallbacks ------------------------------------------------------------------------------- */

static void test_H20_fallbacks_are_scopes_or_models_in_order(void **state)
{
    struct loading loading = load(
        TWO_SCOPES "fallback = gpt-5-mini, s, openai/o3\n[scope u]\nsources = a\n" ROUTE_TO("chat")
            ROUTE_TO("u"));
    const struct scope_options *scope = &loading.options->scopes[1];

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_int_equal(scope->fallback_count, 3);
    assert_null(scope->fallbacks[0].scope);
    assert_string_equal(scope->fallbacks[0].model, "gpt-5-mini");
    assert_ptr_equal(scope->fallbacks[1].scope, &loading.options->scopes[0]);
    assert_null(scope->fallbacks[1].model);
    assert_string_equal(scope->fallbacks[2].model, "openai/o3");
    assert_int_equal(loading.options->scopes[0].fallback_count, 0);
    unload(&loading);
}

static void test_H20_fallbacks_that_are_wrong(void **state)
{
#define CHAT "t.conf:9: scope chat.fallback: "
#define ROUTES_TO_ALL ROUTE_TO("s") ROUTE_TO("chat") ROUTE_TO("u")
#define ALLOWED "; allowed: other scopes, and models, each once\n"
    static const struct load_case cases[] = {
        {TWO_SCOPES "fallback = chat", CHAT "\"chat\" is this scope itself" ALLOWED, true},
        {TWO_SCOPES "fallback = s, m, s", CHAT "\"s\" stands in it twice" ALLOWED, true},
        {TWO_SCOPES "fallback = m, s, m", CHAT "\"m\" stands in it twice" ALLOWED, true},
        {TWO_SCOPES "fallback = a\"b",
         CHAT "\"a\"b\" has a character that no model's name has" ALLOWED, true},
        {TWO_SCOPES "[scope u]\nsources = beta\nfallback = chta\n" ROUTES_TO_ALL,
         "t.conf:11: warning: scope u.fallback: \"chta\" is taken for a model, as no [scope] has "
         "the name; did you mean \"chat\"?\n",
         false},
        {TWO_SCOPES "[scope u]\nsources = beta\nfallback = beta\n" ROUTES_TO_ALL,
         "t.conf:11: warning: scope u.fallback: \"beta\" is taken for a model, not for the "
         "[source] "
         "of that name; a fallback is a scope or a model\n",
         false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_H20_fallback_in_the_same_quota_group_warns(void **state)
{
#define GROUPS(group)                                                                              \
    "[source a]\nbase_url = https://a\nquota_group = acme\n"                                       \
    "[source b]\nbase_url = https://b\nquota_group = " group "\n"                                  \
    "[scope s]\nsources = a\nfallback = t\n[scope t]\nsources = b\n"
    static const struct load_case cases[] = {
        {GROUPS("other"), "", false},
        {GROUPS(""), "", false},
        {GROUPS("acme"),
         "t.conf:9: warning: scope s.fallback: source b of [scope t] has the quota_group \"acme\", "
         "as one of this scope has: where the one is throttled, so is the other\n",
         false},
        /* the same source has the same group, set or not */
        {TWO_SCOPES "fallback = u\n[scope u]\nsources = a, beta\n" ROUTE_TO("s") ROUTE_TO("chat"),
         "t.conf:9: warning: scope chat.fallback: source beta of [scope u] has the quota_group "
         "\"beta\", as one of this scope has: where the one is throttled, so is the other\n",
         false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_H20_scopes_may_fall_back_on_each_other(void **state)
{
    struct loading loading = load(TWO_SOURCES "[scope s]\nsources = a\nfallback = t\n"
                                              "[scope t]\nsources = beta\nfallback = s\n");

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_ptr_equal(loading.options->scopes[0].fallbacks[0].scope, &loading.options->scopes[1]);
    assert_ptr_equal(loading.options->scopes[1].fallbacks[0].scope, &loading.options->scopes[0]);
    unload(&loading);
}

/* ---- routes ---------------------------------------------------------------------------------- */

static void test_routes_go_to_scopes_or_directly_to_sources(void **state)
{
    struct loading loading =
        load(TWO_SCOPES "retry_budget = 5\nbalance = weighted\n"
                        "[route one]\npath = /v1/chat/completions\nscope = chat\n"
                        "[route two]\npath = /v1/files\nsource = a\n"
                        "[route six]\npath = /v1/\nsource = a\n" ROUTE_TO("s"));
    const struct options *options = loading.options;
    const struct scope_options *direct;

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_int_equal(options->scope_count, 4);
    assert_string_equal(options->routes[0].name, "one");
    assert_ptr_equal(options->routes[0].to, &options->scopes[1]);
    assert_false(options->routes[0].to->direct);
    assert_int_equal(options->routes[0].to->retry_budget, 5);

    direct = options->routes[1].to;
    assert_string_equal(direct->name, "two");
    assert_true(direct->direct);
    assert_int_equal(direct->member_count, 1);
    assert_ptr_equal(direct->members[0].source, &options->sources[0]);
    assert_int_equal(direct->members[0].weight, 1);
    assert_string_equal(direct->sources[0], "a");
    assert_null(direct->sources[1]);
    /* nothing twice, and no limits of its own */
    assert_int_equal(direct->retry_budget, 0);
    assert_int_equal(direct->hedge_after_ms, -1);
    assert_int_equal(direct->call_deadline_ms, -1);
    assert_int_equal(direct->fallback_count, 0);
    assert_int_equal(direct->breaker_failures, 5);
    assert_int_equal(direct->breaker_cooldown_max_ms, 300000);
    /* each route has its own */
    assert_string_equal(options->routes[2].to->name, "six");
    unload(&loading);
}

static void test_scopes_that_no_call_comes_to(void **state)
{
#define UNUSED(line, name)                                                                         \
    "t.conf:" line ": warning: scope " name                                                        \
    ".sources: no call comes to them: no route and no fallback names this scope\n"
    static const struct load_case cases[] = {
        {TWO_SCOPES, UNUSED("8", "chat"), false}, /* all calls go to the first */
        {TWO_SCOPES ROUTE_TO("chat"), UNUSED("6", "s"), false},
        {TWO_SCOPES "[route r]\nsource = a\n", UNUSED("6", "s") UNUSED("8", "chat"), false},
        {TWO_SCOPES "fallback = s\n" ROUTE_TO("chat"), "", false},
        {TWO_SCOPES ROUTE_TO("chat") ROUTE_TO("s"), "", false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_sources_that_no_call_comes_to(void **state)
{
#define IDLE(line, name)                                                                           \
    "t.conf:" line ": warning: source " name                                                       \
    ": no call comes to it: no route and no scope names it\n"
    static const struct load_case cases[] = {
        {TWO_SOURCES, IDLE("3", "beta"), false}, /* all calls go to the first */
        {TWO_SOURCES "[route r]\nsource = beta\n", IDLE("1", "a"), false},
        {TWO_SOURCES "[scope s]\nsources = beta\n", IDLE("1", "a"), false},
        {TWO_SOURCES "[scope s]\nsources = beta\n[route r]\nsource = a\n" ROUTE_TO("s"), "", false},
        {TWO_SOURCES "[scope s]\nsources = beta, a\n", "", false},
        /* of a scope that is only a fallback */
        {TWO_SCOPES "fallback = s\n" ROUTE_TO("chat"), "", false},
        /* the scope's own warning is enough */
        {TWO_SCOPES ROUTE_TO("chat"), UNUSED("6", "s"), false},
        {TWO_SOURCES "[source c]\nbase_url = https://c\n" ROUTE_TO("s") "[scope s]\nsources = a\n",
         IDLE("3", "beta") IDLE("5", "c"), false},
        /* what is wrong comes first */
        {TWO_SOURCES "[route r]\nsource = bet\n",
         "t.conf:6: route r.source: there is no [source bet]; allowed: a, beta; did you mean "
         "\"beta\"?\n",
         true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

/* A scope called as a route is not that route's. */
static void test_scope_made_for_a_route_has_no_name_that_others_can_use(void **state)
{
    static const struct load_case cases[] = {
        {TWO_SOURCES "[route direct]\nsource = a\n[route r]\nscope = direct\npath = /x",
         "t.conf:8: route r.scope: there is no [scope direct]; allowed: the name of a [scope "
         "NAME], "
         "of which there is none\n",
         true},
        {TWO_SCOPES "fallback = r1\n[route r1]\nsource = a\n" ROUTE_TO("s") ROUTE_TO("chat"), "",
         false}, /* a model */
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_route_names_exactly_one_of_scope_and_source(void **state)
{
    static const struct load_case cases[] = {
        {TWO_SCOPES "[route r]\nscope = s\nsource = a",
         "t.conf:10: route r.scope: source is set as well (t.conf:11); allowed: one of them: scope "
         "for sources that stand in for each other, source for one whose answers pass as they "
         "are\n",
         true},
        {TWO_SCOPES "[route r]",
         "t.conf:9: route r.source: is missing, and so is scope; write source = a, beta; or scope "
         "= "
         "s, chat\n",
         true},
        {TWO_SCOPES "[route r]\nscope = chatt",
         "t.conf:10: route r.scope: there is no [scope chatt]; allowed: s, chat; did you mean "
         "\"chat\"?\n",
         true},
        {TWO_SCOPES "[route r]\nscope = beta",
         "t.conf:10: route r.scope: there is no [scope beta], but a [source beta]; write source = "
         "beta\n",
         true},
        {TWO_SCOPES "[route r]\nsource = chat",
         "t.conf:10: route r.source: there is no [source chat], but a [scope chat]; write scope = "
         "chat\n",
         true},
        {TWO_SCOPES "[route r]\nsource = bet",
         "t.conf:10: route r.source: there is no [source bet]; allowed: a, beta; did you mean "
         "\"beta\"?\n",
         true},
        {TWO_SCOPES "[route r]\nscope =\nsource = a\n" ROUTE_TO("s") ROUTE_TO("chat"), "", false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

/* Hundreds of names do not drown the one that was meant. */
static void test_long_lists_of_names_are_cut_and_the_suggestion_stays(void **state)
{
    struct text conf;
    struct loading loading;

    (void)state;
    text_init(&conf, 32768);
    text_append_string(&conf, WITH_SOURCE);
    for (unsigned i = 0; i < 200; i++)
        text_printf(&conf, "[scope scope%03u]\nsources = a\n", i);
    text_append_string(&conf, "[route r]\nscope = scope199x\n");
    loading = load(text_string(&conf));
    assert_non_null(
        strstr(report_of(&loading), "there is no [scope scope199x]; allowed: scope000, "));
    assert_non_null(strstr(report_of(&loading), ", ...; did you mean \"scope199\"?\n"));
    unload(&loading);
    text_release(&conf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_stand_in_order_with_their_weights),
        cmocka_unit_test(test_members_that_are_wrong),
        cmocka_unit_test(test_64_sources_are_the_most),
        cmocka_unit_test(test_stall_budget_is_twice_the_longest_timeout_unless_set),
        cmocka_unit_test(test_limits_stand_in_order),
        cmocka_unit_test(test_quota_groups),
        cmocka_unit_test(test_H20_fallbacks_are_scopes_or_models_in_order),
        cmocka_unit_test(test_H20_fallbacks_that_are_wrong),
        cmocka_unit_test(test_H20_fallback_in_the_same_quota_group_warns),
        cmocka_unit_test(test_H20_scopes_may_fall_back_on_each_other),
        cmocka_unit_test(test_routes_go_to_scopes_or_directly_to_sources),
        cmocka_unit_test(test_scopes_that_no_call_comes_to),
        cmocka_unit_test(test_sources_that_no_call_comes_to),
        cmocka_unit_test(test_scope_made_for_a_route_has_no_name_that_others_can_use),
        cmocka_unit_test(test_route_names_exactly_one_of_scope_and_source),
        cmocka_unit_test(test_long_lists_of_names_are_cut_and_the_suggestion_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
