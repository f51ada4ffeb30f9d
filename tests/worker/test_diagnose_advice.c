/* test_diagnose_advice.c - what is recommended for limits that were met, and that it can be loaded (F12). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/diagnose_traffic.h"
#include "tests/worker/loading.h"

#include "worker/diagnose_advice.h"

static struct traffic traffic;
static struct diagnose_advice advice;
static char conf[4000], told[4000];

#define QUOTAS "rpm = 600\ntpm = 100000\n"

/* A source and a scope, with further lines of each. */
static void configure(const char *source, const char *scope)
{
    (void)snprintf(conf, sizeof conf,
                   "[source up]\nbase_url = https://a.example\nquota_group = acme\n%s"
                   "[scope main]\nsources = up\n%s[route all]\nscope = main\n",
                   source, scope);
}

/* In conf, from at on, count bytes give way to text. */
static void splice(char *at, size_t count, const char *text)
{
    char rest[sizeof conf];

    (void)snprintf(rest, sizeof rest, "%s", at + count);
    (void)snprintf(at, (size_t)(conf + sizeof conf - at), "%s%s", text, rest);
}

/* The line of the section that begins so, with its end; "" at the end of its head when there is none. */
static char *find_line(char *section, const char *begin, size_t *ret_length)
{
    char *end = strstr(section + 1, "\n[");
    char *line = strchr(section, '\n') + 1;
    char *first = line;

    for (; *line && (!end || line <= end); line = strchr(line, '\n') + 1)
        if (strncmp(line, begin, strlen(begin)) == 0) {
            *ret_length = strcspn(line, "\n") + 1;
            return line;
        }
    *ret_length = 0;
    return first;
}

static void put_line(const struct advice_line *row)
{
    char head[NAME_SIZE + 20], key[64], line[NAME_SIZE + 60];
    size_t length;
    char *at;

    (void)snprintf(head, sizeof head, "[%s]\n", row->section);
    (void)snprintf(key, sizeof key, "%.*s", (int)strcspn(row->line, "=") + 1, row->line);
    (void)snprintf(line, sizeof line, "%s\n", row->line);
    if (!strstr(conf, head))
        splice(conf + strlen(conf), 0, head);
    if (strstr(row->now, " = ")) { /* another key, which goes */
        at = find_line(strstr(conf, head), row->now, &length);
        splice(at, length, "");
    }
    at = find_line(strstr(conf, head), key, &length);
    splice(at, length, line);
}

/* What is recommended for the traffic, as "section: line (now)"; then it is done, and loaded. */
static const char *advise(void)
{
    struct loading loading = load(conf);
    struct model_limit quota;
    size_t length = 0;

    if (!loading.options)
        fail_msg("%s", report_of(&loading));
    quota = diagnose_quota(loading.options, "acme", "qwen-max");
    traffic.flow.rpm = quota.rpm;
    traffic.flow.tpm = quota.tpm;
    assert_true(diagnose_look(&traffic.flow, TRAFFIC_BEGIN_MS));
    assert_true(traffic.flow.refused > 0);
    diagnose_advise(loading.options, &traffic.flow, &advice);
    unload(&loading);
    told[0] = '\0';
    for (unsigned i = 0; i < advice.line_count; i++) {
        const struct advice_line *row = &advice.lines[i];

        length += (size_t)snprintf(told + length, sizeof told - length, "%s: %s (%s)\n",
                                   row->section, row->line, row->now);
        put_line(row);
    }
    loading = load(conf);
    if (!loading.options)
        fail_msg("%s\n%s", conf, report_of(&loading));
    unload(&loading);
    return told;
}

static bool has_note(const char *words)
{
    for (unsigned i = 0; i < advice.note_count; i++)
        if (strstr(advice.notes[i], words))
            return true;
    return false;
}

/* The rows of the book. */
static void each_limit_has_its_strategy_F12(void **state)
{
    (void)state;
    configure(QUOTAS, "");
    traffic_begin(&traffic, 0, 0);
    traffic_of_a_used_up_minute(&traffic, "rpm");
    assert_string_equal(advise(), "scope main: flow = rate (none)\n");

    configure(QUOTAS, "flow = retry\n");
    traffic_begin(&traffic, 0, 0);
    traffic_of_surges(&traffic, "rps");
    assert_string_equal(advise(), "scope main: flow = shaping (retry)\n");
    assert_true(has_note("max_concurrency"));

    configure(QUOTAS, "flow = rate\n");
    traffic_begin(&traffic, 0, 0);
    traffic_of_long_texts(&traffic, "tpm");
    assert_string_equal(advise(), "scope main: flow = shaping (rate)\n");

    configure(QUOTAS, "");
    traffic_begin(&traffic, 0, 0);
    traffic_of_starts(&traffic, "burst");
    assert_string_equal(advise(), "scope main: flow = shaping (none)\n");

    configure(QUOTAS, "");
    traffic_begin(&traffic, 0, 0);
    traffic_of_surges(&traffic, "saturation");
    assert_string_equal(advise(), "scope main: flow = adaptive (none)\n");
}

static void what_is_not_known_is_learned_F12(void **state)
{
    (void)state;
    configure("", "");
    traffic_begin(&traffic, 0, 0);
    traffic_of_a_used_up_minute(&traffic, "requests");
    assert_string_equal(advise(), "scope main: flow = adaptive (none)\n");
    assert_true(has_note("needs rpm of each source"));

    configure("rpm = 600\n", ""); /* enough for rate, not for shaping */
    traffic_begin(&traffic, 0, 0);
    traffic_of_long_texts(&traffic, "tpm");
    assert_string_equal(advise(), "scope main: flow = adaptive (none)\n");
    assert_true(has_note("rpm and tpm"));
}

static void dashscope_queues_by_itself_first_F12(void **state)
{
    (void)state;
    configure(QUOTAS "dialect = dashscope\n", "");
    traffic_begin(&traffic, 0, 0);
    traffic_of_starts(&traffic, "burst");
    assert_string_equal(advise(), "source up: dashscope_wait_s = 30 ()\n");
    /* and when that did not help */
    traffic_begin(&traffic, 0, 0);
    traffic_of_starts(&traffic, "burst");
    assert_string_equal(advise(), "scope main: flow = shaping (none)\n");
}

static void a_strategy_that_was_not_enough_is_mended_F12(void **state)
{
    (void)state;
    /* refused at 111 sends although 600 are configured, but most of 120 were used */
    configure("rpm = 120\ntpm = 100000\n", "flow = shaping\n");
    traffic_begin(&traffic, 0, 0);
    traffic_of_a_used_up_minute(&traffic, "rpm");
    assert_string_equal(advise(), "source up: rpm = 105 (120)\n");
    assert_true(has_note("Configured rpm = 120, refused at 111 in 60 s"));

    configure(QUOTAS, "flow = shaping\nflow_initial = 50\nflow_warmup_s = 0\n");
    traffic_begin(&traffic, 0, 0);
    traffic_of_starts(&traffic, "burst");
    assert_string_equal(advise(), "scope main: flow_initial = 0 (50)\n"
                                  "scope main: flow_warmup_s = 60 (0)\n");
    traffic_begin(&traffic, 0, 0);
    traffic_of_starts(&traffic, "burst");
    /* flow_initial and flow_warmup_s would have no effect then, and say so */
    configure(QUOTAS, "flow = shaping\n");
    assert_string_equal(advise(), "scope main: flow = adaptive (shaping)\n");
}

/* One refusal, or some of before the configuration was loaded, change no number. */
static void too_little_or_too_old_changes_nothing(void **state)
{
    (void)state;
    for (size_t count = 1; count <= 3; count++) {
        configure("rpm = 600\ntpm = 10000\n", "flow = shaping\n");
        traffic_begin(&traffic, 0, 0);
        for (unsigned i = 0; i < 80; i++)
            (void)traffic_good(&traffic, 500);
        for (size_t i = 0; i < count; i++)
            (void)traffic_refused(&traffic, "tpm", 500);
        (void)traffic_good(&traffic, 500);
        assert_string_equal(advise(), count < 3 ? "" : "source up: tpm = 7695 (10000)\n");
        assert_int_equal(has_note("too few"), count < 3);
    }
    /* rpm was 60 when it was refused, and is 600 since the last second */
    configure("rpm = 600\ntpm = 100000\n", "flow = rate\n");
    traffic_begin(&traffic, 0, 0);
    traffic_of_a_used_up_minute(&traffic, "rpm");
    traffic.flow.loaded_ms = traffic.now_ms - 1000;
    assert_string_equal(advise(), "");
    assert_true(has_note("rpm: 98 of 100 refusals were met under another configuration"));
    traffic_begin(&traffic, 0, 0);
    traffic_of_a_used_up_minute(&traffic,
                                "requests"); /* nor told apart by what is configured now */
    traffic.flow.loaded_ms = traffic.now_ms;
    assert_string_equal(advise(), "");
    assert_int_equal(traffic.flow.findings[DIAGNOSE_RPM].count, 100);
}

/* One refusal is enough when the upstream says it itself. */
static void what_the_upstream_says_is_written_F7(void **state)
{
    (void)state;
    configure("rpm = 600\ntpm = 60000\n", "flow = shaping\n");
    traffic_begin(&traffic, 0, 0);
    for (unsigned i = 0; i < 59; i++)
        (void)traffic_good(&traffic, 500);
    (void)traffic_refused(&traffic, "requests", 500); /* told apart by that number, too */
    (void)traffic_good(&traffic, 500);
    traffic.flow.rpm_told = 60;
    traffic.flow.tpm_told = 6000;
    assert_string_equal(advise(), "source up: rpm = 60 (600)\nsource up: tpm = 6000 (60000)\n");
    assert_true(has_note("Configured rpm = 600, the upstream says 60."));
    assert_true(has_note("Configured tpm = 60000, the upstream says 6000."));
    assert_int_equal(traffic.flow.findings[DIAGNOSE_RPM].count, 1);
}

static void adaptive_is_told_from_a_quarrel_over_the_account_F12(void **state)
{
    (void)state;
    configure("", "flow = adaptive\n");
    traffic_begin(&traffic, 0, 0);
    for (unsigned i = 0; i < 1000; i++)
        (void)(i % 100 == 99 ? traffic_refused(&traffic, "rpm", 300) : traffic_good(&traffic, 300));
    assert_string_equal(advise(), "");
    assert_true(has_note("nothing is to be changed"));
    traffic_begin(&traffic, 0, 0);
    traffic_of_a_used_up_minute(&traffic, "rpm");
    assert_string_equal(advise(), "");
    assert_true(has_note("others use the account"));
}

/* Flow control is a scope's: a route that names a source gets one. */
static void a_route_without_a_scope_gets_one_F12(void **state)
{
    (void)state;
    (void)snprintf(conf, sizeof conf,
                   "[source up]\nbase_url = https://a.example\nquota_group = acme\nrpm = 600\n"
                   "[route chat]\npath = /v1/chat/\nsource = up\n"
                   "[route all]\nsource = up\n");
    traffic_begin(&traffic, 0, 0);
    traffic_of_a_used_up_minute(&traffic, "rpm");
    assert_string_equal(advise(), "route chat: scope = up-flow (source = up)\n"
                                  "scope up-flow: sources = up ()\n"
                                  "scope up-flow: flow = rate (none)\n"
                                  "route all: scope = up-flow (source = up)\n");
}

/* Scopes whose calls wait in one queue must have the same strategy. */
static void scopes_that_share_an_account_are_changed_together(void **state)
{
    (void)state;
    (void)snprintf(conf, sizeof conf,
                   "[source up]\nbase_url = https://a.example\nquota_group = acme\n" QUOTAS
                   "[source other]\nbase_url = https://b.example\n" QUOTAS
                   "[scope main]\nsources = up, other\nflow = rate\n"
                   "[scope side]\nsources = other\nflow = rate\n"
                   "[route all]\nscope = main\n[route side]\npath = /side/\nscope = side\n");
    traffic_begin(&traffic, 0, 0);
    traffic_of_surges(&traffic, "rps");
    assert_string_equal(advise(), "scope main: flow = shaping (rate)\n"
                                  "scope side: flow = shaping (rate)\n");
}

static void money_is_no_matter_of_flow_F12(void **state)
{
    (void)state;
    configure("", "");
    traffic_begin(&traffic, 0, 0);
    for (unsigned i = 0; i < 20; i++)
        (void)traffic_refused(&traffic, i % 2 ? "money" : "day", 1000);
    assert_string_equal(advise(), "");
    assert_true(has_note("pay"));
    assert_true(has_note("day's quota is spent"));
}

static void without_a_configuration_there_are_words(void **state)
{
    (void)state;
    traffic_begin(&traffic, 0, 0);
    traffic_of_a_used_up_minute(&traffic, "rpm");
    assert_true(diagnose_look(&traffic.flow, TRAFFIC_BEGIN_MS));
    diagnose_advise(NULL, &traffic.flow, &advice);
    assert_int_equal(advice.line_count, 0);
    assert_true(has_note("could not be read. In each scope that uses this account: flow = rate"));
}

/* The quota is that of the model as the source calls it. */
static void aliases_are_followed(void **state)
{
    struct loading loading = load("[source up]\nbase_url = https://a.example\nquota_group = acme\n"
                                  "rpm = 5\nmodel_aliases = qwen-max=mine\n"
                                  "model_limits = mine:77:1k\n");

    (void)state;
    assert_non_null(loading.options);
    assert_int_equal(diagnose_quota(loading.options, "acme", "qwen-max").rpm, 77);
    assert_int_equal(diagnose_quota(loading.options, "acme", "other").rpm, 5);
    assert_int_equal(diagnose_quota(loading.options, "nobody", "qwen-max").rpm, 0);
    assert_int_equal(diagnose_quota(NULL, "acme", "qwen-max").rpm, 0);
    unload(&loading);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_limit_has_its_strategy_F12),
        cmocka_unit_test(what_is_not_known_is_learned_F12),
        cmocka_unit_test(dashscope_queues_by_itself_first_F12),
        cmocka_unit_test(a_strategy_that_was_not_enough_is_mended_F12),
        cmocka_unit_test(too_little_or_too_old_changes_nothing),
        cmocka_unit_test(what_the_upstream_says_is_written_F7),
        cmocka_unit_test(adaptive_is_told_from_a_quarrel_over_the_account_F12),
        cmocka_unit_test(a_route_without_a_scope_gets_one_F12),
        cmocka_unit_test(scopes_that_share_an_account_are_changed_together),
        cmocka_unit_test(money_is_no_matter_of_flow_F12),
        cmocka_unit_test(without_a_configuration_there_are_words),
        cmocka_unit_test(aliases_are_followed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
