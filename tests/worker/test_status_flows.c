/* test_status_flows.c - flow control on the status page, in its three forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/snapshots.h"
#include "worker/status.h"
#include "worker/status_flows.h"
#include "worker/status_html.h"

#include <json-c/json.h>
#include <stdlib.h>

static struct snapshot snapshot;
static struct snapshot_place places[SNAPSHOT_PLACES];
static struct flow_view flows[4];
static struct text out;

static int set_up(void **state)
{
    (void)state;
    snapshot_fill(&snapshot, places);
    snapshot_add_flows(&snapshot, flows);
    text_init(&out, 1 << 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    text_release(&out);
    return 0;
}

#define assert_has(text, part) assert_non_null(strstr(text, part))

static void text_tells_limits_use_waits_and_what_was_learned_F12(void **state)
{
    (void)state;
    snapshot.flow_count = 1;
    status_flows_text(&snapshot, &out);
    assert_string_equal(
        text_string(&out),
        "\nflows (quota group / model): 1\n"
        "acme / qwen-max: adaptive\n"
        "  last 60 s     412 sends of 600, 91234 tokens; in hand 4 sends\n"
        "  in flight     3 of 8\n"
        "  waiting       interactive 0, normal 2, bulk 7; begun so far 12, 200, 40; answered 249\n"
        "  quotas        sends from its headers (41 left there); tokens from refusals\n"
        "  state         drain, 2 cuts so far\n"
        "  learned       8.2 in flight (10.0 went well), 2.12 a second growing by 5.0 %, 97 % of "
        "sends, 88000 tokens a minute, a token in 11.2 ms\n"
        "  estimates     input x 1.044 (other scripts than Latin x 1.396) by 57 calls, output 312 "
        "tokens by 58\n"
        "  upstream      refused 1 rpm, 3 burst; the last 12.3 s ago, burst\n"
        "  paused        for 1.2 s\n"
        "  refused here  5 queue full, 0 client's share full, 0 hopeless, 1 waited too long, 2 "
        "without "
        "a thread to wait in\n");
}

static void a_quota_that_is_configured_too_high_is_told(void **state)
{
    (void)state;
    flows[0].requests_configured = 600;
    flows[0].requests_told = 60;
    snapshot.flow_count = 1;
    status_flows_text(&snapshot, &out);
    assert_has(text_string(&out), "  quotas        sends from its headers: configured 600, the "
                                  "upstream says 60 (41 left there); tokens from refusals\n");
    text_clear(&out);
    flows[0].requests_origin = FLOW_QUOTA_CONFIGURED;
    flows[0].learned.requests_share = 0.97 * 0.1;
    status_flows_text(&snapshot, &out);
    assert_has(text_string(&out), "sends configured 600, refused at about 60 (41 left there)");
}

static void what_is_not_known_is_not_told(void **state)
{
    (void)state;
    flows[0] = flows[1];
    snapshot.flow_count = 1;
    status_flows_text(&snapshot, &out);
    assert_string_equal(text_string(&out),
                        "\nflows (quota group / model): 1\n"
                        "acme / a\"b\\c<script>: shaping\n"
                        "  last 60 s     0 sends, 0 images of 120; in hand -3 images\n"
                        "  in flight     0\n"
                        "  waiting       interactive 0, normal 0, bulk 0; begun so far 0, 0, 0; "
                        "answered 1\n"
                        "  quotas        sends not known; images configured\n");
}

static struct json_object *member(struct json_object *json, const char *key)
{
    struct json_object *found = NULL;

    assert_true(json_object_object_get_ex(json, key, &found));
    return found;
}

static int64_t number(struct json_object *json, const char *key)
{
    struct json_object *found = member(json, key);

    assert_true(json_object_is_type(found, json_type_int));
    return json_object_get_int64(found);
}

static void json_has_every_number_F12(void **state)
{
    const struct status_view view = {.parts = STATUS_FLOWS, .now_wall_ms = SNAPSHOT_WALL_MS};
    struct json_object *page, *list, *flow;

    (void)state;
    status_json(&snapshot, &view, &out);
    page = json_tokener_parse(text_string(&out));
    assert_non_null(page);
    list = member(page, "flows");
    assert_int_equal(json_object_array_length(list), 4);
    flow = json_object_array_get_idx(list, 0);
    assert_string_equal(json_object_get_string(member(flow, "flow")), "adaptive");
    assert_string_equal(json_object_get_string(member(flow, "state")), "drain");
    assert_int_equal(number(flow, "rpm"), 600);
    assert_null(member(flow, "tpm"));
    assert_string_equal(json_object_get_string(member(flow, "rpm_from")), "headers");
    assert_string_equal(json_object_get_string(member(flow, "tpm_from")), "refusals");
    assert_int_equal(number(flow, "requests_left_upstream"), 41);
    assert_null(member(flow, "units_left_upstream"));
    assert_int_equal(number(flow, "sends_60s"), 412);
    assert_int_equal(number(flow, "requests_in_hand"), 4);
    assert_null(member(flow, "units_in_hand"));
    assert_int_equal(number(flow, "in_flight_limit"), 8);
    assert_int_equal(number(member(flow, "waiting"), "bulk"), 7);
    assert_int_equal(number(flow, "paused_ms"), 1200);
    assert_true(json_object_get_double(member(member(flow, "learned"), "pace")) == 2.125);
    assert_int_equal(number(member(flow, "upstream_refusals"), "burst"), 3);
    assert_int_equal(number(member(flow, "last_refusal"), "age_ms"), 12300);
    assert_int_equal(number(member(flow, "refused"), "full"), 5);
    assert_int_equal(number(member(flow, "refused"), "threads"), 2);
    flow = json_object_array_get_idx(list, 1);
    assert_string_equal(json_object_get_string(member(flow, "model")), "a\"b\\c<script>");
    assert_null(member(flow, "rpm_from"));
    assert_string_equal(json_object_get_string(member(flow, "tpm_from")), "configured");
    assert_null(member(flow, "learned"));
    assert_null(member(flow, "last_refusal"));
    assert_null(member(flow, "in_flight_limit"));
    json_object_put(page);
}

static void what_clients_send_becomes_no_markup(void **state)
{
    const struct status_view view = {.parts = STATUS_ALL, .now_wall_ms = SNAPSHOT_WALL_MS};

    (void)state;
    status_html(&snapshot, &view, &out);
    assert_has(text_string(&out), "<td>acme</td><td>qwen-max</td><td>adaptive</td><td "
                                  "class=\"bad\">drain, 1&nbsp;s</td><td class=\"n\" "
                                  "title=\"headers\">412 / 600 (headers)</td>"
                                  "<td class=\"n\">91234</td>");
    assert_has(text_string(&out), "a&quot;b\\c&lt;script&gt;");
    assert_null(strstr(text_string(&out), "<script>"));
    text_clear(&out);
    status_flows_text(&snapshot, &out);
    assert_has(text_string(&out), "acme / invented?1: shaping\n");
}

static void without_flows_there_is_no_section(void **state)
{
    (void)state;
    snapshot.flow_count = 0;
    status_flows_html(&snapshot, &out);
    assert_string_equal(text_string(&out), "");
    status_flows_json(&snapshot, &out);
    assert_string_equal(text_string(&out), "[]");
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(text_tells_limits_use_waits_and_what_was_learned_F12),
        TEST(a_quota_that_is_configured_too_high_is_told),
        TEST(what_is_not_known_is_not_told),
        TEST(json_has_every_number_F12),
        TEST(what_clients_send_becomes_no_markup),
        TEST(without_flows_there_is_no_section),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
