/* model_edit.c - another name for the model of a request; see model_edit.h. */
#include "worker/model_edit.h"

#include <string.h>

/* A form part ends at a line end and "--"; behind the empty line of its head "--" alone may do. */
static bool fits_part(const char *model)
{
    return strncmp(model, "--", 2) != 0 && strpbrk(model, "\r\n") == NULL;
}

bool model_edit(const struct intent *intent, const char *model, struct text *text,
                struct body_edit *ret)
{
    bool json = intent->body_is_json;

    if (intent->model_at < 0 || intent->model_repeated || intent->model_in_path || !*model ||
        (!json && !fits_part(model)))
        return false;
    text_clear(text);
    if (json)
        text_append_json(text, model, strlen(model));
    else
        text_append_string(text, model);
    if (text->overflowed)
        return false;
    *ret = (struct body_edit){.at = intent->model_at,
                              .bytes = intent->model_bytes,
                              .text = text_string(text),
                              .text_bytes = text->length};
    return true;
}
