/*
 * fastcgi_head.h - a look at the head of a FastCGI connection before libfcgi reads it.
 *
 * Debian's libfcgi bounds nothing: a parameter that announces 2 GB ends the process in an
 * assertion, a management record overruns a buffer on its stack, parameters may go on for ever. So
 * the bytes are looked at first (MSG_PEEK), and only a whole and plain head reaches libfcgi:
 * BEGIN_REQUEST as responder, PARAMS of the same request up to their empty record, all within the
 * bounds below.
 *
 * Pure: no allocation, no state.
 */
#ifndef WORKER_FASTCGI_HEAD_H
#define WORKER_FASTCGI_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FASTCGI_HEADER_BYTES 8
/* The head with its record headers and padding; a longer one is answered 431. */
#define FASTCGI_HEAD_BYTES_MAX 65536
#define FASTCGI_PARAMS_MAX 1000

enum fastcgi_type {
    FASTCGI_BEGIN_REQUEST = 1,
    FASTCGI_ABORT_REQUEST = 2,
    FASTCGI_END_REQUEST = 3,
    FASTCGI_PARAMS = 4,
    FASTCGI_STDIN = 5,
    FASTCGI_STDOUT = 6,
};

struct fastcgi_record {
    uint8_t version;
    uint8_t type;
    uint16_t request_id;
    size_t content_bytes;
    size_t padding_bytes;
};

enum fastcgi_head_state {
    FASTCGI_HEAD_MORE,       /* good so far, not whole */
    FASTCGI_HEAD_WHOLE,      /* libfcgi may read it */
    FASTCGI_HEAD_OTHER_ROLE, /* an authorizer or filter: answer "unknown role" */
    FASTCGI_HEAD_TOO_LARGE,  /* beyond the bounds: answer 431 */
    FASTCGI_HEAD_BAD,        /* not what a web server sends: close */
};

struct fastcgi_head {
    uint16_t request_id;    /* 0 until BEGIN_REQUEST was seen */
    size_t bytes;           /* WHOLE: the head's length; the body begins there */
    size_t with_body_bytes; /* WHOLE: length with the whole body when all of it was seen, else 0 */
};

/* header[FASTCGI_HEADER_BYTES] as a record. */
struct fastcgi_record fastcgi_record_read(const unsigned char *header);
/* Write the header of an unpadded record of at most 65535 content bytes into
 * out[FASTCGI_HEADER_BYTES]. */
void fastcgi_record_write(unsigned char *out, enum fastcgi_type type, uint16_t request_id,
                          size_t content_bytes);

/* Judge the first length bytes of a connection. */
enum fastcgi_head_state fastcgi_head_scan(const unsigned char *bytes, size_t length,
                                          struct fastcgi_head *ret_head);

#endif
