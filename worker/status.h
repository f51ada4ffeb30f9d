/*
 * status.h - what the status socket tells people and programs about one snapshot: text and JSON.
 * Pure. The page for browsers is worker/status_html.h.
 */
#ifndef WORKER_STATUS_H
#define WORKER_STATUS_H

#include "base/text.h"
#include "shared/snapshot.h"
#include "shared/sources.h"

#include <stdbool.h>
#include <stdint.h>

enum status_part {
    STATUS_SUMMARY = 1,
    STATUS_SLOTS = 2, /* who holds a slot */
    STATUS_QUEUE = 4, /* who waits */
    STATUS_PROCESSES = 8,
    STATUS_COUNTERS = 16,
    STATUS_SOURCES = 32,
    STATUS_FLOWS = 64,
    STATUS_ALL = 127,
};

struct status_view {
    unsigned parts;      /* of enum status_part */
    bool full;           /* text: every call, else at most STATUS_CALLS_SHOWN of each list */
    int64_t now_wall_ms; /* of the snapshot */
};

#define STATUS_CALLS_SHOWN 25U

void status_text(const struct snapshot *snapshot, const struct status_view *view, struct text *out);
/* One object; always every call. */
void status_json(const struct snapshot *snapshot, const struct status_view *view, struct text *out);

/* "worker"; also the metrics' label. */
const char *status_role_name(enum process_role role);
/* What clients send is shown on terminals: nothing but printable ASCII, and "-" for nothing. */
const char *status_plain(char out[NAME_SIZE], const char *string);
unsigned status_holders(const struct snapshot *snapshot);

/* What matters most about a source now, in one word: drained, out, open, half_open, throttled, leaving
 * or ready; *ret_for_ms: for how long from now on, 0 = that is not known beforehand. */
const char *status_source_state(const struct source_view *source, int64_t *ret_for_ms);

/* Milliseconds, never negative, that the call has waited (until now, or until its slot) and held.
 */
/* What a place that waits is waiting for, as one word. */
const char *status_waits_for(const struct snapshot_place *place);
int64_t status_waited_ms(const struct snapshot *snapshot, const struct snapshot_place *place);
int64_t status_held_ms(const struct snapshot *snapshot, const struct snapshot_place *place);

#endif
