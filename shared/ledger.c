/*
 * ledger.c - the SQLite file: opened, kept in shape; see ledger.h. Rows are written in
 * ledger_rows.c, deleted in ledger_retain.c.
 *
 * A trap that shapes this file: POSIX locks belong to a process and a file, so closing *any*
 * descriptor of the database or its -shm would drop SQLite's locks. Files that exist are therefore
 * judged and changed by name, never opened here.
 */
#include "shared/ledger_inside.h"
#include "shared/ledger_schema.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEDGER_MODE 0640U

/* Calls are put LEDGER_GROUP at a time: a statement's own costs are those of a third of a row. */
#define GROUP(row) row ", " row ", " row ", " row ", " row ", " row ", " row ", " row
#define CALL_ROW                                                                                   \
    "(NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,"   \
    " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
#define PUT_CALLS(rows) "INSERT INTO calls VALUES " rows " ON CONFLICT (call_id) DO NOTHING"

static const char *const statement_texts[LEDGER_STATEMENTS] = {
    [LEDGER_BEGIN] = "BEGIN IMMEDIATE",
    [LEDGER_COMMIT] = "COMMIT",
    [LEDGER_PUT_WAIT] =
        "INSERT INTO waits VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,"
        " ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25)"
        " ON CONFLICT (boot, arrival_seq) DO UPDATE SET grant_seq = excluded.grant_seq,"
        " state = excluded.state, refusal = excluded.refusal, granted_at = excluded.granted_at,"
        " ended_at = excluded.ended_at, wait_ms = excluded.wait_ms, hold_ms = excluded.hold_ms,"
        " granted_ns = excluded.granted_ns, released_ns = excluded.released_ns,"
        " in_use_at_grant = excluded.in_use_at_grant,"
        " waiting_at_grant = excluded.waiting_at_grant"
        /* never backwards: waiting, granted, ended */
        " WHERE excluded.ended_at IS NOT NULL OR (waits.ended_at IS NULL"
        " AND (waits.granted_at IS NULL OR excluded.granted_at IS NOT NULL))",
    [LEDGER_PUT_CALL] = PUT_CALLS(CALL_ROW),
    [LEDGER_PUT_CALLS] = PUT_CALLS(GROUP(CALL_ROW)),
    /* Once: a poll of work whose pictures are booked changes nothing. */
    [LEDGER_BOOK_POLL] =
        "UPDATE calls SET images = ?2, tokens_in = coalesce(tokens_in, ?3),"
        " tokens_out = coalesce(tokens_out, ?4), image_tokens_in = coalesce(image_tokens_in, ?5),"
        " image_tokens_out = coalesce(image_tokens_out, ?6), image_size = ?7, image_quality = ?8,"
        " image_format = ?9 WHERE upstream_id = ?1 AND images = 0",
    [LEDGER_PUT_ATTEMPT] =
        "INSERT INTO attempts_more VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (logical_call_id, n) DO UPDATE SET ended_at = excluded.ended_at,"
        " ttft_ms = excluded.ttft_ms, generation_ms = excluded.generation_ms,"
        " status = excluded.status, error = excluded.error, est_tokens = excluded.est_tokens,"
        " settled_tokens = excluded.settled_tokens, kept_est = excluded.kept_est,"
        " limit_kind = excluded.limit_kind"
        /* never backwards: running, ended */
        " WHERE excluded.ended_at IS NOT NULL OR attempts_more.ended_at IS NULL",
    [LEDGER_PUT_EVENT] = "INSERT INTO events VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
    [LEDGER_PUT_CONFIG] = "INSERT OR REPLACE INTO config VALUES (?1, ?2, ?3)",
    [LEDGER_PUT_SOURCE] = "INSERT OR REPLACE INTO sources VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [LEDGER_NEXT_OPEN] = "SELECT boot, arrival_seq FROM waits WHERE ended_at IS NULL"
                         " AND (boot, arrival_seq) > (?1, ?2) ORDER BY boot, arrival_seq LIMIT ?3",
    [LEDGER_CLOSE_WAIT] = "UPDATE waits SET state = 'worker_died', ended_at = ?3"
                          " WHERE boot = ?1 AND arrival_seq = ?2 AND ended_at IS NULL",
    [LEDGER_NEXT_RUNNER] = "SELECT pid, min(started_at) FROM attempts_more WHERE ended_at IS NULL"
                           " AND pid > ?1 GROUP BY pid ORDER BY pid LIMIT 1",
    [LEDGER_CLOSE_ATTEMPTS] = "UPDATE attempts_more SET error = 'worker_died', ended_at = ?3"
                              " WHERE ended_at IS NULL AND pid = ?1 AND started_at < ?2",
};

bool ledger_failed(struct ledger *ledger, const char *what)
{
    int code = sqlite3_errcode(ledger->database);

    ledger->busy = code == SQLITE_BUSY || code == SQLITE_LOCKED;
    (void)snprintf(ledger->error, sizeof ledger->error, "%s: %s", what,
                   sqlite3_errmsg(ledger->database));
    return false;
}

bool ledger_run(struct ledger *ledger, const char *sql)
{
    return sqlite3_exec(ledger->database, sql, NULL, NULL, NULL) == SQLITE_OK ||
           ledger_failed(ledger, "the ledger refuses a statement");
}

bool ledger_ask(struct ledger *ledger, const char *sql, int64_t *ret_number)
{
    sqlite3_stmt *statement = NULL;
    bool ok = sqlite3_prepare_v2(ledger->database, sql, -1, &statement, NULL) == SQLITE_OK &&
              sqlite3_step(statement) == SQLITE_ROW;

    if (ok)
        *ret_number = sqlite3_column_int64(statement, 0);
    else
        (void)ledger_failed(ledger, "the ledger cannot be read");
    (void)sqlite3_finalize(statement);
    return ok;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* 0640, and readable by the group, whatever the umask says. */
static void lend(const char *path, int64_t group)
{
    struct stat status;

    if (lstat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return;
    if ((status.st_mode & 07777U) != LEDGER_MODE)
        (void)chmod(path, LEDGER_MODE);
    if (group >= 0 && status.st_gid != (gid_t)group && lchown(path, (uid_t)-1, (gid_t)group) != 0)
        return; /* people then read it as Penstock's own group; the ledger itself works */
}

/* Nobody can hold a lock on a file that did not exist: only then is it opened here. */
static bool create_file(const struct ledger *ledger, struct text *why)
{
    int fd = open(ledger->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, LEDGER_MODE);

    if (fd < 0 && errno == EEXIST)
        return true;
    if (fd < 0) {
        text_printf(why, "%s cannot be created: %s", ledger->path, strerror(errno));
        return false;
    }
    (void)close(fd);
    return true;
}

/* The log that belongs to the file we have open: remembered, so that a later file of the same name
 * never gets it. */
static void remember_log(struct ledger *ledger)
{
    struct stat status;

    ledger->log_known = lstat(ledger->log_path, &status) == 0;
    ledger->log_device = status.st_dev;
    ledger->log_inode = status.st_ino;
}

/* The database was replaced under us: SQLite leaves our log where it is, and would play it into
 * whatever file has the name now. */
static void remove_own_log(const struct ledger *ledger)
{
    struct stat status;

    if (!ledger->log_known || lstat(ledger->log_path, &status) != 0 ||
        status.st_dev != ledger->log_device || status.st_ino != ledger->log_inode)
        return;
    (void)unlink(ledger->log_path);
    (void)unlink(ledger->index_path);
}

bool ledger_is_linked(const struct ledger *ledger)
{
    int moved = 0;

    return sqlite3_file_control(ledger->database, "main", SQLITE_FCNTL_HAS_MOVED, &moved) ==
               SQLITE_OK &&
           !moved;
}

int64_t ledger_wal_bytes(const struct ledger *ledger)
{
    struct stat status;

    return lstat(ledger->log_path, &status) == 0 ? (int64_t)status.st_size : 0;
}

/* ---- schema ---------------------------------------------------------------------------------- */

static bool make_views(struct ledger *ledger)
{
    char sql[8192];

    for (size_t i = 0; i < LEDGER_VIEWS; i++) {
        const struct ledger_view *view = &ledger_views[i];
        int length = snprintf(sql, sizeof sql, "DROP VIEW IF EXISTS %s; CREATE VIEW %s AS %s",
                              view->name, view->name, view->query);

        INVARIANT(length > 0 && (size_t)length < sizeof sql);
        if (!ledger_run(ledger, sql))
            return false;
    }
    return true;
}

/* One version further, or back where it was. */
static bool migrate_one(struct ledger *ledger, int64_t version)
{
    char pragmas[96];

    (void)snprintf(pragmas, sizeof pragmas, "PRAGMA application_id = %d; PRAGMA user_version = %d",
                   LEDGER_APPLICATION_ID, (int)version + 1);
    if (!ledger_run(ledger, "BEGIN IMMEDIATE"))
        return false;
    if (ledger_run(ledger, ledger_migrations[version]) &&
        (version + 1 < LEDGER_MIGRATIONS || make_views(ledger)) && ledger_run(ledger, pragmas) &&
        ledger_run(ledger, "COMMIT"))
        return true;
    ledger_rollback(ledger);
    return false;
}

static bool bring_up_to_date(struct ledger *ledger, struct text *why)
{
    int64_t version = 0;
    int64_t application = 0;

    if (!ledger_ask(ledger, "PRAGMA application_id", &application) ||
        !ledger_ask(ledger, "PRAGMA user_version", &version)) {
        text_printf(why, "%s cannot be read: %s", ledger->path, ledger->error);
        return false;
    }
    if (application != LEDGER_APPLICATION_ID && (application != 0 || version != 0)) {
        text_printf(why, "%s is a database of another program: move it away", ledger->path);
        return false;
    }
    if (version > LEDGER_MIGRATIONS || version < 0) {
        text_printf(why,
                    "%s has schema version %jd, this program knows versions up to %d: a newer "
                    "Penstock wrote it; install that one again, or move the file away",
                    ledger->path, (intmax_t)version, LEDGER_MIGRATIONS);
        return false;
    }
    for (; version < LEDGER_MIGRATIONS; version++)
        if (!migrate_one(ledger, version)) {
            text_printf(why, "%s cannot be brought to schema version %jd: %s", ledger->path,
                        (intmax_t)version + 1, ledger->error);
            return false;
        }
    return true;
}

/* ---- open and close -------------------------------------------------------------------------- */

static bool set_paths(struct ledger *ledger, const char *state_directory, struct text *why)
{
    struct stat status;

    if ((size_t)snprintf(ledger->path, sizeof ledger->path, "%s/ledger.db", state_directory) >=
        sizeof ledger->path) {
        text_printf(why, "the path of state_directory is too long: %s", state_directory);
        return false;
    }
    (void)snprintf(ledger->log_path, sizeof ledger->log_path, "%s-wal", ledger->path);
    (void)snprintf(ledger->index_path, sizeof ledger->index_path, "%s-shm", ledger->path);
    if (stat(state_directory, &status) != 0) {
        text_printf(why, "the ledger's directory %s cannot be used: %s", state_directory,
                    strerror(errno));
        return false;
    }
    if (!S_ISDIR(status.st_mode)) {
        text_printf(why, "the ledger's directory %s is no directory", state_directory);
        return false;
    }
    return true;
}

static void init_library(void)
{
    /* Counting its memory takes a lock at each allocation. Refused where SQLite is in use already. */
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    (void)
        sqlite3_initialize(); /* what fails here fails again, and tells why, when a file is opened */
}

/* The settings are the process's, and not to be made while another thread opens a file. */
void ledger_init_library(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, init_library);
}

static bool open_database(struct ledger *ledger, int busy_ms, struct text *why)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;

    ledger_init_library();
    if (sqlite3_open_v2(ledger->path, &ledger->database, flags, NULL) != SQLITE_OK) {
        text_printf(why, "%s cannot be opened: %s", ledger->path,
                    ledger->database ? sqlite3_errmsg(ledger->database) : "out of memory");
        return false;
    }
    (void)sqlite3_extended_result_codes(ledger->database, 0);
    (void)sqlite3_busy_timeout(ledger->database, busy_ms);
    ledger->busy_ms = busy_ms;
    /* auto_vacuum first: it must stand before the first table, and before the log. NORMAL: the
     * disk is not waited for at each commit, so a power cut may cost the last seconds, never the
     * file. */
    if (ledger_run(ledger, "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;"
                           "PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 4194304;"
                           "PRAGMA wal_autocheckpoint = 1000"))
        return true;
    text_printf(why, "%s: %s", ledger->path, ledger->error);
    return false;
}

static bool prepare_all(struct ledger *ledger, struct text *why)
{
    for (size_t i = 0; i < LEDGER_STATEMENTS; i++)
        if (sqlite3_prepare_v3(ledger->database, statement_texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &ledger->statements[i], NULL) != SQLITE_OK) {
            text_printf(why, "%s does not have the schema it should have: %s", ledger->path,
                        sqlite3_errmsg(ledger->database));
            return false;
        }
    return true;
}

static void ledger_free(struct ledger *ledger)
{
    for (size_t i = 0; i < LEDGER_STATEMENTS; i++)
        (void)sqlite3_finalize(ledger->statements[i]);
    (void)sqlite3_close(ledger->database);
    free(ledger);
}

struct ledger *ledger_open(const char *state_directory, int busy_ms, int64_t group,
                           struct text *why)
{
    struct ledger *ledger = calloc(1, sizeof *ledger);

    if (!ledger) {
        text_append_string(why, "out of memory for the ledger");
        return NULL;
    }
    if (!set_paths(ledger, state_directory, why) || !create_file(ledger, why) ||
        !open_database(ledger, busy_ms, why) || !bring_up_to_date(ledger, why) ||
        !prepare_all(ledger, why)) {
        ledger_free(ledger);
        return NULL;
    }
    lend(ledger->path, group);
    lend(ledger->log_path, group);
    lend(ledger->index_path, group);
    remember_log(ledger);
    return ledger;
}

void ledger_close(struct ledger *ledger)
{
    struct ledger paths;
    bool linked;

    if (!ledger)
        return;
    linked = ledger_is_linked(ledger);
    paths = *ledger;
    ledger_free(ledger);
    if (!linked)
        remove_own_log(&paths);
}

void ledger_checkpoint(struct ledger *ledger)
{
    (void)sqlite3_busy_timeout(ledger->database, 0);
    (void)sqlite3_wal_checkpoint_v2(ledger->database, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL,
                                    NULL);
    (void)sqlite3_busy_timeout(ledger->database, ledger->busy_ms);
}

const char *ledger_error(const struct ledger *ledger)
{
    return ledger->error;
}

bool ledger_is_busy(const struct ledger *ledger)
{
    return ledger->busy;
}
