/* metrics.c - the scrape page; see metrics.h. */
#include "worker/metrics.h"

#include "base/clock.h"
#include "shared/counters.h"
#include "worker/metrics_page.h"
#include "worker/status.h"
#include "worker/version.h"

#include <inttypes.h>
#include <string.h>

const char *metrics_content_type(enum metrics_format format)
{
    return format == METRICS_OPENMETRICS
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}

/* In OpenMetrics a counter's family is named without the _total that its samples carry, and what is
 * always 1 and tells by its labels is an info. */
void metrics_family(const struct metrics_page *page, const char *name, const char *type,
                    const char *help)
{
    const char *suffix = "";

    if (page->format == METRICS_PROMETHEUS && strcmp(type, "counter") == 0)
        suffix = "_total";
    text_printf(page->out, "# HELP penstock_%s%s %s\n# TYPE penstock_%s%s %s\n", name, suffix, help,
                name, suffix, type);
}

static void gauge(const struct metrics_page *page, const char *name, uint64_t value,
                  const char *help)
{
    metrics_family(page, name, "gauge", help);
    text_printf(page->out, "penstock_%s %" PRIu64 "\n", name, value);
}

static void counter(const struct metrics_page *page, const char *name, uint64_t value,
                    const char *help)
{
    metrics_family(page, name, "counter", help);
    text_printf(page->out, "penstock_%s_total %" PRIu64 "\n", name, value);
}

/* ---- counters -------------------------------------------------------------------------------- */

/* Counters that are one family with a label. Those not listed are families of their own. */
static const struct counter_label {
    enum counter counter;
    const char *family, *label, *help;
} counter_labels[] = {
    {COUNTER_requests_ok, "requests", "outcome=\"ok\"", "Calls that ended, by outcome."},
    {COUNTER_requests_refused, "requests", "outcome=\"refused\"", ""},
    {COUNTER_requests_upstream_failed, "requests", "outcome=\"upstream_failed\"", ""},
    {COUNTER_requests_client_gone, "requests", "outcome=\"client_gone\"", ""},
    {COUNTER_image_refused_limit, "image_refusals", "reason=\"limit\"",
     "Image calls refused by the gate, by reason."},
    {COUNTER_image_refused_queue_full, "image_refusals", "reason=\"queue_full\"", ""},
    {COUNTER_image_refused_queue_timeout, "image_refusals", "reason=\"queue_timeout\"", ""},
    {COUNTER_tokens_in, "tokens", "direction=\"in\"", "Tokens reported by upstreams."},
    {COUNTER_tokens_out, "tokens", "direction=\"out\"", ""},
    {COUNTER_bytes_in, "body_bytes", "direction=\"in\"",
     "Body bytes received from and sent to clients."},
    {COUNTER_bytes_out, "body_bytes", "direction=\"out\"", ""},
};

/* Counters whose family has another name than they. */
static const struct counter_rename {
    enum counter counter;
    const char *family;
} counter_renames[] = {
    {COUNTER_requests, "requests_accepted"},
    {COUNTER_images_delivered, "images"},
};

static const struct counter_label *label_of(enum counter which)
{
    for (size_t i = 0; i < LENGTH(counter_labels); i++)
        if (counter_labels[i].counter == which)
            return &counter_labels[i];
    return NULL;
}

static const char *family_of(enum counter which)
{
    for (size_t i = 0; i < LENGTH(counter_renames); i++)
        if (counter_renames[i].counter == which)
            return counter_renames[i].family;
    return counter_name(which);
}

static void counters_with_labels(const struct metrics_page *page)
{
    const char *open = "";

    for (size_t i = 0; i < LENGTH(counter_labels); i++) {
        const struct counter_label *row = &counter_labels[i];

        if (strcmp(row->family, open) != 0)
            metrics_family(page, row->family, "counter", row->help);
        open = row->family;
        text_printf(page->out, "penstock_%s_total{%s} %" PRIu64 "\n", row->family, row->label,
                    page->snapshot->counters[row->counter]);
    }
}

static void counters_alone(const struct metrics_page *page)
{
    for (unsigned i = 0; i < COUNTERS; i++)
        if (!label_of((enum counter)i))
            counter(page, family_of((enum counter)i), page->snapshot->counters[i],
                    counter_help((enum counter)i));
}

static void journal(const struct metrics_page *page)
{
    const struct journal_count_view *view = &page->snapshot->journal;

    metrics_family(page, "journal_pending", "gauge",
                   "Records that wait to be written into the ledger.");
    text_printf(page->out, "penstock_journal_pending{records=\"waits\"} %" PRIu64 "\n",
                view->waits_pending);
    text_printf(page->out, "penstock_journal_pending{records=\"calls\"} %" PRIu64 "\n",
                view->calls_pending);
    text_printf(page->out, "penstock_journal_pending{records=\"events\"} %" PRIu64 "\n",
                view->events_pending);
    text_printf(page->out, "penstock_journal_pending{records=\"attempts\"} %" PRIu64 "\n",
                view->attempts_pending);
    metrics_family(page, "journal_lost", "counter",
                   "Records that found the journal full and are missing in the ledger.");
    text_printf(page->out, "penstock_journal_lost_total{records=\"waits\"} %" PRIu64 "\n",
                view->waits_lost);
    text_printf(page->out, "penstock_journal_lost_total{records=\"calls\"} %" PRIu64 "\n",
                view->calls_lost);
    text_printf(page->out, "penstock_journal_lost_total{records=\"events\"} %" PRIu64 "\n",
                view->events_lost);
    text_printf(page->out, "penstock_journal_lost_total{records=\"attempts\"} %" PRIu64 "\n",
                view->attempts_lost);
    counter(page, "journal_written", view->written, "Records written into the ledger.");
    counter(page, "journal_failures", view->failures, "Ledger transactions that failed.");
}

/* ---- histograms ------------------------------------------------------------------------------ */

static void histogram(const struct metrics_page *page, const char *name, const char *help,
                      const struct histogram_row *row)
{
    uint64_t cumulative = 0;

    metrics_family(page, name, "histogram", help);
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        cumulative += atomic_load_explicit(&row->buckets[i], memory_order_relaxed);
        text_printf(page->out, "penstock_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
                    histogram_bounds_s[i], cumulative);
    }
    /* The count is the sum of what was read: row->count may be an observation ahead or behind. */
    cumulative += atomic_load_explicit(&row->buckets[HISTOGRAM_BUCKETS], memory_order_relaxed);
    text_printf(page->out,
                "penstock_%s_bucket{le=\"+Inf\"} %" PRIu64 "\npenstock_%s_sum %.6f\n"
                "penstock_%s_count %" PRIu64 "\n",
                name, cumulative, name,
                (double)atomic_load_explicit(&row->sum_us, memory_order_relaxed) / 1e6, name,
                cumulative);
}

/* ---- gauges ---------------------------------------------------------------------------------- */

static void slots(const struct metrics_page *page)
{
    const struct snapshot *snapshot = page->snapshot;

    metrics_family(
        page, "image_slots", "gauge",
        "Image slots of this host: used (leased ones included), leased to background work, the "
        "limit (0 = none), and free ones (absent without a limit).");
    text_printf(page->out, "penstock_image_slots{state=\"used\"} %" PRIu32 "\n",
                snapshot->use.used);
    text_printf(page->out, "penstock_image_slots{state=\"limit\"} %" PRIu32 "\n", snapshot->limit);
    text_printf(page->out, "penstock_image_slots{state=\"leased\"} %" PRIu32 "\n",
                snapshot->use.leases);
    if (snapshot->use.free != UINT32_MAX)
        text_printf(page->out, "penstock_image_slots{state=\"free\"} %" PRIu32 "\n",
                    snapshot->use.free);
}

static void queue(const struct metrics_page *page)
{
    const struct snapshot *snapshot = page->snapshot;
    unsigned first = status_holders(snapshot);
    int64_t oldest_ms = 0;

    if (first < snapshot->place_count)
        oldest_ms = status_waited_ms(snapshot, &snapshot->places[first]);
    gauge(page, "image_queue_length", snapshot->waiting, "Image calls that wait for a slot.");
    gauge(page, "image_queue_limit", snapshot->max_waiting, "The most that may wait.");
    metrics_family(page, "image_queue_oldest_seconds", "gauge",
                   "How long the first in the queue has waited.");
    text_printf(page->out, "penstock_image_queue_oldest_seconds %.3f\n", (double)oldest_ms / 1e3);
    metrics_family(page, "image_hold_mean_seconds", "gauge",
                   "Moving average of how long a slot is held; 0 = unknown.");
    text_printf(page->out, "penstock_image_hold_mean_seconds %.3f\n",
                (double)snapshot->mean_hold_ms / 1e3);
    gauge(page, "image_gate_on", snapshot->gate_on, "1 while this instance limits image calls.");
}

/* One number of a source. Names of sources are the configuration's, and letters, digits, - and _. */
struct source_gauge {
    const char *name, *help;
    double (*value)(const struct source_view *);
};

static double breaker_of(const struct source_view *source)
{
    return source->breaker == BREAKER_OPEN ? 2 : source->breaker == BREAKER_HALF_OPEN ? 1 : 0;
}

static double drained_of(const struct source_view *source)
{
    return source->drained;
}

static double out_of(const struct source_view *source)
{
    return (double)source->out_for_ns / 1e9;
}

static double throttled_of(const struct source_view *source)
{
    return (double)source->throttled_for_ns / 1e9;
}

static double in_flight_of(const struct source_view *source)
{
    return source->in_flight;
}

static double health_of(const struct source_view *source)
{
    return source->health_permille / 1e3;
}

static double latency_of(const struct source_view *source)
{
    return source->latency_ms / 1e3;
}

static double window_calls_of(const struct source_view *source)
{
    return source->window_calls;
}

static double window_failures_of(const struct source_view *source)
{
    return source->window_failures;
}

_Static_assert(SOURCE_WINDOW_S == 30, "the help below says so");

static const struct source_gauge source_gauges[] = {
    {"source_breaker_state", "Breaker of a source: 0 closed, 1 half-open, 2 open.", breaker_of},
    {"source_drained", "1 while an operator keeps new calls from the source.", drained_of},
    {"source_out_seconds",
     "How long the source stays out of service for want of money, of a valid key or of the day's "
     "quota; 0 = it is in service.",
     out_of},
    {"source_throttled_seconds", "How long the source still asks to wait; 0 = it does not.",
     throttled_of},
    {"source_in_flight", "Exchanges in progress with the source.", in_flight_of},
    {"source_health_ratio", "Moving average of the source's success, 1 = all well.", health_of},
    {"source_latency_seconds",
     "Moving average of how long the source's successful answers took; 0 = none yet.", latency_of},
    {"source_window_calls", "Exchanges that the breaker's window of 30 seconds counts.",
     window_calls_of},
    {"source_window_failures", "Of them, those that failed.", window_failures_of},
};

static void sources(const struct metrics_page *page)
{
    const struct snapshot *snapshot = page->snapshot;

    for (size_t i = 0; snapshot->source_count > 0 && i < LENGTH(source_gauges); i++) {
        const struct source_gauge *row = &source_gauges[i];

        metrics_family(page, row->name, "gauge", row->help);
        for (unsigned k = 0; k < snapshot->source_count; k++)
            text_printf(page->out, "penstock_%s{source=\"%s\"} %g\n", row->name,
                        snapshot->sources[k].name, row->value(&snapshot->sources[k]));
    }
}

static void processes(const struct metrics_page *page)
{
    static const enum process_role roles[] = {PROCESS_MASTER, PROCESS_WORKER, PROCESS_MONITOR,
                                              PROCESS_TOOL};
    const struct snapshot *snapshot = page->snapshot;
    unsigned by_role[PROCESS_TOOL + 1] = {0};
    uint64_t threads = 0;
    uint64_t busy = 0;

    for (unsigned i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->processes[i];

        if (process->instance != snapshot->instance || process->role > PROCESS_TOOL)
            continue;
        by_role[process->role]++;
        if (process->role == PROCESS_WORKER) {
            threads += process->threads;
            busy += process->threads_busy;
        }
    }
    metrics_family(page, "processes", "gauge", "Living processes of this instance, by role.");
    for (size_t i = 0; i < LENGTH(roles); i++)
        text_printf(page->out, "penstock_processes{role=\"%s\"} %u\n", status_role_name(roles[i]),
                    by_role[roles[i]]);
    metrics_family(page, "request_threads", "gauge", "Request threads of this instance's workers.");
    text_printf(page->out, "penstock_request_threads{state=\"busy\"} %" PRIu64 "\n", busy);
    text_printf(page->out, "penstock_request_threads{state=\"idle\"} %" PRIu64 "\n",
                threads > busy ? threads - busy : 0);
}

static void instance(const struct metrics_page *page)
{
    const struct snapshot *snapshot = page->snapshot;

    if (page->format == METRICS_OPENMETRICS)
        metrics_family(page, "build", "info", "The program that answers.");
    else
        metrics_family(page, "build_info", "gauge", "The program that answers.");
    text_printf(page->out, "penstock_build_info{version=\"%s\"} 1\n", PENSTOCK_VERSION);
    gauge(page, "configuration_generation", snapshot->generation,
          "Grows with every load of the configuration.");
    gauge(page, "master_up", snapshot->master_pid != 0, "1 while a master process is booked.");
    gauge(page, "segment_linked", snapshot->linked,
          "0 when the name of the shared memory was removed.");
    gauge(page, "semaphore_epoch", snapshot->semaphore_epoch,
          "Grows when the semaphore set had to be made anew.");
}

void metrics_text(const struct snapshot *snapshot, const struct counters_area *counters,
                  enum metrics_format format, struct text *out)
{
    struct metrics_page page = {.snapshot = snapshot, .format = format, .out = out};

    slots(&page);
    queue(&page);
    sources(&page);
    metrics_flows(&page);
    processes(&page);
    instance(&page);
    journal(&page);
    counters_with_labels(&page);
    counters_alone(&page);
    histogram(&page, "image_queue_wait_seconds", "How long image calls waited for their slot.",
              &counters->queue_wait);
    histogram(&page, "upstream_seconds", "From sending a call to the end of the upstream's answer.",
              &counters->upstream_time);
    histogram(&page, "first_byte_seconds", "From sending a call to the first byte of its answer.",
              &counters->first_byte);
    if (format == METRICS_OPENMETRICS)
        text_append_string(out, "# EOF\n");
}
