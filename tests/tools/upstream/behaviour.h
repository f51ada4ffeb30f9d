/*
 * behaviour.h - how one answer is to be given: what the X-Mock header says.
 *
 * All keys are explained at the top of tests/tools/simulated_upstream.c. Where a key is a count, 0
 * means "none", and NOT_GIVEN leaves the choice to the endpoint.
 */
#ifndef TESTS_TOOLS_UPSTREAM_BEHAVIOUR_H
#define TESTS_TOOLS_UPSTREAM_BEHAVIOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NOT_GIVEN UINT64_MAX

enum cut_place {
    CUT_NONE,
    CUT_ACCEPT,  /* as soon as the connection is there */
    CUT_READ,    /* when the request has been read, without delay */
    CUT_HEAD,    /* in place of the answer's head */
    CUT_MIDHEAD, /* in the middle of the answer's head */
    CUT_BODY,    /* after `bytes` bytes of the body */
};

struct cut {
    enum cut_place place;
    uint64_t bytes;
};

enum dialect {
    DIALECT_OPENAI,
    DIALECT_AZURE,
    DIALECT_DASHSCOPE,
    DIALECT_COMPATIBLE,
    DIALECT_GEMINI,
    DIALECT_ANTHROPIC,
    DIALECT_HTML,
    DIALECT_PLAIN,
    DIALECT_EMPTY,
};

struct behaviour {
    uint64_t delay_ms, first_ms, prelude_ms, chunk_ms, job_ms, hang_factor, retry_after_ms;
    uint64_t events, size, n, partials, comments, chunk, status, interim, head_bytes, slow_read,
        seed;
    uint64_t image, stream, error_event, bad_event, job_fail, times, done, usage, quota,
        should_retry;
    uint64_t in_tokens, out_tokens;
    uint64_t limit_requests, remaining_requests, limit_tokens, remaining_tokens;
    double hang_share;
    struct cut reset, close, stall, garble;
    enum dialect dialect;
    bool garbage, no_length, chunked, gzip, endless_headers, redirect, echo, close_after, early,
        url, stamp, incomplete, odd_headers, no_continue, skip_sha, quota_counts, failed;
    bool refuses; /* error=NAME: an error in the body whatever the status */
    char code[64], type[64], message[160], ctype[96], tag[64], retry_after[48], quota_id[64];
    char tool[64], quota_error[40];
    char reset_requests[24], reset_tokens[24];
};

void sim_behaviour_init(struct behaviour *behaviour);
/* Apply "key=value,key=value" on top of what is there. Keys behind times= are left unread when
 * applied_before (called with the tag read so far) says that the tag had its share already.
 * Returns false and names the first key that is unknown or has a bad value. */
typedef uint64_t tag_use_function(void *context, const char *tag);
struct behaviour_source {
    const char *string;
    size_t length;
    tag_use_function *tag_use; /* counts one use of the tag, returns how many there were before */
    void *context;
};
bool sim_behaviour_apply(struct behaviour *behaviour, const struct behaviour_source *source,
                         char ret_bad_key[64]);

#endif
