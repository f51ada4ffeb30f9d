/*
 * metrics.h - /penstock/metrics in the Prometheus text format 0.0.4 or the OpenMetrics text format
 * 1.0.0. Names are stable, prefix penstock_; base units; labels bounded: never a client, a key or
 * anything else that a client sends, but for names of models that an upstream answered to. Pure.
 */
#ifndef WORKER_METRICS_H
#define WORKER_METRICS_H

#include "base/text.h"
#include "shared/snapshot.h"

enum metrics_format { METRICS_PROMETHEUS, METRICS_OPENMETRICS };

/* counters: for the histograms; the other counts come from the snapshot. */
void metrics_text(const struct snapshot *snapshot, const struct counters_area *counters,
                  enum metrics_format format, struct text *out);
/* The answer's Content-Type. */
const char *metrics_content_type(enum metrics_format format);

#endif
