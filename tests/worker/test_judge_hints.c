/* test_judge_hints.c - every form of "try again later", and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/judge_hints.h"

#include <string.h>

#define NOW_MS INT64_C(784111777500) /* Sun, 06 Nov 1994 08:49:37.5 GMT */

static int64_t wait_said(const char *name, const char *value)
{
    struct judge_hints hints;

    judge_hints_begin(&hints);
    judge_hints_read(&hints, name, value, NOW_MS);
    return hints.retry_after_ms;
}

static void test_H3_retry_after_in_all_forms(void **state)
{
    (void)state;
    assert_int_equal(wait_said("Retry-After", "2"), 2000);
    assert_int_equal(wait_said("retry-after", "2.3"), 2300);
    assert_int_equal(wait_said("retry-after", "0.0001"), 1); /* a floor is not rounded down */
    assert_int_equal(wait_said("RETRY-AFTER", "120"), 120000);
    assert_int_equal(wait_said("retry-after", "86400"), 86400000);
    assert_int_equal(wait_said("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT"), 2500);
    assert_int_equal(wait_said("retry-after", "Sunday, 06-Nov-94 08:50:37 GMT"), 59500);
    assert_int_equal(wait_said("retry-after", "Sun Nov  6 08:49:38 1994"), 500);
    assert_int_equal(wait_said("retry-after-ms", "1500"), 1500);
    assert_int_equal(wait_said("retry-after-ms", "1500.2"), 1501);
    assert_int_equal(wait_said("X-Ms-Retry-After-Ms", "1"), 1);
}

static void test_H3_what_says_nothing(void **state)
{
    static const char *const values[] = {
        "",
        "0",
        "0.0",
        "-1",
        "-0.5",
        "nan",
        "NaN",
        "inf",
        "+5",
        "Infinity",
        "1e3",
        "5 s",
        "0x10",
        "1,5",
        "soon",
        ".5",
        "5.",
        " 5",
        "5\n",
        "1.2.3",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1970 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:40 GMT+1",
        "Sun, 99 Nov 1994 08:49:40 GMT",
    };

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_int_equal(wait_said("retry-after", values[i]), -1);
        assert_int_equal(wait_said("retry-after-ms", values[i]), -1);
    }
    assert_int_equal(wait_said("x-retry-after", "5"), -1);
}

/* Nothing is beyond the bound, and nothing overflows on the way to it. */
static void test_H3_absurd_waits_are_bounded(void **state)
{
    char digits[5000];

    (void)state;
    memset(digits, '9', sizeof digits);
    digits[sizeof digits - 1] = '\0';
    assert_int_equal(wait_said("retry-after", digits), JUDGE_WAIT_MAX_MS);
    assert_int_equal(wait_said("retry-after", "Sun, 06 Nov 9999 08:49:40 GMT"), JUDGE_WAIT_MAX_MS);
    memcpy(digits + sizeof digits - 2, "s", 2);
    assert_int_equal(judge_hints_duration_ms(digits), JUDGE_WAIT_MAX_MS);
    memset(digits, '0', sizeof digits - 2);
    digits[1] = '.';
    assert_int_equal(judge_hints_duration_ms(digits), -1);
}

/* Milliseconds first, wherever they stand; a worthless one leaves the word to the next. */
static void test_H3_order_of_headers(void **state)
{
    struct judge_hints hints;

    (void)state;
    judge_hints_begin(&hints);
    judge_hints_read(&hints, "retry-after", "20", NOW_MS);
    judge_hints_read(&hints, "x-ms-retry-after-ms", "19500", NOW_MS);
    assert_int_equal(hints.retry_after_ms, 19500);
    judge_hints_read(&hints, "retry-after-ms", "0", NOW_MS);
    assert_int_equal(hints.retry_after_ms, 19500);
    judge_hints_read(&hints, "retry-after-ms", "19000", NOW_MS);
    judge_hints_read(&hints, "x-ms-retry-after-ms", "3", NOW_MS);
    judge_hints_read(&hints, "retry-after", "1", NOW_MS);
    judge_hints_read(&hints, "retry-after-ms", "5", NOW_MS); /* the first of the same name */
    assert_int_equal(hints.retry_after_ms, 19000);
    assert_int_equal(hints.now_wall_ms, NOW_MS);
}

static int should_retry(const char *value)
{
    struct judge_hints hints;

    judge_hints_begin(&hints);
    judge_hints_read(&hints, "X-Should-Retry", value, NOW_MS);
    return hints.should_retry;
}

static void test_should_retry(void **state)
{
    (void)state;
    assert_int_equal(should_retry("true"), 1);
    assert_int_equal(should_retry("TRUE"), 1);
    assert_int_equal(should_retry("false"), 0);
    assert_int_equal(should_retry("maybe"), -1);
    assert_int_equal(should_retry(""), -1);
}

static bool from_proxy(const char *name, const char *value)
{
    struct judge_hints hints;

    judge_hints_begin(&hints);
    judge_hints_read(&hints, name, value, NOW_MS);
    return hints.intermediary;
}

static void test_heads_of_intermediaries(void **state)
{
    (void)state;
    assert_true(from_proxy("Via", "1.1 google"));
    assert_false(from_proxy("via", ""));
    assert_true(from_proxy("Server", "nginx/1.22.1"));
    assert_true(from_proxy("server", "istio-envoy"));
    assert_true(from_proxy("server", "Caddy"));
    assert_true(from_proxy("server", "Microsoft-Azure-Application-Gateway/v2"));
    assert_false(from_proxy("server", "uvicorn"));
    assert_false(from_proxy("server", ""));
    assert_true(from_proxy("content-type", "text/html; charset=utf-8"));
    assert_false(from_proxy("content-type", "application/json"));
}

static void test_exhausted_dimension(void **state)
{
    struct judge_hints hints;

    (void)state;
    judge_hints_begin(&hints);
    assert_int_equal(hints.exhausted, THROTTLE_UNKNOWN);
    judge_hints_read(&hints, "x-ratelimit-remaining-tokens", "10", NOW_MS);
    judge_hints_read(&hints, "x-ratelimit-remaining-requests", "", NOW_MS);
    assert_int_equal(hints.exhausted, THROTTLE_UNKNOWN);
    judge_hints_read(&hints, "X-RateLimit-Remaining-Requests", "0", NOW_MS);
    assert_int_equal(hints.exhausted, THROTTLE_REQUESTS);
    judge_hints_read(&hints, "anthropic-ratelimit-input-tokens-remaining", "0", NOW_MS);
    assert_int_equal(hints.exhausted, THROTTLE_TOKENS);
}

static void test_durations(void **state)
{
    static const char *const none[] = {"",   "s",    "5",    "-5s", "5 parsecs", "5s!",
                                       "0s", "infs", "nans", " 5s", "5s5"};

    (void)state;
    assert_int_equal(judge_hints_duration_ms("37s"), 37000);
    assert_int_equal(judge_hints_duration_ms("37.25s"), 37250);
    assert_int_equal(judge_hints_duration_ms("6m0s"), 360000);
    assert_int_equal(judge_hints_duration_ms("120ms"), 120);
    assert_int_equal(judge_hints_duration_ms("1h2m3s"), 3723000);
    assert_int_equal(judge_hints_duration_ms("2d"), 172800000);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(judge_hints_duration_ms(none[i]), -1);
}

static void test_sentences(void **state)
{
    (void)state;
    assert_int_equal(judge_hints_sentence_ms("Please try again in 2.5s."), 2500);
    assert_int_equal(judge_hints_sentence_ms("Try again in 2500ms"), 2500);
    assert_int_equal(judge_hints_sentence_ms("x. Please retry in 37.1s.\n"), 37100);
    assert_int_equal(judge_hints_sentence_ms("Please retry after 20 seconds. 5 s"), 20000);
    assert_int_equal(judge_hints_sentence_ms("try again in 7m12s, or pay"), 432000);
    assert_int_equal(judge_hints_sentence_ms("try again in 1 hour 5 minutes"), 3900000);
    assert_int_equal(judge_hints_sentence_ms("try again in 5 m"), 300000);
    assert_int_equal(judge_hints_sentence_ms("try again in a while; try again in 3s"), 3000);
    assert_int_equal(judge_hints_sentence_ms("try again in 0s"), -1);
    assert_int_equal(judge_hints_sentence_ms("try again in 5"), -1);
    assert_int_equal(judge_hints_sentence_ms("try again in -5s"), -1);
    assert_int_equal(judge_hints_sentence_ms("try again in infs"), -1);
    assert_int_equal(judge_hints_sentence_ms("try again later"), -1);
    assert_int_equal(judge_hints_sentence_ms(""), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H3_retry_after_in_all_forms),
        cmocka_unit_test(test_H3_what_says_nothing),
        cmocka_unit_test(test_H3_absurd_waits_are_bounded),
        cmocka_unit_test(test_H3_order_of_headers),
        cmocka_unit_test(test_should_retry),
        cmocka_unit_test(test_heads_of_intermediaries),
        cmocka_unit_test(test_exhausted_dimension),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_sentences),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
