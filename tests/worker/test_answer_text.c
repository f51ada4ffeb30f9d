/*
 * test_answer_text.c - tokens of what the model wrote, as an answer goes by (F6): the same text counts
 * the same whatever family brings it, however it is cut, and nothing else counts. Through the reader of
 * answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "worker/pictures.h"

#include <stdio.h>
#include <string.h>

#define SSE "text/event-stream"
#define JSON "application/json"
#define DATA(data) "data: " data "\n\n"
#define DELTA(delta) DATA("{\"id\":\"chat\",\"choices\":[{\"index\":0,\"delta\":" delta "}]}")
#define NIHAO "\xE4\xBD\xA0\xE5\xA5\xBD"

static struct pictures pictures;

static int64_t parts_of(enum endpoint endpoint, const char *type, const char *body, bool several)
{
    size_t length = strlen(body);
    int64_t parts = -1, script;

    for (size_t piece = 1; piece < length + 7; piece += 1 + piece / 2) {
        memset(&pictures, 0xA5, sizeof pictures);
        pictures_begin(&pictures, endpoint, type, NULL);
        pictures_count_text(&pictures, several);
        for (size_t at = 0; at < length; at += piece)
            pictures_feed(&pictures, body + at, length - at < piece ? length - at : piece);
        pictures_end(&pictures);
        assert_true(parts < 0 || answer_text_parts(&pictures.text, &script) == parts);
        parts = answer_text_parts(&pictures.text, &script);
        assert_true(script >= 0 && script <= parts);
    }
    return parts;
}

/* What one text is worth. */
static int64_t worth(const char *text)
{
    struct token_count count = {0};

    token_count_add(&count, text, strlen(text));
    return token_count_parts(&count);
}

static const struct {
    enum endpoint endpoint;
    const char *type, *body;
} families[] = {
    {ENDPOINT_CHAT, SSE,
     DELTA("{\"role\":\"assistant\",\"content\":\"\"}") DELTA("{\"content\":\"Hello, wor\"}")
         DELTA("{\"content\":\"ld out there\"}") DELTA("{}") DATA("[DONE]")},
    {ENDPOINT_CHAT, SSE, DELTA("{\"reasoning_content\":\"Hello, world out there\"}")},
    {ENDPOINT_CHAT, SSE,
     DELTA("{\"reasoning\":\"Hello, world out there\",\"reasoning_details\":[{\"text\":\"Hello, "
           "world out there\"}]}")},
    {ENDPOINT_CHAT, SSE,
     DELTA("{\"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\"type\":\"function\","
           "\"function\":{\"arguments\":\"Hello, world\"}}]}")
         DELTA("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\" out there\"}}]}")},
    {ENDPOINT_CHAT, SSE,
     DELTA("{\"content\":[{\"type\":\"text\",\"text\":\"Hello, world out "
           "there\"}]}")},
    {ENDPOINT_COMPLETIONS, SSE,
     DATA("{\"choices\":[{\"text\":\"Hello, world\",\"logprobs\":null}]}")
         DATA("{\"choices\":[{\"text\":\" out there\"}]}")},
    {ENDPOINT_RESPONSES, SSE,
     DATA("{\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"instructions\":\"Be "
          "brief\",\"output\":[]}}")
         DATA("{\"type\":\"response.output_text.delta\",\"item_id\":\"m\",\"delta\":\"Hello, "
              "world\",\"obfuscation\":\"abcdef\"}")
             DATA("{\"type\":\"response.output_text.delta\",\"delta\":\" out there\"}") DATA(
                 "{\"type\":\"response.output_text.done\",\"text\":\"Hello, world out "
                 "there\"}") DATA("{\"type\":\"response.completed\",\"response\":{\"output\":[{"
                                  "\"content\":[{\"text\":\"Hello, world out there\"}]}]}}")},
    {ENDPOINT_MESSAGES, SSE,
     DATA("{\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[]}}")
         DATA("{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":"
              "\"Hello, world\"}}")
             DATA("{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\","
                  "\"text\":\" out there\"}}")
                 DATA("{\"type\":\"content_block_delta\",\"delta\":{\"type\":"
                      "\"signature_delta\",\"signature\":\"c2lnbmF0dXJl\"}}")
                     DATA("{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}"
                          "}")},
    {ENDPOINT_MESSAGES, SSE,
     DATA("{\"type\":\"content_block_delta\",\"delta\":{\"type\":\"input_json_delta\","
          "\"partial_json\":\"Hello, world out there\"}}")},
    {ENDPOINT_GEMINI, SSE,
     DATA("{\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"Hello, "
          "world\"}]}}],\"modelVersion\":\"g\"}")
         DATA("{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\" out there\"}]},"
              "\"finishReason\":\"STOP\"}]}")},
    {ENDPOINT_CHAT, JSON,
     "{\"id\":\"c\",\"model\":\"gpt\",\"choices\":[{\"message\":{\"role\":\"assistant\","
     "\"content\":\"Hello, world out there\"},\"finish_reason\":\"stop\"}]}"},
    {ENDPOINT_RESPONSES, JSON,
     "{\"id\":\"r\",\"instructions\":\"Be "
     "brief\",\"output\":[{\"type\":\"message\",\"content\":[{"
     "\"type\":\"output_text\",\"text\":\"Hello, world out there\"}]}]}"},
    {ENDPOINT_MESSAGES, JSON,
     "{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"Hello, world out "
     "there\"}]}"},
    {ENDPOINT_DASHSCOPE, JSON,
     "{\"output\":{\"choices\":[{\"message\":{\"content\":\"Hello, world out there\"}}]}}"},
};

static void F6_every_family_tells_its_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(families); i++) {
        int64_t parts = parts_of(families[i].endpoint, families[i].type, families[i].body, false);

        if (parts != worth("Hello, world out there"))
            fail_msg("row %zu: %lld", i, (long long)parts);
    }
}

static void F6_nothing_else_counts(void **state)
{
    static const struct {
        enum endpoint endpoint;
        const char *type, *body;
    } rows[] = {
        {ENDPOINT_CHAT, SSE, DELTA("{\"role\":\"assistant\"}") ": a comment\n\n" DATA("[DONE]")},
        {ENDPOINT_CHAT, SSE, DELTA("{\"audio\":{\"id\":\"a\",\"data\":\"UklGRgAAAABXQVZF\"}}")},
        {ENDPOINT_CHAT, SSE,
         DELTA("{\"images\":[{\"image_url\":{\"url\":\"data:image/png;base64,AAAA\"}}]}")},
        {ENDPOINT_CHAT, SSE, DATA("{\"error\":{\"message\":\"the engine is overloaded\"}}")},
        {ENDPOINT_CHAT, SSE,
         DATA("{\"choices\":[{\"logprobs\":{\"content\":[{\"token\":\"Hi\"}]}}]}")},
        {ENDPOINT_RESPONSES, SSE,
         DATA("{\"type\":\"response.output_audio.delta\",\"delta\":\"UklGRgAAAABXQVZF\"}")},
        {ENDPOINT_RESPONSES, SSE,
         DATA("{\"type\":\"response.image_generation_call.partial_image\",\"partial_image_b64\":"
              "\"AAAA\"}")},
        {ENDPOINT_GEMINI, SSE,
         DATA("{\"candidates\":[{\"content\":{\"parts\":[{\"inlineData\":{\"mimeType\":\"image/"
              "png\","
              "\"data\":\"AAAA\"}}]}}]}")},
        {ENDPOINT_DASHSCOPE, SSE,
         DATA("{\"output\":{\"choices\":[{\"message\":{\"content\":\"so far\"}}]}}")},
        {ENDPOINT_CHAT, JSON, "{\"model\":\"a name\",\"error\":{\"message\":\"no such model\"}}"},
        {ENDPOINT_CHAT, JSON, "[\"text\",{\"other\":{\"content\":\"x\"}}]"},
        {ENDPOINT_CHAT, SSE, DATA("no JSON at all")},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        int64_t parts = parts_of(rows[i].endpoint, rows[i].type, rows[i].body, false);

        if (parts != 0)
            fail_msg("row %zu: %lld", i, (long long)parts);
    }
}

/* A word that comes in pieces is one; of two choices by turns each piece stands for itself. */
static void F6_choices_by_turns_share_no_words(void **state)
{
    static const char body[] = DELTA("{\"content\":\"under\"}") DELTA("{\"content\":\"stand\"}")
        DELTA("{\"content\":\"ing\"}");

    (void)state;
    assert_int_equal(parts_of(ENDPOINT_CHAT, SSE, body, false), worth("understanding"));
    assert_int_equal(parts_of(ENDPOINT_CHAT, SSE, body, true),
                     worth("under") + worth("stand") + worth("ing"));
}

static void F6_thoughts_names_and_arguments_count_each(void **state)
{
    static const char chat[] =
        DELTA("{\"reasoning_content\":\"think\"}") DELTA("{\"content\":\"say\"}")
            DELTA("{\"tool_calls\":[{\"function\":{\"name\":\"get_weather\","
                  "\"arguments\":\"{}\"}}]}");
    static const char gemini[] = DATA(
        "{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"get_weather\","
        "\"args\":{\"city\":\"Ulm\",\"list\":[\"a\"]}}}]}}]}");
    static const char claude[] = "{\"content\":[{\"type\":\"tool_use\",\"name\":\"get_weather\","
                                 "\"input\":{\"city\":\"Ulm\"}}]}";

    (void)state;
    assert_int_equal(parts_of(ENDPOINT_CHAT, SSE, chat, false),
                     worth("think") + worth("say") + worth("get_weather") + worth("{}"));
    assert_true(parts_of(ENDPOINT_GEMINI, SSE, gemini, false) >=
                worth("get_weather") + worth("Ulm"));
    assert_int_equal(parts_of(ENDPOINT_MESSAGES, JSON, claude, false),
                     worth("get_weather") + worth("Ulm"));
}

static void F6_scripts_are_told_apart(void **state)
{
    int64_t script;

    (void)state;
    assert_int_equal(parts_of(ENDPOINT_CHAT, SSE, DELTA("{\"content\":\"say " NIHAO "\"}"), false),
                     worth("say " NIHAO));
    (void)answer_text_parts(&pictures.text, &script);
    assert_int_equal(script, worth(NIHAO));
    assert_int_equal(parts_of(ENDPOINT_CHAT, SSE, DELTA("{\"content\":\"\\u4f60\\u597d\"}"), false),
                     worth(NIHAO));
}

/* Who does not ask pays nothing, and what was asked before is over. */
static void only_where_it_is_asked_for(void **state)
{
    static const char body[] = DELTA("{\"content\":\"Hello\"}");

    (void)state;
    (void)parts_of(ENDPOINT_CHAT, SSE, body, false);
    pictures_begin(&pictures, ENDPOINT_CHAT, SSE, NULL);
    assert_false(pictures.counts_text);
    pictures.text = (struct answer_text){.shape = ANSWER_STREAM_OF_ONE};
    pictures_feed(&pictures, body, sizeof body - 1);
    int64_t script;

    assert_int_equal(answer_text_parts(&pictures.text, &script), 0);
    assert_true(pictures.delivered.content_seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F6_every_family_tells_its_text),
        cmocka_unit_test(F6_nothing_else_counts),
        cmocka_unit_test(F6_choices_by_turns_share_no_words),
        cmocka_unit_test(F6_thoughts_names_and_arguments_count_each),
        cmocka_unit_test(F6_scripts_are_told_apart),
        cmocka_unit_test(only_where_it_is_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
