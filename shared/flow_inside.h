/* flow_inside.h - what the files of flow.h share among themselves; for nobody else. */
#ifndef SHARED_FLOW_INSIDE_H
#define SHARED_FLOW_INSIDE_H

#include "base/clock.h"
#include "shared/flow.h"
#include "shared/flow_queue.h"
#include "shared/flow_rows.h"

/* No call costs more: what is asked for cannot make sums overflow. */
#define FLOW_COST_MAX INT64_C(100000000)

static inline int64_t flow_later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t flow_bounded(int64_t units)
{
    if (units < 0)
        return 0;
    return units < FLOW_COST_MAX ? units : FLOW_COST_MAX;
}

struct flow_place_row *flow_place_of(const struct gate *gate, uint32_t place);
/* Of the calling process; not free. */
struct flow_place_row *flow_own_place(const struct gate *gate, uint32_t place);
struct flow_row *flow_row_of(const struct gate *gate, const struct flow_place_row *place);

/* A step that a dead holder of the lock may leave half-done: the flow's balances, the place's charge and
 * what was counted in the second of at_ns are put back unless the place has come to wanted_state. */
#define FLOW_NO_STATE UINT32_MAX /* the step changes no state: half-done until it has ended */
void flow_step_begins(struct flow_row *flow, const struct layout_area *layout, uint32_t place,
                      uint32_t wanted_state, int64_t at_ns);
void flow_step_ends(struct flow_row *flow);

/* When a call of the cost could go if it were next. */
struct flow_budget {
    int64_t due_ns; /* <= now: at once; CLOCK_NEVER: not by waiting */
    enum adaptive_want want;
    bool paused;
};
struct flow_budget flow_budget_locked(struct flow_row *flow, int64_t cost, int64_t now_ns);
/* The controller learns that somebody could not go. */
void flow_tell_locked(struct flow_row *flow, const struct flow_budget *budget);
struct flow_moment flow_moment_of(struct gate *gate, const struct flow_row *flow, int64_t now_ns);
/* How long a call of the class that came now would wait. */
int64_t flow_predict_ns(struct flow_row *flow, enum flow_class class, int64_t cost, int64_t now_ns);
/* How long a waiting one still would, > 0: for who is turned away. */
int64_t flow_wait_left_ns(struct flow_row *flow, const struct flow_place_row *place,
                          int64_t now_ns);
/* Whose turn would come too late by what has become of the flow since is rung, to be refused. */
void flow_outlook_locked(struct gate *gate, struct flow_row *flow, int64_t now_ns);
/* The one whose turn it is looks, if it would not by itself in time. */
void flow_ring_locked(struct gate *gate, struct flow_row *flow, int64_t now_ns);

#endif
