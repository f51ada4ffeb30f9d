/*
 * flow_estimate.h - what an estimate made without a tokenizer means for the model of a flow, by what its
 * answers have taught so far (F6; flow_settle). calibration.h has the rule; the record is the flow's.
 */
#ifndef SHARED_FLOW_ESTIMATE_H
#define SHARED_FLOW_ESTIMATE_H

#include "shared/flow.h"

/* flow: NO_INDEX = nothing was learned. A target without claim has its price already. Lock held. */
struct flow_price flow_price_locked(const struct gate *gate, uint32_t flow,
                                    const struct flow_target *target);

#endif
