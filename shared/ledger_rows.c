/*
 * ledger_rows.c - records become rows; see ledger.h.
 *
 * A record with a number that is no state still becomes a row: one bad record must not stop all
 * behind it.
 */
#include "base/clock.h"
#include "shared/gate.h"
#include "shared/ledger_row.h"

static const char *const state_words[] = {
    [WAIT_NONE] = "unknown",
    [WAIT_WAITING] = "waiting",
    [WAIT_GRANTED] = "granted",
    [WAIT_DONE] = "done",
    [WAIT_REFUSED] = "refused",
    [WAIT_TIMED_OUT] = "timed_out",
    [WAIT_CLIENT_GONE] = "client_gone",
    [WAIT_WORKER_DIED] = "worker_died",
    [WAIT_SHUTDOWN] = "shutdown",
};

static const char *const refusal_words[] = {
    [GATE_REFUSAL_NONE] = "unknown",
    [GATE_REFUSAL_LIMIT] = "limit",
    [GATE_REFUSAL_QUEUE_FULL] = "queue_full",
    [GATE_REFUSAL_HOPELESS] = "hopeless",
};

const char *ledger_state_word(uint32_t state)
{
    return state_words[state < LENGTH(state_words) ? state : WAIT_NONE];
}

const char *ledger_refusal_word(uint32_t refusal)
{
    return refusal_words[refusal < LENGTH(refusal_words) ? refusal : GATE_REFUSAL_NONE];
}

/* ---- waits ----------------------------------------------------------------------------------- */

static bool is_open_state(uint32_t state)
{
    return state == WAIT_WAITING || state == WAIT_GRANTED;
}

/* Durations are differences of the monotonic clock; what never happened is NULL. */
struct wait_times {
    bool granted, ended;
    int64_t ended_ns;         /* of an open call: 0 */
    int64_t wait_ms, hold_ms; /* -1 = not over, or never began */
};

static struct wait_times times_of(const struct wait_record *record)
{
    struct wait_times times = {.wait_ms = -1, .hold_ms = -1};

    times.granted = record->granted_ns != 0;
    times.ended = !is_open_state(record->state);
    if (times.ended) {
        times.ended_ns =
            record->granted_ns > record->arrived_ns ? record->granted_ns : record->arrived_ns;
        if (record->released_ns > times.ended_ns)
            times.ended_ns = record->released_ns;
    }
    if (times.granted)
        times.wait_ms = (record->granted_ns - record->arrived_ns) / NS_PER_MS;
    else if (times.ended)
        times.wait_ms = (times.ended_ns - record->arrived_ns) / NS_PER_MS;
    if (times.granted && times.ended)
        times.hold_ms = (times.ended_ns - record->granted_ns) / NS_PER_MS;
    return times;
}

static void put_time_of(struct row *row, const struct wait_record *record, int64_t at_ns)
{
    if (at_ns == 0)
        row_null(row);
    else
        row_time(row, record->arrived_wall_ms + (at_ns - record->arrived_ns) / NS_PER_MS);
}

bool ledger_put_wait(struct ledger *ledger, const struct wait_record *record)
{
    struct wait_times times = times_of(record);
    struct row row;

    row_begin(&row, ledger, LEDGER_PUT_WAIT);
    row_number(&row, (int64_t)record->boot);
    row_number(&row, (int64_t)record->arrival_seq);
    row_known(&row, times.granted ? (int64_t)record->grant_seq : -1);
    ROW_TEXT(&row, record->call_id);
    row_static(&row, ledger_state_word(record->state));
    if (record->state == WAIT_REFUSED)
        row_static(&row, ledger_refusal_word(record->refusal));
    else
        row_null(&row);
    ROW_TEXT(&row, record->class_name);
    ROW_TEXT(&row, record->client);
    ROW_TEXT(&row, record->scope);
    ROW_TEXT(&row, record->model);
    ROW_TEXT(&row, record->endpoint);
    row_number(&row, record->position);
    row_time(&row, record->arrived_wall_ms);
    put_time_of(&row, record, record->granted_ns);
    put_time_of(&row, record, times.ended_ns);
    row_known(&row, times.wait_ms);
    row_known(&row, times.hold_ms);
    row_number(&row, record->arrived_ns);
    row_known(&row, times.granted ? record->granted_ns : -1);
    row_known(&row, times.ended ? times.ended_ns : -1);
    row_number(&row, record->in_use_at_arrival);
    row_number(&row, record->waiting_at_arrival);
    row_known(&row, times.granted ? (int64_t)record->in_use_at_grant : -1);
    row_known(&row, times.granted ? (int64_t)record->waiting_at_grant : -1);
    row_number(&row, record->pid);
    return row_end(&row);
}

/* ---- the other tables ------------------------------------------------------------------------ */

/* What a poll shows of finished work belongs to the call that created it (decisions: pictures). */
static bool book_poll(struct ledger *ledger, const struct call_record *record)
{
    struct row row;

    row_begin(&row, ledger, LEDGER_BOOK_POLL);
    ROW_TEXT(&row, record->upstream_id);
    row_number(&row, record->images);
    row_known(&row, record->tokens_in);
    row_known(&row, record->tokens_out);
    row_known(&row, record->image_tokens_in);
    row_known(&row, record->image_tokens_out);
    ROW_KNOWN_TEXT(&row, record->image_size);
    ROW_KNOWN_TEXT(&row, record->image_quality);
    ROW_KNOWN_TEXT(&row, record->image_format);
    return row_end(&row);
}

/* The poll's own row: what it showed is not its own. */
static struct call_record own_part(const struct call_record *poll)
{
    struct call_record own = *poll;

    own.images = 0;
    own.tokens_in = own.tokens_out = own.tokens_cached = own.tokens_reasoning = -1;
    own.image_tokens_in = own.image_tokens_out = -1;
    own.image_size[0] = own.image_quality[0] = own.image_format[0] = '\0';
    own.upstream_id[0] = '\0';
    own.poll = 0;
    return own;
}

static void add_call(struct row *row, const struct call_record *record)
{
    ROW_TEXT(row, record->call_id);
    row_time(row, record->arrived_wall_ms);
    ROW_TEXT(row, record->kind);
    ROW_TEXT(row, record->client);
    ROW_TEXT(row, record->route);
    ROW_TEXT(row, record->scope);
    ROW_TEXT(row, record->source);
    ROW_TEXT(row, record->endpoint);
    ROW_TEXT(row, record->model_asked);
    ROW_TEXT(row, record->model_served);
    row_number(row, record->status);
    row_known(row, record->upstream_status > 0 ? record->upstream_status : -1);
    ROW_TEXT(row, record->outcome);
    ROW_KNOWN_TEXT(row, record->error_code);
    row_number(row, record->stream);
    row_known(row, record->queue_ms);
    row_known(row, record->ttft_ms);
    row_known(row, record->generation_ms);
    row_known(row, record->total_latency_ms);
    row_number(row, record->attempts);
    row_number(row, record->retries);
    row_number(row, record->hedges);
    row_number(row, record->hedge_won);
    row_number(row, record->fallback);
    row_known(row, record->tokens_in);
    row_known(row, record->tokens_out);
    row_known(row, record->tokens_cached);
    row_known(row, record->tokens_reasoning);
    row_known(row, record->image_tokens_in);
    row_known(row, record->image_tokens_out);
    row_number(row, record->images);
    ROW_KNOWN_TEXT(row, record->image_size);
    ROW_KNOWN_TEXT(row, record->image_quality);
    ROW_KNOWN_TEXT(row, record->image_format);
    row_known(row, record->bytes_in);
    row_known(row, record->bytes_out);
    row_number(row, record->pid);
    ROW_KNOWN_TEXT(row, record->upstream_id);
    row_known(row, record->tells_attempt ? record->attempt_start_ms : -1);
    row_known(row, record->tells_attempt ? record->attempt_ms : -1);
    row_known(row, record->tells_attempt ? record->est_tokens : -1);
}

static bool put_call(struct ledger *ledger, const struct call_record *record)
{
    struct row row;

    if (record->poll) {
        const struct call_record own = own_part(record);

        return (record->images == 0 || book_poll(ledger, record)) && put_call(ledger, &own);
    }
    row_begin(&row, ledger, LEDGER_PUT_CALL);
    add_call(&row, record);
    return row_end(&row);
}

static bool is_group_of_calls(const struct call_record *const records[], size_t count)
{
    bool polls = false;

    for (size_t i = 0; i < count; i++)
        polls = polls || records[i]->poll;
    return count == LEDGER_GROUP && !polls;
}

bool ledger_put_calls(struct ledger *ledger, const struct call_record *const records[],
                      size_t count)
{
    bool ok = true;
    struct row row;

    if (is_group_of_calls(records, count)) {
        row_begin(&row, ledger, LEDGER_PUT_CALLS);
        for (size_t i = 0; i < count; i++)
            add_call(&row, records[i]);
        return row_end(&row);
    }
    for (size_t i = 0; ok && i < count; i++)
        ok = put_call(ledger, records[i]);
    return ok;
}

bool ledger_put_attempt(struct ledger *ledger, const struct attempt_record *record)
{
    bool ended = record->ended_wall_ms > 0;
    struct row row;

    row_begin(&row, ledger, LEDGER_PUT_ATTEMPT);
    ROW_TEXT(&row, record->call_id);
    row_number(&row, record->n);
    ROW_TEXT(&row, record->source);
    row_number(&row, record->hedge);
    row_time(&row, record->started_wall_ms);
    if (ended)
        row_time(&row, record->ended_wall_ms);
    else
        row_null(&row);
    row_known(&row, record->ttft_ms);
    row_known(&row, ended ? record->generation_ms : -1);
    row_known(&row, record->status > 0 ? record->status : -1);
    ROW_KNOWN_TEXT(&row, record->error);
    row_known(&row, record->est_tokens);
    row_known(&row, record->settled_tokens);
    row_number(&row, record->kept_est);
    row_number(&row, record->pid);
    ROW_KNOWN_TEXT(&row, record->limit_kind);
    return row_end(&row);
}

bool ledger_put_event(struct ledger *ledger, const struct event_record *record)
{
    struct row row;

    row_begin(&row, ledger, LEDGER_PUT_EVENT);
    row_time(&row, record->wall_ms);
    row_number(&row, record->pid);
    ROW_TEXT(&row, record->name);
    ROW_TEXT(&row, record->detail);
    return row_end(&row);
}

bool ledger_clear_config(struct ledger *ledger)
{
    return ledger_run(ledger, "DELETE FROM config; DELETE FROM sources");
}

bool ledger_put_config(struct ledger *ledger, const char *key, const char *value,
                       const char *origin)
{
    struct row row;

    row_begin(&row, ledger, LEDGER_PUT_CONFIG);
    row_static(&row, key);
    row_static(&row, value);
    row_static(&row, origin);
    return row_end(&row);
}

bool ledger_put_source(struct ledger *ledger, const struct ledger_source *source)
{
    struct row row;

    row_begin(&row, ledger, LEDGER_PUT_SOURCE);
    row_static(&row, source->name);
    row_static(&row, source->base_url);
    row_static(&row, source->dialect);
    row_static(&row, source->quota_group);
    row_number(&row, source->max_in_flight);
    row_time(&row, source->loaded_wall_ms);
    return row_end(&row);
}

/* ---- transactions ---------------------------------------------------------------------------- */

static bool step_once(struct ledger *ledger, enum ledger_statement which, const char *what)
{
    sqlite3_stmt *statement = ledger->statements[which];
    bool ok = sqlite3_step(statement) == SQLITE_DONE || ledger_failed(ledger, what);

    (void)sqlite3_reset(statement);
    return ok;
}

bool ledger_begin(struct ledger *ledger)
{
    return step_once(ledger, LEDGER_BEGIN, "the ledger cannot be written");
}

bool ledger_commit(struct ledger *ledger)
{
    return step_once(ledger, LEDGER_COMMIT, "the ledger does not keep what was written");
}

void ledger_rollback(struct ledger *ledger)
{
    if (!sqlite3_get_autocommit(ledger->database))
        (void)sqlite3_exec(ledger->database, "ROLLBACK", NULL, NULL, NULL);
}
