/* test_tool_choice.c - one tool_choice after the other, value by value; whole bodies are in
 * tests/worker/intent_cases.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/tool_choice.h"

#include <string.h>

struct said {
    enum tool_choice_part part;
    enum json_kind kind;
    const char *text; /* NULL: no more is said */
};

/* Does it draw when tools[] does not list image generation, and when it does? */
static void assert_draws(const struct said *said, bool unlisted, bool listed)
{
    struct tool_choice choice = {.seen = false};

    for (; said->text; said++) {
        const struct json_value value = {
            .kind = said->kind, .text = said->text, .text_length = strlen(said->text)};

        tool_choice_take(&choice, said->part, &value);
    }
    assert_int_equal(tool_choice_draws(&choice, false), unlisted);
    assert_int_equal(tool_choice_draws(&choice, true), listed);
}

#define SAID(...) ((const struct said[]){__VA_ARGS__, {.text = NULL}})
#define WORD(text)                                                                                 \
    {                                                                                              \
        TOOL_CHOICE_WHOLE, JSON_STRING, text                                                       \
    }
#define BEGIN                                                                                      \
    {                                                                                              \
        TOOL_CHOICE_WHOLE, JSON_OBJECT, ""                                                         \
    }
#define END                                                                                        \
    {                                                                                              \
        TOOL_CHOICE_WHOLE, JSON_OBJECT_END, ""                                                     \
    }
#define STRING(part, text)                                                                         \
    {                                                                                              \
        TOOL_CHOICE_##part, JSON_STRING, text                                                      \
    }

static void test_words_leave_what_is_listed_free_or_exclude_it(void **state)
{
    (void)state;
    assert_draws((const struct said[]){{.text = NULL}}, false, true);
    assert_draws(SAID(WORD("auto")), false, true);
    assert_draws(SAID(WORD("something new")), false, true);
    assert_draws(SAID(WORD(" none\n")), false, false);
    assert_draws(SAID(WORD(TOOL_IMAGE)), true, true);
    assert_draws(SAID({TOOL_CHOICE_WHOLE, JSON_NULL, ""}), false, true);
}

static void test_objects_choose_by_type_and_name(void **state)
{
    (void)state;
    assert_draws(SAID(BEGIN, STRING(TYPE, TOOL_IMAGE), END), true, true);
    assert_draws(SAID(BEGIN, STRING(TYPE, "auto"), END), false, true);
    assert_draws(SAID(BEGIN, STRING(TYPE, "web_search"), END), false, false);
    assert_draws(SAID(BEGIN, STRING(TYPE, "function"), STRING(NAME, TOOL_IMAGE), END), true, true);
    assert_draws(SAID(BEGIN, STRING(TYPE, "custom"), STRING(NAME, TOOL_IMAGE), END), false, false);
    assert_draws(SAID(BEGIN, STRING(TYPE, "namespace"), STRING(NAME, "image_gen"), END), true,
                 true);
    assert_draws(SAID(BEGIN, STRING(FUNCTION, "image_gen.imagegen"), END), true, true);
    assert_draws(SAID(BEGIN, STRING(FUNCTION, "weather"), END), false, false);
    assert_draws(SAID(BEGIN, STRING(ALLOWED, ""), STRING(ALLOWED_ENTRY, "function"), END), false,
                 false);
    assert_draws(SAID(BEGIN, STRING(ALLOWED, ""), STRING(ALLOWED_ENTRY, TOOL_IMAGE), END), true,
                 true);
}

static void test_of_several_any_counts_that_draws_or_leaves_it_free(void **state)
{
    (void)state;
    assert_draws(SAID(WORD("none"), WORD("auto")), false, true);
    assert_draws(SAID(WORD("auto"), WORD("none")), false, true);
    assert_draws(SAID(WORD(TOOL_IMAGE), WORD("none")), true, true);
    assert_draws(SAID(WORD("none"), WORD("none")), false, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_leave_what_is_listed_free_or_exclude_it),
        cmocka_unit_test(test_objects_choose_by_type_and_name),
        cmocka_unit_test(test_of_several_any_counts_that_draws_or_leaves_it_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
