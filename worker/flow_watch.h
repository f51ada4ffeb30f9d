/*
 * flow_watch.h - which states the adaptive controllers entered since the last look, as lines for the
 * ledger's events: a pause after a refusal (drain), the way back from it (recovery), tokens that come
 * slowly (hold). Looked at several times a second by the monitor, so that nothing has to be told where
 * calls are decided. Pure.
 */
#ifndef WORKER_FLOW_WATCH_H
#define WORKER_FLOW_WATCH_H

#include "shared/flow.h"

#include <stdbool.h>
#include <stdint.h>

#define FLOW_WATCH_STATES 6U /* enum adaptive_state */

struct flow_watch {
    bool begun; /* the first look only remembers */
    unsigned count;
    struct flow_watched {
        char quota_group[NAME_SIZE], model[NAME_SIZE];
        uint32_t state;
        uint64_t cuts;
        int64_t told_ns[FLOW_WATCH_STATES]; /* 0 = never */
        bool seen;
    } flows[FLOWS_MAX];
};

/* detail: key=value pairs, in force until the function returns. At most one for a flow, a state and a
 * second. */
struct flow_watch_listener {
    void (*tell)(void *context, const char *detail);
    void *context;
};
void flow_watch_look(struct flow_watch *watch, const struct flow_view *views, unsigned count,
                     int64_t now_ns, const struct flow_watch_listener *listener);

#endif
