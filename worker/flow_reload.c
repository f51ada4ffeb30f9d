/* flow_reload.c - the terms of flows after a reload; see flow_reload.h. */
#include "worker/flow_reload.h"

#include "base/log.h"
#include "shared/flow.h"

#include <stdlib.h>
#include <string.h>

/* The scope whose terms it has, as it is now, and its first source of the account. */
static const struct source_options *source_of(const struct options *options,
                                              const struct flow_view *view,
                                              const struct scope_options **ret_scope)
{
    for (size_t i = 0; i < options->scope_count; i++) {
        const struct scope_options *scope = &options->scopes[i];

        if (scope->direct || options_flow_origin(scope) != view->terms_origin)
            continue;
        *ret_scope = scope;
        for (size_t k = 0; k < scope->member_count; k++) {
            char group[NAME_SIZE];

            (void)text_copy(group, sizeof group, scope->members[k].source->quota_group);
            if (strcmp(group, view->quota_group) == 0)
                return scope->members[k].source;
        }
    }
    return NULL;
}

static void renew(struct gate *gate, const struct options *options, const struct flow_view *view,
                  int64_t now_ns)
{
    const struct scope_options *scope = NULL;
    const struct source_options *source = source_of(options, view, &scope);
    struct flow_terms terms;
    struct flow_target target;

    if (!source)
        return;
    terms = options_flow_terms(scope, source, view->model);
    target = (struct flow_target){
        .quota_group = view->quota_group, .model = view->model, .terms = &terms};
    flow_renew(gate, &target, now_ns);
}

void flow_reload(struct gate *gate, const struct options *options, int64_t now_ns)
{
    const uint32_t own = segment_core(gate->segment)->roster[gate->self].instance;
    struct flow_view *views = calloc(FLOWS_MAX, sizeof *views);
    unsigned count;

    if (!views) {
        log_event(LOG_LEVEL_WARNING, "flow_reload",
                  "out of memory: flows go by the new "
                  "configuration when its first call comes");
        return;
    }
    gate_lock(gate);
    count = flow_views_locked(gate, now_ns, views);
    gate_unlock(gate);
    for (unsigned i = 0; i < count; i++)
        if (views[i].terms_instance == own)
            renew(gate, options, &views[i], now_ns);
    free(views);
}
