/*
 * http_response.h - an upstream's answer from the bytes as they come (RFC 9112): its head, the pieces
 * of its body, its end.
 *
 * Pieces of the body are told where they lie; nothing is copied. A line that came in parts is.
 *
 * One thread at a time.
 */
#ifndef WORKER_HTTP_RESPONSE_H
#define WORKER_HTTP_RESPONSE_H

#include "base/text.h"
#include "worker/http_head.h"

#define HTTP_CHUNK_LINE_MAX 4096

enum http_part {
    HTTP_PART_HEAD,
    HTTP_PART_TO_LENGTH, /* body of a known length */
    HTTP_PART_TO_CLOSE,  /* body whose end is the stream's */
    HTTP_PART_CHUNK_SIZE,
    HTTP_PART_CHUNK,
    HTTP_PART_CHUNK_END, /* the line end behind its bytes */
    HTTP_PART_TRAILER,
    HTTP_PART_OVER,
};

struct http_response {
    enum http_part part;
    bool to_head_request;
    int64_t left; /* of the body, or of the chunk */
    size_t trailer_bytes;
    struct http_head_reader head;
    struct text line; /* the beginning of a line whose end has not come */
};

enum http_piece {
    HTTP_PIECE_NONE, /* all bytes are used up */
    HTTP_PIECE_HEAD, /* response->head is final */
    HTTP_PIECE_BODY, /* some bytes of the body; told again until http_response_take */
    HTTP_PIECE_OVER, /* the answer is whole; what is left of the bytes is none of it */
    HTTP_PIECE_BAD_HEAD,
    HTTP_PIECE_BAD_BODY,
    HTTP_PIECE_NO_MEMORY,
};

/* What was received and not used yet. */
struct http_bytes {
    const char *at;
    const char *end;
};

void http_response_init(struct http_response *response);
void http_response_release(struct http_response *response);
/* Begin the answer to the next request; keeps the memory. */
void http_response_reset(struct http_response *response, bool to_head_request);
/* The next piece; BODY: how many bytes from bytes->at on. */
MUST_CHECK enum http_piece http_response_next(struct http_response *response,
                                              struct http_bytes *bytes, size_t *ret_length);
/* length bytes of the body were used. */
void http_response_take(struct http_response *response, struct http_bytes *bytes, size_t length);
/* The stream has ended: was the answer whole? */
bool http_response_ends_here(const struct http_response *response);

#endif
