/* metrics_page.h - what the files of the scrape page share among themselves; for metrics*.c only. */
#ifndef WORKER_METRICS_PAGE_H
#define WORKER_METRICS_PAGE_H

#include "worker/metrics.h"

struct metrics_page {
    const struct snapshot *snapshot;
    enum metrics_format format;
    struct text *out;
};

/* The head of a family. In OpenMetrics a counter's is named without the _total that its samples carry. */
void metrics_family(const struct metrics_page *page, const char *name, const char *type,
                    const char *help);
/* Flow control: penstock_flow_*. */
void metrics_flows(const struct metrics_page *page);

#endif
