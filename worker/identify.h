/* identify.h - the step "identify" of a request's life; what it does is told at the top of
 * identify.c. */
#ifndef WORKER_IDENTIFY_H
#define WORKER_IDENTIFY_H

#include "worker/request.h"

enum step_result identify_step(struct request *request);

#endif
