/* ticket.c - what a call holds, given back exactly once; see ticket.h. */
#include "worker/ticket.h"

#include "base/clock.h"

void ticket_init(struct ticket *ticket, struct gate *gate)
{
    *ticket = (struct ticket){.gate = gate, .place = NO_INDEX};
}

void ticket_give(struct ticket *ticket, enum wait_state end, const struct lease_terms *terms)
{
    uint32_t place = ticket->place;

    if (place == NO_INDEX)
        return;
    ticket->place = NO_INDEX;
    ticket->granted = false;
    gate_leave(ticket->gate, place, end, clock_monotonic_ns(), terms);
}
