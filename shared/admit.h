/*
 * admit.h - one decision for all that a call needs before it may be sent: a slot of the image gate
 * (image calls), the grant of a flow, the permit of a source. All or nothing, under one taking of the
 * lock: a refusal of any of them charges nothing and holds nothing.
 *
 *   admit_arrive -> ADMIT_GRANTED: has what it asked for; each part has its own end (gate_leave,
 *                                  flow_sent and flow_settle..., source_release)
 *                -> ADMIT_QUEUED:  waits in the image queue, in the flow's queue, or in both. On a ring
 *                                  of either (gate_is_rung, flow_is_rung) and at wake_ns: admit_try
 *                -> ADMIT_REFUSED_*: nothing is held but what was brought along
 *   admit_try    -> ADMIT_GRANTED, ADMIT_QUEUED as above
 *                -> ADMIT_REFUSED_*: still waits: admit_leave, or try again later
 *
 * Which source. Among those that the source rules admit (sources.h), the ones whose flow lets the call
 * go at once come first, so that an account with room is used while another is full; when there is
 * none, the call waits in the flow of the shortest predicted wait. It may then go to any of its
 * candidates that belong to that flow.
 *
 * Slot and flow. A call that needs both is passed over in the image queue while its flow would not
 * let it go even with a slot, and in its flow while no slot is free; it keeps its number in both. A
 * slot never idles for a call that cannot use it, and a flow is not held up by a call without slot.
 * One that many slots passed over gets the next: a slot is kept for it as soon as its flow lets it go
 * soon (QUEUE_PASSES_MAX, QUEUE_KEEP_NS). Where a call that finds no free slot is refused at once
 * (overflow_mode = reject), one that arrived while a slot was free still waits for its flow, and then
 * for a slot. One that waits for both does so within the gate's patience, and is refused in the name
 * of what it lacks: of the flow when its turn there would come later than that, or when its time is over
 * while a slot is free.
 */
#ifndef SHARED_ADMIT_H
#define SHARED_ADMIT_H

#include "base/check.h"
#include "base/clock.h"
#include "shared/flow.h"
#include "shared/gate.h"
#include "shared/sources.h"

#include <stdbool.h>

struct admit_call {
    const struct source_wish *wish; /* its now_ns is the decision's; for a hedge nothing waits */
    /* By candidate, wish->count of them; quota_group may be NULL: the source row's own. NULL = no flow
     * control at all. */
    const struct flow_target *targets;
    struct flow_call flow; /* now_ns is wish->now_ns */
    /* A slot is wanted: how to ask for it; NULL = none, or one is held already (a retry). */
    const struct gate_call *image;
};

/* What an admitted or waiting call has; NO_INDEX, row NO_INDEX: nothing. The ticket of worker/. */
struct admit_seat {
    uint32_t image_place;
    bool image_held; /* has its slot (or the gate was switched off); else waits for it */
    uint32_t flow_place;
    bool flow_granted; /* else waits for it */
    unsigned candidate;
    struct source_permit permit;
};
#define ADMIT_SEAT_EMPTY                                                                           \
    ((struct admit_seat){.image_place = NO_INDEX, .flow_place = NO_INDEX, .permit.row = NO_INDEX})

enum admit_verdict {
    ADMIT_GRANTED,
    ADMIT_QUEUED,
    ADMIT_REFUSED_IMAGE,  /* answer.image tells why */
    ADMIT_REFUSED_FLOW,   /* answer.flow */
    ADMIT_REFUSED_SOURCE, /* answer.source: which verdict, and earliest_ns */
};

struct admit_answer {
    enum admit_verdict verdict;
    struct gate_answer image; /* when a slot was asked for */
    struct flow_answer flow;  /* of the flow that was chosen; when none: FLOW_OPEN */
    struct flow_price price;  /* of an arrival: what the call costs there */
    struct source_answer source;
    int64_t wake_ns; /* QUEUED: try then, if not rung before; CLOCK_NEVER = only when rung */
};

/* seat: empty, or with the slot that a retry still holds (image_held). */
void admit_arrive(struct gate *gate, const struct admit_call *call, struct admit_seat *seat,
                  struct admit_answer *ret);
/* call: as at the arrival, with a new wish->now_ns (and masks, if something has changed). */
void admit_try(struct gate *gate, const struct admit_call *call, struct admit_seat *seat,
               struct admit_answer *ret);
/* End of a wait without grant: leaves the places it waits in, keeps a slot it holds. end: the image
 * gate's record. */
void admit_leave(struct gate *gate, struct admit_seat *seat, enum wait_state end, int64_t now_ns);
/* Is either of its places rung? Without the lock, for the bell thread. */
bool admit_is_rung(const struct gate *gate, uint32_t image_place, uint32_t flow_place);

#endif
