/*
 * model_edit.h - another name for the model of a request: the one string of the body that an alias or
 * a fallback changes.
 */
#ifndef WORKER_MODEL_EDIT_H
#define WORKER_MODEL_EDIT_H

#include "base/check.h"
#include "base/text.h"
#include "worker/body_reader.h"
#include "worker/intent.h"

#include <stdbool.h>

#define MODEL_EDIT_TEXT_MAX 2048 /* a limit for the text that holds any model's name */

/* The edit that puts model where the body names its own; the new string is written into text (an
 * initialised one, emptied first), which must outlive what reads with the edit. False: it cannot be
 * done (the body names no model, or several; the path names it; the name is empty, too long, or would
 * break a form part). */
MUST_CHECK bool model_edit(const struct intent *intent, const char *model, struct text *text,
                           struct body_edit *ret);

#endif
