/*
 * flow_queue.h - the places of calls in their flows, and whose turn it is: start-time fair queueing
 * over the classes, first come first served inside a class.
 *
 * The tags (Goyal, Vin, Cheng: Start-time Fair Queueing, 1996). A class's finish tag is where, in
 * virtual time, what it was granted ends; a grant of cost c moves it on by (c + a fixed part) / weight
 * from the larger of itself and the flow's virtual time, which then becomes that start. Whose start
 * would be the smallest is next; so a class that always has somebody waiting gets its weight's share
 * of the cost at any rate of grants, and one that was away brings no credit along. Nothing is tagged
 * before it is granted: who leaves while waiting leaves no trace.
 *
 * As at the image gate (wait_queue.h) nobody takes for another: the place whose turn has come is rung,
 * and its own thread takes. Passed over, keeping their number, are places
 *   - that were rung, or said they would ask again, and stay silent for QUEUE_SILENT_NS
 *   - of a process that has not been at the gate for PROCESS_SILENT_NS
 *   - whose deadline has passed, whose source is full for now (aside_until_ns), or that need an image
 *     slot while none is free
 *
 * All functions: lock held.
 */
#ifndef SHARED_FLOW_QUEUE_H
#define SHARED_FLOW_QUEUE_H

#include "base/check.h"
#include "shared/flow_terms.h"
#include "shared/layout.h"

#include <stdbool.h>

/* Build free list, queues and counts from the rows (first use, or a holder died), and undo what the
 * dead holder left half-done. */
void flow_queue_rebuild_locked(struct layout_area *layout);

/* Now, and what the image gate has. */
struct flow_moment {
    int64_t now_ns;
    bool slot_free;
};

/* Take a free place for owner; its state stays FREE until it joins or is granted. NO_INDEX: all are
 * taken. */
MUST_CHECK uint32_t flow_queue_new_place_locked(struct core_area *core, struct layout_area *layout,
                                                uint32_t owner);
/* FREE -> WAITING: at the end of its class. flow, class_index, cost, client_key, image_place are set. */
void flow_queue_join_locked(struct layout_area *layout, uint32_t place);
/* FREE or WAITING -> GRANTED: out of the queue, counted in flight, its class charged. */
void flow_queue_grant_locked(struct layout_area *layout, uint32_t place);
/* Any -> FREE. */
void flow_queue_free_place_locked(struct layout_area *layout, uint32_t place);
/* A granted place's cost turned out to be `cost` (0: it never was). */
void flow_queue_correct_locked(struct layout_area *layout, uint32_t place, int64_t cost);

/* Whose turn it is, whether or not there is budget; NO_INDEX: nobody's. */
MUST_CHECK uint32_t flow_queue_next_locked(const struct layout_area *layout,
                                           const struct flow_row *flow,
                                           const struct flow_moment *moment);
/* Would a call of the class that came now be next? */
MUST_CHECK bool flow_queue_is_next_new_locked(const struct layout_area *layout,
                                              const struct flow_row *flow, enum flow_class class,
                                              const struct flow_moment *moment);
/* Do others go before it for now, as told above? */
MUST_CHECK bool flow_queue_is_passed_over(const struct layout_area *layout,
                                          const struct flow_place_row *row,
                                          const struct flow_moment *moment);
/* What goes before a call of the class that came now: its own class, and what the others get
 * meanwhile by their weights. */
struct flow_ahead {
    uint32_t calls;
    int64_t cost;
};
struct flow_ahead flow_queue_ahead_locked(const struct flow_row *flow, enum flow_class class,
                                          int64_t cost);
/* After a standstill of the whole host nobody was silent: silence is counted from now. */
void flow_queue_forgive_locked(struct layout_area *layout, int64_t now_ns);

#endif
