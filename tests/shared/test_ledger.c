/* test_ledger.c - the file: opened, locked, full, gone, foreign. */
#include "tests/shared/ledger_fixture.h"

static void kill_9_in_a_transaction_leaves_a_whole_file_L5(void **state)
{
    struct fixture *fixture = *state;
    int pipe_ends[2];
    char byte;
    pid_t child;

    put_wait(fixture, 1, WAIT_GRANTED);
    (void)sqlite3_close(fixture->reader); /* no connection crosses the fork */
    fixture->reader = NULL;
    ledger_close(fixture->ledger);
    fixture->ledger = NULL;
    assert_int_equal(pipe(pipe_ends), 0);
    child = fork();
    if (child == 0) {
        if (!open_again(fixture) || !ledger_begin(fixture->ledger))
            _exit(1);
        for (uint64_t seq = 1; seq < 3000; seq++) {
            struct wait_record record = wait_of(seq, WAIT_DONE);

            if (!ledger_put_wait(fixture->ledger, &record))
                _exit(1);
        }
        if (write(pipe_ends[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);

    assert_non_null(open_again(fixture));
    look(fixture);
    assert_whole(fixture);
    assert_string_equal(ask(fixture, "SELECT arrival_seq, state FROM waits"), "1|granted");
    put_wait(fixture, 1, WAIT_DONE);
    assert_whole(fixture);
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
}

static void a_locked_file_is_told_from_a_broken_one_L4(void **state)
{
    struct fixture *fixture = *state;
    sqlite3 *other = NULL;
    int64_t before_ns;

    assert_int_equal(sqlite3_open(fixture->path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
    before_ns = clock_monotonic_ns();
    assert_false(ledger_begin(fixture->ledger));
    assert_true(clock_monotonic_ns() - before_ns < 5 * NS_PER_S); /* busy_ms is 20 */
    assert_true(ledger_is_busy(fixture->ledger));
    assert_non_null(strstr(ledger_error(fixture->ledger), "locked"));
    ledger_rollback(fixture->ledger);
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    put_wait(fixture, 1, WAIT_WAITING);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM waits"), 1);
}

static void a_deleted_file_is_noticed_and_made_anew_L4(void **state)
{
    struct fixture *fixture = *state;

    put_wait(fixture, 1, WAIT_WAITING);
    assert_true(ledger_is_linked(fixture->ledger));
    assert_int_equal(unlink(fixture->path), 0); /* the log stays beside it, as rm leaves it */
    assert_false(ledger_is_linked(fixture->ledger));
    ledger_close(fixture->ledger);
    assert_non_null(open_again(fixture));
    assert_true(ledger_is_linked(fixture->ledger));
    put_wait(fixture, 2, WAIT_WAITING);
    (void)sqlite3_close(fixture->reader);
    look(fixture);
    assert_string_equal(ask(fixture, "SELECT arrival_seq FROM waits"), "2");
    assert_whole(fixture);
}

/* SQLite would play the log it finds beside a file into it, whatever file that is. */
static void the_old_log_never_gets_into_a_file_put_in_place_L5(void **state)
{
    struct fixture *fixture = *state;
    char saved[256];

    put_wait(fixture, 1, WAIT_WAITING);
    ledger_close(fixture->ledger); /* the reader keeps the log alive */
    (void)sqlite3_close(fixture->reader);
    fixture->reader = NULL;
    assert_non_null(open_again(fixture));
    ledger_close(fixture->ledger); /* now all lies in the file */
    (void)snprintf(saved, sizeof saved, "cp %s %s.saved", fixture->path, fixture->path);
    assert_int_equal(system(saved), 0);
    assert_non_null(open_again(fixture));
    put_calls(fixture, 1, 300, ARRIVED_WALL_MS);
    put_wait(fixture, 2, WAIT_WAITING);
    (void)snprintf(saved, sizeof saved, "%s.saved", fixture->path);
    assert_int_equal(rename(saved, fixture->path), 0);
    assert_false(ledger_is_linked(fixture->ledger));
    ledger_close(fixture->ledger);
    fixture->ledger = NULL;
    assert_int_not_equal(access(fixture->log_path, F_OK), 0);
    assert_non_null(open_again(fixture));
    put_wait(fixture, 3, WAIT_WAITING);
    look(fixture);
    assert_whole(fixture);
    assert_string_equal(ask(fixture, "SELECT arrival_seq FROM waits"), "1\n3");
}

static int run_on_full_disk(struct fixture *fixture)
{
    struct rlimit limit;
    bool failed = false;

    (void)signal(SIGXFSZ, SIG_IGN);
    if (!open_again(fixture) || getrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 1;
    limit.rlim_cur = 400000;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 2;
    for (unsigned i = 0; i < 200 && !failed; i++) {
        failed = !ledger_begin(fixture->ledger);
        for (unsigned k = 0; k < 100 && !failed; k++) {
            struct call_record record = call_of(i * 100 + k, ARRIVED_WALL_MS);

            failed = !ledger_put_calls(fixture->ledger, (const struct call_record *[]){&record}, 1);
        }
        failed = failed || !ledger_commit(fixture->ledger);
    }
    if (!failed || ledger_is_busy(fixture->ledger) || *ledger_error(fixture->ledger) == '\0')
        return 3;
    ledger_rollback(fixture->ledger);
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 4;
    ledger_close(fixture->ledger);
    if (!open_again(fixture) || !ledger_begin(fixture->ledger))
        return 5;
    struct call_record last = call_of(999999, ARRIVED_WALL_MS);

    if (!ledger_put_calls(fixture->ledger, (const struct call_record *[]){&last}, 1) ||
        !ledger_commit(fixture->ledger))
        return 6;
    ledger_close(fixture->ledger);
    return 0;
}

static void a_full_disk_breaks_nothing_and_passes_L4(void **state)
{
    struct fixture *fixture = *state;
    int status;
    pid_t child = fork();

    if (child == 0)
        _exit(run_on_full_disk(fixture));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    look(fixture);
    assert_whole(fixture);
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM calls") % 100, 1);
    assert_int_equal(
        ask_number(fixture, "SELECT count(*) FROM calls WHERE call_id = 'call-00999999'"), 1);
}

/* ---- opening --- */

static void expect_refusal(struct fixture *fixture, const char *part)
{
    assert_null(open_again(fixture));
    if (!strstr(text_string(&fixture->why), part))
        fail_msg("\"%s\" is not in \"%s\"", part, text_string(&fixture->why));
}

static void the_directory_must_exist(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(rmdir(fixture->directory), 0);
    expect_refusal(fixture, "directory");
    assert_int_equal(mkdir(fixture->directory, 0700), 0);
}

static void a_newer_schema_is_refused_with_a_sentence(void **state)
{
    struct fixture *fixture = *state;

    assert_non_null(open_again(fixture));
    ledger_close(fixture->ledger);
    run_sql(fixture, "PRAGMA user_version = 4000");
    expect_refusal(fixture, "schema version 4000");
}

static void a_database_of_another_program_is_left_alone(void **state)
{
    struct fixture *fixture = *state;

    run_sql(fixture, "PRAGMA application_id = 1; CREATE TABLE t (x)");
    expect_refusal(fixture, "another program");
    run_sql(fixture, "PRAGMA application_id = 0; CREATE TABLE waits (x)");
    expect_refusal(fixture, "schema version 1");
    look(fixture);
    assert_string_equal(ask(fixture, "SELECT group_concat(name) FROM sqlite_schema"), "t,waits");
}

static void what_is_no_database_is_refused(void **state)
{
    struct fixture *fixture = *state;
    FILE *file = fopen(fixture->path, "w");

    assert_non_null(file);
    for (int i = 0; i < 1000; i++)
        (void)fputs("this is no database ", file);
    (void)fclose(file);
    expect_refusal(fixture, "not a database");
}

static void an_empty_file_is_migrated_from_version_0(void **state)
{
    struct fixture *fixture = *state;
    FILE *file = fopen(fixture->path, "w");

    assert_non_null(file);
    (void)fclose(file);
    assert_non_null(open_again(fixture));
    look(fixture);
    assert_int_equal(ask_number(fixture, "PRAGMA user_version"), LEDGER_MIGRATIONS);
    assert_int_equal(ask_number(fixture, "PRAGMA auto_vacuum"), 2);
    assert_string_equal(ask(fixture, "PRAGMA journal_mode"), "wal");
    assert_int_equal(ask_number(fixture, "PRAGMA application_id"), LEDGER_APPLICATION_ID);
}

static void make_version_2(struct fixture *fixture)
{
    static const char views_and_rows[] =
        "CREATE VIEW show_attempts AS SELECT * FROM attempts;"
        "CREATE VIEW show_sources AS SELECT source, count(*) FROM attempts GROUP BY source;"
        "CREATE VIEW show_calls AS SELECT * FROM calls;"
        "INSERT INTO attempts VALUES ('call-1', 1, 'a', 0, '2026-11-30T10:00:00.000Z', NULL, NULL,"
        " NULL, NULL, NULL, NULL, NULL, 0, 4711, NULL), ('call-1', 2, 'b', 1,"
        " '2026-11-30T10:00:01.000Z', '2026-11-30T10:00:02.000Z', 5, 6, 200, NULL, 7, 8, 0, 4711, "
        "NULL);"
        "PRAGMA user_version = 2";
    sqlite3 *database = NULL;
    char pragma[64];

    (void)snprintf(pragma, sizeof pragma, "PRAGMA application_id = %d", LEDGER_APPLICATION_ID);
    assert_int_equal(sqlite3_open(fixture->path, &database), SQLITE_OK);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(sqlite3_exec(database, ledger_migrations[i], NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, views_and_rows, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, pragma, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
}

/* What an older program wrote is there, where a worker's death closes it. */
static void attempts_of_version_2_are_kept(void **state)
{
    struct fixture *fixture = *state;
    const struct ledger_processes nobody = {.now_wall_ms = ARRIVED_WALL_MS + 9000};

    make_version_2(fixture);
    if (!open_again(fixture))
        fail_msg("%s", text_string(&fixture->why));
    look(fixture);
    assert_int_equal(ask_number(fixture, "PRAGMA user_version"), LEDGER_MIGRATIONS);
    assert_true(ledger_close_attempts(fixture->ledger, &nobody));
    assert_string_equal(ask(fixture, "SELECT n, error, settled_tokens FROM attempts"
                                     " WHERE logical_call_id = 'call-1' ORDER BY n"),
                        "1|worker_died|NULL\n2|NULL|8");
    assert_int_equal(ask_number(fixture, "SELECT count(*) FROM show_attempts"), 2);
}

static void the_group_may_read_whatever_the_umask_says(void **state)
{
    struct fixture *fixture = *state;
    mode_t old = umask(0077);
    struct stat status;

    fixture->ledger =
        ledger_open(fixture->directory, 20, geteuid() == 0 ? 12345 : -1, &fixture->why);
    (void)umask(old);
    assert_non_null(fixture->ledger);
    assert_int_equal(stat(fixture->path, &status), 0);
    assert_int_equal(status.st_mode & 0777U, 0640);
    if (geteuid() == 0)
        assert_int_equal(status.st_gid, 12345);
    assert_int_equal(stat(fixture->log_path, &status), 0);
    assert_int_equal(status.st_mode & 0777U, 0640);
    if (geteuid() == 0)
        assert_int_equal(status.st_gid, 12345);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
#define TEST_OPEN(function) cmocka_unit_test_setup_teardown(function, set_up_directory, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(kill_9_in_a_transaction_leaves_a_whole_file_L5),
        TEST(a_locked_file_is_told_from_a_broken_one_L4),
        TEST(a_deleted_file_is_noticed_and_made_anew_L4),
        TEST(the_old_log_never_gets_into_a_file_put_in_place_L5),
        TEST_OPEN(a_full_disk_breaks_nothing_and_passes_L4),
        TEST_OPEN(the_directory_must_exist),
        TEST_OPEN(a_newer_schema_is_refused_with_a_sentence),
        TEST_OPEN(a_database_of_another_program_is_left_alone),
        TEST_OPEN(what_is_no_database_is_refused),
        TEST_OPEN(an_empty_file_is_migrated_from_version_0),
        TEST_OPEN(attempts_of_version_2_are_kept),
        TEST_OPEN(the_group_may_read_whatever_the_umask_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
