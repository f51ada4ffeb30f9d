/*
 * master.h - the process that keeps the others alive: seat, sockets, segment, children, signals.
 */
#ifndef WORKER_MASTER_H
#define WORKER_MASTER_H

#include "worker/options.h"

struct master_arguments {
    const char *config_path; /* NULL = no file */
    char *const *argv;       /* to run the same program again on reload */
};

/* Run until told to stop; returns the exit status. Owns options from now on. */
int master_main(const struct master_arguments *arguments, struct options *options);

#endif
