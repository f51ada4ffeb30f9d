/*
 * ledger_fixture.h - a ledger in a directory of its own, a reader beside it, and records to put; for
 * the tests of shared/ledger*.c and worker/scribe.c.
 */
#ifndef TESTS_SHARED_LEDGER_FIXTURE_H
#define TESTS_SHARED_LEDGER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/text.h"
#include "shared/gate.h"
#include "shared/ledger.h"
#include "shared/ledger_schema.h"

#include <inttypes.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BOOT UINT64_C(0xfedcba9876543210)      /* as a signed number: negative */
#define ARRIVED_WALL_MS INT64_C(1796032800000) /* 2026-11-30T10:00:00Z */
#define ARRIVED_NS (INT64_C(77) * NS_PER_S)

struct fixture {
    char directory[64];
    char path[96], log_path[128];
    struct text why;
    struct ledger *ledger;
    sqlite3 *reader;
    char answer[2048];
};

static inline struct ledger *open_again(struct fixture *fixture)
{
    text_clear(&fixture->why);
    fixture->ledger = ledger_open(fixture->directory, 20, -1, &fixture->why);
    return fixture->ledger;
}

static inline int set_up_directory(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);

    (void)snprintf(fixture->directory, sizeof fixture->directory, "/tmp/ledger-XXXXXX");
    if (!mkdtemp(fixture->directory))
        return -1;
    (void)snprintf(fixture->path, sizeof fixture->path, "%s/ledger.db", fixture->directory);
    (void)snprintf(fixture->log_path, sizeof fixture->log_path, "%s-wal", fixture->path);
    text_init(&fixture->why, 1000);
    *state = fixture;
    return 0;
}

static inline void look(struct fixture *fixture)
{
    assert_int_equal(sqlite3_open_v2(fixture->path, &fixture->reader, SQLITE_OPEN_READONLY, NULL),
                     SQLITE_OK);
}

static inline int set_up(void **state)
{
    struct fixture *fixture;

    if (set_up_directory(state) != 0)
        return -1;
    fixture = *state;
    if (!open_again(fixture)) {
        print_error("%s\n", text_string(&fixture->why));
        return -1;
    }
    look(fixture);
    return 0;
}

static inline int tear_down(void **state)
{
    struct fixture *fixture = *state;
    static const char *const names[] = {"", "-wal", "-shm"};
    char path[128];

    (void)sqlite3_close(fixture->reader);
    ledger_close(fixture->ledger);
    for (size_t i = 0; i < LENGTH(names); i++) {
        (void)snprintf(path, sizeof path, "%s%s", fixture->path, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(fixture->directory);
    text_release(&fixture->why);
    free(fixture);
    return 0;
}

/* The answer as text: columns with "|", rows with "\n". */
static const char *ask(struct fixture *fixture, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    size_t length = 0;
    int code;

    fixture->answer[0] = '\0';
    if (sqlite3_prepare_v2(fixture->reader, sql, -1, &statement, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(fixture->reader));
    while ((code = sqlite3_step(statement)) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(statement); i++) {
            const unsigned char *text = sqlite3_column_text(statement, i);

            length +=
                (size_t)snprintf(fixture->answer + length, sizeof fixture->answer - length, "%s%s",
                                 i > 0        ? "|"
                                 : length > 0 ? "\n"
                                              : "",
                                 text ? (const char *)text : "NULL");
            assert_true(length < sizeof fixture->answer);
        }
    if (code != SQLITE_DONE)
        fail_msg("%s: %s", sql, sqlite3_errmsg(fixture->reader));
    (void)sqlite3_finalize(statement);
    return fixture->answer;
}

static inline int64_t ask_number(struct fixture *fixture, const char *sql)
{
    return strtoll(ask(fixture, sql), NULL, 10);
}

/* By a connection of somebody else. */
static inline void run_sql(struct fixture *fixture, const char *sql)
{
    sqlite3 *database = NULL;

    assert_int_equal(sqlite3_open(fixture->path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
}

/* L5: what a state says and what the columns say is the same. */
static inline void assert_whole(struct fixture *fixture)
{
    assert_string_equal(ask(fixture, "PRAGMA integrity_check"), "ok");
    assert_string_equal(ask(fixture,
                            "SELECT count(*) FROM waits WHERE"
                            " (state IN ('waiting', 'granted')) <> (ended_at IS NULL)"
                            " OR (granted_at IS NULL) <> (grant_seq IS NULL)"
                            " OR (state IN ('granted', 'done') AND granted_at IS NULL)"
                            " OR (state = 'waiting' AND granted_at IS NOT NULL)"
                            " OR (state = 'done' AND (hold_ms IS NULL OR wait_ms IS NULL))"),
                        "0");
}

static inline struct wait_record wait_of(uint64_t seq, enum wait_state state)
{
    struct wait_record record = {
        .boot = BOOT,
        .arrival_seq = seq,
        .state = state,
        .position = 3,
        .arrived_wall_ms = ARRIVED_WALL_MS,
        .arrived_ns = ARRIVED_NS,
        .in_use_at_arrival = 8,
        .waiting_at_arrival = 2,
        .pid = 4711,
        .class_name = "normal",
        .client = "anna",
        .scope = "images",
        .model = "gpt-image-2",
        .endpoint = "images.generations",
    };

    (void)snprintf(record.call_id, sizeof record.call_id, "call-%" PRIu64, seq);
    if (state == WAIT_WAITING)
        return record;
    if (state == WAIT_REFUSED) {
        record.position = 0;
        record.refusal = GATE_REFUSAL_QUEUE_FULL;
        record.released_ns = ARRIVED_NS;
        return record;
    }
    if (state != WAIT_TIMED_OUT) {
        record.grant_seq = seq + 1000;
        record.granted_ns = ARRIVED_NS + 2500 * NS_PER_MS;
        record.in_use_at_grant = 8;
        record.waiting_at_grant = 1;
    }
    if (state != WAIT_GRANTED)
        record.released_ns = ARRIVED_NS + 12345 * NS_PER_MS;
    return record;
}

static inline struct call_record call_of(unsigned n, int64_t wall_ms)
{
    struct call_record record = {
        .arrived_wall_ms = wall_ms,
        .generation_ms = 900,
        .total_latency_ms = 1000,
        .queue_ms = 50,
        .ttft_ms = -1,
        .tokens_in = 10,
        .tokens_out = 20,
        .tokens_cached = -1,
        .tokens_reasoning = -1,
        .image_tokens_in = -1,
        .image_tokens_out = -1,
        .bytes_in = 300,
        .bytes_out = 4000,
        .status = 200,
        .upstream_status = 200,
        .images = 1,
        .pid = 4711,
        .attempts = 1,
        .kind = "image",
        .client = "anna",
        .route = "all",
        .scope = "images",
        .source = "openai",
        .model_asked = "gpt-image-2",
        .endpoint = "images.generations",
        .outcome = "ok",
    };

    (void)snprintf(record.call_id, sizeof record.call_id, "call-%08u", n);
    return record;
}

static inline struct attempt_record attempt_of(const char *call_id, unsigned n, const char *error)
{
    struct attempt_record record = {
        .started_wall_ms = ARRIVED_WALL_MS + 10 * (int64_t)n,
        .ended_wall_ms = ARRIVED_WALL_MS + 10 * (int64_t)n + 900,
        .ttft_ms = 120,
        .generation_ms = 900,
        .est_tokens = -1,
        .settled_tokens = -1,
        .status = 200,
        .pid = 4711,
        .n = n,
        .source = "openai",
    };

    (void)text_copy(record.call_id, sizeof record.call_id, call_id);
    (void)text_copy(record.error, sizeof record.error, error);
    if (*error)
        record.status = 0;
    return record;
}

/* As it is booked when a hedge is sent beside it. */
static inline struct attempt_record running_of(const char *call_id, unsigned n, int32_t pid)
{
    struct attempt_record record = attempt_of(call_id, n, "");

    record.ended_wall_ms = 0;
    record.ttft_ms = record.generation_ms = -1;
    record.status = 0;
    record.pid = pid;
    return record;
}

/* The call tells its attempt: no record of the attempt's own is needed. */
static inline void tell(struct call_record *call, const struct attempt_record *attempt)
{
    call->tells_attempt = 1;
    call->attempt_start_ms = attempt->started_wall_ms - call->arrived_wall_ms;
    call->attempt_ms = attempt->ended_wall_ms - attempt->started_wall_ms;
    call->est_tokens = attempt->est_tokens;
    call->ttft_ms = attempt->ttft_ms;
    call->generation_ms = attempt->generation_ms;
    call->upstream_status = attempt->status;
}

static inline void put_attempt(struct fixture *fixture, const struct attempt_record *record)
{
    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_attempt(fixture->ledger, record));
    assert_true(ledger_commit(fixture->ledger));
}

static inline void put_call(struct fixture *fixture, const struct call_record *record)
{
    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_calls(fixture->ledger, &record, 1));
    assert_true(ledger_commit(fixture->ledger));
}

static inline void put_wait(struct fixture *fixture, uint64_t seq, enum wait_state state)
{
    struct wait_record record = wait_of(seq, state);

    assert_true(ledger_begin(fixture->ledger));
    assert_true(ledger_put_wait(fixture->ledger, &record));
    assert_true(ledger_commit(fixture->ledger));
}

static inline void put_calls(struct fixture *fixture, unsigned first, unsigned count,
                             int64_t wall_ms)
{
    assert_true(ledger_begin(fixture->ledger));
    for (unsigned i = 0; i < count; i++) {
        struct call_record record = call_of(first + i, wall_ms + i);

        assert_true(ledger_put_calls(fixture->ledger, (const struct call_record *[]){&record}, 1));
    }
    assert_true(ledger_commit(fixture->ledger));
}

#endif
