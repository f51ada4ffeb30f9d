/* diagnose_report.c - the diagnosis as a page; see diagnose_report.h. */
#include "worker/diagnose_report.h"

#include "base/clock.h"
#include "shared/ledger_read.h"
#include "worker/diagnose.h"
#include "worker/diagnose_advice.h"
#include "worker/flow_state.h"
#include "worker/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BEFORE_MS INT64_C(600000) /* what was going on before it all began is looked at too */
#define EXCHANGES_MOST 500000     /* the newest */
#define FLOWS_SHOWN_MAX 200U
#define BUSY_MS 2000

/* The table of the book: a limit, how it shows, what answers to it. */
static const struct {
    const char *codes, *sign, *answer;
} book[DIAGNOSE_LIMITS] = {
    [DIAGNOSE_RPM] = {"Throttling.RateQuota, limit_requests",
                      "now and then, more of them over time", "a bucket of requests (rate)"},
    [DIAGNOSE_RPS] = {"Throttling.RateQuota, limit_requests",
                      "at a start, or when many begin at once",
                      "even spacing (shaping), or max_concurrency"},
    [DIAGNOSE_TPM] = {"Throttling.AllocationQuota, insufficient_quota",
                      "now and then, on long texts", "buckets of requests and tokens (shaping)"},
    [DIAGNOSE_TPS] = {"Throttling.AllocationQuota, insufficient_quota",
                      "many long texts at the same time",
                      "even spacing (shaping), or max_concurrency"},
    [DIAGNOSE_BURST] = {"Throttling.BurstRate, limit_burst_rate",
                        "suddenly many, at a start or after idle time",
                        "queueing upstream; else a slow start (shaping)"},
    [DIAGNOSE_SATURATION] = {"503, 529, overloaded", "slow answers and time-outs, also without 429",
                             "fewer in progress (adaptive)"},
    [DIAGNOSE_DAY] = {"quota of the day", "all, until the day ends", "another account, a fallback"},
    [DIAGNOSE_MONEY] = {"insufficient_quota, Arrearage", "all, until it is paid",
                        "money; another account"},
    [DIAGNOSE_UNKNOWN] = {"429", "the upstream does not say", "adaptive"},
};

/* ---- reading ------------------------------------------------------------------------------------ */

struct findings {
    struct diagnose_flow *flows; /* FLOWS_SHOWN_MAX */
    size_t count;
    bool incomplete; /* out of memory, or more flows than there is room for */
};

static struct diagnose_flow *flow_of(struct findings *findings, const struct ledger_exchange *row)
{
    char group[NAME_SIZE], model[NAME_SIZE];
    struct diagnose_flow *flow = findings->flows;

    (void)text_copy(group, sizeof group, row->quota_group);
    (void)text_copy(model, sizeof model, row->model);
    for (; flow < findings->flows + findings->count; flow++)
        if (strcmp(flow->model, model) == 0 && strcmp(flow->quota_group, group) == 0)
            return flow;
    if (findings->count == FLOWS_SHOWN_MAX)
        return NULL;
    findings->count++;
    (void)text_copy(flow->quota_group, sizeof flow->quota_group, group);
    (void)text_copy(flow->model, sizeof flow->model, model);
    return flow;
}

static bool make_room(struct diagnose_flow *flow)
{
    size_t room = flow->room ? flow->room * 2 : 256;
    struct diagnose_exchange *exchanges;

    if (flow->count < flow->room)
        return true;
    exchanges = realloc(flow->exchanges, room * sizeof *exchanges);
    if (!exchanges)
        return false;
    flow->exchanges = exchanges;
    flow->room = room;
    return true;
}

static int64_t known(int64_t tokens)
{
    return tokens > 0 ? tokens : 0;
}

static void take(void *context, const struct ledger_exchange *row)
{
    struct findings *findings = context;
    struct diagnose_flow *flow = flow_of(findings, row);

    if (!flow || !make_room(flow)) {
        findings->incomplete = true;
        return;
    }
    if (row->loaded_wall_ms > flow->loaded_ms)
        flow->loaded_ms = row->loaded_wall_ms;
    flow->exchanges[flow->count++] = (struct diagnose_exchange){
        .started_ms = row->started_wall_ms,
        .ended_ms = row->ended_wall_ms,
        .tokens = row->settled_tokens > 0 ? row->settled_tokens : known(row->est_tokens),
        .input = known(row->est_tokens),
        .limit = diagnose_limit_of(row->limit_kind),
        .good = row->good,
        .code = diagnose_code(flow, row->error),
    };
}

/* Most refusals first. */
static int compare_flows(const void *left, const void *right)
{
    const struct diagnose_flow *a = left;
    const struct diagnose_flow *b = right;
    int order = strcmp(a->quota_group, b->quota_group);

    if (a->refused != b->refused)
        return a->refused > b->refused ? -1 : 1;
    return order ? order : strcmp(a->model, b->model);
}

/* What upstreams said of their quotas lately, where it can be read: it is worth a line, not an error. */
static void add_told(const struct diagnose_wish *wish, struct findings *findings)
{
    struct flow_state_entry *entries = calloc(FLOWS_MAX, sizeof *entries);
    struct text why;
    unsigned count = 0;

    text_init(&why, 800);
    if (entries)
        count = flow_state_read(wish->state_directory, wish->now_wall_ms, entries, &why);
    for (size_t i = 0; i < findings->count; i++) {
        struct diagnose_flow *flow = &findings->flows[i];
        const char *model = diagnose_source_model(wish->options, flow->quota_group, flow->model);

        for (unsigned k = 0; k < count; k++)
            if (strcmp(entries[k].quota_group, flow->quota_group) == 0 &&
                strcmp(entries[k].model, model) == 0) {
                flow->rpm_told = entries[k].memory.requests_told;
                flow->tpm_told = entries[k].memory.units_told;
            }
    }
    text_release(&why);
    free(entries);
}

static bool read_findings(const struct diagnose_wish *wish, struct findings *findings,
                          struct text *why)
{
    const struct ledger_exchange_wish exchanges = {
        .since_wall_ms = wish->now_wall_ms - wish->last_ms - BEFORE_MS,
        .until_wall_ms = wish->now_wall_ms,
        .most = EXCHANGES_MOST,
    };
    struct ledger_reader *reader = ledger_reader_open(wish->state_directory, BUSY_MS, why);
    struct diagnose_flow *flows;
    bool ok;

    if (!reader)
        return false;
    flows = findings->flows = calloc(FLOWS_SHOWN_MAX, sizeof *flows);
    ok = flows && ledger_read_exchanges(reader, &exchanges, take, findings);
    if (!flows)
        text_append_string(why, "out of memory");
    else if (!ok)
        text_append_string(why, ledger_reader_error(reader));
    ledger_reader_close(reader);
    add_told(wish, findings);
    for (size_t i = 0; ok && i < findings->count; i++) {
        struct diagnose_flow *flow = &flows[i];
        struct model_limit quota = diagnose_quota(wish->options, flow->quota_group, flow->model);

        flow->rpm = quota.rpm;
        flow->tpm = quota.tpm;
        if (!diagnose_look(flow, wish->now_wall_ms - wish->last_ms))
            findings->incomplete = true;
    }
    if (ok)
        qsort(flows, findings->count, sizeof *flows, compare_flows);
    return ok;
}

static void findings_release(struct findings *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        free(findings->flows[i].exchanges);
    free(findings->flows);
}

/* ---- text --------------------------------------------------------------------------------------- */

/* "at start or after idle (83 %)". */
static void write_pattern(const struct diagnose_finding *finding, struct text *out)
{
    text_append_string(out, diagnose_pattern_name(finding->pattern));
    if (finding->pattern == DIAGNOSE_AT_START || finding->pattern == DIAGNOSE_AT_SURGES)
        text_printf(out, " (%u %%)", finding->percent);
    else if (finding->pattern == DIAGNOSE_LONG_TEXTS)
        text_printf(out, " (%.1f times as long)", (double)finding->long_ratio_percent / 100);
    else if (finding->pattern == DIAGNOSE_INTERMITTENT)
        text_printf(out, " (in %u minutes)", finding->minutes);
}

static void text_row(const struct diagnose_finding *finding, unsigned limit, struct text *out)
{
    struct text pattern;

    text_init(&pattern, 80);
    if (finding->count > 0)
        write_pattern(finding, &pattern);
    text_printf(out, "  %-10s %7zu  %-32s  %-45s  %s\n",
                diagnose_limit_name((enum diagnose_limit)limit), finding->count,
                finding->count > 0 ? text_string(&pattern) : "-", book[limit].sign,
                book[limit].answer);
    text_release(&pattern);
}

static void text_details(const struct diagnose_flow *flow, struct text *out)
{
    char code[NAME_SIZE];

    for (unsigned i = 0; i < DIAGNOSE_LIMITS; i++) {
        const struct diagnose_finding *finding = &flow->findings[i];

        if (finding->count == 0)
            continue;
        text_printf(out,
                    "  %s: code %s; the least at which it was met: %" PRId64 " sends and %" PRId64
                    " tokens in 60 s, %" PRId64 " in progress\n",
                    diagnose_limit_name((enum diagnose_limit)i), status_plain(code, finding->code),
                    finding->sends_60s, finding->tokens_60s, finding->in_progress);
        if (finding->in_force < finding->count)
            text_printf(out, "  %s: %zu of them under another configuration\n",
                        diagnose_limit_name((enum diagnose_limit)i),
                        finding->count - finding->in_force);
    }
}

static void text_advice(const struct diagnose_advice *advice, struct text *out)
{
    const char *section = "";

    if (advice->line_count > 0)
        text_append_string(out, "  recommended:\n");
    for (unsigned i = 0; i < advice->line_count; i++) {
        const struct advice_line *row = &advice->lines[i];

        if (strcmp(section, row->section) != 0)
            text_printf(out, "    [%s]\n", row->section);
        section = row->section;
        if (*row->now) /* a comment has a line of its own: what is shown can be pasted */
            text_printf(out, "    # now: %s\n", row->now);
        text_printf(out, "    %s\n", row->line);
    }
    for (unsigned i = 0; i < advice->note_count; i++)
        text_printf(out, "  note: %s\n", advice->notes[i]);
}

static void text_flow(const struct diagnose_flow *flow, const struct diagnose_advice *advice,
                      struct text *out)
{
    char name[NAME_SIZE];

    text_printf(out, "\nquota group %s, ", status_plain(name, flow->quota_group));
    text_printf(out, "model %s: %zu exchanges, %zu refused for a limit",
                status_plain(name, flow->model), flow->attempts, flow->refused);
    if (flow->attempts > 0)
        text_printf(out, " (%.1f %%)", 100.0 * (double)flow->refused / (double)flow->attempts);
    text_append_char(out, '\n');
    if (flow->refused == 0)
        return;
    text_printf(out, "  %-10s %7s  %-32s  %-45s  %s\n", "limit", "refused", "seen here",
                "the sign of it", "what answers to it");
    for (unsigned i = 0; i < DIAGNOSE_LIMITS; i++)
        text_row(&flow->findings[i], i, out);
    text_details(flow, out);
    text_advice(advice, out);
}

/* ---- JSON --------------------------------------------------------------------------------------- */

static void json_text(struct text *out, const char *before, const char *value)
{
    text_append_string(out, before);
    text_append_json(out, value, strlen(value));
}

static void json_finding(const struct diagnose_finding *finding, unsigned limit, struct text *out)
{
    text_printf(out, "{\"limit\":\"%s\",\"refused\":%zu,\"in_force\":%zu",
                diagnose_limit_name((enum diagnose_limit)limit), finding->count, finding->in_force);
    json_text(out,
              ",\"pattern\":", finding->count > 0 ? diagnose_pattern_name(finding->pattern) : "");
    json_text(out, ",\"code\":", finding->code);
    json_text(out, ",\"codes\":", book[limit].codes);
    json_text(out, ",\"sign\":", book[limit].sign);
    json_text(out, ",\"answer\":", book[limit].answer);
    text_printf(
        out, ",\"sends_60s\":%" PRId64 ",\"tokens_60s\":%" PRId64 ",\"in_progress\":%" PRId64 "}",
        finding->sends_60s, finding->tokens_60s, finding->in_progress);
}

static void json_advice(const struct diagnose_advice *advice, struct text *out)
{
    text_append_string(out, "],\"recommended\":[");
    for (unsigned i = 0; i < advice->line_count; i++) {
        json_text(out, i > 0 ? ",{\"section\":" : "{\"section\":", advice->lines[i].section);
        json_text(out, ",\"line\":", advice->lines[i].line);
        json_text(out, ",\"now\":", advice->lines[i].now);
        text_append_char(out, '}');
    }
    text_append_string(out, "],\"notes\":[");
    for (unsigned i = 0; i < advice->note_count; i++)
        json_text(out, i > 0 ? "," : "", advice->notes[i]);
    text_append_string(out, "]}");
}

static void json_flow(const struct diagnose_flow *flow, const struct diagnose_advice *advice,
                      struct text *out)
{
    json_text(out, "{\"quota_group\":", flow->quota_group);
    json_text(out, ",\"model\":", flow->model);
    text_printf(out, ",\"exchanges\":%zu,\"refused\":%zu,\"limits\":[", flow->attempts,
                flow->refused);
    for (unsigned i = 0; i < DIAGNOSE_LIMITS; i++) {
        if (i > 0)
            text_append_char(out, ',');
        json_finding(&flow->findings[i], i, out);
    }
    json_advice(advice, out);
}

/* ---- all of it ---------------------------------------------------------------------------------- */

static void report_head(const struct diagnose_wish *wish, const struct findings *findings,
                        struct text *out)
{
    char since[CLOCK_ISO_SIZE], until[CLOCK_ISO_SIZE];

    clock_iso(wish->now_wall_ms - wish->last_ms, since);
    clock_iso(wish->now_wall_ms, until);
    if (wish->json)
        text_printf(out, "{\"since\":\"%s\",\"until\":\"%s\",\"complete\":%s,\"flows\":[", since,
                    until, findings->incomplete ? "false" : "true");
    else
        text_printf(out, "exchanges with upstreams from %s to %s%s\n", since, until,
                    findings->incomplete ? " (not all of them: too many, or out of memory)" : "");
}

/* Exchanges of before alone are no flow. */
static size_t report_flows(const struct diagnose_wish *wish, const struct findings *findings,
                           struct text *out)
{
    size_t shown = 0;

    for (size_t i = 0; i < findings->count; i++) {
        const struct diagnose_flow *flow = &findings->flows[i];
        struct diagnose_advice advice;

        if (flow->attempts == 0)
            continue;
        diagnose_advise(wish->options, flow, &advice);
        if (wish->json && shown > 0)
            text_append_char(out, ',');
        if (wish->json)
            json_flow(flow, &advice, out);
        else
            text_flow(flow, &advice, out);
        shown++;
    }
    return shown;
}

static void report_beyond(bool json, struct text *out)
{
    text_append_string(out, json ? "],\"beyond\":[" : "\nwhat no gateway can do for you:\n");
    for (size_t i = 0; i < diagnose_beyond_count; i++) {
        if (json)
            json_text(out, i > 0 ? "," : "", diagnose_beyond[i]);
        else
            text_printf(out, "  - %s\n", diagnose_beyond[i]);
    }
    if (json)
        text_append_string(out, "]}\n");
}

bool diagnose_report(const struct diagnose_wish *wish, struct text *out, struct text *why)
{
    struct findings findings = {0};
    bool ok = read_findings(wish, &findings, why);

    if (ok) {
        report_head(wish, &findings, out);
        if (report_flows(wish, &findings, out) == 0 && !wish->json)
            text_append_string(out, "\nnone\n");
        report_beyond(wish->json, out);
    }
    findings_release(&findings);
    return ok;
}
