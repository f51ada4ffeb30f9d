/*
 * http_exchange.h - one exchange with an upstream from the inside: http_client.c runs it,
 * http_exchange.c tells of it.
 */
#ifndef WORKER_HTTP_EXCHANGE_H
#define WORKER_HTTP_EXCHANGE_H

#include "base/text.h"
#include "worker/http_client.h"
#include "worker/http_head.h"

#define HTTP_ERROR_SIZE 256

struct http_exchange {
    struct http_client *client;
    struct http_exchange *next;
    void *easy; /* libcurl's handle; owned */
    struct http_request request;
    struct http_sink sink;
    enum http_outcome outcome; /* may be known before the end: see in_multi */
    const char *own_error;     /* NULL: libcurl's words */
    bool reported;             /* http_client_run has told of the outcome */
    bool in_multi;             /* not finished */
    bool paused, resume;
    bool sent;       /* a byte of the request may have left */
    bool sent_twice; /* libcurl wanted to send it again */
    int64_t sent_ns, first_byte_ns, last_byte_ns;
    int64_t body_left;        /* of a body that is read while it is sent */
    struct text text;         /* header lines, each with its NUL, then a small body */
    struct curl_slist *lines; /* owned array of HTTP_LINES_MAX, linked */
    struct http_head_reader head;
    char error[HTTP_ERROR_SIZE];
};

#endif
