/* settle.h - the step "settle" of a request's life; what it does is told at the top of settle.c. */
#ifndef WORKER_SETTLE_H
#define WORKER_SETTLE_H

#include "worker/request.h"

enum step_result settle_step(struct request *request);

#endif
