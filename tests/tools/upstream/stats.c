/* stats.c - see stats.h. */
#include "tests/tools/upstream/stats.h"

#include "base/clock.h"

#include <string.h>
#include <time.h>

static void count_up(uint64_t *open, uint64_t *max)
{
    ++*open;
    if (*open > *max)
        *max = *open;
}

void sim_stats_call_open(struct stats *stats, const struct endpoint *endpoint)
{
    size_t index = sim_endpoint_index(endpoint);

    stats->requests++;
    stats->by_endpoint[index]++;
    count_up(&stats->calls_open, &stats->calls_open_max);
    count_up(&stats->open_by_endpoint[index], &stats->max_by_endpoint[index]);
}

void sim_stats_call_close(struct stats *stats, const struct endpoint *endpoint, enum call_end end)
{
    stats->calls_open--;
    stats->open_by_endpoint[sim_endpoint_index(endpoint)]--;
    switch (end) {
    case END_DONE:
        stats->done++;
        break;
    case END_ABORTED:
        stats->aborted++;
        break;
    case END_CUT:
        stats->cut++;
        break;
    }
}

void sim_stats_image_open(struct stats *stats)
{
    stats->images++;
    count_up(&stats->images_open, &stats->images_open_max);
}

void sim_stats_image_close(struct stats *stats)
{
    stats->images_open--;
}

void sim_stats_drawn(struct stats *stats, uint64_t drawn)
{
    if (drawn > stats->images_drawn_max)
        stats->images_drawn_max = drawn;
}

struct record *sim_stats_record(struct stats *stats)
{
    struct record *record = &stats->rows[stats->records % RECORDS_MAX];

    stats->records++;
    *record = (struct record){0};
    return record;
}

uint64_t sim_stats_tag_use(void *context, const char *tag)
{
    struct stats *stats = context;
    unsigned i = 0;

    while (i < stats->tag_count && strcmp(stats->tags[i].tag, tag) != 0)
        i++;
    if (i == TAGS_MAX)
        return 0;
    if (i == stats->tag_count) {
        (void)text_copy(stats->tags[i].tag, sizeof stats->tags[i].tag, tag);
        stats->tags[i].uses = 0;
        stats->tag_count++;
    }
    return stats->tags[i].uses++;
}

static int64_t cpu_ns(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * NS_PER_S + time.tv_nsec;
}

void sim_stats_reset(struct stats *stats)
{
    stats->requests = stats->done = stats->aborted = stats->cut = stats->bad_requests =
        stats->quota_refused = stats->hung = 0;
    stats->images = stats->connections = 0;
    stats->calls_open_max = stats->calls_open;
    stats->images_open_max = stats->images_drawn_max = stats->images_open;
    stats->connections_open_max = stats->connections_open;
    stats->bytes_in = stats->bytes_out = 0;
    memset(stats->by_endpoint, 0, sizeof stats->by_endpoint);
    memcpy(stats->max_by_endpoint, stats->open_by_endpoint, sizeof stats->max_by_endpoint);
    stats->cpu_base_ns = cpu_ns();
    stats->records = 0;
    stats->tag_count = 0;
}

static void write_record(const struct record *record, struct body *body)
{
    static const char *const ends[] = {
        [END_DONE] = "done", [END_ABORTED] = "aborted", [END_CUT] = "cut"};
    const struct {
        const char *name;
        const char *value;
    } strings[] = {{"method", record->method},
                   {"path", record->path},
                   {"query", record->query},
                   {"call", record->call_id},
                   {"authorization", record->authorization},
                   {"mock", record->mock},
                   {"model", record->model},
                   {"sha256", record->sha_hex},
                   {"body", record->body},
                   {"end", ends[record->end]}};

    sim_body_printf(body, "{\"number\":%llu", (unsigned long long)record->number);
    for (size_t i = 0; i < LENGTH(strings); i++) {
        sim_body_printf(body, ",\"%s\":", strings[i].name);
        sim_body_json(body, strings[i].value);
    }
    sim_body_printf(
        body,
        ",\"body_bytes\":%llu,\"sent_bytes\":%llu,\"status\":%u,\"image\":%s,\"complete\":%s,"
        "\"begun_ns\":%lld,\"read_ns\":%lld,\"ended_ns\":%lld}",
        (unsigned long long)record->body_bytes, (unsigned long long)record->sent_bytes,
        record->status, record->image ? "true" : "false", record->complete ? "true" : "false",
        (long long)record->begun_ns, (long long)record->read_ns, (long long)record->ended_ns);
}

static void write_endpoints(const struct stats *stats, struct body *body)
{
    bool first = true;

    sim_body_text(body, ",\"endpoints\":{");
    for (size_t i = 0; sim_endpoint_name(i); i++) {
        if (stats->by_endpoint[i] == 0)
            continue;
        sim_body_printf(body, "%s\"%s\":{\"requests\":%llu,\"open_now\":%llu,\"open_max\":%llu}",
                        first ? "" : ",", sim_endpoint_name(i),
                        (unsigned long long)stats->by_endpoint[i],
                        (unsigned long long)stats->open_by_endpoint[i],
                        (unsigned long long)stats->max_by_endpoint[i]);
        first = false;
    }
    sim_body_text(body, "}");
}

void sim_stats_write(const struct stats *stats, struct body *body, uint64_t shown)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"requests", stats->requests},
                   {"done", stats->done},
                   {"aborted", stats->aborted},
                   {"cut", stats->cut},
                   {"bad_requests", stats->bad_requests},
                   {"quota_refused", stats->quota_refused},
                   {"hung", stats->hung},
                   {"calls_open_now", stats->calls_open},
                   {"calls_open_max", stats->calls_open_max},
                   {"images", stats->images},
                   {"images_open_now", stats->images_open},
                   {"images_open_max", stats->images_open_max},
                   {"images_drawn_max", stats->images_drawn_max},
                   {"connections", stats->connections},
                   {"connections_open_now", stats->connections_open},
                   {"connections_open_max", stats->connections_open_max},
                   {"bytes_in", stats->bytes_in},
                   {"bytes_out", stats->bytes_out},
                   {"cpu_us", (uint64_t)((cpu_ns() - stats->cpu_base_ns) / NS_PER_US)}};
    uint64_t held = stats->records < RECORDS_MAX ? stats->records : RECORDS_MAX;

    if (shown > held)
        shown = held;
    sim_body_text(body, "{\"name\":");
    sim_body_json(body, stats->name);
    for (size_t i = 0; i < LENGTH(numbers); i++)
        sim_body_printf(body, ",\"%s\":%llu", numbers[i].name,
                        (unsigned long long)numbers[i].value);
    write_endpoints(stats, body);
    sim_body_text(body, ",\"last\":[");
    for (uint64_t i = stats->records - shown; i < stats->records; i++) {
        sim_body_text(body, i > stats->records - shown ? "," : "");
        write_record(&stats->rows[i % RECORDS_MAX], body);
    }
    sim_body_text(body, "]}\n");
}
