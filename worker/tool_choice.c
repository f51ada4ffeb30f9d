/* tool_choice.c - the tool that a body chooses; see tool_choice.h. */
#include "worker/tool_choice.h"

#include "base/parse.h"

#define NAMESPACE_IMAGE "image_gen"

static bool is(const struct json_value *value, const char *word)
{
    return value->kind == JSON_STRING && parse_is_word(value->text, value->text_length, word);
}

/* The function behind the namespace, by its full names. */
static bool is_image_function(const struct json_value *value)
{
    return is(value, NAMESPACE_IMAGE ".imagegen") || is(value, NAMESPACE_IMAGE "__imagegen");
}

static void take_type(struct tool_choice_entry *now, const struct json_value *value)
{
    if (value->kind != JSON_STRING)
        return;
    now->typed = true;
    if (is(value, TOOL_IMAGE))
        now->type_image = true;
    else if (is(value, "auto") || is(value, "required") || is(value, "any"))
        now->type_neutral = true;
    else
        now->restricts = true;
    now->type_namespace = now->type_namespace || is(value, "namespace");
    now->type_function = now->type_function || is(value, "function");
}

/* The words a string tool_choice (or its "tool") may be. Unknown words exclude nothing. */
static void take_word(struct tool_choice_entry *now, const struct json_value *value)
{
    now->type_image = now->type_image || is(value, TOOL_IMAGE);
    now->restricts = now->restricts || is(value, "none");
}

static void take_allowed(struct tool_choice_entry *now, const struct json_value *value)
{
    now->image = now->image || is(value, TOOL_IMAGE) || is(value, NAMESPACE_IMAGE) ||
                 is_image_function(value);
}

static void begin(struct tool_choice *choice)
{
    choice->seen = true;
    choice->now = (struct tool_choice_entry){.image = false};
}

static void end(struct tool_choice *choice)
{
    const struct tool_choice_entry *now = &choice->now;

    if (now->image || now->type_image || (now->type_namespace && now->named_image_gen) ||
        (now->named_image_generation && (now->type_function || !now->typed)))
        choice->image = true;
    else if (now->type_neutral || !now->restricts)
        choice->neutral = true;
}

void tool_choice_take(struct tool_choice *choice, enum tool_choice_part part,
                      const struct json_value *value)
{
    struct tool_choice_entry *now = &choice->now;
    bool string = value->kind == JSON_STRING;

    switch (part) {
    case TOOL_CHOICE_WHOLE:
        if (value->kind != JSON_OBJECT_END && value->kind != JSON_ARRAY_END)
            begin(choice);
        if (string)
            take_word(now, value);
        if (value->kind != JSON_OBJECT && value->kind != JSON_ARRAY)
            end(choice);
        break;
    case TOOL_CHOICE_TOOL:
        take_word(now, value);
        break;
    case TOOL_CHOICE_TYPE:
        take_type(now, value);
        break;
    case TOOL_CHOICE_NAME:
        now->restricts = now->restricts || string;
        now->named_image_generation = now->named_image_generation || is(value, TOOL_IMAGE);
        now->named_image_gen = now->named_image_gen || is(value, NAMESPACE_IMAGE);
        now->image = now->image || is_image_function(value);
        break;
    case TOOL_CHOICE_NAMESPACE:
        now->restricts = now->restricts || string;
        now->image = now->image || is(value, NAMESPACE_IMAGE);
        break;
    case TOOL_CHOICE_FUNCTION:
        now->restricts = now->restricts || string;
        now->image = now->image || is(value, TOOL_IMAGE) || is_image_function(value);
        break;
    case TOOL_CHOICE_ALLOWED:
        now->restricts = true;
        break;
    case TOOL_CHOICE_ALLOWED_ENTRY:
        take_allowed(now, value);
        break;
    }
}

bool tool_choice_draws(const struct tool_choice *choice, bool listed)
{
    return choice->image || (listed && (!choice->seen || choice->neutral));
}
