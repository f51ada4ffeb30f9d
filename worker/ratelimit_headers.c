/* ratelimit_headers.c - the headers in which upstreams tell their limits; see ratelimit_headers.h. */
#include "worker/ratelimit_headers.h"

#include "base/check.h"
#include "base/parse.h"
#include "base/text.h"

#include <string.h>
#include <strings.h>

#define COUNT_MAX (INT64_C(1) << 50) /* what is larger is taken as this */

enum fact { FACT_LIMIT, FACT_REMAINING };

struct header {
    const char *name; /* behind its prefix */
    enum ratelimit_unit unit;
    enum fact fact;
};

static const char openai[] = "x-ratelimit-";
static const char anthropic[] = "anthropic-ratelimit-";

#define OPENAI(name, unit)                                                                         \
    {"limit" name, unit, FACT_LIMIT},                                                              \
    {                                                                                              \
        "remaining" name, unit, FACT_REMAINING                                                     \
    }
#define ANTHROPIC(name, unit)                                                                      \
    {name "-limit", unit, FACT_LIMIT},                                                             \
    {                                                                                              \
        name "-remaining", unit, FACT_REMAINING                                                    \
    }

/* The "-minute" ones are Cerebras's and Mistral's. Those per day are left out, as no bucket of ours fills
 * over a day; so are the bare x-ratelimit-limit and its kind, of a second, a minute, an hour or a day. */
static const struct header openai_headers[] = {
    OPENAI("-requests", RATELIMIT_REQUESTS),        OPENAI("-tokens", RATELIMIT_TOKENS),
    OPENAI("-requests-minute", RATELIMIT_REQUESTS), OPENAI("-req-minute", RATELIMIT_REQUESTS),
    OPENAI("-tokens-minute", RATELIMIT_TOKENS),
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
        headers->units[i] = (struct ratelimit){.limit = -1, .remaining = -1};
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
                      const char *value)
{
    struct ratelimit *unit = &headers->units[header->unit];

    switch (header->fact) {
    case FACT_LIMIT:
        take_limit(unit, value);
        break;
    case FACT_REMAINING:
        unit->remaining = unit->void_limit ? -1 : read_count(value);
        break;
    }
    headers->any = headers->any || unit->limit >= 0 || unit->remaining >= 0;
}

void ratelimit_headers_read(struct ratelimit_headers *headers, const char *name, const char *value)
{
    const char first = name[0] | 0x20; /* most headers are neither's */
    bool is_openai = first == openai[0] && strncasecmp(name, openai, sizeof openai - 1) == 0;
    bool is_anthropic =
        first == anthropic[0] && strncasecmp(name, anthropic, sizeof anthropic - 1) == 0;
    const struct header *header = is_openai ? openai_headers : anthropic_headers;
    size_t count = is_openai ? LENGTH(openai_headers) : LENGTH(anthropic_headers);

    if (!is_openai && !is_anthropic)
        return;
    name += is_openai ? sizeof openai - 1 : sizeof anthropic - 1;
    for (size_t i = 0; i < count; i++, header++)
        if (text_same_name(name, header->name))
            take_fact(headers, header, value);
}
