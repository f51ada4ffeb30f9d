/* test_bell.c - real threads and processes: a ring reaches the thread it is for (M5), the dead are
 * buried though nobody asks (M4). */
#include "tests/shared/gate_fixture.h"

#include "base/log.h"
#include "worker/bell.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 20000 /* longer than anything here takes, even under valgrind */

static struct segment segment;
static struct gate gate;
static struct bell bell;

static int make(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 1, 10);
    return log_open("", LOG_FORMAT_LOGFMT, LOG_LEVEL_ERROR) ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    bell_stop(&bell);
    fixture_close(&segment);
    return 0;
}

static bool is_rung(unsigned seat, int timeout_ms)
{
    struct pollfd look = {.fd = bell.seats[seat].event_fd, .events = POLLIN};
    uint64_t rings;

    if (poll(&look, 1, timeout_ms) != 1)
        return false;
    assert_int_equal(read(look.fd, &rings, sizeof rings), sizeof rings);
    return true;
}

/* A process that holds the one slot when this returns, until it is killed. */
static pid_t start_holder(void)
{
    const struct roster_member member = {.role = PROCESS_WORKER, .instance = segment.instance};
    struct gate own;
    uint32_t place;
    int ends[2];
    char byte = 0;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)alarm(60); /* a failed test must not leave it behind */
        if (!gate_join(&own, &segment, &member, clock_monotonic_ns()) ||
            fixture_arrive(&own, false, &place) != GATE_GRANTED || write(ends[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            (void)pause();
    }
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    (void)close(ends[0]);
    return pid;
}

/* ---- rings ----------------------------------------------------------------------------------- */

static void m5_a_ring_reaches_the_seat_it_is_for(void **state)
{
    uint32_t holder;
    uint32_t waiter;

    (void)state;
    assert_true(bell_start(&bell, &gate, 3));
    assert_int_equal(fixture_arrive(&gate, true, &holder), GATE_GRANTED);
    assert_int_equal(fixture_arrive(&gate, true, &waiter), GATE_QUEUED);
    atomic_store(&bell.seats[0].place, holder);
    atomic_store(&bell.seats[1].place, waiter);
    fixture_leave(&gate, holder, WAIT_DONE);
    assert_true(is_rung(1, PATIENCE_MS));
    assert_int_equal(fixture_try(&gate, waiter), GATE_GRANTED);
    assert_false(is_rung(0, 0));
    assert_false(is_rung(2, 0));
    fixture_leave(&gate, waiter, WAIT_DONE);
}

/* Its turn came before its thread sat down: the next tick still finds it. */
static void m5_a_ring_before_the_seat_was_taken_is_not_lost(void **state)
{
    uint32_t holder;
    uint32_t waiter;

    (void)state;
    assert_true(bell_start(&bell, &gate, 1));
    assert_int_equal(fixture_arrive(&gate, true, &holder), GATE_GRANTED);
    assert_int_equal(fixture_arrive(&gate, true, &waiter), GATE_QUEUED);
    fixture_leave(&gate, holder, WAIT_DONE);
    assert_true(gate_is_rung(&gate, waiter));
    atomic_store(&bell.seats[0].place, waiter);
    assert_true(is_rung(0, PATIENCE_MS));
    fixture_leave(&gate, waiter, WAIT_TIMED_OUT);
}

static void who_waits_for_nothing_is_left_in_peace(void **state)
{
    uint32_t holder;
    uint32_t waiter;

    (void)state;
    assert_true(bell_start(&bell, &gate, 2));
    assert_int_equal(fixture_arrive(&gate, true, &holder), GATE_GRANTED);
    assert_int_equal(fixture_arrive(&gate, true, &waiter), GATE_QUEUED);
    atomic_store(&bell.seats[1].place, waiter);
    for (unsigned i = 0; i < 100; i++)
        roster_ring(&segment_core(&segment)->roster[gate.self]);
    fixture_leave(&gate, holder, WAIT_DONE); /* proof that the bell has been around */
    assert_true(is_rung(1, PATIENCE_MS));
    assert_false(is_rung(0, 0));
    fixture_leave(&gate, waiter, WAIT_DONE);
}

/* ---- burial ---------------------------------------------------------------------------------- */

static unsigned rows_of(pid_t pid)
{
    unsigned rows = 0;

    for (unsigned i = 0; i < ROSTER_MAX; i++)
        rows += atomic_load(&segment_core(&segment)->roster[i].pid) == pid;
    return rows;
}

static void m4_a_killed_process_is_buried_by_a_tick(void **state)
{
    int64_t until_ns = clock_monotonic_ns() + PATIENCE_MS * NS_PER_MS;
    pid_t pid;

    (void)state;
    fixture_needs_pidfds();
    pid = start_holder();
    assert_true(bell_start(&bell, &gate, 1));
    assert_int_equal(fixture_use(&gate).used, 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    while (fixture_use(&gate).used != 0 && clock_monotonic_ns() < until_ns)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(fixture_use(&gate).used, 0);
    assert_int_equal(rows_of(pid), 0);
    assert_int_equal(waitpid(pid, NULL, 0),
                     pid); /* a zombie until here: that counts as dead (M6) */
}

/* What the dead held goes to who waits, and that thread hears of it. */
static void m4_a_burial_rings_who_waits(void **state)
{
    pid_t pid;
    uint32_t waiter;

    (void)state;
    fixture_needs_pidfds();
    pid = start_holder();
    assert_true(bell_start(&bell, &gate, 1));
    assert_int_equal(fixture_arrive(&gate, true, &waiter), GATE_QUEUED);
    atomic_store(&bell.seats[0].place, waiter);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_true(is_rung(0, PATIENCE_MS));
    assert_int_equal(fixture_try(&gate, waiter), GATE_GRANTED);
    fixture_leave(&gate, waiter, WAIT_DONE);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Once the dead one's row is gone, the living one's was looked at as well. */
static void the_living_are_not_buried(void **state)
{
    int64_t until_ns = clock_monotonic_ns() + PATIENCE_MS * NS_PER_MS;
    pid_t first;
    siginfo_t info;
    pid_t dead;
    struct gate own;
    const struct roster_member member = {.role = PROCESS_WORKER, .instance = segment.instance};

    (void)state;
    fixture_needs_pidfds();
    first = start_holder();
    dead = fork();
    assert_true(dead >= 0);
    if (dead == 0)
        _exit(gate_join(&own, &segment, &member, clock_monotonic_ns()) ? 0 : 1);
    assert_int_equal(waitid(P_PID, (id_t)dead, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(rows_of(dead), 1);
    assert_true(bell_start(&bell, &gate, 1));
    while (rows_of(dead) > 0 && clock_monotonic_ns() < until_ns)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(rows_of(dead), 0);
    assert_int_equal(rows_of(first), 1);
    assert_int_equal(fixture_use(&gate).used, 1);
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(waitpid(first, NULL, 0), first);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void stopping_ends_the_thread_at_once_and_only_once(void **state)
{
    int event_fd;

    (void)state;
    assert_true(bell_start(&bell, &gate, 1));
    event_fd = bell.seats[0].event_fd;
    bell_stop(&bell);
    assert_null(bell.seats);
    assert_false(bell.running);
    assert_int_equal(close(event_fd), -1); /* closed by the bell */
    bell_stop(&bell);
}

static void without_descriptors_it_does_not_start(void **state)
{
    struct rlimit limit;
    struct rlimit few;
    int next = dup(STDERR_FILENO);

    (void)state;
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)next + 2, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_false(bell_start(&bell, &gate, 5));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_null(bell.seats);
    assert_int_equal(dup(STDERR_FILENO), next); /* what it had opened is closed again */
    (void)close(next);
}

int main(void)
{
#define WITH_GATE(test) cmocka_unit_test_setup_teardown(test, make, drop)
    const struct CMUnitTest tests[] = {
        WITH_GATE(m5_a_ring_reaches_the_seat_it_is_for),
        WITH_GATE(m5_a_ring_before_the_seat_was_taken_is_not_lost),
        WITH_GATE(who_waits_for_nothing_is_left_in_peace),
        WITH_GATE(m4_a_killed_process_is_buried_by_a_tick),
        WITH_GATE(m4_a_burial_rings_who_waits),
        WITH_GATE(the_living_are_not_buried),
        WITH_GATE(stopping_ends_the_thread_at_once_and_only_once),
        WITH_GATE(without_descriptors_it_does_not_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
