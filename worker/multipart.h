/*
 * multipart.h - reads multipart/form-data as it streams by; changes nothing, keeps constant memory.
 *
 * Reports the short text fields (parts without a filename), wherever they stand: also behind 60 MB
 * of files. Understands quoted and unquoted boundaries and names, blanks after a boundary, a
 * preamble and an epilogue, boundaries that straddle two feeds (RFC 2046, RFC 7578).
 */
#ifndef WORKER_MULTIPART_H
#define WORKER_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MULTIPART_NAME_MAX 63
#define MULTIPART_VALUE_MAX 255
#define MULTIPART_BOUNDARY_MAX 200 /* RFC 2046 says 70; some senders use more */

/* One text field, told of when its part ends. */
struct multipart_field {
    const char *name, *value; /* good only during the call */
    size_t value_length;
    bool value_cut;                 /* only its beginning is kept */
    uint64_t value_at, value_bytes; /* the whole value in the input */
};
typedef void multipart_field_function(void *context, const struct multipart_field *field);

/* A piece of a text field's value as it goes by, cut anywhere. Parts with a name only; the last piece of
 * each is empty, and the only one of a file. */
struct multipart_text {
    const char *name, *bytes;
    size_t length;
    bool is_file, ends;
    uint64_t value_bytes; /* when it ends: of the whole value */
};
typedef void multipart_text_function(void *context, const struct multipart_text *piece);

struct multipart {
    multipart_field_function *on_field;
    void *context;
    bool ended;          /* the closing boundary was seen */
    bool invalid;        /* no boundary in the type, or a part's head too long */
    unsigned parts;      /* that are complete */
    uint64_t text_bytes; /* of the values of text fields that are complete, however long */
    /* What follows is the reader's own. */
    struct multipart_private {
        multipart_text_function *on_text;
        unsigned char state;
        bool in_part;      /* not the preamble */
        bool virtual_crlf; /* the first two bytes matched never stood in the input */
        size_t delimiter_length, matched;
        bool line_ended,
            line_cut; /* of a part's head: it may still be continued by a folded line */
        size_t line_length, head_bytes;
        bool is_file, name_cut, value_cut;
        size_t name_length, value_length;
        const char
            *feed; /* where the bytes being read begin; they stand at fed_bytes of the input */
        uint64_t fed_bytes, value_at;
        uint64_t match_at;                          /* where what is matched begins */
        bool padded;                                /* blanks behind the delimiter were skipped */
        char delimiter[MULTIPART_BOUNDARY_MAX + 5]; /* CRLF "--" boundary */
        char line[1024];
        char name[MULTIPART_NAME_MAX + 1];
        char value[MULTIPART_VALUE_MAX + 1];
    } own;
};

/* content_type is the whole header value. Is it multipart/form-data with a usable boundary? When
 * not, false, and the reader is invalid and ignores what it is fed. */
bool multipart_begin(struct multipart *multipart, const char *content_type,
                     multipart_field_function *on_field, void *context);
/* Before the first feed: also hand over the values of text fields, with the context of on_field. */
void multipart_listen(struct multipart *multipart, multipart_text_function *on_text);
void multipart_feed(struct multipart *multipart, const char *bytes, size_t length);

#endif
