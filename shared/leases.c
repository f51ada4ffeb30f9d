/* leases.c - slots kept for work that outlives its call; see leases.h. */
#include "shared/leases.h"

#include "base/text.h"

#include <string.h>

bool lease_begin_locked(struct core_area *core, const struct lease_terms *terms, int64_t now_ns)
{
    for (uint32_t i = 0; i < LEASES_MAX; i++) {
        struct lease_row *row = &core->leases[i];

        if (atomic_load(&row->used))
            continue;
        (void)text_copy(row->id, sizeof row->id, terms->id);
        (void)text_copy(row->source, sizeof row->source, terms->source);
        row->instance = terms->instance;
        row->since_ns = now_ns;
        row->expires_ns = now_ns + terms->duration_ns;
        atomic_store(&row->used, 1);
        if (core->lease_count == 0 || row->expires_ns < core->lease_next_expiry_ns)
            core->lease_next_expiry_ns = row->expires_ns;
        core->lease_count++;
        return true;
    }
    return false;
}

static struct lease_row *find(struct core_area *core, const char *id)
{
    char cut[NAME_SIZE];

    (void)text_copy(cut, sizeof cut, id);
    for (uint32_t i = 0; core->lease_count > 0 && i < LEASES_MAX; i++)
        if (atomic_load(&core->leases[i].used) && strcmp(core->leases[i].id, cut) == 0)
            return &core->leases[i];
    return NULL;
}

static void end_lease(struct core_area *core, struct lease_row *row)
{
    atomic_store(&row->used, 0);
    core->lease_count--;
}

bool lease_end_locked(struct core_area *core, const char *id)
{
    struct lease_row *row = find(core, id);

    if (row)
        end_lease(core, row);
    return row != NULL;
}

const char *lease_source_locked(struct core_area *core, const char *id)
{
    const struct lease_row *row = find(core, id);

    return row ? row->source : "";
}

uint32_t lease_count_locked(struct core_area *core, int64_t now_ns)
{
    int64_t next_ns = INT64_MAX;

    if (core->lease_count == 0 || now_ns < core->lease_next_expiry_ns)
        return core->lease_count;
    for (uint32_t i = 0; i < LEASES_MAX; i++) {
        struct lease_row *row = &core->leases[i];

        if (atomic_load(&row->used) && row->expires_ns <= now_ns)
            end_lease(core, row);
        else if (atomic_load(&row->used) && row->expires_ns < next_ns)
            next_ns = row->expires_ns;
    }
    core->lease_next_expiry_ns = next_ns;
    return core->lease_count;
}
