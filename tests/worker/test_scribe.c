/* test_scribe.c - from the journal to the ledger, whatever happens to the file, the seat, the process. */
#include "tests/worker/scribe_fixture.h"

static void a_wait_is_seen_when_it_begins_and_when_it_ends_L3(void **state)
{
    struct stage *stage = *state;
    uint32_t first;
    uint32_t second;
    int64_t took_ns;

    stage_start(stage);
    first = stage_arrive(stage, "first", GATE_GRANTED);
    (void)stage_expect(stage, "SELECT call_id FROM show_slots", "first");
    second = stage_arrive(stage, "second", GATE_QUEUED);
    took_ns = stage_expect(stage, "SELECT position, call_id FROM show_queue", "1|second");
    assert_true(took_ns < NS_PER_S); /* ten times the figure */
    fixture_leave(&stage->gate, first, WAIT_DONE);
    assert_int_equal(fixture_try(&stage->gate, second), GATE_GRANTED);
    took_ns = stage_expect(stage, "SELECT count(*) FROM show_queue", "0");
    assert_true(took_ns < NS_PER_S);
    fixture_leave(&stage->gate, second, WAIT_CLIENT_GONE);
    (void)stage_expect(stage, "SELECT call_id, state FROM waits", "first|done\nsecond|client_gone");
    assert_whole(stage->ledger);
}

static void calls_and_events_arrive_too_L1(void **state)
{
    struct stage *stage = *state;

    stage_start(stage);
    stage_calls(stage, 1, 3);
    gate_journal_event(&stage->gate, clock_wall_ms(), "start", "");
    (void)stage_expect(stage, "SELECT count(*) FROM calls", "3");
    (void)stage_expect(stage, "SELECT count(*) FROM events WHERE name = 'start'", "1");
    STAGE_WAIT(atomic_load(&stage_journal(stage)->written) >= 4);
}

static void attempts_arrive_with_their_calls_L1(void **state)
{
    struct stage *stage = *state;
    struct call_record call = call_of(1, clock_wall_ms());
    struct attempt_record first = attempt_of(call.call_id, 1, "throttle");
    struct attempt_record last = attempt_of(call.call_id, 2, "");

    gate_journal_attempt(&stage->gate, &first);
    gate_journal_call(&stage->gate, &call, &last);
    for (unsigned i = 10; i < 2010; i++) { /* several batches */
        call = call_of(i, clock_wall_ms());
        last = attempt_of(call.call_id, 1, "");
        gate_journal_call(&stage->gate, &call, &last);
    }
    stage_start(stage);
    (void)stage_expect(stage, "SELECT count(*) FROM attempts", "2002");
    (void)stage_expect(stage,
                       "SELECT n, error FROM attempts WHERE logical_call_id = 'call-00000001'",
                       "1|throttle\n2|NULL");
    (void)stage_expect(stage, "SELECT count(*) FROM calls", "2001");
    assert_int_equal(atomic_load(&stage_journal(stage)->attempts_lost), 0);
    STAGE_WAIT(atomic_load(&stage_journal(stage)->written) >= 4003);
}

/* The test's own process is in the roster; the child is not, and dead. */
static void running_attempts_end_with_their_worker_L3(void **state)
{
    struct stage *stage = *state;
    struct attempt_record ours = running_of("pst_1", 1, getpid());
    struct attempt_record theirs;
    pid_t child = fork();

    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    theirs = running_of("pst_2", 1, child);
    ours.started_wall_ms = theirs.started_wall_ms = clock_wall_ms();
    stage_start(stage);
    gate_journal_attempt(&stage->gate, &ours);
    gate_journal_attempt(&stage->gate, &theirs);
    gate_journal_event(&stage->gate, clock_wall_ms(), "burial", "pid=1 role=2 slots=0 places=0");
    (void)stage_expect(stage, "SELECT logical_call_id, error FROM attempts",
                       "pst_1|NULL\npst_2|worker_died");
    theirs.n = 2; /* its record comes after the burial: found a little later */
    gate_journal_attempt(&stage->gate, &theirs);
    (void)stage_expect(stage, "SELECT count(*) FROM attempts WHERE error = 'worker_died'", "2");
    ours.ended_wall_ms = clock_wall_ms();
    gate_journal_attempt(&stage->gate, &ours);
    (void)stage_expect(stage, "SELECT count(*) FROM attempts WHERE ended_at IS NULL", "0");
    (void)stage_expect(stage, "SELECT error FROM attempts WHERE logical_call_id = 'pst_1'", "NULL");
}

static void the_configuration_is_written_without_secrets_L7(void **state)
{
    struct stage *stage = *state;

    stage_reload(stage, "[source b]\nbase_url = https://b.example/x\napi_key = @env:KEY_OF_B\n");
    stage_start(stage);
    (void)stage_expect(stage, "SELECT value FROM show_config WHERE key = 'penstock.ledger_max'",
                       "1g");
    (void)stage_expect(stage, "SELECT name, base_url FROM show_sources",
                       "a|https://a.example\nb|https://b.example/x");
    (void)stage_expect(stage, "SELECT value FROM config WHERE key = 'source b.api_key'",
                       "@env:KEY_OF_B");
    (void)stage_expect(stage, "SELECT count(*) FROM config WHERE value LIKE '%s3cr3t%'", "0");
    (void)stage_expect(stage, "SELECT count(*) > 30 FROM config WHERE origin <> ''", "1");
}

static void what_is_there_is_written_before_the_end(void **state)
{
    struct stage *stage = *state;

    stage_calls(stage, 1, 700);
    stage_start(stage);
    scribe_stop(&stage->scribe);
    assert_int_equal(journal_ready(stage_journal(stage)).calls, 0);
    (void)stage_expect(stage, "SELECT count(*) FROM calls", "700");
}

static void with_the_ledger_off_records_are_thrown_away(void **state)
{
    struct stage *stage = *state;

    stage_reload(stage, "ledger = false\n");
    stage_start(stage);
    stage_calls(stage, 1, 10);
    STAGE_WAIT(journal_ready(stage_journal(stage)).calls == 0);
    assert_int_equal(access(stage->ledger->path, F_OK), -1);
    assert_int_equal(atomic_load(&stage_journal(stage)->written), 0);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void a_locked_ledger_stops_nobody_and_loses_nothing_L4(void **state)
{
    struct stage *stage = *state;
    sqlite3 *other = NULL;
    uint32_t place;
    int64_t before_ns;

    stage_start(stage);
    (void)stage_expect(stage, "SELECT count(*) FROM waits", "0");
    assert_int_equal(sqlite3_open(stage->ledger->path, &other), SQLITE_OK);
    (void)sqlite3_busy_timeout(other, 10000);
    assert_int_equal(sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    before_ns = clock_monotonic_ns();
    for (unsigned i = 0; i < 500; i++) {
        place = stage_arrive(stage, "x", GATE_GRANTED);
        fixture_leave(&stage->gate, place, WAIT_DONE);
    }
    stage_calls(stage, 1, 3000);
    assert_true(clock_monotonic_ns() - before_ns < 5 * NS_PER_S);
    STAGE_WAIT(atomic_load(&stage_journal(stage)->failures) >= 2);
    assert_int_equal(journal_ready(stage_journal(stage)).waits, 1000); /* they stay */
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    (void)stage_expect(stage, "SELECT count(*), state FROM waits GROUP BY state", "500|done");
    (void)stage_expect(stage, "SELECT count(*) FROM calls", "3000");
    assert_int_equal(atomic_load(&stage_journal(stage)->waits_lost), 0);
    assert_whole(stage->ledger);
}

static void lost_records_are_counted_and_their_rows_set_right_N8(void **state)
{
    struct stage *stage = *state;
    sqlite3 *other = NULL;
    uint32_t place;

    place = stage_arrive(stage, "ends-unseen", GATE_GRANTED);
    stage_start(stage);
    (void)stage_expect(stage, "SELECT state FROM waits", "granted");
    assert_int_equal(sqlite3_open(stage->ledger->path, &other), SQLITE_OK);
    (void)sqlite3_busy_timeout(other, 10000);
    assert_int_equal(sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    for (unsigned i = 0; i < JOURNAL_WAITS; i++) { /* fill all of the ring */
        struct wait_record record = wait_of(1000000 + i, WAIT_DONE);

        record.arrived_wall_ms = clock_wall_ms();
        gate_lock(&stage->gate);
        journal_wait_locked(stage_journal(stage), &record);
        gate_unlock(&stage->gate);
    }
    fixture_leave(&stage->gate, place, WAIT_DONE);
    (void)stage_arrive(stage, "began-unseen", GATE_GRANTED);
    assert_true(atomic_load(&stage_journal(stage)->waits_lost) >= 2);
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    (void)stage_expect(stage, "SELECT call_id, state FROM waits WHERE call_id LIKE '%unseen'",
                       "ends-unseen|worker_died\nbegan-unseen|granted");
    assert_whole(stage->ledger);
}

static void a_deleted_file_comes_back_with_who_is_there_L4(void **state)
{
    struct stage *stage = *state;
    uint32_t first;

    stage_start(stage);
    first = stage_arrive(stage, "first", GATE_GRANTED);
    (void)stage_arrive(stage, "second", GATE_QUEUED);
    (void)stage_expect(stage, "SELECT call_id FROM show_queue", "second");
    assert_int_equal(unlink(stage->ledger->path), 0);
    stage_forget_reader(stage);
    (void)stage_expect(stage, "SELECT call_id, state FROM waits", "first|granted\nsecond|waiting");
    (void)stage_expect(stage, "SELECT count(*) > 30 FROM config", "1");
    fixture_leave(&stage->gate, first, WAIT_DONE);
    (void)stage_expect(stage, "SELECT call_id, state FROM waits", "first|done\nsecond|waiting");
    assert_whole(stage->ledger);
}

static void a_directory_that_goes_and_comes_loses_nothing_L4(void **state)
{
    struct stage *stage = *state;
    char away[96];

    (void)snprintf(away, sizeof away, "%s.away", stage->ledger->directory);
    stage_start(stage);
    (void)stage_expect(stage, "SELECT count(*) FROM waits", "0");
    assert_int_equal(rename(stage->ledger->directory, away), 0);
    (void)stage_arrive(stage, "meanwhile", GATE_GRANTED);
    STAGE_WAIT(atomic_load(&stage_journal(stage)->failures) >= 2);
    stage_forget_reader(stage);
    assert_int_equal(rename(away, stage->ledger->directory), 0);
    (void)stage_expect(stage, "SELECT call_id FROM show_slots", "meanwhile");
    assert_whole(stage->ledger);
}

static void a_reader_of_an_old_state_bounds_the_log_not_the_waits_L6(void **state)
{
    struct stage *stage = *state;
    const int64_t hold = INT64_C(16777216); /* for ledger_max = 1m */
    struct stat status = {0};
    uint64_t before;
    unsigned n = 0;

    stage_reload(stage, "ledger_max = 1m\n");
    stage_start(stage);
    (void)stage_expect(stage, "SELECT count(*) FROM waits", "0");
    (void)ask(stage->ledger, "BEGIN");
    (void)ask(stage->ledger, "SELECT count(*) FROM waits");
    while (status.st_size <= hold) {
        if (journal_ready(stage_journal(stage)).calls < JOURNAL_CALLS / 2) {
            stage_calls(stage, n, 1000);
            n += 1000;
        } else {
            clock_sleep_ns(NS_PER_MS); /* the scribe's turn: valgrind runs one thread at a time */
        }
        assert_int_equal(stat(stage->ledger->log_path, &status), 0);
    }
    do { /* a transaction that leaves calls behind and takes the waits after them holds them back */
        before = atomic_load(&stage_journal(stage)->written);
        stage_calls(stage, n++, 1);
        fixture_leave(&stage->gate, stage_arrive(stage, "x", GATE_GRANTED), WAIT_DONE);
        STAGE_WAIT(journal_ready(stage_journal(stage)).waits == 0 &&
                   atomic_load(&stage_journal(stage)->written) - before >= 2);
    } while (journal_ready(stage_journal(stage)).calls == 0 ||
             atomic_load(&stage_journal(stage)->written) - before != 2);
    (void)stage_arrive(stage, "still-seen", GATE_GRANTED);
    STAGE_WAIT(journal_ready(stage_journal(stage)).waits == 0);
    assert_true(journal_ready(stage_journal(stage)).calls > 0); /* these wait */
    assert_int_equal(stat(stage->ledger->log_path, &status), 0);
    assert_true(status.st_size < 2 * hold);
    (void)ask(stage->ledger, "COMMIT");
    (void)stage_expect(stage, "SELECT call_id FROM show_slots", "still-seen");
    STAGE_WAIT(journal_ready(stage_journal(stage)).calls == 0);
    STAGE_WAIT(stat(stage->ledger->log_path, &status) == 0 && status.st_size < hold);
    assert_int_equal(atomic_load(&stage_journal(stage)->calls_lost), 0);
    assert_whole(stage->ledger);
}

/* ---- the seat -------------------------------------------------------------------------------- */

static void rows_of_an_earlier_boot_are_closed_L3(void **state)
{
    struct stage *stage = *state;

    assert_non_null(open_again(stage->ledger));
    put_wait(stage->ledger, 5, WAIT_WAITING);
    put_wait(stage->ledger, 6, WAIT_GRANTED);
    ledger_close(stage->ledger->ledger);
    stage->ledger->ledger = NULL;
    stage_start(stage);
    (void)stage_expect(stage, "SELECT count(*) FROM waits WHERE state = 'worker_died'", "2");
}

static void a_workers_scribe_sits_only_without_a_monitor_M10(void **state)
{
    struct stage *stage = *state;
    struct scribe second = {.running = false};

    assert_true(scribe_start(&stage->scribe, &stage->gate, stage->loading.options, false));
    stage_calls(stage, 1, 1);
    clock_sleep_ns(1300 * NS_PER_MS); /* longer than it waits for a monitor */
    assert_int_equal(journal_ready(stage_journal(stage)).calls, 1);
    gate_resign(&stage->monitor, clock_monotonic_ns());
    (void)stage_expect(stage, "SELECT count(*) FROM calls", "1");
    assert_false(journal_sit_down(stage_journal(stage)));

    stage->other = stage_join(stage, PROCESS_MONITOR);
    assert_true(scribe_start(&second, &stage->other, stage->loading.options, true));
    (void)stage_expect(stage, "SELECT count(*) > 30 FROM config", "1"); /* a monitor's work */
    stage_calls(stage, 2, 1);
    (void)stage_expect(stage, "SELECT count(*) FROM calls", "2");
    scribe_stop(&second);
}

static void a_newer_monitor_takes_over(void **state)
{
    struct stage *stage = *state;
    struct loading loading = stage_load(stage, "ledger_keep_s = 77d\n");
    struct scribe second = {.running = false};
    static const char sql[] = "SELECT value FROM config WHERE key = 'penstock.ledger_keep_s'";

    stage_start(stage);
    (void)stage_expect(stage, sql, "30d");
    stage->other = stage_join(stage, PROCESS_MONITOR);
    assert_true(scribe_start(&second, &stage->other, loading.options, true));
    (void)stage_expect(stage, sql, "77d");
    scribe_stop(&stage->scribe); /* the old one ends without writing over it */
    stage_calls(stage, 1, 5);
    (void)stage_expect(stage, "SELECT count(*) FROM calls", "5");
    (void)stage_expect(stage, sql, "77d");
    scribe_stop(&second);
    unload(&loading);
}

/* The writer is killed again and again while records flow. */
static void kill_9_of_the_drainer_loses_and_doubles_nothing_N8(void **state)
{
    struct stage *stage = *state;
    const unsigned rounds = 6;
    const unsigned each = 1500;

    for (unsigned round = 0; round < rounds; round++) {
        uint64_t before = atomic_load(&stage_journal(stage)->written);
        pid_t child = fork();

        if (child == 0) {
            struct gate own = stage_join(stage, PROCESS_MONITOR);
            struct scribe scribe = {.running = false};

            if (!scribe_start(&scribe, &own, stage->loading.options, true))
                _exit(1);
            for (;;)
                pause();
        }
        stage_calls(stage, round * each, each);
        for (unsigned i = 0; i < 50; i++)
            fixture_leave(&stage->gate, stage_arrive(stage, "x", GATE_GRANTED), WAIT_DONE);
        STAGE_WAIT(atomic_load(&stage_journal(stage)->written) > before);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    stage->other = stage_join(stage, PROCESS_MONITOR);
    assert_true(scribe_start(&stage->scribe, &stage->other, stage->loading.options, true));
    (void)stage_expect(stage, "SELECT count(*), count(DISTINCT call_id) FROM calls", "9000|9000");
    (void)stage_expect(stage, "SELECT count(*), state FROM waits GROUP BY state", "300|done");
    assert_int_equal(atomic_load(&stage_journal(stage)->calls_lost), 0);
    assert_whole(stage->ledger);
}

int main(void)
{
#define TEST_STAGE(function) cmocka_unit_test_setup_teardown(function, stage_open, stage_close)
    const struct CMUnitTest tests[] = {
        TEST_STAGE(a_wait_is_seen_when_it_begins_and_when_it_ends_L3),
        TEST_STAGE(calls_and_events_arrive_too_L1),
        TEST_STAGE(attempts_arrive_with_their_calls_L1),
        TEST_STAGE(running_attempts_end_with_their_worker_L3),
        TEST_STAGE(the_configuration_is_written_without_secrets_L7),
        TEST_STAGE(what_is_there_is_written_before_the_end),
        TEST_STAGE(with_the_ledger_off_records_are_thrown_away),
        TEST_STAGE(a_locked_ledger_stops_nobody_and_loses_nothing_L4),
        TEST_STAGE(lost_records_are_counted_and_their_rows_set_right_N8),
        TEST_STAGE(a_deleted_file_comes_back_with_who_is_there_L4),
        TEST_STAGE(a_directory_that_goes_and_comes_loses_nothing_L4),
        TEST_STAGE(a_reader_of_an_old_state_bounds_the_log_not_the_waits_L6),
        TEST_STAGE(rows_of_an_earlier_boot_are_closed_L3),
        TEST_STAGE(a_workers_scribe_sits_only_without_a_monitor_M10),
        TEST_STAGE(a_newer_monitor_takes_over),
        TEST_STAGE(kill_9_of_the_drainer_loses_and_doubles_nothing_N8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
