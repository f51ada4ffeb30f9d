/*
 * test_usage_option.c - a chat stream is made to tell its usage: the document stays the same but for the
 * one option (F6), also when its model gets another name in the same breath. Documents drawn at random,
 * compared as json-c reads them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/text.h"
#include "tests/worker/edited_body.h"
#include "worker/model_edit.h"
#include "worker/usage_option.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

static struct intent_reader reader;

static void read_body(const struct text *body)
{
    static const char *const no_models[] = {NULL};
    const struct intent_request request = {.method = "POST",
                                           .path = "/v1/chat/completions",
                                           .content_type = "application/json",
                                           .image_models = no_models};
    size_t piece = 1 + (size_t)rand() % 50;

    intent_begin(&reader, &request);
    for (size_t at = 0; at < body->length; at += piece)
        intent_feed(&reader, body->bytes + at,
                    body->length - at < piece ? body->length - at : piece);
    intent_end(&reader);
}

/* ---- random documents ------------------------------------------------------------------------ */

static const char *any(const char *const *strings, size_t count)
{
    return strings[(size_t)rand() % count];
}

#define ANY(strings) any(strings, LENGTH(strings))

static void write_member(struct text *body, const char *key, const char *value)
{
    static const char *const blanks[] = {"", "", " ", "\n  ", "\t\r\n"};

    text_append_string(body, ANY(blanks));
    text_append_json(body, key, strlen(key));
    text_append_string(body, ANY(blanks));
    text_append_string(body, ":");
    text_append_string(body, ANY(blanks));
    text_append_string(body, value);
    text_append_string(body, ANY(blanks));
}

static const char *const options_values[] = {
    NULL,
    "null",
    "{}",
    "{ \n }",
    "{\"include_usage\":false}",
    "{ \"include_usage\" : null , \"x\" : 1 }",
    "{\"include_obfuscation\":false}",
    "{\"x\":{\"include_usage\":true},\"\":[]}",
};

static void write_document(struct text *body)
{
    static const char *const values[] = {
        "1",       "\"}{\\\"\"", "{\"stream_options\":{\"include_usage\":false}}",
        "[{},[]]", "null",       "\"model\"",
    };
    const char *options = ANY(options_values);
    int members = 2 + rand() % 5, stream_at = rand() % members, model_at = rand() % members;
    int options_at = options ? rand() % members : -1;

    text_clear(body);
    text_append_string(body, rand() % 4 ? "{" : " \n{");
    bool first = true;

    for (int i = 0; i < members; i++) {
        struct {
            bool wanted;
            const char *key, *value;
        } rows[] = {
            {rand() % 2 == 0, (const char *const[]){"a", "b", "c", "d", "e", "f"}[i], ANY(values)},
            {i == stream_at, "stream", "true"},
            {i == options_at, "stream_options", options},
            {i == model_at, "model", "\"old-name\""},
        };

        for (size_t r = 0; r < LENGTH(rows); r++) {
            if (!rows[r].wanted)
                continue;
            if (!first)
                text_append_string(body, ",");
            first = false;
            write_member(body, rows[r].key, rows[r].value);
        }
    }
    text_append_string(body, rand() % 4 ? "}" : "\n}\n");
}

static struct json_object *parse(const struct text *body)
{
    struct json_object *tree = json_tokener_parse(text_string(body));

    if (!tree)
        fail_msg("json-c does not read %s", text_string(body));
    return tree;
}

/* The tree as it should have become. */
static void ask(struct json_object *tree)
{
    struct json_object *options;

    if (!json_object_object_get_ex(tree, "stream_options", &options) || !options) {
        options = json_object_new_object();
        json_object_object_add(tree, "stream_options", options);
    }
    json_object_object_add(options, "include_usage", json_object_new_boolean(true));
}

static void F6_documents_differ_in_the_option_alone(void **state)
{
    struct text body, edited, name;

    (void)state;
    srand(7);
    text_init(&body, 1 << 16);
    text_init(&edited, 1 << 16);
    text_init(&name, MODEL_EDIT_TEXT_MAX);
    for (int round = 0; round < 5000; round++) {
        struct body_edit edits[2] = {{.bytes = -1}, {.bytes = -1}};
        bool rename = rand() % 2;

        write_document(&body);
        read_body(&body);
        if (!usage_option_edit(&reader.intent, &edits[0]))
            fail_msg("cannot edit %s", text_string(&body));
        if (rename)
            assert_true(model_edit(&reader.intent, "another-name", &name, &edits[1]));
        if (rand() % 2) {
            const struct body_edit swap = edits[0];

            edits[0] = edits[1];
            edits[1] = swap;
        }
        edit_body(&body, edits, 2, &edited);

        struct json_object *before = parse(&body), *after = parse(&edited);

        ask(before);
        if (rename)
            json_object_object_add(before, "model", json_object_new_string("another-name"));
        if (!json_object_equal(before, after))
            fail_msg("%s\nbecame\n%s", text_string(&body), text_string(&edited));
        json_object_put(before);
        json_object_put(after);

        /* Now the client asks itself. */
        read_body(&edited);
        assert_int_equal(reader.intent.usage, USAGE_ASKED);
        assert_false(usage_option_edit(&reader.intent, &edits[0]));
    }
    text_release(&body);
    text_release(&edited);
    text_release(&name);
}

static void F6_what_cannot_be_edited_is_not(void **state)
{
    struct body_edit edit;

    (void)state;
    assert_false(usage_option_edit(&(struct intent){.usage = USAGE_UNFIT}, &edit));
    assert_false(usage_option_edit(&(struct intent){.usage = USAGE_ASKED}, &edit));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F6_documents_differ_in_the_option_alone),
        cmocka_unit_test(F6_what_cannot_be_edited_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
