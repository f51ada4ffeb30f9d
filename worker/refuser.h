/*
 * refuser.h - one thread per worker that answers 503 when nobody else can (M15): every thread of
 * the worker has been busy for a second and has taken nothing in that time, so what stands in the
 * socket's backlog has waited at least that long.
 */
#ifndef WORKER_REFUSER_H
#define WORKER_REFUSER_H

#include "worker/request.h"

#include <pthread.h>

struct refuser {
    struct worker *worker;
    pthread_t thread;
    bool running;
};

MUST_CHECK bool refuser_start(struct refuser *refuser, struct worker *worker);
/* The worker's stop_fd has been set. */
void refuser_stop(struct refuser *refuser);

#endif
