/* queue_fixture.h - the image queue of the test's own gate, without slots. */
#ifndef TESTS_SHARED_QUEUE_FIXTURE_H
#define TESTS_SHARED_QUEUE_FIXTURE_H

#include "tests/shared/flow_fixture.h"

#include "shared/wait_queue.h"

static struct segment segment;
static struct gate gate;
static struct core_area *core;
static struct layout_area *layout;
static uint64_t seed, arrivals;

static inline int make(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 1, 100);
    core = segment_core(&segment);
    layout = segment_layout(&segment);
    seed = 42;
    arrivals = 0;
    return 0;
}

static inline int drop(void **state)
{
    (void)state;
    fixture_close(&segment);
    return 0;
}

static const uint32_t usual[FLOW_CLASSES] = {16, 4, 1};

static inline void weigh(const uint32_t weights[FLOW_CLASSES])
{
    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        layout->queue_classes[c].terms.weight = weights[c];
}

static inline uint32_t join_as(enum flow_class class, int64_t pictures)
{
    uint32_t place = queue_new_place_locked(core, layout, gate.self);

    assert_int_not_equal(place, NO_INDEX);
    queue_set_class_locked(layout, place, class, pictures);
    layout->places[place].record.arrival_seq = ++arrivals;
    queue_join_locked(core, layout, place);
    return place;
}

static inline uint32_t first_of_all(void)
{
    struct queue_walk walk;

    queue_walk_begin(&walk, layout);
    return queue_walk_next(&walk);
}

static inline void grant(uint32_t place)
{
    queue_hold_locked(core, layout, place, 0);
    queue_free_place_locked(core, layout, place);
}

#endif
