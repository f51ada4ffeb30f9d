/* stats.h - what the upstream saw: the counts and last calls that tests and benchmarks ask for. */
#ifndef TESTS_TOOLS_UPSTREAM_STATS_H
#define TESTS_TOOLS_UPSTREAM_STATS_H

#include "tests/tools/upstream/answers.h"
#include "tests/tools/upstream/body.h"

#include <stdint.h>

#define RECORDS_MAX 4096
#define RECORDS_SHOWN 50
#define TAGS_MAX 1024

/* How a call ended. */
enum call_end {
    END_DONE,    /* answered to the last byte */
    END_ABORTED, /* the client closed first */
    END_CUT,     /* X-Mock made us close or reset */
};

struct record {
    uint64_t number;
    char method[16];
    char path[200];
    char query[200];
    char call_id[96];
    char authorization[96];
    char mock[200];
    char model[128];
    char sha_hex[65];
    char body[256]; /* its beginning, up to a NUL */
    uint64_t body_bytes;
    uint64_t sent_bytes;
    unsigned status;
    bool image;
    bool complete; /* the request was read to its end */
    enum call_end end;
    int64_t begun_ns;
    int64_t read_ns;
    int64_t ended_ns;
};

struct stats {
    const char *name; /* of the upstream */
    uint64_t requests, done, aborted, cut, bad_requests, quota_refused, hung;
    uint64_t calls_open, calls_open_max;
    uint64_t images, images_open, images_open_max, images_drawn_max;
    uint64_t connections, connections_open, connections_open_max;
    uint64_t bytes_in, bytes_out;
    uint64_t by_endpoint[ENDPOINTS_MAX], open_by_endpoint[ENDPOINTS_MAX],
        max_by_endpoint[ENDPOINTS_MAX];
    int64_t cpu_base_ns;
    uint64_t
        records; /* ever written since the reset; the last lies at (records - 1) % RECORDS_MAX */
    struct record rows[RECORDS_MAX];
    struct {
        char tag[64];
        uint64_t uses;
    } tags[TAGS_MAX];
    unsigned tag_count;
};

void sim_stats_call_open(struct stats *stats, const struct endpoint *endpoint);
void sim_stats_call_close(struct stats *stats, const struct endpoint *endpoint, enum call_end end);
void sim_stats_image_open(struct stats *stats);
void sim_stats_image_close(struct stats *stats);
/* Note how many pictures are being drawn by calls and jobs together. */
void sim_stats_drawn(struct stats *stats, uint64_t drawn);
struct record *sim_stats_record(struct stats *stats);
/* Count one use of the tag; returns how many there were before. A tag_use_function. */
uint64_t sim_stats_tag_use(void *stats, const char *tag);
void sim_stats_reset(struct stats *stats);
/* Everything as one JSON object, with the last `shown` calls. */
void sim_stats_write(const struct stats *stats, struct body *body, uint64_t shown);

#endif
