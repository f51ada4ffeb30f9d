/*
 * test_flow_turn.c - random calls against a model that knows no lists, no rows and no lock: it looks
 * through everybody that waits, and reckons its budgets with floating-point numbers.
 *
 * The threads of the waiting calls are played by the test: whoever is rung or due tries. After every
 * step the model must agree on who goes, on the balances, and that nobody who could go is left.
 */
#include "tests/shared/flow_fixture.h"

#include <math.h>

#define CALLS 200U
#define SLACK 0.001 /* of a unit: the model's budgets are not exact */

static struct segment segment;
static struct gate gate;

struct model_call {
    enum { GONE, WAITS, RUNS, SENT } state;
    uint32_t place;
    int64_t due_ns;
    uint32_t class;
    uint64_t number;
    double cost, charged, tag;
};

static struct model_call calls[CALLS];
static struct {
    double units, requests; /* balances */
    double units_cap, units_rate, requests_cap, requests_rate;
    double virtual_time, finish[FLOW_CLASSES];
    int64_t at_ns, next_send_ns, interval_ns;
    uint64_t arrivals;
} model;

static const double weights[FLOW_CLASSES] = {16, 4, 1};

static void refill(int64_t now_ns)
{
    const double seconds = (double)(now_ns - model.at_ns) / 1e9;

    model.units = fmin(model.units_cap, model.units + seconds * model.units_rate);
    model.requests = fmin(model.requests_cap, model.requests + seconds * model.requests_rate);
    model.at_ns = now_ns;
}

static double start_of(uint32_t class)
{
    return fmax(model.finish[class], model.virtual_time);
}

/* Whose turn it is: of the oldest of each class the one with the earliest start. */
static struct model_call *turn(void)
{
    struct model_call *best = NULL;

    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        struct model_call *oldest = NULL;

        for (size_t i = 0; i < CALLS; i++)
            if (calls[i].state == WAITS && calls[i].class == c &&
                (!oldest || calls[i].number < oldest->number))
                oldest = &calls[i];
        if (oldest && (!best || start_of(c) < start_of(best->class)))
            best = oldest;
    }
    return best;
}

/* By how much is there enough? */
static double surplus(const struct model_call *call)
{
    return fmin(model.units - fmin(call->cost, model.units_cap), model.requests - 1);
}

static void model_grants(struct model_call *call, int64_t now_ns)
{
    assert_ptr_equal(turn(), call);
    assert_true(surplus(call) > -SLACK);
    assert_true(model.next_send_ns - FLOW_PACE_SLACK_NS <= now_ns);
    model.units -= call->cost;
    model.requests -= 1;
    if (model.next_send_ns < now_ns)
        model.next_send_ns = now_ns;
    model.next_send_ns += model.interval_ns;
    model.virtual_time = start_of(call->class);
    call->tag = floor((call->cost + 100) * 4096 / weights[call->class]);
    model.finish[call->class] = model.virtual_time + call->tag;
    call->charged = call->cost;
    call->state = RUNS;
}

static void model_ends(struct model_call *call, double used)
{
    model.units = fmin(model.units_cap, model.units + call->charged - used);
    model.finish[call->class] +=
        (used > 0 ? floor((used + 100) * 4096 / weights[call->class]) : 0) - call->tag;
    call->state = GONE;
}

static void compare(int64_t now_ns)
{
    struct flow_row *flow = fixture_flow(&gate);
    const int64_t units_micro = bucket_balance_micro(&flow->units, now_ns);
    const int64_t requests_micro = bucket_balance_micro(&flow->requests, now_ns);
    struct model_call *next = turn();
    uint32_t waiting = 0, in_flight = 0;

    assert_true(fabs((double)units_micro / BUCKET_UNIT - model.units) < SLACK);
    assert_true(fabs((double)requests_micro / BUCKET_UNIT - model.requests) < SLACK);
    for (size_t i = 0; i < CALLS; i++) {
        waiting += calls[i].state == WAITS;
        in_flight += calls[i].state == RUNS || calls[i].state == SENT;
    }
    assert_int_equal(flow->waiting, waiting);
    assert_int_equal(flow->in_flight, in_flight);
    /* nobody is left who could go */
    assert_true(!next || surplus(next) < SLACK || model.next_send_ns - FLOW_PACE_SLACK_NS > now_ns);
}

/* Everybody who is rung or due tries, until nobody is. */
static void attend(int64_t now_ns)
{
    for (bool again = true; again;) {
        again = false;
        for (size_t i = 0; i < CALLS; i++) {
            struct flow_answer answer = {.verdict = FLOW_QUEUED};

            if (calls[i].state != WAITS ||
                (!flow_is_rung(&gate, calls[i].place) && calls[i].due_ns > now_ns))
                continue;
            flow_try(&gate, calls[i].place, now_ns, &answer);
            calls[i].due_ns = answer.due_ns;
            again = true;
            if (answer.verdict == FLOW_GRANTED)
                model_grants(&calls[i], now_ns);
        }
    }
}

static void comes(struct model_call *call, const struct flow_terms *terms, uint64_t *seed,
                  int64_t now_ns)
{
    const int64_t cost = 1 + fixture_random(seed) % (fixture_random(seed) % 20 ? 2000 : 40000);
    const struct flow_target target = fixture_target(terms, cost);
    struct flow_answer answer;

    *call = (struct model_call){.state = WAITS,
                                .class = fixture_random(seed) % FLOW_CLASSES,
                                .number = ++model.arrivals,
                                .cost = (double)cost};
    answer = fixture_flow_arrive(&gate, &target, (enum flow_class)call->class, now_ns);
    call->place = answer.place;
    call->due_ns = answer.due_ns;
    if (answer.verdict == FLOW_GRANTED)
        model_grants(call, now_ns);
    else
        assert_int_equal(answer.verdict, FLOW_QUEUED);
}

/* One more thing happens to a call, by its state and chance. */
static void goes_on(struct model_call *call, uint64_t *seed, int64_t now_ns)
{
    const uint32_t dice = fixture_random(seed) % 8;
    const int64_t used = fixture_random(seed) % 3000;
    struct flow_end end = {.now_ns = now_ns, .units = used};

    if (call->state == WAITS) {
        if (dice > 0)
            return;
        flow_cancel(&gate, &call->place, now_ns);
        call->state = GONE;
    } else if (call->state == RUNS && dice == 0) {
        if (model.next_send_ns >= now_ns + model.interval_ns)
            return; /* the pace's way back is tested elsewhere */
        flow_cancel(&gate, &call->place, now_ns);
        model.requests = fmin(model.requests_cap, model.requests + 1);
        if (fixture_flow(&gate)->next_send_ns < model.next_send_ns)
            model.next_send_ns = fixture_flow(&gate)->next_send_ns;
        model_ends(call, 0);
    } else if (call->state == RUNS) {
        flow_sent(&gate, call->place, now_ns);
        call->state = SENT;
    } else if (call->state == SENT && dice < 2) {
        flow_progress(&gate, call->place, used, now_ns);
        if ((double)used > call->charged) {
            model.units -= (double)used - call->charged;
            call->charged = (double)used;
        }
    } else if (call->state == SENT && dice < 4) {
        (void)flow_keep(&gate, &call->place, &end);
        model_ends(call, call->charged);
    } else if (call->state == SENT && dice < 5) {
        (void)flow_refund(&gate, &call->place, &end);
        model_ends(call, 0);
    } else if (call->state == SENT) {
        (void)flow_settle(&gate, &call->place, &end);
        model_ends(call, (double)used);
    }
}

static void run(uint64_t seed)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    int64_t now = clock_monotonic_ns();

    fixture_open(&segment, &gate, 1, 100);
    memset(calls, 0, sizeof calls);
    memset(&model, 0, sizeof model);
    model.units_cap = model.units = 15000;
    model.units_rate = 580000 / 60.0;
    model.requests_cap = 15;
    model.requests = 1;
    model.requests_rate = 580 / 60.0;
    model.interval_ns = 100 * NS_PER_MS;
    model.at_ns = now;
    for (int step = 0; step < 4000; step++) {
        struct model_call *call = &calls[fixture_random(&seed) % CALLS];

        refill(now);
        if (call->state == GONE)
            comes(call, &terms, &seed, now);
        else
            goes_on(call, &seed, now);
        attend(now);
        compare(now);
        now += fixture_random(&seed) % (40 * NS_PER_MS);
    }
    fixture_close(&segment);
}

static void f8_agrees_with_a_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++)
        run(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(f8_agrees_with_a_model)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
