/* test_ledger_stale.c - rows whose end was lost are closed; those of the living stay open. */
#include "tests/shared/ledger_fixture.h"

static void rows_whose_end_was_lost_are_closed_once_L3(void **state)
{
    struct fixture *fixture = *state;
    const uint64_t seqs[] = {2, 700};
    struct ledger_open_calls open = {.boot = BOOT,
                                     .next_seq = 701,
                                     .seqs = seqs,
                                     .count = LENGTH(seqs),
                                     .now_wall_ms = ARRIVED_WALL_MS + 60000};
    struct wait_record old = wait_of(5, WAIT_GRANTED);

    old.boot = 12;
    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_wait(fixture->ledger, &old));
    for (uint64_t seq = 1; seq <= 701; seq++) { /* several pages of open rows; 701 came later */
        struct wait_record record = wait_of(seq, seq % 2 ? WAIT_WAITING : WAIT_GRANTED);

        assert_true(ledger_put_wait(fixture->ledger, &record));
    }
    assert_true(ledger_close_stale(fixture->ledger, &open));
    assert_true(ledger_commit(fixture->ledger));
    assert_string_equal(ask(fixture, "SELECT arrival_seq FROM waits WHERE ended_at IS NULL"),
                        "2\n700\n701");
    assert_string_equal(ask(fixture, "SELECT DISTINCT state, ended_at FROM waits"
                                     " WHERE ended_at IS NOT NULL"),
                        "worker_died|2026-11-30T10:01:00.000Z");
    /* Its true end may still come. */
    put_wait(fixture, 4, WAIT_DONE);
    assert_string_equal(ask(fixture, "SELECT state FROM waits WHERE arrival_seq = 4"), "done");
    open.count = 0;
    assert_true(ledger_close_stale(fixture->ledger, &open));
    assert_string_equal(ask(fixture, "SELECT arrival_seq FROM waits WHERE ended_at IS NULL"),
                        "701");
    assert_whole(fixture);
}

#define DEAD 100
#define LIVING 200
#define REUSED 300 /* a new process has the pid of a dead one */

static void attempts_of_a_dead_worker_are_closed_L3(void **state)
{
    struct fixture *fixture = *state;
    const struct ledger_process list[] = {
        {.pid = LIVING, .since_wall_ms = ARRIVED_WALL_MS - 60000},
        {.pid = REUSED, .since_wall_ms = ARRIVED_WALL_MS + 30000},
    };
    const struct ledger_processes alive = {
        .list = list, .count = LENGTH(list), .now_wall_ms = ARRIVED_WALL_MS + 90000};
    struct attempt_record new_one = running_of("pst_4", 1, REUSED);
    struct attempt_record late;

    for (unsigned n = 1; n <= 2; n++) {
        const struct attempt_record records[] = {running_of("pst_1", n, DEAD),
                                                 running_of("pst_2", n, LIVING),
                                                 running_of("pst_3", n, REUSED)};

        for (size_t i = 0; i < LENGTH(records); i++)
            put_attempt(fixture, &records[i]);
    }
    new_one.started_wall_ms = ARRIVED_WALL_MS + 31000;
    put_attempt(fixture, &new_one);
    late = attempt_of("pst_5", 1, "throttle"); /* ended: nothing is closed over it */
    late.pid = DEAD;
    put_attempt(fixture, &late);

    assert_true(ledger_close_attempts(fixture->ledger, &alive));
    assert_string_equal(ask(fixture, "SELECT logical_call_id, n, error, ended_at FROM attempts"),
                        "pst_1|1|worker_died|2026-11-30T10:01:30.000Z\n"
                        "pst_1|2|worker_died|2026-11-30T10:01:30.000Z\n"
                        "pst_2|1|NULL|NULL\npst_2|2|NULL|NULL\n"
                        "pst_3|1|worker_died|2026-11-30T10:01:30.000Z\n"
                        "pst_3|2|worker_died|2026-11-30T10:01:30.000Z\n"
                        "pst_4|1|NULL|NULL\n"
                        "pst_5|1|throttle|2026-11-30T10:00:00.910Z");

    /* Its true end was on its way; and a record of its beginning that comes again changes nothing. */
    late = attempt_of("pst_1", 2, "");
    late.pid = DEAD;
    put_attempt(fixture, &late);
    late = running_of("pst_1", 1, DEAD);
    put_attempt(fixture, &late);
    assert_string_equal(ask(fixture, "SELECT n, error FROM attempts"
                                     " WHERE logical_call_id = 'pst_1'"),
                        "1|worker_died\n2|NULL");
    assert_true(ledger_close_attempts(fixture->ledger, &alive));
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM attempts WHERE ended_at IS NULL"),
                     3);
}

/* Looking costs the lock of somebody else nothing, and closing fails clearly. */
static void closing_waits_for_nobody_when_there_is_nothing_to_close_L4(void **state)
{
    struct fixture *fixture = *state;
    const struct ledger_process living = {.pid = LIVING, .since_wall_ms = ARRIVED_WALL_MS - 60000};
    const struct ledger_processes alive = {.list = &living, .count = 1};
    const struct ledger_processes nobody = {.now_wall_ms = ARRIVED_WALL_MS};
    struct attempt_record running = running_of("pst_2", 1, LIVING);
    sqlite3 *other = NULL;

    put_attempt(fixture, &running);
    assert_int_equal(sqlite3_open(fixture->path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_true(ledger_close_attempts(fixture->ledger, &alive));
    assert_false(ledger_close_attempts(fixture->ledger, &nobody));
    assert_true(ledger_is_busy(fixture->ledger));
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    assert_true(ledger_close_attempts(fixture->ledger, &nobody));
    assert_string_equal(ask(fixture, "SELECT error FROM attempts"), "worker_died");
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(rows_whose_end_was_lost_are_closed_once_L3),
        TEST(attempts_of_a_dead_worker_are_closed_L3),
        TEST(closing_waits_for_nobody_when_there_is_nothing_to_close_L4),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
