/*
 * flow_state.h - flow.state in the state directory: what flow control has learned, kept over a restart
 * of the machine, which the segment does not outlive (F5). The monitor writes it every half minute, the
 * master reads it before there are workers.
 *
 * Text, one line a flow, with a version before and a check sum behind. It is replaced as a whole, by
 * rename. It is not synced to disk: what a power cut leaves of it is either good or recognized as
 * damaged, and then flows begin as if there had been none. No secrets: names, times and numbers.
 */
#ifndef WORKER_FLOW_STATE_H
#define WORKER_FLOW_STATE_H

#include "base/check.h"
#include "base/text.h"
#include "shared/flow_memory.h"
#include "worker/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLOW_STATE_NAME "flow.state"
#define FLOW_STATE_BYTES_MAX (256U << 10)

struct flow_state_entry {
    char quota_group[NAME_SIZE], model[NAME_SIZE];
    struct flow_memory memory;
};

/* Of the views, those that have learned something. */
void flow_state_encode(const struct flow_view *views, unsigned count, int64_t now_wall_ms,
                       struct text *out);
/* entries: room for FLOWS_MAX. False: it is damaged, or not ours; why gets one sentence. */
MUST_CHECK bool flow_state_decode(const char *bytes, int64_t now_wall_ms,
                                  struct flow_state_entry *entries, unsigned *ret_count,
                                  struct text *why);

/* Replace the file. False: why gets one sentence. */
MUST_CHECK bool flow_state_save(const char *directory, const struct text *content,
                                struct text *why);
/* The file's entries: how many; entries: room for FLOWS_MAX. why stays empty unless there is a file and
 * it cannot be used. */
unsigned flow_state_read(const char *directory, int64_t now_wall_ms,
                         struct flow_state_entry *entries, struct text *why);
/* Take over what the file has for flows that the configuration knows and that have not served a call
 * yet. Returns how many; why stays empty unless there is a file and it cannot be used. */
unsigned flow_state_restore(struct gate *gate, const struct options *options, int64_t now_ns,
                            int64_t now_wall_ms, struct text *why);

#endif
