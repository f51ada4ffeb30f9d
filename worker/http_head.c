/* http_head.c - an upstream's response head, line by line; see http_head.h. */
#include "worker/http_head.h"

#include "base/parse.h"

#include <string.h>
#include <strings.h>

enum { KEPT_BYTES = 16384 };

void http_head_reader_init(struct http_head_reader *reader)
{
    reader->text = (struct text){.bytes = NULL};
    /* Each header needs two NULs of its own. */
    text_init(&reader->text, HTTP_HEAD_BYTES_MAX + (size_t)2 * HTTP_HEADERS_MAX);
    http_head_reader_reset(reader);
}

void http_head_reader_release(struct http_head_reader *reader)
{
    text_release(&reader->text);
}

static void begin(struct http_head_reader *reader)
{
    text_clear(&reader->text);
    reader->status = 0;
    reader->count = 0;
    reader->seen_bytes = 0;
    reader->content_length = -1;
    reader->chunked = false;
    reader->keeps_alive = false;
}

void http_head_reader_reset(struct http_head_reader *reader)
{
    if (reader->text.capacity > KEPT_BYTES)
        text_release(&reader->text);
    begin(reader);
    reader->state = HTTP_HEAD_MORE;
    reader->started = false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Cut blanks off both ends. */
static void trim(const char **bytes, size_t *length)
{
    while (*length > 0 && is_blank((*bytes)[*length - 1]))
        (*length)--;
    while (*length > 0 && is_blank(**bytes)) {
        (*bytes)++;
        (*length)--;
    }
}

/* "HTTP/1.1 200 OK": the status, 0 when it is none. */
static int read_status(const char *line, size_t length)
{
    uint64_t status;
    size_t at;

    if (length < 12 || memcmp(line, "HTTP/", 5) != 0)
        return 0;
    for (at = 5; at < length && line[at] != ' '; at++)
        continue;
    while (at < length && line[at] == ' ')
        at++;
    if (length - at < 3 || !parse_u64_bytes(line + at, 3, &status) || status < 100)
        return 0;
    return length - at == 3 || line[at + 3] == ' ' ? (int)status : 0;
}

/* Header values that decide how the body is framed and what becomes of the connection. False when
 * they contradict, or name an encoding that nobody asked for. */
static bool note_framing(struct http_head_reader *reader, const char *name, const char *value)
{
    uint64_t length;

    if (text_same_name(name, "transfer-encoding")) {
        if (strcasecmp(value, "identity") == 0)
            return true;
        if (strcasecmp(value, "chunked") != 0 || reader->chunked)
            return false;
        reader->chunked = true;
    } else if (text_same_name(name, "connection")) {
        if (strcasestr(value, "close"))
            reader->keeps_alive = false;
    } else if (text_same_name(name, "content-length")) {
        if (!parse_u64(value, &length) || length > INT64_MAX)
            return false;
        if (reader->content_length >= 0 && reader->content_length != (int64_t)length)
            return false;
        reader->content_length = (int64_t)length;
    }
    return true;
}

static bool is_framing(const char *name)
{
    return strcasecmp(name, "transfer-encoding") == 0 || strcasecmp(name, "connection") == 0 ||
           strcasecmp(name, "content-length") == 0;
}

/* A folded line goes on with the value before it; not with one that note_framing has read. */
static bool add_folded(struct http_head_reader *reader, const char *line, size_t length)
{
    if (reader->count == 0 || is_framing(reader->text.bytes + reader->names[reader->count - 1]))
        return false;
    trim(&line, &length);
    reader->text.length--; /* over the last value's NUL */
    text_append_char(&reader->text, ' ');
    text_append(&reader->text, line, length);
    text_append_char(&reader->text, '\0');
    return true;
}

static bool is_name(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] <= ' ' || name[i] == 0x7f)
            return false;
    return length > 0;
}

static bool add_header(struct http_head_reader *reader, const char *line, size_t length)
{
    const char *colon = memchr(line, ':', length);
    size_t name_length, at = reader->count;
    const char *value;

    if (!colon || at == HTTP_HEADERS_MAX)
        return false;
    name_length = (size_t)(colon - line);
    value = colon + 1;
    length -= name_length + 1;
    trim(&line, &name_length);
    trim(&value, &length);
    if (!is_name(line, name_length))
        return false;
    reader->names[at] = reader->text.length;
    text_append(&reader->text, line, name_length);
    text_append_char(&reader->text, '\0');
    reader->values[at] = reader->text.length;
    text_append(&reader->text, value, length);
    text_append_char(&reader->text, '\0');
    reader->count++;
    return reader->text.overflowed || note_framing(reader, reader->text.bytes + reader->names[at],
                                                   reader->text.bytes + reader->values[at]);
}

/* Whoever reads such a head the other way goes on speaking where we take the answer for whole. */
static bool is_ambiguous(const struct http_head_reader *reader)
{
    if (reader->status == 204)
        return reader->chunked || reader->content_length > 0;
    return reader->chunked && reader->content_length >= 0;
}

/* The empty line. */
static enum http_head_state end_head(struct http_head_reader *reader)
{
    if (is_ambiguous(reader))
        reader->keeps_alive = false;
    if (reader->status >= 200)
        return HTTP_HEAD_FINAL;
    if (reader->status == 101)
        return HTTP_HEAD_BAD; /* nobody asked for another protocol */
    begin(reader);            /* an interim response: the next head follows */
    return HTTP_HEAD_MORE;
}

static enum http_head_state take_line(struct http_head_reader *reader, const char *line,
                                      size_t length)
{
    bool good;

    reader->seen_bytes += length;
    if (reader->seen_bytes > HTTP_HEAD_BYTES_MAX)
        return HTTP_HEAD_BAD;
    if (length > 0 && line[length - 1] == '\n')
        length--;
    if (length > 0 && line[length - 1] == '\r')
        length--;
    if (reader->status == 0) {
        reader->started = true;
        reader->status = read_status(line, length);
        reader->keeps_alive = reader->status > 0 && memcmp(line, "HTTP/1.1 ", 9) == 0;
        return reader->status > 0 ? HTTP_HEAD_MORE : HTTP_HEAD_BAD;
    }
    if (length == 0)
        return end_head(reader);
    if (is_blank(*line))
        good = add_folded(reader, line, length);
    else
        good = add_header(reader, line, length);
    if (!good || memchr(line, '\0', length))
        return HTTP_HEAD_BAD;
    return reader->text.overflowed ? HTTP_HEAD_NO_MEMORY : HTTP_HEAD_MORE;
}

enum http_head_state http_head_reader_line(struct http_head_reader *reader, const char *line,
                                           size_t length)
{
    if (reader->state == HTTP_HEAD_MORE)
        reader->state = take_line(reader, line, length);
    return reader->state;
}

void http_head_reader_result(const struct http_head_reader *reader, struct http_header *headers,
                             struct http_head *ret_head)
{
    REQUIRE(reader->state == HTTP_HEAD_FINAL);
    for (size_t i = 0; i < reader->count; i++)
        headers[i] = (struct http_header){.name = reader->text.bytes + reader->names[i],
                                          .value = reader->text.bytes + reader->values[i]};
    *ret_head = (struct http_head){
        .status = reader->status,
        .headers = headers,
        .header_count = reader->count,
        .content_length = reader->chunked ? -1 : reader->content_length,
    };
}

bool http_head_is_encoding(const char *coding)
{
    return coding && *coding && strcasecmp(coding, "identity") != 0;
}
