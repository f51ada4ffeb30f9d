/* test_flow_wait.c - who waits in line is refused as soon as his turn would come too late, and told the
 * true wait; nobody else is. */
#include "tests/shared/flow_alone.h"

#include "shared/flow_rows.h"

#define LINE 5U

static uint32_t places[LINE];

static struct flow_terms one_a_second(void)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);

    terms.requests_quota = 60;
    terms.units_quota = 0;
    terms.initial_requests = 1;
    terms.max_wait_ns[FLOW_NORMAL] = 8 * NS_PER_S;
    return terms;
}

/* The first has gone and is under way, the others wait. */
static uint32_t line_up(const struct flow_terms *terms)
{
    struct flow_answer first = arrive(terms, 0, FLOW_NORMAL);

    assert_int_equal(first.verdict, FLOW_GRANTED);
    flow_sent(&gate, first.place, now);
    for (size_t i = 0; i < LINE; i++) {
        struct flow_answer answer = arrive(terms, 0, FLOW_NORMAL);

        assert_int_equal(answer.verdict, FLOW_QUEUED);
        places[i] = answer.place;
    }
    return first.place;
}

static void refused_upstream(uint32_t place, int64_t retry_after_ns)
{
    const struct flow_end end = {
        .now_ns = now, .refused = true, .kind = ADAPTIVE_RPM, .retry_after_ns = retry_after_ns};

    (void)flow_refund(&gate, &place, &end);
}

static void tick(int64_t after_ns)
{
    now += after_ns;
    gate_tick(&gate, now);
}

static void f9_a_pause_turns_away_who_could_not_outwait_it(void **state)
{
    const struct flow_terms terms = one_a_second();
    const struct flow_target target = fixture_target(&terms, 0);
    uint32_t first = line_up(&terms);

    (void)state;
    tick(500 * NS_PER_MS);
    for (size_t i = 0; i < LINE; i++)
        assert_int_equal(fixture_flow_try(&gate, places[i], now).verdict, FLOW_QUEUED);
    assert_true(flow_paused_until_ns(&gate, &target, now) <= now);
    refused_upstream(first, 40 * NS_PER_S);
    assert_int_equal(flow_paused_until_ns(&gate, &target, now), now + 40 * NS_PER_S);
    tick(250 * NS_PER_MS);
    for (size_t i = 0; i < LINE; i++) {
        struct flow_answer answer;

        assert_true(flow_is_rung(&gate, places[i])); /* nobody has to look for himself */
        now += NS_PER_MS;
        answer = fixture_flow_try(&gate, places[i], now);
        assert_int_equal(answer.verdict, FLOW_REFUSED_HOPELESS);
        assert_in_range(answer.predicted_wait_ns, 39 * NS_PER_S, 45 * NS_PER_S);
        flow_cancel(&gate, &places[i], now);
    }
    assert_int_equal(fixture_flow(&gate)->refused_hopeless, LINE);
    assert_int_equal(fixture_flow(&gate)->waiting, 0);
}

static void f9_a_pause_that_can_be_outwaited_turns_nobody_away(void **state)
{
    const struct flow_terms terms = one_a_second();
    uint32_t first = line_up(&terms);

    (void)state;
    refused_upstream(first, 6 * NS_PER_S);
    tick(250 * NS_PER_MS);
    for (size_t i = 0; i < LINE; i++)
        assert_int_equal(fixture_flow_try(&gate, places[i], now).verdict, FLOW_QUEUED);
    tick(5750 * NS_PER_MS);
    for (size_t i = 0; i < LINE; i++) /* six requests have come in meanwhile */
        assert_int_equal(fixture_flow_try(&gate, places[i], now).verdict, FLOW_GRANTED);
}

static void f9_a_lower_quota_turns_away_the_end_of_the_line(void **state)
{
    struct flow_terms terms = one_a_second();
    struct flow_answer answer;

    (void)state;
    (void)line_up(&terms);
    gate_lock(&gate);
    fixture_flow(&gate)->requests_known.configured = 20;
    flow_set_quotas_locked(fixture_flow(&gate), now);
    gate_unlock(&gate);
    tick(250 * NS_PER_MS);
    for (size_t i = 0; i < LINE; i++) { /* one every 3 s now: two within 8 s */
        answer = fixture_flow_try(&gate, places[i], now);
        assert_int_equal(answer.verdict, i < 2 ? FLOW_QUEUED : FLOW_REFUSED_HOPELESS);
        if (i == 2)
            assert_in_range(answer.predicted_wait_ns, 8 * NS_PER_S, 9 * NS_PER_S);
    }
}

/* What a pause had made hopeless may go when there is room all the same; nobody is refused whose turn
 * has come. */
static void f9_who_can_go_goes_whatever_was_said_before(void **state)
{
    const struct flow_terms terms = one_a_second();
    uint32_t first = line_up(&terms);

    (void)state;
    refused_upstream(first, 40 * NS_PER_S);
    tick(250 * NS_PER_MS);
    fixture_flow(&gate)->paused_until_ns = 0; /* the pause is over, the next tick has not come */
    now += 2 * NS_PER_S;
    assert_int_equal(fixture_flow_try(&gate, places[0], now).verdict, FLOW_GRANTED);
    tick(250 * NS_PER_MS);
    assert_int_equal(fixture_flow_try(&gate, places[4], now).verdict, FLOW_QUEUED);
}

/* The end of its time is told with what it would still have to wait. */
static void f9_who_waited_in_vain_is_told_the_pause(void **state)
{
    const struct flow_terms terms = one_a_second();
    uint32_t first = line_up(&terms);
    struct flow_answer answer;

    (void)state;
    now += 7900 * NS_PER_MS;
    refused_upstream(first, 40 * NS_PER_S);
    now += 101 * NS_PER_MS;
    answer = fixture_flow_try(&gate, places[4], now);
    assert_int_equal(answer.verdict, FLOW_EXPIRED);
    assert_in_range(answer.predicted_wait_ns, 39 * NS_PER_S, 41 * NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)
        TEST(f9_a_pause_turns_away_who_could_not_outwait_it),
        TEST(f9_a_pause_that_can_be_outwaited_turns_nobody_away),
        TEST(f9_a_lower_quota_turns_away_the_end_of_the_line),
        TEST(f9_who_can_go_goes_whatever_was_said_before),
        TEST(f9_who_waited_in_vain_is_told_the_pause),
#undef TEST
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
