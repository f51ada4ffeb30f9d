/*
 * run_killed_admission.c - a process is killed after each single store that it makes into the segment
 * (killed.h): in calls that need a slot, a flow and a source; as slots become leases; as it buries another,
 * leaves, or repairs what another left.
 */
#include "tests/scenarios/killed.h"

#include "shared/admit.h"
#include "shared/journal.h"

#define CAPACITY 100000
#define COST 1000
#define PREDICTED 500
#define SENT (COST + PREDICTED) /* what the burial of a sent call books */
#define USED 300
#define LEASE_NS (3600 * NS_PER_S)
#define COOLDOWN_NS (100 * NS_PER_MS)

static struct flow_terms terms;
static struct source_candidate candidate;
static enum source_end call_end;

static struct source_row *source(void)
{
    return &segment_instance(&killed_segment)->sources[candidate.row];
}

static int make(void **state)
{
    static const struct source_name name = {.name = "up", .quota_group = "account"};
    uint32_t row;

    if (killed_open(state) != 0 || !sources_register(&killed_gate, &name, 1, &row))
        return 1;
    candidate = (struct source_candidate){.row = row, .weight = 1};
    call_end = SOURCE_END_SUCCESS;
    terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    terms.requests_quota = 0;
    terms.max_concurrent = 1;
    return 0;
}

/* ---- a call with everything ------------------------------------------------------------------ */

static struct source_wish wish(void)
{
    return (struct source_wish){.candidates = &candidate,
                                .count = 1,
                                .now_ns = killed_now_ns,
                                .now_wall_ms = 1,
                                .probe_ns = 600 * NS_PER_S};
}

/* Its parts point to each other. */
struct asked {
    struct source_wish wish;
    struct flow_target target;
    struct gate_call image;
    struct admit_call call;
};

static void ask(struct asked *ret)
{
    ret->wish = wish();
    ret->target = fixture_target(&terms, COST);
    ret->target.predicted = PREDICTED;
    ret->image = fixture_call(true);
    ret->image.now_ns = killed_now_ns;
    ret->call = (struct admit_call){.wish = &ret->wish,
                                    .targets = &ret->target,
                                    .flow = fixture_flow_call(FLOW_NORMAL, killed_now_ns),
                                    .image = &ret->image};
}

static struct admit_seat arrive(struct gate *of, enum admit_verdict expected)
{
    struct admit_seat seat = ADMIT_SEAT_EMPTY;
    struct admit_answer answer;
    struct asked asked;

    ask(&asked);
    admit_arrive(of, &asked.call, &seat, &answer);
    INVARIANT(answer.verdict == expected);
    return seat;
}

static void release(struct gate *of, struct source_permit *permit, enum source_end end)
{
    const struct source_outcome outcome = {
        .end = end,
        .terms = {.failures = 1, .cooldown_ns = COOLDOWN_NS, .cooldown_max_ns = COOLDOWN_NS},
        .reason = "http_500",
        .now_ns = killed_now_ns,
        .now_wall_ms = 1};

    source_release(of, permit, &outcome);
}

static void end_call(struct gate *of, struct admit_seat *seat)
{
    const struct flow_end end = {.now_ns = killed_now_ns, .units = USED};

    release(of, &seat->permit, call_end);
    (void)flow_settle(of, &seat->flow_place, &end);
    gate_leave(of, seat->image_place, WAIT_DONE, killed_now_ns, NULL);
}

static void whole_call(struct gate *own)
{
    struct admit_seat seat = arrive(own, ADMIT_GRANTED);

    flow_sent(own, seat.flow_place, killed_now_ns);
    end_call(own, &seat);
}

/* The balance moves by grants and ends only, and the window shows this life's use; the source is well. */
static void begin_again(void)
{
    struct flow_row *flow;

    assert_true(source_drain(&killed_gate, "up", false, 0));
    journal_discard(killed_journal());
    whole_call(&killed_gate); /* there is a flow */
    assert_true(source_drain(&killed_gate, "up", false, 0));
    gate_lock(&killed_gate);
    flow = fixture_flow(&killed_gate);
    bucket_set_rate(&flow->units, 0, killed_now_ns);
    bucket_set_capacity(&flow->units, CAPACITY * BUCKET_UNIT, killed_now_ns);
    flow->units.balance_micro = CAPACITY * BUCKET_UNIT;
    memset(flow->window, 0, sizeof flow->window);
    gate_unlock(&killed_gate);
}

static int64_t spent(void)
{
    int64_t units;

    gate_lock(&killed_gate);
    units = CAPACITY - fixture_flow(&killed_gate)->units.balance_micro / BUCKET_UNIT;
    gate_unlock(&killed_gate);
    return units;
}

static void check_waits(void)
{
    const struct wait_record *record;
    const struct event_record *event;

    for (uint64_t i = 0; (record = journal_peek_wait(killed_journal(), i)) != NULL; i++) {
        assert_int_equal(record->boot, segment_core(&killed_segment)->boot);
        assert_in_range(record->state, WAIT_WAITING, WAIT_SHUTDOWN);
        assert_string_equal(record->call_id, "pst_test");
        assert_string_equal(record->endpoint, "images/generations");
    }
    for (uint64_t i = 0; (event = journal_peek_event(killed_journal(), i)) != NULL; i++)
        assert_int_not_equal(event->pid, 0);
}

/* How the journal ends the story of a wait. */
static enum wait_state ended(uint64_t arrival_seq)
{
    const struct wait_record *record;
    enum wait_state state = WAIT_NONE;

    for (uint64_t i = 0; (record = journal_peek_wait(killed_journal(), i)) != NULL; i++)
        if (record->arrival_seq == arrival_seq)
            state = (enum wait_state)record->state;
    return state;
}

/* Of whom the journal told that he came, it tells how he went. */
static void check_stories(void)
{
    const struct wait_record *record;

    check_waits();
    for (uint64_t i = 0; (record = journal_peek_wait(killed_journal(), i)) != NULL; i++)
        assert_true(ended(record->arrival_seq) >= WAIT_DONE);
}

static void check_source(void)
{
    assert_int_equal(atomic_load(&source()->probe_held), 0);
    for (unsigned i = 0; i < ROSTER_MAX; i++)
        assert_int_equal(atomic_load(&source()->in_flight[i]), 0);
}

/* Everything is free again, and another call gets all that it needs. */
static void check_all_free(void)
{
    killed_check_image_queue(0);
    killed_check_flow(0);
    assert_int_equal(killed_use().used, 0);
    assert_int_equal(killed_use().semaphore, 0);
    check_source();
    check_stories();
    killed_now_ns += NS_PER_S; /* a breaker's cool-down is over */
    gate_tick(&killed_gate, killed_now_ns);
    whole_call(&killed_gate);
}

static void check_use(void)
{
    struct flow_use use;

    gate_lock(&killed_gate);
    use = flow_use_locked(fixture_flow(&killed_gate), killed_now_ns);
    gate_unlock(&killed_gate);
    assert_int_equal(use.units, spent());
}

static void check_one_call(void)
{
    const int64_t units = spent();

    assert_true(units == 0 || units == USED || units == SENT);
    check_use();
    check_all_free();
}

static void m3_a_call_with_slot_flow_and_source(void **state)
{
    const struct killed_scene scene = {
        .act = whole_call, .before = begin_again, .after = check_one_call};

    (void)state;
    killed_at_every_store(&scene, 100);
}

static struct admit_seat running, waiting;

static void begin_call(struct gate *own)
{
    running = arrive(own, ADMIT_GRANTED);
    flow_sent(own, running.flow_place, killed_now_ns);
}

static void fail_call(struct gate *own)
{
    end_call(own, &running);
}

static void m3_a_call_whose_failure_opens_the_breaker(void **state)
{
    const struct killed_scene scene = {
        .prepare = begin_call, .act = fail_call, .before = begin_again, .after = check_one_call};

    (void)state;
    call_end = SOURCE_END_FAILURE;
    killed_at_every_store(&scene, 100);
}

static void wait_in_vain(struct gate *own)
{
    waiting = arrive(own, ADMIT_QUEUED);
    admit_leave(own, &waiting, WAIT_CLIENT_GONE, killed_now_ns);
}

static void m3_a_call_that_waits_for_both_in_vain(void **state)
{
    const struct killed_scene scene = {
        .prepare = begin_call, .act = wait_in_vain, .before = begin_again, .after = check_one_call};

    (void)state;
    killed_at_every_store(&scene, 50);
}

static void begin_calls(struct gate *own)
{
    begin_call(own);
    waiting = arrive(own, ADMIT_QUEUED);
}

static void grant_the_second(struct gate *own)
{
    struct admit_answer answer;
    struct asked asked;

    end_call(own, &running);
    ask(&asked);
    admit_try(own, &asked.call, &waiting, &answer);
    INVARIANT(answer.verdict == ADMIT_GRANTED);
}

static void m3_a_call_that_waits_for_both_and_is_granted(void **state)
{
    const struct killed_scene scene = {.prepare = begin_calls,
                                       .act = grant_the_second,
                                       .before = begin_again,
                                       .after = check_one_call};

    (void)state;
    killed_at_every_store(&scene, 100);
}

/* ---- the probe of a half-open breaker -------------------------------------------------------- */

static void open_breaker(void)
{
    struct admit_seat seat;

    begin_again();
    seat = arrive(&killed_gate, ADMIT_GRANTED);
    release(&killed_gate, &seat.permit, SOURCE_END_FAILURE);
    flow_cancel(&killed_gate, &seat.flow_place, killed_now_ns);
    gate_leave(&killed_gate, seat.image_place, WAIT_DONE, killed_now_ns, NULL);
    assert_int_equal(atomic_load(&source()->breaker), BREAKER_OPEN);
    killed_now_ns += 2 * COOLDOWN_NS;
}

static void probe(struct gate *own)
{
    const struct source_wish wanted = wish();
    struct source_answer answer;

    source_admit(own, &wanted, &answer);
    INVARIANT(answer.verdict == SOURCE_ADMITTED && answer.permit.probe);
    release(own, &answer.permit, call_end);
}

static void check_probe(void)
{
    check_source();
    check_all_free();
    assert_int_equal(source()->breaker, BREAKER_CLOSED);
}

static void m3_a_probe_that_fails(void **state)
{
    const struct killed_scene scene = {
        .act = probe, .before = open_breaker, .after = check_all_free};

    (void)state;
    call_end = SOURCE_END_FAILURE;
    killed_at_every_store(&scene, 20);
}

static void m3_a_probe_that_closes_the_breaker(void **state)
{
    const struct killed_scene scene = {.act = probe, .before = open_breaker, .after = check_probe};

    (void)state;
    killed_at_every_store(&scene, 20);
}

/* ---- leases ---------------------------------------------------------------------------------- */

static struct lease_terms lease(void)
{
    return (struct lease_terms){.id = "resp_background_1",
                                .source = "up",
                                .instance = killed_segment.instance,
                                .duration_ns = LEASE_NS};
}

static void call_that_leaves_a_lease(struct gate *own)
{
    const struct lease_terms kept = lease();
    uint32_t place;

    INVARIANT(killed_arrive(own, &place) == GATE_GRANTED);
    gate_leave(own, place, WAIT_DONE, killed_now_ns, &kept);
}

/* Whole or not at all. While its process is not buried, a lease and the slot that it came from both count:
 * one too many for a moment, never one too few. */
static void check_lease(void)
{
    const struct core_area *core = segment_core(&killed_segment);
    struct slots_use use = killed_use();
    char owner[NAME_SIZE];

    assert_in_range(use.leases, 0, 1);
    assert_int_equal(use.used, use.leases);
    if (use.leases > 0) {
        gate_lease_source(&killed_gate, lease().id, owner);
        assert_string_equal(owner, "up");
        assert_int_equal(core->leases[0].expires_ns, killed_now_ns + LEASE_NS);
        assert_int_equal(core->leases[0].since_ns, killed_now_ns);
    }
    assert_int_equal(gate_end_lease(&killed_gate, lease().id, killed_now_ns), use.leases);
    check_all_free();
}

static void m3_a_slot_that_becomes_a_lease(void **state)
{
    const struct killed_scene scene = {
        .act = call_that_leaves_a_lease, .before = begin_again, .after = check_lease};

    (void)state;
    killed_at_every_store(&scene, 50);
}

static void begin_lease(void)
{
    begin_again();
    call_that_leaves_a_lease(&killed_gate);
    assert_int_equal(killed_use().used, 1);
}

static void end_lease(struct gate *own)
{
    INVARIANT(gate_end_lease(own, lease().id, killed_now_ns));
}

static void m3_the_end_of_a_lease(void **state)
{
    const struct killed_scene scene = {
        .act = end_lease, .before = begin_lease, .after = check_lease};

    (void)state;
    killed_at_every_store(&scene, 5);
}

/* ---- burial, leaving, repair ------------------------------------------------------------------ */

static struct roster_death victim;
static uint64_t victim_waits[2]; /* arrival_seq of its calls */

static void begin_with_dead(void)
{
    struct core_area *core = segment_core(&killed_segment);
    pid_t pid;

    begin_again();
    victim_waits[0] = core->next_arrival_seq;
    victim_waits[1] = core->next_arrival_seq + 1;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct roster_member member = {
            .role = PROCESS_WORKER, .instance = killed_segment.instance, .generation = 1};
        struct gate own;

        if (!gate_join(&own, &killed_segment, &member, killed_now_ns))
            _exit(14);
        begin_calls(&own);
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    victim = (struct roster_death){.index = NO_INDEX};
    for (uint32_t i = 0; i < ROSTER_MAX; i++)
        if (atomic_load(&core->roster[i].pid) == pid)
            victim = (struct roster_death){.index = i, .incarnation = core->roster[i].incarnation};
    assert_int_not_equal(victim.index, NO_INDEX);
}

static void bury(struct gate *own)
{
    struct gate_burial burial;

    INVARIANT(gate_bury(own, &victim, killed_now_ns, 1, &burial));
}

static void check_buried(void)
{
    assert_int_equal(spent(), SENT);
    check_use();
    assert_int_equal(ended(victim_waits[0]), WAIT_WORKER_DIED);
    assert_int_equal(ended(victim_waits[1]), WAIT_WORKER_DIED);
    check_all_free();
}

static void m3_a_process_that_buries_another(void **state)
{
    const struct killed_scene scene = {
        .act = bury, .before = begin_with_dead, .after = check_buried};

    (void)state;
    killed_at_every_store(&scene, 100);
}

static void leave(struct gate *own)
{
    gate_resign(own, killed_now_ns);
}

static void check_left(void)
{
    assert_int_equal(spent(), SENT);
    check_use();
    check_all_free();
}

static void m3_a_process_that_leaves(void **state)
{
    const struct killed_scene scene = {
        .prepare = begin_calls, .act = leave, .before = begin_again, .after = check_left};

    (void)state;
    killed_at_every_store(&scene, 100);
}

static uint32_t died_at; /* store of whole_call */

static void begin_with_half_done(void)
{
    pid_t pid;

    begin_again();
    killed_life->last = died_at;
    killed_life->before = false;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        killed_live(&(struct killed_scene){.act = whole_call});
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* In the midst of a call, found by the stores' number: where the lock is held. Who enters then repairs. */
static void m3_a_process_that_repairs(void **state)
{
    const struct killed_scene call = {
        .act = whole_call, .before = begin_again, .after = check_one_call};
    const struct killed_scene scene = {
        .rounds = 1, .before = begin_with_half_done, .after = check_one_call};
    uint32_t stores, met = 0;

    (void)state;
    fixture_needs_pidfds();
    assert_false(killed_run(&call, UINT32_MAX, false));
    stores = killed_life->stores;
    for (uint32_t part = 1; part < 4; part++) {
        died_at = stores * part / 4;
        begin_with_half_done();
        if (atomic_load(&segment_core(&killed_segment)->lock.owner) == 0)
            continue;
        killed_bury();
        killed_at_every_store(&scene, 50);
        met++;
    }
    assert_in_range(met, 2, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(m3_a_call_with_slot_flow_and_source, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_call_whose_failure_opens_the_breaker, make,
                                        killed_close),
        cmocka_unit_test_setup_teardown(m3_a_call_that_waits_for_both_in_vain, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_call_that_waits_for_both_and_is_granted, make,
                                        killed_close),
        cmocka_unit_test_setup_teardown(m3_a_probe_that_fails, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_probe_that_closes_the_breaker, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_slot_that_becomes_a_lease, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_the_end_of_a_lease, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_process_that_buries_another, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_process_that_leaves, make, killed_close),
        cmocka_unit_test_setup_teardown(m3_a_process_that_repairs, make, killed_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
