/* test_metrics.c - the scrape page (O4), read by a strict little reader of both text formats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shared/counters.h"
#include "tests/worker/snapshots.h"
#include "worker/metrics.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static struct snapshot snapshot;
static struct snapshot_place places[SNAPSHOT_PLACES];
static struct counters_area counters;
static struct text out;

static int set_up(void **state)
{
    (void)state;
    snapshot_fill(&snapshot, places);
    memset(&counters, 0, sizeof counters);
    text_init(&out, 1 << 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    text_release(&out);
    return 0;
}

/* ---- the reader ------------------------------------------------------------------------------ */

#define SERIES_MAX 400

struct sample {
    char name[100];
    char labels[100]; /* with the braces, "" = none */
    double value;
};

struct scrape {
    enum metrics_format format;
    char family[100]; /* the one that is open */
    char type[20];
    char families[100][100];
    size_t family_count;
    struct sample samples[SERIES_MAX];
    size_t sample_count;
    bool ended; /* # EOF */
};

static void take_word(char *word, size_t size, const char **at)
{
    size_t length = strcspn(*at, " \n");

    assert_true(length > 0 && length < size);
    memcpy(word, *at, length);
    word[length] = '\0';
    *at += length + (*(*at + length) == ' ');
}

/* "# HELP name text" and then at once "# TYPE name type"; a family comes once. */
static const char *read_family(struct scrape *scrape, const char *line)
{
    static const char *const types[] = {"counter", "gauge", "histogram", "info"};
    char name[100];
    bool known = false;

    assert_int_equal(strncmp(line, "# HELP ", 7), 0);
    line += 7;
    take_word(scrape->family, sizeof scrape->family, &line);
    assert_true(*line != '\n'); /* says something */
    assert_int_equal(strncmp(scrape->family, "penstock_", 9), 0);
    line = strchr(line, '\n') + 1;
    assert_int_equal(strncmp(line, "# TYPE ", 7), 0);
    line += 7;
    take_word(name, sizeof name, &line);
    assert_string_equal(name, scrape->family);
    take_word(scrape->type, sizeof scrape->type, &line);
    for (size_t i = 0; i < LENGTH(types); i++)
        known = known || strcmp(types[i], scrape->type) == 0;
    assert_true(known);
    for (size_t i = 0; i < scrape->family_count; i++)
        assert_string_not_equal(scrape->families[i], scrape->family);
    assert_true(scrape->family_count < 100);
    (void)text_copy(scrape->families[scrape->family_count++], 100, scrape->family);
    return line;
}

static bool is_suffixed(const char *name, const char *family, const char *suffix)
{
    size_t length = strlen(family);

    return strncmp(name, family, length) == 0 && strcmp(name + length, suffix) == 0;
}

static bool fits_family(const struct scrape *scrape, const char *name)
{
    if (strcmp(scrape->type, "histogram") == 0)
        return is_suffixed(name, scrape->family, "_bucket") ||
               is_suffixed(name, scrape->family, "_sum") ||
               is_suffixed(name, scrape->family, "_count");
    if (strcmp(scrape->type, "info") == 0)
        return is_suffixed(name, scrape->family, "_info");
    if (strcmp(scrape->type, "counter") == 0) {
        if (scrape->format == METRICS_OPENMETRICS)
            return is_suffixed(name, scrape->family, "_total");
        return strcmp(name, scrape->family) == 0 && strstr(name, "_total");
    }
    return strcmp(name, scrape->family) == 0;
}

static void assert_labels(const char *labels)
{
    size_t at = 1;

    if (!*labels)
        return;
    for (;;) {
        assert_true(islower((unsigned char)labels[at]));
        at += strspn(labels + at, "abcdefghijklmnopqrstuvwxyz_");
        assert_int_equal(strncmp(labels + at, "=\"", 2), 0);
        at += 2;
        for (; labels[at] && labels[at] != '"'; at++) {
            assert_true(labels[at] >= ' ' && labels[at] <= '~');
            if (labels[at] == '\\')
                assert_non_null(strchr("\\\"n", labels[++at]));
        }
        assert_int_equal(labels[at++], '"');
        if (labels[at] != ',')
            break;
        at++;
    }
    assert_string_equal(labels + at, "}");
}

static const char *read_sample(struct scrape *scrape, const char *line)
{
    struct sample *sample = &scrape->samples[scrape->sample_count];
    size_t name = strcspn(line, "{ \n");
    size_t labels = line[name] == '{' ? strcspn(line + name, "}") + 1 : 0;
    char *end;

    assert_true(scrape->sample_count < SERIES_MAX);
    assert_true(name < sizeof sample->name && labels < sizeof sample->labels);
    memcpy(sample->name, line, name);
    memcpy(sample->labels, line + name, labels);
    sample->name[name] = sample->labels[labels] = '\0';
    assert_int_equal(line[name + labels], ' ');
    sample->value = strtod(line + name + labels + 1, &end);
    assert_int_equal(*end, '\n');
    assert_true(fits_family(scrape, sample->name));
    assert_labels(sample->labels);
    for (size_t i = 0; i < scrape->sample_count; i++)
        assert_false(strcmp(scrape->samples[i].name, sample->name) == 0 &&
                     strcmp(scrape->samples[i].labels, sample->labels) == 0);
    scrape->sample_count++;
    return end;
}

static struct scrape *scrape_page(enum metrics_format format)
{
    static struct scrape scrape;

    memset(&scrape, 0, sizeof scrape);
    scrape.format = format;
    text_clear(&out);
    metrics_text(&snapshot, &counters, format, &out);
    for (const char *line = text_string(&out); *line; line++) {
        assert_false(scrape.ended);
        if (strcmp(line, "# EOF\n") == 0) {
            scrape.ended = true;
            line += 5;
        } else {
            line = *line == '#' ? read_family(&scrape, line) : read_sample(&scrape, line);
        }
        assert_int_equal(*line, '\n');
    }
    assert_int_equal(scrape.ended, format == METRICS_OPENMETRICS);
    return &scrape;
}

static double value(const struct scrape *scrape, const char *name, const char *labels)
{
    for (size_t i = 0; i < scrape->sample_count; i++)
        if (strcmp(scrape->samples[i].name, name) == 0 &&
            strcmp(scrape->samples[i].labels, labels) == 0)
            return scrape->samples[i].value;
    fail_msg("there is no %s%s", name, labels);
    return 0;
}

static bool has(const struct scrape *scrape, const char *name, const char *labels)
{
    for (size_t i = 0; i < scrape->sample_count; i++)
        if (strcmp(scrape->samples[i].name, name) == 0 &&
            strcmp(scrape->samples[i].labels, labels) == 0)
            return true;
    return false;
}

/* Buckets rise by bound and value, the last is +Inf and equals the count. */
static void assert_histogram(const struct scrape *scrape, const char *family, double count)
{
    char name[100];
    double last_bound = -1;
    double last_value = 0;
    size_t buckets = 0;

    (void)snprintf(name, sizeof name, "%s_bucket", family);
    for (size_t i = 0; i < scrape->sample_count; i++) {
        const struct sample *sample = &scrape->samples[i];
        double bound;

        if (strcmp(sample->name, name) != 0)
            continue;
        assert_int_equal(sscanf(sample->labels, "{le=\"%lf\"}", &bound), 1);
        assert_true(bound > last_bound);
        assert_true(sample->value >= last_value);
        last_bound = bound;
        last_value = sample->value;
        buckets++;
    }
    assert_int_equal(buckets, HISTOGRAM_BUCKETS + 1);
    assert_true(last_value == count);
    assert_true(value(scrape, name, "{le=\"+Inf\"}") == count);
    (void)snprintf(name, sizeof name, "%s_count", family);
    assert_true(value(scrape, name, "") == count);
}

/* ---- the tests ------------------------------------------------------------------------------- */

#define assert_value(scrape, name, labels, expected)                                               \
    assert_true(value(scrape, name, labels) == (double)(expected))

static void o4_both_formats_are_valid_and_alike(void **state)
{
    size_t samples = scrape_page(METRICS_PROMETHEUS)->sample_count;

    (void)state;
    assert_int_equal(scrape_page(METRICS_OPENMETRICS)->sample_count, samples);
    assert_non_null(strstr(metrics_content_type(METRICS_PROMETHEUS), "version=0.0.4"));
    assert_non_null(
        strstr(metrics_content_type(METRICS_OPENMETRICS), "application/openmetrics-text"));
}

static void o4_slots_queue_and_processes_are_told(void **state)
{
    const struct scrape *scrape = scrape_page(METRICS_PROMETHEUS);

    (void)state;
    assert_value(scrape, "penstock_image_slots", "{state=\"used\"}", 2);
    assert_value(scrape, "penstock_image_slots", "{state=\"limit\"}", 8);
    assert_value(scrape, "penstock_image_slots", "{state=\"free\"}", 6);
    assert_value(scrape, "penstock_image_slots", "{state=\"leased\"}", 1);
    assert_value(scrape, "penstock_image_queue_length", "", 2);
    assert_value(scrape, "penstock_image_queue_oldest_seconds", "", 4);
    assert_value(scrape, "penstock_processes", "{role=\"worker\"}",
                 1); /* not the other instance's */
    assert_value(scrape, "penstock_request_threads", "{state=\"busy\"}", 5);
    assert_value(scrape, "penstock_request_threads", "{state=\"idle\"}", 59);
    assert_value(scrape, "penstock_journal_pending", "{records=\"calls\"}", 2);
    assert_value(scrape, "penstock_journal_pending", "{records=\"attempts\"}", 3);
    assert_value(scrape, "penstock_journal_lost_total", "{records=\"waits\"}", 4);
    assert_value(scrape, "penstock_journal_lost_total", "{records=\"attempts\"}", 6);
    assert_int_equal(strncmp(scrape->samples[0].name, "penstock_", 9), 0);
}

static void o4_sources_are_told_by_name_alone_H7(void **state)
{
    const struct scrape *scrape;
    size_t without = scrape_page(METRICS_PROMETHEUS)->sample_count;
    size_t with_two;

    (void)state;
    snapshot_add_sources(&snapshot);
    snapshot.sources[1].drained = true;
    snapshot.sources[1].out_for_ns = 90 * NS_PER_S;
    scrape = scrape_page(METRICS_OPENMETRICS);
    with_two = scrape->sample_count;
    assert_value(scrape, "penstock_source_breaker_state", "{source=\"openai\"}", 0);
    assert_value(scrape, "penstock_source_breaker_state", "{source=\"azure-we\"}", 2);
    assert_value(scrape, "penstock_source_drained", "{source=\"openai\"}", 0);
    assert_value(scrape, "penstock_source_drained", "{source=\"azure-we\"}", 1);
    assert_value(scrape, "penstock_source_out_seconds", "{source=\"azure-we\"}", 90);
    assert_value(scrape, "penstock_source_throttled_seconds", "{source=\"openai\"}", 0);
    assert_value(scrape, "penstock_source_in_flight", "{source=\"openai\"}", 7);
    assert_value(scrape, "penstock_source_health_ratio", "{source=\"openai\"}", 0.963);
    assert_value(scrape, "penstock_source_latency_seconds", "{source=\"openai\"}", 2.512);
    assert_value(scrape, "penstock_source_window_calls", "{source=\"openai\"}", 40);
    assert_value(scrape, "penstock_source_window_failures", "{source=\"openai\"}", 2);
    snapshot.source_count = 1; /* as many series as there are sources, and not one more */
    assert_int_equal((scrape_page(METRICS_PROMETHEUS)->sample_count - without) * 2,
                     with_two - without);
}

/* What a client calls its model is a label only when an upstream knows it by that name. */
static void o4_flows_are_told_by_models_that_upstreams_know_F12(void **state)
{
    static const char qwen[] = "{quota_group=\"acme\",model=\"qwen-max\"}";
    static const char odd[] = "{quota_group=\"acme\",model=\"a\\\"b\\\\c<script>\"}";
    static struct flow_view flows[4];
    const struct scrape *scrape;

    (void)state;
    (void)scrape_page(METRICS_OPENMETRICS);
    assert_null(strstr(text_string(&out), "penstock_flow_"));
    snapshot_add_flows(&snapshot, flows);
    scrape = scrape_page(METRICS_OPENMETRICS);
    assert_value(scrape, "penstock_flow_in_flight", qwen, 3);
    assert_value(scrape, "penstock_flow_in_flight_limit", qwen, 8);
    assert_false(has(scrape, "penstock_flow_in_flight_limit", odd));
    assert_value(scrape, "penstock_flow_requests_quota", qwen, 600);
    assert_value(scrape, "penstock_flow_units_quota", odd, 120);
    assert_value(scrape, "penstock_flow_sends_last_minute", qwen, 412);
    assert_value(scrape, "penstock_flow_paused_seconds", qwen, 1.2);
    assert_value(scrape, "penstock_flow_state", qwen, 4);
    assert_false(has(scrape, "penstock_flow_state", odd));
    assert_value(scrape, "penstock_flow_upstream_refusals_total",
                 "{quota_group=\"acme\",model=\"qwen-max\",kind=\"burst\"}", 3);
    assert_value(scrape, "penstock_flow_granted_total",
                 "{quota_group=\"acme\",model=\"other\",class=\"normal\"}", 4);
    assert_value(scrape, "penstock_flow_waiting",
                 "{quota_group=\"acme\",model=\"other\",class=\"normal\"}", 2);
    assert_value(scrape, "penstock_flow_refused_total",
                 "{quota_group=\"acme\",model=\"qwen-max\",reason=\"full\"}", 5);
    assert_null(strstr(text_string(&out), "invented"));
    assert_value(scrape_page(METRICS_PROMETHEUS), "penstock_flow_completed_total", qwen, 249);
    (void)text_copy(flows[1].model, sizeof flows[1].model, "other"); /* its series come once */
    (void)scrape_page(METRICS_PROMETHEUS);
}

static void o4_every_counter_is_on_the_page_once(void **state)
{
    const struct scrape *scrape = scrape_page(METRICS_OPENMETRICS);

    (void)state;
    for (unsigned i = 0; i < COUNTERS; i++) {
        unsigned found = 0;

        for (size_t at = 0; at < scrape->sample_count; at++)
            found += scrape->samples[at].value == (double)snapshot.counters[i];
        assert_int_equal(found, 1); /* the fixture's counters all differ */
    }
    assert_value(scrape, "penstock_requests_total", "{outcome=\"ok\"}",
                 snapshot.counters[COUNTER_requests_ok]);
    assert_value(scrape, "penstock_requests_accepted_total", "",
                 snapshot.counters[COUNTER_requests]);
    assert_value(scrape, "penstock_image_refusals_total", "{reason=\"queue_full\"}",
                 snapshot.counters[COUNTER_image_refused_queue_full]);
    assert_value(scrape, "penstock_images_total", "", snapshot.counters[COUNTER_images_delivered]);
}

static void o4_histograms_are_cumulative_and_end_in_inf(void **state)
{
    const struct scrape *scrape;

    (void)state;
    assert_histogram(scrape_page(METRICS_PROMETHEUS), "penstock_image_queue_wait_seconds", 0);
    histogram_add(&counters.queue_wait, 20 * NS_PER_MS);
    histogram_add(&counters.queue_wait, 2 * NS_PER_S);
    histogram_add(&counters.queue_wait, 5000 * NS_PER_S); /* above every bound */
    histogram_add(&counters.first_byte, NS_PER_S);
    scrape = scrape_page(METRICS_PROMETHEUS);
    assert_histogram(scrape, "penstock_image_queue_wait_seconds", 3);
    assert_histogram(scrape, "penstock_first_byte_seconds", 1);
    assert_histogram(scrape, "penstock_upstream_seconds", 0);
    assert_value(scrape, "penstock_image_queue_wait_seconds_bucket", "{le=\"0.01\"}", 0);
    assert_value(scrape, "penstock_image_queue_wait_seconds_bucket", "{le=\"0.025\"}", 1);
    assert_value(scrape, "penstock_image_queue_wait_seconds_bucket", "{le=\"900\"}", 2);
    assert_true(value(scrape, "penstock_image_queue_wait_seconds_sum", "") > 5002.0);
}

/* A scrape between an observation's bucket and its count still adds up. */
static void a_torn_observation_shows_no_torn_histogram(void **state)
{
    (void)state;
    histogram_add(&counters.queue_wait, NS_PER_S);
    atomic_fetch_add(&counters.queue_wait.buckets[0], 1);
    assert_histogram(scrape_page(METRICS_PROMETHEUS), "penstock_image_queue_wait_seconds", 2);
}

static void without_a_limit_no_slot_is_called_free(void **state)
{
    (void)state;
    snapshot.limit = 0;
    snapshot.use.free = UINT32_MAX;
    assert_false(has(scrape_page(METRICS_PROMETHEUS), "penstock_image_slots", "{state=\"free\"}"));
}

/* N6, O4: nothing a client sends is a label, so the number of series is bounded. */
static void n6_nothing_of_a_client_is_on_the_page(void **state)
{
    size_t before = scrape_page(METRICS_PROMETHEUS)->sample_count;

    (void)state;
    snapshot_make_hostile(&snapshot);
    snapshot_make_long(&snapshot, 60);
    assert_int_equal(scrape_page(METRICS_PROMETHEUS)->sample_count, before);
    assert_null(strstr(text_string(&out), "script"));
    assert_null(strstr(text_string(&out), "gpt-image"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(o4_both_formats_are_valid_and_alike, set_up, tear_down),
        cmocka_unit_test_setup_teardown(o4_slots_queue_and_processes_are_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(o4_sources_are_told_by_name_alone_H7, set_up, tear_down),
        cmocka_unit_test_setup_teardown(o4_flows_are_told_by_models_that_upstreams_know_F12, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(o4_every_counter_is_on_the_page_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(o4_histograms_are_cumulative_and_end_in_inf, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_torn_observation_shows_no_torn_histogram, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(without_a_limit_no_slot_is_called_free, set_up, tear_down),
        cmocka_unit_test_setup_teardown(n6_nothing_of_a_client_is_on_the_page, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
