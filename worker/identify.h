/* identify.h - the step "identify" of a request's life; what it does is told at the top of
 * identify.c. */
#ifndef WORKER_IDENTIFY_H
#define WORKER_IDENTIFY_H

#include "worker/request.h"

enum step_result identify_step(struct request *request);
/* What tells this caller from others, for bounds in the segment only; the same for all its calls. */
uint64_t identify_mark(const struct request *request);

#endif
