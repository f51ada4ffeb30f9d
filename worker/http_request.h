/*
 * http_request.h - an exchange's request as the bytes that go upstream.
 */
#ifndef WORKER_HTTP_REQUEST_H
#define WORKER_HTTP_REQUEST_H

#include "base/check.h"
#include "base/text.h"
#include "worker/http_client.h"

/* A body up to here is read at once and leaves in one send with the head. */
#define HTTP_SMALL_BODY_BYTES 32768
/* Head and small body. */
#define HTTP_REQUEST_TEXT_MAX 1048576

enum http_written {
    HTTP_WRITTEN,
    HTTP_WRITTEN_NO_MEMORY,
    HTTP_WRITTEN_BODY_FAILED,
};

/* Where a request goes: the Host field's value, the target of the request line. */
struct http_place {
    const char *host;
    size_t host_bytes;
    const char *target;
};

/* How long an URL's origin (scheme, host, port) is; its target follows. False: the URL or the method
 * cannot stand in a request line. */
MUST_CHECK bool http_request_split(const struct http_request *request, size_t *ret_origin_bytes);

/* Write the head and, when the body is a small one, all of it. */
MUST_CHECK enum http_written http_request_write(const struct http_request *request,
                                                const struct http_place *place, struct text *text);

/* Read up to size of the left bytes of the body. -1 also when it ends before its announced length.
 */
ssize_t http_request_read_body(const struct http_request *request, char *bytes, size_t size,
                               int64_t left);

#endif
