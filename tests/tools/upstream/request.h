/* request.h - HTTP/1.1 requests, read from bytes as they come; bodies are hashed, not kept. */
#ifndef TESTS_TOOLS_UPSTREAM_REQUEST_H
#define TESTS_TOOLS_UPSTREAM_REQUEST_H

#include "base/check.h"
#include "tests/tools/upstream/call.h"

#include <stdbool.h>
#include <stddef.h>

/* Make the call ready for a new request; keeps memory it owns. */
void sim_request_begin(struct call *call);
void sim_request_release(struct call *call);

/* Read a whole head (with its empty line). False: it is not HTTP. Afterwards method, path, query,
 * the framing and the headers we name are set; a leading /m/KEYS of the path is moved to
 * ret_prefix. */
MUST_CHECK bool sim_request_read_head(struct call *call, const char *bytes, size_t length,
                                      char ret_prefix[512]);
/* Eat body bytes; returns how many were used (fewer when a chunk's size line is incomplete). */
size_t sim_request_read_body(struct call *call, const char *bytes, size_t length,
                             bool *ret_complete);
/* The body is complete: digest, model, stream flag, numbers. */
void sim_request_end(struct call *call);

/* Copy the value of a header of call->head; false when there is none. */
MUST_CHECK bool sim_request_header(const struct call *call, const char *name, char *value,
                                   size_t size);
/* Does the kept part of the body hold this string? */
bool sim_request_mentions(const struct call *call, const char *string);
/* Copy the scalar of a JSON key or multipart field of the body. */
MUST_CHECK bool sim_request_field(const struct call *call, const char *name, char *value,
                                  size_t size);

#endif
