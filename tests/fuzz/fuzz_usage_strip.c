/*
 * fuzz_usage_strip.c - a byte for the size of pieces, then an event stream: what comes out does not depend
 * on how it was cut, is what went in but for whole stretches taken out, is not touched when nothing is
 * taken out, and has nothing more to be taken out of it.
 */
#include "base/check.h"
#include "worker/usage_strip.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sink {
    char *bytes;
    size_t length, size;
};

static void take(void *context, const char *bytes, size_t length)
{
    struct sink *sink = context;

    REQUIRE(length > 0 && length <= sink->size - sink->length);
    memcpy(sink->bytes + sink->length, bytes, length);
    sink->length += length;
}

static uint64_t strip(struct sink *sink, const char *stream, size_t length, size_t piece)
{
    static struct usage_strip strip;

    *sink = (struct sink){.bytes = malloc(length + 1), .size = length};
    REQUIRE(sink->bytes != NULL);
    usage_strip_begin(&strip, take, sink);
    for (size_t at = 0; at < length; at += piece) {
        usage_strip_feed(&strip, stream + at, length - at < piece ? length - at : piece);
        /* Nothing is held but the beginning of one event. */
        REQUIRE(strip.held.length <= USAGE_STRIP_EVENT_MAX);
        REQUIRE(sink->length + strip.held.length <= at + piece);
    }
    usage_strip_end(&strip);
    usage_strip_release(&strip);
    return strip.stripped;
}

/* Is every byte of it in there, in its order? */
static bool is_left_of(const struct sink *left, const char *stream, size_t length)
{
    size_t found = 0;

    for (size_t at = 0; at < length && found < left->length; at++)
        found += stream[at] == left->bytes[found];
    return found == left->length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sink whole, cut;

    if (size == 0)
        return 0;
    const char *stream = (const char *)data + 1;
    const size_t pieces[] = {1, 1U + data[0]};
    size--;
    uint64_t stripped = strip(&whole, stream, size, size + 1);

    for (size_t i = 0; i < LENGTH(pieces); i++) {
        REQUIRE(strip(&cut, stream, size, pieces[i]) == stripped);
        REQUIRE(cut.length == whole.length && memcmp(cut.bytes, whole.bytes, cut.length) == 0);
        free(cut.bytes);
    }
    REQUIRE(is_left_of(&whole, stream, size));
    REQUIRE((whole.length == size) == (stripped == 0));
    /* What was behind a first event may be a byte order mark now. */
    if (whole.length == 0 || whole.bytes[0] != '\xEF') {
        REQUIRE(strip(&cut, whole.bytes, whole.length, whole.length + 1) == 0);
        free(cut.bytes);
    }
    free(whole.bytes);
    return 0;
}
