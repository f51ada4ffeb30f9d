/* test_endpoint.c - paths, prefixes and methods; what they mean for intent is test_intent.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "worker/endpoint.h"

#include <string.h>

static const struct {
    const char *method, *path, *name;
    enum endpoint endpoint;
    const char *model;
} cases[] = {
    {"POST", "/v1/chat/completions", "chat/completions", ENDPOINT_CHAT, ""},
    {"POST", "chat/completions", "chat/completions", ENDPOINT_CHAT, ""},
    {"POST", "/v1/chat/completions/", "chat/completions", ENDPOINT_CHAT, ""},
    {"POST", "/v1/chat/completions//", "other", ENDPOINT_OTHER, ""},
    {"POST", "/v1/xchat/completions", "completions", ENDPOINT_COMPLETIONS, ""},
    {"POST", "/v1/chat/completionsx", "other", ENDPOINT_OTHER, ""},
    {"POST", "/v1beta/openai/chat/completions", "chat/completions", ENDPOINT_CHAT, ""},
    {"post", "/v1/responses", "other", ENDPOINT_OTHER, ""},
    {"POST", "/v1/responses/resp_1/cancel", "responses/{id}/cancel", ENDPOINT_OTHER, ""},
    {"POST", "/v1/responses//cancel", "other", ENDPOINT_OTHER, ""},
    {"GET", "/v1/responses/resp_1", "responses/{id}", ENDPOINT_OTHER, ""},
    {"POST", "/api/v1/images", "images", ENDPOINT_IMAGES, ""},
    {"POST", "/images", "images", ENDPOINT_IMAGES, ""},
    {"POST", "/x/images", "other", ENDPOINT_OTHER, ""},
    {"POST", "/openai/deployments/d1/chat/completions", "chat/completions", ENDPOINT_CHAT, "d1"},
    {"POST", "/openai/deployments//chat/completions", "chat/completions", ENDPOINT_CHAT, ""},
    {"POST", "/v1beta/models/gemini-3:generateContent", "generateContent", ENDPOINT_GEMINI,
     "gemini-3"},
    {"POST", "/v1beta/tunedModels/a:b:predict", "predict", ENDPOINT_GEMINI, "a:b"},
    {"POST", "/v1beta/models/gemini-3:generatecontent", "other", ENDPOINT_OTHER, ""},
    {"POST", "/v1beta/models/x:generateContent/y", "other", ENDPOINT_OTHER, ""},
    {"POST", "/api/v1/services/aigc/text2image/image-synthesis", "text2image/image-synthesis",
     ENDPOINT_DASHSCOPE, ""},
    {"POST", "/api/v1/services/aigc/new-thing/do", "new-thing/do", ENDPOINT_DASHSCOPE, ""},
    {"POST", "", "other", ENDPOINT_OTHER, ""},
    {"POST", "/", "other", ENDPOINT_OTHER, ""},
    {"POST", "//", "other", ENDPOINT_OTHER, ""},
    {"POST", ":", "other", ENDPOINT_OTHER, ""},
};

static void G1_paths_by_their_last_segments(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct endpoint_match match;

        endpoint_match(&match, cases[i].method, cases[i].path);
        if (match.endpoint != cases[i].endpoint || strcmp(match.name, cases[i].name) != 0)
            fail_msg("%s %s is %s, family %d", cases[i].method, cases[i].path, match.name,
                     (int)match.endpoint);
        assert_int_equal(match.model_length, strlen(cases[i].model));
        assert_memory_equal(match.model, cases[i].model, match.model_length);
    }
}

static void long_names_are_cut(void **state)
{
    char path[300] = "/services/aigc/";
    struct endpoint_match match;

    (void)state;
    memset(path + 15, 'x', 100);
    strcpy(path + 115, "/y");
    endpoint_match(&match, "POST", path);
    assert_int_equal(match.endpoint, ENDPOINT_DASHSCOPE);
    assert_int_equal(strlen(match.name), ENDPOINT_NAME_SIZE - 1);
}

static void kinds_have_the_ledgers_names(void **state)
{
    (void)state;
    assert_string_equal(call_kind_name(CALL_CHAT), "chat");
    assert_string_equal(call_kind_name(CALL_RESPONSES), "responses");
    assert_string_equal(call_kind_name(CALL_EMBEDDING), "embedding");
    assert_string_equal(call_kind_name(CALL_IMAGE), "image");
    assert_string_equal(call_kind_name(CALL_OCR), "ocr");
    assert_string_equal(call_kind_name(CALL_OTHER), "other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(G1_paths_by_their_last_segments),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(kinds_have_the_ledgers_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
