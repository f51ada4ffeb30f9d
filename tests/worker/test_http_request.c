/* test_http_request.c - what an upstream gets to see of a request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/calling.h"

/* ---- what is sent ---------------------------------------------------------------------------- */

static void test_get(void **state)
{
    struct setting *setting = *state;
    struct call *call = &setting->call;
    char expected[256];
    int64_t begin_ns = clock_monotonic_ns();

    setting->server = server_start(say_hello);
    call->request.headers = (const struct http_header[]){
        {"Authorization", "Bearer k"}, {"X-Empty", ""}, {"X-Twice", "1"}, {"X-Twice", "2"}};
    call->request.header_count = 4;
    call_start(setting, call);
    assert_int_equal(http_exchange_outcome(call->exchange), HTTP_RUNNING);
    assert_int_equal(run_for(setting, GUARD_S * NS_PER_S), HTTP_WAKE_FINISHED);
    assert_int_equal(http_exchange_outcome(call->exchange), HTTP_COMPLETE);
    assert_true(http_exchange_sent_ns(call->exchange) >= begin_ns);
    assert_true(http_exchange_first_byte_ns(call->exchange) >=
                http_exchange_sent_ns(call->exchange));
    assert_true(http_exchange_last_byte_ns(call->exchange) >=
                http_exchange_first_byte_ns(call->exchange));
    http_exchange_end(call->exchange);
    server_stop(setting->server);
    assert_int_equal(call->status, 200);
    assert_int_equal(call->content_length, 5);
    assert_string_equal(text_string(&call->body), "hello");
    /* nothing is added but Host */
    (void)snprintf(expected, sizeof expected,
                   "GET /v1/x?q=1 HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nAuthorization: Bearer k\r\n"
                   "X-Empty:\r\nX-Twice: 1\r\nX-Twice: 2\r\n\r\n",
                   setting->server->port);
    assert_string_equal(text_string(&setting->server->last), expected);
}

static void test_post_small(void **state)
{
    struct setting *setting = *state;
    char expected[256];

    setting->server = server_start(say_hello);
    setting->call.request.headers =
        (const struct http_header[]){{"Content-Type", "application/json"},
                                     {"Accept", "text/event-stream"},
                                     {"Content-Length", "999"},
                                     {"Transfer-Encoding", "chunked"},
                                     {"Expect", "100-continue"},
                                     {"X-Split", "a\r\nEvil: 1"}};
    setting->call.request.header_count = 6;
    call_post(&setting->call, "{\"a\":1}", 7);
    assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
    server_stop(setting->server);
    (void)snprintf(expected, sizeof expected,
                   "POST /v1/x?q=1 HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n"
                   "Content-Type: application/json\r\nAccept: text/event-stream\r\n"
                   "X-Split: a  Evil: 1\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
                   setting->server->port);
    assert_string_equal(text_string(&setting->server->last), expected);
}

static void test_post_sizes(void **state)
{
    struct setting *setting = *state;
    static const size_t sizes[] = {0, 1, 32768, 32769, 70000, 3000000};
    char *body = malloc(3000000);

    assert_non_null(body);
    for (size_t i = 0; i < 3000000; i++)
        body[i] = (char)(i * 13 >> 4);
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        setting->server = server_start(say_hello);
        renew_call(setting);
        call_post(&setting->call, body, sizes[i]);
        setting->call.request.method = i % 2 ? "PUT" : "POST";
        assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
        server_stop(setting->server);
        assert_int_equal(setting->server->last.length - setting->server->last_head, sizes[i]);
        assert_memory_equal(setting->server->last.bytes + setting->server->last_head, body,
                            sizes[i]);
        assert_null(strcasestr(text_string(&setting->server->last), "\nexpect"));
        server_free(setting->server);
    }
    setting->server = NULL;
    free(body);
}

static void test_methods(void **state)
{
    struct setting *setting = *state;
    static const char *const methods[] = {"DELETE", "POST", "GET", "PATCH"};

    for (size_t i = 0; i < LENGTH(methods); i++) {
        setting->server = server_start(say_hello);
        renew_call(setting);
        setting->call.request.method = methods[i];
        assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
        server_stop(setting->server);
        assert_memory_equal(setting->server->last.bytes, methods[i], strlen(methods[i]));
        assert_null(strcasestr(text_string(&setting->server->last), "content-"));
        server_free(setting->server);
    }
    setting->server = NULL;
}

static void say_head(struct server *server)
{
    server_answer_once(server, OK_HEAD "Content-Length: 5\r\n\r\n");
}

static void test_head_has_no_body(void **state)
{
    struct setting *setting = *state;

    setting->server = server_start(say_head);
    setting->call.request.method = "HEAD";
    assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
    server_stop(setting->server);
    assert_int_equal(setting->call.content_length, 5);
    assert_int_equal(setting->call.body.length, 0);
}

/* ---- the request body breaks ----------------------------------------------------------------- */

static void test_body_that_cannot_be_read(void **state)
{
    struct setting *setting = *state;
    static const size_t sizes[] = {30000, 1000000};
    char *body = calloc(1, 1000000);

    assert_non_null(body);
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        setting->server = server_start(server_count_the_rest);
        renew_call(setting);
        call_post(&setting->call, body, sizes[i]);
        setting->call.break_sending_at = 20000;
        assert_int_equal(run_call(setting, &setting->call), HTTP_BODY_FAILED);
        drop_connections(setting);
        server_stop(setting->server);
        assert_int_equal(setting->server->requests, 0); /* never a whole one */
        server_free(setting->server);
    }
    setting->server = NULL;
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_get),     TEST(test_post_small),       TEST(test_post_sizes),
        TEST(test_methods), TEST(test_head_has_no_body), TEST(test_body_that_cannot_be_read),
    };

    return cmocka_run_group_tests(tests, init_process, NULL);
}
