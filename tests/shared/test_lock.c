/* test_lock.c - the one lock: mutual exclusion (threads, for TSan), a dead holder, a stopped holder
 * (M3). */
#include "tests/shared/gate_fixture.h"

#include "shared/lock.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, TURNS = 5000 };

struct common {
    struct core_area core;
    uint64_t plain; /* guarded by the lock alone */
};

static struct common *common;

static int make(void **state)
{
    (void)state;
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED)
        return -1;
    lock_init(&common->core.lock);
    common->core.next_incarnation = 1;
    return 0;
}

static int drop(void **state)
{
    (void)state;
    return munmap(common, sizeof *common);
}

static void *add(void *unused)
{
    for (int i = 0; i < TURNS; i++) {
        INVARIANT(lock_take(&common->core.lock, 0, common->core.roster) == LOCK_TAKEN);
        common->plain++;
        lock_give(&common->core.lock);
    }
    return unused;
}

static void only_one_thread_is_inside(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(common->plain, THREADS * TURNS);
    assert_int_equal(atomic_load(&common->core.lock.acquisitions), THREADS * TURNS);
}

/* Fork a process that takes the lock and then stops or dies inside. */
static pid_t die_inside(int number)
{
    const struct roster_member member = {.role = PROCESS_WORKER};
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        uint32_t self;

        INVARIANT(lock_take(&common->core.lock, NO_INDEX, common->core.roster) == LOCK_TAKEN);
        self = roster_enter_locked(&common->core, &member, 1);
        lock_give(&common->core.lock);
        INVARIANT(lock_take(&common->core.lock, self, common->core.roster) == LOCK_TAKEN);
        (void)raise(number);
        _exit(0);
    }
    return pid;
}

static void m3_a_dead_holder_is_told(void **state)
{
    pid_t pid;

    (void)state;
    pid = die_inside(SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(lock_take(&common->core.lock, NO_INDEX, common->core.roster), LOCK_OWNER_DIED);
    lock_give(&common->core.lock);
    assert_int_equal(lock_take(&common->core.lock, NO_INDEX, common->core.roster), LOCK_TAKEN);
    lock_give(&common->core.lock);
    assert_int_equal(common->core.lock.owner_deaths, 1);
}

static void m3_a_stopped_holder_is_killed_after_the_bound(void **state)
{
    int64_t before_ns;
    int status;
    pid_t pid;

    (void)state;
    fixture_needs_pidfds();
    pid = die_inside(SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    before_ns = clock_monotonic_ns();
    assert_int_equal(lock_take(&common->core.lock, NO_INDEX, common->core.roster), LOCK_OWNER_DIED);
    assert_true(clock_monotonic_ns() - before_ns >= LOCK_STUCK_NS);
    lock_give(&common->core.lock);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Stopped between the two steps of taking it: it has the mutex, and has not said so. */
static void m3_a_holder_stopped_before_it_gave_its_name_is_killed(void **state)
{
    const struct roster_member member = {.role = PROCESS_WORKER};
    int status;
    pid_t pid;

    (void)state;
    fixture_needs_pidfds();
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        INVARIANT(roster_enter_locked(&common->core, &member, 1) != NO_INDEX);
        INVARIANT(pthread_mutex_lock(&common->core.lock.mutex) == 0);
        (void)raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(lock_take(&common->core.lock, NO_INDEX, common->core.roster), LOCK_OWNER_DIED);
    lock_give(&common->core.lock);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_one_thread_is_inside, make, drop),
        cmocka_unit_test_setup_teardown(m3_a_dead_holder_is_told, make, drop),
        cmocka_unit_test_setup_teardown(m3_a_stopped_holder_is_killed_after_the_bound, make, drop),
        cmocka_unit_test_setup_teardown(m3_a_holder_stopped_before_it_gave_its_name_is_killed, make,
                                        drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
