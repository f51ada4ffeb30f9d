/* test_ledger_read.c - reading one call and latencies beside the writer (H17, H19, L4). */
#include "tests/shared/ledger_fixture.h"

#include "shared/ledger_read.h"

struct seen {
    size_t calls, attempts;
    char text[4000]; /* part:name=value; */
};

static void see(void *context, enum ledger_part part, const struct ledger_column *columns,
                size_t count)
{
    struct seen *seen = context;
    size_t length = strlen(seen->text);

    if (part == LEDGER_PART_CALL)
        seen->calls++;
    else
        seen->attempts++;
    for (size_t i = 0; i < count; i++) {
        char number[32];
        const char *value = columns[i].text;

        (void)snprintf(number, sizeof number, "%jd", (intmax_t)columns[i].number);
        if (columns[i].kind == LEDGER_COLUMN_NULL)
            value = "NULL";
        else if (columns[i].kind == LEDGER_COLUMN_NUMBER)
            value = number;
        length += (size_t)snprintf(seen->text + length, sizeof seen->text - length, "%c:%s=%s;",
                                   part == LEDGER_PART_CALL ? 'c' : 'a', columns[i].name, value);
        assert_true(length < sizeof seen->text);
    }
}

static struct ledger_reader *reader_of(struct fixture *fixture)
{
    struct ledger_reader *reader;

    text_clear(&fixture->why);
    reader = ledger_reader_open(fixture->directory, 20, &fixture->why);
    if (!reader)
        fail_msg("%s", text_string(&fixture->why));
    return reader;
}

#define assert_has(text, part) assert_non_null(strstr(text, part))

static void a_call_comes_with_its_attempts_in_order_H17(void **state)
{
    struct fixture *fixture = *state;
    struct call_record call = call_of(7, ARRIVED_WALL_MS);
    struct attempt_record lost = attempt_of("call-00000007", 1, "hedge_cancelled");
    struct attempt_record won = attempt_of("call-00000007", 2, "");
    struct attempt_record other = attempt_of("call-00000008", 1, "");
    struct ledger_reader *reader;
    struct seen seen = {0};
    size_t rows = 0;

    call.hedges = call.hedge_won = 1;
    call.retries = 2;
    won.hedge = 1;
    put_attempt(fixture, &won);
    put_attempt(fixture, &lost);
    put_attempt(fixture, &other);
    put_call(fixture, &call);
    reader = reader_of(fixture);
    assert_true(ledger_read_call(reader, "call-00000007", see, &seen, &rows));
    assert_int_equal(rows, 3);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.attempts, 2);
    assert_has(seen.text, "c:call_id=call-00000007;");
    assert_has(seen.text, "c:generation_ms=900;c:total_latency_ms=1000;c:retries=2;c:hedges=1;"
                          "c:hedge_won=1;c:fallback=0;");
    assert_has(seen.text, "c:ttft_ms=NULL;");
    assert_has(seen.text, "a:n=1;a:source=openai;a:hedge=0;a:started_at=2026-11-30T10:00:00.010Z;");
    assert_has(seen.text, "a:error=hedge_cancelled;");
    assert_true(strstr(seen.text, "a:n=1;") < strstr(seen.text, "a:n=2;"));
    assert_null(strstr(seen.text, "00000008"));
    ledger_reader_close(reader);
}

static void what_is_not_there_is_no_error_H17(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_reader *reader = reader_of(fixture);
    struct attempt_record running = running_of("pst_9", 1, 4711);
    struct seen seen = {0};
    size_t rows = 99;

    assert_true(ledger_read_call(reader, "' OR 1=1 --", see, &seen, &rows));
    assert_int_equal(rows, 0);
    put_attempt(fixture, &running); /* a call that has not ended, or whose worker died */
    assert_true(ledger_read_call(reader, "pst_9", see, &seen, &rows));
    assert_int_equal(rows, 1);
    assert_int_equal(seen.calls, 0);
    ledger_reader_close(reader);
}

static void assert_refused(struct fixture *fixture, const char *part)
{
    int64_t before_ns = clock_monotonic_ns();

    text_clear(&fixture->why);
    assert_null(ledger_reader_open(fixture->directory, 20, &fixture->why));
    assert_true(clock_monotonic_ns() - before_ns < 5 * NS_PER_S); /* no hang */
    assert_has(text_string(&fixture->why), part);
}

static void what_cannot_be_read_is_told_at_once_L4(void **state)
{
    struct fixture *fixture = *state;
    char whole[sizeof fixture->directory];
    sqlite3 *other = NULL;

    put_calls(fixture, 1, 1, ARRIVED_WALL_MS);
    (void)sqlite3_close(fixture->reader);
    fixture->reader = NULL;
    ledger_close(fixture->ledger);
    fixture->ledger = NULL;

    assert_int_equal(sqlite3_open(fixture->path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other,
                                  "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;"
                                  "CREATE TABLE t (a)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_refused(fixture, "somebody keeps the ledger locked");
    assert_int_equal(sqlite3_close(other), SQLITE_OK);

    run_sql(fixture, "PRAGMA user_version = 99");
    assert_refused(fixture, "no ledger of schema version");
    assert_int_equal(truncate(fixture->path, 0), 0);
    assert_refused(fixture, "no ledger of schema version");
    (void)text_copy(whole, sizeof whole, fixture->directory);
    (void)text_copy(fixture->directory, sizeof fixture->directory, "/nonexistent");
    assert_refused(fixture, "cannot be opened");
    (void)text_copy(fixture->directory, sizeof fixture->directory, whole);
}

/* The row is read while the writer has a transaction open. */
static void the_writer_does_not_hold_up_readers_L4(void **state)
{
    struct fixture *fixture = *state;
    struct call_record later = call_of(2, ARRIVED_WALL_MS);
    struct ledger_reader *reader;
    struct seen seen = {0};
    size_t rows = 0;

    put_calls(fixture, 1, 1, ARRIVED_WALL_MS);
    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_calls(fixture->ledger, (const struct call_record *[]){&later}, 1));
    reader = reader_of(fixture);
    assert_true(ledger_read_call(reader, "call-00000001", see, &seen, &rows));
    assert_int_equal(rows, 1);
    assert_true(ledger_read_call(reader, "call-00000002", see, &seen, &rows));
    assert_int_equal(rows, 0);
    assert_true(ledger_commit(fixture->ledger));
    assert_true(ledger_read_call(reader, "call-00000002", see, &seen, &rows));
    assert_int_equal(rows, 1);
    ledger_reader_close(reader);
}

/* ---- latencies ------------------------------------------------------------------------------- */

static void note(void *context, const struct ledger_latency *latency)
{
    char *text = context;
    size_t length = strlen(text);

    (void)snprintf(text + length, 1000 - length, "%s,%s,%s%jd\n", latency->scope,
                   latency->stream ? "stream" : "whole", latency->at_least ? ">=" : "",
                   (intmax_t)latency->ms);
}

static const char *latencies(struct fixture *fixture, const struct ledger_latency_wish *wish)
{
    struct ledger_reader *reader = reader_of(fixture);

    fixture->answer[0] = '\0';
    assert_true(ledger_read_latencies(reader, wish, note, fixture->answer));
    ledger_reader_close(reader);
    return fixture->answer;
}

static unsigned next_call;

/* A chat call with one attempt; later ones are newer. */
static void put_chat(struct fixture *fixture, const char *scope, bool stream,
                     struct attempt_record attempt)
{
    struct call_record call;

    next_call++;
    call = call_of(next_call, ARRIVED_WALL_MS + next_call);
    (void)text_copy(call.kind, sizeof call.kind, "chat");
    (void)text_copy(call.scope, sizeof call.scope, scope);
    call.stream = stream;
    (void)text_copy(attempt.call_id, sizeof attempt.call_id, call.call_id);
    put_call(fixture, &call);
    put_attempt(fixture, &attempt);
}

static void what_was_given_up_took_at_least_as_long_H19(void **state)
{
    struct fixture *fixture = *state;
    const struct ledger_latency_wish all = {.since_wall_ms = ARRIVED_WALL_MS, .most = 100};
    struct attempt_record attempt = attempt_of("", 1, "hedge_cancelled");

    attempt.ttft_ms = -1;
    attempt.generation_ms = -1; /* not a byte came: only the clock on the wall knows */
    put_chat(fixture, "a", true, attempt);
    attempt = attempt_of("", 1, "client_cancelled"); /* after its first content: that is known */
    attempt.status = 200;
    put_chat(fixture, "b", true, attempt);
    attempt.ttft_ms = -1; /* a document, left in the middle */
    put_chat(fixture, "c", false, attempt);
    attempt = attempt_of("", 1, "ttft_timeout");
    attempt.ttft_ms = -1;
    attempt.ended_wall_ms = attempt.started_wall_ms + 30000;
    put_chat(fixture, "d", true, attempt);
    put_chat(fixture, "e", false, attempt_of("", 1, ""));
    put_chat(fixture, "f", true, attempt_of("", 1, ""));
    assert_string_equal(latencies(fixture, &all), "f,stream,120\ne,whole,900\nd,stream,>=30000\n"
                                                  "c,whole,>=900\nb,stream,120\na,stream,>=900\n");
}

static void what_tells_nothing_is_left_out_H19(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_latency_wish wish = {.since_wall_ms = ARRIVED_WALL_MS, .most = 100};
    struct attempt_record attempt = attempt_of("", 2, "");
    struct call_record image = call_of(999, ARRIVED_WALL_MS + 500);

    attempt.hedge = 1; /* its time began later, and elsewhere */
    put_chat(fixture, "a", true, attempt);
    attempt = attempt_of("", 1, "throttle"); /* fast failures would pull the quantiles down */
    attempt.status = 429;
    put_chat(fixture, "a", true, attempt);
    put_chat(fixture, "a", false, attempt);
    attempt = attempt_of("", 1, "worker_died"); /* nobody knows when */
    put_chat(fixture, "a", false, attempt);
    attempt = running_of("", 1, 4711);
    put_chat(fixture, "a", false, attempt);
    put_call(fixture, &image); /* not of the kinds that are hedged */
    attempt = attempt_of(image.call_id, 1, "");
    put_attempt(fixture, &attempt);
    assert_string_equal(latencies(fixture, &wish), "");

    for (int64_t ms = 1; ms <= 3; ms++) {
        attempt = attempt_of("", 1, "");
        attempt.generation_ms = ms;
        put_chat(fixture, ms == 2 ? "b" : "a", false, attempt);
    }
    assert_string_equal(latencies(fixture, &wish), "a,whole,3\nb,whole,2\na,whole,1\n");
    wish.most = 2;
    assert_string_equal(latencies(fixture, &wish), "a,whole,3\nb,whole,2\n");
    wish.scope = "b";
    assert_string_equal(latencies(fixture, &wish), "b,whole,2\n");
    wish = (struct ledger_latency_wish){.since_wall_ms = ARRIVED_WALL_MS + next_call, .most = 9};
    assert_string_equal(latencies(fixture, &wish), "a,whole,3\n");
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static void note_exchange(void *context, const struct ledger_exchange *exchange)
{
    char *text = context;
    size_t length = strlen(text);

    (void)snprintf(text + length, 1000 - length, "%s/%s %jd+%jd %s %s %jd %jd %d\n",
                   exchange->quota_group, exchange->model,
                   (intmax_t)(exchange->started_wall_ms - ARRIVED_WALL_MS),
                   (intmax_t)(exchange->ended_wall_ms - exchange->started_wall_ms),
                   exchange->limit_kind, exchange->error, (intmax_t)exchange->est_tokens,
                   (intmax_t)exchange->settled_tokens, exchange->good);
}

/* What a call's own row tells counts like what a row beside it does. */
static void attempts_that_calls_tell_are_read_too_H19_F12(void **state)
{
    struct fixture *fixture = *state;
    const struct ledger_latency_wish all = {.since_wall_ms = ARRIVED_WALL_MS, .most = 100};
    const struct ledger_exchange_wish wish = {
        .since_wall_ms = ARRIVED_WALL_MS, .until_wall_ms = ARRIVED_WALL_MS + 5000, .most = 2};
    struct attempt_record attempt = attempt_of("", 1, "");
    struct ledger_reader *reader = reader_of(fixture);
    struct call_record call;

    for (unsigned i = 0; i < 3; i++) {
        call = call_of(i, ARRIVED_WALL_MS + 1000 * (int64_t)i);
        (void)text_copy(call.kind, sizeof call.kind, "chat");
        (void)text_copy(call.scope, sizeof call.scope, i == 1 ? "b" : "a");
        call.stream = i == 2;
        attempt.started_wall_ms = call.arrived_wall_ms + 3;
        attempt.ended_wall_ms = attempt.started_wall_ms + 901 + i;
        attempt.est_tokens = i;
        tell(&call, &attempt);
        put_call(fixture, &call);
    }
    put_chat(fixture, "c", false,
             attempt); /* the row beside it: by arrival between the first two */
    assert_string_equal(latencies(fixture, &all),
                        "a,stream,120\nb,whole,900\nc,whole,900\na,whole,900\n");
    fixture->answer[0] = '\0';
    assert_true(ledger_read_exchanges(reader, &wish, note_exchange, fixture->answer));
    assert_string_equal(fixture->answer, "openai/gpt-image-2 1003+902   1 30 1\n"
                                         "openai/gpt-image-2 2003+903   2 30 1\n");
    ledger_reader_close(reader);
}

static void exchanges_come_in_their_order_F12(void **state)
{
    struct fixture *fixture = *state;
    const struct ledger_source source = {.name = "openai",
                                         .base_url = "",
                                         .dialect = "openai",
                                         .quota_group = "acme",
                                         .loaded_wall_ms = ARRIVED_WALL_MS};
    struct ledger_exchange_wish wish = {
        .since_wall_ms = ARRIVED_WALL_MS, .until_wall_ms = ARRIVED_WALL_MS + 5000, .most = 10};
    struct call_record call = call_of(1, ARRIVED_WALL_MS + 100);
    struct attempt_record attempt = attempt_of(call.call_id, 1, "limit_requests");
    struct ledger_reader *reader = reader_of(fixture);

    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_source(fixture->ledger, &source));
    assert_true(ledger_commit(fixture->ledger));
    put_call(fixture, &call);
    attempt.status = 429;
    attempt.est_tokens = 77;
    (void)text_copy(attempt.limit_kind, sizeof attempt.limit_kind, "rpm");
    put_attempt(fixture, &attempt);
    attempt = attempt_of(call.call_id, 2, "");
    attempt.settled_tokens = 99;
    (void)text_copy(attempt.source, sizeof attempt.source, "gone"); /* of an older configuration */
    put_attempt(fixture, &attempt);
    attempt = running_of(call.call_id, 3, 4711);
    put_attempt(fixture, &attempt);
    call = call_of(2, ARRIVED_WALL_MS - 1); /* too old */
    attempt = attempt_of(call.call_id, 1, "");
    put_call(fixture, &call);
    put_attempt(fixture, &attempt);
    fixture->answer[0] = '\0';
    assert_true(ledger_read_exchanges(reader, &wish, note_exchange, fixture->answer));
    assert_string_equal(fixture->answer, "acme/gpt-image-2 10+900 rpm limit_requests 77 -1 0\n"
                                         "gone/gpt-image-2 20+900   -1 99 1\n");
    ledger_reader_close(reader);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_call_comes_with_its_attempts_in_order_H17),
        TEST(what_is_not_there_is_no_error_H17),
        TEST(what_cannot_be_read_is_told_at_once_L4),
        TEST(the_writer_does_not_hold_up_readers_L4),
        TEST(what_was_given_up_took_at_least_as_long_H19),
        TEST(what_tells_nothing_is_left_out_H19),
        TEST(exchanges_come_in_their_order_F12),
        TEST(attempts_that_calls_tell_are_read_too_H19_F12),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
