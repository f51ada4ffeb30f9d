/* test_diagnose_report.c - penstockctl diagnose, from a ledger that was made for it (F12). */
#include "tests/shared/ledger_fixture.h"
#include "tests/worker/loading.h"

#include "worker/diagnose.h"
#include "worker/diagnose_advice.h"
#include "worker/diagnose_report.h"
#include "worker/flow_state.h"

#include <json-c/json.h>

#define NOW_MS (ARRIVED_WALL_MS + INT64_C(600000))

static unsigned next_call;
static char page_text[20000];

/* A call with one attempt, so many milliseconds after the beginning. */
static void put_exchange(struct fixture *fixture, int64_t at_ms, const char *kind)
{
    struct call_record call = call_of(++next_call, ARRIVED_WALL_MS + at_ms);
    struct attempt_record attempt =
        attempt_of(call.call_id, 1, *kind ? "Throttling.RateQuota" : "");

    attempt.started_wall_ms = ARRIVED_WALL_MS + at_ms;
    attempt.ended_wall_ms = attempt.started_wall_ms + 900;
    attempt.status = *kind ? 429 : 200;
    attempt.est_tokens = 100;
    (void)text_copy(call.model_asked, sizeof call.model_asked, "qwen-max");
    (void)text_copy(attempt.limit_kind, sizeof attempt.limit_kind, kind);
    assert_true(ledger_put_calls(fixture->ledger, (const struct call_record *[]){&call}, 1));
    assert_true(ledger_put_attempt(fixture->ledger, &attempt));
}

/* Ten minutes of one a second; the last five of each minute are refused for the minute's quota. */
static void put_minutes(struct fixture *fixture, int64_t loaded_ms)
{
    const struct ledger_source source = {.name = "openai",
                                         .base_url = "https://a.example",
                                         .dialect = "openai",
                                         .quota_group = "acme",
                                         .loaded_wall_ms = ARRIVED_WALL_MS + loaded_ms};

    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_source(fixture->ledger, &source));
    for (unsigned i = 0; i < 600; i++)
        put_exchange(fixture, (int64_t)i * 1000, i % 60 >= 55 ? "requests" : "");
    assert_true(ledger_commit(fixture->ledger));
}

static bool report(struct fixture *fixture, int64_t last_ms, bool json)
{
    struct loading loading =
        load("[source openai]\nbase_url = https://a.example\nquota_group = acme\nrpm = 60\n"
             "[scope main]\nsources = openai\n[route all]\nscope = main\n");
    const struct diagnose_wish wish = {.state_directory = fixture->directory,
                                       .options = loading.options,
                                       .last_ms = last_ms,
                                       .now_wall_ms = NOW_MS,
                                       .json = json};
    struct text out;
    bool ok;

    assert_non_null(loading.options);
    text_init(&out, sizeof page_text - 1);
    text_clear(&fixture->why);
    ok = diagnose_report(&wish, &out, &fixture->why);
    assert_false(out.overflowed);
    (void)text_copy(page_text, sizeof page_text, text_string(&out));
    text_release(&out);
    unload(&loading);
    return ok;
}

#define assert_has(text, part)                                                                     \
    do {                                                                                           \
        if (!strstr(text, part))                                                                   \
            fail_msg("no \"%s\" in:\n%s", part, text);                                             \
    } while (0)

static void the_table_has_counts_and_patterns_F12(void **state)
{
    struct fixture *fixture = *state;

    put_minutes(fixture, 0);
    assert_true(report(fixture, 600000, false));
    assert_has(page_text,
               "exchanges with upstreams from 2026-11-30T10:00:00.000Z to "
               "2026-11-30T10:10:00.000Z\n"
               "\nquota group acme, model qwen-max: 600 exchanges, 50 refused for a limit (8.3 %)\n"
               "  limit      refused  seen here  ");
    assert_has(page_text, "\n  rpm             50  intermittent (in 10 minutes)      now and "
                          "then, more of them over time");
    for (unsigned i = 0; i < DIAGNOSE_LIMITS; i++)
        assert_has(page_text, diagnose_limit_name((enum diagnose_limit)i));
    assert_has(page_text, "  rpm: code Throttling.RateQuota; the least at which it was met: "
                          "56 sends and 5600 tokens in 60 s, 1 in progress\n");
    assert_has(page_text, "  recommended:\n"
                          "    [scope main]\n"
                          "    # now: none\n"
                          "    flow = rate\n");
    assert_has(page_text, "what no gateway can do for you:\n  - raise the quota");
    assert_has(page_text, "PTU");
    assert_has(page_text, "Batch API");
    assert_has(page_text, "penstockctl try-fallback SCOPE");
}

static void what_the_upstream_says_is_read_from_the_state_F7(void **state)
{
    struct fixture *fixture = *state;
    struct flow_view view = {.quota_group = "acme", .model = "qwen-max", .requests_told = 50};
    char path[sizeof fixture->directory + sizeof FLOW_STATE_NAME + 1];
    struct text content;

    put_minutes(fixture, 0);
    text_init(&content, FLOW_STATE_BYTES_MAX);
    flow_state_encode(&view, 1, NOW_MS, &content);
    assert_true(flow_state_save(fixture->directory, &content, &fixture->why));
    text_release(&content);
    assert_true(report(fixture, 600000, false));
    (void)snprintf(path, sizeof path, "%s/" FLOW_STATE_NAME, fixture->directory);
    assert_int_equal(unlink(path), 0);
    assert_has(page_text, "    # now: 60\n    rpm = 50\n");
    assert_has(page_text, "  note: Configured rpm = 60, the upstream says 50.\n");
}

static void what_was_met_under_another_configuration_is_told(void **state)
{
    struct fixture *fixture = *state;

    put_minutes(fixture, 599000);
    assert_true(report(fixture, 600000, false));
    assert_has(page_text, "  rpm: 49 of them under another configuration\n");
    assert_true(report(fixture, 600000, true));
    assert_has(page_text, "{\"limit\":\"rpm\",\"refused\":50,\"in_force\":1,");
}

static void only_the_time_that_is_asked_for_is_told(void **state)
{
    struct fixture *fixture = *state;

    put_minutes(fixture, 0);
    assert_true(report(fixture, 60000, false));
    assert_has(page_text, "model qwen-max: 60 exchanges, 5 refused");
    assert_true(report(fixture, 3000, false));
    assert_has(page_text, "model qwen-max: 3 exchanges, 3 refused");
    assert_true(report(fixture, 1, false));
    assert_has(page_text, "\nnone\n");
}

static void json_has_the_same_F12(void **state)
{
    struct fixture *fixture = *state;
    struct json_object *page, *flows, *flow, *limits, *limit, *found;

    put_minutes(fixture, 0);
    assert_true(report(fixture, 600000, true));
    page = json_tokener_parse(page_text);
    assert_non_null(page);
    assert_true(json_object_object_get_ex(page, "flows", &flows));
    assert_int_equal(json_object_array_length(flows), 1);
    flow = json_object_array_get_idx(flows, 0);
    assert_true(json_object_object_get_ex(flow, "refused", &found));
    assert_int_equal(json_object_get_int(found), 50);
    assert_true(json_object_object_get_ex(flow, "limits", &limits));
    assert_int_equal(json_object_array_length(limits), DIAGNOSE_LIMITS);
    limit = json_object_array_get_idx(limits, DIAGNOSE_RPM);
    assert_true(json_object_object_get_ex(limit, "pattern", &found));
    assert_string_equal(json_object_get_string(found), "intermittent");
    assert_true(json_object_object_get_ex(flow, "recommended", &found));
    assert_string_equal(json_object_to_json_string(json_object_array_get_idx(found, 0)),
                        "{ \"section\": \"scope main\", \"line\": \"flow = rate\", \"now\": "
                        "\"none\" }");
    assert_true(json_object_object_get_ex(page, "beyond", &found));
    assert_int_equal(json_object_array_length(found), diagnose_beyond_count);
    json_object_put(page);
    page_text[0] = '\0';
    assert_true(report(fixture, 1, true)); /* nothing is JSON too */
    page = json_tokener_parse(page_text);
    assert_non_null(page);
    json_object_put(page);
}

static void without_a_ledger_the_reason_is_told(void **state)
{
    struct fixture *fixture = *state;
    char whole[sizeof fixture->directory];

    (void)text_copy(whole, sizeof whole, fixture->directory);
    (void)text_copy(fixture->directory, sizeof fixture->directory, "/nonexistent");
    assert_false(report(fixture, 600000, false));
    assert_has(text_string(&fixture->why), "/nonexistent/ledger.db cannot be opened");
    (void)text_copy(fixture->directory, sizeof fixture->directory, whole);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_table_has_counts_and_patterns_F12),
        TEST(what_the_upstream_says_is_read_from_the_state_F7),
        TEST(what_was_met_under_another_configuration_is_told),
        TEST(only_the_time_that_is_asked_for_is_told),
        TEST(json_has_the_same_F12),
        TEST(without_a_ledger_the_reason_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
