/*
 * hash.h - a fast 64-bit hash of bytes that come in pieces; not for secrets.
 *
 * The value depends on the bytes alone, never on how they were cut into pieces, and is the same in
 * every process of a host; it is not stored across versions. About 2 bytes per cycle and more.
 * Whoever chooses the bytes can make two inputs collide: use it where a collision costs no more
 * than a count.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_BLOCK 32 /* bytes that are mixed at once */

struct hash {
    uint64_t lanes[4];
    uint64_t length;                /* of everything added */
    unsigned char rest[HASH_BLOCK]; /* the length % HASH_BLOCK bytes that fill no block yet */
};

void hash_init(struct hash *hash);
void hash_add(struct hash *hash, const void *bytes, size_t length);
/* The hash of all that was added; more may be added afterwards. */
uint64_t hash_value(const struct hash *hash);

/* All at once: the value that hash_add in any pieces would give. */
uint64_t hash_bytes(const void *bytes, size_t length);

#endif
