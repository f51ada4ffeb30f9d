/*
 * reload.h - what is tested before a master lets itself be followed: the program on disk, run with -t,
 * reads the configuration, and finds out whether it could take over from the one that runs.
 */
#ifndef WORKER_RELOAD_H
#define WORKER_RELOAD_H

#include "base/check.h"
#include "base/text.h"
#include "worker/options.h"

#include <stdbool.h>
#include <sys/types.h>

struct reload_program {
    const char *path;        /* what will run next */
    const char *name;        /* its argv[0] */
    const char *config_path; /* NULL = none */
};

/* Start the test beside us; in_force: the configuration that would be followed. Returns its pid, -1
 * when it cannot be started. It exits with 0 when all is good. */
MUST_CHECK pid_t reload_test(const struct reload_program *program, const struct options *in_force);

/* In the test: may this configuration follow the one in force? It may not where only a restart changes
 * an option, or where the segment in use is not one this program can use. Always true outside a reload.
 * why gets a line for each reason. */
MUST_CHECK bool reload_may_follow(const struct options *options, struct text *why);

#endif
