/* test_fastcgi_head.c - heads in pieces, and heads that libfcgi must never see. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/worker/fastcgi_front.h"

#include <pthread.h>
#include <sched.h>

struct drip {
    int fd;
    const char *bytes;
    size_t length;
    size_t piece;
};

static void *send_in_pieces(void *argument)
{
    struct drip *drip = argument;

    for (size_t at = 0; at < drip->length; at += drip->piece) {
        size_t take = drip->length - at < drip->piece ? drip->length - at : drip->piece;

        if (send(drip->fd, drip->bytes + at, take, MSG_NOSIGNAL) < 0)
            break;
        sched_yield();
    }
    return NULL;
}

static void test_split_records(void **state)
{
    struct front *front = *state;

    for (size_t piece = 1; piece <= 17; piece += 4) {
        struct drip drip;
        pthread_t thread;

        connect_front(front);
        add_head(&front->out);
        add_record(&front->out, FASTCGI_STDIN, "ab", 2, 255);
        add_record(&front->out, FASTCGI_STDIN, "cdefg", 5, 1);
        add_body(&front->out, "hij");
        drip = (struct drip){front->fd, text_string(&front->out), front->out.length, piece};
        assert_int_equal(pthread_create(&thread, NULL, send_in_pieces, &drip), 0);
        assert_int_equal(accept_now(front), FASTCGI_REQUEST);
        assert_string_equal(fastcgi_param(front->fcgi, "REQUEST_URI"), "/v1/chat/completions");
        assert_read(front, "abcdefghij");
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(fastcgi_end(front->fcgi));
        assert_answer(front, "");
        text_clear(&front->out);
    }
}

static void test_peer_leaves_inside_the_head(void **state)
{
    struct front *front = *state;

    add_head(&front->out);
    for (size_t keep = 0; keep < front->out.length; keep += 7) {
        struct text whole = front->out;

        text_init(&front->out, whole.limit);
        connect_front(front);
        assert_int_equal(send(front->fd, whole.bytes, keep, 0), keep);
        close(front->fd);
        front->fd = -1;
        front->out = whole;
        assert_int_equal(accept_now(front), FASTCGI_NOTHING);
    }
}

static void test_peer_is_silent_inside_the_head(void **state)
{
    struct front *front = *state;
    int64_t begin_ns = clock_monotonic_ns();

    add_begin(&front->out, 1, 0);
    send_now(front);
    assert_int_equal(fastcgi_accept(front->fcgi, front->listen_fd, SHORT_MS), FASTCGI_NOTHING);
    assert_true(clock_monotonic_ns() - begin_ns >= SHORT_MS * NS_PER_MS);
}

/* Debian's libfcgi would end the process on each of these. */
static void test_heads_that_libfcgi_must_not_see(void **state)
{
    struct front *front = *state;
    static const struct {
        const char *bytes;
        size_t length;
    } pairs[] = {
        {"\xff\xff\xff\xff\xff\xff\xff\xff", 8},
        {"\xff\xff\xff\xfe\xff\xff\xff\xfe", 8},
        {"\xff\xff\xff\xfe\x01", 5},
        {"\x01\xff\xff\xff\xfe", 5},
        {"\xc0\x00\x00\x00\xc0\x00\x00\x00", 8},
    };

    for (size_t i = 0; i < LENGTH(pairs); i++) {
        struct heard heard;

        connect_front(front);
        add_begin(&front->out, 1, 0);
        add_record(&front->out, FASTCGI_PARAMS, pairs[i].bytes, pairs[i].length, 0);
        send_now(front);
        assert_int_equal(accept_now(front), FASTCGI_NOTHING);
        hear(front->fd, &heard);
        assert_non_null(strstr(text_string(&heard.body), "Status: 431"));
        assert_int_equal(heard.ends, 1);
        text_release(&heard.body);
    }
}

static void test_management_record_overrun(void **state)
{
    struct front *front = *state;
    struct text pairs;
    struct heard heard;

    text_init(&pairs, 4096);
    for (int i = 0; i < 50; i++)
        add_pair(&pairs, "FCGI_MAX_CONNS", "");
    add_begin(&front->out, 1, 0);
    add_record(&front->out, 9, text_string(&pairs), pairs.length, 0);
    front->out.bytes[16 + 2] = front->out.bytes[16 + 3] = 0; /* request id 0 */
    text_release(&pairs);
    send_now(front);
    assert_int_equal(accept_now(front), FASTCGI_NOTHING);
    hear(front->fd, &heard);
    assert_int_equal(heard.records, 0);
    text_release(&heard.body);
}

static void test_head_bounds(void **state)
{
    struct front *front = *state;
    char *value = malloc(70000);

    assert_non_null(value);
    memset(value, 'v', 70000);
    value[60000] = '\0';
    for (int large = 0; large < 2; large++) {
        struct text pairs;

        text_init(&pairs, 1 << 20);
        connect_front(front);
        add_begin(&front->out, 1, 0);
        add_pair(&pairs, "HTTP_COOKIE", value);
        if (large)
            add_pair(&pairs, "HTTP_MORE", value + 54000);
        for (size_t at = 0; at < pairs.length; at += 30000)
            add_record(&front->out, FASTCGI_PARAMS, pairs.bytes + at,
                       pairs.length - at < 30000 ? pairs.length - at : 30000, 0);
        add_record(&front->out, FASTCGI_PARAMS, "", 0, 0);
        add_body(&front->out, "");
        send_now(front);
        assert_int_equal(accept_now(front), large ? FASTCGI_NOTHING : FASTCGI_REQUEST);
        if (!large)
            assert_string_equal(fastcgi_param(front->fcgi, "HTTP_COOKIE"), value);
        text_release(&pairs);
    }
    free(value);
}

static void test_too_many_params(void **state)
{
    struct front *front = *state;
    struct text pairs;

    text_init(&pairs, 1 << 16);
    for (int i = 0; i <= FASTCGI_PARAMS_MAX; i++)
        add_pair(&pairs, "A", "");
    add_begin(&front->out, 1, 0);
    add_record(&front->out, FASTCGI_PARAMS, text_string(&pairs), pairs.length, 0);
    add_record(&front->out, FASTCGI_PARAMS, "", 0, 0);
    text_release(&pairs);
    send_now(front);
    assert_int_equal(accept_now(front), FASTCGI_NOTHING);
}

static void test_other_role(void **state)
{
    struct front *front = *state;
    struct heard heard;

    add_begin(&front->out, 2, 0);
    add_params(&front->out, "/");
    send_now(front);
    assert_int_equal(accept_now(front), FASTCGI_NOTHING);
    hear(front->fd, &heard);
    assert_int_equal(heard.ends, 1);
    assert_int_equal(heard.protocol_status, 3);
    text_release(&heard.body);
}

static void test_nonsense(void **state)
{
    struct front *front = *state;

    static const char *const nonsense[] = {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01hello",
                                           "\x01\x04\x01\x02\x01\x01\x01\x01"};

    for (size_t i = 0; i < LENGTH(nonsense); i++) {
        connect_front(front);
        text_append_string(&front->out, nonsense[i]);
        send_now(front);
        assert_int_equal(accept_now(front), FASTCGI_NOTHING);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIX_TEST(test_split_records),
        TCP_TEST(test_split_records),
        UNIX_TEST(test_peer_leaves_inside_the_head),
        UNIX_TEST(test_peer_is_silent_inside_the_head),
        UNIX_TEST(test_heads_that_libfcgi_must_not_see),
        UNIX_TEST(test_management_record_overrun),
        UNIX_TEST(test_head_bounds),
        TCP_TEST(test_head_bounds),
        UNIX_TEST(test_too_many_params),
        UNIX_TEST(test_other_role),
        UNIX_TEST(test_nonsense),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
