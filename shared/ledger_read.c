/*
 * ledger_read.c - reading the ledger beside the one that writes it; see ledger_read.h.
 *
 * A reader never holds up the writer: the log keeps both apart. What can hold up a reader is a file
 * that somebody has locked as a whole, and that is waited for as long as the reader was told, once.
 */
#include "shared/ledger_read.h"

#include "base/clock.h"
#include "shared/ledger_inside.h"
#include "shared/ledger_schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 48

struct ledger_reader {
    sqlite3 *database;
    char error[256];
};

static const char call_sql[] =
    "SELECT arrived_at, call_id, kind, client, route, scope, source, endpoint, model_asked,"
    " model_served, status, upstream_status, outcome, error_code, stream, queue_ms, ttft_ms,"
    " generation_ms, total_latency_ms, retries, hedges, hedge_won, fallback, tokens_in, tokens_out,"
    " tokens_cached, tokens_reasoning, image_tokens_in, image_tokens_out, images, bytes_in,"
    " bytes_out, pid FROM calls WHERE call_id = ?1";

static const char attempts_sql[] =
    "SELECT n, source, hedge, started_at, ended_at, ttft_ms, generation_ms, status, error,"
    " limit_kind, est_tokens, settled_tokens, kept_est, pid FROM attempts WHERE logical_call_id = "
    "?1 "
    "ORDER BY "
    "n";

#define CHATS_OF_SCOPE                                                                             \
    "arrived_at >= ?1 AND kind IN ('chat', 'responses') AND (?2 IS NULL OR scope = ?2)"

/* An answer that came in full or to its first content tells its latency, even if it was given up
 * later. What we left, or cut off, took at least as long as it ran. */
static const char latencies_sql[] =
    "WITH primaries AS (SELECT scope, stream, more.ttft_ms AS ttft_ms,"
    "  more.generation_ms AS generation_ms, more.error AS error,"
    "  coalesce(more.status, 0) BETWEEN 200 AND 299 AS good,"
    "  max(coalesce(more.generation_ms, 0), CAST(round((julianday(more.ended_at)"
    "   - julianday(more.started_at)) * 86400000.0) AS INTEGER)) AS elapsed_ms, arrived_at"
    " FROM calls JOIN attempts_more AS more ON more.logical_call_id = calls.call_id"
    " WHERE " CHATS_OF_SCOPE " AND hedge = 0 AND more.ended_at IS NOT NULL"
    " UNION ALL SELECT scope, stream, ttft_ms, generation_ms, NULL,"
    "  coalesce(upstream_status, 0) BETWEEN 200 AND 299,"
    "  max(coalesce(generation_ms, 0), attempt_ms), arrived_at"
    " FROM calls WHERE " CHATS_OF_SCOPE " AND attempt_start_ms IS NOT NULL"
    " ORDER BY arrived_at DESC LIMIT ?3),"
    " judged AS (SELECT scope, stream, CASE"
    "   WHEN good AND stream AND ttft_ms IS NOT NULL THEN ttft_ms"
    "   WHEN good AND NOT stream AND error IS NULL THEN generation_ms END AS known_ms,"
    "  CASE WHEN error IN ('hedge_cancelled', 'client_cancelled', 'deadline', 'ttft_timeout',"
    "   'timeout', 'shutdown') THEN elapsed_ms END AS least_ms FROM primaries)"
    " SELECT scope, stream, known_ms IS NULL, coalesce(known_ms, least_ms) FROM judged"
    " WHERE coalesce(known_ms, least_ms) >= 0";

#define WALL_MS(column) "CAST(round((julianday(" column ") - 2440587.5) * 86400000.0) AS INTEGER)"

static const char exchanges_sql[] =
    /* clang-format off */
    "WITH newest AS (SELECT more.source AS source, model_asked,"
    "  coalesce(limit_kind, '') AS limit_kind, coalesce(more.error, '') AS error,"
    "  " WALL_MS("more.started_at") " AS started_ms, " WALL_MS("more.ended_at") " AS ended_ms,"
    "  coalesce(more.est_tokens, -1) AS est_tokens, coalesce(settled_tokens, -1) AS settled_tokens,"
    "  coalesce(more.status, 0) BETWEEN 200 AND 299 AND more.error IS NULL AS good, arrived_at"
    " FROM calls JOIN attempts_more AS more ON more.logical_call_id = calls.call_id"
    " WHERE arrived_at >= ?1 AND arrived_at <= ?2 AND more.ended_at IS NOT NULL"
    " UNION ALL SELECT source, model_asked, '', '',"
    "  " WALL_MS("arrived_at") " + attempt_start_ms,"
    "  " WALL_MS("arrived_at") " + attempt_start_ms + attempt_ms, coalesce(est_tokens, -1),"
    "  coalesce(" LEDGER_TOLD_TOKENS ", -1),"
    "  coalesce(upstream_status, 0) BETWEEN 200 AND 299, arrived_at"
    " FROM calls WHERE arrived_at >= ?1 AND arrived_at <= ?2 AND attempt_start_ms IS NOT NULL"
    " ORDER BY arrived_at DESC LIMIT ?3)"
    " SELECT coalesce(quota_group, source), model_asked, limit_kind, error, started_ms, ended_ms,"
    "  est_tokens, settled_tokens, good, coalesce(" WALL_MS("loaded_at") ", 0)"
    " FROM newest LEFT JOIN sources ON name = source ORDER BY started_ms";
/* clang-format on */

static bool failed(struct ledger_reader *reader)
{
    int code = sqlite3_errcode(reader->database);

    (void)snprintf(reader->error, sizeof reader->error, "%s%s",
                   code == SQLITE_BUSY || code == SQLITE_LOCKED
                       ? "somebody keeps the ledger locked: "
                       : "the ledger cannot be read: ",
                   sqlite3_errmsg(reader->database));
    return false;
}

static sqlite3_stmt *prepare(struct ledger_reader *reader, const char *sql)
{
    sqlite3_stmt *statement = NULL;

    if (sqlite3_prepare_v2(reader->database, sql, -1, &statement, NULL) != SQLITE_OK) {
        (void)failed(reader);
        (void)sqlite3_finalize(statement);
        return NULL;
    }
    return statement;
}

static bool ask_number(struct ledger_reader *reader, const char *sql, int64_t *ret_number)
{
    sqlite3_stmt *statement = prepare(reader, sql);
    bool ok = statement && (sqlite3_step(statement) == SQLITE_ROW || failed(reader));

    if (ok)
        *ret_number = sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);
    return ok;
}

static bool is_ours(struct ledger_reader *reader)
{
    int64_t application = 0;
    int64_t version = 0;

    if (!ask_number(reader, "PRAGMA application_id", &application) ||
        !ask_number(reader, "PRAGMA user_version", &version))
        return false;
    if (application == LEDGER_APPLICATION_ID && version == LEDGER_MIGRATIONS)
        return true;
    (void)snprintf(reader->error, sizeof reader->error,
                   "the file is no ledger of schema version %d", LEDGER_MIGRATIONS);
    return false;
}

struct ledger_reader *ledger_reader_open(const char *state_directory, int busy_ms, struct text *why)
{
    const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
    struct ledger_reader *reader = calloc(1, sizeof *reader);
    char path[PATH_MAX];

    if (!reader) {
        text_append_string(why, "out of memory for the ledger");
        return NULL;
    }
    ledger_init_library();
    if ((size_t)snprintf(path, sizeof path, "%s/ledger.db", state_directory) >= sizeof path) {
        text_append_string(why, "the path of state_directory is too long");
    } else if (sqlite3_open_v2(path, &reader->database, flags, NULL) != SQLITE_OK) {
        text_printf(why, "%s cannot be opened (is it there, and may you read it?): %s", path,
                    reader->database ? sqlite3_errmsg(reader->database) : "out of memory");
    } else {
        (void)sqlite3_busy_timeout(reader->database, busy_ms);
        if (is_ours(reader))
            return reader;
        text_printf(why, "%s: %s", path, reader->error);
    }
    ledger_reader_close(reader);
    return NULL;
}

void ledger_reader_close(struct ledger_reader *reader)
{
    if (!reader)
        return;
    (void)sqlite3_close(reader->database);
    free(reader);
}

const char *ledger_reader_error(const struct ledger_reader *reader)
{
    return reader->error;
}

/* ---- one call -------------------------------------------------------------------------------- */

struct taker {
    enum ledger_part part;
    ledger_row_function *take;
    void *context;
    size_t rows;
};

static void take_row(struct taker *taker, sqlite3_stmt *statement)
{
    struct ledger_column columns[COLUMNS_MAX];
    size_t count = (size_t)sqlite3_column_count(statement);

    INVARIANT(count <= COLUMNS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct ledger_column *column = &columns[i];
        int type = sqlite3_column_type(statement, (int)i);

        *column =
            (struct ledger_column){.name = sqlite3_column_name(statement, (int)i), .text = ""};
        if (type == SQLITE_INTEGER) {
            column->kind = LEDGER_COLUMN_NUMBER;
            column->number = sqlite3_column_int64(statement, (int)i);
        } else if (type != SQLITE_NULL) {
            const unsigned char *text = sqlite3_column_text(statement, (int)i);

            column->kind = LEDGER_COLUMN_TEXT;
            column->text = text ? (const char *)text : "";
        }
    }
    taker->rows++;
    taker->take(taker->context, taker->part, columns, count);
}

static bool read_rows(struct ledger_reader *reader, const char *sql, const char *call_id,
                      struct taker *taker)
{
    sqlite3_stmt *statement = prepare(reader, sql);
    int code;

    if (!statement)
        return false;
    (void)sqlite3_bind_text(statement, 1, call_id, -1, SQLITE_STATIC);
    while ((code = sqlite3_step(statement)) == SQLITE_ROW)
        take_row(taker, statement);
    if (code != SQLITE_DONE)
        (void)failed(reader);
    (void)sqlite3_finalize(statement);
    return code == SQLITE_DONE;
}

bool ledger_read_call(struct ledger_reader *reader, const char *call_id, ledger_row_function *take,
                      void *context, size_t *ret_rows)
{
    struct taker taker = {.part = LEDGER_PART_CALL, .take = take, .context = context};
    bool ok = read_rows(reader, call_sql, call_id, &taker);

    taker.part = LEDGER_PART_ATTEMPT;
    ok = ok && read_rows(reader, attempts_sql, call_id, &taker);
    *ret_rows = taker.rows;
    return ok;
}

/* ---- latencies ------------------------------------------------------------------------------- */

bool ledger_read_latencies(struct ledger_reader *reader, const struct ledger_latency_wish *wish,
                           ledger_latency_function *take, void *context)
{
    sqlite3_stmt *statement = prepare(reader, latencies_sql);
    char since[CLOCK_ISO_SIZE];
    int code;

    if (!statement)
        return false;
    clock_iso(wish->since_wall_ms, since);
    (void)sqlite3_bind_text(statement, 1, since, -1, SQLITE_STATIC);
    if (wish->scope)
        (void)sqlite3_bind_text(statement, 2, wish->scope, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(statement, 3, wish->most);
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        const unsigned char *scope = sqlite3_column_text(statement, 0);
        const struct ledger_latency latency = {
            .scope = scope ? (const char *)scope : "",
            .stream = sqlite3_column_int(statement, 1) != 0,
            .at_least = sqlite3_column_int(statement, 2) != 0,
            .ms = sqlite3_column_int64(statement, 3),
        };

        take(context, &latency);
    }
    if (code != SQLITE_DONE)
        (void)failed(reader);
    (void)sqlite3_finalize(statement);
    return code == SQLITE_DONE;
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static const char *text_of(sqlite3_stmt *statement, int column)
{
    const unsigned char *text = sqlite3_column_text(statement, column);

    return text ? (const char *)text : "";
}

bool ledger_read_exchanges(struct ledger_reader *reader, const struct ledger_exchange_wish *wish,
                           ledger_exchange_function *take, void *context)
{
    sqlite3_stmt *statement = prepare(reader, exchanges_sql);
    char since[CLOCK_ISO_SIZE], until[CLOCK_ISO_SIZE];
    int code;

    if (!statement)
        return false;
    clock_iso(wish->since_wall_ms, since);
    clock_iso(wish->until_wall_ms, until);
    (void)sqlite3_bind_text(statement, 1, since, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(statement, 2, until, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(statement, 3, wish->most);
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        const struct ledger_exchange exchange = {
            .quota_group = text_of(statement, 0),
            .model = text_of(statement, 1),
            .limit_kind = text_of(statement, 2),
            .error = text_of(statement, 3),
            .started_wall_ms = sqlite3_column_int64(statement, 4),
            .ended_wall_ms = sqlite3_column_int64(statement, 5),
            .est_tokens = sqlite3_column_int64(statement, 6),
            .settled_tokens = sqlite3_column_int64(statement, 7),
            .good = sqlite3_column_int(statement, 8) != 0,
            .loaded_wall_ms = sqlite3_column_int64(statement, 9),
        };

        take(context, &exchange);
    }
    if (code != SQLITE_DONE)
        (void)failed(reader);
    (void)sqlite3_finalize(statement);
    return code == SQLITE_DONE;
}
