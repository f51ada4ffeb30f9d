/*
 * fuzz_multipart.c - a Content-Type up to the first line feed, then a body: whatever they are, the
 * reader stays in its buffers and finds the same fields however the body is cut.
 */
#include "base/check.h"
#include "base/hash.h"
#include "worker/multipart.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *body_read;

static void note(void *context, const struct multipart_field *field)
{
    struct hash *trace = context;

    REQUIRE(strlen(field->name) <= MULTIPART_NAME_MAX && field->name[0]);
    REQUIRE(field->value_length <= MULTIPART_VALUE_MAX);
    REQUIRE(field->value[field->value_length] == '\0');
    REQUIRE(memcmp(body_read + field->value_at, field->value, field->value_length) == 0);
    hash_add(trace, field->name, strlen(field->name) + 1);
    hash_add(trace, field->value, field->value_length + 1);
    hash_add(trace, &field->value_cut, sizeof field->value_cut);
    hash_add(trace, &field->value_at, sizeof field->value_at);
    hash_add(trace, &field->value_bytes, sizeof field->value_bytes);
}

static struct hash texts;

static void listen(void *context, const struct multipart_text *piece)
{
    (void)context;
    REQUIRE(piece->name[0] && piece->ends == (piece->length == 0));
    hash_add(&texts, piece->bytes, piece->length);
    if (piece->ends)
        hash_add(&texts, &piece->value_bytes, sizeof piece->value_bytes);
}

static uint64_t read_all(const char *type, const char *body, size_t length, size_t piece)
{
    static struct multipart multipart;
    struct hash trace;

    body_read = body;
    hash_init(&trace);
    hash_init(&texts);
    if (multipart_begin(&multipart, type, note, &trace)) {
        multipart_listen(&multipart, listen);
        for (size_t at = 0; at < length; at += piece)
            multipart_feed(&multipart, body + at, length - at < piece ? length - at : piece);
    }
    hash_add(&trace, &multipart.parts, sizeof multipart.parts);
    hash_add(&trace, &multipart.text_bytes, sizeof multipart.text_bytes);
    hash_add(&trace, &multipart.ended, sizeof multipart.ended);
    hash_add(&trace, &multipart.invalid, sizeof multipart.invalid);
    return hash_value(&trace) ^ hash_value(&texts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char type[512];
    const uint8_t *line_end = memchr(data, '\n', size);

    if (!line_end || (size_t)(line_end - data) >= sizeof type)
        return 0;
    size_t length = (size_t)(line_end - data);
    const char *body = (const char *)line_end + 1;

    memcpy(type, data, length);
    type[length] = '\0';
    size -= length + 1;
    uint64_t whole = read_all(type, body, size, size + 1);

    REQUIRE(read_all(type, body, size, 1) == whole);
    REQUIRE(read_all(type, body, size, 1 + length % 23) == whole);
    return 0;
}
