/*
 * parse.h - strict readers for the values people write: numbers, durations, sizes, switches, globs; and
 * for the words of HTTP.
 *
 * Every reader takes the whole string or refuses it: no leading blanks, signs or trailing rest are
 * tolerated. The output is untouched on failure. Pure.
 */
#ifndef BASE_PARSE_H
#define BASE_PARSE_H

#include "base/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal, no sign, fits 64 bits. */
MUST_CHECK bool parse_u64(const char *string, uint64_t *ret_number);
/* The same from length bytes that need not end in a NUL. */
MUST_CHECK bool parse_u64_bytes(const char *bytes, size_t length, uint64_t *ret_number);
/* Likewise, and it may have a fraction: rounded up. */
MUST_CHECK bool parse_rounded_up(const char *bytes, size_t length, uint64_t *ret_number);
/* "250ms", "30s", "5m", "2h", "1d" or a plain number of unit_ms milliseconds; decimals allowed
 * ("0.5s"). */
MUST_CHECK bool parse_duration_ms(const char *string, int64_t unit_ms, int64_t *ret_ms);
/* "65536", "64k", "64m", "2g" (powers of 1024, either case, an optional "b" or "ib" after it). */
MUST_CHECK bool parse_size(const char *string, uint64_t *ret_bytes);
/* true/false, yes/no, on/off, 1/0, either case. */
MUST_CHECK bool parse_bool(const char *string, bool *ret_value);

/* Does the glob (only * and ?) match all of the length bytes at text, ASCII case ignored? Takes
 * time proportional to the product of both lengths at most. */
bool parse_glob_matches(const char *glob, const char *text, size_t length);

/* Take blanks and line ends off both ends: *text moves, and what is left is so long. */
size_t parse_trim(const char **text, size_t length);
/* Is it the word, but for blanks and line ends around it? */
bool parse_is_word(const char *text, size_t length, const char *word);

/* Is it a token of RFC 9110 (5.6.2), as methods and header names are? */
bool parse_is_token(const char *string);

#endif
