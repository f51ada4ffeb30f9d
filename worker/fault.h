/*
 * fault.h - why a call fails: filled where it is first known, told to the client by respond, logged
 * once by settle. Faults are values; see fault_list.h for all of them.
 */
#ifndef WORKER_FAULT_H
#define WORKER_FAULT_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum fault_code {
    FAULT_NONE,
#define FAULT(name, status, type, should_retry, message) FAULT_##name,
#include "worker/fault_list.h"
#undef FAULT
    FAULT_CODES
};

struct fault {
    enum fault_code code;
    int64_t retry_after_ms; /* -1 = no Retry-After; else sent as 1..60 s and in retry-after-ms */
    char detail[200];       /* added to the message; never from a body; "" = nothing */
};

/* Fill it, unless it is filled already: the first fault known is the one that counts. */
void fault_set(struct fault *fault, enum fault_code code, const char *detail_format, ...)
    PRINTF_LIKE(3, 4);

int fault_status(enum fault_code code);
/* "penstock_image_limit"; "" for FAULT_NONE. */
const char *fault_code_text(enum fault_code code);
/* 1 send x-should-retry: true, 0 send false, -1 do not send it. */
int fault_should_retry(enum fault_code code);

/* Append {"error":{message,type,param,code}} with all four keys. */
void fault_append_json(const struct fault *fault, struct text *out);

/* How each endpoint family says in a stream that it failed (peers.md 2.9). */
enum stream_family { STREAM_CHAT, STREAM_RESPONSES, STREAM_IMAGES, STREAM_OTHER };
/* Append one whole SSE event (event: error, data: ..., blank line) that every known SDK raises on.
 */
void fault_append_event(const struct fault *fault, enum stream_family family, struct text *out);

#endif
