/* test_flow_estimate.c - a claim is priced in the decision, by what the flow has learned until then. */
#include "tests/shared/flow_fixture.h"
#include "tests/shared/sources_fixture.h"

#include "shared/admit.h"
#include "shared/flow_estimate.h"

static struct segment segment;
static struct gate gate;
static int64_t now;
static struct source_candidate candidate;
static struct flow_terms terms;
static struct flow_claim claim;
static struct flow_target target;

static int make(void **state)
{
    static const struct source_name name = {"one", "account"};

    (void)state;
    fixture_open(&segment, &gate, 1, 100);
    now = clock_monotonic_ns();
    fixture_register(&gate, &name, 1, &candidate);
    terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    claim = (struct flow_claim){.estimate = {.tokens = 100}, .output_max = -1};
    target = (struct flow_target){.model = "model", .terms = &terms, .claim = &claim};
    return 0;
}

static int drop(void **state)
{
    (void)state;
    fixture_close(&segment);
    return 0;
}

static struct admit_answer arrive(struct admit_seat *seat)
{
    const struct source_wish wish = fixture_wish(&candidate, 1, now);
    const struct admit_call call = {
        .wish = &wish, .targets = &target, .flow = fixture_flow_call(FLOW_NORMAL, now)};
    struct admit_answer answer;

    *seat = ADMIT_SEAT_EMPTY;
    admit_arrive(&gate, &call, seat, &answer);
    assert_int_equal(answer.verdict, ADMIT_GRANTED);
    return answer;
}

static void assert_charged(const struct admit_seat *seat, int64_t charged, int64_t predicted)
{
    const struct flow_place_row *row = &segment_layout(&segment)->flow_places[seat->flow_place];

    assert_int_equal(row->charged, charged);
    assert_int_equal(row->predicted, predicted);
}

/* An answer of twice the input that was estimated, and 50 tokens of output. */
static void teach(void)
{
    const struct flow_usage usage = {.estimate = {.tokens = 100}, .input = 200, .output = 50};
    const struct flow_end told = {.now_ns = now, .units = 250, .usage = &usage};
    struct admit_seat seat;

    (void)arrive(&seat);
    flow_sent(&gate, seat.flow_place, now);
    (void)flow_settle(&gate, &seat.flow_place, &told);
    fixture_end(&gate, &seat.permit, SOURCE_END_UNJUDGED, now);
}

static void end(struct admit_seat *seat)
{
    flow_cancel(&gate, &seat->flow_place, now);
    fixture_end(&gate, &seat->permit, SOURCE_END_UNJUDGED, now);
}

static void f6_before_anything_was_learned_the_estimate_counts(void **state)
{
    struct admit_seat seat;
    struct admit_answer answer = arrive(&seat);

    (void)state;
    assert_int_equal(answer.price.input, 100);
    assert_int_equal(answer.price.cost, 100);
    assert_charged(&seat, 100, answer.price.predicted);
    assert_true(answer.price.predicted > 0);
    end(&seat);
}

static void f6_then_what_was_learned_does(void **state)
{
    struct admit_seat seat;
    struct admit_answer answer;

    (void)state;
    teach();
    now += NS_PER_S;
    answer = arrive(&seat);
    assert_int_equal(answer.price.input, 200);
    assert_charged(&seat, 200, 50);
    end(&seat);
    assert_int_equal(segment_layout(&segment)->flow_places_used, 0);
}

static void f4_with_the_output_or_without(void **state)
{
    struct admit_seat seat;

    (void)state;
    teach();
    now += NS_PER_S;
    claim.whole = true;
    (void)arrive(&seat);
    assert_charged(&seat, 250, 0);
    end(&seat);
    claim.output_max = 30;
    (void)arrive(&seat);
    assert_charged(&seat, 230, 0);
    end(&seat);
}

static void what_has_a_price_keeps_it(void **state)
{
    struct admit_seat seat;

    (void)state;
    target.claim = NULL;
    target.cost = 3;
    target.predicted = 4;
    (void)arrive(&seat);
    assert_charged(&seat, 3, 4);
    end(&seat);
}

/* Where there is no room for another flow. */
static void without_a_flow_nothing_was_learned(void **state)
{
    struct flow_price price;

    (void)state;
    gate_lock(&gate);
    price = flow_price_locked(&gate, NO_INDEX, &target);
    gate_unlock(&gate);
    assert_int_equal(price.input, 100);
    assert_int_equal(price.cost, 100);
    assert_true(price.predicted > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(f6_before_anything_was_learned_the_estimate_counts),
        TEST(f6_then_what_was_learned_does),
        TEST(f4_with_the_output_or_without),
        TEST(what_has_a_price_keeps_it),
        TEST(without_a_flow_nothing_was_learned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
