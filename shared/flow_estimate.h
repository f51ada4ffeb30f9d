/*
 * flow_estimate.h - what an estimate made without a tokenizer means for the model of a flow, and what
 * its answers have taught so far (F6). calibration.h has the rule; the record is the flow's.
 */
#ifndef SHARED_FLOW_ESTIMATE_H
#define SHARED_FLOW_ESTIMATE_H

#include "shared/flow.h"

struct flow_prediction {
    int64_t input, output; /* tokens */
};
/* estimate: as estimate.h makes it; max_output: -1 = no bound. Takes the lock. */
struct flow_prediction flow_predict(struct gate *gate, const struct flow_target *target,
                                    int64_t estimate, int64_t max_output, int64_t now_ns);
/* The call in this place, granted and not yet given back, told its usage. Takes the lock. */
void flow_learn(struct gate *gate, uint32_t place, int64_t estimate,
                const struct flow_prediction *usage);

#endif
