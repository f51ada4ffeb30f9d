/* request.c - see request.h. */
#include "tests/tools/upstream/request.h"

#include "base/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void sim_request_begin(struct call *call)
{
    struct text head = call->head;
    struct text kept = call->kept;
    struct jobs *jobs = call->jobs;
    const char *name = call->name;

    memset(call, 0, sizeof *call);
    call->head = head;
    call->kept = kept;
    call->jobs = jobs;
    call->name = name;
    if (call->head.limit == 0) {
        text_init(&call->head, HEAD_MAX);
        text_init(&call->kept, KEPT_MAX);
    }
    text_clear(&call->head);
    text_clear(&call->kept);
    sim_sha256_init(&call->sha);
}

void sim_request_release(struct call *call)
{
    text_release(&call->head);
    text_release(&call->kept);
}

/* The header line that begins at `at`; sets name and value bounds. Returns the next line, NULL at
 * the end. */
struct header {
    const char *name;
    size_t name_length;
    const char *value;
    size_t value_length;
};

static const char *header_next(const char *at, const char *end, struct header *header)
{
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = newline ? newline : end;
        const char *colon = memchr(at, ':', (size_t)(line_end - at));
        const char *name = at;

        at = newline ? newline + 1 : end;
        if (!colon)
            continue;
        header->name = name;
        header->name_length = (size_t)(colon - name);
        for (colon++; colon < line_end && (*colon == ' ' || *colon == '\t');)
            colon++;
        while (line_end > colon && (line_end[-1] == '\r' || line_end[-1] == ' '))
            line_end--;
        header->value = colon;
        header->value_length = (size_t)(line_end - colon);
        return at;
    }
    return NULL;
}

static void copy_bytes(char *to, size_t size, const char *from, size_t length)
{
    if (length >= size)
        length = size - 1;
    memcpy(to, from, length);
    to[length] = '\0';
}

bool sim_request_header(const struct call *call, const char *name, char *value, size_t size)
{
    const char *at = call->head.bytes;
    const char *end = at + call->head.length;
    struct header header;

    for (at = memchr(at, '\n', call->head.length); at && (at = header_next(at, end, &header));) {
        if (header.name[0] == '\n') {
            header.name++;
            header.name_length--;
        }
        if (header.name_length == strlen(name) &&
            strncasecmp(header.name, name, header.name_length) == 0) {
            copy_bytes(value, size, header.value, header.value_length);
            return true;
        }
    }
    return false;
}

static bool read_request_line(struct call *call, char ret_prefix[512])
{
    const char *line = call->head.bytes;
    size_t length = strcspn(line, "\r\n");
    const char *space = memchr(line, ' ', length);
    const char *second;
    const char *target;
    size_t target_length;
    const char *question;

    if (!space || !(second = memchr(space + 1, ' ', length - (size_t)(space + 1 - line))))
        return false;
    if (strncmp(second + 1, "HTTP/1.", 7) != 0)
        return false;
    copy_bytes(call->method, sizeof call->method, line, (size_t)(space - line));
    call->http10 = second[8] == '0';
    target = space + 1;
    target_length = (size_t)(second - target);
    ret_prefix[0] = '\0';
    if (target_length > 3 && strncmp(target, "/m/", 3) == 0) {
        const char *slash = memchr(target + 3, '/', target_length - 3);

        if (!slash)
            return false;
        copy_bytes(ret_prefix, 512, target + 3, (size_t)(slash - target - 3));
        target_length -= (size_t)(slash - target);
        target = slash;
    }
    question = memchr(target, '?', target_length);
    if (question)
        copy_bytes(call->query, sizeof call->query, question + 1,
                   target_length - (size_t)(question + 1 - target));
    copy_bytes(call->path, sizeof call->path, target,
               question ? (size_t)(question - target) : target_length);
    return true;
}

bool sim_request_read_head(struct call *call, const char *bytes, size_t length,
                           char ret_prefix[512])
{
    char value[160];

    text_append(&call->head, bytes, length);
    if (call->head.overflowed || !read_request_line(call, ret_prefix))
        return false;
    call->close = call->http10;
    if (sim_request_header(call, "connection", value, sizeof value))
        call->close = strcasecmp(value, "close") == 0 ||
                      (call->http10 && strcasecmp(value, "keep-alive") != 0);
    if (sim_request_header(call, "content-length", value, sizeof value) &&
        !parse_u64(value, &call->content_length))
        return false;
    if (sim_request_header(call, "transfer-encoding", value, sizeof value))
        call->chunked = true;
    if (sim_request_header(call, "expect", value, sizeof value))
        call->expects_continue = true;
    if (!sim_request_header(call, "content-type", call->content_type, sizeof call->content_type))
        call->content_type[0] = '\0';
    if (!sim_request_header(call, "x-call", call->call_id, sizeof call->call_id))
        call->call_id[0] = '\0';
    if (!sim_request_header(call, "authorization", call->authorization, sizeof call->authorization))
        call->authorization[0] = '\0';
    if (!sim_request_header(call, "x-mock", call->mock, sizeof call->mock))
        call->mock[0] = '\0';
    return true;
}

/* The last bytes seen, however the pieces were cut. */
static void keep_tail(struct call *call, const char *bytes, size_t length)
{
    size_t old = call->tail_length;

    if (length >= TAIL_MAX) {
        memcpy(call->tail, bytes + length - TAIL_MAX, TAIL_MAX);
        call->tail_length = TAIL_MAX;
        return;
    }
    if (old + length > TAIL_MAX) {
        size_t drop = old + length - TAIL_MAX;

        memmove(call->tail, call->tail + drop, old - drop);
        old -= drop;
    }
    memcpy(call->tail + old, bytes, length);
    call->tail_length = old + length;
}

static void body_bytes(struct call *call, const char *bytes, size_t length)
{
    if (length == 0)
        return;
    call->received += length;
    if (!call->behaviour.skip_sha)
        sim_sha256_feed(&call->sha, bytes, length);
    if (call->kept.length < KEPT_MAX)
        text_append(&call->kept, bytes, length);
    if (call->received > KEPT_MAX)
        keep_tail(call, bytes, length);
}

static size_t smaller(uint64_t a, size_t b)
{
    return a < b ? (size_t)a : b;
}

/* One line of the chunked framing. */
static void chunk_line(struct call *call, const char *line, size_t length, bool *ret_complete)
{
    if (call->chunk_place == CHUNK_DATA_END) {
        call->chunk_place = CHUNK_SIZE;
    } else if (call->chunk_place == CHUNK_SIZE) {
        call->chunk_left = strtoull(line, NULL, 16);
        call->chunk_place = call->chunk_left ? CHUNK_DATA : CHUNK_TRAILER;
    } else if (length == 0 || (length == 1 && line[0] == '\r')) {
        *ret_complete = true;
    }
}

size_t sim_request_read_body(struct call *call, const char *bytes, size_t length,
                             bool *ret_complete)
{
    size_t used = 0;

    *ret_complete = false;
    if (!call->chunked) {
        used = smaller(call->content_length - call->received, length);
        body_bytes(call, bytes, used);
        *ret_complete = call->received == call->content_length;
        return used;
    }
    while (used < length && !*ret_complete) {
        const char *newline;

        if (call->chunk_place == CHUNK_DATA) {
            size_t run = smaller(call->chunk_left, length - used);

            body_bytes(call, bytes + used, run);
            used += run;
            call->chunk_left -= run;
            if (call->chunk_left == 0)
                call->chunk_place = CHUNK_DATA_END;
            continue;
        }
        newline = memchr(bytes + used, '\n', length - used);
        if (!newline)
            break;
        chunk_line(call, bytes + used, (size_t)(newline - bytes) - used, ret_complete);
        used = (size_t)(newline - bytes) + 1;
    }
    return used;
}

static const char *find(const char *bytes, size_t length, const char *string)
{
    return bytes ? memmem(bytes, length, string, strlen(string)) : NULL;
}

bool sim_request_mentions(const struct call *call, const char *string)
{
    return find(call->kept.bytes, call->kept.length, string) ||
           find(call->tail, call->tail_length, string);
}

/* The scalar behind "name": in JSON, or behind the empty line of a multipart field. */
static bool field_in(const char *bytes, size_t length, const char *name, char value[256])
{
    char quoted[80];
    const char *end = bytes + length;
    const char *at = bytes;
    const char *stops;
    size_t copied = 0;

    (void)snprintf(quoted, sizeof quoted, "\"%s\"", name);
    while ((at = find(at, (size_t)(end - at), quoted)) != NULL) {
        bool multipart = at > bytes && at[-1] == '=';

        at += strlen(quoted);
        if (multipart && end - at > 4 && memcmp(at, "\r\n\r\n", 4) == 0)
            at += 4;
        else if (multipart)
            continue;
        while (at < end && !multipart && strchr(" \t\r\n", *at))
            at++;
        if (!multipart && (at == end || *at++ != ':'))
            continue;
        while (at < end && !multipart && strchr(" \t\r\n", *at))
            at++;
        stops = multipart ? "\r\n" : ",}] \r\n";
        if (!multipart && at < end && *at == '"') {
            stops = "\"";
            at++;
        }
        while (at < end && copied < 255 && *at && !strchr(stops, *at))
            value[copied++] = *at++;
        value[copied] = '\0';
        return true;
    }
    return false;
}

bool sim_request_field(const struct call *call, const char *name, char *value, size_t size)
{
    char found[256];

    if (!(call->kept.length && field_in(call->kept.bytes, call->kept.length, name, found)) &&
        !(call->tail_length && field_in(call->tail, call->tail_length, name, found)))
        return false;
    return text_copy(value, size, found);
}

void sim_request_end(struct call *call)
{
    char value[256];
    uint64_t number;

    if (!call->behaviour.skip_sha)
        sim_sha256_hex(&call->sha, call->sha_hex);
    if (!sim_request_field(call, "model", call->model, sizeof call->model))
        call->model[0] = '\0';
    call->stream =
        sim_request_field(call, "stream", value, sizeof value) && strcmp(value, "true") == 0;
    call->include_usage =
        sim_request_field(call, "include_usage", value, sizeof value) && strcmp(value, "true") == 0;
    call->background =
        sim_request_field(call, "background", value, sizeof value) && strcmp(value, "true") == 0;
    call->n =
        sim_request_field(call, "n", value, sizeof value) && parse_u64(value, &number) ? number : 1;
    call->partials =
        sim_request_field(call, "partial_images", value, sizeof value) && parse_u64(value, &number)
            ? number
            : 0;
}
