/* test_leases.c - slots kept for work that outlives its call (G13). */
#include "tests/shared/gate_fixture.h"

#include <stdio.h>
#include <stdlib.h>

static struct core_area *core;

static int make(void **state)
{
    (void)state;
    core = calloc(1, sizeof *core);
    return core ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    free(core);
    return 0;
}

static void each_lease_ages_by_itself(void **state)
{
    struct lease_terms terms = {.id = "a", .source = "one", .duration_ns = 100};

    (void)state;
    assert_true(lease_begin_locked(core, &terms, 0));
    terms.id = "b";
    terms.duration_ns = 50;
    assert_true(lease_begin_locked(core, &terms, 10));
    assert_int_equal(lease_count_locked(core, 59), 2);
    assert_int_equal(lease_count_locked(core, 60), 1);
    assert_string_equal(lease_source_locked(core, "a"), "one");
    assert_string_equal(lease_source_locked(core, "b"), "");
    assert_int_equal(lease_count_locked(core, 100), 0);
}

static void it_ends_once(void **state)
{
    const struct lease_terms terms = {.id = "a", .source = "one", .duration_ns = 100};

    (void)state;
    assert_true(lease_begin_locked(core, &terms, 0));
    assert_true(lease_end_locked(core, "a"));
    assert_false(lease_end_locked(core, "a"));
    assert_int_equal(lease_count_locked(core, 1), 0);
}

static void a_full_table_says_so(void **state)
{
    char id[16];
    struct lease_terms terms = {.id = id, .source = "", .duration_ns = 100};

    (void)state;
    for (unsigned i = 0; i < LEASES_MAX; i++) {
        (void)snprintf(id, sizeof id, "r%u", i);
        assert_true(lease_begin_locked(core, &terms, 0));
    }
    assert_false(lease_begin_locked(core, &terms, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_lease_ages_by_itself, make, drop),
        cmocka_unit_test_setup_teardown(it_ends_once, make, drop),
        cmocka_unit_test_setup_teardown(a_full_table_says_so, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
