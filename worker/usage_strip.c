/*
 * usage_strip.c - reads the lines of an event stream and the JSON of its data, and keeps an event back
 * while it may be the one that tells the usage; see usage_strip.h.
 *
 * What is not decided lies in `held` (from earlier pieces) and at the end of the piece being read; all
 * before it goes out at once, so a stream of many small events in one piece is one call of emit.
 */
#include "worker/usage_strip.h"

#include "base/byte_run.h"
#include "base/check.h"

#include <string.h>

enum at {
    AT_BOM,   /* nothing was read: a byte order mark may stand here */
    AT_LINE,  /* at the beginning of a line */
    AT_FIELD, /* "data" so far */
    AT_COLON, /* behind "data:": one blank is no data */
    AT_DATA,
    AT_REST, /* of a line that says nothing to us */
};

enum verdict {
    OUTSIDE, /* no event has begun */
    OPEN,    /* the event may be the one */
    PASS,    /* it is not */
};

enum place { PLACE_SILENT = 1, PLACE_CHOICES, PLACE_CHOICE, PLACE_USAGE, PLACE_ERROR };

static const char field[] = "data";
static const char bom[] = "\xEF\xBB\xBF";
#define FIELD_BYTES (sizeof field - 1)
#define BOM_BYTES (sizeof bom - 1)

#define LEAF(place) (&(const struct json_node){.id = (place)})

static const struct json_node choices_node = {.id = PLACE_CHOICES, .element = LEAF(PLACE_CHOICE)};
static const struct json_edge chunk_edges[] = {
    JSON_EDGE("choices", &choices_node),
    JSON_EDGE("usage", LEAF(PLACE_USAGE)),
    JSON_EDGE("error", LEAF(PLACE_ERROR)),
};
static const struct json_node chunk_node = {
    .id = PLACE_SILENT, .edges = chunk_edges, .edge_count = LENGTH(chunk_edges)};

/* ---- the event ------------------------------------------------------------------------------- */

static void take_value(void *context, const struct json_scan *scan, const struct json_value *value)
{
    struct usage_strip *strip = context;

    (void)scan;
    switch ((enum place)value->id) {
    case PLACE_SILENT:
        if (value->kind != JSON_OBJECT && value->kind != JSON_OBJECT_END)
            strip->verdict = PASS;
        break;
    case PLACE_CHOICES:
        strip->empty_choices = true;
        if (value->kind != JSON_ARRAY && value->kind != JSON_ARRAY_END)
            strip->verdict = PASS;
        break;
    case PLACE_CHOICE:
        strip->verdict = PASS;
        break;
    case PLACE_USAGE:
        strip->usage = strip->usage || value->kind == JSON_OBJECT;
        break;
    case PLACE_ERROR:
        if (value->kind != JSON_NULL)
            strip->verdict = PASS;
        break;
    }
}

static void begin_event(struct usage_strip *strip)
{
    strip->verdict = OPEN;
    strip->has_data = false;
    strip->empty_choices = false;
    strip->usage = false;
    json_scan_init(&strip->json, take_value, strip);
    json_scan_follow(&strip->json, &chunk_node);
}

static void add_data(struct usage_strip *strip, const char *bytes, size_t length)
{
    enum json_scan_state state = json_scan_feed(&strip->json, bytes, length);

    if (state == JSON_SCAN_INVALID || state == JSON_SCAN_TOO_DEEP)
        strip->verdict = PASS;
}

/* The event is whole: is it the one? */
static bool is_usage_event(struct usage_strip *strip)
{
    return strip->verdict == OPEN && strip->has_data && strip->empty_choices && strip->usage &&
           json_scan_end(&strip->json) == JSON_SCAN_DONE;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* A data field begins; of several the contents are joined by line feeds. */
static void begin_data(struct usage_strip *strip)
{
    if (strip->has_data && strip->verdict == OPEN)
        add_data(strip, "\n", 1);
    strip->has_data = true;
}

static void take_bom_byte(struct usage_strip *strip, char c)
{
    if (c != bom[strip->name_bytes])
        strip->at = AT_REST;
    else if (++strip->name_bytes == BOM_BYTES)
        strip->at = AT_LINE;
}

/* A byte of a field's name, or the colon behind it. */
static void take_name_byte(struct usage_strip *strip, char c)
{
    if (strip->name_bytes == FIELD_BYTES && c == ':') {
        begin_data(strip);
        strip->at = AT_COLON;
    } else if (strip->name_bytes < FIELD_BYTES && c == field[strip->name_bytes]) {
        strip->name_bytes++;
    } else {
        strip->at = AT_REST;
    }
}

/* True: the blank line that ends an event, or stands between two. */
static bool end_line(struct usage_strip *strip)
{
    bool blank = strip->at == AT_LINE;

    if (strip->at == AT_FIELD && strip->name_bytes == FIELD_BYTES)
        begin_data(strip);
    strip->at = AT_LINE;
    return blank;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The piece being read. Behind `from` nothing has gone out or is held. */
struct piece {
    const char *at, *end;
    const char *from;
    const char *event; /* where in it the event begins, or goes on */
};

static void emit(struct usage_strip *strip, const char *from, const char *end)
{
    if (end > from)
        strip->emit(strip->context, from, (size_t)(end - from));
}

static void release_held(struct usage_strip *strip)
{
    const char *held = text_string(&strip->held);

    emit(strip, held, held + strip->held.length);
    text_clear(&strip->held);
}

static void drop_event(struct usage_strip *strip, struct piece *piece)
{
    emit(strip, piece->from, piece->event);
    text_clear(&strip->held);
    piece->from = piece->at;
    strip->stripped++;
}

static void take_line_end(struct usage_strip *strip, struct piece *piece)
{
    strip->after_cr = *piece->at++ == '\r';
    strip->swallow_lf = false;
    if (!end_line(strip) || strip->verdict == OUTSIDE)
        return;
    if (is_usage_event(strip)) {
        drop_event(strip, piece);
        strip->swallow_lf = strip->after_cr;
    } else {
        release_held(strip);
    }
    strip->verdict = OUTSIDE;
}

static void begin_line(struct usage_strip *strip, struct piece *piece)
{
    strip->name_bytes = 0;
    /* A comment is part of no event: it does not wait for the one behind it. */
    strip->at = *piece->at == ':' ? AT_REST : AT_FIELD;
    if (strip->verdict == OUTSIDE && *piece->at != ':') {
        begin_event(strip);
        piece->event = piece->at;
    }
}

/* At least one byte, or a step that needs none. */
static void read_some(struct usage_strip *strip, struct piece *piece)
{
    size_t rest = (size_t)(piece->end - piece->at);
    char c = *piece->at;

    if (strip->after_cr) {
        strip->after_cr = false;
        if (c == '\n') {
            piece->at++;
            if (strip->swallow_lf)
                piece->from = piece->at;
            return;
        }
    }
    if (c == '\r' || c == '\n') {
        take_line_end(strip, piece);
        return;
    }
    switch ((enum at)strip->at) {
    case AT_BOM:
        if (strip->name_bytes == 0 && c != bom[0])
            strip->at = AT_LINE;
        else
            take_bom_byte(strip, *piece->at++);
        return;
    case AT_LINE:
        begin_line(strip, piece);
        return;
    case AT_FIELD:
        take_name_byte(strip, *piece->at++);
        return;
    case AT_COLON:
        strip->at = AT_DATA;
        piece->at += c == ' ';
        return;
    case AT_DATA:
    case AT_REST:
        break;
    }
    size_t run = byte_run_until(piece->at, rest, '\r', '\n');

    if (strip->at == AT_DATA && strip->verdict == OPEN)
        add_data(strip, piece->at, run);
    piece->at += run;
}

/* Keep what may be the event until there is more of it. */
static void hold(struct usage_strip *strip, const struct piece *piece)
{
    size_t before = strip->held.length;

    emit(strip, piece->from, piece->event);
    text_append(&strip->held, piece->event, (size_t)(piece->end - piece->event));
    if (!strip->held.overflowed)
        return;
    /* No memory: it passes. */
    const char *held = text_string(&strip->held);

    emit(strip, held, held + before);
    text_clear(&strip->held);
    emit(strip, piece->event, piece->end);
    strip->verdict = PASS;
}

void usage_strip_begin(struct usage_strip *strip,
                       void (*emit_function)(void *context, const char *bytes, size_t length),
                       void *context)
{
    strip->emit = emit_function;
    strip->context = context;
    strip->stripped = 0;
    text_init(&strip->held, USAGE_STRIP_EVENT_MAX);
    strip->at = AT_BOM;
    strip->verdict = OUTSIDE;
    strip->name_bytes = 0;
    strip->after_cr = false;
    strip->swallow_lf = false;
    strip->has_data = false;
}

void usage_strip_feed(struct usage_strip *strip, const char *bytes, size_t length)
{
    struct piece piece = {.at = bytes, .end = bytes + length, .from = bytes, .event = bytes};

    while (piece.at < piece.end) {
        read_some(strip, &piece);
        if (strip->verdict == OPEN &&
            strip->held.length + (size_t)(piece.at - piece.event) > USAGE_STRIP_EVENT_MAX)
            strip->verdict = PASS;
        if (strip->verdict == PASS && strip->held.length > 0)
            release_held(strip);
    }
    if (strip->verdict == OPEN)
        hold(strip, &piece);
    else
        emit(strip, piece.from, piece.end);
}

void usage_strip_end(struct usage_strip *strip)
{
    if (strip->verdict == OPEN && is_usage_event(strip)) {
        text_clear(&strip->held);
        strip->stripped++;
    }
    release_held(strip);
    strip->verdict = OUTSIDE;
}

void usage_strip_release(struct usage_strip *strip)
{
    text_release(&strip->held);
}
