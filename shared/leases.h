/*
 * leases.h - slots kept for work that goes on upstream after its call ended: background responses
 * and asynchronous tasks (G13). A lease counts as in use until a poll through us shows that the
 * work ended, or it expires. It belongs to no process: it outlives its worker. All functions: lock
 * held.
 */
#ifndef SHARED_LEASES_H
#define SHARED_LEASES_H

#include "base/check.h"
#include "shared/layout.h"

#include <stdbool.h>

struct lease_terms {
    const char *id;     /* upstream's id, cut to fit */
    const char *source; /* who owns it */
    uint32_t instance;
    int64_t duration_ns;
};
/* False: all rows are taken. */
MUST_CHECK bool lease_begin_locked(struct core_area *core, const struct lease_terms *terms,
                                   int64_t now_ns);
/* The work with this id has ended; true when there was a lease. */
bool lease_end_locked(struct core_area *core, const char *id);
/* The source that owns the id, "" when no lease has it. */
const char *lease_source_locked(struct core_area *core, const char *id);
/* Leases in force; expired ones are cleared. */
uint32_t lease_count_locked(struct core_area *core, int64_t now_ns);

#endif
