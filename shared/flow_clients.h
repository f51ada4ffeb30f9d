/*
 * flow_clients.h - how many calls of one client wait in one flow: a hash table in the segment with
 * open addressing, an index over the waiting places. All functions: lock held.
 */
#ifndef SHARED_FLOW_CLIENTS_H
#define SHARED_FLOW_CLIENTS_H

#include "base/check.h"
#include "shared/layout.h"

/* Never 0. Two clients of one flow may share a key by chance of 1 in 2^64; then they share a bound. */
uint64_t flow_client_key(uint32_t flow, uint64_t client);
void flow_clients_clear_locked(struct layout_area *layout);
void flow_clients_add_locked(struct layout_area *layout, uint64_t key);
/* One less; there was one. */
void flow_clients_remove_locked(struct layout_area *layout, uint64_t key);
uint32_t flow_clients_waiting_locked(const struct layout_area *layout, uint64_t key);

#endif
