/* attempts.h - the step "attempts" of a request's life; what it does is told at the top of
 * attempts.c. */
#ifndef WORKER_ATTEMPTS_H
#define WORKER_ATTEMPTS_H

#include "worker/request.h"

enum step_result attempts_step(struct request *request);

#endif
