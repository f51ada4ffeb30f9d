/*
 * metrics.h - /penstock/metrics in the Prometheus/OpenMetrics text format. Names are stable, prefix
 * penstock_; base units; labels bounded. Pure.
 */
#ifndef WORKER_METRICS_H
#define WORKER_METRICS_H

#include "base/text.h"
#include "shared/snapshot.h"

void metrics_text(const struct snapshot *snapshot, const struct counters_area *counters,
                  struct text *out);

#endif
