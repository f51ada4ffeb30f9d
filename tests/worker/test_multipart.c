/* test_multipart.c - fields are found wherever and however they stand, and no cut changes that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "worker/multipart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seen {
    const char *body; /* NULL: fed in pieces */
    char text[4096];
    size_t length;
};

static void note(void *context, const struct multipart_field *field)
{
    struct seen *seen = context;

    assert_int_equal(strlen(field->value), field->value_length);
    assert_true(field->value_cut ? field->value_bytes > field->value_length
                                 : field->value_bytes == field->value_length);
    if (seen->body) {
        const char *at = seen->body + field->value_at, *end = at + field->value_bytes;

        assert_memory_equal(at, field->value, field->value_length);
        assert_true(strncmp(end, "\r\n--", 4) == 0 || (end == at && strncmp(end, "--", 2) == 0));
    }
    seen->length +=
        (size_t)snprintf(seen->text + seen->length, sizeof seen->text - seen->length, "%s=%s%s;",
                         field->name, field->value, field->value_cut ? "..." : "");
    assert_true(seen->length < sizeof seen->text);
}

static const char *fields(const char *type, const char *body, size_t first, size_t second)
{
    static struct multipart multipart;
    static struct seen seen;
    size_t length = strlen(body);

    seen.body = body;
    seen.length = 0;
    seen.text[0] = '\0';
    memset(&multipart, 0xA5, sizeof multipart);
    if (!multipart_begin(&multipart, type, note, &seen))
        return "no";
    multipart_feed(&multipart, body, first);
    multipart_feed(&multipart, body + first, second - first);
    multipart_feed(&multipart, body + second, length - second);
    snprintf(seen.text + seen.length, sizeof seen.text - seen.length, " %u%s%s", multipart.parts,
             multipart.ended ? " ended" : "", multipart.invalid ? " invalid" : "");
    return seen.text;
}

#define TYPE "multipart/form-data; boundary=XyZ"
#define FIELD(name) "Content-Disposition: form-data; name=\"" name "\"\r\n\r\n"
#define FILE_PART(name, file)                                                                      \
    "Content-Disposition: form-data; name=\"" name "\"; " file "\r\nContent-Type: "                \
    "image/png\r\n\r\n"

static const struct {
    const char *type, *body, *expected;
} cases[] = {
    {TYPE, "--XyZ\r\n" FIELD("model") "gpt-image-2\r\n--XyZ--\r\n", "model=gpt-image-2; 1 ended"},
    {TYPE, "--XyZ\r\n" FIELD("a") "1\r\n--XyZ\r\n" FIELD("b") "2\r\n--XyZ--", "a=1;b=2; 2 ended"},
    {TYPE, "--XyZ\r\n" FIELD("a") "\r\n--XyZ--", "a=; 1 ended"},
    /* the delimiter's line end shared with the head's empty line */
    {TYPE, "--XyZ\r\n" FIELD("a") "--XyZ--", "a=; 1 ended"},
    {TYPE, "--XyZ\r\n" FIELD("a") "\r\nx\r\n--XyZ--", "a=\r\nx; 1 ended"},
    {TYPE, "--XyZ\r\n" FIELD("a") "--Xy\r\n--XyZ--", "a=--Xy; 1 ended"},
    /* blanks behind what only looks like a delimiter are not kept, but counted */
    {TYPE, "--XyZ\r\n" FIELD("a") "x\r\n--XyZ \t y\r\n--XyZ--", "a=x\r\n--XyZ...; 1 ended"},
    /* T01, T06: files under all names, text behind them */
    {TYPE,
     "--XyZ\r\n" FILE_PART(
         "image[]",
         "filename=\"a.png\"") "\x89PNG\r\n\x1a\n\r\n--"
                               "XyZ\r\n" FILE_PART(
                                   "mask", "filename=\"m.png\"") "M\r\n--"
                                                                 "XyZ\r"
                                                                 "\n" FIELD("m"
                                                                            "o"
                                                                            "d"
                                                                            "e"
                                                                            "l") "m\r\n--XyZ--\r\n",
     "model=m; 3 ended"},
    /* T04: file names that bite */
    {TYPE, "--XyZ\r\n" FILE_PART("model", "filename=\"a\\\"; name=\\\"b.png\"") "x\r\n--XyZ--",
     " 1 ended"},
    {TYPE, "--XyZ\r\n" FILE_PART("model", "filename=\"C:\\dir\\f;x.png\"") "x\r\n--XyZ--",
     " 1 ended"},
    {TYPE, "--XyZ\r\n" FILE_PART("model", "filename=\"\"") "x\r\n--XyZ--", " 1 ended"},
    {TYPE, "--XyZ\r\n" FILE_PART("model", "filename*=UTF-8''%e2%82%ac.png") "x\r\n--XyZ--",
     " 1 ended"},
    {TYPE, "--XyZ\r\n" FIELD("a; filename=x") "t\r\n--XyZ--", "a; filename=x=t; 1 ended"},
    {TYPE, "--XyZ\r\n" FIELD("a\\\"b") "t\r\n--XyZ--", "a\"b=t; 1 ended"},
    /* T08: boundaries */
    {"multipart/form-data; boundary=\"a b:c\"", "--a b:c\r\n" FIELD("x") "1\r\n--a b:c--",
     "x=1; 1 ended"},
    {"Multipart/Form-Data;charset=utf-8;BOUNDARY=XyZ", "--XyZ\r\n" FIELD("x") "1\r\n--XyZ--",
     "x=1; 1 ended"},
    {"multipart/form-data ; boundary = XyZ ", "--XyZ\r\n" FIELD("x") "1\r\n--XyZ--",
     "x=1; 1 ended"},
    {"multipart/form-data; boundary=----WebKitFormBoundary7MA",
     "------WebKitFormBoundary7MA\r\n" FIELD("x") "1\r\n------WebKitFormBoundary7MA--",
     "x=1; 1 ended"},
    {TYPE, "--XyZ  \t\r\n" FIELD("x") "1\r\n--XyZ \r\n" FIELD("y") "2\r\n--XyZ--",
     "x=1;y=2; 2 ended"},
    {TYPE,
     "pre\r\n--Xy\r\namble\r\n--XyZ\r\n" FIELD("x") "1\r\n--XyZ--\r\nepi\r\n--XyZ\r\n" FIELD(
         "y") "2\r\n--XyZ--",
     "x=1; 1 ended"},
    {TYPE, "--XyZ\r\n" FIELD("x") "1\r\n--XyZz\r\n--XyZ--", "x=1\r\n--XyZz; 1 ended"},
    {TYPE, "--XyZ\r\n" FIELD("x") "1\r\n--XyZ-x\r\n--XyZ--", "x=1\r\n--XyZ-x; 1 ended"},
    {TYPE, "--XyZ\r\n" FIELD("x") "1\r\n--XyZ\r\r\n--XyZ--", "x=1\r\n--XyZ\r; 1 ended"},
    {TYPE, "--XyZ\r\n" FIELD("x") "1\r\r\r\n\r\n--XyZ--", "x=1\r\r\r\n; 1 ended"},
    /* heads: case, no quotes, other lines, folding, line feeds alone */
    {TYPE,
     "--XyZ\r\nX-A: b\r\ncontent-DISPOSITION: form-data; NAME=x\r\nContent-Type: "
     "text/plain\r\n\r\n1\r\n--XyZ--",
     "x=1; 1 ended"},
    {TYPE, "--XyZ\r\nContent-Disposition: form-data;\r\n name=\"x\"\r\n\r\n1\r\n--XyZ--",
     "x=1; 1 ended"},
    {TYPE, "--XyZ\nContent-Disposition: form-data; name=\"x\"\n\n1\r\n--XyZ--", "x=1; 1 ended"},
    {TYPE, "--XyZ\r\n\r\nno head\r\n--XyZ--", " 1 ended"},
    {TYPE, "--XyZ\r\nContent-Disposition: form-data; name=\"\"\r\n\r\n1\r\n--XyZ--", " 1 ended"},
    /* not whole */
    {TYPE, "--XyZ\r\n" FIELD("x") "1\r\n--XyZ\r\n" FIELD("y") "2", "x=1; 1"},
    {TYPE, "--XyZ\r\n" FIELD("x") "1\r\n--XyZ", " 0"},
    {TYPE, "--XyZ--\r\n", " 0 ended"},
    {TYPE, "{\"model\":\"x\"}", " 0"},
    {TYPE, "", " 0"},
};

static void cases_hold_however_they_are_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        size_t length = strlen(cases[i].body);

        for (size_t first = 0; first <= length; first++) {
            for (size_t second = first; second <= length; second += 1 + length / 40) {
                const char *is = fields(cases[i].type, cases[i].body, first, second);

                if (strcmp(is, cases[i].expected) != 0)
                    fail_msg("case %d cut at %d, %d: %s\nnot %s", (int)i, (int)first, (int)second,
                             is, cases[i].expected);
            }
        }
    }
}

static void types_without_a_usable_boundary_are_refused(void **state)
{
    static const char *const types[] = {
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/form-data; bound=x",
        "multipart/form-datax; boundary=x",
        "multipart/mixed; boundary=x",
        "application/json",
        "",
    };
    char longest[300];

    (void)state;
    for (size_t i = 0; i < LENGTH(types); i++)
        assert_string_equal(fields(types[i], "", 0, 0), "no");
    snprintf(longest, sizeof longest, "multipart/form-data; boundary=%0*d", MULTIPART_BOUNDARY_MAX,
             1);
    assert_string_equal(fields(longest, "", 0, 0), " 0");
    snprintf(longest, sizeof longest, "multipart/form-data; boundary=%0*d",
             MULTIPART_BOUNDARY_MAX + 1, 1);
    assert_string_equal(fields(longest, "", 0, 0), "no");
    struct multipart multipart;

    assert_false(multipart_begin(&multipart, NULL, note, NULL));
    assert_true(multipart.invalid);
    multipart_feed(&multipart, "--XyZ\r\n", 7);
}

static void long_values_are_cut_but_measured(void **state)
{
    static struct multipart multipart;
    static struct seen seen;
    char value[1001];

    (void)state;
    memset(value, 'v', 1000);
    value[1000] = '\0';
    seen.length = 0;
    assert_true(multipart_begin(&multipart, TYPE, note, &seen));
    static const char head[] = "--XyZ\r\n" FIELD("prompt");
    static const char tail[] = "\r\n--XyZ--";

    multipart_feed(&multipart, head, sizeof head - 1);
    multipart_feed(&multipart, value, 1000);
    multipart_feed(&multipart, tail, sizeof tail - 1);
    assert_int_equal(seen.length, strlen("prompt=...;") + MULTIPART_VALUE_MAX);
    assert_int_equal(multipart.text_bytes, 1000);
}

static void a_head_without_end_is_invalid(void **state)
{
    static struct multipart multipart;
    static struct seen seen;

    (void)state;
    seen.length = 0;
    assert_true(multipart_begin(&multipart, TYPE, note, &seen));
    multipart_feed(&multipart, "--XyZ\r\n", 7);
    for (int i = 0; i < 20000; i++)
        multipart_feed(&multipart, "x", 1);
    assert_true(multipart.invalid);
}

/* T09, G3: the model may come after 60 MB of files; files full of what looks like a beginning. */
static void G3_model_is_found_behind_sixty_megabytes(void **state)
{
    static struct multipart multipart;
    static struct seen seen;
    static char block[65536];
    static const char head[] = "--XyZ\r\n" FILE_PART("image", "filename=\"a.png\"");
    static const char tail[] = "\r\n--XyZ\r\n" FIELD("model") "late\r\n--XyZ--\r\n";

    (void)state;
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = "\r\n--XyY\r"[i % 8];
    seen.length = 0;
    assert_true(multipart_begin(&multipart, TYPE, note, &seen));
    multipart_feed(&multipart, head, sizeof head - 1);
    for (int i = 0; i < 960; i++)
        multipart_feed(&multipart, block, sizeof block);
    multipart_feed(&multipart, tail, sizeof tail - 1);
    assert_string_equal(seen.text, "model=late;");
    assert_true(multipart.ended);
    assert_int_equal(multipart.text_bytes, 4);
}

static void listen(void *context, const struct multipart_text *piece)
{
    struct seen *seen = context;

    assert_int_equal(piece->ends, piece->length == 0);
    memcpy(seen->text + seen->length, piece->bytes, piece->length);
    seen->length += piece->length;
    if (piece->ends)
        seen->length +=
            (size_t)snprintf(seen->text + seen->length, 64, "=%s%s,%u;", piece->is_file ? "@" : "",
                             piece->name, (unsigned)piece->value_bytes);
    assert_true(seen->length < sizeof seen->text - 600);
}

static void ignore(void *context, const struct multipart_field *field)
{
    (void)context;
    (void)field;
}

static void texts_are_heard_as_they_go_by(void **state)
{
    static char body[2000];
    static char expected[1000];
    static char fill[601];
    static struct seen seen;

    (void)state;
    memset(fill, 'x', sizeof fill - 1);
    snprintf(
        body, sizeof body,
        "pre\r\n--XyZ\r\n" FIELD("prompt") "%s\r\n--Xy\r\n--XyZ\r\n" FILE_PART(
            "f",
            "filename=\"\"") "123456\r\n--XyZ\r\n" FIELD("") "none\r\n--XyZ\r\n" FIELD("e") "\r\n--"
                                                                                            "XyZ\r"
                                                                                            "\n" FIELD(
                                                                                                "re"
                                                                                                "s"
                                                                                                "t") "cut",
        fill);
    snprintf(expected, sizeof expected, "%s\r\n--Xy=prompt,606;=@f,6;=e,0;cut", fill);
    for (size_t piece = 1; piece < 1000; piece += piece) {
        struct multipart multipart;
        size_t length = strlen(body);

        seen.length = 0;
        assert_true(multipart_begin(&multipart, TYPE, ignore, &seen));
        multipart_listen(&multipart, listen);
        for (size_t at = 0; at < length; at += piece)
            multipart_feed(&multipart, body + at, length - at < piece ? length - at : piece);
        seen.text[seen.length] = '\0';
        assert_string_equal(seen.text, expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_hold_however_they_are_cut),
        cmocka_unit_test(types_without_a_usable_boundary_are_refused),
        cmocka_unit_test(long_values_are_cut_but_measured),
        cmocka_unit_test(a_head_without_end_is_invalid),
        cmocka_unit_test(G3_model_is_found_behind_sixty_megabytes),
        cmocka_unit_test(texts_are_heard_as_they_go_by),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
