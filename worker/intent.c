/*
 * intent.c - which requests draw; see intent.h.
 *
 * The path's rule comes from endpoint.c; here a tree of json_nodes names the places in a body that
 * can mean an image. Everything else in a body is skipped. Passive mentions (namespaces and
 * additional_tools that a client merely declares) have no node, so they cannot count.
 */
#include "worker/intent.h"

#include "base/parse.h"
#include "base/text.h"

#include <string.h>
#include <strings.h>

/* ---- models ---------------------------------------------------------------------------------- */

bool intent_is_image_model(const char *const *image_models, const char *model)
{
    /* "gpt-image-2" and what follows each "/" of "openrouter/openai/gpt-image-2". */
    for (const char *name = model; name;) {
        for (const char *const *glob = image_models; *glob; glob++)
            if (parse_glob_matches(*glob, name, strlen(name)))
                return true;
        const char *slash = strchr(name, '/');

        name = slash ? slash + 1 : NULL;
    }
    return false;
}

static void set_model(struct intent_reader *reader, const char *model, size_t length)
{
    size_t keep = length < INTENT_MODEL_SIZE - 1 ? length : INTENT_MODEL_SIZE - 1;

    memcpy(reader->intent.model, model, keep);
    reader->intent.model[keep] = '\0';
}

/* Strings from bodies are compared without blanks around them: some upstreams trim. */
static size_t trim(const char **text, size_t length)
{
    static const char blanks[] = " \t\r\n";

    for (; length > 0 && memchr(blanks, **text, 4); length--)
        (*text)++;
    while (length > 0 && memchr(blanks, (*text)[length - 1], 4))
        length--;
    return length;
}

static void take_model(struct intent_reader *reader, const char *text, size_t length)
{
    char model[JSON_SCAN_TEXT_MAX + 1];

    length = trim(&text, length);
    if (length == 0)
        return;
    memcpy(model, text, length);
    model[length] = '\0';
    if (!reader->image_model)
        reader->image_model = intent_is_image_model(reader->request.image_models, model);
    /* Gemini's model is the one in the path. */
    if (reader->intent.endpoint != ENDPOINT_GEMINI)
        set_model(reader, model, length);
}

/* ---- the places in a body that can mean an image --------------------------------------------- */

enum place {
    PLACE_SILENT = 1,
    PLACE_MODEL,
    PLACE_STREAM,
    PLACE_BACKGROUND,
    PLACE_TOOL_TYPE,
    PLACE_MODALITY,
    PLACE_CHOICE,
    PLACE_CHOICE_TOOL, /* tool_choice.tool: the choice again, one level down */
    PLACE_CHOICE_TYPE,
    PLACE_CHOICE_NAME,
    PLACE_CHOICE_NAMESPACE,
    PLACE_FUNCTION_NAME,
    PLACE_ALLOWED,
    PLACE_ALLOWED_TYPE,
    PLACE_ALLOWED_NAME,
};

#define LEAF(place) (&(const struct json_node){.id = (place)})
#define NODE(place, list)                                                                          \
    {                                                                                              \
        .id = (place), .edges = (list), .edge_count = LENGTH(list)                                 \
    }

static const struct json_edge tool_edges[] = {JSON_EDGE("type", LEAF(PLACE_TOOL_TYPE))};
static const struct json_node tool_node = NODE(PLACE_SILENT, tool_edges);
static const struct json_node tools_node = {.id = PLACE_SILENT, .element = &tool_node};

static const struct json_node modalities_node = {.id = PLACE_MODALITY,
                                                 .element = LEAF(PLACE_MODALITY)};
static const struct json_edge generation_edges[] = {
    JSON_EDGE("responseModalities", &modalities_node),
    JSON_EDGE("response_modalities", &modalities_node),
};
static const struct json_node generation_node = NODE(PLACE_SILENT, generation_edges);

static const struct json_edge function_edges[] = {
    JSON_EDGE("name", LEAF(PLACE_FUNCTION_NAME)),
    JSON_EDGE("namespace", LEAF(PLACE_CHOICE_NAMESPACE)),
};
static const struct json_node function_node = NODE(PLACE_SILENT, function_edges);

static const struct json_edge allowed_function_edges[] = {
    JSON_EDGE("name", LEAF(PLACE_ALLOWED_NAME)),
};
static const struct json_node allowed_function_node = NODE(PLACE_SILENT, allowed_function_edges);
static const struct json_edge allowed_entry_edges[] = {
    JSON_EDGE("type", LEAF(PLACE_ALLOWED_TYPE)),
    JSON_EDGE("name", LEAF(PLACE_ALLOWED_NAME)),
    JSON_EDGE("namespace", LEAF(PLACE_ALLOWED_NAME)),
    JSON_EDGE("function", &allowed_function_node),
};
static const struct json_node allowed_entry_node = NODE(PLACE_SILENT, allowed_entry_edges);
static const struct json_node allowed_list_node = {.id = PLACE_ALLOWED,
                                                   .element = &allowed_entry_node};
static const struct json_edge allowed_edges[] = {JSON_EDGE("tools", &allowed_list_node)};
static const struct json_node allowed_node = NODE(PLACE_ALLOWED, allowed_edges);

static const struct json_node choice_tool_node;
static const struct json_edge choice_edges[] = {
    JSON_EDGE("type", LEAF(PLACE_CHOICE_TYPE)),
    JSON_EDGE("name", LEAF(PLACE_CHOICE_NAME)),
    JSON_EDGE("namespace", LEAF(PLACE_CHOICE_NAMESPACE)),
    JSON_EDGE("function", &function_node),
    JSON_EDGE("tool", &choice_tool_node),
    JSON_EDGE("tools", &allowed_list_node),
    JSON_EDGE("allowed_tools", &allowed_node),
};
static const struct json_node choice_tool_node = NODE(PLACE_CHOICE_TOOL, choice_edges);
static const struct json_node choice_node = NODE(PLACE_CHOICE, choice_edges);

static const struct json_edge body_edges[] = {
    JSON_EDGE("model", LEAF(PLACE_MODEL)),
    JSON_EDGE("stream", LEAF(PLACE_STREAM)),
    JSON_EDGE("background", LEAF(PLACE_BACKGROUND)),
    JSON_EDGE("tools", &tools_node),
    JSON_EDGE("tool_choice", &choice_node),
    JSON_EDGE("modalities", &modalities_node),
    JSON_EDGE("generationConfig", &generation_node),
    JSON_EDGE("generation_config", &generation_node),
};
static const struct json_node body_node = NODE(PLACE_SILENT, body_edges);

/* ---- tool_choice ----------------------------------------------------------------------------- */

#define IMAGE_TOOL "image_generation"
#define IMAGE_NAMESPACE "image_gen"

static bool is(const struct json_value *value, const char *word)
{
    const char *text = value->text;
    size_t length = trim(&text, value->text_length);

    return value->kind == JSON_STRING && length == strlen(word) && memcmp(text, word, length) == 0;
}

/* The function behind the namespace, by its full names. */
static bool is_image_function(const struct json_value *value)
{
    return is(value, IMAGE_NAMESPACE ".imagegen") || is(value, IMAGE_NAMESPACE "__imagegen");
}

static void take_choice_type(struct intent_choice *now, const struct json_value *value)
{
    if (value->kind != JSON_STRING)
        return;
    now->typed = true;
    if (is(value, IMAGE_TOOL))
        now->type_image = true;
    else if (is(value, "auto") || is(value, "required") || is(value, "any"))
        now->type_neutral = true;
    else
        now->restricts = true;
    now->type_namespace = now->type_namespace || is(value, "namespace");
    now->type_function = now->type_function || is(value, "function");
}

/* The words a string tool_choice (or its "tool") may be. Unknown words exclude nothing. */
static void take_choice_word(struct intent_choice *now, const struct json_value *value)
{
    now->type_image = now->type_image || is(value, IMAGE_TOOL);
    now->restricts = now->restricts || is(value, "none");
}

static void take_allowed(struct intent_choice *now, const struct json_value *value)
{
    now->image = now->image || is(value, IMAGE_TOOL) || is(value, IMAGE_NAMESPACE) ||
                 is_image_function(value);
}

static void begin_choice(struct intent_choices *choices)
{
    choices->seen = true;
    choices->now = (struct intent_choice){.image = false};
}

static void end_choice(struct intent_choices *choices)
{
    const struct intent_choice *now = &choices->now;

    if (now->image || now->type_image || (now->type_namespace && now->named_image_gen) ||
        (now->named_image_generation && (now->type_function || !now->typed)))
        choices->image = true;
    else if (now->type_neutral || !now->restricts)
        choices->neutral = true;
}

static void take_choice(struct intent_choices *choices, const struct json_value *value)
{
    struct intent_choice *now = &choices->now;
    bool string = value->kind == JSON_STRING;

    switch ((enum place)value->id) {
    case PLACE_CHOICE:
        if (value->kind != JSON_OBJECT_END && value->kind != JSON_ARRAY_END)
            begin_choice(choices);
        if (value->kind == JSON_STRING)
            take_choice_word(now, value);
        if (value->kind != JSON_OBJECT && value->kind != JSON_ARRAY)
            end_choice(choices);
        break;
    case PLACE_CHOICE_TOOL:
        take_choice_word(now, value);
        break;
    case PLACE_CHOICE_TYPE:
        take_choice_type(now, value);
        break;
    case PLACE_CHOICE_NAME:
        now->restricts = now->restricts || string;
        now->named_image_generation = now->named_image_generation || is(value, IMAGE_TOOL);
        now->named_image_gen = now->named_image_gen || is(value, IMAGE_NAMESPACE);
        now->image = now->image || is_image_function(value);
        break;
    case PLACE_CHOICE_NAMESPACE:
        now->restricts = now->restricts || string;
        now->image = now->image || is(value, IMAGE_NAMESPACE);
        break;
    case PLACE_FUNCTION_NAME:
        now->restricts = now->restricts || string;
        now->image = now->image || is(value, IMAGE_TOOL) || is_image_function(value);
        break;
    case PLACE_ALLOWED:
        now->restricts = true;
        break;
    case PLACE_ALLOWED_TYPE:
    case PLACE_ALLOWED_NAME:
        take_allowed(now, value);
        break;
    case PLACE_SILENT:
    case PLACE_MODEL:
    case PLACE_STREAM:
    case PLACE_BACKGROUND:
    case PLACE_TOOL_TYPE:
    case PLACE_MODALITY:
        UNREACHABLE();
    }
}

static void take_value(void *context, const struct json_scan *scan, const struct json_value *value)
{
    struct intent_reader *reader = context;

    (void)scan;
    switch ((enum place)value->id) {
    case PLACE_SILENT:
        break;
    case PLACE_MODEL:
        if (value->kind == JSON_STRING)
            take_model(reader, value->text, value->text_length);
        break;
    case PLACE_STREAM:
        /* Gemini's path says it. */
        if (reader->intent.endpoint != ENDPOINT_GEMINI)
            reader->intent.stream = value->kind == JSON_TRUE;
        break;
    case PLACE_BACKGROUND:
        if (value->kind == JSON_TRUE && reader->intent.endpoint == ENDPOINT_RESPONSES)
            reader->intent.background = true;
        break;
    case PLACE_TOOL_TYPE:
        reader->tool_listed = reader->tool_listed || is(value, IMAGE_TOOL);
        break;
    case PLACE_MODALITY:
        if (value->kind == JSON_STRING && strcasecmp(value->text, "image") == 0)
            reader->modality_image = true;
        break;
    case PLACE_CHOICE:
    case PLACE_CHOICE_TOOL:
    case PLACE_CHOICE_TYPE:
    case PLACE_CHOICE_NAME:
    case PLACE_CHOICE_NAMESPACE:
    case PLACE_FUNCTION_NAME:
    case PLACE_ALLOWED:
    case PLACE_ALLOWED_TYPE:
    case PLACE_ALLOWED_NAME:
        take_choice(&reader->choices, value);
        break;
    }
}

static void read_path(struct intent_reader *reader)
{
    struct intent *intent = &reader->intent;
    struct endpoint_match match;

    endpoint_match(&match, reader->request.method, reader->request.path);
    intent->endpoint = match.endpoint;
    intent->kind = match.kind;
    memcpy(intent->endpoint_name, match.name, sizeof match.name);
    intent->stream = match.streams;
    intent->background =
        match.goes_on || (match.endpoint == ENDPOINT_DASHSCOPE && reader->request.dashscope_async);
    set_model(reader, match.model, match.model_length);
    reader->rule = match.rule;
    reader->path_image_model = match.model_length > 0 &&
                               intent_is_image_model(reader->request.image_models, intent->model);
    reader->image_model = reader->path_image_model;
}

/* ---- the body -------------------------------------------------------------------------------- */

static void take_field(void *context, const char *name, const char *value, size_t value_length,
                       bool cut)
{
    struct intent_reader *reader = context;

    (void)cut;
    if (strcmp(name, "model") == 0)
        take_model(reader, value, value_length);
    else if (strcmp(name, "stream") == 0)
        reader->intent.stream = strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0;
}

static bool is_encoded(const char *content_encoding)
{
    return content_encoding && *content_encoding && strcasecmp(content_encoding, "identity") != 0;
}

/* Where the body can mean an image it is read as JSON whatever its type says: upstreams do, too. */
static enum intent_body choose_body(struct intent_reader *reader)
{
    const char *type = reader->request.content_type;
    bool decides = reader->rule != ENDPOINT_RULE_NEVER && reader->rule != ENDPOINT_RULE_PATH;

    if (reader->encoded || strcmp(reader->request.method, "POST") != 0)
        return INTENT_BODY_IGNORED;
    if (!decides && multipart_begin(&reader->as.multipart, type, take_field, reader))
        return INTENT_BODY_MULTIPART;
    if (reader->intent.endpoint == ENDPOINT_OTHER && type && *type && !strcasestr(type, "json"))
        return INTENT_BODY_IGNORED;
    json_scan_init(&reader->as.json, take_value, reader);
    json_scan_follow(&reader->as.json, &body_node);
    return INTENT_BODY_JSON;
}

void intent_begin(struct intent_reader *reader, const struct intent_request *request)
{
    reader->request = *request;
    reader->intent.image = false;
    reader->intent.problem = INTENT_FINE;
    reader->intent.body_is_json = false;
    reader->intent.body_text_bytes = 0;
    reader->tool_listed = false;
    reader->modality_image = false;
    reader->choices = (struct intent_choices){.seen = false};
    reader->fed_bytes = 0;
    read_path(reader);
    reader->encoded = is_encoded(request->content_encoding);
    reader->body = choose_body(reader);
    /* The two that the operator may leave uncounted, and those that the path has decided, do not
     * depend on what is in the body. */
    reader->intent.bears_intent =
        reader->rule == ENDPOINT_RULE_RESPONSES || reader->rule == ENDPOINT_RULE_MODEL ||
        (request->count_chat_images &&
         (reader->rule == ENDPOINT_RULE_CHAT ||
          (reader->rule == ENDPOINT_RULE_GEMINI && !reader->path_image_model)));
}

void intent_feed(struct intent_reader *reader, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length && reader->fed_bytes + i < sizeof reader->head; i++)
        reader->head[reader->fed_bytes + i] = (unsigned char)bytes[i];
    reader->fed_bytes += length;
    switch (reader->body) {
    case INTENT_BODY_JSON:
        json_scan_feed(&reader->as.json, bytes, length);
        break;
    case INTENT_BODY_MULTIPART:
        multipart_feed(&reader->as.multipart, bytes, length);
        break;
    case INTENT_BODY_IGNORED:
        break;
    }
}

/* UTF-16 and UTF-32, with or without their byte order mark. */
static bool is_wide_text(const unsigned char *head, uint64_t length)
{
    size_t known = length < 4 ? (size_t)length : 4;

    if (known >= 2 &&
        ((head[0] == 0xFE && head[1] == 0xFF) || (head[0] == 0xFF && head[1] == 0xFE)))
        return true;
    return known > 0 && memchr(head, 0, known);
}

static bool decide(const struct intent_reader *reader)
{
    const struct intent_choices *choices = &reader->choices;
    bool json = reader->intent.body_is_json;
    bool tool = choices->image || (reader->tool_listed && (!choices->seen || choices->neutral));

    switch (reader->rule) {
    case ENDPOINT_RULE_NEVER:
        return false;
    case ENDPOINT_RULE_PATH:
        return true;
    case ENDPOINT_RULE_RESPONSES:
        return json && (reader->image_model || tool);
    case ENDPOINT_RULE_CHAT:
        return reader->request.count_chat_images && json &&
               (reader->image_model || reader->modality_image);
    case ENDPOINT_RULE_GEMINI:
        return reader->request.count_chat_images &&
               (reader->path_image_model || (json && reader->modality_image));
    case ENDPOINT_RULE_PREDICT:
        return reader->path_image_model || strncasecmp(reader->intent.model, "imagen", 6) == 0;
    case ENDPOINT_RULE_MODEL:
        return json && reader->image_model;
    }
    UNREACHABLE();
}

void intent_end(struct intent_reader *reader)
{
    struct intent *intent = &reader->intent;
    enum json_scan_state state = JSON_SCAN_INVALID;

    intent->body_text_bytes = reader->encoded ? reader->fed_bytes : 0;
    if (reader->body == INTENT_BODY_JSON) {
        state = json_scan_end(&reader->as.json);
        intent->body_text_bytes = reader->fed_bytes - reader->as.json.data_bytes;
    } else if (reader->body == INTENT_BODY_MULTIPART) {
        intent->body_text_bytes = reader->as.multipart.text_bytes;
    }
    intent->body_is_json = state == JSON_SCAN_DONE;
    if (intent->bears_intent && reader->fed_bytes > 0 &&
        (reader->encoded || is_wide_text(reader->head, reader->fed_bytes)))
        intent->problem = INTENT_ENCODED;
    else if (intent->bears_intent && state == JSON_SCAN_TOO_DEEP)
        intent->problem = INTENT_TOO_DEEP;
    intent->image = decide(reader);
    if (intent->image)
        intent->kind = CALL_IMAGE;
}
