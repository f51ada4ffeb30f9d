/* test_fastcgi.c - a small web server speaks FastCGI to worker/fastcgi.c over real sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/worker/fastcgi_front.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>

/* ---- whole requests -------------------------------------------------------------------------- */

static void test_small_request(void **state)
{
    struct front *front = *state;

    add_head(&front->out);
    add_body(&front->out, "{\"model\":\"m\"}");
    accept_request(front);
    assert_string_equal(fastcgi_param(front->fcgi, "REQUEST_URI"), "/v1/chat/completions");
    assert_string_equal(fastcgi_param(front->fcgi, "EMPTY"), "");
    assert_null(fastcgi_param(front->fcgi, "REQUEST_UR"));
    assert_string_equal(fastcgi_params(front->fcgi)[1], "REQUEST_METHOD=POST");
    assert_read(front, "{\"model\":\"m\"}");
    assert_false(fastcgi_client_gone(front->fcgi));
    assert_true(fastcgi_write(front->fcgi, "Status: 200\r\n\r\n", 15));
    assert_true(fastcgi_write(front->fcgi, "hello", 5));
    assert_int_equal(fastcgi_sent_bytes(front->fcgi), 0);
    assert_true(fastcgi_end(front->fcgi));
    assert_int_equal(fastcgi_sent_bytes(front->fcgi), 20);
    assert_string_equal(fastcgi_param(front->fcgi, "REQUEST_METHOD"), "POST");
    fastcgi_finish(front->fcgi);
    assert_null(fastcgi_param(front->fcgi, "REQUEST_METHOD"));
    assert_null(fastcgi_params(front->fcgi)[0]);
    assert_answer(front, "Status: 200\r\n\r\nhello");
}

static void test_connections_are_never_kept(void **state)
{
    struct front *front = *state;

    for (int i = 0; i < 3; i++) {
        connect_front(front);
        add_begin(&front->out, 1, 1); /* FCGI_KEEP_CONN */
        add_params(&front->out, "/");
        add_body(&front->out, "x");
        accept_request(front);
        assert_read(front, "x");
        assert_true(fastcgi_write(front->fcgi, "ok", 2));
        assert_true(fastcgi_end(front->fcgi));
        fastcgi_finish(front->fcgi);
        assert_answer(front, "ok");
    }
}

static void test_nothing_to_accept(void **state)
{
    struct front *front = *state;

    add_head(&front->out);
    add_body(&front->out, "");
    accept_request(front);
    /* the connection is taken: nobody else waits */
    fastcgi_finish(front->fcgi);
    assert_int_equal(accept_now(front), FASTCGI_NOTHING);
    assert_int_equal(fastcgi_fd(front->fcgi), -1);
}

static void test_unread_small_body_is_no_reason_to_linger(void **state)
{
    struct front *front = *state;
    int64_t begin_ns;

    add_head(&front->out);
    add_body(&front->out, "never read");
    accept_request(front);
    begin_ns = clock_monotonic_ns();
    assert_true(fastcgi_end(front->fcgi));
    assert_true(clock_monotonic_ns() - begin_ns < 40 * NS_PER_MS);
    assert_answer(front, "");
}

/* The peer is still sending when the answer goes out: it gets the answer, not a reset. */
static void test_unread_large_body_lets_the_answer_through(void **state)
{
    struct front *front = *state;
    char *body = calloc(1, 60000);
    int64_t begin_ns;

    assert_non_null(body);
    add_head(&front->out);
    add_record(&front->out, FASTCGI_STDIN, body, 60000, 0);
    free(body);
    accept_request(front);
    assert_true(fastcgi_write(front->fcgi, "413", 3));
    begin_ns = clock_monotonic_ns();
    assert_true(fastcgi_end(front->fcgi));
    fastcgi_finish(front->fcgi);
    assert_true(clock_monotonic_ns() - begin_ns < 500 * NS_PER_MS);
    assert_answer(front, "413");
}

#define LINGER_LONG_MS 60000

/* As Caddy does: the whole body, at its own pace, and only then the answer. NULL: something broke. */
static void *send_all_then_hear(void *argument)
{
    struct front *front = argument;
    static char piece[100000];
    struct heard heard;

    for (int i = 0; i < 20; i++) {
        if (send(front->fd, piece, sizeof piece, MSG_NOSIGNAL) != sizeof piece)
            return NULL;
        clock_sleep_ns(10 * NS_PER_MS);
    }
    (void)shutdown(front->fd, SHUT_WR);
    hear(front->fd, &heard);
    text_release(&heard.body);
    return heard.ends == 1 && heard.clean ? front : NULL;
}

static void test_upload_that_goes_on_after_the_answer(void **state)
{
    struct front *front = *state;
    pthread_t peer;
    void *peer_well;

    add_head(&front->out);
    add_record(&front->out, FASTCGI_STDIN, "x", 1, 0);
    accept_request(front);
    fastcgi_set_linger(front->fcgi, LINGER_LONG_MS, -1);
    assert_int_equal(pthread_create(&peer, NULL, send_all_then_hear, front), 0);
    assert_true(fastcgi_write(front->fcgi, "413", 3));
    assert_true(fastcgi_end(front->fcgi));
    fastcgi_finish(front->fcgi);
    assert_int_equal(pthread_join(peer, &peer_well), 0);
    assert_non_null(peer_well);
}

/* A peer that neither sends nor closes is left at once when all must end. */
static void test_stop_ends_the_wait_for_an_upload(void **state)
{
    struct front *front = *state;
    int pipe_fds[2];
    int64_t begin_ns;

    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    add_head(&front->out);
    add_record(&front->out, FASTCGI_STDIN, "x", 1, 0);
    send_now(front);
    assert_int_equal(accept_now(front), FASTCGI_REQUEST);
    fastcgi_set_linger(front->fcgi, LINGER_LONG_MS, pipe_fds[0]);
    close(pipe_fds[1]);
    assert_true(fastcgi_end(front->fcgi));
    begin_ns = clock_monotonic_ns();
    fastcgi_finish(front->fcgi);
    assert_true(clock_monotonic_ns() - begin_ns < 4000 * NS_PER_MS); /* it would wait for 5 s */
    close(pipe_fds[0]);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

struct drip {
    int fd;
    const char *bytes;
    size_t length;
    size_t piece;
};

static void *send_patterned_body(void *argument)
{
    struct drip *drip = argument;
    struct text out;
    size_t at = 0;

    text_init(&out, 1 << 20);
    while (at < drip->length) {
        size_t take = drip->length - at < drip->piece ? drip->length - at : drip->piece;
        char *content = malloc(take);

        assert_non_null(content);
        for (size_t i = 0; i < take; i++)
            content[i] = (char)((at + i) * 31 >> 3);
        text_clear(&out);
        add_record(&out, FASTCGI_STDIN, content, take, at % 8);
        free(content);
        at += take;
        if (send(drip->fd, out.bytes, out.length, MSG_NOSIGNAL) < 0)
            break;
    }
    text_clear(&out);
    add_record(&out, FASTCGI_STDIN, "", 0, 0);
    (void)!send(drip->fd, out.bytes, out.length, MSG_NOSIGNAL);
    text_release(&out);
    return NULL;
}

static void test_large_body(void **state)
{
    struct front *front = *state;
    static const size_t pieces[] = {65535, 32768, 8184, 1000};
    char bytes[65536];

    for (size_t p = 0; p < LENGTH(pieces); p++) {
        struct drip drip;
        pthread_t thread;
        size_t got = 0;
        ssize_t n;

        connect_front(front);
        add_head(&front->out);
        send_now(front);
        drip = (struct drip){front->fd, NULL, 3000000 + p, pieces[p]};
        assert_int_equal(pthread_create(&thread, NULL, send_patterned_body, &drip), 0);
        assert_int_equal(accept_now(front), FASTCGI_REQUEST);
        while ((n = fastcgi_read(front->fcgi, bytes, sizeof bytes, STALL_MS)) > 0)
            for (ssize_t i = 0; i < n; i++, got++)
                if (bytes[i] != (char)(got * 31 >> 3))
                    fail_msg("byte %zu differs", got);
        assert_int_equal(n, 0);
        assert_int_equal(got, drip.length);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(fastcgi_end(front->fcgi));
        assert_answer(front, "");
    }
}

static void test_body_without_an_end(void **state)
{
    struct front *front = *state;
    char bytes[64];

    add_head(&front->out);
    add_record(&front->out, FASTCGI_STDIN, "half", 4, 0);
    accept_request(front);
    close(front->fd);
    front->fd = -1;
    assert_int_equal(fastcgi_read(front->fcgi, bytes, sizeof bytes, STALL_MS), 4);
    assert_int_equal(fastcgi_read(front->fcgi, bytes, sizeof bytes, STALL_MS), -1);
    assert_int_equal(fastcgi_read(front->fcgi, bytes, sizeof bytes, STALL_MS), -1);
    assert_true(fastcgi_client_gone(front->fcgi));
}

static void test_body_time_out(void **state)
{
    struct front *front = *state;
    char bytes[64];
    int64_t begin_ns;

    add_head(&front->out);
    add_record(&front->out, FASTCGI_STDIN, "slow", 4, 0);
    accept_request(front);
    assert_int_equal(fastcgi_read(front->fcgi, bytes, sizeof bytes, SHORT_MS), 4);
    begin_ns = clock_monotonic_ns();
    assert_int_equal(fastcgi_read(front->fcgi, bytes, sizeof bytes, SHORT_MS), -2);
    assert_true(clock_monotonic_ns() - begin_ns >= SHORT_MS * NS_PER_MS);
    assert_int_equal(fastcgi_read(front->fcgi, bytes, sizeof bytes, SHORT_MS), -2);
    /* the answer to it arrives none the less */
    assert_true(fastcgi_write(front->fcgi, "408", 3));
    assert_true(fastcgi_end(front->fcgi));
    assert_answer(front, "408");
}

/* A trickle is handed on as it comes: the caller's total time-out can work (M16). */
static void test_trickle_comes_through(void **state)
{
    struct front *front = *state;
    char bytes[64];

    add_head(&front->out);
    accept_request(front);
    for (int i = 0; i < 5; i++) {
        add_record(&front->out, FASTCGI_STDIN, "t", 1, 7);
        send_now(front);
        assert_int_equal(fastcgi_read(front->fcgi, bytes, sizeof bytes, STALL_MS), 1);
        assert_int_equal(bytes[0], 't');
    }
    add_body(&front->out, "");
    send_now(front);
    assert_int_equal(fastcgi_read(front->fcgi, bytes, sizeof bytes, STALL_MS), 0);
    assert_int_equal(fastcgi_read(front->fcgi, bytes, sizeof bytes, STALL_MS), 0);
}

/* ---- the client leaves ----------------------------------------------------------------------- */

static void test_abort_record(void **state)
{
    struct front *front = *state;

    add_head(&front->out);
    add_body(&front->out, "b");
    accept_request(front);
    assert_read(front, "b");
    assert_false(fastcgi_client_gone(front->fcgi));
    add_record(&front->out, FASTCGI_ABORT_REQUEST, "", 0, 0);
    send_now(front);
    assert_true(fastcgi_client_gone(front->fcgi));
    assert_true(fastcgi_client_gone(front->fcgi));
}

static void test_abort_before_the_end_of_the_body(void **state)
{
    struct front *front = *state;
    char bytes[8];

    add_head(&front->out);
    accept_request(front);
    assert_false(fastcgi_client_gone(front->fcgi));
    add_record(&front->out, FASTCGI_ABORT_REQUEST, "", 0, 0);
    send_now(front);
    assert_true(fastcgi_client_gone(front->fcgi));
    assert_int_equal(fastcgi_read(front->fcgi, bytes, sizeof bytes, STALL_MS), -1);
}

/* What comes behind the body is skipped, so that nobody spins on a readable descriptor. */
static void test_late_records_are_skipped(void **state)
{
    struct front *front = *state;
    struct pollfd peer;

    add_head(&front->out);
    add_body(&front->out, "b");
    accept_request(front);
    assert_read(front, "b");
    add_record(&front->out, FASTCGI_STDIN, "\x01\x02\x01\x02more", 8, 200);
    text_append(&front->out, "\x01\x02", 2); /* an abort in two pieces */
    send_now(front);
    assert_false(fastcgi_client_gone(front->fcgi));
    peer = (struct pollfd){.fd = fastcgi_fd(front->fcgi), .events = POLLIN | POLLRDHUP};
    assert_int_equal(poll(&peer, 1, 0), 0);
    text_append(&front->out, "\x01\x02\x00\x00\x00\x00", 6);
    send_now(front);
    assert_true(fastcgi_client_gone(front->fcgi));
}

static void test_peer_closes(void **state)
{
    struct front *front = *state;
    struct pollfd peer;

    add_head(&front->out);
    add_body(&front->out, "b");
    accept_request(front);
    assert_read(front, "b");
    close(front->fd);
    front->fd = -1;
    peer = (struct pollfd){.fd = fastcgi_fd(front->fcgi), .events = POLLIN | POLLRDHUP};
    assert_int_equal(poll(&peer, 1, STALL_MS), 1);
    assert_true(fastcgi_client_gone(front->fcgi));
}

static void test_write_to_nobody(void **state)
{
    struct front *front = *state;

    add_head(&front->out);
    add_body(&front->out, "");
    accept_request(front);
    close(front->fd);
    front->fd = -1;
    assert_true(fastcgi_write(front->fcgi, "x", 1));
    assert_false(fastcgi_flush(front->fcgi) && fastcgi_write(front->fcgi, "y", 1) &&
                 fastcgi_flush(front->fcgi));
    assert_false(fastcgi_write(front->fcgi, "z", 1));
    assert_false(fastcgi_flush(front->fcgi));
    assert_true(fastcgi_client_gone(front->fcgi));
    assert_false(fastcgi_end(front->fcgi));
}

/* ---- answers --------------------------------------------------------------------------------- */

static void *hear_in_thread(void *argument)
{
    struct front *front = argument;
    struct heard *heard = malloc(sizeof *heard);

    assert_non_null(heard);
    hear(front->fd, heard);
    return heard;
}

static void test_large_answer(void **state)
{
    struct front *front = *state;
    enum { TOTAL = 40 << 20 };
    static const size_t pieces[] = {16384, 1 << 20, 65528, 5};
    char *answer = malloc(TOTAL);
    struct heard *heard;
    pthread_t thread;
    size_t at = 0;

    assert_non_null(answer);
    for (size_t i = 0; i < TOTAL; i++)
        answer[i] = (char)(i * 7 >> 5);
    add_head(&front->out);
    add_body(&front->out, "");
    accept_request(front);
    assert_int_equal(pthread_create(&thread, NULL, hear_in_thread, front), 0);
    for (size_t i = 0; at < TOTAL; i++) {
        size_t take = pieces[i % LENGTH(pieces)];

        take = take < TOTAL - at ? take : TOTAL - at;
        assert_true(fastcgi_write(front->fcgi, answer + at, take));
        at += take;
        if (i % 7 == 0)
            assert_true(fastcgi_flush(front->fcgi));
    }
    assert_true(fastcgi_end(front->fcgi));
    assert_int_equal(fastcgi_sent_bytes(front->fcgi), TOTAL);
    assert_int_equal(pthread_join(thread, (void **)&heard), 0);
    assert_int_equal(heard->body.length, TOTAL);
    assert_memory_equal(heard->body.bytes, answer, TOTAL);
    assert_int_equal(heard->ends, 1);
    assert_true(heard->clean);
    text_release(&heard->body);
    free(heard);
    free(answer);
}

static void test_flush_sends_at_once(void **state)
{
    struct front *front = *state;
    char bytes[64];

    add_head(&front->out);
    add_body(&front->out, "");
    accept_request(front);
    assert_true(fastcgi_flush(front->fcgi)); /* nothing queued: nothing sent */
    assert_true(fastcgi_write(front->fcgi, "data: 1\n\n", 9));
    assert_int_equal(recv(front->fd, bytes, sizeof bytes, MSG_DONTWAIT), -1);
    assert_true(fastcgi_flush(front->fcgi));
    assert_int_equal(recv(front->fd, bytes, sizeof bytes, MSG_DONTWAIT), 17);
    assert_memory_equal(bytes + 8, "data: 1\n\n", 9);
}

static void test_reader_that_stalls(void **state)
{
    struct front *front = *state;
    char *bytes = calloc(1, 1 << 20);
    int64_t begin_ns;
    uint64_t sent;

    assert_non_null(bytes);
    add_head(&front->out);
    add_body(&front->out, "");
    send_now(front);
    assert_int_equal(fastcgi_accept(front->fcgi, front->listen_fd, SHORT_MS), FASTCGI_REQUEST);
    begin_ns = clock_monotonic_ns();
    for (int i = 0; i < 64; i++)
        if (!fastcgi_write(front->fcgi, bytes, 1 << 20))
            break;
    assert_true(clock_monotonic_ns() - begin_ns >= SHORT_MS * NS_PER_MS);
    assert_false(fastcgi_write(front->fcgi, bytes, 1));
    sent = fastcgi_sent_bytes(front->fcgi);
    assert_true(sent > 0 && sent < (64 << 20));
    assert_false(fastcgi_end(front->fcgi));
    free(bytes);
}

/* Signals: libfcgi's own handlers must not stay. */
static void test_signal_handlers_stay_ours(void **state)
{
    struct sigaction now;

    (void)state;
    assert_int_equal(sigaction(SIGTERM, NULL, &now), 0);
    assert_true(now.sa_handler == SIG_DFL);
    assert_int_equal(sigaction(SIGUSR1, NULL, &now), 0);
    assert_true(now.sa_handler == SIG_DFL);
    assert_int_equal(sigaction(SIGPIPE, NULL, &now), 0);
    assert_true(now.sa_handler == SIG_IGN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIX_TEST(test_small_request),
        TCP_TEST(test_small_request),
        UNIX_TEST(test_connections_are_never_kept),
        UNIX_TEST(test_nothing_to_accept),
        UNIX_TEST(test_unread_small_body_is_no_reason_to_linger),
        UNIX_TEST(test_upload_that_goes_on_after_the_answer),
        TCP_TEST(test_upload_that_goes_on_after_the_answer),
        UNIX_TEST(test_stop_ends_the_wait_for_an_upload),
        UNIX_TEST(test_unread_large_body_lets_the_answer_through),
        TCP_TEST(test_unread_large_body_lets_the_answer_through),
        UNIX_TEST(test_large_body),
        TCP_TEST(test_large_body),
        UNIX_TEST(test_body_without_an_end),
        UNIX_TEST(test_body_time_out),
        UNIX_TEST(test_trickle_comes_through),
        UNIX_TEST(test_abort_record),
        UNIX_TEST(test_abort_before_the_end_of_the_body),
        UNIX_TEST(test_late_records_are_skipped),
        UNIX_TEST(test_peer_closes),
        TCP_TEST(test_peer_closes),
        UNIX_TEST(test_write_to_nobody),
        UNIX_TEST(test_large_answer),
        TCP_TEST(test_large_answer),
        UNIX_TEST(test_flush_sends_at_once),
        UNIX_TEST(test_reader_that_stalls),
        UNIX_TEST(test_signal_handlers_stay_ours),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
