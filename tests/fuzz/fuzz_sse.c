/*
 * fuzz_sse.c - a flag byte (family, event stream or document), then an answer through pictures.c and
 * with it sse.c and answer_text.c: all stay in their buffers, tell the same however the answer is cut, and
 * never count more pictures than they can tell apart or read entries.
 */
#include "base/check.h"
#include "base/hash.h"
#include "worker/pictures.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_string(struct hash *trace, const char *string)
{
    hash_add(trace, string, strlen(string) + 1);
}

/* Everything an answer told, and whether the stream stands between two events. */
static uint64_t read_all(uint8_t flags, const char *answer, size_t length, size_t piece)
{
    static struct pictures pictures;
    const struct delivered *delivered = &pictures.delivered;
    bool stream = !(flags & 1);
    int64_t parts, script;
    struct hash trace;

    pictures_begin(&pictures, (enum endpoint)(flags >> 1 & 7),
                   stream ? "text/event-stream" : "application/json", NULL);
    pictures_count_text(&pictures, flags & 0x10);
    for (size_t at = 0; at < length; at += piece)
        pictures_feed(&pictures, answer + at, length - at < piece ? length - at : piece);
    pictures_end(&pictures);
    REQUIRE(pictures.key_count <= PICTURES_KEYS_MAX);
    REQUIRE(delivered->pictures <= length);
    parts = answer_text_parts(&pictures.text, &script);
    REQUIRE(parts >= 0 && parts <= 2500 * (int64_t)length && script >= 0);
    hash_init(&trace);
    hash_add(&trace, &parts, sizeof parts);
    hash_add(&trace, &script, sizeof script);
    hash_add(&trace, &delivered->pictures, sizeof delivered->pictures);
    hash_add(&trace, &delivered->tokens_in, sizeof delivered->tokens_in);
    hash_add(&trace, &delivered->tokens_out, sizeof delivered->tokens_out);
    hash_add(&trace, &delivered->seconds, sizeof delivered->seconds);
    hash_add(&trace, &delivered->finish_seen, sizeof delivered->finish_seen);
    hash_add(&trace, &delivered->image_tokens_in, sizeof delivered->image_tokens_in);
    hash_add(&trace, &delivered->image_tokens_out, sizeof delivered->image_tokens_out);
    add_string(&trace, delivered->model);
    add_string(&trace, delivered->id);
    add_string(&trace, delivered->status);
    add_string(&trace, delivered->size);
    hash_add(&trace, &delivered->content_seen, sizeof delivered->content_seen);
    hash_add(&trace, &delivered->error_seen, sizeof delivered->error_seen);
    hash_add(&trace, &delivered->terminal_seen, sizeof delivered->terminal_seen);
    if (stream) {
        hash_add(&trace, &pictures.sse.at_boundary, sizeof pictures.sse.at_boundary);
        hash_add(&trace, &pictures.sse.events, sizeof pictures.sse.events);
    }
    return hash_value(&trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *answer = (const char *)data + 1;
    uint64_t whole = read_all(data[0], answer, size - 1, size);

    REQUIRE(read_all(data[0], answer, size - 1, 1) == whole);
    REQUIRE(read_all(data[0], answer, size - 1, 1 + (data[0] >> 4) * 3u) == whole);
    return 0;
}
