/*
 * status_flows.h - what the status page tells about flow control: for each (quota group, model) the limits,
 * what is used of them, who waits, what the controller has learned, and what was refused. Pure.
 */
#ifndef WORKER_STATUS_FLOWS_H
#define WORKER_STATUS_FLOWS_H

#include "base/text.h"
#include "shared/snapshot.h"

void status_flows_text(const struct snapshot *snapshot, struct text *out);
/* An array. */
void status_flows_json(const struct snapshot *snapshot, struct text *out);
/* A section, or nothing when there are no flows. */
void status_flows_html(const struct snapshot *snapshot, struct text *out);

/* "adaptive", "tokens": the words of the configuration; also labels of metrics. */
const char *status_strategy_name(enum flow_strategy strategy);
const char *status_unit_name(enum flow_unit unit);

#endif
