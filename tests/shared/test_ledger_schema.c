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
    {"attempts", "logical_call_id,n,source,hedge,started_at,ended_at,ttft_ms,generation_ms,status,"
                 "error,est_tokens,settled_tokens,kept_est,pid,limit_kind"},
    {"show_attempts", "started_at,logical_call_id,n,source,hedge,ended_at,ttft_ms,generation_ms,"
                      "status,error,limit_kind,est_tokens,settled_tokens,kept_est,pid"},
    {"show_throttles", "minute,quota_group,model,limit_kind,refused,error,est_tokens_max"},
    {"show_hedges", "at,logical_call_id,winner_n,winner_source,hedge_won,winner_ttft_ms,"
                    "winner_generation_ms,loser_n,loser_source,loser_ttft_ms,"
                    "loser_generation_ms,loser_error,loser_tokens,loser_kept_est"},
    {"show_usage", "day,client,model,calls,failed,tokens_in,tokens_out,tokens_cached,"
                   "tokens_reasoning,images"},
    {"show_sources", "name,base_url,dialect,quota_group,max_in_flight,loaded_at,"
                     "attempts_last_hour,failed_last_hour,hedges_last_hour,ttft_p50_ms,"
                     "ttft_p95_ms,last_attempt_at"},
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
    assert_true(ledger_put_calls(fixture->ledger, (const struct call_record *[]){&record}, 1));
    assert_true(ledger_commit(fixture->ledger));
    assert_string_equal(ask(fixture, "SELECT * FROM show_usage"),
                        "2026-11-30|anna|gpt-image-2|3|0|30|60|NULL|NULL|3\n"
                        "2026-11-30|bert|gpt-image-2|1|1|NULL|20|NULL|NULL|1");
    assert_string_equal(ask(fixture, "SELECT call_id, outcome FROM show_calls LIMIT 1"),
                        "call-00000012|ok");
}

static void put_pair(struct fixture *fixture, const char *call_id, unsigned n,
                     const char *primary_error, const char *hedge_error)
{
    struct attempt_record primary = attempt_of(call_id, n, primary_error);
    struct attempt_record hedge = attempt_of(call_id, n + 1, hedge_error);

    (void)text_copy(primary.source, sizeof primary.source, "s1");
    (void)text_copy(hedge.source, sizeof hedge.source, "s2");
    hedge.hedge = 1;
    put_attempt(fixture, &primary);
    put_attempt(fixture, &hedge);
}

static void a_hedge_is_told_as_winner_and_loser_L2(void **state)
{
    struct fixture *fixture = *state;
    struct attempt_record alone = attempt_of("b", 1, "");
    struct attempt_record running;

    put_pair(fixture, "a", 1, "hedge_cancelled", "");
    put_attempt(fixture, &alone);                       /* not hedged: no line */
    put_pair(fixture, "c", 1, "", "hedge_cancelled");   /* the primary was faster */
    put_pair(fixture, "d", 1, "transient", "throttle"); /* both failed: two lines, no winner */
    put_pair(fixture, "d", 3, "hedge_cancelled", "");   /* and once more, with a winner */
    running = running_of("e", 1, 4711);
    put_attempt(fixture, &running);
    running = running_of("e", 2, 4711);
    running.hedge = 1;
    put_attempt(fixture, &running); /* not decided yet */
    assert_string_equal(ask(fixture, "SELECT logical_call_id, winner_n, winner_source, hedge_won,"
                                     " loser_n, loser_source, loser_error FROM show_hedges"),
                        "d|4|s2|1|3|s1|hedge_cancelled\n"
                        "d|NULL|NULL|NULL|2|s2|throttle\n"
                        "d|NULL|NULL|NULL|1|s1|transient\n"
                        "c|1|s1|0|2|s2|hedge_cancelled\n"
                        "a|2|s2|1|1|s1|hedge_cancelled");
    assert_string_equal(ask(fixture, "SELECT logical_call_id, n FROM show_attempts LIMIT 4"),
                        "e|2\ne|1\nd|4\nd|3");
}

/* A call with its one attempt, told by its own row or by one beside it. */
static void put_told(struct fixture *fixture, struct call_record call,
                     struct attempt_record attempt, bool beside)
{
    (void)text_copy(attempt.call_id, sizeof attempt.call_id, call.call_id);
    attempt.started_wall_ms += call.arrived_wall_ms;
    attempt.ended_wall_ms += call.arrived_wall_ms;
    attempt.pid = call.pid;
    attempt.settled_tokens = call.tokens_in < 0 && call.tokens_out < 0
                                 ? -1
                                 : (call.tokens_in < 0 ? 0 : call.tokens_in) +
                                       (call.tokens_out < 0 ? 0 : call.tokens_out);
    if (!beside)
        tell(&call, &attempt);
    put_call(fixture, &call);
    if (beside)
        put_attempt(fixture, &attempt);
}

static void put_told_calls(struct fixture *fixture, bool beside)
{
    struct call_record call = call_of(1, ARRIVED_WALL_MS);
    struct attempt_record attempt = attempt_of("", 1, "");

    attempt.started_wall_ms = 0;
    attempt.ended_wall_ms = 7;
    put_told(fixture, call, attempt, beside);
    call = call_of(2, ARRIVED_WALL_MS + 59999); /* over the minute; nothing known of its tokens */
    call.tokens_in = call.tokens_out = -1;
    attempt.started_wall_ms = 1;
    attempt.ended_wall_ms = 86400000 + 2;
    attempt.ttft_ms = attempt.generation_ms = -1;
    attempt.est_tokens = 0;
    put_told(fixture, call, attempt, beside);
    call = call_of(3, ARRIVED_WALL_MS + 999);
    call.tokens_in = -1;
    call.pid = 4712;
    attempt.est_tokens = 1000;
    attempt.started_wall_ms = 1500;
    put_told(fixture, call, attempt, beside);
    call = call_of(4, ARRIVED_WALL_MS);
    call.tokens_out = -1;
    attempt.status = 204;
    attempt.ttft_ms = 0;
    put_told(fixture, call, attempt, beside);
}

static void an_attempt_reads_the_same_whichever_row_tells_it_L3(void **state)
{
    static const char sql[] = "SELECT a.*, typeof(settled_tokens), typeof(error), typeof(status)"
                              " FROM show_attempts AS a";
    struct fixture *fixture = *state;
    char *beside;

    put_told_calls(fixture, true);
    beside = strdup(ask(fixture, sql));
    assert_non_null(beside);
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM attempts_more"), 4);
    run_sql(fixture, "DELETE FROM calls; DELETE FROM attempts_more");
    put_told_calls(fixture, false);
    assert_string_equal(ask(fixture, sql), beside);
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM attempts_more"), 0);
    assert_string_equal(ask(fixture, "SELECT started_at, ended_at, settled_tokens FROM attempts"
                                     " WHERE logical_call_id = 'call-00000002'"),
                        "2026-11-30T10:01:00.000Z|2026-12-01T10:01:00.001Z|NULL");
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM attempts WHERE hedge <> 0"), 0);
    free(beside);
}

/* How SQLite goes about it: the newest rows are found by an index, not by sorting all. */
static void the_newest_are_found_without_reading_all_L2(void **state)
{
    static const char *const questions[] = {
        "SELECT * FROM attempts WHERE logical_call_id = 'call-1' ORDER BY n",
        "SELECT * FROM show_attempts LIMIT 20",
        "SELECT * FROM show_calls LIMIT 20",
        "SELECT * FROM show_hedges LIMIT 20",
        "SELECT * FROM show_sources",
    };
    static const char scan[] = "SCAN calls", indexed[] = " USING INDEX";
    struct fixture *fixture = *state;
    char sql[256];

    for (size_t i = 0; i < LENGTH(questions); i++) {
        const char *plan;

        (void)snprintf(sql, sizeof sql, "EXPLAIN QUERY PLAN %s", questions[i]);
        plan = ask(fixture, sql);
        assert_non_null(strstr(plan, "|"));
        for (const char *at = plan; (at = strstr(at, scan)); at++)
            if (strncmp(at + sizeof scan - 1, indexed, sizeof indexed - 1) != 0)
                fail_msg("%s reads all calls:\n%s", questions[i], plan);
        if (strstr(questions[i], "show_attempts") && strstr(plan, "ORDER BY"))
            fail_msg("%s sorts all attempts:\n%s", questions[i], plan);
    }
}

/* One call of the last hour with one attempt. */
static void put_recent(struct fixture *fixture, unsigned n, int64_t age_ms,
                       struct attempt_record attempt)
{
    struct call_record call = call_of(n, clock_wall_ms() - age_ms);

    (void)text_copy(attempt.call_id, sizeof attempt.call_id, call.call_id);
    attempt.started_wall_ms = call.arrived_wall_ms;
    attempt.ended_wall_ms = call.arrived_wall_ms + 900;
    put_call(fixture, &call);
    put_attempt(fixture, &attempt);
}

static void sources_tell_how_they_did_in_the_last_hour_L2(void **state)
{
    struct fixture *fixture = *state;
    const struct ledger_source openai = {.name = "openai",
                                         .base_url = "https://a.example",
                                         .dialect = "openai",
                                         .quota_group = "openai",
                                         .loaded_wall_ms = ARRIVED_WALL_MS};
    const struct ledger_source idle = {.name = "idle",
                                       .base_url = "https://b.example",
                                       .dialect = "azure",
                                       .quota_group = "acme",
                                       .max_in_flight = 7,
                                       .loaded_wall_ms = ARRIVED_WALL_MS};
    struct attempt_record attempt;

    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_source(fixture->ledger, &openai));
    assert_true(ledger_put_source(fixture->ledger, &idle));
    assert_true(ledger_commit(fixture->ledger));
    for (unsigned i = 1; i <= 20; i++) { /* 10..200 ms */
        attempt = attempt_of("", 1, "");
        attempt.ttft_ms = i * 10;
        put_recent(fixture, i, 60000, attempt);
    }
    attempt.ttft_ms = 99999;
    put_recent(fixture, 100, 2 * 3600000, attempt); /* too long ago */
    attempt = attempt_of("", 1, "hedge_cancelled"); /* whom we left has not failed */
    attempt.hedge = 1;
    attempt.ttft_ms = -1;
    put_recent(fixture, 101, 50000, attempt);
    attempt = attempt_of("", 1, "throttle");
    attempt.ttft_ms = -1;
    put_recent(fixture, 102, 40000, attempt);
    assert_string_equal(ask(fixture, "SELECT name, base_url, dialect, quota_group, max_in_flight,"
                                     " loaded_at, attempts_last_hour, failed_last_hour,"
                                     " hedges_last_hour, ttft_p50_ms, ttft_p95_ms,"
                                     " last_attempt_at IS NULL FROM show_sources"),
                        "idle|https://b.example|azure|acme|7|2026-11-30T10:00:00.000Z|0|0|0|NULL|"
                        "NULL|1\n"
                        "openai|https://a.example|openai|openai|0|2026-11-30T10:00:00.000Z|22|1|1|"
                        "100|190|0");
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
        TEST(sources_tell_how_they_did_in_the_last_hour_L2),
        TEST(an_attempt_reads_the_same_whichever_row_tells_it_L3),
        TEST(the_newest_are_found_without_reading_all_L2),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
