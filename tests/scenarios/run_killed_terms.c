/*
 * run_killed_terms.c - a process is killed after each single store that it makes into the segment (killed.h):
 * as limits, terms and sources change, as the upstream tells its quota or refuses, as budgets fill, and as a
 * removed semaphore is made anew.
 */
#include "tests/scenarios/killed.h"

#include "shared/flow_told.h"
#include "shared/journal.h"
#include "shared/sources.h"

#define QUIET_NS (120 * NS_PER_S)

static struct flow_terms old_terms, new_terms;

/* ---- limits ---------------------------------------------------------------------------------- */

static const struct gate_limits old_limits = {
    .limit = 1, .max_waiting = 100, .on = true, .classes = {{2, 0}, {1, 7}, {1, 0}}};
static const struct gate_limits new_limits = {
    .limit = 3, .max_waiting = 40, .on = true, .classes = {{8, 0}, {4, 5}, {1, 3}}};
static uint32_t holder, waiter;

static void begin_limits(void)
{
    gate_set_limits(&killed_gate, &old_limits, killed_now_ns, 1);
    journal_discard(killed_journal());
    assert_int_equal(killed_arrive(&killed_gate, &holder), GATE_GRANTED);
    assert_int_equal(killed_arrive(&killed_gate, &waiter), GATE_QUEUED);
}

static void set_limits(struct gate *own)
{
    gate_set_limits(own, &new_limits, killed_now_ns, 1);
}

/* Some of them may be in force until the next master says them again: each is an old or a new one. */
static void check_limits(void)
{
    struct gate_limits now;
    struct gate_answer answer;

    gate_limits_now(&killed_gate, &now);
    assert_true(now.limit == old_limits.limit || now.limit == new_limits.limit);
    assert_true(now.max_waiting == old_limits.max_waiting ||
                now.max_waiting == new_limits.max_waiting);
    assert_true(now.on);
    set_limits(&killed_gate);
    gate_limits_now(&killed_gate, &now);
    assert_memory_equal(&now.classes, &new_limits.classes, sizeof now.classes);
    assert_int_equal(now.limit, new_limits.limit);
    assert_int_equal(now.max_waiting, new_limits.max_waiting);
    assert_true(gate_is_rung(&killed_gate, waiter));
    gate_try(&killed_gate, waiter, killed_now_ns, &answer);
    assert_int_equal(answer.verdict, GATE_GRANTED);
    gate_leave(&killed_gate, waiter, WAIT_DONE, killed_now_ns, NULL);
    gate_leave(&killed_gate, holder, WAIT_DONE, killed_now_ns, NULL);
    killed_check_image_queue(0);
    assert_int_equal(killed_use().used, 0);
}

static void m3_limits_that_change(void **state)
{
    const struct killed_scene scene = {
        .act = set_limits, .before = begin_limits, .after = check_limits};

    (void)state;
    killed_at_every_store(&scene, 10);
}

/* ---- terms ----------------------------------------------------------------------------------- */

static struct flow_target target_of(const struct flow_terms *terms)
{
    return fixture_target(terms, 1000);
}

static void forget_flows(void)
{
    struct layout_area *layout = segment_layout(&killed_segment);

    gate_lock(&killed_gate);
    for (uint32_t i = 0; i < FLOWS_MAX; i++)
        if (layout->flow_hashes[i] != 0) {
            layout->flow_hashes[i] = 0;
            memset(&layout->flows[i], 0, sizeof layout->flows[i]);
        }
    gate_unlock(&killed_gate);
}

static void first_call(struct gate *own)
{
    const struct flow_target target = target_of(&old_terms);
    struct flow_answer answer = fixture_flow_arrive(own, &target, FLOW_NORMAL, killed_now_ns);

    INVARIANT(answer.verdict == FLOW_GRANTED);
    flow_cancel(own, &answer.place, killed_now_ns);
}

/* A flow as it is after its first call, by the old terms. */
static void begin_flow(void)
{
    forget_flows();
    first_call(&killed_gate);
}

static void renew(struct gate *own)
{
    const struct flow_target target = target_of(&new_terms);

    flow_renew(own, &target, killed_now_ns);
}

static void check_bucket(struct bucket_row *found, struct bucket_row *expected)
{
    assert_int_equal(found->capacity_micro, expected->capacity_micro);
    assert_int_equal(found->rate_micro, expected->rate_micro);
    assert_int_equal(found->initial_micro, expected->initial_micro);
    assert_int_equal(found->warmup_ns, expected->warmup_ns);
    assert_true(bucket_balance_micro(found, killed_now_ns) >= 0);
    assert_int_equal(bucket_balance_micro(found, killed_now_ns + QUIET_NS), found->capacity_micro);
}

/* What nobody interrupted. */
static struct flow_row renewed;

/* The next of that configuration makes the terms whole. */
static void check_renewed(void)
{
    struct flow_row *flow = fixture_flow(&killed_gate);

    renew(&killed_gate);
    assert_int_equal(flow->strategy, renewed.strategy);
    assert_int_equal(flow->requests_quota, renewed.requests_quota);
    assert_int_equal(flow->units_quota, renewed.units_quota);
    assert_int_equal(flow->requests_rate_micro, renewed.requests_rate_micro);
    assert_int_equal(flow->units_rate_micro, renewed.units_rate_micro);
    assert_int_equal(flow->interval_ns, renewed.interval_ns);
    assert_int_equal(flow->max_concurrent, renewed.max_concurrent);
    assert_int_equal(flow->initial_requests, renewed.initial_requests);
    assert_int_equal(flow->warmup_ns, renewed.warmup_ns);
    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        assert_int_equal(flow->classes[c].weight, renewed.classes[c].weight);
    check_bucket(&flow->requests, &renewed.requests);
    check_bucket(&flow->units, &renewed.units);
    killed_check_flow(0);
}

static void kill_in_renewal(void)
{
    const struct killed_scene scene = {.act = renew, .before = begin_flow, .after = check_renewed};

    begin_flow();
    renew(&killed_gate);
    renewed = *fixture_flow(&killed_gate);
    assert_int_equal(renewed.strategy, new_terms.strategy);
    killed_at_every_store(&scene, 20);
}

static void check_first(void)
{
    unsigned flows = 0;

    first_call(&killed_gate);
    check_renewed();
    for (uint32_t i = 0; i < FLOWS_MAX; i++)
        flows += segment_layout(&killed_segment)->flow_hashes[i] != 0;
    assert_int_equal(flows, 1);
}

static void m3_the_first_call_of_a_flow(void **state)
{
    const struct killed_scene scene = {
        .act = first_call, .before = forget_flows, .after = check_first};

    (void)state;
    old_terms = new_terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    begin_flow();
    renewed = *fixture_flow(&killed_gate);
    killed_at_every_store(&scene, 100);
}

/* Another scope of the same configuration holds back more. */
static void m3_terms_that_become_stricter(void **state)
{
    (void)state;
    new_terms.requests_quota = 300;
    new_terms.units_quota = 100000;
    new_terms.warmup_ns = 10 * NS_PER_S;
    new_terms.max_concurrent = 7;
    new_terms.weights[1] = 9;
    kill_in_renewal();
}

static void m3_terms_that_become_adaptive(void **state)
{
    (void)state;
    new_terms = fixture_flow_terms(FLOW_STRATEGY_ADAPTIVE);
    kill_in_renewal();
}

/* ---- what the upstream tells ------------------------------------------------------------------ */

static const struct flow_told told = {.requests = {.limit = 300, .left = 280},
                                      .units = {.limit = 100000, .left = 90000}};
static uint32_t sent_place;

static void hear(struct gate *own)
{
    flow_hear(own, sent_place, &told, killed_now_ns);
}

static void begin_hearing(struct gate *own)
{
    const struct flow_target target = target_of(&old_terms);
    const struct flow_answer answer = fixture_flow_arrive(own, &target, FLOW_NORMAL, killed_now_ns);

    INVARIANT(answer.verdict == FLOW_GRANTED);
    sent_place = answer.place;
    flow_sent(own, sent_place, killed_now_ns);
    hear(own);
    hear(own);
}

/* The tick brings into force what is believed. */
static void check_told(void)
{
    struct flow_row *flow = fixture_flow(&killed_gate);
    int64_t requests, units;

    gate_tick(&killed_gate, killed_now_ns);
    requests = flow_quota_of(&flow->requests_known);
    units = flow_quota_of(&flow->units_known);
    assert_true(requests == old_terms.requests_quota || requests == told.requests.limit);
    assert_true(units == old_terms.units_quota || units == told.units.limit);
    assert_int_equal(flow->requests_quota, requests);
    assert_int_equal(flow->units_quota, units);
    assert_int_equal(flow->interval_ns, requests > 0 ? 60 * NS_PER_S / requests : 0);
    assert_int_equal(flow->requests.capacity_micro,
                     requests > 0 ? bucket_terms_strict(requests).capacity_micro : 0);
    assert_int_equal(flow->units.capacity_micro, bucket_terms_strict(units).capacity_micro);
    assert_int_equal(flow->units_rate_micro, bucket_terms_strict(units).rate_micro);
    killed_check_flow(0);
}

static void m3_a_quota_that_is_told(void **state)
{
    const struct killed_scene scene = {
        .prepare = begin_hearing, .act = hear, .before = begin_flow, .after = check_told};

    (void)state;
    old_terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    old_terms.requests_quota = 0;
    killed_at_every_store(&scene, 20);
}

/* ---- budgets ---------------------------------------------------------------------------------- */

/* A second without calls, at ten a second. */
static void begin_budget(void)
{
    struct bucket_row *requests;

    begin_flow();
    gate_lock(&killed_gate);
    requests = &fixture_flow(&killed_gate)->requests;
    requests->warm_from_ns = requests->refilled_ns = requests->since_ns = killed_now_ns - NS_PER_S;
    requests->balance_micro = requests->remainder = 0;
    gate_unlock(&killed_gate);
}

static void fill_budget(struct gate *own)
{
    gate_lock(own);
    (void)bucket_balance_micro(&fixture_flow(own)->requests, killed_now_ns);
    gate_unlock(own);
}

/* What came in may be lost with who counted it, and never comes in twice: no quota is exceeded. */
static void check_budget(void)
{
    struct bucket_row *requests = &fixture_flow(&killed_gate)->requests;

    assert_in_range(bucket_balance_micro(requests, killed_now_ns), 0, 10 * BUCKET_UNIT);
    assert_int_equal(bucket_balance_micro(requests, killed_now_ns + QUIET_NS),
                     requests->capacity_micro);
}

static void m3_a_budget_that_fills(void **state)
{
    const struct killed_scene scene = {
        .act = fill_budget, .before = begin_budget, .after = check_budget};

    (void)state;
    killed_at_every_store(&scene, 5);
}

/* Its warm-up was over long ago. */
static void begin_cold(void)
{
    struct bucket_row *requests;

    begin_budget();
    gate_lock(&killed_gate);
    requests = &fixture_flow(&killed_gate)->requests;
    requests->warming = 0;
    requests->warm_from_ns = killed_now_ns - 1000 * NS_PER_S;
    gate_unlock(&killed_gate);
}

static void restart_budget(struct gate *own)
{
    gate_lock(own);
    bucket_restart(&fixture_flow(own)->requests, killed_now_ns);
    gate_unlock(own);
}

static void m3_a_budget_that_warms_up(void **state)
{
    const struct killed_scene scene = {
        .act = restart_budget, .before = begin_cold, .after = check_budget};

    (void)state;
    old_terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    old_terms.warmup_ns = 10 * NS_PER_S;
    killed_at_every_store(&scene, 5);
}

/* ---- the adaptive controller ------------------------------------------------------------------ */

static void begin_adaptive(struct gate *own)
{
    const struct flow_target target = target_of(&old_terms);
    const struct flow_answer answer = fixture_flow_arrive(own, &target, FLOW_NORMAL, killed_now_ns);

    INVARIANT(answer.verdict == FLOW_GRANTED);
    sent_place = answer.place;
    flow_sent(own, sent_place, killed_now_ns);
}

static void be_refused(struct gate *own)
{
    const struct flow_end end = {.now_ns = killed_now_ns,
                                 .units = 300,
                                 .refused = true,
                                 .kind = ADAPTIVE_CAP,
                                 .retry_after_ns = 5 * NS_PER_S};

    (void)flow_settle(own, &sent_place, &end);
}

static void be_answered(struct gate *own)
{
    const struct adaptive_sample sample = {.latency_ns = NS_PER_S,
                                           .ttft_ns = NS_PER_S / 2,
                                           .decode_ns = NS_PER_S / 2,
                                           .input_tokens = 500,
                                           .output_tokens = 200,
                                           .streamed_tokens = 200};
    const struct flow_end end = {.now_ns = killed_now_ns, .units = 700, .sample = &sample};

    (void)flow_settle(own, &sent_place, &end);
}

/* Whatever it has learned, after some time a call goes. */
static void check_goes(void)
{
    const struct flow_target target = target_of(&old_terms);
    struct flow_answer answer;

    killed_check_flow(0);
    killed_now_ns += QUIET_NS;
    gate_tick(&killed_gate, killed_now_ns);
    assert_true(fixture_flow(&killed_gate)->adaptive.limit >= 1);
    answer = fixture_flow_arrive(&killed_gate, &target, FLOW_NORMAL, killed_now_ns);
    assert_int_equal(answer.verdict, FLOW_GRANTED);
    flow_cancel(&killed_gate, &answer.place, killed_now_ns);
    assert_int_equal(fixture_flow(&killed_gate)->adaptive.in_flight, 0);
}

static void m3_a_controller_that_learns(void **state)
{
    const struct killed_scene refused = {
        .prepare = begin_adaptive, .act = be_refused, .before = begin_flow, .after = check_goes};
    const struct killed_scene answered = {
        .prepare = begin_adaptive, .act = be_answered, .before = begin_flow, .after = check_goes};

    (void)state;
    old_terms = fixture_flow_terms(FLOW_STRATEGY_ADAPTIVE);
    killed_at_every_store(&refused, 50);
    killed_at_every_store(&answered, 50);
}

/* ---- sources --------------------------------------------------------------------------------- */

static const struct source_name names[] = {{"up", "account"}, {"other", ""}};
static uint64_t generation = 1;

static void set_generation(uint64_t now)
{
    segment_core(&killed_segment)->roster[killed_gate.self].generation = now;
}

/* One that is out of money, and a configuration that comes with another key. */
static void begin_out(void)
{
    const struct source_outcome outcome = {.end = SOURCE_END_OUT,
                                           .out_ns = 3600 * NS_PER_S,
                                           .reason = "billing",
                                           .now_ns = killed_now_ns,
                                           .now_wall_ms = 1};
    struct source_permit permit = {.row = NO_INDEX};
    struct source_candidate candidate = {.weight = 1};
    struct source_answer answer;
    struct source_wish wish = {.candidates = &candidate,
                               .count = 1,
                               .insist = true,
                               .now_ns = killed_now_ns,
                               .now_wall_ms = 1,
                               .probe_ns = NS_PER_S};

    memset(segment_instance(&killed_segment)->sources, 0,
           sizeof segment_instance(&killed_segment)->sources);
    set_generation(generation);
    assert_true(sources_register(&killed_gate, names, 1, &candidate.row));
    source_admit(&killed_gate, &wish, &answer);
    assert_int_equal(answer.verdict, SOURCE_ADMITTED);
    permit = answer.permit;
    source_release(&killed_gate, &permit, &outcome);
}

static void register_both(struct gate *own)
{
    uint32_t rows[2];

    segment_core(&killed_segment)->roster[own->self].generation = generation + 1;
    INVARIANT(sources_register(own, names, 2, rows));
}

static void check_registered(void)
{
    const struct source_row *sources = segment_instance(&killed_segment)->sources;
    uint32_t rows[2];
    unsigned used = 0;

    generation++;
    set_generation(generation);
    assert_true(sources_register(&killed_gate, names, 2, rows));
    for (unsigned i = 0; i < 2; i++) {
        assert_string_equal(sources[rows[i]].name, names[i].name);
        assert_int_equal(sources[rows[i]].out_until_ns, 0);
        assert_int_equal(sources[rows[i]].breaker, BREAKER_CLOSED);
        assert_int_equal(sources[rows[i]].needs_lock, 0);
    }
    for (unsigned i = 0; i < SOURCE_ROWS; i++)
        used += sources[i].used != 0;
    assert_int_equal(used, 2);
}

static void m3_sources_of_a_new_configuration(void **state)
{
    const struct killed_scene scene = {
        .act = register_both, .before = begin_out, .after = check_registered};

    (void)state;
    killed_at_every_store(&scene, 10);
}

/* ---- the semaphore is removed ------------------------------------------------------------------ */

static void begin_holding(void)
{
    gate_set_limits(&killed_gate, &new_limits, killed_now_ns, 1);
    assert_int_equal(killed_arrive(&killed_gate, &holder), GATE_GRANTED);
}

/* It holds one too. */
static void lose_semaphore(struct gate *own)
{
    uint32_t place;

    INVARIANT(killed_arrive(own, &place) == GATE_GRANTED);
    INVARIANT(semctl(segment_core(&killed_segment)->semaphore_id, 0, IPC_RMID) == 0);
}

static void answer_roll(struct gate *own)
{
    gate_tick(own, killed_now_ns);
}

/* The living took their shares in the new set, no more and no less, and slots go on. */
static void check_roll(void)
{
    struct slots_use use;

    gate_tick(&killed_gate, killed_now_ns);
    use = killed_use();
    assert_false(use.roll_call);
    assert_int_equal(use.held, 1);
    assert_int_equal(use.semaphore, 1);
    assert_int_equal(killed_arrive(&killed_gate, &waiter), GATE_GRANTED);
    gate_leave(&killed_gate, holder, WAIT_DONE, killed_now_ns, NULL);
    gate_leave(&killed_gate, waiter, WAIT_DONE, killed_now_ns, NULL);
    use = killed_use();
    assert_int_equal(use.used, 0);
    assert_int_equal(use.semaphore, 0);
}

static void m9_the_roll_call(void **state)
{
    const struct killed_scene scene = {.prepare = lose_semaphore,
                                       .act = answer_roll,
                                       .before = begin_holding,
                                       .after = check_roll};

    (void)state;
    killed_at_every_store(&scene, 10);
}

static int make(void **state)
{
    old_terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    new_terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    return killed_open(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(m3_limits_that_change, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_the_first_call_of_a_flow, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_terms_that_become_stricter, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_terms_that_become_adaptive, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_quota_that_is_told, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_budget_that_fills, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_budget_that_warms_up, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_controller_that_learns, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_sources_of_a_new_configuration, make, killed_close),
        cmocka_unit_test_setup_teardown(m9_the_roll_call, make, killed_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
