/* test_http_head.c - response heads line by line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/http_head.h"

#include <string.h>

static int set_up(void **state)
{
    static struct http_head_reader reader;

    http_head_reader_init(&reader);
    *state = &reader;
    return 0;
}

static int tear_down(void **state)
{
    http_head_reader_release(*state);
    return 0;
}

/* Feed the text, line by line; the state after the last one. */
static enum http_head_state feed(struct http_head_reader *reader, const char *text)
{
    enum http_head_state state = HTTP_HEAD_MORE;

    http_head_reader_reset(reader);
    while (*text) {
        const char *end = strchr(text, '\n');
        size_t length = end ? (size_t)(end - text) + 1 : strlen(text);

        state = http_head_reader_line(reader, text, length);
        text += length;
    }
    return state;
}

static void assert_header(const struct http_header *header, const char *name, const char *value)
{
    assert_string_equal(header->name, name);
    assert_string_equal(header->value, value);
}

static void test_final_head(void **state)
{
    struct http_header headers[HTTP_HEADERS_MAX];
    struct http_head head;

    assert_int_equal(feed(*state, "HTTP/1.1 429 Too Many Requests\r\nRetry-After:\t3 \r\n"
                                  "X-B: a:b\r\nX-Empty:\r\nx-b : c\r\nContent-Length: 12\r\n"
                                  "\r\nTrailer: ignored\r\n"),
                     HTTP_HEAD_FINAL);
    http_head_reader_result(*state, headers, &head);
    assert_int_equal(head.status, 429);
    assert_int_equal(head.content_length, 12);
    assert_int_equal(head.header_count, 5);
    assert_header(&headers[0], "Retry-After", "3");
    assert_header(&headers[1], "X-B", "a:b");
    assert_header(&headers[2], "X-Empty", "");
    assert_header(&headers[3], "x-b", "c");
}

static void test_folded_lines(void **state)
{
    struct http_header headers[HTTP_HEADERS_MAX];
    struct http_head head;

    assert_int_equal(feed(*state, "HTTP/1.0 200\nX-A: one\n   two\n\tthree \nX-B: b\n\n"),
                     HTTP_HEAD_FINAL);
    http_head_reader_result(*state, headers, &head);
    assert_int_equal(head.header_count, 2);
    assert_header(&headers[0], "X-A", "one two three");
    assert_header(&headers[1], "X-B", "b");
    assert_int_equal(head.content_length, -1);
}

static void test_framing(void **state)
{
    struct http_header headers[HTTP_HEADERS_MAX];
    struct http_head head;

    assert_int_equal(feed(*state, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"
                                  "Transfer-Encoding: chunked\r\n\r\n"),
                     HTTP_HEAD_FINAL);
    http_head_reader_result(*state, headers, &head);
    assert_int_equal(head.content_length, -1);
    assert_int_equal(feed(*state, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"
                                  "content-length: 5\r\n\r\n"),
                     HTTP_HEAD_FINAL);
    http_head_reader_result(*state, headers, &head);
    assert_int_equal(head.content_length, 5);
}

static void test_interim_heads_leave_nothing(void **state)
{
    struct http_header headers[HTTP_HEADERS_MAX];
    struct http_head head;

    assert_int_equal(feed(*state, "HTTP/1.1 100 Continue\r\nContent-Length: 3\r\nX: y\r\n\r\n"),
                     HTTP_HEAD_MORE);
    assert_int_equal(feed(*state, "HTTP/1.1 103 \r\nContent-Length: 3\r\nX: y\r\n\r\n"
                                  "HTTP/1.1 200 OK\r\n\r\n"),
                     HTTP_HEAD_FINAL);
    http_head_reader_result(*state, headers, &head);
    assert_int_equal(head.header_count, 0);
    assert_int_equal(head.content_length, -1);
}

static void test_bad_heads(void **state)
{
    static const char *const heads[] = {
        "HTTP/1.1 OK\r\n",
        "HTTP/1.1 99 x\r\n",
        "HTTP/1.1 2000 x\r\n",
        "HTTP/1.1 20\r\n",
        "HTTP/1.1\r\n",
        "ICY 200 OK\r\n",
        "\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n",
        "HTTP/1.1 200 OK\r\n: no name\r\n",
        "HTTP/1.1 200 OK\r\n folded into nothing\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\t\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n , gzip\r\n",
        "HTTP/1.1 200 OK\r\nConnection: x\r\n close\r\n",
        "HTTP/1.1 200 OK\r\n\r\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    };

    for (size_t i = 0; i < LENGTH(heads); i++) {
        assert_int_equal(feed(*state, heads[i]), HTTP_HEAD_BAD);
        assert_int_equal(http_head_reader_line(*state, "\r\n", 2), HTTP_HEAD_BAD);
    }
    feed(*state, "HTTP/1.1 200 OK\r\n");
    assert_int_equal(http_head_reader_line(*state, "A: b\0c\r\n", 8), HTTP_HEAD_BAD);
}

static void test_bounds(void **state)
{
    struct http_head_reader *reader = *state;
    struct http_header headers[HTTP_HEADERS_MAX];
    struct http_head head;
    char line[1024];

    feed(reader, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < HTTP_HEADERS_MAX; i++)
        assert_int_equal(http_head_reader_line(reader, "A:b\r\n", 5), HTTP_HEAD_MORE);
    assert_int_equal(http_head_reader_line(reader, "\r\n", 2), HTTP_HEAD_FINAL);
    http_head_reader_result(reader, headers, &head);
    assert_int_equal(head.header_count, HTTP_HEADERS_MAX);
    assert_header(&headers[HTTP_HEADERS_MAX - 1], "A", "b");

    feed(reader, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < HTTP_HEADERS_MAX; i++)
        assert_int_equal(http_head_reader_line(reader, "A:b\r\n", 5), HTTP_HEAD_MORE);
    assert_int_equal(http_head_reader_line(reader, "A:b\r\n", 5), HTTP_HEAD_BAD);

    memset(line, 'v', sizeof line);
    line[0] = ' ';
    feed(reader, "HTTP/1.1 200 OK\r\nX: y\r\n");
    for (int i = 0; i < HTTP_HEAD_BYTES_MAX / (int)sizeof line - 1; i++)
        assert_int_equal(http_head_reader_line(reader, line, sizeof line), HTTP_HEAD_MORE);
    assert_int_equal(http_head_reader_line(reader, line, sizeof line), HTTP_HEAD_BAD);
    /* and it can be used again */
    assert_int_equal(feed(reader, "HTTP/1.1 200 OK\r\n\r\n"), HTTP_HEAD_FINAL);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_final_head), TEST(test_folded_lines),
        TEST(test_framing),    TEST(test_interim_heads_leave_nothing),
        TEST(test_bad_heads),  TEST(test_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
