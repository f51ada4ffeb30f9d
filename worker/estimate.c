/*
 * estimate.c - which texts of a request are input, and what else costs; see estimate.h.
 *
 * A body's keys at the top decide (sections); inside messages, the key that a string stands under
 * (uses). What tools and schemas are is told to the model as JSON, so their texts are counted with the
 * marks of JSON around them.
 */
#include "worker/estimate.h"

#include "base/check.h"
#include "base/text.h"

#include <string.h>

#define MESSAGE_PARTS (INT64_C(4) * TOKEN_PARTS) /* its role and what separates it from others */
#define ANSWER_PARTS (INT64_C(3) * TOKEN_PARTS)  /* the beginning of the answer */
#define CALL_PARTS (INT64_C(6) * TOKEN_PARTS)    /* what stands around the call of a function */
#define TOOLS_PARTS (INT64_C(10) * TOKEN_PARTS)  /* what introduces tools */

#define DATA_MIN 1024 /* as long as this, and nothing but base64: no text */

enum section { SECTION_UNKNOWN, SECTION_NONE, SECTION_MESSAGES, SECTION_TEXT, SECTION_JSON };

/* What a string is for. */
enum use {
    USE_NONE,
    USE_TEXT,
    USE_JSON,   /* in tools and schemas */
    USE_ROLE,   /* of a message: stands for it */
    USE_CALL,   /* a function's arguments: text, and there is a call */
    USE_TYPE,   /* of a part of a message: is it a picture? */
    USE_DETAIL, /* of a picture: is it looked at in low detail? */
    USE_PICTURE,
    USE_DATA, /* a file's base64: sound, a picture, something else */
    USE_FILE,
};

enum data { DATA_NO, DATA_ALPHABET, DATA_URL };

struct word {
    const char *key;
    int means;
};

/* The usual ones first. */
static const struct word sections[] = {
    {"messages", SECTION_MESSAGES},
    {"model", SECTION_NONE},
    {"stream", SECTION_NONE},
    {"input", SECTION_MESSAGES},
    {"contents", SECTION_MESSAGES},
    {"prompt", SECTION_TEXT},
    {"instructions", SECTION_TEXT},
    {"system", SECTION_TEXT},
    {"systemInstruction", SECTION_TEXT},
    {"system_instruction", SECTION_TEXT},
    {"suffix", SECTION_TEXT},
    {"tools", SECTION_JSON},
    {"functions", SECTION_JSON},
    {"response_format", SECTION_JSON},
    {"text", SECTION_JSON},
};

/* Strings in messages that are no text for the model, or that stand for more than their text. */
static const struct word uses[] = {
    {"content", USE_TEXT},
    {"role", USE_ROLE},
    {"text", USE_TEXT},
    {"type", USE_TYPE},
    {"detail", USE_DETAIL},
    {"arguments", USE_CALL},
    {"image", USE_PICTURE},
    {"fileUri", USE_PICTURE},
    {"file_uri", USE_PICTURE},
    {"data", USE_DATA},
    {"file_data", USE_FILE},
    {"id", USE_NONE},
    {"tool_call_id", USE_NONE},
    {"call_id", USE_NONE},
    {"url", USE_NONE},
    {"image_url", USE_NONE},
    {"file_url", USE_NONE},
    {"file_id", USE_NONE},
    {"filename", USE_NONE},
    {"format", USE_NONE},
    {"media_type", USE_NONE},
    {"mime_type", USE_NONE},
    {"mimeType", USE_NONE},
    {"status", USE_NONE},
    {"encrypted_content", USE_NONE},
    {"signature", USE_NONE},
    {"thoughtSignature", USE_NONE},
    {"thought_signature", USE_NONE},
};

void estimate_begin(struct estimate *estimate)
{
    *estimate = (struct estimate){.section = SECTION_UNKNOWN};
}

/* ---- where ----------------------------------------------------------------------------------- */

static int find_word(const struct word *words, size_t count, const struct json_level *level,
                     int otherwise)
{
    if (level->key_cut)
        return otherwise;
    for (size_t i = 0; i < count; i++)
        if (text_same(level->key, words[i].key))
            return words[i].means;
    return otherwise;
}

static enum section find_section(const struct json_scan *scan)
{
    const struct json_level *level = scan->levels;

    if (scan->depth == 0 || level->is_array)
        return SECTION_NONE;
    /* DashScope's own API has tools in there, and nothing else that is input. */
    if (text_same(level->key, "parameters")) {
        if (scan->depth == 1 || strcmp(level[1].key, "tools") != 0)
            return SECTION_UNKNOWN;
        level++;
    }
    int found = find_word(sections, LENGTH(sections), level, SECTION_NONE);

    return (enum section)found;
}

/* The object's level that is the nearest at or above the one of this number; NULL = none. */
static const struct json_level *object_above(const struct json_scan *scan, unsigned depth)
{
    while (depth > 0 && scan->levels[depth - 1].is_array)
        depth--;
    return depth > 0 ? &scan->levels[depth - 1] : NULL;
}

/* {"input_audio": {"data": ...}}, {"inline_data": {"data": ...}}, {"source": {"data": ...}} */
static enum use use_of_data(const struct json_scan *scan)
{
    const struct json_level *outer = object_above(scan, scan->depth - 1);

    if (outer && strcmp(outer->key, "input_audio") == 0)
        return USE_DATA;
    if (outer && (strcmp(outer->key, "inline_data") == 0 || strcmp(outer->key, "inlineData") == 0))
        return USE_PICTURE;
    return outer && strcmp(outer->key, "source") == 0 ? USE_NONE : USE_TEXT;
}

static enum use find_use(const struct estimate *estimate, const struct json_scan *scan)
{
    switch ((enum section)estimate->section) {
    case SECTION_UNKNOWN:
    case SECTION_NONE:
        return USE_NONE;
    case SECTION_JSON:
        return USE_JSON;
    case SECTION_TEXT:
    case SECTION_MESSAGES:
        break;
    }
    const struct json_level *level = object_above(scan, scan->depth);
    int found = level ? find_word(uses, LENGTH(uses), level, USE_TEXT) : USE_NONE;

    return found == USE_DATA ? use_of_data(scan) : (enum use)found;
}

/* ---- strings --------------------------------------------------------------------------------- */

static void add_marks(struct estimate *estimate, const char *marks)
{
    token_count_add(&estimate->text, marks, strlen(marks));
}

static void begin_string(struct estimate *estimate, const struct json_scan *scan)
{
    enum use use = find_use(estimate, scan);

    estimate->use = (unsigned char)use;
    estimate->looked_at = 0;
    estimate->tail = 0;
    estimate->data =
        use == USE_TEXT || use == USE_JSON || use == USE_CALL ? DATA_ALPHABET : DATA_NO;
    estimate->before = estimate->text;
    if (use == USE_ROLE || (scan->depth == 1 && estimate->section == SECTION_MESSAGES))
        estimate->other_parts += MESSAGE_PARTS;
    if (use == USE_CALL)
        estimate->other_parts += CALL_PARTS;
    if (use == USE_PICTURE)
        estimate->pictures++;
    if (use == USE_JSON)
        add_marks(estimate, "\"");
    if (use != USE_NONE)
        estimate->any = true;
}

static bool in_alphabet(unsigned char c)
{
    unsigned char lower = c | 0x20;

    return (c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'z') || c == '+' || c == '/' ||
           c == '=' || c == '-' || c == '_';
}

#define LAST(tail, bytes) ((tail) & ((UINT64_C(1) << 8 * (bytes)) - 1))

/* The next byte of a string that may be base64: what may it be now? */
static enum data next_data(struct estimate *estimate, unsigned char c, bool *ret_is_data)
{
    enum data data = (enum data)estimate->data;

    estimate->tail = estimate->tail << 8 | c;
    estimate->looked_at++;
    if (data == DATA_ALPHABET && c == ':' && estimate->looked_at == 5 &&
        LAST(estimate->tail, 5) == 0x646174613AU) /* "data:" */
        return DATA_URL;
    if (data == DATA_URL && c == ',')
        *ret_is_data = LAST(estimate->tail, 7) == UINT64_C(0x6261736536342C); /* "base64," */
    else if (!in_alphabet(c) && !(data == DATA_URL && (c == ';' || c == '.')))
        return DATA_NO;
    if (estimate->looked_at == DATA_MIN)
        *ret_is_data = true;
    return data;
}

/* Is it base64 for certain now? */
static bool look_for_data(struct estimate *estimate, const char *bytes, size_t length)
{
    bool is_data = false;

    for (size_t i = 0; i < length && estimate->data != DATA_NO && !is_data; i++) {
        enum data data = next_data(estimate, (unsigned char)bytes[i], &is_data);

        estimate->data = (unsigned char)data;
    }
    return is_data;
}

/* Words of up to eight bytes fit the tail. */
static bool tail_is(const struct estimate *estimate, const char *word)
{
    uint64_t tail = 0;

    for (const char *at = word; *at; at++)
        tail = tail << 8 | (unsigned char)*at;
    return estimate->tail == tail;
}

static void add_to_tail(struct estimate *estimate, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        estimate->tail = estimate->tail << 8 | (unsigned char)bytes[i];
}

static bool add_to_string(struct estimate *estimate, const struct json_text *piece)
{
    switch ((enum use)estimate->use) {
    case USE_NONE:
    case USE_ROLE:
    case USE_PICTURE:
    case USE_DATA:
    case USE_FILE:
        return false;
    case USE_TYPE:
    case USE_DETAIL:
        add_to_tail(estimate, piece->bytes, piece->length);
        return true;
    case USE_TEXT:
    case USE_JSON:
    case USE_CALL:
        break;
    }
    if (estimate->data != DATA_NO && look_for_data(estimate, piece->bytes, piece->length)) {
        estimate->text = estimate->before;
        estimate->use = USE_NONE;
        return false;
    }
    token_count_add(&estimate->text, piece->bytes, piece->length);
    return true;
}

static void end_string(struct estimate *estimate, const struct json_text *piece)
{
    uint64_t file_bytes = piece->raw_length / 4 * 3;

    switch ((enum use)estimate->use) {
    case USE_TEXT:
    case USE_CALL:
        token_count_break(&estimate->text);
        break;
    case USE_JSON:
        add_marks(estimate, "\",");
        break;
    case USE_TYPE:
        /* "image_url", "input_image", "image": by their last bytes. */
        if (tail_is(estimate, "mage_url") || tail_is(estimate, "ut_image") ||
            tail_is(estimate, "image"))
            estimate->pictures++;
        break;
    case USE_DETAIL:
        if (tail_is(estimate, "low"))
            estimate->pictures_low++;
        break;
    case USE_DATA:
        estimate->other_parts += (int64_t)(file_bytes * TOKEN_PARTS / ESTIMATE_SOUND_BYTES);
        break;
    case USE_FILE:
        estimate->other_parts += (int64_t)(file_bytes * TOKEN_PARTS / ESTIMATE_FILE_BYTES);
        break;
    case USE_NONE:
    case USE_ROLE:
    case USE_PICTURE:
        break;
    }
    estimate->use = USE_NONE;
}

/* ---- keys and numbers ------------------------------------------------------------------------ */

static bool take_key(struct estimate *estimate, const struct json_text *piece)
{
    if (estimate->section != SECTION_JSON)
        return false;
    if (piece->begins)
        add_marks(estimate, "\"");
    token_count_add(&estimate->text, piece->bytes, piece->length);
    if (piece->ends)
        add_marks(estimate, "\":");
    return true;
}

/* In tools a part of their JSON; in an array of input a token itself. */
static bool take_number(struct estimate *estimate, const struct json_scan *scan,
                        const struct json_text *piece)
{
    bool in_array = scan->depth > 0 && scan->levels[scan->depth - 1].is_array;

    if (estimate->section == SECTION_JSON) {
        token_count_add(&estimate->text, piece->bytes, piece->length);
        if (piece->ends)
            add_marks(estimate, ",");
        return true;
    }
    if (piece->ends && in_array &&
        (estimate->section == SECTION_MESSAGES || estimate->section == SECTION_TEXT)) {
        estimate->other_parts += TOKEN_PARTS;
        estimate->any = true;
    }
    return false;
}

bool estimate_text(struct estimate *estimate, const struct json_scan *scan,
                   const struct json_text *piece)
{
    bool goes_on;

    if (piece->kind == JSON_TEXT_KEY && scan->depth == 1) {
        /* Another section begins; what the last one ended with is over. */
        token_count_break(&estimate->text);
        estimate->section = SECTION_UNKNOWN;
        return false;
    }
    if (estimate->section == SECTION_UNKNOWN) {
        enum section section = find_section(scan);

        estimate->section = (unsigned char)section;
        if (section == SECTION_JSON)
            estimate->other_parts += TOOLS_PARTS;
    }
    if (piece->kind == JSON_TEXT_KEY)
        return take_key(estimate, piece);
    if (piece->kind == JSON_TEXT_NUMBER)
        return take_number(estimate, scan, piece);
    if (piece->begins)
        begin_string(estimate, scan);
    goes_on = add_to_string(estimate, piece);
    if (piece->ends)
        end_string(estimate, piece);
    return goes_on;
}

/* ---- forms ----------------------------------------------------------------------------------- */

static void take_file(struct estimate *estimate, const struct multipart_text *piece)
{
    bool picture = strncmp(piece->name, "image", 5) == 0 || strcmp(piece->name, "mask") == 0;

    estimate->any = true;
    if (picture)
        estimate->pictures++;
    else
        estimate->other_parts += (int64_t)(piece->value_bytes * TOKEN_PARTS / ESTIMATE_SOUND_BYTES);
}

void estimate_form(struct estimate *estimate, const struct multipart_text *piece)
{
    if (piece->is_file) {
        take_file(estimate, piece);
    } else if (strcmp(piece->name, "prompt") == 0 || strcmp(piece->name, "instructions") == 0 ||
               strcmp(piece->name, "input") == 0) {
        estimate->any = true;
        token_count_add(&estimate->text, piece->bytes, piece->length);
        if (piece->ends)
            token_count_break(&estimate->text);
    }
}

int64_t estimate_tokens(const struct estimate *estimate)
{
    int64_t parts = token_count_parts(&estimate->text) + estimate->other_parts + ANSWER_PARTS;
    int64_t low = estimate->pictures_low;

    if (!estimate->any)
        return 0;
    if (low > estimate->pictures)
        low = estimate->pictures;
    parts += (estimate->pictures - low) * ESTIMATE_PICTURE_TOKENS * TOKEN_PARTS;
    parts += low * ESTIMATE_PICTURE_LOW_TOKENS * TOKEN_PARTS;
    return parts > TOKEN_PARTS ? (parts + TOKEN_PARTS / 2) / TOKEN_PARTS : 1;
}

int64_t estimate_script_tokens(const struct estimate *estimate)
{
    return (token_count_script_parts(&estimate->text) + TOKEN_PARTS / 2) / TOKEN_PARTS;
}
