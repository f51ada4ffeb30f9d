/* flow_fixture.h - flows on the test's own gate and on a clock that only the test moves. */
#ifndef TESTS_SHARED_FLOW_FIXTURE_H
#define TESTS_SHARED_FLOW_FIXTURE_H

#include "tests/shared/gate_fixture.h"

#include "shared/bucket.h"
#include "shared/flow.h"
#include "shared/flow_queue.h"

#include <string.h>

static inline uint32_t fixture_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

static inline struct flow_terms fixture_flow_terms(enum flow_strategy strategy)
{
    return (struct flow_terms){.strategy = strategy,
                               .requests_quota = 600,
                               .units_quota = 600000,
                               .initial_requests = strategy == FLOW_STRATEGY_RATE ? 600 : 0,
                               .weights = {16, 4, 1},
                               .max_wait_ns = {600 * NS_PER_S, 600 * NS_PER_S, 600 * NS_PER_S},
                               .max_waiting = 4000};
}

static inline struct flow_target fixture_target(const struct flow_terms *terms, int64_t cost)
{
    return (struct flow_target){
        .quota_group = "account", .model = "model", .terms = terms, .cost = cost};
}

static inline struct flow_call fixture_flow_call(enum flow_class class, int64_t now_ns)
{
    return (struct flow_call){
        .class = class, .may_wait = true, .deadline_ns = CLOCK_NEVER, .now_ns = now_ns};
}

static inline struct flow_answer fixture_flow_arrive(struct gate *gate,
                                                     const struct flow_target *target,
                                                     enum flow_class class, int64_t now_ns)
{
    const struct flow_call call = fixture_flow_call(class, now_ns);
    struct flow_answer answer;

    flow_arrive(gate, target, &call, &answer);
    return answer;
}

static inline struct flow_answer fixture_flow_try(struct gate *gate, uint32_t place, int64_t now_ns)
{
    struct flow_answer answer;

    memset(&answer, 0, sizeof answer);
    flow_try(gate, place, now_ns, &answer);
    return answer;
}

static inline void fixture_flow_settle(struct gate *gate, uint32_t *place, int64_t units,
                                       int64_t now_ns)
{
    const struct flow_end end = {.now_ns = now_ns, .units = units};

    (void)flow_settle(gate, place, &end);
    assert_int_equal(*place, NO_INDEX);
}

/* The one flow that there is. */
__attribute__((returns_nonnull)) static inline struct flow_row *fixture_flow(struct gate *gate)
{
    struct layout_area *layout = segment_layout(gate->segment);

    for (uint32_t i = 0; i < FLOWS_MAX; i++)
        if (layout->flow_hashes[i] != 0)
            return &layout->flows[i];
    UNREACHABLE();
}

struct fixture_balance {
    int64_t requests, units, next_send_ns, virtual_time, finish[FLOW_CLASSES];
    uint32_t in_flight, waiting;
};

static inline struct fixture_balance fixture_balance(struct gate *gate, int64_t now_ns)
{
    struct flow_row *flow = fixture_flow(gate);
    struct fixture_balance balance;

    memset(&balance, 0, sizeof balance);
    balance.requests = bucket_balance_micro(&flow->requests, now_ns);
    balance.units = bucket_balance_micro(&flow->units, now_ns);
    balance.next_send_ns = flow->next_send_ns;
    balance.virtual_time = flow->virtual_time;
    balance.in_flight = flow->in_flight;
    balance.waiting = flow->waiting;
    for (uint32_t i = 0; i < FLOW_CLASSES; i++)
        balance.finish[i] = flow->classes[i].finish;
    return balance;
}

#endif
