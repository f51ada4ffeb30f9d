/* diagnose.c - limits and patterns, from exchanges; see diagnose.h. */
#include "worker/diagnose.h"

#include "base/check.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define MINUTE_MS 60000
#define MOST_PERCENT 60       /* so many of the refusals make a pattern */
#define QUOTA_USED_PERCENT 80 /* a quota per minute is only reached by who used most of it */
#define LONG_PERCENT 200
#define AT_ONCE_MS 10000

const char *diagnose_limit_name(enum diagnose_limit limit)
{
    static const char *const names[] = {"rpm",     "rps",        "tpm",   "tps",
                                        "burst",   "saturation", "day",   "money",
                                        "unknown", "requests",   "tokens"};

    return (size_t)limit < LENGTH(names) ? names[limit] : "none";
}

enum diagnose_limit diagnose_limit_of(const char *word)
{
    unsigned limit = 0;

    while (limit < DIAGNOSE_NONE &&
           strcmp(word, diagnose_limit_name((enum diagnose_limit)limit)) != 0)
        limit++;
    return limit == DIAGNOSE_NONE && *word ? DIAGNOSE_UNKNOWN : (enum diagnose_limit)limit;
}

const char *diagnose_pattern_name(enum diagnose_pattern pattern)
{
    static const char *const names[] = {
        "too few to tell", "at start or after idle", "on long texts", "at surges",
        "all of them",     "intermittent",           "all at once"};

    return names[pattern];
}

/* ---- what was going on ------------------------------------------------------------------------ */

/* What the pass over the exchanges keeps up with; indices into them. */
struct scene {
    const struct diagnose_flow *flow;
    int64_t *ends;              /* sorted */
    size_t ended;               /* of ends, those up to now */
    size_t minute, ten, second; /* the first within 60 s, 10 s, 1 s before now */
    int64_t tokens_minute, tokens_ten;
    int64_t busy_since_ms; /* no pause since then */
};

static int compare_times(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;

    return a < b ? -1 : a > b;
}

static void leave_behind(const struct scene *scene, size_t *first, int64_t before_ms,
                         int64_t *tokens)
{
    for (; scene->flow->exchanges[*first].started_ms <= before_ms; (*first)++)
        if (tokens)
            *tokens -= scene->flow->exchanges[*first].tokens;
}

/* Exchange i begins. */
static void move_to(struct scene *scene, size_t i)
{
    const struct diagnose_exchange *exchanges = scene->flow->exchanges;
    int64_t now_ms = exchanges[i].started_ms;

    scene->tokens_minute += exchanges[i].tokens;
    scene->tokens_ten += exchanges[i].tokens;
    leave_behind(scene, &scene->minute, now_ms - MINUTE_MS, &scene->tokens_minute);
    leave_behind(scene, &scene->ten, now_ms - MINUTE_MS / 6, &scene->tokens_ten);
    leave_behind(scene, &scene->second, now_ms - 1000, NULL);
    while (scene->ended < scene->flow->count && scene->ends[scene->ended] <= now_ms)
        scene->ended++;
    if (i == 0 || now_ms - exchanges[i - 1].started_ms >= DIAGNOSE_IDLE_MS)
        scene->busy_since_ms = now_ms;
}

/* ---- which limit -------------------------------------------------------------------------------- */

/* As the adaptive controller tells them apart: a known quota must have been used; without one, the last
 * minute must have been as busy as its last ten seconds, for at a ramp a limit per second comes first. */
static bool is_per_minute(int64_t minute, int64_t ten, int64_t quota)
{
    if (quota > 0)
        return minute * 100 >= quota * QUOTA_USED_PERCENT;
    return ten * 6 * 100 <= minute * 125;
}

/* The lower one; 0 = not known. */
static int64_t in_force_of(int64_t configured, int64_t told)
{
    return told > 0 && (configured == 0 || told < configured) ? told : configured;
}

static enum diagnose_limit settle_limit(const struct scene *scene, size_t i)
{
    const struct diagnose_flow *flow = scene->flow;
    int64_t sends = (int64_t)(i - scene->minute) + 1;
    int64_t recent = (int64_t)(i - scene->ten) + 1;
    bool in_force = flow->exchanges[i].started_ms >= flow->loaded_ms;
    int64_t rpm = in_force_of(in_force ? flow->rpm : 0, flow->rpm_told);
    int64_t tpm = in_force_of(in_force ? flow->tpm : 0, flow->tpm_told);

    switch (flow->exchanges[i].limit) {
    case DIAGNOSE_REQUESTS:
        return is_per_minute(sends, recent, rpm) ? DIAGNOSE_RPM : DIAGNOSE_RPS;
    case DIAGNOSE_TOKENS:
        return is_per_minute(scene->tokens_minute, scene->tokens_ten, tpm) ? DIAGNOSE_TPM
                                                                           : DIAGNOSE_TPS;
    case DIAGNOSE_RPM:
    case DIAGNOSE_RPS:
    case DIAGNOSE_TPM:
    case DIAGNOSE_TPS:
    case DIAGNOSE_BURST:
    case DIAGNOSE_SATURATION:
    case DIAGNOSE_DAY:
    case DIAGNOSE_MONEY:
    case DIAGNOSE_UNKNOWN:
    case DIAGNOSE_NONE:
        break;
    }
    return flow->exchanges[i].limit;
}

/* ---- patterns ----------------------------------------------------------------------------------- */

/* Of the refusals of one limit. */
struct tally {
    size_t at_start, at_surges;
    int64_t first_ms, last_ms, last_minute;
    int64_t *lengths; /* of their texts, those that are known */
    size_t length_count;
};

/* Three times as many in this second as in a usual one of the last minute. */
static bool is_surge(const struct scene *scene, size_t i)
{
    size_t second = i - scene->second + 1;
    size_t minute = i - scene->minute + 1;

    return second >= 3 && second * 60 >= minute * 3;
}

static void lower(int64_t *least, int64_t value, bool first)
{
    if (first || value < *least)
        *least = value;
}

static void count_refusal(const struct scene *scene, size_t i, struct diagnose_finding *finding,
                          struct tally *tally)
{
    const struct diagnose_exchange *exchange = &scene->flow->exchanges[i];
    int64_t now_ms = exchange->started_ms;
    bool first = finding->count == 0;

    if (first)
        tally->first_ms = now_ms;
    if (first || now_ms / MINUTE_MS != tally->last_minute)
        finding->minutes++;
    tally->last_minute = now_ms / MINUTE_MS;
    tally->last_ms = now_ms;
    tally->at_start += now_ms - scene->busy_since_ms < DIAGNOSE_START_MS;
    tally->at_surges += is_surge(scene, i);
    if (exchange->input > 0)
        tally->lengths[tally->length_count++] = exchange->input;
    if (exchange->code > 0)
        (void)text_copy(finding->code, sizeof finding->code,
                        scene->flow->codes[exchange->code - 1]);
    lower(&finding->sends_60s, (int64_t)(i - scene->minute) + 1, first);
    lower(&finding->tokens_60s, scene->tokens_minute, first);
    /* All that began up to here, itself included, but for those that have ended: itself among them when
     * it was refused within the millisecond. */
    lower(&finding->in_progress, (int64_t)(i + 1 > scene->ended ? i + 1 - scene->ended : 1), first);
    finding->count++;
    if (now_ms < scene->flow->loaded_ms)
        return;
    first = finding->in_force == 0;
    lower(&finding->sends_in_force, (int64_t)(i - scene->minute) + 1, first);
    lower(&finding->tokens_in_force, scene->tokens_minute, first);
    finding->in_force++;
}

static int64_t median(int64_t *values, size_t count)
{
    if (count < DIAGNOSE_LEAST)
        return 0;
    qsort(values, count, sizeof *values, compare_times);
    return values[count / 2];
}

static bool answered_after(const struct diagnose_flow *flow, int64_t from_ms)
{
    for (size_t i = flow->count; i-- > 0 && flow->exchanges[i].started_ms >= from_ms;)
        if (flow->exchanges[i].good)
            return true;
    return false;
}

static void set_pattern(const struct diagnose_flow *flow, const struct tally *tally,
                        struct diagnose_finding *finding)
{
    const size_t start = tally->at_start * 100 / finding->count;
    const size_t surge = tally->at_surges * 100 / finding->count;

    finding->percent = 100;
    if (finding->count < DIAGNOSE_LEAST) {
        finding->pattern = DIAGNOSE_FEW;
    } else if (!answered_after(flow, tally->first_ms)) {
        finding->pattern = DIAGNOSE_ALL;
    } else if (start >= MOST_PERCENT) {
        finding->pattern = DIAGNOSE_AT_START;
        finding->percent = (unsigned)start;
    } else if (finding->long_ratio_percent >= LONG_PERCENT) {
        finding->pattern = DIAGNOSE_LONG_TEXTS;
    } else if (surge >= MOST_PERCENT) {
        finding->pattern = DIAGNOSE_AT_SURGES;
        finding->percent = (unsigned)surge;
    } else if (tally->last_ms - tally->first_ms < AT_ONCE_MS) {
        finding->pattern = DIAGNOSE_AT_ONCE;
    } else {
        finding->pattern = DIAGNOSE_INTERMITTENT;
    }
}

/* ---- all of it ---------------------------------------------------------------------------------- */

uint8_t diagnose_code(struct diagnose_flow *flow, const char *code)
{
    unsigned i = 0;

    if (!*code)
        return 0;
    while (i < flow->code_count && strcmp(flow->codes[i], code) != 0)
        i++;
    if (i == DIAGNOSE_CODES)
        return 0;
    if (i == flow->code_count)
        (void)text_copy(flow->codes[flow->code_count++], sizeof flow->codes[0], code);
    return (uint8_t)(i + 1);
}

struct work {
    struct scene scene;
    struct tally tallies[DIAGNOSE_LIMITS];
    int64_t *memory; /* for ends, lengths of answered ones, and those of each limit */
    int64_t *good;   /* lengths of answered ones */
    size_t good_count;
};

static bool work_begin(struct work *work, const struct diagnose_flow *flow)
{
    *work = (struct work){.scene = {.flow = flow}};
    work->memory = calloc(flow->count * (2 + DIAGNOSE_LIMITS), sizeof *work->memory);
    if (!work->memory)
        return false;
    work->scene.ends = work->memory;
    work->good = work->memory + flow->count;
    for (size_t i = 0; i < DIAGNOSE_LIMITS; i++)
        work->tallies[i].lengths = work->memory + flow->count * (2 + i);
    for (size_t i = 0; i < flow->count; i++)
        work->scene.ends[i] = flow->exchanges[i].ended_ms;
    qsort(work->scene.ends, flow->count, sizeof *work->scene.ends, compare_times);
    return true;
}

static void look_at(struct work *work, struct diagnose_flow *flow, size_t i)
{
    struct diagnose_exchange *exchange = &flow->exchanges[i];

    flow->attempts++;
    if (exchange->good && exchange->input > 0)
        work->good[work->good_count++] = exchange->input;
    if (exchange->limit == DIAGNOSE_NONE)
        return;
    flow->refused++;
    exchange->limit = settle_limit(&work->scene, i);
    count_refusal(&work->scene, i, &flow->findings[exchange->limit],
                  &work->tallies[exchange->limit]);
}

bool diagnose_look(struct diagnose_flow *flow, int64_t since_ms)
{
    struct work work;
    int64_t usual;

    if (flow->count == 0)
        return true;
    if (!work_begin(&work, flow))
        return false;
    for (size_t i = 0; i < flow->count; i++) {
        move_to(&work.scene, i);
        if (flow->exchanges[i].started_ms >= since_ms)
            look_at(&work, flow, i);
    }
    usual = median(work.good, work.good_count);
    for (size_t i = 0; i < DIAGNOSE_LIMITS; i++) {
        struct tally *tally = &work.tallies[i];
        int64_t refused = median(tally->lengths, tally->length_count);

        if (flow->findings[i].count == 0)
            continue;
        if (usual > 0)
            flow->findings[i].long_ratio_percent = refused * 100 / usual;
        set_pattern(flow, tally, &flow->findings[i]);
    }
    free(work.memory);
    return true;
}
