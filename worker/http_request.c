/* http_request.c - a request's head and small bodies; see http_request.h. */
#include "worker/http_request.h"

#include <string.h>

/* Host and the framing are ours to write; the third costs a round trip; a hop-by-hop field is not to
 * be passed on. */
static const char *const left_out[] = {"Host",   "Content-Length", "Transfer-Encoding",
                                       "Expect", "Connection",     "Keep-Alive"};

static bool is_left_out(const char *name)
{
    for (size_t i = 0; i < LENGTH(left_out); i++)
        if (text_same_name(name, left_out[i]))
            return true;
    return false;
}

/* Blanks and control bytes would end a word of the request line, or the line. */
static bool is_word(const char *word)
{
    const char *at = word;

    while ((unsigned char)*at > ' ' && *at != 0x7f)
        at++;
    return at != word && *at == '\0';
}

bool http_request_split(const struct http_request *request, size_t *ret_origin_bytes)
{
    const char *scheme_end = strstr(request->url, "://");
    const char *authority = scheme_end ? scheme_end + 3 : request->url;

    *ret_origin_bytes = (size_t)(authority - request->url) + strcspn(authority, "/?#");
    return scheme_end && is_word(request->url) && is_word(request->method);
}

static void write_target(const char *target, struct text *text)
{
    if (*target != '/')
        text_append_char(text, '/');
    text_append(text, target, strcspn(target, "#"));
}

static void write_field(struct text *text, const struct http_header *header)
{
    size_t begin = text->length;

    text_append_string(text, header->name);
    text_append(text, ": ", *header->value ? 2 : 1);
    text_append_string(text, header->value);
    if (text->overflowed)
        return;
    for (char *c = text->bytes + begin + strcspn(text->bytes + begin, "\r\n"); *c; c++)
        if (*c == '\r' || *c == '\n')
            *c = ' '; /* never a second field */
    text_append(text, "\r\n", 2);
}

static void write_head(const struct http_request *request, const struct http_place *place,
                       struct text *text)
{
    text_append_string(text, request->method);
    text_append_char(text, ' ');
    write_target(place->target, text);
    text_append_string(text, " HTTP/1.1\r\nHost: ");
    text_append(text, place->host, place->host_bytes);
    text_append(text, "\r\n", 2);
    for (size_t i = 0; i < request->header_count; i++)
        if (!is_left_out(request->headers[i].name))
            write_field(text, &request->headers[i]);
    if (request->body_bytes >= 0) {
        text_append_string(text, "Content-Length: ");
        text_append_number(text, request->body_bytes);
        text_append(text, "\r\n", 2);
    }
    text_append(text, "\r\n", 2);
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

enum http_written http_request_write(const struct http_request *request,
                                     const struct http_place *place, struct text *text)
{
    int64_t left = request->body_bytes;
    char *body;

    text_clear(text);
    write_head(request, place, text);
    if (text->overflowed)
        return HTTP_WRITTEN_NO_MEMORY;
    if (left <= 0 || left > HTTP_SMALL_BODY_BYTES)
        return HTTP_WRITTEN;
    body = text_extend(text, (size_t)left);
    if (!body)
        return HTTP_WRITTEN_NO_MEMORY;
    while (left > 0) {
        ssize_t n = http_request_read_body(request, body, (size_t)left, left);

        if (n < 0)
            return HTTP_WRITTEN_BODY_FAILED;
        body += n;
        left -= n;
    }
    return HTTP_WRITTEN;
}
