/* test_answer_options.c - what a request says about its answer: its bound, and where a stream can be
 * asked for its usage (F4, F6). Through the intent reader, which finds the places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "worker/intent.h"

#include <string.h>

static struct intent_reader reader;

static const struct intent *read_at(const char *path, const char *body)
{
    static const char *const no_models[] = {NULL};
    const struct intent_request request = {.method = "POST",
                                           .path = path,
                                           .content_type = "application/json",
                                           .image_models = no_models};

    memset(&reader, 0xA5, sizeof reader);
    intent_begin(&reader, &request);
    for (size_t at = 0; body[at]; at++)
        intent_feed(&reader, body + at, 1);
    intent_end(&reader);
    return &reader.intent;
}

static void F4_the_bound_of_the_answer(void **state)
{
    static const struct {
        const char *path, *body;
        int64_t expected;
    } rows[] = {
        {"/v1/chat/completions", "{}", -1},
        {"/v1/chat/completions", "{\"max_tokens\":100}", 100},
        {"/v1/chat/completions", "{\"max_completion_tokens\":7}", 7},
        {"/v1/chat/completions", "{\"max_tokens\":100,\"max_completion_tokens\":70}", 100},
        {"/v1/chat/completions", "{\"n\":3,\"max_tokens\":100}", 300},
        {"/v1/chat/completions", "{\"max_tokens\":100,\"n\":null}", 100},
        {"/v1/chat/completions", "{\"max_tokens\":100,\"n\":0}", 100},
        {"/v1/chat/completions", "{\"max_tokens\":0}", 0},
        {"/v1/chat/completions", "{\"max_tokens\":-1}", -1},
        {"/v1/chat/completions", "{\"max_tokens\":1.5}", -1},
        {"/v1/chat/completions", "{\"max_tokens\":null}", -1},
        {"/v1/chat/completions", "{\"max_tokens\":\"100\"}", -1},
        {"/v1/chat/completions", "{\"max_tokens\":18446744073709551615}", INT64_C(1) << 40},
        {"/v1/chat/completions", "{\"max_tokens\":99999999999999999999}", -1},
        {"/v1/chat/completions", "{\"metadata\":{\"max_tokens\":5}}", -1},
        {"/v1/responses", "{\"max_output_tokens\":64}", 64},
        {"/v1/messages", "{\"max_tokens\":1024}", 1024},
        {"/v1beta/models/g:generateContent",
         "{\"generationConfig\":{\"maxOutputTokens\":5,\"candidateCount\":2}}", 10},
        {"/api/v1/services/aigc/text-generation/generation", "{\"parameters\":{\"max_tokens\":9}}",
         9},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        int64_t bound = read_at(rows[i].path, rows[i].body)->max_output;

        if (bound != rows[i].expected)
            print_error("%s: %lld\n", rows[i].body, (long long)bound);
        assert_int_equal(bound, rows[i].expected);
    }
}

/* "|" marks the place, "<...>" what is to be replaced. */
static void F6_where_usage_can_be_asked_for(void **state)
{
    static const struct {
        const char *marked;
        enum usage_place expected;
    } rows[] = {
        {"{|\"stream\":true}", USAGE_BODY},
        {" \n{| \"stream\" : true}", USAGE_BODY},
        {"\xEF\xBB\xBF{|\"stream\":true}", USAGE_BODY},
        {"{|\"x\":{\"stream_options\":{}},\"stream\":true}", USAGE_BODY},
        {"{\"stream\":true,\"stream_options\":{|}}", USAGE_EMPTY},
        {"{\"stream\":true,\"stream_options\":{| \n}}", USAGE_EMPTY},
        {"{\"stream_options\":{|\"x\":1},\"stream\":true}", USAGE_OPTIONS},
        {"{\"stream_options\":{|\"\":[]},\"stream\":true}", USAGE_OPTIONS},
        {"{\"stream_options\":{|\"x\":{\"include_usage\":true}},\"stream\":true}", USAGE_OPTIONS},
        {"{\"stream_options\":<null>,\"stream\":true}", USAGE_NULL},
        {"{\"stream_options\":{\"include_usage\":<false>},\"stream\":true}", USAGE_VALUE},
        {"{\"stream_options\":{\"include_usage\": <null> },\"stream\":true}", USAGE_VALUE},
        {"{\"stream_options\":{\"include_usage\":true},\"stream\":true}", USAGE_ASKED},
        /* nothing to be edited */
        {"{}", USAGE_UNFIT},
        {"{\"stream\":false}", USAGE_UNFIT},
        {"{\"stream\":null}", USAGE_UNFIT},
        {"{\"stream\":true", USAGE_UNFIT},
        {"{\"stream\":true}x", USAGE_UNFIT},
        {"[{\"stream\":true}]", USAGE_UNFIT},
        {"{\"stream\":true,\"stream\":true}", USAGE_UNFIT},
        {"{\"stream\":false,\"stream\":true}", USAGE_UNFIT},
        {"{\"stream\":true,\"stream_options\":{},\"stream_options\":{}}", USAGE_UNFIT},
        {"{\"stream\":true,\"stream_options\":null,\"stream_options\":{}}", USAGE_UNFIT},
        {"{\"stream\":true,\"stream_options\":{\"include_usage\":false,\"include_usage\":false}}",
         USAGE_UNFIT},
        {"{\"stream\":true,\"stream_options\":[]}", USAGE_UNFIT},
        {"{\"stream\":true,\"stream_options\":[{\"include_usage\":true}]}", USAGE_UNFIT},
        {"{\"stream\":true,\"stream_options\":true}", USAGE_UNFIT},
        {"{\"stream\":true,\"stream_options\":{\"include_usage\":\"no\"}}", USAGE_UNFIT},
        {"{\"stream\":true,\"stream_options\":{\"include_usage\":{}}}", USAGE_UNFIT},
        {"{\"stream\":true,\"stream_options\":{\"include_usage\":0}}", USAGE_UNFIT},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        char body[200];
        size_t length = 0;
        int64_t from = -1, end = -1;

        for (const char *at = rows[i].marked; *at; at++) {
            if (*at == '|' || *at == '<')
                from = end = (int64_t)length;
            else if (*at == '>')
                end = (int64_t)length;
            else
                body[length++] = *at;
        }
        body[length] = '\0';
        const struct intent *intent = read_at("/v1/chat/completions", body);

        if (intent->usage != rows[i].expected)
            print_error("%s: %d\n", body, (int)intent->usage);
        assert_int_equal(intent->usage, rows[i].expected);
        if (from >= 0) {
            assert_int_equal(intent->usage_at, from);
            assert_int_equal(intent->usage_bytes, end - from);
        }
    }
}

static void F6_chat_completions_only(void **state)
{
    static const char *const others[] = {"/v1/responses", "/v1/messages", "/v1/completions",
                                         "/v1/other"};

    (void)state;
    for (size_t i = 0; i < LENGTH(others); i++)
        assert_int_equal(read_at(others[i], "{\"stream\":true}")->usage, USAGE_UNFIT);
}

static void F11_how_much_it_asks_for(void **state)
{
    static const struct {
        const char *path, *body;
        int64_t choices, seconds;
    } rows[] = {
        {"/v1/images/generations", "{}", 1, -1},
        {"/v1/images/generations", "{\"prompt\":\"a cat\",\"n\":4}", 4, -1},
        {"/v1/images/generations", "{\"n\":0}", 1, -1},
        {"/v1/images/generations", "{\"n\":-3}", 1, -1},
        {"/v1/images/generations", "{\"n\":\"x\"}", 1, -1},
        {"/v1/images/generations", "{\"n\":100000}", 1024, -1},
        {"/v1/images/generations", "{\"metadata\":{\"n\":5,\"seconds\":5}}", 1, -1},
        {"/api/v1/services/aigc/text2image/image-synthesis",
         "{\"input\":{\"prompt\":\"x\",\"n\":9},\"parameters\":{\"n\":3}}", 3, -1},
        {"/v1beta/models/imagen-4:predict", "{\"parameters\":{\"sampleCount\":2}}", 2, -1},
        {"/v1beta/models/veo-3:predictLongRunning", "{\"parameters\":{\"durationSeconds\":8}}", 1,
         8},
        {"/api/v1/services/aigc/video-generation/video-synthesis",
         "{\"parameters\":{\"duration\":5}}", 1, 5},
        {"/v1/videos", "{\"seconds\":\"12\"}", 1, 12},
        {"/v1/videos", "{\"seconds\":4.5}", 1, 5},
        {"/v1/videos", "{\"seconds\":\"long\"}", 1, -1},
        {"/v1/videos", "{\"seconds\":0}", 1, -1},
        {"/v1/videos", "{\"seconds\":1e9}", 1, -1},
        {"/v1/videos", "{\"duration\":99999999999}", 1, 86400},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        const struct intent *intent = read_at(rows[i].path, rows[i].body);

        assert_int_equal(intent->choices, rows[i].choices);
        assert_int_equal(intent->seconds, rows[i].seconds);
    }
}

static void F11_forms_ask_too(void **state)
{
    static const char form[] =
        "--b\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n3\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"seconds\"\r\n\r\n8\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"n\"\r\n\r\n7\r\n--b--"
        "\r\n";
    static const char *const no_models[] = {NULL};
    const struct intent_request request = {.method = "POST",
                                           .path = "/v1/images/edits",
                                           .content_type = "multipart/form-data; boundary=b",
                                           .image_models = no_models};

    (void)state;
    memset(&reader, 0xA5, sizeof reader);
    intent_begin(&reader, &request);
    intent_feed(&reader, form, sizeof form - 1);
    intent_end(&reader);
    assert_int_equal(reader.intent.choices, 3);
    assert_int_equal(reader.intent.seconds, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F4_the_bound_of_the_answer),
        cmocka_unit_test(F11_how_much_it_asks_for),
        cmocka_unit_test(F11_forms_ask_too),
        cmocka_unit_test(F6_where_usage_can_be_asked_for),
        cmocka_unit_test(F6_chat_completions_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
