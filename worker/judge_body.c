/* judge_body.c - the words of an error body; see judge_body.h. */
#include "worker/judge_body.h"

#include "base/json_scan.h"
#include "worker/sse.h"

#include <stdlib.h>
#include <string.h>

/* ---- where words stand ----------------------------------------------------------------------- */

enum place {
    PLACE_NOTHING = 1,
    PLACE_ERROR, /* the error object, or a sentence instead of it */
    PLACE_CODE,
    PLACE_TYPE,
    PLACE_WORD,
    PLACE_INNER,
    PLACE_REASON,
    PLACE_DELAY,
    PLACE_QUOTA,
    PLACE_MESSAGE,
    PLACE_TOP, /* and above: the same at the top */
    PLACE_TOP_CODE = PLACE_TOP + PLACE_CODE,
    PLACE_TOP_TYPE = PLACE_TOP + PLACE_TYPE,
    PLACE_TOP_MESSAGE = PLACE_TOP + PLACE_MESSAGE,
};

#define EDGE_COUNT(edges) (sizeof(edges) / sizeof *(edges))
#define LEAF(place)                                                                                \
    (&(const struct json_node){                                                                    \
        .id = (place), .hash = false, .element = NULL, .edges = NULL, .edge_count = 0})

static const struct json_edge violation_edges[] = {JSON_EDGE("quotaId", LEAF(PLACE_QUOTA))};
static const struct json_node violation_node = {
    .id = PLACE_NOTHING, .edges = violation_edges, .edge_count = EDGE_COUNT(violation_edges)};
static const struct json_node violations_node = {.id = PLACE_NOTHING, .element = &violation_node};
static const struct json_edge detail_edges[] = {
    JSON_EDGE("retryDelay", LEAF(PLACE_DELAY)),
    JSON_EDGE("reason", LEAF(PLACE_REASON)),
    JSON_EDGE("violations", &violations_node),
};
static const struct json_node detail_node = {
    .id = PLACE_NOTHING, .edges = detail_edges, .edge_count = EDGE_COUNT(detail_edges)};
/* Google's details are a list, Anthropic's an object. */
static const struct json_edge details_edges[] = {JSON_EDGE("error_code", LEAF(PLACE_INNER))};
static const struct json_node details_node = {.id = PLACE_NOTHING,
                                              .element = &detail_node,
                                              .edges = details_edges,
                                              .edge_count = EDGE_COUNT(details_edges)};
static const struct json_edge inner_edges[] = {JSON_EDGE("code", LEAF(PLACE_INNER))};
static const struct json_node inner_node = {
    .id = PLACE_NOTHING, .edges = inner_edges, .edge_count = EDGE_COUNT(inner_edges)};
static const struct json_edge error_edges[] = {
    JSON_EDGE("code", LEAF(PLACE_CODE)),   JSON_EDGE("type", LEAF(PLACE_TYPE)),
    JSON_EDGE("status", LEAF(PLACE_WORD)), JSON_EDGE("message", LEAF(PLACE_MESSAGE)),
    JSON_EDGE("innererror", &inner_node),  JSON_EDGE("inner_error", &inner_node),
    JSON_EDGE("details", &details_node),
};
static const struct json_node error_node = {
    .id = PLACE_ERROR, .edges = error_edges, .edge_count = EDGE_COUNT(error_edges)};
/* response.failed has it one level down. */
static const struct json_edge response_edges[] = {JSON_EDGE("error", &error_node)};
static const struct json_node response_node = {
    .id = PLACE_NOTHING, .edges = response_edges, .edge_count = EDGE_COUNT(response_edges)};
static const struct json_edge top_edges[] = {
    JSON_EDGE("error", &error_node),         JSON_EDGE("response", &response_node),
    JSON_EDGE("type", LEAF(PLACE_TOP_TYPE)), JSON_EDGE("message", LEAF(PLACE_TOP_MESSAGE)),
    JSON_EDGE("code", LEAF(PLACE_TOP_CODE)), JSON_EDGE("statusCode", LEAF(PLACE_TOP_CODE)),
};
static const struct json_node top_node = {
    .id = PLACE_NOTHING, .edges = top_edges, .edge_count = EDGE_COUNT(top_edges)};
/* The top, or the same within an array (Gemini's, where it streams without alt=sse). */
static const struct json_node root_node = {.id = PLACE_NOTHING,
                                           .element = &top_node,
                                           .edges = top_edges,
                                           .edge_count = EDGE_COUNT(top_edges)};

/* ---- one document ---------------------------------------------------------------------------- */

struct reader {
    struct json_scan scan;
    bool has_error;               /* an error object, or a sentence in its place */
    struct judge_body error, top; /* of the document being read */
    struct judge_body *result;
};

/* Keep the first one said. A NUL in it ends it. */
static void keep(char *word, size_t size, const struct json_value *value)
{
    size_t length = value->text_length < size ? value->text_length : size - 1;

    if (*word || (value->kind != JSON_STRING && value->kind != JSON_NUMBER))
        return;
    memcpy(word, value->text, length);
    word[length] = '\0';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Some give the HTTP status as the code, as a number or as a string. */
static void keep_code(struct judge_body *body, const struct json_value *value)
{
    const char *text = value->text;

    if ((text[0] == '4' || text[0] == '5') && is_digit(text[1]) && is_digit(text[2]) && !text[3]) {
        if (body->status == 0)
            body->status = atoi(text);
    } else {
        keep(body->code, sizeof body->code, value);
    }
}

static void add_quota(struct judge_body *body, const struct json_value *value)
{
    size_t used = strlen(body->quotas);
    size_t room = sizeof body->quotas - used;

    if (value->text_length + 2 > room || value->kind != JSON_STRING)
        return;
    body->quotas[used] = ' ';
    memcpy(body->quotas + used + 1, value->text, value->text_length);
    body->quotas[used + 1 + value->text_length] = '\0';
}

/* {"error": {...}}, {"error": "sentence"} or {"error": "a_word"}. */
static void note_error(struct reader *reader, const struct json_value *value)
{
    if (value->kind == JSON_OBJECT)
        reader->has_error = true;
    if (value->kind != JSON_STRING || value->text_length == 0)
        return;
    reader->has_error = true;
    if (strchr(value->text, ' '))
        keep(reader->error.message, sizeof reader->error.message, value);
    else
        keep(reader->error.code, sizeof reader->error.code, value);
}

static void note(void *context, const struct json_scan *scan, const struct json_value *value)
{
    struct reader *reader = context;
    bool at_top = value->id > PLACE_TOP;
    struct judge_body *body = at_top ? &reader->top : &reader->error;

    (void)scan;
    switch (at_top ? value->id - PLACE_TOP : value->id) {
    case PLACE_ERROR:
        note_error(reader, value);
        break;
    case PLACE_CODE:
        keep_code(body, value);
        break;
    case PLACE_TYPE:
        keep(body->type, sizeof body->type, value);
        break;
    case PLACE_WORD:
        keep(body->word, sizeof body->word, value);
        break;
    case PLACE_INNER:
        keep(body->inner, sizeof body->inner, value);
        break;
    case PLACE_REASON:
        keep(body->reason, sizeof body->reason, value);
        break;
    case PLACE_DELAY:
        keep(body->delay, sizeof body->delay, value);
        break;
    case PLACE_QUOTA:
        add_quota(body, value);
        break;
    case PLACE_MESSAGE:
        keep(body->message, sizeof body->message, value);
        break;
    default:
        break;
    }
}

static void begin_document(struct reader *reader)
{
    json_scan_init(&reader->scan, note, reader);
    json_scan_follow(&reader->scan, &root_node);
    reader->has_error = false;
    reader->error = reader->top = (struct judge_body){0};
}

/* What was read of the document counts, whether it was cut, ended or broke off. */
static void end_document(struct reader *reader, bool is_error_event)
{
    struct judge_body *top = &reader->top;
    bool has_code = *top->code || top->status;
    enum judge_body_shape shape = JUDGE_BODY_NONE;

    if (strcmp(top->type, "error") == 0) {
        is_error_event = true;
        top->type[0] = '\0';
    }
    if (reader->has_error || (is_error_event && (has_code || *top->message)))
        shape = JUDGE_BODY_ERROR;
    else if ((has_code || *top->type) && *top->message)
        shape = JUDGE_BODY_WORDS;
    if (shape > reader->result->shape) {
        *reader->result = reader->has_error ? reader->error : *top;
        reader->result->shape = shape;
    }
}

/* ---- a stream of them ------------------------------------------------------------------------ */

static void note_data(void *context, const char *bytes, size_t length)
{
    struct reader *reader = context;

    (void)json_scan_feed(&reader->scan, bytes, length);
}

static void note_data_end(void *context)
{
    note_data(context, "\n", 1);
}

static void note_event(void *context, const char *name)
{
    struct reader *reader = context;

    end_document(reader, strcmp(name, "error") == 0);
    begin_document(reader);
}

/* The number of events. */
static uint64_t read_stream(struct reader *reader, const char *bytes, size_t length)
{
    struct sse sse;
    const struct sse_handler handler = {reader, note_data, note_data_end, note_event};

    sse_begin(&sse, &handler);
    sse_feed(&sse, bytes, length);
    /* Of a last event without its blank line, too, an error is one. */
    end_document(reader, false);
    return sse.events;
}

/* ---- any body -------------------------------------------------------------------------------- */

/* A sentence of a proxy or of an application without a dialect. */
static void keep_sentence(struct judge_body *body, const char *bytes, size_t length)
{
    if (length >= sizeof body->message)
        length = sizeof body->message - 1;
    memcpy(body->message, bytes, length);
    body->message[length] = '\0';
}

void judge_body_read(const char *bytes, size_t length, struct judge_body *ret)
{
    struct reader reader;
    size_t at = 0;

    *ret = (struct judge_body){0};
    if (length > JUDGE_BODY_BYTES_MAX)
        length = JUDGE_BODY_BYTES_MAX;
    if (length >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0)
        at = 3;
    while (at < length && (bytes[at] == ' ' || (bytes[at] >= '\t' && bytes[at] <= '\r')))
        at++;
    if (at == length || bytes[at] == '<')
        return;
    reader.result = ret;
    begin_document(&reader);
    if (bytes[at] == '{' || bytes[at] == '[') {
        (void)json_scan_feed(&reader.scan, bytes + at, length - at);
        end_document(&reader, false);
    } else if (read_stream(&reader, bytes + at, length - at) == 0 &&
               ret->shape == JUDGE_BODY_NONE) {
        keep_sentence(ret, bytes + at, length - at);
    }
}
