/*
 * body_reader.h - reads a request's body for one attempt, any number of them side by side; where an
 * alias or a fallback gives the model another name (peers.md 2.14), or a stream is to tell its usage,
 * that one place is edited on the way and nothing else.
 */
#ifndef WORKER_BODY_READER_H
#define WORKER_BODY_READER_H

#include "worker/spool.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BODY_EDITS_MAX 2

/* One range of the body and what stands there instead. */
struct body_edit {
    int64_t at, bytes; /* bytes < 0: no edit; 0: text is put in before what stands there */
    const char *text;  /* as it goes on the wire (a JSON string with its quotes, escaped) */
    size_t text_bytes;
};

struct body_reader {
    const struct spool *spool;
    struct body_edit edits[BODY_EDITS_MAX]; /* by their place */
    size_t edit_count;
    int64_t read_at; /* in the edited body */
};

/* edit: NULL = none; its text must outlive the reader. */
void body_reader_init(struct body_reader *reader, const struct spool *spool,
                      const struct body_edit *edit);
/* One more edit, before the first read; edits must not overlap. */
void body_reader_edit(struct body_reader *reader, const struct body_edit *edit);
/* Length of the edited body. */
int64_t body_reader_bytes(const struct body_reader *reader);
/* Bytes read, 0 at the end, -1 on an I/O error. Fits http_body_function. */
ssize_t body_reader_read(void *reader, char *bytes, size_t size);

#endif
