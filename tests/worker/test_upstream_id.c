/* test_upstream_id.c - ids fit, and two that differ anywhere stay two (H11). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/upstream_id.h"

#include <string.h>

static void H11_short_ids_stay_as_they_are(void **state)
{
    char id[UPSTREAM_ID_SIZE];
    char longest[UPSTREAM_ID_SIZE];

    (void)state;
    upstream_id_set(id, "resp_1 and more", 6);
    assert_string_equal(id, "resp_1");
    upstream_id_set(id, "", 0);
    assert_string_equal(id, "");
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    upstream_id_set(id, longest, strlen(longest));
    assert_string_equal(id, longest);
}

/* Ids of gateways begin alike for long and differ at the end. */
static void H11_long_ids_that_differ_stay_apart(void **state)
{
    char from[300];
    char one[UPSTREAM_ID_SIZE], same[UPSTREAM_ID_SIZE], other[UPSTREAM_ID_SIZE];

    (void)state;
    memset(from, 'x', sizeof from);
    upstream_id_set(one, from, sizeof from);
    upstream_id_set(same, from, sizeof from);
    assert_string_equal(one, same);
    assert_int_equal(strlen(one), UPSTREAM_ID_SIZE - 1);
    assert_memory_equal(one, "xxxxxxxx", 8);
    for (size_t i = 0; i < sizeof from; i++) {
        from[i] = 'y';
        upstream_id_set(other, from, sizeof from);
        assert_string_not_equal(one, other);
        from[i] = 'x';
    }
    upstream_id_set(other, from, sizeof from - 1);
    assert_string_not_equal(one, other);
    upstream_id_set(other, from, UPSTREAM_ID_SIZE);
    assert_string_not_equal(one, other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(H11_short_ids_stay_as_they_are),
        cmocka_unit_test(H11_long_ids_that_differ_stay_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
