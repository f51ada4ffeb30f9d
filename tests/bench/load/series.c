/* series.c - see series.h. */
#include "tests/bench/load/series.h"

#include <stdlib.h>

void series_add(struct series *series, double value)
{
    if (series->count == series->capacity) {
        size_t capacity = series->capacity ? series->capacity * 2 : 4096;
        float *values;

        if (series->count >= SERIES_VALUES_MAX)
            return;
        values = realloc(series->values, capacity * sizeof *values);
        if (!values)
            return;
        series->values = values;
        series->capacity = capacity;
    }
    series->values[series->count++] = (float)value;
}

static int compare_values(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* The value that so many of a hundred do not pass. */
static double percentile(const struct series *series, size_t percent)
{
    return series->count ? (double)series->values[(series->count - 1) * percent / 100] : 0.0;
}

void series_print(struct series *series, const char *name, FILE *out)
{
    double sum = 0;

    if (series->count)
        qsort(series->values, series->count, sizeof *series->values, compare_values);
    for (size_t i = 0; i < series->count; i++)
        sum += (double)series->values[i];
    (void)fprintf(out,
                  "\"%s\":{\"n\":%zu,\"min\":%.4f,\"mean\":%.4f,\"p50\":%.4f,\"p90\":%.4f,"
                  "\"p99\":%.4f,\"max\":%.4f}",
                  name, series->count, percentile(series, 0),
                  series->count ? sum / (double)series->count : 0.0, percentile(series, 50),
                  percentile(series, 90), percentile(series, 99), percentile(series, 100));
}

void series_release(struct series *series)
{
    free(series->values);
    *series = (struct series){0};
}
