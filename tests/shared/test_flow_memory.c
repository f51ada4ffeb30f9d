/* test_flow_memory.c - what flows take over from before the machine was started again (F5). */
#include "tests/shared/flow_fixture.h"

#include "shared/calibration.h"
#include "shared/flow_memory.h"

static struct segment segment;
static struct gate gate;

static int open_gate(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 2, 5);
    return 0;
}

static int close_gate(void **state)
{
    (void)state;
    fixture_close(&segment);
    return 0;
}

#define NOW_NS (90 * NS_PER_S)

static struct flow_memory memory_of(int64_t age_ns)
{
    return (struct flow_memory){
        .learned = {.watermark = 40,
                    .pace = 6,
                    .growth = 0.03,
                    .requests_share = 0.8,
                    .tokens_share = 0.9,
                    .mean_output = 250,
                    .tpt_base_s = 0.01},
        .estimate = {.latin_latin = 20,
                     .latin_used = 24,
                     .ratio_samples = 30,
                     .output_samples = 30,
                     .output_parts = 250000},
        .age_ns = age_ns,
    };
}

static bool restore(enum flow_strategy strategy, const struct flow_memory *memory)
{
    const struct flow_terms terms = fixture_flow_terms(strategy);
    const struct flow_target target = fixture_target(&terms, 0);

    return flow_restore(&gate, &target, memory, NOW_NS);
}

static void a_young_memory_is_a_warm_start_F5(void **state)
{
    struct flow_memory memory = memory_of(600 * NS_PER_S);
    struct flow_view views[FLOWS_MAX];

    (void)state;
    assert_true(restore(FLOW_STRATEGY_ADAPTIVE, &memory));
    assert_int_equal(flow_views_locked(&gate, NOW_NS, views), 1);
    assert_true(views[0].learned.watermark == 40);
    assert_true(views[0].limit == 20); /* half of what went well */
    assert_true(views[0].learned.requests_share > 0.79 && views[0].learned.requests_share < 0.81);
    assert_true(calibration_ratios(&views[0].estimate).latin == 1.2);
    assert_int_equal(views[0].estimate.output_samples, 30);
    /* no younger for having been kept, though the machine runs for less than that */
    assert_int_equal(views[0].idle_ns, 600 * NS_PER_S);
    assert_false(restore(FLOW_STRATEGY_ADAPTIVE, &memory)); /* it has it */
}

static void of_an_old_one_only_the_estimates_are_taken_F5(void **state)
{
    struct flow_memory memory = memory_of(ADAPTIVE_MEMORY_NS + 1);

    (void)state;
    assert_true(restore(FLOW_STRATEGY_ADAPTIVE, &memory));
    assert_true(fixture_flow(&gate)->adaptive.watermark != 40);
    assert_true(calibration_ratios(&fixture_flow(&gate)->estimate).latin == 1.2);
}

static void what_is_too_old_or_of_the_future_is_not(void **state)
{
    struct flow_memory memory = memory_of(FLOW_ESTIMATE_MEMORY_NS + 1);

    (void)state;
    assert_false(restore(FLOW_STRATEGY_ADAPTIVE, &memory));
    memory.age_ns = -1;
    assert_false(restore(FLOW_STRATEGY_ADAPTIVE, &memory));
}

static void estimates_serve_any_strategy(void **state)
{
    struct flow_memory memory = memory_of(NS_PER_S);

    (void)state;
    assert_true(restore(FLOW_STRATEGY_SHAPING, &memory));
    assert_int_equal(fixture_flow(&gate)->adaptive.state, ADAPTIVE_NONE);
    assert_int_equal(fixture_flow(&gate)->estimate.output_parts, 250000);
}

static void who_served_already_knows_better(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_ADAPTIVE);
    const struct flow_target target = fixture_target(&terms, 10);
    struct flow_memory memory = memory_of(NS_PER_S);
    struct flow_answer answer = fixture_flow_arrive(&gate, &target, FLOW_NORMAL, NOW_NS);

    (void)state;
    assert_int_equal(answer.verdict, FLOW_GRANTED);
    assert_false(restore(FLOW_STRATEGY_ADAPTIVE, &memory));
    flow_sent(&gate, answer.place, NOW_NS);
    fixture_flow_settle(&gate, &answer.place, 10, NOW_NS);
    assert_false(restore(FLOW_STRATEGY_ADAPTIVE, &memory));
    assert_true(fixture_flow(&gate)->adaptive.watermark != 40);
    assert_int_equal(fixture_flow(&gate)->estimate.ratio_samples, 0);
}

static void values_that_cannot_be_are_not_taken(void **state)
{
    struct flow_memory memory = memory_of(NS_PER_S);

    (void)state;
    memory.learned.requests_share = 3;
    memory.estimate.latin_latin = -1;
    assert_false(restore(FLOW_STRATEGY_ADAPTIVE, &memory));
    assert_int_equal(fixture_flow(&gate)->estimate.ratio_samples, 0);
    memory.estimate = (struct estimate_row){.output_samples = 1, .output_parts = INT64_MAX};
    assert_false(restore(FLOW_STRATEGY_ADAPTIVE, &memory));
    memory.estimate.output_parts = -1;
    assert_false(restore(FLOW_STRATEGY_ADAPTIVE, &memory));
    memory.estimate.output_parts = 1000; /* one half is good */
    assert_true(restore(FLOW_STRATEGY_ADAPTIVE, &memory));
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, open_gate, close_gate)
    const struct CMUnitTest tests[] = {
        TEST(a_young_memory_is_a_warm_start_F5),
        TEST(of_an_old_one_only_the_estimates_are_taken_F5),
        TEST(what_is_too_old_or_of_the_future_is_not),
        TEST(estimates_serve_any_strategy),
        TEST(who_served_already_knows_better),
        TEST(values_that_cannot_be_are_not_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
