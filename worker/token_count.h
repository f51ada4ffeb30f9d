/*
 * token_count.h - how many tokens is a text, without a tokenizer: kinds of bytes and their weights
 * (F6). One pass, constant memory; the sum depends on the bytes alone, never on how they were cut.
 *
 * The weights fit the tokenizers in use today; what is left between them is the ratio that
 * shared/calibration learns per model. Pure.
 */
#ifndef WORKER_TOKEN_COUNT_H
#define WORKER_TOKEN_COUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_PARTS 1000 /* all sums are in thousandths of a token */

/* Plain data: a copy continues on its own. All-zero is the beginning. */
struct token_count {
    int64_t parts;             /* of what is over; token_count_parts() adds the run that is open */
    int64_t script_parts;      /* of them, those of other scripts than Latin */
    unsigned char run, before; /* kinds of the run that is open, and of what stands before it */
    unsigned char pending;     /* bytes that the character being read still lacks */
    bool lower;                /* the word that is open has a small letter */
    bool script;               /* it has a letter of another script than Latin */
    uint32_t code;             /* the character so far */
    int64_t length, wide;      /* of the run: characters, and those of them that are not ASCII */
};

void token_count_add(struct token_count *count, const char *bytes, size_t length);
/* The text is over (or could be): everything, with the run that is open, in thousandths. */
int64_t token_count_parts(const struct token_count *count);
/* Of them, those of letters and signs of other scripts than Latin, which tokenizers differ most about. */
int64_t token_count_script_parts(const struct token_count *count);
/* Another text follows that shares no token with this one. */
void token_count_break(struct token_count *count);

#endif
