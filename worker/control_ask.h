/*
 * control_ask.h - a question to the monitor over the status socket, as penstockctl asks it, and what
 * stands in its answer. Why there is no answer, or no good one, is told on standard error.
 */
#ifndef WORKER_CONTROL_ASK_H
#define WORKER_CONTROL_ASK_H

#include "base/check.h"
#include "base/text.h"
#include "worker/fastcgi_call.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct control_socket {
    const char *address;
    struct text report; /* of the configuration that could not be read; empty: it could */
};

/* Ask for uri; true when the answer is a good one. reply is initialized here. quiet: say nothing. */
MUST_CHECK bool control_ask(const struct control_socket *monitor, const char *method,
                            const char *uri, bool quiet, struct fastcgi_reply *reply);
/* Print the answer's body. */
MUST_CHECK bool control_print(const struct control_socket *monitor, const char *method,
                              const char *uri);

/* What stands behind key at a line's beginning, up to the line's end; NULL = nothing. */
const char *control_value_in(const char *text, const char *key, size_t *ret_length);
/* 0: it does not stand there. */
uint64_t control_number_in(const char *text, const char *key);

#endif
