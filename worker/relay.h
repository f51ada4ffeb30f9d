/* relay.h - the step "relay" of a request's life; what it does is told at the top of relay.c. */
#ifndef WORKER_RELAY_H
#define WORKER_RELAY_H

#include "worker/request.h"

enum step_result relay_step(struct request *request);

#endif
