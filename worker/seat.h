/*
 * seat.h - one master per instance: a record lock on a file in the state directory. The kernel
 * frees it when the master is killed; children do not inherit it (flock would be inherited: orphans
 * would keep it). It survives the master's re-exec, since its descriptor does (M7).
 */
#ifndef WORKER_SEAT_H
#define WORKER_SEAT_H

#include "base/check.h"
#include "base/text.h"

/* Take the seat; returns its descriptor, -1 with a sentence in why when somebody sits there. */
MUST_CHECK int seat_take(const char *state_directory, struct text *why);
/* Before a re-exec: tell the new program that it sits already. */
void seat_keep(int fd);

#endif
