/*
 * multipart.h - reads multipart/form-data as it streams by; changes nothing, keeps constant memory.
 *
 * Reports the short text fields (parts without a filename), wherever they stand: also behind 60 MB of
 * files. Understands quoted and unquoted boundaries and names, blanks after a boundary, a preamble
 * and an epilogue, boundaries that straddle two feeds (RFC 2046, RFC 7578).
 */
#ifndef WORKER_MULTIPART_H
#define WORKER_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MULTIPART_NAME_MAX 63
#define MULTIPART_VALUE_MAX 255
#define MULTIPART_BOUNDARY_MAX 200 /* RFC 2046 says 70; some senders use more */

/* One text field: called when its part ends. cut: the value was longer than what is kept. */
typedef void multipart_field_function(void *context, const char *name, const char *value,
                                      size_t value_length, bool cut);

struct multipart {
    multipart_field_function *on_field;
    void *context;
    bool ended;   /* the closing boundary was seen */
    bool invalid; /* no boundary in the type, or a part's head too long */
    unsigned parts;
    /* What follows is the reader's own. */
    unsigned char state;
    char delimiter[MULTIPART_BOUNDARY_MAX + 5]; /* CRLF "--" boundary */
    size_t delimiter_length;
    size_t matched;
    char line[1024]; /* of a part's head */
    size_t line_length;
    bool is_file;
    char name[MULTIPART_NAME_MAX + 1];
    bool name_cut;
    char value[MULTIPART_VALUE_MAX + 1];
    size_t value_length;
    bool value_cut;
};

/* content_type is the whole header value. Is it multipart/form-data with a usable boundary? When not,
 * false, and the reader is invalid and ignores what it is fed. */
bool multipart_begin(struct multipart *multipart, const char *content_type,
                     multipart_field_function *on_field, void *context);
void multipart_feed(struct multipart *multipart, const char *bytes, size_t length);

#endif
