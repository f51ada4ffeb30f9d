/*
 * fuzz_json_scan.c - bytes from anywhere through the JSON reader: it must stay in its buffers,
 * report the same however its input is cut, and take all that json-c in strict mode takes. (Inputs
 * with digits are left out of that comparison: json-c takes "07." for a number.)
 */
#include "base/check.h"
#include "base/json_scan.h"

#include <json-c/json.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct hash texts;
static bool text_open;
static char heard[JSON_SCAN_TEXT_MAX + 1];
static size_t heard_bytes;

static bool listen(void *context, const struct json_scan *scan, const struct json_text *piece)
{
    (void)context;
    REQUIRE(piece->begins == !text_open);
    REQUIRE(piece->ends || piece->length > 0);
    text_open = !piece->ends;
    if (piece->begins) {
        hash_add(&texts, &piece->kind, sizeof piece->kind);
        hash_add(&texts, &scan->depth, sizeof scan->depth);
        heard_bytes = 0;
    }
    for (size_t i = 0; i < piece->length; i++, heard_bytes++)
        if (heard_bytes < sizeof heard)
            heard[heard_bytes] = piece->bytes[i];
    hash_add(&texts, piece->bytes, piece->length);
    if (piece->ends)
        hash_add(&texts, &piece->raw_length, sizeof piece->raw_length);
    return true;
}

static void note(void *context, const struct json_scan *scan, const struct json_value *value)
{
    struct hash *trace = context;

    for (unsigned i = 0; i < scan->depth; i++) {
        const struct json_level *level = &scan->levels[i];

        hash_add(trace, &level->index, sizeof level->index);
        hash_add(trace, level->key, level->key_length + 1);
    }
    REQUIRE(value->text[value->text_length] == '\0');
    hash_add(trace, &value->kind, sizeof value->kind);
    hash_add(trace, value->text, value->text_length + 1);
    hash_add(trace, &value->raw_length, sizeof value->raw_length);
    if (value->kind != JSON_OBJECT_END && value->kind != JSON_ARRAY_END)
        hash_add(trace, &value->at, sizeof value->at);
    hash_add(trace, &value->raw_hash, sizeof value->raw_hash);
    hash_add(trace, &value->empty, sizeof value->empty);
    /* What is kept of a string is the beginning of what was heard of it. */
    if (value->kind == JSON_STRING) {
        REQUIRE(value->text_cut ? heard_bytes > value->text_length
                                : heard_bytes == value->text_length);
        REQUIRE(memcmp(heard, value->text, value->text_length) == 0);
    }
    REQUIRE(!json_scan_at(scan, "a.b[].c") || scan->depth == 4);
}

static enum json_scan_state scan_all(const char *json, size_t length, size_t piece,
                                     uint64_t *ret_trace)
{
    static struct json_scan scan;
    enum json_scan_state state;
    struct hash trace;

    hash_init(&trace);
    hash_init(&texts);
    text_open = false;
    json_scan_init(&scan, note, &trace);
    json_scan_listen(&scan, listen);
    for (size_t at = 0; at < length; at += piece)
        json_scan_feed(&scan, json + at, length - at < piece ? length - at : piece);
    state = json_scan_end(&scan);
    hash_add(&trace, &scan.data_bytes, sizeof scan.data_bytes);
    *ret_trace = hash_value(&trace) ^ hash_value(&texts);
    return state;
}

static bool strict_reader_takes(const char *json, size_t length)
{
    struct json_tokener *tokener = json_tokener_new_ex(JSON_SCAN_DEPTH_MAX);
    bool takes;

    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    struct json_object *tree = json_tokener_parse_ex(tokener, json, (int)length);

    takes = json_tokener_get_error(tokener) == json_tokener_success &&
            json_tokener_get_parse_end(tokener) == length;
    json_object_put(tree);
    json_tokener_free(tokener);
    return takes;
}

static bool has_any_of(const char *bytes, size_t length, const char *set)
{
    for (; *set; set++)
        if (memchr(bytes, *set, length))
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t whole, cut;

    if (size == 0)
        return 0;
    const char *json = (const char *)data + 1;
    enum json_scan_state state = scan_all(json, size - 1, size, &whole);

    REQUIRE(scan_all(json, size - 1, 1, &cut) == state && cut == whole);
    REQUIRE(scan_all(json, size - 1, 1U + data[0], &cut) == state && cut == whole);
    if (has_any_of(json, size - 1, "0123456789-"))
        return 0;
    REQUIRE(!strict_reader_takes(json, size - 1) || state == JSON_SCAN_DONE);
    return 0;
}
