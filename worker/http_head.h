/*
 * http_head.h - collects the head of an upstream's response from the lines as they come.
 *
 * Heads with a status below 200 are read and forgotten. Bounded by HTTP_HEAD_BYTES_MAX and
 * HTTP_HEADERS_MAX (http_client.h). Names and values keep their bytes, order and repetitions;
 * blanks around a value are cut off, folded lines are joined by one space.
 *
 * One thread at a time.
 */
#ifndef WORKER_HTTP_HEAD_H
#define WORKER_HTTP_HEAD_H

#include "base/text.h"
#include "worker/http_client.h"

enum http_head_state {
    HTTP_HEAD_MORE,
    HTTP_HEAD_FINAL, /* whole; further lines are ignored (trailers) */
    HTTP_HEAD_BAD,   /* not a head, or beyond the bounds */
    HTTP_HEAD_NO_MEMORY,
};

struct http_head_reader {
    enum http_head_state state;
    bool started; /* a status line was seen */
    int status;
    size_t count;
    size_t seen_bytes; /* of this head, as received */
    int64_t content_length;
    bool chunked;
    bool keeps_alive;               /* the connection may carry another exchange */
    struct text text;               /* name NUL value NUL ... */
    size_t names[HTTP_HEADERS_MAX]; /* where in text */
    size_t values[HTTP_HEADERS_MAX];
};

void http_head_reader_init(struct http_head_reader *reader);
void http_head_reader_release(struct http_head_reader *reader);
/* Begin the next response; keeps the memory. */
void http_head_reader_reset(struct http_head_reader *reader);
/* One line with its line end: the status line, a header, or the empty line. */
enum http_head_state http_head_reader_line(struct http_head_reader *reader, const char *line,
                                           size_t length);
/* FINAL: point ret_head at the head; its headers are written to headers[HTTP_HEADERS_MAX]. Valid
 * until the next call. */
void http_head_reader_result(const struct http_head_reader *reader, struct http_header *headers,
                             struct http_head *ret_head);

/* Does a Content-Encoding change the bytes? NULL and "" = there is none. */
bool http_head_is_encoding(const char *coding);

#endif
