/* test_owners.c - which source an upstream's id belongs to (H11). */
#include "tests/shared/sources_fixture.h"

#include "shared/owners.h"

#include <stdio.h>
#include <stdlib.h>

static struct segment segment;
static struct gate gate;
static struct source_candidate sources[2];

static int open_gate(void **state)
{
    static const struct source_name names[] = {{"a", ""}, {"b", ""}};

    (void)state;
    fixture_open(&segment, &gate, 2, 3);
    fixture_register(&gate, names, LENGTH(names), sources);
    return 0;
}

static int close_gate(void **state)
{
    (void)state;
    fixture_close(&segment);
    return 0;
}

static void h11_an_id_belongs_to_the_source_that_made_it(void **state)
{
    (void)state;
    assert_int_equal(owner_of(&gate, "resp_1"), NO_INDEX);
    owner_remember(&gate, "resp_1", sources[1].row, FIXTURE_NOW_NS);
    owner_remember(&gate, "resp_2", sources[0].row, FIXTURE_NOW_NS);
    assert_int_equal(owner_of(&gate, "resp_1"), sources[1].row);
    assert_int_equal(owner_of(&gate, "resp_2"), sources[0].row);
    assert_int_equal(owner_of(&gate, "resp_3"), NO_INDEX);
    assert_int_equal(owner_of(&gate, ""), NO_INDEX);
    owner_remember(&gate, "resp_1", sources[0].row, FIXTURE_NOW_NS); /* the newest word counts */
    assert_int_equal(owner_of(&gate, "resp_1"), sources[0].row);
}

/* More ids than places: every group of places keeps its newest four. */
static void h11_the_oldest_gives_way(void **state)
{
    enum { IDS = 2 * OWNERS_MAX };
    unsigned newest = 0;
    unsigned oldest = 0;
    char id[32];

    (void)state;
    for (unsigned i = 0; i < IDS; i++) {
        (void)snprintf(id, sizeof id, "resp_%u", i);
        owner_remember(&gate, id, sources[i % 2].row, FIXTURE_NOW_NS + i * NS_PER_S);
        assert_int_equal(owner_of(&gate, id), sources[i % 2].row);
    }
    for (unsigned i = 0; i < IDS; i++) {
        uint32_t owner;

        (void)snprintf(id, sizeof id, "resp_%u", i);
        owner = owner_of(&gate, id);
        assert_true(owner == NO_INDEX || owner == sources[i % 2].row);
        newest += owner != NO_INDEX && i >= IDS - OWNERS_MAX / 4;
        oldest += owner != NO_INDEX && i < OWNERS_MAX / 4;
    }
    assert_true(newest > OWNERS_MAX / 4 * 98 / 100); /* 99.6 %: fewer than four came later */
    assert_true(oldest < OWNERS_MAX / 4 * 10 / 100); /* 6 % */
}

static void h11_an_id_of_a_source_that_gave_its_row_away_is_unknown(void **state)
{
    struct source_row *row = &segment_instance(&segment)->sources[sources[1].row];

    (void)state;
    owner_remember(&gate, "file_1", sources[1].row, FIXTURE_NOW_NS);
    row->taken++;
    assert_int_equal(owner_of(&gate, "file_1"), NO_INDEX);
    owner_remember(&gate, "file_1", sources[1].row, FIXTURE_NOW_NS);
    assert_int_equal(owner_of(&gate, "file_1"), sources[1].row);
}

/* A process that dies before its entry is whole leaves a free place (M3). */
static void m3_a_half_written_entry_is_no_entry(void **state)
{
    struct owner_row *rows = segment_instance(&segment)->owners;

    (void)state;
    owner_remember(&gate, "resp_1", sources[1].row, FIXTURE_NOW_NS);
    for (size_t i = 0; i < OWNERS_MAX; i++)
        atomic_store(&rows[i].id_hash, 0);
    assert_int_equal(owner_of(&gate, "resp_1"), NO_INDEX);
    owner_remember(&gate, "resp_1", sources[0].row, FIXTURE_NOW_NS);
    assert_int_equal(owner_of(&gate, "resp_1"), sources[0].row);
}

#define OWNERS_TEST(name) cmocka_unit_test_setup_teardown(name, open_gate, close_gate)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OWNERS_TEST(h11_an_id_belongs_to_the_source_that_made_it),
        OWNERS_TEST(h11_the_oldest_gives_way),
        OWNERS_TEST(h11_an_id_of_a_source_that_gave_its_row_away_is_unknown),
        OWNERS_TEST(m3_a_half_written_entry_is_no_entry),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
