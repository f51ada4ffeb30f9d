/*
 * answer_text.c - which strings of an answer the model wrote; see answer_text.h.
 *
 * The key at the top tells the family: choices (chat, completions), delta (Responses, Anthropic),
 * candidates (Gemini); of documents also output and content. Below it the key that the string stands
 * under decides.
 */
#include "worker/answer_text.h"

#include "base/check.h"
#include "base/text.h"

#include <string.h>

/* No word goes on from one into another. */
enum field { FIELD_NONE, FIELD_TEXT, FIELD_REASONING, FIELD_NAME, FIELD_CALL };

static const struct {
    const char *key;
    enum field field;
} fields[] = {
    {"content", FIELD_TEXT},
    {"text", FIELD_TEXT},
    {"refusal", FIELD_TEXT},
    {"transcript", FIELD_TEXT},
    {"thinking", FIELD_REASONING},
    {"reasoning", FIELD_REASONING},
    {"reasoning_content", FIELD_REASONING},
    {"name", FIELD_NAME},
    {"arguments", FIELD_CALL},
    {"partial_json", FIELD_CALL},
    {"code", FIELD_CALL},
};

void answer_text_begin(struct answer_text *text, enum answer_shape shape)
{
    *text = (struct answer_text){.shape = shape};
}

/* The key at this level of the path; "" = there is none. */
static const char *key_at(const struct json_scan *scan, unsigned level)
{
    return level < scan->depth && !scan->levels[level].is_array ? scan->levels[level].key : "";
}

/* Is it on the path, below the top? */
static bool is_below(const struct json_scan *scan, const char *key)
{
    for (unsigned level = 1; level < scan->depth; level++)
        if (text_same(key_at(scan, level), key))
            return true;
    return false;
}

static enum field field_of_key(const struct json_scan *scan)
{
    unsigned level = scan->depth;

    while (level > 0 && scan->levels[level - 1].is_array)
        level--;
    for (size_t i = 0; level > 0 && i < LENGTH(fields); i++)
        if (text_same(scan->levels[level - 1].key, fields[i].key))
            return fields[i].field;
    return FIELD_NONE;
}

/* {"choices":[{"delta":{...}}]}, [{"message":{...}}], [{"text":"..."}]. Details of reasoning repeat it. */
static enum field field_of_choice(const struct json_scan *scan)
{
    const char *part = key_at(scan, 2);

    if (!text_same(part, "delta") && !text_same(part, "message") && !text_same(part, "text"))
        return FIELD_NONE;
    return text_same(key_at(scan, 3), "reasoning_details") ? FIELD_NONE : field_of_key(scan);
}

static enum field find_field(const struct answer_text *text, const struct json_scan *scan,
                             const char *type)
{
    const char *top = key_at(scan, 0);

    if (scan->depth == 1 && !text_same(top, "delta")) /* most strings */
        return FIELD_NONE;
    if (text_same(top, "choices"))
        return field_of_choice(scan);
    if (text_same(top, "candidates"))
        return is_below(scan, "args") ? FIELD_CALL : field_of_key(scan);
    if (text_same(top, "delta") && scan->depth == 1) /* sound is base64 */
        return strstr(type, "audio.delta") ? FIELD_NONE : FIELD_TEXT;
    if (text_same(top, "delta"))
        return field_of_key(scan);
    if (text->shape == ANSWER_DOCUMENT && (text_same(top, "output") || text_same(top, "content")))
        return is_below(scan, "input") ? FIELD_CALL : field_of_key(scan);
    return FIELD_NONE;
}

bool answer_text_take(struct answer_text *text, const struct json_scan *scan,
                      const struct json_text *piece, const char *type)
{
    if (piece->begins) {
        enum field field = find_field(text, scan, type);

        text->field = (unsigned char)field;
        if (field != FIELD_NONE &&
            (text->field != text->last || text->shape != ANSWER_STREAM_OF_ONE))
            token_count_break(&text->count);
    }
    if (text->field == FIELD_NONE)
        return false;
    text->last = text->field;
    token_count_add(&text->count, piece->bytes, piece->length);
    return true;
}

int64_t answer_text_parts(const struct answer_text *text, int64_t *ret_script_parts)
{
    *ret_script_parts = token_count_script_parts(&text->count);
    return token_count_parts(&text->count);
}
