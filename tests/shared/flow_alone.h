/* flow_alone.h - one process, one gate, a clock that only the test moves: what the tests of flow.h and of
 * its rows begin with. */
#ifndef TESTS_SHARED_FLOW_ALONE_H
#define TESTS_SHARED_FLOW_ALONE_H

#include "tests/shared/flow_fixture.h"

static struct segment segment;
static struct gate gate;
static int64_t now;

static int make(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 1, 100);
    now = clock_monotonic_ns();
    return 0;
}

static int drop(void **state)
{
    (void)state;
    fixture_close(&segment);
    return 0;
}

static struct flow_answer arrive(const struct flow_terms *terms, int64_t cost,
                                 enum flow_class class)
{
    const struct flow_target target = fixture_target(terms, cost);

    return fixture_flow_arrive(&gate, &target, class, now);
}

/* Granted, sent, and at its end in no time. */
static inline void call_once(const struct flow_terms *terms, int64_t cost, int64_t used)
{
    struct flow_answer answer = arrive(terms, cost, FLOW_NORMAL);

    assert_int_equal(answer.verdict, FLOW_GRANTED);
    flow_sent(&gate, answer.place, now);
    fixture_flow_settle(&gate, &answer.place, used, now);
}

#endif
