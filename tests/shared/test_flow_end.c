/* test_flow_end.c - flows among threads and processes that are killed, stopped, or die inside
 * the lock. */
#include "tests/shared/flow_fixture.h"

#include "shared/flow_inside.h"
#include "shared/wait_queue.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static struct segment segment;
static struct gate gate;
static struct flow_terms terms;
static struct roster_watch watch;

static int make(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 1, 100);
    terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    terms.requests_quota = 0;
    terms.max_wait_ns[FLOW_NORMAL] = CLOCK_NEVER; /* for what never comes, too */
    roster_watch_init(&watch);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    roster_watch_release(&watch);
    fixture_close(&segment);
    return 0;
}

static struct flow_answer arrive(struct gate *of, int64_t cost)
{
    struct flow_target target = fixture_target(&terms, cost);

    target.predicted = 500;
    return fixture_flow_arrive(of, &target, FLOW_NORMAL, clock_monotonic_ns());
}

static void join_gate(struct gate *own)
{
    const struct roster_member member = {
        .role = PROCESS_WORKER, .instance = segment.instance, .generation = 1};
    if (!gate_join(own, &segment, &member, clock_monotonic_ns()))
        _exit(1);
}

static void child_joins(struct gate *own)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    join_gate(own);
}

static unsigned bury_all(void)
{
    struct roster_death dead[16];
    struct gate_burial burial;
    unsigned buried = 0;
    unsigned count =
        roster_watch_dead(&watch, segment_core(&segment), dead, (unsigned)LENGTH(dead));

    for (unsigned i = 0; i < count; i++)
        buried += gate_bury(&gate, &dead[i], clock_monotonic_ns(), 0, &burial);
    return buried;
}

static void kill_and_bury(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    while (bury_all() == 0)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The balance of units moves by grants and ends only. */
static struct flow_row *stop_refill(int64_t units)
{
    struct flow_answer answer = arrive(&gate, 1);
    struct flow_row *flow = fixture_flow(&gate);

    assert_int_equal(answer.verdict, FLOW_GRANTED);
    flow_cancel(&gate, &answer.place, clock_monotonic_ns());
    gate_lock(&gate);
    bucket_set_rate(&flow->units, 0, clock_monotonic_ns());
    bucket_set_capacity(&flow->units, units * BUCKET_UNIT, clock_monotonic_ns());
    flow->units.balance_micro = units * BUCKET_UNIT;
    gate_unlock(&gate);
    return flow;
}

enum hang { HANG_WAITING, HANG_GRANTED, HANG_SENT };

/* A process with one call in that state, which then does nothing. */
static pid_t hang(enum hang how, int64_t cost)
{
    int ready[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct gate own;
        struct flow_answer answer;

        child_joins(&own);
        answer = arrive(&own, cost);
        if (answer.verdict != (how == HANG_WAITING ? FLOW_QUEUED : FLOW_GRANTED))
            _exit(1);
        if (how == HANG_SENT)
            flow_sent(&own, answer.place, clock_monotonic_ns());
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            (void)pause();
    }
    assert_int_equal(close(ready[1]), 0);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(close(ready[0]), 0);
    return pid;
}

static void i1_a_killed_process_gives_everything_back(void **state)
{
    struct flow_row *flow;
    pid_t granted, sent, waiting;

    (void)state;
    fixture_needs_pidfds();
    (void)bury_all();
    flow = stop_refill(10000);
    granted = hang(HANG_GRANTED, 1000);
    sent = hang(HANG_SENT, 2000);
    waiting = hang(HANG_WAITING, 9000);
    assert_int_equal(flow->in_flight, 2);
    assert_int_equal(flow->waiting, 1);
    assert_int_equal(flow->units.balance_micro, 7000 * BUCKET_UNIT);
    kill_and_bury(waiting);
    assert_int_equal(flow->waiting, 0);
    kill_and_bury(granted); /* nothing was sent: all of it */
    assert_int_equal(flow->units.balance_micro, 8000 * BUCKET_UNIT);
    kill_and_bury(sent); /* what it was charged, and what it would have used */
    assert_int_equal(flow->units.balance_micro, 7500 * BUCKET_UNIT);
    assert_int_equal(flow->in_flight, 0);
    assert_int_equal(flow->buried, 3);
    assert_int_equal(segment_layout(&segment)->flow_places_used, 0);
}

static void i1_a_clean_end_gives_everything_back(void **state)
{
    struct flow_row *flow;
    struct gate own;

    (void)state;
    flow = stop_refill(10000);
    join_gate(&own);
    assert_int_equal(arrive(&own, 1000).verdict, FLOW_GRANTED);
    assert_int_equal(arrive(&own, 10000).verdict, FLOW_QUEUED);
    gate_resign(&own, clock_monotonic_ns());
    assert_int_equal(flow->units.balance_micro, 10000 * BUCKET_UNIT);
    assert_int_equal(flow->in_flight + flow->waiting, 0);
}

/* Any step of a grant or an end is left half-done by a process that dies in it. */
static void m3_what_a_dead_holder_left_half_done_is_undone(void **state)
{
    (void)state;
    fixture_needs_pidfds();
    (void)bury_all();
    for (int done = 0; done < 5; done++) {
        struct flow_row *flow = stop_refill(10000);
        const int64_t finish = flow->classes[FLOW_NORMAL].finish;
        const int64_t next_send_ns = flow->next_send_ns;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
            struct gate own;
            struct layout_area *layout = segment_layout(&segment);
            uint32_t place;

            child_joins(&own);
            gate_lock(&own);
            place = flow_queue_new_place_locked(segment_core(&segment), layout, own.self);
            layout->flow_places[place].flow = 0;
            layout->flow_places[place].class_index = FLOW_NORMAL;
            layout->flow_places[place].cost = 700;
            flow_queue_join_locked(layout, place);
            if (done > 0)
                flow_step_begins(flow, layout, place, FLOW_PLACE_GRANTED, clock_monotonic_ns());
            if (done > 1)
                bucket_take(&flow->units, 700 * BUCKET_UNIT, clock_monotonic_ns());
            if (done > 2)
                layout->flow_places[place].charged = 700;
            if (done > 3) /* all but the last word */
                flow->classes[FLOW_NORMAL].finish += flow->next_send_ns += 12345;
            raise(SIGKILL);
        }
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        gate_lock(&gate);
        assert_int_equal(flow->units.balance_micro, 10000 * BUCKET_UNIT);
        assert_int_equal(flow->classes[FLOW_NORMAL].finish, finish);
        assert_int_equal(flow->next_send_ns, next_send_ns);
        assert_int_equal(flow->waiting, 1);
        gate_unlock(&gate);
        while (bury_all() == 0)
            clock_sleep_ns(NS_PER_MS);
        assert_int_equal(flow->waiting + flow->in_flight, 0);
        assert_int_equal(flow->units.balance_micro, 10000 * BUCKET_UNIT);
    }
}

/* A grant that got as far as its last word is one. */
static void m3_a_step_that_was_finished_is_kept(void **state)
{
    struct flow_row *flow;
    pid_t pid;

    (void)state;
    fixture_needs_pidfds();
    (void)bury_all();
    flow = stop_refill(10000);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct gate own;
        struct layout_area *layout = segment_layout(&segment);
        uint32_t place;

        child_joins(&own);
        gate_lock(&own);
        place = flow_queue_new_place_locked(segment_core(&segment), layout, own.self);
        layout->flow_places[place].class_index = FLOW_NORMAL;
        layout->flow_places[place].cost = 700;
        flow_step_begins(flow, layout, place, FLOW_PLACE_GRANTED, clock_monotonic_ns());
        bucket_take(&flow->units, 700 * BUCKET_UNIT, clock_monotonic_ns());
        layout->flow_places[place].charged = 700;
        flow_queue_grant_locked(layout, place);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    gate_lock(&gate);
    assert_int_equal(flow->units.balance_micro, 9300 * BUCKET_UNIT);
    assert_int_equal(flow->in_flight, 1);
    gate_unlock(&gate);
    while (bury_all() == 0)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(flow->units.balance_micro, 10000 * BUCKET_UNIT);
}

/* Processes join, are granted, and leave again, as fast as they can; they are killed wherever they are.
 * Nothing is lost and nothing appears. */
static void i1_nothing_is_lost_while_processes_are_killed(void **state)
{
    enum { PROCESSES = 3, KILLS = 40 };
    struct flow_row *flow;
    pid_t pids[PROCESSES];

    (void)state;
    fixture_needs_pidfds();
    (void)bury_all();
    flow = stop_refill(2500);
    for (int kills = 0; kills < KILLS + PROCESSES; kills++) {
        int slot = kills % PROCESSES;
        int ready[2];
        char byte;

        if (kills >= PROCESSES)
            kill_and_bury(pids[slot]);
        assert_int_equal(pipe(ready), 0);
        pids[slot] = fork();
        assert_true(pids[slot] >= 0);
        if (pids[slot] == 0) {
            struct gate own;
            uint64_t seed = (uint64_t)getpid();

            child_joins(&own);
            if (write(ready[1], "r", 1) != 1)
                _exit(1);
            for (;;) {
                struct flow_answer answer = arrive(&own, 1000);

                if (fixture_random(&seed) % 4 == 0) /* or its killers never get the lock */
                    clock_sleep_ns(20 * NS_PER_US);
                if (answer.verdict == FLOW_QUEUED)
                    flow_try(&own, answer.place, clock_monotonic_ns(), &answer);
                flow_cancel(&own, &answer.place, clock_monotonic_ns());
            }
        }
        assert_int_equal(close(ready[1]), 0);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        assert_int_equal(close(ready[0]), 0);
    }
    for (int i = 0; i < PROCESSES; i++)
        kill_and_bury(pids[i]);
    assert_int_equal(flow->in_flight + flow->waiting, 0);
    assert_int_equal(segment_layout(&segment)->flow_places_used, 0);
    assert_int_equal(flow->units.balance_micro, 2500 * BUCKET_UNIT);
}

static void f8_a_stopped_process_is_passed_over_and_keeps_its_number(void **state)
{
    struct flow_answer holder, behind;
    int said[2];
    char byte;
    int status;
    pid_t pid;
    int64_t released_ns;

    (void)state;
    fixture_needs_pidfds();
    (void)bury_all();
    terms.max_concurrent = 1;
    holder = arrive(&gate, 10);
    assert_int_equal(holder.verdict, FLOW_GRANTED);
    assert_int_equal(pipe(said), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct gate own;
        struct flow_answer answer;

        child_joins(&own);
        answer = arrive(&own, 10);
        if (write(said[1], "w", 1) != 1)
            _exit(1);
        while (answer.verdict != FLOW_GRANTED) {
            gate_tick(&own, clock_monotonic_ns());
            flow_try(&own, answer.place, clock_monotonic_ns(), &answer);
            clock_sleep_ns(10 * NS_PER_MS);
        }
        _exit(write(said[1], "g", 1) == 1 ? 0 : 1);
    }
    assert_int_equal(read(said[0], &byte, 1), 1);
    behind = arrive(&gate, 10);
    assert_int_equal(behind.position, 2);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    flow_cancel(&gate, &holder.place, clock_monotonic_ns());
    released_ns = clock_monotonic_ns();
    assert_int_equal(fixture_flow_try(&gate, behind.place, released_ns).verdict, FLOW_QUEUED);
    do {
        clock_sleep_ns(10 * NS_PER_MS);
        gate_tick(&gate, clock_monotonic_ns());
        flow_try(&gate, behind.place, clock_monotonic_ns(), &behind);
    } while (behind.verdict != FLOW_GRANTED);
    assert_true(clock_monotonic_ns() - released_ns >= QUEUE_SILENT_NS - NS_PER_MS);
    assert_int_equal(kill(pid, SIGCONT), 0);
    flow_cancel(&gate, &behind.place, clock_monotonic_ns());
    assert_int_equal(read(said[0], &byte, 1), 1); /* its turn comes */
    assert_int_equal(byte, 'g');
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(close(said[0]), 0);
    assert_int_equal(close(said[1]), 0);
}

static void *call_again_and_again(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    unsigned long settled = 0;

    for (int i = 0; i < 300; i++) {
        struct flow_answer answer = arrive(&gate, 1 + fixture_random(&seed) % 100);

        while (answer.verdict == FLOW_QUEUED && !flow_is_rung(&gate, answer.place) &&
               answer.due_ns > clock_monotonic_ns())
            clock_sleep_ns(20 * NS_PER_US);
        if (answer.verdict == FLOW_QUEUED)
            flow_try(&gate, answer.place, clock_monotonic_ns(), &answer);
        if (answer.verdict != FLOW_GRANTED) {
            flow_cancel(&gate, &answer.place, clock_monotonic_ns());
            continue;
        }
        flow_sent(&gate, answer.place, clock_monotonic_ns());
        flow_progress(&gate, answer.place, 3, clock_monotonic_ns());
        fixture_flow_settle(&gate, &answer.place, 7, clock_monotonic_ns());
        settled++;
    }
    return (void *)settled;
}

static void i1_threads_take_and_settle_to_the_last_unit(void **state)
{
    pthread_t threads[4];
    int64_t settled = 0;
    struct flow_row *flow;

    (void)state;
    terms.max_concurrent = 2;
    flow = stop_refill(100000);
    for (uintptr_t i = 0; i < LENGTH(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_again_and_again, (void *)(i + 1)),
                         0);
    for (size_t i = 0; i < LENGTH(threads); i++) {
        void *count;

        assert_int_equal(pthread_join(threads[i], &count), 0);
        settled += (int64_t)(uintptr_t)count;
    }
    assert_true(settled > 0);
    assert_int_equal(flow->units.balance_micro, (100000 - 7 * settled) * BUCKET_UNIT);
    assert_int_equal(flow->in_flight + flow->waiting, 0);
    assert_int_equal(segment_layout(&segment)->flow_places_used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)
        TEST(i1_a_killed_process_gives_everything_back),
        TEST(i1_a_clean_end_gives_everything_back),
        TEST(m3_what_a_dead_holder_left_half_done_is_undone),
        TEST(m3_a_step_that_was_finished_is_kept),
        TEST(i1_nothing_is_lost_while_processes_are_killed),
        TEST(f8_a_stopped_process_is_passed_over_and_keeps_its_number),
        TEST(i1_threads_take_and_settle_to_the_last_unit),
#undef TEST
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
