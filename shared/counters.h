/*
 * counters.h - counters and histograms in the segment, one set per instance. They never go
 * backwards, whoever dies: each is one atomic number that all processes add to. No lock.
 */
#ifndef SHARED_COUNTERS_H
#define SHARED_COUNTERS_H

#include "shared/layout.h"

void counter_add(struct counters_area *counters, enum counter which, uint64_t by);
uint64_t counter_value(const struct counters_area *counters, enum counter which);
/* "requests", and its sentence; which < COUNTERS. */
const char *counter_name(enum counter which);
const char *counter_help(enum counter which);

/* A negative duration counts as 0. buckets[] are not cumulative. */
void histogram_add(struct histogram_row *histogram, int64_t duration_ns);
/* Upper bounds in seconds of the HISTOGRAM_BUCKETS buckets. */
extern const double histogram_bounds_s[HISTOGRAM_BUCKETS];

#endif
