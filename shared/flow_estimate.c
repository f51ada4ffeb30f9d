/* flow_estimate.c - calibrated estimates; see flow_estimate.h. */
#include "shared/flow_estimate.h"

static const struct estimate_row nothing_learned;

struct flow_price flow_price_locked(const struct gate *gate, uint32_t flow,
                                    const struct flow_target *target)
{
    const struct flow_claim *claim = target->claim;
    const struct estimate_row *row =
        flow == NO_INDEX ? &nothing_learned : &segment_layout(gate->segment)->flows[flow].estimate;
    struct flow_price price = {.cost = target->cost, .predicted = target->predicted};
    int64_t output;

    if (!claim)
        return price;
    price.ratios = calibration_ratios(row);
    price.input = calibration_tokens(price.ratios, &claim->estimate);
    output = calibration_output(row, claim->output_max);
    price.cost = price.input + (claim->whole ? output : 0);
    price.predicted = claim->whole ? 0 : output;
    return price;
}
