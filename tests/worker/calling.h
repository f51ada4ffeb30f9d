/*
 * calling.h - the caller's side for the tests of worker/http_*.c: a pool, a client, and a call with a
 * sink that notes what it gets.
 */
#ifndef TESTS_WORKER_CALLING_H
#define TESTS_WORKER_CALLING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/worker/scripted_server.h"
#include "worker/http_client.h"

enum { GUARD_S = 20 }; /* nothing takes that long; a hang becomes a failure */

#define OK_HEAD "HTTP/1.1 200 OK\r\n"

struct call {
    struct http_request request;
    struct http_exchange *exchange;
    int heads;
    int status;
    int64_t content_length;
    struct text headers; /* "name=value|..." */
    struct text body;
    unsigned bodies; /* calls of on_body that took bytes */
    bool refuse_head;
    bool wake;
    int pauses_left;
    int abort_at; /* the n-th call of on_body aborts; 0 = never */
    const char *sending;
    size_t sent;
    size_t break_sending_at; /* 0 = never */
};

struct setting {
    struct http_pool *pool;
    struct http_client *client;
    struct server *server;
    struct call call;
};

static inline bool on_head(void *context, const struct http_head *head)
{
    struct call *call = context;

    call->heads++;
    assert_int_equal(call->body.length, 0);
    call->status = head->status;
    call->content_length = head->content_length;
    for (size_t i = 0; i < head->header_count; i++)
        text_printf(&call->headers, "%s=%s|", head->headers[i].name, head->headers[i].value);
    return !call->refuse_head;
}

static inline enum http_take on_body(void *context, const char *bytes, size_t length)
{
    struct call *call = context;

    assert_int_equal(call->heads, 1);
    if (call->pauses_left > 0) {
        call->pauses_left--;
        return HTTP_PAUSE;
    }
    call->bodies++;
    if (call->abort_at == (int)call->bodies)
        return HTTP_ABORT;
    text_append(&call->body, bytes, length);
    if (call->wake)
        http_client_wake(*(struct http_client **)call->request.body_context);
    return HTTP_TAKEN;
}

static inline ssize_t give(void *context, char *bytes, size_t size)
{
    struct call *call = context;
    size_t left = (size_t)call->request.body_bytes - call->sent;

    if (call->break_sending_at > 0 && call->sent >= call->break_sending_at)
        return -1;
    if (size > left)
        size = left;
    if (call->break_sending_at > 0 && size > call->break_sending_at - call->sent)
        size = call->break_sending_at - call->sent;
    if (size > 0)
        memcpy(bytes, call->sending + call->sent, size);
    call->sent += size;
    return (ssize_t)size;
}

static inline void call_init(struct call *call)
{
    *call = (struct call){
        .request = {.method = "GET", .body_bytes = -1, .connect_timeout_ms = 5000, .ca_file = ""}};
    text_init(&call->headers, 1 << 20);
    text_init(&call->body, (size_t)64 << 20);
}

static inline void call_release(struct call *call)
{
    text_release(&call->headers);
    text_release(&call->body);
}

static inline void call_post(struct call *call, const char *body, size_t length)
{
    call->request.method = "POST";
    call->request.body_bytes = (int64_t)length;
    call->request.read_body = give;
    call->request.body_context = call;
    call->sending = body;
}

static inline void call_start(struct setting *setting, struct call *call)
{
    const struct http_sink sink = {.context = call, .on_head = on_head, .on_body = on_body};

    if (!call->request.url)
        call->request.url = setting->server->url;
    call->exchange = http_exchange_start(setting->client, &call->request, &sink);
    assert_non_null(call->exchange);
}

static inline enum http_wake run_for(struct setting *setting, int64_t ns)
{
    struct http_wait wait = {.until_ns = clock_monotonic_ns() + ns};

    return http_client_run(setting->client, &wait);
}

static inline enum http_outcome call_finish(struct setting *setting, struct call *call)
{
    enum http_outcome outcome;

    assert_int_equal(run_for(setting, GUARD_S * NS_PER_S), HTTP_WAKE_FINISHED);
    outcome = http_exchange_outcome(call->exchange);
    assert_true((outcome == HTTP_COMPLETE) == (*http_exchange_error(call->exchange) == '\0'));
    http_exchange_end(call->exchange);
    return outcome;
}

static inline enum http_outcome run_call(struct setting *setting, struct call *call)
{
    call_start(setting, call);
    return call_finish(setting, call);
}

static inline int set_up(void **state)
{
    struct setting *setting = calloc(1, sizeof *setting);

    assert_non_null(setting);
    setting->pool = http_pool_new();
    assert_non_null(setting->pool);
    setting->client = http_client_borrow(setting->pool);
    assert_non_null(setting->client);
    call_init(&setting->call);
    *state = setting;
    return 0;
}

static inline int tear_down(void **state)
{
    struct setting *setting = *state;

    http_client_return(setting->pool, setting->client);
    http_pool_free(setting->pool);
    if (setting->server)
        server_free(setting->server);
    call_release(&setting->call);
    free(setting);
    return 0;
}

static inline void renew_call(struct setting *setting)
{
    call_release(&setting->call);
    call_init(&setting->call);
}

/* The whole of one exchange against a text. */
static inline enum http_outcome outcome_of(struct setting *setting, void (*script)(struct server *))
{
    enum http_outcome outcome;

    if (setting->server)
        server_free(setting->server);
    setting->server = server_start(script);
    renew_call(setting);
    outcome = run_call(setting, &setting->call);
    server_stop(setting->server);
    return outcome;
}

static inline void say_hello(struct server *server)
{
    server_answer_once(server, OK_HEAD "Content-Length: 5\r\n\r\nhello");
}

/* A connection stays open, so the script ends only when the client has gone. */
static inline void drop_connections(struct setting *setting)
{
    http_client_return(setting->pool, setting->client);
    http_pool_free(setting->pool);
    setting->pool = http_pool_new();
    assert_non_null(setting->pool);
    setting->client = http_client_borrow(setting->pool);
    assert_non_null(setting->client);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

static inline int init_process(void **state)
{
    (void)state;
    return http_init_process() ? 0 : -1;
}

#endif
