/* flow_watch.c - states that controllers entered; see flow_watch.h. */
#include "worker/flow_watch.h"

#include "base/clock.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

_Static_assert(FLOW_WATCH_STATES > ADAPTIVE_RECOVERY, "an entry for every state");

#define TOLD_AGAIN_NS NS_PER_S
#define DETAIL_SIZE sizeof(((struct event_record *)NULL)->detail)

static bool is_told(uint32_t state)
{
    return state == ADAPTIVE_HOLD || state == ADAPTIVE_DRAIN || state == ADAPTIVE_RECOVERY;
}

static struct flow_watched *find(struct flow_watch *watch, const struct flow_view *view)
{
    for (unsigned i = 0; i < watch->count; i++)
        if (strcmp(watch->flows[i].quota_group, view->quota_group) == 0 &&
            strcmp(watch->flows[i].model, view->model) == 0)
            return &watch->flows[i];
    return NULL;
}

/* Rows that went are forgotten first, so there is room for every row that there can be. */
static struct flow_watched *add(struct flow_watch *watch, const struct flow_view *view)
{
    struct flow_watched *flow = &watch->flows[watch->count++];

    *flow = (struct flow_watched){.state = view->adaptive_state, .cuts = view->cuts};
    (void)text_copy(flow->quota_group, sizeof flow->quota_group, view->quota_group);
    (void)text_copy(flow->model, sizeof flow->model, view->model);
    if (watch->begun) { /* it came after the last look: so did what happened to it */
        flow->state = ADAPTIVE_STARTUP;
        flow->cuts = 0;
    }
    return flow;
}

static void forget(struct flow_watch *watch, const struct flow_view *views, unsigned count)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < watch->count; i++)
        watch->flows[i].seen = false;
    for (unsigned i = 0; i < count; i++) {
        struct flow_watched *flow = find(watch, &views[i]);

        if (flow)
            flow->seen = true;
    }
    for (unsigned i = 0; i < watch->count; i++)
        if (watch->flows[i].seen)
            watch->flows[kept++] = watch->flows[i];
    watch->count = kept;
}

/* The names last: the detail is cut where it is too long, and a model's name is the client's. */
static void write_detail(const struct flow_view *view, uint32_t state, char detail[DETAIL_SIZE])
{
    const struct adaptive_memory *learned = &view->learned;
    size_t length = (size_t)snprintf(detail, DETAIL_SIZE, "state=%s", adaptive_state_name(state));

    if (state != ADAPTIVE_HOLD)
        length += (size_t)snprintf(detail + length, DETAIL_SIZE - length, " kind=%s",
                                   adaptive_kind_name(view->cut_kind));
    if (state == ADAPTIVE_DRAIN)
        length += (size_t)snprintf(detail + length, DETAIL_SIZE - length, " pause_ms=%" PRId64,
                                   view->paused_for_ns / NS_PER_MS);
    (void)snprintf(detail + length, DETAIL_SIZE - length,
                   " cuts=%" PRIu64 " in_flight=%.1f pace=%.2f growth=%.3f rpm_share=%.2f"
                   " tpm_share=%.2f group=%s model=%s",
                   view->cuts, view->limit, learned->pace, learned->growth, learned->requests_share,
                   learned->tokens_share, view->quota_group, view->model);
}

static void tell_state(struct flow_watched *flow, const struct flow_view *view, uint32_t state,
                       int64_t now_ns, const struct flow_watch_listener *listener)
{
    char detail[DETAIL_SIZE];

    if (flow->told_ns[state] != 0 && now_ns - flow->told_ns[state] < TOLD_AGAIN_NS)
        return;
    flow->told_ns[state] = now_ns;
    write_detail(view, state, detail);
    listener->tell(listener->context, detail);
}

void flow_watch_look(struct flow_watch *watch, const struct flow_view *views, unsigned count,
                     int64_t now_ns, const struct flow_watch_listener *listener)
{
    forget(watch, views, count);
    for (unsigned i = 0; i < count; i++) {
        const struct flow_view *view = &views[i];
        struct flow_watched *flow = find(watch, view);
        bool cut;

        if (!flow)
            flow = add(watch, view);
        /* A pause that began and ended between two looks left a cut. */
        cut = view->cuts > flow->cuts;
        if (cut)
            tell_state(flow, view, ADAPTIVE_DRAIN, now_ns, listener);
        if (view->adaptive_state != flow->state && is_told(view->adaptive_state) &&
            !(cut && view->adaptive_state == ADAPTIVE_DRAIN))
            tell_state(flow, view, view->adaptive_state, now_ns, listener);
        flow->state = view->adaptive_state;
        flow->cuts = view->cuts;
    }
    watch->begun = true;
}
