/*
 * flow_estimate.h - what an estimate made without a tokenizer means for the model of a flow, and what
 * its answers have taught so far (F6). calibration.h has the rule; the record is the flow's.
 */
#ifndef SHARED_FLOW_ESTIMATE_H
#define SHARED_FLOW_ESTIMATE_H

#include "shared/calibration.h"
#include "shared/flow.h"

struct flow_prediction {
    struct token_ratios ratios; /* for whatever else of this model is estimated */
    int64_t output;             /* tokens that its answers usually have */
};
/* max_output: -1 = no bound. Takes the lock. */
struct flow_prediction flow_predict(struct gate *gate, const struct flow_target *target,
                                    int64_t max_output, int64_t now_ns);

struct flow_usage {
    int64_t input, output; /* tokens; <= 0: not told */
};
/* The call in this place, granted and not yet given back, told its usage. estimate: of its input, not
 * calibrated. Takes the lock. */
void flow_learn(struct gate *gate, uint32_t place, const struct token_estimate *estimate,
                const struct flow_usage *usage);

#endif
