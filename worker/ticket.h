/*
 * ticket.h - everything a call holds of what is scarce, given back exactly once (G9). Today: its
 * place at the image gate.
 */
#ifndef WORKER_TICKET_H
#define WORKER_TICKET_H

#include "shared/gate.h"

#include <stdbool.h>
#include <stdint.h>

struct ticket {
    struct gate *gate;
    uint32_t place; /* NO_INDEX = holds nothing */
    bool granted;   /* holds its slot, or runs uncounted because the gate was switched off */
};

void ticket_init(struct ticket *ticket, struct gate *gate);
/* Give everything back; harmless when nothing is held. terms: the slot goes on as a lease. */
void ticket_give(struct ticket *ticket, enum wait_state end, const struct lease_terms *terms);

#endif
