/* test_hedge_advice.c - thresholds for hedging (H18, H19), on distributions whose answer is known. */
#include "tests/shared/ledger_fixture.h"

#include "worker/hedge_advice.h"

#include <math.h>

static struct hedge_advice advise(struct hedge_sample *samples, size_t count)
{
    struct hedge_advice advice;

    hedge_advice_make(samples, count, &advice);
    return advice;
}

static void assert_threshold(const struct hedge_advice *advice, unsigned which, int percent,
                             int64_t after_ms, int64_t p99_ms)
{
    assert_int_equal(advice->thresholds[which].percent, percent);
    assert_int_equal(advice->thresholds[which].after_ms, after_ms);
    assert_int_equal(advice->thresholds[which].p99_ms, p99_ms);
}

/* 1, 2, ... 1000 ms: S(x) = (1000 - x) / 1000. Nobody gains much: whoever is late stays within 1 s. */
static void evenly_spread_H19(void **state)
{
    static struct hedge_sample samples[1000];
    struct hedge_advice advice;

    (void)state;
    for (size_t i = 0; i < LENGTH(samples); i++)
        samples[i] = (struct hedge_sample){.ms = (int64_t)((i * 37) % 1000) + 1};
    advice = advise(samples, LENGTH(samples));
    assert_int_equal(advice.attempts, 1000);
    assert_int_equal(advice.given_up, 0);
    assert_int_equal(advice.p50_ms, 500);
    assert_int_equal(advice.p95_ms, 950);
    assert_int_equal(advice.p99_ms, 990);
    assert_threshold(&advice, 0, 1, 990, 990);
    assert_threshold(&advice, 1, 2, 980, 990); /* 10/1000 * 990/1000 <= 1 % < 11/1000 * 991/1000 */
    assert_threshold(&advice, 2, 5, 950, 990); /* 10/1000 * 960/1000 <= 1 % < 11/1000 * 961/1000 */
}

/* What hedging is for: 96 of 100 take 100 ms, 4 hang for 10 s. Both hang in 0.16 %. */
static void a_few_that_hang_H19(void **state)
{
    static struct hedge_sample samples[1000];
    struct hedge_advice advice;

    (void)state;
    for (size_t i = 0; i < LENGTH(samples); i++)
        samples[i].ms = i % 25 == 0 ? 10000 : 100;
    advice = advise(samples, LENGTH(samples));
    assert_int_equal(advice.p95_ms, 100);
    assert_int_equal(advice.p99_ms, 10000);
    assert_threshold(&advice, 0, 1, 10000, 10000);
    assert_threshold(&advice, 2, 5, 100, 200);
}

/* Finagle: what superseded attempts took is recorded, else the quantiles drift down. Here the hedge was
 * sent after 100 ms and won after 150: all that hung was given up then. */
static void losers_do_not_drag_it_down_H19(void **state)
{
    static struct hedge_sample samples[1000];
    struct hedge_advice advice;

    (void)state;
    for (size_t i = 0; i < LENGTH(samples); i++)
        samples[i] = i % 25 == 0 ? (struct hedge_sample){.ms = 150, .at_least = true}
                                 : (struct hedge_sample){.ms = 100};
    advice = advise(samples, LENGTH(samples));
    assert_int_equal(advice.given_up, 40);
    assert_int_equal(advice.p95_ms, 100);
    assert_int_equal(advice.p99_ms, -1); /* neither 100 nor 150: nobody knows */
    assert_int_equal(advice.longest_ms, 150);
    assert_threshold(&advice, 0, 1, -1, -1);
    assert_threshold(&advice, 2, 5, 100, 200);

    /* Half of them were let run: they speak for the other half. */
    for (size_t i = 0; i < LENGTH(samples); i++)
        samples[i] = i % 25 != 0   ? (struct hedge_sample){.ms = 100}
                     : i % 50 == 0 ? (struct hedge_sample){.ms = 10000}
                                   : (struct hedge_sample){.ms = 150, .at_least = true};
    advice = advise(samples, LENGTH(samples));
    assert_int_equal(advice.p99_ms, 10000);
}

/* Freireich et al. (1963), the usual example of the estimate: 6-mercaptopurine, weeks of remission, + =
 * at least. */
static void the_estimate_is_that_of_the_textbooks(void **state)
{
    struct hedge_sample samples[] = {
        {6, true, 0},   {6, false, 0}, {6, false, 0},  {6, false, 0}, {7, false, 0},
        {9, true, 0},   {10, true, 0}, {10, false, 0}, {11, true, 0}, {13, false, 0},
        {16, false, 0}, {17, true, 0}, {19, true, 0},  {20, true, 0}, {22, false, 0},
        {23, false, 0}, {25, true, 0}, {32, true, 0},  {32, true, 0}, {34, true, 0},
        {35, true, 0},
    };
    static const struct {
        int64_t ms;
        double longer;
    } known[] = {{6, 0.857},  {7, 0.807},  {9, 0.807},  {10, 0.753}, {13, 0.690},
                 {16, 0.627}, {22, 0.538}, {23, 0.448}, {35, 0.448}};
    struct hedge_advice advice = advise(samples, LENGTH(samples));

    (void)state;
    assert_int_equal(advice.given_up, 12);
    assert_int_equal(advice.p50_ms, 23);
    for (size_t i = 0; i < LENGTH(known); i++)
        for (size_t k = 0; k < LENGTH(samples); k++)
            if (samples[k].ms == known[i].ms)
                assert_true(fabs(samples[k].longer - known[i].longer) < 0.0006);
}

/* The p99 with hedges, against all pairs of an original and a hedge, one by one. */
static void the_model_is_what_all_pairs_yield_H19(void **state)
{
    static struct hedge_sample samples[500];
    struct hedge_advice advice;

    (void)state;
    for (size_t i = 0; i < LENGTH(samples); i++) /* few long ones, many short ones */
        samples[i].ms = (int64_t)(20 + i * i * i / 25000 + i % 7);
    advice = advise(samples, LENGTH(samples));
    for (size_t which = 0; which < HEDGE_ADVICE_LOADS; which++) {
        const struct hedge_threshold *threshold = &advice.thresholds[which];
        size_t late = 0;
        size_t just_as_late = 0;
        size_t hedges = 0;

        for (size_t i = 0; i < LENGTH(samples); i++) {
            hedges += samples[i].ms > threshold->after_ms;
            for (size_t k = 0; k < LENGTH(samples); k++) {
                int64_t hedged = threshold->after_ms + samples[k].ms;
                int64_t faster = samples[i].ms < hedged ? samples[i].ms : hedged;

                late += faster > threshold->p99_ms;
                just_as_late += faster >= threshold->p99_ms;
            }
        }
        assert_true(hedges * 100 <= LENGTH(samples) * (size_t)threshold->percent);
        assert_true(late * 100 <= LENGTH(samples) * LENGTH(samples));
        assert_true(just_as_late * 100 > LENGTH(samples) * LENGTH(samples));
        assert_true(threshold->p99_ms <= advice.p99_ms);
    }
}

/* ---- from a ledger --------------------------------------------------------------------------- */

#define NOW_MS (ARRIVED_WALL_MS + INT64_C(3600000))

static unsigned next_call;

static void put_chats(struct fixture *fixture, const char *scope, bool stream, unsigned count)
{
    assert_true(ledger_begin(fixture->ledger));
    for (unsigned i = 0; i < count; i++) {
        struct call_record call = call_of(++next_call, ARRIVED_WALL_MS);
        struct attempt_record attempt = attempt_of(call.call_id, 1, "");

        (void)text_copy(call.kind, sizeof call.kind, "chat");
        (void)text_copy(call.scope, sizeof call.scope, scope);
        call.stream = stream;
        attempt.ttft_ms = (i * 7) % count * 1000 / count; /* 0..999 */
        attempt.generation_ms = attempt.ttft_ms + 5000;
        assert_true(ledger_put_calls(fixture->ledger, (const struct call_record *[]){&call}, 1));
        assert_true(ledger_put_attempt(fixture->ledger, &attempt));
    }
    assert_true(ledger_commit(fixture->ledger));
}

static bool report(struct fixture *fixture, const char *scope, bool json)
{
    const struct hedge_advice_wish wish = {
        .state_directory = fixture->directory, .scope = scope, .json = json, .now_wall_ms = NOW_MS};
    struct text out;
    bool advised;

    text_init(&out, sizeof fixture->answer - 1);
    text_clear(&fixture->why);
    advised = hedge_advice_report(&wish, &out, &fixture->why);
    (void)text_copy(fixture->answer, sizeof fixture->answer, text_string(&out));
    text_release(&out);
    return advised;
}

#define assert_has(text, part) assert_non_null(strstr(text, part))

static void each_scope_and_kind_has_its_own_advice_H19(void **state)
{
    struct fixture *fixture = *state;

    put_chats(fixture, "main", true, 200);
    put_chats(fixture, "main", false, 100);
    put_chats(fixture, "b", true, 99); /* one too few */
    assert_true(report(fixture, NULL, false));
    assert_string_equal(
        fixture->answer,
        "chat calls since 2026-11-23T11:00:00.000Z\n"
        "\nb, streams (seconds to the first content): 99 attempts, 0 of them given up before "
        "their end\n"
        "  too few: advice needs at least 100\n"
        "\nmain, streams (seconds to the first content): 200 attempts, 0 of them given up before "
        "their end\n"
        "  now: p50 0.495, p95 0.945, p99 0.985\n"
        "  extra load  hedge_after_s   p99 would be\n"
        "         1 %          0.985          0.985\n"
        "         2 %          0.975          0.985\n"
        "         5 %          0.945          0.985\n"
        "\nmain, not streamed (seconds to the last byte): 100 attempts, 0 of them given up before "
        "their end\n"
        "  now: p50 5.490, p95 5.940, p99 5.980\n"
        "  extra load  hedge_after_s   p99 would be\n"
        "         1 %          5.980          5.980\n"
        "         2 %          5.970          5.980\n"
        "         5 %          5.940          5.980\n");
    assert_true(report(fixture, "main", true));
    assert_has(fixture->answer,
               "{\"since\":\"2026-11-23T11:00:00.000Z\",\"complete\":true,\"scopes\":["
               "{\"scope\":\"main\",\"stream\":true,\"attempts\":200,\"given_up\":0,"
               "\"enough\":true,\"longest_ms\":995,\"p50_ms\":495,\"p95_ms\":945,\"p99_ms\":985,"
               "\"thresholds\":[{\"extra_load_percent\":1,\"hedge_after_ms\":985,\"p99_ms\":985},");
    assert_null(strstr(fixture->answer, "\"b\""));
}

static void too_few_calls_yield_no_advice_H19(void **state)
{
    struct fixture *fixture = *state;

    put_chats(fixture, "main", true, 99);
    assert_false(report(fixture, "main", false));
    assert_has(fixture->answer, "too few: advice needs at least 100");
    assert_has(text_string(&fixture->why), "fewer than 100 attempts of chat calls in scope main");
    assert_false(report(fixture, "other", true));
    assert_has(fixture->answer, "\"scopes\":[]}");
    assert_has(text_string(&fixture->why), "no attempts of chat calls in scope other");
    assert_has(text_string(&fixture->why), "is there a scope of that name?");
    put_chats(fixture, "main", true, 1);
    assert_true(report(fixture, "main", false));
}

static void without_a_ledger_the_reason_is_told(void **state)
{
    struct fixture *fixture = *state;
    char whole[sizeof fixture->directory];

    (void)text_copy(whole, sizeof whole, fixture->directory);
    (void)text_copy(fixture->directory, sizeof fixture->directory, "/nonexistent");
    assert_false(report(fixture, NULL, false));
    assert_has(text_string(&fixture->why), "/nonexistent/ledger.db cannot be opened");
    (void)text_copy(fixture->directory, sizeof fixture->directory, whole);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evenly_spread_H19),
        cmocka_unit_test(a_few_that_hang_H19),
        cmocka_unit_test(losers_do_not_drag_it_down_H19),
        cmocka_unit_test(the_estimate_is_that_of_the_textbooks),
        cmocka_unit_test(the_model_is_what_all_pairs_yield_H19),
        TEST(each_scope_and_kind_has_its_own_advice_H19),
        TEST(too_few_calls_yield_no_advice_H19),
        TEST(without_a_ledger_the_reason_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
