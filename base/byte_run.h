/*
 * byte_run.h - how far do bytes go on before one of two ends them? Sixteen at a time where the
 * machine can (x86-64 always can), eight elsewhere. Every reader of bodies and streams stands on
 * it: a picture is megabytes between two quotes.
 */
#ifndef BASE_BYTE_RUN_H
#define BASE_BYTE_RUN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#ifdef __SSE2__
/* Bit i of the result: is byte i one of the two? */
static inline unsigned byte_run_mask(const char *bytes, __m128i first, __m128i second)
{
    __m128i block = _mm_loadu_si128((const void *)bytes);

    return (unsigned)_mm_movemask_epi8(
        _mm_or_si128(_mm_cmpeq_epi8(block, first), _mm_cmpeq_epi8(block, second)));
}
#else
#define BYTE_RUN_LOW UINT64_C(0x0101010101010101)

/* Not 0 when a byte of word is 0 (it may point at a later byte, too: look closer then). */
static inline uint64_t byte_run_zero(uint64_t word)
{
    return (word - BYTE_RUN_LOW) & ~word & (BYTE_RUN_LOW << 7);
}
#endif

/* The number of bytes before the first a or b; length when there is neither. */
static inline size_t byte_run_until(const char *bytes, size_t length, char a, char b)
{
    size_t at = 0;

#ifdef __SSE2__
    const __m128i first = _mm_set1_epi8(a);
    const __m128i second = _mm_set1_epi8(b);

    /* Most strings and fields are short: look at the first bytes alone. */
    if (length >= 16) {
        unsigned mask = byte_run_mask(bytes, first, second);

        if (mask)
            return (size_t)__builtin_ctz(mask);
        at = 16;
    }
    for (; length - at >= 64; at += 64) {
        unsigned long long mask = byte_run_mask(bytes + at, first, second);

        mask |= (unsigned long long)byte_run_mask(bytes + at + 16, first, second) << 16;
        mask |= (unsigned long long)byte_run_mask(bytes + at + 32, first, second) << 32;
        mask |= (unsigned long long)byte_run_mask(bytes + at + 48, first, second) << 48;
        if (mask)
            return at + (size_t)__builtin_ctzll(mask);
    }
    for (; length - at >= 16; at += 16) {
        unsigned mask = byte_run_mask(bytes + at, first, second);

        if (mask)
            return at + (size_t)__builtin_ctz(mask);
    }
#else
    const uint64_t first = BYTE_RUN_LOW * (unsigned char)a;
    const uint64_t second = BYTE_RUN_LOW * (unsigned char)b;

    for (; length - at >= 8; at += 8) {
        uint64_t word;

        memcpy(&word, bytes + at, sizeof word);
        if (byte_run_zero(word ^ first) | byte_run_zero(word ^ second))
            break;
    }
#endif
    while (at < length && bytes[at] != a && bytes[at] != b)
        at++;
    return at;
}

#endif
