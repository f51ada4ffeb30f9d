/* test_journal.c - the rings between the request path and the ledger. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "shared/journal.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct journal_area *journal_new(void)
{
    struct journal_area *journal =
        mmap(NULL, sizeof *journal, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(journal, MAP_FAILED);
    journal_init_locked(journal);
    return journal;
}

static int set_up(void **state)
{
    *state = journal_new();
    return 0;
}

static int tear_down(void **state)
{
    return munmap(*state, sizeof(struct journal_area));
}

static void put_wait(struct journal_area *journal, uint64_t seq, enum wait_state state)
{
    struct wait_record record = {.arrival_seq = seq, .state = state};

    journal_wait_locked(journal, &record);
}

static void records_come_out_as_they_went_in(void **state)
{
    struct journal_area *journal = *state;
    struct call_record call = {.status = 418};
    struct attempt_record attempt = {.n = 3, .status = 429};
    struct event_record event = {.name = "start"};
    struct journal_count ready;

    assert_null(journal_peek_wait(journal, 0));
    assert_null(journal_peek_call(journal, 0));
    assert_null(journal_peek_attempt(journal, 0));
    assert_null(journal_peek_event(journal, 0));
    put_wait(journal, 7, WAIT_WAITING);
    put_wait(journal, 8, WAIT_GRANTED);
    journal_attempt_locked(journal, &attempt);
    journal_call_locked(journal, &call);
    journal_event_locked(journal, &event);

    ready = journal_ready(journal);
    assert_int_equal(ready.waits, 2);
    assert_int_equal(ready.calls, 1);
    assert_int_equal(ready.attempts, 1);
    assert_int_equal(ready.events, 1);
    assert_int_equal(journal_count_sum(&ready), 5);
    assert_int_equal(journal_peek_wait(journal, 1)->arrival_seq, 8);
    assert_null(journal_peek_wait(journal, 2));
    assert_int_equal(journal_peek_call(journal, 0)->status, 418);
    assert_int_equal(journal_peek_attempt(journal, 0)->n, 3);
    assert_int_equal(journal_peek_attempt(journal, 0)->status, 429);
    assert_null(journal_peek_attempt(journal, 1));
    assert_string_equal(journal_peek_event(journal, 0)->name, "start");

    journal_advance(journal, &(struct journal_count){.waits = 1, .calls = 1, .attempts = 1});
    assert_null(journal_peek_attempt(journal, 0));
    assert_int_equal(journal_peek_wait(journal, 0)->arrival_seq, 8);
    assert_null(journal_peek_wait(journal, 1));
    assert_int_equal(journal_ready(journal).events, 1);
    assert_int_equal(atomic_load(&journal->written), 3);
}

static void a_full_ring_counts_what_it_loses_L4(void **state)
{
    struct journal_area *journal = *state;
    struct call_record call = {.status = 200};

    for (uint64_t seq = 0; seq < JOURNAL_WAITS + 5; seq++)
        put_wait(journal, seq, WAIT_GRANTED);
    assert_int_equal(journal_ready(journal).waits, JOURNAL_WAITS);
    assert_int_equal(atomic_load(&journal->waits_lost), 5);
    assert_int_equal(journal_peek_wait(journal, 0)->arrival_seq, 0); /* the oldest stay */
    assert_int_equal(journal_peek_wait(journal, JOURNAL_WAITS - 1)->arrival_seq, JOURNAL_WAITS - 1);

    for (unsigned i = 0; i < JOURNAL_CALLS + 3; i++)
        journal_call_locked(journal, &call);
    assert_int_equal(atomic_load(&journal->calls_lost), 3);
    for (unsigned i = 0; i < JOURNAL_ATTEMPTS + 4; i++)
        journal_attempt_locked(journal, &(struct attempt_record){.n = i});
    assert_int_equal(atomic_load(&journal->attempts_lost), 4);
    assert_int_equal(journal_peek_attempt(journal, 0)->n, 0);
    assert_int_equal(journal_peek_attempt(journal, JOURNAL_ATTEMPTS - 1)->n, JOURNAL_ATTEMPTS - 1);
    for (unsigned i = 0; i < JOURNAL_EVENTS + 2; i++)
        journal_event_locked(journal, &(struct event_record){.pid = 1});
    assert_int_equal(atomic_load(&journal->events_lost), 2);
}

static void refusals_cannot_push_out_grants_N8(void **state)
{
    struct journal_area *journal = *state;

    for (uint64_t seq = 0; seq < JOURNAL_WAITS; seq++)
        put_wait(journal, seq, WAIT_REFUSED);
    assert_int_equal(journal_ready(journal).waits, JOURNAL_WAITS / 4 * 3);
    assert_int_equal(atomic_load(&journal->waits_lost), JOURNAL_WAITS / 4);
    for (uint64_t seq = 0; seq < JOURNAL_WAITS / 4; seq++)
        put_wait(journal, 10000 + seq, WAIT_GRANTED);
    assert_int_equal(journal_ready(journal).waits, JOURNAL_WAITS);
    assert_int_equal(atomic_load(&journal->waits_lost), JOURNAL_WAITS / 4);
}

static void the_ring_wraps_around(void **state)
{
    struct journal_area *journal = *state;

    for (uint64_t seq = 0; seq < 3 * JOURNAL_WAITS + 11; seq++) {
        put_wait(journal, seq, WAIT_DONE);
        assert_int_equal(journal_peek_wait(journal, 0)->arrival_seq, seq);
        journal_advance(journal, &(struct journal_count){.waits = 1});
    }
    assert_int_equal(atomic_load(&journal->waits_lost), 0);
}

static void what_is_discarded_does_not_count_as_written(void **state)
{
    struct journal_area *journal = *state;

    put_wait(journal, 1, WAIT_DONE);
    journal_discard(journal);
    assert_int_equal(journal_ready(journal).waits, 0);
    assert_int_equal(atomic_load(&journal->written), 0);
}

static void failures_are_counted(void **state)
{
    journal_count_failure(*state);
    assert_int_equal(atomic_load(&((struct journal_area *)*state)->failures), 1);
}

static void the_seat_has_one_place_and_outlives_its_holder_M10(void **state)
{
    struct journal_area *journal = *state;
    int pipe_ends[2];
    char byte;
    pid_t child;

    assert_int_equal(pipe(pipe_ends), 0);
    child = fork();
    if (child == 0) {
        bool sits = journal_sit_down(journal);

        put_wait(journal, 1, WAIT_GRANTED);
        if (!sits || write(pipe_ends[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
    assert_false(journal_sit_down(journal));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(journal_sit_down(journal));                          /* the dead drainer's seat */
    assert_int_equal(journal_peek_wait(journal, 0)->arrival_seq, 1); /* and its writer's record */
    journal_stand_up(journal);
    assert_true(journal_sit_down(journal));
    journal_stand_up(journal);
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
}

static void urgent_records_end_the_sleep_at_once(void **state)
{
    struct journal_area *journal = *state;
    int64_t before_ns = clock_monotonic_ns();

    put_wait(journal, 1, WAIT_WAITING);
    journal_wait_doorbell(journal, 60 * NS_PER_S);
    assert_true(clock_monotonic_ns() - before_ns < 30 * NS_PER_S);
}

static void attempts_are_urgent_only_when_many(void **state)
{
    struct journal_area *journal = *state;
    struct attempt_record attempt = {.n = 1};
    int64_t before_ns = clock_monotonic_ns();

    journal_attempt_locked(journal, &attempt);
    journal_wait_doorbell(journal, 20 * NS_PER_MS);
    assert_true(clock_monotonic_ns() - before_ns >= 20 * NS_PER_MS);
    for (unsigned i = 1; i < JOURNAL_ATTEMPTS / 4; i++)
        journal_attempt_locked(journal, &attempt);
    journal_wait_doorbell(journal, 60 * NS_PER_S);
    assert_true(clock_monotonic_ns() - before_ns < 30 * NS_PER_S);
}

static void calls_are_urgent_only_when_many(void **state)
{
    struct journal_area *journal = *state;
    struct call_record call = {.status = 200};
    int64_t before_ns = clock_monotonic_ns();

    journal_call_locked(journal, &call);
    journal_wait_doorbell(journal, 20 * NS_PER_MS);
    assert_true(clock_monotonic_ns() - before_ns >= 20 * NS_PER_MS);
    for (unsigned i = 1; i < JOURNAL_CALLS / 4; i++)
        journal_call_locked(journal, &call);
    journal_wait_doorbell(journal, 60 * NS_PER_S);
    assert_true(clock_monotonic_ns() - before_ns < 30 * NS_PER_S);
}

#define WRITES 200000U

static void *write_many(void *context)
{
    struct journal_area *journal = context;

    for (uint64_t seq = 0; seq < WRITES;) {
        if (journal_ready(journal).waits == JOURNAL_WAITS) {
            (void)sched_yield();
            continue;
        }
        put_wait(journal, seq++, WAIT_GRANTED);
    }
    return NULL;
}

/* The drainer sleeps in between: a bell that is lost would cost it a minute. */
static void writer_and_drainer_need_no_lock_between_them_M10(void **state)
{
    struct journal_area *journal = *state;
    int64_t before_ns = clock_monotonic_ns();
    pthread_t writer;
    uint64_t expected = 0;

    assert_true(journal_sit_down(journal));
    assert_int_equal(pthread_create(&writer, NULL, write_many, journal), 0);
    while (expected < WRITES) {
        const struct wait_record *record;
        uint64_t count = 0;

        while ((record = journal_peek_wait(journal, count)) != NULL) {
            if (record->arrival_seq != expected || record->state != WAIT_GRANTED)
                fail_msg("record %ju came in place of %ju", (uintmax_t)record->arrival_seq,
                         (uintmax_t)expected);
            expected++;
            count++;
        }
        journal_advance(journal, &(struct journal_count){.waits = count});
        if (expected < WRITES)
            journal_wait_doorbell(journal, 60 * NS_PER_S);
    }
    assert_int_equal(pthread_join(writer, NULL), 0);
    journal_stand_up(journal);
    assert_int_equal(atomic_load(&journal->waits_lost), 0);
    assert_true(clock_monotonic_ns() - before_ns < 60 * NS_PER_S);
}

static void *wait_for_bell(void *context)
{
    journal_wait_doorbell(context, 60 * NS_PER_S);
    return NULL;
}

static void the_bell_can_be_rung_for_another_reason(void **state)
{
    struct journal_area *journal = *state;
    int64_t before_ns = clock_monotonic_ns();
    pthread_t sleeper;

    assert_int_equal(pthread_create(&sleeper, NULL, wait_for_bell, journal), 0);
    while (atomic_load(&journal->doorbell) == 0)
        (void)sched_yield();
    journal_ring_doorbell(journal);
    assert_int_equal(pthread_join(sleeper, NULL), 0);
    assert_true(clock_monotonic_ns() - before_ns < 30 * NS_PER_S);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(records_come_out_as_they_went_in),
        TEST(a_full_ring_counts_what_it_loses_L4),
        TEST(refusals_cannot_push_out_grants_N8),
        TEST(the_ring_wraps_around),
        TEST(what_is_discarded_does_not_count_as_written),
        TEST(failures_are_counted),
        TEST(the_seat_has_one_place_and_outlives_its_holder_M10),
        TEST(urgent_records_end_the_sleep_at_once),
        TEST(calls_are_urgent_only_when_many),
        TEST(attempts_are_urgent_only_when_many),
        TEST(writer_and_drainer_need_no_lock_between_them_M10),
        TEST(the_bell_can_be_rung_for_another_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
