/*
 * json_scan.c - one byte after the other through RFC 8259; see json_scan.h.
 *
 * What may come next is in own.expect; the open containers are in levels[]. Only three places look
 * at many bytes at once: blanks, the inside of strings, numbers. Nothing is set to zero beforehand:
 * a level and the text are valid from when they are begun.
 */
#include "base/json_scan.h"

#include "base/byte_run.h"
#include "base/json_number.h"
#include "base/json_text.h"

#include <string.h>

#define DATA_MIN 1024 /* raw bytes from which a string is looked at: words or data */

enum expect {
    EXPECT_START, /* the first byte of all */
    EXPECT_BOM,
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* behind "[" and behind a comma in an array */
    EXPECT_KEY_OR_END,   /* behind "{" and behind a comma in an object */
    EXPECT_COLON,
    EXPECT_COMMA_OR_END,
    EXPECT_BLANK, /* behind the top value */
    IN_STRING,
    IN_ESCAPE,
    IN_UNICODE,
    IN_NUMBER,
    IN_LITERAL,
};

static const struct {
    const char *text;
    enum json_kind kind;
} literals[] = {
    {"true", JSON_TRUE},  {"false", JSON_FALSE},     {"null", JSON_NULL},
    {"NaN", JSON_NUMBER}, {"Infinity", JSON_NUMBER}, {"-Infinity", JSON_NUMBER},
};

static const char minus_infinity[] = "-Infinity";

static bool is_blank(char c)
{
    return (unsigned char)c <= ' ' && (c == ' ' || c == '\n' || c == '\r' || c == '\t');
}

void json_scan_init(struct json_scan *scan, json_value_function *on_value, void *context)
{
    scan->on_value = on_value;
    scan->context = context;
    scan->state = JSON_SCAN_MORE;
    scan->depth = 0;
    scan->data_bytes = 0;
    scan->own.root = NULL;
    scan->own.node = NULL;
    scan->own.expect = EXPECT_START;
    scan->own.fed_bytes = 0;
    scan->own.literal_at = 0;
    scan->own.in_key = false;
    scan->own.on_text = NULL;
    scan->own.strings_only = false;
    scan->own.text_open = false;
    scan->own.listening = false;
}

void json_scan_listen(struct json_scan *scan, json_text_function *on_text)
{
    REQUIRE(scan->own.expect == EXPECT_START);
    scan->own.on_text = on_text;
}

void json_scan_listen_to_strings(struct json_scan *scan, json_text_function *on_text)
{
    json_scan_listen(scan, on_text);
    scan->own.strings_only = true;
}

void json_scan_follow(struct json_scan *scan, const struct json_node *root)
{
    REQUIRE(scan->own.expect == EXPECT_START);
    scan->own.root = root;
}

/* ---- reporting ------------------------------------------------------------------------------- */

static const struct json_node *find_node(const struct json_scan *scan)
{
    if (!scan->own.root || scan->depth == 0)
        return scan->own.root;
    const struct json_level *level = &scan->levels[scan->depth - 1];
    const struct json_node *node = level->node;

    if (!node || level->is_array)
        return node ? node->element : NULL;
    if (level->key_cut)
        return NULL;
    for (size_t i = 0; i < node->edge_count; i++) {
        const struct json_edge *edge = &node->edges[i];

        if (edge->key_length == level->key_length && edge->key[0] == level->key[0] &&
            memcmp(edge->key, level->key, edge->key_length) == 0)
            return edge->node;
    }
    return NULL;
}

static bool is_wanted(const struct json_scan *scan)
{
    return scan->own.node || !scan->own.root;
}

static void report(struct json_scan *scan, struct json_value *value)
{
    if (!scan->on_value || !is_wanted(scan))
        return;
    value->id = scan->own.node ? scan->own.node->id : 0;
    value->at = scan->own.value_at;
    scan->on_value(scan->context, scan, value);
}

/* empty: of what ends, there was nothing in it. */
static void report_plain(struct json_scan *scan, enum json_kind kind, bool empty)
{
    if (is_wanted(scan))
        report(scan, &(struct json_value){.kind = kind, .text = "", .empty = empty});
}

static void report_number(struct json_scan *scan)
{
    scan->own.text[scan->own.text_length] = '\0';
    report(scan, &(struct json_value){.kind = JSON_NUMBER,
                                      .text = scan->own.text,
                                      .text_length = scan->own.text_length,
                                      .text_cut = scan->own.text_cut});
}

static void report_string(struct json_scan *scan, uint64_t raw_hash)
{
    report(scan, &(struct json_value){.kind = JSON_STRING,
                                      .text = scan->own.text,
                                      .text_length = scan->own.text_length,
                                      .text_cut = scan->own.text_cut,
                                      .raw_length = scan->own.raw_length,
                                      .raw_hash = raw_hash});
}

static void expect_after_value(struct json_scan *scan)
{
    if (scan->depth == 0)
        scan->state = JSON_SCAN_DONE;
    scan->own.expect = scan->depth == 0 ? EXPECT_BLANK : EXPECT_COMMA_OR_END;
}

/* ---- strings --------------------------------------------------------------------------------- */

static bool is_hashed(const struct json_scan *scan)
{
    return scan->on_value && (scan->own.root ? scan->own.node && scan->own.node->hash : true);
}

static void begin_string(struct json_scan *scan, bool in_key)
{
    scan->own.expect = IN_STRING;
    scan->own.in_key = in_key;
    scan->own.raw_length = 0;
    json_text_begin(scan, in_key ? JSON_TEXT_KEY : JSON_TEXT_STRING);
    scan->own.hashing = !in_key && is_hashed(scan);
    if (scan->own.hashing)
        hash_init(&scan->own.hash);
}

/* Is the text the beginning of base64 or of a data: URL? Words have blanks or signs sooner or
 * later. */
static bool is_data(const char *text, size_t length)
{
    if (length >= 5 && memcmp(text, "data:", 5) == 0)
        return true;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        char lower = (char)(c | 0x20);

        if (!json_is_digit(c) && !(lower >= 'a' && lower <= 'z') && !memchr("+/=-_", c, 5))
            return false;
    }
    return true;
}

static void end_key(struct json_scan *scan)
{
    struct json_level *level = &scan->levels[scan->depth - 1];

    level->key_length = (unsigned)scan->own.text_length;
    level->key[level->key_length] = '\0';
    level->key_cut = scan->own.text_cut;
    scan->own.in_key = false;
    scan->own.expect = EXPECT_COLON;
}

static void end_string(struct json_scan *scan)
{
    json_text_surrogate_end(scan);
    json_text_end(scan);
    if (scan->own.in_key) {
        end_key(scan);
        return;
    }
    scan->own.text[scan->own.text_length] = '\0';
    if (scan->own.raw_length >= DATA_MIN && is_data(scan->own.text, scan->own.text_length))
        scan->data_bytes += scan->own.raw_length;
    report_string(scan, scan->own.hashing ? hash_value(&scan->own.hash) : 0);
    expect_after_value(scan);
}

static void take_escape(struct json_scan *scan, char c)
{
    static const char from[] = "\"\\/bfnrt";
    static const char into[] = "\"\\/\b\f\n\r\t";
    const char *found = c ? strchr(from, c) : NULL;

    if (c == 'u') {
        scan->own.expect = IN_UNICODE;
        scan->own.unicode = 0;
        scan->own.unicode_digits = 0;
    } else if (found) {
        json_text_surrogate_end(scan);
        json_text_keep(scan, &into[found - from], 1);
        scan->own.expect = IN_STRING;
    } else {
        scan->state = JSON_SCAN_INVALID;
    }
}

static void take_unicode(struct json_scan *scan, char c)
{
    char lower = (char)(c | 0x20);
    unsigned digit;

    if (json_is_digit(c)) {
        digit = (unsigned)(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
        digit = (unsigned)(lower - 'a') + 10;
    } else {
        scan->state = JSON_SCAN_INVALID;
        return;
    }
    scan->own.unicode = scan->own.unicode << 4 | digit;
    if (++scan->own.unicode_digits == 4) {
        json_text_unit(scan, scan->own.unicode);
        scan->own.expect = IN_STRING;
    }
}

/* From inside a string to behind its closing quote, or to the end of what there is. */
static const char *read_string(struct json_scan *scan, const char *at, const char *end)
{
    const char *from = at;
    bool closed = false;

    while (at < end && !closed && scan->state == JSON_SCAN_MORE) {
        if (scan->own.expect == IN_ESCAPE) {
            take_escape(scan, *at++);
        } else if (scan->own.expect == IN_UNICODE) {
            take_unicode(scan, *at++);
        } else {
            size_t run = byte_run_until(at, (size_t)(end - at), '"', '\\');

            if (run > 0) {
                json_text_surrogate_end(scan);
                json_text_keep(scan, at, run);
                at += run;
            }
            if (at < end && *at == '"')
                closed = true;
            else if (at < end)
                scan->own.expect = IN_ESCAPE;
            at += at < end;
        }
    }
    size_t raw = (size_t)(at - from) - closed;

    scan->own.raw_length += raw;
    if (scan->own.hashing)
        hash_add(&scan->own.hash, from, raw);
    if (closed)
        end_string(scan);
    return at;
}

/* How many bytes stand before the closing quote; SIZE_MAX: more than most, or not all of them here, or
 * with an escape. */
static size_t short_run(const char *at, const char *end, size_t most)
{
    size_t room = (size_t)(end - at) < most + 1 ? (size_t)(end - at) : most + 1;
    size_t length = byte_run_until(at, room, '"', '\\');

    return length < room && at[length] == '"' ? length : SIZE_MAX;
}

/* Most keys and strings are short and need none of the states between their quotes. These two return
 * where the reading goes on: behind the closing quote, or in front of the first byte, in those states. */
static const char *read_key(struct json_scan *scan, const char *at, const char *end)
{
    size_t length = short_run(at, end, JSON_SCAN_KEY_MAX);

    if (length == SIZE_MAX) {
        begin_string(scan, true);
        return at;
    }
    struct json_level *level = &scan->levels[scan->depth - 1];

    memcpy(level->key, at, length);
    level->key[length] = '\0';
    level->key_length = (unsigned)length;
    level->key_cut = false;
    json_text_whole(scan, JSON_TEXT_KEY, at, length);
    scan->own.expect = EXPECT_COLON;
    return at + length + 1;
}

static const char *read_value_string(struct json_scan *scan, const char *at, const char *end)
{
    size_t length = short_run(at, end, JSON_SCAN_TEXT_MAX);

    if (length == SIZE_MAX) {
        begin_string(scan, false);
        return at;
    }
    json_text_whole(scan, JSON_TEXT_STRING, at, length);
    if (is_wanted(scan)) {
        memcpy(scan->own.text, at, length);
        scan->own.text[length] = '\0';
        scan->own.text_length = scan->own.raw_length = length;
        scan->own.text_cut = false;
        report_string(scan, is_hashed(scan) ? hash_bytes(at, length) : 0);
    }
    expect_after_value(scan);
    return at + length + 1;
}

/* ---- numbers and literals -------------------------------------------------------------------- */

static void end_number(struct json_scan *scan)
{
    scan->own.raw_length = 0;
    json_text_end(scan);
    report_number(scan);
    expect_after_value(scan);
}

static const char *read_number(struct json_scan *scan, const char *at, const char *end)
{
    const char *from = at;
    enum json_number next = JSON_NUMBER_OVER;

    while (at < end &&
           (next = json_number_step((enum json_number)scan->own.number, *at)) != JSON_NUMBER_OVER) {
        scan->own.number = (unsigned char)next;
        at++;
    }
    json_text_keep(scan, from, (size_t)(at - from));
    if (at == end)
        return at;
    if (json_number_may_end((enum json_number)scan->own.number)) {
        end_number(scan);
    } else if (scan->own.number == JSON_NUMBER_MINUS && *at == 'I') {
        scan->own.raw_length = 0;
        json_text_end(scan);
        scan->own.expect = IN_LITERAL;
        scan->own.literal = minus_infinity;
        scan->own.literal_at = 1;
    } else {
        scan->state = JSON_SCAN_INVALID;
    }
    return at;
}

static void end_literal(struct json_scan *scan)
{
    enum json_kind kind = JSON_NUMBER;

    for (size_t i = 0; i < LENGTH(literals); i++)
        if (scan->own.literal == literals[i].text)
            kind = literals[i].kind;
    if (kind == JSON_NUMBER) {
        json_text_begin(scan, JSON_TEXT_NUMBER);
        scan->own.text_open = scan->own.listening = false;
        json_text_keep(scan, scan->own.literal, strlen(scan->own.literal));
        report_number(scan);
    } else {
        report_plain(scan, kind, false);
    }
    expect_after_value(scan);
}

static void take_literal(struct json_scan *scan, char c)
{
    if (c != scan->own.literal[scan->own.literal_at]) {
        scan->state = JSON_SCAN_INVALID;
        return;
    }
    scan->own.literal_at++;
    if (scan->own.literal[scan->own.literal_at] == '\0')
        end_literal(scan);
}

/* ---- structure ------------------------------------------------------------------------------- */

static void open_container(struct json_scan *scan, bool is_array)
{
    if (scan->depth == JSON_SCAN_DEPTH_MAX) {
        scan->state = JSON_SCAN_TOO_DEEP;
        return;
    }
    report_plain(scan, is_array ? JSON_ARRAY : JSON_OBJECT, false);
    struct json_level *level = &scan->levels[scan->depth++];

    level->node = scan->own.node;
    level->is_array = is_array;
    level->index = 0;
    level->key_length = 0;
    level->key[0] = '\0';
    level->key_cut = false;
    scan->own.expect = is_array ? EXPECT_VALUE_OR_END : EXPECT_KEY_OR_END;
}

static void close_container(struct json_scan *scan, char c)
{
    bool is_array = scan->depth > 0 && scan->levels[scan->depth - 1].is_array;

    if (scan->depth == 0 || c != (is_array ? ']' : '}')) {
        scan->state = JSON_SCAN_INVALID;
        return;
    }
    bool in_first =
        scan->own.expect == EXPECT_VALUE_OR_END || scan->own.expect == EXPECT_KEY_OR_END;

    scan->own.node = scan->levels[--scan->depth].node;
    report_plain(scan, is_array ? JSON_ARRAY_END : JSON_OBJECT_END,
                 in_first && scan->levels[scan->depth].index == 0);
    expect_after_value(scan);
}

/* The first byte of a value; when it is part of a number it is read again there. */
static const char *begin_value(struct json_scan *scan, const char *at, const char *end)
{
    char c = *at;

    scan->own.node = find_node(scan);
    scan->own.value_at = scan->own.fed_bytes + (size_t)(at - scan->own.feed);
    if (c == '"')
        return read_value_string(scan, at + 1, end);
    if (c == '{' || c == '[') {
        open_container(scan, c == '[');
        return at + 1;
    }
    if (c == '-' || json_is_digit(c)) {
        scan->own.expect = IN_NUMBER;
        json_text_begin(scan, JSON_TEXT_NUMBER);
        scan->own.number =
            JSON_NUMBER_MINUS; /* what may follow a minus may also stand without one */
        if (c == '-')
            json_text_keep(scan, at, 1);
        return at + (c == '-');
    }
    for (size_t i = 0; i < LENGTH(literals); i++) {
        if (c == literals[i].text[0]) {
            scan->own.expect = IN_LITERAL;
            scan->own.literal = literals[i].text;
            scan->own.literal_at = 1;
            return at + 1;
        }
    }
    scan->state = JSON_SCAN_INVALID;
    return at;
}

static void take_comma_or_end(struct json_scan *scan, char c)
{
    struct json_level *level = &scan->levels[scan->depth - 1];

    if (c != ',') {
        close_container(scan, c);
    } else {
        level->index++;
        scan->own.expect = level->is_array ? EXPECT_VALUE_OR_END : EXPECT_KEY_OR_END;
    }
}

static void take_bom(struct json_scan *scan, char c)
{
    static const char bom[] = "\xEF\xBB\xBF";

    if (c != bom[scan->own.literal_at])
        scan->state = JSON_SCAN_INVALID;
    else if (++scan->own.literal_at == 3)
        scan->own.expect = EXPECT_VALUE;
}

/* At least one byte; strings and numbers as far as they go. */
static const char *read_some(struct json_scan *scan, const char *at, const char *end)
{
    enum expect expect = (enum expect)scan->own.expect;

    if (expect >= EXPECT_VALUE && expect <= EXPECT_BLANK) {
        while (is_blank(*at))
            if (++at == end)
                return at;
    }
    switch (expect) {
    case EXPECT_START:
        scan->own.expect = *at == '\xEF' ? EXPECT_BOM : EXPECT_VALUE;
        return at;
    case EXPECT_BOM:
        take_bom(scan, *at);
        break;
    case EXPECT_VALUE:
        return begin_value(scan, at, end);
    case EXPECT_VALUE_OR_END:
        if (*at != ']')
            return begin_value(scan, at, end);
        close_container(scan, *at);
        break;
    case EXPECT_KEY_OR_END:
        if (*at == '"')
            return read_key(scan, at + 1, end);
        close_container(scan, *at);
        break;
    case EXPECT_COLON:
        scan->own.expect = EXPECT_VALUE;
        if (*at != ':')
            scan->state = JSON_SCAN_INVALID;
        break;
    case EXPECT_COMMA_OR_END:
        take_comma_or_end(scan, *at);
        break;
    case EXPECT_BLANK:
        scan->state = JSON_SCAN_INVALID;
        break;
    case IN_STRING:
    case IN_ESCAPE:
    case IN_UNICODE:
        return read_string(scan, at, end);
    case IN_NUMBER:
        return read_number(scan, at, end);
    case IN_LITERAL:
        take_literal(scan, *at);
        break;
    }
    return at + 1;
}

enum json_scan_state json_scan_feed(struct json_scan *scan, const char *bytes, size_t length)
{
    const char *end = bytes + length;

    scan->own.feed = bytes;
    for (const char *at = bytes; at < end;) {
        if (scan->state == JSON_SCAN_INVALID || scan->state == JSON_SCAN_TOO_DEEP)
            break;
        at = read_some(scan, at, end);
    }
    scan->own.fed_bytes += length;
    return scan->state;
}

enum json_scan_state json_scan_end(struct json_scan *scan)
{
    if (scan->state == JSON_SCAN_MORE && scan->depth == 0 && scan->own.expect == IN_NUMBER &&
        json_number_may_end((enum json_number)scan->own.number))
        end_number(scan);
    if (scan->state == JSON_SCAN_MORE)
        scan->state = JSON_SCAN_INVALID;
    return scan->state;
}

bool json_scan_at(const struct json_scan *scan, const char *path)
{
    const char *at = path;

    for (unsigned i = 0; i < scan->depth; i++) {
        const struct json_level *level = &scan->levels[i];

        if (level->is_array) {
            if (at[0] != '[' || at[1] != ']')
                return false;
            at += 2;
            continue;
        }
        if (i > 0 && *at++ != '.')
            return false;
        if (level->key_cut || strcspn(at, ".[") != level->key_length ||
            memcmp(at, level->key, level->key_length) != 0)
            return false;
        at += level->key_length;
    }
    return *at == '\0';
}
