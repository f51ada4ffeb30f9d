/*
 * bell.h - the bell thread of a process: turns a ring of its roster row into the eventfds its
 * waiting request threads poll (M5), and does the 250 ms work nobody else is needed for (M4): bury
 * the dead, answer a roll call, ring whose turn it is.
 */
#ifndef WORKER_BELL_H
#define WORKER_BELL_H

#include "base/check.h"
#include "shared/gate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define BELL_TICK_NS (250 * NS_PER_MS)

/* Where one request thread waits. */
struct bell_seat {
    int event_fd; /* readable: look at your place */
    /* It waits with these places, at the image gate and in a flow; NO_INDEX: it does not. */
    _Atomic uint32_t place, flow_place;
};

struct bell {
    struct gate *gate;
    struct bell_seat *seats; /* owned */
    unsigned seat_count;
    struct roster_watch watch;
    pthread_t thread;
    bool running;
    atomic_bool stop;
};

MUST_CHECK bool bell_start(struct bell *bell, struct gate *gate, unsigned seats);
/* Ends the thread; the gate must still be joined. */
void bell_stop(struct bell *bell);

#endif
