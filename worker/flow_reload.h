/*
 * flow_reload.h - a new generation serves: the flows that are there go by its configuration at once, not
 * when its first call comes to each, and so do the calls that stand in line, whichever generation took
 * them. docs/why/line.md.
 */
#ifndef WORKER_FLOW_RELOAD_H
#define WORKER_FLOW_RELOAD_H

#include "shared/gate.h"
#include "worker/options.h"

#include <stdint.h>

/* A flow whose scope or account the configuration does not have any more stays as it is: its calls have
 * nothing else to go by. */
void flow_reload(struct gate *gate, const struct options *options, int64_t now_ns);

#endif
