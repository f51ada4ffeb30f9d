/* hedge_advice.c - thresholds for hedging from the ledger's latencies; see hedge_advice.h. */
#include "worker/hedge_advice.h"

#include "base/clock.h"
#include "shared/ledger_read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DAYS 7
#define DAY_MS INT64_C(86400000)
#define ATTEMPTS_MOST 500000 /* the newest */
#define GROUPS_MAX 1000U
#define BUSY_MS 2000
/* Shares are products of fractions: equal ones may differ in their last bits. */
#define SHARE_SLACK 1e-9

/* ---- the estimate ---------------------------------------------------------------------------- */

/* Known ones first among equals: who was given up then would have taken longer. */
static int compare_samples(const void *left, const void *right)
{
    const struct hedge_sample *a = left;
    const struct hedge_sample *b = right;

    if (a->ms != b->ms)
        return a->ms < b->ms ? -1 : 1;
    return (int)a->at_least - (int)b->at_least;
}

/* S steps down at every known value. samples are sorted. */
static void fill_in(struct hedge_sample *samples, size_t count)
{
    double longer = 1;

    for (size_t i = 0; i < count;) {
        size_t at_risk = count - i;
        size_t known = 0;
        size_t end = i;

        for (; end < count && samples[end].ms == samples[i].ms; end++)
            known += !samples[end].at_least;
        longer *= 1 - (double)known / (double)at_risk;
        for (; i < end; i++)
            samples[i].longer = longer;
    }
}

/* S(ms). Behind the last sample nothing is known, and S is taken to stay: never too good. */
static double longer_than(const struct hedge_sample *samples, size_t count, int64_t ms)
{
    size_t low = 0;
    size_t high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (samples[middle].ms <= ms)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? 1 : samples[low - 1].longer;
}

/* The smallest value that at most `share` of all take longer than; -1 = not known. */
static int64_t exceeded_by(const struct hedge_sample *samples, size_t count, double share)
{
    size_t low = 0;
    size_t high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (samples[middle].longer <= share + SHARE_SLACK)
            high = middle;
        else
            low = middle + 1;
    }
    return low < count ? samples[low].ms : -1;
}

/* The same for calls with a hedge after after_ms. */
static int64_t hedged_exceeded_by(const struct hedge_sample *samples, size_t count,
                                  int64_t after_ms, double share)
{
    int64_t low = 0;
    int64_t high = samples[count - 1].ms + after_ms + 1; /* no step lies behind it */
    int64_t end = high;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        double longer = longer_than(samples, count, middle);

        if (middle >= after_ms)
            longer *= longer_than(samples, count, middle - after_ms);
        if (longer <= share + SHARE_SLACK)
            high = middle;
        else
            low = middle + 1;
    }
    return low < end ? low : -1;
}

void hedge_advice_make(struct hedge_sample *samples, size_t count, struct hedge_advice *ret)
{
    static const int loads[HEDGE_ADVICE_LOADS] = {1, 2, 5};

    REQUIRE(count > 0);
    qsort(samples, count, sizeof *samples, compare_samples);
    fill_in(samples, count);
    *ret = (struct hedge_advice){
        .attempts = count,
        .longest_ms = samples[count - 1].ms,
        .p50_ms = exceeded_by(samples, count, 0.50),
        .p95_ms = exceeded_by(samples, count, 0.05),
        .p99_ms = exceeded_by(samples, count, 0.01),
    };
    for (size_t i = 0; i < count; i++)
        ret->given_up += samples[i].at_least;
    for (size_t i = 0; i < HEDGE_ADVICE_LOADS; i++) {
        int64_t after_ms = exceeded_by(samples, count, loads[i] / 100.0);

        ret->thresholds[i] = (struct hedge_threshold){
            .percent = loads[i],
            .after_ms = after_ms,
            .p99_ms = after_ms < 0 ? -1 : hedged_exceeded_by(samples, count, after_ms, 0.01),
        };
    }
}

/* ---- what the ledger has --------------------------------------------------------------------- */

/* Streams of one scope, or its other calls. */
struct group {
    char *scope;
    bool stream;
    struct hedge_sample *samples;
    size_t count, room;
};

struct book {
    struct group *groups; /* GROUPS_MAX */
    size_t count;
    bool incomplete; /* out of memory, or more groups than there is room for */
};

static struct group *group_of(struct book *book, const struct ledger_latency *latency)
{
    struct group *group;

    for (size_t i = 0; i < book->count; i++)
        if (book->groups[i].stream == latency->stream &&
            strcmp(book->groups[i].scope, latency->scope) == 0)
            return &book->groups[i];
    if (book->count == GROUPS_MAX)
        return NULL;
    group = &book->groups[book->count];
    *group = (struct group){.scope = strdup(latency->scope), .stream = latency->stream};
    if (!group->scope)
        return NULL;
    book->count++;
    return group;
}

static bool make_room(struct group *group)
{
    size_t room = group->room ? group->room * 2 : 256;
    struct hedge_sample *samples;

    if (group->count < group->room)
        return true;
    samples = realloc(group->samples, room * sizeof *samples);
    if (!samples)
        return false;
    group->samples = samples;
    group->room = room;
    return true;
}

static void take(void *context, const struct ledger_latency *latency)
{
    struct book *book = context;
    struct group *group = group_of(book, latency);

    if (group && make_room(group))
        group->samples[group->count++] =
            (struct hedge_sample){.ms = latency->ms, .at_least = latency->at_least};
    else
        book->incomplete = true;
}

static int compare_groups(const void *left, const void *right)
{
    const struct group *a = left;
    const struct group *b = right;
    int order = strcmp(a->scope, b->scope);

    return order ? order : (int)b->stream - (int)a->stream; /* streams first */
}

static bool fill_book(struct book *book, const struct hedge_advice_wish *wish, struct text *why)
{
    const struct ledger_latency_wish latencies = {
        .scope = wish->scope,
        .since_wall_ms = wish->now_wall_ms - DAYS * DAY_MS,
        .most = ATTEMPTS_MOST,
    };
    struct ledger_reader *reader = ledger_reader_open(wish->state_directory, BUSY_MS, why);
    bool ok;

    if (!reader)
        return false;
    book->groups = calloc(GROUPS_MAX, sizeof *book->groups);
    ok = book->groups && ledger_read_latencies(reader, &latencies, take, book);
    if (!book->groups)
        text_append_string(why, "out of memory");
    else if (!ok)
        text_append_string(why, ledger_reader_error(reader));
    else
        qsort(book->groups, book->count, sizeof *book->groups, compare_groups);
    ledger_reader_close(reader);
    return ok;
}

static void book_release(struct book *book)
{
    for (size_t i = 0; i < book->count; i++) {
        free(book->groups[i].scope);
        free(book->groups[i].samples);
    }
    free(book->groups);
}

/* ---- the report ------------------------------------------------------------------------------ */

static void text_seconds(struct text *out, int64_t ms, int64_t longest_ms)
{
    if (ms >= 0)
        text_printf(out, "%.3f", (double)ms / 1e3);
    else
        text_printf(out, ">%.3f", (double)longest_ms / 1e3);
}

/* A column of numbers, right-aligned. */
static void text_cell(struct text *out, int64_t ms, int64_t longest_ms)
{
    struct text cell;

    text_init(&cell, 40);
    text_seconds(&cell, ms, longest_ms);
    text_printf(out, " %14s", text_string(&cell));
    text_release(&cell);
}

static void text_group(const struct group *group, const struct hedge_advice *advice,
                       struct text *out)
{
    text_printf(out, "\n%s, %s: %zu attempts, %zu of them given up before their end\n",
                group->scope,
                group->stream ? "streams (seconds to the first content)"
                              : "not streamed (seconds to the last byte)",
                advice->attempts, advice->given_up);
    if (advice->attempts < HEDGE_ADVICE_LEAST) {
        text_printf(out, "  too few: advice needs at least %u\n", HEDGE_ADVICE_LEAST);
        return;
    }
    text_append_string(out, "  now: p50 ");
    text_seconds(out, advice->p50_ms, advice->longest_ms);
    text_append_string(out, ", p95 ");
    text_seconds(out, advice->p95_ms, advice->longest_ms);
    text_append_string(out, ", p99 ");
    text_seconds(out, advice->p99_ms, advice->longest_ms);
    text_append_string(out, "\n  extra load  hedge_after_s   p99 would be\n");
    for (size_t i = 0; i < HEDGE_ADVICE_LOADS; i++) {
        const struct hedge_threshold *threshold = &advice->thresholds[i];

        text_printf(out, "  %8d %%", threshold->percent);
        text_cell(out, threshold->after_ms, advice->longest_ms);
        if (threshold->after_ms < 0)
            text_append_string(out, "              -");
        else
            text_cell(out, threshold->p99_ms, advice->longest_ms);
        text_append_char(out, '\n');
    }
}

static void json_ms(struct text *out, const char *key, int64_t ms)
{
    text_printf(out, ",\"%s\":", key);
    if (ms < 0)
        text_append_string(out, "null");
    else
        text_append_number(out, ms);
}

static void json_group(const struct group *group, const struct hedge_advice *advice,
                       struct text *out)
{
    bool enough = advice->attempts >= HEDGE_ADVICE_LEAST;

    text_append_string(out, "{\"scope\":");
    text_append_json(out, group->scope, strlen(group->scope));
    text_printf(out, ",\"stream\":%s,\"attempts\":%zu,\"given_up\":%zu,\"enough\":%s",
                group->stream ? "true" : "false", advice->attempts, advice->given_up,
                enough ? "true" : "false");
    json_ms(out, "longest_ms", advice->longest_ms);
    json_ms(out, "p50_ms", enough ? advice->p50_ms : -1);
    json_ms(out, "p95_ms", enough ? advice->p95_ms : -1);
    json_ms(out, "p99_ms", enough ? advice->p99_ms : -1);
    text_append_string(out, ",\"thresholds\":[");
    for (size_t i = 0; enough && i < HEDGE_ADVICE_LOADS; i++) {
        const struct hedge_threshold *threshold = &advice->thresholds[i];

        text_printf(out, "%s{\"extra_load_percent\":%d", i > 0 ? "," : "", threshold->percent);
        json_ms(out, "hedge_after_ms", threshold->after_ms);
        json_ms(out, "p99_ms", threshold->p99_ms);
        text_append_char(out, '}');
    }
    text_append_string(out, "]}");
}

/* How many groups have enough to rest advice on. */
static size_t report_groups(const struct book *book, bool json, struct text *out)
{
    size_t enough = 0;

    for (size_t i = 0; i < book->count; i++) {
        struct group *group = &book->groups[i];
        struct hedge_advice advice;

        hedge_advice_make(group->samples, group->count, &advice);
        enough += advice.attempts >= HEDGE_ADVICE_LEAST;
        if (json && i > 0)
            text_append_char(out, ',');
        if (json)
            json_group(group, &advice, out);
        else
            text_group(group, &advice, out);
    }
    return enough;
}

bool hedge_advice_report(const struct hedge_advice_wish *wish, struct text *out, struct text *why)
{
    struct book book = {0};
    char since[CLOCK_ISO_SIZE];
    size_t enough = 0;

    if (fill_book(&book, wish, why)) {
        clock_iso(wish->now_wall_ms - DAYS * DAY_MS, since);
        if (wish->json)
            text_printf(out, "{\"since\":\"%s\",\"complete\":%s,\"scopes\":[", since,
                        book.incomplete ? "false" : "true");
        else
            text_printf(out, "chat calls since %s%s\n", since,
                        book.incomplete ? " (not all of them: out of memory)" : "");
        enough = report_groups(&book, wish->json, out);
        if (wish->json)
            text_append_string(out, "]}\n");
        if (book.count == 0 && wish->scope)
            text_printf(why,
                        "there are no attempts of chat calls in scope %s in the ledger's last %d "
                        "days; is there a scope of that name? penstockd -T shows all",
                        wish->scope, DAYS);
        else if (enough == 0)
            text_printf(
                why,
                "there are fewer than %u attempts of chat calls%s%s in the ledger's last %d "
                "days; advice that rests on less would be none",
                HEDGE_ADVICE_LEAST, wish->scope ? " in scope " : "", wish->scope ? wish->scope : "",
                DAYS);
    }
    book_release(&book);
    return enough > 0;
}
