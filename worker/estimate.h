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
#include "worker/multipart.h"
#include "worker/token_count.h"

#include <stdbool.h>
#include <stdint.h>

#define ESTIMATE_PICTURE_TOKENS 1000   /* of a picture: their size is not looked at */
#define ESTIMATE_PICTURE_LOW_TOKENS 85 /* with detail: low */
#define ESTIMATE_SOUND_BYTES 1600 /* of sound, compressed as usual, for one token: 10 a second */
#define ESTIMATE_FILE_BYTES 50    /* of a document's file for one token */

struct estimate {
    struct token_count text;
    int64_t other_parts;            /* all but texts, in thousandths of a token */
    int64_t pictures, pictures_low; /* low: of them, those looked at in low detail */
    bool any; /* there is input: something is added for the beginning of the answer */
    /* What follows is the estimator's own. */
    unsigned char section;     /* which of the body's keys at the top this is in */
    unsigned char use;         /* what becomes of the string that is being read */
    unsigned char data;        /* may the string be base64? */
    uint32_t looked_at;        /* its bytes so far, while it may */
    uint64_t tail;             /* the last eight of them */
    struct token_count before; /* the count before it, to go back to */
};

void estimate_begin(struct estimate *estimate);
/* A piece of a JSON body's text, as json_scan tells them. False: no more of this string, please. */
bool estimate_text(struct estimate *estimate, const struct json_scan *scan,
                   const struct json_text *piece);
/* Likewise of a form's. */
void estimate_form(struct estimate *estimate, const struct multipart_text *piece);
/* All of it, in tokens. */
int64_t estimate_tokens(const struct estimate *estimate);
/* Of them, those of texts in other scripts than Latin. */
int64_t estimate_script_tokens(const struct estimate *estimate);

#endif
