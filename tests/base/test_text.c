/* test_text.c - text never outgrows its limit and remembers that it would have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

static void an_empty_text_is_an_empty_string(void **state)
{
    struct text text;

    (void)state;
    text_init(&text, 10);
    assert_string_equal(text_string(&text), "");
    text_append(&text, "x", 0);
    text_append_string(&text, "");
    assert_null(text.bytes);
    text_clear(&text);
    text_release(&text);
}

static void pieces_are_joined_and_terminated(void **state)
{
    struct text text;

    (void)state;
    text_init(&text, 100);
    text_append_string(&text, "one");
    text_append_char(&text, ' ');
    text_append(&text, "two and more", 3);
    text_printf(&text, " %d%%", 3);
    assert_string_equal(text_string(&text), "one two 3%");
    assert_int_equal(text.length, 10);
    assert_false(text.overflowed);
    text_release(&text);
}

static void a_nul_is_a_byte_like_others(void **state)
{
    struct text text;

    (void)state;
    text_init(&text, 100);
    text_append(&text, "a\0b", 3);
    assert_int_equal(text.length, 3);
    assert_memory_equal(text.bytes, "a\0b", 4);
    text_release(&text);
}

static void what_passes_the_limit_is_cut_and_remembered(void **state)
{
    struct text text;

    (void)state;
    text_init(&text, 5);
    text_append_string(&text, "12345");
    assert_false(text.overflowed); /* exactly full is not too much */
    text_append_char(&text, '6');
    assert_true(text.overflowed);
    assert_string_equal(text_string(&text), "12345");
    text_clear(&text);
    assert_false(text.overflowed);
    text_append_string(&text, "abcdefgh");
    assert_string_equal(text_string(&text), "abcde");
    text_release(&text);
    text_init(&text, 0);
    text_append_string(&text, "x");
    assert_true(text.overflowed);
    assert_string_equal(text_string(&text), "");
    text_release(&text);
}

static void numbers_are_written_as_printf_writes_them(void **state)
{
    static const int64_t numbers[] = {0, 7, -1, 10, 1234567890, INT64_MAX, INT64_MIN};
    char expected[32];
    struct text text;

    (void)state;
    text_init(&text, 100);
    for (size_t i = 0; i < LENGTH(numbers); i++) {
        text_clear(&text);
        text_append_number(&text, numbers[i]);
        (void)snprintf(expected, sizeof expected, "%jd", (intmax_t)numbers[i]);
        assert_string_equal(text_string(&text), expected);
    }
    text_release(&text);
}

static void names_are_the_same_in_any_case(void **state)
{
    (void)state;
    assert_true(text_same_name("Content-Type", "content-type"));
    assert_true(text_same_name("", ""));
    assert_false(text_same_name("Content-Type", "content-typ"));
    assert_false(text_same_name("", " "));
    assert_false(text_same_name("[", "{")); /* they differ in that bit alone, and are no letters */
}

static void it_grows_by_every_step_up_to_its_limit(void **state)
{
    struct text text;

    (void)state;
    text_init(&text, 3000);
    for (unsigned i = 0; i < 4000; i++) {
        text_append_char(&text, (char)('a' + i % 26));
        assert_int_equal(text.bytes[text.length], '\0');
    }
    assert_int_equal(text.length, 3000);
    assert_true(text.overflowed);
    for (unsigned i = 0; i < 3000; i++)
        assert_int_equal(text.bytes[i], 'a' + i % 26);
    text_release(&text);
}

static void clear_keeps_memory_release_keeps_the_limit(void **state)
{
    struct text text;
    const char *bytes;

    (void)state;
    text_init(&text, 50);
    text_append_string(&text, "something");
    bytes = text.bytes;
    text_clear(&text);
    assert_string_equal(text_string(&text), "");
    assert_ptr_equal(text.bytes, bytes);
    text_release(&text);
    assert_null(text.bytes);
    assert_int_equal(text.limit, 50);
    text_append_string(&text, "again");
    assert_string_equal(text_string(&text), "again");
    text_release(&text);
}

/* Around the size of printf's own buffer, where a second pass is needed. */
static void long_formats_are_whole(void **state)
{
    static const int lengths[] = {1, 510, 511, 512, 513, 5000};
    struct text text;

    (void)state;
    text_init(&text, 10000);
    for (size_t i = 0; i < LENGTH(lengths); i++) {
        text_clear(&text);
        text_printf(&text, "<%*d>", lengths[i], 7);
        assert_int_equal(text.length, lengths[i] + 2);
        assert_int_equal(text.bytes[0], '<');
        assert_memory_equal(text.bytes + text.length - 2, "7>", 3);
    }
    text_release(&text);
}

static void json_strings_are_quoted(void **state)
{
    static const struct {
        const char *bytes;
        size_t length;
        const char *json;
    } cases[] = {
#define QUOTED(bytes, json) {(bytes), sizeof(bytes) - 1, (json)}
        QUOTED("", "\"\""),
        QUOTED("plain", "\"plain\""),
        QUOTED("\"\\", "\"\\\"\\\\\""),
        QUOTED("a\nb\tc\r", "\"a\\nb\\u0009c\\u000d\""),
        QUOTED("\0\x1f\x7f", "\"\\u0000\\u001f\\u007f\""),
        QUOTED("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\""),
        /* not UTF-8: a lone continuation, overlong, a surrogate, above U+10FFFF, cut off */
        QUOTED("\x80", "\"\xef\xbf\xbd\""),
        QUOTED("\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\""),
        QUOTED("\xe0\x80\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""),
        QUOTED("\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""),
        QUOTED("\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""),
        QUOTED("\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\""),
        QUOTED("\xf8x", "\"\xef\xbf\xbdx\""),
#undef QUOTED
    };
    struct text text;

    (void)state;
    text_init(&text, 200);
    for (size_t i = 0; i < LENGTH(cases); i++) {
        text_clear(&text);
        text_append_json(&text, cases[i].bytes, cases[i].length);
        assert_string_equal(text_string(&text), cases[i].json);
    }
    text_release(&text);
}

/* Whatever two bytes come, a strict reader takes the string. */
static void json_strings_of_any_bytes_are_json(void **state)
{
    struct json_tokener *reader = json_tokener_new_ex(4);
    struct text text;

    (void)state;
    assert_non_null(reader);
    json_tokener_set_flags(reader, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    text_init(&text, 200);
    for (unsigned i = 0; i < 65536; i++) {
        const char bytes[] = {'a', (char)(i >> 8), (char)(i & 0xff), 'z'};
        json_object *read;

        text_clear(&text);
        text_append_json(&text, bytes, sizeof bytes);
        json_tokener_reset(reader);
        read = json_tokener_parse_ex(reader, text.bytes, (int)text.length + 1);
        assert_non_null(read);
        json_object_put(read);
    }
    json_tokener_free(reader);
    text_release(&text);
}

static void copies_are_cut_to_fit(void **state)
{
    char small[4] = "###";

    (void)state;
    assert_true(text_copy(small, sizeof small, "abc"));
    assert_string_equal(small, "abc");
    assert_false(text_copy(small, sizeof small, "wxyz"));
    assert_string_equal(small, "wxy");
    assert_true(text_copy(small, sizeof small, ""));
    assert_string_equal(small, "");
    assert_false(text_copy(small, 1, "a"));
    assert_string_equal(small, "");
}

static void room_is_given_whole_or_not_at_all(void **state)
{
    struct text text;
    char *place;

    (void)state;
    text_init(&text, 100);
    text_append_string(&text, "head ");
    place = text_extend(&text, 90);
    assert_non_null(place);
    memset(place, 'x', 90);
    text_append_string(&text, " tail"); /* "head " and 90 bytes leave room for this */
    assert_int_equal(text.length, 100);
    assert_memory_equal(text_string(&text), "head xxx", 8);
    assert_string_equal(text_string(&text) + 94, "x tail");
    assert_false(text.overflowed);
    assert_null(text_extend(&text, 1));
    assert_true(text.overflowed);
    assert_int_equal(text.length, 100);
    text_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_text_is_an_empty_string),
        cmocka_unit_test(pieces_are_joined_and_terminated),
        cmocka_unit_test(a_nul_is_a_byte_like_others),
        cmocka_unit_test(what_passes_the_limit_is_cut_and_remembered),
        cmocka_unit_test(numbers_are_written_as_printf_writes_them),
        cmocka_unit_test(names_are_the_same_in_any_case),
        cmocka_unit_test(it_grows_by_every_step_up_to_its_limit),
        cmocka_unit_test(clear_keeps_memory_release_keeps_the_limit),
        cmocka_unit_test(room_is_given_whole_or_not_at_all),
        cmocka_unit_test(long_formats_are_whole),
        cmocka_unit_test(json_strings_are_quoted),
        cmocka_unit_test(json_strings_of_any_bytes_are_json),
        cmocka_unit_test(copies_are_cut_to_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
