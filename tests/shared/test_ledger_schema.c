/* test_ledger_schema.c - the views are the admin console (L2). */
#include "tests/shared/ledger_fixture.h"

/* As penstock-ledger(5) has them, in this order. */
static const struct {
    const char *name, *columns;
} documented[] = {
    {"show_queue", "position,waited_ms,since,call_id,client,class,scope,model,endpoint,"
                   "position_at_arrival,arrival_seq,pid"},
    {"show_slots", "grant_seq,held_ms,since,wait_ms,call_id,client,class,scope,model,endpoint,"
                   "in_use_at_grant,waiting_at_grant,pid"},
    {"show_stats", "hour,calls,waiting,granted,done,refused,timed_out,client_gone,worker_died,"
                   "shutdown,wait_p50_ms,wait_p95_ms,wait_p99_ms,wait_max_ms,hold_p50_ms,"
                   "hold_p95_ms,hold_p99_ms,hold_max_ms"},
    {"show_refusals", "at,reason,wait_ms,call_id,client,class,scope,model,endpoint,"
                      "in_use_at_arrival,waiting_at_arrival,pid"},
    {"show_calls", "arrived_at,call_id,client,kind,endpoint,scope,source,model_asked,model_served,"
                   "status,outcome,error_code,stream,queue_ms,ttft_ms,generation_ms,"
                   "total_latency_ms,attempts,retries,hedges,hedge_won,fallback,tokens_in,"
                   "tokens_out,tokens_cached,tokens_reasoning,images,bytes_in,bytes_out,pid"},
    {"show_attempts", "started_at,logical_call_id,n,source,hedge,ttft_ms,generation_ms,status,"
                      "error,est_tokens,settled_tokens,kept_est"},
    {"show_hedges", "at,logical_call_id,winner_n,winner_source,hedge_won,winner_ttft_ms,"
                    "winner_generation_ms,loser_n,loser_source,loser_ttft_ms,loser_error,"
                    "loser_tokens,loser_kept_est"},
    {"show_usage", "day,client,model,calls,failed,tokens_in,tokens_out,tokens_cached,"
                   "tokens_reasoning,images"},
    {"show_sources", "name,base_url,loaded_at,calls_last_hour,failed_last_hour,last_call_at"},
    {"show_config", "key,value,origin"},
};

static void every_view_has_its_documented_columns_L2(void **state)
{
    struct fixture *fixture = *state;
    char sql[128];

    assert_int_equal(LENGTH(documented), LEDGER_VIEWS);
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM sqlite_schema WHERE type = 'view'"),
                     LEDGER_VIEWS);
    for (size_t i = 0; i < LENGTH(documented); i++) {
        (void)snprintf(sql, sizeof sql, "SELECT group_concat(name) FROM pragma_table_info('%s')",
                       documented[i].name);
        assert_string_equal(ask(fixture, sql), documented[i].columns);
        (void)snprintf(sql, sizeof sql, "SELECT * FROM %s", documented[i].name);
        assert_string_equal(ask(fixture, sql), "");
    }
}

static bool manual_has_column(const char *manual, const char *column)
{
    char item[96];

    (void)snprintf(item, sizeof item, ".It Va %s", column);
    for (const char *at = strstr(manual, item); at; at = strstr(at + 1, item))
        if (strchr(" \n", at[strlen(item)]))
            return true;
    return false;
}

/* Every column of every table and view has an entry in the manual. */
static void the_manual_knows_every_column_L2(void **state)
{
    struct fixture *fixture = *state;
    FILE *file = fopen("docs/penstock-ledger.5", "r");
    sqlite3_stmt *statement = NULL;
    char *manual;
    size_t length;

    if (!file)
        skip(); /* not started in the source tree */
    manual = calloc(1, 200001);
    assert_non_null(manual);
    length = fread(manual, 1, 200000, file);
    assert_true(length > 1000 && length < 200000);
    (void)fclose(file);
    assert_int_equal(
        sqlite3_prepare_v2(fixture->reader,
                           "SELECT s.name, c.name FROM sqlite_schema AS s,"
                           " pragma_table_info(s.name) AS c WHERE s.type IN ('table', 'view')"
                           " AND s.name NOT LIKE 'sqlite%'",
                           -1, &statement, NULL),
        SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW) {
        const char *of = (const char *)sqlite3_column_text(statement, 0);
        const char *column = (const char *)sqlite3_column_text(statement, 1);

        if (!strstr(manual, of) || !manual_has_column(manual, column))
            fail_msg("penstock-ledger(5) does not explain %s.%s", of, column);
    }
    (void)sqlite3_finalize(statement);
    free(manual);
}

static void the_queue_shows_who_waits_now_and_since_when_L2(void **state)
{
    struct fixture *fixture = *state;
    struct wait_record record;

    assert_true(ledger_begin(fixture->ledger));
    for (uint64_t seq = 10; seq < 13; seq++) {
        record = wait_of(seq, seq == 10 ? WAIT_GRANTED : WAIT_WAITING);
        record.arrived_wall_ms = clock_wall_ms() - 5000;
        assert_true(ledger_put_wait(fixture->ledger, &record));
    }
    assert_true(ledger_commit(fixture->ledger));
    assert_string_equal(ask(fixture, "SELECT position, call_id, position_at_arrival"
                                     " FROM show_queue"),
                        "1|call-11|3\n2|call-12|3");
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM show_queue WHERE waited_ms >= 5000"
                                         " AND waited_ms < 65000"),
                     2);
    assert_string_equal(ask(fixture, "SELECT call_id, wait_ms FROM show_slots"), "call-10|2500");
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM show_slots WHERE held_ms >= 2500"
                                         " AND held_ms < 62500"),
                     1);
    put_wait(fixture, 11, WAIT_DONE);
    assert_string_equal(ask(fixture, "SELECT position, call_id FROM show_queue"), "1|call-12");
}

static void percentiles_are_those_of_the_nearest_rank_L2(void **state)
{
    struct fixture *fixture = *state;

    assert_true(ledger_begin(fixture->ledger));
    for (uint64_t seq = 1; seq <= 200; seq++) { /* waits of 1..200 ms, holds of 10..2000 ms */
        struct wait_record record = wait_of(seq, WAIT_DONE);

        record.granted_ns = record.arrived_ns + (int64_t)((seq * 37) % 200 + 1) * NS_PER_MS;
        record.released_ns = record.granted_ns + (int64_t)((seq * 73) % 200 + 1) * 10 * NS_PER_MS;
        assert_true(ledger_put_wait(fixture->ledger, &record));
    }
    assert_true(ledger_commit(fixture->ledger));
    put_wait(fixture, 300, WAIT_REFUSED); /* does not count as a wait of 0 ms */
    assert_string_equal(ask(fixture, "SELECT * FROM show_stats"),
                        "2026-11-30T10:00Z|201|0|0|200|1|0|0|0|0|100|190|198|200|"
                        "1000|1900|1980|2000");
    assert_string_equal(ask(fixture, "SELECT at, reason, call_id FROM show_refusals"),
                        "2026-11-30T10:00:00.000Z|queue_full|call-300");
}

static void usage_adds_up_per_day_client_and_model_L2(void **state)
{
    struct fixture *fixture = *state;
    struct call_record record = call_of(1, ARRIVED_WALL_MS);

    put_calls(fixture, 10, 3, ARRIVED_WALL_MS);
    (void)text_copy(record.outcome, sizeof record.outcome, "upstream_failed");
    (void)text_copy(record.client, sizeof record.client, "bert");
    record.tokens_in = -1;
    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_call(fixture->ledger, &record));
    assert_true(ledger_commit(fixture->ledger));
    assert_string_equal(ask(fixture, "SELECT * FROM show_usage"),
                        "2026-11-30|anna|gpt-image-2|3|0|30|60|NULL|NULL|3\n"
                        "2026-11-30|bert|gpt-image-2|1|1|NULL|20|NULL|NULL|1");
    assert_string_equal(ask(fixture, "SELECT call_id, outcome FROM show_calls LIMIT 1"),
                        "call-00000012|ok");
}

static void a_hedge_is_told_as_winner_and_loser_L2(void **state)
{
    struct fixture *fixture = *state;

    run_sql(fixture,
            "INSERT INTO attempts VALUES"
            " ('a', 1, 's1', 0, '2026-11-30T10:00:00.000Z', NULL, 900, NULL,"
            "  'hedge_cancelled', 50, NULL, 1),"
            " ('a', 2, 's2', 1, '2026-11-30T10:00:01.000Z', 20, 300, 200, NULL, 50, 40, 0),"
            " ('b', 1, 's1', 0, '2026-11-30T09:00:00.000Z', 20, 300, 200, NULL, 5, 4, 0)");
    assert_string_equal(ask(fixture, "SELECT logical_call_id, winner_source, hedge_won,"
                                     " loser_source, loser_error FROM show_hedges"),
                        "a|s2|1|s1|hedge_cancelled");
    assert_string_equal(ask(fixture, "SELECT logical_call_id, n FROM show_attempts"),
                        "a|2\na|1\nb|1");
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_view_has_its_documented_columns_L2),
        TEST(the_manual_knows_every_column_L2),
        TEST(the_queue_shows_who_waits_now_and_since_when_L2),
        TEST(percentiles_are_those_of_the_nearest_rank_L2),
        TEST(usage_adds_up_per_day_client_and_model_L2),
        TEST(a_hedge_is_told_as_winner_and_loser_L2),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
