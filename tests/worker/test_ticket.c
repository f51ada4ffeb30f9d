/* test_ticket.c - what a call holds is given back exactly once (G9). */
#include "tests/shared/gate_fixture.h"

#include "worker/ticket.h"

static struct segment segment;
static struct gate gate;

static int make(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 2, 10);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    fixture_close(&segment);
    return 0;
}

static void take(struct ticket *ticket)
{
    ticket_init(ticket, &gate);
    assert_int_equal(fixture_arrive(&gate, true, &ticket->place), GATE_GRANTED);
    ticket->granted = true;
}

static void a_new_ticket_holds_nothing(void **state)
{
    struct ticket ticket;

    (void)state;
    ticket_init(&ticket, &gate);
    assert_int_equal(ticket.place, NO_INDEX);
    assert_false(ticket.granted);
    ticket_give(&ticket, WAIT_DONE, NULL);
    assert_int_equal(fixture_use(&gate).used, 0);
}

/* Every path ends in a give; several of them may come. The second must not free somebody else's. */
static void g9_giving_twice_gives_once(void **state)
{
    struct ticket first;
    struct ticket second;

    (void)state;
    take(&first);
    ticket_give(&first, WAIT_DONE, NULL);
    assert_int_equal(first.place, NO_INDEX);
    assert_false(first.granted);
    take(&second); /* has the same place now */
    ticket_give(&first, WAIT_CLIENT_GONE, NULL);
    assert_int_equal(fixture_use(&gate).used, 1);
    ticket_give(&second, WAIT_DONE, NULL);
    assert_int_equal(fixture_use(&gate).used, 0);
}

static void g9_a_place_in_the_queue_is_given_back_too(void **state)
{
    struct ticket held[2];
    struct ticket waiting;

    (void)state;
    take(&held[0]);
    take(&held[1]);
    ticket_init(&waiting, &gate);
    assert_int_equal(fixture_arrive(&gate, true, &waiting.place), GATE_QUEUED);
    assert_int_equal(segment_layout(&segment)->waiting, 1);
    ticket_give(&waiting, WAIT_TIMED_OUT, NULL);
    assert_int_equal(segment_layout(&segment)->waiting, 0);
    assert_int_equal(fixture_use(&gate).used, 2);
    ticket_give(&held[0], WAIT_DONE, NULL);
    ticket_give(&held[1], WAIT_DONE, NULL);
}

/* G13: background work keeps the slot, once, until it ends. */
static void g13_a_slot_goes_on_as_a_lease(void **state)
{
    const struct lease_terms terms = {
        .id = "resp_1", .source = "a", .instance = segment.instance, .duration_ns = NS_PER_S * 60};
    struct ticket ticket;

    (void)state;
    take(&ticket);
    ticket_give(&ticket, WAIT_DONE, &terms);
    assert_int_equal(fixture_use(&gate).used, 1);
    assert_int_equal(segment_core(&segment)->held_count, 0);
    ticket_give(&ticket, WAIT_DONE, &terms);
    assert_int_equal(fixture_use(&gate).used, 1);
    gate_end_lease(&gate, "resp_1", clock_monotonic_ns());
    assert_int_equal(fixture_use(&gate).used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_new_ticket_holds_nothing, make, drop),
        cmocka_unit_test_setup_teardown(g9_giving_twice_gives_once, make, drop),
        cmocka_unit_test_setup_teardown(g9_a_place_in_the_queue_is_given_back_too, make, drop),
        cmocka_unit_test_setup_teardown(g13_a_slot_goes_on_as_a_lease, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
