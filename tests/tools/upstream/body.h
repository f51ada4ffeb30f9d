/*
 * body.h - a piece of an answer under construction: own text and filler by turns.
 *
 * Filler is a run of base64 letters out of one fixed table of 1 MiB; it is only named here, never
 * copied, so an event line of 40 MB costs nothing. The same seed and length always give the same
 * letters.
 */
#ifndef TESTS_TOOLS_UPSTREAM_BODY_H
#define TESTS_TOOLS_UPSTREAM_BODY_H

#include "base/check.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BODY_SPANS_MAX 80
#define BODY_TEXT_MAX (UINT64_C(256) << 20)
#define FILLER_BYTES ((size_t)1 << 20)

struct span {
    bool filler;
    size_t offset; /* into the text, or into the filler table (which is read round and round) */
    uint64_t length;
};

struct body {
    struct text text;
    struct span spans[BODY_SPANS_MAX];
    unsigned count;
    uint64_t length; /* sum of the spans */
};

/* The running state of a gzip body made of stored blocks. */
struct gzip {
    uint32_t crc;
    uint32_t length;
    bool begun;
};

/* Fill the table; once, before anything else. */
void sim_filler_init(void);
const char *sim_filler_bytes(void);

void sim_body_init(struct body *body);
void sim_body_release(struct body *body);
void sim_body_clear(struct body *body);
void sim_body_text(struct body *body, const char *string);
void sim_body_printf(struct body *body, const char *format, ...) PRINTF_LIKE(2, 3);
/* A quoted JSON string. */
void sim_body_json(struct body *body, const char *string);
void sim_body_filler(struct body *body, uint64_t length, uint64_t seed);
/* Replace the content by its gzip form; last: this piece ends the gzip member. */
void sim_body_gzip(struct body *body, struct gzip *gzip, bool last);

#endif
