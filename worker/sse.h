/*
 * sse.h - reads an event stream as it goes by (the grammar of "Server-sent events" in the HTML
 * standard, section 9.2); changes nothing, keeps constant memory: a data line of 40 MB is handed on
 * in the pieces it came in.
 */
#ifndef WORKER_SSE_H
#define WORKER_SSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SSE_NAME_MAX 63

struct sse_handler {
    void *context;
    /* A data line begins, goes on (in pieces, without its line end), ends. Several data lines of
     * one event are told apart by on_data_end between them. Any may be NULL. */
    void (*on_data)(void *context, const char *bytes, size_t length);
    void (*on_data_end)(void *context);
    /* The event is complete (its blank line was read); name is "" when it had no event: line. An
     * event without its blank line is never reported. */
    void (*on_event)(void *context, const char *name);
};

struct sse {
    struct sse_handler handler;
    /* Nothing of an event or line has begun: a comment may be put in between here. */
    bool at_boundary;
    uint64_t events; /* reported so far */
    /* What follows is the reader's own. */
    struct sse_private {
        unsigned char state, target, bom_at;
        bool skip_line_feed;
        bool event_open; /* a field of an event was read, its blank line was not */
        bool has_data;
        size_t field_length, name_length;
        char field[8];
        char name[SSE_NAME_MAX + 1];
    } own;
};

void sse_begin(struct sse *sse, const struct sse_handler *handler);
void sse_feed(struct sse *sse, const char *bytes, size_t length);

#endif
