/*
 * ledger_read.h - what the programs themselves read from the ledger: one call with its attempts,
 * latencies for advice about hedging, and exchanges for that about limits. A connection of its own, read-only; never waits longer than
 * the reader was told to.
 */
#ifndef SHARED_LEDGER_READ_H
#define SHARED_LEDGER_READ_H

#include "base/check.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ledger_reader;

/* busy_ms: how long a locked file is waited for. NULL: missing, locked, or no ledger of this schema
 * version; why gets one sentence. */
MUST_CHECK struct ledger_reader *ledger_reader_open(const char *state_directory, int busy_ms,
                                                    struct text *why);
/* Takes NULL. */
void ledger_reader_close(struct ledger_reader *reader);

enum ledger_column_kind { LEDGER_COLUMN_NULL, LEDGER_COLUMN_NUMBER, LEDGER_COLUMN_TEXT };
/* Pointers are good only during the call that brings them. */
struct ledger_column {
    const char *name;
    enum ledger_column_kind kind;
    int64_t number;
    const char *text; /* "" for the others */
};
enum ledger_part { LEDGER_PART_CALL, LEDGER_PART_ATTEMPT };
typedef void ledger_row_function(void *context, enum ledger_part part,
                                 const struct ledger_column *columns, size_t count);

/* The call's row, if it has ended, then its attempts in their order. *ret_rows: how many there were.
 * False: the ledger cannot be read; ledger_reader_error tells why. */
MUST_CHECK bool ledger_read_call(struct ledger_reader *reader, const char *call_id,
                                 ledger_row_function *take, void *context, size_t *ret_rows);

/* How long the first attempts of chat calls, and those that replaced a failed one, took: never
 * hedges, whose time began later and elsewhere. Streams: to the first content; others: to the last
 * byte. Failures other than time-outs tell nothing of it and are left out. */
struct ledger_latency {
    const char *scope;
    bool stream;
    bool at_least; /* it was cancelled, or timed out: it would have taken longer than ms */
    int64_t ms;
};
typedef void ledger_latency_function(void *context, const struct ledger_latency *latency);
struct ledger_latency_wish {
    const char *scope; /* NULL = all */
    int64_t since_wall_ms;
    int64_t most; /* attempts; the newest */
};
MUST_CHECK bool ledger_read_latencies(struct ledger_reader *reader,
                                      const struct ledger_latency_wish *wish,
                                      ledger_latency_function *take, void *context);

/* Exchanges with sources, in the order in which they began; for the diagnosis of refusals. */
struct ledger_exchange {
    const char *quota_group, *model; /* the model as the caller asked for it */
    const char *limit_kind, *error;  /* "" = none */
    int64_t started_wall_ms, ended_wall_ms;
    int64_t est_tokens, settled_tokens; /* -1 = not known */
    int64_t loaded_wall_ms; /* when the source's configuration was loaded last; 0 = not known */
    bool good;              /* answered, without an error */
};
typedef void ledger_exchange_function(void *context, const struct ledger_exchange *exchange);
struct ledger_exchange_wish {
    int64_t since_wall_ms, until_wall_ms; /* their calls arrived then */
    int64_t most;                         /* the newest */
};
MUST_CHECK bool ledger_read_exchanges(struct ledger_reader *reader,
                                      const struct ledger_exchange_wish *wish,
                                      ledger_exchange_function *take, void *context);

/* What the last failure was, in one sentence. */
const char *ledger_reader_error(const struct ledger_reader *reader);

#endif
