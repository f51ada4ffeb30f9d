/* status_answer.c - what the status socket answers to whom; see status_answer.h. */
#include "worker/status_answer.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "shared/counters.h"
#include "shared/journal.h"
#include "shared/sources.h"
#include "worker/metrics.h"
#include "worker/status.h"
#include "worker/status_call.h"
#include "worker/status_html.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/pidfd.h>

#define BODY_BYTES_MAX (64U << 20) /* the longest queue in the widest escapes is below it */
#define TEXT_TYPE "text/plain; charset=utf-8"
#define JSON_TYPE "application/json"
#define HTML_TYPE "text/html; charset=utf-8"

struct visit {
    const struct status_question *question;
    const struct status_house *house;
    struct status_answer *answer;
    const char *query; /* "" = none */
    const char *name;  /* what stands behind the page's path, where it wants something; not ended */
    size_t name_length;
};

void status_answer_init(struct status_answer *answer)
{
    *answer = (struct status_answer){.status = 200, .content_type = TEXT_TYPE, .allow = NULL};
    text_init(&answer->body, BODY_BYTES_MAX);
}

void status_answer_release(struct status_answer *answer)
{
    text_release(&answer->body);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static const struct status_word {
    int status;
    const char *reason, *type, *code;
} status_words[] = {
    {200, "OK", "", ""},
    {202, "Accepted", "", ""},
    {400, "Bad Request", "invalid_request_error", "penstock_bad_request"},
    {403, "Forbidden", "permission_error", "penstock_forbidden"},
    {404, "Not Found", "invalid_request_error", "penstock_no_page"},
    {405, "Method Not Allowed", "invalid_request_error", "penstock_method"},
    {409, "Conflict", "invalid_request_error", "penstock_gate_off"},
    {503, "Service Unavailable", "server_error", "penstock_unavailable"},
};

static const struct status_word *word_of(int status)
{
    for (size_t i = 0; i < LENGTH(status_words); i++)
        if (status_words[i].status == status)
            return &status_words[i];
    UNREACHABLE();
}

/* The error object that clients of the API know. */
static void refuse_as(const struct visit *visit, int status, const char *code, const char *message)
{
    struct status_answer *answer = visit->answer;

    answer->status = status;
    answer->content_type = JSON_TYPE;
    text_clear(&answer->body);
    text_append_string(&answer->body, "{\"error\":{\"message\":");
    text_append_json(&answer->body, message, strlen(message));
    text_printf(&answer->body, ",\"type\":\"%s\",\"param\":null,\"code\":\"%s\"}}\n",
                word_of(status)->type, code);
}

static void refuse(const struct visit *visit, int status, const char *message)
{
    refuse_as(visit, status, word_of(status)->code, message);
}

/* ---- the query ------------------------------------------------------------------------------- */

/* The value of name in a=1&b&c=2: NULL = not there; else it ends at & or NUL and *ret_length tells
 * its length ("" for a bare name). */
static const char *query_value(const char *query, const char *name, size_t *ret_length)
{
    size_t length = strlen(name);

    for (const char *at = query; *at; at += strcspn(at, "&"), at += *at == '&') {
        size_t word = strcspn(at, "&");

        if (word < length || strncmp(at, name, length) != 0)
            continue;
        if (word == length || at[length] == '=') {
            *ret_length = word == length ? 0 : word - length - 1;
            return at + length + (word != length);
        }
    }
    return NULL;
}

static bool asks_for(const struct visit *visit, const char *name)
{
    size_t length;

    return query_value(visit->query, name, &length) != NULL;
}

/* ---- pages ----------------------------------------------------------------------------------- */

static unsigned parts_asked_for(const struct visit *visit)
{
    static const struct {
        const char *name;
        unsigned part;
    } names[] = {
        {"summary", STATUS_SUMMARY},     {"slots", STATUS_SLOTS},       {"queue", STATUS_QUEUE},
        {"processes", STATUS_PROCESSES}, {"counters", STATUS_COUNTERS}, {"sources", STATUS_SOURCES},
        {"flows", STATUS_FLOWS},
    };
    unsigned parts = 0;

    for (size_t i = 0; i < LENGTH(names); i++)
        if (asks_for(visit, names[i].name))
            parts |= names[i].part;
    return parts ? parts : STATUS_ALL;
}

static bool wants_openmetrics(const struct visit *visit)
{
    return asks_for(visit, "openmetrics") ||
           strstr(visit->question->accept, "application/openmetrics-text") != NULL;
}

static void write_metrics(const struct visit *visit, const struct snapshot *snapshot)
{
    enum metrics_format format =
        wants_openmetrics(visit) ? METRICS_OPENMETRICS : METRICS_PROMETHEUS;

    visit->answer->content_type = metrics_content_type(format);
    metrics_text(snapshot, &segment_instance(visit->house->gate->segment)->counters, format,
                 &visit->answer->body);
}

static void write_status(const struct visit *visit, const struct snapshot *snapshot)
{
    const struct status_view view = {
        .parts = parts_asked_for(visit),
        .full = asks_for(visit, "full"),
        .now_wall_ms = clock_wall_ms(),
    };
    struct status_answer *answer = visit->answer;

    if (asks_for(visit, "json")) {
        answer->content_type = JSON_TYPE;
        status_json(snapshot, &view, &answer->body);
    } else if (asks_for(visit, "html")) {
        answer->content_type = HTML_TYPE;
        status_html(snapshot, &view, &answer->body);
    } else if (asks_for(visit, "openmetrics")) {
        write_metrics(visit, snapshot);
    } else {
        status_text(snapshot, &view, &answer->body);
    }
}

static void answer_from_snapshot(const struct visit *visit,
                                 void (*write)(const struct visit *, const struct snapshot *))
{
    struct snapshot snapshot;

    if (!snapshot_take(&snapshot, visit->house->gate, clock_monotonic_ns())) {
        refuse(visit, 503, "The monitor is out of memory.");
        return;
    }
    write(visit, &snapshot);
    snapshot_release(&snapshot);
    if (visit->answer->body.overflowed)
        refuse(visit, 503, "The monitor is out of memory.");
}

static void answer_status(const struct visit *visit)
{
    answer_from_snapshot(visit, write_status);
}

static void answer_metrics(const struct visit *visit)
{
    answer_from_snapshot(visit, write_metrics);
}

/* While its writer is held up, what is not there may still come. */
static void refuse_unknown_call(const struct visit *visit)
{
    const struct journal_area *journal = &segment_instance(visit->house->gate->segment)->journal;
    const struct journal_count ready = journal_ready(journal);
    char why[160];

    if (journal_count_sum(&ready) == 0) {
        refuse_as(visit, 404, "penstock_no_call",
                  "The ledger has no such call. A call is there within a second after its end, and "
                  "until ledger_keep_s or ledger_max takes it away.");
        return;
    }
    (void)snprintf(why, sizeof why,
                   "The ledger has no such call yet: %" PRIu64
                   " rows wait to be written into it. Ask again; if they stay, the log tells why.",
                   journal_count_sum(&ready));
    refuse(visit, 503, why);
}

/* One call (H17). The ledger is read beside its writer; what cannot be read is told, not waited for. */
static void answer_call(const struct visit *visit)
{
    const struct options *options = visit->house->options;
    bool json = asks_for(visit, "json");
    char id[CALL_ID_SIZE];
    struct text why;

    if (!status_call_is_id(visit->name, visit->name_length)) {
        refuse(visit, 400, "This is no id of a call: it is what x-request-id says, pst_...");
        return;
    }
    if (!options->penstock.ledger) {
        refuse_as(visit, 404, "penstock_no_call",
                  "The ledger is off (option ledger), so nothing is known of single calls.");
        return;
    }
    (void)snprintf(id, sizeof id, "%.*s", (int)visit->name_length, visit->name);
    text_init(&why, 1000);
    switch (status_call_write(options->penstock.state_directory, id, json, &visit->answer->body,
                              &why)) {
    case STATUS_CALL_FOUND:
        visit->answer->content_type = json ? JSON_TYPE : TEXT_TYPE;
        break;
    case STATUS_CALL_UNKNOWN:
        refuse_unknown_call(visit);
        break;
    case STATUS_CALL_UNREADABLE:
        refuse(visit, 503, text_string(&why));
        break;
    }
    text_release(&why);
    if (visit->answer->body.overflowed)
        refuse(visit, 503, "The monitor is out of memory.");
}

static void answer_ping(const struct visit *visit)
{
    text_append_string(&visit->answer->body, "pong\n");
}

/* ---- control --------------------------------------------------------------------------------- */

/* More slots than threads that can wait and hold are no use: the threads are then the limit. */
static void warn_of_threads(const struct visit *visit, uint64_t limit, uint32_t max_waiting)
{
    const struct options *options = visit->house->options;
    int64_t threads = options_workers(options) * options_threads(options);
    int64_t for_images = threads - threads * options->penstock.reserve_percent / 100;

    if ((int64_t)limit + max_waiting > for_images)
        text_printf(&visit->answer->body,
                    "note: %" PRIu64 " slots and %" PRIu32
                    " waiting calls need more than the %" PRId64
                    " request threads that image calls may take\n",
                    limit, max_waiting, for_images);
}

static void control_limit(const struct visit *visit)
{
    struct gate *gate = visit->house->gate;
    struct gate_limits limits;
    uint64_t limit = 0;
    uint32_t was;
    size_t length = 0;
    const char *value = query_value(visit->query, "limit", &length);

    if (!value || !parse_u64_bytes(value, length, &limit) || limit > HELD_MAX) {
        refuse(visit, 400, "The limit must be a number from 0 (no limit) to 2048.");
        return;
    }
    gate_limits_now(gate, &limits);
    was = limits.limit;
    limits.limit = (uint32_t)limit;
    if (!limits.on) {
        refuse(
            visit, 409,
            "The image gate of this instance is off, so it has no limit to change: set enabled = "
            "true and max_concurrent_requests in [image_concurrency], then reload.");
        return;
    }
    gate_set_limits(gate, &limits, clock_monotonic_ns(), clock_wall_ms());
    log_event(LOG_LEVEL_NOTICE, "limit_changed", "by penstockctl: limit=%u was=%u", limits.limit,
              was);
    text_printf(&visit->answer->body,
                "limit: %" PRIu32 "%s (was %" PRIu32 "), until the next reload\n", limits.limit,
                limits.limit == 0 ? " = no limit" : "", was);
    if (limits.limit > 0)
        warn_of_threads(visit, limit, limits.max_waiting);
}

/* Keep new calls from a source, or let them go there again. */
static void control_drain(const struct visit *visit, const char *order, bool drained)
{
    char name[NAME_SIZE];
    char message[NAME_SIZE + 80];
    size_t length = 0;
    const char *value = query_value(visit->query, order, &length);

    if (!value || length == 0 || length >= sizeof name) {
        refuse(visit, 400, "Which source? Its name is that of its section in the configuration.");
        return;
    }
    (void)snprintf(name, sizeof name, "%.*s", (int)length, value);
    if (!source_drain(visit->house->gate, name, drained, clock_wall_ms())) {
        (void)snprintf(message, sizeof message,
                       "There is no source \"%s\"; penstockctl sources lists them.", name);
        refuse_as(visit, 404, "penstock_no_source", message);
        return;
    }
    log_event(LOG_LEVEL_NOTICE, drained ? "source_drained" : "source_undrained",
              "by penstockctl: source=%s", name);
    text_printf(&visit->answer->body,
                drained ? "drained: %s gets no new calls until it is undrained; those in flight go "
                          "on\n"
                        : "undrained: %s gets calls again\n",
                name);
}

static void control_reload(const struct visit *visit)
{
    struct gate *gate = visit->house->gate;
    const struct counters_area *counters = &segment_instance(gate->segment)->counters;
    uint64_t refused = counter_value(counters, COUNTER_reloads_refused);
    uint64_t generation;
    int32_t pid;

    gate_lock(gate);
    generation = segment_instance(gate->segment)->generation;
    pid = segment_instance(gate->segment)->master_pid;
    gate_unlock(gate);
    if (pidfd_send_signal(visit->house->master_pidfd, SIGHUP, NULL, 0) != 0) {
        refuse(visit, 503, "The master process has ended: start penstockd again.");
        return;
    }
    log_event(LOG_LEVEL_NOTICE, "reload_asked", "by penstockctl");
    visit->answer->status = 202;
    text_printf(&visit->answer->body,
                "master: %" PRId32 "\ngeneration: %" PRIu64 "\nreloads refused: %" PRIu64 "\n", pid,
                generation, refused);
}

static void answer_control(const struct visit *visit)
{
    if (!visit->question->control || !visit->question->trusted)
        refuse(visit, 403,
               "Control is for penstockctl alone, run by root or by the user Penstock runs as.");
    else if (asks_for(visit, "limit"))
        control_limit(visit);
    else if (asks_for(visit, "reload"))
        control_reload(visit);
    else if (asks_for(visit, "drain"))
        control_drain(visit, "drain", true);
    else if (asks_for(visit, "undrain"))
        control_drain(visit, "undrain", false);
    else
        refuse(visit, 400, "There is no such control request.");
}

/* ---- who and where --------------------------------------------------------------------------- */

static bool is_local_address(const char *address, size_t length)
{
    static const char *const prefixes[] = {"127.", "::1", "[::1]", "::ffff:127.", "unix:", "@"};

    if (length == 0)
        return true;
    for (size_t i = 0; i < LENGTH(prefixes); i++) {
        size_t prefix = strlen(prefixes[i]);
        /* "::1" is an address of its own, and the beginning of many others */
        bool whole = prefixes[i][prefix - 1] == '1' || prefixes[i][prefix - 1] == ']';

        if (length >= prefix && strncasecmp(address, prefixes[i], prefix) == 0 &&
            (!whole || length == prefix))
            return true;
    }
    return false;
}

/* Every address the request came by: the web server's client, and what proxies before it named. */
static bool is_local(const struct status_question *question)
{
    const char *at = question->forwarded_for;

    if (!is_local_address(question->remote_address, strlen(question->remote_address)))
        return false;
    while (*at) {
        size_t length;

        at += strspn(at, " ,\t");
        length = strcspn(at, " ,\t");
        if (!is_local_address(at, length))
            return false;
        at += length;
    }
    return true;
}

/* One whose path ends in / wants the name of something behind it. */
static const struct page {
    const char *path;
    const char *method;
    bool open; /* to everybody */
    void (*answer)(const struct visit *);
} pages[] = {
    {"/penstock/status", "GET", false, answer_status},
    {"/penstock/calls/", "GET", false, answer_call},
    {"/penstock/metrics", "GET", false, answer_metrics},
    {"/penstock/ping", "GET", true, answer_ping},
    {"/penstock/control", "POST", false, answer_control},
};

/* By the end of the path: the web server may mount us below a prefix. */
static const struct page *page_of(const char *uri, struct visit *visit)
{
    size_t length = strcspn(uri, "?#");
    const char *slash = memrchr(uri, '/', length);
    size_t parent = slash ? (size_t)(slash - uri) + 1 : 0;

    visit->name = uri + parent;
    visit->name_length = length - parent;
    for (size_t i = 0; i < LENGTH(pages); i++) {
        size_t path = strlen(pages[i].path);
        size_t end = pages[i].path[path - 1] == '/' ? parent : length;

        if (end >= path && strncmp(uri + end - path, pages[i].path, path) == 0)
            return &pages[i];
    }
    return NULL;
}

static bool has_method(const struct page *page, const char *method)
{
    return strcmp(method, page->method) == 0 ||
           (strcmp(page->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static void refuse_method(const struct visit *visit, const struct page *page)
{
    visit->answer->allow = strcmp(page->method, "GET") == 0 ? "GET, HEAD" : page->method;
    refuse(visit, 405,
           "This page is not served by this method; the header Allow names those that it has.");
}

void status_answer_make(const struct status_question *question, const struct status_house *house,
                        struct status_answer *answer)
{
    const char *mark = strchr(question->uri, '?');
    struct visit visit = {
        .question = question, .house = house, .answer = answer, .query = mark ? mark + 1 : ""};
    const struct page *page = page_of(question->uri, &visit);

    if (!page)
        refuse(&visit, 404,
               "There is no such page. There are /penstock/status (?json, ?html, ?full), "
               "/penstock/calls/ID (?json), /penstock/metrics and /penstock/ping.");
    else if (!page->open && !question->vouched && !is_local(question))
        refuse(
            &visit, 403,
            "This page is shown to local addresses only. A web server that has access control of "
            "its own for it may set the FastCGI parameter PENSTOCK_STATUS_ALLOW=1.");
    else if (!has_method(page, question->method))
        refuse_method(&visit, page);
    else
        page->answer(&visit);
}

void status_answer_head(const struct status_answer *answer, struct text *out)
{
    text_printf(out,
                "Status: %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n",
                answer->status, word_of(answer->status)->reason, answer->content_type,
                answer->body.length);
    if (answer->allow)
        text_printf(out, "Allow: %s\r\n", answer->allow);
    if (strcmp(answer->content_type, HTML_TYPE) == 0)
        text_append_string(out, "Content-Security-Policy: default-src 'none'; style-src "
                                "'unsafe-inline'; frame-ancestors 'none'\r\n");
    text_append_string(out, "\r\n");
}
