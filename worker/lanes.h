/*
 * lanes.h - the exchanges of a call that run, one or two side by side: begun, looked at, ended, and
 * the plan told what came of each.
 */
#ifndef WORKER_LANES_H
#define WORKER_LANES_H

#include "worker/request.h"

/* Begin an attempt in the lane, at a candidate that the sources admit; the plan is told. False: the
 * call cannot go on, request->fault says why. */
MUST_CHECK bool lanes_start(struct request *request, const struct plan_step *step);
/* See what has come, lane 0 first: content, a failure, an end. */
void lanes_attend(struct request *request);
/* When to look again although nothing has happened, until_ns at the latest. */
int64_t lanes_next_look_ns(const struct request *request, int64_t until_ns);
/* End a lane because the other has won or the call's deadline has come. */
void lanes_cancel(struct request *request, const struct plan_step *step);
/* End and book what still runs; error is the ledger's word. */
void lanes_stop(struct request *request, const char *error);
/* What the source is told of an attempt that was judged. */
enum source_end lanes_source_end(const struct request *request, const struct attempt *attempt);

#endif
