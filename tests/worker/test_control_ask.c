/* test_control_ask.c - what stands in an answer of the monitor; tests/processes/test_status.sh asks a
 * running one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/control_ask.h"

#include <string.h>

static void test_a_value_stands_behind_its_key_at_a_lines_beginning(void **state)
{
    static const char text[] = "generation:        7\nold generation: 3\nstate directory:   /a b\n"
                               "empty:\nlast: 12";
    size_t length = 0;
    const char *value = control_value_in(text, "state directory:", &length);

    (void)state;
    assert_non_null(value);
    assert_int_equal(length, strlen("/a b"));
    assert_memory_equal(value, "/a b", length);
    assert_non_null(control_value_in(text, "empty:", &length));
    assert_int_equal(length, 0);
    assert_null(control_value_in(text, "directory:", &length));
    assert_null(control_value_in("", "a:", &length));
    assert_int_equal(control_number_in(text, "generation:"), 7);
    assert_int_equal(control_number_in(text, "last:"), 12);
}

static void test_what_is_no_number_is_0(void **state)
{
    (void)state;
    assert_int_equal(control_number_in("a: x\n", "a:"), 0);
    assert_int_equal(control_number_in("a: 1 2\n", "a:"), 0);
    assert_int_equal(control_number_in("b: 1\n", "a:"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_value_stands_behind_its_key_at_a_lines_beginning),
        cmocka_unit_test(test_what_is_no_number_is_0),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
