/* test_hash.c - equal bytes give equal values however they are cut, different bytes different ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/hash.h"

#include <string.h>

static void fill(unsigned char *bytes, size_t length)
{
    uint32_t state = 1;

    for (size_t i = 0; i < length; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(state >> 24);
    }
}

static void pieces_give_the_same_value(void **state)
{
    unsigned char bytes[150];

    (void)state;
    fill(bytes, sizeof bytes);
    for (size_t length = 0; length <= sizeof bytes; length++) {
        uint64_t whole = hash_bytes(bytes, length);

        for (size_t first = 0; first <= length; first++) {
            for (size_t second = 0; second <= length - first; second += 7) {
                struct hash hash;

                hash_init(&hash);
                hash_add(&hash, bytes, first);
                hash_add(&hash, bytes + first, second);
                hash_add(&hash, bytes + first + second, length - first - second);
                assert_true(hash_value(&hash) == whole);
            }
        }
    }
}

static void the_value_may_be_asked_for_midway(void **state)
{
    struct hash hash;

    (void)state;
    hash_init(&hash);
    hash_add(&hash, "abc", 3);
    assert_true(hash_value(&hash) == hash_bytes("abc", 3));
    hash_add(&hash, "def", 3);
    assert_true(hash_value(&hash) == hash_bytes("abcdef", 6));
}

/* Every flipped bit, every length: no two of the values are alike. */
static void neighbours_differ(void **state)
{
    static unsigned char bytes[80];
    static uint64_t seen[80 * 8 + 81];
    size_t count = 0;

    (void)state;
    fill(bytes, sizeof bytes);
    for (size_t bit = 0; bit < sizeof bytes * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        seen[count++] = hash_bytes(bytes, sizeof bytes);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    for (size_t length = 0; length <= sizeof bytes; length++)
        seen[count++] = hash_bytes(bytes, length);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            assert_false(seen[i] == seen[j]);
}

static void trailing_nuls_count(void **state)
{
    static const char zeros[70];

    (void)state;
    for (size_t i = 0; i < sizeof zeros; i++)
        for (size_t j = 0; j < i; j++)
            assert_false(hash_bytes(zeros, i) == hash_bytes(zeros, j));
}

/* About half of the bits change with one bit of the input. */
static void a_bit_spreads(void **state)
{
    unsigned char bytes[64];
    unsigned long changed = 0;

    (void)state;
    fill(bytes, sizeof bytes);
    uint64_t before = hash_bytes(bytes, sizeof bytes);

    for (size_t bit = 0; bit < sizeof bytes * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        int count = __builtin_popcountll(before ^ hash_bytes(bytes, sizeof bytes));

        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_in_range(count, 10, 54);
        changed += (unsigned long)count;
    }
    assert_in_range(changed, 512 * 30, 512 * 34);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_give_the_same_value),
        cmocka_unit_test(the_value_may_be_asked_for_midway),
        cmocka_unit_test(neighbours_differ),
        cmocka_unit_test(trailing_nuls_count),
        cmocka_unit_test(a_bit_spreads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
