/* test_wait_queue.c - places and their order, inside a class and between them; the lists are an index, the
 * rows are the truth. */
#include "tests/shared/queue_fixture.h"

#include "shared/roster.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

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
    layout->queue_classes[FLOW_NORMAL].head = layout->queue_classes[FLOW_NORMAL].tail =
        7777; /* what a holder that died may leave */
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

/* ---- classes ---------------------------------------------------------------------------------- */

struct tags {
    int64_t virtual_time, finish[FLOW_CLASSES];
};

static struct tags tags_now(void)
{
    struct tags tags = {.virtual_time = layout->queue_virtual_time};

    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        tags.finish[c] = layout->queue_classes[c].finish;
    return tags;
}

static void b4_who_leaves_or_is_uncounted_leaves_no_tag(void **state)
{
    uint32_t places[300];
    struct tags before;
    struct tags after;

    (void)state;
    weigh(usual);
    for (uint32_t i = 0; i < 30; i++)
        (void)join_as(i % FLOW_CLASSES, i);
    for (int i = 0; i < 10; i++)
        grant(first_of_all());
    before = tags_now();
    assert_true(before.virtual_time > 0);
    for (uint32_t i = 0; i < LENGTH(places); i++)
        places[i] = join_as(i % FLOW_CLASSES, 10);
    for (uint32_t i = 0; i < LENGTH(places); i++) {
        if (i % 7 == 0) /* its gate was switched off */
            queue_hold_locked(core, layout, places[i], NO_INDEX);
        queue_free_place_locked(core, layout, places[i]);
    }
    after = tags_now();
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(layout->waiting, 20);
}

/* A silent place is passed over inside its class, which keeps its turn; a silent class lets the next one go. */
static void m2_the_silent_are_passed_over_and_cost_their_class_nothing(void **state)
{
    const int64_t asked_ns = layout->answered_last_ns;
    const int64_t late_ns = asked_ns + QUEUE_SILENT_NS + 1;
    const uint32_t silent = join_as(FLOW_INTERACTIVE, 10);
    const uint32_t second = join_as(FLOW_INTERACTIVE, 1);
    const uint32_t bulk = join_as(FLOW_BULK, 1);
    struct tags before;
    struct tags after;

    (void)state;
    weigh(usual);
    assert_int_equal(queue_ring_locked(core, layout, 1, asked_ns), 1);
    assert_true(gate_is_rung(&gate, silent));
    queue_answer_locked(layout, gate.self, asked_ns + QUEUE_SILENT_NS / 2);
    assert_false(queue_is_first_locked(layout, second, late_ns - 1));
    assert_true(queue_is_first_locked(layout, second, late_ns));
    assert_false(queue_is_first_locked(layout, bulk, late_ns));
    assert_int_equal(queue_ring_locked(core, layout, 1, late_ns), 1);
    assert_true(gate_is_rung(&gate, second) && !gate_is_rung(&gate, bulk));
    before = tags_now();
    assert_true(queue_pass_over_locked(layout, second));
    after = tags_now();
    assert_memory_equal(&before, &after, sizeof before);
    layout->places[second].rung_ns = asked_ns; /* that one, too */
    assert_true(queue_is_first_locked(layout, bulk, late_ns));
    grant(bulk);
    assert_true(queue_is_first_locked(layout, silent, late_ns)); /* it keeps its number */
    assert_int_equal(queue_position_locked(layout, silent), 1);
}

static void f8_of_several_free_slots_each_rings_whose_turn_it_will_be(void **state)
{
    uint32_t places[60];
    uint32_t rung = 0;

    (void)state;
    weigh(usual);
    for (uint32_t i = 0; i < LENGTH(places); i++)
        places[i] = join_as(i % FLOW_CLASSES, 1);
    assert_int_equal(queue_ring_locked(core, layout, 21, layout->answered_last_ns), 21);
    for (uint32_t i = 0; i < LENGTH(places); i++)
        rung += gate_is_rung(&gate, places[i]);
    assert_int_equal(rung, 21);
    for (int i = 0; i < 21; i++) {
        const uint32_t next = first_of_all();

        assert_true(gate_is_rung(&gate, next));
        grant(next);
    }
    assert_int_equal(layout->queue_classes[FLOW_INTERACTIVE].waiting, 20 - 16);
    assert_int_equal(layout->queue_classes[FLOW_NORMAL].waiting, 20 - 4);
    assert_int_equal(layout->queue_classes[FLOW_BULK].waiting, 20 - 1);
}

static void m3_order_and_tags_are_found_again_from_the_rows(void **state)
{
    uint32_t order[200];
    uint32_t ahead;
    struct queue_walk walk;
    struct tags before;
    struct tags after;

    (void)state;
    weigh(usual);
    for (int i = 0; i < 260; i++)
        (void)join_as(fixture_random(&seed) % FLOW_CLASSES, 1 + fixture_random(&seed) % 10);
    for (int i = 0; i < 60; i++)
        grant(first_of_all());
    before = tags_now();
    ahead = queue_ahead_locked(layout, FLOW_NORMAL);
    queue_walk_begin(&walk, layout);
    for (uint32_t i = 0; i < LENGTH(order); i++) {
        order[i] = queue_walk_next(&walk);
        queue_walk_grants(&walk);
    }
    for (uint32_t c = 0; c < FLOW_CLASSES; c++) { /* what a dead holder may leave */
        struct queue_class_row *class = &layout->queue_classes[c];

        class->head = class->tail = class->waiting = 4711;
        class->pictures_waiting = 4711;
    }
    for (uint32_t i = 0; i < LENGTH(order); i++)
        layout->places[order[i]].next = layout->places[order[i]].previous = 0x5a5a;
    queue_rebuild_locked(core, layout);
    after = tags_now();
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(layout->waiting, LENGTH(order));
    assert_int_equal(queue_ahead_locked(layout, FLOW_NORMAL), ahead);
    queue_walk_begin(&walk, layout);
    for (uint32_t i = 0; i < LENGTH(order); i++) {
        assert_int_equal(queue_walk_next(&walk), order[i]);
        queue_walk_grants(&walk);
    }
    assert_int_equal(queue_walk_next(&walk), NO_INDEX);
}

/* ---- at the gate, with slots --------------------------------------------------------------------- */

static void set_gate(uint32_t limit, uint32_t most_of_bulk)
{
    struct gate_limits limits = {.limit = limit, .max_waiting = 1000, .on = true};

    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        limits.classes[c].weight = usual[c];
    limits.classes[FLOW_BULK].max_waiting = most_of_bulk;
    gate_set_limits(&gate, &limits, clock_monotonic_ns(), 0);
}

static enum gate_verdict arrive_as(struct gate *own, enum flow_class class, int64_t pictures,
                                   uint32_t *ret_place)
{
    struct gate_call call = fixture_call(true);
    struct gate_answer answer;

    call.class = class;
    call.pictures = pictures;
    gate_arrive(own, &call, &answer);
    *ret_place = answer.place;
    return answer.verdict;
}

/* A slot that was rung for is anybody's until it is taken: the turn is judged when it is asked for. */
static void f8_a_higher_class_that_comes_before_the_slot_is_taken_goes_first(void **state)
{
    uint32_t holder;
    uint32_t bulk;
    uint32_t quick;

    (void)state;
    set_gate(1, 0);
    assert_int_equal(arrive_as(&gate, FLOW_BULK, 10, &holder), GATE_GRANTED);
    assert_int_equal(arrive_as(&gate, FLOW_BULK, 10, &bulk), GATE_QUEUED);
    fixture_leave(&gate, holder, WAIT_DONE);
    assert_true(gate_is_rung(&gate, bulk));
    assert_int_equal(arrive_as(&gate, FLOW_INTERACTIVE, 1, &quick), GATE_QUEUED);
    assert_int_equal(layout->places[quick].record.position, 1);
    assert_int_equal(fixture_try(&gate, bulk), GATE_QUEUED);
    assert_int_equal(fixture_try(&gate, quick), GATE_GRANTED);
    fixture_leave(&gate, quick, WAIT_DONE);
    assert_true(gate_is_rung(&gate, bulk));
    assert_int_equal(fixture_try(&gate, bulk), GATE_GRANTED);
    fixture_leave(&gate, bulk, WAIT_DONE);
}

static void f8_a_class_leaves_room_in_the_queue_to_the_others(void **state)
{
    struct gate_limits seen;
    uint32_t place;

    (void)state;
    set_gate(1, 2);
    assert_int_equal(arrive_as(&gate, FLOW_BULK, 1, &place), GATE_GRANTED);
    assert_int_equal(arrive_as(&gate, FLOW_BULK, 1, &place), GATE_QUEUED);
    assert_int_equal(arrive_as(&gate, FLOW_BULK, 1, &place), GATE_QUEUED);
    assert_int_equal(arrive_as(&gate, FLOW_BULK, 1, &place), GATE_REFUSED_QUEUE_FULL);
    assert_int_equal(arrive_as(&gate, FLOW_NORMAL, 1, &place), GATE_QUEUED);
    gate_limits_now(&gate, &seen);
    assert_int_equal(seen.classes[FLOW_BULK].max_waiting, 2);
    assert_int_equal(seen.classes[FLOW_INTERACTIVE].weight, 16);
    assert_int_equal(seen.limit, 1);
}

/* Comes, waits, takes and goes for ever, until it is killed. */
static _Noreturn void come_and_go(uint64_t random)
{
    const struct roster_member member = {.role = PROCESS_WORKER, .instance = segment.instance};
    struct gate own;
    uint32_t places[6];
    uint32_t count = 0;

    if (!gate_join(&own, &segment, &member, clock_monotonic_ns()))
        _exit(1);
    for (;;) {
        const uint32_t at = fixture_random(&random) % LENGTH(places);

        if (count < LENGTH(places)) {
            (void)arrive_as(&own, fixture_random(&random) % FLOW_CLASSES,
                            fixture_random(&random) % 30, &places[count++]);
        } else {
            (void)fixture_try(&own, places[at]);
            if (fixture_random(&random) % 3 == 0) {
                fixture_leave(&own, places[at], WAIT_DONE);
                places[at] = places[--count];
            }
        }
        clock_sleep_ns(20 * NS_PER_US); /* a nap: the others need the lock */
    }
}

static void assert_true_to_the_rows(int64_t *virtual_time)
{
    uint32_t waiting[FLOW_CLASSES] = {0};
    uint32_t all = 0;

    for (uint32_t i = 0; i < PLACES_MAX; i++)
        if (atomic_load(&layout->places[i].state) == PLACE_WAITING)
            waiting[layout->places[i].class_index]++;
    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        const struct queue_class_row *class = &layout->queue_classes[c];
        uint64_t last = 0;

        for (uint32_t at = class->head; at != NO_INDEX; at = layout->places[at].next) {
            assert_true(layout->places[at].record.arrival_seq > last);
            last = layout->places[at].record.arrival_seq;
            waiting[c]--;
            all++;
        }
        assert_int_equal(waiting[c], 0);
        /* nobody owes more than the largest call, and time does not go back */
        assert_true(class->finish - layout->queue_virtual_time <=
                    (int64_t)QUEUE_PICTURES_MAX * (1 << 24) / usual[c]);
    }
    assert_int_equal(all, layout->waiting);
    assert_true(layout->queue_virtual_time >= *virtual_time);
    *virtual_time = layout->queue_virtual_time;
}

static unsigned bury_all(struct roster_watch *watch)
{
    struct roster_death dead[8];
    struct gate_burial burial;
    unsigned buried = 0;
    const unsigned count = roster_watch_dead(watch, core, dead, LENGTH(dead));

    for (unsigned i = 0; i < count; i++)
        buried += gate_bury(&gate, &dead[i], clock_monotonic_ns(), 0, &burial);
    return buried;
}

static void m3_tags_and_lists_stay_true_while_processes_are_killed_anywhere(void **state)
{
    enum { PROCESSES = 4, KILLS = 60 };
    struct roster_watch watch;
    int64_t virtual_time = 0;
    pid_t pids[PROCESSES] = {0};

    (void)state;
    fixture_needs_pidfds();
    set_gate(3, 0);
    roster_watch_init(&watch);
    for (unsigned kills = 0; kills < KILLS + PROCESSES; kills++) {
        pid_t *pid = &pids[kills % PROCESSES];

        if (*pid != 0) {
            clock_sleep_ns(2 * NS_PER_MS + fixture_random(&seed) % NS_PER_MS);
            assert_int_equal(kill(*pid, SIGKILL), 0);
            assert_int_equal(waitpid(*pid, NULL, 0), *pid);
            (void)bury_all(&watch);
            gate_lock(&gate);
            assert_true_to_the_rows(&virtual_time);
            gate_unlock(&gate);
        }
        *pid = 0;
        if (kills < KILLS) {
            *pid = fork();
            assert_true(*pid >= 0);
            if (*pid == 0)
                come_and_go(kills + 1);
        }
    }
    while (fixture_use(&gate).used > 0 || layout->waiting > 0)
        (void)bury_all(&watch);
    assert_true(virtual_time > 0);
    roster_watch_release(&watch);
}

/* ---- threads ------------------------------------------------------------------------------------- */

enum { GRANTS = 8400, EACH = 12 };
static _Atomic uint32_t grants;
static _Atomic uint32_t pictures_of[FLOW_CLASSES];

struct crowd {
    struct gate gate;
    enum flow_class class;
    int64_t pictures;
    pthread_t thread;
};

/* Keeps EACH calls of its class at the gate; those that have a slot leave at once. */
static void *crowd_at_the_gate(void *context)
{
    struct crowd *crowd = context;
    uint32_t places[EACH];

    for (int i = 0; i < EACH; i++)
        if (arrive_as(&crowd->gate, crowd->class, crowd->pictures, &places[i]) != GATE_QUEUED)
            return NULL;
    while (atomic_load(&grants) < GRANTS) {
        bool idle = true;

        for (int i = 0; i < EACH; i++) {
            if (!gate_is_rung(&crowd->gate, places[i]) ||
                fixture_try(&crowd->gate, places[i]) != GATE_GRANTED)
                continue;
            idle = false;
            if (atomic_fetch_add(&grants, 1) < GRANTS)
                atomic_fetch_add(&pictures_of[crowd->class], (uint32_t)crowd->pictures);
            /* the next one comes before the slot is free again: somebody of the class always waits */
            uint32_t left = places[i];
            (void)arrive_as(&crowd->gate, crowd->class, crowd->pictures, &places[i]);
            fixture_leave(&crowd->gate, left, WAIT_DONE);
        }
        if (idle)
            clock_sleep_ns(20 * NS_PER_US);
    }
    for (int i = 0; i < EACH; i++)
        fixture_leave(&crowd->gate, places[i], WAIT_CLIENT_GONE);
    return crowd;
}

static void b3_threads_of_all_classes_get_the_shares_of_their_weights(void **state)
{
    static const int64_t pictures[] = {1, 2, 4};
    struct crowd crowds[2 * FLOW_CLASSES];
    uint32_t all = 0;
    uint32_t holder;

    (void)state;
    clock_set_false(clock_monotonic_ns(), clock_wall_ms()); /* nobody is ever silent */
    set_gate(1, 0);
    atomic_store(&grants, 0);
    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        atomic_store(&pictures_of[c], 0);
    assert_int_equal(arrive_as(&gate, FLOW_NORMAL, 1, &holder), GATE_GRANTED);
    for (uint32_t i = 0; i < LENGTH(crowds); i++) {
        const struct roster_member member = {.role = PROCESS_WORKER, .instance = segment.instance};

        crowds[i].class = i % FLOW_CLASSES;
        crowds[i].pictures = pictures[i % FLOW_CLASSES];
        assert_true(gate_join(&crowds[i].gate, &segment, &member, clock_monotonic_ns()));
        assert_int_equal(pthread_create(&crowds[i].thread, NULL, crowd_at_the_gate, &crowds[i]), 0);
    }
    gate_lock(&gate);
    while (layout->waiting < EACH * LENGTH(crowds)) {
        gate_unlock(&gate);
        clock_sleep_ns(NS_PER_MS);
        gate_lock(&gate);
    }
    gate_unlock(&gate);
    fixture_leave(&gate, holder, WAIT_DONE);
    for (uint32_t i = 0; i < LENGTH(crowds); i++) {
        void *whole;

        while (atomic_load(&grants) < GRANTS) {
            gate_tick(&gate, clock_monotonic_ns());
            clock_sleep_ns(NS_PER_MS);
        }
        assert_int_equal(pthread_join(crowds[i].thread, &whole), 0);
        assert_non_null(whole);
    }
    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        all += atomic_load(&pictures_of[c]);
    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        const double share = (double)atomic_load(&pictures_of[c]) / all * 21 / usual[c];

        assert_true(share > 0.97 && share < 1.03);
    }
    assert_int_equal(fixture_use(&gate).used, 0);
    clock_set_true();
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
        QUEUE_TEST(b4_who_leaves_or_is_uncounted_leaves_no_tag),
        QUEUE_TEST(m2_the_silent_are_passed_over_and_cost_their_class_nothing),
        QUEUE_TEST(f8_of_several_free_slots_each_rings_whose_turn_it_will_be),
        QUEUE_TEST(m3_order_and_tags_are_found_again_from_the_rows),
        QUEUE_TEST(f8_a_higher_class_that_comes_before_the_slot_is_taken_goes_first),
        QUEUE_TEST(f8_a_class_leaves_room_in_the_queue_to_the_others),
        QUEUE_TEST(m3_tags_and_lists_stay_true_while_processes_are_killed_anywhere),
        QUEUE_TEST(b3_threads_of_all_classes_get_the_shares_of_their_weights),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
