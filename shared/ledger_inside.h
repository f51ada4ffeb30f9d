/* ledger_inside.h - what the files of the ledger share among themselves; for shared/ledger*.c only.
 */
#ifndef SHARED_LEDGER_INSIDE_H
#define SHARED_LEDGER_INSIDE_H

#include "base/check.h"
#include "shared/ledger.h"

#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Prepared once, when the file is opened. */
enum ledger_statement {
    LEDGER_BEGIN,
    LEDGER_COMMIT,
    LEDGER_PUT_WAIT,
    LEDGER_PUT_CALL,
    LEDGER_PUT_CALLS, /* LEDGER_GROUP of them */
    LEDGER_BOOK_POLL,
    LEDGER_PUT_ATTEMPT,
    LEDGER_PUT_EVENT,
    LEDGER_PUT_CONFIG,
    LEDGER_PUT_SOURCE,
    LEDGER_NEXT_OPEN,
    LEDGER_CLOSE_WAIT,
    LEDGER_NEXT_RUNNER,
    LEDGER_CLOSE_ATTEMPTS,
    LEDGER_STATEMENTS
};

struct ledger {
    sqlite3 *database;
    sqlite3_stmt *statements[LEDGER_STATEMENTS];
    int busy_ms;
    bool busy; /* the last failure was somebody else's lock */
    bool log_known;
    dev_t log_device; /* of the write-ahead log that belongs to this file */
    ino_t log_inode;
    char path[PATH_MAX];
    char log_path[PATH_MAX + 8];
    char index_path[PATH_MAX + 8];
    char error[256];
};

/* Before any other use of SQLite; every time but the first does nothing. */
void ledger_init_library(void);
/* Remember what SQLite says; always false. */
bool ledger_failed(struct ledger *ledger, const char *what);
/* Run a script. */
MUST_CHECK bool ledger_run(struct ledger *ledger, const char *sql);
/* The first column of the first row. */
MUST_CHECK bool ledger_ask(struct ledger *ledger, const char *sql, int64_t *ret_number);

#endif
