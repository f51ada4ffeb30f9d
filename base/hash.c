/* hash.c - four lanes of multiply and fold, 32 bytes a round; see hash.h. */
#include "base/hash.h"

#include <string.h>

/* Odd, half of their bits set, no pattern. */
#define LANE_0 UINT64_C(0x9a6c5d3e81b7f24b)
#define LANE_1 UINT64_C(0xd1e5a4937c2b86f5)
#define LANE_2 UINT64_C(0x7b39c58e4fa6d213)
#define LANE_3 UINT64_C(0xe32d96b14ac57f89)
#define FINAL UINT64_C(0xb5914d7ea3c86f2d)

__extension__ typedef unsigned __int128 wide;

/* Both halves of the product matter: without the upper one the low bits of a sum would never hear
 * of the high bits of the bytes. */
static inline uint64_t fold(uint64_t number, uint64_t factor)
{
    wide product = (wide)number * factor;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t word_at(const unsigned char *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, sizeof word);
    return word;
}

/* The lanes do not wait for one another, so four multiplications are under way at a time. */
static const unsigned char *mix(struct hash *hash, const unsigned char *at, size_t blocks)
{
    uint64_t a = hash->lanes[0], b = hash->lanes[1], c = hash->lanes[2], d = hash->lanes[3];

    for (; blocks > 0; blocks--, at += HASH_BLOCK) {
        a = fold(a ^ word_at(at), LANE_0);
        b = fold(b ^ word_at(at + 8), LANE_1);
        c = fold(c ^ word_at(at + 16), LANE_2);
        d = fold(d ^ word_at(at + 24), LANE_3);
    }
    hash->lanes[0] = a;
    hash->lanes[1] = b;
    hash->lanes[2] = c;
    hash->lanes[3] = d;
    return at;
}

void hash_init(struct hash *hash)
{
    hash->lanes[0] = LANE_3;
    hash->lanes[1] = LANE_2;
    hash->lanes[2] = LANE_1;
    hash->lanes[3] = LANE_0;
    hash->length = 0;
}

void hash_add(struct hash *hash, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    size_t held = hash->length % HASH_BLOCK;

    if (length == 0)
        return;
    hash->length += length;
    if (held > 0) {
        size_t take = HASH_BLOCK - held < length ? HASH_BLOCK - held : length;

        memcpy(hash->rest + held, at, take);
        at += take;
        length -= take;
        if (held + take < HASH_BLOCK)
            return;
        mix(hash, hash->rest, 1);
    }
    at = mix(hash, at, length / HASH_BLOCK);
    memcpy(hash->rest, at, length % HASH_BLOCK);
}

uint64_t hash_value(const struct hash *hash)
{
    struct hash last = *hash;
    size_t held = hash->length % HASH_BLOCK;

    if (held > 0) {
        memset(last.rest + held, 0, HASH_BLOCK - held);
        mix(&last, last.rest, 1);
    }
    /* The length tells "a" from "a" and a NUL. */
    uint64_t value = fold(last.lanes[0] ^ hash->length, FINAL);

    value = fold(value ^ last.lanes[1], FINAL);
    value = fold(value ^ last.lanes[2], FINAL);
    value = fold(value ^ last.lanes[3], FINAL);
    return value;
}

uint64_t hash_bytes(const void *bytes, size_t length)
{
    struct hash hash;

    hash_init(&hash);
    hash_add(&hash, bytes, length);
    return hash_value(&hash);
}
