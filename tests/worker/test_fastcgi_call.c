/* test_fastcgi_call.c - FastCGI from the web server's side: what is sent, what is believed of an answer,
 * and one call over a real socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "worker/fastcgi_call.h"
#include "worker/fastcgi_head.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct fastcgi_reply reply;
static struct text bytes;

static int set_up(void **state)
{
    (void)state;
    fastcgi_reply_init(&reply, 100000);
    text_init(&bytes, 1 << 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fastcgi_reply_release(&reply);
    text_release(&bytes);
    return 0;
}

static void add_record(enum fastcgi_type type, const char *content, size_t length, size_t padding)
{
    unsigned char header[FASTCGI_HEADER_BYTES];

    fastcgi_record_write(header, type, 1, length);
    header[6] = (unsigned char)padding;
    text_append(&bytes, (const char *)header, sizeof header);
    text_append(&bytes, content, length);
    text_append(&bytes, "........", padding);
}

static void add_stdout(const char *content)
{
    add_record(FASTCGI_STDOUT, content, strlen(content), strlen(content) % 8);
}

static void add_end(char protocol_status)
{
    char end[8] = {0};

    end[4] = protocol_status;
    add_record(FASTCGI_END_REQUEST, end, sizeof end, 0);
}

static enum fastcgi_reply_state feed_all(void)
{
    return fastcgi_reply_feed(&reply, text_string(&bytes), bytes.length);
}

/* What we send is what our own reader of heads, which faces real web servers, calls whole. */
static void a_request_is_a_whole_head(void **state)
{
    static char long_value[5000];
    const struct fastcgi_call_parameter parameters[] = {
        {"REQUEST_METHOD", "GET"}, {"REQUEST_URI", "/penstock/ping"}, {"LONG", long_value}};
    const struct fastcgi_call call = {.parameters = parameters,
                                      .parameter_count = LENGTH(parameters)};
    struct fastcgi_head head;

    (void)state;
    memset(long_value, 'x', sizeof long_value - 1);
    assert_true(fastcgi_call_encode(&call, &bytes));
    assert_int_equal(
        fastcgi_head_scan((const unsigned char *)text_string(&bytes), bytes.length, &head),
        FASTCGI_HEAD_WHOLE);
    assert_int_equal(head.with_body_bytes, bytes.length);
    assert_non_null(
        memmem(text_string(&bytes), bytes.length, "\x0b\x0eREQUEST_URI/penstock/ping", 27));
}

static void a_body_is_one_record(void **state)
{
    static char large[70000];
    const struct fastcgi_call_parameter parameter = {"REQUEST_METHOD", "POST"};
    struct fastcgi_call call = {.parameters = &parameter, .parameter_count = 1, .body = "{}"};
    /* type 5, request 1, two bytes and no padding; then the empty one that ends it */
    static const char expected[] = "\x01\x05\x00\x01\x00\x02\x00\x00{}"
                                   "\x01\x05\x00\x01\x00\x00\x00\x00";

    (void)state;
    assert_true(fastcgi_call_encode(&call, &bytes));
    assert_true(bytes.length > sizeof expected - 1);
    assert_memory_equal(text_string(&bytes) + bytes.length - (sizeof expected - 1), expected,
                        sizeof expected - 1);
    text_clear(&bytes);
    memset(large, 'x', sizeof large - 1);
    call.body = large;
    assert_false(fastcgi_call_encode(&call, &bytes));
    assert_int_equal(bytes.length, 0);
}

static void parameters_beyond_a_record_are_refused(void **state)
{
    char *large = malloc(70000);
    const struct fastcgi_call_parameter parameter = {"LARGE", large};
    const struct fastcgi_call call = {.parameters = &parameter, .parameter_count = 1};

    (void)state;
    assert_non_null(large);
    memset(large, 'x', 69999);
    large[69999] = '\0';
    assert_false(fastcgi_call_encode(&call, &bytes));
    assert_int_equal(bytes.length, 0);
    free(large);
}

static void an_answer_is_put_together_in_any_pieces(void **state)
{
    (void)state;
    add_stdout("Status: 404 Not Found\r\nContent-Type: text/plain\r\n\r\nno ");
    add_record(7 /* STDERR */, "noise", 5, 3);
    add_stdout("such page");
    add_stdout("");
    add_end(0);
    for (size_t size = 1; size < bytes.length; size += 6) {
        fastcgi_reply_release(&reply);
        for (size_t at = 0; at < bytes.length; at += size) {
            size_t length = bytes.length - at < size ? bytes.length - at : size;

            assert_int_equal(reply.state, FASTCGI_REPLY_MORE);
            (void)fastcgi_reply_feed(&reply, text_string(&bytes) + at, length);
        }
        assert_int_equal(reply.state, FASTCGI_REPLY_DONE);
        assert_int_equal(reply.status, 404);
        assert_string_equal(reply.body, "no such page");
        assert_int_equal(reply.body_length, strlen("no such page"));
    }
}

static void the_status_is_200_when_none_is_said(void **state)
{
    (void)state;
    add_stdout("Content-Type: text/plain\r\n\r\nStatus: 500\r\n\r\n");
    add_end(0);
    assert_int_equal(feed_all(), FASTCGI_REPLY_DONE);
    assert_int_equal(reply.status, 200);
}

static void what_is_no_answer_is_bad(void **state)
{
    static const struct {
        const char *content;
        char protocol_status;
    } rows[] = {
        {"no head at all", 0},
        {"Status: abc\r\n\r\n", 0},
        {"Status: 99\r\n\r\n", 0},
        {"Status: 700\r\n\r\n", 0},
        {"Status:\r\n\r\n", 0},
        {"Status: 200 OK\r\n\r\nrefused by the protocol", 2},
        {"", 0},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        fastcgi_reply_release(&reply);
        text_clear(&bytes);
        add_stdout(rows[i].content);
        add_end(rows[i].protocol_status);
        assert_int_equal(feed_all(), FASTCGI_REPLY_BAD);
    }
}

static void another_protocol_is_bad_at_its_first_record(void **state)
{
    (void)state;
    text_append_string(&bytes, "HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_int_equal(feed_all(), FASTCGI_REPLY_BAD);
}

static void an_answer_beyond_the_bound_is_bad(void **state)
{
    (void)state;
    add_stdout("Status: 200 OK\r\n\r\n");
    for (unsigned i = 0; i < 2000; i++)
        add_stdout("a hundred bytes, or nearly so: 0123456789012345678901234567890123456789");
    add_end(0);
    assert_int_equal(feed_all(), FASTCGI_REPLY_BAD);
    assert_true(reply.text.length <= 100000);
}

/* ---- over a socket --------------------------------------------------------------------------- */

struct server {
    int listen_fd;
    const struct text *answer; /* NULL: none */
};

static void *serve_one(void *argument)
{
    const struct server *server = argument;
    int fd = accept(server->listen_fd, NULL, NULL);
    char request[4096];

    if (fd < 0 || recv(fd, request, sizeof request, 0) <= 0)
        abort();
    if (server->answer && send(fd, text_string(server->answer), server->answer->length,
                               MSG_NOSIGNAL) != (ssize_t)server->answer->length)
        abort();
    if (!server->answer)
        (void)recv(fd, request, sizeof request, 0); /* until the caller gives up */
    (void)close(fd);
    return NULL;
}

static bool call_server(const struct text *answer, int64_t timeout_ms, struct text *why)
{
    const struct fastcgi_call_parameter parameter = {"REQUEST_METHOD", "GET"};
    char path[] = "/tmp/penstock-test-XXXXXX";
    char address[64];
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct fastcgi_call call = {.address = address,
                                .parameters = &parameter,
                                .parameter_count = 1,
                                .timeout_ms = timeout_ms};
    struct server server = {.listen_fd = socket(AF_UNIX, SOCK_STREAM, 0), .answer = answer};
    pthread_t thread;
    bool good;

    assert_non_null(mkdtemp(path));
    (void)snprintf(name.sun_path, sizeof name.sun_path, "%s/s", path);
    (void)snprintf(address, sizeof address, "unix:%s/s", path);
    assert_int_equal(bind(server.listen_fd, (const struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(listen(server.listen_fd, 4), 0);
    assert_int_equal(pthread_create(&thread, NULL, serve_one, &server), 0);
    good = fastcgi_call_make(&call, &reply, why);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(server.listen_fd);
    (void)unlink(name.sun_path);
    (void)rmdir(path);
    return good;
}

static void a_call_brings_its_answer(void **state)
{
    struct text why;

    (void)state;
    text_init(&why, 200);
    add_stdout("Status: 200 OK\r\n\r\npong\n");
    add_end(0);
    assert_true(call_server(&bytes, 5000, &why));
    assert_string_equal(reply.body, "pong\n");
    text_release(&why);
}

static void a_cut_a_silent_and_an_absent_server_are_told_apart(void **state)
{
    const struct fastcgi_call absent = {.address = "unix:/nonexistent/socket", .timeout_ms = 1000};
    const struct fastcgi_call nonsense = {.address = "what is this", .timeout_ms = 1000};
    struct text why;

    (void)state;
    text_init(&why, 200);
    add_stdout("Status: 200 OK\r\n\r\npong\n");
    assert_false(call_server(&bytes, 5000, &why));
    assert_string_equal(text_string(&why), "the answer broke off");

    fastcgi_reply_release(&reply);
    text_clear(&why);
    assert_false(call_server(NULL, 50, &why));
    assert_string_equal(text_string(&why), "no answer in time");

    text_clear(&why);
    assert_false(fastcgi_call_make(&absent, &reply, &why));
    assert_string_equal(text_string(&why),
                        "cannot connect to unix:/nonexistent/socket: No such file or directory");
    text_clear(&why);
    assert_false(fastcgi_call_make(&nonsense, &reply, &why));
    assert_non_null(strstr(text_string(&why), "is no socket address"));
    assert_false(fastcgi_address_is_valid(nonsense.address));
    assert_true(fastcgi_address_is_valid(absent.address));
    text_release(&why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_is_a_whole_head, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_body_is_one_record, set_up, tear_down),
        cmocka_unit_test_setup_teardown(parameters_beyond_a_record_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_answer_is_put_together_in_any_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_status_is_200_when_none_is_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_answer_is_bad, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_protocol_is_bad_at_its_first_record, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_answer_beyond_the_bound_is_bad, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_call_brings_its_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cut_a_silent_and_an_absent_server_are_told_apart, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
