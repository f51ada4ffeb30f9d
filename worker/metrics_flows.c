/*
 * metrics_flows.c - flow control on the scrape page; see metrics_page.h.
 *
 * A model's name comes from clients. It becomes a label once an upstream has answered a call for it, so
 * that the names are the upstream's; what was never answered is summed as model="other". At most
 * FLOWS_MAX are there at a time.
 */
#include "base/clock.h"
#include "worker/flow_call.h"
#include "worker/metrics_page.h"
#include "worker/status_flows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OTHER "other"

/* A label's value: \, " and line ends escaped; other control characters and what is not ASCII as "?". */
static void label(struct text *out, const char *name, const char *value)
{
    text_printf(out, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            text_append_char(out, '\\');
        text_append_char(out, *value >= ' ' && *value <= '~' ? *value : '?');
    }
    text_append_char(out, '"');
}

static bool has_own_label(const struct flow_view *flow)
{
    return flow->completed > 0 && strcmp(flow->model, OTHER) != 0;
}

static void sample_begins(const struct metrics_page *page, const char *name,
                          const struct flow_view *flow, const char *model)
{
    text_printf(page->out, "penstock_flow_%s{", name);
    label(page->out, "quota_group", flow->quota_group);
    text_append_char(page->out, ',');
    label(page->out, "model", model);
}

/* ---- gauges ---------------------------------------------------------------------------------- */

#define ABSENT (-1.0)

static double in_flight_limit_of(const struct flow_view *flow)
{
    return flow->in_flight_limit == UINT32_MAX ? ABSENT : flow->in_flight_limit;
}

static double requests_quota_of(const struct flow_view *flow)
{
    return flow->requests_quota > 0 ? (double)flow->requests_quota : ABSENT;
}

static double units_quota_of(const struct flow_view *flow)
{
    return flow->units_quota > 0 ? (double)flow->units_quota : ABSENT;
}

static double sends_of(const struct flow_view *flow)
{
    return (double)flow->use.sends;
}

static double units_of(const struct flow_view *flow)
{
    return flow->use.units > 0 ? (double)flow->use.units : 0;
}

static double paused_of(const struct flow_view *flow)
{
    return (double)flow->paused_for_ns / 1e9;
}

static double if_adaptive(const struct flow_view *flow, double value)
{
    return flow->strategy == FLOW_STRATEGY_ADAPTIVE ? value : ABSENT;
}

static double state_of(const struct flow_view *flow)
{
    return if_adaptive(flow, flow->adaptive_state);
}

static double pace_of(const struct flow_view *flow)
{
    return if_adaptive(flow, flow->learned.pace);
}

static double watermark_of(const struct flow_view *flow)
{
    return if_adaptive(flow, flow->learned.watermark);
}

_Static_assert(ADAPTIVE_STARTUP == 1 && ADAPTIVE_RECOVERY == 5, "the help below says so");

static const struct flow_gauge {
    const char *name, *help;
    double (*value)(const struct flow_view *);
} gauges[] = {
    {"in_flight_limit", "The most calls in flight; absent without a bound.", in_flight_limit_of},
    {"requests_quota", "Requests per minute that the configuration knows; absent if none.",
     requests_quota_of},
    {"units_quota", "Units (tokens) per minute that the configuration knows; absent if none.",
     units_quota_of},
    {"sends_last_minute", "Requests sent in the last 60 seconds.", sends_of},
    {"units_last_minute", "Units (tokens) booked in the last 60 seconds.", units_of},
    {"paused_seconds", "How long nothing is sent any more, as the upstream asked; 0 = it is.",
     paused_of},
    {"state",
     "The adaptive controller: 1 startup, 2 probing, 3 hold, 4 drain, 5 recovery; absent without.",
     state_of},
    {"pace", "Requests per second that the adaptive controller sends at most.", pace_of},
    {"watermark", "The highest number of calls in flight that went well.", watermark_of},
};

static void write_gauge(const struct metrics_page *page, const struct flow_gauge *gauge)
{
    char name[48];

    (void)snprintf(name, sizeof name, "flow_%s", gauge->name);
    metrics_family(page, name, "gauge", gauge->help);
    for (unsigned i = 0; i < page->snapshot->flow_count; i++) {
        const struct flow_view *flow = &page->snapshot->flows[i];
        double value = gauge->value(flow);

        if (!has_own_label(flow) || value < 0)
            continue;
        sample_begins(page, gauge->name, flow, flow->model);
        text_printf(page->out, "} %g\n", value);
    }
}

/* ---- sums, also over the models that have no label --------------------------------------------- */

#define PARTS_MAX 8U

static const char *kind_word(unsigned part)
{
    return adaptive_kind_name((enum adaptive_kind)part);
}

static const char *class_word(unsigned part)
{
    return flow_class_name((enum flow_class)part);
}

static const char *reason_word(unsigned part)
{
    static const char *const words[] = {"full", "client", "hopeless", "expired", "threads"};

    return words[part];
}

static uint64_t in_flight_of(const struct flow_view *flow, unsigned part)
{
    (void)part;
    return flow->in_flight;
}

static uint64_t waiting_of(const struct flow_view *flow, unsigned part)
{
    return flow->waiting[part];
}

static uint64_t granted_of(const struct flow_view *flow, unsigned part)
{
    return flow->granted[part];
}

static uint64_t completed_of(const struct flow_view *flow, unsigned part)
{
    (void)part;
    return flow->completed;
}

static uint64_t refusals_of(const struct flow_view *flow, unsigned part)
{
    return flow->refusals[part];
}

static uint64_t refused_here_of(const struct flow_view *flow, unsigned part)
{
    const uint64_t counts[] = {flow->refused_full, flow->refused_client, flow->refused_hopeless,
                               flow->expired, flow->refused_threads};

    return counts[part];
}

static const struct flow_sum {
    const char *name, *type, *help;
    const char *label; /* NULL: none, and one part */
    unsigned parts;
    const char *(*word)(unsigned part);
    uint64_t (*value)(const struct flow_view *, unsigned part);
} sums[] = {
    {"in_flight", "gauge", "Calls in flight.", NULL, 1, NULL, in_flight_of},
    {"waiting", "gauge", "Calls that wait for their turn.", "class", FLOW_CLASSES, class_word,
     waiting_of},
    {"granted", "counter", "Calls that were let go.", "class", FLOW_CLASSES, class_word,
     granted_of},
    {"completed", "counter", "Calls that were answered.", NULL, 1, NULL, completed_of},
    {"upstream_refusals", "counter", "Refusals by the upstream, by the limit that was met.", "kind",
     ADAPTIVE_KINDS, kind_word, refusals_of},
    {"refused", "counter", "Calls that were refused here instead of waiting (longer).", "reason", 5,
     reason_word, refused_here_of},
};

_Static_assert(FLOW_CLASSES <= PARTS_MAX && ADAPTIVE_KINDS <= PARTS_MAX, "parts of a sum");

static void write_sample(const struct metrics_page *page, const struct flow_sum *sum,
                         const struct flow_view *flow, const uint64_t values[PARTS_MAX])
{
    const char *suffix = strcmp(sum->type, "counter") == 0 ? "_total" : "";
    char name[48];

    (void)snprintf(name, sizeof name, "%s%s", sum->name, suffix);
    for (unsigned part = 0; part < sum->parts; part++) {
        sample_begins(page, name, flow, has_own_label(flow) ? flow->model : OTHER);
        if (sum->label)
            text_printf(page->out, ",%s=\"%s\"", sum->label, sum->word(part));
        text_printf(page->out, "} %" PRIu64 "\n", values[part]);
    }
}

static bool is_same_group(const struct flow_view *a, const struct flow_view *b)
{
    return !has_own_label(a) && !has_own_label(b) && strcmp(a->quota_group, b->quota_group) == 0;
}

/* The flow's own sample; for the first of a group's unknown models theirs together. */
static void write_sum_of(const struct metrics_page *page, const struct flow_sum *sum,
                         unsigned index)
{
    const struct flow_view *flows = page->snapshot->flows;
    uint64_t values[PARTS_MAX] = {0};

    for (unsigned i = 0; i < index; i++)
        if (is_same_group(&flows[i], &flows[index]))
            return;
    for (unsigned i = index; i < page->snapshot->flow_count; i++)
        for (unsigned part = 0; part < sum->parts; part++)
            if (i == index || is_same_group(&flows[i], &flows[index]))
                values[part] += sum->value(&flows[i], part);
    write_sample(page, sum, &flows[index], values);
}

static void write_sum(const struct metrics_page *page, const struct flow_sum *sum)
{
    char name[48];

    (void)snprintf(name, sizeof name, "flow_%s", sum->name);
    metrics_family(page, name, sum->type, sum->help);
    for (unsigned i = 0; i < page->snapshot->flow_count; i++)
        write_sum_of(page, sum, i);
}

void metrics_flows(const struct metrics_page *page)
{
    if (page->snapshot->flow_count == 0)
        return;
    for (size_t i = 0; i < LENGTH(gauges); i++)
        write_gauge(page, &gauges[i]);
    for (size_t i = 0; i < LENGTH(sums); i++)
        write_sum(page, &sums[i]);
}
