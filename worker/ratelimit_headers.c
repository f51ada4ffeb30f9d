/* ratelimit_headers.c - the headers in which upstreams tell their limits; see ratelimit_headers.h. */
#include "worker/ratelimit_headers.h"

#include "base/check.h"
#include "base/parse.h"
#include "base/text.h"
#include "worker/judge_hints.h"

#include <string.h>
#include <strings.h>
#include <time.h>

#define COUNT_MAX (INT64_C(1) << 50)           /* what is larger is taken as this */
#define CLOCK_SECONDS_MIN UINT64_C(1000000000) /* in 2001 */
#define CLOCK_MS_MIN UINT64_C(100000000000)

enum fact { FACT_LIMIT, FACT_REMAINING, FACT_RESET };

struct header {
    const char *name; /* behind its prefix */
    enum ratelimit_unit unit;
    enum fact fact;
};

static const char openai[] = "x-ratelimit-";
static const char anthropic[] = "anthropic-ratelimit-";

#define OPENAI(name, unit)                                                                         \
    {"limit" name, unit, FACT_LIMIT}, {"remaining" name, unit, FACT_REMAINING},                    \
    {                                                                                              \
        "reset" name, unit, FACT_RESET                                                             \
    }
#define ANTHROPIC(name, unit)                                                                      \
    {name "-limit", unit, FACT_LIMIT}, {name "-remaining", unit, FACT_REMAINING},                  \
    {                                                                                              \
        name "-reset", unit, FACT_RESET                                                            \
    }

/* The "-minute" ones are Cerebras's and Mistral's; the bare ones OpenRouter's and others'. Those per day
 * are left out: no bucket of ours fills over a day. */
static const struct header openai_headers[] = {
    OPENAI("-requests", RATELIMIT_REQUESTS),        OPENAI("-tokens", RATELIMIT_TOKENS),
    OPENAI("-requests-minute", RATELIMIT_REQUESTS), OPENAI("-req-minute", RATELIMIT_REQUESTS),
    OPENAI("-tokens-minute", RATELIMIT_TOKENS),     OPENAI("", RATELIMIT_REQUESTS),
};

static const struct header anthropic_headers[] = {
    ANTHROPIC("requests", RATELIMIT_REQUESTS),
    ANTHROPIC("tokens", RATELIMIT_TOKENS),
    ANTHROPIC("input-tokens", RATELIMIT_INPUT_TOKENS),
    ANTHROPIC("output-tokens", RATELIMIT_OUTPUT_TOKENS),
};

void ratelimit_headers_begin(struct ratelimit_headers *headers)
{
    headers->any = false;
    for (size_t i = 0; i < RATELIMIT_UNITS; i++)
        headers->units[i] = (struct ratelimit){.limit = -1, .remaining = -1, .reset_ms = -1};
}

/* ---- values ---------------------------------------------------------------------------------- */

/* "60", also "60, 60;w=60" as some write it; -1 = none. */
static int64_t read_count(const char *value)
{
    size_t length = strspn(value, "0123456789");
    uint64_t number;

    if (value[length] != '\0' && !strchr(",; .", value[length]))
        return -1;
    if (!parse_u64_bytes(value, length, &number))
        return -1;
    return number > (uint64_t)COUNT_MAX ? COUNT_MAX : (int64_t)number;
}

/* "2026-11-30T14:05:00Z", "2026-11-30T14:05:00.25+01:00", in milliseconds since 1970. */
static bool read_date(const char *value, int64_t *ret_ms)
{
    struct tm date = {0};
    const char *at = strptime(value, "%Y-%m-%dT%H:%M:%S", &date);
    int64_t minutes = 0, ms = 0, unit = 100;

    if (!at)
        return false;
    if (*at == '.')
        for (at++; *at >= '0' && *at <= '9'; at++, unit /= 10)
            ms += (*at - '0') * unit;
    if (*at == '+' || *at == '-') {
        struct tm zone = {0};
        const char *behind = strptime(at + 1, "%H:%M", &zone);

        if (!behind)
            return false;
        minutes = (INT64_C(60) * zone.tm_hour + zone.tm_min) * (*at == '+' ? 1 : -1);
        at = behind;
    } else if (*at == 'Z' || *at == 'z') {
        at++;
    }
    *ret_ms = ((int64_t)timegm(&date) - minutes * 60) * 1000 + ms;
    return *at == '\0';
}

/* A number: seconds from now, or the clock's in seconds or milliseconds; they are far apart. */
static int64_t read_number_ms(const char *value, int64_t now_wall_ms)
{
    uint64_t clock;
    int64_t ms;

    if (parse_u64(value, &clock) && clock >= CLOCK_SECONDS_MIN)
        return clock > (uint64_t)COUNT_MAX
                   ? -1
                   : (int64_t)clock * (clock < CLOCK_MS_MIN ? 1000 : 1) - now_wall_ms;
    return parse_duration_ms(value, 1000, &ms) ? ms : -1;
}

static int64_t read_reset_ms(const char *value, int64_t now_wall_ms)
{
    int64_t ms = judge_hints_duration_ms(value);
    int64_t date_ms;

    if (ms < 0 && read_date(value, &date_ms))
        ms = date_ms - now_wall_ms;
    else if (ms < 0)
        ms = read_number_ms(value, now_wall_ms);
    if (ms <= 0)
        return -1;
    return ms > JUDGE_WAIT_MAX_MS ? JUDGE_WAIT_MAX_MS : ms;
}

/* ---- headers --------------------------------------------------------------------------------- */

static void take_limit(struct ratelimit *unit, const char *value)
{
    int64_t limit = read_count(value);

    if (limit <= 0) {
        /* -1 or 0: whatever stands beside it says nothing either. */
        unit->void_limit = true;
        unit->remaining = -1;
        return;
    }
    unit->limit = limit;
}

static void take_fact(struct ratelimit_headers *headers, const struct header *header,
                      const char *value, int64_t now_wall_ms)
{
    struct ratelimit *unit = &headers->units[header->unit];

    switch (header->fact) {
    case FACT_LIMIT:
        take_limit(unit, value);
        break;
    case FACT_REMAINING:
        unit->remaining = unit->void_limit ? -1 : read_count(value);
        break;
    case FACT_RESET:
        unit->reset_ms = read_reset_ms(value, now_wall_ms);
        break;
    }
    headers->any = headers->any || unit->limit >= 0 || unit->remaining >= 0 || unit->reset_ms >= 0;
}

void ratelimit_headers_read(struct ratelimit_headers *headers, const char *name, const char *value,
                            int64_t now_wall_ms)
{
    bool is_openai = strncasecmp(name, openai, sizeof openai - 1) == 0;
    bool is_anthropic = strncasecmp(name, anthropic, sizeof anthropic - 1) == 0;
    const struct header *header = is_openai ? openai_headers : anthropic_headers;
    size_t count = is_openai ? LENGTH(openai_headers) : LENGTH(anthropic_headers);

    if (!is_openai && !is_anthropic)
        return;
    name += is_openai ? sizeof openai - 1 : sizeof anthropic - 1;
    for (size_t i = 0; i < count; i++, header++)
        if (text_same_name(name, header->name))
            take_fact(headers, header, value, now_wall_ms);
}
