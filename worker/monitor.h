/*
 * monitor.h - the child that serves the status socket and does housekeeping: status, metrics, ping
 * and penstockctl's requests are answered here, so that they work while every worker thread is
 * busy. Its status thread is not its ledger thread.
 */
#ifndef WORKER_MONITOR_H
#define WORKER_MONITOR_H

#include "shared/segment.h"
#include "worker/options.h"

struct child_context; /* worker/serve.h: what the master gives every child */

/* The whole life of the monitor process, from after fork to its exit status. */
int monitor_main(const struct child_context *context);

#endif
