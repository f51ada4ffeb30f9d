/*
 * http_request.h - an exchange's request as the lines and bytes that libcurl is given.
 */
#ifndef WORKER_HTTP_REQUEST_H
#define WORKER_HTTP_REQUEST_H

#include "base/check.h"
#include "base/text.h"
#include "worker/http_client.h"

/* Below libcurl's 64 kB for bodies that leave in one send with the head. */
#define HTTP_SMALL_BODY_BYTES 32768
/* Header lines and a small body. */
#define HTTP_REQUEST_TEXT_MAX 1048576
/* The request's own headers, and lines that keep libcurl's away. */
#define HTTP_LINES_MAX (HTTP_HEADERS_MAX + 3)

enum http_written {
    HTTP_WRITTEN,
    HTTP_WRITTEN_NO_MEMORY,
    HTTP_WRITTEN_BODY_FAILED,
};

struct http_request_text {
    size_t line_count; /* lines at the text's beginning, each with its NUL */
    size_t body_at;    /* where the small body begins */
};

/* Write the header lines (with those that keep libcurl from adding its own) and, when the body is a
 * small one, all of it. */
MUST_CHECK enum http_written http_request_write(const struct http_request *request,
                                                struct text *text,
                                                struct http_request_text *ret_places);

/* Read up to size of the left bytes of the body. -1 also when it ends before its announced length.
 */
ssize_t http_request_read_body(const struct http_request *request, char *bytes, size_t size,
                               int64_t left);

#endif
