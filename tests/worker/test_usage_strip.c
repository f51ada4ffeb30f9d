/*
 * test_usage_strip.c - the event that tells a stream's usage is taken out, and nothing else is changed,
 * however the stream is cut (F6).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/text.h"
#include "worker/usage_strip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_MAX 400000

struct sink {
    size_t length;
    char bytes[STREAM_MAX];
};

static void take(void *context, const char *bytes, size_t length)
{
    struct sink *sink = context;

    assert_true(length > 0 && length <= sizeof sink->bytes - sink->length);
    memcpy(sink->bytes + sink->length, bytes, length);
    sink->length += length;
}

/* piece 0: of random sizes. */
static uint64_t strip(struct sink *sink, const char *stream, size_t length, size_t piece)
{
    static struct usage_strip strip;

    sink->length = 0;
    usage_strip_begin(&strip, take, sink);
    for (size_t at = 0, next; at < length; at += next) {
        char copy[256];

        next = piece ? piece : 1 + (size_t)rand() % 200;
        next = next < length - at ? next : length - at;
        if (next <= sizeof copy) {
            /* What was fed is gone afterwards. */
            memcpy(copy, stream + at, next);
            usage_strip_feed(&strip, copy, next);
            memset(copy, '#', sizeof copy);
        } else {
            usage_strip_feed(&strip, stream + at, next);
        }
    }
    usage_strip_end(&strip);
    uint64_t stripped = strip.stripped;

    usage_strip_release(&strip);
    return stripped;
}

static void assert_strips_to(const char *stream, const char *expected, uint64_t events)
{
    static struct sink sink;
    static const size_t pieces[] = {1, 2, 3, 7, 64, 0, 0, 0, 1000000};

    for (size_t i = 0; i < LENGTH(pieces); i++) {
        uint64_t stripped = strip(&sink, stream, strlen(stream), pieces[i]);

        if (sink.length != strlen(expected) || memcmp(sink.bytes, expected, sink.length) != 0)
            print_error("pieces of %zu: %.*s\n", pieces[i], (int)sink.length, sink.bytes);
        assert_int_equal(sink.length, strlen(expected));
        assert_memory_equal(sink.bytes, expected, sink.length);
        assert_int_equal(stripped, events);
    }
}

#define CHUNK(text)                                                                                \
    "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\"" \
    ":{\"content\":\"" text "\"}}],\"usage\":null}"
#define USAGE_BODY                                                                                 \
    "{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{"                \
    "\"prompt_tokens\":9,\"completion_tokens\":2,\"total_tokens\":11}}"
#define USAGE "data: " USAGE_BODY

static void F6_the_event_is_taken_out(void **state)
{
    (void)state;
    assert_strips_to(CHUNK("a") "\n\n" CHUNK("b") "\n\n" USAGE "\n\ndata: [DONE]\n\n",
                     CHUNK("a") "\n\n" CHUNK("b") "\n\ndata: [DONE]\n\n", 1);
    assert_strips_to(USAGE "\n\n", "", 1);
    assert_strips_to(USAGE "\n\n" USAGE "\n\n", "", 2);
    assert_strips_to("", "", 0);
}

static void F6_every_line_end_and_spelling(void **state)
{
    (void)state;
    assert_strips_to("data: 1\r\n\r\n" USAGE "\r\n\r\ndata: 2\r\n\r\n",
                     "data: 1\r\n\r\ndata: 2\r\n\r\n", 1);
    assert_strips_to("data: 1\r\r" USAGE "\r\rdata: 2\r\r", "data: 1\r\rdata: 2\r\r", 1);
    assert_strips_to("data: 1\r\n\r" USAGE "\n\rdata: 2\r\n\n", "data: 1\r\n\rdata: 2\r\n\n", 1);
    assert_strips_to("data:" USAGE_BODY "\n\n", "", 1);
    assert_strips_to("event: chunk\nid: 7\n" USAGE "\n\n", "", 1);
    assert_strips_to("data\n" USAGE "\n\n", "", 1);
    assert_strips_to("data: {\"choices\": [\ndata: ],\ndata: \"usage\": {}}\n\n", "", 1);
    assert_strips_to("\xEF\xBB\xBF" USAGE "\n\ndata: 2\n\n",
                     "\xEF\xBB\xBF"
                     "data: 2\n\n",
                     1);
    assert_strips_to("data: { \"usage\" : {\"a\":[1]} , \"choices\" : [ ] }\n\n", "", 1);
    assert_strips_to("data: {\"\\u0063hoices\":[],\"usage\":{},\"error\":null}\n\n", "", 1);
    /* A blank line too many is nobody's. */
    assert_strips_to("\n\n" USAGE "\n\n\n\n", "\n\n\n\n", 1);
    /* A comment that comes before is not taken with it. */
    assert_strips_to(": ping\n" USAGE "\n\n: ping\n\n", ": ping\n: ping\n\n", 1);
}

static void F6_a_stream_that_ends_early(void **state)
{
    (void)state;
    assert_strips_to("data: 1\n\n" USAGE, "data: 1\n\n", 1);
    assert_strips_to("data: 1\n\n" USAGE "\n", "data: 1\n\n", 1);
    assert_strips_to("data: {\"choices\":[],\"usage\":{", "data: {\"choices\":[],\"usage\":{", 0);
    assert_strips_to("dat", "dat", 0);
    assert_strips_to("data: {\"choices\":[]", "data: {\"choices\":[]", 0);
}

static void F6_everything_else_passes(void **state)
{
    static const char *const streams[] = {
        CHUNK("a") "\n\n",
        "data: [DONE]\n\n",
        "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n",
        "data: {\"choices\":[],\"usage\":null}\n\n",
        "data: {\"choices\":[],\"usage\":[]}\n\n",
        "data: {\"usage\":{}}\n\n",
        "data: {\"choices\":{},\"usage\":{}}\n\n",
        "data: {\"choices\":null,\"usage\":{}}\n\n",
        "data: {\"choices\":[],\"usage\":{},\"choices\":[{}]}\n\n",
        "data: {\"choices\":[null],\"usage\":{}}\n\n",
        "data: {\"choices\":[],\"usage\":{},\"error\":{\"message\":\"x\"}}\n\n",
        "data: {\"x\":{\"choices\":[],\"usage\":{}}}\n\n",
        "data: [{\"choices\":[],\"usage\":{}}]\n\n",
        "data: {\"choices\":[],\"usage\":{}} x\n\n",
        "data: {\"choices\":[],\"usage\":{}\n\n",
        "datum: {\"choices\":[],\"usage\":{}}\n\n",
        "Data: {\"choices\":[],\"usage\":{}}\n\n",
        " data: {\"choices\":[],\"usage\":{}}\n\n",
        ": {\"choices\":[],\"usage\":{}}\n\n",
        "{\"choices\":[],\"usage\":{}}\n\n",
        "\xEF\xBB\144ata: {\"choices\":[],\"usage\":{}}\n\n",
        "data: {\"choices\":[],\ndata: \"usage\":{}}x\n\n",
        "retry: 5\n\n: x\n\n\n\n\r\r\n\r\ndata\n\ndata:\n\n",
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(streams); i++)
        assert_strips_to(streams[i], streams[i], 0);
}

static void F6_a_large_event_passes(void **state)
{
    static char stream[STREAM_MAX];
    static struct sink sink;

    (void)state;
    for (int more = -40; more <= 40; more++) {
        static const char end[] = "\"}}\n\n";
        size_t begin =
            (size_t)snprintf(stream, sizeof stream, "data: {\"choices\":[],\"usage\":{\"x\":\"");
        size_t fill = (size_t)(USAGE_STRIP_EVENT_MAX + more) - begin;
        static const size_t pieces[] = {1000000, 4096, 0};

        memset(stream + begin, 'x', fill);
        memcpy(stream + begin + fill, end, sizeof end);
        bool stripped = strip(&sink, stream, strlen(stream), 1) == 1;

        /* Its last line end is not counted. */
        assert_int_equal(stripped, begin + fill + sizeof end - 2 <= USAGE_STRIP_EVENT_MAX);
        assert_int_equal(sink.length, stripped ? 0 : strlen(stream));
        for (size_t i = 0; i < LENGTH(pieces); i++)
            assert_int_equal(strip(&sink, stream, strlen(stream), pieces[i]), stripped);
    }
}

/* Content goes out as soon as its first choice begins, and an event is never held beyond its end. */
static void F6_content_is_not_held_back(void **state)
{
    static struct usage_strip strip;
    static struct sink sink;
    static const char begin[] = "data: {\"id\":\"c\",\"choices\":[";

    (void)state;
    sink.length = 0;
    usage_strip_begin(&strip, take, &sink);
    usage_strip_feed(&strip, begin, sizeof begin - 1);
    assert_int_equal(sink.length, 0);
    usage_strip_feed(&strip, "{", 1);
    assert_int_equal(sink.length, sizeof begin);
    usage_strip_feed(&strip, "\"delta\":\"", 9);
    assert_int_equal(sink.length, sizeof begin + 9);
    usage_strip_feed(&strip, "\"}]}\n\n: x", 9);
    assert_int_equal(sink.length, sizeof begin + 18);
    usage_strip_feed(&strip, "\ndata: [", 8);
    assert_int_equal(sink.length, sizeof begin + 26);
    usage_strip_feed(&strip, "D", 1);
    assert_int_equal(sink.length, sizeof begin + 27);
    usage_strip_release(&strip);
}

/* Streams of events drawn at random: what remains is the stream without those meant to go. */
static void F6_streams_at_random(void **state)
{
    static const char *const ends[] = {"\n", "\r\n", "\r"};
    static const char *const kept[] = {CHUNK("x"), "data: [DONE]",   ": comment",
                                       "event: e", "data: {\"a\":1", "data: {\"choices\":[]}",
                                       "data",     "id: 3"};
    static const char *const gone[] = {USAGE, "data: {\"choices\":[ ],\"usage\":{\"a\":{}}}",
                                       "data:{\"usage\":{},\"choices\":[]}"};

    (void)state;
    srand(6);
    for (int round = 0; round < 3000; round++) {
        struct text stream, expected;
        uint64_t events = 0;
        const char *end = ends[rand() % 3];

        text_init(&stream, STREAM_MAX);
        text_init(&expected, STREAM_MAX);
        for (int n = rand() % 12; n > 0; n--) {
            bool drop = rand() % 3 == 0;
            const char *line = drop ? gone[rand() % 3] : kept[rand() % 8];

            for (int both = drop; both < 2; both++) {
                struct text *into = both ? &stream : &expected;

                text_append_string(into, line);
                text_append_string(into, end);
                text_append_string(into, end);
            }
            events += drop;
        }
        assert_strips_to(text_string(&stream), text_string(&expected), events);
        text_release(&stream);
        text_release(&expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F6_the_event_is_taken_out),
        cmocka_unit_test(F6_every_line_end_and_spelling),
        cmocka_unit_test(F6_a_stream_that_ends_early),
        cmocka_unit_test(F6_everything_else_passes),
        cmocka_unit_test(F6_a_large_event_passes),
        cmocka_unit_test(F6_content_is_not_held_back),
        cmocka_unit_test(F6_streams_at_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
