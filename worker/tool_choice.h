/*
 * tool_choice.h - what "tool_choice" says of drawing: does it select image generation, or leave it free to
 * be called where it is listed? For intent.c, which finds the places. Pure.
 */
#ifndef WORKER_TOOL_CHOICE_H
#define WORKER_TOOL_CHOICE_H

#include "base/json_scan.h"

#include <stdbool.h>

#define TOOL_IMAGE "image_generation"

enum tool_choice_part {
    TOOL_CHOICE_WHOLE, /* the value itself: begins and ends */
    TOOL_CHOICE_TOOL,  /* .tool: the choice again, one level down */
    TOOL_CHOICE_TYPE,
    TOOL_CHOICE_NAME,
    TOOL_CHOICE_NAMESPACE,
    TOOL_CHOICE_FUNCTION, /* .function.name */
    TOOL_CHOICE_ALLOWED,  /* a list of tools */
    TOOL_CHOICE_ALLOWED_ENTRY,
};

/* What its occurrences said. A duplicated key is several occurrences: any of them that means image
 * counts, and so does any that leaves a listed tool free to be called. */
struct tool_choice {
    bool seen;
    bool image;   /* one selects image generation */
    bool neutral; /* one excludes nothing: auto, required, null, ... */
    /* The one being read. */
    struct tool_choice_entry {
        bool typed, type_image, type_namespace, type_function, type_neutral;
        bool restricts; /* names a tool or a set of tools, or none at all */
        bool named_image_generation, named_image_gen;
        bool image; /* already certain */
    } now;
};

void tool_choice_take(struct tool_choice *choice, enum tool_choice_part part,
                      const struct json_value *value);
/* listed: tools[] has image generation. */
bool tool_choice_draws(const struct tool_choice *choice, bool listed);

#endif
