/*
 * usage_option.h - "stream_options": {"include_usage": true} for a chat stream whose client did not ask
 * for it (F6): without it a stream does not tell what it cost. usage_strip.h takes the answer's
 * additional event out again.
 */
#ifndef WORKER_USAGE_OPTION_H
#define WORKER_USAGE_OPTION_H

#include "base/check.h"
#include "worker/body_reader.h"
#include "worker/intent.h"

#include <stdbool.h>

/* The edit that adds the option; its text is constant. False: the client asks for usage itself, the
 * request is no chat stream, or the body is not fit (not whole JSON, a key is there more than once,
 * stream_options is no object). */
MUST_CHECK bool usage_option_edit(const struct intent *intent, struct body_edit *ret);

#endif
