/*
 * run_killed.c - a process is killed after each single store that it makes into the segment (killed.h), as it
 * enters the roster and in every kind of call; whatever it had is free again afterwards. Calls with
 * everything, and burial: run_killed_admission.c.
 */
#include "tests/scenarios/killed.h"

#define CAPACITY 10000
#define COST 1000
#define PREDICTED 500
#define USED 300

static struct flow_terms terms;
static uint32_t image_used, flow_used; /* places that others hold meanwhile */

static int make(void **state)
{
    terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    terms.requests_quota = 0;
    terms.max_concurrent = 1;
    image_used = flow_used = 0;
    return killed_open(state);
}

/* The balance of units moves by grants and ends only. */
static void fill_budget(void)
{
    struct flow_row *flow = fixture_flow(&killed_gate);

    gate_lock(&killed_gate);
    bucket_set_rate(&flow->units, 0, killed_now_ns);
    bucket_set_capacity(&flow->units, CAPACITY * BUCKET_UNIT, killed_now_ns);
    flow->units.balance_micro = CAPACITY * BUCKET_UNIT;
    flow->paused_until_ns = 0;
    gate_unlock(&killed_gate);
}

static int64_t spent(void)
{
    int64_t micro;

    gate_lock(&killed_gate); /* and with it repaired, if it must be */
    micro = CAPACITY * BUCKET_UNIT - fixture_flow(&killed_gate)->units.balance_micro;
    gate_unlock(&killed_gate);
    return micro / BUCKET_UNIT;
}

static struct flow_answer arrive(struct gate *of)
{
    struct flow_target target = fixture_target(&terms, COST);

    target.predicted = PREDICTED;
    return fixture_flow_arrive(of, &target, FLOW_NORMAL, killed_now_ns);
}

static void check_all(void)
{
    const int64_t used = spent();

    assert_true(used == 0 || used == USED || used == COST + PREDICTED);
    killed_check_image_queue(image_used);
    killed_check_flow(flow_used);
    assert_int_equal(killed_use().used, image_used);
    assert_int_equal(killed_use().held, image_used);
}

static void kill_in(void (*act)(struct gate *own))
{
    const struct killed_scene scene = {.act = act, .before = fill_budget, .after = check_all};

    killed_at_every_store(&scene, 10);
}

static void prepare(void)
{
    struct flow_answer answer;

    answer = arrive(&killed_gate); /* the flow's row */
    assert_int_equal(answer.verdict, FLOW_GRANTED);
    flow_cancel(&killed_gate, &answer.place, killed_now_ns);
}

/* ---- what it does ---------------------------------------------------------------------------- */

static void m3_a_process_that_enters(void **state)
{
    (void)state;
    prepare();
    kill_in(NULL);
}

static void call_in_flow(struct gate *own)
{
    struct flow_answer answer = arrive(own);

    if (answer.verdict != FLOW_GRANTED)
        _exit(2);
    flow_sent(own, answer.place, killed_now_ns);
    (void)flow_settle(own, &answer.place,
                      &(struct flow_end){.now_ns = killed_now_ns, .units = USED});
}

static void m3_a_call_in_a_flow(void **state)
{
    (void)state;
    prepare();
    kill_in(call_in_flow);
}

static void call_that_is_throttled(struct gate *own)
{
    struct flow_answer answer = arrive(own);
    const struct flow_end end = {.now_ns = killed_now_ns,
                                 .units = USED,
                                 .refused = true,
                                 .kind = ADAPTIVE_TPM,
                                 .retry_after_ns = 1};

    if (answer.verdict != FLOW_GRANTED)
        _exit(2);
    flow_sent(own, answer.place, killed_now_ns);
    flow_progress(own, answer.place, COST + PREDICTED, killed_now_ns);
    (void)flow_settle(own, &answer.place, &end);
}

static void m3_a_call_that_uses_more_and_is_throttled(void **state)
{
    (void)state;
    prepare();
    kill_in(call_that_is_throttled);
}

static void call_that_waits_in_flow(struct gate *own)
{
    struct flow_answer answer = arrive(own);

    if (answer.verdict != FLOW_QUEUED)
        _exit(2);
    flow_cancel(own, &answer.place, killed_now_ns);
}

static void m3_a_call_that_waits_in_a_flow(void **state)
{
    struct flow_answer holder;

    (void)state;
    prepare();
    holder = arrive(&killed_gate);
    assert_int_equal(holder.verdict, FLOW_GRANTED);
    flow_used = 1;
    kill_in(call_that_waits_in_flow);
    flow_cancel(&killed_gate, &holder.place, killed_now_ns);
}

static void call_at_gate(struct gate *own)
{
    uint32_t place;

    if (killed_arrive(own, &place) != GATE_GRANTED)
        _exit(2);
    gate_leave(own, place, WAIT_DONE, killed_now_ns, NULL);
}

static void m3_a_call_at_the_gate(void **state)
{
    (void)state;
    prepare();
    kill_in(call_at_gate);
}

static void call_that_waits_at_gate(struct gate *own)
{
    uint32_t place;

    if (killed_arrive(own, &place) != GATE_QUEUED)
        _exit(2);
    gate_leave(own, place, WAIT_CLIENT_GONE, killed_now_ns, NULL);
}

static void m3_a_call_that_waits_at_the_gate(void **state)
{
    uint32_t holder;

    (void)state;
    prepare();
    assert_int_equal(killed_arrive(&killed_gate, &holder), GATE_GRANTED);
    image_used = 1;
    kill_in(call_that_waits_at_gate);
    gate_leave(&killed_gate, holder, WAIT_DONE, killed_now_ns, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(m3_a_process_that_enters, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_call_in_a_flow, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_call_that_uses_more_and_is_throttled, make,
                                        killed_close),
        cmocka_unit_test_setup_teardown(m3_a_call_that_waits_in_a_flow, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_call_at_the_gate, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_call_that_waits_at_the_gate, make, killed_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
