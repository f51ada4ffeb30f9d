/*
 * ledger.h - the SQLite file: schema, views, writing, retention. The only door to SQLite.
 *
 * Processes: one writer at a time (who holds the journal's seat). Readers are people and tools. A ledger
 * that is locked, full, deleted or read-only costs no request: functions return false and the caller
 * tries again later with the same records, which makes every write an upsert.
 */
#ifndef SHARED_LEDGER_H
#define SHARED_LEDGER_H

#include "base/check.h"
#include "base/text.h"
#include "shared/layout.h"

#include <stdbool.h>
#include <stddef.h>

struct ledger;

/* Open or create <state_directory>/ledger.db, bring its schema up to date (user_version). why gets one
 * sentence. busy_ms: how long a locked file is waited for. group: gid of readers, -1 = leave. */
MUST_CHECK struct ledger *ledger_open(const char *state_directory, int busy_ms, int64_t group,
                                      struct text *why);
void ledger_close(struct ledger *ledger);
/* Is the open file still the one the name leads to? (deleted or replaced: close and open again) */
bool ledger_is_linked(const struct ledger *ledger);

/* One transaction over many records; commit makes them durable against kill -9 (not power loss). */
MUST_CHECK bool ledger_begin(struct ledger *ledger);
MUST_CHECK bool ledger_put_wait(struct ledger *ledger, const struct wait_record *record);
MUST_CHECK bool ledger_put_call(struct ledger *ledger, const struct call_record *record);
MUST_CHECK bool ledger_put_event(struct ledger *ledger, const struct event_record *record);
/* One option's value as it is in force: table config. */
MUST_CHECK bool ledger_put_config(struct ledger *ledger, const char *key, const char *value,
                                  const char *origin);
MUST_CHECK bool ledger_clear_config(struct ledger *ledger);
MUST_CHECK bool ledger_commit(struct ledger *ledger);
void ledger_rollback(struct ledger *ledger);

/* Close rows that are still waiting or granted of boot `boot` although no place has them any more
 * (their record was lost), and all of other boots: worker_died. open_seqs: arrival_seq of all live
 * places, sorted. */
MUST_CHECK bool ledger_close_stale(struct ledger *ledger, uint64_t boot, const uint64_t *open_seqs,
                                   size_t open_count);
/* Delete what is older than keep_ms before now_wall_ms or too much for max_bytes; a bounded piece of work
 * per call. Returns false on an error. *ret_more: call again soon. */
MUST_CHECK bool ledger_retain(struct ledger *ledger, int64_t now_wall_ms, int64_t keep_ms,
                              int64_t max_bytes, bool *ret_more);
/* Truncate the write-ahead log when no reader keeps it. */
void ledger_checkpoint(struct ledger *ledger);
const char *ledger_error(const struct ledger *ledger);

#endif
