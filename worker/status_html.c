/* status_html.c - the status page for browsers; see status_html.h. */
#include "worker/status_html.h"

#include "base/clock.h"
#include "shared/counters.h"
#include "worker/status_flows.h"
#include "worker/version.h"

#include <inttypes.h>
#include <string.h>

static const char page_head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<title>Penstock</title>\n<style>\n"
    ":root{color-scheme:light dark;--ground:#f6f7f9;--card:#fff;--ink:#1b2430;--soft:#566273;"
    "--line:#dde2e9;--used:#1f6feb;--lease:#8250df;--free:#d5dce6;--bad:#b42318;--good:#1a7f37}\n"
    "@media(prefers-color-scheme:dark){:root{--ground:#0e1218;--card:#171d26;--ink:#e4e9f0;"
    "--soft:#98a5b7;--line:#2a3340;--used:#4c8dff;--lease:#b083f0;--free:#2f3a49;--bad:#ff7b72;"
    "--good:#57ab5a}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:72rem;padding:1rem;background:var(--ground);color:var(--ink);"
    "font:15px/1.45 system-ui,sans-serif}\n"
    "header{display:flex;flex-wrap:wrap;gap:.25rem 1rem;align-items:baseline}\n"
    "h1{font-size:1.4rem;margin:0}h2{font-size:1rem;margin:0 0 .5rem}\n"
    "p{margin:.25rem 0}.soft{color:var(--soft)}.bad{color:var(--bad);font-weight:600}"
    ".good{color:var(--good)}\n"
    "section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;"
    "padding:.9rem 1rem;margin-top:1rem}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:1rem;"
    "margin-top:1rem}.tiles section{margin:0}\n"
    ".big{font-size:1.7rem;font-weight:650;font-variant-numeric:tabular-nums;line-height:1.2}\n"
    ".bar{display:flex;height:.7rem;border-radius:.35rem;overflow:hidden;background:var(--free);"
    "margin-top:.5rem}.bar i{display:block;background:var(--used)}.bar "
    "i+i{background:var(--lease)}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%}\n"
    "th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);"
    "white-space:nowrap}th{color:var(--soft);font-weight:500}tr:last-child td{border-bottom:0}\n"
    ".n{text-align:right;font-variant-numeric:tabular-nums}\n"
    ".id{font:13px/1.4 ui-monospace,monospace;color:var(--soft)}\n"
    "@media(max-width:40rem){.id{display:none}body{padding:.6rem}}\n"
    "</style>\n";

void status_html_escaped(struct text *out, const char *string)
{
    for (; *string; string++) {
        switch (*string) {
        case '&':
            text_append_string(out, "&amp;");
            break;
        case '<':
            text_append_string(out, "&lt;");
            break;
        case '>':
            text_append_string(out, "&gt;");
            break;
        case '"':
            text_append_string(out, "&quot;");
            break;
        case '\'':
            text_append_string(out, "&#39;");
            break;
        default:
            text_append_char(out, *string);
        }
    }
}

static void html_cell(struct text *out, const char *string)
{
    text_append_string(out, "<td>");
    status_html_escaped(out, *string ? string : "–");
    text_append_string(out, "</td>");
}

static void html_count_cell(struct text *out, uint64_t number)
{
    text_printf(out, "<td class=\"n\">%" PRIu64 "</td>", number);
}

static void html_seconds_cell(struct text *out, int64_t duration_ms)
{
    text_printf(out, "<td class=\"n\">%.1f&nbsp;s</td>", (double)duration_ms / 1e3);
}

static void html_head(const struct snapshot *snapshot, const struct status_view *view,
                      struct text *out)
{
    char now[CLOCK_ISO_SIZE];

    clock_iso(view->now_wall_ms, now);
    text_append_string(out, page_head);
    text_printf(out,
                "<meta http-equiv=\"refresh\" content=\"%d\">\n</head><body>\n<header>"
                "<h1>Penstock</h1><span>gate ",
                STATUS_HTML_REFRESH_S);
    status_html_escaped(out, snapshot->gate);
    text_append_string(out, snapshot->gate_on ? " <b class=\"good\">on</b></span>"
                                              : " <b class=\"bad\">off</b></span>");
    text_printf(out,
                "<span class=\"soft\">generation %" PRIu64 ", version %s, <time>%s</time></span>"
                "</header>\n",
                snapshot->generation, PENSTOCK_VERSION, now);
    if (!snapshot->master_pid)
        text_append_string(out, "<p class=\"bad\">No master process runs.</p>\n");
    if (snapshot->use.roll_call)
        text_append_string(out,
                           "<p class=\"bad\">The semaphore set was removed: nothing is granted "
                           "until every process has answered.</p>\n");
    if (!snapshot->linked)
        text_append_string(out, "<p class=\"bad\">The segment's name was removed: the running "
                                "processes go on with it; restart all of them together.</p>\n");
}

static void html_slots_tile(const struct snapshot *snapshot, struct text *out)
{
    const struct slots_use *use = &snapshot->use;
    uint32_t called = use->used > use->leases ? use->used - use->leases : 0;
    uint32_t whole = snapshot->limit > use->used ? snapshot->limit : use->used;

    text_printf(out, "<section><h2>Slots in use</h2><div class=\"big\">%" PRIu32, use->used);
    if (snapshot->limit > 0)
        text_printf(out, " / %" PRIu32, snapshot->limit);
    text_append_string(out, "</div>");
    if (snapshot->limit > 0 && whole > 0)
        text_printf(
            out,
            "<div class=\"bar\" role=\"img\" aria-label=\"%" PRIu32 " of %" PRIu32
            " slots in use\"><i style=\"width:%.2f%%\"></i><i style=\"width:%.2f%%\"></i></div>",
            use->used, snapshot->limit, 100.0 * called / whole, 100.0 * use->leases / whole);
    if (use->leases > 0)
        text_printf(out, "<p class=\"soft\">%" PRIu32 " leased to background work</p>",
                    use->leases);
    if (snapshot->limit == 0)
        text_append_string(out, "<p class=\"soft\">no limit</p>");
    text_append_string(out, "</section>\n");
}

static uint64_t refusals(const struct snapshot *snapshot)
{
    return snapshot->counters[COUNTER_image_refused_limit] +
           snapshot->counters[COUNTER_image_refused_queue_full] +
           snapshot->counters[COUNTER_image_refused_queue_timeout];
}

static void html_tiles(const struct snapshot *snapshot, struct text *out)
{
    const struct journal_count_view *journal = &snapshot->journal;
    uint64_t pending = journal->waits_pending + journal->calls_pending + journal->attempts_pending +
                       journal->events_pending;
    uint64_t lost =
        journal->waits_lost + journal->calls_lost + journal->attempts_lost + journal->events_lost;
    unsigned first = status_holders(snapshot);
    int64_t oldest_ms =
        first < snapshot->place_count ? status_waited_ms(snapshot, &snapshot->places[first]) : 0;

    text_append_string(out, "<div class=\"tiles\">\n");
    html_slots_tile(snapshot, out);
    text_printf(out,
                "<section><h2>Waiting</h2><div class=\"big\">%" PRIu32 "</div><p class=\"soft\">"
                "at most %" PRIu32 "; the first for %.1f&nbsp;s</p></section>\n",
                snapshot->waiting, snapshot->max_waiting, (double)oldest_ms / 1e3);
    text_printf(out,
                "<section><h2>Refused</h2><div class=\"big\">%" PRIu64 "</div><p class=\"soft\">"
                "no slot %" PRIu64 ", queue full %" PRIu64 ", waited too long %" PRIu64
                "</p></section>\n",
                refusals(snapshot), snapshot->counters[COUNTER_image_refused_limit],
                snapshot->counters[COUNTER_image_refused_queue_full],
                snapshot->counters[COUNTER_image_refused_queue_timeout]);
    text_printf(out,
                "<section><h2>Mean hold</h2><div class=\"big\">%.1f&nbsp;s</div><p class=\"soft\">"
                "%" PRIu64 " image calls got a slot</p></section>\n",
                (double)snapshot->mean_hold_ms / 1e3, snapshot->counters[COUNTER_image_granted]);
    text_printf(out,
                "<section><h2>Journal</h2><div class=\"big\">%" PRIu64
                "</div><p class=\"%s\">to be "
                "written; %" PRIu64 " lost, %" PRIu64 " failed writes</p></section>\n</div>\n",
                pending, lost > 0 ? "bad" : "soft", lost, journal->failures);
}

static void html_call(const struct snapshot_place *place, struct text *out)
{
    const struct wait_record *record = &place->record;

    html_cell(out, record->class_name);
    html_cell(out, record->client);
    html_cell(out, record->model);
    html_cell(out, record->endpoint);
    text_printf(out, "<td class=\"n\">%" PRId32 "</td><td class=\"id\">", place->pid);
    status_html_escaped(out, record->call_id);
    text_append_string(out, "</td></tr>\n");
}

static void html_list_end(unsigned count, const struct status_view *view, struct text *out)
{
    text_append_string(out, "</table></div>");
    if (!view->full && count > STATUS_CALLS_SHOWN)
        text_printf(out, "<p><a href=\"?html&amp;full\">and %u more</a></p>",
                    count - STATUS_CALLS_SHOWN);
    text_append_string(out, "</section>\n");
}

static void html_slots(const struct snapshot *snapshot, const struct status_view *view,
                       struct text *out)
{
    unsigned count = status_holders(snapshot);

    text_append_string(out, "<section><h2>Slots</h2>");
    if (count == 0) {
        text_append_string(out, "<p class=\"soft\">No call holds a slot.</p></section>\n");
        return;
    }
    text_append_string(
        out, "<div class=\"wide\"><table><tr><th class=\"n\">held</th><th "
             "class=\"n\">waited</th><th>class</th><th>client</th><th>model</th><th>endpoint</th>"
             "<th class=\"n\">pid</th><th class=\"id\">call</th></tr>\n");
    for (unsigned i = 0; i < count && (view->full || i < STATUS_CALLS_SHOWN); i++) {
        text_append_string(out, "<tr>");
        html_seconds_cell(out, status_held_ms(snapshot, &snapshot->places[i]));
        html_seconds_cell(out, status_waited_ms(snapshot, &snapshot->places[i]));
        html_call(&snapshot->places[i], out);
    }
    html_list_end(count, view, out);
}

static void html_queue(const struct snapshot *snapshot, const struct status_view *view,
                       struct text *out)
{
    unsigned first = status_holders(snapshot);
    unsigned count = snapshot->place_count - first;

    text_append_string(out, "<section><h2>Queue</h2>");
    if (count == 0) {
        text_append_string(out, "<p class=\"soft\">Nobody waits.</p></section>\n");
        return;
    }
    text_append_string(out, "<div class=\"wide\"><table><tr><th class=\"n\">position</th><th "
                            "class=\"n\">waited</th><th>for</th><th>class</th><th>client</"
                            "th><th>model</th><th>endpoint</th>"
                            "<th class=\"n\">pid</th><th class=\"id\">call</th></tr>\n");
    for (unsigned i = 0; i < count && (view->full || i < STATUS_CALLS_SHOWN); i++) {
        const struct snapshot_place *place = &snapshot->places[first + i];

        text_append_string(out, "<tr>");
        html_count_cell(out, place->position);
        html_seconds_cell(out, status_waited_ms(snapshot, place));
        html_cell(out, status_waits_for(place));
        html_call(place, out);
    }
    html_list_end(count, view, out);
}

/* The state with its time and reason, when it is one that keeps calls away. */
static void html_source_state(const struct source_view *source, struct text *out)
{
    int64_t for_ms;
    const char *state = status_source_state(source, &for_ms);
    bool serves = strcmp(state, "ready") == 0 || strcmp(state, "leaving") == 0;

    text_printf(out, "<td class=\"%s\">%s", serves ? "good" : "bad", state);
    if (for_ms > 0)
        text_printf(out, ", %.0f&nbsp;s", (double)for_ms / 1e3);
    text_append_string(out, "</td>");
}

static void html_source(const struct source_view *source, struct text *out)
{
    text_append_string(out, "<tr>");
    html_cell(out, source->name);
    html_cell(out, source->quota_group);
    html_source_state(source, out);
    html_cell(out, source->out_reason);
    html_count_cell(out, source->in_flight);
    text_printf(out, "<td class=\"n\">%.1f&nbsp;%%</td>", source->health_permille / 10.0);
    html_seconds_cell(out, source->latency_ms);
    text_printf(out, "<td class=\"n\">%" PRIu32 " of %" PRIu32 "</td></tr>\n",
                source->window_failures, source->window_calls);
}

static void html_sources(const struct snapshot *snapshot, struct text *out)
{
    if (snapshot->source_count == 0)
        return;
    text_printf(out,
                "<section><h2>Sources</h2><div class=\"wide\"><table><tr><th>name</th><th>quota "
                "group</th><th>state</th><th>reason</th><th class=\"n\">in flight</th><th "
                "class=\"n\">health</th><th class=\"n\">latency</th><th class=\"n\">failed in "
                "%u&nbsp;s</th></tr>\n",
                SOURCE_WINDOW_S);
    for (unsigned i = 0; i < snapshot->source_count; i++)
        html_source(&snapshot->sources[i], out);
    text_append_string(out, "</table></div></section>\n");
}

static void html_processes(const struct snapshot *snapshot, struct text *out)
{
    text_append_string(out, "<section><h2>Processes</h2><div class=\"wide\"><table><tr><th "
                            "class=\"n\">pid</th><th>role</th><th class=\"n\">generation</th><th "
                            "class=\"n\">threads busy</th><th>state</th></tr>\n");
    for (unsigned i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->processes[i];

        text_printf(out,
                    "<tr><td class=\"n\">%" PRId32 "</td><td>%s</td><td class=\"n\">%" PRIu64
                    "</td><td class=\"n\">%" PRIu32 " of %" PRIu32 "</td><td>%s%s</td></tr>\n",
                    process->pid, status_role_name(process->role), process->generation,
                    process->threads_busy, process->threads,
                    process->draining ? "draining" : "serving",
                    process->instance == snapshot->instance ? "" : ", of another instance");
    }
    text_append_string(out, "</table></div></section>\n");
}

static void html_counters(const struct snapshot *snapshot, struct text *out)
{
    char since[CLOCK_ISO_SIZE];

    clock_iso(snapshot->since_wall_ms, since);
    text_printf(out, "<section><h2>Counters since %s</h2><div class=\"wide\"><table>\n", since);
    for (unsigned i = 0; i < COUNTERS; i++) {
        text_append_string(out, "<tr>");
        html_cell(out, counter_name((enum counter)i));
        html_count_cell(out, snapshot->counters[i]);
        text_append_string(out, "<td class=\"soft\">");
        status_html_escaped(out, counter_help((enum counter)i));
        text_append_string(out, "</td></tr>\n");
    }
    text_append_string(out, "</table></div></section>\n</body></html>\n");
}

void status_html(const struct snapshot *snapshot, const struct status_view *view, struct text *out)
{
    html_head(snapshot, view, out);
    html_tiles(snapshot, out);
    html_slots(snapshot, view, out);
    html_queue(snapshot, view, out);
    html_sources(snapshot, out);
    status_flows_html(snapshot, out);
    html_processes(snapshot, out);
    html_counters(snapshot, out);
}
