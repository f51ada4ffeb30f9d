/* test_ledger_rows.c - what becomes of each record. */
#include "tests/shared/ledger_fixture.h"

static void one_call_is_one_row_through_all_its_states_L1_L3(void **state)
{
    struct fixture *fixture = *state;
    static const char sql[] = "SELECT state, arrived_at, granted_at, ended_at, wait_ms, hold_ms,"
                              " arrived_ns, granted_ns, released_ns, grant_seq FROM waits";

    put_wait(fixture, 5, WAIT_WAITING);
    assert_string_equal(ask(fixture, sql), "waiting|2026-11-30T10:00:00.000Z|NULL|NULL|NULL|NULL|"
                                           "77000000000|NULL|NULL|NULL");
    put_wait(fixture, 5, WAIT_GRANTED);
    assert_string_equal(ask(fixture, sql),
                        "granted|2026-11-30T10:00:00.000Z|2026-11-30T10:00:02.500Z|NULL|2500|NULL|"
                        "77000000000|79500000000|NULL|1005");
    put_wait(fixture, 5, WAIT_DONE);
    assert_string_equal(ask(fixture, sql),
                        "done|2026-11-30T10:00:00.000Z|2026-11-30T10:00:02.500Z|"
                        "2026-11-30T10:00:12.345Z|2500|9845|77000000000|79500000000|89345000000|"
                        "1005");
    assert_string_equal(ask(fixture, "SELECT boot, arrival_seq, call_id, class, client, scope,"
                                     " model, endpoint, position, in_use_at_arrival,"
                                     " waiting_at_arrival, in_use_at_grant, waiting_at_grant, pid"
                                     " FROM waits"),
                        "-81985529216486896|5|call-5|normal|anna|images|gpt-image-2|"
                        "images.generations|3|8|2|8|1|4711");
    assert_whole(fixture);
}

static void every_state_and_refusal_has_its_word(void **state)
{
    struct fixture *fixture = *state;
    struct wait_record strange = wait_of(99, WAIT_DONE);

    put_wait(fixture, 1, WAIT_REFUSED);
    put_wait(fixture, 2, WAIT_TIMED_OUT);
    put_wait(fixture, 3, WAIT_CLIENT_GONE);
    put_wait(fixture, 4, WAIT_WORKER_DIED);
    put_wait(fixture, 5, WAIT_SHUTDOWN);
    assert_string_equal(ask(fixture, "SELECT state, refusal, wait_ms, hold_ms FROM waits"),
                        "refused|queue_full|0|NULL\ntimed_out|NULL|12345|NULL\n"
                        "client_gone|NULL|2500|9845\nworker_died|NULL|2500|9845\n"
                        "shutdown|NULL|2500|9845");
    assert_string_equal(ledger_refusal_word(GATE_REFUSAL_LIMIT), "limit");
    assert_string_equal(ledger_refusal_word(GATE_REFUSAL_HOPELESS), "hopeless");
    /* A record nobody understands must not stop those behind it. */
    strange.state = 4000;
    strange.arrived_wall_ms = INT64_MAX / 2;
    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_wait(fixture->ledger, &strange));
    assert_true(ledger_commit(fixture->ledger));
    assert_string_equal(ask(fixture, "SELECT state FROM waits WHERE arrival_seq = 99"), "unknown");
    assert_string_equal(ledger_refusal_word(77), "unknown");
}

/* A drainer that died between COMMIT and moving the tail leaves records to be put again. */
static void putting_records_again_changes_nothing_M10(void **state)
{
    struct fixture *fixture = *state;
    static const char sql[] = "SELECT * FROM waits";
    struct event_record event = {.wall_ms = ARRIVED_WALL_MS, .pid = 3, .name = "start"};
    char before[sizeof fixture->answer];

    put_wait(fixture, 5, WAIT_WAITING);
    put_wait(fixture, 5, WAIT_GRANTED);
    put_wait(fixture, 5, WAIT_WAITING);
    assert_string_equal(ask(fixture, "SELECT state FROM waits"), "granted");
    put_wait(fixture, 5, WAIT_DONE);
    (void)text_copy(before, sizeof before, ask(fixture, sql));
    put_wait(fixture, 5, WAIT_WAITING);
    assert_string_equal(ask(fixture, sql), before);
    put_wait(fixture, 5, WAIT_DONE);
    assert_string_equal(ask(fixture, sql), before);
    for (int i = 0; i < 2; i++) {
        put_calls(fixture, 1, 2, ARRIVED_WALL_MS);
        assert_true(ledger_begin(fixture->ledger));
        assert_true(ledger_put_event(fixture->ledger, &event));
        assert_true(ledger_commit(fixture->ledger));
    }
    assert_string_equal(ask(fixture, "SELECT count(*) FROM calls"), "2");
    assert_string_equal(ask(fixture, "SELECT * FROM events"), "2026-11-30T10:00:00.000Z|3|start|");
}

static void what_is_not_known_is_null(void **state)
{
    struct fixture *fixture = *state;

    put_calls(fixture, 1, 1, ARRIVED_WALL_MS);
    assert_string_equal(ask(fixture, "SELECT arrived_at, kind, model_asked, model_served, status,"
                                     " error_code, ttft_ms, tokens_in, tokens_cached, images,"
                                     " image_size, outcome FROM calls"),
                        "2026-11-30T10:00:00.000Z|image|gpt-image-2||200|NULL|NULL|10|NULL|1|NULL|"
                        "ok");
}

/* decisions: a task's pictures are booked on the call that created it, once. */
static void a_polls_pictures_are_booked_once_on_the_creating_call_G14(void **state)
{
    struct fixture *fixture = *state;
    struct call_record creating = {.call_id = "pst_1",
                                   .upstream_id = "resp_9",
                                   .tokens_in = -1,
                                   .tokens_out = -1,
                                   .arrived_wall_ms = ARRIVED_WALL_MS};
    struct call_record poll = {.upstream_id = "resp_9",
                               .poll = 1,
                               .images = 2,
                               .tokens_in = 7,
                               .tokens_out = 70,
                               .arrived_wall_ms = ARRIVED_WALL_MS};

    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_calls(fixture->ledger, (const struct call_record *[]){&creating}, 1));
    for (int i = 2; i <= 3; i++) {
        (void)snprintf(poll.call_id, sizeof poll.call_id, "pst_%d", i);
        assert_true(ledger_put_calls(fixture->ledger, (const struct call_record *[]){&poll}, 1));
    }
    assert_true(ledger_commit(fixture->ledger));
    assert_string_equal(ask(fixture, "SELECT images, tokens_in, tokens_out FROM calls"
                                     " WHERE call_id = 'pst_1'"),
                        "2|7|70");
    assert_string_equal(ask(fixture, "SELECT sum(images), sum(tokens_out) FROM calls"), "2|70");
    assert_string_equal(ask(fixture, "SELECT count(*) FROM calls"), "3");
}

/* ---- groups ---------------------------------------------------------------------------------- */

#define TABLES_MAX 16384U
static char tables[2][TABLES_MAX];

/* Both tables, with the values' types, into `copy`; then they are emptied. */
static void take_tables(struct fixture *fixture, char *copy)
{
    (void)snprintf(copy, TABLES_MAX, "%s\n",
                   ask(fixture, "SELECT c.*, typeof(error_code), typeof(queue_ms), typeof(source)"
                                " FROM calls AS c ORDER BY call_id"));
    (void)text_copy(copy + strlen(copy), TABLES_MAX - strlen(copy),
                    ask(fixture, "SELECT a.*, typeof(error), typeof(ttft_ms), typeof(source)"
                                 " FROM attempts AS a ORDER BY logical_call_id, n"));
    run_sql(fixture, "DELETE FROM calls; DELETE FROM attempts_more");
}

/* Rows of a group of calls are those of its records one by one: values, NULLs, names made clean. With them
 * attempts: one that ends in the transaction it began in, one that comes again. */
static void a_group_is_as_its_records_one_by_one(void **state)
{
    struct fixture *fixture = *state;
    struct call_record calls[LEDGER_GROUP];
    struct attempt_record attempts[LEDGER_GROUP];
    const struct call_record *call_list[LEDGER_GROUP];

    for (unsigned i = 0; i < LEDGER_GROUP; i++) {
        char id[] = "call-0";

        id[5] = (char)('0' + i);
        calls[i] = call_of(i, ARRIVED_WALL_MS + 1000 * (int64_t)i);
        calls[i].queue_ms = i % 3 == 0 ? -1 : 7 * (int64_t)i;
        attempts[i] = attempt_of(id, 1 + i % 2, i % 2 ? "deadline" : "");
        call_list[i] = &calls[i];
    }
    (void)text_copy(calls[2].model_asked, sizeof calls[2].model_asked, "long name\x1b[31m\n\xff");
    (void)text_copy(attempts[2].source, sizeof attempts[2].source, "seven b\x7f");
    (void)text_copy(attempts[3].source, sizeof attempts[3].source, "nine byt\xe7\x94\xbb\x1f");
    attempts[4] = running_of("call-5", attempts[5].n, 4711); /* ends as the next record */
    attempts[6] = attempts[5];
    attempts[7] = running_of("call-5", attempts[5].n, 4711); /* ended: it stays so */
    calls[7] = calls[6];
    for (unsigned i = 0; i < 2; i++) {
        size_t step = i == 0 ? 1 : LEDGER_GROUP;

        assert_true(ledger_begin(fixture->ledger));
        for (size_t at = 0; at < LEDGER_GROUP; at += step)
            assert_true(ledger_put_calls(fixture->ledger, &call_list[at], step));
        for (size_t at = 0; at < LEDGER_GROUP; at++)
            assert_true(ledger_put_attempt(fixture->ledger, &attempts[at]));
        assert_true(ledger_commit(fixture->ledger));
        assert_int_equal(ask_number(fixture, "SELECT count(*) FROM calls"), LEDGER_GROUP - 1);
        assert_int_equal(ask_number(fixture, "SELECT count(*) FROM attempts"), LEDGER_GROUP - 3);
        assert_int_equal(ask_number(fixture,
                                    "SELECT count(*) FROM attempts WHERE error = 'deadline'"
                                    " AND logical_call_id = 'call-5'"),
                         1);
        take_tables(fixture, tables[i]);
    }
    assert_string_equal(tables[1], tables[0]);
    assert_non_null(strstr(tables[1], "long name?[31m??|"));
    assert_non_null(strstr(tables[1], "|seven b?|"));
    assert_non_null(strstr(tables[1], "|nine byt\xe7\x94\xbb?|"));
}

/* A poll books what it shows on another call, in a full group too. */
static void a_group_with_a_poll_books_it_G14(void **state)
{
    struct fixture *fixture = *state;
    struct call_record calls[LEDGER_GROUP];
    const struct call_record *list[LEDGER_GROUP];

    for (unsigned i = 0; i < LEDGER_GROUP; i++) {
        calls[i] = call_of(i, ARRIVED_WALL_MS);
        calls[i].images = 0;
        list[i] = &calls[i];
    }
    (void)text_copy(calls[0].upstream_id, sizeof calls[0].upstream_id, "resp_9");
    calls[7].poll = 1;
    calls[7].images = 3;
    (void)text_copy(calls[7].upstream_id, sizeof calls[7].upstream_id, "resp_9");
    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_calls(fixture->ledger, list, LEDGER_GROUP));
    assert_true(ledger_commit(fixture->ledger));
    assert_string_equal(ask(fixture, "SELECT call_id, images FROM calls WHERE images > 0"),
                        "call-00000000|3");
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM calls"), LEDGER_GROUP);
}

static void names_cannot_steer_a_terminal(void **state)
{
    struct fixture *fixture = *state;
    struct wait_record record = wait_of(1, WAIT_WAITING);

    (void)text_copy(record.model, sizeof record.model, "a\x1b[31m\nb\xc3\xa4\xe7\x94\xbb");
    (void)text_copy(record.client, sizeof record.client,
                    "\xff\xc2\x9b\xed\xa0\x80\xc0\xaf"
                    "x\xe7\x94");
    memset(record.scope, 'x', sizeof record.scope); /* no NUL at all */
    memset(record.endpoint, '\x01', sizeof record.endpoint);
    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_wait(fixture->ledger, &record));
    assert_true(ledger_commit(fixture->ledger));
    assert_string_equal(ask(fixture, "SELECT model, client, length(scope), length(endpoint)"
                                     " FROM waits"),
                        "a?[31m?b\xc3\xa4\xe7\x94\xbb|????????x??|64|64");
}

static void a_transaction_is_whole_or_not_there_L5(void **state)
{
    struct fixture *fixture = *state;
    struct wait_record record = wait_of(1, WAIT_WAITING);

    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_wait(fixture->ledger, &record));
    assert_string_equal(ask(fixture, "SELECT count(*) FROM waits"), "0");
    ledger_rollback(fixture->ledger);
    ledger_rollback(fixture->ledger); /* harmless */
    assert_string_equal(ask(fixture, "SELECT count(*) FROM waits"), "0");
    put_wait(fixture, 2, WAIT_WAITING);
    assert_string_equal(ask(fixture, "SELECT arrival_seq FROM waits"), "2");
}

static void config_and_sources_are_what_is_in_force_now(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_source source = {.base_url = "https://x.example",
                                   .dialect = "openai",
                                   .quota_group = "acme",
                                   .max_in_flight = 20,
                                   .loaded_wall_ms = ARRIVED_WALL_MS};

    for (int i = 0; i < 2; i++) {
        assert_true(ledger_begin(fixture->ledger));
        assert_true(ledger_clear_config(fixture->ledger));
        assert_true(ledger_put_config(fixture->ledger, i ? "b" : "a", "1", "default"));
        source.name = i ? "two" : "one";
        assert_true(ledger_put_source(fixture->ledger, &source));
        assert_true(ledger_commit(fixture->ledger));
    }
    assert_string_equal(ask(fixture, "SELECT * FROM show_config"), "b|1|default");
    assert_string_equal(ask(fixture, "SELECT * FROM show_sources"),
                        "two|https://x.example|openai|acme|20|2026-11-30T10:00:00.000Z|0|0|0|NULL|"
                        "NULL|NULL");
}

static void an_attempt_is_one_row_and_never_runs_again_L1(void **state)
{
    struct fixture *fixture = *state;
    static const char sql[] = "SELECT * FROM attempts";
    struct attempt_record running = running_of("pst_1", 1, 4711);
    struct attempt_record lost = attempt_of("pst_1", 1, "limit_requests");
    struct attempt_record won = attempt_of("pst_1", 2, "");

    lost.ttft_ms = -1;
    lost.status = 429;
    (void)text_copy(lost.limit_kind, sizeof lost.limit_kind, "rpm");
    lost.kept_est = 1;
    lost.est_tokens = 50;
    won.hedge = 1;
    won.settled_tokens = 44;
    put_attempt(fixture, &running);
    assert_string_equal(ask(fixture, sql),
                        "pst_1|1|openai|0|2026-11-30T10:00:00.010Z|NULL|NULL|NULL|NULL|NULL|NULL|"
                        "NULL|0|4711|NULL");
    put_attempt(fixture, &lost);
    put_attempt(fixture, &running); /* a drainer died between COMMIT and moving the tail */
    put_attempt(fixture, &won);
    assert_string_equal(ask(fixture, sql),
                        "pst_1|1|openai|0|2026-11-30T10:00:00.010Z|2026-11-30T10:00:00.910Z|NULL|"
                        "900|429|limit_requests|50|NULL|1|4711|rpm\n"
                        "pst_1|2|openai|1|2026-11-30T10:00:00.020Z|2026-11-30T10:00:00.920Z|120|"
                        "900|200|NULL|NULL|44|0|4711|NULL");
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(one_call_is_one_row_through_all_its_states_L1_L3),
        TEST(every_state_and_refusal_has_its_word),
        TEST(putting_records_again_changes_nothing_M10),
        TEST(what_is_not_known_is_null),
        TEST(a_polls_pictures_are_booked_once_on_the_creating_call_G14),
        TEST(a_group_is_as_its_records_one_by_one),
        TEST(a_group_with_a_poll_books_it_G14),
        TEST(names_cannot_steer_a_terminal),
        TEST(a_transaction_is_whole_or_not_there_L5),
        TEST(config_and_sources_are_what_is_in_force_now),
        TEST(an_attempt_is_one_row_and_never_runs_again_L1),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
