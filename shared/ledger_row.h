/* ledger_row.h - values into a prepared statement, column after column; for shared/ledger*.c only.
 *
 * Names come from clients and upstreams: bytes that are no UTF-8, or that would steer a terminal,
 * become "?". What is not known becomes NULL.
 */
#ifndef SHARED_LEDGER_ROW_H
#define SHARED_LEDGER_ROW_H

#include "base/clock.h"
#include "shared/ledger_inside.h"

#include <stddef.h>

/* Columns in their order, of one record or of a group. */
#define ROW_TIMES_MAX LEDGER_GROUP
struct row {
    struct ledger *ledger;
    sqlite3_stmt *statement;
    int column;
    unsigned time_count;
    char times[ROW_TIMES_MAX][CLOCK_ISO_SIZE];
};

void row_begin(struct row *row, struct ledger *ledger, enum ledger_statement which);
/* Run the statement. */
MUST_CHECK bool row_end(struct row *row);

void row_number(struct row *row, int64_t number);
void row_null(struct row *row);
/* -1 = not known. */
void row_known(struct row *row, int64_t number);
/* Text of our own, which lives until row_end. */
void row_static(struct row *row, const char *text);
/* A name from outside, at most size bytes. */
void row_text(struct row *row, const char *bytes, size_t size);
/* "" = not known. */
void row_known_text(struct row *row, const char *bytes, size_t size);
void row_time(struct row *row, int64_t wall_ms);

#define ROW_TEXT(row, array) row_text(row, array, sizeof(array))
#define ROW_KNOWN_TEXT(row, array) row_known_text(row, array, sizeof(array))

#endif
