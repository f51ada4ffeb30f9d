/*
 * spool.h - a request body that can be read more than once: small ones in memory, large ones in an
 * unnamed file (O_TMPFILE) under the state directory, which vanishes with its process (M16).
 *
 * One thread per spool. The sum over all spools of the instance is bounded through a budget counter
 * that lies in shared memory of the instance's processes (an atomic number of bytes).
 */
#ifndef WORKER_SPOOL_H
#define WORKER_SPOOL_H

#include "base/check.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct spool_limits {
    const char *directory;
    int64_t above_bytes; /* larger goes to a file */
    int64_t total_max_bytes;
    /* Bytes of this process's bodies that lie in files; its share is total_max / workers. */
    _Atomic int64_t *total_bytes;
};

struct spool {
    const struct spool_limits *limits;
    char *memory; /* owned; kept for the next request */
    size_t capacity;
    int fd;         /* -1 = in memory */
    int64_t bytes;  /* written so far */
    int64_t booked; /* of limits->total_bytes */
};

enum spool_result { SPOOL_OK, SPOOL_FULL /* budget or disk */, SPOOL_NO_MEMORY };

void spool_init(struct spool *spool, const struct spool_limits *limits);
void spool_release(struct spool *spool);
/* Empty it for the next request; keeps the memory. */
void spool_reset(struct spool *spool);
/* Where the next bytes belong, with room for size of them: spool_write from there copies nothing. NULL:
 * they will not stay in memory, or there is none. Valid until the next write. */
MUST_CHECK char *spool_room(struct spool *spool, size_t size);
MUST_CHECK enum spool_result spool_write(struct spool *spool, const char *bytes, size_t length);
/* Read what stands at `at` (within 0 ... bytes), for any number of readers: bytes read, 0 at the end,
 * -1 on an I/O error. */
MUST_CHECK ssize_t spool_read_at(const struct spool *spool, int64_t at, char *bytes, size_t size);

#endif
