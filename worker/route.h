/* route.h - the step "route" of a request's life; what it does is told at the top of route.c. */
#ifndef WORKER_ROUTE_H
#define WORKER_ROUTE_H

#include "worker/request.h"

enum step_result route_step(struct request *request);

#endif
