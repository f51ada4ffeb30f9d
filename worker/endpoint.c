/* endpoint.c - paths and what they are; see endpoint.h. */
#include "worker/endpoint.h"

#include "base/check.h"

#include <string.h>

static const char *const kind_names[] = {
    [CALL_CHAT] = "chat",
    [CALL_RESPONSES] = "responses",
    [CALL_EMBEDDING] = "embedding",
    [CALL_IMAGE] = "image",
    [CALL_OCR] = "ocr",
    [CALL_OTHER] = "other",
};

const char *call_kind_name(enum call_kind kind)
{
    REQUIRE((size_t)kind < LENGTH(kind_names));
    return kind_names[kind];
}

/* Compared with the path's end, whole segments; "{id}" stands for any one. The first that fits. */
static const struct row {
    const char *method, *suffix;
    enum endpoint endpoint;
    enum call_kind kind;
    enum endpoint_rule rule;
    bool goes_on; /* answers at once and works on: a background call */
} endpoints[] = {
    {"POST", "images/generations", ENDPOINT_IMAGES, CALL_IMAGE, ENDPOINT_RULE_PATH, false},
    {"POST", "images/edits", ENDPOINT_IMAGES, CALL_IMAGE, ENDPOINT_RULE_PATH, false},
    {"POST", "images/variations", ENDPOINT_IMAGES, CALL_IMAGE, ENDPOINT_RULE_PATH, false},
    {"POST", "images/generations/async", ENDPOINT_IMAGES, CALL_IMAGE, ENDPOINT_RULE_PATH, true},
    {"POST", "images/edits/async", ENDPOINT_IMAGES, CALL_IMAGE, ENDPOINT_RULE_PATH, true},
    {"POST", "images/variations/async", ENDPOINT_IMAGES, CALL_IMAGE, ENDPOINT_RULE_PATH, true},
    {"POST", "v1/images", ENDPOINT_IMAGES, CALL_IMAGE, ENDPOINT_RULE_PATH, false},
    {"POST", "v1/images/async", ENDPOINT_IMAGES, CALL_IMAGE, ENDPOINT_RULE_PATH, true},
    {"POST", "chat/completions", ENDPOINT_CHAT, CALL_CHAT, ENDPOINT_RULE_CHAT, false},
    {"POST", "completions", ENDPOINT_COMPLETIONS, CALL_CHAT, ENDPOINT_RULE_NEVER, false},
    {"POST", "responses", ENDPOINT_RESPONSES, CALL_RESPONSES, ENDPOINT_RULE_RESPONSES, false},
    {"POST", "responses/async", ENDPOINT_RESPONSES, CALL_RESPONSES, ENDPOINT_RULE_RESPONSES, true},
    {"POST", "responses/compact", ENDPOINT_OTHER, CALL_RESPONSES, ENDPOINT_RULE_NEVER, false},
    {"POST", "responses/input_tokens", ENDPOINT_OTHER, CALL_OTHER, ENDPOINT_RULE_NEVER, false},
    {"POST", "responses/{id}/cancel", ENDPOINT_OTHER, CALL_OTHER, ENDPOINT_RULE_NEVER, false},
    {"GET", "responses/{id}", ENDPOINT_OTHER, CALL_OTHER, ENDPOINT_RULE_NEVER, false},
    {"DELETE", "responses/{id}", ENDPOINT_OTHER, CALL_OTHER, ENDPOINT_RULE_NEVER, false},
    {"GET", "images/tasks/{id}", ENDPOINT_OTHER, CALL_OTHER, ENDPOINT_RULE_NEVER, false},
    {"GET", "tasks/{id}", ENDPOINT_OTHER, CALL_OTHER, ENDPOINT_RULE_NEVER, false},
    {"POST", "tasks/{id}/cancel", ENDPOINT_OTHER, CALL_OTHER, ENDPOINT_RULE_NEVER, false},
    {"POST", "embeddings", ENDPOINT_EMBEDDINGS, CALL_EMBEDDING, ENDPOINT_RULE_NEVER, false},
    {"POST", "threads/{id}/messages", ENDPOINT_OTHER, CALL_OTHER, ENDPOINT_RULE_NEVER, false},
    {"POST", "messages", ENDPOINT_MESSAGES, CALL_CHAT, ENDPOINT_RULE_NEVER, false},
    {"POST", "ocr", ENDPOINT_OTHER, CALL_OCR, ENDPOINT_RULE_NEVER, false},
    {"GET", "models", ENDPOINT_OTHER, CALL_OTHER, ENDPOINT_RULE_NEVER, false},
    {"GET", "models/{id}", ENDPOINT_OTHER, CALL_OTHER, ENDPOINT_RULE_NEVER, false},
    {"POST", "services/aigc/text2image/{id}", ENDPOINT_DASHSCOPE, CALL_IMAGE, ENDPOINT_RULE_PATH,
     false},
    {"POST", "services/aigc/image2image/{id}", ENDPOINT_DASHSCOPE, CALL_IMAGE, ENDPOINT_RULE_PATH,
     false},
    {"POST", "services/aigc/image-generation/{id}", ENDPOINT_DASHSCOPE, CALL_IMAGE,
     ENDPOINT_RULE_PATH, false},
    {"POST", "services/aigc/multimodal-generation/{id}", ENDPOINT_DASHSCOPE, CALL_CHAT,
     ENDPOINT_RULE_MODEL, false},
    {"POST", "services/aigc/text-generation/{id}", ENDPOINT_DASHSCOPE, CALL_CHAT,
     ENDPOINT_RULE_NEVER, false},
    {"POST", "services/aigc/{id}/{id}", ENDPOINT_DASHSCOPE, CALL_OTHER, ENDPOINT_RULE_NEVER, false},
    {"POST", "services/embeddings/{id}/{id}", ENDPOINT_DASHSCOPE, CALL_EMBEDDING,
     ENDPOINT_RULE_NEVER, false},
};

/* Gemini's last segment is MODEL:VERB. */
static const struct row verbs[] = {
    {"POST", "generateContent", ENDPOINT_GEMINI, CALL_CHAT, ENDPOINT_RULE_GEMINI, false},
    {"POST", "streamGenerateContent", ENDPOINT_GEMINI, CALL_CHAT, ENDPOINT_RULE_GEMINI, false},
    {"POST", "predict", ENDPOINT_GEMINI, CALL_OTHER, ENDPOINT_RULE_PREDICT, false},
    {"POST", "embedContent", ENDPOINT_GEMINI, CALL_EMBEDDING, ENDPOINT_RULE_NEVER, false},
    {"POST", "batchEmbedContents", ENDPOINT_GEMINI, CALL_EMBEDDING, ENDPOINT_RULE_NEVER, false},
};

static const struct row other_row = {"",   "other", ENDPOINT_OTHER, CALL_OTHER, ENDPOINT_RULE_NEVER,
                                     false};

/* The last segment of the length bytes at text; their length becomes what stands before its "/". */
static const char *last_segment(const char *text, size_t *length, size_t *ret_segment_length)
{
    const char *slash = memrchr(text, '/', *length);
    const char *segment = slash ? slash + 1 : text;

    *ret_segment_length = *length - (size_t)(segment - text);
    *length = slash ? (size_t)(slash - text) : 0;
    return segment;
}

static bool path_ends_in(const char *path, size_t length, const char *suffix)
{
    size_t suffix_length = strlen(suffix);

    while (suffix_length > 0) {
        size_t is_length, want_length;
        const char *is = last_segment(path, &length, &is_length);
        const char *want = last_segment(suffix, &suffix_length, &want_length);
        bool any = want_length == 4 && memcmp(want, "{id}", 4) == 0;

        if (any ? is_length == 0 : is_length != want_length || memcmp(is, want, is_length) != 0)
            return false;
    }
    return true;
}

static const struct row *find_verb(struct endpoint_match *match, const char *method,
                                   const char *path, size_t length)
{
    size_t segment_length;
    const char *segment = last_segment(path, &length, &segment_length);
    const char *colon = memrchr(segment, ':', segment_length);

    if (!colon)
        return &other_row;
    for (size_t i = 0; i < LENGTH(verbs); i++) {
        size_t verb_length = segment_length - (size_t)(colon + 1 - segment);

        if (strlen(verbs[i].suffix) == verb_length &&
            memcmp(verbs[i].suffix, colon + 1, verb_length) == 0 &&
            strcmp(verbs[i].method, method) == 0) {
            match->model = segment;
            match->model_length = (size_t)(colon - segment);
            return &verbs[i];
        }
    }
    return &other_row;
}

static const struct row *find_row(struct endpoint_match *match, const char *method,
                                  const char *path, size_t length)
{
    for (size_t i = 0; i < LENGTH(endpoints); i++)
        if (strcmp(endpoints[i].method, method) == 0 &&
            path_ends_in(path, length, endpoints[i].suffix))
            return &endpoints[i];
    return find_verb(match, method, path, length);
}

/* What the ledger calls it: DashScope's by the names in the path, all others by the table's. */
static void set_name(struct endpoint_match *match, const struct row *row, const char *path,
                     size_t length)
{
    const char *name = row->suffix;
    size_t size = strlen(name);

    if (row->endpoint == ENDPOINT_DASHSCOPE) {
        size_t rest = length, segment;

        last_segment(path, &rest, &segment);
        name = last_segment(path, &rest, &segment);
        size = length - (size_t)(name - path);
    } else if (strncmp(name, "v1/", 3) == 0) {
        name += 3;
        size -= 3;
    }
    if (size >= sizeof match->name)
        size = sizeof match->name - 1;
    memcpy(match->name, name, size);
    match->name[size] = '\0';
}

void endpoint_match(struct endpoint_match *match, const char *method, const char *path)
{
    static const char deployments[] = "/deployments/";
    size_t length = strlen(path);

    if (length > 1 && path[length - 1] == '/')
        length--;
    /* Without a version only at the very top: elsewhere "images" may mean anything. */
    if (length == 7 && memcmp(path, "/images", length) == 0) {
        path = "/v1/images";
        length = strlen(path);
    }
    const char *deployment = strstr(path, deployments);

    match->model = deployment ? deployment + sizeof deployments - 1 : path;
    match->model_length = deployment ? strcspn(match->model, "/") : 0;
    const struct row *row = find_row(match, method, path, length);

    match->endpoint = row->endpoint;
    match->kind = row->kind;
    match->rule = row->rule;
    match->goes_on = row->goes_on;
    match->streams = strcmp(row->suffix, "streamGenerateContent") == 0;
    set_name(match, row, path, length);
}
