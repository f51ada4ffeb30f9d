/* behaviour.c - see behaviour.h. One table of all keys. */
#include "tests/tools/upstream/behaviour.h"

#include "base/check.h"
#include "base/parse.h"
#include "base/text.h"
#include "tests/tools/upstream/refusals.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum key_kind {
    KEY_NUMBER,
    KEY_FLAG,
    KEY_TEXT,
    KEY_CUT,
    KEY_DIALECT,
    KEY_SHARE,
    KEY_LINE,
    KEY_ERROR
};

static const struct key_row {
    const char *name;
    enum key_kind kind;
    size_t offset;
    size_t size;
} key_rows[] = {
#define ROW(kind, field)                                                                           \
    {                                                                                              \
#field, kind, offsetof(struct behaviour, field), sizeof(((struct behaviour *)NULL)->field) \
    }
    ROW(KEY_NUMBER, delay_ms),
    ROW(KEY_NUMBER, first_ms),
    ROW(KEY_NUMBER, prelude_ms),
    ROW(KEY_NUMBER, chunk_ms),
    ROW(KEY_NUMBER, job_ms),
    ROW(KEY_NUMBER, hang_factor),
    ROW(KEY_NUMBER, retry_after_ms),
    ROW(KEY_NUMBER, events),
    ROW(KEY_NUMBER, size),
    ROW(KEY_NUMBER, n),
    ROW(KEY_NUMBER, partials),
    ROW(KEY_NUMBER, comments),
    ROW(KEY_NUMBER, chunk),
    ROW(KEY_NUMBER, status),
    ROW(KEY_NUMBER, interim),
    ROW(KEY_NUMBER, head_bytes),
    ROW(KEY_NUMBER, slow_read),
    ROW(KEY_NUMBER, seed),
    ROW(KEY_NUMBER, image),
    ROW(KEY_NUMBER, stream),
    ROW(KEY_NUMBER, error_event),
    ROW(KEY_NUMBER, bad_event),
    ROW(KEY_NUMBER, job_fail),
    ROW(KEY_NUMBER, times),
    ROW(KEY_NUMBER, done),
    ROW(KEY_NUMBER, usage),
    ROW(KEY_NUMBER, quota),
    ROW(KEY_NUMBER, should_retry),
    ROW(KEY_NUMBER, in_tokens),
    ROW(KEY_NUMBER, out_tokens),
    ROW(KEY_NUMBER, limit_requests),
    ROW(KEY_NUMBER, remaining_requests),
    ROW(KEY_NUMBER, limit_tokens),
    ROW(KEY_NUMBER, remaining_tokens),
    ROW(KEY_SHARE, hang_share),
    ROW(KEY_CUT, reset),
    ROW(KEY_CUT, close),
    ROW(KEY_CUT, stall),
    ROW(KEY_CUT, garble),
    ROW(KEY_DIALECT, dialect),
    ROW(KEY_FLAG, garbage),
    ROW(KEY_FLAG, no_length),
    ROW(KEY_FLAG, chunked),
    ROW(KEY_FLAG, gzip),
    ROW(KEY_FLAG, endless_headers),
    ROW(KEY_FLAG, redirect),
    ROW(KEY_FLAG, echo),
    ROW(KEY_FLAG, close_after),
    ROW(KEY_FLAG, early),
    ROW(KEY_FLAG, url),
    ROW(KEY_FLAG, stamp),
    ROW(KEY_FLAG, incomplete),
    ROW(KEY_FLAG, odd_headers),
    ROW(KEY_FLAG, no_continue),
    ROW(KEY_FLAG, skip_sha),
    ROW(KEY_FLAG, quota_counts),
    ROW(KEY_FLAG, failed),
    ROW(KEY_TEXT, tool),
    ROW(KEY_TEXT, quota_error),
    ROW(KEY_TEXT, code),
    ROW(KEY_TEXT, type),
    ROW(KEY_TEXT, message),
    ROW(KEY_TEXT, ctype),
    ROW(KEY_TEXT, tag),
    ROW(KEY_TEXT, retry_after),
    ROW(KEY_TEXT, reset_requests),
    ROW(KEY_TEXT, reset_tokens),
#undef ROW
    {"line", KEY_LINE, 0, 0},
    {"error", KEY_ERROR, 0, 0},
};

static const char *const dialect_names[] = {
    [DIALECT_OPENAI] = "openai",       [DIALECT_AZURE] = "azure",
    [DIALECT_DASHSCOPE] = "dashscope", [DIALECT_COMPATIBLE] = "compatible",
    [DIALECT_GEMINI] = "gemini",       [DIALECT_ANTHROPIC] = "anthropic",
    [DIALECT_HTML] = "html",           [DIALECT_PLAIN] = "plain",
    [DIALECT_EMPTY] = "empty",
};

void sim_behaviour_init(struct behaviour *behaviour)
{
    *behaviour = (struct behaviour){
        .events = NOT_GIVEN,
        .size = NOT_GIVEN,
        .n = NOT_GIVEN,
        .partials = NOT_GIVEN,
        .seed = NOT_GIVEN,
        .image = NOT_GIVEN,
        .stream = NOT_GIVEN,
        .error_event = NOT_GIVEN,
        .bad_event = NOT_GIVEN,
        .times = NOT_GIVEN,
        .done = NOT_GIVEN,
        .in_tokens = NOT_GIVEN,
        .out_tokens = NOT_GIVEN,
        .limit_requests = NOT_GIVEN,
        .remaining_requests = NOT_GIVEN,
        .limit_tokens = NOT_GIVEN,
        .remaining_tokens = NOT_GIVEN,
        .retry_after_ms = NOT_GIVEN,
        .quota = NOT_GIVEN,
        .should_retry = NOT_GIVEN,
        .usage = 1,
        .status = 200,
        .hang_factor = 10,
        .job_ms = 300,
    };
}

static bool read_cut(const char *value, struct cut *cut)
{
    static const struct {
        const char *name;
        enum cut_place place;
        uint64_t bytes;
    } places[] = {
        {"none", CUT_NONE, 0}, {"accept", CUT_ACCEPT, 0},   {"read", CUT_READ, 0},
        {"head", CUT_HEAD, 0}, {"midhead", CUT_MIDHEAD, 0}, {"body", CUT_BODY, 1},
    };

    for (size_t i = 0; i < LENGTH(places); i++) {
        if (strcmp(value, places[i].name) == 0) {
            *cut = (struct cut){places[i].place, places[i].bytes};
            return true;
        }
    }
    if (!parse_size(value, &cut->bytes))
        return false;
    cut->place = CUT_BODY;
    return true;
}

static bool read_dialect(const char *value, enum dialect *dialect)
{
    for (size_t i = 0; i < LENGTH(dialect_names); i++) {
        if (strcmp(value, dialect_names[i]) == 0) {
            *dialect = (enum dialect)i;
            return true;
        }
    }
    return false;
}

static bool read_share(const char *value, double *share)
{
    char *end;

    *share = strtod(value, &end);
    return end != value && *end == '\0' && *share >= 0 && *share <= 1;
}

static bool set_key(struct behaviour *behaviour, const struct key_row *row, const char *value)
{
    void *field = (char *)behaviour + row->offset;

    switch (row->kind) {
    case KEY_NUMBER:
        return parse_size(value, field);
    case KEY_FLAG:
        return parse_bool(value, field);
    case KEY_TEXT:
        return text_copy(field, row->size, value);
    case KEY_CUT:
        return read_cut(value, field);
    case KEY_DIALECT:
        return read_dialect(value, field);
    case KEY_SHARE:
        return read_share(value, field);
    case KEY_LINE: /* one event of that size, and nothing else */
        behaviour->events = 1;
        return parse_size(value, &behaviour->size);
    case KEY_ERROR:
        return sim_refusal_apply(behaviour, value);
    }
    UNREACHABLE();
}

/* Read one "key=value"; the value may be missing for a flag. */
static bool apply_pair(struct behaviour *behaviour, const char *pair, size_t length)
{
    char name[24];
    char value[160];
    const char *equals = memchr(pair, '=', length);
    size_t name_length = equals ? (size_t)(equals - pair) : length;
    size_t value_length = equals ? length - name_length - 1 : 1;

    if (name_length >= sizeof name || value_length >= sizeof value)
        return false;
    memcpy(name, pair, name_length);
    name[name_length] = '\0';
    memcpy(value, equals ? equals + 1 : "1", value_length);
    value[value_length] = '\0';
    for (size_t i = 0; i < LENGTH(key_rows); i++)
        if (strcmp(name, key_rows[i].name) == 0)
            return set_key(behaviour, &key_rows[i], value);
    return false;
}

bool sim_behaviour_apply(struct behaviour *behaviour, const struct behaviour_source *source,
                         char ret_bad_key[64])
{
    const char *at = source->string;
    const char *end = at + source->length;

    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        uint64_t before = behaviour->times;

        while (at < stop && *at == ' ')
            at++;
        if (at < stop && !apply_pair(behaviour, at, (size_t)(stop - at))) {
            size_t length = (size_t)(stop - at) < 63 ? (size_t)(stop - at) : 63;

            memcpy(ret_bad_key, at, length);
            ret_bad_key[length] = '\0';
            return false;
        }
        if (behaviour->times != before) {
            uint64_t times = behaviour->times;

            behaviour->times = NOT_GIVEN;
            if (source->tag_use && source->tag_use(source->context, behaviour->tag) >= times)
                return true;
        }
        at = stop + 1;
    }
    return true;
}
