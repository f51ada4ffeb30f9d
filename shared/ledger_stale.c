/*
 * ledger_stale.c - rows that are open although what they tell of has gone are closed; see ledger.h.
 *
 * Their true end may still come, from a record that was on its way: it is put over what stands here.
 */
#include "base/clock.h"
#include "shared/ledger_row.h"

#include <stdlib.h>
#include <string.h>

/* ---- waits ----------------------------------------------------------------------------------- */

#define OPEN_PAGE 256
/* A process may have begun so much later than it says: two clocks, read one after the other. */
#define SINCE_MARGIN_MS 2000

struct wait_key {
    int64_t boot, seq;
};

static int compare_seqs(const void *left, const void *right)
{
    const uint64_t *a = left;
    const uint64_t *b = right;

    return *a < *b ? -1 : *a > *b;
}

static bool is_stale(const struct ledger_open_calls *open, const struct wait_key *key)
{
    uint64_t seq = (uint64_t)key->seq;

    if ((uint64_t)key->boot != open->boot)
        return true;
    return seq < open->next_seq && (open->count == 0 || !bsearch(&seq, open->seqs, open->count,
                                                                 sizeof *open->seqs, compare_seqs));
}

/* The keys of open rows behind after; -1 = failed. */
static int read_open_page(struct ledger *ledger, const struct wait_key *after,
                          struct wait_key page[OPEN_PAGE])
{
    sqlite3_stmt *statement = ledger->statements[LEDGER_NEXT_OPEN];
    int count = 0;
    int code;

    (void)sqlite3_bind_int64(statement, 1, after->boot);
    (void)sqlite3_bind_int64(statement, 2, after->seq);
    (void)sqlite3_bind_int(statement, 3, OPEN_PAGE);
    while ((code = sqlite3_step(statement)) == SQLITE_ROW && count < OPEN_PAGE) {
        page[count].boot = sqlite3_column_int64(statement, 0);
        page[count].seq = sqlite3_column_int64(statement, 1);
        count++;
    }
    if (code != SQLITE_DONE && code != SQLITE_ROW) {
        (void)ledger_failed(ledger, "the ledger cannot be read");
        count = -1;
    }
    (void)sqlite3_reset(statement);
    return count;
}

static bool close_row(struct ledger *ledger, const struct wait_key *key, int64_t now_wall_ms)
{
    struct row row;

    row_begin(&row, ledger, LEDGER_CLOSE_WAIT);
    row_number(&row, key->boot);
    row_number(&row, key->seq);
    row_time(&row, now_wall_ms);
    return row_end(&row);
}

bool ledger_close_stale(struct ledger *ledger, const struct ledger_open_calls *open)
{
    struct wait_key page[OPEN_PAGE];
    struct wait_key after = {.boot = INT64_MIN, .seq = INT64_MIN};
    int count;

    do {
        count = read_open_page(ledger, &after, page);
        for (int i = 0; i < count; i++) {
            after = page[i];
            if (is_stale(open, &page[i]) && !close_row(ledger, &page[i], open->now_wall_ms))
                return false;
        }
    } while (count == OPEN_PAGE);
    return count >= 0;
}

/* ---- attempts -------------------------------------------------------------------------------- */

/* Who has attempts that run, as the rows say. */
struct runner {
    int64_t pid;
    char oldest[CLOCK_ISO_SIZE]; /* when the first of them began */
};

/* The next one behind runner->pid; false: none, or failed (*ok says which). */
static bool next_runner(struct ledger *ledger, struct runner *runner, bool *ok)
{
    sqlite3_stmt *statement = ledger->statements[LEDGER_NEXT_RUNNER];
    bool found;
    int code;

    (void)sqlite3_bind_int64(statement, 1, runner->pid);
    code = sqlite3_step(statement);
    *ok = code == SQLITE_ROW || code == SQLITE_DONE ||
          ledger_failed(ledger, "the ledger cannot be read");
    found = code == SQLITE_ROW;
    if (found) {
        const unsigned char *oldest = sqlite3_column_text(statement, 1);

        runner->pid = sqlite3_column_int64(statement, 0);
        (void)text_copy(runner->oldest, sizeof runner->oldest, oldest ? (const char *)oldest : "");
    }
    (void)sqlite3_reset(statement);
    return found;
}

/* What was begun before cannot be its own: everything when nobody has the pid now ("~" is behind every
 * time), else what is older than who has it. */
static void stale_before(const struct ledger_processes *alive, int64_t pid,
                         char before[CLOCK_ISO_SIZE])
{
    (void)text_copy(before, CLOCK_ISO_SIZE, "~");
    for (size_t i = 0; i < alive->count; i++)
        if (alive->list[i].pid == pid)
            clock_iso(alive->list[i].since_wall_ms - SINCE_MARGIN_MS, before);
}

static bool close_attempts_of(struct ledger *ledger, int64_t pid, const char *before,
                              int64_t now_wall_ms)
{
    struct row row;

    row_begin(&row, ledger, LEDGER_CLOSE_ATTEMPTS);
    row_number(&row, pid);
    row_static(&row, before);
    row_time(&row, now_wall_ms);
    return row_end(&row);
}

bool ledger_close_attempts(struct ledger *ledger, const struct ledger_processes *alive)
{
    struct runner runner = {.pid = INT64_MIN};
    char before[CLOCK_ISO_SIZE];
    bool ok = true;

    while (next_runner(ledger, &runner, &ok)) {
        stale_before(alive, runner.pid, before);
        if (strcmp(runner.oldest, before) < 0 &&
            !close_attempts_of(ledger, runner.pid, before, alive->now_wall_ms))
            return false;
    }
    return ok;
}
