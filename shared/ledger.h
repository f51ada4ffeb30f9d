/*
 * ledger.h - the SQLite file: schema, views, writing, retention. The only door to SQLite.
 *
 * Processes: one writer at a time (who holds the journal's seat). Readers are people and tools. A
 * ledger that is locked, full, deleted or read-only costs no request: functions return false and
 * the caller tries again later with the same records, which makes every write an upsert.
 */
#ifndef SHARED_LEDGER_H
#define SHARED_LEDGER_H

#include "base/check.h"
#include "base/text.h"
#include "shared/layout.h"

#include <stdbool.h>
#include <stddef.h>

struct ledger;

/* Open or create <state_directory>/ledger.db, bring its schema up to date (user_version). why gets
 * one sentence. busy_ms: how long a locked file is waited for. group: gid of readers, -1 = leave.
 */
MUST_CHECK struct ledger *ledger_open(const char *state_directory, int busy_ms, int64_t group,
                                      struct text *why);
/* Takes NULL. */
void ledger_close(struct ledger *ledger);
/* Is the open file still the one the name leads to? (deleted or replaced: close and open again) */
bool ledger_is_linked(const struct ledger *ledger);

/* One transaction over many records; commit makes them durable against kill -9 (not power loss). */
MUST_CHECK bool ledger_begin(struct ledger *ledger);
/* The same record may be put again, also after newer ones of the same call: a row never goes back
 * from ended to granted, nor from granted to waiting. */
MUST_CHECK bool ledger_put_wait(struct ledger *ledger, const struct wait_record *record);
/* In their order; cheapest when there are LEDGER_GROUP of them. */
#define LEDGER_GROUP 8U
MUST_CHECK bool ledger_put_calls(struct ledger *ledger, const struct call_record *const records[],
                                 size_t count);
/* A row that has ended never goes back to running. */
MUST_CHECK bool ledger_put_attempt(struct ledger *ledger, const struct attempt_record *record);
MUST_CHECK bool ledger_put_event(struct ledger *ledger, const struct event_record *record);
/* What is in force: tables config (one option's value; secrets masked by the caller) and sources.
 */
MUST_CHECK bool ledger_clear_config(struct ledger *ledger);
MUST_CHECK bool ledger_put_config(struct ledger *ledger, const char *key, const char *value,
                                  const char *origin);
struct ledger_source {
    const char *name, *base_url, *dialect, *quota_group;
    int64_t max_in_flight; /* 0 = no limit */
    int64_t loaded_wall_ms;
};
MUST_CHECK bool ledger_put_source(struct ledger *ledger, const struct ledger_source *source);
MUST_CHECK bool ledger_commit(struct ledger *ledger);
void ledger_rollback(struct ledger *ledger);

/* What is still at the gate, read under one lock. */
struct ledger_open_calls {
    uint64_t boot;
    uint64_t next_seq;    /* calls that arrived later (arrival_seq from this on) are not judged */
    const uint64_t *seqs; /* arrival_seq of every call at the gate, sorted */
    size_t count;
    int64_t now_wall_ms; /* becomes their ended_at */
};
/* Close rows that are still waiting or granted although no place has them any more (their record
 * was lost, or they are of another boot): worker_died. Every record that was in the journal at the
 * time of the reading has been put before. Part of the caller's transaction. */
MUST_CHECK bool ledger_close_stale(struct ledger *ledger, const struct ledger_open_calls *open);

/* Who lives, read under one lock. */
struct ledger_process {
    int32_t pid;
    int64_t since_wall_ms; /* a row that is older belongs to a dead process with the same pid */
};
struct ledger_processes {
    const struct ledger_process *list;
    size_t count;
    int64_t now_wall_ms; /* becomes ended_at of what is closed */
};
/* Close attempts that are still running although their process has gone: error worker_died. Needs no
 * transaction; writes nothing when there is nothing to close. */
MUST_CHECK bool ledger_close_attempts(struct ledger *ledger, const struct ledger_processes *alive);

/* Delete what is older than keep_ms before now_wall_ms or too much for max_bytes; a bounded piece
 * of work per call, a transaction of its own. Returns false on an error. *ret_more: call again
 * soon. Rows of calls that are still at the gate stay. */
MUST_CHECK bool ledger_retain(struct ledger *ledger, int64_t now_wall_ms, int64_t keep_ms,
                              int64_t max_bytes, bool *ret_more);
/* Truncate the write-ahead log when no reader keeps it; never waits for one. */
void ledger_checkpoint(struct ledger *ledger);
/* Size of the write-ahead log; 0 when it cannot be read. */
int64_t ledger_wal_bytes(const struct ledger *ledger);

/* What the last failure was, in one sentence. */
const char *ledger_error(const struct ledger *ledger);
/* Was the last failure only somebody else's lock? If not, open the file anew before the next try.
 */
bool ledger_is_busy(const struct ledger *ledger);

/* The words of column waits.state, and of waits.refusal (enum gate_refusal); "unknown" for a number
 * that is none. */
const char *ledger_state_word(uint32_t state);
const char *ledger_refusal_word(uint32_t refusal);

#endif
