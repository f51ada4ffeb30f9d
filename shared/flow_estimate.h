/*
 * flow_estimate.h - what an estimate made without a tokenizer means for the model of a flow, by what its
 * answers have taught so far (F6; flow_settle). calibration.h has the rule; the record is the flow's.
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

#endif
