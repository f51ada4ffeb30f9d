/* test_http_client.c - connections, waiting and sinks, with scripted upstreams over loopback. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/calling.h"

/* ---- connections ----------------------------------------------------------------------------- */

static void keep_alive(struct server *server)
{
    int fd;

    while ((fd = server_accept(server)) >= 0) {
        while (server_read(server, fd))
            (void)server_send(fd, OK_HEAD "Content-Length: 2\r\n\r\nok");
        close(fd);
    }
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

static int closed_of_four;

/* Of four connections, how many the client has closed when it opens the next. */
static void answer_five(struct server *server)
{
    int fds[5];

    for (size_t i = 0; i < LENGTH(fds); i++) {
        fds[i] = server_accept(server);
        if (fds[i] < 0)
            return;
        for (size_t k = 0; i == 4 && k < i; k++) {
            char byte;

            closed_of_four += recv(fds[k], &byte, 1, MSG_DONTWAIT) == 0;
        }
        if (server_read(server, fds[i]))
            (void)server_send(fds[i], OK_HEAD "Content-Length: 2\r\n\r\nok");
    }
    for (size_t i = 0; i < LENGTH(fds); i++)
        close(fds[i]);
}

/* Hedges and retries open one each: they do not pile up. */
static void test_of_fresh_connections_two_are_kept(void **state)
{
    struct setting *setting = *state;

    closed_of_four = 0;
    setting->server = server_start(answer_five);
    for (int i = 0; i < 5; i++) {
        renew_call(setting);
        setting->call.request.fresh_connection = true;
        assert_int_equal(run_call(setting, &setting->call), HTTP_COMPLETE);
    }
    server_stop(setting->server);
    assert_int_equal(closed_of_four, 2);
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

/* ---- waiting --------------------------------------------------------------------------------- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_connection_is_used_again),
        TEST(test_fresh_connection),
        TEST(test_of_fresh_connections_two_are_kept),
        TEST(test_idle_connection_that_was_closed),
        TEST(test_m12_no_request_is_sent_twice),
        TEST(test_pool_gives_the_warmest_first),
        TEST(test_two_exchanges_at_once),
        TEST(test_connect_refused),
        TEST(test_connect_timeout),
        TEST(test_bad_urls),
        TEST(test_time_passes_while_the_upstream_stalls),
        TEST(test_fds_of_the_caller),
        TEST(test_run_without_an_exchange),
        TEST(test_time_passes_while_bytes_pour),
        TEST(test_sink_wakes),
        TEST(test_pause_and_resume),
        TEST(test_abort_after_a_pause),
        TEST(test_sink_aborts),
    };

    return cmocka_run_group_tests(tests, init_process, NULL);
}
