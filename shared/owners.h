/*
 * owners.h - which source an upstream's id belongs to: a response that a later call continues, a
 * file, a conversation, a batch, a task. Such a call goes to the source that owns the id, and to no
 * other (H11).
 *
 * Best effort by design: a fixed table in the segment, four places to a hash, the oldest gives way;
 * it survives restarts of Penstock but not of the machine. An id that is not in it belongs to the
 * first source of its scope. Both take the segment's lock.
 */
#ifndef SHARED_OWNERS_H
#define SHARED_OWNERS_H

#include "shared/gate.h"

void owner_remember(struct gate *gate, const char *id, uint32_t source_row, int64_t now_ns);
/* NO_INDEX: unknown. */
uint32_t owner_of(struct gate *gate, const char *id);

#endif
