/*
 * queue_order.h - whose turn it is between the classes of calls that wait at the image gate (F8).
 *
 * Inside a class arrival order is grant order. Between classes start-time fair queueing, as in
 * flow_queue.h: a slot for a call of n pictures moves its class's finish tag on by n / weight from
 * where it starts, which is the larger of that tag and the virtual time; the virtual time becomes that
 * start. Whose start is the smallest is next, among equals the higher class. While all have calls that
 * wait, each class gets its weight's share of the pictures; where all calls are of one class, and
 * where the weights are 0, arrival order is grant order.
 *
 * Tags move after the place has become HELD, the virtual time first: a holder of the lock that dies
 * before that has charged nothing, one that dies between the two has not charged its class for this
 * slot. So nobody pays for a call that left, died or was passed over, and nothing has to be undone.
 *
 * All functions: lock held.
 */
#ifndef SHARED_QUEUE_ORDER_H
#define SHARED_QUEUE_ORDER_H

#include "shared/flow_terms.h"
#include "shared/layout.h"

#include <stdbool.h>

/* A call is charged for at most so many pictures. No upstream draws more for one call, and no number
 * that a client writes keeps the rest of its class away for long. */
#define QUEUE_PICTURES_MAX 16U

/* In which class a call waits: without weights all in the same. */
enum flow_class queue_class_heard(const struct layout_area *layout, enum flow_class class);
/* The place has got its slot. */
void queue_charge_locked(struct layout_area *layout, uint32_t place);
/* Do as many of the class wait as may, and as many more as slots are free? */
bool queue_is_full_locked(const struct layout_area *layout, enum flow_class class, uint32_t free);
/* So many go before a call of the class that came now, if nobody came after it: its own class, and of
 * the others what their weights let go meanwhile, reckoned with calls as large as theirs are on
 * average. */
uint32_t queue_ahead_locked(const struct layout_area *layout, enum flow_class class);

/* The places that wait, in the order in which they would get slots if nobody came or left. Nothing
 * changes while it is walked. */
struct queue_walk {
    const struct layout_area *layout;
    uint32_t next[FLOW_CLASSES];
    int64_t start[FLOW_CLASSES]; /* tags of those */
    uint32_t place;              /* the one walked to last */
};
void queue_walk_begin(struct queue_walk *walk, const struct layout_area *layout);
/* NO_INDEX: that was all. */
uint32_t queue_walk_next(struct queue_walk *walk);
/* The one walked to last gets a slot; otherwise it is passed over, and its class's next has its turn. */
void queue_walk_grants(struct queue_walk *walk);

#endif
