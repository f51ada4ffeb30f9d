/* flow_estimate.c - calibrated estimates; see flow_estimate.h. */
#include "shared/flow_estimate.h"

#include "shared/flow_inside.h"

static const struct estimate_row nothing_learned;

struct flow_prediction flow_predict(struct gate *gate, const struct flow_target *target,
                                    int64_t max_output, int64_t now_ns)
{
    const struct estimate_row *row = &nothing_learned;
    struct flow_prediction prediction;
    uint32_t flow;

    gate_lock(gate);
    flow = flow_find_locked(gate, target, now_ns);
    if (flow != NO_INDEX)
        row = &segment_layout(gate->segment)->flows[flow].estimate;
    prediction.ratios = calibration_ratios(row);
    prediction.output = calibration_output(row, max_output);
    gate_unlock(gate);
    return prediction;
}
