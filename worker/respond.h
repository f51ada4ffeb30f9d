/* respond.h - the step "respond" of a request's life, and how an answer of our own begins; what it
 * does is told at the top of respond.c. */
#ifndef WORKER_RESPOND_H
#define WORKER_RESPOND_H

#include "worker/request.h"

enum step_result respond_step(struct request *request);

/* Send 200 and the head of a stream or of a document with blanks before it; nothing was sent
 * before. False: the client is gone. */
MUST_CHECK bool respond_begin(struct request *request, enum response_state state);
/* Complete the head of an upstream's answer: our own headers, what is to be said of trying again, its
 * end. False: out of memory. */
MUST_CHECK bool respond_finish_head(struct request *request, struct text *head);
/* Append the headers every answer carries (x-request-id, what the operator asked for). */
void respond_append_own_headers(struct request *request, struct text *head);

#endif
