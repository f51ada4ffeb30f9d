/* test_ledger_retain.c - what is old or too much goes, and the log is bounded. */
#include "tests/shared/ledger_fixture.h"

static void retain_all(struct fixture *fixture, int64_t now_ms, int64_t keep_ms, int64_t max_bytes)
{
    bool more = true;

    for (unsigned i = 0; more; i++) {
        assert_true(i < 1000); /* it comes to an end */
        assert_true(ledger_retain(fixture->ledger, now_ms, keep_ms, max_bytes, &more));
    }
}

static void old_rows_go_piece_by_piece_L6(void **state)
{
    struct fixture *fixture = *state;
    const int64_t hour_ms = INT64_C(3600000);
    bool more = false;

    put_calls(fixture, 0, 1200, ARRIVED_WALL_MS);
    put_calls(fixture, 5000, 7, ARRIVED_WALL_MS + 2 * hour_ms);
    put_wait(fixture, 1, WAIT_DONE);
    put_wait(fixture, 2, WAIT_GRANTED); /* still at the gate: stays */
    assert_true(
        ledger_retain(fixture->ledger, ARRIVED_WALL_MS + 2 * hour_ms, hour_ms, INT64_MAX, &more));
    assert_true(more);
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM calls"), 707);
    retain_all(fixture, ARRIVED_WALL_MS + 2 * hour_ms, hour_ms, INT64_MAX);
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM calls"), 7);
    assert_string_equal(ask(fixture, "SELECT arrival_seq FROM waits"), "2");
    assert_whole(fixture);
}

static void attempts_go_with_their_age_L6(void **state)
{
    struct fixture *fixture = *state;
    const int64_t hour_ms = INT64_C(3600000);
    char call_id[CALL_ID_SIZE];
    bool more = false;

    assert_true(ledger_begin(fixture->ledger));
    for (unsigned i = 0; i < 1300; i++) { /* the last hundred are young */
        struct attempt_record record;

        (void)snprintf(call_id, sizeof call_id, "pst_%08u", i / 2);
        record = attempt_of(call_id, i % 2 + 1, "");
        if (i >= 1200)
            record.started_wall_ms += 2 * hour_ms;
        assert_true(ledger_put_attempt(fixture->ledger, &record));
    }
    assert_true(ledger_commit(fixture->ledger));
    assert_true(
        ledger_retain(fixture->ledger, ARRIVED_WALL_MS + 2 * hour_ms, hour_ms, INT64_MAX, &more));
    assert_true(more);
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM attempts"), 800);
    retain_all(fixture, ARRIVED_WALL_MS + 2 * hour_ms, hour_ms, INT64_MAX);
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM attempts"), 100);
    assert_string_equal(ask(fixture, "SELECT min(logical_call_id) FROM attempts"), "pst_00000600");
    assert_whole(fixture);
}

static void the_oldest_rows_go_when_the_file_is_too_large_L6(void **state)
{
    struct fixture *fixture = *state;
    const int64_t max_bytes = 400000;

    put_calls(fixture, 0, 5000, ARRIVED_WALL_MS);
    for (uint64_t seq = 1; seq < 5; seq++)
        put_wait(fixture, seq, WAIT_DONE); /* as old as the oldest call */
    ledger_checkpoint(fixture->ledger);
    assert_true(ask_number(fixture, "SELECT page_count * page_size FROM pragma_page_count,"
                                    " pragma_page_size") > max_bytes);
    retain_all(fixture, ARRIVED_WALL_MS, INT64_C(86400000), max_bytes);
    ledger_checkpoint(fixture->ledger);
    assert_true(ask_number(fixture, "SELECT page_count * page_size FROM pragma_page_count,"
                                    " pragma_page_size") <= max_bytes);
    assert_true(ask_number(fixture, "SELECT count(*) FROM calls") > 100);
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM calls WHERE"
                                         " call_id = 'call-00004999'"),
                     1);
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM waits"), 0);
    assert_whole(fixture);
}

static void the_log_is_cut_when_its_reader_has_gone_L6(void **state)
{
    struct fixture *fixture = *state;
    int64_t grown;

    (void)ask(fixture, "BEGIN");
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM calls"), 0);
    for (unsigned i = 0; i < 10; i++)
        put_calls(fixture, i * 1000, 1000, ARRIVED_WALL_MS);
    grown = ledger_wal_bytes(fixture->ledger);
    assert_true(grown > 1000000);
    ledger_checkpoint(fixture->ledger); /* does not wait for the reader, and cannot cut */
    assert_true(ledger_wal_bytes(fixture->ledger) >= grown);
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM calls"), 0);
    (void)ask(fixture, "COMMIT");
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM calls"), 10000);
    ledger_checkpoint(fixture->ledger);
    assert_int_equal(ledger_wal_bytes(fixture->ledger), 0);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(old_rows_go_piece_by_piece_L6),
        TEST(attempts_go_with_their_age_L6),
        TEST(the_oldest_rows_go_when_the_file_is_too_large_L6),
        TEST(the_log_is_cut_when_its_reader_has_gone_L6),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
