/*
 * text.h - growing text, born with its upper limit.
 *
 * A text never holds more than limit bytes: what would pass it is cut off and the text remembers
 * that (overflowed). Running out of memory is treated alike, so callers check once, at the end.
 * Always NUL-terminated. One thread at a time.
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "base/check.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

struct text {
    char *bytes; /* owned; NULL until the first append */
    size_t length;
    size_t capacity;
    size_t limit; /* bytes, without the terminating NUL */
    bool overflowed;
};

void text_init(struct text *text, size_t limit);
/* Free what the text holds; it is empty and usable afterwards, with the same limit. */
void text_release(struct text *text);
/* Empty it, keep its memory. */
void text_clear(struct text *text);

void text_append(struct text *text, const char *bytes, size_t length);
void text_append_string(struct text *text, const char *string);
/* Append length bytes that the caller writes there, at once. NULL, and nothing appended, when they do not
 * fit. */
MUST_CHECK char *text_extend(struct text *text, size_t length);
void text_append_char(struct text *text, char c);
void text_append_number(struct text *text, int64_t number);
void text_printf(struct text *text, const char *format, ...) PRINTF_LIKE(2, 3);
/* The bytes as a quoted JSON string; invalid UTF-8 becomes U+FFFD. */
void text_append_json(struct text *text, const char *bytes, size_t length);

/* The text's bytes as a C string; "" when nothing was appended. */
const char *text_string(const struct text *text);

/* Equal? Cheap for what differs at once, as keys do. */
static inline bool text_same(const char *a, const char *b)
{
    return *a == *b && strcmp(a, b) == 0;
}

/* Equal but for the case of letters? Cheap for what differs at once, as names in a table do. */
static inline bool text_same_name(const char *a, const char *b)
{
    return (*a | 0x20) == (*b | 0x20) && strcasecmp(a, b) == 0;
}

#define TEXT_NUMBER_SIZE sizeof "-9223372036854775808"
/* The number's digits, somewhere in the buffer: printf costs ten times as much. */
const char *text_number(int64_t number, char buffer[TEXT_NUMBER_SIZE]);

/* Copy source into destination[size], cut to fit, always NUL-terminated.
 * Returns false when it had to be cut. */
bool text_copy(char *destination, size_t size, const char *source);

#endif
