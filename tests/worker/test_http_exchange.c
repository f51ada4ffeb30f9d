/* test_http_exchange.c - answers of all kinds, and the outcomes they have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/calling.h"

static void say_chunked(struct server *server)
{
    server_answer_once(server, OK_HEAD "Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
                                       "3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nX-T: late\r\n\r\n");
}

static void test_chunked_with_trailer(void **state)
{
    struct setting *setting = *state;

    assert_int_equal(outcome_of(setting, say_chunked), HTTP_COMPLETE);
    assert_string_equal(text_string(&setting->call.body), "abcdefg");
    assert_int_equal(setting->call.heads, 1);
    assert_int_equal(setting->call.content_length, -1);
    assert_string_equal(text_string(&setting->call.headers),
                        "Transfer-Encoding=chunked|Trailer=X-T|");
}

static void say_until_close(struct server *server)
{
    server_answer_once(server, OK_HEAD "X-A: 1\r\nx-a:2\r\nSet-Cookie:  a=1 \r\n"
                                       "Content-Encoding: gzip\r\nX-A:3\r\n\r\nnot gzip");
}

static void test_until_close_and_header_order(void **state)
{
    struct setting *setting = *state;

    assert_int_equal(outcome_of(setting, say_until_close), HTTP_COMPLETE);
    assert_string_equal(text_string(&setting->call.body), "not gzip");
    assert_string_equal(text_string(&setting->call.headers),
                        "X-A=1|x-a=2|Set-Cookie=a=1|Content-Encoding=gzip|X-A=3|");
}

static void say_interim(struct server *server)
{
    server_answer_once(server, "HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\n"
                               "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
                               "HTTP/1.1 201 Made\r\nX-Final: 1\r\nContent-Length: 1\r\n\r\nf");
}

static void test_interim_heads_are_skipped(void **state)
{
    struct setting *setting = *state;

    assert_int_equal(outcome_of(setting, say_interim), HTTP_COMPLETE);
    assert_int_equal(setting->call.heads, 1);
    assert_int_equal(setting->call.status, 201);
    assert_string_equal(text_string(&setting->call.headers), "X-Final=1|Content-Length=1|");
}

static void say_redirect(struct server *server)
{
    server_answer_once(server, "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n"
                               "Content-Length: 0\r\n\r\n");
}

static void test_redirects_are_not_followed(void **state)
{
    struct setting *setting = *state;

    assert_int_equal(outcome_of(setting, say_redirect), HTTP_COMPLETE);
    assert_int_equal(setting->call.status, 302);
    assert_int_equal(setting->server->requests, 1);
}

static void say_no_content(struct server *server)
{
    server_answer_once(server, "HTTP/1.1 204 No Content\r\n\r\n");
}

static void test_no_content(void **state)
{
    struct setting *setting = *state;

    assert_int_equal(outcome_of(setting, say_no_content), HTTP_COMPLETE);
    assert_int_equal(setting->call.heads, 1);
    assert_int_equal(setting->call.status, 204);
}

static void say_nothing(struct server *server)
{
    server_answer_once(server, "");
}

static void say_half_a_head(struct server *server)
{
    server_answer_once(server, OK_HEAD "Content-Le");
}

static void say_interim_only(struct server *server)
{
    server_answer_once(server, "HTTP/1.1 100 Continue\r\n\r\n");
}

static void test_no_answer(void **state)
{
    struct setting *setting = *state;

    assert_int_equal(outcome_of(setting, say_nothing), HTTP_NO_ANSWER);
    assert_int_equal(outcome_of(setting, say_half_a_head), HTTP_NO_ANSWER);
    assert_int_equal(outcome_of(setting, say_interim_only), HTTP_NO_ANSWER);
    assert_int_equal(setting->call.heads, 0);
}

static void say_half_a_body(struct server *server)
{
    server_answer_once(server, OK_HEAD "Content-Length: 10\r\n\r\nhalf");
}

static void say_half_a_chunk(struct server *server)
{
    server_answer_once(server, OK_HEAD "Transfer-Encoding: chunked\r\n\r\n8\r\nhalf");
}

static void say_chunks_without_an_end(struct server *server)
{
    server_answer_once(server, OK_HEAD "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
}

static void say_bad_chunk(struct server *server)
{
    server_answer_once(server, OK_HEAD "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n");
}

static void test_cut_bodies(void **state)
{
    struct setting *setting = *state;
    void (*const scripts[])(struct server *) = {say_half_a_body, say_half_a_chunk,
                                                say_chunks_without_an_end, say_bad_chunk};

    for (size_t i = 0; i < LENGTH(scripts); i++) {
        assert_int_equal(outcome_of(setting, scripts[i]), HTTP_CUT);
        assert_int_equal(setting->call.status, 200);
        assert_string_equal(text_string(&setting->call.body), "half");
    }
}

static void say_garbage(struct server *server)
{
    server_answer_once(server, "SSH-2.0-OpenSSH_9\r\n\r\n");
}

static void say_a_line_without_colon(struct server *server)
{
    server_answer_once(server, OK_HEAD "what is this\r\n\r\n");
}

static void say_two_lengths(struct server *server)
{
    server_answer_once(server, OK_HEAD "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx");
}

static void say_many_headers(struct server *server)
{
    struct text text;

    text_init(&text, 1 << 20);
    text_append_string(&text, OK_HEAD);
    for (int i = 0; i <= HTTP_HEADERS_MAX; i++)
        text_append_string(&text, "A: b\r\n");
    text_append_string(&text, "\r\n");
    server_answer_once(server, text_string(&text));
    text_release(&text);
}

static void say_long_lines(struct server *server, int lines, size_t length)
{
    struct text text;

    text_init(&text, 1 << 22);
    text_append_string(&text, OK_HEAD);
    while (lines-- > 0) {
        text_append_string(&text, "A: ");
        for (size_t i = 0; i < length; i++)
            text_append_char(&text, 'v');
        text_append_string(&text, "\r\n");
    }
    text_append_string(&text, "\r\n");
    server_answer_once(server, text_string(&text));
    text_release(&text);
}

static void say_much(struct server *server)
{
    say_long_lines(server, 10, 30000);
}

static void say_one_long_line(struct server *server)
{
    say_long_lines(server, 1, 300000);
}

static void say_enough(struct server *server)
{
    say_long_lines(server, 3, 80000);
}

/* A name is a word. */
static void say_a_line_break_in_a_name(struct server *server)
{
    server_answer_once(server, OK_HEAD "X-A\rStatus: 500\r\nContent-Length: 2\r\n\r\nok");
}

static void test_bad_answers(void **state)
{
    struct setting *setting = *state;
    void (*const scripts[])(struct server *) = {
        say_garbage, say_a_line_without_colon, say_two_lengths,           say_many_headers,
        say_much,    say_one_long_line,        say_a_line_break_in_a_name};

    for (size_t i = 0; i < LENGTH(scripts); i++) {
        assert_int_equal(outcome_of(setting, scripts[i]), HTTP_BAD_ANSWER);
        assert_int_equal(setting->call.heads, 0);
    }
    assert_int_equal(outcome_of(setting, say_enough), HTTP_COMPLETE);
    assert_int_equal(setting->call.heads, 1);
}

static void refuse_unread(struct server *server)
{
    int fd = server_accept(server);
    char bytes[1000];

    if (fd < 0)
        return;
    (void)!recv(fd, bytes, sizeof bytes, 0);
    (void)server_send(fd, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig");
    while (recv(fd, bytes, sizeof bytes, 0) > 0)
        continue;
    close(fd);
}

static void test_answer_before_the_body_was_sent(void **state)
{
    struct setting *setting = *state;
    char *body = calloc(1, 20000000);

    assert_non_null(body);
    setting->server = server_start(refuse_unread);
    call_post(&setting->call, body, 20000000);
    assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
    assert_int_equal(setting->call.status, 413);
    assert_string_equal(text_string(&setting->call.body), "big");
    drop_connections(setting);
    server_stop(setting->server);
    free(body);
}

/* Half a body without a length, then a reset, which a send may be told of before a receive is. */
static void answer_half_and_reset(struct server *server)
{
    const struct linger at_once = {.l_onoff = 1};
    int fd = server_accept(server);
    char bytes[1000];

    if (fd < 0)
        return;
    (void)!recv(fd, bytes, sizeof bytes, 0);
    (void)server_send(fd, OK_HEAD "\r\nhalf");
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

static void n4_a_reset_while_sending_is_no_end(void **state)
{
    struct setting *setting = *state;
    char *body = calloc(1, 20000000);
    enum http_outcome outcome;

    assert_non_null(body);
    setting->server = server_start(answer_half_and_reset);
    call_post(&setting->call, body, 20000000);
    outcome = run_call(setting, &setting->call);
    /* what was received may be lost with the reset */
    assert_int_equal(outcome, setting->call.heads ? HTTP_CUT : HTTP_NO_ANSWER);
    server_stop(setting->server);
    free(body);
}

/* The end of the stream came before our bytes were refused: the answer is whole. */
static void answer_end_and_close(struct server *server)
{
    int fd = server_accept(server);
    char bytes[1000];

    if (fd < 0)
        return;
    (void)!recv(fd, bytes, sizeof bytes, 0);
    (void)server_send(fd, "HTTP/1.1 413 Too Large\r\n\r\nbig");
    (void)shutdown(fd, SHUT_WR);
    close(fd);
}

static void test_answer_to_close_before_the_body_was_sent(void **state)
{
    struct setting *setting = *state;
    char *body = calloc(1, 20000000);

    assert_non_null(body);
    setting->server = server_start(answer_end_and_close);
    call_post(&setting->call, body, 20000000);
    assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
    assert_string_equal(text_string(&setting->call.body), "big");
    server_stop(setting->server);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_chunked_with_trailer),
        TEST(test_until_close_and_header_order),
        TEST(test_interim_heads_are_skipped),
        TEST(test_redirects_are_not_followed),
        TEST(test_no_content),
        TEST(test_no_answer),
        TEST(test_cut_bodies),
        TEST(test_bad_answers),
        TEST(test_answer_before_the_body_was_sent),
        TEST(n4_a_reset_while_sending_is_no_end),
        TEST(test_answer_to_close_before_the_body_was_sent),
    };

    return cmocka_run_group_tests(tests, init_process, NULL);
}
