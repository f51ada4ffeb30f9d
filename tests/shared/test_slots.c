/* test_slots.c - what counts as in use (M1), the roll call (M9). */
#include "tests/shared/gate_fixture.h"

#include <unistd.h>

static struct segment segment;
static struct gate gate;

static int make(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 4, 10);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    fixture_close(&segment);
    return 0;
}

static void take_and_give_move_semaphore_and_rows_together(void **state)
{
    struct core_area *core = segment_core(&segment);
    struct slots_use use;
    uint32_t held;

    (void)state;
    gate_lock(&gate);
    held = slots_take_locked(core, gate.self, NO_INDEX, 1);
    use = slots_use_locked(core, 1);
    assert_int_equal(use.semaphore, 1);
    assert_int_equal(use.held, 1);
    assert_int_equal(use.free, 3);
    slots_give_locked(core, held);
    use = slots_use_locked(core, 1);
    assert_int_equal(use.semaphore, 0);
    assert_int_equal(use.used, 0);
    gate_unlock(&gate);
}

static void m1_the_larger_of_semaphore_and_rows_counts(void **state)
{
    struct core_area *core = segment_core(&segment);
    struct sembuf up = {.sem_op = 3, .sem_flg = SEM_UNDO};
    struct sembuf down = {.sem_op = -3, .sem_flg = SEM_UNDO};
    struct slots_use use;

    (void)state;
    assert_int_equal(semop(core->semaphore_id, &up, 1), 0); /* semop done, rows not written yet */
    use = fixture_use(&gate);
    assert_int_equal(use.used, 3);
    assert_int_equal(use.free, 1);
    assert_int_equal(semop(core->semaphore_id, &down, 1), 0);
    assert_int_equal(fixture_use(&gate).used, 0);
}

static void no_limit_is_never_exhausted(void **state)
{
    (void)state;
    segment_core(&segment)->limit = 0;
    assert_true(fixture_use(&gate).free == UINT32_MAX);
}

static void m9_nothing_is_free_until_everybody_has_answered(void **state)
{
    const struct roster_member member = {.role = PROCESS_WORKER, .instance = 0};
    struct core_area *core = segment_core(&segment);
    struct gate other;

    (void)state;
    assert_true(gate_join(&other, &segment, &member, 1));
    assert_int_equal(semctl(core->semaphore_id, 0, IPC_RMID), 0);
    assert_int_equal(fixture_use(&gate).free, 0);
    gate_tick(&gate, 1);
    assert_true(fixture_use(&gate).roll_call);
    assert_int_equal(fixture_use(&gate).free, 0);
    gate_tick(&other, 1);
    assert_false(fixture_use(&gate).roll_call);
    assert_int_equal(fixture_use(&gate).free, 4);
}

static void m9_a_slot_given_before_the_answer_is_not_taken_from_the_new_set(void **state)
{
    struct core_area *core = segment_core(&segment);
    uint32_t places[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_arrive(&gate, false, &places[i]), GATE_GRANTED);
    assert_int_equal(semctl(core->semaphore_id, 0, IPC_RMID), 0);
    (void)fixture_use(&gate);
    fixture_leave(&gate, places[0], WAIT_DONE);
    gate_tick(&gate, 1);
    assert_int_equal(fixture_use(&gate).semaphore, 1);
    fixture_leave(&gate, places[1], WAIT_DONE);
    assert_int_equal(fixture_use(&gate).semaphore, 0);
}

static void counts_are_found_again_from_the_rows(void **state)
{
    struct core_area *core = segment_core(&segment);
    uint32_t place;

    (void)state;
    assert_int_equal(fixture_arrive(&gate, false, &place), GATE_GRANTED);
    core->held_count = 99;
    slots_rebuild_locked(core);
    assert_int_equal(core->held_count, 1);
}

#define SLOTS_TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SLOTS_TEST(take_and_give_move_semaphore_and_rows_together),
        SLOTS_TEST(m1_the_larger_of_semaphore_and_rows_counts),
        SLOTS_TEST(no_limit_is_never_exhausted),
        SLOTS_TEST(m9_nothing_is_free_until_everybody_has_answered),
        SLOTS_TEST(m9_a_slot_given_before_the_answer_is_not_taken_from_the_new_set),
        SLOTS_TEST(counts_are_found_again_from_the_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
