/* test_http_client.c - exchanges with scripted upstreams over loopback. */
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

/* ---- the caller's side ---------------------------------------------------------------------------- */

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

static bool on_head(void *context, const struct http_head *head)
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

static enum http_take on_body(void *context, const char *bytes, size_t length)
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

static ssize_t give(void *context, char *bytes, size_t size)
{
    struct call *call = context;
    size_t left = (size_t)call->request.body_bytes - call->sent;

    if (call->break_sending_at > 0 && call->sent >= call->break_sending_at)
        return -1;
    if (size > left)
        size = left;
    if (size > 0)
        memcpy(bytes, call->sending + call->sent, size);
    call->sent += size;
    return (ssize_t)size;
}

static void call_init(struct call *call)
{
    *call = (struct call){
        .request = {.method = "GET", .body_bytes = -1, .connect_timeout_ms = 5000, .ca_file = ""}};
    text_init(&call->headers, 1 << 20);
    text_init(&call->body, (size_t)64 << 20);
}

static void call_release(struct call *call)
{
    text_release(&call->headers);
    text_release(&call->body);
}

static void call_post(struct call *call, const char *body, size_t length)
{
    call->request.method = "POST";
    call->request.body_bytes = (int64_t)length;
    call->request.read_body = give;
    call->request.body_context = call;
    call->sending = body;
}

static void call_start(struct setting *setting, struct call *call)
{
    const struct http_sink sink = {.context = call, .on_head = on_head, .on_body = on_body};

    if (!call->request.url)
        call->request.url = setting->server->url;
    call->exchange = http_exchange_start(setting->client, &call->request, &sink);
    assert_non_null(call->exchange);
}

static enum http_wake run_for(struct setting *setting, int64_t ns)
{
    struct http_wait wait = {.until_ns = clock_monotonic_ns() + ns};

    return http_client_run(setting->client, &wait);
}

static enum http_outcome call_finish(struct setting *setting, struct call *call)
{
    enum http_outcome outcome;

    assert_int_equal(run_for(setting, GUARD_S * NS_PER_S), HTTP_WAKE_FINISHED);
    outcome = http_exchange_outcome(call->exchange);
    assert_true((outcome == HTTP_COMPLETE) == (*http_exchange_error(call->exchange) == '\0'));
    http_exchange_end(call->exchange);
    return outcome;
}

static enum http_outcome run_call(struct setting *setting, struct call *call)
{
    call_start(setting, call);
    return call_finish(setting, call);
}

static int set_up(void **state)
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

static int tear_down(void **state)
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

static void renew_call(struct setting *setting)
{
    call_release(&setting->call);
    call_init(&setting->call);
}

/* The whole of one exchange against a text. */
static enum http_outcome outcome_of(struct setting *setting, void (*script)(struct server *))
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

/* ---- what is sent --------------------------------------------------------------------------------- */

static void say_hello(struct server *server)
{
    server_answer_once(server, OK_HEAD "Content-Length: 5\r\n\r\nhello");
}

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

/* ---- connections ---------------------------------------------------------------------------------- */

static void keep_alive(struct server *server)
{
    int fd;

    while ((fd = server_accept(server)) >= 0) {
        while (server_read(server, fd))
            (void)server_send(fd, OK_HEAD "Content-Length: 2\r\n\r\nok");
        close(fd);
    }
}

/* A connection stays open, so the script ends only when the client has gone. */
static void drop_connections(struct setting *setting)
{
    http_client_return(setting->pool, setting->client);
    http_pool_free(setting->pool);
    setting->pool = http_pool_new();
    assert_non_null(setting->pool);
    setting->client = http_client_borrow(setting->pool);
    assert_non_null(setting->client);
}

static void test_connection_is_used_again(void **state)
{
    struct setting *setting = *state;

    setting->server = server_start(keep_alive);
    for (int i = 0; i < 4; i++) {
        renew_call(setting);
        call_post(&setting->call, "x", 1);
        assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
        assert_string_equal(text_string(&setting->call.body), "ok");
    }
    assert_int_equal(atomic_load(&setting->server->connections), 1);
    drop_connections(setting);
    server_stop(setting->server);
    assert_int_equal(setting->server->requests, 4);
}

/* Answers all connections side by side. */
static void answer_many(struct server *server)
{
    int fds[8];
    int count = 0;

    while (count < 2) {
        fds[count] = server_accept(server);
        if (fds[count] < 0)
            break;
        if (server_read(server, fds[count]))
            (void)server_send(fds[count], OK_HEAD "Content-Length: 2\r\n\r\nok");
        count++;
    }
    while (count > 0)
        close(fds[--count]);
}

static void test_fresh_connection(void **state)
{
    struct setting *setting = *state;

    setting->server = server_start(answer_many);
    assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
    renew_call(setting);
    setting->call.request.fresh_connection = true;
    assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
    server_stop(setting->server);
    assert_int_equal(setting->server->connections, 2);
}

static void test_idle_connection_that_was_closed(void **state)
{
    struct setting *setting = *state;

    setting->server = server_start(say_hello);
    assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
    server_stop(setting->server); /* it has closed the connection */
    setting->server->script = say_hello;
    atomic_store(&setting->server->stop, false);
    assert_int_equal(pthread_create(&setting->server->thread, NULL, server_main, setting->server),
                     0);
    renew_call(setting);
    call_post(&setting->call, "x", 1);
    assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
    server_stop(setting->server);
    assert_int_equal(setting->server->connections, 2);
    assert_int_equal(setting->server->requests, 2);
}

/* M12: the trap. A kept connection dies after it took the whole second request. */
static void take_second_and_close(struct server *server)
{
    int fd = server_accept(server);

    if (fd >= 0 && server_read(server, fd)) {
        (void)server_send(fd, OK_HEAD "Content-Length: 2\r\n\r\nok");
        (void)server_read(server, fd);
        close(fd);
    }
    server_count_the_rest(server);
}

static void test_m12_no_request_is_sent_twice(void **state)
{
    struct setting *setting = *state;
    static const int64_t sizes[] = {-1, 0, 1, 32768, 40000, 1000000};
    char *body = calloc(1, 1000000);

    assert_non_null(body);
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        setting->server = server_start(take_second_and_close);
        renew_call(setting);
        assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
        renew_call(setting);
        if (sizes[i] >= 0)
            call_post(&setting->call, body, (size_t)sizes[i]);
        assert_int_equal(run_call(setting, &setting->call), HTTP_NO_ANSWER);
        assert_int_equal(setting->call.heads, 0);
        drop_connections(setting);
        server_stop(setting->server);
        assert_int_equal(setting->server->requests, 2);
        assert_int_equal(setting->server->opened, 2); /* each of them began once */
        server_free(setting->server);
    }
    setting->server = NULL;
    free(body);
}

static void test_pool_gives_the_warmest_first(void **state)
{
    struct setting *setting = *state;
    struct http_client *a = http_client_borrow(setting->pool);
    struct http_client *b = http_client_borrow(setting->pool);

    assert_true(a && b && a != b);
    http_client_return(setting->pool, a);
    http_client_return(setting->pool, b);
    assert_ptr_equal(http_client_borrow(setting->pool), b);
    assert_ptr_equal(http_client_borrow(setting->pool), a);
    http_client_return(setting->pool, a);
    http_client_return(setting->pool, b);
}

static void test_two_exchanges_at_once(void **state)
{
    struct setting *setting = *state;
    struct call other;

    call_init(&other);
    setting->server = server_start(answer_many);
    call_start(setting, &setting->call);
    call_start(setting, &other);
    assert_int_equal(run_for(setting, GUARD_S * NS_PER_S), HTTP_WAKE_FINISHED);
    if (http_exchange_outcome(setting->call.exchange) == HTTP_RUNNING ||
        http_exchange_outcome(other.exchange) == HTTP_RUNNING)
        assert_int_equal(run_for(setting, GUARD_S * NS_PER_S), HTTP_WAKE_FINISHED);
    assert_int_equal(http_exchange_outcome(setting->call.exchange), HTTP_COMPLETE);
    assert_int_equal(http_exchange_outcome(other.exchange), HTTP_COMPLETE);
    /* told once: nothing is left to tell */
    assert_int_equal(run_for(setting, 0), HTTP_WAKE_TIME);
    http_exchange_end(setting->call.exchange);
    http_exchange_end(other.exchange);
    server_stop(setting->server);
    call_release(&other);
}

static void test_connect_refused(void **state)
{
    struct setting *setting = *state;

    setting->server = server_start(server_count_the_rest);
    server_stop(setting->server);
    close(setting->server->listen_fd);
    setting->server->listen_fd = -1;
    assert_int_equal(run_call(setting, &setting->call), HTTP_NOT_SENT);
}

static void test_connect_timeout(void **state)
{
    struct setting *setting = *state;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int waiting[2];

    setting->server = calloc(1, sizeof *setting->server);
    assert_non_null(setting->server);
    server_listen(setting->server, 0); /* takes one, then answers no more */
    in.sin_port = htons((uint16_t)setting->server->port);
    for (size_t i = 0; i < LENGTH(waiting); i++) {
        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(waiting[i], (const void *)&in, sizeof in);
    }
    setting->call.request.connect_timeout_ms = 100;
    assert_int_equal(run_call(setting, &setting->call), HTTP_CONNECT_TIMEOUT);
    for (size_t i = 0; i < LENGTH(waiting); i++)
        close(waiting[i]);
}

static void test_bad_urls(void **state)
{
    struct setting *setting = *state;
    static const char *const urls[] = {"", "http://", "ftp://127.0.0.1/x", "http://127.0.0.1:x/",
                                       "file:///etc/passwd"};

    for (size_t i = 0; i < LENGTH(urls); i++) {
        renew_call(setting);
        setting->call.request.url = urls[i];
        assert_int_equal(run_call(setting, &setting->call), HTTP_NOT_SENT);
    }
}

/* ---- answers -------------------------------------------------------------------------------------- */

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

static void test_bad_answers(void **state)
{
    struct setting *setting = *state;
    void (*const scripts[])(struct server *) = {say_garbage,     say_a_line_without_colon,
                                                say_two_lengths, say_many_headers,
                                                say_much,        say_one_long_line};

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

/* ---- waiting -------------------------------------------------------------------------------------- */

static void stall_after_half(struct server *server)
{
    int fd = server_accept(server);

    if (fd < 0)
        return;
    if (server_read(server, fd))
        (void)server_send(fd, OK_HEAD "Content-Length: 10\r\n\r\nhalf");
    (void)server_read(server, fd); /* until the other side closes */
    close(fd);
}

static void test_time_passes_while_the_upstream_stalls(void **state)
{
    struct setting *setting = *state;
    int64_t begin_ns;

    setting->server = server_start(stall_after_half);
    call_start(setting, &setting->call);
    while (setting->call.body.length < 4)
        assert_int_equal(run_for(setting, 10 * NS_PER_MS), HTTP_WAKE_TIME);
    begin_ns = clock_monotonic_ns();
    assert_int_equal(run_for(setting, 50 * NS_PER_MS), HTTP_WAKE_TIME);
    assert_true(clock_monotonic_ns() - begin_ns >= 50 * NS_PER_MS);
    assert_int_equal(http_exchange_outcome(setting->call.exchange), HTTP_RUNNING);
    /* ending it closes the connection at once */
    http_exchange_end(setting->call.exchange);
    server_stop(setting->server);
    assert_true(setting->server->saw_close);
}

static void test_fds_of_the_caller(void **state)
{
    struct setting *setting = *state;
    int ends[2], other[2];
    struct http_wait wait = {.fd_count = 3};

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, other), 0);
    wait.fds = (const int[]){-1, ends[0], other[0]};
    setting->server = server_start(stall_after_half);
    call_start(setting, &setting->call);
    assert_int_equal(write(ends[1], "x", 1), 1);
    wait.until_ns = clock_monotonic_ns() + GUARD_S * NS_PER_S;
    assert_int_equal(http_client_run(setting->client, &wait), HTTP_WAKE_FD);
    assert_int_equal(wait.ready, 2);
    close(other[1]);
    assert_int_equal(http_client_run(setting->client, &wait), HTTP_WAKE_FD);
    assert_int_equal(wait.ready, 6);
    http_exchange_end(setting->call.exchange);
    drop_connections(setting);
    server_stop(setting->server);
    close(ends[0]);
    close(ends[1]);
    close(other[0]);
}

static void test_run_without_an_exchange(void **state)
{
    struct setting *setting = *state;

    assert_int_equal(run_for(setting, 20 * NS_PER_MS), HTTP_WAKE_TIME);
}

/* Time is told even while bytes never cease. */
static void pour(struct server *server)
{
    int fd = server_accept(server);
    char bytes[4096];

    if (fd < 0)
        return;
    memset(bytes, 'p', sizeof bytes - 1);
    bytes[sizeof bytes - 1] = '\0';
    if (server_read(server, fd) && server_send(fd, OK_HEAD "\r\n"))
        while (server_send(fd, bytes))
            continue;
    close(fd);
}

static void test_time_passes_while_bytes_pour(void **state)
{
    struct setting *setting = *state;

    setting->server = server_start(pour);
    call_start(setting, &setting->call);
    assert_int_equal(run_for(setting, 30 * NS_PER_MS), HTTP_WAKE_TIME);
    http_exchange_end(setting->call.exchange);
    server_stop(setting->server);
}

static void test_sink_wakes(void **state)
{
    struct setting *setting = *state;

    setting->server = server_start(stall_after_half);
    setting->call.wake = true;
    setting->call.request.body_context = &setting->client;
    call_start(setting, &setting->call);
    assert_int_equal(run_for(setting, GUARD_S * NS_PER_S), HTTP_WAKE_SINK);
    assert_string_equal(text_string(&setting->call.body), "half");
    assert_int_equal(run_for(setting, 10 * NS_PER_MS), HTTP_WAKE_TIME);
    http_exchange_end(setting->call.exchange);
    server_stop(setting->server);
}

static void say_a_megabyte(struct server *server)
{
    struct text text;

    text_init(&text, 2 << 20);
    text_append_string(&text, OK_HEAD "Content-Length: 1000000\r\n\r\n");
    for (int i = 0; i < 1000000; i++)
        text_append_char(&text, (char)('a' + i % 23));
    server_answer_once(server, text_string(&text));
    text_release(&text);
}

static void test_pause_and_resume(void **state)
{
    struct setting *setting = *state;
    struct call *call = &setting->call;

    setting->server = server_start(say_a_megabyte);
    call->pauses_left = 1;
    call_start(setting, call);
    while (call->pauses_left > 0)
        assert_int_equal(run_for(setting, 10 * NS_PER_MS), HTTP_WAKE_TIME);
    /* nothing comes while it is paused */
    assert_int_equal(run_for(setting, 20 * NS_PER_MS), HTTP_WAKE_TIME);
    assert_int_equal(call->body.length, 0);
    call->pauses_left = 1; /* and once more at the first bytes offered again */
    http_exchange_resume(call->exchange);
    assert_int_equal(run_for(setting, 20 * NS_PER_MS), HTTP_WAKE_TIME);
    assert_int_equal(call->pauses_left, 0);
    assert_int_equal(call->body.length, 0);
    http_exchange_resume(call->exchange);
    assert_int_equal(call_finish(setting, call), HTTP_COMPLETE);
    server_stop(setting->server);
    assert_int_equal(call->body.length, 1000000);
    for (size_t i = 0; i < 1000000; i++)
        assert_true(call->body.bytes[i] == (char)('a' + i % 23));
}

static void test_abort_after_a_pause(void **state)
{
    struct setting *setting = *state;

    setting->server = server_start(say_a_megabyte);
    setting->call.pauses_left = 1;
    setting->call.abort_at = 1;
    call_start(setting, &setting->call);
    while (setting->call.pauses_left > 0)
        assert_int_equal(run_for(setting, 10 * NS_PER_MS), HTTP_WAKE_TIME);
    http_exchange_resume(setting->call.exchange);
    assert_int_equal(call_finish(setting, &setting->call), HTTP_ABORTED);
    server_stop(setting->server);
}

static void test_sink_aborts(void **state)
{
    struct setting *setting = *state;

    setting->server = server_start(say_a_megabyte);
    setting->call.refuse_head = true;
    assert_int_equal(run_call(setting, &setting->call), HTTP_ABORTED);
    server_stop(setting->server);
    server_free(setting->server);

    setting->server = server_start(say_a_megabyte);
    renew_call(setting);
    setting->call.abort_at = 3;
    assert_int_equal(run_call(setting, &setting->call), HTTP_ABORTED);
    server_stop(setting->server);
    assert_true(setting->call.body.length > 0 && setting->call.body.length < 1000000);
}

/* ---- the request body breaks ---------------------------------------------------------------------- */

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

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

static int init_process(void **state)
{
    (void)state;
    return http_init_process() ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_get),
        TEST(test_post_small),
        TEST(test_post_sizes),
        TEST(test_methods),
        TEST(test_head_has_no_body),
        TEST(test_connection_is_used_again),
        TEST(test_fresh_connection),
        TEST(test_idle_connection_that_was_closed),
        TEST(test_m12_no_request_is_sent_twice),
        TEST(test_pool_gives_the_warmest_first),
        TEST(test_two_exchanges_at_once),
        TEST(test_connect_refused),
        TEST(test_connect_timeout),
        TEST(test_bad_urls),
        TEST(test_chunked_with_trailer),
        TEST(test_until_close_and_header_order),
        TEST(test_interim_heads_are_skipped),
        TEST(test_redirects_are_not_followed),
        TEST(test_no_content),
        TEST(test_no_answer),
        TEST(test_cut_bodies),
        TEST(test_bad_answers),
        TEST(test_answer_before_the_body_was_sent),
        TEST(test_time_passes_while_the_upstream_stalls),
        TEST(test_fds_of_the_caller),
        TEST(test_run_without_an_exchange),
        TEST(test_time_passes_while_bytes_pour),
        TEST(test_sink_wakes),
        TEST(test_pause_and_resume),
        TEST(test_abort_after_a_pause),
        TEST(test_sink_aborts),
        TEST(test_body_that_cannot_be_read),
    };

    return cmocka_run_group_tests(tests, init_process, NULL);
}
