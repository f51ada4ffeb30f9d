/*
 * judge_body.h - the words of an error body, whatever its shape: an error object, also in an array
 * or under "response"; a native code and message at the top; the events of a stream up to its first
 * error. Also from a body that was cut.
 *
 * In constant memory, without allocation: hostile depth, size and bytes cost time in proportion to
 * JUDGE_BODY_BYTES_MAX at most. Pure.
 */
#ifndef WORKER_JUDGE_BODY_H
#define WORKER_JUDGE_BODY_H

#include <stddef.h>

#define JUDGE_BODY_BYTES_MAX (256U << 10) /* as much as is held of a stream before its content */
#define JUDGE_BODY_WORD_SIZE 64

enum judge_body_shape {
    JUDGE_BODY_NONE,  /* not an error of any dialect */
    JUDGE_BODY_WORDS, /* code or type, and message at the top: an error where the status says so */
    JUDGE_BODY_ERROR, /* an error, whatever the status is */
};

/* Strings are cut to fit; "" = not said. Where several are given, the first one. */
struct judge_body {
    enum judge_body_shape shape;
    int status;                      /* an HTTP status given in the body, 400..599; 0 = none */
    char code[JUDGE_BODY_WORD_SIZE]; /* but no HTTP status */
    char type[JUDGE_BODY_WORD_SIZE];
    char word[JUDGE_BODY_WORD_SIZE];   /* Google's status, "RESOURCE_EXHAUSTED" */
    char inner[JUDGE_BODY_WORD_SIZE];  /* Azure's innererror.code, Anthropic's details.error_code */
    char reason[JUDGE_BODY_WORD_SIZE]; /* Google's ErrorInfo.reason */
    char delay[JUDGE_BODY_WORD_SIZE];  /* Google's RetryInfo.retryDelay, "37s" */
    char quotas[256];                  /* Google's quotaIds, with a blank before each */
    char message[512];                 /* for patterns alone: never to log or ledger */
};
void judge_body_read(const char *bytes, size_t length, struct judge_body *ret);

#endif
