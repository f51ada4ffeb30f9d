/* test_pin.c - the strongest pin stays, and what a path names (H11); bodies: intent_cases.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "worker/pin.h"

#include <string.h>

static void take(struct pin *pin, enum pin_rank rank, const char *id)
{
    pin_take(pin, rank, id, strlen(id));
}

static void H11_the_strongest_stays_and_of_equals_the_first(void **state)
{
    struct pin pin = {.rank = PIN_NONE};

    (void)state;
    take(&pin, PIN_PATH, "");
    assert_int_equal(pin.rank, PIN_NONE);
    take(&pin, PIN_FILE, "file-1");
    take(&pin, PIN_FILE, "file-2");
    take(&pin, PIN_TOOL, "vs_1");
    assert_string_equal(pin.id, "file-1");
    take(&pin, PIN_RESPONSE, "resp_1");
    take(&pin, PIN_CONVERSATION, "conv_1");
    assert_string_equal(pin.id, "resp_1");
    assert_int_equal(pin.rank, PIN_RESPONSE);
}

static void H11_paths(void **state)
{
    static const struct {
        const char *path, *id;
    } rows[] = {
        {"", ""},
        {"/", ""},
        {"//", ""},
        {"/v1", ""},
        {"/v1/", ""},
        {"/v1/files", ""},
        {"/v1/files/", ""},
        {"/v1/files//content", ""},
        {"/v1/files/f", "f"},
        {"v1/files/f", "f"},
        {"/files/f", "f"},
        {"/v1/files/f/", "f"},
        {"/v1/filesx/f", ""},
        {"/v1/file/f", ""},
        {"/v1/responses/async", ""},
        {"/v1/responses/asyncx", "asyncx"},
        {"/v1/responses/async/files/f", "f"},
        {"/v1beta/batches/b", "b"},
        {"/team/tasks/v2/files/f", "f"},
        {"/tasks/files", "files"},
        {"/v1/files/files/f", "files"},
        {"/vx/files/f", "f"},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct pin pin = {.rank = PIN_NONE};

        pin_take_path(&pin, rows[i].path);
        if (strcmp(pin.id, rows[i].id) != 0 || (pin.rank == PIN_PATH) != (*rows[i].id != '\0'))
            fail_msg("%s: <%s> not <%s>", rows[i].path, pin.id, rows[i].id);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(H11_the_strongest_stays_and_of_equals_the_first),
        cmocka_unit_test(H11_paths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
