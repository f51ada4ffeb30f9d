/* test_http_response.c - answers cut into pieces of every size read the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/http_response.h"

#include <string.h>

#define OK_HEAD "HTTP/1.1 200 OK\r\n"

struct reading {
    struct http_response response;
    struct text body;
    int heads;
};

static int set_up(void **state)
{
    static struct reading reading;

    http_response_init(&reading.response);
    text_init(&reading.body, 1 << 20);
    *state = &reading;
    return 0;
}

static int tear_down(void **state)
{
    struct reading *reading = *state;

    http_response_release(&reading->response);
    text_release(&reading->body);
    return 0;
}

/* Use up the bytes; NONE: and more are wanted. Of a body at most take bytes are taken at a time. */
static enum http_piece use(struct reading *reading, struct http_bytes *bytes, size_t take)
{
    for (;;) {
        size_t length = 0;
        enum http_piece piece = http_response_next(&reading->response, bytes, &length);

        switch (piece) {
        case HTTP_PIECE_HEAD:
            reading->heads++;
            break;
        case HTTP_PIECE_BODY:
            assert_int_equal(reading->heads, 1);
            assert_true(length > 0 && length <= (size_t)(bytes->end - bytes->at));
            length = length < take ? length : take;
            text_append(&reading->body, bytes->at, length);
            http_response_take(&reading->response, bytes, length);
            break;
        case HTTP_PIECE_NONE:
            assert_ptr_equal(bytes->at, bytes->end);
            return piece;
        case HTTP_PIECE_OVER:
        case HTTP_PIECE_BAD_HEAD:
        case HTTP_PIECE_BAD_BODY:
        case HTTP_PIECE_NO_MEMORY:
            return piece;
        }
    }
}

/* The last piece of an answer that comes in parts of so many bytes; *ret_rest: what was not used. */
static enum http_piece read_cut(struct reading *reading, const char *answer, size_t part,
                                size_t *ret_rest)
{
    size_t length = strlen(answer), at = 0;
    enum http_piece piece = HTTP_PIECE_NONE;

    http_response_reset(&reading->response, false);
    text_clear(&reading->body);
    reading->heads = 0;
    while (at < length && piece == HTTP_PIECE_NONE) {
        size_t take = length - at < part ? length - at : part;
        struct http_bytes bytes = {answer + at, answer + at + take};

        piece = use(reading, &bytes, part);
        at = (size_t)(bytes.at - answer);
    }
    *ret_rest = length - at;
    return piece;
}

static void assert_reads(struct reading *reading, const char *answer, enum http_piece last,
                         const char *body, size_t rest)
{
    size_t left;

    for (size_t part = 1; part <= strlen(answer); part++) {
        assert_int_equal(read_cut(reading, answer, part, &left), last);
        assert_string_equal(text_string(&reading->body), body);
        if (last == HTTP_PIECE_OVER && part == strlen(answer))
            assert_int_equal(left, rest);
    }
}

static void test_bodies(void **state)
{
    assert_reads(*state, OK_HEAD "Content-Length: 5\r\n\r\nhello", HTTP_PIECE_OVER, "hello", 0);
    assert_reads(*state, OK_HEAD "Content-Length: 5\r\n\r\nhello!!", HTTP_PIECE_OVER, "hello", 2);
    assert_reads(*state, OK_HEAD "Content-Length: 0\r\n\r\n", HTTP_PIECE_OVER, "", 0);
    assert_reads(*state, OK_HEAD "\r\nto the end", HTTP_PIECE_NONE, "to the end", 0);
    assert_reads(*state, "HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\nHTTP", HTTP_PIECE_OVER, "",
                 4);
    assert_reads(*state, "HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n", HTTP_PIECE_OVER, "", 0);
    assert_reads(*state, "HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
                 HTTP_PIECE_OVER, "x", 0);
}

static void test_chunks(void **state)
{
    static const char head[] = OK_HEAD "Transfer-Encoding: chunked\r\n\r\n";
    static const struct {
        const char *chunks;
        enum http_piece last;
        const char *body;
    } cases[] = {
        {"0\r\n\r\n", HTTP_PIECE_OVER, ""},
        {"5\r\nhello\r\n0\r\n\r\n", HTTP_PIECE_OVER, "hello"},
        {"2\nhe\n3 ;a=\"b\"\r\nllo\r\n000\r\nX: y\r\nZ:\r\n\r\n", HTTP_PIECE_OVER, "hello"},
        {"0A\r\n0123456789\r\n0\r\n\r\n", HTTP_PIECE_OVER, "0123456789"},
        {"5\r\nhello", HTTP_PIECE_NONE, "hello"},
        {"5\r\nhello\r\n0\r\n", HTTP_PIECE_NONE, "hello"},
        {"5\r\nhello!\r\n", HTTP_PIECE_BAD_BODY, "hello"},
        {"\r\n", HTTP_PIECE_BAD_BODY, ""},
        {"x\r\n", HTTP_PIECE_BAD_BODY, ""},
        {"-1\r\n", HTTP_PIECE_BAD_BODY, ""},
        {"5x\r\n", HTTP_PIECE_BAD_BODY, ""},
        {"5 x\r\n", HTTP_PIECE_BAD_BODY, ""},
        {"5\rx\n", HTTP_PIECE_BAD_BODY, ""},
        {"5\r\r\n", HTTP_PIECE_BAD_BODY, ""},
        {"5;a\rb\n", HTTP_PIECE_BAD_BODY, ""},
        {"+5\r\n", HTTP_PIECE_BAD_BODY, ""},
        {" 5\r\n", HTTP_PIECE_BAD_BODY, ""},
        {"0x5\r\n", HTTP_PIECE_BAD_BODY, ""},
        {"8000000000000000\r\n", HTTP_PIECE_BAD_BODY, ""},
        {"7fffffffffffffff\r\nhello", HTTP_PIECE_NONE, "hello"},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct text answer;

        text_init(&answer, 1000);
        text_printf(&answer, "%s%s", head, cases[i].chunks);
        assert_reads(*state, text_string(&answer), cases[i].last, cases[i].body, 0);
        text_release(&answer);
    }
}

static void test_nul_in_a_chunk_size(void **state)
{
    static const char answer[] = OK_HEAD "Transfer-Encoding: chunked\r\n\r\n5\0\r\nhello";
    struct http_bytes bytes = {answer, answer + sizeof answer - 1};
    struct reading *reading = *state;

    reading->heads = 0;
    assert_int_equal(use(reading, &bytes, SIZE_MAX), HTTP_PIECE_BAD_BODY);
}

static void test_bad_heads_are_known_early(void **state)
{
    assert_reads(*state, "SSH-2.0-x", HTTP_PIECE_BAD_HEAD, "", 0);
    assert_reads(*state, "HTTQ", HTTP_PIECE_BAD_HEAD, "", 0);
    assert_reads(*state, "HTT", HTTP_PIECE_NONE, "", 0);
    assert_reads(*state, OK_HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n", HTTP_PIECE_BAD_HEAD,
                 "", 0);
    assert_reads(*state, OK_HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                 HTTP_PIECE_BAD_HEAD, "", 0);
}

/* An endless line, of a head or between chunks, or endless trailers. */
static void test_bounds(void **state)
{
    static const char *const begins[] = {
        "HTTP/1.1 200 ",
        OK_HEAD "X: ",
        OK_HEAD "Transfer-Encoding: chunked\r\n\r\n5;",
        OK_HEAD "Transfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    };
    static const char *const endless[] = {"xxxxxxxxxxxxxxxx", "\r\nXXXXXXXXX: y"};
    struct reading *reading = *state;

    for (size_t i = 0; i < LENGTH(begins); i++)
        for (size_t k = i < 3 ? 0 : 1; k < (i == 3 ? 2 : 1); k++) {
            size_t left;
            int rounds = 0;
            enum http_piece piece = read_cut(reading, begins[i], 1000, &left);

            while (piece == HTTP_PIECE_NONE && rounds++ < HTTP_HEAD_BYTES_MAX) {
                struct http_bytes bytes = {endless[k], endless[k] + strlen(endless[k])};

                piece = use(reading, &bytes, 100);
            }
            assert_int_equal(piece, i < 2 ? HTTP_PIECE_BAD_HEAD : HTTP_PIECE_BAD_BODY);
        }
}

static bool keeps_alive(struct reading *reading, const char *head)
{
    size_t left;

    assert_int_equal(read_cut(reading, head, 1000, &left), HTTP_PIECE_OVER);
    return reading->response.head.keeps_alive;
}

static void test_keep_alive(void **state)
{
    assert_true(keeps_alive(*state, OK_HEAD "Content-Length: 0\r\n\r\n"));
    assert_true(keeps_alive(*state, OK_HEAD "Connection: keep-alive\r\nContent-Length: 0\r\n\r\n"));
    assert_false(keeps_alive(*state, OK_HEAD "Connection: Close\r\nContent-Length: 0\r\n\r\n"));
    assert_false(keeps_alive(*state, OK_HEAD "Connection: x, close\r\nContent-Length: 0\r\n\r\n"));
    assert_false(keeps_alive(*state, "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
    assert_true(keeps_alive(*state, "HTTP/1.1 204 None\r\nContent-Length: 0\r\n\r\n"));
    assert_true(keeps_alive(*state, "HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n"));
}

/* What can be read in two ways may be followed by bytes that we do not expect. */
static void n3_after_an_ambiguous_head_a_connection_is_not_kept(void **state)
{
    assert_false(keeps_alive(*state, OK_HEAD "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
                                             "\r\n0\r\n\r\n"));
    assert_false(keeps_alive(*state, OK_HEAD "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"
                                             "\r\n0\r\n\r\n"));
    assert_false(keeps_alive(*state, "HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\n"));
    assert_false(keeps_alive(*state, "HTTP/1.1 204 None\r\nTransfer-Encoding: chunked\r\n\r\n"));
}

static void test_answer_to_head(void **state)
{
    struct reading *reading = *state;
    static const char answer[] = OK_HEAD "Content-Length: 5\r\n\r\n";
    struct http_bytes bytes = {answer, answer + sizeof answer - 1};

    http_response_reset(&reading->response, true);
    reading->heads = 0;
    assert_int_equal(use(reading, &bytes, 1), HTTP_PIECE_OVER);
    assert_int_equal(reading->heads, 1);
    assert_true(http_response_ends_here(&reading->response));
}

static void test_where_a_stream_may_end(void **state)
{
    struct reading *reading = *state;
    size_t left;

    assert_int_equal(read_cut(reading, OK_HEAD "\r\nab", 100, &left), HTTP_PIECE_NONE);
    assert_true(http_response_ends_here(&reading->response));
    assert_int_equal(read_cut(reading, OK_HEAD "Content-Length: 3\r\n\r\nab", 100, &left),
                     HTTP_PIECE_NONE);
    assert_false(http_response_ends_here(&reading->response));
    assert_int_equal(read_cut(reading, OK_HEAD "Content-Le", 100, &left), HTTP_PIECE_NONE);
    assert_false(http_response_ends_here(&reading->response));
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_bodies),
        TEST(test_chunks),
        TEST(test_nul_in_a_chunk_size),
        TEST(test_bad_heads_are_known_early),
        TEST(test_bounds),
        TEST(test_keep_alive),
        TEST(n3_after_an_ambiguous_head_a_connection_is_not_kept),
        TEST(test_answer_to_head),
        TEST(test_where_a_stream_may_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
