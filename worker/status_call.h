/*
 * status_call.h - one call as the ledger has it, with its attempts: /penstock/calls/ID (H17), as text
 * and as JSON.
 */
#ifndef WORKER_STATUS_CALL_H
#define WORKER_STATUS_CALL_H

#include "base/check.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Could a call have this id? */
bool status_call_is_id(const char *id, size_t length);

enum status_call_result {
    STATUS_CALL_FOUND,
    STATUS_CALL_UNKNOWN,    /* no row of it */
    STATUS_CALL_UNREADABLE, /* the ledger is missing or locked; why tells */
};
/* Waits for a locked ledger half a second at most. */
MUST_CHECK enum status_call_result status_call_write(const char *state_directory, const char *id,
                                                     bool json, struct text *out, struct text *why);

#endif
