/*
 * wait_queue.h - the places of calls at the gate, and the order of those that wait.
 *
 * States of a place: FREE, WAITING (in the list of its class), HELD (has its slot). Rows are the
 * truth, the lists are an index over the WAITING rows of a class in the order of their arrival_seq;
 * after a holder of the lock died they are built again from the rows.
 *
 * Order (M2): inside a class arrival order is grant order, between classes queue_order.h decides,
 * among those that answer. Nobody takes for another, since SEM_UNDO is per process: a place whose turn has come is rung, and its own thread takes the slot
 * under the lock, if it is then the first. A place that was rung and stays silent for
 * QUEUE_SILENT_NS is passed over, and keeps its number; likewise, all at once, the places of a
 * process that has not been at the gate for PROCESS_SILENT_NS (it is stopped: its tick comes every
 * 250 ms).
 *
 * All functions: lock held.
 */
#ifndef SHARED_WAIT_QUEUE_H
#define SHARED_WAIT_QUEUE_H

#include "base/check.h"
#include "base/clock.h"
#include "shared/layout.h"
#include "shared/queue_order.h"

#include <stdbool.h>

#define QUEUE_SILENT_NS (500 * NS_PER_MS)
#define PROCESS_SILENT_NS NS_PER_S
/* A call that needs a flow's grant too (admit.h) is passed over as well while its flow would not let
 * it go; so many times, then a slot is kept for it if its flow lets it go within QUEUE_KEEP_NS. */
#define QUEUE_PASSES_MAX 16U
#define QUEUE_KEEP_NS (2 * NS_PER_S)
#define STANDSTILL_NS (500 * NS_PER_MS) /* every process ticks every 250 ms */

/* Build free list and queue from the rows (first use, or a holder died). */
void queue_rebuild_locked(struct core_area *core, struct layout_area *layout);

/* Take a free place for owner; its state stays FREE until queue_join or queue_hold. NO_INDEX: all
 * are taken. */
MUST_CHECK uint32_t queue_new_place_locked(struct core_area *core, struct layout_area *layout,
                                           uint32_t owner);
/* The class it waits in, and what that is charged for the slot, within 1..QUEUE_PICTURES_MAX: before
 * queue_join and queue_hold. */
void queue_set_class_locked(struct layout_area *layout, uint32_t place, enum flow_class class,
                            int64_t pictures);
/* FREE -> WAITING: at the end of its class. */
void queue_join_locked(struct core_area *core, struct layout_area *layout, uint32_t place);
/* FREE or WAITING -> HELD. held: index into core.held, NO_INDEX when the call runs uncounted; its class
 * is charged for what is counted. */
void queue_hold_locked(struct core_area *core, struct layout_area *layout, uint32_t place,
                       uint32_t held);
/* Any -> FREE. */
void queue_free_place_locked(struct core_area *core, struct layout_area *layout, uint32_t place);

/* The process is at the gate: it is not silent. When nobody has been there for STANDSTILL_NS, the lock or
 * the machine stood still; then nobody was silent, and silence is counted from now. */
void queue_answer_locked(struct layout_area *layout, uint32_t owner, int64_t now_ns);
/* Is there nobody before the place who is not passed over? */
bool queue_is_first_locked(struct layout_area *layout, uint32_t place, int64_t now_ns);
/* Is anybody waiting who is not passed over? */
bool queue_has_answering_locked(struct layout_area *layout, int64_t now_ns);
/* The place (NO_INDEX: one that did not queue) gets a slot before those in front of it. True: one of
 * them did not wait for a flow. */
bool queue_pass_over_locked(struct layout_area *layout, uint32_t place);
/* Ring the first `free` places that are not passed over, and all that belong to an instance whose gate
 * is off. Rings each process's bell once. Returns how many places were rung anew. */
unsigned queue_ring_locked(struct core_area *core, struct layout_area *layout, uint32_t free,
                           int64_t now_ns);
/* 1 = first. 0 when it is not waiting. Goes through all before it. */
uint32_t queue_position_locked(const struct layout_area *layout, uint32_t place);

#endif
