/* receive.h - the step "receive" of a request's life; what it does is told at the top of receive.c.
 */
#ifndef WORKER_RECEIVE_H
#define WORKER_RECEIVE_H

#include "worker/request.h"

enum step_result receive_step(struct request *request);

#endif
