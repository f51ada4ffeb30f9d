/*
 * serve.h - one worker process: request threads, the bell thread, the refuser, the end.
 */
#ifndef WORKER_SERVE_H
#define WORKER_SERVE_H

#include "shared/segment.h"
#include "worker/options.h"

#include <stdbool.h>
#include <sys/types.h>

/* What the master gives every child; made before fork. */
struct child_context {
    const struct options *options;
    struct segment *segment;
    uint64_t generation;
    int listen_fd;
    int status_fd;
    int master_pidfd; /* readable when the master has ended */
    pid_t master_pid;
    int ready_fd; /* pipe to the master: the child's pid says that it serves; -1 = none */
};

/* The whole life of a worker, from after fork to its exit status. */
int serve_main(const struct child_context *context);

/* Tell the master that this child serves. */
void child_ready(const struct child_context *context);
/* The one way a child process ends: flushes what sanitizers and coverage keep. */
_Noreturn void serve_exit(int status);

#endif
