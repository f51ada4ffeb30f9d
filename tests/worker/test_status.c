/* test_status.c - the status of a snapshot as text and JSON (O3). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shared/counters.h"
#include "tests/worker/snapshots.h"
#include "worker/status.h"

#include <json-c/json.h>
#include <stdlib.h>

static struct snapshot snapshot;
static struct snapshot_place places[SNAPSHOT_PLACES];
static struct text out;

static int set_up(void **state)
{
    (void)state;
    snapshot_fill(&snapshot, places);
    text_init(&out, 1 << 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    text_release(&out);
    return 0;
}

static const struct status_view everything = {.parts = STATUS_ALL, .now_wall_ms = SNAPSHOT_WALL_MS};

static const char *as_text(const struct status_view *view)
{
    text_clear(&out);
    status_text(&snapshot, view, &out);
    return text_string(&out);
}

static struct json_object *as_json(const struct status_view *view)
{
    struct json_object *json;

    text_clear(&out);
    status_json(&snapshot, view, &out);
    json = json_tokener_parse(text_string(&out));
    assert_non_null(json);
    return json;
}

/* The member at a path of keys and indices, as "slots.calls.0.pid". */
static struct json_object *member(struct json_object *json, const char *path)
{
    char copy[100];
    char *rest = copy;
    char *key;

    assert_true(text_copy(copy, sizeof copy, path));
    while ((key = strsep(&rest, ".")))
        json = json_object_is_type(json, json_type_array)
                   ? json_object_array_get_idx(json, (size_t)atoi(key))
                   : json_object_object_get(json, key);
    return json;
}

static int64_t number(struct json_object *json, const char *path)
{
    struct json_object *found = member(json, path);

    assert_true(json_object_is_type(found, json_type_int));
    return json_object_get_int64(found);
}

static const char *string(struct json_object *json, const char *path)
{
    struct json_object *found = member(json, path);

    assert_true(json_object_is_type(found, json_type_string));
    return json_object_get_string(found);
}

#define assert_has(text, part) assert_non_null(strstr(text, part))
#define assert_lacks(text, part) assert_null(strstr(text, part))

static void o3_text_tells_slots_queue_processes_counters(void **state)
{
    const char *text = as_text(&everything);

    (void)state;
    assert_has(text, "time:                 2027-01-15T08:00:00.000Z\n");
    assert_has(text, "generation:           3\nreloads refused:      ");
    assert_has(text, "image gate:           default (on)\n");
    assert_has(text, "2 of 8 in use, 6 free, 1 of them leased to background work\n");
    assert_has(text, "2 waiting, at most 100\n");
    assert_has(text, "mean slot hold:       12.3 s\n");
    assert_has(text, "1 waits, 2 calls, 3 attempts, 0 events to be written; 50 written");
    assert_has(text, "      5.0      2.0      101  normal       -                 gpt-image-2");
    assert_has(text,
               "        1      4.0  slot      101  normal       -                 gpt-image-2");
    assert_has(text,
               "        2      1.5  flow      101  normal       -                 gpt-image-2");
    assert_has(text, "     101  worker            3       64     5       90  serving\n");
    assert_has(text, "draining (of another instance)\n");
    for (unsigned i = 0; i < COUNTERS; i++)
        assert_has(text, counter_name((enum counter)i));
}

static void sources_are_told_with_what_keeps_calls_away_H7(void **state)
{
    struct status_view view = {.parts = STATUS_SOURCES, .now_wall_ms = SNAPSHOT_WALL_MS};
    struct json_object *json;

    (void)state;
    assert_string_equal(as_text(&view), "\nsources: 0\n");
    snapshot_add_sources(&snapshot);
    assert_string_equal(
        as_text(&view),
        "\nsources: 2\n"
        "  name                  quota_group       state        for_s in_flight  health latency_s "
        "30s_calls 30s_fails  reason\n"
        "  openai                acme              ready            -         7    96.3      2.5  "
        "       40         2  -\n"
        "  azure-we              azure-we          open           4.2         0    21.0        -  "
        "       20        20  transient\n");
    json = as_json(&view);
    assert_string_equal(string(json, "sources.0.name"), "openai");
    assert_string_equal(string(json, "sources.0.quota_group"), "acme");
    assert_string_equal(string(json, "sources.0.state"), "ready");
    assert_string_equal(string(json, "sources.0.breaker"), "closed");
    assert_int_equal(number(json, "sources.0.in_flight"), 7);
    assert_int_equal(number(json, "sources.0.health_permille"), 963);
    assert_int_equal(number(json, "sources.0.latency_ms"), 2512);
    assert_int_equal(number(json, "sources.0.window_calls"), 40);
    assert_int_equal(number(json, "sources.0.window_failures"), 2);
    assert_string_equal(string(json, "sources.1.breaker"), "open");
    assert_string_equal(string(json, "sources.1.reason"), "transient");
    assert_int_equal(number(json, "sources.1.state_for_ms"), 4200);
    assert_int_equal(number(json, "sources.1.open_for_ms"), 4200);
    assert_null(member(json, "queue"));
    (void)json_object_put(json);
}

static void one_word_says_what_a_source_does_now_H7(void **state)
{
    struct source_view source = {.leaving = true};
    int64_t for_ms;

    (void)state;
    assert_string_equal(status_source_state(&source, &for_ms), "leaving");
    source.throttled_for_ns = 1; /* what is left is never told as nothing */
    assert_string_equal(status_source_state(&source, &for_ms), "throttled");
    assert_int_equal(for_ms, 1);
    source.breaker = BREAKER_HALF_OPEN;
    assert_string_equal(status_source_state(&source, &for_ms), "half_open");
    assert_int_equal(for_ms, 0);
    source.breaker = BREAKER_OPEN;
    source.open_for_ns = 3 * NS_PER_S;
    assert_string_equal(status_source_state(&source, &for_ms), "open");
    assert_int_equal(for_ms, 3000);
    source.out_for_ns = 3600 * NS_PER_S;
    assert_string_equal(status_source_state(&source, &for_ms), "out");
    assert_int_equal(for_ms, 3600000);
    source.drained = true;
    assert_string_equal(status_source_state(&source, &for_ms), "drained");
    assert_int_equal(for_ms, 0);
    source = (struct source_view){.health_permille = 1000};
    assert_string_equal(status_source_state(&source, &for_ms), "ready");
}

static void parts_can_be_asked_for_alone(void **state)
{
    struct status_view view = everything;
    struct json_object *json;

    (void)state;
    view.parts = STATUS_QUEUE;
    assert_has(as_text(&view), "waiting calls: 2\n");
    assert_lacks(as_text(&view), "generation:");
    assert_lacks(as_text(&view), "slots held");
    json = as_json(&view);
    assert_int_equal(number(json, "queue.length"), 2);
    assert_null(member(json, "slots"));
    assert_null(member(json, "counters"));
    json_object_put(json);
}

static void long_lists_are_cut_unless_full(void **state)
{
    struct status_view view = everything;
    struct json_object *json;

    (void)state;
    snapshot_make_long(&snapshot, 60);
    assert_has(as_text(&view), "and 35 more (?full shows all)\n");
    assert_lacks(as_text(&view), "\n       26  ");
    view.full = true;
    assert_lacks(as_text(&view), "more (?full");
    assert_has(as_text(&view), "\n       60      4.0");
    json = as_json(&everything);
    assert_int_equal(json_object_array_length(member(json, "queue.calls")), 60);
    json_object_put(json);
}

static void states_that_need_a_hand_are_told(void **state)
{
    (void)state;
    snapshot.linked = false;
    snapshot.master_pid = 0;
    snapshot.gate_on = false;
    snapshot.use.roll_call = true;
    assert_has(as_text(&everything), "its name was removed");
    assert_has(as_text(&everything), "master:               none\n");
    assert_has(as_text(&everything), "default (off)");
    assert_has(as_text(&everything), "roll call:");
}

static void without_a_limit_nothing_is_called_free(void **state)
{
    struct json_object *json;

    (void)state;
    snapshot.limit = 0;
    snapshot.use.free = UINT32_MAX;
    assert_has(as_text(&everything), "2 in use, no limit");
    assert_lacks(as_text(&everything), "4294967295");
    json = as_json(&everything);
    assert_true(json_object_object_get_ex(member(json, "slots"), "free", NULL));
    assert_null(member(json, "slots.free"));
    json_object_put(json);
}

static void o3_json_has_every_number(void **state)
{
    struct json_object *json = as_json(&everything);

    (void)state;
    assert_string_equal(string(json, "time"), "2027-01-15T08:00:00.000Z");
    assert_int_equal(number(json, "generation"), 3);
    assert_string_equal(string(json, "gate"), "default");
    assert_true(json_object_get_boolean(member(json, "gate_on")));
    assert_int_equal(number(json, "slots.limit"), 8);
    assert_int_equal(number(json, "slots.used"), 2);
    assert_int_equal(number(json, "slots.free"), 6);
    assert_int_equal(number(json, "slots.leased"), 1);
    assert_int_equal(json_object_array_length(member(json, "slots.calls")), 1);
    assert_int_equal(number(json, "slots.calls.0.held_ms"), 5000);
    assert_int_equal(number(json, "slots.calls.0.waited_ms"), 2000);
    assert_int_equal(json_object_array_length(member(json, "queue.calls")), 2);
    assert_int_equal(number(json, "queue.calls.0.position"), 1);
    assert_int_equal(number(json, "queue.calls.1.position"), 2);
    assert_string_equal(string(json, "queue.calls.0.waits_for"), "slot");
    assert_string_equal(string(json, "queue.calls.1.waits_for"), "flow");
    assert_int_equal(number(json, "queue.calls.1.waited_ms"), 1500);
    assert_string_equal(string(json, "queue.calls.0.arrived"), "2027-01-15T07:59:53.000Z");
    assert_int_equal(number(json, "processes.1.pid"), 202);
    assert_false(json_object_get_boolean(member(json, "processes.1.own")));
    assert_int_equal(number(json, "journal.waits_lost"), 4);
    assert_int_equal(json_object_object_length(member(json, "counters")), COUNTERS);
    assert_int_equal(number(json, "counters.requests"), 1000 + COUNTER_requests);
    json_object_put(json);
}

/* An empty machine yields JSON too: no comma too many. */
static void json_of_nothing_is_json(void **state)
{
    struct json_object *json;

    (void)state;
    memset(&snapshot, 0, sizeof snapshot);
    json = as_json(&everything);
    assert_int_equal(json_object_array_length(member(json, "slots.calls")), 0);
    assert_int_equal(json_object_array_length(member(json, "processes")), 0);
    json_object_put(json);
}

static void what_clients_send_harms_neither_terminal_nor_json(void **state)
{
    struct json_object *json;
    const char *text;

    (void)state;
    snapshot_make_hostile(&snapshot);
    text = as_text(&everything);
    assert_has(text, "<script>\"'&?[2J??");
    for (; *text; text++)
        assert_true(*text == '\n' || (*text >= ' ' && *text <= '~'));
    json = as_json(&everything);
    assert_string_equal(string(json, "queue.calls.0.model"), "<script>\"'&\x1b[2J\xef\xbf\xbd\n");
    json_object_put(json);
}

static void times_of_another_boot_are_never_negative(void **state)
{
    (void)state;
    places[1].record.arrived_ns = SNAPSHOT_NOW_NS + NS_PER_S;
    assert_int_equal(status_waited_ms(&snapshot, &places[1]), 0);
    assert_int_equal(status_held_ms(&snapshot, &places[1]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(o3_text_tells_slots_queue_processes_counters, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(sources_are_told_with_what_keeps_calls_away_H7, set_up,
                                        tear_down),
        cmocka_unit_test(one_word_says_what_a_source_does_now_H7),
        cmocka_unit_test_setup_teardown(parts_can_be_asked_for_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(long_lists_are_cut_unless_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(states_that_need_a_hand_are_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_a_limit_nothing_is_called_free, set_up, tear_down),
        cmocka_unit_test_setup_teardown(o3_json_has_every_number, set_up, tear_down),
        cmocka_unit_test_setup_teardown(json_of_nothing_is_json, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_clients_send_harms_neither_terminal_nor_json, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(times_of_another_boot_are_never_negative, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
