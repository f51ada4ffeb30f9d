/* admission.h - the step "admission" of a request's life; what it does is told at the top of
 * admission.c. */
#ifndef WORKER_ADMISSION_H
#define WORKER_ADMISSION_H

#include "shared/admit.h"
#include "worker/request.h"

enum step_result admission_step(struct request *request);

enum admission_result {
    ADMISSION_GRANTED,
    ADMISSION_REFUSED_SOURCE, /* ret_refusal: which verdict; another one may be had later */
    ADMISSION_REFUSED_FLOW, /* flow control: ret_refusal->earliest_ns tells when; request->flow_refusal
                                 why */
    ADMISSION_OVER,         /* the call is over: request->fault says why */
};
/* For one attempt on a scope: a slot of the image gate where the call needs one and has none, flow
 * control's grant, a source; all at once, or a wait for all, or nothing. A hedge never waits. */
enum admission_result admission_take(struct request *request, const struct source_wish *wish,
                                     struct admit_seat *seat, struct source_answer *ret_refusal);

#endif
