/*
 * answer.h - reads one HTTP/1.1 answer as it comes: where it ends, and the marks the simulated
 * upstream leaves in streams: "t=<CLOCK_MONOTONIC ns> " in each text (how long did this chunk
 * travel?) and the final [DONE] (a clean HTTP end alone proves nothing). One thread.
 */
#ifndef TESTS_BENCH_LOAD_ANSWER_H
#define TESTS_BENCH_LOAD_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ANSWER_HEAD_MAX 8192

enum answer_state {
    ANSWER_HEAD,
    ANSWER_BODY,
    ANSWER_DONE,
    ANSWER_BAD, /* not HTTP, or a head that is too long */
};

/* A mark was read: it was made at made_ns. */
typedef void answer_mark_function(void *context, int64_t made_ns);

struct answer {
    enum answer_state state;
    unsigned status;
    bool chunked, event_stream, close_after;
    bool has_length;  /* else, and not chunked: ends with the connection */
    bool done_marked; /* [DONE] was seen */
    uint64_t body_bytes;
    /* What follows is the reader's own. */
    uint64_t left; /* of the body, or of the chunk */
    enum chunk_part { CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_END, TRAILER } chunk_part;
    bool trailer_line_empty;
    unsigned done_matched;
    enum mark_part { MARK_NONE, MARK_T, MARK_DIGITS } mark_part;
    unsigned mark_digits;
    int64_t mark_ns;
    size_t head_length;
    char head[ANSWER_HEAD_MAX];
};

void answer_begin(struct answer *answer);
/* Read on; the state afterwards. Bytes behind the end of the answer are dropped. */
enum answer_state answer_feed(struct answer *answer, const char *bytes, size_t length,
                              answer_mark_function *on_mark, void *context);
/* The connection was closed: is the answer complete by that? */
bool answer_ends_here(const struct answer *answer);

#endif
