/* test_fastcgi.c - a small web server speaks FastCGI to worker/fastcgi.c over real sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/text.h"
#include "worker/fastcgi.h"
#include "worker/fastcgi_head.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { STALL_MS = 2000, REQUEST_ID = 0x0102, SHORT_MS = 60 };

struct front {
    int listen_fd;
    int fd; /* the web server's end */
    bool tcp;
    struct text out; /* what it is going to send */
    struct fastcgi *fcgi;
};

static void listen_again(struct front *front)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

    front->listen_fd = socket(front->tcp ? AF_INET : AF_UNIX, type, 0);
    assert_true(front->listen_fd >= 0);
    if (front->tcp)
        assert_int_equal(bind(front->listen_fd, (const void *)&in, sizeof in), 0);
    else /* an abstract address that the kernel picks */
        assert_int_equal(bind(front->listen_fd, (const void *)&un, sizeof un.sun_family), 0);
    assert_int_equal(listen(front->listen_fd, 16), 0);
}

static void connect_front(struct front *front)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;

    if (front->fd >= 0)
        close(front->fd);
    front->fd = socket(front->tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(getsockname(front->listen_fd, (void *)&address, &length), 0);
    assert_int_equal(connect(front->fd, (const void *)&address, length), 0);
}

static int set_up_front(void **state, bool tcp)
{
    struct front *front = calloc(1, sizeof *front);

    assert_non_null(front);
    front->fd = -1;
    front->tcp = tcp;
    text_init(&front->out, (size_t)64 << 20);
    fastcgi_init_process();
    front->fcgi = fastcgi_new();
    assert_non_null(front->fcgi);
    listen_again(front);
    *state = front;
    return 0;
}

static int set_up(void **state)
{
    return set_up_front(state, false);
}

static int set_up_tcp(void **state)
{
    return set_up_front(state, true);
}

static int tear_down(void **state)
{
    struct front *front = *state;

    fastcgi_free(front->fcgi);
    close(front->listen_fd);
    if (front->fd >= 0)
        close(front->fd);
    text_release(&front->out);
    free(front);
    return 0;
}

/* ---- speaking
 * ------------------------------------------------------------------------------------- */

static void add_record(struct text *out, int type, const char *content, size_t length,
                       size_t padding)
{
    unsigned char header[FASTCGI_HEADER_BYTES];

    fastcgi_record_write(header, (enum fastcgi_type)type, REQUEST_ID, length);
    header[6] = (unsigned char)padding;
    text_append(out, (const char *)header, sizeof header);
    text_append(out, content, length);
    while (padding-- > 0)
        text_append_char(out, 'P');
}

static void add_begin(struct text *out, int role, int flags)
{
    char body[8] = {0, (char)role, (char)flags};

    add_record(out, FASTCGI_BEGIN_REQUEST, body, sizeof body, 0);
}

static void add_length(struct text *pairs, size_t length)
{
    if (length >= 128) {
        text_append_char(pairs, (char)(0x80 | length >> 24));
        text_append_char(pairs, (char)(length >> 16 & 0xff));
        text_append_char(pairs, (char)(length >> 8 & 0xff));
    }
    text_append_char(pairs, (char)(length & 0xff));
}

static void add_pair(struct text *pairs, const char *name, const char *value)
{
    add_length(pairs, strlen(name));
    add_length(pairs, strlen(value));
    text_append_string(pairs, name);
    text_append_string(pairs, value);
}

static void add_params(struct text *out, const char *uri)
{
    struct text pairs;

    text_init(&pairs, 1 << 20);
    add_pair(&pairs, "REQUEST_METHOD", "POST");
    add_pair(&pairs, "REQUEST_URI", uri);
    add_pair(&pairs, "EMPTY", "");
    add_record(out, FASTCGI_PARAMS, text_string(&pairs), pairs.length, 3);
    add_record(out, FASTCGI_PARAMS, "", 0, 0);
    text_release(&pairs);
}

static void add_head(struct text *out)
{
    add_begin(out, 1, 0);
    add_params(out, "/v1/chat/completions");
}

static void add_body(struct text *out, const char *body)
{
    if (*body)
        add_record(out, FASTCGI_STDIN, body, strlen(body), 5);
    add_record(out, FASTCGI_STDIN, "", 0, 0);
}

static void send_now(struct front *front)
{
    if (front->fd < 0)
        connect_front(front);
    assert_int_equal(send(front->fd, text_string(&front->out), front->out.length, MSG_NOSIGNAL),
                     front->out.length);
    text_clear(&front->out);
}

static enum fastcgi_accepted accept_now(struct front *front)
{
    return fastcgi_accept(front->fcgi, front->listen_fd, STALL_MS);
}

static void accept_request(struct front *front)
{
    send_now(front);
    assert_int_equal(accept_now(front), FASTCGI_REQUEST);
}

/* ---- hearing
 * -------------------------------------------------------------------------------------- */

struct heard {
    struct text body;
    unsigned records;
    bool stdout_ended;
    unsigned ends; /* END_REQUEST records */
    int protocol_status;
    bool clean; /* the connection was closed behind a whole record */
};

static bool receive_all(int fd, void *bytes, size_t length)
{
    size_t got = 0;

    while (got < length) {
        ssize_t n = recv(fd, (char *)bytes + got, length - got, 0);

        if (n <= 0)
            return false;
        got += (size_t)n;
    }
    return true;
}

static void hear(int fd, struct heard *heard)
{
    unsigned char header[FASTCGI_HEADER_BYTES];
    char *content = malloc(UINT16_MAX + 256);

    assert_non_null(content);
    *heard = (struct heard){.protocol_status = -1};
    text_init(&heard->body, (size_t)64 << 20);
    for (;;) {
        struct fastcgi_record record;
        ssize_t n = recv(fd, header, 1, 0);

        if (n <= 0) {
            heard->clean = n == 0;
            break;
        }
        if (!receive_all(fd, header + 1, sizeof header - 1))
            break;
        record = fastcgi_record_read(header);
        assert_int_equal(record.version, 1);
        assert_int_equal(record.request_id, REQUEST_ID);
        assert_int_equal(record.padding_bytes, 0);
        if (!receive_all(fd, content, record.content_bytes))
            break;
        heard->records++;
        if (record.type == FASTCGI_STDOUT && record.content_bytes > 0) {
            assert_false(heard->stdout_ended);
            text_append(&heard->body, content, record.content_bytes);
        } else if (record.type == FASTCGI_STDOUT) {
            heard->stdout_ended = true;
        } else {
            assert_int_equal(record.type, FASTCGI_END_REQUEST);
            assert_int_equal(record.content_bytes, 8);
            heard->protocol_status = content[4];
            heard->ends++;
        }
    }
    free(content);
}

static void assert_answer(struct front *front, const char *expected)
{
    struct heard heard;

    hear(front->fd, &heard);
    assert_string_equal(text_string(&heard.body), expected);
    assert_true(heard.stdout_ended);
    assert_int_equal(heard.ends, 1);
    assert_int_equal(heard.protocol_status, 0);
    assert_true(heard.clean);
    text_release(&heard.body);
}

static void assert_read(struct front *front, const char *expected)
{
    char bytes[256];
    size_t got = 0;
    ssize_t n;

    while ((n = fastcgi_read(front->fcgi, bytes + got, sizeof bytes - got, STALL_MS)) > 0)
        got += (size_t)n;
    assert_int_equal(n, 0);
    assert_int_equal(got, strlen(expected));
    assert_memory_equal(bytes, expected, got);
}

/* ---- whole requests
 * ------------------------------------------------------------------------------- */

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
    assert_true(clock_monotonic_ns() - begin_ns < 500 * NS_PER_MS);
    assert_answer(front, "413");
}

/* ---- heads in pieces and bad heads
 * ---------------------------------------------------------------- */

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

/* ---- bodies
 * --------------------------------------------------------------------------------------- */

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

/* ---- the client leaves
 * ---------------------------------------------------------------------------- */

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

/* ---- answers
 * -------------------------------------------------------------------------------------- */

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

#define UNIX_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
#define TCP_TEST(function)                                                                         \
    {                                                                                              \
#function " over TCP", function, set_up_tcp, tear_down, NULL                               \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNIX_TEST(test_small_request),
        TCP_TEST(test_small_request),
        UNIX_TEST(test_connections_are_never_kept),
        UNIX_TEST(test_nothing_to_accept),
        UNIX_TEST(test_unread_small_body_is_no_reason_to_linger),
        UNIX_TEST(test_unread_large_body_lets_the_answer_through),
        TCP_TEST(test_unread_large_body_lets_the_answer_through),
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
