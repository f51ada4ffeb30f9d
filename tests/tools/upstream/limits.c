/* limits.c - see limits.h. */
#include "tests/tools/upstream/limits.h"

#include "base/clock.h"
#include "base/parse.h"
#include "base/text.h"
#include "tests/tools/upstream/refusals.h"

#include <stdlib.h>
#include <string.h>

static const char *const cause_names[LIMIT_CAUSES] = {
    [LIMIT_RPM] = "rpm", [LIMIT_TPM] = "tpm",     [LIMIT_RPS] = "rps",
    [LIMIT_TPS] = "tps", [LIMIT_BURST] = "burst", [LIMIT_SATURATED] = "saturated",
};

static const char *const dialect_names[] = {
    [LIMIT_COMPATIBLE] = "compatible",
    [LIMIT_DASHSCOPE] = "dashscope",
    [LIMIT_OPENAI] = "openai",
};

/* Names of refusals.c. */
static const char *const refusal_names[][LIMIT_CAUSES] = {
    [LIMIT_COMPATIBLE] = {NULL, "compatible_requests", "compatible_quota", "compatible_requests",
                          "compatible_quota", "compatible_burst", "compatible_busy"},
    [LIMIT_DASHSCOPE] = {NULL, "dashscope_rate", "dashscope_allocation", "dashscope_rate",
                         "dashscope_allocation", "dashscope_burst", "dashscope_busy"},
    [LIMIT_OPENAI] = {NULL, "openai_requests", "openai_tokens", "openai_requests", "openai_tokens",
                      "openai_slow_down", "openai_overloaded"},
};

/* ---- settings -------------------------------------------------------------------------------- */

enum setting_kind { SETTING_NUMBER, SETTING_REAL, SETTING_FLAG, SETTING_DIALECT };

static const struct setting {
    const char *name;
    enum setting_kind kind;
    size_t offset;
} settings[] = {
#define ROW(kind, field)                                                                           \
    {                                                                                              \
#field, SETTING_##kind, offsetof(struct limit_settings, field)                             \
    }
    ROW(FLAG, on),
    ROW(NUMBER, rpm),
    ROW(NUMBER, tpm),
    ROW(REAL, rps_factor),
    ROW(REAL, tps_factor),
    ROW(NUMBER, burst_floor),
    ROW(REAL, burst_gain),
    ROW(NUMBER, shared_above),
    ROW(NUMBER, refused_above),
    ROW(FLAG, refusals_count),
    ROW(FLAG, hints),
    ROW(REAL, bytes_per_token),
    ROW(NUMBER, first_ms),
    ROW(NUMBER, input_us),
    ROW(NUMBER, output_us),
    ROW(NUMBER, tokens_per_event),
    ROW(DIALECT, dialect),
#undef ROW
};

static bool set_one(struct limit_settings *to, const struct setting *setting, const char *value)
{
    void *field = (char *)to + setting->offset;
    char *end;
    double real;

    switch (setting->kind) {
    case SETTING_NUMBER:
        return parse_u64(value, field);
    case SETTING_REAL:
        real = strtod(value, &end);
        if (end == value || *end || !(real >= 0 && real < 1e9))
            return false;
        memcpy(field, &real, sizeof real);
        return true;
    case SETTING_FLAG:
        return parse_bool(value, field);
    case SETTING_DIALECT:
        for (size_t i = 0; i < LENGTH(dialect_names); i++)
            if (strcmp(dialect_names[i], value) == 0) {
                to->dialect = (int)i;
                return true;
            }
        return false;
    }
    UNREACHABLE();
}

/* KEY=VALUE&KEY=VALUE; NULL: all were good, else the first that was not, cut off. */
static const char *set_all(struct limit_settings *to, char *query)
{
    char *rest = NULL;

    for (char *pair = strtok_r(query, "&", &rest); pair; pair = strtok_r(NULL, "&", &rest)) {
        char *equals = strchr(pair, '=');
        bool good = false;

        if (equals)
            *equals = '\0';
        for (size_t i = 0; i < LENGTH(settings) && equals; i++)
            if (strcmp(settings[i].name, pair) == 0)
                good = set_one(to, &settings[i], equals + 1);
        if (!good)
            return pair;
    }
    if (to->bytes_per_token <= 0)
        return "bytes_per_token";
    return to->tokens_per_event == 0 ? "tokens_per_event" : NULL;
}

/* ---- judging --------------------------------------------------------------------------------- */

static struct limit_second *second_of(struct limits *limits, int64_t now_ns)
{
    int64_t second = (now_ns - limits->begun_ns) / NS_PER_S;
    struct limit_second *row;

    if (second < 0 || second >= LIMIT_SECONDS_MAX)
        return NULL;
    row = &limits->seconds[second];
    row->seen = true;
    return row;
}

/* Attempts grow too fast: too many within 5 s for what the 30 s before had, each 5 s on average. */
static bool grows_too_fast(struct limits *limits, uint64_t attempts, int64_t now_ns)
{
    const struct limit_settings *is = &limits->settings;
    uint64_t before = sim_window_sum(&limits->thirty_five_seconds, now_ns) - attempts;
    double most = is->burst_gain * (double)before / 6.0;

    if (is->burst_gain <= 0)
        return false;
    return (double)attempts >= (most > (double)is->burst_floor ? most : (double)is->burst_floor);
}

static enum limit_cause judge(struct limits *limits, const struct limit_work *work,
                              uint64_t in_flight, int64_t now_ns)
{
    const struct limit_settings *is = &limits->settings;
    double calls_a_second = is->rps_factor * (double)is->rpm / 60.0;
    double tokens_a_second = is->tps_factor * (double)is->tpm / 60.0;
    uint64_t second_calls = sim_window_sum(&limits->second_calls, now_ns);
    uint64_t second_tokens = sim_window_sum(&limits->second_tokens, now_ns);

    if (is->rpm && sim_window_sum(&limits->minute_calls, now_ns) >= is->rpm)
        return LIMIT_RPM;
    if (is->tpm && sim_window_sum(&limits->minute_tokens, now_ns) + work->input > is->tpm)
        return LIMIT_TPM;
    if (calls_a_second > 0 && (double)second_calls >= calls_a_second)
        return LIMIT_RPS;
    /* A large call alone passes. */
    if (tokens_a_second > 0 && second_tokens > 0 &&
        (double)(second_tokens + work->input) > tokens_a_second)
        return LIMIT_TPS;
    if (grows_too_fast(limits, sim_window_sum(&limits->five_seconds, now_ns), now_ns))
        return LIMIT_BURST;
    if (is->refused_above && in_flight >= is->refused_above)
        return LIMIT_SATURATED;
    return LIMIT_NONE;
}

static void count_tokens(struct limits *limits, uint64_t tokens, int64_t now_ns)
{
    sim_window_add(&limits->minute_tokens, now_ns, tokens);
    sim_window_add(&limits->second_tokens, now_ns, tokens);
    if (limits->minute_tokens.sum > limits->tokens_max)
        limits->tokens_max = limits->minute_tokens.sum;
}

static void count_call(struct limits *limits, int64_t now_ns)
{
    sim_window_add(&limits->minute_calls, now_ns, 1);
    sim_window_add(&limits->second_calls, now_ns, 1);
    if (limits->minute_calls.sum > limits->calls_max)
        limits->calls_max = limits->minute_calls.sum;
}

static void note_attempt(struct limit_second *second, enum limit_cause cause,
                         const struct limit_work *work)
{
    if (!second)
        return;
    second->attempts++;
    second->refused[cause]++;
    if (cause != LIMIT_NONE)
        return;
    second->admitted++;
    second->admitted_tokens += work->input + work->output;
}

enum limit_cause sim_limits_admit(struct limits *limits, const struct limit_work *work,
                                  uint64_t in_flight, int64_t now_ns)
{
    enum limit_cause cause = judge(limits, work, in_flight, now_ns);

    sim_window_add(&limits->five_seconds, now_ns, 1);
    sim_window_add(&limits->thirty_five_seconds, now_ns, 1);
    note_attempt(second_of(limits, now_ns), cause, work);
    note_attempt(&limits->total, cause, work);
    if (cause == LIMIT_NONE || limits->settings.refusals_count)
        count_call(limits, now_ns);
    if (cause == LIMIT_NONE)
        count_tokens(limits, work->input, now_ns);
    return cause;
}

void sim_limits_end(struct limits *limits, const struct limit_work *work, bool whole,
                    int64_t now_ns)
{
    struct limit_second *second = second_of(limits, now_ns);

    count_tokens(limits, work->output, now_ns);
    for (unsigned i = 0; i < 2; i++, second = &limits->total) {
        if (!second || !whole)
            continue;
        second->done++;
        second->good_tokens += work->input + work->output;
    }
}

void sim_limits_note_in_flight(struct limits *limits, uint64_t in_flight, int64_t now_ns)
{
    struct limit_second *second = second_of(limits, now_ns);

    limits->total.in_flight = (uint32_t)in_flight;
    if (second)
        second->in_flight = (uint32_t)in_flight;
}

/* ---- what a refusal says --------------------------------------------------------------------- */

static int64_t wait_ns(struct limits *limits, enum limit_cause cause, int64_t now_ns)
{
    const struct limit_settings *is = &limits->settings;

    if (cause == LIMIT_RPM)
        return sim_window_wait_ns(&limits->minute_calls, now_ns, is->rpm ? is->rpm - 1 : 0);
    if (cause == LIMIT_TPM)
        return sim_window_wait_ns(&limits->minute_tokens, now_ns, is->tpm / 2);
    return NS_PER_S;
}

void sim_limits_hint(struct limits *limits, struct behaviour *behaviour, int64_t now_ns)
{
    const struct limit_settings *is = &limits->settings;
    uint64_t calls = sim_window_sum(&limits->minute_calls, now_ns);
    uint64_t tokens = sim_window_sum(&limits->minute_tokens, now_ns);

    if (!is->hints)
        return;
    if (is->rpm) {
        behaviour->limit_requests = is->rpm;
        behaviour->remaining_requests = calls < is->rpm ? is->rpm - calls : 0;
    }
    if (is->tpm) {
        behaviour->limit_tokens = is->tpm;
        behaviour->remaining_tokens = tokens < is->tpm ? is->tpm - tokens : 0;
    }
}

void sim_limits_refuse(struct limits *limits, enum limit_cause cause, struct behaviour *behaviour,
                       int64_t now_ns)
{
    int64_t ns = wait_ns(limits, cause, now_ns);

    REQUIRE(sim_refusal_apply(behaviour, refusal_names[limits->settings.dialect][cause]));
    behaviour->delay_ms = behaviour->first_ms = 0;
    behaviour->retry_after[0] = '\0';
    behaviour->retry_after_ms = NOT_GIVEN;
    if (!limits->settings.hints)
        return;
    sim_limits_hint(limits, behaviour, now_ns);
    behaviour->retry_after_ms = (uint64_t)(ns / NS_PER_MS) + 1;
}

/* ---- control --------------------------------------------------------------------------------- */

static void reset_counts(struct limits *limits, int64_t now_ns)
{
    struct window *windows[] = {&limits->minute_calls, &limits->minute_tokens,
                                &limits->second_calls, &limits->second_tokens,
                                &limits->five_seconds, &limits->thirty_five_seconds};

    for (size_t i = 0; i < LENGTH(windows); i++)
        sim_window_clear(windows[i]);
    limits->begun_ns = now_ns;
    limits->calls_max = limits->tokens_max = 0;
    limits->total = (struct limit_second){.in_flight = limits->total.in_flight};
    memset(limits->seconds, 0, sizeof limits->seconds);
}

void sim_limits_init(struct limits *limits, int64_t now_ns)
{
    limits->settings = (struct limit_settings){
        .bytes_per_token = 4,
        .first_ms = 300,
        .input_us = 100,
        .output_us = 20000,
        .tokens_per_event = 1,
    };
    limits->minute_calls.span_ns = limits->minute_tokens.span_ns = 60 * NS_PER_S;
    limits->second_calls.span_ns = limits->second_tokens.span_ns = NS_PER_S;
    limits->five_seconds.span_ns = 5 * NS_PER_S;
    limits->thirty_five_seconds.span_ns = 35 * NS_PER_S;
    reset_counts(limits, now_ns);
}

void sim_limits_release(struct limits *limits)
{
    sim_window_release(&limits->minute_calls);
    sim_window_release(&limits->minute_tokens);
    sim_window_release(&limits->second_calls);
    sim_window_release(&limits->second_tokens);
    sim_window_release(&limits->five_seconds);
    sim_window_release(&limits->thirty_five_seconds);
}

static void write_counts(const struct limit_second *row, struct body *body)
{
    sim_body_printf(body,
                    "\"attempts\":%u,\"admitted\":%u,\"done\":%u,\"in_flight\":%u,"
                    "\"admitted_tokens\":%llu,\"good_tokens\":%llu",
                    row->attempts, row->admitted, row->done, row->in_flight,
                    (unsigned long long)row->admitted_tokens, (unsigned long long)row->good_tokens);
    for (size_t i = LIMIT_RPM; i < LIMIT_CAUSES; i++)
        sim_body_printf(body, ",\"%s\":%u", cause_names[i], row->refused[i]);
}

static void write_settings(const struct limit_settings *is, struct body *body)
{
    for (size_t i = 0; i < LENGTH(settings); i++) {
        const void *field = (const char *)is + settings[i].offset;

        sim_body_printf(body, "%s\"%s\":", i ? "," : "", settings[i].name);
        switch (settings[i].kind) {
        case SETTING_NUMBER:
            sim_body_printf(body, "%llu", (unsigned long long)*(const uint64_t *)field);
            break;
        case SETTING_REAL:
            sim_body_printf(body, "%g", *(const double *)field);
            break;
        case SETTING_FLAG:
            sim_body_text(body, *(const bool *)field ? "true" : "false");
            break;
        case SETTING_DIALECT:
            sim_body_json(body, dialect_names[is->dialect]);
            break;
        }
    }
}

static void write_seconds(const struct limits *limits, int64_t now_ns, struct body *body)
{
    int64_t last = (now_ns - limits->begun_ns) / NS_PER_S;
    uint32_t in_flight = 0;

    sim_body_text(body, "[");
    for (int64_t i = 0; i <= last && i < LIMIT_SECONDS_MAX; i++) {
        struct limit_second row = limits->seconds[i];

        if (row.seen)
            in_flight = row.in_flight;
        row.in_flight = in_flight;
        sim_body_text(body, i ? ",\n{" : "{");
        write_counts(&row, body);
        sim_body_text(body, "}");
    }
    sim_body_text(body, "]\n");
}

void sim_limits_answer(struct limits *limits, const char *path, const char *query,
                       struct body *body)
{
    struct limit_settings wanted = limits->settings;
    int64_t now_ns = clock_monotonic_ns();
    char copy[1024];
    const char *bad;

    if (strcmp(path, "/limits/seconds") == 0) {
        write_seconds(limits, now_ns, body);
        return;
    }
    bad = text_copy(copy, sizeof copy, query) ? set_all(&wanted, copy) : "too long";
    if (bad) {
        sim_body_text(body, "{\"bad_key\":");
        sim_body_json(body, bad);
        sim_body_text(body, "}\n");
        return;
    }
    limits->settings = wanted;
    if (strcmp(path, "/limits/reset") == 0)
        reset_counts(limits, now_ns);
    sim_body_text(body, "{\"settings\":{");
    write_settings(&limits->settings, body);
    sim_body_printf(body, "},\"calls_in_any_minute\":%llu,\"tokens_in_any_minute\":%llu,",
                    (unsigned long long)limits->calls_max, (unsigned long long)limits->tokens_max);
    write_counts(&limits->total, body);
    sim_body_text(body, "}\n");
}
