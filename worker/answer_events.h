/*
 * answer_events.h - what the events of event streams mean, by their type: content for the client or
 * not (H4), an error, the end, pictures that are final. For pictures.c.
 */
#ifndef WORKER_ANSWER_EVENTS_H
#define WORKER_ANSWER_EVENTS_H

#include <stdbool.h>

struct answer_event {
    const char *type;
    bool content, error, terminal;
    bool final; /* pictures in its items count */
    bool root;  /* the picture at its top counts */
};

/* NULL: a type we do not know, neither content nor final unless it is a piece. */
const struct answer_event *answer_event_find(const char *type);
/* A piece of content by the end of its name: "response.output_text.delta", "..._delta", "....done". */
bool answer_event_is_piece(const char *type);

#endif
