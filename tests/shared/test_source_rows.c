/* test_source_rows.c - which sources there are: registration, drain, views; burial, and what other threads
 * and processes do to rows (H7, D18, M3, M4, M6, I21, I34). */
#include "tests/shared/sources_fixture.h"

#include "shared/owners.h"
#include "shared/source_rows.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOW_NS FIXTURE_NOW_NS
enum { A, B, C, D };

static struct segment segment;
static struct gate gate;
static struct source_candidate all[4];
static const struct source_name names[] = {
    {"a", ""}, {"b", "account"}, {"c", "account"}, {"d", ""}};

static int open_gate(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 2, 3);
    fixture_register(&gate, names, LENGTH(names), all);
    return 0;
}

static int close_gate(void **state)
{
    (void)state;
    fixture_close(&segment);
    return 0;
}

/* ---- registration ---------------------------------------------------------------------------- */

static void set_generation(uint64_t generation)
{
    segment_core(&segment)->roster[gate.self].generation = generation;
}

static void h7_state_is_kept_by_name_over_reloads(void **state)
{
    static const struct source_name reloaded[] = {{"d", ""}, {"b", ""}, {"new", ""}};
    struct source_candidate again[3];

    (void)state;
    fixture_break(&gate, &all[B], NOW_NS);
    assert_true(source_drain(&gate, "d", true, 0));
    set_generation(2);
    fixture_register(&gate, reloaded, LENGTH(reloaded), again);
    assert_int_equal(again[0].row, all[D].row);
    assert_int_equal(again[1].row, all[B].row);
    assert_true(again[2].row != all[A].row && again[2].row != all[C].row);
    assert_true(fixture_view(&gate, "d", NOW_NS).drained);
    assert_int_equal(fixture_view(&gate, "b", NOW_NS).breaker, BREAKER_OPEN);
    assert_string_equal(fixture_view(&gate, "b", NOW_NS).quota_group, "b");
    assert_int_equal(fixture_view(&gate, "new", NOW_NS).health_permille, 1000);
}

static void h7_a_new_generation_ends_out_but_not_its_own_workers(void **state)
{
    struct source_wish wish = fixture_wish(all, 1, NOW_NS);
    struct source_outcome out = {.end = SOURCE_END_OUT, .reason = "bad_key", .now_ns = NOW_NS};
    struct source_answer answer = fixture_admit(&gate, &wish);
    struct source_candidate again[1];

    (void)state;
    source_release(&gate, &answer.permit, &out); /* for how long, nobody said */
    assert_int_equal(fixture_view(&gate, "a", NOW_NS).out_for_ns, 300 * NS_PER_S);
    fixture_register(&gate, names, 1, again);
    assert_int_equal(fixture_admit(&gate, &wish).verdict, SOURCE_OUT);
    set_generation(2);
    fixture_register(&gate, names, 1, again);
    assert_int_equal(fixture_admit(&gate, &wish).verdict, SOURCE_ADMITTED);
}

/* As many names at a time as a configuration may have, all of them new with each generation. */
static void register_generation(uint64_t generation, struct source_candidate *ret_candidates,
                                bool expected)
{
    static char texts[SOURCES_MAX][24];
    static struct source_name fresh[SOURCES_MAX];
    uint32_t rows[SOURCES_MAX];

    set_generation(generation);
    for (unsigned i = 0; i < SOURCES_MAX; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "g%u-%u", (unsigned)generation, i);
        fresh[i] = (struct source_name){.name = texts[i], .quota_group = ""};
    }
    assert_int_equal(sources_register(&gate, fresh, SOURCES_MAX, rows), expected);
    for (unsigned i = 0; expected && i < SOURCES_MAX; i++) {
        ret_candidates[i] = (struct source_candidate){.row = rows[i], .weight = 1};
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(rows[i], rows[j]);
    }
}

static void m8_a_row_is_given_away_only_when_nobody_knows_it(void **state)
{
    static struct source_candidate candidates[SOURCES_MAX];
    struct gate old;
    const struct roster_member member = {
        .role = PROCESS_WORKER, .instance = segment.instance, .generation = 1};
    struct source_answer answer;
    struct source_wish wish = fixture_wish(&all[A], 1, NOW_NS);

    (void)state;
    fixture_break(&gate, &all[B], NOW_NS);
    owner_remember(&gate, "resp_1", all[B].row, NOW_NS);
    assert_true(gate_join(&old, &segment, &member, NOW_NS));
    answer = fixture_admit(&old, &wish);
    register_generation(2, candidates, true);  /* 4 + 64 rows */
    register_generation(3, candidates, false); /* an old worker may know any of them */
    fixture_end(&old, &answer.permit, SOURCE_END_SUCCESS, NOW_NS);
    register_generation(3, candidates, false);
    gate_resign(&old, NOW_NS);
    register_generation(3, candidates, true);
    register_generation(4, candidates, true);
    register_generation(5, candidates, true);
    for (unsigned i = 0; i < SOURCES_MAX; i++) /* nothing of its earlier lives is left */
        fixture_call_source(&gate, &candidates[i], SOURCE_END_SUCCESS, NOW_NS);
    assert_int_equal(fixture_view(&gate, "g5-63", NOW_NS).window_failures, 0);
    assert_false(source_drain(&gate, "a", true, 0));
    assert_int_equal(owner_of(&gate, "resp_1"), NO_INDEX);
}

static void m8_a_row_with_an_exchange_in_progress_stays(void **state)
{
    static struct source_candidate candidates[SOURCES_MAX];
    struct source_wish wish = fixture_wish(&all[C], 1, NOW_NS);
    struct source_answer answer = fixture_admit(&gate, &wish);

    (void)state;
    for (uint64_t generation = 2; generation < 8; generation++)
        register_generation(generation, candidates, true);
    assert_true(fixture_view(&gate, "c", NOW_NS).leaving);
    assert_int_equal(fixture_view(&gate, "c", NOW_NS).in_flight, 1);
    fixture_end(&gate, &answer.permit, SOURCE_END_SUCCESS, NOW_NS);
    for (uint64_t generation = 8; generation < 10; generation++)
        register_generation(generation, candidates, true);
    assert_false(source_drain(&gate, "c", true, 0));
}

static void h7_views_tell_what_there_is(void **state)
{
    struct source_wish wish = fixture_wish(&all[B], 1, NOW_NS);
    struct source_answer answer = fixture_admit(&gate, &wish);
    const struct source_outcome success = {
        .end = SOURCE_END_SUCCESS, .transport_ns = 70 * NS_PER_MS, .now_ns = NOW_NS};
    struct source_view view;

    (void)state;
    source_release(&gate, &answer.permit, &success);
    fixture_break(&gate, &all[B], NOW_NS);
    view = fixture_view(&gate, "b", NOW_NS + NS_PER_S);
    assert_string_equal(view.quota_group, "account");
    assert_string_equal(view.out_reason, "http_500");
    assert_int_equal(view.breaker, BREAKER_OPEN);
    assert_int_equal(view.open_for_ns, 4 * NS_PER_S);
    assert_int_equal(view.window_calls, 6);
    assert_int_equal(view.window_failures, 5);
    assert_int_equal(view.failures_in_a_row, 5);
    assert_int_equal(view.latency_ms, 70);
    assert_true(view.health_permille < 1000);
    assert_false(view.drained || view.probing || view.leaving);
    assert_false(source_drain(&gate, "nobody", true, 0));
}

/* ---- other processes ------------------------------------------------------------------------- */

static unsigned bury_all(struct roster_watch *watch)
{
    struct roster_death dead[8];
    struct gate_burial burial;
    unsigned buried = 0;
    unsigned count = roster_watch_dead(watch, segment_core(&segment), dead, LENGTH(dead));

    for (unsigned i = 0; i < count; i++)
        buried += gate_bury(&gate, &dead[i], clock_monotonic_ns(), 0, &burial);
    return buried;
}

static void kill_one(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* For a child: its own place in the roster. */
static void join(struct gate *own)
{
    const struct roster_member member = {
        .role = PROCESS_WORKER, .instance = segment.instance, .generation = 1};

    if (!gate_join(own, &segment, &member, clock_monotonic_ns()))
        _exit(1);
}

/* A process that has so many exchanges with a, the first of them its probe, says so, and hangs. */
static pid_t hang_with_exchanges(unsigned count, int64_t now_ns)
{
    int said[2];
    char probe;
    pid_t pid;

    assert_int_equal(pipe(said), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct source_wish wish = fixture_wish(all, 1, now_ns);
        struct source_answer answer = {0};
        struct gate own;

        join(&own);
        for (unsigned i = 0; i < count; i++) {
            source_admit(&own, &wish, &answer);
            probe = i == 0 ? answer.permit.probe : probe;
            wish.last_resort = true;
        }
        if (write(said[1], &probe, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    (void)close(said[1]);
    assert_int_equal(read(said[0], &probe, 1), 1);
    (void)close(said[0]);
    assert_int_equal(probe, 1);
    return pid;
}

static void d18_a_killed_processs_probe_and_exchanges_come_back(void **state)
{
    const int64_t now_ns = NOW_NS + 5 * NS_PER_S;
    struct source_wish wish = fixture_wish(all, 1, now_ns);
    struct roster_watch watch;
    struct roster_death death = {.index = 1};
    struct source_answer answer;
    pid_t pid;

    (void)state;
    fixture_needs_pidfds();
    roster_watch_init(&watch);
    (void)bury_all(&watch);
    fixture_break(&gate, all, NOW_NS);
    pid = hang_with_exchanges(3, now_ns);
    death.incarnation = segment_core(&segment)->roster[1].incarnation;
    assert_int_equal(fixture_admit(&gate, &wish).verdict, SOURCE_OPEN);
    assert_int_equal(fixture_view(&gate, "a", now_ns).in_flight, 3);
    assert_int_equal(bury_all(&watch), 0); /* never on a living process */
    kill_one(pid);
    assert_int_equal(fixture_admit(&gate, &wish).verdict, SOURCE_OPEN); /* not buried yet */
    assert_int_equal(bury_all(&watch), 1);
    assert_int_equal(fixture_view(&gate, "a", now_ns).in_flight, 0);
    assert_false(fixture_view(&gate, "a", now_ns).probing);

    pid = hang_with_exchanges(2, now_ns); /* at once; in the dead one's roster row */
    gate_lock(&gate);
    sources_bury_locked(segment.area, death.index, death.incarnation);
    gate_unlock(&gate);
    assert_int_equal(fixture_view(&gate, "a", now_ns).in_flight, 2); /* not twice (M6) */
    assert_true(fixture_view(&gate, "a", now_ns).probing);
    kill_one(pid);
    assert_int_equal(bury_all(&watch), 1);
    answer = fixture_admit(&gate, &wish);
    assert_true(answer.permit.probe);
    fixture_end(&gate, &answer.permit, SOURCE_END_SUCCESS, now_ns);
    assert_int_equal(fixture_view(&gate, "a", now_ns).breaker, BREAKER_CLOSED);
    roster_watch_release(&watch);
}

static void d18_a_clean_end_gives_them_back_too(void **state)
{
    const int64_t now_ns = NOW_NS + 5 * NS_PER_S;
    struct source_wish wish = fixture_wish(all, 1, now_ns);
    const struct roster_member member = {
        .role = PROCESS_WORKER, .instance = segment.instance, .generation = 1};
    struct gate other;

    (void)state;
    fixture_break(&gate, all, NOW_NS);
    assert_true(gate_join(&other, &segment, &member, now_ns));
    assert_true(fixture_admit(&other, &wish).permit.probe);
    assert_int_equal(fixture_admit(&gate, &wish).verdict, SOURCE_OPEN);
    gate_resign(&other, now_ns);
    assert_int_equal(fixture_view(&gate, "a", now_ns).in_flight, 0);
    assert_true(fixture_admit(&gate, &wish).permit.probe);
}

/* What the processes of a test tell one another. */
static struct board {
    atomic_uint out, probes, refused, violations;
} * board;

static void open_board(void)
{
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
}

static void probe_all_the_time(int64_t now_ns)
{
    const struct source_wish wish = fixture_wish(all, 1, now_ns);
    const struct source_outcome unjudged = {.end = SOURCE_END_UNJUDGED, .now_ns = now_ns};
    struct source_answer answer;
    struct gate own;

    join(&own);
    while (atomic_load(&board->probes) < 2000 || atomic_load(&board->refused) == 0) {
        source_admit(&own, &wish, &answer);
        if (answer.verdict != SOURCE_ADMITTED) {
            atomic_fetch_add(&board->refused, 1);
            continue;
        }
        if (!answer.permit.probe || atomic_fetch_add(&board->out, 1) != 0)
            atomic_fetch_add(&board->violations, 1);
        atomic_fetch_add(&board->probes, 1);
        (void)sched_yield();
        atomic_fetch_sub(&board->out, 1);
        source_release(&own, &answer.permit, &unjudged);
    }
    _exit(0);
}

static void h7_one_probe_among_all_processes(void **state)
{
    pid_t pids[4];
    int status;

    (void)state;
    open_board();
    fixture_break(&gate, all, NOW_NS);
    for (size_t i = 0; i < LENGTH(pids); i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            probe_all_the_time(NOW_NS + 5 * NS_PER_S);
    }
    for (size_t i = 0; i < LENGTH(pids); i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_true(atomic_load(&board->probes) >= 2000);
    assert_true(atomic_load(&board->refused) > 0);
    assert_int_equal(atomic_load(&board->violations), 0);
    assert_int_equal(fixture_view(&gate, "a", NOW_NS).in_flight, 0);
    (void)munmap(board, sizeof *board);
}

/* Calls with every kind of end, breakers that open and close all the time, and never more than two at a. */
static void call_until_killed(unsigned seed)
{
    struct source_outcome outcome = {
        .terms = {.failures = 2, .cooldown_ns = NS_PER_MS / 10, .cooldown_max_ns = NS_PER_MS}};
    struct source_wish wish = fixture_wish(all, LENGTH(all), 0);
    struct source_answer answer;
    struct gate own;

    join(&own);
    for (;;) {
        wish.now_ns = clock_monotonic_ns();
        wish.weighted = rand_r(&seed) % 2;
        wish.random = (unsigned)rand_r(&seed);
        wish.last_resort = rand_r(&seed) % 8 == 0;
        source_admit(&own, &wish, &answer);
        if (answer.verdict != SOURCE_ADMITTED) {
            clock_sleep_ns(20 * NS_PER_US);
            continue;
        }
        if (answer.candidate == A &&
            source_in_flight(&segment_instance(&segment)->sources[all[A].row]) > 2)
            atomic_fetch_add(&board->violations, 1);
        atomic_fetch_add(&board->probes, answer.permit.probe);
        outcome.now_ns = clock_monotonic_ns();
        outcome.out_ns = NS_PER_MS / 2;
        outcome.end = (enum source_end)(rand_r(&seed) % (SOURCE_END_OUT + 1));
        source_release(&own, &answer.permit, &outcome);
    }
}

static void n6_after_a_storm_of_kills_nothing_is_left(void **state)
{
    enum { PROCESSES = 4, KILLS = 40 };
    struct roster_watch watch;
    pid_t pids[PROCESSES];

    (void)state;
    fixture_needs_pidfds();
    open_board();
    roster_watch_init(&watch);
    all[A].max_in_flight = 2;
    for (unsigned i = 0; i < KILLS + PROCESSES; i++) {
        pid_t *pid = &pids[i % PROCESSES];
        const unsigned probes = atomic_load(&board->probes);

        if (i >= PROCESSES) {
            while (atomic_load(&board->probes) < probes + 3) /* they are at it */
                clock_sleep_ns(100 * NS_PER_US);
            kill_one(*pid);
            assert_true(bury_all(&watch) <= 1); /* 0: killed before it had entered */
        }
        if (i >= KILLS)
            continue;
        *pid = fork();
        assert_true(*pid >= 0);
        if (*pid == 0)
            call_until_killed(i);
    }
    (void)bury_all(&watch);
    assert_int_equal(atomic_load(&board->violations), 0);
    for (unsigned i = 0; i < LENGTH(names); i++) {
        const struct source_view view = fixture_view(&gate, names[i].name, clock_monotonic_ns());

        assert_int_equal(view.in_flight, 0);
        assert_false(view.probing);
        assert_true(view.breaker <= BREAKER_HALF_OPEN);
        assert_true(source_drain(&gate, names[i].name, false, 0));
        fixture_call_source(&gate, &all[i], SOURCE_END_SUCCESS, clock_monotonic_ns());
    }
    roster_watch_release(&watch);
    (void)munmap(board, sizeof *board);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *call_all_the_time(void *seed)
{
    unsigned random_state = *(unsigned *)seed;

    for (unsigned i = 0; i < 4000; i++) {
        struct source_wish own = fixture_wish(all, LENGTH(all), NOW_NS + i * NS_PER_MS * 20);
        struct source_answer answer;

        own.weighted = i % 2;
        own.random = (unsigned)rand_r(&random_state);
        own.last_resort = i % 16 == 0;
        source_admit(&gate, &own, &answer);
        if (answer.verdict == SOURCE_ADMITTED)
            fixture_end(&gate, &answer.permit, (enum source_end)(rand_r(&random_state) % 4),
                        own.now_ns);
    }
    return NULL;
}

static void m3_threads_leave_nothing_in_flight(void **state)
{
    pthread_t threads[4];
    unsigned seeds[4] = {1, 2, 3, 4};

    (void)state;
    all[B].max_in_flight = 2;
    for (size_t i = 0; i < LENGTH(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_all_the_time, &seeds[i]), 0);
    for (unsigned i = 0; i < 200; i++)
        for (unsigned source = 0; source < LENGTH(names); source++) {
            struct source_view view = fixture_view(&gate, names[source].name, NOW_NS);

            assert_true(view.in_flight <= (source == B ? 2 : LENGTH(threads)));
            assert_true(view.window_failures <= view.window_calls);
            assert_true(view.health_permille <= 1000);
        }
    for (size_t i = 0; i < LENGTH(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (unsigned source = 0; source < LENGTH(names); source++) {
        assert_int_equal(fixture_view(&gate, names[source].name, NOW_NS).in_flight, 0);
        assert_false(fixture_view(&gate, names[source].name, NOW_NS).probing);
    }
}

/* The page that holds a's count of exchanges; what happens when somebody writes to it. */
static void *page_of_count(void)
{
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    struct source_row *row = &segment_instance(&segment)->sources[all[A].row];
    char *count =
        (char *)row + offsetof(struct source_row, in_flight) + gate.self * sizeof row->in_flight[0];

    return count - (uintptr_t)count % size;
}

static void drain_meanwhile(int signal_number)
{
    (void)signal_number;
    if (mprotect(page_of_count(), (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE) != 0 ||
        !source_drain(&gate, "a", true, 0))
        _exit(1);
}

/* An operator drains a source, sees nothing in flight, and takes it away. A call that had already seen it
 * well, and was about to count itself, must not go there: drained exactly in between. */
static void h7_a_call_that_looked_before_the_drain_does_not_come_after_it(void **state)
{
    const struct source_wish wish = fixture_wish(all, 2, NOW_NS);
    const struct sigaction drain = {.sa_handler = drain_meanwhile};
    struct sigaction before;
    struct source_answer answer;

    (void)state;
    assert_int_equal(sigaction(SIGSEGV, &drain, &before), 0);
    assert_int_equal(mprotect(page_of_count(), (size_t)sysconf(_SC_PAGESIZE), PROT_READ), 0);
    answer = fixture_admit(&gate, &wish);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    assert_true(fixture_view(&gate, "a", NOW_NS).drained);
    assert_int_equal(fixture_view(&gate, "a", NOW_NS).in_flight, 0);
    assert_int_equal(answer.verdict, SOURCE_ADMITTED);
    assert_int_equal(answer.candidate, B);
}

#define ROWS_TEST(name) cmocka_unit_test_setup_teardown(name, open_gate, close_gate)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROWS_TEST(h7_state_is_kept_by_name_over_reloads),
        ROWS_TEST(h7_a_new_generation_ends_out_but_not_its_own_workers),
        ROWS_TEST(m8_a_row_is_given_away_only_when_nobody_knows_it),
        ROWS_TEST(m8_a_row_with_an_exchange_in_progress_stays),
        ROWS_TEST(h7_views_tell_what_there_is),
        ROWS_TEST(d18_a_killed_processs_probe_and_exchanges_come_back),
        ROWS_TEST(d18_a_clean_end_gives_them_back_too),
        ROWS_TEST(h7_one_probe_among_all_processes),
        ROWS_TEST(n6_after_a_storm_of_kills_nothing_is_left),
        ROWS_TEST(m3_threads_leave_nothing_in_flight),
        ROWS_TEST(h7_a_call_that_looked_before_the_drain_does_not_come_after_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
