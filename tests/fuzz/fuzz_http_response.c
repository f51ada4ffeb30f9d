/*
 * fuzz_http_response.c - a byte (how it is cut; was it asked with HEAD), then what an upstream sends:
 * the same head, body and end are read however it is cut, and never more than was received.
 */
#include "base/check.h"
#include "base/hash.h"
#include "worker/http_response.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_head(struct hash *trace, const struct http_response *response)
{
    struct http_header headers[HTTP_HEADERS_MAX];
    struct http_head head;

    http_head_reader_result(&response->head, headers, &head);
    hash_add(trace, &head.status, sizeof head.status);
    hash_add(trace, &head.content_length, sizeof head.content_length);
    for (size_t i = 0; i < head.header_count; i++) {
        hash_add(trace, headers[i].name, strlen(headers[i].name) + 1);
        hash_add(trace, headers[i].value, strlen(headers[i].value) + 1);
    }
}

/* Use up the bytes. */
static enum http_piece use(struct http_response *response, struct http_bytes *bytes,
                           struct hash *trace)
{
    for (;;) {
        size_t length = 0;
        enum http_piece piece = http_response_next(response, bytes, &length);

        REQUIRE(bytes->at <= bytes->end);
        if (piece == HTTP_PIECE_HEAD) {
            add_head(trace, response);
        } else if (piece == HTTP_PIECE_BODY) {
            REQUIRE(length > 0 && length <= (size_t)(bytes->end - bytes->at));
            hash_add(trace, bytes->at, length);
            http_response_take(response, bytes, length);
        } else {
            REQUIRE(piece != HTTP_PIECE_NONE || bytes->at == bytes->end);
            return piece;
        }
    }
}

struct cut {
    size_t part;
    uint32_t seed; /* 0: parts of one size; else 1 to 64 bytes each, as it falls */
};

static size_t next_part(struct cut *cut)
{
    if (cut->seed != 0) {
        cut->seed = (cut->seed * 1664525U + 1013904223U) | 1;
        cut->part = 1 + (cut->seed >> 26);
    }
    return cut->part;
}

static uint64_t read_all(bool to_head_request, const char *answer, size_t size, struct cut cut)
{
    static struct http_response response;
    static bool ready;
    enum http_piece piece = HTTP_PIECE_NONE;
    struct hash trace;

    if (!ready)
        http_response_init(&response);
    ready = true;
    http_response_reset(&response, to_head_request);
    hash_init(&trace);
    for (size_t at = 0; at < size && piece == HTTP_PIECE_NONE;) {
        size_t part = next_part(&cut);
        struct http_bytes bytes = {answer + at, answer + (size - at < part ? size : at + part)};

        piece = use(&response, &bytes, &trace);
        at += part;
    }
    hash_add(&trace, &piece, sizeof piece);
    return hash_value(&trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const char *answer = (const char *)data + 1;
    bool to_head_request = data[0] & 1;
    const struct cut cuts[] = {
        {.part = 1},
        {.part = 1 + (size_t)(data[0] >> 1)},
        {.seed = 1 + (uint32_t)hash_bytes(answer, size - 1)},
    };
    uint64_t whole = read_all(to_head_request, answer, size - 1, (struct cut){.part = size - 1});

    for (size_t i = 0; i < LENGTH(cuts); i++)
        REQUIRE(read_all(to_head_request, answer, size - 1, cuts[i]) == whole);
    return 0;
}
