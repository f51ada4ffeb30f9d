/* answer_events.c - the types of events in streams; see answer_events.h. */
#include "worker/answer_events.h"

#include "base/check.h"

#include <string.h>

/* response.created, .queued, .in_progress, output_item.added, ping and the like are not here: they
 * are no content, so they commit nothing (I7). */
static const struct answer_event events[] = {
    {"response.output_item.done", .content = true, .final = true},
    {"response.completed", .content = true, .terminal = true, .final = true},
    {"response.incomplete", .content = true, .terminal = true, .final = true},
    {"response.done", .content = true, .terminal = true, .final = true},
    {"response.failed", .error = true, .terminal = true, .final = true},
    {"response.image_generation_call.partial_image", .content = true},
    {"image_generation.partial_image", .content = true},
    {"image_edit.partial_image", .content = true},
    {"image_generation.completed", .content = true, .terminal = true, .final = true, .root = true},
    {"image_edit.completed", .content = true, .terminal = true, .final = true, .root = true},
    {"content_block_delta", .content = true},
    {"message_delta", .content = true},
    {"message_stop", .terminal = true},
    {"error", .error = true, .terminal = true},
};

const struct answer_event *answer_event_find(const char *type)
{
    for (size_t i = 0; i < LENGTH(events); i++)
        if (strcmp(type, events[i].type) == 0)
            return &events[i];
    return NULL;
}

bool answer_event_is_piece(const char *type)
{
    static const char *const ends[] = {".delta", "_delta", ".done"};
    size_t length = strlen(type);

    for (size_t i = 0; i < LENGTH(ends); i++) {
        size_t end_length = strlen(ends[i]);

        if (length >= end_length && strcmp(type + length - end_length, ends[i]) == 0)
            return true;
    }
    return false;
}
