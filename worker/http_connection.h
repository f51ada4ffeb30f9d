/*
 * http_connection.h - one connection to an upstream, plain or TLS: the only door to libcurl.
 *
 * libcurl resolves, connects and speaks TLS (CURLOPT_CONNECT_ONLY); what is said over the connection
 * is ours (http_client.c). A plain connection is taken from libcurl as soon as it stands: its socket
 * is all that is left of it. docs/why/upstream.md has the reasons.
 *
 * One thread at a time; a connection may move to another thread with its client.
 */
#ifndef WORKER_HTTP_CONNECTION_H
#define WORKER_HTTP_CONNECTION_H

#include "base/check.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HTTP_CONNECTION_SOCKETS_MAX 8
#define HTTP_ERROR_SIZE 256

struct opener;

enum http_connection_state {
    HTTP_CONNECTION_OPENING,
    HTTP_CONNECTION_OPEN,
    HTTP_CONNECTION_TIMED_OUT,
    HTTP_CONNECTION_FAILED, /* error says why */
};

struct http_connection {
    struct http_connection *next; /* for the owner */
    enum http_connection_state state;
    bool tls;
    bool reset; /* sending broke; the kernel says so once, then the end would look orderly */
    int fd;     /* -1 until it is open */
    int64_t idle_since_ns;
    /* While it is opening: what to wait for. */
    struct pollfd sockets[HTTP_CONNECTION_SOCKETS_MAX];
    size_t socket_count;
    int64_t timer_ns;
    struct opener *opener; /* libcurl; of a plain connection NULL once it is open */
    char *origin;          /* owned: "https://host:port" */
    const char *host;      /* in origin */
    size_t host_bytes;     /* for the Host field: without the scheme's own port */
    char *ca_file;         /* owned; "" = the system's */
    char error[HTTP_ERROR_SIZE];
};

/* Where to, and on whose word. */
struct http_peer {
    const char *origin; /* scheme, host and port of an URL; not terminated */
    size_t origin_bytes;
    const char *ca_file;
    int64_t connect_timeout_ms; /* TLS included */
};

MUST_CHECK bool http_connection_init_process(void);
/* Begin to open it. NULL: out of memory; every other trouble is told by the state. */
MUST_CHECK struct http_connection *http_connection_new(const struct http_peer *peer);
/* Close it. */
void http_connection_free(struct http_connection *connection);

/* OPENING: one of its sockets is ready (poll's events); or, with fd -1, timer_ns has come. */
void http_connection_act(struct http_connection *connection, int fd, short revents);
/* Does it lead there? */
bool http_connection_fits(const struct http_connection *connection, const struct http_peer *peer);
/* OPEN and idle: neither closed nor spoken to by the other side. */
bool http_connection_is_alive(struct http_connection *connection);

enum { HTTP_IO_WAIT = -1, HTTP_IO_BROKEN = -2 };
/* Bytes sent, or HTTP_IO_*. After WAIT the same bytes must be offered again. */
ssize_t http_connection_send(struct http_connection *connection, const char *bytes, size_t length);
/* Bytes received, 0 at the stream's end, or HTTP_IO_*. */
ssize_t http_connection_receive(struct http_connection *connection, char *bytes, size_t size);

#endif
