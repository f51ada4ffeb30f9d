/* edited_body.h - for the tests of what edits bodies: the body with its edits, as an attempt would send it. */
#ifndef TESTS_WORKER_EDITED_BODY_H
#define TESTS_WORKER_EDITED_BODY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "worker/body_reader.h"

#include <stdlib.h>

/* Read in pieces of random sizes. */
static inline void edit_body(const struct text *body, const struct body_edit *edits, size_t count,
                             struct text *ret)
{
    static _Atomic int64_t total;
    const struct spool_limits limits = {.directory = "/nonexistent",
                                        .above_bytes = 1 << 20,
                                        .total_max_bytes = 1 << 20,
                                        .total_bytes = &total};
    struct spool spool;
    struct body_reader reader;
    char bytes[31];
    ssize_t n;

    spool_init(&spool, &limits);
    assert_int_equal(spool_write(&spool, body->bytes, body->length), SPOOL_OK);
    body_reader_init(&reader, &spool, NULL);
    for (size_t i = 0; i < count; i++)
        body_reader_edit(&reader, &edits[i]);
    text_clear(ret);
    while ((n = body_reader_read(&reader, bytes, 1 + (size_t)rand() % sizeof bytes)) > 0)
        text_append(ret, bytes, (size_t)n);
    assert_int_equal(n, 0);
    assert_int_equal(ret->length, body_reader_bytes(&reader));
    spool_release(&spool);
}

#endif
