/* judge_hints.c - when to try again, from headers and sentences; see judge_hints.h. */
#include "worker/judge_hints.h"

#include "base/parse.h"
#include "base/text.h"

#include <string.h>
#include <time.h>

void judge_hints_begin(struct judge_hints *hints)
{
    *hints = (struct judge_hints){.retry_after_ms = -1, .should_retry = -1};
}

/* ---- numbers and units ----------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    char lower = (char)(c | 0x20);

    return lower >= 'a' && lower <= 'z';
}

/* "12" or "12.5"; no sign, no exponent, so that NaN, inf and what is below zero are none. */
static bool read_number(const char **at, double *ret_number)
{
    const char *p = *at;
    double number = 0, scale = 1;

    if (!is_digit(*p))
        return false;
    for (; is_digit(*p); p++)
        number = number * 10 + (*p - '0');
    if (*p == '.' && is_digit(p[1])) {
        for (p++; is_digit(*p); p++) {
            scale /= 10;
            number += (*p - '0') * scale;
        }
    }
    *at = p;
    *ret_number = number;
    return true;
}

/* Upwards to the next millisecond: a wait is a floor. -1 = nothing to wait. */
static int64_t bounded_ms(double ms)
{
    if (!(ms > 0))
        return -1;
    if (ms >= (double)JUDGE_WAIT_MAX_MS)
        return JUDGE_WAIT_MAX_MS;
    int64_t whole = (int64_t)ms;

    /* 2.3 s are 2300 ms, though the sum of their digits is a little more. */
    return whole + (ms - (double)whole > 1e-6);
}

static const struct {
    const char *name;
    double ms;
} units[] = {
    {"ms", 1},         {"millisecond", 1}, {"milliseconds", 1}, {"s", 1e3},     {"sec", 1e3},
    {"secs", 1e3},     {"second", 1e3},    {"seconds", 1e3},    {"m", 60e3},    {"min", 60e3},
    {"mins", 60e3},    {"minute", 60e3},   {"minutes", 60e3},   {"h", 3600e3},  {"hr", 3600e3},
    {"hrs", 3600e3},   {"hour", 3600e3},   {"hours", 3600e3},   {"d", 86400e3}, {"day", 86400e3},
    {"days", 86400e3},
};

static bool read_unit(const char **at, double *ret_ms)
{
    size_t length = 0;

    while (is_letter((*at)[length]))
        length++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strlen(units[i].name) == length && strncasecmp(*at, units[i].name, length) == 0) {
            *at += length;
            *ret_ms = units[i].ms;
            return true;
        }
    }
    return false;
}

/* "7m12s", "20 seconds", "1 h 5 m": *at is left behind the last unit. */
static bool read_duration(const char **at, double *ret_ms)
{
    const char *p = *at;
    double sum = 0, number, unit;
    bool any = false;

    while (read_number(&p, &number)) {
        p += *p == ' ';
        if (!read_unit(&p, &unit))
            break;
        sum += number * unit;
        any = true;
        *at = p;
        p += *p == ' ';
    }
    *ret_ms = sum;
    return any;
}

int64_t judge_hints_duration_ms(const char *duration)
{
    double ms;

    return read_duration(&duration, &ms) && *duration == '\0' ? bounded_ms(ms) : -1;
}

int64_t judge_hints_sentence_ms(const char *sentence)
{
    static const char *const phrases[] = {"try again in ", "retry in ", "retry after ",
                                          "try again after "};

    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++) {
        const char *at = sentence;

        while ((at = strcasestr(at, phrases[i])) != NULL) {
            double ms;

            at += strlen(phrases[i]);
            const char *behind = at;
            if (read_duration(&behind, &ms) && ms > 0)
                return bounded_ms(ms);
        }
    }
    return -1;
}

/* ---- headers --------------------------------------------------------------------------------- */

static int64_t number_ms(const char *value, double unit_ms)
{
    double number;

    return read_number(&value, &number) && *value == '\0' ? bounded_ms(number * unit_ms) : -1;
}

static int64_t milliseconds(const char *value, int64_t now_wall_ms)
{
    (void)now_wall_ms;
    return number_ms(value, 1);
}

/* Seconds, or one of the three dates of RFC 9110 (5.6.7). */
static int64_t seconds_or_date(const char *value, int64_t now_wall_ms)
{
    static const char *const formats[] = {"%a, %d %b %Y %T GMT", "%a, %d-%b-%y %T GMT",
                                          "%a %b %e %T %Y"};

    if (is_digit(*value))
        return number_ms(value, 1e3);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct tm date = {0};
        const char *end = strptime(value, formats[i], &date);

        if (end && *end == '\0') {
            time_t at = timegm(&date);

            return bounded_ms((double)at * 1e3 - (double)now_wall_ms);
        }
    }
    return -1;
}

static const struct {
    const char *name;
    int rank;
    int64_t (*read)(const char *value, int64_t now_wall_ms);
} waits[] = {
    {"retry-after-ms", 3, milliseconds},
    {"x-ms-retry-after-ms", 2, milliseconds},
    {"retry-after", 1, seconds_or_date},
};

static const struct {
    const char *name;
    enum throttle_dimension dimension;
} remainders[] = {
    {"x-ratelimit-remaining-requests", THROTTLE_REQUESTS},
    {"x-ratelimit-remaining-tokens", THROTTLE_TOKENS},
    {"anthropic-ratelimit-requests-remaining", THROTTLE_REQUESTS},
    {"anthropic-ratelimit-tokens-remaining", THROTTLE_TOKENS},
    {"anthropic-ratelimit-input-tokens-remaining", THROTTLE_TOKENS},
    {"anthropic-ratelimit-output-tokens-remaining", THROTTLE_TOKENS},
};

/* Heads that web servers, load balancers and content networks write. An application behind one
 * often has these, too: they count only where the body is not the upstream's own. */
static const struct {
    const char *name, *value;
} proxy_marks[] = {
    {"via", "?*"},          {"cf-ray", "?*"},          {"x-amz-cf-id", "?*"},
    {"x-azure-ref", "?*"},  {"x-served-by", "?*"},     {"content-type", "text/html*"},
    {"server", "nginx*"},   {"server", "openresty*"},  {"server", "tengine*"},
    {"server", "*envoy*"},  {"server", "cloudflare*"}, {"server", "cloudfront*"},
    {"server", "awselb*"},  {"server", "haproxy*"},    {"server", "caddy*"},
    {"server", "varnish*"}, {"server", "*akamai*"},    {"server", "apache*"},
    {"server", "squid*"},   {"server", "traefik*"},    {"server", "kong*"},
    {"server", "apisix*"},  {"server", "*gateway*"},   {"server", "google frontend*"},
};

void judge_hints_read(struct judge_hints *hints, const char *name, const char *value,
                      int64_t now_wall_ms)
{
    hints->now_wall_ms = now_wall_ms;
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        if (waits[i].rank <= hints->rank || !text_same_name(name, waits[i].name))
            continue;
        int64_t wait_ms = waits[i].read(value, now_wall_ms);
        if (wait_ms > 0) {
            hints->retry_after_ms = wait_ms;
            hints->rank = waits[i].rank;
        }
    }
    for (size_t i = 0; i < sizeof remainders / sizeof *remainders; i++)
        if (text_same_name(name, remainders[i].name) && strcmp(value, "0") == 0)
            hints->exhausted = remainders[i].dimension;
    if (text_same_name(name, "x-should-retry"))
        hints->should_retry = text_same_name(value, "true")    ? 1
                              : text_same_name(value, "false") ? 0
                                                               : -1;
    for (size_t i = 0; i < sizeof proxy_marks / sizeof *proxy_marks; i++)
        if (text_same_name(name, proxy_marks[i].name) &&
            parse_glob_matches(proxy_marks[i].value, value, strlen(value)))
            hints->intermediary = true;
}
