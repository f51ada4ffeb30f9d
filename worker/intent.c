/*
 * intent.c - which requests draw; see intent.h.
 *
 * The path's rule comes from endpoint.c, the places in a body that matter from intent_places.h.
 */
#include "worker/intent.h"

#include "base/parse.h"
#include "base/text.h"
#include "worker/http_head.h"
#include "worker/intent_places.h"

#include <string.h>
#include <strings.h>

#define ENCODED_BYTES_PER_TOKEN 2

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

static void take_model(struct intent_reader *reader, const char *text, size_t length)
{
    char model[JSON_SCAN_TEXT_MAX + 1];

    length = parse_trim(&text, length); /* some upstreams trim */
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

static bool is(const struct json_value *value, const char *word)
{
    return value->kind == JSON_STRING && parse_is_word(value->text, value->text_length, word);
}

/* ---- model, tools, pins ---------------------------------------------------------------------- */

/* The model's name stands at these bytes; of several the last counts. at < 0: what stands there is no
 * name. */
static void place_model(struct intent_reader *reader, int64_t at, int64_t bytes)
{
    struct intent *intent = &reader->intent;

    intent->model_repeated = reader->model_seen;
    reader->model_seen = true;
    intent->model_at = at;
    intent->model_bytes = bytes;
}

static void take_body_model(struct intent_reader *reader, const struct json_value *value)
{
    if (value->kind == JSON_OBJECT_END || value->kind == JSON_ARRAY_END)
        return;
    if (value->kind != JSON_STRING) {
        place_model(reader, -1, -1);
        return;
    }
    place_model(reader, (int64_t)value->at, (int64_t)value->raw_length + 2);
    take_model(reader, value->text, value->text_length);
}

static void take_choice(struct intent_reader *reader, const struct json_value *value)
{
    static const enum tool_choice_part parts[] = {
        [PLACE_CHOICE] = TOOL_CHOICE_WHOLE,
        [PLACE_CHOICE_TOOL] = TOOL_CHOICE_TOOL,
        [PLACE_CHOICE_TYPE] = TOOL_CHOICE_TYPE,
        [PLACE_CHOICE_NAME] = TOOL_CHOICE_NAME,
        [PLACE_CHOICE_NAMESPACE] = TOOL_CHOICE_NAMESPACE,
        [PLACE_FUNCTION_NAME] = TOOL_CHOICE_FUNCTION,
        [PLACE_ALLOWED] = TOOL_CHOICE_ALLOWED,
        [PLACE_ALLOWED_TYPE] = TOOL_CHOICE_ALLOWED_ENTRY,
        [PLACE_ALLOWED_NAME] = TOOL_CHOICE_ALLOWED_ENTRY,
    };

    tool_choice_take(&reader->tool_choice, parts[value->id], value);
}

static void take_tool(struct intent_reader *reader, const struct json_value *value)
{
    struct intent_tool *tool = &reader->tool;

    if (value->id == PLACE_TOOL_TYPE) {
        bool own = is(value, "function") || is(value, "custom");

        tool->of_client = tool->of_client || own;
        tool->hosted = tool->hosted || !own;
        reader->tool_listed = reader->tool_listed || is(value, TOOL_IMAGE);
    } else if (value->kind == JSON_OBJECT) {
        *tool = (struct intent_tool){.hosted = false};
    } else if (value->kind != JSON_OBJECT_END || tool->hosted || !tool->of_client) {
        reader->tool_hosted = true; /* also what has no type, and what is no object */
    }
}

/* {"type": "item_reference", "id": ...} stands for an item of an earlier answer. */
static void take_input(struct intent_reader *reader, const struct json_value *value)
{
    struct intent_input *input = &reader->input;

    if (value->id == PLACE_INPUT_TYPE)
        input->is_reference = is(value, "item_reference");
    else if (value->id == PLACE_INPUT_ID && value->kind == JSON_STRING)
        upstream_id_set(input->id, value->text, value->text_length);
    else if (value->kind == JSON_OBJECT)
        *input = (struct intent_input){.is_reference = false};
    else if (value->kind == JSON_OBJECT_END && input->is_reference)
        pin_take(&reader->pin, PIN_ITEM, input->id, strlen(input->id));
}

static void take_pin(struct intent_reader *reader, const struct json_value *value)
{
    static const enum pin_rank ranks[] = {
        [PLACE_PIN_ITEM] = PIN_ITEM,         [PLACE_PIN_TOOL] = PIN_TOOL,
        [PLACE_PIN_FILE] = PIN_FILE,         [PLACE_PIN_CONVERSATION] = PIN_CONVERSATION,
        [PLACE_PIN_RESPONSE] = PIN_RESPONSE,
    };

    if (value->kind == JSON_STRING)
        pin_take(&reader->pin, ranks[value->id], value->text, value->text_length);
}

static void take_answer_option(struct intent_reader *reader, const struct json_value *value)
{
    static const enum answer_option options[] = {
        [PLACE_BODY] = ANSWER_BODY,
        [PLACE_MAX_OUTPUT] = ANSWER_MAX_OUTPUT,
        [PLACE_CHOICES] = ANSWER_CHOICES,
        [PLACE_SECONDS] = ANSWER_SECONDS,
        [PLACE_STREAM] = ANSWER_STREAM,
        [PLACE_STREAM_OPTIONS] = ANSWER_STREAM_OPTIONS,
        [PLACE_INCLUDE_USAGE] = ANSWER_INCLUDE_USAGE,
    };

    answer_options_take(&reader->answer, options[value->id], value);
}

static void take_value(void *context, const struct json_scan *scan, const struct json_value *value)
{
    struct intent_reader *reader = context;

    (void)scan;
    switch ((enum place)value->id) {
    case PLACE_SILENT:
        break;
    case PLACE_MODEL:
        take_body_model(reader, value);
        break;
    case PLACE_STREAM:
        /* Gemini's path says it. */
        if (reader->intent.endpoint != ENDPOINT_GEMINI)
            reader->intent.stream = value->kind == JSON_TRUE;
        take_answer_option(reader, value);
        break;
    case PLACE_BODY:
    case PLACE_MAX_OUTPUT:
    case PLACE_CHOICES:
    case PLACE_SECONDS:
    case PLACE_STREAM_OPTIONS:
    case PLACE_INCLUDE_USAGE:
        take_answer_option(reader, value);
        break;
    case PLACE_BACKGROUND:
        if (value->kind == JSON_TRUE && reader->intent.endpoint == ENDPOINT_RESPONSES)
            reader->intent.background = true;
        break;
    case PLACE_TOOL:
    case PLACE_TOOL_TYPE:
        take_tool(reader, value);
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
        take_choice(reader, value);
        break;
    case PLACE_INPUT_ITEM:
    case PLACE_INPUT_TYPE:
    case PLACE_INPUT_ID:
        take_input(reader, value);
        break;
    case PLACE_PIN_ITEM:
    case PLACE_PIN_TOOL:
    case PLACE_PIN_FILE:
    case PLACE_PIN_CONVERSATION:
    case PLACE_PIN_RESPONSE:
        take_pin(reader, value);
        break;
    }
}

static bool take_text(void *context, const struct json_scan *scan, const struct json_text *piece)
{
    struct intent_reader *reader = context;

    return estimate_text(&reader->estimate, scan, piece);
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
    intent->model_in_path = match.model_length > 0;
    reader->rule = match.rule;
    reader->path_image_model = match.model_length > 0 &&
                               intent_is_image_model(reader->request.image_models, intent->model);
    reader->image_model = reader->path_image_model;
    /* What creates something has no id in its path; elsewhere a prefix might look like one. */
    if (match.endpoint == ENDPOINT_OTHER)
        pin_take_path(&reader->pin, reader->request.path);
}

/* ---- the body -------------------------------------------------------------------------------- */

static void take_field(void *context, const struct multipart_field *field)
{
    struct intent_reader *reader = context;
    const char *value = field->value;

    if (strcmp(field->name, "model") == 0) {
        place_model(reader, (int64_t)field->value_at, (int64_t)field->value_bytes);
        take_model(reader, value, field->value_length);
    } else if (strcmp(field->name, "stream") == 0) {
        reader->intent.stream = strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0;
    } else if (strcmp(field->name, "file_id") == 0) {
        pin_take(&reader->pin, PIN_FILE, value, field->value_length);
    } else {
        answer_options_take_field(&reader->answer, field->name, value, field->value_length);
    }
}

static void take_field_text(void *context, const struct multipart_text *piece)
{
    struct intent_reader *reader = context;

    estimate_form(&reader->estimate, piece);
}

/* Where the body can mean an image it is read as JSON whatever its type says: upstreams do, too. */
static enum intent_body choose_body(struct intent_reader *reader)
{
    const char *type = reader->request.content_type;
    bool decides = reader->rule != ENDPOINT_RULE_NEVER && reader->rule != ENDPOINT_RULE_PATH;

    if (reader->encoded || strcmp(reader->request.method, "POST") != 0)
        return INTENT_BODY_IGNORED;
    if (!decides && multipart_begin(&reader->as.multipart, type, take_field, reader)) {
        if (!reader->request.skip_estimate)
            multipart_listen(&reader->as.multipart, take_field_text);
        return INTENT_BODY_MULTIPART;
    }
    if (reader->intent.endpoint == ENDPOINT_OTHER && type && *type && !strcasestr(type, "json"))
        return INTENT_BODY_IGNORED;
    json_scan_init(&reader->as.json, take_value, reader);
    json_scan_follow(&reader->as.json, &body_node);
    if (!reader->request.skip_estimate)
        json_scan_listen(&reader->as.json, take_text);
    return INTENT_BODY_JSON;
}

void intent_begin(struct intent_reader *reader, const struct intent_request *request)
{
    const char *coding = request->content_encoding;

    reader->request = *request;
    reader->intent = (struct intent){.model_at = -1, .model_bytes = -1};
    reader->model_seen = false;
    reader->pin = (struct pin){.rank = PIN_NONE};
    reader->tool_listed = false;
    reader->tool_hosted = false;
    reader->modality_image = false;
    reader->tool_choice = (struct tool_choice){.seen = false};
    reader->fed_bytes = 0;
    answer_options_begin(&reader->answer);
    estimate_begin(&reader->estimate);
    read_path(reader);
    reader->encoded = http_head_is_encoding(coding);
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

/* image_model: the body's model draws. */
static bool decide(const struct intent_reader *reader, bool image_model)
{
    bool json = reader->intent.body_is_json;
    bool tool = tool_choice_draws(&reader->tool_choice, reader->tool_listed);

    switch (reader->rule) {
    case ENDPOINT_RULE_NEVER:
        return false;
    case ENDPOINT_RULE_PATH:
        return true;
    case ENDPOINT_RULE_RESPONSES:
        return json && (image_model || tool);
    case ENDPOINT_RULE_CHAT:
        return reader->request.count_chat_images && json && (image_model || reader->modality_image);
    case ENDPOINT_RULE_GEMINI:
        return reader->request.count_chat_images &&
               (reader->path_image_model || (json && reader->modality_image));
    case ENDPOINT_RULE_PREDICT:
        return reader->path_image_model || strncasecmp(reader->intent.model, "imagen", 6) == 0;
    case ENDPOINT_RULE_MODEL:
        return json && image_model;
    }
    UNREACHABLE();
}

bool intent_image_with_model(const struct intent_reader *reader, const char *model)
{
    /* What the path says stays. */
    if (reader->intent.model_in_path)
        return decide(reader, reader->image_model);
    return decide(reader, intent_is_image_model(reader->request.image_models, model));
}

/* H11, in one place. Nobody knows what a body holds that could not be read. */
static bool may_hedge(const struct intent_reader *reader)
{
    const struct intent *intent = &reader->intent;
    /* Also where the operator does not count them (count_chat_images). */
    bool draws = intent->image || reader->image_model || reader->modality_image ||
                 reader->tool_listed || reader->tool_choice.image;

    return (intent->endpoint == ENDPOINT_CHAT || intent->endpoint == ENDPOINT_RESPONSES) &&
           intent->body_is_json && !draws && !intent->background && !intent->pinned &&
           !intent->hosted_tools;
}

static void end_model(struct intent_reader *reader)
{
    bool whole = reader->intent.body_is_json ||
                 (reader->body == INTENT_BODY_MULTIPART && reader->as.multipart.ended);

    /* In what is not whole another one may yet stand, for whoever reads it more kindly. */
    if (!whole)
        reader->intent.model_at = -1;
    if (reader->intent.model_at < 0)
        reader->intent.model_bytes = -1;
}

/* A whole chat stream's usage; nobody asks others for it. */
static void end_answer(struct intent_reader *reader)
{
    struct intent *intent = &reader->intent;
    bool stream = intent->endpoint == ENDPOINT_CHAT && intent->stream && intent->body_is_json;

    intent->max_output = answer_options_max_output(&reader->answer);
    intent->choices = reader->answer.choices;
    intent->seconds = reader->answer.seconds;
    intent->usage = USAGE_UNFIT;
    if (stream)
        intent->usage =
            answer_options_usage(&reader->answer, &intent->usage_at, &intent->usage_bytes);
}

static void end_estimate(struct intent_reader *reader)
{
    struct intent *intent = &reader->intent;

    intent->est_script = 0;
    if (reader->request.skip_estimate) {
        intent->est_input = -1;
    } else if (reader->encoded) { /* what nobody can read is taken as compressed text */
        intent->est_input = (int64_t)(reader->fed_bytes / ENCODED_BYTES_PER_TOKEN);
    } else {
        intent->est_input = estimate_tokens(&reader->estimate);
        intent->est_script = estimate_script_tokens(&reader->estimate);
    }
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
    intent->image = decide(reader, reader->image_model);
    if (intent->image)
        intent->kind = CALL_IMAGE;
    end_model(reader);
    intent->pinned = reader->pin.rank != PIN_NONE;
    memcpy(intent->pin_id, reader->pin.id, sizeof intent->pin_id);
    intent->hosted_tools = reader->tool_hosted && (intent->endpoint == ENDPOINT_RESPONSES ||
                                                   intent->endpoint == ENDPOINT_CHAT);
    intent->hedgeable = may_hedge(reader);
    end_answer(reader);
    end_estimate(reader);
}
