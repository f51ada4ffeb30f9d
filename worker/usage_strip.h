/*
 * usage_strip.h - takes the event that tells a chat stream's usage (choices: [], usage: {...}) out of
 * an event stream, for a client that did not ask for it; every other byte stays as it came (F6).
 *
 * Fed with pieces, emits pieces. An event is held back only while it may be the one: until its first
 * choice, until it is no JSON, or until it is larger than USAGE_STRIP_EVENT_MAX, whichever comes
 * first; so content is held for no longer than its own beginning. What is emitted does not depend on
 * how the stream was cut, but for memory that runs out: then everything passes.
 */
#ifndef WORKER_USAGE_STRIP_H
#define WORKER_USAGE_STRIP_H

#include "base/json_scan.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USAGE_STRIP_EVENT_MAX 65536 /* bytes of an event; a larger one passes */

struct usage_strip {
    void (*emit)(void *context, const char *bytes, size_t length);
    void *context;
    uint64_t stripped; /* events taken out so far */
    /* What follows is its own. */
    struct text held;          /* the beginning of an event, from earlier pieces */
    unsigned char at;          /* where in a line */
    unsigned char verdict;     /* on the event being read */
    unsigned char name_bytes;  /* of "data", or of a byte order mark, so far */
    bool after_cr, swallow_lf; /* a line feed now belongs to the line before; it goes with it */
    bool has_data, empty_choices, usage; /* what the event has shown */
    struct json_scan json;
};

/* emit: called from usage_strip_feed() and usage_strip_end() only. */
void usage_strip_begin(struct usage_strip *strip,
                       void (*emit)(void *context, const char *bytes, size_t length),
                       void *context);
void usage_strip_feed(struct usage_strip *strip, const char *bytes, size_t length);
/* The stream has ended: what is held goes out, unless it is the event without its last line end. */
void usage_strip_end(struct usage_strip *strip);
void usage_strip_release(struct usage_strip *strip);

#endif
