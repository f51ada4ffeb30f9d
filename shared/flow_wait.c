/*
 * flow_wait.c - how long calls will wait in a flow: one that comes now, and those in line. What was
 * reckoned when a call came may have become wrong - a pause that the upstream asked for, a debt, a
 * lower limit - and who would be too late by now is told at once, not when its time is over.
 */
#include "shared/flow_inside.h"

#include "shared/bucket.h"
#include "shared/flow_told.h"
#include "shared/roster.h"

/* The turns of those in line are reckoned this often, whoever's tick comes first. */
#define OUTLOOK_NS (200 * NS_PER_MS)
/* So little too late may be in time: clocks of threads, the pace's slack. */
#define LATE_SLACK_NS (250 * NS_PER_MS)
/* What is only guessed turns nobody away who is already in line before it is twice too much. */
#define GUESS_MARGIN 2

/* As slots become free once per mean time in flight and place. */
static int64_t for_place_ns(const struct flow_row *flow, uint32_t limit, uint32_t ahead)
{
    if (flow->in_flight + ahead < limit || limit == 0)
        return 0;
    /* 0 until a call has ended: nobody is refused for a time that nobody knows. */
    return (int64_t)((double)flow->mean_hold_ns * (flow->in_flight + ahead + 1 - limit) / limit);
}

static int64_t for_pace_ns(const struct flow_row *flow, uint32_t ahead, int64_t now_ns)
{
    return flow_later(0, flow->next_send_ns - now_ns) + ahead * flow->interval_ns;
}

static int64_t for_bucket_ns(struct bucket_row *row, int64_t all_micro, int64_t now_ns)
{
    struct bucket_row copy = *row;
    int64_t due_micro = all_micro < copy.capacity_micro ? all_micro : copy.capacity_micro;

    if (row->capacity_micro == 0)
        return 0;
    /* More than the capacity is not there at once: what goes before is taken, the last waits. */
    bucket_take(&copy, flow_later(0, all_micro - copy.capacity_micro), now_ns);
    return bucket_due_ns(&copy, due_micro, now_ns) - now_ns;
}

struct wait {
    int64_t certain_ns; /* nothing that others do makes it shorter but that they leave */
    int64_t guessed_ns;
};

/* Behind what is ahead; the longest of all that it must wait for (research 3.8). Units come back from
 * calls that use less, places when somebody has his answer, and a controller changes its mind. */
static struct wait wait_of(struct flow_row *flow, const struct flow_limits *limits,
                           const struct flow_ahead *ahead, int64_t cost, int64_t now_ns)
{
    const int64_t requests_ns =
        for_bucket_ns(&flow->requests, (ahead->calls + INT64_C(1)) * BUCKET_UNIT, now_ns);
    const int64_t units_ns =
        for_bucket_ns(&flow->units, (ahead->cost + cost) * BUCKET_UNIT, now_ns);
    struct wait wait = {.certain_ns = flow_later(0, limits->not_before_ns - now_ns)};
    int64_t pace_ns;

    if (!flow_holds_back(flow))
        return (struct wait){0};
    if (flow->strategy == FLOW_STRATEGY_ADAPTIVE)
        pace_ns = adaptive_wait_ns(&flow->adaptive, ahead->calls, now_ns);
    else
        pace_ns = for_pace_ns(flow, ahead->calls, now_ns);
    pace_ns = flow_later(pace_ns, requests_ns);
    wait.guessed_ns = flow_later(units_ns, for_place_ns(flow, limits->in_flight, ahead->calls));
    if (flow->strategy == FLOW_STRATEGY_ADAPTIVE ||
        flow_open_of(&flow->requests_known, now_ns) < FLOW_OPEN_FULL)
        wait.guessed_ns = flow_later(wait.guessed_ns, pace_ns);
    else
        wait.certain_ns = flow_later(wait.certain_ns, pace_ns);
    return wait;
}

int64_t flow_predict_ns(struct flow_row *flow, enum flow_class class, int64_t cost, int64_t now_ns)
{
    const struct flow_limits limits = flow_limits_locked(flow, now_ns);
    const struct flow_ahead ahead = flow_queue_ahead_locked(flow, class, cost);
    const struct wait wait = wait_of(flow, &limits, &ahead, cost, now_ns);

    return flow_later(wait.certain_ns, wait.guessed_ns);
}

int64_t flow_wait_left_ns(struct flow_row *flow, const struct flow_place_row *place, int64_t now_ns)
{
    const struct flow_limits limits = flow_limits_locked(flow, now_ns);
    const struct flow_ahead nobody = {0};
    const struct wait wait = wait_of(flow, &limits, &nobody, place->cost, now_ns);
    const int64_t least_ns = flow_later(wait.certain_ns, wait.guessed_ns);

    return flow_later(1, flow_later(least_ns, place->turn_ns - now_ns));
}

int64_t flow_paused_until_ns(struct gate *gate, const struct flow_target *target, int64_t now_ns)
{
    int64_t until_ns = 0;
    uint32_t flow;

    gate_lock(gate);
    flow = flow_find_locked(gate, target, now_ns);
    if (flow != NO_INDEX)
        until_ns =
            flow_limits_locked(&segment_layout(gate->segment)->flows[flow], now_ns).not_before_ns;
    gate_unlock(gate);
    return until_ns;
}

/* ---- those in line ---------------------------------------------------------------------------- */

static int64_t at_ns(int64_t now_ns, int64_t wait_ns)
{
    return wait_ns > CLOCK_NEVER - now_ns ? CLOCK_NEVER : now_ns + wait_ns;
}

/* Even if those of other classes let all of its own go first. */
static void look_at(struct gate *gate, struct flow_place_row *row, const struct wait *wait,
                    int64_t now_ns)
{
    row->turn_ns = at_ns(now_ns, flow_later(wait->certain_ns, wait->guessed_ns));
    row->hopeless = at_ns(now_ns, wait->certain_ns - LATE_SLACK_NS) > row->deadline_ns ||
                    at_ns(now_ns, wait->guessed_ns / GUESS_MARGIN) > row->deadline_ns;
    if (row->hopeless != 0 && atomic_exchange(&row->rung, 1) == 0)
        roster_ring(&segment_core(gate->segment)->roster[row->owner]);
}

static void add(struct flow_ahead *ahead, const struct flow_place_row *row)
{
    ahead->calls++;
    ahead->cost += row->cost;
}

void flow_outlook_locked(struct gate *gate, struct flow_row *flow, int64_t now_ns)
{
    struct layout_area *layout = segment_layout(gate->segment);
    const struct flow_moment moment = flow_moment_of(gate, flow, now_ns);
    struct flow_limits limits;

    if (flow->waiting == 0 || now_ns - flow->outlook_ns < OUTLOOK_NS)
        return;
    flow->outlook_ns = now_ns;
    limits = flow_limits_locked(flow, now_ns);
    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        const struct flow_class_row *class = &flow->classes[c];
        uint32_t at = class->waiting > 0 ? class->head : NO_INDEX;
        /* Who needs no slot goes past those that wait for one. */
        struct flow_ahead all = {0};
        struct flow_ahead plain = {0};

        for (; at != NO_INDEX; at = layout->flow_places[at].next) {
            struct flow_place_row *row = &layout->flow_places[at];
            const struct wait wait =
                wait_of(flow, &limits, row->image_place ? &all : &plain, row->cost, now_ns);

            look_at(gate, row, &wait, now_ns);
            if (row->hopeless != 0 || flow_queue_is_passed_over(layout, row, &moment))
                continue;
            add(&all, row);
            if (row->image_place == 0)
                add(&plain, row);
        }
    }
}
