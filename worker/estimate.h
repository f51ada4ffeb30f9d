/*
 * estimate.h - the input tokens of a request, estimated while its body comes in (F6): texts of
 * messages, prompts, instructions and tools through token_count, a fixed charge per message, per
 * picture and per second of sound; base64 is not text. For intent.c, which feeds it.
 *
 * Constant memory, and the same result however the body was cut. Pure.
 */
#ifndef WORKER_ESTIMATE_H
#define WORKER_ESTIMATE_H

#include "base/json_scan.h"
#include "worker/token_count.h"

#include <stdbool.h>
#include <stdint.h>

#define ESTIMATE_PICTURE_TOKENS 1000   /* of a picture whose size and model are not known */
#define ESTIMATE_PICTURE_LOW_TOKENS 85 /* with detail: low */

struct estimate {
    struct token_count text;
    int64_t other_parts; /* all but texts, in thousandths of a token */
    /* What follows is the estimator's own. */
    unsigned char section;           /* which of the body's keys at the top this is in */
    unsigned char string;            /* what becomes of the string that is being read */
    bool may_be_data;                /* it looks like base64 so far */
    uint32_t string_bytes;           /* of it, decoded, while it may be data */
    struct token_count string_begin; /* the count before it, to go back to */
    char head[24];                   /* its first bytes */
};

void estimate_begin(struct estimate *estimate);
/* A piece of a JSON body's text, as json_scan tells them. False: no more of this string, please. */
bool estimate_text(struct estimate *estimate, const struct json_scan *scan,
                   const struct json_text *piece);
/* A piece of a form's text field; name: the field's. */
void estimate_field(struct estimate *estimate, const char *name, const char *bytes, size_t length);
/* A form's file part is over. */
void estimate_file(struct estimate *estimate, const char *name, uint64_t bytes);
/* All of it, in tokens. */
int64_t estimate_tokens(const struct estimate *estimate);

#endif
