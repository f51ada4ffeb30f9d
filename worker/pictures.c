/*
 * pictures.c - what an answer delivered, told from its bytes as they pass; see pictures.h.
 *
 * What an event (or a whole body) says is gathered in pictures->event and joins what was delivered
 * only when the event is whole and of a kind that is final: a cut event was no event, and the
 * pictures in partial ones are previews. keys[] is appended to while reading; an event that does not
 * count simply leaves key_count where it was.
 */
#include "worker/pictures.h"

#include "base/parse.h"
#include "base/text.h"
#include "worker/answer_events.h"
#include "worker/http_head.h"
#include "worker/pictures_places.h"

#include <string.h>
#include <strings.h>

static const char done_text[] = "[DONE]";
#define DONE_LENGTH (sizeof done_text - 1)

/* ---- what was said --------------------------------------------------------------------------- */

static void forget(struct delivered *delivered)
{
    delivered->pictures = 0;
    delivered->tokens_in = delivered->tokens_out = -1;
    delivered->tokens_cached = delivered->tokens_reasoning = -1;
    delivered->image_tokens_in = delivered->image_tokens_out = -1;
    delivered->seconds = -1;
    delivered->model[0] = delivered->size[0] = delivered->quality[0] = '\0';
    delivered->format[0] = delivered->id[0] = delivered->status[0] = '\0';
    delivered->content_seen = delivered->error_seen = delivered->terminal_seen = false;
    delivered->finish_seen = false;
    delivered->error_before_content = false;
}

static void begin_event(struct pictures *pictures)
{
    struct pictures_event *event = &pictures->event;

    forget(&event->said);
    event->type[0] = '\0';
    event->data_begun = false;
    event->line_begins = true;
    event->tool_usage_said = false;
    event->usage_said = event->choice_said = false;
    event->done_matched = 0;
    event->entries = 0;
    event->key_count = pictures->key_count;
    event->root_picture = 0;
}

static void merge_number(int64_t *to, int64_t from)
{
    if (from >= 0)
        *to = from;
}

static void merge_string(char *to, size_t size, const char *from)
{
    if (*from)
        (void)text_copy(to, size, from);
}

/* Add what a whole event said. */
static void merge(struct delivered *to, const struct delivered *from)
{
    merge_number(&to->tokens_in, from->tokens_in);
    merge_number(&to->tokens_out, from->tokens_out);
    merge_number(&to->tokens_cached, from->tokens_cached);
    merge_number(&to->tokens_reasoning, from->tokens_reasoning);
    merge_number(&to->image_tokens_in, from->image_tokens_in);
    merge_number(&to->image_tokens_out, from->image_tokens_out);
    merge_number(&to->seconds, from->seconds);
    merge_string(to->model, sizeof to->model, from->model);
    merge_string(to->id, sizeof to->id, from->id);
    merge_string(to->status, sizeof to->status, from->status);
    to->error_before_content = to->error_before_content || (from->error_seen && !to->content_seen);
    to->content_seen = to->content_seen || from->content_seen;
    to->finish_seen = to->finish_seen || from->finish_seen;
    to->error_seen = to->error_seen || from->error_seen;
    to->terminal_seen = to->terminal_seen || from->terminal_seen;
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* The same picture: the same id, or, where one of them has none, the same bytes. */
static bool is_same(const struct pictures_key *key, uint64_t id, uint64_t picture)
{
    return id && key->id ? key->id == id : key->picture == picture;
}

static void add_picture(struct pictures *pictures, uint64_t id, uint64_t picture)
{
    struct pictures_event *event = &pictures->event;

    for (uint32_t i = 0; i < event->key_count; i++)
        if (is_same(&pictures->keys[i], id, picture))
            return;
    if (event->key_count < PICTURES_KEYS_MAX)
        pictures->keys[event->key_count++] = (struct pictures_key){.id = id, .picture = picture};
}

/* The event or body is whole and final. */
static void keep_pictures(struct pictures *pictures)
{
    const struct pictures_event *event = &pictures->event;
    struct delivered *delivered = &pictures->delivered;

    pictures->key_count = event->key_count;
    if (event->entries > pictures->entries)
        pictures->entries = event->entries;
    delivered->pictures =
        pictures->entries > pictures->key_count ? pictures->entries : pictures->key_count;
    merge_string(delivered->size, sizeof delivered->size, event->said.size);
    merge_string(delivered->quality, sizeof delivered->quality, event->said.quality);
    merge_string(delivered->format, sizeof delivered->format, event->said.format);
}

/* ---- one value at its place ------------------------------------------------------------------ */

static bool has_text(const struct json_value *value)
{
    return value->kind == JSON_STRING && value->raw_length > 0;
}

static bool is_end(const struct json_value *value)
{
    return value->kind == JSON_OBJECT_END || value->kind == JSON_ARRAY_END;
}

static void take_string(struct pictures *pictures, const struct json_value *value)
{
#define STRING(field)                                                                              \
    {                                                                                              \
        offsetof(struct delivered, field), sizeof((struct delivered *)0)->field                    \
    }
    static const struct {
        size_t offset, size;
    } strings[] = {
        [PLACE_MODEL] = STRING(model),   [PLACE_STATUS] = STRING(status),
        [PLACE_SIZE] = STRING(size),     [PLACE_QUALITY] = STRING(quality),
        [PLACE_FORMAT] = STRING(format),
    };
#undef STRING
    size_t offset = strings[value->id].offset;

    /* Every chunk of a stream repeats its model, and its id. */
    if (!has_text(value) || (value->id == PLACE_MODEL && *pictures->delivered.model))
        return;
    (void)text_copy((char *)&pictures->event.said + offset, strings[value->id].size, value->text);
}

static void take_id(struct pictures *pictures, const struct json_value *value)
{
    if (has_text(value) && !*pictures->delivered.id)
        upstream_id_set(pictures->event.said.id, value->text, value->text_length);
}

static int64_t number_of(const struct json_value *value)
{
    uint64_t number;

    if (value->kind != JSON_NUMBER || !parse_u64_bytes(value->text, value->text_length, &number) ||
        number > INT64_MAX)
        return -1;
    return (int64_t)number;
}

static void take_tokens(struct pictures *pictures, const struct json_value *value)
{
    struct delivered *said = &pictures->event.said;
    int64_t *const numbers[] = {
        [PLACE_TOKENS_IN] = &said->tokens_in,
        [PLACE_TOKENS_OUT] = &said->tokens_out,
        [PLACE_TOKENS_CACHED] = &said->tokens_cached,
        [PLACE_TOKENS_REASONING] = &said->tokens_reasoning,
    };

    merge_number(numbers[value->id], number_of(value));
}

/* tool_usage.image_gen is exact; the details of usage are the next best. */
static void take_image_tokens(struct pictures *pictures, const struct json_value *value)
{
    struct delivered *said = &pictures->event.said;
    bool tool = value->id == PLACE_TOOL_TOKENS_IN || value->id == PLACE_TOOL_TOKENS_OUT;
    bool in = value->id == PLACE_TOOL_TOKENS_IN || value->id == PLACE_IMAGE_TOKENS_IN;

    if (!tool && pictures->event.tool_usage_said)
        return;
    pictures->event.tool_usage_said = tool;
    merge_number(in ? &said->image_tokens_in : &said->image_tokens_out, number_of(value));
}

/* What usage says and what the top says is the same; some write it in a string. */
static void take_seconds(struct pictures *pictures, const struct json_value *value)
{
    uint64_t number;

    if (parse_rounded_up(value->text, value->text_length, &number) && number <= INT64_MAX)
        pictures->event.said.seconds = (int64_t)number;
}

static void take_type(struct pictures *pictures, const struct json_value *value)
{
    if (value->kind == JSON_STRING)
        (void)text_copy(pictures->event.type, sizeof pictures->event.type, value->text);
}

static void take_error(struct pictures *pictures, const struct json_value *value)
{
    if (has_text(value) || value->kind == JSON_OBJECT || value->kind == JSON_ARRAY)
        pictures->event.said.error_seen = true;
}

static void take_code(struct pictures *pictures, const struct json_value *value)
{
    if (pictures->endpoint == ENDPOINT_DASHSCOPE && has_text(value))
        pictures->event.said.error_seen = true;
}

/* Some servers' errors are objects of their own in the stream: {"object":"error",...}. */
static void take_object(struct pictures *pictures, const struct json_value *value)
{
    if (has_text(value) && strcmp(value->text, "error") == 0)
        pictures->event.said.error_seen = true;
}

static void take_content_text(struct pictures *pictures, const struct json_value *value)
{
    if (has_text(value))
        pictures->event.said.content_seen = true;
}

static void take_content(struct pictures *pictures, const struct json_value *value)
{
    if (value->kind != JSON_NULL && !is_end(value))
        pictures->event.said.content_seen = true;
}

/* DashScope says "null" in a string while it goes on; routers say "error" of a failure. */
static void take_finish(struct pictures *pictures, const struct json_value *value)
{
    if (!has_text(value) || strcmp(value->text, "null") == 0)
        return;
    pictures->event.said.content_seen = pictures->event.said.finish_seen = true;
    if (value->id == PLACE_FINISH && strcmp(value->text, "error") == 0)
        pictures->event.said.error_seen = true;
    if (value->id == PLACE_GEMINI_FINISH || pictures->endpoint == ENDPOINT_DASHSCOPE)
        pictures->event.said.terminal_seen = true;
}

static void take_root_picture(struct pictures *pictures, const struct json_value *value)
{
    if (has_text(value))
        pictures->event.root_picture = value->raw_hash;
}

static void take_picture(struct pictures *pictures, const struct json_value *value)
{
    if (has_text(value)) {
        pictures->event.said.content_seen = true;
        add_picture(pictures, 0, value->raw_hash);
    }
}

/* What is judged as a whole when its object ends. */
static void begin_item(struct pictures *pictures)
{
    pictures->item = (struct pictures_item){.tokens = -1};
}

static void take_entry(struct pictures *pictures, const struct json_value *value)
{
    if (value->kind == JSON_OBJECT)
        begin_item(pictures);
    else if (value->kind == JSON_OBJECT_END && pictures->item.has_picture &&
             pictures->endpoint != ENDPOINT_OTHER && pictures->endpoint != ENDPOINT_EMBEDDINGS)
        pictures->event.entries++;
}

static void take_item(struct pictures *pictures, const struct json_value *value)
{
    const struct pictures_item *item = &pictures->item;

    if (value->kind == JSON_OBJECT)
        begin_item(pictures);
    else if (value->kind == JSON_OBJECT_END && item->has_picture && !item->is_other_type)
        add_picture(pictures, item->id ? item->id : item->call_id, item->picture);
}

static void take_part(struct pictures *pictures, const struct json_value *value)
{
    const struct pictures_item *item = &pictures->item;

    if (value->kind == JSON_OBJECT)
        begin_item(pictures);
    else if (value->kind == JSON_OBJECT_END && item->has_picture && item->is_image &&
             !item->thought)
        add_picture(pictures, 0, item->picture);
}

static void take_modality(struct pictures *pictures, const struct json_value *value)
{
    struct delivered *said = &pictures->event.said;

    if (value->kind == JSON_OBJECT)
        begin_item(pictures);
    else if (value->kind == JSON_OBJECT_END && pictures->item.is_image)
        merge_number(value->id == PLACE_MODALITY_IN ? &said->image_tokens_in
                                                    : &said->image_tokens_out,
                     pictures->item.tokens);
}

static void take_item_picture(struct pictures *pictures, const struct json_value *value)
{
    if (has_text(value)) {
        pictures->item.has_picture = true;
        pictures->item.picture = value->raw_hash;
    }
}

static void take_item_id(struct pictures *pictures, const struct json_value *value)
{
    if (has_text(value) && value->id == PLACE_ITEM_ID)
        pictures->item.id = value->raw_hash;
    else if (has_text(value))
        pictures->item.call_id = value->raw_hash;
}

static void take_item_type(struct pictures *pictures, const struct json_value *value)
{
    pictures->item.is_other_type =
        has_text(value) && strcmp(value->text, "image_generation_call") != 0;
}

static void take_item_fact(struct pictures *pictures, const struct json_value *value)
{
    if (value->id == PLACE_PART_THOUGHT)
        pictures->item.thought = value->kind == JSON_TRUE;
    else if (value->id == PLACE_PART_MIME)
        pictures->item.is_image = has_text(value) && strncasecmp(value->text, "image/", 6) == 0;
    else if (value->id == PLACE_MODALITY_NAME)
        pictures->item.is_image = has_text(value) && strcmp(value->text, "IMAGE") == 0;
    else
        pictures->item.tokens = number_of(value);
}

static void take_usage(struct pictures *pictures, const struct json_value *value)
{
    if (value->kind == JSON_OBJECT)
        pictures->event.usage_said = true;
}

static void take_choice(struct pictures *pictures, const struct json_value *value)
{
    if (value->kind == JSON_OBJECT)
        pictures->event.choice_said = true;
}

static void take_value(void *context, const struct json_scan *scan, const struct json_value *value)
{
    static void (*const takers[PLACE_COUNT])(struct pictures *, const struct json_value *) = {
        [PLACE_TYPE] = take_type,
        [PLACE_MODEL] = take_string,
        [PLACE_ID] = take_id,
        [PLACE_STATUS] = take_string,
        [PLACE_ERROR] = take_error,
        [PLACE_OBJECT] = take_object,
        [PLACE_CODE] = take_code,
        [PLACE_SIZE] = take_string,
        [PLACE_QUALITY] = take_string,
        [PLACE_FORMAT] = take_string,
        [PLACE_ROOT_PICTURE] = take_root_picture,
        [PLACE_ENTRY] = take_entry,
        [PLACE_ENTRY_PICTURE] = take_item_picture,
        [PLACE_ITEM] = take_item,
        [PLACE_ITEM_TYPE] = take_item_type,
        [PLACE_ITEM_ID] = take_item_id,
        [PLACE_ITEM_CALL_ID] = take_item_id,
        [PLACE_ITEM_PICTURE] = take_item_picture,
        [PLACE_PICTURE] = take_picture,
        [PLACE_CONTENT_TEXT] = take_content_text,
        [PLACE_CONTENT] = take_content,
        [PLACE_USAGE] = take_usage,
        [PLACE_CHOICE] = take_choice,
        [PLACE_FINISH] = take_finish,
        [PLACE_GEMINI_FINISH] = take_finish,
        [PLACE_PART] = take_part,
        [PLACE_PART_THOUGHT] = take_item_fact,
        [PLACE_PART_MIME] = take_item_fact,
        [PLACE_PART_DATA] = take_item_picture,
        [PLACE_TOKENS_IN] = take_tokens,
        [PLACE_TOKENS_OUT] = take_tokens,
        [PLACE_TOKENS_CACHED] = take_tokens,
        [PLACE_TOKENS_REASONING] = take_tokens,
        [PLACE_IMAGE_TOKENS_IN] = take_image_tokens,
        [PLACE_IMAGE_TOKENS_OUT] = take_image_tokens,
        [PLACE_TOOL_TOKENS_IN] = take_image_tokens,
        [PLACE_TOOL_TOKENS_OUT] = take_image_tokens,
        [PLACE_SECONDS] = take_seconds,
        [PLACE_MODALITY_IN] = take_modality,
        [PLACE_MODALITY_OUT] = take_modality,
        [PLACE_MODALITY_NAME] = take_item_fact,
        [PLACE_MODALITY_TOKENS] = take_item_fact,
    };

    (void)scan;
    if (takers[value->id])
        takers[value->id](context, value);
}

/* ---- events and bodies ----------------------------------------------------------------------- */

/* What the event's type says; the one inside the data is surer than the event's name. */
static bool judge_type(struct pictures *pictures, const char *name)
{
    struct pictures_event *event = &pictures->event;
    const char *type = *event->type ? event->type : name;
    const struct answer_event *row = *type ? answer_event_find(type) : NULL;

    if (!row) {
        if (answer_event_is_piece(type))
            event->said.content_seen = true;
        return *event->type == '\0';
    }
    event->said.content_seen = event->said.content_seen || row->content;
    event->said.error_seen = event->said.error_seen || row->error;
    event->said.terminal_seen = event->said.terminal_seen || row->terminal;
    if (row->root && event->root_picture)
        add_picture(pictures, 0, event->root_picture);
    return row->final;
}

static bool take_text(void *context, const struct json_scan *scan, const struct json_text *piece)
{
    struct pictures *pictures = context;

    return answer_text_take(&pictures->text, scan, piece, pictures->event.type);
}

static void begin_json(struct pictures *pictures)
{
    json_scan_init(&pictures->json, take_value, pictures);
    json_scan_follow(&pictures->json, &answer_node);
    if (pictures->counts_text)
        json_scan_listen_to_strings(&pictures->json, take_text);
}

static void match_done(struct pictures_event *event, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length && event->done_matched <= DONE_LENGTH; i++) {
        if (event->done_matched == DONE_LENGTH && bytes[i] == ' ')
            continue;
        if (event->done_matched < DONE_LENGTH && bytes[i] == done_text[event->done_matched])
            event->done_matched++;
        else
            event->done_matched = DONE_LENGTH + 1;
    }
}

static void on_data(void *context, const char *bytes, size_t length)
{
    struct pictures *pictures = context;
    struct pictures_event *event = &pictures->event;

    /* Several data lines are one text unless the lines before were a whole one. */
    if (event->line_begins) {
        if (event->data_begun && pictures->json.state == JSON_SCAN_MORE)
            json_scan_feed(&pictures->json, "\n", 1);
        else
            begin_json(pictures);
        event->line_begins = false;
        event->data_begun = true;
    }
    match_done(event, bytes, length);
    json_scan_feed(&pictures->json, bytes, length);
}

static void on_data_end(void *context)
{
    ((struct pictures *)context)->event.line_begins = true;
}

/* What only the whole event tells. Usage is content when it is all there is, at the end: many send it
 * along with every chunk, the first one too. What comes with an error is no content, so that it does
 * not commit (I2): routers put both into one event. */
static void judge_event(struct pictures *pictures, bool final, bool done)
{
    const struct pictures_event *event = &pictures->event;
    struct delivered *said = &pictures->event.said;

    if (event->usage_said && !event->choice_said && pictures->endpoint != ENDPOINT_DASHSCOPE)
        said->content_seen = true;
    if (final && event->entries > 0)
        said->content_seen = true;
    if (said->error_seen)
        said->content_seen = false;
    if (done || said->error_seen)
        said->terminal_seen = true;
}

static void on_event(void *context, const char *name)
{
    struct pictures *pictures = context;
    struct pictures_event *event = &pictures->event;
    bool done = event->done_matched == DONE_LENGTH;
    bool whole = event->data_begun && json_scan_end(&pictures->json) == JSON_SCAN_DONE;

    if (!whole)
        begin_event(pictures); /* forget what the broken text said; the name may still tell */
    bool final = judge_type(pictures, name);

    judge_event(pictures, final, done);
    merge(&pictures->delivered, &event->said);
    if (whole && final)
        keep_pictures(pictures);
    begin_event(pictures);
}

static bool is_json(const char *content_type)
{
    return !content_type || strncasecmp(content_type, "application/json", 16) == 0 ||
           strcasestr(content_type, "+json") || strncasecmp(content_type, "text/json", 9) == 0;
}

void pictures_begin(struct pictures *pictures, enum endpoint endpoint, const char *content_type,
                    const char *content_encoding)
{
    const struct sse_handler handler = {pictures, on_data, on_data_end, on_event};

    forget(&pictures->delivered);
    pictures->endpoint = endpoint;
    pictures->counts_text = false;
    pictures->entries = 0;
    pictures->key_count = 0;
    begin_event(pictures);
    if (http_head_is_encoding(content_encoding)) {
        pictures->body = PICTURES_IGNORED;
    } else if (content_type && strncasecmp(content_type, "text/event-stream", 17) == 0) {
        pictures->body = PICTURES_SSE;
        sse_begin(&pictures->sse, &handler);
    } else if (is_json(content_type)) {
        pictures->body = PICTURES_JSON;
        begin_json(pictures);
    } else {
        pictures->body = PICTURES_IGNORED;
    }
}

void pictures_count_text(struct pictures *pictures, bool several)
{
    const bool stream = pictures->body == PICTURES_SSE;

    pictures->counts_text = true;
    answer_text_begin(&pictures->text, !stream   ? ANSWER_DOCUMENT
                                       : several ? ANSWER_STREAM_OF_SEVERAL
                                                 : ANSWER_STREAM_OF_ONE);
    if (pictures->body == PICTURES_JSON)
        begin_json(pictures);
}

void pictures_feed(struct pictures *pictures, const char *bytes, size_t length)
{
    if (pictures->body == PICTURES_JSON)
        json_scan_feed(&pictures->json, bytes, length);
    else if (pictures->body == PICTURES_SSE)
        sse_feed(&pictures->sse, bytes, length);
}

void pictures_end(struct pictures *pictures)
{
    struct pictures_event *event = &pictures->event;

    if (pictures->body != PICTURES_JSON || json_scan_end(&pictures->json) != JSON_SCAN_DONE)
        return;
    event->said.terminal_seen = true;
    event->said.content_seen = !event->said.error_seen;
    merge(&pictures->delivered, &event->said);
    keep_pictures(pictures);
}
