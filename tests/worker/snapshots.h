/* snapshots.h - snapshots for the tests of what is rendered from them. */
#ifndef TESTS_WORKER_SNAPSHOTS_H
#define TESTS_WORKER_SNAPSHOTS_H

#include "base/clock.h"
#include "shared/snapshot.h"

#include <string.h>

#define SNAPSHOT_NOW_NS (1000 * NS_PER_S)
#define SNAPSHOT_WALL_MS INT64_C(1800000000000)
#define SNAPSHOT_PLACES 80U

/* One holder that waited 2 s and holds for 5 s, two waiters (4.0 s and 1.5 s), a lease, a worker of
 * our own and one of another instance. places has room for SNAPSHOT_PLACES. */
static inline void snapshot_fill(struct snapshot *snapshot, struct snapshot_place *places)
{
    memset(places, 0, SNAPSHOT_PLACES * sizeof *places);
    *snapshot = (struct snapshot){
        .taken_ns = SNAPSHOT_NOW_NS,
        .gate = "default",
        .state_directory = "/var/lib/penstock",
        .instance = 0,
        .since_wall_ms = SNAPSHOT_WALL_MS - 60000,
        .limit = 8,
        .max_waiting = 100,
        .waiting = 2,
        .use = {.semaphore = 1, .held = 1, .leases = 1, .used = 2, .free = 6},
        .semaphore_epoch = 1,
        .semaphore_id = 42,
        .gate_on = true,
        .linked = true,
        .mean_hold_ms = 12345,
        .master_pid = 100,
        .generation = 3,
        .journal = {.waits_pending = 1,
                    .calls_pending = 2,
                    .attempts_pending = 3,
                    .waits_lost = 4,
                    .attempts_lost = 6,
                    .written = 50},
        .process_count = 2,
        .place_count = 3,
        .places = places,
    };
    for (unsigned i = 0; i < COUNTERS; i++)
        snapshot->counters[i] = i + 1000;
    snapshot->processes[0] = (struct snapshot_process){.pid = 101,
                                                       .role = PROCESS_WORKER,
                                                       .generation = 3,
                                                       .threads = 64,
                                                       .threads_busy = 5,
                                                       .since_ns = SNAPSHOT_NOW_NS - 90 * NS_PER_S};
    snapshot->processes[1] = snapshot->processes[0];
    snapshot->processes[1].pid = 202;
    snapshot->processes[1].instance = 1;
    snapshot->processes[1].draining = 1;
    for (unsigned i = 0; i < 3; i++) {
        struct wait_record *record = &places[i].record;

        places[i].holds = i == 0;
        places[i].position = i;
        places[i].for_flow = i == 2;
        places[i].pid = 101;
        record->arrival_seq = 7 + i;
        record->arrived_wall_ms = SNAPSHOT_WALL_MS - 7000;
        (void)text_copy(record->call_id, sizeof record->call_id, "pst_0001");
        (void)text_copy(record->model, sizeof record->model, "gpt-image-2");
        (void)text_copy(record->class_name, sizeof record->class_name, "normal");
        (void)text_copy(record->endpoint, sizeof record->endpoint, "images/generations");
    }
    places[0].record.arrived_ns = SNAPSHOT_NOW_NS - 7 * NS_PER_S;
    places[0].record.granted_ns = SNAPSHOT_NOW_NS - 5 * NS_PER_S;
    places[1].record.arrived_ns = SNAPSHOT_NOW_NS - 4 * NS_PER_S;
    places[2].record.arrived_ns = SNAPSHOT_NOW_NS - 1500 * NS_PER_MS;
}

/* Two sources: the first serves and has had two failures, the breaker of the second is open. */
static inline void snapshot_add_sources(struct snapshot *snapshot)
{
    snapshot->source_count = 2;
    snapshot->sources[0] = (struct source_view){.name = "openai",
                                                .quota_group = "acme",
                                                .in_flight = 7,
                                                .failures_in_a_row = 1,
                                                .health_permille = 963,
                                                .latency_ms = 2512,
                                                .window_calls = 40,
                                                .window_failures = 2};
    snapshot->sources[1] = (struct source_view){.name = "azure-we",
                                                .quota_group = "azure-we",
                                                .out_reason = "transient",
                                                .breaker = BREAKER_OPEN,
                                                .health_permille = 210,
                                                .window_calls = 20,
                                                .window_failures = 20,
                                                .open_for_ns = 4200 * NS_PER_MS};
}

/* An adaptive flow that pauses, one with shaping, and two of models that nobody has answered for.
 * flows has room for four. */
static inline void snapshot_add_flows(struct snapshot *snapshot, struct flow_view *flows)
{
    snapshot->flow_count = 4;
    snapshot->flows = flows;
    flows[0] = (struct flow_view){
        .quota_group = "acme",
        .model = "qwen-max",
        .strategy = FLOW_STRATEGY_ADAPTIVE,
        .requests_quota = 600,
        .requests_origin = FLOW_QUOTA_HEADERS,
        .units_origin = FLOW_QUOTA_REFUSALS,
        .requests_left = 41,
        .units_left = -1,
        .requests_balance = 4,
        .units_balance = INT64_MAX,
        .use = {.sends = 412, .units = 91234},
        .in_flight = 3,
        .in_flight_limit = 8,
        .waiting = {0, 2, 7},
        .granted = {12, 200, 40},
        .paused_for_ns = 1200 * NS_PER_MS,
        .adaptive_state = ADAPTIVE_DRAIN,
        .learned = {.watermark = 10,
                    .pace = 2.125,
                    .growth = 0.05,
                    .requests_share = 0.97,
                    .tokens_share = 1,
                    .tokens_learned = 88000,
                    .mean_output = 312,
                    .tpt_base_s = 0.0112},
        .refusals = {[ADAPTIVE_RPM] = 1, [ADAPTIVE_BURST] = 3},
        .last_refusal_age_ns = 12300 * NS_PER_MS,
        .last_refusal_kind = ADAPTIVE_BURST,
        .refused_full = 5,
        .refused_threads = 2,
        .expired = 1,
        .completed = 249,
        .limit = 8.25,
        .cuts = 2,
        .cut_kind = ADAPTIVE_BURST,
        .estimate = {.latin_latin = 10,
                     .script_script = 10,
                     .latin_used = 10.4,
                     .script_used = 14,
                     .ratio_samples = 57,
                     .output_samples = 58,
                     .output_parts = 312500},
    };
    flows[1] = (struct flow_view){.quota_group = "acme",
                                  .model = "a\"b\\c<script>",
                                  .strategy = FLOW_STRATEGY_SHAPING,
                                  .unit = FLOW_UNIT_IMAGES,
                                  .units_quota = 120,
                                  .units_origin = FLOW_QUOTA_CONFIGURED,
                                  .requests_left = -1,
                                  .units_left = -1,
                                  .requests_balance = INT64_MAX,
                                  .units_balance = -3,
                                  .in_flight_limit = UINT32_MAX,
                                  .last_refusal_age_ns = -1,
                                  .completed = 1};
    flows[2] = flows[1];
    (void)text_copy(flows[2].model, sizeof flows[2].model, "invented\n1");
    flows[2].completed = 0;
    flows[2].granted[1] = 2;
    flows[2].waiting[1] = 1;
    flows[3] = flows[2];
    (void)text_copy(flows[3].model, sizeof flows[3].model, "invented 2");
}

/* What a client could send as its model. */
static inline void snapshot_make_hostile(struct snapshot *snapshot)
{
    static const char hostile[] = "<script>\"'&\x1b[2J\xff\n";

    (void)text_copy(snapshot->places[1].record.model, NAME_SIZE, hostile);
    (void)text_copy(snapshot->places[1].record.client, NAME_SIZE, hostile);
    (void)text_copy(snapshot->places[1].record.call_id, CALL_ID_SIZE, hostile);
}

/* A queue of count calls behind the one holder. */
static inline void snapshot_make_long(struct snapshot *snapshot, unsigned count)
{
    for (unsigned i = 1; i <= count; i++) {
        snapshot->places[i] = snapshot->places[1];
        snapshot->places[i].position = i;
    }
    snapshot->place_count = count + 1;
    snapshot->waiting = count;
}

#endif
