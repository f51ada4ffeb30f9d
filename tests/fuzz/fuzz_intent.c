/*
 * fuzz_intent.c - a flag byte, a path up to the first line feed, then a body: the reader stays in its
 * buffers, ends with the same intent however the body is cut, and keeps its promises: a call whose
 * path decides is always counted, one that is no POST never.
 */
#include "base/check.h"
#include "worker/intent.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const image_models[] = {"gpt-image-*", "*/draw?", "wan*-t2i*", NULL};
static const char *const types[] = {"application/json", "multipart/form-data; boundary=XyZ", NULL,
                                    "text/plain"};

static void read_all(struct intent_reader *reader, const struct intent_request *request,
                     const char *body, size_t length, size_t piece)
{
    intent_begin(reader, request);
    for (size_t at = 0; at < length; at += piece)
        intent_feed(reader, body + at, length - at < piece ? length - at : piece);
    intent_end(reader);
}

static bool is_same(const struct intent *a, const struct intent *b)
{
    return a->kind == b->kind && a->endpoint == b->endpoint && a->image == b->image &&
           a->bears_intent == b->bears_intent && a->problem == b->problem &&
           a->stream == b->stream && a->background == b->background &&
           a->body_is_json == b->body_is_json && strcmp(a->model, b->model) == 0 &&
           strcmp(a->endpoint_name, b->endpoint_name) == 0 &&
           a->body_text_bytes == b->body_text_bytes && a->model_at == b->model_at &&
           a->model_bytes == b->model_bytes && a->model_repeated == b->model_repeated &&
           a->model_in_path == b->model_in_path && a->pinned == b->pinned &&
           a->hosted_tools == b->hosted_tools && a->hedgeable == b->hedgeable &&
           a->est_input == b->est_input && a->est_script == b->est_script &&
           a->max_output == b->max_output && a->choices == b->choices && a->seconds == b->seconds &&
           a->usage == b->usage && a->usage_at == b->usage_at && a->usage_bytes == b->usage_bytes &&
           strcmp(a->pin_id, b->pin_id) == 0;
}

/* What can be edited lies in the body, and in JSON it is a string with its quotes. */
static bool is_placed(const struct intent *intent, const char *body, size_t length)
{
    int64_t at = intent->model_at, bytes = intent->model_bytes;

    if (at < 0)
        return bytes < 0;
    return bytes >= 0 && at <= (int64_t)length - bytes &&
           (!intent->body_is_json ||
            (bytes >= 2 && body[at] == '"' && body[at + bytes - 1] == '"'));
}

/* Likewise the usage option: behind a brace, or instead of a literal. */
static bool usage_is_placed(const struct intent *intent, const char *body, size_t length)
{
    int64_t at = intent->usage_at, bytes = intent->usage_bytes;

    if (intent->usage == USAGE_UNFIT || intent->usage == USAGE_ASKED)
        return true;
    return intent->stream && intent->body_is_json && at > 0 && bytes >= 0 &&
           at <= (int64_t)length - bytes &&
           (bytes == 0 ? body[at - 1] == '{'
                       : memcmp(body + at, bytes == 4 ? "null" : "false", (size_t)bytes) == 0);
}

static bool ends_in(const char *path, const char *suffix)
{
    size_t length = strlen(path);
    size_t suffix_length = strlen(suffix);

    return length >= suffix_length && strcmp(path + length - suffix_length, suffix) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct intent_reader whole, cut;
    char path[256];
    const uint8_t *line_end = size > 0 ? memchr(data + 1, '\n', size - 1) : NULL;

    if (!line_end || (size_t)(line_end - data) > sizeof path)
        return 0;
    size_t length = (size_t)(line_end - data) - 1;
    const char *body = (const char *)line_end + 1;
    struct intent_request request = {
        .method = data[0] & 1 ? "GET" : "POST",
        .path = path,
        .content_type = types[data[0] >> 1 & 3],
        .content_encoding = data[0] & 8 ? "gzip" : NULL,
        .image_models = image_models,
        .count_chat_images = data[0] & 16,
        .dashscope_async = data[0] & 32,
    };

    memcpy(path, data + 1, length);
    path[length] = '\0';
    size -= length + 2;
    read_all(&whole, &request, body, size, size + 1);
    read_all(&cut, &request, body, size, 1);
    REQUIRE(is_same(&whole.intent, &cut.intent));
    read_all(&cut, &request, body, size, 1 + length % 19);
    REQUIRE(is_same(&whole.intent, &cut.intent));
    REQUIRE(!whole.intent.image || !(data[0] & 1));
    REQUIRE(whole.intent.image || (data[0] & 1) || !ends_in(path, "/images/edits"));
    REQUIRE(is_placed(&whole.intent, body, size));
    REQUIRE(usage_is_placed(&whole.intent, body, size));
    /* No byte is more than two tokens, a picture needs a name. */
    REQUIRE(whole.intent.est_input >= 0 && whole.intent.est_input <= 400 * (int64_t)size + 20);
    REQUIRE(whole.intent.est_script >= 0 && whole.intent.est_script <= 2 * (int64_t)size + 20);
    REQUIRE(whole.intent.pinned || whole.intent.pin_id[0] == '\0');
    REQUIRE(!whole.intent.hedgeable || !(whole.intent.pinned || whole.intent.image));
    REQUIRE(whole.intent.problem == INTENT_FINE || whole.intent.bears_intent);
    return 0;
}
