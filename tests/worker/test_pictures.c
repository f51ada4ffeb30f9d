/*
 * test_pictures.c - what answers of all families delivered (G14, H4). Each case is an answer and the
 * facts that must be told of it, and holds however the answer is cut; pictures_cases.h has them.
 *
 * Facts: "N" pictures, then what was said: m= model, id=, st= status, in= out= ca= re= tokens, ii= io=
 * image tokens, sec= seconds, s= q= f= of the last picture, and C (content), E (an error before any content, e behind
 * it), T (terminal).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/pictures_cases.h"
#include "worker/pictures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct facts {
    char text[512];
    size_t length;
};

static void say(struct facts *facts, const char *name, const char *value)
{
    if (!*value)
        return;
    facts->length += (size_t)snprintf(facts->text + facts->length,
                                      sizeof facts->text - facts->length, " %s%s", name, value);
    assert_true(facts->length < sizeof facts->text);
}

static void say_number(struct facts *facts, const char *name, int64_t number)
{
    char value[24];

    snprintf(value, sizeof value, "%lld", (long long)number);
    if (number >= 0)
        say(facts, name, value);
}

static const char *facts_of(const struct delivered *delivered)
{
    static struct facts facts;

    facts.length = (size_t)snprintf(facts.text, sizeof facts.text, "%u", delivered->pictures);
    say(&facts, "m=", delivered->model);
    say(&facts, "id=", delivered->id);
    say(&facts, "st=", delivered->status);
    say_number(&facts, "in=", delivered->tokens_in);
    say_number(&facts, "out=", delivered->tokens_out);
    say_number(&facts, "ca=", delivered->tokens_cached);
    say_number(&facts, "re=", delivered->tokens_reasoning);
    say_number(&facts, "ii=", delivered->image_tokens_in);
    say_number(&facts, "io=", delivered->image_tokens_out);
    say_number(&facts, "sec=", delivered->seconds);
    say(&facts, "s=", delivered->size);
    say(&facts, "q=", delivered->quality);
    say(&facts, "f=", delivered->format);
    say(&facts, "", delivered->content_seen ? "C" : "");
    say(&facts, "", !delivered->error_seen ? "" : delivered->error_before_content ? "E" : "e");
    say(&facts, "", delivered->terminal_seen ? "T" : "");
    return facts.text;
}

static void read_answer(struct pictures *pictures, size_t number, size_t first, size_t second)
{
    const char *body = cases[number].body;
    size_t length = strlen(body);

    /* What was there before must not matter. */
    memset(pictures, 0xA5, sizeof *pictures);
    pictures_begin(pictures, cases[number].endpoint, cases[number].type, NULL);
    pictures_feed(pictures, body, first);
    pictures_feed(pictures, body + first, second - first);
    pictures_feed(pictures, body + second, length - second);
    pictures_end(pictures);
}

static void G14_H4_answers_however_they_are_cut(void **state)
{
    static struct pictures pictures;

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        size_t length = strlen(cases[i].body);

        for (size_t first = 0; first <= length; first++) {
            for (size_t second = first; second <= length; second += 1 + length / 3) {
                read_answer(&pictures, i, first, second);
                const char *is = facts_of(&pictures.delivered);

                if (strcmp(is, cases[i].facts) != 0)
                    fail_msg("%s, cut at %zu, %zu: <%s> not <%s>", cases[i].name, first, second, is,
                             cases[i].facts);
            }
        }
    }
}

static void T28_encoded_answers_are_not_read(void **state)
{
    static struct pictures pictures;
    static const char body[] = "{\"data\":[{\"url\":\"a\"}]}";

    (void)state;
    pictures_begin(&pictures, ENDPOINT_IMAGES, JSON, "gzip");
    pictures_feed(&pictures, body, sizeof body - 1);
    pictures_end(&pictures);
    assert_string_equal(facts_of(&pictures.delivered), "0");
    pictures_begin(&pictures, ENDPOINT_IMAGES, NULL, "identity");
    pictures_feed(&pictures, body, sizeof body - 1);
    pictures_end(&pictures);
    assert_string_equal(facts_of(&pictures.delivered), "1 C T");
}

/* H4: what an event says is known as soon as it is whole, not only at the end. */
static void H4_facts_come_with_their_event(void **state)
{
    static struct pictures pictures;
    static const char first[] = CHUNK("{\"role\":\"assistant\"}");
    static const char second[] = CHUNK("{\"content\":\"h\"}");

    (void)state;
    pictures_begin(&pictures, ENDPOINT_CHAT, SSE, NULL);
    pictures_feed(&pictures, first, sizeof first - 1);
    assert_false(pictures.delivered.content_seen);
    pictures_feed(&pictures, second, sizeof second - 2);
    assert_false(pictures.delivered.content_seen);
    pictures_feed(&pictures, "\n", 1);
    assert_true(pictures.delivered.content_seen);
    assert_false(pictures.delivered.terminal_seen);
    assert_true(pictures.sse.at_boundary);
}

/* H11: a long id is kept as the request that refers to it will have it. */
static void H11_long_ids_are_kept_as_requests_have_them(void **state)
{
    static struct pictures pictures;
    char id[201], body[256], kept[UPSTREAM_ID_SIZE];

    (void)state;
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = '\0';
    int length = snprintf(body, sizeof body, "{\"id\":\"%s\"}", id);

    pictures_begin(&pictures, ENDPOINT_RESPONSES, JSON, NULL);
    pictures_feed(&pictures, body, (size_t)length);
    pictures_end(&pictures);
    upstream_id_set(kept, id, strlen(id));
    assert_string_equal(pictures.delivered.id, kept);
}

static void keys_are_bounded(void **state)
{
    static struct pictures pictures;
    char item[100];

    (void)state;
    pictures_begin(&pictures, ENDPOINT_RESPONSES, JSON, NULL);
    pictures_feed(&pictures, "{\"output\":[", 11);
    for (int i = 0; i < 3 * PICTURES_KEYS_MAX; i++) {
        int length =
            snprintf(item, sizeof item, "%s{\"id\":\"%d\",\"result\":\"A\"}", i ? "," : "", i);

        pictures_feed(&pictures, item, (size_t)length);
    }
    pictures_feed(&pictures, "]}", 2);
    pictures_end(&pictures);
    assert_int_equal(pictures.delivered.pictures, PICTURES_KEYS_MAX);
}

/* G14, T25: a picture of 30 MB in one line; the time bound only keeps a quadratic reader out. */
static void G14_T25_a_picture_of_thirty_megabytes(void **state)
{
    static struct pictures pictures;
    static char block[65536];
    static const char head[] = "data: {\"type\":\"image_generation.completed\",\"b64_json\":\"";
    clock_t start = clock();

    (void)state;
    memset(block, 'Q', sizeof block);
    pictures_begin(&pictures, ENDPOINT_IMAGES, SSE, NULL);
    for (int repeat = 0; repeat < 3; repeat++) {
        block[0] = (char)('A' + repeat / 2); /* the first two are one picture */
        pictures_feed(&pictures, head, sizeof head - 1);
        for (int i = 0; i < 480; i++)
            pictures_feed(&pictures, block, sizeof block);
        pictures_feed(&pictures, "\"}\n\n", 4);
    }
    pictures_end(&pictures);
    assert_string_equal(facts_of(&pictures.delivered), "2 C T");
    assert_true(clock() - start < 3 * CLOCKS_PER_SEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(G14_H4_answers_however_they_are_cut),
        cmocka_unit_test(T28_encoded_answers_are_not_read),
        cmocka_unit_test(H4_facts_come_with_their_event),
        cmocka_unit_test(H11_long_ids_are_kept_as_requests_have_them),
        cmocka_unit_test(keys_are_bounded),
        cmocka_unit_test(G14_T25_a_picture_of_thirty_megabytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
