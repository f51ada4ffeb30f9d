/*
 * generations.h - the processes of one instance in the roster, by generation: what a master must know of
 * those that a former one started, whose parent it may not be.
 */
#ifndef WORKER_GENERATIONS_H
#define WORKER_GENERATIONS_H

#include "shared/layout.h"

#include <stdbool.h>

struct generations {
    struct core_area *core;
    uint32_t instance;
    uint64_t current;
};

/* How many others than the current one have workers. */
unsigned generations_count_older(const struct generations *generations);
/* Send a signal to every worker and monitor of the others. */
void generations_signal_older(const struct generations *generations, int number);
/* Is there room in the roster for so many more processes? */
bool generations_have_room(const struct generations *generations, unsigned processes);
/* Make every worker of the gate look around, now. */
void generations_ring_workers(const struct generations *generations);

#endif
