/*
 * status.h - what the status socket answers, rendered from a snapshot: text, JSON, OpenMetrics. Pure.
 */
#ifndef WORKER_STATUS_H
#define WORKER_STATUS_H

#include "base/text.h"
#include "shared/snapshot.h"

#include <stdint.h>

/* now_ns/now_wall_ms: of the snapshot. */
void status_text(const struct snapshot *snapshot, int64_t now_ns, int64_t now_wall_ms,
                 struct text *out);
void status_json(const struct snapshot *snapshot, int64_t now_ns, int64_t now_wall_ms,
                 struct text *out);

#endif
