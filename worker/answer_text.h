/*
 * answer_text.h - the text of an answer as it goes by, in tokens (F6): what the model wrote, reasoning
 * and the arguments of calls included, through token_count. For an answer that does not tell its usage,
 * or not yet. Of all families of streams, and of documents.
 *
 * What is said twice is counted once: not the whole texts that end a stream of Responses. DashScope's
 * own streams are not counted: their events may each repeat all of the text, and tell the usage so far.
 *
 * Constant memory. Pure.
 */
#ifndef WORKER_ANSWER_TEXT_H
#define WORKER_ANSWER_TEXT_H

#include "base/json_scan.h"
#include "worker/token_count.h"

#include <stdbool.h>
#include <stdint.h>

enum answer_shape {
    ANSWER_DOCUMENT,
    ANSWER_STREAM_OF_ONE,
    ANSWER_STREAM_OF_SEVERAL, /* pieces of several choices come by turns: no word goes on in the next */
};

struct answer_text {
    struct token_count count;
    enum answer_shape shape;
    unsigned char field; /* which of an answer's texts the string being read is of; 0 = none */
    unsigned char last;  /* which one was counted last */
};

void answer_text_begin(struct answer_text *text, enum answer_shape shape);
/* A piece of a string, as json_scan tells them. type: of the event, so far; "" = none. False: no
 * more of this string, please. */
bool answer_text_take(struct answer_text *text, const struct json_scan *scan,
                      const struct json_text *piece, const char *type);
/* In thousandths (TOKEN_PARTS); script: of them, those in other scripts than Latin. */
int64_t answer_text_parts(const struct answer_text *text, int64_t *ret_script_parts);

#endif
