/*
 * ledger_rows.c - records become rows; see ledger.h.
 *
 * Names come from clients and upstreams: bytes that are no UTF-8, or that would steer a terminal,
 * become
 * "?". A record with a number that is no state still becomes a row: one bad record must not stop
 * all behind it.
 */
#include "base/clock.h"
#include "shared/gate.h"
#include "shared/ledger_inside.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- values into a statement ----------------------------------------------------------------- */

/* Columns in their order, with the memory of those that are made here. */
struct row {
    struct ledger *ledger;
    sqlite3_stmt *statement;
    int column;
    unsigned texts; /* used of clean */
    char clean[16][256];
};

static void row_begin(struct row *row, struct ledger *ledger, enum ledger_statement which)
{
    row->ledger = ledger;
    row->statement = ledger->statements[which];
    row->column = 0;
    row->texts = 0;
}

static bool row_end(struct row *row)
{
    bool ok = sqlite3_step(row->statement) == SQLITE_DONE ||
              ledger_failed(row->ledger, "the ledger takes no row");

    (void)sqlite3_reset(row->statement);
    (void)sqlite3_clear_bindings(row->statement);
    return ok;
}

/* A failed bind (out of memory) leaves NULL, which the step then refuses or keeps: never a crash.
 */
static void put_number(struct row *row, int64_t number)
{
    (void)sqlite3_bind_int64(row->statement, ++row->column, number);
}

static void put_null(struct row *row)
{
    row->column++; /* a cleared binding is NULL */
}

/* -1 = not known. */
static void put_known(struct row *row, int64_t number)
{
    if (number < 0)
        put_null(row);
    else
        put_number(row, number);
}

static char *new_text(struct row *row)
{
    INVARIANT(row->texts < LENGTH(row->clean));
    return row->clean[row->texts++];
}

static void put_static(struct row *row, const char *text)
{
    (void)sqlite3_bind_text(row->statement, ++row->column, text, -1, SQLITE_STATIC);
}

static bool is_plain(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] < 0x20 || bytes[i] > 0x7e)
            return false;
    return true;
}

/* Length of the printable UTF-8 sequence at bytes; 0: there is none. */
static size_t printable_length(const unsigned char *bytes, size_t length)
{
    unsigned char lead = bytes[0];
    size_t need = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t rune = need == 1 ? lead : lead & (0x7fU >> need);
    static const uint32_t smallest[] = {0, 0x20, 0xa0, 0x800, 0x10000}; /* shorter is over-long */

    if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4 || need > length)
        return 0;
    for (size_t i = 1; i < need; i++) {
        if ((bytes[i] & 0xc0U) != 0x80)
            return 0;
        rune = rune << 6 | (bytes[i] & 0x3fU);
    }
    if (rune < smallest[need] || rune == 0x7f || rune > 0x10ffff || rune >> 11 == 0x1b)
        return 0;
    return need;
}

static void clean_into(char *out, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length;) {
        size_t step = printable_length((const unsigned char *)bytes + i, length - i);

        if (step == 0) {
            *out++ = '?';
            i++;
        }
        for (; step > 0; step--)
            *out++ = bytes[i++];
    }
    *out = '\0';
}

/* A name from outside, at most size bytes. */
static void put_text(struct row *row, const char *bytes, size_t size)
{
    size_t length = strnlen(bytes, size);
    char *clean;

    if (is_plain(bytes, length)) {
        (void)sqlite3_bind_text(row->statement, ++row->column, bytes, (int)length, SQLITE_STATIC);
        return;
    }
    clean = new_text(row);
    if (length > sizeof row->clean[0] - 1)
        length = sizeof row->clean[0] - 1;
    clean_into(clean, bytes, length);
    put_static(row, clean);
}

/* "" = not known. */
static void put_known_text(struct row *row, const char *bytes, size_t size)
{
    if (*bytes == '\0')
        put_null(row);
    else
        put_text(row, bytes, size);
}

#define PUT_TEXT(row, array) put_text(row, array, sizeof(array))
#define PUT_KNOWN_TEXT(row, array) put_known_text(row, array, sizeof(array))

static void put_time(struct row *row, int64_t wall_ms)
{
    char *text = new_text(row);

    clock_iso(wall_ms, text);
    put_static(row, text);
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
        put_null(row);
    else
        put_time(row, record->arrived_wall_ms + (at_ns - record->arrived_ns) / NS_PER_MS);
}

bool ledger_put_wait(struct ledger *ledger, const struct wait_record *record)
{
    struct wait_times times = times_of(record);
    struct row row;

    row_begin(&row, ledger, LEDGER_PUT_WAIT);
    put_number(&row, (int64_t)record->boot);
    put_number(&row, (int64_t)record->arrival_seq);
    put_known(&row, times.granted ? (int64_t)record->grant_seq : -1);
    PUT_TEXT(&row, record->call_id);
    put_static(&row, ledger_state_word(record->state));
    if (record->state == WAIT_REFUSED)
        put_static(&row, ledger_refusal_word(record->refusal));
    else
        put_null(&row);
    PUT_TEXT(&row, record->class_name);
    PUT_TEXT(&row, record->client);
    PUT_TEXT(&row, record->scope);
    PUT_TEXT(&row, record->model);
    PUT_TEXT(&row, record->endpoint);
    put_number(&row, record->position);
    put_time(&row, record->arrived_wall_ms);
    put_time_of(&row, record, record->granted_ns);
    put_time_of(&row, record, times.ended_ns);
    put_known(&row, times.wait_ms);
    put_known(&row, times.hold_ms);
    put_number(&row, record->arrived_ns);
    put_known(&row, times.granted ? record->granted_ns : -1);
    put_known(&row, times.ended ? times.ended_ns : -1);
    put_number(&row, record->in_use_at_arrival);
    put_number(&row, record->waiting_at_arrival);
    put_known(&row, times.granted ? (int64_t)record->in_use_at_grant : -1);
    put_known(&row, times.granted ? (int64_t)record->waiting_at_grant : -1);
    put_number(&row, record->pid);
    return row_end(&row);
}

/* ---- the other tables ------------------------------------------------------------------------ */

/* What a poll shows of finished work belongs to the call that created it (decisions: pictures). */
static bool book_poll(struct ledger *ledger, const struct call_record *record)
{
    struct row row;

    row_begin(&row, ledger, LEDGER_BOOK_POLL);
    PUT_TEXT(&row, record->upstream_id);
    put_number(&row, record->images);
    put_known(&row, record->tokens_in);
    put_known(&row, record->tokens_out);
    put_known(&row, record->image_tokens_in);
    put_known(&row, record->image_tokens_out);
    PUT_KNOWN_TEXT(&row, record->image_size);
    PUT_KNOWN_TEXT(&row, record->image_quality);
    PUT_KNOWN_TEXT(&row, record->image_format);
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

bool ledger_put_call(struct ledger *ledger, const struct call_record *record)
{
    struct row row;

    if (record->poll) {
        const struct call_record own = own_part(record);

        return (record->images == 0 || book_poll(ledger, record)) && ledger_put_call(ledger, &own);
    }
    row_begin(&row, ledger, LEDGER_PUT_CALL);
    PUT_TEXT(&row, record->call_id);
    put_time(&row, record->arrived_wall_ms);
    PUT_TEXT(&row, record->kind);
    PUT_TEXT(&row, record->client);
    PUT_TEXT(&row, record->route);
    PUT_TEXT(&row, record->scope);
    PUT_TEXT(&row, record->source);
    PUT_TEXT(&row, record->endpoint);
    PUT_TEXT(&row, record->model_asked);
    PUT_TEXT(&row, record->model_served);
    put_number(&row, record->status);
    put_known(&row, record->upstream_status > 0 ? record->upstream_status : -1);
    PUT_TEXT(&row, record->outcome);
    PUT_KNOWN_TEXT(&row, record->error_code);
    put_number(&row, record->stream);
    put_known(&row, record->queue_ms);
    put_known(&row, record->ttft_ms);
    put_known(&row, record->generation_ms);
    put_known(&row, record->total_latency_ms);
    put_number(&row, record->attempts);
    put_number(&row, record->retries);
    put_number(&row, record->hedges);
    put_number(&row, record->hedge_won);
    put_number(&row, record->fallback);
    put_known(&row, record->tokens_in);
    put_known(&row, record->tokens_out);
    put_known(&row, record->tokens_cached);
    put_known(&row, record->tokens_reasoning);
    put_known(&row, record->image_tokens_in);
    put_known(&row, record->image_tokens_out);
    put_number(&row, record->images);
    PUT_KNOWN_TEXT(&row, record->image_size);
    PUT_KNOWN_TEXT(&row, record->image_quality);
    PUT_KNOWN_TEXT(&row, record->image_format);
    put_known(&row, record->bytes_in);
    put_known(&row, record->bytes_out);
    put_number(&row, record->pid);
    PUT_KNOWN_TEXT(&row, record->upstream_id);
    return row_end(&row);
}

bool ledger_put_event(struct ledger *ledger, const struct event_record *record)
{
    struct row row;

    row_begin(&row, ledger, LEDGER_PUT_EVENT);
    put_time(&row, record->wall_ms);
    put_number(&row, record->pid);
    PUT_TEXT(&row, record->name);
    PUT_TEXT(&row, record->detail);
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
    put_static(&row, key);
    put_static(&row, value);
    put_static(&row, origin);
    return row_end(&row);
}

bool ledger_put_source(struct ledger *ledger, const char *name, const char *base_url,
                       int64_t loaded_wall_ms)
{
    struct row row;

    row_begin(&row, ledger, LEDGER_PUT_SOURCE);
    put_static(&row, name);
    put_static(&row, base_url);
    put_time(&row, loaded_wall_ms);
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

/* ---- rows whose end was lost ----------------------------------------------------------------- */

#define OPEN_PAGE 256

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
    put_number(&row, key->boot);
    put_number(&row, key->seq);
    put_time(&row, now_wall_ms);
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
