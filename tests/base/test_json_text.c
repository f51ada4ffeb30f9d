/* test_json_text.c - the texts of a document as they go by, whatever their length and however they are
 * cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/json_scan.h"

#include <stdio.h>
#include <string.h>

/* Nobody wants any value. */
static const struct json_node root_node = {.id = 1};

struct listener {
    size_t mute_after; /* bytes of a text */
    size_t heard;      /* of it */
    size_t length;
    char trace[4096];
};

static void add(struct listener *listener, const char *text)
{
    size_t length = strlen(text);

    assert_true(length < sizeof listener->trace - listener->length);
    memcpy(listener->trace + listener->length, text, length + 1);
    listener->length += length;
}

static bool listen(void *context, const struct json_scan *scan, const struct json_text *piece)
{
    static const char *const kinds[] = {"k", "s", "n"};
    struct listener *listener = context;
    char text[128];

    if (piece->begins) {
        snprintf(text, sizeof text, "%s%u:", kinds[piece->kind], scan->depth);
        add(listener, text);
        listener->heard = 0;
    }
    assert_true(piece->ends || piece->length > 0);
    snprintf(text, sizeof text, "%.*s", (int)piece->length, piece->bytes);
    add(listener, text);
    listener->heard += piece->length;
    if (piece->ends) {
        snprintf(text, sizeof text, "(%u) ", (unsigned)piece->raw_length);
        add(listener, text);
    }
    return listener->heard < listener->mute_after;
}

static const char *heard_by(void (*begin)(struct json_scan *, json_text_function *),
                            const char *json, size_t piece, size_t mute_after)
{
    static struct listener listener;
    struct json_scan scan;
    size_t length = strlen(json);

    listener.length = 0;
    listener.trace[0] = '\0';
    listener.mute_after = mute_after;
    json_scan_init(&scan, NULL, &listener);
    json_scan_follow(&scan, &root_node);
    begin(&scan, listen);
    for (size_t at = 0; at < length; at += piece)
        json_scan_feed(&scan, json + at, length - at < piece ? length - at : piece);
    (void)!json_scan_end(&scan); /* also of half a text */
    return listener.trace;
}

static const char *heard(const char *json, size_t piece, size_t mute_after)
{
    return heard_by(json_scan_listen, json, piece, mute_after);
}

static void texts_are_heard_as_they_go_by(void **state)
{
    static const struct {
        const char *json, *expected;
    } rows[] = {
        {"\"\"", "s0:(0) "},
        {"{\"a\":\"b\"}", "k1:a(1) s1:b(1) "},
        {"[\"a\\n\\u0041\\ud83d\\ude00\",12,-3.5e2,true,null,{\"\":[]}]",
         "s1:a\nA\xF0\x9F\x98\x80(21) n1:12(0) n1:-3.5e2(0) k2:(0) "},
        {"[\"\\ud83dx\",NaN,-Infinity,\"y\"]", "s1:\xEF\xBF\xBDx(7) n1:-(0) s1:y(1) "},
        {"\"unfinished", "s0:unfinished"},
        {"17", "n0:17(0) "},
    };
    static char json[3000];

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++)
        for (size_t piece = 1; piece < 40; piece++)
            assert_string_equal(heard(rows[i].json, piece, SIZE_MAX), rows[i].expected);
    /* Also beyond what is kept of a string, in places nobody follows. */
    memset(json, 'x', sizeof json - 1);
    json[0] = json[sizeof json - 2] = '"';
    assert_int_equal(strlen(heard(json, 100, SIZE_MAX)), strlen("s0:(2997) ") + 2997);
}

static void a_text_can_be_let_go(void **state)
{
    (void)state;
    assert_string_equal(heard("{\"key\":\"\\u0041BCD\",\"x\":7}", 1, 2),
                        "k1:ke(3) s1:AB(9) k1:x(1) n1:7(0) ");
}

static void keys_and_numbers_can_be_left_out(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < 60; piece++)
        assert_string_equal(heard_by(json_scan_listen_to_strings,
                                     "{\"key\":\"a\",\"\\u0041\":[1,\"\",\"\\u0042\"],\"n\":-2.5}",
                                     piece, SIZE_MAX),
                            "s1:a(1) s2:(0) s2:B(6) ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_heard_as_they_go_by),
        cmocka_unit_test(a_text_can_be_let_go),
        cmocka_unit_test(keys_and_numbers_can_be_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
