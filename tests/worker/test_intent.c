/*
 * test_intent.c - the table of request shapes and their intent, tests/worker/intent_cases.json
 * (G1-G3).
 *
 * A row: name, method (POST), path, content_type (application/json), content_encoding, body (text
 * as it is, or a JSON object that is written out), hex (instead of body), fill (what "@FILL@" in
 * the body becomes: so many letters), count_chat_images (true), dashscope_async (false); and what
 * must come out: image, kind, model (""), stream (false), background (false), problem ("fine"),
 * endpoint (not compared when absent), pin (""), hosted and hedge (not compared when absent),
 * edit: what must be possible ("yes"), or not because the body names no model ("none"), names several
 * ("repeated") or the path does ("path"); not compared when absent. Each row runs whole, byte by byte
 * and in uneven pieces.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "worker/intent.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CASES "tests/worker/intent_cases.json"

static const char *const image_models[] = {
    "gpt-image-*", "chatgpt-image-*", "dall-e-*",  "grok-imagine*", "gemini-*-image*",
    "imagen-*",    "qwen-image*",     "wan*-t2i*", "flux*",         NULL,
};

static const char *const problem_names[] = {
    [INTENT_FINE] = "fine",
    [INTENT_TOO_DEEP] = "too_deep",
    [INTENT_ENCODED] = "encoded",
};

static const char *string_of(struct json_object *row, const char *key, const char *otherwise)
{
    struct json_object *value;

    return json_object_object_get_ex(row, key, &value) ? json_object_get_string(value) : otherwise;
}

static bool bool_of(struct json_object *row, const char *key, bool otherwise)
{
    struct json_object *value;

    return json_object_object_get_ex(row, key, &value) ? json_object_get_boolean(value) : otherwise;
}

static void append_filled(struct text *body, const char *from, size_t length, int fill)
{
    static const char mark[] = "@FILL@";
    const char *found;

    while ((found = memmem(from, length, mark, sizeof mark - 1)) != NULL) {
        text_append(body, from, (size_t)(found - from));
        for (int i = 0; i < fill; i++)
            text_append_char(body, "QUJD"[i % 4]);
        length -= (size_t)(found - from) + sizeof mark - 1;
        from = found + sizeof mark - 1;
    }
    text_append(body, from, length);
}

static void body_of(struct json_object *row, struct text *body)
{
    struct json_object *value;
    const char *hex = string_of(row, "hex", NULL);
    int fill = 0;

    text_init(body, 1 << 20);
    for (; hex && hex[0] && hex[1]; hex += 2) {
        char pair[] = {hex[0], hex[1], '\0'};

        text_append_char(body, (char)strtoul(pair, NULL, 16));
    }
    if (json_object_object_get_ex(row, "fill", &value))
        fill = json_object_get_int(value);
    if (!json_object_object_get_ex(row, "body", &value))
        return;
    if (json_object_is_type(value, json_type_string)) {
        append_filled(body, json_object_get_string(value),
                      (size_t)json_object_get_string_len(value), fill);
    } else {
        const char *written = json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN);

        append_filled(body, written, strlen(written), fill);
    }
}

static struct intent_request request_of(struct json_object *row)
{
    return (struct intent_request){
        .method = string_of(row, "method", "POST"),
        .path = string_of(row, "path", ""),
        .content_type = string_of(row, "content_type", "application/json"),
        .content_encoding = string_of(row, "content_encoding", NULL),
        .image_models = image_models,
        .count_chat_images = bool_of(row, "count_chat_images", true),
        .dashscope_async = bool_of(row, "dashscope_async", false),
    };
}

static void read_intent(struct intent_reader *reader, const struct intent_request *request,
                        const struct text *body, size_t piece)
{
    /* What was there before must not matter. */
    memset(reader, 0xA5, sizeof *reader);
    intent_begin(reader, request);
    for (size_t at = 0; at < body->length; at += piece)
        intent_feed(reader, body->bytes + at,
                    body->length - at < piece ? body->length - at : piece);
    intent_end(reader);
}

/* What a row says of pins, hedging and the model's place (H11). */
static const char *edit_of(const struct intent *intent)
{
    if (intent->model_in_path)
        return "path";
    if (intent->model_repeated)
        return "repeated";
    return intent->model_at < 0 ? "none" : "yes";
}

static void compare_calls(struct json_object *row, const struct intent *intent, size_t piece)
{
    const char *name = string_of(row, "name", "?");
    const char *pin = string_of(row, "pin", "");
    const char *edit = edit_of(intent);

    assert_int_equal(intent->model_at < 0, intent->model_bytes < 0);
    if (intent->pinned != (*pin != '\0') || strcmp(intent->pin_id, pin) != 0 ||
        intent->hosted_tools != bool_of(row, "hosted", intent->hosted_tools) ||
        intent->hedgeable != bool_of(row, "hedge", intent->hedgeable) ||
        strcmp(edit, string_of(row, "edit", edit)) != 0)
        fail_msg("%s (pieces of %zu): pinned %d, pin <%s>, hosted %d, hedge %d, edit %s", name,
                 piece, intent->pinned, intent->pin_id, intent->hosted_tools, intent->hedgeable,
                 edit);
}

static void compare(struct json_object *row, const struct intent *intent, size_t piece)
{
    const char *name = string_of(row, "name", "?");
    const char *endpoint = string_of(row, "endpoint", intent->endpoint_name);

    if (intent->image != bool_of(row, "image", false) ||
        strcmp(call_kind_name(intent->kind), string_of(row, "kind", "")) != 0 ||
        strcmp(intent->model, string_of(row, "model", "")) != 0 ||
        intent->stream != bool_of(row, "stream", false) ||
        intent->background != bool_of(row, "background", false) ||
        strcmp(problem_names[intent->problem], string_of(row, "problem", "fine")) != 0 ||
        strcmp(intent->endpoint_name, endpoint) != 0)
        fail_msg("%s (pieces of %zu): image %d, kind %s, model <%s>, stream %d, background %d, "
                 "problem %s, endpoint %s",
                 name, piece, intent->image, call_kind_name(intent->kind), intent->model,
                 intent->stream, intent->background, problem_names[intent->problem],
                 intent->endpoint_name);
}

static void G1_G2_G3_request_shapes(void **state)
{
    struct json_object *rows = json_object_from_file(CASES);
    struct intent_reader *reader = malloc(sizeof *reader);

    (void)state;
    assert_non_null(rows);
    assert_non_null(reader);
    assert_true(json_object_array_length(rows) >= 300);
    for (size_t i = 0; i < json_object_array_length(rows); i++) {
        static const size_t pieces[] = {SIZE_MAX / 2, 1, 7, 4096};
        struct json_object *row = json_object_array_get_idx(rows, i);
        struct intent_request request = request_of(row);
        struct text body;

        body_of(row, &body);
        for (size_t p = 0; p < LENGTH(pieces); p++) {
            read_intent(reader, &request, &body, pieces[p]);
            compare(row, &reader->intent, pieces[p]);
            compare_calls(row, &reader->intent, pieces[p]);
        }
        text_release(&body);
    }
    free(reader);
    json_object_put(rows);
}

static struct intent intent_of(const char *path, const char *type, const char *body)
{
    static struct intent_reader reader;
    const struct intent_request request = {.method = "POST",
                                           .path = path,
                                           .content_type = type,
                                           .image_models = image_models,
                                           .count_chat_images = true};

    intent_begin(&reader, &request);
    intent_feed(&reader, body, strlen(body));
    intent_end(&reader);
    return reader.intent;
}

/* H20: an alias or a fallback must not make a counted call of an uncounted one, or the other way. */
static void H20_the_same_call_with_another_model(void **state)
{
    static const struct {
        const char *path, *body;
        bool text, draws; /* an image call with "gpt-5", with "x/gpt-image-2" */
    } rows[] = {
        {"/v1/chat/completions", "{\"model\":\"a\"}", false, true},
        {"/v1/chat/completions", "{\"model\":\"gpt-image-1\"}", false, true},
        {"/v1/chat/completions", "{\"modalities\":[\"image\"]}", true, true},
        {"/v1/responses", "{\"model\":\"gpt-image-1\"}", false, true},
        {"/v1/responses", "{\"tools\":[{\"type\":\"image_generation\"}]}", true, true},
        {"/v1/responses", "{\"model\":", false, false},
        {"/v1/images/generations", "{\"model\":\"a\"}", true, true},
        {"/v1/embeddings", "{\"model\":\"a\"}", false, false},
        {"/api/v1/services/aigc/multimodal-generation/generation", "{\"model\":\"a\"}", false,
         true},
        /* the path names the model: nothing is changed */
        {"/v1beta/models/gemini-3-image:generateContent", "{}", true, true},
        {"/v1beta/models/gemini-3:generateContent", "{}", false, false},
        {"/openai/deployments/d/chat/completions", "{\"model\":\"a\"}", false, false},
    };
    static struct intent_reader reader;

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        const struct intent_request request = {.method = "POST",
                                               .path = rows[i].path,
                                               .image_models = image_models,
                                               .count_chat_images = true};

        intent_begin(&reader, &request);
        intent_feed(&reader, rows[i].body, strlen(rows[i].body));
        intent_end(&reader);
        if (intent_image_with_model(&reader, "gpt-5") != rows[i].text ||
            intent_image_with_model(&reader, "x/gpt-image-2") != rows[i].draws)
            fail_msg("%s %s", rows[i].path, rows[i].body);
        if (*reader.intent.model)
            assert_int_equal(intent_image_with_model(&reader, reader.intent.model),
                             reader.intent.image);
    }
}

static void image_models_match_behind_any_prefix(void **state)
{
    (void)state;
    assert_true(intent_is_image_model(image_models, "gpt-image-2"));
    assert_true(intent_is_image_model(image_models, "a/b/GPT-IMAGE-2"));
    assert_true(intent_is_image_model(image_models, "models/imagen-4"));
    assert_false(intent_is_image_model(image_models, "gpt-4o"));
    assert_false(intent_is_image_model(image_models, "xgpt-image-2"));
    assert_false(intent_is_image_model(image_models, ""));
    assert_false(intent_is_image_model(image_models, "/"));
    assert_true(intent_is_image_model(image_models, "//gpt-image-2"));
    assert_false(intent_is_image_model((const char *const[]){NULL}, "gpt-image-2"));
    assert_true(intent_is_image_model((const char *const[]){"*/draw-?", NULL}, "x/draw-1"));
}

static void long_models_are_cut(void **state)
{
    char body[700];

    (void)state;
    snprintf(body, sizeof body, "{\"model\":\"gpt-image-%0*d\"}", 600, 1);
    struct intent intent = intent_of("/v1/responses", "application/json", body);

    assert_true(intent.image);
    assert_int_equal(strlen(intent.model), INTENT_MODEL_SIZE - 1);
}

static void text_bytes_leave_out_pictures(void **state)
{
    static char body[9000];
    char data[4001];

    (void)state;
    memset(data, 'A', sizeof data - 1);
    data[sizeof data - 1] = '\0';
    int length =
        snprintf(body, sizeof body, "{\"model\":\"m\",\"x\":\"data:image/png;base64,%s\"}", data);
    struct intent intent = intent_of("/v1/chat/completions", NULL, body);

    assert_int_equal(intent.body_text_bytes, (unsigned)length - 22 - 4000);
    assert_true(intent.body_is_json);
    snprintf(body, sizeof body,
             "--b\r\nContent-Disposition: form-data; name=i; filename=f\r\n\r\n%s\r\n--b\r\n"
             "Content-Disposition: form-data; name=prompt\r\n\r\na cat\r\n--b--",
             data);
    intent = intent_of("/v1/images/edits", "multipart/form-data; boundary=b", body);
    assert_int_equal(intent.body_text_bytes, 5);
    assert_false(intent.body_is_json);
}

/* P9: the bound here only keeps a quadratic reader out; make bench has the figure. */
static void P9_twenty_megabytes_of_base64(void **state)
{
    static struct intent_reader reader;
    static char block[65536];
    const struct intent_request request = {.method = "POST",
                                           .path = "/v1/responses",
                                           .content_type = "application/json",
                                           .image_models = image_models};
    clock_t start = clock();

    (void)state;
    memset(block, 'Q', sizeof block);
    intent_begin(&reader, &request);
    intent_feed(&reader, "{\"input\":\"", 10);
    for (int i = 0; i < 320; i++)
        intent_feed(&reader, block, sizeof block);
    intent_feed(&reader, "\",\"model\":\"gpt-image-2\"}", 24);
    intent_end(&reader);
    assert_true(reader.intent.image);
    assert_int_equal(reader.intent.body_text_bytes, 34);
    assert_true(clock() - start < CLOCKS_PER_SEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(G1_G2_G3_request_shapes),
        cmocka_unit_test(H20_the_same_call_with_another_model),
        cmocka_unit_test(image_models_match_behind_any_prefix),
        cmocka_unit_test(long_models_are_cut),
        cmocka_unit_test(text_bytes_leave_out_pictures),
        cmocka_unit_test(P9_twenty_megabytes_of_base64),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
