/*
 * run_random.c - what holds for a plan whatever happens, tried with random terms, refusals, failures and
 * moments: never more than two lanes, a bounded number of starts, none after content, after the deadline
 * or at a candidate that is out, no wait past the deadline; every attempt that starts ends once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "worker/plan.h"

#define S NS_PER_S
#define CALLS 60000U

struct chance {
    uint64_t state;
};

static uint64_t draw(struct chance *chance, uint64_t below)
{
    chance->state ^= chance->state << 13;
    chance->state ^= chance->state >> 7;
    chance->state ^= chance->state << 17;
    return (chance->state >> 11) % below;
}

static int64_t draw_ns(struct chance *chance, int64_t most_ns)
{
    return (int64_t)draw(chance, (uint64_t)most_ns + 1);
}

struct random_call {
    struct chance chance;
    struct plan_terms terms;
    uint64_t accounts[PLAN_CANDIDATES_MAX];
    struct plan plan;
    int64_t now_ns;
    struct {
        bool running;
        unsigned candidate;
        int64_t event_ns; /* CLOCK_NEVER = hangs */
    } lanes[PLAN_LANES];
    unsigned rounds, hedges, hedges_in_round, ends, seen_content;
    /* of the last round: a fault of the request, or an outcome not to be repeated */
    bool barred;
    uint64_t out; /* candidates that must not be asked again */
};

static void random_terms(struct random_call *call)
{
    struct chance *chance = &call->chance;
    struct plan_terms *terms = &call->terms;

    *terms = (struct plan_terms){
        .hedge_after_ns = 1, .candidates = 1 + (unsigned)draw(chance, 5), .backoff_max_ns = 8 * S};
    terms->retry_budget = (unsigned)draw(chance, 4);
    terms->throttle_retries = draw(chance, 4) != 0;
    terms->retry_unknown_outcome = draw(chance, 2) != 0;
    terms->is_image = draw(chance, 4) == 0;
    terms->may_hedge = terms->candidates > 1 && draw(chance, 3) != 0;
    terms->hedge_after_ns = 1 + draw_ns(chance, 5 * S);
    terms->stall_budget_ns = draw(chance, 3) == 0 ? draw_ns(chance, 20 * S) : CLOCK_NEVER;
    terms->backoff_base_ns = draw_ns(chance, S);
    terms->retry_hold_ns = draw(chance, 3) == 0 ? draw_ns(chance, 9 * S) : CLOCK_NEVER;
    terms->deadline_ns = draw(chance, 2) == 0 ? 1 + draw_ns(chance, 40 * S) : CLOCK_NEVER;
    terms->fallbacks = (unsigned)draw(chance, 2);
    for (unsigned i = 0; i < terms->candidates; i++)
        call->accounts[i] = UINT64_C(1) << i;
    if (terms->candidates > 2)
        call->accounts[0] = call->accounts[1] = 3;
    terms->accounts = draw(chance, 2) == 0 ? call->accounts : NULL;
}

/* Something of what the lane may do happens. */
static void random_event(struct random_call *call, unsigned lane)
{
    static const int64_t waits_ms[] = {-1, -1, -1, -1, 0, 1, 700, 5000, 60000, 60001, 9000000};
    static const enum attempt_class classes[] = {
        ATTEMPT_OK,        ATTEMPT_THROTTLE,   ATTEMPT_QUOTA_DAY, ATTEMPT_MONEY,
        ATTEMPT_OURS,      ATTEMPT_CREDENTIAL, ATTEMPT_REQUEST,   ATTEMPT_TRANSIENT,
        ATTEMPT_UNSENT,    ATTEMPT_UNKNOWN,    ATTEMPT_THROTTLE,  ATTEMPT_THROTTLE,
        ATTEMPT_TRANSIENT, ATTEMPT_UNSENT,     ATTEMPT_THROTTLE,  ATTEMPT_THROTTLE};
    struct chance *chance = &call->chance;
    struct judgement judgement = {.class = classes[draw(chance, sizeof classes / sizeof *classes)],
                                  .retry_after_ms =
                                      waits_ms[draw(chance, sizeof waits_ms / sizeof *waits_ms)],
                                  .should_retry = draw(chance, 8) == 0 ? 0 : -1};
    bool unknown_too = call->terms.retry_unknown_outcome && !call->terms.is_image;
    uint64_t self = UINT64_C(1) << call->lanes[lane].candidate;

    if (judgement.class == ATTEMPT_OK) {
        call->seen_content++;
        plan_content(&call->plan, lane, call->now_ns);
        call->lanes[lane].event_ns = CLOCK_NEVER;
        return;
    }
    if (judgement.should_retry == 0 || judgement.class == ATTEMPT_MONEY ||
        judgement.class == ATTEMPT_CREDENTIAL || judgement.class == ATTEMPT_QUOTA_DAY ||
        judgement.retry_after_ms > PLAN_RETRY_AFTER_MAX_MS)
        call->out |= self;
    call->barred |=
        judgement.class == ATTEMPT_REQUEST || (judgement.class == ATTEMPT_UNKNOWN && !unknown_too);
    call->lanes[lane].running = false;
    call->ends++;
    plan_failed(&call->plan, lane, &judgement, draw(chance, 2) == 0, call->now_ns);
}

static void random_start(struct random_call *call, const struct plan_step *step)
{
    struct chance *chance = &call->chance;
    unsigned candidate = (unsigned)draw(chance, call->terms.candidates);
    uint64_t refusal = draw(chance, 2 * (uint64_t)PLAN_REFUSED_BUSY);

    assert_int_equal(call->seen_content, 0); /* nothing starts after content */
    assert_true(call->now_ns < call->terms.deadline_ns);
    assert_int_equal(step->lane, step->hedge);
    assert_false(call->lanes[step->lane].running);
    assert_int_equal(step->excluded & call->out, call->out);
    if (step->hedge) {
        assert_true(call->terms.may_hedge && call->lanes[0].running);
        assert_int_equal(call->hedges_in_round, 0);
        assert_true((step->excluded >> call->lanes[0].candidate & 1) != 0);
    } else {
        assert_false(call->lanes[1].running);
        assert_false(call->barred);
    }
    for (unsigned i = 0; i < call->terms.candidates && (step->excluded >> candidate & 1) != 0; i++)
        candidate = (candidate + 1) % call->terms.candidates;
    refusal = refusal < PLAN_REFUSED_BUSY ? refusal : PLAN_REFUSED_BUSY;
    if (draw(chance, 8) == 0 || (step->excluded >> candidate & 1) != 0) {
        call->hedges_in_round += step->hedge; /* a refusal is final too */
        plan_not_admitted(&call->plan, step->lane, (enum plan_refusal)refusal, CLOCK_NEVER,
                          call->now_ns);
        return;
    }
    if (step->hedge) {
        call->hedges_in_round++;
        call->hedges++;
    } else {
        call->rounds++;
        call->hedges_in_round = 0;
        call->barred = false;
    }
    call->lanes[step->lane].running = true;
    call->lanes[step->lane].candidate = candidate;
    call->lanes[step->lane].event_ns =
        draw(chance, 5) == 0 ? CLOCK_NEVER : call->now_ns + draw_ns(chance, 8 * S);
    plan_started(&call->plan, step->lane, candidate, call->now_ns);
}

static void random_wait(struct random_call *call, const struct plan_step *step)
{
    int64_t until = step->until_ns;

    assert_true(until > call->now_ns && until <= call->terms.deadline_ns);
    for (unsigned i = 0; i < PLAN_LANES; i++) {
        if (call->lanes[i].running && call->lanes[i].event_ns < until)
            until = call->lanes[i].event_ns;
    }
    if (until == CLOCK_NEVER) /* both hang, and nothing ends it: the attempt's own time-out does */
        until = call->lanes[call->lanes[0].running ? 0 : 1].event_ns = call->now_ns + 100 * S;
    call->now_ns = until;
    for (unsigned i = 0; i < PLAN_LANES; i++) {
        if (call->lanes[i].running && call->lanes[i].event_ns <= call->now_ns)
            random_event(call, i);
    }
}

static void random_cancel(struct random_call *call, const struct plan_step *step)
{
    assert_true(call->lanes[step->lane].running);
    assert_int_equal(step->why == PLAN_LOST, call->seen_content > 0);
    assert_true(step->why == PLAN_LOST || call->now_ns >= call->terms.deadline_ns);
    call->lanes[step->lane].running = false;
    call->ends++;
    plan_cancelled(&call->plan, step->lane, call->now_ns);
}

static void check_end(struct random_call *call, const struct plan_step *end)
{
    const struct plan *plan = &call->plan;

    if (end->what == PLAN_COMMIT) {
        assert_true(call->lanes[end->lane].running);
        call->lanes[end->lane].running = false;
        call->ends++;
    }
    assert_int_equal(end->what == PLAN_COMMIT, call->seen_content > 0);
    assert_false(call->lanes[0].running || call->lanes[1].running);
    assert_int_equal(call->ends, call->rounds + call->hedges);
    assert_true(call->now_ns <= call->terms.deadline_ns);
    assert_int_equal(plan->rounds, call->rounds);
    assert_int_equal(plan->retries, call->rounds == 0 ? 0 : call->rounds - 1);
    assert_int_equal(plan->hedges, call->hedges);
    assert_true(plan->budget_used <= call->terms.retry_budget);
    assert_true(call->rounds <=
                1 + call->terms.retry_budget + PLAN_THROTTLE_RETRIES_MAX + call->terms.candidates);
    assert_true(call->hedges <= call->rounds);
    assert_true(end->what != PLAN_FALLBACK || call->terms.fallbacks > 0);
    assert_true(plan->hold_wait_ns <= call->terms.retry_hold_ns);
    assert_true(plan->throttle_wait_ns <= PLAN_THROTTLE_WAIT_MAX_MS * NS_PER_MS);
    if (!call->terms.throttle_retries && call->terms.candidates == 1 &&
        call->terms.retry_budget == 0)
        assert_true(call->rounds <= 1);
}

static void h15_b6_whatever_happens_the_bounds_hold(void **state)
{
    unsigned ends[PLAN_FALLBACK + 1] = {0};
    unsigned fails[PLAN_FAIL_BUSY + 1] = {0};
    unsigned longest = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= CALLS; seed++) {
        struct random_call call = {.chance = {seed * UINT64_C(0x9e3779b97f4a7c15)}};
        struct plan_step step = {.what = PLAN_WAIT};

        random_terms(&call);
        plan_begin(&call.plan, &call.terms, seed);
        for (unsigned i = 0;; i++) {
            assert_true(i < 5000);
            step = plan_next(&call.plan, call.now_ns);
            if (step.what == PLAN_START)
                random_start(&call, &step);
            else if (step.what == PLAN_CANCEL)
                random_cancel(&call, &step);
            else if (step.what == PLAN_WAIT)
                random_wait(&call, &step);
            else
                break;
        }
        check_end(&call, &step);
        ends[step.what]++;
        fails[step.fail] += step.what == PLAN_FAIL;
        longest = call.rounds > longest ? call.rounds : longest;
    }
    /* They come everywhere. */
    for (unsigned what = PLAN_COMMIT; what <= PLAN_FALLBACK; what++)
        assert_true(ends[what] > CALLS / 100);
    for (unsigned fail = 0; fail <= PLAN_FAIL_BUSY; fail++)
        assert_true(fails[fail] > 0);
    assert_true(longest > 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h15_b6_whatever_happens_the_bounds_hold),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
