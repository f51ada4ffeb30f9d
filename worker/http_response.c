/* http_response.c - an upstream's answer piece by piece; see http_response.h. */
#include "worker/http_response.h"

#include <string.h>

enum { LINE_KEPT_BYTES = 4096 };

void http_response_init(struct http_response *response)
{
    *response = (struct http_response){.part = HTTP_PART_HEAD};
    http_head_reader_init(&response->head);
    text_init(&response->line, HTTP_HEAD_BYTES_MAX + 1);
}

void http_response_release(struct http_response *response)
{
    http_head_reader_release(&response->head);
    text_release(&response->line);
}

void http_response_reset(struct http_response *response, bool to_head_request)
{
    response->part = HTTP_PART_HEAD;
    response->to_head_request = to_head_request;
    response->left = 0;
    response->trailer_bytes = 0;
    http_head_reader_reset(&response->head);
    if (response->line.capacity > LINE_KEPT_BYTES)
        text_release(&response->line);
    text_clear(&response->line);
}

struct line {
    const char *bytes;
    size_t length; /* with its line end */
};

enum line_state { LINE_WHOLE, LINE_NOT_YET, LINE_TOO_LONG, LINE_NO_MEMORY };

/* Take the next line off the bytes. One that comes in parts is put together in response->line, to be
 * cleared by end_line. */
static enum line_state next_line(struct http_response *response, struct http_bytes *bytes,
                                 size_t max, struct line *ret_line)
{
    struct text *parts = &response->line;
    size_t here = (size_t)(bytes->end - bytes->at);
    const char *feed = here > 0 ? memchr(bytes->at, '\n', here) : NULL;
    size_t take = feed ? (size_t)(feed - bytes->at) + 1 : here;

    if (parts->length + take > max)
        return LINE_TOO_LONG;
    *ret_line = (struct line){bytes->at, take};
    if (!feed || parts->length > 0) {
        text_append(parts, bytes->at, take);
        *ret_line = (struct line){text_string(parts), parts->length};
    }
    bytes->at += take;
    if (parts->overflowed)
        return LINE_NO_MEMORY;
    return feed ? LINE_WHOLE : LINE_NOT_YET;
}

static void end_line(struct http_response *response)
{
    if (response->line.length > 0)
        text_clear(&response->line);
}

static enum http_piece bad_line(enum line_state state, enum http_piece too_long)
{
    switch (state) {
    case LINE_NO_MEMORY:
        return HTTP_PIECE_NO_MEMORY;
    case LINE_TOO_LONG:
        return too_long;
    case LINE_WHOLE:
    case LINE_NOT_YET:
        break;
    }
    return HTTP_PIECE_NONE;
}

/* RFC 9112, 6.3. */
static enum http_part first_body_part(struct http_response *response)
{
    const struct http_head_reader *head = &response->head;

    if (response->to_head_request || head->status == 204 || head->status == 304)
        return HTTP_PART_OVER;
    if (head->chunked)
        return HTTP_PART_CHUNK_SIZE;
    if (head->content_length < 0)
        return HTTP_PART_TO_CLOSE;
    response->left = head->content_length;
    return response->left > 0 ? HTTP_PART_TO_LENGTH : HTTP_PART_OVER;
}

/* What is no answer at all must not be waited for until its line ends. */
static bool begins_well(const struct http_response *response)
{
    static const char prefix[] = "HTTP/";
    size_t length = response->line.length;

    return response->head.started || length == 0 ||
           memcmp(response->line.bytes, prefix,
                  length < sizeof prefix - 1 ? length : sizeof prefix - 1) == 0;
}

static enum http_piece read_head(struct http_response *response, struct http_bytes *bytes)
{
    for (;;) {
        struct line line;
        enum line_state state = next_line(response, bytes, HTTP_HEAD_BYTES_MAX, &line);
        enum http_head_state head;

        if (state == LINE_NOT_YET)
            return begins_well(response) ? HTTP_PIECE_NONE : HTTP_PIECE_BAD_HEAD;
        if (state != LINE_WHOLE)
            return bad_line(state, HTTP_PIECE_BAD_HEAD);
        head = http_head_reader_line(&response->head, line.bytes, line.length);
        end_line(response);
        switch (head) {
        case HTTP_HEAD_MORE:
            continue;
        case HTTP_HEAD_FINAL:
            response->part = first_body_part(response);
            return HTTP_PIECE_HEAD;
        case HTTP_HEAD_BAD:
            return HTTP_PIECE_BAD_HEAD;
        case HTTP_HEAD_NO_MEMORY:
            return HTTP_PIECE_NO_MEMORY;
        }
    }
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "1a2b", then blanks, an extension, or nothing; no CR but that of the line end: whoever takes one for
 * a line end reads another body. */
static bool read_size(const struct line *line, int64_t *ret_size)
{
    size_t at = 0, end = line->length - 1;
    int64_t size = 0;
    int digit;

    if (end > 0 && line->bytes[end - 1] == '\r')
        end--;
    while (at < end && (digit = hex_value(line->bytes[at])) >= 0) {
        if (size > INT64_MAX >> 4)
            return false;
        size = size * 16 + digit;
        at++;
    }
    *ret_size = size;
    if (at == 0 || memchr(line->bytes, '\r', end))
        return false;
    while (at < end && (line->bytes[at] == ' ' || line->bytes[at] == '\t'))
        at++;
    return at == end || line->bytes[at] == ';';
}

static bool is_empty(const struct line *line)
{
    return line->length == 1 || (line->length == 2 && line->bytes[0] == '\r');
}

/* A line between the pieces of a chunked body. False: it is not what must stand there. */
static bool take_chunk_line(struct http_response *response, const struct line *line)
{
    switch (response->part) {
    case HTTP_PART_CHUNK_SIZE:
        if (!read_size(line, &response->left))
            return false;
        response->part = response->left > 0 ? HTTP_PART_CHUNK : HTTP_PART_TRAILER;
        return true;
    case HTTP_PART_CHUNK_END:
        response->part = HTTP_PART_CHUNK_SIZE;
        return is_empty(line);
    case HTTP_PART_TRAILER: /* read over */
        response->trailer_bytes += line->length;
        if (is_empty(line))
            response->part = HTTP_PART_OVER;
        return response->trailer_bytes <= HTTP_HEAD_BYTES_MAX;
    case HTTP_PART_HEAD:
    case HTTP_PART_TO_LENGTH:
    case HTTP_PART_TO_CLOSE:
    case HTTP_PART_CHUNK:
    case HTTP_PART_OVER:
        break;
    }
    UNREACHABLE();
}

static enum http_piece read_chunk_line(struct http_response *response, struct http_bytes *bytes)
{
    size_t max = response->part == HTTP_PART_TRAILER ? HTTP_HEAD_BYTES_MAX : HTTP_CHUNK_LINE_MAX;
    struct line line;
    enum line_state state = next_line(response, bytes, max, &line);
    bool good;

    if (state != LINE_WHOLE)
        return bad_line(state, HTTP_PIECE_BAD_BODY);
    good = take_chunk_line(response, &line);
    end_line(response);
    return good ? HTTP_PIECE_NONE : HTTP_PIECE_BAD_BODY;
}

static enum http_piece read_body(const struct http_response *response,
                                 const struct http_bytes *bytes, size_t *ret_length)
{
    size_t here = (size_t)(bytes->end - bytes->at);

    if (here == 0)
        return HTTP_PIECE_NONE;
    if (response->part != HTTP_PART_TO_CLOSE && response->left < (int64_t)here)
        here = (size_t)response->left;
    *ret_length = here;
    return HTTP_PIECE_BODY;
}

enum http_piece http_response_next(struct http_response *response, struct http_bytes *bytes,
                                   size_t *ret_length)
{
    for (;;) {
        enum http_piece piece;

        switch (response->part) {
        case HTTP_PART_OVER:
            return HTTP_PIECE_OVER;
        case HTTP_PART_HEAD:
            return read_head(response, bytes);
        case HTTP_PART_TO_LENGTH:
        case HTTP_PART_TO_CLOSE:
        case HTTP_PART_CHUNK:
            return read_body(response, bytes, ret_length);
        case HTTP_PART_CHUNK_SIZE:
        case HTTP_PART_CHUNK_END:
        case HTTP_PART_TRAILER:
            piece = read_chunk_line(response, bytes);
            if (piece != HTTP_PIECE_NONE ||
                (bytes->at == bytes->end && response->part != HTTP_PART_OVER))
                return piece;
            break;
        }
    }
}

void http_response_take(struct http_response *response, struct http_bytes *bytes, size_t length)
{
    REQUIRE(length <= (size_t)(bytes->end - bytes->at));
    bytes->at += length;
    if (response->part == HTTP_PART_TO_CLOSE)
        return;
    response->left -= (int64_t)length;
    if (response->left == 0)
        response->part = response->part == HTTP_PART_CHUNK ? HTTP_PART_CHUNK_END : HTTP_PART_OVER;
}

bool http_response_ends_here(const struct http_response *response)
{
    return response->part == HTTP_PART_TO_CLOSE || response->part == HTTP_PART_OVER;
}
