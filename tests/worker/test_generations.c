/* test_generations.c - older generations are counted and signalled, nobody else is (M7). */
#include "tests/shared/gate_fixture.h"

#include "worker/generations.h"

#include "shared/roster.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INSTANCE = 2, OTHER_INSTANCE = 3, CURRENT = 10 };

static struct core_area *core;
static struct generations generations;

static int make(void **state)
{
    (void)state;
    core = calloc(1, sizeof *core);
    if (!core)
        return -1;
    core->next_incarnation = 1;
    generations = (struct generations){.core = core, .instance = INSTANCE, .current = CURRENT};
    return 0;
}

static int drop(void **state)
{
    (void)state;
    free(core);
    return 0;
}

static struct roster_row *enter(enum process_role role, uint32_t instance, uint64_t generation)
{
    const struct roster_member member = {
        .role = role, .instance = instance, .generation = generation};
    uint32_t index = roster_enter_locked(core, &member, 0);

    assert_int_not_equal(index, NO_INDEX);
    return &core->roster[index];
}

static void older_ones_of_the_instance_count_once_each(void **state)
{
    (void)state;
    assert_int_equal(generations_count_older(&generations), 0);
    (void)enter(PROCESS_WORKER, INSTANCE, CURRENT);
    (void)enter(PROCESS_WORKER, OTHER_INSTANCE, 7);
    (void)enter(PROCESS_MONITOR, INSTANCE, 8);
    assert_int_equal(generations_count_older(&generations), 0);
    (void)enter(PROCESS_WORKER, INSTANCE, 9);
    (void)enter(PROCESS_WORKER, INSTANCE, 9);
    (void)enter(PROCESS_WORKER, INSTANCE, 7);
    assert_int_equal(generations_count_older(&generations), 2);
}

static void room_is_what_rows_are_free(void **state)
{
    (void)state;
    (void)enter(PROCESS_WORKER, INSTANCE, CURRENT);
    assert_true(generations_have_room(&generations, ROSTER_MAX - 1));
    assert_false(generations_have_room(&generations, ROSTER_MAX));
}

static pid_t sleeper(enum process_role role, uint32_t instance, uint64_t generation)
{
    struct roster_row *row = enter(role, instance, generation);
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        for (;;)
            pause();
    row->start_ticks = roster_start_ticks(pid);
    atomic_store(&row->pid, pid);
    return pid;
}

static void only_older_ones_are_signalled(void **state)
{
    pid_t others[3];
    pid_t pid;
    int status;

    (void)state;
    fixture_needs_pidfds();
    others[0] = sleeper(PROCESS_WORKER, INSTANCE, CURRENT);
    others[1] = sleeper(PROCESS_WORKER, OTHER_INSTANCE, 9);
    others[2] = sleeper(PROCESS_MASTER, INSTANCE, 9);
    pid = sleeper(PROCESS_WORKER, INSTANCE, 9);
    generations_signal_older(&generations, SIGUSR2);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WTERMSIG(status), SIGUSR2);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(waitpid(others[i], &status, WNOHANG), 0);
        assert_int_equal(kill(others[i], SIGKILL), 0);
        assert_int_equal(waitpid(others[i], &status, 0), others[i]);
        assert_int_equal(WTERMSIG(status), SIGKILL);
    }
}

static void workers_of_all_instances_are_rung(void **state)
{
    const struct roster_row *worker;
    const struct roster_row *monitor;

    (void)state;
    worker = enter(PROCESS_WORKER, OTHER_INSTANCE, 1);
    monitor = enter(PROCESS_MONITOR, INSTANCE, CURRENT);
    generations_ring_workers(&generations);
    assert_int_equal(atomic_load(&worker->bell), 1);
    assert_int_equal(atomic_load(&monitor->bell), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(older_ones_of_the_instance_count_once_each, make, drop),
        cmocka_unit_test_setup_teardown(room_is_what_rows_are_free, make, drop),
        cmocka_unit_test_setup_teardown(only_older_ones_are_signalled, make, drop),
        cmocka_unit_test_setup_teardown(workers_of_all_instances_are_rung, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
