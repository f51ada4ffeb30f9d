/* flow_memory.c - what a flow knew before the machine was started again; see flow_memory.h. */
#include "shared/flow_memory.h"

#include "shared/calibration.h"

static bool is_fresh(const struct flow_row *flow)
{
    uint64_t granted = 0;

    for (unsigned i = 0; i < FLOW_CLASSES; i++)
        granted += flow->classes[i].granted;
    return granted == 0 && flow->waiting == 0 && flow->in_flight == 0 &&
           flow->estimate.ratio_samples == 0 && flow->estimate.output_samples == 0;
}

bool flow_restore(struct gate *gate, const struct flow_target *target,
                  const struct flow_memory *memory, int64_t now_ns)
{
    bool taken = false;
    uint32_t index;

    if (memory->age_ns < 0 || memory->age_ns > FLOW_ESTIMATE_MEMORY_NS)
        return false;
    gate_lock(gate);
    index = flow_find_locked(gate, target, now_ns);
    if (index != NO_INDEX && is_fresh(&segment_layout(gate->segment)->flows[index])) {
        struct flow_row *flow = &segment_layout(gate->segment)->flows[index];

        taken = adaptive_import(&flow->adaptive, &memory->learned, memory->age_ns, now_ns);
        if (calibration_is_possible(&memory->estimate)) {
            flow->estimate = memory->estimate;
            taken = true;
        }
        flow->last_used_ns = now_ns - memory->age_ns; /* no younger for having been kept */
    }
    gate_unlock(gate);
    return taken;
}
