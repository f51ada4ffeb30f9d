/* spool.c - a request body that can be read more than once; see spool.h. */
#include "worker/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MEMORY_FIRST_BYTES = 8192,
    MEMORY_KEPT_BYTES = 65536, /* more is given back between two requests */
};

void spool_init(struct spool *spool, const struct spool_limits *limits)
{
    *spool = (struct spool){.limits = limits, .fd = -1};
}

/* Give back the file and the share of the budget. */
static void drop_file(struct spool *spool)
{
    if (spool->fd >= 0)
        close(spool->fd);
    spool->fd = -1;
    if (spool->booked > 0)
        atomic_fetch_sub(spool->limits->total_bytes, spool->booked);
    spool->booked = 0;
}

/* Keep no more than a thread may have at rest. */
static void drop_memory(struct spool *spool)
{
    if (spool->capacity <= MEMORY_KEPT_BYTES)
        return;
    free(spool->memory);
    spool->memory = NULL;
    spool->capacity = 0;
}

void spool_release(struct spool *spool)
{
    drop_file(spool);
    free(spool->memory);
    spool_init(spool, spool->limits);
}

void spool_reset(struct spool *spool)
{
    drop_file(spool);
    drop_memory(spool);
    spool->bytes = 0;
}

/* Take bytes of the budget; never more than there is, whoever else takes at the same time. */
static bool book(struct spool *spool, int64_t bytes)
{
    const struct spool_limits *limits = spool->limits;
    int64_t taken = atomic_load(limits->total_bytes);

    do
        if (bytes > limits->total_max_bytes - taken)
            return false;
    while (!atomic_compare_exchange_weak(limits->total_bytes, &taken, taken + bytes));
    spool->booked += bytes;
    return true;
}

/* Not every file system knows O_TMPFILE. */
static int open_named_and_unlink(const char *directory)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/spool.XXXXXX", directory);
    int fd;

    if (length < 0 || (size_t)length >= sizeof path)
        return -1;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0 && unlink(path) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int open_unnamed(const char *directory)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
        fd = open_named_and_unlink(directory);
    return fd;
}

static bool write_file(int fd, const char *bytes, size_t length, int64_t at)
{
    while (length > 0) {
        ssize_t n = pwrite(fd, bytes, length, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes += n;
        length -= (size_t)n;
        at += n;
    }
    return true;
}

/* From memory to a file. On failure all stays as it was. */
static bool move_to_file(struct spool *spool)
{
    if (!book(spool, spool->bytes))
        return false;
    spool->fd = open_unnamed(spool->limits->directory);
    if (spool->fd < 0 || !write_file(spool->fd, spool->memory, (size_t)spool->bytes, 0)) {
        drop_file(spool);
        return false;
    }
    drop_memory(spool);
    return true;
}

static bool grow_memory(struct spool *spool, size_t need)
{
    size_t capacity = spool->capacity ? spool->capacity : MEMORY_FIRST_BYTES;
    char *grown;

    if (need <= spool->capacity)
        return true;
    while (capacity < need)
        capacity *= 2;
    if (capacity > (size_t)spool->limits->above_bytes)
        capacity = (size_t)spool->limits->above_bytes;
    grown = realloc(spool->memory, capacity);
    if (!grown)
        return false;
    spool->memory = grown;
    spool->capacity = capacity;
    return true;
}

static bool stays_in_memory(const struct spool *spool, size_t more)
{
    return spool->fd < 0 && more <= INT64_MAX / 2 &&
           (int64_t)more <= spool->limits->above_bytes - spool->bytes;
}

char *spool_room(struct spool *spool, size_t size)
{
    if (!stays_in_memory(spool, size) || !grow_memory(spool, (size_t)spool->bytes + size))
        return NULL;
    return spool->memory + spool->bytes;
}

enum spool_result spool_write(struct spool *spool, const char *bytes, size_t length)
{
    if (length == 0)
        return SPOOL_OK;
    if (length > INT64_MAX / 2)
        return SPOOL_FULL;
    if (stays_in_memory(spool, length)) {
        bool in_place = bytes == spool->memory + spool->bytes; /* of spool_room */

        if (!in_place && !grow_memory(spool, (size_t)spool->bytes + length))
            return SPOOL_NO_MEMORY;
        if (!in_place)
            memcpy(spool->memory + spool->bytes, bytes, length);
    } else {
        if (spool->fd < 0 && !move_to_file(spool))
            return SPOOL_FULL;
        if (!book(spool, (int64_t)length) || !write_file(spool->fd, bytes, length, spool->bytes))
            return SPOOL_FULL;
    }
    spool->bytes += (int64_t)length;
    return SPOOL_OK;
}

ssize_t spool_read_at(const struct spool *spool, int64_t at, char *bytes, size_t size)
{
    ssize_t n;

    REQUIRE(at >= 0 && at <= spool->bytes);
    if (size > (uint64_t)(spool->bytes - at))
        size = (size_t)(spool->bytes - at);
    if (size == 0)
        return 0;
    if (spool->fd < 0) {
        memcpy(bytes, spool->memory + at, size);
        return (ssize_t)size;
    }
    do
        n = pread(spool->fd, bytes, size, at);
    while (n < 0 && errno == EINTR);
    return n > 0 ? n : -1; /* 0: the file is shorter than what was written */
}
