/* accept.h - the step "accept" of a request's life; what it does is told at the top of accept.c. */
#ifndef WORKER_ACCEPT_H
#define WORKER_ACCEPT_H

#include "worker/request.h"

enum step_result accept_step(struct request *request);

/* Name the call; also for one that never reaches the steps. */
void accept_make_call_id(struct request *request);

#endif
