/* status.c - text and JSON of a snapshot; see status.h. */
#include "worker/status.h"

#include "base/clock.h"
#include "shared/counters.h"
#include "worker/status_flows.h"
#include "worker/version.h"

#include <inttypes.h>
#include <string.h>

/* ---- what all forms share -------------------------------------------------------------------- */

const char *status_role_name(enum process_role role)
{
    switch (role) {
    case PROCESS_NONE:
        break;
    case PROCESS_MASTER:
        return "master";
    case PROCESS_WORKER:
        return "worker";
    case PROCESS_MONITOR:
        return "monitor";
    case PROCESS_TOOL:
        return "tool";
    }
    return "unknown";
}

unsigned status_holders(const struct snapshot *snapshot)
{
    unsigned holders = 0;

    while (holders < snapshot->place_count && snapshot->places[holders].holds)
        holders++;
    return holders;
}

static int64_t between_ms(int64_t from_ns, int64_t until_ns)
{
    return until_ns > from_ns && from_ns > 0 ? (until_ns - from_ns) / NS_PER_MS : 0;
}

const char *status_waits_for(const struct snapshot_place *place)
{
    return place->for_flow ? "flow" : "slot";
}

int64_t status_waited_ms(const struct snapshot *snapshot, const struct snapshot_place *place)
{
    int64_t until_ns = place->holds ? place->record.granted_ns : snapshot->taken_ns;

    return between_ms(place->record.arrived_ns, until_ns);
}

int64_t status_held_ms(const struct snapshot *snapshot, const struct snapshot_place *place)
{
    return place->holds ? between_ms(place->record.granted_ns, snapshot->taken_ns) : 0;
}

/* In the order of the header's words: an operator's order before what the source did itself, and what
 * keeps all calls away before what keeps some. */
const char *status_source_state(const struct source_view *source, int64_t *ret_for_ms)
{
    const struct {
        bool holds;
        const char *word;
        int64_t for_ns;
    } states[] = {
        {source->drained, "drained", 0},
        {source->out_for_ns > 0, "out", source->out_for_ns},
        {source->breaker == BREAKER_OPEN, "open", source->open_for_ns},
        {source->breaker == BREAKER_HALF_OPEN, "half_open", 0},
        {source->throttled_for_ns > 0, "throttled", source->throttled_for_ns},
        {source->leaving, "leaving", 0},
        {true, "ready", 0},
    };
    size_t which = 0;

    while (!states[which].holds)
        which++;
    *ret_for_ms = (states[which].for_ns + NS_PER_MS - 1) / NS_PER_MS;
    return states[which].word;
}

/* ---- text ------------------------------------------------------------------------------------ */

const char *status_plain(char out[NAME_SIZE], const char *string)
{
    size_t length = 0;

    for (; string[length] && length + 1 < NAME_SIZE; length++)
        out[length] = string[length] >= ' ' && string[length] <= '~' ? string[length] : '?';
    out[length] = '\0';
    return length ? out : "-";
}

static void text_name(struct text *out, int width, const char *string)
{
    char shown[NAME_SIZE];

    text_printf(out, "  %-*.*s", width, width, status_plain(shown, string));
}

static void text_seconds(struct text *out, int64_t duration_ms)
{
    text_printf(out, " %8.1f", (double)duration_ms / 1e3);
}

static void text_slots_line(const struct snapshot *snapshot, struct text *out)
{
    const struct slots_use *use = &snapshot->use;

    if (snapshot->limit == 0)
        text_printf(out, "image slots:          %" PRIu32 " in use, no limit", use->used);
    else
        text_printf(out,
                    "image slots:          %" PRIu32 " of %" PRIu32 " in use, %" PRIu32 " free",
                    use->used, snapshot->limit, use->free);
    if (use->leases > 0)
        text_printf(out, ", %" PRIu32 " of them leased to background work", use->leases);
    text_append_string(out, "\n");
    if (use->roll_call)
        text_append_string(
            out, "roll call:            the semaphore set was removed; nothing is granted "
                 "until every process has answered\n");
}

static void text_summary(const struct snapshot *snapshot, const struct status_view *view,
                         struct text *out)
{
    const struct journal_count_view *journal = &snapshot->journal;
    char now[CLOCK_ISO_SIZE];
    char since[CLOCK_ISO_SIZE];
    char name[NAME_SIZE];

    clock_iso(view->now_wall_ms, now);
    clock_iso(snapshot->since_wall_ms, since);
    text_printf(out,
                "penstock:             %s\ntime:                 %s\nstate directory:      %s\n",
                PENSTOCK_VERSION, now, snapshot->state_directory);
    text_printf(out,
                "first start:          %s\ngeneration:           %" PRIu64
                "\nreloads refused:      %" PRIu64 "\n",
                since, snapshot->generation, snapshot->counters[COUNTER_reloads_refused]);
    if (snapshot->master_pid)
        text_printf(out, "master:               pid %" PRId32 "\n", snapshot->master_pid);
    else
        text_append_string(out, "master:               none\n");
    text_printf(out, "image gate:           %s (%s)\n", status_plain(name, snapshot->gate),
                snapshot->gate_on ? "on" : "off");
    text_slots_line(snapshot, out);
    text_printf(out, "image queue:          %" PRIu32 " waiting, at most %" PRIu32 "\n",
                snapshot->waiting, snapshot->max_waiting);
    text_printf(out, "mean slot hold:       %.1f s\n", (double)snapshot->mean_hold_ms / 1e3);
    text_printf(out,
                "journal:              %" PRIu64 " waits, %" PRIu64 " calls, %" PRIu64
                " attempts, %" PRIu64 " events to be written; %" PRIu64 " written, %" PRIu64
                " failed transactions\n",
                journal->waits_pending, journal->calls_pending, journal->attempts_pending,
                journal->events_pending, journal->written, journal->failures);
    text_printf(out,
                "journal lost:         %" PRIu64 " waits, %" PRIu64 " calls, %" PRIu64
                " attempts, %" PRIu64 " events\n",
                journal->waits_lost, journal->calls_lost, journal->attempts_lost,
                journal->events_lost);
    if (!snapshot->linked)
        text_append_string(
            out, "segment:              its name was removed; the running processes go on "
                 "with it, restart all of them together\n");
}

/* What one line of a list says after its own first columns. */
static void text_call(const struct snapshot_place *place, struct text *out)
{
    const struct wait_record *record = &place->record;
    char call_id[NAME_SIZE];

    text_printf(out, "  %7" PRId32, place->pid);
    text_name(out, 11, record->class_name);
    text_name(out, 16, record->client);
    text_name(out, 20, record->model);
    text_name(out, 20, record->endpoint);
    text_printf(out, "  %s\n", status_plain(call_id, record->call_id));
}

static void text_more(unsigned count, const struct status_view *view, struct text *out)
{
    if (!view->full && count > STATUS_CALLS_SHOWN)
        text_printf(out, "and %u more (?full shows all)\n", count - STATUS_CALLS_SHOWN);
}

static void text_slots(const struct snapshot *snapshot, const struct status_view *view,
                       struct text *out)
{
    unsigned count = status_holders(snapshot);

    text_printf(out, "\nslots held by calls: %u\n", count);
    if (count > 0)
        text_printf(out, "   held_s waited_s      pid  %-11s  %-16s  %-20s  %-20s  %s\n", "class",
                    "client", "model", "endpoint", "call");
    for (unsigned i = 0; i < count && (view->full || i < STATUS_CALLS_SHOWN); i++) {
        const struct snapshot_place *place = &snapshot->places[i];

        text_seconds(out, status_held_ms(snapshot, place));
        text_seconds(out, status_waited_ms(snapshot, place));
        text_call(place, out);
    }
    text_more(count, view, out);
}

static void text_queue(const struct snapshot *snapshot, const struct status_view *view,
                       struct text *out)
{
    unsigned first = status_holders(snapshot);
    unsigned count = snapshot->place_count - first;

    text_printf(out, "\nwaiting calls: %u\n", count);
    if (count > 0)
        text_printf(out, " position waited_s  for       pid  %-11s  %-16s  %-20s  %-20s  %s\n",
                    "class", "client", "model", "endpoint", "call");
    for (unsigned i = 0; i < count && (view->full || i < STATUS_CALLS_SHOWN); i++) {
        const struct snapshot_place *place = &snapshot->places[first + i];

        text_printf(out, "%9" PRIu32, place->position);
        text_seconds(out, status_waited_ms(snapshot, place));
        text_printf(out, "  %s", status_waits_for(place));
        text_call(place, out);
    }
    text_more(count, view, out);
}

static void text_source(const struct source_view *source, struct text *out)
{
    int64_t for_ms;
    const char *state = status_source_state(source, &for_ms);
    char reason[NAME_SIZE];

    text_name(out, 20, source->name);
    text_name(out, 16, source->quota_group);
    text_printf(out, "  %-9s", state);
    if (for_ms > 0)
        text_seconds(out, for_ms);
    else
        text_printf(out, " %8s", "-");
    text_printf(out, " %9" PRIu32 "  %6.1f", source->in_flight, source->health_permille / 10.0);
    if (source->latency_ms > 0)
        text_seconds(out, source->latency_ms);
    else
        text_printf(out, " %8s", "-");
    text_printf(out, "  %9" PRIu32 " %9" PRIu32 "  %s\n", source->window_calls,
                source->window_failures, status_plain(reason, source->out_reason));
}

static void text_sources(const struct snapshot *snapshot, struct text *out)
{
    text_printf(out, "\nsources: %u\n", snapshot->source_count);
    if (snapshot->source_count > 0)
        text_printf(
            out,
            "  %-20s  %-16s  %-9s    for_s in_flight  health latency_s %us_calls %us_fails  "
            "reason\n",
            "name", "quota_group", "state", SOURCE_WINDOW_S, SOURCE_WINDOW_S);
    for (unsigned i = 0; i < snapshot->source_count; i++)
        text_source(&snapshot->sources[i], out);
}

static void text_processes(const struct snapshot *snapshot, struct text *out)
{
    text_append_string(
        out, "\nprocesses\n     pid  role     generation  threads  busy     up_s  state\n");
    for (unsigned i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->processes[i];

        text_printf(
            out, "%8" PRId32 "  %-8s %10" PRIu64 " %8" PRIu32 " %5" PRIu32 " %8" PRId64 "  %s%s\n",
            process->pid, status_role_name(process->role), process->generation, process->threads,
            process->threads_busy, between_ms(process->since_ns, snapshot->taken_ns) / 1000,
            process->draining ? "draining" : "serving",
            process->instance == snapshot->instance ? "" : " (of another instance)");
    }
}

static void text_counters(const struct snapshot *snapshot, struct text *out)
{
    text_append_string(out, "\ncounters since first start\n");
    for (unsigned i = 0; i < COUNTERS; i++)
        text_printf(out, "%-32s %" PRIu64 "\n", counter_name((enum counter)i),
                    snapshot->counters[i]);
}

void status_text(const struct snapshot *snapshot, const struct status_view *view, struct text *out)
{
    if (view->parts & STATUS_SUMMARY)
        text_summary(snapshot, view, out);
    if (view->parts & STATUS_SLOTS)
        text_slots(snapshot, view, out);
    if (view->parts & STATUS_QUEUE)
        text_queue(snapshot, view, out);
    if (view->parts & STATUS_SOURCES)
        text_sources(snapshot, out);
    if (view->parts & STATUS_FLOWS)
        status_flows_text(snapshot, out);
    if (view->parts & STATUS_PROCESSES)
        text_processes(snapshot, out);
    if (view->parts & STATUS_COUNTERS)
        text_counters(snapshot, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Members are written one after the other; the comma stands before all but the first of an object.
 */
static void json_key(struct text *out, const char *key)
{
    if (out->length > 0 && out->bytes[out->length - 1] != '{')
        text_append_char(out, ',');
    text_append_json(out, key, strlen(key));
    text_append_char(out, ':');
}

static void json_string(struct text *out, const char *key, const char *value)
{
    json_key(out, key);
    text_append_json(out, value, strlen(value));
}

static void json_number(struct text *out, const char *key, int64_t value)
{
    json_key(out, key);
    text_printf(out, "%" PRId64, value);
}

static void json_count(struct text *out, const char *key, uint64_t value)
{
    json_key(out, key);
    text_printf(out, "%" PRIu64, value);
}

static void json_bool(struct text *out, const char *key, bool value)
{
    json_key(out, key);
    text_append_string(out, value ? "true" : "false");
}

static void json_time(struct text *out, const char *key, int64_t wall_ms)
{
    char iso[CLOCK_ISO_SIZE];

    clock_iso(wall_ms, iso);
    json_string(out, key, iso);
}

/* Also the comma between the objects of a list. */
static void json_open(struct text *out)
{
    if (out->length > 0 && out->bytes[out->length - 1] == '}')
        text_append_char(out, ',');
    text_append_char(out, '{');
}

static void json_call(const struct snapshot *snapshot, const struct snapshot_place *place,
                      struct text *out)
{
    const struct wait_record *record = &place->record;

    json_open(out);
    if (place->holds)
        json_number(out, "held_ms", status_held_ms(snapshot, place));
    else
        json_count(out, "position", place->position);
    if (!place->holds)
        json_string(out, "waits_for", status_waits_for(place));
    json_number(out, "waited_ms", status_waited_ms(snapshot, place));
    json_time(out, "arrived", record->arrived_wall_ms);
    json_count(out, "arrival_seq", record->arrival_seq);
    json_number(out, "pid", place->pid);
    json_string(out, "call_id", record->call_id);
    json_string(out, "class", record->class_name);
    json_string(out, "client", record->client);
    json_string(out, "scope", record->scope);
    json_string(out, "model", record->model);
    json_string(out, "endpoint", record->endpoint);
    text_append_char(out, '}');
}

static void json_calls(const struct snapshot *snapshot, unsigned first, unsigned end,
                       struct text *out)
{
    json_key(out, "calls");
    text_append_char(out, '[');
    for (unsigned i = first; i < end; i++)
        json_call(snapshot, &snapshot->places[i], out);
    text_append_string(out, "]}");
}

static void json_summary(const struct snapshot *snapshot, struct text *out)
{
    const struct journal_count_view *journal = &snapshot->journal;

    json_string(out, "state_directory", snapshot->state_directory);
    json_time(out, "first_start", snapshot->since_wall_ms);
    json_count(out, "generation", snapshot->generation);
    json_number(out, "master_pid", snapshot->master_pid);
    json_string(out, "gate", snapshot->gate);
    json_bool(out, "gate_on", snapshot->gate_on);
    json_number(out, "mean_hold_ms", snapshot->mean_hold_ms);
    json_key(out, "segment");
    text_append_char(out, '{');
    json_bool(out, "linked", snapshot->linked);
    json_number(out, "semaphore_id", snapshot->semaphore_id);
    json_count(out, "semaphore_epoch", snapshot->semaphore_epoch);
    json_count(out, "lock_owner_deaths", snapshot->owner_deaths);
    text_append_char(out, '}');
    json_key(out, "journal");
    text_append_char(out, '{');
    json_count(out, "waits_pending", journal->waits_pending);
    json_count(out, "calls_pending", journal->calls_pending);
    json_count(out, "attempts_pending", journal->attempts_pending);
    json_count(out, "events_pending", journal->events_pending);
    json_count(out, "waits_lost", journal->waits_lost);
    json_count(out, "calls_lost", journal->calls_lost);
    json_count(out, "attempts_lost", journal->attempts_lost);
    json_count(out, "events_lost", journal->events_lost);
    json_count(out, "written", journal->written);
    json_count(out, "failures", journal->failures);
    text_append_char(out, '}');
}

static void json_slots(const struct snapshot *snapshot, struct text *out)
{
    json_key(out, "slots");
    text_append_char(out, '{');
    json_count(out, "limit", snapshot->limit);
    json_count(out, "used", snapshot->use.used);
    json_key(out, "free"); /* null = there is no limit */
    if (snapshot->use.free == UINT32_MAX)
        text_append_string(out, "null");
    else
        text_printf(out, "%" PRIu32, snapshot->use.free);
    json_count(out, "leased", snapshot->use.leases);
    json_count(out, "held", snapshot->use.held);
    json_count(out, "semaphore", snapshot->use.semaphore);
    json_bool(out, "roll_call", snapshot->use.roll_call);
    json_calls(snapshot, 0, status_holders(snapshot), out);
}

static void json_queue(const struct snapshot *snapshot, struct text *out)
{
    json_key(out, "queue");
    text_append_char(out, '{');
    json_count(out, "length", snapshot->waiting);
    json_count(out, "limit", snapshot->max_waiting);
    json_calls(snapshot, status_holders(snapshot), snapshot->place_count, out);
}

static const char *breaker_word(enum breaker_state breaker)
{
    switch (breaker) {
    case BREAKER_CLOSED:
        return "closed";
    case BREAKER_OPEN:
        return "open";
    case BREAKER_HALF_OPEN:
        return "half_open";
    }
    return "unknown";
}

static void json_source(const struct source_view *source, struct text *out)
{
    int64_t for_ms;

    json_open(out);
    json_string(out, "name", source->name);
    json_string(out, "quota_group", source->quota_group);
    json_string(out, "state", status_source_state(source, &for_ms));
    json_number(out, "state_for_ms", for_ms);
    json_string(out, "breaker", breaker_word(source->breaker));
    json_bool(out, "probing", source->probing);
    json_bool(out, "drained", source->drained);
    json_bool(out, "leaving", source->leaving);
    json_string(out, "reason", source->out_reason);
    json_number(out, "open_for_ms", source->open_for_ns / NS_PER_MS);
    json_number(out, "out_for_ms", source->out_for_ns / NS_PER_MS);
    json_number(out, "throttled_for_ms", source->throttled_for_ns / NS_PER_MS);
    json_count(out, "in_flight", source->in_flight);
    json_count(out, "failures_in_a_row", source->failures_in_a_row);
    json_count(out, "health_permille", source->health_permille);
    json_count(out, "latency_ms", source->latency_ms);
    json_count(out, "window_s", SOURCE_WINDOW_S);
    json_count(out, "window_calls", source->window_calls);
    json_count(out, "window_failures", source->window_failures);
    text_append_char(out, '}');
}

static void json_sources(const struct snapshot *snapshot, struct text *out)
{
    json_key(out, "sources");
    text_append_char(out, '[');
    for (unsigned i = 0; i < snapshot->source_count; i++)
        json_source(&snapshot->sources[i], out);
    text_append_char(out, ']');
}

static void json_processes(const struct snapshot *snapshot, struct text *out)
{
    json_key(out, "processes");
    text_append_char(out, '[');
    for (unsigned i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->processes[i];

        json_open(out);
        json_number(out, "pid", process->pid);
        json_string(out, "role", status_role_name(process->role));
        json_count(out, "generation", process->generation);
        json_bool(out, "draining", process->draining != 0);
        json_count(out, "threads", process->threads);
        json_count(out, "threads_busy", process->threads_busy);
        json_number(out, "up_ms", between_ms(process->since_ns, snapshot->taken_ns));
        json_bool(out, "own", process->instance == snapshot->instance);
        text_append_char(out, '}');
    }
    text_append_char(out, ']');
}

void status_json(const struct snapshot *snapshot, const struct status_view *view, struct text *out)
{
    text_append_char(out, '{');
    json_string(out, "version", PENSTOCK_VERSION);
    json_time(out, "time", view->now_wall_ms);
    if (view->parts & STATUS_SUMMARY)
        json_summary(snapshot, out);
    if (view->parts & STATUS_SLOTS)
        json_slots(snapshot, out);
    if (view->parts & STATUS_QUEUE)
        json_queue(snapshot, out);
    if (view->parts & STATUS_SOURCES)
        json_sources(snapshot, out);
    if (view->parts & STATUS_FLOWS) {
        json_key(out, "flows");
        status_flows_json(snapshot, out);
    }
    if (view->parts & STATUS_PROCESSES)
        json_processes(snapshot, out);
    if (view->parts & STATUS_COUNTERS) {
        json_key(out, "counters");
        text_append_char(out, '{');
        for (unsigned i = 0; i < COUNTERS; i++)
            json_count(out, counter_name((enum counter)i), snapshot->counters[i]);
        text_append_char(out, '}');
    }
    text_append_string(out, "}\n");
}
