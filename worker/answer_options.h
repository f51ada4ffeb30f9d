/*
 * answer_options.h - what a request says about its answer that flow control must know (F4, F6, F11):
 * how many tokens it may have at most, how many pictures or seconds it asks for, whether a stream is to
 * tell its usage, and where the body could be edited so that it does. For intent.c, which finds the
 * places. Pure.
 */
#ifndef WORKER_ANSWER_OPTIONS_H
#define WORKER_ANSWER_OPTIONS_H

#include "base/json_scan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where "include_usage": true can be put into a body (usage_option.h makes the edit). */
enum usage_place {
    USAGE_UNFIT,   /* nowhere: a key is there more than once, or a value of an odd kind */
    USAGE_ASKED,   /* the client asks itself */
    USAGE_BODY,    /* there is no stream_options: behind the brace of the body */
    USAGE_EMPTY,   /* stream_options is {}: behind its brace */
    USAGE_OPTIONS, /* it has other members: likewise */
    USAGE_NULL,    /* it is null: instead of that */
    USAGE_VALUE,   /* it says no: instead of that value */
};

enum answer_option {
    ANSWER_BODY,       /* the body's object */
    ANSWER_MAX_OUTPUT, /* max_tokens and its like; the largest counts */
    ANSWER_CHOICES,    /* n and its like */
    ANSWER_SECONDS,    /* how long what it asks for is to last */
    ANSWER_STREAM,
    ANSWER_STREAM_OPTIONS,
    ANSWER_INCLUDE_USAGE,
};

struct answer_options {
    int64_t max_output; /* as written, for each choice; -1 = not said */
    int64_t choices;    /* or pictures */
    int64_t seconds;    /* begun ones; -1 = not said */
    bool odd, asked;
    unsigned char streams, options, usages; /* how often the key is there: 2 = more than once */
    bool options_null, options_empty;
    int64_t body_at, options_at, usage_at, usage_bytes;
};

void answer_options_begin(struct answer_options *options);
void answer_options_take(struct answer_options *options, enum answer_option option,
                         const struct json_value *value);
/* A text field of a form; one that says nothing of the answer is ignored. */
void answer_options_take_field(struct answer_options *options, const char *name, const char *value,
                               size_t length);
/* Of all choices together; -1 = not said. */
int64_t answer_options_max_output(const struct answer_options *options);
/* For a whole JSON body. at, bytes: the place, of bytes that are to be replaced (0 = none). */
enum usage_place answer_options_usage(const struct answer_options *options, int64_t *ret_at,
                                      int64_t *ret_bytes);

#endif
