/*
 * saturation_upstream.h - the simulated upstream of run_saturation.c: how long its work takes, and how it
 * refuses what exceeds a minute's quota; and where its chance comes from.
 */
#ifndef TESTS_SCENARIOS_SATURATION_UPSTREAM_H
#define TESTS_SCENARIOS_SATURATION_UPSTREAM_H

#include "base/clock.h"

#include <math.h>
#include <stdint.h>

#define QUOTA_PER_MINUTE 240U /* of each quota group */
#define MEDIAN_NS (2 * NS_PER_S)
#define HANGS_PERCENT 5U
#define HANG_FACTOR 10

/* ---- chance ----------------------------------------------------------------------------------- */

static inline uint64_t mix(uint64_t bits)
{
    bits += UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

/* The same for the same three, whatever else was drawn. */
static inline uint64_t chance_of(uint64_t seed, uint64_t call, uint64_t attempt)
{
    return mix(mix(mix(seed) ^ call) ^ attempt);
}

static inline double uniform(uint64_t *state)
{
    *state = mix(*state);
    return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

static inline int64_t service_ns(uint64_t chance)
{
    double normal = -6;
    double ns;

    for (int i = 0; i < 12; i++)
        normal += uniform(&chance);
    ns = (double)MEDIAN_NS * exp(0.4 * normal);
    if (mix(chance) % 100 < HANGS_PERCENT)
        ns *= HANG_FACTOR;
    return (int64_t)ns;
}

/* ---- the upstream ----------------------------------------------------------------------------- */

/* A quota group there: when the last calls of a minute's quota were let in; 0 = never. */
struct upstream {
    int64_t let_in_ns[QUOTA_PER_MINUTE];
    unsigned next; /* the oldest */
};

/* 0 = let in; else how long until there is room in the minute. */
static inline int64_t upstream_refusal_ns(struct upstream *upstream, int64_t now_ns)
{
    int64_t *oldest = &upstream->let_in_ns[upstream->next];

    if (*oldest != 0 && now_ns - *oldest < 60 * NS_PER_S)
        return *oldest + 60 * NS_PER_S - now_ns;
    *oldest = now_ns;
    upstream->next = (upstream->next + 1) % QUOTA_PER_MINUTE;
    return 0;
}

#endif
