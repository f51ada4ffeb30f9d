/* test_snapshot.c - a copy of one moment: holders, queue, processes, journal, counters. */
#include "tests/shared/flow_fixture.h"
#include "tests/shared/sources_fixture.h"

#include "shared/counters.h"
#include "shared/snapshot.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct segment segment;
static struct gate gate;
static struct snapshot snapshot;

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

static void an_idle_gate_has_nothing_to_show(void **state)
{
    int64_t now_ns = clock_monotonic_ns();

    (void)state;
    assert_true(snapshot_take(&snapshot, &gate, now_ns));
    assert_int_equal(snapshot.taken_ns, now_ns);
    assert_int_equal(snapshot.limit, 2);
    assert_int_equal(snapshot.max_waiting, 5);
    assert_int_equal(snapshot.use.used, 0);
    assert_int_equal(snapshot.use.free, 2);
    assert_int_equal(snapshot.waiting, 0);
    assert_int_equal(snapshot.place_count, 0);
    assert_int_equal(snapshot.source_count, 0);
    assert_true(snapshot.gate_on);
    assert_true(snapshot.linked);
    assert_string_equal(snapshot.state_directory, "/nowhere");
    assert_int_equal(snapshot.process_count, 1);
    assert_int_equal(snapshot.processes[0].pid, getpid());
    assert_int_equal(snapshot.processes[0].role, PROCESS_WORKER);
    assert_int_equal(snapshot.processes[0].instance, snapshot.instance);
    snapshot_release(&snapshot);
    snapshot_release(&snapshot); /* harmless */
}

static void flows_are_those_of_the_same_moment_F12(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    const struct flow_target target = fixture_target(&terms, 100);
    int64_t now_ns = clock_monotonic_ns();
    struct flow_answer first = fixture_flow_arrive(&gate, &target, FLOW_NORMAL, now_ns);
    struct flow_answer second = fixture_flow_arrive(&gate, &target, FLOW_BULK, now_ns);

    (void)state;
    assert_int_equal(first.verdict, FLOW_GRANTED);
    assert_int_equal(second.verdict, FLOW_QUEUED);
    flow_sent(&gate, first.place, now_ns);
    assert_true(snapshot_take(&snapshot, &gate, now_ns));
    assert_int_equal(snapshot.flow_count, 1);
    assert_string_equal(snapshot.flows[0].quota_group, "account");
    assert_string_equal(snapshot.flows[0].model, "model");
    assert_int_equal(snapshot.flows[0].strategy, FLOW_STRATEGY_SHAPING);
    assert_int_equal(snapshot.flows[0].in_flight, 1);
    assert_int_equal(snapshot.flows[0].waiting[FLOW_BULK], 1);
    assert_int_equal(snapshot.flows[0].use.sends, 1);
    assert_int_equal(snapshot.flows[0].use.units, 100);
    assert_int_equal(snapshot.flows[0].completed, 0);
    snapshot_release(&snapshot);
    flow_cancel(&gate, &second.place, now_ns);
    fixture_flow_settle(&gate, &first.place, 120, now_ns);
    assert_true(snapshot_take(&snapshot, &gate, now_ns));
    assert_int_equal(snapshot.flows[0].completed, 1);
    assert_int_equal(snapshot.flows[0].use.units, 120);
    snapshot_release(&snapshot);
    assert_null(snapshot.flows);
}

static void holders_come_by_grant_and_waiters_by_arrival(void **state)
{
    uint32_t places[5];

    (void)state;
    for (unsigned i = 0; i < 5; i++)
        (void)fixture_arrive(&gate, true, &places[i]);
    fixture_leave(&gate, places[0],
                  WAIT_DONE); /* its slot goes to the third call, not by row order */
    assert_int_equal(fixture_try(&gate, places[2]), GATE_GRANTED);

    assert_true(snapshot_take(&snapshot, &gate, clock_monotonic_ns()));
    assert_int_equal(snapshot.use.used, 2);
    assert_int_equal(snapshot.waiting, 2);
    assert_int_equal(snapshot.place_count, 4);
    assert_true(snapshot.places[0].holds && snapshot.places[1].holds);
    assert_int_equal(snapshot.places[0].record.arrival_seq + 1,
                     snapshot.places[1].record.arrival_seq);
    assert_true(snapshot.places[0].record.grant_seq < snapshot.places[1].record.grant_seq);
    for (unsigned i = 2; i < 4; i++) {
        assert_false(snapshot.places[i].holds);
        assert_int_equal(snapshot.places[i].position, i - 1);
        assert_int_equal(snapshot.places[i].pid, getpid());
        assert_int_equal(snapshot.places[i].record.state, WAIT_WAITING);
        assert_string_equal(snapshot.places[i].record.model, "gpt-image-2");
    }
    assert_true(snapshot.places[2].record.arrival_seq < snapshot.places[3].record.arrival_seq);
    snapshot_release(&snapshot);
}

static void a_dead_holder_is_shown_until_it_is_buried(void **state)
{
    struct gate_burial burial;
    struct roster_death death;
    uint32_t place;
    pid_t child = fork();
    int status;

    (void)state;
    if (child == 0) {
        const struct roster_member member = {.role = PROCESS_WORKER, .instance = segment.instance};
        struct gate own;

        if (!gate_join(&own, &segment, &member, clock_monotonic_ns()) ||
            fixture_arrive(&own, false, &place) != GATE_GRANTED)
            _exit(1);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);

    assert_true(snapshot_take(&snapshot, &gate, clock_monotonic_ns()));
    assert_int_equal(snapshot.use.semaphore, 0);
    assert_int_equal(snapshot.use.used, 1);
    assert_int_equal(snapshot.place_count, 1);
    assert_int_equal(snapshot.places[0].pid, child);
    assert_int_equal(snapshot.process_count, 2);
    snapshot_release(&snapshot);

    death.index = 1;
    death.incarnation = segment_core(&segment)->roster[1].incarnation;
    assert_true(gate_bury(&gate, &death, clock_monotonic_ns(), 0, &burial));
    assert_true(snapshot_take(&snapshot, &gate, clock_monotonic_ns()));
    assert_int_equal(snapshot.place_count, 0);
    assert_int_equal(snapshot.process_count, 1);
    assert_int_equal(snapshot.counters[COUNTER_burials], 1);
    snapshot_release(&snapshot);
}

static void journal_and_counters_are_told(void **state)
{
    struct instance_row *instance = segment_instance(&segment);
    uint32_t place;

    (void)state;
    counter_add(&instance->counters, COUNTER_tokens_in, 17);
    atomic_store(&instance->journal.calls_lost, 3);
    atomic_store(&instance->journal.written, 9);
    assert_int_equal(fixture_arrive(&gate, false, &place), GATE_GRANTED);
    assert_true(snapshot_take(&snapshot, &gate, clock_monotonic_ns()));
    assert_int_equal(snapshot.counters[COUNTER_tokens_in], 17);
    assert_int_equal(snapshot.counters[COUNTER_image_granted], 1);
    assert_true(snapshot.journal.waits_pending >= 1);
    assert_int_equal(snapshot.journal.calls_lost, 3);
    assert_int_equal(snapshot.journal.written, 9);
    snapshot_release(&snapshot);
}

static void h7_sources_are_shown(void **state)
{
    static const struct source_name names[] = {{"a", ""}, {"b", ""}};
    struct source_candidate candidates[2];
    struct source_wish wish;

    (void)state;
    fixture_register(&gate, names, LENGTH(names), candidates);
    wish = fixture_wish(candidates, 1, FIXTURE_NOW_NS);
    assert_int_equal(fixture_admit(&gate, &wish).verdict, SOURCE_ADMITTED);
    fixture_break(&gate, &candidates[1], FIXTURE_NOW_NS);
    assert_true(snapshot_take(&snapshot, &gate, FIXTURE_NOW_NS + NS_PER_S));
    assert_int_equal(snapshot.source_count, 2);
    assert_string_equal(snapshot.sources[0].name, "a");
    assert_int_equal(snapshot.sources[0].in_flight, 1);
    assert_int_equal(snapshot.sources[1].breaker, BREAKER_OPEN);
    assert_int_equal(snapshot.sources[1].open_for_ns, 4 * NS_PER_S);
    assert_int_equal(snapshot.counters[COUNTER_source_openings], 1);
    snapshot_release(&snapshot);
}

static atomic_bool enough;

static void *come_and_go(void *unused)
{
    (void)unused;
    while (!atomic_load(&enough)) {
        uint32_t place;
        enum gate_verdict verdict = fixture_arrive(&gate, true, &place);

        if (verdict == GATE_GRANTED || verdict == GATE_QUEUED)
            fixture_leave(&gate, place, verdict == GATE_QUEUED ? WAIT_TIMED_OUT : WAIT_DONE);
    }
    return NULL;
}

/* While calls come and go, each snapshot agrees with itself. */
static void every_moment_agrees_with_itself(void **state)
{
    pthread_t threads[4];

    (void)state;
    atomic_store(&enough, false);
    for (unsigned i = 0; i < LENGTH(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, NULL), 0);
    for (unsigned round = 0; round < 500; round++) {
        unsigned holders = 0;

        assert_true(snapshot_take(&snapshot, &gate, clock_monotonic_ns()));
        for (unsigned i = 0; i < snapshot.place_count; i++)
            holders += snapshot.places[i].holds;
        assert_int_equal(holders, snapshot.use.used);
        assert_true(holders <= 2);
        assert_int_equal(snapshot.place_count - holders, snapshot.waiting);
        for (unsigned i = holders; i < snapshot.place_count; i++)
            assert_int_equal(snapshot.places[i].position, i - holders + 1);
        snapshot_release(&snapshot);
    }
    atomic_store(&enough, true);
    for (unsigned i = 0; i < LENGTH(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_idle_gate_has_nothing_to_show, open_gate, close_gate),
        cmocka_unit_test_setup_teardown(flows_are_those_of_the_same_moment_F12, open_gate,
                                        close_gate),
        cmocka_unit_test_setup_teardown(holders_come_by_grant_and_waiters_by_arrival, open_gate,
                                        close_gate),
        cmocka_unit_test_setup_teardown(a_dead_holder_is_shown_until_it_is_buried, open_gate,
                                        close_gate),
        cmocka_unit_test_setup_teardown(journal_and_counters_are_told, open_gate, close_gate),
        cmocka_unit_test_setup_teardown(h7_sources_are_shown, open_gate, close_gate),
        cmocka_unit_test_setup_teardown(every_moment_agrees_with_itself, open_gate, close_gate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
