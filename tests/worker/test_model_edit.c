/*
 * test_model_edit.c - another model's name in a body: the document stays the same but for the model
 * (H20). The documents are drawn at random, written by a writer of the test's own (any blanks, any
 * escapes, keys of the same name deeper down) and compared as json-c reads them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "tests/worker/edited_body.h"
#include "worker/model_edit.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const no_models[] = {NULL};
static const char *const names[] = {
    "gpt-5",
    "m",
    "a/b:free",
    "quote\" back\\slash",
    "line\nfeed\ttab\x01",
    "umlaut \xC3\xA4",
    "a name longer than the one that was there, as names of deployments sometimes are",
};

static void read_body(struct intent_reader *reader, const char *type, const struct text *body,
                      size_t piece)
{
    const struct intent_request request = {.method = "POST",
                                           .path =
                                               type ? "/v1/images/edits" : "/v1/chat/completions",
                                           .content_type = type,
                                           .image_models = no_models};

    intent_begin(reader, &request);
    for (size_t at = 0; at < body->length; at += piece)
        intent_feed(reader, body->bytes + at,
                    body->length - at < piece ? body->length - at : piece);
    intent_end(reader);
}

/* ---- random documents ------------------------------------------------------------------------ */

static uint64_t random_state;

static unsigned below(unsigned bound)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (unsigned)(random_state >> 33) % bound;
}

static void write_blanks(struct text *body)
{
    for (unsigned i = below(3); i > 0; i--)
        text_append_char(body, " \t\r\n"[below(4)]);
}

/* A character as itself or by its number. */
static void write_char(struct text *body, char c)
{
    if (c == '"' || c == '\\' || below(8) == 0)
        text_printf(body, "\\u%04x", (unsigned)(unsigned char)c);
    else
        text_append_char(body, c);
}

static void write_string(struct text *body, const char *string)
{
    text_append_char(body, '"');
    for (; *string; string++)
        write_char(body, *string);
    text_append_char(body, '"');
}

static void write_random_string(struct text *body)
{
    char string[24];
    unsigned length = below(sizeof string);

    for (unsigned i = 0; i < length; i++)
        string[i] = " abcmodel\"\\{}[]:,/"[below(18)];
    string[length] = '\0';
    write_string(body, string);
}

static void write_value(struct text *body, unsigned depth);

/* Keys differ, for json-c keeps the last of equal ones: "model" at most once, others numbered. */
static void write_object(struct text *body, unsigned depth, const char *model)
{
    unsigned count = below(6), model_at = below(count + 1);

    text_append_char(body, '{');
    for (unsigned i = 0; i <= count; i++) {
        char key[16];
        bool is_model = i == model_at && (model || below(3) == 0);

        if (i == count && !is_model)
            break;
        if (i > 0)
            text_append_char(body, ',');
        write_blanks(body);
        snprintf(key, sizeof key, is_model ? "model" : "model%u", i);
        write_string(body, key);
        write_blanks(body);
        text_append_char(body, ':');
        write_blanks(body);
        if (is_model && model)
            write_string(body, model);
        else
            write_value(body, depth);
        write_blanks(body);
        if (i == count)
            break;
    }
    text_append_char(body, '}');
}

static void write_value(struct text *body, unsigned depth)
{
    static const char *const plain[] = {"null", "true", "false", "0", "-12.5e3", "[]", "{}"};
    unsigned choice = below(depth > 3 ? 2 : 4);

    if (choice == 0) {
        text_append_string(body, plain[below(LENGTH(plain))]);
    } else if (choice == 1) {
        write_random_string(body);
    } else if (choice == 2) {
        write_object(body, depth + 1, NULL);
    } else {
        text_append_char(body, '[');
        for (unsigned i = below(4); i > 0; i--) {
            write_value(body, depth + 1);
            text_append_string(body, i > 1 ? " , " : "");
        }
        text_append_char(body, ']');
    }
}

static struct json_object *parse(const struct text *body)
{
    struct json_object *tree = json_tokener_parse(text_string(body));

    if (!tree)
        fail_msg("json-c does not read %s", text_string(body));
    return tree;
}

static void assert_only_the_model_differs(const struct text *before, const struct text *after,
                                          const char *model)
{
    struct json_object *old = parse(before), *new = parse(after), *value;

    assert_true(json_object_object_get_ex(new, "model", &value));
    assert_true(json_object_is_type(value, json_type_string));
    assert_string_equal(json_object_get_string(value), model);
    json_object_object_add(old, "model", json_object_new_string(model));
    if (!json_object_equal(old, new))
        fail_msg("%s\nbecame\n%s", text_string(before), text_string(after));
    json_object_put(old);
    json_object_put(new);
}

static void H20_random_documents_differ_in_the_model_alone(void **state)
{
    static struct intent_reader reader;
    struct text body, edited, name;
    unsigned edits = 0;

    (void)state;
    text_init(&body, 1 << 20);
    text_init(&edited, 1 << 20);
    text_init(&name, MODEL_EDIT_TEXT_MAX);
    for (unsigned seed = 0; seed < 4000; seed++) {
        const char *model = names[seed % LENGTH(names)];
        struct body_edit edit;

        random_state = seed;
        text_clear(&body);
        write_blanks(&body);
        write_object(&body, 0, "the old name");
        write_blanks(&body);
        read_body(&reader, NULL, &body, 1 + below(200));
        assert_string_equal(reader.intent.model, "the old name");
        assert_true(model_edit(&reader.intent, model, &name, &edit));
        edit_body(&body, &edit, 1, &edited);
        assert_only_the_model_differs(&body, &edited, model);
        edits++;
    }
    assert_int_equal(edits, 4000);
    text_release(&body);
    text_release(&edited);
    text_release(&name);
}

/* ---- single bodies --------------------------------------------------------------------------- */

#define FORM "multipart/form-data; boundary=XyZ"
#define FIELD(name, value)                                                                         \
    "--XyZ\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n" value "\r\n"
#define PICTURE                                                                                    \
    "--XyZ\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a.png\"\r\n\r\n"          \
    "model\r\n--Xy\r\n"

static const struct {
    const char *type, *body, *model, *edited; /* NULL: cannot be edited */
} cases[] = {
    {NULL, "{\"model\":\"a\"}", "b", "{\"model\":\"b\"}"},
    {NULL, "{\"model\":\"a\"}", "b\"c", "{\"model\":\"b\\\"c\"}"},
    {NULL, "\xEF\xBB\xBF {\"x\":1,\"model\" :\n\"\\u0061\\\"\" }", "b",
     "\xEF\xBB\xBF {\"x\":1,\"model\" :\n\"b\" }"},
    {NULL, "{\"mod\\u0065l\":\"a\"}", "b", "{\"mod\\u0065l\":\"b\"}"},
    {NULL, "{\"model\":\"\"}", "b", "{\"model\":\"b\"}"},
    {NULL, "{\"tools\":[{\"model\":\"a\"}],\"model\":\"a\",\"y\":{\"model\":\"a\"}}", "b",
     "{\"tools\":[{\"model\":\"a\"}],\"model\":\"b\",\"y\":{\"model\":\"a\"}}"},
    {NULL, "{\"model\":\"a\",}", "b", "{\"model\":\"b\",}"},
    {NULL, "{\"model\":\"a\"}", "--b\r\n", "{\"model\":\"--b\\u000d\\n\"}"},
    {NULL, "{\"model\":\"a\"}", "", NULL},
    {NULL, "{\"model\":\"a\",\"model\":\"a\"}", "b", NULL},
    {NULL, "{\"model\":null,\"model\":\"a\"}", "b", NULL},
    {NULL, "{\"model\":null}", "b", NULL},
    {NULL, "{\"model\":[\"a\"]}", "b", NULL},
    {NULL, "{\"x\":{\"model\":\"a\"}}", "b", NULL},
    {NULL, "{\"model\":\"a\"", "b", NULL},
    {NULL, "{\"model\":\"a\"} {\"model\":\"c\"}", "b", NULL},
    {NULL, "", "b", NULL},
    {FORM, FIELD("model", "a") PICTURE "--XyZ--\r\n", "b",
     FIELD("model", "b") PICTURE "--XyZ--\r\n"},
    {FORM, PICTURE FIELD("model", "a") "--XyZ--", "a longer one",
     PICTURE FIELD("model", "a longer one") "--XyZ--"},
    {FORM, FIELD("model", " a ") "--XyZ--", "b", FIELD("model", "b") "--XyZ--"},
    {FORM, FIELD("model", "") "--XyZ--", "b", FIELD("model", "b") "--XyZ--"},
    {FORM, FIELD("model", "a") "--XyZ--", "b\"c", FIELD("model", "b\"c") "--XyZ--"},
    {FORM, FIELD("model", "a") "--XyZ--", "b\r\nc", NULL},
    {FORM, FIELD("model", "a") "--XyZ--", "b\nc", NULL},
    {FORM, FIELD("model", "a") "--XyZ--", "--XyZ--", NULL},
    {FORM, FIELD("model", "a") FIELD("model", "a") "--XyZ--", "b", NULL},
    {FORM, FIELD("model", "a"), "b", NULL},
    {FORM, FIELD("prompt", "a") "--XyZ--", "b", NULL},
};

static void H20_bodies_and_what_becomes_of_them(void **state)
{
    static struct intent_reader reader;
    struct text body, edited, name;

    (void)state;
    text_init(&body, 4096);
    text_init(&edited, 4096);
    text_init(&name, MODEL_EDIT_TEXT_MAX);
    for (size_t i = 0; i < LENGTH(cases); i++) {
        for (size_t piece = 1; piece < 200; piece += piece) {
            struct body_edit edit;

            text_clear(&body);
            text_append_string(&body, cases[i].body);
            read_body(&reader, cases[i].type, &body, piece);
            if (model_edit(&reader.intent, cases[i].model, &name, &edit) !=
                (cases[i].edited != NULL))
                fail_msg("%s", cases[i].body);
            if (!cases[i].edited)
                continue;
            edit_body(&body, &edit, 1, &edited);
            assert_string_equal(text_string(&edited), cases[i].edited);
        }
    }
    text_release(&body);
    text_release(&edited);
    text_release(&name);
}

static void H20_a_name_the_text_cannot_hold_is_refused(void **state)
{
    static const struct intent intent = {.model_at = 10, .model_bytes = 3, .body_is_json = true};
    struct body_edit edit;
    struct text name;

    (void)state;
    text_init(&name, 6);
    assert_true(model_edit(&intent, "1234", &name, &edit));
    assert_int_equal(edit.text_bytes, 6);
    assert_false(model_edit(&intent, "12345", &name, &edit));
    assert_true(model_edit(&intent, "12", &name, &edit));
    assert_string_equal(edit.text, "\"12\"");
    text_release(&name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(H20_random_documents_differ_in_the_model_alone),
        cmocka_unit_test(H20_bodies_and_what_becomes_of_them),
        cmocka_unit_test(H20_a_name_the_text_cannot_hold_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
