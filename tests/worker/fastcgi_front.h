/*
 * fastcgi_front.h - a small web server for the tests of worker/fastcgi*.c: it speaks FastCGI over a
 * real socket, and hears what comes back.
 */
#ifndef TESTS_WORKER_FASTCGI_FRONT_H
#define TESTS_WORKER_FASTCGI_FRONT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "worker/fastcgi.h"
#include "worker/fastcgi_head.h"

#include <netinet/in.h>
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

static inline void listen_again(struct front *front)
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

static inline void connect_front(struct front *front)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;

    if (front->fd >= 0)
        close(front->fd);
    front->fd = socket(front->tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(getsockname(front->listen_fd, (void *)&address, &length), 0);
    assert_int_equal(connect(front->fd, (const void *)&address, length), 0);
}

static inline int set_up_front(void **state, bool tcp)
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

static inline int set_up(void **state)
{
    return set_up_front(state, false);
}

static inline int set_up_tcp(void **state)
{
    return set_up_front(state, true);
}

static inline int tear_down(void **state)
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

/* ---- speaking -------------------------------------------------------------------------------- */

static inline void add_record(struct text *out, int type, const char *content, size_t length,
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

static inline void add_begin(struct text *out, int role, int flags)
{
    char body[8] = {0, (char)role, (char)flags};

    add_record(out, FASTCGI_BEGIN_REQUEST, body, sizeof body, 0);
}

static inline void add_length(struct text *pairs, size_t length)
{
    if (length >= 128) {
        text_append_char(pairs, (char)(0x80 | length >> 24));
        text_append_char(pairs, (char)(length >> 16 & 0xff));
        text_append_char(pairs, (char)(length >> 8 & 0xff));
    }
    text_append_char(pairs, (char)(length & 0xff));
}

static inline void add_pair(struct text *pairs, const char *name, const char *value)
{
    add_length(pairs, strlen(name));
    add_length(pairs, strlen(value));
    text_append_string(pairs, name);
    text_append_string(pairs, value);
}

static inline void add_params(struct text *out, const char *uri)
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

static inline void add_head(struct text *out)
{
    add_begin(out, 1, 0);
    add_params(out, "/v1/chat/completions");
}

static inline void add_body(struct text *out, const char *body)
{
    if (*body)
        add_record(out, FASTCGI_STDIN, body, strlen(body), 5);
    add_record(out, FASTCGI_STDIN, "", 0, 0);
}

static inline void send_now(struct front *front)
{
    if (front->fd < 0)
        connect_front(front);
    assert_int_equal(send(front->fd, text_string(&front->out), front->out.length, MSG_NOSIGNAL),
                     front->out.length);
    text_clear(&front->out);
}

static inline enum fastcgi_accepted accept_now(struct front *front)
{
    return fastcgi_accept(front->fcgi, front->listen_fd, STALL_MS);
}

static inline void accept_request(struct front *front)
{
    send_now(front);
    assert_int_equal(accept_now(front), FASTCGI_REQUEST);
}

/* ---- hearing --------------------------------------------------------------------------------- */

struct heard {
    struct text body;
    unsigned records;
    bool stdout_ended;
    unsigned ends; /* END_REQUEST records */
    int protocol_status;
    bool clean; /* the connection was closed behind a whole record */
};

static inline bool receive_all(int fd, void *bytes, size_t length)
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

static inline void hear(int fd, struct heard *heard)
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

static inline void assert_answer(struct front *front, const char *expected)
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

static inline void assert_read(struct front *front, const char *expected)
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

#define UNIX_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
#define TCP_TEST(function)                                                                         \
    {                                                                                              \
#function " over TCP", function, set_up_tcp, tear_down, NULL                               \
    }

#endif
