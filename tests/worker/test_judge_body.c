/* test_judge_body.c - error bodies of every shape, cut, hostile and far too large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/judge_body.h"

#include <stdlib.h>
#include <string.h>

/* From a copy that ends exactly where the body does. */
static struct judge_body read_bytes(const char *bytes, size_t length)
{
    struct judge_body body;
    char *copy = malloc(length > 0 ? length : 1);

    assert_non_null(copy);
    memcpy(copy, bytes, length);
    memset(&body, 0xA5, sizeof body);
    judge_body_read(copy, length, &body);
    free(copy);
    return body;
}

static struct judge_body read_string(const char *string)
{
    return read_bytes(string, strlen(string));
}

static void test_shapes(void **state)
{
    struct judge_body body = read_string(
        "{\"error\":{\"message\":\"m \\u00e9\",\"type\":\"t\",\"param\":null,\"code\":\"c\"}}");

    (void)state;
    assert_int_equal(body.shape, JUDGE_BODY_ERROR);
    assert_string_equal(body.message, "m \xC3\xA9");
    assert_string_equal(body.type, "t");
    assert_string_equal(body.code, "c");
    assert_int_equal(body.status, 0);

    body = read_string("{\"code\":\"c\",\"message\":\"m\",\"request_id\":\"r\"}");
    assert_int_equal(body.shape, JUDGE_BODY_WORDS);
    assert_string_equal(body.code, "c");

    body = read_string("[{\"error\":{\"code\":429,\"status\":\"S\",\"details\":[{\"reason\":\"R\"},"
                       "{\"violations\":[{\"quotaId\":\"a\"},{\"quotaId\":\"b\"}]},"
                       "{\"retryDelay\":\"37s\"}]}}]");
    assert_int_equal(body.shape, JUDGE_BODY_ERROR);
    assert_int_equal(body.status, 429);
    assert_string_equal(body.code, "");
    assert_string_equal(body.word, "S");
    assert_string_equal(body.reason, "R");
    assert_string_equal(body.quotas, " a b");
    assert_string_equal(body.delay, "37s");

    body = read_string("{\"error\":{\"code\":\"1113\",\"innererror\":{\"code\":\"i\"}}}");
    assert_string_equal(body.code, "1113"); /* a number that is no status is a code */
    assert_string_equal(body.inner, "i");
    body = read_string("{\"type\":\"error\",\"error\":{\"type\":\"t\",\"details\":"
                       "{\"error_code\":\"e\"}}}");
    assert_string_equal(body.type, "t");
    assert_string_equal(body.inner, "e");
}

static void test_what_is_no_error(void **state)
{
    static const char *const bodies[] = {
        "",
        " ",
        "{}",
        "[]",
        "null",
        "{\"error\":null}",
        "[[[{]",
        "{\"error\":\"\"}",
        "{\"error\":true,\"message\":\"m\"}",
        "{\"message\":\"m\"}",
        "{\"code\":\"\",\"message\":\"\",\"output\":{}}",
        "{\"errors\":{\"code\":\"c\"}}",
        "{\"a\":{\"error\":{\"code\":\"c\"}}}",
        "<html>{\"error\":{\"code\":\"c\"}}</html>",
        "data: {\"choices\":[]}\n\n",
        "event: error\n\n",
        ": comment\n\n",
        "\xFF\xFE{\0\"",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        assert_int_equal(read_string(bodies[i]).shape, JUDGE_BODY_NONE);
    assert_string_equal(read_string("try again\nin 5s").message, "try again\nin 5s");
    assert_string_equal(read_string("<p>try again in 5s").message, "");
}

static void test_the_first_error_of_a_stream_counts(void **state)
{
    struct judge_body body =
        read_string("data: {\"code\":\"native\",\"message\":\"m\"}\n\n"
                    "data: {\"error\":{\"code\":\"first\"}}\n\n"
                    "event: error\ndata: {\"code\":\"second\",\"message\":\"m\"}\n\n");

    (void)state;
    assert_int_equal(body.shape, JUDGE_BODY_ERROR);
    assert_string_equal(body.code, "first");
    /* Broken events before it do not hide it. */
    body = read_string("data: {\"error\n\ndata: ]]]\n\ndata: {\"error\":{\"code\":\"c\"}}\n\n");
    assert_string_equal(body.code, "c");
}

/* A body that was cut anywhere never tells another code than the whole one. */
static void test_cut_bodies(void **state)
{
    static const char document[] = "{\"request_id\":\"r\",\"error\":{\"type\":\"t\",\"code\":"
                                   "\"insufficient_quota\",\"message\":\"m\"}}";
    unsigned told = 0;

    (void)state;
    for (size_t length = 0; length < sizeof document; length++) {
        struct judge_body body = read_bytes(document, length);

        assert_true(*body.code == '\0' || strcmp(body.code, "insufficient_quota") == 0);
        told += *body.code != '\0';
    }
    assert_true(told > 10);
}

static void test_hostile_bodies(void **state)
{
    const size_t size = (size_t)4 << 20;
    char *bytes = malloc(size);
    struct judge_body body;
    static const char nul[] = "{\"error\":{\"code\":\"a\0b\",\"type\":\"t\\u0000u\","
                              "\"message\":\"\xFF\xC0\x80\"}}";

    (void)state;
    assert_non_null(bytes);
    memset(bytes, '[', size);
    assert_int_equal(read_bytes(bytes, size).shape, JUDGE_BODY_NONE);
    memset(bytes, '{', size);
    assert_int_equal(read_bytes(bytes, size).shape, JUDGE_BODY_NONE);
    memset(bytes, '\n', size);
    assert_int_equal(read_bytes(bytes, size).shape, JUDGE_BODY_NONE);

    /* Words longer than their places. */
    memset(bytes, 'x', size);
    memcpy(bytes, "{\"error\":{\"message\":\"m\",\"code\":\"", 32);
    memcpy(bytes + size - 3, "\"}}", 3);
    body = read_bytes(bytes, 1000);
    assert_int_equal(body.shape, JUDGE_BODY_ERROR);
    assert_string_equal(body.code, ""); /* its end was never seen */
    memmove(bytes + 1000, bytes + size - 3, 3);
    body = read_bytes(bytes, 1003);
    assert_int_equal(strlen(body.code), JUDGE_BODY_WORD_SIZE - 1);

    /* A NUL ends a word; bytes that are no UTF-8 go nowhere but the message. */
    body = read_bytes(nul, sizeof nul - 1);
    assert_string_equal(body.code, "a");
    assert_string_equal(body.type, "t");

    /* What stands beyond the bound is not read. */
    memset(bytes, ' ', size);
    memcpy(bytes + JUDGE_BODY_BYTES_MAX, "{\"error\":{\"code\":\"c\"}}", 22);
    assert_int_equal(read_bytes(bytes, size).shape, JUDGE_BODY_NONE);
    memmove(bytes + JUDGE_BODY_BYTES_MAX - 22, bytes + JUDGE_BODY_BYTES_MAX, 22);
    assert_int_equal(read_bytes(bytes, size).shape, JUDGE_BODY_ERROR);
    free(bytes);
}

/* More quota ids than there is room for: those that fit, whole. */
static void test_many_quotas(void **state)
{
    char bytes[8192] = "{\"error\":{\"details\":[{\"violations\":[";
    struct judge_body body;

    (void)state;
    for (int i = 0; i < 60; i++)
        strcat(bytes, "{\"quotaId\":\"GenerateRequestsPerMinutePerProjectPerModel\"},");
    strcat(bytes, "{}]}]}}");
    body = read_string(bytes);
    assert_int_equal(body.shape, JUDGE_BODY_ERROR);
    assert_true(strlen(body.quotas) > 100 && strlen(body.quotas) < sizeof body.quotas);
    assert_string_equal(body.quotas + strlen(body.quotas) - 8, "PerModel");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_what_is_no_error),
        cmocka_unit_test(test_the_first_error_of_a_stream_counts),
        cmocka_unit_test(test_cut_bodies),
        cmocka_unit_test(test_hostile_bodies),
        cmocka_unit_test(test_many_quotas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
