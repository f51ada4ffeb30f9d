/* text.c - growing text with an upper limit; see text.h. */
#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void text_init(struct text *text, size_t limit)
{
    *text = (struct text){.limit = limit};
}

void text_release(struct text *text)
{
    free(text->bytes);
    text_init(text, text->limit);
}

void text_clear(struct text *text)
{
    text->length = 0;
    text->overflowed = false;
    if (text->bytes)
        text->bytes[0] = '\0';
}

/* Make room for more bytes; returns how many of them fit. */
static size_t reserve(struct text *text, size_t more)
{
    size_t need;
    size_t capacity = text->capacity ? text->capacity : 64;
    char *grown;

    if (more > text->limit - text->length) {
        more = text->limit - text->length;
        text->overflowed = true;
    }
    need = text->length + more + 1;
    if (need <= text->capacity)
        return more;
    while (capacity < need)
        capacity *= 2;
    grown = realloc(text->bytes, capacity);
    if (!grown) {
        text->overflowed = true;
        return text->capacity ? text->capacity - text->length - 1 : 0;
    }
    text->bytes = grown;
    text->capacity = capacity;
    return more;
}

void text_append(struct text *text, const char *bytes, size_t length)
{
    size_t fits;

    if (length == 0)
        return;
    fits = reserve(text, length);
    if (!text->bytes)
        return;
    if (fits > length)
        fits = length;
    memcpy(text->bytes + text->length, bytes, fits);
    text->length += fits;
    text->bytes[text->length] = '\0';
}

char *text_extend(struct text *text, size_t length)
{
    char *place;

    if (reserve(text, length) < length || !text->bytes) {
        text->overflowed = true;
        return NULL;
    }
    place = text->bytes + text->length;
    text->length += length;
    text->bytes[text->length] = '\0';
    return place;
}

void text_append_string(struct text *text, const char *string)
{
    text_append(text, string, strlen(string));
}

void text_append_char(struct text *text, char c)
{
    text_append(text, &c, 1);
}

const char *text_number(int64_t number, char buffer[TEXT_NUMBER_SIZE])
{
    char *at = &buffer[TEXT_NUMBER_SIZE - 1];
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;

    *at = '\0';
    do
        *--at = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (number < 0)
        *--at = '-';
    return at;
}

void text_append_number(struct text *text, int64_t number)
{
    char buffer[TEXT_NUMBER_SIZE];

    text_append_string(text, text_number(number, buffer));
}

void text_printf(struct text *text, const char *format, ...)
{
    char small[512];
    char *large;
    va_list list;
    int length;

    va_start(list, format);
    length = vsnprintf(small, sizeof small, format, list);
    va_end(list);
    if (length < 0)
        return;
    if ((size_t)length < sizeof small) {
        text_append(text, small, (size_t)length);
        return;
    }
    large = malloc((size_t)length + 1);
    if (!large) {
        text->overflowed = true;
        return;
    }
    va_start(list, format);
    (void)vsnprintf(large, (size_t)length + 1, format, list);
    va_end(list);
    text_append(text, large, (size_t)length);
    free(large);
}

/* Length of the valid UTF-8 sequence at bytes, 0 when there is none (RFC 3629, section 4). */
static size_t utf8_length(const unsigned char *bytes, size_t length)
{
    unsigned char first = bytes[0];
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    size_t need;

    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        need = 2;
    else if (first >= 0xe0 && first <= 0xef)
        need = 3;
    else if (first >= 0xf0 && first <= 0xf4)
        need = 4;
    else
        return 0;
    if (length < need)
        return 0;
    if (first == 0xe0)
        low = 0xa0;
    if (first == 0xed)
        high = 0x9f;
    if (first == 0xf0)
        low = 0x90;
    if (first == 0xf4)
        high = 0x8f;
    if (bytes[1] < low || bytes[1] > high)
        return 0;
    for (size_t i = 2; i < need; i++)
        if (bytes[i] < 0x80 || bytes[i] > 0xbf)
            return 0;
    return need;
}

void text_append_json(struct text *text, const char *bytes, size_t length)
{
    static const char replacement[] = "\xef\xbf\xbd";

    text_append_char(text, '"');
    for (size_t i = 0; i < length;) {
        unsigned char c = (unsigned char)bytes[i];
        size_t step = utf8_length((const unsigned char *)bytes + i, length - i);

        if (c == '"' || c == '\\')
            text_printf(text, "\\%c", c);
        else if (c == '\n')
            text_append_string(text, "\\n");
        else if (c < 0x20 || c == 0x7f)
            text_printf(text, "\\u%04x", (unsigned)c);
        else if (step == 0)
            text_append_string(text, replacement);
        else
            text_append(text, bytes + i, step);
        i += step ? step : 1;
    }
    text_append_char(text, '"');
}

const char *text_string(const struct text *text)
{
    return text->bytes ? text->bytes : "";
}

bool text_copy(char *destination, size_t size, const char *source)
{
    size_t length = strlen(source);
    bool fits = length < size;

    REQUIRE(size > 0);
    if (!fits)
        length = size - 1;
    memcpy(destination, source, length);
    destination[length] = '\0';
    return fits;
}
