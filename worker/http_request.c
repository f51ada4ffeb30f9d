/* http_request.c - a request's header lines and small bodies; see http_request.h. */
#include "worker/http_request.h"

#include <string.h>
#include <strings.h>

/* The first two are libcurl's to know; the third costs a round trip. */
static const char *const left_out[] = {"Content-Length", "Transfer-Encoding", "Expect"};

/* "Name:" keeps libcurl from adding a header of its own, unless the request has it. */
static const struct {
    const char *name;
    const char *line;
    size_t bytes; /* with the NUL */
} kept_away[] = {
    {"Expect", "Expect:", sizeof "Expect:"},
    {"Accept", "Accept:", sizeof "Accept:"},
    {"Content-Type", "Content-Type:", sizeof "Content-Type:"},
};

static bool is_left_out(const char *name)
{
    for (size_t i = 0; i < LENGTH(left_out); i++)
        if (strcasecmp(name, left_out[i]) == 0)
            return true;
    return false;
}

static void add_line(struct text *text, const struct http_header *header)
{
    size_t begin = text->length;

    text_append_string(text, header->name);
    /* "Name;" is libcurl's way to write a header without a value. */
    text_append_string(text, *header->value ? ": " : ";");
    text_append_string(text, header->value);
    if (text->overflowed)
        return;
    for (char *c = text->bytes + begin; *c; c++)
        if (*c == '\r' || *c == '\n')
            *c = ' '; /* never a second header */
    text_append_char(text, '\0');
}

static size_t write_lines(const struct http_request *request, struct text *text)
{
    bool given[LENGTH(kept_away)] = {false};
    size_t count = 0;

    _Static_assert(HTTP_HEADERS_MAX + LENGTH(kept_away) == HTTP_LINES_MAX, "room for every line");
    REQUIRE(request->header_count <= HTTP_HEADERS_MAX);
    for (size_t i = 0; i < request->header_count; i++) {
        const struct http_header *header = &request->headers[i];

        if (is_left_out(header->name))
            continue;
        for (size_t k = 0; k < LENGTH(kept_away); k++)
            given[k] |= strcasecmp(header->name, kept_away[k].name) == 0;
        add_line(text, header);
        count++;
    }
    for (size_t k = 0; k < LENGTH(kept_away); k++) {
        if (given[k])
            continue;
        text_append(text, kept_away[k].line, kept_away[k].bytes);
        count++;
    }
    return count;
}

ssize_t http_request_read_body(const struct http_request *request, char *bytes, size_t size,
                               int64_t left)
{
    ssize_t n;

    if ((uint64_t)left < size)
        size = (size_t)left;
    n = request->read_body(request->body_context, bytes, size);
    return n > 0 && (size_t)n <= size ? n : -1;
}

enum http_written http_request_write(const struct http_request *request, struct text *text,
                                     struct http_request_text *ret_places)
{
    int64_t left = request->body_bytes;
    char bytes[2048]; /* small: each thread keeps the stack it ever used */

    text_clear(text);
    ret_places->line_count = write_lines(request, text);
    ret_places->body_at = text->length;
    if (left > HTTP_SMALL_BODY_BYTES)
        left = 0;
    while (left > 0) {
        ssize_t n = http_request_read_body(request, bytes, sizeof bytes, left);

        if (n < 0)
            return HTTP_WRITTEN_BODY_FAILED;
        text_append(text, bytes, (size_t)n);
        left -= n;
    }
    return text->overflowed ? HTTP_WRITTEN_NO_MEMORY : HTTP_WRITTEN;
}
