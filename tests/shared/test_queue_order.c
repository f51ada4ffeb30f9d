/* test_queue_order.c - whose turn it is between the classes at the image gate: shares, bounds, places in
 * the order; and in one class nothing but the arrival counts. */
#include "tests/shared/queue_fixture.h"

static void b3_shares_of_pictures_are_the_weights_within_3_percent(void **state)
{
    static const int64_t largest[] = {2, 4, 10};
    const double sum = 2 + 4 + 10;
    uint64_t last[FLOW_CLASSES] = {0};
    int64_t served[FLOW_CLASSES] = {0};
    int64_t since[FLOW_CLASSES] = {0};
    int64_t all = 0;

    (void)state;
    weigh(usual);
    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        for (int i = 0; i < 30; i++)
            (void)join_as(c, 1 + fixture_random(&seed) % largest[c]);
    for (int grants = 0; grants < 6000; grants++) {
        const uint32_t place = first_of_all();
        const struct place_row *row = &layout->places[place];
        const uint32_t class = row->class_index;
        const uint32_t pictures = row->pictures;

        assert_true(queue_is_first_locked(layout, place, layout->answered_last_ns));
        assert_true(row->record.arrival_seq > last[class]); /* in its class nobody overtakes */
        last[class] = row->record.arrival_seq;
        /* research 4.2: the largest of each class, and the own ones by the own share */
        assert_true((double)since[class] <= sum + (double)largest[class] * 21 / usual[class]);
        grant(place);
        all += pictures;
        served[class] += pictures;
        for (uint32_t c = 0; c < FLOW_CLASSES; c++)
            since[c] = c == class ? 0 : since[c] + pictures;
        (void)join_as(class, 1 + fixture_random(&seed) % largest[class]);
    }
    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        const double share = (double)served[c] / (double)all * 21 / usual[c];

        assert_true(share > 0.97 && share < 1.03);
    }
}

/* Of one class, or where the weights are 0: nothing but the arrival counts. */
static void g6_one_class_is_in_the_order_of_arrival(void **state)
{
    static const uint32_t none[FLOW_CLASSES] = {0};

    (void)state;
    for (uint32_t only = 0; only <= FLOW_CLASSES; only++) {
        uint32_t waiting[300];
        uint32_t count = 0;

        weigh(only == FLOW_CLASSES ? none : usual);
        for (int step = 0; step < 5000; step++) {
            const uint32_t dice = fixture_random(&seed) % 10;
            uint32_t at = dice < 7 ? 0 : fixture_random(&seed) % (count + (count == 0));

            if (dice < 5 && count < LENGTH(waiting)) {
                enum flow_class class = only < FLOW_CLASSES ? only : fixture_random(&seed) % 3;

                assert_int_equal(queue_ahead_locked(layout, class), count);
                waiting[count++] = join_as(class, fixture_random(&seed) % 12);
                continue;
            }
            if (count == 0)
                continue;
            assert_int_equal(first_of_all(), waiting[0]);
            assert_int_equal(queue_position_locked(layout, waiting[at]), at + 1);
            if (at == 0)
                grant(waiting[0]);
            else
                queue_free_place_locked(core, layout, waiting[at]);
            memmove(&waiting[at], &waiting[at + 1], (--count - at) * sizeof waiting[0]);
        }
        while (count > 0)
            queue_free_place_locked(core, layout, waiting[--count]);
        assert_int_equal(layout->waiting, 0);
    }
}

static void f8_who_was_away_brings_no_credit_and_no_debt(void **state)
{
    int before = 0;

    (void)state;
    weigh(usual);
    for (int i = 0; i < 1000; i++)
        (void)join_as(FLOW_BULK, 4);
    for (int i = 0; i < 500; i++)
        grant(first_of_all());
    (void)join_as(FLOW_INTERACTIVE, 1);
    for (; layout->queue_classes[FLOW_INTERACTIVE].waiting > 0; before++)
        grant(first_of_all());
    assert_in_range(before, 1, 2); /* it is next, or the one after */
    for (int i = 0; i < 200; i++)
        (void)join_as(FLOW_INTERACTIVE, 1);
    for (before = 0; layout->places[first_of_all()].class_index == FLOW_INTERACTIVE; before++)
        grant(first_of_all());
    assert_in_range(before, 0, 4 * 16 + 1); /* one of bulk's is worth as many of these */
}

/* Exactly, as long as all of one class ask for as many pictures. */
static void f8_the_position_at_arrival_is_the_place_in_the_order(void **state)
{
    (void)state;
    for (int round = 0; round < 400; round++) {
        const uint32_t weights[FLOW_CLASSES] = {1 + fixture_random(&seed) % 1000,
                                                1 + fixture_random(&seed) % 30,
                                                1 + fixture_random(&seed) % 3};
        const uint32_t newest = fixture_random(&seed) % FLOW_CLASSES;
        uint32_t pictures[FLOW_CLASSES];
        uint32_t ahead;
        uint32_t place;

        weigh(round % 2 ? weights : usual);
        for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
            pictures[c] = round % 3 ? 1 : 1 + fixture_random(&seed) % QUEUE_PICTURES_MAX;
            for (uint32_t i = fixture_random(&seed) % 30; i > 0; i--)
                (void)join_as(c, pictures[c]);
        }
        for (uint32_t i = fixture_random(&seed) % 30; i > 0 && layout->waiting > 0; i--)
            grant(first_of_all());
        ahead = queue_ahead_locked(layout, newest);
        place = join_as(newest, pictures[newest]);
        assert_int_equal(queue_position_locked(layout, place), ahead + 1);
        while ((place = first_of_all()) != NO_INDEX)
            queue_free_place_locked(core, layout, place);
    }
}

static void f8_new_weights_count_from_the_next_grant_on(void **state)
{
    static const uint32_t turned[FLOW_CLASSES] = {1, 4, 16};

    (void)state;
    for (int load = 0; load < 2; load++) {
        const uint32_t *weights = load == 0 ? usual : turned;
        int64_t served[FLOW_CLASSES] = {0};

        weigh(weights);
        while (layout->waiting < 90) {
            (void)join_as(FLOW_INTERACTIVE, 1);
            (void)join_as(FLOW_NORMAL, 1);
            (void)join_as(FLOW_BULK, 1);
        }
        for (int grants = 0; grants < 2100; grants++) {
            const uint32_t place = first_of_all();
            const uint32_t class = layout->places[place].class_index;

            served[class]++;
            grant(place);
            (void)join_as(class, 1);
        }
        for (uint32_t c = 0; c < FLOW_CLASSES; c++)
            assert_in_range(served[c], 97 * weights[c], 103 * weights[c] + 17);
    }
}

#define ORDER_TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ORDER_TEST(b3_shares_of_pictures_are_the_weights_within_3_percent),
        ORDER_TEST(g6_one_class_is_in_the_order_of_arrival),
        ORDER_TEST(f8_who_was_away_brings_no_credit_and_no_debt),
        ORDER_TEST(f8_the_position_at_arrival_is_the_place_in_the_order),
        ORDER_TEST(f8_new_weights_count_from_the_next_grant_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
