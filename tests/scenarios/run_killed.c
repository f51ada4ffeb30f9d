/*
 * run_killed.c - a process is killed after each single change that it makes in the segment, as it
 * enters the roster and in every kind of call; whatever it had is free again afterwards.
 *
 * One process is stepped one instruction at a time (ptrace) to find the instructions that change something;
 * then one runs up to each of them, and dies.
 */
#include "tests/shared/flow_fixture.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#define CAPACITY 10000
#define COST 1000
#define PREDICTED 500
#define USED 300
#define MOMENTS_MAX 1000
#define STEPS_MAX 500000

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
    terms.max_concurrent = 1;
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

/* ---- one instruction after the other --------------------------------------------------------- */

/* All that a call of the first few places touches. */
struct watched {
    struct lock_area lock;
    struct roster_row roster[3];
    struct held_row held[2];
    struct place_row places[3];
    struct flow_place_row flow_places[3];
    struct flow_row flow;
    uint32_t lists[5];
};

static void look(struct watched *ret)
{
    const struct core_area *core = segment_core(&segment);
    const struct layout_area *layout = segment_layout(&segment);

    memcpy(&ret->lock, &core->lock, sizeof ret->lock);
    memcpy(ret->roster, core->roster, sizeof ret->roster);
    memcpy(ret->held, core->held, sizeof ret->held);
    memcpy(ret->places, layout->places, sizeof ret->places);
    memcpy(ret->flow_places, layout->flow_places, sizeof ret->flow_places);
    memcpy(&ret->flow, fixture_flow(&gate), sizeof ret->flow);
    ret->lists[0] = layout->free_head;
    ret->lists[1] = layout->waiting;
    ret->lists[2] = layout->flow_free_head;
    ret->lists[3] = layout->flow_places_used;
    ret->lists[4] = core->held_count;
}

/* The instruction that makes a change, the how-many-th time that it runs. */
struct moment {
    uintptr_t at;
    unsigned times;
};

#ifdef __x86_64__
#define RIP (void *)offsetof(struct user, regs.rip)
#else
#define RIP NULL
#endif
#define BREAKPOINT 0xCCUL

static uintptr_t where(pid_t pid)
{
    errno = 0;
    long at = ptrace(PTRACE_PEEKUSER, pid, RIP, NULL);
    assert_int_equal(errno, 0);
    return (uintptr_t)at;
}

/* False: it has come to the end of its call. */
static bool goes_on(pid_t pid, enum __ptrace_request how)
{
    int status;

    assert_int_equal(ptrace(how, pid, NULL, NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status));
    assert_true(WSTOPSIG(status) == SIGTRAP || WSTOPSIG(status) == SIGSTOP);
    return WSTOPSIG(status) == SIGTRAP;
}

/* All moments of its life, which it lives to the end. */
static size_t find_moments(pid_t pid, struct moment moments[MOMENTS_MAX])
{
    static struct watched before, now;
    static uintptr_t path[STEPS_MAX];
    size_t steps = 0, count = 0;
    int status;

    memset(&before, 0, sizeof before);
    memset(&now, 0, sizeof now);
    look(&before);
    path[0] = where(pid);
    while (goes_on(pid, PTRACE_SINGLESTEP)) {
        look(&now);
        if (memcmp(&before, &now, sizeof now) != 0) {
            struct moment *moment = &moments[count++];

            assert_in_range(count, 1, MOMENTS_MAX - 1);
            *moment = (struct moment){.at = path[steps]};
            for (size_t i = 0; i <= steps; i++)
                moment->times += path[i] == moment->at;
            before = now;
        }
        assert_in_range(++steps, 1, STEPS_MAX - 1);
        path[steps] = where(pid);
    }
    assert_int_equal(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return count;
}

/* Runs until just after the moment. False: it took another way, and is at the end of its call. */
static bool run_until(pid_t pid, const struct moment *moment)
{
    void *at = (void *)moment->at;
    const unsigned long code = (unsigned long)ptrace(PTRACE_PEEKTEXT, pid, at, NULL);
    const unsigned long trap = (code & ~0xFFUL) | BREAKPOINT;

    for (unsigned times = 0; times < moment->times; times++) {
        if (where(pid) != moment->at) {
            assert_int_equal(ptrace(PTRACE_POKETEXT, pid, at, trap), 0);
            if (!goes_on(pid, PTRACE_CONT))
                return false;
            assert_int_equal(where(pid), moment->at + 1);
            assert_int_equal(ptrace(PTRACE_POKEUSER, pid, RIP, at), 0);
            assert_int_equal(ptrace(PTRACE_POKETEXT, pid, at, code), 0);
        }
        assert_true(goes_on(pid, PTRACE_SINGLESTEP));
    }
    return true;
}

typedef void (*act)(struct gate *own);

/* A process that stands before its call, or with NULL before it enters. */
static pid_t begin(act what)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        const struct roster_member member = {
            .role = PROCESS_WORKER, .instance = segment.instance, .generation = 1};
        struct gate own;

        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || (!what && raise(SIGSTOP) != 0) ||
            !gate_join(&own, &segment, &member, clock_monotonic_ns()) ||
            (what && raise(SIGSTOP) != 0))
            _exit(1);
        if (what)
            what(&own);
        (void)raise(SIGSTOP);
        gate_resign(&own, clock_monotonic_ns());
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status));
    return pid;
}

static void kill_and_bury(pid_t pid)
{
    const struct roster_row *row = &segment_core(&segment)->roster[gate.self + 1];
    struct roster_death dead[4];
    struct gate_burial burial;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    while (atomic_load(&row->pid) == pid) {
        unsigned count =
            roster_watch_dead(&watch, segment_core(&segment), dead, (unsigned)LENGTH(dead));

        for (unsigned i = 0; i < count; i++)
            (void)gate_bury(&gate, &dead[i], clock_monotonic_ns(), 0, &burial);
    }
}

/* ---- what must hold afterwards --------------------------------------------------------------- */

static void check_image_queue(const struct layout_area *layout, uint32_t used)
{
    uint32_t free_places = 0, taken = 0;

    for (uint32_t at = layout->free_head; at != NO_INDEX; at = layout->places[at].next)
        free_places++;
    for (uint32_t i = 0; i < PLACES_MAX; i++)
        taken += atomic_load(&layout->places[i].state) != PLACE_FREE;
    assert_int_equal(taken, used);
    assert_int_equal(free_places, PLACES_MAX - used);
    assert_int_equal(layout->waiting, 0);
    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        assert_int_equal(layout->queue_classes[c].waiting, 0);
}

static void check_flow(const struct layout_area *layout, uint32_t used)
{
    const struct flow_row *flow = fixture_flow(&gate);
    uint32_t free_places = 0, taken = 0;

    for (uint32_t at = layout->flow_free_head; at != NO_INDEX; at = layout->flow_places[at].next)
        free_places++;
    for (uint32_t i = 0; i < FLOW_PLACES_MAX; i++)
        taken += atomic_load(&layout->flow_places[i].state) != FLOW_PLACE_FREE;
    assert_int_equal(taken, used);
    assert_int_equal(layout->flow_places_used, used);
    assert_int_equal(free_places, FLOW_PLACES_MAX - used);
    assert_int_equal(flow->in_flight, used);
    assert_int_equal(flow->waiting, 0);
    assert_int_equal(layout->flow_slot_waiters, 0);
    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        assert_int_equal(flow->classes[c].waiting, 0);
        assert_int_equal(flow->classes[c].queued_cost, 0);
    }
}

/* The balance of units moves by grants and ends only. */
static void fill_budget(void)
{
    struct flow_row *flow = fixture_flow(&gate);

    gate_lock(&gate);
    bucket_set_rate(&flow->units, 0, clock_monotonic_ns());
    bucket_set_capacity(&flow->units, CAPACITY * BUCKET_UNIT, clock_monotonic_ns());
    flow->units.balance_micro = CAPACITY * BUCKET_UNIT;
    flow->paused_until_ns = 0;
    gate_unlock(&gate);
}

static int64_t spent(void)
{
    int64_t micro;

    gate_lock(&gate); /* and with it repaired, if it must be */
    micro = CAPACITY * BUCKET_UNIT - fixture_flow(&gate)->units.balance_micro;
    gate_unlock(&gate);
    return micro / BUCKET_UNIT;
}

static struct flow_answer arrive(struct gate *of)
{
    struct flow_target target = fixture_target(&terms, COST);

    target.predicted = PREDICTED;
    return fixture_flow_arrive(of, &target, FLOW_NORMAL, clock_monotonic_ns());
}

/* image_places, flow_places: what others hold meanwhile. */
static void check_all(uint32_t image_places, uint32_t flow_places)
{
    const int64_t used = spent();

    assert_true(used == 0 || used == USED || used == COST + PREDICTED);
    check_image_queue(segment_layout(&segment), image_places);
    check_flow(segment_layout(&segment), flow_places);
    assert_int_equal(fixture_use(&gate).used, image_places);
    assert_int_equal(fixture_use(&gate).held, image_places);
}

static void kill_after_every_change(act what, uint32_t image_places, uint32_t flow_places)
{
    static struct moment moments[MOMENTS_MAX];
    size_t count, reached = 0;

    fill_budget();
    count = find_moments(begin(what), moments);
    assert_in_range(count, 10, MOMENTS_MAX);
    for (size_t i = 0; i < count; i++) {
        pid_t pid;

        fill_budget();
        pid = begin(what);
        reached += run_until(pid, &moments[i]);
        kill_and_bury(pid);
        check_all(image_places, flow_places);
    }
    assert_in_range(reached, count - count / 10, count); /* what hangs on the clock may differ */
}

static void prepare(void)
{
    struct flow_answer answer;

#ifndef __x86_64__
    skip(); /* instructions are told and changed as that one has them */
#endif
    fixture_needs_pidfds();
    answer = arrive(&gate); /* the flow's row */
    assert_int_equal(answer.verdict, FLOW_GRANTED);
    flow_cancel(&gate, &answer.place, clock_monotonic_ns());
}

/* ---- what it does ---------------------------------------------------------------------------- */

static void m3_a_process_that_enters(void **state)
{
    (void)state;
    prepare();
    kill_after_every_change(NULL, 0, 0);
}

static void call_in_flow(struct gate *own)
{
    struct flow_answer answer = arrive(own);

    if (answer.verdict != FLOW_GRANTED)
        _exit(2);
    flow_sent(own, answer.place, clock_monotonic_ns());
    (void)flow_settle(own, &answer.place,
                      &(struct flow_end){.now_ns = clock_monotonic_ns(), .units = USED});
}

static void m3_a_call_in_a_flow(void **state)
{
    (void)state;
    prepare();
    kill_after_every_change(call_in_flow, 0, 0);
}

static void call_that_is_throttled(struct gate *own)
{
    struct flow_answer answer = arrive(own);
    const struct flow_end end = {.now_ns = clock_monotonic_ns(),
                                 .units = USED,
                                 .refused = true,
                                 .kind = ADAPTIVE_TPM,
                                 .retry_after_ns = 1};

    if (answer.verdict != FLOW_GRANTED)
        _exit(2);
    flow_sent(own, answer.place, clock_monotonic_ns());
    flow_progress(own, answer.place, COST + PREDICTED, clock_monotonic_ns());
    (void)flow_settle(own, &answer.place, &end);
}

static void m3_a_call_that_uses_more_and_is_throttled(void **state)
{
    (void)state;
    prepare();
    kill_after_every_change(call_that_is_throttled, 0, 0);
}

static void call_that_waits_in_flow(struct gate *own)
{
    struct flow_answer answer = arrive(own);

    if (answer.verdict != FLOW_QUEUED)
        _exit(2);
    flow_cancel(own, &answer.place, clock_monotonic_ns());
}

static void m3_a_call_that_waits_in_a_flow(void **state)
{
    struct flow_answer holder;

    (void)state;
    prepare();
    holder = arrive(&gate);
    assert_int_equal(holder.verdict, FLOW_GRANTED);
    kill_after_every_change(call_that_waits_in_flow, 0, 1);
    flow_cancel(&gate, &holder.place, clock_monotonic_ns());
}

static void call_at_gate(struct gate *own)
{
    uint32_t place;

    if (fixture_arrive(own, true, &place) != GATE_GRANTED)
        _exit(2);
    fixture_leave(own, place, WAIT_DONE);
}

static void m3_a_call_at_the_gate(void **state)
{
    (void)state;
    prepare();
    kill_after_every_change(call_at_gate, 0, 0);
}

static void call_that_waits_at_gate(struct gate *own)
{
    uint32_t place;

    if (fixture_arrive(own, true, &place) != GATE_QUEUED)
        _exit(2);
    fixture_leave(own, place, WAIT_CLIENT_GONE);
}

static void m3_a_call_that_waits_at_the_gate(void **state)
{
    uint32_t holder;

    (void)state;
    prepare();
    assert_int_equal(fixture_arrive(&gate, true, &holder), GATE_GRANTED);
    kill_after_every_change(call_that_waits_at_gate, 1, 0);
    fixture_leave(&gate, holder, WAIT_DONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(m3_a_process_that_enters, make, drop),
        cmocka_unit_test_setup_teardown(m3_a_call_in_a_flow, make, drop),
        cmocka_unit_test_setup_teardown(m3_a_call_that_uses_more_and_is_throttled, make, drop),
        cmocka_unit_test_setup_teardown(m3_a_call_that_waits_in_a_flow, make, drop),
        cmocka_unit_test_setup_teardown(m3_a_call_at_the_gate, make, drop),
        cmocka_unit_test_setup_teardown(m3_a_call_that_waits_at_the_gate, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
