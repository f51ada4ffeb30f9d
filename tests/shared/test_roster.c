/* test_roster.c - identity and liveness of processes (M6). */
#include "tests/shared/gate_fixture.h"

#include "shared/lock.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct core_area *core;

static int make(void **state)
{
    (void)state;
    core = calloc(1, sizeof *core);
    if (!core)
        return -1;
    core->next_incarnation = 1;
    return 0;
}

static int drop(void **state)
{
    (void)state;
    free(core);
    return 0;
}

static const struct roster_member worker = {.role = PROCESS_WORKER, .generation = 3, .threads = 7};

static void a_row_is_never_the_same_identity_twice(void **state)
{
    uint32_t first;
    uint64_t incarnation;

    (void)state;
    first = roster_enter_locked(core, &worker, 5);
    incarnation = core->roster[first].incarnation;
    assert_int_equal(core->roster[first].pid, getpid());
    assert_int_equal(core->roster[first].threads, 7);
    roster_leave_locked(core, first);
    assert_int_equal(roster_enter_locked(core, &worker, 6), first);
    assert_true(core->roster[first].incarnation > incarnation);
}

static void a_full_roster_takes_nobody(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROSTER_MAX; i++)
        assert_int_equal(roster_enter_locked(core, &worker, 0), i);
    assert_int_equal(roster_enter_locked(core, &worker, 0), NO_INDEX);
}

static void m6_a_zombie_is_dead_and_the_living_are_not(void **state)
{
    struct roster_watch watch;
    struct roster_death dead[4];
    uint32_t row;
    pid_t pid;

    (void)state;
    fixture_needs_pidfds();
    roster_watch_init(&watch);
    row = roster_enter_locked(core, &worker, 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        for (;;)
            pause();
    core->roster[row].start_ticks = roster_start_ticks(pid);
    atomic_store(&core->roster[row].pid, pid);
    assert_int_equal(roster_watch_dead(&watch, core, dead, 4), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    while (roster_watch_dead(&watch, core, dead, 4) == 0)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(dead[0].index, row);
    assert_int_equal(dead[0].incarnation, core->roster[row].incarnation);
    assert_int_equal(waitpid(pid, NULL, 0), pid); /* it was a zombie until here */
    roster_watch_release(&watch);
}

static void m6_a_reused_pid_is_not_the_process_meant(void **state)
{
    struct roster_watch watch;
    struct roster_death dead[4];
    uint32_t row;

    (void)state;
    fixture_needs_pidfds();
    roster_watch_init(&watch);
    row = roster_enter_locked(core, &worker, 0);
    core->roster[row].start_ticks++; /* another process had our pid before */
    assert_int_equal(roster_open_pidfd(&core->roster[row]), -1);
    assert_int_equal(roster_watch_dead(&watch, core, dead, 4), 1);
    roster_watch_release(&watch);
}

/* A pidfd is had for the last descriptor, and then /proc cannot be read: as where hidepid hides it. */
static void m6_who_cannot_be_looked_at_is_not_dead(void **state)
{
    struct roster_watch watch;
    struct roster_death dead[4];
    struct rlimit before;
    struct rlimit tight;
    unsigned found;
    int next;

    (void)state;
    fixture_needs_pidfds();
    roster_watch_init(&watch);
    assert_int_equal(roster_enter_locked(core, &worker, 0), 0);
    next = dup(STDERR_FILENO);
    assert_int_equal(close(next), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = (struct rlimit){.rlim_cur = (rlim_t)next + 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    assert_int_equal(roster_start_ticks(getpid()) != 0, true);
    found = roster_watch_dead(&watch, core, dead, 4);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(watch.seen[0].fd, next); /* it was the last one */
    assert_int_equal(found, 0);
    roster_watch_release(&watch);
}

static void a_ring_before_the_sleep_is_not_lost(void **state)
{
    uint32_t row;
    uint32_t seen;

    (void)state;
    row = roster_enter_locked(core, &worker, 0);
    seen = atomic_load(&core->roster[row].bell);
    roster_ring(&core->roster[row]);
    /* returns at once: the bell has moved */
    assert_int_equal(roster_wait_bell(&core->roster[row], seen, 3600 * NS_PER_S), seen + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_row_is_never_the_same_identity_twice, make, drop),
        cmocka_unit_test_setup_teardown(a_full_roster_takes_nobody, make, drop),
        cmocka_unit_test_setup_teardown(m6_a_zombie_is_dead_and_the_living_are_not, make, drop),
        cmocka_unit_test_setup_teardown(m6_a_reused_pid_is_not_the_process_meant, make, drop),
        cmocka_unit_test_setup_teardown(m6_who_cannot_be_looked_at_is_not_dead, make, drop),
        cmocka_unit_test_setup_teardown(a_ring_before_the_sleep_is_not_lost, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
