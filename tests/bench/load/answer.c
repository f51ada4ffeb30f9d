/* answer.c - see answer.h. */
#include "tests/bench/load/answer.h"

#include <stdlib.h>
#include <string.h>

#define MARK_DIGITS_MIN 9 /* fewer are no time */

struct marks {
    answer_mark_function *on_mark;
    void *context;
};

void answer_begin(struct answer *answer)
{
    /* Not the head's bytes: they would cost more than all the rest. */
    memset(answer, 0, offsetof(struct answer, head));
}

static void scan_done(struct answer *answer, char c)
{
    static const char done[] = "[DONE]";

    if (c != done[answer->done_matched])
        answer->done_matched = c == '[';
    else if (++answer->done_matched == sizeof done - 1) {
        answer->done_marked = true;
        answer->done_matched = 0;
    }
}

static void scan_mark(struct answer *answer, char c, const struct marks *marks)
{
    switch (answer->mark_part) {
    case MARK_NONE:
        answer->mark_part = c == 't' ? MARK_T : MARK_NONE;
        break;
    case MARK_T:
        answer->mark_part = c == '=' ? MARK_DIGITS : c == 't' ? MARK_T : MARK_NONE;
        answer->mark_digits = 0;
        answer->mark_ns = 0;
        break;
    case MARK_DIGITS:
        if (c >= '0' && c <= '9' && answer->mark_digits < 18) {
            answer->mark_ns = answer->mark_ns * 10 + (c - '0');
            answer->mark_digits++;
            break;
        }
        if (answer->mark_digits >= MARK_DIGITS_MIN)
            marks->on_mark(marks->context, answer->mark_ns);
        answer->mark_part = MARK_NONE;
        break;
    }
}

static void scan(struct answer *answer, const char *bytes, size_t length, const struct marks *marks)
{
    answer->body_bytes += length;
    if (!answer->event_stream)
        return;
    for (size_t i = 0; i < length; i++) {
        scan_done(answer, bytes[i]);
        scan_mark(answer, bytes[i], marks);
    }
}

static size_t smaller(uint64_t a, size_t b)
{
    return a < b ? (size_t)a : b;
}

static void read_plain(struct answer *answer, const char *bytes, size_t length,
                       const struct marks *marks)
{
    size_t taken = answer->has_length ? smaller(answer->left, length) : length;

    scan(answer, bytes, taken, marks);
    if (!answer->has_length)
        return;
    answer->left -= taken;
    if (answer->left == 0)
        answer->state = ANSWER_DONE;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of what is between the chunks' data. */
static void read_chunk_frame(struct answer *answer, char c)
{
    int digit;

    switch (answer->chunk_part) {
    case CHUNK_SIZE:
        digit = hex_digit(c);
        if (digit >= 0) {
            answer->left = answer->left * 16 + (unsigned)digit;
            break;
        }
        answer->chunk_part = CHUNK_EXTENSION;
        __attribute__((fallthrough));
    case CHUNK_EXTENSION:
        if (c == '\n') {
            answer->chunk_part = answer->left ? CHUNK_DATA : TRAILER;
            answer->trailer_line_empty = true;
        }
        break;
    case CHUNK_END:
        if (c == '\n')
            answer->chunk_part = CHUNK_SIZE;
        break;
    case TRAILER:
        if (c == '\n' && answer->trailer_line_empty)
            answer->state = ANSWER_DONE;
        if (c != '\r')
            answer->trailer_line_empty = c == '\n';
        break;
    case CHUNK_DATA:
        break;
    }
}

static void read_chunks(struct answer *answer, const char *bytes, size_t length,
                        const struct marks *marks)
{
    for (size_t at = 0; at < length && answer->state == ANSWER_BODY;) {
        size_t taken = 1;

        if (answer->chunk_part == CHUNK_DATA) {
            taken = smaller(answer->left, length - at);
            scan(answer, bytes + at, taken, marks);
            answer->left -= taken;
            if (answer->left == 0)
                answer->chunk_part = CHUNK_END;
        } else {
            read_chunk_frame(answer, bytes[at]);
        }
        at += taken;
    }
}

static const char *header(const char *head, const char *name)
{
    const char *found = strcasestr(head, name);

    return found ? found + strlen(name) : NULL;
}

/* The head is whole and NUL-terminated. */
static void understand_head(struct answer *answer)
{
    const char *head = answer->head, *length = header(head, "\ncontent-length:");

    answer->status = (unsigned)strtoul(head + sizeof "HTTP/1.1 " - 1, NULL, 10);
    answer->chunked = header(head, "\ntransfer-encoding: chunked") != NULL;
    answer->event_stream = header(head, "text/event-stream") != NULL;
    answer->close_after =
        header(head, "\nconnection: close") != NULL || strncmp(head, "HTTP/1.0", 8) == 0;
    answer->has_length = length && !answer->chunked;
    answer->left = answer->has_length ? strtoull(length, NULL, 10) : 0;
    answer->state = answer->has_length && answer->left == 0 ? ANSWER_DONE : ANSWER_BODY;
}

/* Returns how many of the bytes belong to the head. */
static size_t read_head(struct answer *answer, const char *bytes, size_t length)
{
    size_t before = answer->head_length;
    size_t taken = smaller(ANSWER_HEAD_MAX - 1 - before, length);
    const char *end;
    size_t used;

    memcpy(answer->head + before, bytes, taken);
    answer->head_length += taken;
    answer->head[answer->head_length] = '\0';
    end = strstr(answer->head, "\r\n\r\n");
    if (!end) {
        if (answer->head_length == ANSWER_HEAD_MAX - 1)
            answer->state = ANSWER_BAD;
        return taken;
    }
    used = (size_t)(end + 4 - answer->head) - before;
    if (strncmp(answer->head, "HTTP/1.1 1", 10) == 0) { /* interim: the real one follows */
        answer->head_length = 0;
        return used;
    }
    answer->head[before + used] = '\0';
    if (strncmp(answer->head, "HTTP/1.", 7) == 0)
        understand_head(answer);
    else
        answer->state = ANSWER_BAD;
    return used;
}

enum answer_state answer_feed(struct answer *answer, const char *bytes, size_t length,
                              answer_mark_function *on_mark, void *context)
{
    struct marks marks = {on_mark, context};

    while (answer->state == ANSWER_HEAD && length > 0) {
        size_t used = read_head(answer, bytes, length);

        bytes += used;
        length -= used;
    }
    if (answer->state == ANSWER_BODY && length > 0) {
        if (answer->chunked)
            read_chunks(answer, bytes, length, &marks);
        else
            read_plain(answer, bytes, length, &marks);
    }
    return answer->state;
}

bool answer_ends_here(const struct answer *answer)
{
    return answer->state == ANSWER_BODY && !answer->chunked && !answer->has_length;
}
