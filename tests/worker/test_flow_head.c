/* test_flow_head.c - what answers' heads say of quotas reaches the flow of the attempt that they answer
 * (F7). What becomes of it is in tests/shared/test_flow_told.c. */
#include "tests/worker/flow_house.h"

#include "worker/flow_head.h"

static struct flow_told told(enum flow_unit unit, const char *const lines[])
{
    struct ratelimit_headers headers;

    ratelimit_headers_begin(&headers);
    for (size_t i = 0; lines[i]; i += 2)
        ratelimit_headers_read(&headers, lines[i], lines[i + 1]);
    return flow_head_told(&headers, unit);
}

static void assert_told(struct flow_told_quota quota, int64_t limit, int64_t left)
{
    assert_int_equal(quota.limit, limit);
    assert_int_equal(quota.left, left);
}

static void f7_tokens_are_told_to_who_counts_tokens(void **state)
{
    static const char *const lines[] = {"x-ratelimit-limit-requests",
                                        "60",
                                        "x-ratelimit-remaining-requests",
                                        "59",
                                        "x-ratelimit-limit-tokens",
                                        "900",
                                        "x-ratelimit-remaining-tokens",
                                        "0",
                                        "x-ratelimit-limit-requests-day",
                                        "5",
                                        NULL};

    (void)state;
    assert_told(told(FLOW_UNIT_TOKENS, lines).requests, 60, 59);
    assert_told(told(FLOW_UNIT_TOKENS, lines).units, 900, 0);
    assert_told(told(FLOW_UNIT_IMAGES, lines).requests, 60, 59);
    assert_told(told(FLOW_UNIT_IMAGES, lines).units, -1, -1);
}

static void f7_input_and_output_together_are_the_most_there_can_be(void **state)
{
    static const char *const parts[] = {"anthropic-ratelimit-input-tokens-limit",
                                        "40000",
                                        "anthropic-ratelimit-output-tokens-limit",
                                        "8000",
                                        "anthropic-ratelimit-input-tokens-remaining",
                                        "30000",
                                        "anthropic-ratelimit-output-tokens-remaining",
                                        "5",
                                        "anthropic-ratelimit-tokens-limit",
                                        "47000",
                                        "anthropic-ratelimit-tokens-remaining",
                                        "29000"};
    const char *some[LENGTH(parts) + 1] = {NULL};

    (void)state;
    memcpy(some, parts, 8 * sizeof *some);
    assert_told(told(FLOW_UNIT_TOKENS, some).units, 48000, 30005);
    memcpy(some, parts, 2 * sizeof *some);
    some[2] = NULL;
    assert_told(told(FLOW_UNIT_TOKENS, some).units, -1, -1); /* half of it says nothing */
    memcpy(some, parts, sizeof parts);
    assert_told(told(FLOW_UNIT_TOKENS, some).units, 47000, 29000);
}

/* ---- whose answer, whose flow ----------------------------------------------------------------- */

#define TELLS(limit, left)                                                                         \
    "X-RateLimit-Limit-Requests: " limit "\r\nX-RateLimit-Remaining-Requests: " left "\r\n"

static void say_used_and_tell(struct server *with)
{
    while (server_answer(with, JSON_HEAD TELLS("500", "41"), USED_BODY))
        continue;
}

static void refuse_and_tell(struct server *with)
{
    while (server_answer(with,
                         "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n"
                         "x-ratelimit-limit-tokens: 4000\r\nx-ratelimit-remaining-tokens: 7\r\n",
                         ERROR_BODY("requests", "rate_limit_exceeded")))
        continue;
}

__attribute__((returns_nonnull)) static const struct flow_row *row_of(const char *account)
{
    struct layout_area *layout = segment_layout(&now->segment);

    for (uint32_t i = 0; i < FLOWS_MAX; i++)
        if (layout->flow_hashes[i] != 0 && strcmp(layout->flows[i].quota_group, account) == 0)
            return &layout->flows[i];
    UNREACHABLE();
}

static void f7_each_attempts_answer_counts_for_its_own_account(void **state)
{
    scene_serve_two(now, refuse_and_tell, say_used_and_tell);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_int_equal(view_of("a").units_left, 7);
    assert_int_equal(view_of("a").requests_left, -1);
    assert_int_equal(view_of("b").units_left, -1);
    assert_int_equal(view_of("b").requests_left, 41);
    assert_int_equal(row_of("a")->units_known.other, 0); /* it was refused */
    assert_int_equal(row_of("b")->requests_known.other, 500);
    assert_int_equal(row_of("b")->requests_known.other_passed, 1);
    assert_int_equal(view_of("b").requests_origin, FLOW_QUOTA_CONFIGURED);
}

static void read_and_tell_late(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    /* the head at once, the document never */
    (void)server_send(fd, JSON_HEAD TELLS("500", "12") "Content-Length: 100\r\n\r\n{");
    server_hold(with, fd);
}

static void f7_a_hedge_that_came_second_has_told_too(void **state)
{
    now->house->scope.hedge_after_ms = 200;
    scene_serve_two(now, read_and_tell_late, say_used_and_tell);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_int_equal(view_of("a").requests_left, 12);
    assert_int_equal(view_of("b").requests_left, 41);
}

static void f7_who_does_not_believe_them_does_not_hear_them(void **state)
{
    now->sources[0].limit_headers = LIMIT_HEADERS_IGNORE;
    scene_serve(now, 0, say_used_and_tell);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_int_equal(view_of("a").completed, 1);
    assert_int_equal(view_of("a").requests_left, -1);
}

static void f7_who_keeps_no_quota_does_not_either(void **state)
{
    now->house->scope.flow = FLOW_STRATEGY_RETRY;
    scene_serve(now, 0, say_used_and_tell);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_int_equal(view_of("a").completed, 1);
    assert_int_equal(view_of("a").requests_left, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f7_tokens_are_told_to_who_counts_tokens),
        cmocka_unit_test(f7_input_and_output_together_are_the_most_there_can_be),
        WITH_FLOW(f7_each_attempts_answer_counts_for_its_own_account),
        WITH_FLOW(f7_a_hedge_that_came_second_has_told_too),
        WITH_FLOW(f7_who_does_not_believe_them_does_not_hear_them),
        WITH_FLOW(f7_who_keeps_no_quota_does_not_either),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
