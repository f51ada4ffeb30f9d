/* test_wait_queue.c - places and their order; the list is an index, the rows are the truth. */
#include "tests/shared/gate_fixture.h"

#include "shared/wait_queue.h"

static struct segment segment;
static struct gate gate;
static struct core_area *core;
static struct layout_area *layout;

static int make(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 1, 100);
    core = segment_core(&segment);
    layout = segment_layout(&segment);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    fixture_close(&segment);
    return 0;
}

static uint32_t join(uint64_t seq)
{
    uint32_t place = queue_new_place_locked(core, layout, gate.self);

    layout->places[place].record.arrival_seq = seq;
    queue_join_locked(core, layout, place);
    return place;
}

static void a_place_that_leaves_the_middle_moves_the_others_up(void **state)
{
    uint32_t places[4];

    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        places[i] = join(i + 1);
    assert_int_equal(queue_position_locked(layout, places[3]), 4);
    queue_free_place_locked(core, layout, places[1]);
    assert_int_equal(queue_position_locked(layout, places[3]), 3);
    assert_int_equal(queue_position_locked(layout, places[1]), 0);
    queue_free_place_locked(core, layout, places[0]);
    queue_free_place_locked(core, layout, places[3]);
    assert_int_equal(queue_position_locked(layout, places[2]), 1);
    assert_int_equal(layout->waiting, 1);
    assert_int_equal(core->waiting_by_layout[LAYOUT_VERSION], 1);
}

static void the_queue_is_found_again_from_rows_in_any_order(void **state)
{
    uint32_t third = join(3);
    uint32_t first = join(1);
    uint32_t second = join(2);

    (void)state;
    layout->queue_head = layout->queue_tail = 7777; /* what a holder that died may leave */
    layout->free_head = NO_INDEX;
    layout->waiting = 0;
    queue_rebuild_locked(core, layout);
    assert_int_equal(queue_position_locked(layout, first), 1);
    assert_int_equal(queue_position_locked(layout, second), 2);
    assert_int_equal(queue_position_locked(layout, third), 3);
    assert_int_equal(layout->waiting, 3);
    for (uint32_t i = 0; i < PLACES_MAX - 3; i++)
        assert_int_not_equal(queue_new_place_locked(core, layout, gate.self), NO_INDEX);
    assert_int_equal(queue_new_place_locked(core, layout, gate.self), NO_INDEX);
}

static void many_rows_in_any_order_are_sorted(void **state)
{
    uint32_t places[1000];

    (void)state;
    for (uint32_t i = 0; i < 1000; i++)
        places[i] = join((uint64_t)(i * 7919U % 1000U) + 1);
    queue_rebuild_locked(core, layout);
    for (uint32_t i = 0; i < 1000; i += 37)
        assert_int_equal(queue_position_locked(layout, places[i]), i * 7919U % 1000U + 1);
}

static void only_the_first_are_rung_and_only_once(void **state)
{
    uint32_t first = join(1);
    uint32_t second = join(2);
    uint32_t third = join(3);

    (void)state;
    assert_int_equal(queue_ring_locked(core, layout, 2, 10), 2);
    assert_int_equal(queue_ring_locked(core, layout, 2, 20), 0);
    assert_true(gate_is_rung(&gate, first) && gate_is_rung(&gate, second));
    assert_false(gate_is_rung(&gate, third));
    assert_true(queue_is_first_locked(layout, first, 20));
    assert_false(queue_is_first_locked(layout, second, 20));
}

static void m2_the_silent_do_not_keep_the_others_from_their_turn(void **state)
{
    uint32_t first = join(1);
    uint32_t second = join(2);
    int64_t late_ns = 10 + QUEUE_SILENT_NS + 1;

    (void)state;
    assert_int_equal(queue_ring_locked(core, layout, 1, 10), 1);
    assert_true(queue_has_answering_locked(layout, 10));
    assert_int_equal(queue_ring_locked(core, layout, 1, late_ns), 1);
    assert_true(gate_is_rung(&gate, second));
    assert_true(queue_is_first_locked(layout, second, late_ns));
    assert_true(queue_is_first_locked(layout, first, late_ns)); /* it keeps its number */
}

static void m2_all_places_of_a_silent_process_are_passed_over_at_once(void **state)
{
    const uint32_t stopped = gate.self + 1;
    int64_t late_ns = 10 + PROCESS_SILENT_NS + 1;
    uint32_t last;

    (void)state;
    for (uint64_t i = 1; i <= 5; i++)
        layout->places[join(i)].owner = stopped;
    last = join(6);
    layout->answered_ns[stopped] = 10;
    layout->answered_ns[gate.self] = late_ns;
    assert_false(queue_is_first_locked(layout, last, late_ns - 1));
    assert_true(queue_is_first_locked(layout, last, late_ns));
    (void)queue_ring_locked(core, layout, 1, late_ns);
    assert_true(gate_is_rung(&gate, last));
}

/* As when a stopped process held the lock until it was killed: the others waited, they were not silent. */
static void m2_who_waited_for_the_lock_was_not_silent(void **state)
{
    const uint32_t other = gate.self + 1;
    int64_t now_ns = layout->answered_last_ns; /* when the gate was joined */
    uint32_t first;
    uint32_t last;

    (void)state;
    first = join(1);
    last = join(2);
    layout->places[first].owner = other;
    queue_answer_locked(layout, other, now_ns);
    queue_answer_locked(layout, gate.self, now_ns);
    assert_int_equal(queue_ring_locked(core, layout, 1, now_ns), 1);
    now_ns += 2 * NS_PER_S;
    queue_answer_locked(layout, gate.self, now_ns);
    assert_false(queue_is_first_locked(layout, last, now_ns));
    now_ns += QUEUE_SILENT_NS + 1;
    assert_true(queue_is_first_locked(layout, last, now_ns)); /* but now it is */
}

/* A thread that waited for the lock for long brings an old time with it. */
static void m2_an_answer_never_takes_a_later_one_back(void **state)
{
    int64_t joined_ns = layout->answered_last_ns;

    (void)state;
    queue_answer_locked(layout, gate.self, joined_ns + 5);
    queue_answer_locked(layout, gate.self, joined_ns + 3);
    assert_int_equal(layout->answered_ns[gate.self], joined_ns + 5);
}

#define QUEUE_TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        QUEUE_TEST(a_place_that_leaves_the_middle_moves_the_others_up),
        QUEUE_TEST(the_queue_is_found_again_from_rows_in_any_order),
        QUEUE_TEST(many_rows_in_any_order_are_sorted),
        QUEUE_TEST(only_the_first_are_rung_and_only_once),
        QUEUE_TEST(m2_all_places_of_a_silent_process_are_passed_over_at_once),
        QUEUE_TEST(m2_who_waited_for_the_lock_was_not_silent),
        QUEUE_TEST(m2_an_answer_never_takes_a_later_one_back),
        QUEUE_TEST(m2_the_silent_do_not_keep_the_others_from_their_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
