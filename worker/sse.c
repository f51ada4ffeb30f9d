/* sse.c - lines, fields and events out of bytes as they come; see sse.h. */
#include "worker/sse.h"

#include "base/byte_run.h"

#include <string.h>

enum state {
    LINE_BEGINS,
    IN_FIELD,
    VALUE_BEGINS, /* behind the colon: one blank is not part of the value */
    IN_DATA,
    IN_NAME,
    IN_COMMENT,
    IN_OTHER, /* the value of a field that is none of ours */
};

void sse_begin(struct sse *sse, const struct sse_handler *handler)
{
    sse->handler = *handler;
    sse->at_boundary = true;
    sse->events = 0;
    sse->own.state = LINE_BEGINS;
    sse->own.bom_at = 0;
    sse->own.skip_line_feed = false;
    sse->own.event_open = false;
    sse->own.has_data = false;
    sse->own.name_length = 0;
}

static bool is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

/* The blank line: without data the standard has no event. */
static void end_event(struct sse *sse)
{
    struct sse_private *own = &sse->own;

    if (own->has_data) {
        own->name[own->name_length] = '\0';
        sse->events++;
        if (sse->handler.on_event)
            sse->handler.on_event(sse->handler.context, own->name);
    }
    own->event_open = false;
    own->has_data = false;
    own->name_length = 0;
}

static enum state field_target(const struct sse_private *own)
{
    if (own->field_length == 4 && memcmp(own->field, "data", 4) == 0)
        return IN_DATA;
    if (own->field_length == 5 && memcmp(own->field, "event", 5) == 0)
        return IN_NAME;
    return IN_OTHER;
}

static void begin_value(struct sse_private *own)
{
    enum state target = field_target(own);

    own->target = (unsigned char)target;
    if (target == IN_NAME)
        own->name_length = 0;
}

static void end_line(struct sse *sse, char c)
{
    struct sse_private *own = &sse->own;
    enum state state = (enum state)own->state;

    if (state == IN_FIELD)
        begin_value(own); /* a field without colon has an empty value */
    if (state == IN_FIELD || state == VALUE_BEGINS)
        state = (enum state)own->target;
    if (state == LINE_BEGINS) {
        end_event(sse);
    } else if (state != IN_COMMENT) {
        own->event_open = true;
        if (state == IN_DATA) {
            own->has_data = true;
            if (sse->handler.on_data_end)
                sse->handler.on_data_end(sse->handler.context);
        }
    }
    own->state = LINE_BEGINS;
    own->skip_line_feed = c == '\r';
    sse->at_boundary = !own->event_open;
}

static void take_field(struct sse_private *own, char c)
{
    if (c == ':') {
        begin_value(own);
        own->state = VALUE_BEGINS;
    } else if (own->field_length < sizeof own->field) {
        own->field[own->field_length++] =
            c; /* none of ours is that long: a full one matches nothing */
    }
}

static void begin_line(struct sse *sse, char c)
{
    sse->at_boundary = false;
    sse->own.field_length = 0;
    sse->own.state = c == ':' ? IN_COMMENT : IN_FIELD;
}

static void take_run(struct sse *sse, const char *bytes, size_t length)
{
    struct sse_private *own = &sse->own;

    if (own->state == IN_DATA && sse->handler.on_data && length > 0) {
        sse->handler.on_data(sse->handler.context, bytes, length);
    } else if (own->state == IN_NAME) {
        size_t room = SSE_NAME_MAX - own->name_length;

        length = length < room ? length : room;
        memcpy(own->name + own->name_length, bytes, length);
        own->name_length += length;
    }
}

/* A byte order mark at the very beginning is skipped; a broken one is a field of no name of ours. */
static bool is_bom(struct sse *sse, char c)
{
    static const char bom[] = "\xEF\xBB\xBF";
    struct sse_private *own = &sse->own;

    if (c == bom[own->bom_at]) {
        own->bom_at++;
        return true;
    }
    if (own->bom_at > 0) {
        begin_line(sse, bom[0]);
        own->field_length = sizeof own->field;
    }
    own->bom_at = 3;
    return false;
}

void sse_feed(struct sse *sse, const char *bytes, size_t length)
{
    struct sse_private *own = &sse->own;
    const char *end = bytes + length;
    const char *at = bytes;

    while (at < end) {
        size_t run;

        if (own->bom_at < 3 && is_bom(sse, *at)) {
            at++;
            continue;
        }
        if (own->skip_line_feed) {
            own->skip_line_feed = false;
            at += *at == '\n';
            continue;
        }
        switch ((enum state)own->state) {
        case LINE_BEGINS:
            if (is_line_end(*at))
                end_line(sse, *at++);
            else
                begin_line(sse, *at);
            break;
        case IN_FIELD:
            if (is_line_end(*at))
                end_line(sse, *at);
            else
                take_field(own, *at);
            at++;
            break;
        case VALUE_BEGINS:
            own->state = own->target;
            at += *at == ' ';
            break;
        case IN_DATA:
        case IN_NAME:
        case IN_COMMENT:
        case IN_OTHER:
            run = byte_run_until(at, (size_t)(end - at), '\n', '\r');
            take_run(sse, at, run);
            at += run;
            if (at < end)
                end_line(sse, *at++);
            break;
        }
    }
}
