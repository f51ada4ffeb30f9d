/*
 * call.h - one request and the state of its answer, without the connection it travels on.
 *
 * request.c fills the first half from the bytes that arrive; answers.c and the answer_*.c files
 * read it and write the answer piece by piece.
 */
#ifndef TESTS_TOOLS_UPSTREAM_CALL_H
#define TESTS_TOOLS_UPSTREAM_CALL_H

#include "tests/tools/upstream/behaviour.h"
#include "tests/tools/upstream/body.h"
#include "tests/tools/upstream/sha256.h"

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

#define HEAD_MAX 65536 /* bytes of a request's head */
#define KEPT_MAX 65536 /* first bytes of a body that are kept */
#define TAIL_MAX 4096  /* and last bytes, for a multipart "model" behind the files */

struct jobs;
struct call;

/* Write the piece of the answer that call->step names; true when another follows. */
typedef bool answer_function(struct call *call, struct body *body);

struct endpoint {
    const char *name;
    const char *method;
    const char *path; /* a glob over the whole path */
    bool image;
    bool streams;
    answer_function *answer;
};

enum chunk_place { CHUNK_SIZE, CHUNK_DATA, CHUNK_DATA_END, CHUNK_TRAILER };

struct call {
    /* the request */
    char method[16];
    char path[1024];
    char query[1024];
    char content_type[160];
    char call_id[96]; /* X-Call */
    char authorization[160];
    char mock[256];
    struct text head;
    bool http10, close, expects_continue;
    bool chunked;
    enum chunk_place chunk_place;
    uint64_t chunk_left;
    uint64_t content_length;
    uint64_t received;
    struct sha256 sha;
    char sha_hex[SHA256_HEX_SIZE];
    struct text kept;
    char tail[TAIL_MAX];
    size_t tail_length;
    /* what it means */
    const struct endpoint *endpoint;
    struct behaviour behaviour;
    char bad_key[64]; /* of the X-Mock string; "" when all were good */
    char model[128];
    bool stream, include_usage, background, image;
    uint64_t n;
    uint64_t partials;
    /* the answer */
    uint64_t number;
    int64_t wall_s;
    int64_t now_ns;
    struct jobs *jobs;
    const char *name; /* of this upstream (-n), or "" */
    unsigned status;
    bool sse;
    uint64_t step;
    uint64_t comments_sent;
    uint64_t events_sent;
    int64_t pause_ns; /* before the next piece, in place of chunk_ms; 0 = none */
    struct gzip gzip;
};

#endif
