/*
 * test_estimate.c - input tokens estimated while a body comes in (F6), against what a real tokenizer
 * counted: tests/worker/estimate_corpus.json, kept true by tests/front/estimate.mjs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/text.h"
#include "shared/calibration.h"
#include "worker/intent.h"

#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CORPUS "tests/worker/estimate_corpus.json"
#define CORPUS_MAX 1024
#define YOUNG 50 /* calls per model, before its errors count (B5) */

static const char *const image_models[] = {"gpt-image-*", NULL};

struct sample {
    const char *kind, *path, *body;
    int64_t tokens;
    struct token_estimate estimate;
};

static struct json_object *corpus;
static struct sample samples[CORPUS_MAX];
static size_t sample_count;

static void read_pieces(struct intent_reader *reader, const struct intent_request *request,
                        const char *body, size_t piece)
{
    size_t length = strlen(body);

    memset(reader, 0xA5, sizeof *reader);
    intent_begin(reader, request);
    for (size_t at = 0; at < length; at += piece)
        intent_feed(reader, body + at, length - at < piece ? length - at : piece);
    intent_end(reader);
}

static struct token_estimate both_of(const char *path, const char *body, size_t piece)
{
    static struct intent_reader reader;
    const struct intent_request request = {.method = "POST",
                                           .path = path,
                                           .content_type = "application/json",
                                           .image_models = image_models};

    read_pieces(&reader, &request, body, piece);
    return (struct token_estimate){.tokens = reader.intent.est_input,
                                   .script = reader.intent.est_script};
}

static int64_t estimate(const char *path, const char *body, size_t piece)
{
    return both_of(path, body, piece).tokens;
}

static int64_t chat(const char *body)
{
    int64_t tokens = estimate("/v1/chat/completions", body, 100000);

    assert_int_equal(estimate("/v1/chat/completions", body, 1), tokens);
    assert_int_equal(estimate("/v1/chat/completions", body, 5), tokens);
    return tokens;
}

/* ---- the corpus ------------------------------------------------------------------------------ */

static int load_corpus(void **state)
{
    (void)state;
    corpus = json_object_from_file(CORPUS);
    if (!corpus)
        return -1;
    sample_count = json_object_array_length(corpus);
    if (sample_count > CORPUS_MAX)
        return -1;
    for (size_t i = 0; i < sample_count; i++) {
        struct json_object *row = json_object_array_get_idx(corpus, i);
        struct sample *sample = &samples[i];

        sample->kind = json_object_get_string(json_object_object_get(row, "kind"));
        sample->path = json_object_get_string(json_object_object_get(row, "path"));
        sample->body = json_object_get_string(json_object_object_get(row, "body"));
        sample->tokens = json_object_get_int64(json_object_object_get(row, "tokens"));
        sample->estimate = both_of(sample->path, sample->body, 4096);
    }
    return 0;
}

static int free_corpus(void **state)
{
    (void)state;
    json_object_put(corpus);
    return 0;
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

/* The error at this share of the errors, sorted here. */
static double error_at(double *errors, size_t count, double share)
{
    qsort(errors, count, sizeof *errors, by_size);
    return errors[(size_t)((double)(count - 1) * share)];
}

static double error_of(int64_t predicted, double used)
{
    return fabs((double)predicted / used - 1);
}

/* So many times as many tokens as the tokenizer of the corpus gives. */
struct tokenizer {
    double latin, script;
};

static double used_by(const struct sample *sample, const struct tokenizer *tokenizer)
{
    double script = (double)sample->estimate.script;

    return ((double)sample->tokens - script) * tokenizer->latin + script * tokenizer->script;
}

/* B5, for upstreams with other tokenizers. The corpus comes in any order, several times over; kind: only
 * those, NULL = all mixed. */
static void assert_learns(const char *kind, const struct tokenizer *tokenizer)
{
    static double errors[8 * CORPUS_MAX];
    struct estimate_row row = {0};
    size_t count = 0, calls = 0;

    for (int round = 0; round < 8; round++)
        for (size_t i = 0; i < sample_count; i++) {
            const struct sample *sample = &samples[(size_t)rand() % sample_count];

            if (kind && strcmp(kind, sample->kind) != 0)
                continue;
            double used = used_by(sample, tokenizer);

            if (calls++ >= YOUNG)
                errors[count++] =
                    error_of(calibration_tokens(calibration_ratios(&row), &sample->estimate), used);
            calibration_learn(&row, &sample->estimate, (int64_t)used, 0);
        }
    assert_true(count > 100);
    double median = error_at(errors, count, 0.5), p95 = error_at(errors, count, 0.95);

    print_message("%s, times %.1f, %.1f: %zu calls, median %.1f %%, p95 %.1f %%\n",
                  kind ? kind : "mixed", tokenizer->latin, tokenizer->script, count, 100 * median,
                  100 * p95);
    assert_true(median <= 0.10);
    assert_true(p95 <= 0.30);
}

static void B5_after_fifty_calls(void **state)
{
    static const char *const kinds[] = {"english", "chinese", "code", "tools", NULL};
    static const struct tokenizer tokenizers[] = {{1, 1},   {0.6, 0.6}, {1.7, 1.7}, {1, 1.6},
                                                  {1, 0.8}, {1.2, 0.7}, {0.8, 1.9}, {1.9, 0.8}};

    (void)state;
    srand(5);
    for (size_t i = 0; i < LENGTH(kinds); i++)
        for (size_t k = 0; k < LENGTH(tokenizers); k++)
            assert_learns(kinds[i], &tokenizers[k]);
}

/* Also before anything was learned. */
static void F6_uncalibrated(void **state)
{
    static const char *const kinds[] = {"english", "chinese", "code", "tools"};

    (void)state;
    for (size_t k = 0; k < LENGTH(kinds); k++) {
        double errors[CORPUS_MAX];
        size_t count = 0;

        for (size_t i = 0; i < sample_count; i++)
            if (strcmp(samples[i].kind, kinds[k]) == 0)
                errors[count++] = error_of(samples[i].estimate.tokens, (double)samples[i].tokens);
        double median = error_at(errors, count, 0.5), p95 = error_at(errors, count, 0.95);

        print_message("%s: %zu calls, median %.1f %%, p95 %.1f %%\n", kinds[k], count, 100 * median,
                      100 * p95);
        assert_true(count >= 40);
        assert_true(median <= 0.12);
        assert_true(p95 <= 0.30);
    }
}

static void assert_same(struct token_estimate a, struct token_estimate b)
{
    assert_int_equal(a.tokens, b.tokens);
    assert_int_equal(a.script, b.script);
}

static void F6_however_the_body_is_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sample_count; i += 7)
        for (size_t piece = 1; piece < 3000; piece = piece * 3 + 1)
            assert_same(both_of(samples[i].path, samples[i].body, piece), samples[i].estimate);
}

/* As Python writes it: "\u4e2d". */
static void F6_escapes_are_characters(void **state)
{
    (void)state;
    for (size_t i = 0; i < sample_count; i += 5) {
        struct text body;
        const unsigned char *at = (const unsigned char *)samples[i].body;

        text_init(&body, 1 << 20);
        while (*at) {
            if (*at < 0xE0 || *at >= 0xF0) {
                text_append_char(&body, (char)*at++);
            } else {
                text_printf(&body, "\\u%04x",
                            (at[0] & 0xFU) << 12 | (at[1] & 0x3FU) << 6 | (at[2] & 0x3FU));
                at += 3;
            }
        }
        assert_false(body.overflowed);
        assert_same(both_of(samples[i].path, text_string(&body), 100), samples[i].estimate);
        text_release(&body);
    }
}

/* ---- what counts ----------------------------------------------------------------------------- */

#define MESSAGES(content)                                                                          \
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":" content "}]}"

static void F6_what_is_no_input_costs_nothing(void **state)
{
    int64_t plain;

    (void)state;
    assert_int_equal(chat("{}"), 0);
    assert_int_equal(chat("{\"model\":\"a model with a very long name\",\"user\":\"u\"}"), 0);
    assert_int_equal(chat("not JSON"), 0);
    assert_int_equal(chat("[\"a\",{\"messages\":\"x\"}]"), 0);
    plain = chat(MESSAGES("\"Hello there\""));
    assert_in_range(plain, 8, 12);
    assert_int_equal(
        chat("{\"metadata\":{\"messages\":\"none of it is for the model\"},\"messages\":"
             "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
             "\"Hello there\"}]}],\"stop\":[\"a\",\"b\"],\"temperature\":0.5}"),
        plain);
    assert_int_equal(chat("{\"messages\":[{\"content\":\"Hello there\",\"role\":\"user\","
                          "\"tool_call_id\":\"call_abcdefghijklmnopqrstuvwxyz\"}]}"),
                     plain);
}

static void F6_messages_and_calls_cost_something_each(void **state)
{
    int64_t one = chat(MESSAGES("\"Hi\""));
    int64_t two = chat("{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":"
                       "\"assistant\",\"content\":\"Hi\"}]}");

    (void)state;
    assert_int_equal(two - one, 5);
    assert_int_equal(estimate("/v1/responses", "{\"input\":\"Hi\"}", 100), one);
    assert_int_equal(
        estimate("/v1/responses", "{\"input\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", 3), one);
    /* Tokens instead of texts. */
    assert_int_equal(estimate("/v1/embeddings", "{\"input\":[1,2,3,4,5]}", 3), 5 + 3);
    assert_true(
        chat("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"x\",\"function\":"
             "{\"name\":\"f\",\"arguments\":\"{}\"}}]}]}") > 10);
}

static void F6_tools_cost_their_json(void **state)
{
    int64_t without = chat(MESSAGES("\"Hi\""));
    int64_t with =
        chat("{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"tools\":[{\"type\":"
             "\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":"
             "\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":80}}}}"
             "}]}");

    (void)state;
    assert_in_range(with - without, 35, 60);
}

static int64_t with_picture(const char *url, const char *detail)
{
    struct text body;
    int64_t tokens;

    text_init(&body, 1 << 22);
    text_append_string(&body,
                       "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
                       "\"image_url\":{\"url\":\"");
    text_append_string(&body, url);
    text_append_string(&body, "\"");
    text_append_string(&body, detail);
    text_append_string(&body, "}}]}]}");
    tokens = estimate("/v1/chat/completions", text_string(&body), 65536);
    assert_int_equal(estimate("/v1/chat/completions", text_string(&body), 1000), tokens);
    text_release(&body);
    return tokens;
}

static void F6_pictures_cost_their_own(void **state)
{
    static char base64[1000001];
    char url[64 + sizeof base64];

    (void)state;
    memset(base64, 'Q', sizeof base64 - 1);
    snprintf(url, sizeof url, "data:image/png;base64,%s", base64);
    int64_t one = ESTIMATE_PICTURE_TOKENS + 7;

    assert_int_equal(with_picture(url, ""), one);
    assert_int_equal(with_picture("https://example.com/a/long/path/to/some/picture.png", ""), one);
    assert_int_equal(with_picture(url, ",\"detail\":\"high\""), one);
    assert_int_equal(with_picture(url, ",\"detail\":\"low\""), ESTIMATE_PICTURE_LOW_TOKENS + 7);
    assert_int_equal(
        estimate(
            "/v1/responses",
            "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":"
            "\"data:image/png;base64,QUJD\",\"detail\":\"auto\"}]}]}",
            10),
        one);
    assert_int_equal(estimate("/v1beta/models/gemini-x:generateContent",
                              "{\"contents\":[{\"role\":\"user\",\"parts\":[{\"inline_data\":{"
                              "\"mime_type\":\"image/png\",\"data\":\"QUJD\"}}]}]}",
                              10),
                     one);
    assert_int_equal(
        estimate("/v1/messages",
                 "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\","
                 "\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":"
                 "\"QUJD\"}}]}]}",
                 10),
        one);
    /* More "low" than pictures gives nothing back. */
    assert_true(chat(MESSAGES("[{\"detail\":\"low\"},{\"detail\":\"low\"},{\"text\":\"a\"}]")) > 4);
}

static void F6_base64_is_no_text_wherever_it_stands(void **state)
{
    static char base64[200001];
    struct text body;

    (void)state;
    for (size_t i = 0; i + 1 < sizeof base64; i++)
        base64[i] = "ABCDwxyz0189+/"[(i * 7 + i / 13) % 14];
    for (int url = 0; url < 2; url++) {
        text_init(&body, 1 << 20);
        text_printf(&body,
                    "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
                    "\"%s",
                    url ? "data:image/svg+xml;base64," : "");
        text_append(&body, base64, url ? 100 : sizeof base64 - 1);
        text_append_string(&body, "\"},{\"type\":\"text\",\"text\":\"Hi\"}]}]}");
        assert_int_equal(chat(text_string(&body)), chat(MESSAGES("\"Hi\"")));
        text_release(&body);
    }
    /* A text that begins like it is one. */
    assert_true(chat(MESSAGES("\"data: 1, 2, 3 and so on\"")) > chat(MESSAGES("\"and so on\"")));
    assert_true(chat(MESSAGES("\"data:a text, with a comma\"")) > chat(MESSAGES("\"a comma\"")));
}

static void F6_sound_costs_by_its_length(void **state)
{
    static char body[2000000];
    size_t begin =
        (size_t)snprintf(body, sizeof body,
                         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                         "\"input_audio\",\"input_audio\":{\"format\":\"mp3\",\"data\":\"");

    (void)state;
    memset(body + begin, 'Q', 640000); /* 480,000 bytes, 30 s */
    strcpy(body + begin + 640000, "\"}}]}]}");
    assert_int_equal(estimate("/v1/chat/completions", body, 65536), 307);
    assert_int_equal(estimate("/v1/chat/completions", body, 1001), 307);
}

static void F6_forms(void **state)
{
    static const char form[] =
        "--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nA watercolour of a fox in "
        "the "
        "snow, looking at the viewer; soft light\r\n--b\r\nContent-Disposition: form-data; "
        "name=\"image[]\"; filename=\"a.png\"\r\n\r\nPNG\r\n--b\r\nContent-Disposition: form-data; "
        "name=\"mask\"; filename=\"m.png\"\r\n\r\nPNG\r\n--b\r\nContent-Disposition: form-data; "
        "name=\"size\"\r\n\r\n1024x1024 and nothing else matters\r\n--b--\r\n";
    const struct intent_request request = {.method = "POST",
                                           .path = "/v1/images/edits",
                                           .content_type = "multipart/form-data; boundary=b",
                                           .image_models = image_models};
    static struct intent_reader reader;
    int64_t first = -1;

    (void)state;
    for (size_t piece = 1; piece < 1000; piece = piece * 2 + 1) {
        read_pieces(&reader, &request, form, piece);
        if (first < 0)
            first = reader.intent.est_input;
        assert_int_equal(reader.intent.est_input, first);
    }
    assert_in_range(first, 2 * ESTIMATE_PICTURE_TOKENS + 14, 2 * ESTIMATE_PICTURE_TOKENS + 24);
}

static void F6_not_where_nobody_asks(void **state)
{
    static const char *const types[] = {"application/json", "multipart/form-data; boundary=b"};
    static struct intent_reader reader;

    (void)state;
    for (size_t i = 0; i < LENGTH(types); i++) {
        const struct intent_request request = {.method = "POST",
                                               .path = i ? "/v1/images/edits" : "/v1/responses",
                                               .content_type = types[i],
                                               .image_models = image_models,
                                               .skip_estimate = true};

        read_pieces(&reader, &request, "{\"input\":\"some text\"}", 3);
        assert_int_equal(reader.intent.est_input, -1);
    }
}

static void F6_what_nobody_can_read(void **state)
{
    static struct intent_reader reader;
    const struct intent_request request = {.method = "POST",
                                           .path = "/v1/chat/completions",
                                           .content_type = "application/json",
                                           .content_encoding = "gzip",
                                           .image_models = image_models};

    (void)state;
    read_pieces(&reader, &request, "0123456789", 3);
    assert_int_equal(reader.intent.est_input, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B5_after_fifty_calls),
        cmocka_unit_test(F6_uncalibrated),
        cmocka_unit_test(F6_however_the_body_is_cut),
        cmocka_unit_test(F6_escapes_are_characters),
        cmocka_unit_test(F6_what_is_no_input_costs_nothing),
        cmocka_unit_test(F6_messages_and_calls_cost_something_each),
        cmocka_unit_test(F6_tools_cost_their_json),
        cmocka_unit_test(F6_pictures_cost_their_own),
        cmocka_unit_test(F6_base64_is_no_text_wherever_it_stands),
        cmocka_unit_test(F6_sound_costs_by_its_length),
        cmocka_unit_test(F6_forms),
        cmocka_unit_test(F6_not_where_nobody_asks),
        cmocka_unit_test(F6_what_nobody_can_read),
    };

    return cmocka_run_group_tests(tests, load_corpus, free_corpus);
}
