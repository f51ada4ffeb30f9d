/* owners.c - which source an upstream's id belongs to; see owners.h. */
#include "shared/owners.h"

#include "base/clock.h"
#include "base/hash.h"

#include <string.h>

#define PLACES_OF_A_HASH 4U
static_assert(OWNERS_MAX % PLACES_OF_A_HASH == 0, "whole groups of places");
static_assert(SOURCE_ROWS <= UINT16_MAX, "an owner's source is 16 bits");

static uint64_t hash_of(const char *id)
{
    const uint64_t hash = hash_bytes(id, strlen(id));

    return hash ? hash : 1; /* 0 is a free place */
}

static struct owner_row *places_of(const struct gate *gate, uint64_t hash)
{
    const uint64_t group = hash % (OWNERS_MAX / PLACES_OF_A_HASH);

    return &segment_instance(gate->segment)->owners[group * PLACES_OF_A_HASH];
}

/* Its own place, else a free one, else the oldest. */
static struct owner_row *choose_locked(struct owner_row *places, uint64_t hash)
{
    struct owner_row *chosen = &places[0];

    for (size_t i = 0; i < PLACES_OF_A_HASH; i++) {
        const uint64_t there = atomic_load(&places[i].id_hash);

        if (there == hash)
            return &places[i];
        if (atomic_load(&chosen->id_hash) != 0 && (there == 0 || places[i].at_s < chosen->at_s))
            chosen = &places[i];
    }
    return chosen;
}

void owner_remember(struct gate *gate, const char *id, uint32_t source_row, int64_t now_ns)
{
    const uint64_t hash = hash_of(id);
    struct owner_row *row;

    REQUIRE(source_row < SOURCE_ROWS);
    gate_lock(gate);
    row = choose_locked(places_of(gate, hash), hash);
    atomic_store(&row->id_hash, 0);
    row->source = (uint16_t)source_row;
    row->taken = (uint16_t)segment_instance(gate->segment)->sources[source_row].taken;
    row->at_s = (uint32_t)(now_ns / NS_PER_S);
    atomic_store(&row->id_hash, hash);
    gate_unlock(gate);
}

static uint32_t owner_locked(const struct gate *gate, uint64_t hash)
{
    const struct owner_row *places = places_of(gate, hash);

    for (size_t i = 0; i < PLACES_OF_A_HASH; i++) {
        const struct owner_row *row = &places[i];

        if (atomic_load(&row->id_hash) != hash || row->source >= SOURCE_ROWS)
            continue;
        return row->taken == (uint16_t)segment_instance(gate->segment)->sources[row->source].taken
                   ? row->source
                   : NO_INDEX;
    }
    return NO_INDEX;
}

uint32_t owner_of(struct gate *gate, const char *id)
{
    uint32_t source;

    gate_lock(gate);
    source = owner_locked(gate, hash_of(id));
    gate_unlock(gate);
    return source;
}
