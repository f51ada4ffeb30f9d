/* flow_clients.c - who waits in which flow; see flow_clients.h. */
#include "shared/flow_clients.h"

#include <string.h>

_Static_assert((FLOW_CLIENTS & (FLOW_CLIENTS - 1)) == 0 && FLOW_CLIENTS >= 2 * FLOW_PLACES_MAX,
               "half of the table stays free, so that every search ends soon");

#define MASK (FLOW_CLIENTS - 1)

uint64_t flow_client_key(uint32_t flow, uint64_t client)
{
    uint64_t key = client ^ ((flow + 1) * UINT64_C(0x9e3779b97f4a7c15));

    return key ? key : 1;
}

void flow_clients_clear_locked(struct layout_area *layout)
{
    memset(layout->flow_clients, 0, sizeof layout->flow_clients);
}

/* Its row, or the free one where it would be. */
static uint32_t find(const struct layout_area *layout, uint64_t key)
{
    uint32_t at = (uint32_t)key & MASK;

    while (layout->flow_clients[at].key != 0 && layout->flow_clients[at].key != key)
        at = (at + 1) & MASK;
    return at;
}

void flow_clients_add_locked(struct layout_area *layout, uint64_t key)
{
    struct flow_client_row *row = &layout->flow_clients[find(layout, key)];

    row->key = key;
    row->waiting++;
}

/* Rows behind a freed one move up, so that no search ends too early (Knuth, The Art of Computer
 * Programming, 6.4, algorithm R). */
static void free_row(struct layout_area *layout, uint32_t hole)
{
    struct flow_client_row *rows = layout->flow_clients;

    for (uint32_t at = (hole + 1) & MASK; rows[at].key != 0; at = (at + 1) & MASK) {
        uint32_t home = (uint32_t)rows[at].key & MASK;

        if (((at - home) & MASK) < ((at - hole) & MASK))
            continue;
        rows[hole] = rows[at];
        hole = at;
    }
    rows[hole] = (struct flow_client_row){0};
}

void flow_clients_remove_locked(struct layout_area *layout, uint64_t key)
{
    uint32_t at = find(layout, key);

    INVARIANT(layout->flow_clients[at].waiting > 0);
    if (--layout->flow_clients[at].waiting == 0)
        free_row(layout, at);
}

uint32_t flow_clients_waiting_locked(const struct layout_area *layout, uint64_t key)
{
    return layout->flow_clients[find(layout, key)].waiting;
}
