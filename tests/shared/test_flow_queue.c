/* test_flow_queue.c - whose turn it is: order inside a class, shares between classes, passing over, and
 * all of it again from the rows. */
#include "tests/shared/flow_fixture.h"

#include "shared/flow_clients.h"
#include "shared/wait_queue.h"

#include <stdlib.h>

static struct segment segment;
static struct gate gate;
static struct core_area *core;
static struct layout_area *layout;
static struct flow_row *flow;
static struct flow_moment moment;
static uint64_t seed;

static int make(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 1, 100);
    core = segment_core(&segment);
    layout = segment_layout(&segment);
    flow = &layout->flows[0];
    flow->unit = FLOW_UNIT_TOKENS;
    flow->classes[FLOW_INTERACTIVE].weight = 16;
    flow->classes[FLOW_NORMAL].weight = 4;
    flow->classes[FLOW_BULK].weight = 1;
    moment = (struct flow_moment){.now_ns = clock_monotonic_ns(), .slot_free = true};
    seed = 42;
    return 0;
}

static int drop(void **state)
{
    (void)state;
    fixture_close(&segment);
    return 0;
}

static uint32_t join(uint32_t class, int64_t cost)
{
    uint32_t place = flow_queue_new_place_locked(core, layout, gate.self);
    struct flow_place_row *row;

    assert_int_not_equal(place, NO_INDEX);
    row = &layout->flow_places[place];
    row->class_index = class;
    row->cost = cost;
    row->deadline_ns = CLOCK_NEVER;
    flow_queue_join_locked(layout, place);
    return place;
}

static uint32_t next(void)
{
    return flow_queue_next_locked(layout, flow, &moment);
}

/* Grants the next one and ends its call at once; returns its class. */
static uint32_t serve(int64_t *ret_cost)
{
    uint32_t place = next();
    uint32_t class;

    assert_int_not_equal(place, NO_INDEX);
    class = layout->flow_places[place].class_index;
    *ret_cost = layout->flow_places[place].cost + 100;
    flow_queue_grant_locked(layout, place);
    flow_queue_free_place_locked(layout, place);
    return class;
}

static void f8_inside_a_class_nobody_overtakes(void **state)
{
    uint64_t last[FLOW_CLASSES] = {0};
    uint32_t waiting[600];
    size_t count = 0;

    (void)state;
    for (int step = 0; step < 20000; step++) {
        uint32_t dice = fixture_random(&seed) % 10;

        if (dice < 5 && count < LENGTH(waiting)) {
            waiting[count++] =
                join(fixture_random(&seed) % FLOW_CLASSES, 1 + fixture_random(&seed) % 9000);
        } else if (dice < 7 && count > 0) { /* somebody leaves, from anywhere */
            uint32_t at = fixture_random(&seed) % (uint32_t)count;

            flow_queue_free_place_locked(layout, waiting[at]);
            waiting[at] = waiting[--count];
        } else if (count > 0) {
            uint32_t place = next();
            const struct flow_place_row *row = &layout->flow_places[place];

            assert_true(row->seq > last[row->class_index]);
            last[row->class_index] = row->seq;
            flow_queue_grant_locked(layout, place);
            flow_queue_free_place_locked(layout, place);
            for (size_t i = 0; i < count; i++)
                if (waiting[i] == place)
                    waiting[i--] = waiting[--count];
        }
        assert_int_equal(flow->waiting, count);
    }
}

static void b3_shares_are_the_weights_within_3_percent(void **state)
{
    static const double weights[] = {16, 4, 1};
    static const int64_t largest[] = {500, 8000, 60000}; /* bulk's calls are long ones */
    int64_t served[FLOW_CLASSES] = {0};
    int64_t all = 0;
    int64_t cost;

    (void)state;
    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        for (int i = 0; i < 20; i++)
            (void)join(c, 1 + fixture_random(&seed) % largest[c]);
    while (all < 100000000) {
        uint32_t class = serve(&cost);

        served[class] += cost;
        all += cost;
        (void)join(class, 1 + fixture_random(&seed) % largest[class]);
    }
    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        double share = (double)served[c] / (double)all;

        assert_true(share > 0.97 * weights[c] / 21 && share < 1.03 * weights[c] / 21);
    }
}

/* Research 4.2: sum of the classes' largest costs, and the own cost by the own share. */
static void b3_no_class_waits_longer_than_the_bound(void **state)
{
    static const double weights[] = {16, 4, 1};
    static const int64_t largest[] = {500, 8000, 60000};
    const double sum = 500 + 8000 + 60000 + 3 * 100;
    int64_t since[FLOW_CLASSES] = {0};
    double own[FLOW_CLASSES] = {0};
    int64_t cost;

    (void)state;
    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        for (int i = 0; i < 5; i++)
            (void)join(c, 1 + fixture_random(&seed) % largest[c]);
    for (int step = 0; step < 200000; step++) {
        uint32_t class = serve(&cost);

        assert_true((double)since[class] <= sum + own[class] * 21 / weights[class]);
        for (uint32_t c = 0; c < FLOW_CLASSES; c++)
            since[c] = c == class ? 0 : since[c] + cost;
        own[class] = (double)cost;
        (void)join(class, 1 + fixture_random(&seed) % largest[class]);
    }
}

static void f8_who_was_away_brings_no_credit_and_no_debt(void **state)
{
    int64_t cost;
    int64_t before = 0;

    (void)state;
    for (int i = 0; i < 1000; i++)
        (void)join(FLOW_BULK, 1000);
    for (int i = 0; i < 500; i++)
        assert_int_equal(serve(&cost), FLOW_BULK);
    /* bulk had everything for long; an interactive call is still next or the one after */
    (void)join(FLOW_INTERACTIVE, 1000);
    while (serve(&cost) != FLOW_INTERACTIVE)
        before++;
    assert_in_range(before, 0, 1);
    /* and interactive has nothing saved for having been away: bulk goes on with its share */
    for (int i = 0; i < 40; i++)
        (void)join(FLOW_INTERACTIVE, 1000);
    before = 0;
    while (serve(&cost) != FLOW_BULK)
        before++;
    assert_in_range(before, 0, 17);
}

static void b4_who_leaves_while_waiting_leaves_no_tag(void **state)
{
    int64_t cost;
    int64_t tags[FLOW_CLASSES + 1];
    uint32_t places[300];

    (void)state;
    for (int i = 0; i < 30; i++)
        (void)join((uint32_t)i % FLOW_CLASSES, 100 * i);
    for (int i = 0; i < 10; i++)
        (void)serve(&cost);
    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        tags[c] = flow->classes[c].finish;
    tags[FLOW_CLASSES] = flow->virtual_time;
    for (uint32_t i = 0; i < LENGTH(places); i++)
        places[i] = join(i % FLOW_CLASSES, 70000);
    for (uint32_t i = 0; i < LENGTH(places); i++)
        flow_queue_free_place_locked(layout, places[i]);
    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        assert_int_equal(flow->classes[c].finish, tags[c]);
    assert_int_equal(flow->virtual_time, tags[FLOW_CLASSES]);
    assert_int_equal(flow->waiting, 20);
}

static void f8_a_charge_is_corrected_to_what_was_used(void **state)
{
    uint32_t place = join(FLOW_NORMAL, 900);

    (void)state;
    flow_queue_grant_locked(layout, place);
    assert_int_equal(flow->classes[FLOW_NORMAL].finish, 1000 * 4096 / 4);
    flow_queue_correct_locked(layout, place, 4900);
    assert_int_equal(flow->classes[FLOW_NORMAL].finish, 5000 * 4096 / 4);
    flow_queue_correct_locked(layout, place, 0);
    assert_int_equal(flow->classes[FLOW_NORMAL].finish, 0);
}

static void f8_who_cannot_go_is_passed_over_and_keeps_its_number(void **state)
{
    uint32_t first = join(FLOW_NORMAL, 10);
    uint32_t second = join(FLOW_NORMAL, 10);
    struct flow_place_row *row = &layout->flow_places[first];

    (void)state;
    assert_int_equal(next(), first);
    row->rung_ns = moment.now_ns - 501 * NS_PER_MS;
    assert_int_equal(next(), second);
    row->rung_ns = moment.now_ns - 499 * NS_PER_MS;
    assert_int_equal(next(), first);
    row->rung_ns = 0;
    row->due_ns = moment.now_ns - 501 * NS_PER_MS;
    assert_int_equal(next(), second);
    row->due_ns = 0;
    row->aside_until_ns = moment.now_ns + 1;
    assert_int_equal(next(), second);
    row->aside_until_ns = 0;
    row->deadline_ns = moment.now_ns - 1;
    assert_int_equal(next(), second);
    row->deadline_ns = CLOCK_NEVER;
    assert_int_equal(next(), first);
    moment.now_ns += NS_PER_S + 200 * NS_PER_MS; /* nobody was at the gate meanwhile */
    assert_int_equal(next(), NO_INDEX);
    queue_answer_locked(layout, gate.self, moment.now_ns);
    assert_int_equal(next(), first);
}

static void f8_without_a_free_slot_those_who_need_one_wait_aside(void **state)
{
    uint32_t place = flow_queue_new_place_locked(core, layout, gate.self);
    uint32_t plain;

    (void)state;
    layout->flow_places[place].image_place = 1;
    layout->flow_places[place].deadline_ns = CLOCK_NEVER;
    flow_queue_join_locked(layout, place);
    moment.slot_free = false;
    assert_int_equal(next(), NO_INDEX);
    plain = join(FLOW_INTERACTIVE, 5);
    assert_int_equal(next(), plain);
    assert_int_equal(layout->flow_slot_waiters, 1);
    moment.slot_free = true;
    assert_int_equal(next(), place);
    flow_queue_grant_locked(layout, place);
    assert_int_equal(layout->flow_slot_waiters, 0);
}

static void m3_queues_and_counts_are_found_again_from_the_rows(void **state)
{
    uint32_t places[400];
    uint32_t order[400];
    size_t count = 0;

    (void)state;
    for (uint32_t i = 0; i < LENGTH(places); i++) {
        places[i] = join(i % FLOW_CLASSES, i);
        layout->flow_places[places[i]].seq = 1000 + (i * 7919) % 400; /* no order of rows */
        if (i % 5 == 0)
            flow_queue_grant_locked(layout, places[i]);
    }
    memset(&flow->classes[0].head, 0x5a, 5 * sizeof(uint32_t)); /* what a dead holder may leave */
    layout->flow_free_head = 17;
    flow_queue_rebuild_locked(layout);
    assert_int_equal(flow->in_flight, 80);
    assert_int_equal(flow->waiting, 320);
    assert_int_equal(layout->flow_places_used, 400);
    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        uint64_t last = 0;

        for (uint32_t at = flow->classes[c].head; at != NO_INDEX;
             at = layout->flow_places[at].next) {
            assert_true(layout->flow_places[at].seq > last);
            last = layout->flow_places[at].seq;
            order[count++] = at;
        }
    }
    assert_int_equal(count, 320);
    for (size_t i = 0; i < count; i++)
        flow_queue_free_place_locked(layout, order[i]);
    /* the free list is whole */
    for (uint32_t i = 0; i < FLOW_PLACES_MAX - 80; i++)
        assert_int_not_equal(flow_queue_new_place_locked(core, layout, gate.self), NO_INDEX);
    assert_int_equal(flow_queue_new_place_locked(core, layout, gate.self), NO_INDEX);
}

static void f8_clients_are_counted_as_in_a_plain_table(void **state)
{
    uint32_t counts[500] = {0};
    uint32_t all = 0;

    (void)state;
    for (int step = 0; step < 200000; step++) {
        uint32_t client = fixture_random(&seed) % LENGTH(counts);
        /* keys that meet in few places of the table */
        uint64_t key = ((uint64_t)client << 32) + client % 7 + FLOW_CLIENTS - 3;

        if (fixture_random(&seed) % 2 && all < FLOW_PLACES_MAX) {
            flow_clients_add_locked(layout, key);
            counts[client]++;
            all++;
        } else if (counts[client] > 0) {
            flow_clients_remove_locked(layout, key);
            counts[client]--;
            all--;
        }
        assert_int_equal(flow_clients_waiting_locked(layout, key), counts[client]);
    }
    for (uint32_t client = 0; client < LENGTH(counts); client++)
        assert_int_equal(flow_clients_waiting_locked(layout, ((uint64_t)client << 32) + client % 7 +
                                                                 FLOW_CLIENTS - 3),
                         counts[client]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(f8_inside_a_class_nobody_overtakes, make, drop),
        cmocka_unit_test_setup_teardown(b3_shares_are_the_weights_within_3_percent, make, drop),
        cmocka_unit_test_setup_teardown(b3_no_class_waits_longer_than_the_bound, make, drop),
        cmocka_unit_test_setup_teardown(f8_who_was_away_brings_no_credit_and_no_debt, make, drop),
        cmocka_unit_test_setup_teardown(b4_who_leaves_while_waiting_leaves_no_tag, make, drop),
        cmocka_unit_test_setup_teardown(f8_a_charge_is_corrected_to_what_was_used, make, drop),
        cmocka_unit_test_setup_teardown(f8_who_cannot_go_is_passed_over_and_keeps_its_number, make,
                                        drop),
        cmocka_unit_test_setup_teardown(f8_without_a_free_slot_those_who_need_one_wait_aside, make,
                                        drop),
        cmocka_unit_test_setup_teardown(m3_queues_and_counts_are_found_again_from_the_rows, make,
                                        drop),
        cmocka_unit_test_setup_teardown(f8_clients_are_counted_as_in_a_plain_table, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
