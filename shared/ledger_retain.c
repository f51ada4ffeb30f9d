/*
 * ledger_retain.c - what is old or too much is deleted, a bounded piece at a time; see ledger.h.
 *
 * Oldest first, over all tables alike. Rows of calls that are still at the gate stay whatever their
 * age.
 */
#include "base/clock.h"
#include "shared/ledger_inside.h"

#include <stdio.h>

#define RETAIN_ROWS 500  /* of each table in one transaction */
#define RETAIN_PAGES 256 /* given back to the file system in one transaction */

#define DELETE_UP_TO(table, key, time, also)                                                       \
    "DELETE FROM " table " WHERE " key " IN (SELECT " key " FROM " table " WHERE " time            \
    " <= ?1" also " ORDER BY " time " LIMIT 500);"

/* ?1: a time in the form of the columns. */
static const char *const deletions[] = {
    DELETE_UP_TO("calls", "id", "arrived_at", ""),
    "DELETE FROM waits WHERE (boot, arrival_seq) IN (SELECT boot, arrival_seq FROM waits"
    " WHERE arrived_at <= ?1 AND ended_at IS NOT NULL ORDER BY arrived_at LIMIT 500);",
    /* Keys of attempts are in the order of time, since call ids begin with it: there is no index on
     * started_at, for which every call would pay. Only the first rows are looked at. */
    "DELETE FROM attempts_more WHERE (logical_call_id, n) IN (SELECT logical_call_id, n FROM"
    " (SELECT logical_call_id, n, started_at FROM attempts_more ORDER BY logical_call_id, n LIMIT "
    "500)"
    " WHERE started_at <= ?1);",
    "DELETE FROM events WHERE (at, pid, name, detail) IN (SELECT at, pid, name, detail FROM events"
    " WHERE at <= ?1 ORDER BY at LIMIT 500);",
    DELETE_UP_TO("jobs", "job_id", "created_at", " AND ended_at IS NOT NULL"),
};

/* The time of the RETAIN_ROWS-th oldest call or ended wait, whichever is older. */
static const char oldest_piece[] =
    "SELECT min(cut) FROM ("
    " SELECT max(arrived_at) AS cut FROM (SELECT arrived_at FROM calls ORDER BY arrived_at"
    "  LIMIT 500)"
    " UNION ALL SELECT max(arrived_at) FROM (SELECT arrived_at FROM waits"
    "  WHERE ended_at IS NOT NULL ORDER BY arrived_at LIMIT 500))";

static bool delete_piece(struct ledger *ledger, const char *sql, const char *time)
{
    sqlite3_stmt *statement = NULL;
    bool ok = sqlite3_prepare_v2(ledger->database, sql, -1, &statement, NULL) == SQLITE_OK &&
              sqlite3_bind_text(statement, 1, time, -1, SQLITE_STATIC) == SQLITE_OK &&
              sqlite3_step(statement) == SQLITE_DONE;

    if (!ok)
        (void)ledger_failed(ledger, "old rows cannot be deleted");
    (void)sqlite3_finalize(statement);
    return ok;
}

static bool delete_up_to(struct ledger *ledger, const char *time, bool *ret_more)
{
    for (size_t i = 0; i < LENGTH(deletions); i++) {
        if (!delete_piece(ledger, deletions[i], time))
            return false;
        if (sqlite3_changes(ledger->database) >= RETAIN_ROWS)
            *ret_more = true;
    }
    return true;
}

/* "" when there is nothing that may be deleted. */
static bool read_oldest_piece(struct ledger *ledger, char time[CLOCK_ISO_SIZE])
{
    sqlite3_stmt *statement = NULL;
    const unsigned char *found;
    bool ok =
        sqlite3_prepare_v2(ledger->database, oldest_piece, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW;

    time[0] = '\0';
    if (ok) {
        found = sqlite3_column_text(statement, 0);
        if (found)
            (void)snprintf(time, CLOCK_ISO_SIZE, "%s", (const char *)found);
    } else {
        (void)ledger_failed(ledger, "the ledger cannot be read");
    }
    (void)sqlite3_finalize(statement);
    return ok;
}

struct pages {
    int64_t all, free, bytes;
};

static bool count_pages(struct ledger *ledger, struct pages *pages)
{
    return ledger_ask(ledger, "PRAGMA page_count", &pages->all) &&
           ledger_ask(ledger, "PRAGMA freelist_count", &pages->free) &&
           ledger_ask(ledger, "PRAGMA page_size", &pages->bytes);
}

static bool delete_surplus(struct ledger *ledger, int64_t max_bytes, bool *ret_more)
{
    struct pages pages;
    char time[CLOCK_ISO_SIZE];

    if (!count_pages(ledger, &pages))
        return false;
    if ((pages.all - pages.free) * pages.bytes <= max_bytes)
        return true;
    if (!read_oldest_piece(ledger, time))
        return false;
    if (!*time)
        return true;
    *ret_more = true;
    return delete_up_to(ledger, time, ret_more);
}

/* Free pages are used again by new rows; only what is many of them goes back to the file system. */
static bool shrink_file(struct ledger *ledger, int64_t max_bytes, bool *ret_more)
{
    struct pages pages;
    char sql[64];

    if (!count_pages(ledger, &pages))
        return false;
    if (pages.free == 0 || (pages.free < pages.all / 8 && pages.all * pages.bytes <= max_bytes))
        return true;
    if (pages.free > RETAIN_PAGES)
        *ret_more = true;
    (void)snprintf(sql, sizeof sql, "PRAGMA incremental_vacuum(%d)", RETAIN_PAGES);
    return ledger_run(ledger, sql);
}

bool ledger_retain(struct ledger *ledger, int64_t now_wall_ms, int64_t keep_ms, int64_t max_bytes,
                   bool *ret_more)
{
    char cut[CLOCK_ISO_SIZE];

    *ret_more = false;
    clock_iso(keep_ms < now_wall_ms ? now_wall_ms - keep_ms : 0, cut);
    if (!ledger_begin(ledger))
        return false;
    if (delete_up_to(ledger, cut, ret_more) && delete_surplus(ledger, max_bytes, ret_more) &&
        shrink_file(ledger, max_bytes, ret_more) && ledger_commit(ledger))
        return true;
    ledger_rollback(ledger);
    return false;
}
