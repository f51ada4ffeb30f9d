/*
 * pin.h - what ties a call to the one source that has what it speaks of: an earlier response, a
 * conversation, a file, a batch, a task, a container (H11). Other sources answer such a call with "not
 * found". Pure.
 */
#ifndef WORKER_PIN_H
#define WORKER_PIN_H

#include "worker/upstream_id.h"

#include <stddef.h>

/* From the weakest to the strongest; of several of one rank the first counts. */
enum pin_rank {
    PIN_NONE,
    PIN_ITEM, /* an item of an earlier answer; nobody remembers whose */
    PIN_TOOL, /* a container, a vector store, an assistant */
    PIN_FILE,
    PIN_CONVERSATION,
    PIN_RESPONSE,
    PIN_PATH, /* the call is about this very thing */
};

struct pin {
    enum pin_rank rank;
    char id[UPSTREAM_ID_SIZE];
};

/* Keep the id when it is stronger than what is there; an empty one pins nothing. */
void pin_take(struct pin *pin, enum pin_rank rank, const char *id, size_t length);
/* The id that a path like "/v1/files/{id}/content" names, if any. */
void pin_take_path(struct pin *pin, const char *path);

#endif
