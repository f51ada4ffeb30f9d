/* admission.h - the step "admission" of a request's life; what it does is told at the top of
 * admission.c. */
#ifndef WORKER_ADMISSION_H
#define WORKER_ADMISSION_H

#include "worker/request.h"

enum step_result admission_step(struct request *request);

#endif
