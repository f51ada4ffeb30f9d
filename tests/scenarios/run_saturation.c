/*
 * run_saturation.c - B3: hedging does not make a saturated quota worse. The plan, the admission, the
 * flows and the sources are the product's; the clock and the upstream are simulated, so ten minutes of
 * a scope with two sources pass in a moment and come out the same each time.
 *
 * The upstream's work is drawn by (seed, call, attempt): with hedging and without, a call meets the same
 * luck. Two controls show that the comparison could fail: at half the load hedges are sent and cut the
 * tail, and hedges that go past the flows bring refusals and cost goodput.
 */
#include "tests/scenarios/saturation_upstream.h"
#include "tests/shared/flow_fixture.h"
#include "tests/shared/sources_fixture.h"

#include "shared/admit.h"
#include "worker/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SOURCES 2U
#define SEEDS 3U
#define ARRIVALS_NS (600 * NS_PER_S)
#define TICK_NS (250 * NS_PER_MS)
#define CALLS_MAX 12000U
#define LIVE_MAX 1024U

#define REFUSED_AFTER_NS (50 * NS_PER_MS)
#define HEDGE_AFTER_NS (6 * NS_PER_S)
#define DEADLINE_NS (60 * NS_PER_S)
#define WAIT_MAX_NS (20 * NS_PER_S)

enum hedging {
    HEDGING_OFF,
    HEDGING_ON,
    HEDGING_UNASKED, /* what the product never does: hedges go past the flows */
};

struct setting {
    const char *name;
    enum flow_strategy strategy;
    bool one_group;          /* both sources belong to one account */
    unsigned load_percent;   /* of the quotas together */
    unsigned believed_quota; /* of a group, per minute: what the configuration says */
    enum hedging hedging;
    uint64_t seed;
};

struct outcome {
    unsigned calls, good, turned_away, failed;
    unsigned sent, refused; /* attempts; refused: with 429 */
    unsigned hedges, hedges_skipped, hedges_won;
    int64_t p99_ns; /* of the good ones, from their arrival */
};

/* ---- the gateway ------------------------------------------------------------------------------ */

struct lane {
    bool running;
    struct admit_seat seat;
    int64_t started_ns, end_ns;
    int64_t refusal_ns; /* > 0: ends with 429 and this to wait */
};

struct call {
    bool live, queued; /* queued: waits in a flow, for lane 0 */
    uint64_t number;
    int64_t arrived_ns, wake_ns;
    struct plan plan;
    struct source_wish wish; /* of the last START */
    struct lane lanes[PLAN_LANES];
};

struct world {
    struct setting setting;
    struct segment segment;
    struct gate gate;
    int64_t now_ns, next_arrival_ns, next_tick_ns, arrivals_end_ns;
    uint64_t arrival_chance;
    struct source_candidate candidates[SOURCES];
    uint64_t accounts[SOURCES];
    struct flow_terms terms;
    struct flow_target targets[SOURCES];
    struct upstream upstreams[SOURCES];
    struct call calls[LIVE_MAX];
    unsigned live;
    int64_t latencies_ns[CALLS_MAX];
    struct outcome outcome;
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void lane_end(struct world *world, struct lane *lane, enum source_end how)
{
    const struct source_outcome outcome = {.end = how,
                                           .terms = fixture_terms(),
                                           .transport_ns = world->now_ns - lane->started_ns,
                                           .out_ns = lane->refusal_ns,
                                           .now_ns = world->now_ns,
                                           .now_wall_ms = world->now_ns / NS_PER_MS};
    struct flow_end end = {.now_ns = world->now_ns, .units = 1};

    if (how == SOURCE_END_SUCCESS) {
        (void)flow_settle(&world->gate, &lane->seat.flow_place, &end);
    } else if (how == SOURCE_END_THROTTLED) {
        end.refused = true;
        end.kind = ADAPTIVE_RPM;
        end.retry_after_ns = lane->refusal_ns;
        (void)flow_refund(&world->gate, &lane->seat.flow_place, &end);
    } else {
        (void)flow_keep(&world->gate, &lane->seat.flow_place, &end);
    }
    source_release(&world->gate, &lane->seat.permit, &outcome);
    lane->running = false;
}

static void lane_begin(struct world *world, struct call *call, unsigned index)
{
    struct lane *lane = &call->lanes[index];
    unsigned candidate = lane->seat.candidate;
    struct upstream *upstream = &world->upstreams[world->setting.one_group ? 0 : candidate];
    /* the hedge's round has been counted, the primary's not yet */
    uint64_t attempt = 2 * (uint64_t)(call->plan.rounds - index) + index;

    if (lane->seat.flow_place != NO_INDEX)
        flow_sent(&world->gate, lane->seat.flow_place, world->now_ns);
    world->outcome.sent++;
    lane->running = true;
    lane->started_ns = world->now_ns;
    lane->refusal_ns = upstream_refusal_ns(upstream, world->now_ns);
    lane->end_ns = world->now_ns + REFUSED_AFTER_NS;
    if (lane->refusal_ns == 0)
        lane->end_ns =
            world->now_ns + service_ns(chance_of(world->setting.seed, call->number, attempt));
    plan_started(&call->plan, index, candidate, world->now_ns);
}

static struct admit_call admit_call_of(const struct world *world, struct call *call)
{
    bool past_flows = world->setting.hedging == HEDGING_UNASKED && call->wish.hedge;

    call->wish.now_ns = world->now_ns;
    call->wish.now_wall_ms = world->now_ns / NS_PER_MS;
    return (struct admit_call){
        .wish = &call->wish,
        .targets = past_flows ? NULL : world->targets,
        .flow = {.class = FLOW_NORMAL,
                 .may_wait = true,
                 .deadline_ns = call->plan.terms.deadline_ns,
                 .now_ns = world->now_ns},
    };
}

static enum plan_refusal refusal_of(enum source_verdict verdict)
{
    static const enum plan_refusal refusals[] = {
        [SOURCE_NONE] = PLAN_REFUSED_NONE,       [SOURCE_OUT] = PLAN_REFUSED_OUT,
        [SOURCE_OUT_QUOTA] = PLAN_REFUSED_QUOTA, [SOURCE_OPEN] = PLAN_REFUSED_OPEN,
        [SOURCE_BUSY] = PLAN_REFUSED_BUSY,       [SOURCE_WAITING] = PLAN_REFUSED_BUSY,
    };

    return refusals[verdict];
}

/* The call is over. */
static void call_end(struct world *world, struct call *call, unsigned *counter)
{
    const struct plan *plan = &call->plan;

    (*counter)++;
    world->outcome.hedges += plan->hedges;
    world->outcome.hedges_skipped += plan->hedges_skipped;
    world->outcome.hedges_won += plan->hedge_won;
    assert_false(call->lanes[0].running || call->lanes[1].running);
    call->live = false;
    world->live--;
}

/* What came of asking for admission. */
static void take_answer(struct world *world, struct call *call, unsigned index,
                        const struct admit_answer *answer)
{
    struct lane *lane = &call->lanes[index];

    call->queued = answer->verdict == ADMIT_QUEUED;
    if (call->queued) {
        assert_int_equal(index, 0);                                        /* a hedge never waits */
        call->wake_ns = least(answer->wake_ns, answer->flow.until_ns + 1); /* expires after it */
        return;
    }
    if (answer->verdict == ADMIT_GRANTED) {
        lane_begin(world, call, index);
        return;
    }
    admit_leave(&world->gate, &lane->seat, WAIT_REFUSED, world->now_ns);
    if (answer->verdict == ADMIT_REFUSED_FLOW && index == 0) /* ends as a 429 of our own */
        call_end(world, call, &world->outcome.turned_away);
    else
        plan_not_admitted(&call->plan, index, refusal_of(answer->source.verdict),
                          answer->source.earliest_ns, world->now_ns);
}

static void call_start(struct world *world, struct call *call, const struct plan_step *step)
{
    struct admit_answer answer;
    struct admit_call ask;

    call->wish = fixture_wish(world->candidates, SOURCES, world->now_ns);
    call->wish.excluded = step->excluded;
    call->wish.tried = step->tried;
    call->wish.weighted = true;
    call->wish.hedge = step->hedge;
    call->wish.hedge_of = call->plan.lanes[0].candidate;
    call->wish.random =
        chance_of(world->setting.seed + 100, call->number, 2 * call->plan.rounds + step->lane);
    call->lanes[step->lane].seat = ADMIT_SEAT_EMPTY;
    ask = admit_call_of(world, call);
    admit_arrive(&world->gate, &ask, &call->lanes[step->lane].seat, &answer);
    take_answer(world, call, step->lane, &answer);
}

static void call_try(struct world *world, struct call *call)
{
    const struct admit_call ask = admit_call_of(world, call);
    struct admit_answer answer;

    admit_try(&world->gate, &ask, &call->lanes[0].seat, &answer);
    take_answer(world, call, 0, &answer);
}

/* What the lanes' upstreams have answered by now. */
static void call_hear(struct world *world, struct call *call)
{
    for (unsigned i = 0; i < PLAN_LANES; i++) {
        struct lane *lane = &call->lanes[i];
        const struct judgement judgement = {.class = ATTEMPT_THROTTLE,
                                            .retry_after_ms = lane->refusal_ns / NS_PER_MS,
                                            .should_retry = -1,
                                            .dimension = THROTTLE_REQUESTS};

        if (!lane->running || lane->end_ns > world->now_ns)
            continue;
        if (lane->refusal_ns == 0) {
            plan_content(&call->plan, i, world->now_ns);
            continue;
        }
        world->outcome.refused++;
        lane_end(world, lane, SOURCE_END_THROTTLED);
        plan_failed(&call->plan, i, &judgement, true, world->now_ns);
    }
}

static void call_commit(struct world *world, struct call *call, unsigned lane)
{
    lane_end(world, &call->lanes[lane], SOURCE_END_SUCCESS);
    world->latencies_ns[world->outcome.good] = world->now_ns - call->arrived_ns;
    call_end(world, call, &world->outcome.good);
}

static void call_wait(struct call *call, int64_t until_ns)
{
    call->wake_ns = until_ns;
    for (unsigned i = 0; i < PLAN_LANES; i++)
        if (call->lanes[i].running)
            call->wake_ns = least(call->wake_ns, call->lanes[i].end_ns);
}

static void call_step(struct world *world, struct call *call)
{
    if (call->queued)
        call_try(world, call);
    else
        call_hear(world, call);
    while (call->live && !call->queued) {
        const struct plan_step step = plan_next(&call->plan, world->now_ns);

        switch (step.what) {
        case PLAN_START:
            call_start(world, call, &step);
            break;
        case PLAN_WAIT:
            call_wait(call, step.until_ns);
            return;
        case PLAN_CANCEL:
            lane_end(world, &call->lanes[step.lane], SOURCE_END_UNJUDGED);
            plan_cancelled(&call->plan, step.lane, world->now_ns);
            break;
        case PLAN_COMMIT:
            call_commit(world, call, step.lane);
            break;
        case PLAN_ANSWER:
        case PLAN_FAIL:
        case PLAN_FALLBACK:
            call_end(world, call, &world->outcome.failed);
            break;
        }
    }
}

/* ---- ten minutes ------------------------------------------------------------------------------ */

static void call_arrives(struct world *world)
{
    const struct plan_terms terms = {
        .retry_budget = 2,
        .throttle_retries = true,
        .may_hedge = true,
        .candidates = SOURCES,
        .accounts = world->accounts,
        .hedge_after_ns = world->setting.hedging == HEDGING_OFF ? CLOCK_NEVER : HEDGE_AFTER_NS,
        .stall_budget_ns = CLOCK_NEVER,
        .backoff_base_ns = NS_PER_S / 2,
        .backoff_max_ns = 8 * NS_PER_S,
        .retry_hold_ns = CLOCK_NEVER,
        .deadline_ns = world->now_ns + DEADLINE_NS};
    struct call *call = world->calls;

    while (call->live)
        assert_true(++call < world->calls + LIVE_MAX);
    *call =
        (struct call){.live = true, .number = world->outcome.calls++, .arrived_ns = world->now_ns};
    assert_true(world->outcome.calls <= CALLS_MAX);
    world->live++;
    plan_begin(&call->plan, &terms, chance_of(world->setting.seed + 200, call->number, 0));
    call_step(world, call);
}

static void next_arrival(struct world *world)
{
    const double mean_ns = 60e9 * 100 /
                           ((double)(world->setting.load_percent * QUOTA_PER_MINUTE * SOURCES) /
                            (world->setting.one_group ? 2 : 1));
    const double gap_ns = -log(uniform(&world->arrival_chance)) * mean_ns;

    world->next_arrival_ns += 1 + (int64_t)gap_ns;
    if (world->next_arrival_ns >= world->arrivals_end_ns)
        world->next_arrival_ns = CLOCK_NEVER;
}

static bool is_due(const struct world *world, const struct call *call)
{
    return call->live &&
           (call->wake_ns <= world->now_ns ||
            (call->queued && flow_is_rung(&world->gate, call->lanes[0].seat.flow_place)));
}

/* All that is due now; what one does may ring another. */
static void moment(struct world *world)
{
    bool again = true;

    while (again) {
        again = false;
        for (unsigned i = 0; i < LIVE_MAX; i++) {
            if (!is_due(world, &world->calls[i]))
                continue;
            call_step(world, &world->calls[i]);
            again = true;
        }
    }
}

static void advance(struct world *world)
{
    int64_t next_ns = least(world->next_arrival_ns, world->next_tick_ns);

    for (unsigned i = 0; i < LIVE_MAX; i++)
        if (world->calls[i].live)
            next_ns = least(next_ns, world->calls[i].wake_ns);
    world->now_ns = next_ns;
    if (next_ns >= world->next_tick_ns) {
        gate_lock(&world->gate);
        flow_tick_locked(&world->gate, next_ns);
        gate_unlock(&world->gate);
        world->next_tick_ns += TICK_NS;
    }
    if (next_ns >= world->next_arrival_ns) {
        call_arrives(world);
        next_arrival(world);
    }
    moment(world);
}

static void world_init(struct world *world, const struct setting *setting)
{
    const struct source_name names[] = {{"one", "account-1"},
                                        {"two", setting->one_group ? "account-1" : "account-2"}};

    memset(world, 0, sizeof *world);
    world->setting = *setting;
    fixture_open(&world->segment, &world->gate, 1, 100);
    /* a full hour of the clock: the windows begin alike in every run */
    world->now_ns = (clock_monotonic_ns() / (3600 * NS_PER_S) + 1) * 3600 * NS_PER_S;
    world->next_arrival_ns = world->next_tick_ns = world->now_ns;
    world->arrivals_end_ns = world->now_ns + ARRIVALS_NS;
    world->arrival_chance = setting->seed;
    fixture_register(&world->gate, names, SOURCES, world->candidates);
    world->terms = fixture_flow_terms(setting->strategy);
    world->terms.requests_quota = setting->believed_quota;
    world->terms.units_quota = 0;
    world->terms.initial_requests = 0;
    world->terms.max_wait_ns[FLOW_NORMAL] = WAIT_MAX_NS;
    for (unsigned i = 0; i < SOURCES; i++) {
        world->targets[i] =
            (struct flow_target){.model = "model", .terms = &world->terms, .cost = 1};
        world->accounts[i] = setting->one_group ? 3 : UINT64_C(1) << i;
    }
    next_arrival(world);
}

static int by_size(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void check_all_given_back(struct world *world)
{
    struct layout_area *layout = segment_layout(&world->segment);

    assert_int_equal(layout->flow_places_used, 0);
    for (unsigned i = 0; i < FLOWS_MAX; i++) {
        assert_int_equal(layout->flows[i].in_flight, 0);
        assert_int_equal(layout->flows[i].waiting, 0);
    }
    assert_int_equal(fixture_view(&world->gate, "one", world->now_ns).in_flight, 0);
    assert_int_equal(fixture_view(&world->gate, "two", world->now_ns).in_flight, 0);
}

static struct outcome simulate(struct setting setting, enum hedging hedging, uint64_t seed)
{
    static const char *const words[] = {"off", "on", "unasked"};
    static struct world world;
    struct outcome *outcome = &world.outcome;

    setting.hedging = hedging;
    setting.seed = seed;
    world_init(&world, &setting);
    while (world.live > 0 || world.next_arrival_ns != CLOCK_NEVER)
        advance(&world);
    assert_int_equal(outcome->calls, outcome->good + outcome->turned_away + outcome->failed);
    assert_true(outcome->good > 100);
    check_all_given_back(&world);
    qsort(world.latencies_ns, outcome->good, sizeof *world.latencies_ns, by_size);
    outcome->p99_ns = world.latencies_ns[outcome->good * 99 / 100];
    printf("%-32s seed %" PRIu64 " hedging %-7s calls %5u good %5u away %5u failed %4u sent %5u "
           "429 %4u hedges %4u skipped %4u won %4u p99 %5.1f s\n",
           setting.name, seed, words[hedging], outcome->calls, outcome->good, outcome->turned_away,
           outcome->failed, outcome->sent, outcome->refused, outcome->hedges,
           outcome->hedges_skipped, outcome->hedges_won, (double)outcome->p99_ns / 1e9);
    fixture_close(&world.segment);
    return *outcome;
}

/* ---- the bar ---------------------------------------------------------------------------------- */

static unsigned difference(unsigned a, unsigned b)
{
    return a > b ? a - b : b - a;
}

/* Within 2 % of each other; where hardly any are refused, within 0.2 % of the calls. */
static bool has_as_many_refused(const struct outcome *on, const struct outcome *off)
{
    unsigned allowed = off->refused / 50;

    if (allowed < off->calls / 500)
        allowed = off->calls / 500;
    return difference(on->refused, off->refused) <= allowed;
}

static void check_bar(const struct setting *setting)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const struct outcome off = simulate(*setting, HEDGING_OFF, seed);
        const struct outcome on = simulate(*setting, HEDGING_ON, seed);

        assert_int_equal(on.calls, off.calls);
        assert_true(off.turned_away > off.calls / 5); /* it is saturated */
        assert_int_equal(off.hedges + off.hedges_skipped, 0);
        assert_true(on.hedges_skipped > on.good / 100); /* hedges were wanted */
        assert_true(difference(on.good, off.good) <= off.good / 50);
        assert_true(has_as_many_refused(&on, &off));
        assert_true(on.hedges <= on.sent / 50);
        assert_true(!setting->one_group || on.hedges == 0);
    }
}

static void b3_r10_a_saturated_rate_is_not_made_worse(void **state)
{
    const struct setting setting = {.name = "rate, two groups",
                                    .strategy = FLOW_STRATEGY_RATE,
                                    .load_percent = 150,
                                    .believed_quota = QUOTA_PER_MINUTE};

    (void)state;
    check_bar(&setting);
}

static void b3_r10_a_saturated_shaping_is_not_made_worse(void **state)
{
    const struct setting setting = {.name = "shaping, two groups",
                                    .strategy = FLOW_STRATEGY_SHAPING,
                                    .load_percent = 150,
                                    .believed_quota = QUOTA_PER_MINUTE};

    (void)state;
    check_bar(&setting);
}

/* The upstream lets in less than we are told: it refuses all the time. */
static void b3_r10_a_quota_overstated_is_not_made_worse(void **state)
{
    const struct setting setting = {.name = "quota overstated, two groups",
                                    .strategy = FLOW_STRATEGY_RATE,
                                    .load_percent = 150,
                                    .believed_quota = QUOTA_PER_MINUTE + QUOTA_PER_MINUTE / 10};

    (void)state;
    check_bar(&setting);
}

static void b3_d16_no_hedge_within_one_quota_group(void **state)
{
    const struct setting setting = {.name = "rate, one group",
                                    .strategy = FLOW_STRATEGY_RATE,
                                    .one_group = true,
                                    .load_percent = 150,
                                    .believed_quota = QUOTA_PER_MINUTE};

    (void)state;
    check_bar(&setting);
}

static void b3_with_room_hedges_are_sent_and_cut_the_tail(void **state)
{
    const struct setting setting = {.name = "half the load, two groups",
                                    .strategy = FLOW_STRATEGY_RATE,
                                    .load_percent = 50,
                                    .believed_quota = QUOTA_PER_MINUTE};

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const struct outcome off = simulate(setting, HEDGING_OFF, seed);
        const struct outcome on = simulate(setting, HEDGING_ON, seed);

        assert_true(on.hedges > on.calls / 50);
        assert_true(on.hedges_won > on.hedges / 2);
        assert_true(on.p99_ns < off.p99_ns / 2);
        assert_true(on.good >= off.good);
    }
}

static void b3_hedges_that_did_not_ask_would_be_noticed(void **state)
{
    const struct setting setting = {.name = "past the flows, two groups",
                                    .strategy = FLOW_STRATEGY_RATE,
                                    .load_percent = 150,
                                    .believed_quota = QUOTA_PER_MINUTE};

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const struct outcome off = simulate(setting, HEDGING_OFF, seed);
        const struct outcome on = simulate(setting, HEDGING_UNASKED, seed);

        assert_true(on.hedges > on.sent / 50);
        assert_false(has_as_many_refused(&on, &off));
        assert_true(difference(on.good, off.good) > off.good / 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b3_r10_a_saturated_rate_is_not_made_worse),
        cmocka_unit_test(b3_r10_a_saturated_shaping_is_not_made_worse),
        cmocka_unit_test(b3_r10_a_quota_overstated_is_not_made_worse),
        cmocka_unit_test(b3_d16_no_hedge_within_one_quota_group),
        cmocka_unit_test(b3_with_room_hedges_are_sent_and_cut_the_tail),
        cmocka_unit_test(b3_hedges_that_did_not_ask_would_be_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
