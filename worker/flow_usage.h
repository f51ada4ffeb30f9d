/*
 * flow_usage.h - what the answer of an attempt has used, for flow control: the usage that it tells, else
 * what was seen of it, else what was expected; while it comes and when it is over (F6, research 5.4).
 * Never nothing, and field by field.
 */
#ifndef WORKER_FLOW_USAGE_H
#define WORKER_FLOW_USAGE_H

#include <stdbool.h>
#include <stdint.h>

struct attempt;

/* Is its flow one of tokens? */
bool flow_usage_counts_tokens(const struct attempt *attempt);
/* Is the text of its answer to be counted? */
bool flow_usage_counts_text(const struct attempt *attempt);
/* It came to its end, and was a good one. */
bool flow_usage_is_whole(const struct attempt *attempt);
/* Tokens of the answer. */
int64_t flow_usage_output(const struct attempt *attempt);
/* Units of its flow, input and output. */
int64_t flow_usage_units(const struct attempt *attempt);
/* Its client has left in the middle. Is so little left of the answer that it is read on, to learn what it
 * used? For the scope's flow_drain_s, with the place in its flow held. */
bool flow_usage_wants_end(const struct attempt *attempt);

#endif
