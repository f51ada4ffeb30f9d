/* test_flow_rows.c - the records of flows: their terms, units, the last 60 s, what gives way. */
#include "tests/shared/flow_alone.h"

#include <stdio.h>

static void f4_who_was_away_for_long_starts_cold_again(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    struct flow_answer answer;

    (void)state;
    terms.warmup_ns = 60 * NS_PER_S;
    call_once(&terms, 10, 10);
    now += 40 * NS_PER_S; /* no long pause: the warm-up goes on */
    for (int i = 0; i < 20; i++) {
        now += 100 * NS_PER_MS;
        call_once(&terms, 10, 10);
    }
    now += 61 * NS_PER_S;
    call_once(&terms, 10, 10);
    answer = arrive(&terms, 10, FLOW_NORMAL);
    assert_int_equal(answer.verdict, FLOW_QUEUED);
    /* t = sqrt(2 T / R): the first of the ramp, of 9.67 in a second */
    assert_in_range((answer.due_ns - now) / NS_PER_MS, 3500, 3550);
}

static void f1_the_newer_configuration_counts_and_keeps_debts(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    struct roster_row *self = &segment_core(&segment)->roster[gate.self];
    struct flow_terms other;
    struct flow_row *flow;

    (void)state;
    call_once(&terms, 40000, 40000);
    flow = fixture_flow(&gate);
    other = terms;
    other.units_quota = 1200000;
    (void)arrive(&other, 10, FLOW_NORMAL);
    assert_int_equal(flow->units_quota, 600000); /* same generation, holds back as much */
    self->generation++;
    (void)arrive(&other, 10, FLOW_NORMAL);
    assert_int_equal(flow->units_quota, 1200000);
    assert_int_equal(bucket_balance_micro(&flow->units, now), -25000 * BUCKET_UNIT);
    self->generation--;
    (void)arrive(&terms, 10, FLOW_NORMAL);
    assert_int_equal(flow->units_quota, 1200000);
}

static struct flow_answer arrive_as(const struct flow_terms *terms, const char *group, unsigned n)
{
    struct flow_target target = fixture_target(terms, 10);
    char name[16];

    (void)snprintf(name, sizeof name, "m%u", n);
    target.quota_group = group;
    target.model = name;
    return fixture_flow_arrive(&gate, &target, FLOW_NORMAL, now);
}

static void answer_call(struct flow_answer *answer)
{
    assert_int_equal(answer->verdict, FLOW_GRANTED);
    flow_sent(&gate, answer->place, now);
    fixture_flow_settle(&gate, &answer->place, 10, now);
}

static void refuse_call(struct flow_answer *answer)
{
    const struct flow_end end = {.now_ns = now};

    assert_int_equal(answer->verdict, FLOW_GRANTED);
    flow_sent(&gate, answer->place, now);
    (void)flow_refund(&gate, &answer->place, &end);
}

static const struct flow_row *flow_of(const char *group, const char *model)
{
    const struct layout_area *layout = segment_layout(&segment);

    for (uint32_t i = 0; i < FLOWS_MAX; i++)
        if (layout->flow_hashes[i] != 0 && strcmp(layout->flows[i].quota_group, group) == 0 &&
            strcmp(layout->flows[i].model, model) == 0)
            return &layout->flows[i];
    return NULL;
}

static void f1_an_idle_record_gives_way_a_used_one_does_not(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    struct flow_answer answer;

    (void)state;
    for (unsigned i = 0; i <= FLOWS_MAX; i++) {
        answer = arrive_as(&terms, "account", i);
        if (i != 0) /* m0 runs on */
            answer_call(&answer);
    }
    assert_non_null(flow_of("account", "*"));
    assert_null(flow_of("account", "m128")); /* all others have answered */
    now += 61 * NS_PER_S;
    answer = arrive_as(&terms, "account", 200);
    assert_int_equal(answer.verdict, FLOW_GRANTED);
    assert_string_equal(segment_layout(&segment)->flows[0].model, "m0");
    assert_string_equal(segment_layout(&segment)->flows[1].model, "m200");
}

static void f1_made_up_models_cost_no_other_its_record(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    struct flow_answer answer = arrive_as(&terms, "account", 0);

    (void)state;
    answer_call(&answer);
    for (unsigned i = 1; i < 400; i++) {
        now += NS_PER_MS;
        answer = arrive_as(&terms, "account", i);
        refuse_call(&answer);
    }
    assert_int_equal(flow_of("account", "m0")->completed, 1);
    assert_null(flow_of("account", "*"));
    assert_null(flow_of("account", "m1"));
}

/* Nothing gives way: calls of all further models share what their group has. */
static void f1_without_room_the_group_has_one_record_for_all(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    struct flow_answer answer;

    (void)state;
    terms.initial_requests = 3;
    for (unsigned i = 0; i < FLOWS_MAX - 32; i++) {
        answer = arrive_as(&terms, "account", i);
        answer_call(&answer);
    }
    for (unsigned i = 0; i < 3; i++) {
        answer = arrive_as(&terms, "account", 500 + i);
        answer_call(&answer);
    }
    assert_int_equal(flow_of("account", "*")->completed, 3);
    assert_int_equal(arrive_as(&terms, "account", 600).verdict, FLOW_QUEUED);
    for (unsigned i = 0; i < 31; i++) { /* one for each of many groups */
        char group[16];

        (void)snprintf(group, sizeof group, "g%u", i);
        answer = arrive_as(&terms, group, 700);
        answer_call(&answer);
        assert_non_null(flow_of(group, "*"));
    }
}

/* Two sources are looked at in one decision: the record of the second must not be the first's. */
static void f1_what_was_just_found_stays(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    struct flow_target target = fixture_target(&terms, 10);
    struct flow_answer answer;
    uint32_t first;
    uint32_t second;

    (void)state;
    for (unsigned i = 0; i < FLOWS_MAX - 33; i++) {
        answer = arrive_as(&terms, "account", i);
        answer_call(&answer);
    }
    now += NS_PER_MS;
    gate_lock(&gate);
    target.model = "a";
    first = flow_find_locked(&gate, &target, now);
    target.model = "b";
    second = flow_find_locked(&gate, &target, now);
    assert_true(first != second);
    assert_string_equal(segment_layout(&segment)->flows[first].model, "a");
    assert_string_equal(segment_layout(&segment)->flows[second].model, "*");
    assert_true(flow_serves_locked(&gate, second, &target));
    assert_false(flow_serves_locked(&gate, first, &target));
    gate_unlock(&gate);
}

static void f12_the_window_is_60_seconds_long(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RETRY);

    (void)state;
    now = (now / NS_PER_S + 1) * NS_PER_S;
    call_once(&terms, 10, 20);
    now += 30 * NS_PER_S;
    call_once(&terms, 10, 10);
    now += 29 * NS_PER_S;
    assert_int_equal(flow_use_locked(fixture_flow(&gate), now).sends, 2);
    assert_int_equal(flow_use_locked(fixture_flow(&gate), now).units, 30);
    now += 2 * NS_PER_S;
    assert_int_equal(flow_use_locked(fixture_flow(&gate), now).sends, 1);
    assert_int_equal(flow_use_locked(fixture_flow(&gate), now).units, 10);
}

static void f11_pictures_are_a_unit_as_tokens_are(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);

    (void)state;
    terms.unit = FLOW_UNIT_IMAGES;
    terms.units_quota = 60;
    terms.requests_quota = 0;
    call_once(&terms, 2, 2);
    assert_int_equal(arrive(&terms, 4, FLOW_NORMAL).verdict, FLOW_QUEUED);
    assert_int_equal(fixture_flow(&gate)->classes[FLOW_NORMAL].finish, 2 * 4096 / 4);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)
        TEST(f4_who_was_away_for_long_starts_cold_again),
        TEST(f1_the_newer_configuration_counts_and_keeps_debts),
        TEST(f1_an_idle_record_gives_way_a_used_one_does_not),
        TEST(f1_made_up_models_cost_no_other_its_record),
        TEST(f1_without_room_the_group_has_one_record_for_all),
        TEST(f1_what_was_just_found_stays),
        TEST(f12_the_window_is_60_seconds_long),
        TEST(f11_pictures_are_a_unit_as_tokens_are),
#undef TEST
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
