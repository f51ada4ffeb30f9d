/* test_gate.c - the admission decision: refusal, order, live limits, death at any place (G5-G12,
 * M1-M9). */
#include "tests/shared/gate_fixture.h"

#include "base/text.h"
#include "shared/counters.h"
#include "shared/journal.h"
#include "shared/wait_queue.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct segment segment;
static struct gate gate;

static int open_gate(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 2, 3);
    return 0;
}

static int close_gate(void **state)
{
    (void)state;
    clock_set_true();
    fixture_close(&segment);
    return 0;
}

static void g5_rejects_at_once_when_no_slot_is_free(void **state)
{
    uint32_t places[3];

    (void)state;
    assert_int_equal(fixture_arrive(&gate, false, &places[0]), GATE_GRANTED);
    assert_int_equal(fixture_arrive(&gate, false, &places[1]), GATE_GRANTED);
    assert_int_equal(fixture_arrive(&gate, false, &places[2]), GATE_REFUSED_LIMIT);
    assert_int_equal(fixture_use(&gate).used, 2);
    fixture_leave(&gate, places[0], WAIT_DONE);
    assert_int_equal(fixture_arrive(&gate, false, &places[2]), GATE_GRANTED);
}

static void g6_grants_in_order_of_arrival_and_lets_no_newcomer_pass(void **state)
{
    uint32_t held[2];
    uint32_t waiting[3];
    uint32_t newcomer;

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_arrive(&gate, true, &held[i]), GATE_GRANTED);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fixture_arrive(&gate, true, &waiting[i]), GATE_QUEUED);
    assert_int_equal(fixture_arrive(&gate, true, &newcomer), GATE_REFUSED_QUEUE_FULL);

    fixture_leave(&gate, held[0], WAIT_DONE);
    assert_true(gate_is_rung(&gate, waiting[0]));
    assert_false(gate_is_rung(&gate, waiting[1]));
    assert_int_equal(fixture_try(&gate, waiting[1]), GATE_QUEUED); /* not its turn */
    assert_int_equal(fixture_arrive(&gate, false, &newcomer), GATE_REFUSED_LIMIT);
    assert_int_equal(fixture_try(&gate, waiting[0]), GATE_GRANTED);
    fixture_leave(&gate, waiting[1], WAIT_CLIENT_GONE);
    fixture_leave(&gate, held[1], WAIT_DONE);
    assert_int_equal(fixture_try(&gate, waiting[2]), GATE_GRANTED);
    assert_int_equal(fixture_use(&gate).used, 2);
}

static void g10_a_raised_limit_rings_waiters_and_a_lowered_one_lets_them_finish(void **state)
{
    struct gate_limits limits = {.limit = 3, .max_waiting = 3, .on = true};
    uint32_t held[2];
    uint32_t waiting;
    uint32_t another;

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_arrive(&gate, true, &held[i]), GATE_GRANTED);
    assert_int_equal(fixture_arrive(&gate, true, &waiting), GATE_QUEUED);
    gate_set_limits(&gate, &limits, clock_monotonic_ns(), 0);
    assert_true(gate_is_rung(&gate, waiting));
    assert_int_equal(fixture_try(&gate, waiting), GATE_GRANTED);
    limits.limit = 1;
    gate_set_limits(&gate, &limits, clock_monotonic_ns(), 0);
    fixture_leave(&gate, held[0], WAIT_DONE);
    fixture_leave(&gate, held[1], WAIT_DONE);
    assert_int_equal(fixture_arrive(&gate, false, &another), GATE_REFUSED_LIMIT);
    fixture_leave(&gate, waiting, WAIT_DONE);
    assert_int_equal(fixture_arrive(&gate, false, &another), GATE_GRANTED);
}

static void m11_switching_the_gate_off_lets_all_waiters_go(void **state)
{
    const struct gate_limits off = {.on = false};
    uint32_t held[2];
    uint32_t waiting[2];
    uint32_t place;

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_arrive(&gate, true, &held[i]), GATE_GRANTED);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_arrive(&gate, true, &waiting[i]), GATE_QUEUED);
    gate_set_limits(&gate, &off, clock_monotonic_ns(), 0);
    for (int i = 0; i < 2; i++) {
        assert_true(gate_is_rung(&gate, waiting[i]));
        assert_int_equal(fixture_try(&gate, waiting[i]), GATE_OPEN);
        fixture_leave(&gate, waiting[i], WAIT_DONE);
    }
    assert_int_equal(fixture_arrive(&gate, true, &place), GATE_OPEN);
    assert_int_equal(fixture_use(&gate).held, 2);
}

static void m2_a_silent_waiter_is_passed_over_and_keeps_its_number(void **state)
{
    uint32_t held[2];
    uint32_t silent;
    uint32_t next;

    (void)state;
    clock_set_false(NS_PER_S, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_arrive(&gate, true, &held[i]), GATE_GRANTED);
    assert_int_equal(fixture_arrive(&gate, true, &silent), GATE_QUEUED);
    assert_int_equal(fixture_arrive(&gate, true, &next), GATE_QUEUED);
    fixture_leave(&gate, held[0], WAIT_DONE);
    assert_true(gate_is_rung(&gate, silent));
    clock_advance_false(QUEUE_SILENT_NS);
    gate_tick(&gate, clock_monotonic_ns());
    assert_false(gate_is_rung(&gate, next)); /* not yet */
    clock_advance_false(1);
    gate_tick(&gate, clock_monotonic_ns());
    assert_true(gate_is_rung(&gate, next));
    assert_int_equal(fixture_try(&gate, next), GATE_GRANTED);
    assert_int_equal(
        counter_value(&segment_instance(&segment)->counters, COUNTER_image_passed_over), 1);
    fixture_leave(&gate, held[1], WAIT_DONE);
    assert_int_equal(fixture_try(&gate, silent), GATE_GRANTED); /* awake again: it is first */
}

static void g6_a_freed_slot_that_nobody_has_taken_yet_is_room_in_the_queue(void **state)
{
    const struct gate_limits one = {.limit = 2, .max_waiting = 1, .on = true};
    uint32_t held[2];
    uint32_t waiting[2];
    uint32_t another;

    (void)state;
    gate_set_limits(&gate, &one, clock_monotonic_ns(), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_arrive(&gate, true, &held[i]), GATE_GRANTED);
    assert_int_equal(fixture_arrive(&gate, true, &waiting[0]), GATE_QUEUED);
    assert_int_equal(fixture_arrive(&gate, true, &another), GATE_REFUSED_QUEUE_FULL);
    fixture_leave(&gate, held[0], WAIT_DONE);
    assert_int_equal(fixture_arrive(&gate, true, &waiting[1]), GATE_QUEUED);
    assert_int_equal(fixture_arrive(&gate, true, &another), GATE_REFUSED_QUEUE_FULL);
    assert_int_equal(fixture_try(&gate, waiting[0]), GATE_GRANTED);
    fixture_leave(&gate, waiting[0], WAIT_DONE);
    fixture_leave(&gate, waiting[1], WAIT_CLIENT_GONE);
    fixture_leave(&gate, held[1], WAIT_DONE);
}

static void g6_of_several_that_are_rung_the_first_is_granted_first(void **state)
{
    uint32_t held[2];
    uint32_t waiting[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_arrive(&gate, true, &held[i]), GATE_GRANTED);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_arrive(&gate, true, &waiting[i]), GATE_QUEUED);
    for (int i = 0; i < 2; i++)
        fixture_leave(&gate, held[i], WAIT_DONE);
    assert_int_equal(fixture_try(&gate, waiting[1]), GATE_QUEUED); /* awake too early */
    assert_int_equal(fixture_try(&gate, waiting[0]), GATE_GRANTED);
    assert_true(gate_is_rung(&gate, waiting[1])); /* and told to look again */
    assert_int_equal(fixture_try(&gate, waiting[1]), GATE_GRANTED);
    for (int i = 0; i < 2; i++)
        fixture_leave(&gate, waiting[i], WAIT_DONE);
}

static void g13_a_lease_keeps_the_slot_until_it_ends_or_expires(void **state)
{
    struct lease_terms terms = {.id = "resp_1", .source = "a", .duration_ns = NS_PER_S};
    uint32_t places[3];
    char source[NAME_SIZE];

    (void)state;
    clock_set_false(NS_PER_S, 0);
    assert_int_equal(fixture_arrive(&gate, false, &places[0]), GATE_GRANTED);
    gate_leave(&gate, places[0], WAIT_DONE, clock_monotonic_ns(), &terms);
    assert_int_equal(fixture_use(&gate).leases, 1);
    assert_int_equal(fixture_use(&gate).semaphore, 0);
    gate_lease_source(&gate, "resp_1", source);
    assert_string_equal(source, "a");
    assert_int_equal(fixture_arrive(&gate, false, &places[1]), GATE_GRANTED);
    assert_int_equal(fixture_arrive(&gate, false, &places[2]), GATE_REFUSED_LIMIT);
    gate_end_lease(&gate, "resp_1", clock_monotonic_ns());
    assert_int_equal(fixture_arrive(&gate, false, &places[2]), GATE_GRANTED);
    fixture_leave(&gate, places[2], WAIT_DONE);

    assert_int_equal(fixture_arrive(&gate, false, &places[2]), GATE_GRANTED);
    gate_leave(&gate, places[2], WAIT_DONE, clock_monotonic_ns(), &terms);
    assert_int_equal(fixture_use(&gate).leases, 1);
    clock_advance_false(NS_PER_S);
    assert_int_equal(fixture_use(&gate).leases, 0);
}

static void m10_every_change_of_a_wait_is_in_the_journal(void **state)
{
    struct journal_area *journal = &segment_instance(&segment)->journal;
    static const uint32_t states[] = {WAIT_GRANTED, WAIT_GRANTED, WAIT_WAITING, WAIT_DONE,
                                      WAIT_GRANTED, WAIT_DONE,    WAIT_DONE};
    uint32_t a;
    uint32_t b;
    uint32_t c;

    (void)state;
    assert_int_equal(fixture_arrive(&gate, true, &a), GATE_GRANTED);
    assert_int_equal(fixture_arrive(&gate, true, &b), GATE_GRANTED);
    assert_int_equal(fixture_arrive(&gate, true, &c), GATE_QUEUED);
    fixture_leave(&gate, a, WAIT_DONE);
    assert_int_equal(fixture_try(&gate, c), GATE_GRANTED);
    fixture_leave(&gate, c, WAIT_DONE);
    fixture_leave(&gate, b, WAIT_DONE);
    assert_true(journal_sit_down(journal));
    for (uint64_t i = 0; i < LENGTH(states); i++)
        assert_int_equal(journal_peek_wait(journal, i)->state, states[i]);
    assert_null(journal_peek_wait(journal, LENGTH(states)));
    assert_int_equal(journal_peek_wait(journal, 4)->arrival_seq, 3);
    assert_int_equal(journal_peek_wait(journal, 4)->grant_seq, 3);
    assert_int_equal(journal_peek_wait(journal, 2)->position, 1);
    journal_stand_up(journal);
}

/* ---- other processes ------------------------------------------------------------------------- */

/* A worker process that takes (or queues for) one place, says so through the pipe, and hangs. */
static pid_t hang_at_gate(bool while_locked, int *ret_verdict)
{
    int said[2];
    pid_t pid;
    unsigned char verdict = 0;

    assert_int_equal(pipe(said), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct gate own;
        const struct roster_member member = {.role = PROCESS_WORKER, .instance = segment.instance};
        uint32_t place;

        if (!gate_join(&own, &segment, &member, clock_monotonic_ns()))
            _exit(1);
        verdict = fixture_arrive(&own, true, &place) & 0xff;
        if (while_locked)
            gate_lock(&own);
        if (write(said[1], &verdict, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    (void)close(said[1]);
    assert_int_equal(read(said[0], &verdict, 1), 1);
    (void)close(said[0]);
    *ret_verdict = verdict;
    return pid;
}

static unsigned bury_all(struct roster_watch *watch)
{
    struct roster_death dead[8];
    struct gate_burial burial;
    unsigned buried = 0;
    unsigned count = roster_watch_dead(watch, segment_core(&segment), dead, 8);

    for (unsigned i = 0; i < count; i++)
        buried += gate_bury(&gate, &dead[i], clock_monotonic_ns(), 0, &burial);
    return buried;
}

static bool has_entered(pid_t pid)
{
    const struct core_area *core = segment_core(&segment);

    for (uint32_t i = 0; i < ROSTER_MAX; i++)
        if (atomic_load(&core->roster[i].pid) == pid)
            return true;
    return false;
}

/* The end of a process is reported by its pidfd, zombie or not: wait for that, then bury. One that is
 * killed before it has entered leaves nothing to bury. */
static void kill_and_bury(struct roster_watch *watch, pid_t pid)
{
    while (!has_entered(pid))
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(kill(pid, SIGKILL), 0);
    while (bury_all(watch) == 0)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void g11_a_killed_holders_slot_and_a_killed_waiters_place_come_back(void **state)
{
    struct roster_watch watch;
    uint32_t mine;
    uint32_t waiting;
    int verdict;
    pid_t holder;
    pid_t waiter;

    (void)state;
    fixture_needs_pidfds();
    roster_watch_init(&watch);
    assert_int_equal(bury_all(&watch), 0);
    assert_int_equal(fixture_arrive(&gate, true, &mine), GATE_GRANTED);
    holder = hang_at_gate(false, &verdict);
    assert_int_equal(verdict, GATE_GRANTED);
    waiter = hang_at_gate(false, &verdict);
    assert_int_equal(verdict, GATE_QUEUED);
    assert_int_equal(fixture_arrive(&gate, true, &waiting), GATE_QUEUED);
    assert_int_equal(bury_all(&watch), 0); /* never on a living process */

    kill_and_bury(&watch, waiter);
    assert_int_equal(segment_layout(&segment)->waiting, 1);
    assert_int_equal(fixture_try(&gate, waiting), GATE_QUEUED);
    kill_and_bury(&watch, holder);
    assert_true(gate_is_rung(&gate, waiting));
    assert_int_equal(fixture_try(&gate, waiting), GATE_GRANTED);
    assert_int_equal(fixture_use(&gate).used, 2);
    assert_int_equal(counter_value(&segment_instance(&segment)->counters, COUNTER_burials), 2);
    roster_watch_release(&watch);
}

static void m1_a_dead_holder_counts_until_its_burial(void **state)
{
    struct roster_watch watch;
    uint32_t mine;
    uint32_t another;
    int verdict;
    pid_t holder;

    (void)state;
    fixture_needs_pidfds();
    roster_watch_init(&watch);
    (void)bury_all(&watch);
    assert_int_equal(fixture_arrive(&gate, true, &mine), GATE_GRANTED);
    holder = hang_at_gate(false, &verdict);
    assert_int_equal(verdict, GATE_GRANTED);
    assert_int_equal(kill(holder, SIGKILL), 0);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    /* the kernel has taken its semaphore share; its row still counts */
    assert_int_equal(fixture_use(&gate).semaphore, 1);
    assert_int_equal(fixture_use(&gate).used, 2);
    assert_int_equal(fixture_arrive(&gate, false, &another), GATE_REFUSED_LIMIT);
    assert_int_equal(bury_all(&watch), 1);
    assert_int_equal(bury_all(&watch), 0); /* idempotent */
    assert_int_equal(fixture_arrive(&gate, false, &another), GATE_GRANTED);
    roster_watch_release(&watch);
}

static void m3_a_holder_killed_inside_the_lock_leaves_a_true_state(void **state)
{
    struct roster_watch watch;
    uint32_t place;
    int verdict;
    pid_t pid;

    (void)state;
    fixture_needs_pidfds();
    roster_watch_init(&watch);
    (void)bury_all(&watch);
    pid = hang_at_gate(true, &verdict);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(fixture_arrive(&gate, true, &place), GATE_GRANTED);
    assert_int_equal(segment_core(&segment)->lock.owner_deaths, 1);
    assert_int_equal(
        counter_value(&segment_instance(&segment)->counters, COUNTER_lock_owner_deaths), 1);
    assert_int_equal(bury_all(&watch), 1);
    assert_int_equal(fixture_use(&gate).used, 1);
    roster_watch_release(&watch);
}

static void g11_a_holder_stopped_inside_the_lock_is_killed_after_the_bound(void **state)
{
    struct roster_watch watch;
    uint32_t place;
    int verdict;
    int status;
    pid_t pid;

    (void)state;
    fixture_needs_pidfds();
    roster_watch_init(&watch);
    (void)bury_all(&watch);
    pid = hang_at_gate(true, &verdict);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    /* blocks for LOCK_STUCK_NS, then kills it; the anti-hang bound is the runner's */
    assert_int_equal(fixture_arrive(&gate, true, &place), GATE_GRANTED);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    while (bury_all(&watch) == 0)
        clock_sleep_ns(NS_PER_MS);
    assert_int_equal(fixture_use(&gate).used, 1);
    roster_watch_release(&watch);
}

static void m9_a_removed_semaphore_is_made_anew_after_a_roll_call(void **state)
{
    struct core_area *core = segment_core(&segment);
    uint64_t epoch = core->semaphore_epoch;
    uint32_t mine;
    uint32_t another;
    uint32_t third;

    (void)state;
    assert_int_equal(fixture_arrive(&gate, false, &mine), GATE_GRANTED);
    assert_int_equal(semctl(core->semaphore_id, 0, IPC_RMID), 0);
    assert_int_equal(fixture_arrive(&gate, false, &another), GATE_REFUSED_LIMIT); /* roll call */
    assert_int_equal(core->semaphore_epoch, epoch + 1);
    assert_int_equal(
        counter_value(&segment_instance(&segment)->counters, COUNTER_semaphore_rebuilt), 1);
    gate_tick(&gate, clock_monotonic_ns()); /* answers */
    assert_int_equal(fixture_use(&gate).semaphore, 1);
    assert_int_equal(fixture_arrive(&gate, false, &another), GATE_GRANTED);
    assert_int_equal(fixture_arrive(&gate, false, &third), GATE_REFUSED_LIMIT);
    fixture_leave(&gate, mine, WAIT_DONE);
    fixture_leave(&gate, another, WAIT_DONE);
    assert_int_equal(fixture_use(&gate).semaphore, 0);
}

/* Every process takes, holds and gives for a while; one of them is killed: never above the limit.
 */
static void n1_never_above_the_limit_while_processes_die(void **state)
{
    enum { PROCESSES = 6, KILLS = 20 };
    struct roster_watch watch;
    pid_t pids[PROCESSES];

    (void)state;
    fixture_needs_pidfds();
    roster_watch_init(&watch);
    for (int kills = 0; kills < KILLS + PROCESSES; kills++) {
        int slot = kills % PROCESSES;

        if (kills >= PROCESSES)
            kill_and_bury(&watch, pids[slot]);
        pids[slot] = fork();
        assert_true(pids[slot] >= 0);
        if (pids[slot] == 0) {
            struct gate own;
            const struct roster_member member = {.role = PROCESS_WORKER,
                                                 .instance = segment.instance};

            if (!gate_join(&own, &segment, &member, clock_monotonic_ns()))
                _exit(1);
            for (;;) {
                uint32_t place;
                struct slots_use use;

                /* a nap, or those that never sleep keep the lock from the one that buries */
                clock_sleep_ns(50 * NS_PER_US);
                if (fixture_arrive(&own, false, &place) != GATE_GRANTED)
                    continue;
                use = fixture_use(&own);
                if (use.used > 2)
                    _exit(99);
                fixture_leave(&own, place, WAIT_DONE);
            }
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;

        assert_int_equal(waitpid(pids[i], &status, WNOHANG), 0); /* none saw more than the limit */
        kill_and_bury(&watch, pids[i]);
    }
    assert_int_equal(fixture_use(&gate).used, 0);
    assert_int_equal(fixture_use(&gate).semaphore, 0);
    roster_watch_release(&watch);
}

#define GATE_TEST(name) cmocka_unit_test_setup_teardown(name, open_gate, close_gate)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GATE_TEST(g5_rejects_at_once_when_no_slot_is_free),
        GATE_TEST(g6_grants_in_order_of_arrival_and_lets_no_newcomer_pass),
        GATE_TEST(g10_a_raised_limit_rings_waiters_and_a_lowered_one_lets_them_finish),
        GATE_TEST(m11_switching_the_gate_off_lets_all_waiters_go),
        GATE_TEST(g6_a_freed_slot_that_nobody_has_taken_yet_is_room_in_the_queue),
        GATE_TEST(g6_of_several_that_are_rung_the_first_is_granted_first),
        GATE_TEST(m2_a_silent_waiter_is_passed_over_and_keeps_its_number),
        GATE_TEST(g13_a_lease_keeps_the_slot_until_it_ends_or_expires),
        GATE_TEST(m10_every_change_of_a_wait_is_in_the_journal),
        GATE_TEST(g11_a_killed_holders_slot_and_a_killed_waiters_place_come_back),
        GATE_TEST(m1_a_dead_holder_counts_until_its_burial),
        GATE_TEST(m3_a_holder_killed_inside_the_lock_leaves_a_true_state),
        GATE_TEST(g11_a_holder_stopped_inside_the_lock_is_killed_after_the_bound),
        GATE_TEST(m9_a_removed_semaphore_is_made_anew_after_a_roll_call),
        GATE_TEST(n1_never_above_the_limit_while_processes_die),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
