/*
 * series.h - many measured values, and what the report says of them. One thread.
 */
#ifndef TESTS_BENCH_LOAD_SERIES_H
#define TESTS_BENCH_LOAD_SERIES_H

#include <stddef.h>
#include <stdio.h>

#define SERIES_VALUES_MAX 4000000 /* later values are not kept */

struct series {
    float *values; /* owned */
    size_t count, capacity;
};

void series_add(struct series *series, double value);
/* "name":{"n":..,"min":..,"mean":..,"p50":..,"p90":..,"p99":..,"max":..} */
void series_print(struct series *series, const char *name, FILE *out);
void series_release(struct series *series);

#endif
