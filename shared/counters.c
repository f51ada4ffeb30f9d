/* counters.c - atomic counters and histograms in the segment; see counters.h. */
#include "shared/counters.h"

#include "base/check.h"
#include "base/clock.h"

/* From a fast chat answer to the longest picture and the longest wait. */
const double histogram_bounds_s[HISTOGRAM_BUCKETS] = {
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0};

static const struct {
    const char *name, *help;
} descriptions[COUNTERS] = {
#define COUNTER(name, kind, help) [COUNTER_##name] = {#name, help},
#include "shared/counters_list.h"
#undef COUNTER
};

void counter_add(struct counters_area *counters, enum counter which, uint64_t by)
{
    REQUIRE(which < COUNTERS);
    atomic_fetch_add_explicit(&counters->values[which], by, memory_order_relaxed);
}

uint64_t counter_value(const struct counters_area *counters, enum counter which)
{
    REQUIRE(which < COUNTERS);
    return atomic_load_explicit(&counters->values[which], memory_order_relaxed);
}

const char *counter_name(enum counter which)
{
    REQUIRE(which < COUNTERS);
    return descriptions[which].name;
}

const char *counter_help(enum counter which)
{
    REQUIRE(which < COUNTERS);
    return descriptions[which].help;
}

/* The first bucket whose bound is not below the duration; HISTOGRAM_BUCKETS = above every bound. */
static unsigned bucket_of(int64_t duration_ns)
{
    double duration_s = (double)duration_ns / (double)NS_PER_S;
    unsigned bucket = 0;

    while (bucket < HISTOGRAM_BUCKETS && duration_s > histogram_bounds_s[bucket])
        bucket++;
    return bucket;
}

void histogram_add(struct histogram_row *histogram, int64_t duration_ns)
{
    if (duration_ns < 0)
        duration_ns = 0;
    atomic_fetch_add_explicit(&histogram->buckets[bucket_of(duration_ns)], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum_us, (uint64_t)(duration_ns / NS_PER_US),
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->count, 1, memory_order_relaxed);
}
