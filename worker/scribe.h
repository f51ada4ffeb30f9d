/*
 * scribe.h - the thread that carries records from the journal to the ledger.
 *
 * Every monitor and every worker has one; the one that holds the journal's seat writes. The monitor's
 * is always eager, and gives way only to that of a newer monitor; a worker's sits down only while no
 * monitor of the instance has lived for a second, and stands up when one does again. It never holds
 * the segment's lock while it writes, so a ledger that is locked for a minute stops nobody (L4).
 *
 * With the option `ledger` off it throws the records away, so that the journal does not fill up and
 * count as loss what nobody wants.
 */
#ifndef WORKER_SCRIBE_H
#define WORKER_SCRIBE_H

#include "base/check.h"
#include "shared/gate.h"
#include "worker/options.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct scribe {
    struct gate *gate;
    const struct options *options;
    bool eager; /* the monitor's */
    pthread_t thread;
    bool running;
    atomic_bool stop;
    pthread_mutex_t mutex; /* for wake only */
    pthread_cond_t wake;   /* stop was set */
};

MUST_CHECK bool scribe_start(struct scribe *scribe, struct gate *gate,
                             const struct options *options, bool eager);
/* Write what is there (bounded time), then end the thread. */
void scribe_stop(struct scribe *scribe);

#endif
