/*
 * upstream_id.h - ids that upstreams hand out (of responses, files, tasks, ...), as Penstock keeps
 * them: in a buffer of one size, so that an id that comes back in a request meets the one that went
 * out in an answer. Longer ones (some gateways pack a whole route into theirs) keep their beginning
 * and a hash of the whole.
 */
#ifndef WORKER_UPSTREAM_ID_H
#define WORKER_UPSTREAM_ID_H

#include <stddef.h>

#define UPSTREAM_ID_SIZE 64

void upstream_id_set(char id[UPSTREAM_ID_SIZE], const char *from, size_t length);

#endif
