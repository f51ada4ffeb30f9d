/* test_ratelimit_headers.c - what upstreams' heads say about their limits (F7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "worker/ratelimit_headers.h"

#include <stdio.h>

static const char *const fields[] = {"limit", "remaining"};

static int64_t told(const char *name, const char *value, enum ratelimit_unit unit, int field)
{
    struct ratelimit_headers headers;

    ratelimit_headers_begin(&headers);
    ratelimit_headers_read(&headers, name, value);
    for (int i = 0; i < RATELIMIT_UNITS; i++) {
        const struct ratelimit *row = &headers.units[i];
        const int64_t values[] = {row->limit, row->remaining};

        /* Nothing else may have been touched. */
        for (int f = 0; f < (int)LENGTH(values); f++)
            if (i != (int)unit || f != field)
                assert_int_equal(values[f], -1);
    }
    const struct ratelimit *row = &headers.units[unit];
    const int64_t values[] = {row->limit, row->remaining};

    assert_int_equal(headers.any, values[field] >= 0);
    return values[field];
}

static void F7_every_dialect_has_its_names(void **state)
{
    static const struct {
        const char *format;
        enum ratelimit_unit unit;
    } rows[] = {
        {"x-ratelimit-%s-requests", RATELIMIT_REQUESTS},
        {"X-RateLimit-%s-Tokens", RATELIMIT_TOKENS},
        {"x-ratelimit-%s-tokens-minute", RATELIMIT_TOKENS},
        {"x-ratelimit-%s-requests-minute", RATELIMIT_REQUESTS},
        {"x-ratelimit-%s-req-minute", RATELIMIT_REQUESTS},
        {"anthropic-ratelimit-requests-%s", RATELIMIT_REQUESTS},
        {"anthropic-ratelimit-tokens-%s", RATELIMIT_TOKENS},
        {"anthropic-ratelimit-input-tokens-%s", RATELIMIT_INPUT_TOKENS},
        {"anthropic-ratelimit-output-tokens-%s", RATELIMIT_OUTPUT_TOKENS},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++)
        for (int f = 0; f < (int)LENGTH(fields); f++) {
            char name[64];

            /* NOLINTNEXTLINE: the formats are the table's */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(name, sizeof name, rows[i].format, fields[f]);
#pragma GCC diagnostic pop
            assert_int_equal(told(name, "60", rows[i].unit, f), 60);
        }
}

static void F7_what_says_nothing_is_unknown(void **state)
{
    static const char *const nothing[] = {"", "-1", "abc", "-5", "1e9x", "NaN", "\xff"};

    (void)state;
    for (size_t i = 0; i < LENGTH(nothing); i++)
        for (int f = 0; f < (int)LENGTH(fields); f++) {
            char name[64];

            snprintf(name, sizeof name, "x-ratelimit-%s-tokens", fields[f]);
            assert_int_equal(told(name, nothing[i], RATELIMIT_TOKENS, f), -1);
        }
    assert_int_equal(told("x-ratelimit-limit-tokens", "0", RATELIMIT_TOKENS, 0), -1);
    assert_int_equal(told("x-ratelimit-remaining-tokens", "0", RATELIMIT_TOKENS, 1), 0);
    /* Other people's headers, limits per day, and those of which nobody knows per what. */
    assert_int_equal(told("x-ratelimit-limit", "100, 100;w=60", RATELIMIT_REQUESTS, 0), -1);
    assert_int_equal(told("x-ratelimit-remaining", "5", RATELIMIT_REQUESTS, 1), -1);
    assert_int_equal(told("x-ratelimit-reset-requests", "12ms", RATELIMIT_REQUESTS, 1), -1);
    assert_int_equal(told("x-ratelimit-limit-requests-day", "5", RATELIMIT_REQUESTS, 0), -1);
    assert_int_equal(told("x-ratelimit-limit-requests-x", "5", RATELIMIT_REQUESTS, 0), -1);
    assert_int_equal(told("x-ratelimits-limit-requests", "5", RATELIMIT_REQUESTS, 0), -1);
    assert_int_equal(told("retry-after", "5", RATELIMIT_REQUESTS, 0), -1);
}

/* Azure: limit 0 or -1 and remaining 0 do not mean that nothing is left. */
static void F7_a_limit_of_none_voids_what_remains(void **state)
{
    static const char *const limits[] = {"0", "-1"};

    (void)state;
    for (size_t i = 0; i < LENGTH(limits); i++)
        for (int order = 0; order < 2; order++) {
            struct ratelimit_headers headers;

            ratelimit_headers_begin(&headers);
            if (order == 1)
                ratelimit_headers_read(&headers, "x-ratelimit-limit-tokens", limits[i]);
            ratelimit_headers_read(&headers, "x-ratelimit-remaining-tokens", "0");
            if (order == 0)
                ratelimit_headers_read(&headers, "x-ratelimit-limit-tokens", limits[i]);
            assert_int_equal(headers.units[RATELIMIT_TOKENS].limit, -1);
            assert_int_equal(headers.units[RATELIMIT_TOKENS].remaining, -1);
        }
}

static void F7_counts(void **state)
{
    (void)state;
    assert_int_equal(told("x-ratelimit-limit-tokens", "149984", RATELIMIT_TOKENS, 0), 149984);
    assert_int_equal(told("x-ratelimit-limit-requests", "100, 100;w=60", RATELIMIT_REQUESTS, 0),
                     100);
    assert_int_equal(told("x-ratelimit-limit-requests", "12.0", RATELIMIT_REQUESTS, 0), 12);
    assert_int_equal(
        told("x-ratelimit-limit-requests", "18446744073709551615", RATELIMIT_REQUESTS, 0),
        INT64_C(1) << 50);
    assert_int_equal(
        told("x-ratelimit-limit-requests", "99999999999999999999", RATELIMIT_REQUESTS, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F7_every_dialect_has_its_names),
        cmocka_unit_test(F7_what_says_nothing_is_unknown),
        cmocka_unit_test(F7_a_limit_of_none_voids_what_remains),
        cmocka_unit_test(F7_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
