/* test_status_call.c - one call with its attempts (H17). */
#include "tests/shared/ledger_fixture.h"

#include "worker/status_call.h"

#include <json-c/json.h>

static enum status_call_result write_call(struct fixture *fixture, const char *id, bool json)
{
    struct text out;
    enum status_call_result result;

    text_init(&out, sizeof fixture->answer - 1);
    text_clear(&fixture->why);
    result = status_call_write(fixture->directory, id, json, &out, &fixture->why);
    assert_false(out.overflowed);
    (void)text_copy(fixture->answer, sizeof fixture->answer, text_string(&out));
    text_release(&out);
    return result;
}

/* A stream whose hedge won. */
static void put_hedged(struct fixture *fixture)
{
    struct call_record call = call_of(1, ARRIVED_WALL_MS);
    struct attempt_record lost = attempt_of(call.call_id, 1, "hedge_cancelled");
    struct attempt_record won = attempt_of(call.call_id, 2, "");

    lost.ttft_ms = lost.generation_ms = -1;
    lost.kept_est = 1;
    won.hedge = 1;
    (void)text_copy(won.source, sizeof won.source, "azure-we");
    call.hedges = call.hedge_won = call.stream = 1;
    call.retries = 0;
    (void)text_copy(call.client, sizeof call.client, "\"anna\"");
    put_attempt(fixture, &lost);
    put_attempt(fixture, &won);
    put_call(fixture, &call);
}

static struct json_object *member(struct json_object *json, const char *key, enum json_type type)
{
    struct json_object *found = NULL;

    assert_true(json_object_object_get_ex(json, key, &found));
    assert_true(json_object_is_type(found, type));
    return found;
}

static int64_t number(struct json_object *json, const char *key)
{
    return json_object_get_int64(member(json, key, json_type_int));
}

static bool truth(struct json_object *json, const char *key)
{
    return json_object_get_boolean(member(json, key, json_type_boolean));
}

static void json_has_the_statistics_of_the_call_H17(void **state)
{
    struct fixture *fixture = *state;
    struct json_object *json;
    struct json_object *attempts;
    struct json_object *first;

    put_hedged(fixture);
    assert_int_equal(write_call(fixture, "call-00000001", true), STATUS_CALL_FOUND);
    json = json_tokener_parse(fixture->answer);
    assert_non_null(json);
    assert_true(truth(json, "ended"));
    assert_string_equal(json_object_get_string(member(json, "client", json_type_string)),
                        "\"anna\"");
    assert_int_equal(number(json, "generation_ms"), 900);
    assert_int_equal(number(json, "total_latency_ms"), 1000);
    assert_int_equal(number(json, "queue_ms"), 50);
    assert_int_equal(number(json, "hedges"), 1);
    assert_true(truth(json, "hedge_won"));
    assert_false(truth(json, "fallback"));
    assert_true(truth(json, "stream"));
    assert_int_equal(number(json, "retries"), 0);
    assert_null(json_object_object_get(json, "ttft_ms")); /* null: not known */
    attempts = member(json, "attempts", json_type_array);
    assert_int_equal(json_object_array_length(attempts), 2);
    first = json_object_array_get_idx(attempts, 0);
    assert_int_equal(number(first, "n"), 1);
    assert_false(truth(first, "hedge"));
    assert_true(truth(first, "kept_est"));
    assert_string_equal(json_object_get_string(member(first, "error", json_type_string)),
                        "hedge_cancelled");
    assert_true(truth(json_object_array_get_idx(attempts, 1), "hedge"));
    (void)json_object_put(json);
}

static void text_is_for_people_H17(void **state)
{
    struct fixture *fixture = *state;

    put_hedged(fixture);
    assert_int_equal(write_call(fixture, "call-00000001", false), STATUS_CALL_FOUND);
    assert_non_null(strstr(fixture->answer, "\ncall_id:              call-00000001\n"));
    assert_non_null(strstr(fixture->answer, "\ngeneration_ms:        900\n"));
    assert_non_null(strstr(fixture->answer, "\nttft_ms:              -\n"));
    assert_non_null(strstr(
        fixture->answer, "attempts\n"
                         "    n  source                hedge  started_at                 ttft_ms  "
                         "generation_ms  status  error                   \n"
                         "    1  openai                    0  2026-11-30T10:00:00.010Z         -  "
                         "            -       -  hedge_cancelled         \n"
                         "    2  azure-we                  1  2026-11-30T10:00:00.020Z       120  "
                         "          900     200  -                       \n"));
}

#define assert_begins(text, part) assert_ptr_equal(strstr(text, part), text)

static void a_call_that_runs_shows_what_it_tried_so_far(void **state)
{
    struct fixture *fixture = *state;
    struct attempt_record failed = attempt_of("pst_1", 1, "throttle");
    struct attempt_record running = running_of("pst_1", 2, 4711);
    struct call_record untried = call_of(2, ARRIVED_WALL_MS);

    put_attempt(fixture, &failed);
    put_attempt(fixture, &running);
    assert_int_equal(write_call(fixture, "pst_1", true), STATUS_CALL_FOUND);
    assert_begins(fixture->answer,
                  "{\"ended\":false,\"call_id\":\"pst_1\",\"attempts\":[{\"n\":1,");
    assert_non_null(strstr(fixture->answer, "},{\"n\":2,"));
    assert_string_equal(fixture->answer + strlen(fixture->answer) - 4, "}]}\n");
    assert_int_equal(write_call(fixture, "pst_1", false), STATUS_CALL_FOUND);
    assert_begins(fixture->answer, "pst_1 has not ended, or its worker died\n");

    put_call(fixture, &untried); /* refused before any source was asked */
    assert_int_equal(write_call(fixture, untried.call_id, true), STATUS_CALL_FOUND);
    assert_non_null(strstr(fixture->answer, ",\"attempts\":[]}\n"));
}

static void what_is_not_there_and_what_cannot_be_read_differ_L4(void **state)
{
    struct fixture *fixture = *state;
    int64_t before_ns = clock_monotonic_ns();
    char whole[sizeof fixture->directory];

    assert_int_equal(write_call(fixture, "pst_1", true), STATUS_CALL_UNKNOWN);
    assert_string_equal(fixture->answer, "");
    ledger_close(fixture->ledger);
    fixture->ledger = NULL;
    (void)sqlite3_close(fixture->reader);
    assert_int_equal(sqlite3_open(fixture->path, &fixture->reader), SQLITE_OK);
    assert_int_equal(sqlite3_exec(fixture->reader,
                                  "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;"
                                  "DELETE FROM calls",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(write_call(fixture, "pst_1", true), STATUS_CALL_UNREADABLE);
    assert_non_null(strstr(text_string(&fixture->why), "locked"));
    assert_true(clock_monotonic_ns() - before_ns < 5 * NS_PER_S); /* no hang */
    (void)text_copy(whole, sizeof whole, fixture->directory);
    (void)text_copy(fixture->directory, sizeof fixture->directory, "/nonexistent");
    assert_int_equal(write_call(fixture, "pst_1", true), STATUS_CALL_UNREADABLE);
    assert_non_null(strstr(text_string(&fixture->why), "cannot be opened"));
    (void)text_copy(fixture->directory, sizeof fixture->directory, whole);
}

static void ids_are_those_that_a_call_could_have(void **state)
{
    static const struct {
        const char *id;
        size_t length;
        bool is;
    } rows[] = {
        {"pst_0123456789abcdef0123456789a", 31, true},
        {"a", 1, true},
        {"a?json", 1, true}, /* what follows is not looked at */
        {"", 0, false},
        {"a b", 3, false},
        {"a/b", 3, false},
        {"a\"b", 3, false},
        {"012345678901234567890123456789012345678", 39, true},
        {"0123456789012345678901234567890123456789", 40, false},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++)
        assert_int_equal(status_call_is_id(rows[i].id, rows[i].length), rows[i].is);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(json_has_the_statistics_of_the_call_H17),
        TEST(text_is_for_people_H17),
        TEST(a_call_that_runs_shows_what_it_tried_so_far),
        TEST(what_is_not_there_and_what_cannot_be_read_differ_L4),
        cmocka_unit_test(ids_are_those_that_a_call_could_have),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
