/* test_flow_retry.c - a call that was throttled waits for its flow again, within the bound of its class for
 * the whole call (F3, F9). */
#include "tests/worker/flow_house.h"

/* ---- the plan, on a clock of its own --------------------------------------------------------------- */

#define S NS_PER_S

static struct plan_terms within(int64_t flow_wait_ns)
{
    return (struct plan_terms){.throttle_retries = true,
                               .candidates = 1,
                               .hedge_after_ns = CLOCK_NEVER,
                               .stall_budget_ns = 1200 * S,
                               .has_flow = true,
                               .flow_keeps_pauses = true,
                               .flow_wait_ns = flow_wait_ns,
                               .retry_hold_ns = CLOCK_NEVER,
                               .deadline_ns = CLOCK_NEVER};
}

/* Sent at 0, and refused at 0. */
static struct plan_step throttled(struct plan *plan, const struct plan_terms *terms,
                                  int64_t retry_after_ms)
{
    const struct judgement judgement = {
        .class = ATTEMPT_THROTTLE, .retry_after_ms = retry_after_ms, .should_retry = -1};

    plan_begin(plan, terms, 1);
    assert_int_equal(plan_next(plan, 0).what, PLAN_START);
    plan_started(plan, 0, 0, 0);
    plan_failed(plan, 0, &judgement, true, 0);
    return plan_next(plan, 0);
}

static void f3_what_the_upstream_asks_for_is_waited_in_the_flow(void **state)
{
    struct plan_terms terms = within(5 * S);
    struct plan plan;
    struct plan_step step = throttled(&plan, &terms, 20000);

    (void)state;
    assert_int_equal(step.what, PLAN_START); /* into its line, where it is refused or waits */
    assert_int_equal(step.excluded, 0);
    plan_not_admitted(&plan, 0, PLAN_REFUSED_QUOTA, 20 * S, 0);
    step = plan_next(&plan, 0);
    assert_int_equal(step.what, PLAN_ANSWER);
    assert_int_equal(step.retry_after_ms, 20000);
    /* Where the flow does not keep it, the plan does, within the same bound. */
    terms.flow_keeps_pauses = false;
    assert_int_equal(throttled(&plan, &terms, 20000).what, PLAN_ANSWER);
    step = throttled(&plan, &terms, 3000);
    assert_int_equal(step.what, PLAN_WAIT);
    assert_in_range(step.until_ns, 3 * S, 5 * S);
    assert_in_range(plan_flow_left_ns(&plan), 0, 2 * S);
}

static void f9_waits_of_a_call_count_together(void **state)
{
    struct plan_terms terms = within(5 * S);
    struct plan plan;

    (void)state;
    plan_begin(&plan, &terms, 1);
    assert_int_equal(plan_flow_left_ns(&plan), 5 * S);
    plan_waited_in_flow(&plan, 3 * S);
    assert_int_equal(plan_flow_left_ns(&plan), 2 * S);
    plan_waited_in_flow(&plan, 3 * S);
    assert_int_equal(plan_flow_left_ns(&plan), 0);
    terms.has_flow = false;
    plan_begin(&plan, &terms, 1);
    assert_int_equal(plan_flow_left_ns(&plan), CLOCK_NEVER);
}

/* ---- a call ---------------------------------------------------------------------------------------- */

static int64_t refused_ns;

static void say_429_then_answer(struct server *with)
{
    (void)server_answer(with,
                        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\n"
                        "Content-Type: application/json\r\n",
                        ERROR_BODY("requests", "rate_limit_exceeded"));
    refused_ns = clock_monotonic_ns();
    say_used(with);
}

static void f9_a_pause_longer_than_the_bound_is_not_waited_for(void **state)
{
    now->house->scope.member_count = 1;
    now->house->scope.flow = FLOW_STRATEGY_RATE;
    now->house->scope.backoff_base_ms = now->house->scope.backoff_max_ms = 1;
    for (unsigned i = 0; i < FLOW_CLASSES; i++)
        now->house->scope.max_wait_ms[i] = 500;
    scene_serve(now, 0, say_429_then_answer);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_true(scene_head_has(now, "Status: 429"));
    assert_string_equal(scene_attempts(now), "a:rate_limit_exceeded");
    assert_int_equal(view_of("a").refused_hopeless, 1); /* it stood in the line, and could not */
    assert_int_equal(view_of("a").in_flight, 0);
}

static void f3_a_retry_waits_in_its_flow_and_says_so(void **state)
{
    now->house->scope.member_count = 1;
    now->house->scope.flow = FLOW_STRATEGY_RATE;
    now->house->scope.backoff_base_ms = now->house->scope.backoff_max_ms = 1;
    scene_serve(now, 0, say_429_then_answer);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_string_equal(scene_attempts(now), "a:rate_limit_exceeded a:");
    assert_true(clock_monotonic_ns() - refused_ns >= 900 * NS_PER_MS); /* as it was asked to */
    assert_true(now->house->request->queue_ns >= 800 * NS_PER_MS);
    assert_true(plan_flow_left_ns(&now->house->request->plan) <= 30 * NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f3_what_the_upstream_asks_for_is_waited_in_the_flow),
        cmocka_unit_test(f9_waits_of_a_call_count_together),
        WITH_FLOW(f9_a_pause_longer_than_the_bound_is_not_waited_for),
        WITH_FLOW(f3_a_retry_waits_in_its_flow_and_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
