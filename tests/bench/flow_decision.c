/*
 * flow_decision.c - what a decision of the flow control costs while many calls wait (B6): prints
 * microseconds, the lock included, for one process without contention. Usage: flow_decision [WAITERS]
 */
#include "base/clock.h"
#include "shared/bucket.h"
#include "shared/flow.h"
#include "shared/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/sem.h>

#define ROUNDS 20000

static struct segment segment;
static struct gate gate;
static struct flow_terms terms = {.strategy = FLOW_STRATEGY_SHAPING,
                                  .units_quota = 600000,
                                  .weights = {16, 4, 1},
                                  .max_wait_ns = {CLOCK_NEVER, CLOCK_NEVER, CLOCK_NEVER},
                                  .max_waiting = FLOW_PLACES_MAX};

static struct flow_answer arrive(unsigned at, int64_t cost)
{
    const struct flow_target target = {
        .quota_group = "account", .model = "model", .terms = &terms, .cost = cost};
    const struct flow_call call = {.class = (enum flow_class)(at % FLOW_CLASSES),
                                   .client = at % 2 + 1,
                                   .may_wait = true,
                                   .deadline_ns = CLOCK_NEVER,
                                   .now_ns = clock_monotonic_ns()};
    struct flow_answer answer;

    flow_arrive(&gate, &target, &call, &answer);
    return answer;
}

static void report(const char *what, int64_t since_ns, unsigned count)
{
    printf("%-44s %6.2f us\n", what,
           (double)(clock_monotonic_ns() - since_ns) / 1e3 / (double)count);
}

static bool set_up(void)
{
    const struct roster_member member = {.role = PROCESS_WORKER, .generation = 1};
    struct text why;

    text_init(&why, 200);
    return segment_attach_anonymous(&segment) &&
           segment_join_instance(&segment, "/nowhere", 0, &why) &&
           gate_join(&gate, &segment, &member, clock_monotonic_ns());
}

static void measure(const uint32_t *places, unsigned waiters)
{
    struct flow_answer answer = {.verdict = FLOW_QUEUED};
    int64_t since_ns = clock_monotonic_ns();

    for (unsigned i = 0; i < ROUNDS; i++) {
        answer = arrive(i, 500);
        flow_cancel(&gate, &answer.place, clock_monotonic_ns());
    }
    report("a call queues and leaves", since_ns, 2 * ROUNDS);
    since_ns = clock_monotonic_ns();
    for (unsigned i = 0; i < ROUNDS; i++)
        flow_try(&gate, places[(i * 7919U) % waiters], clock_monotonic_ns(), &answer);
    report("a waiting call tries in vain", since_ns, ROUNDS);
    since_ns = clock_monotonic_ns();
    for (unsigned i = 0; i < ROUNDS; i++)
        gate_tick(&gate, clock_monotonic_ns());
    report("a process's tick (every 250 ms)", since_ns, ROUNDS);
}

/* The first of the class, if it is rung, is granted, sent and settled. */
static bool serve_first(const struct flow_class_row *class)
{
    const struct flow_end end = {.now_ns = clock_monotonic_ns(), .units = 400};
    struct flow_answer answer = {.verdict = FLOW_QUEUED};
    uint32_t place = class->head;

    if (class->waiting == 0 || !flow_is_rung(&gate, place))
        return false;
    flow_try(&gate, place, end.now_ns, &answer);
    if (answer.verdict != FLOW_GRANTED)
        return false;
    flow_sent(&gate, place, end.now_ns);
    (void)flow_settle(&gate, &place, &end);
    return true;
}

static void serve(unsigned waiters)
{
    struct flow_row *flow = &segment_layout(&segment)->flows[0];
    unsigned left = waiters;
    int64_t since_ns;

    flow->units.balance_micro = flow->units.capacity_micro = INT64_C(1000000000) * BUCKET_UNIT;
    gate_tick(&gate, clock_monotonic_ns());
    since_ns = clock_monotonic_ns();
    while (left > 0)
        for (uint32_t c = 0; c < FLOW_CLASSES; c++)
            left -= serve_first(&flow->classes[c]);
    report("one of: granted (and rings), sent, settled", since_ns, 3 * waiters);
}

int main(int argc, char **argv)
{
    static uint32_t places[FLOW_PLACES_MAX];
    const unsigned waiters = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;
    struct flow_answer first;

    if (waiters < 1 || waiters > FLOW_PLACES_MAX - 2 || !set_up())
        return 1;
    first = arrive(0, 1); /* and it owes for long: everybody behind it waits */
    flow_sent(&gate, first.place, clock_monotonic_ns());
    flow_progress(&gate, first.place, 100000000, clock_monotonic_ns());
    for (unsigned i = 0; i < waiters; i++)
        places[i] = arrive(i, 500).place;
    printf("%u calls wait\n", waiters);
    measure(places, waiters);
    serve(waiters);
    (void)semctl(segment_core(&segment)->semaphore_id, 0, IPC_RMID);
    return 0;
}
