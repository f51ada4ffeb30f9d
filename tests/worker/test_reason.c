/* test_reason.c - every status number has words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above first */
#include <cmocka.h>

#include "worker/reason.h"

static void known_numbers_have_their_words(void **state)
{
    (void)state;
    assert_string_equal(reason_of(200), "OK");
    assert_string_equal(reason_of(429), "Too Many Requests");
    assert_string_equal(reason_of(504), "Gateway Timeout");
}

static void unknown_numbers_have_those_of_their_class(void **state)
{
    (void)state;
    assert_string_equal(reason_of(299), "Success");
    assert_string_equal(reason_of(499), "Client Error");
    assert_string_equal(reason_of(599), "Server Error");
    for (int status = -1; status < 1100; status++)
        assert_true(reason_of(status)[0] != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_numbers_have_their_words),
        cmocka_unit_test(unknown_numbers_have_those_of_their_class),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
