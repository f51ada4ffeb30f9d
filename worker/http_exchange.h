/*
 * http_exchange.h - one exchange with an upstream from the inside: http_client.c begins and ends it,
 * http_exchange.c moves it on.
 */
#ifndef WORKER_HTTP_EXCHANGE_H
#define WORKER_HTTP_EXCHANGE_H

#include "base/text.h"
#include "worker/http_client.h"
#include "worker/http_idle.h"
#include "worker/http_response.h"

struct http_exchange {
    struct http_client *client;
    struct http_exchange *next;
    struct http_idle *idle; /* the client's */
    struct http_peer peer;
    struct http_connection *connection; /* owned; NULL when it does not run */
    struct http_request request;
    struct http_sink sink;
    enum http_outcome outcome;
    const char *own_error; /* NULL: error has libcurl's words */
    bool running;          /* there is no outcome yet */
    bool reported;         /* http_client_run has told of the outcome */
    bool paused, resume;
    bool reused;      /* over a connection that has carried others */
    bool more;        /* TLS may hold bytes that no poll tells of */
    bool cannot_send; /* the upstream takes no more; its answer may still come */
    int64_t sent_ns, first_byte_ns, last_byte_ns;
    struct text text; /* head and small body */
    const char *out;  /* what is to be sent next: in text, or in piece */
    size_t out_bytes;
    int64_t body_left;    /* of a body that is read while it is sent */
    char *piece;          /* owned, HTTP_PIECE_BYTES; NULL until such a body */
    char *buffer;         /* owned, HTTP_RECEIVE_BYTES */
    struct http_bytes in; /* in buffer: received, not used yet */
    struct http_response response;
    size_t polled_at, polled_count; /* its part of the last poll */
    char error[HTTP_ERROR_SIZE];
};

#define HTTP_RECEIVE_BYTES 65536
#define HTTP_PIECE_BYTES 65536

/* Everything that needs no waiting: time-outs of the connection, the next bytes of the request, bytes
 * that are here already. */
void http_exchange_advance(struct http_exchange *exchange, int64_t now_ns);
/* What to wait for: at most HTTP_CONNECTION_SOCKETS_MAX; returns their number. */
size_t http_exchange_poll(const struct http_exchange *exchange, struct pollfd *fds);
/* Act on what poll said of them. */
void http_exchange_polled(struct http_exchange *exchange, const struct pollfd *fds, size_t count);
/* It ends with this outcome; its connection is kept by the client or closed. */
void http_exchange_finish(struct http_exchange *exchange, enum http_outcome outcome);

#endif
