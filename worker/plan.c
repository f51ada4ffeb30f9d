/*
 * plan.c - the engine of plan.h. plan_next reads the state from top to bottom: a winner, running
 * lanes, a failed round, a wait, a start. The other functions only write down what happened.
 */
#include "worker/plan.h"

#include "base/check.h"
#include "base/clock.h"
#include "worker/plan_verdict.h"

#include <stddef.h>
#include <string.h>

/* Later by ms, or never. */
static int64_t later_ms(int64_t now_ns, int64_t ms)
{
    return ms >= (CLOCK_NEVER - now_ns) / NS_PER_MS ? CLOCK_NEVER : now_ns + ms * NS_PER_MS;
}

static int64_t later_ns(int64_t now_ns, int64_t ns)
{
    return ns >= CLOCK_NEVER - now_ns ? CLOCK_NEVER : now_ns + ns;
}

/* 0..limit_ns, each as likely (splitmix64; what the remainder favours is beyond measuring). */
static int64_t random_up_to(struct plan *plan, int64_t limit_ns)
{
    uint64_t mixed = plan->random += UINT64_C(0x9e3779b97f4a7c15);

    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    mixed ^= mixed >> 31;
    return limit_ns <= 0 ? 0 : (int64_t)(mixed % ((uint64_t)limit_ns + 1));
}

static uint64_t bit(unsigned candidate)
{
    return UINT64_C(1) << candidate;
}

static uint64_t account_of(const struct plan *plan, unsigned candidate)
{
    return plan->terms.accounts == NULL ? bit(candidate) : plan->terms.accounts[candidate];
}

static uint64_t allowed(const struct plan *plan)
{
    INVARIANT(plan->terms.candidates >= 1);
    return (~UINT64_C(0) >> (PLAN_CANDIDATES_MAX - plan->terms.candidates)) & ~plan->excluded;
}

/* Those whose upstream asked to be left alone until later than now. */
static uint64_t not_ready(const struct plan *plan, int64_t now_ns)
{
    uint64_t mask = 0;

    for (unsigned i = 0; i < plan->terms.candidates; i++)
        mask |= plan->ready_ns[i] > now_ns ? bit(i) : 0;
    return mask;
}

void plan_begin(struct plan *plan, const struct plan_terms *terms, uint64_t seed)
{
    REQUIRE(terms->candidates >= 1 && terms->candidates <= PLAN_CANDIDATES_MAX);
    memset(plan, 0, offsetof(struct plan, ready_ns) + terms->candidates * sizeof plan->ready_ns[0]);
    plan->terms = *terms;
    plan->admission_wait_since_ns = CLOCK_NEVER;
    plan->random = seed;
}

/* ---- the end ---------------------------------------------------------------------------------- */

static void end(struct plan *plan, struct plan_step step)
{
    plan->end = step;
    plan->ended = true;
}

static int64_t wait_to_tell_ms(int64_t now_ns, int64_t until_ns)
{
    if (until_ns <= now_ns || until_ns == CLOCK_NEVER)
        return -1;
    return (until_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
}

/* The least that any upstream of this call still asks to wait (D13), or who refused to let it go. */
static int64_t least_wait_ms(const struct plan *plan, int64_t now_ns)
{
    int64_t first_ns = plan->refused_until_ns > now_ns ? plan->refused_until_ns : CLOCK_NEVER;

    for (unsigned i = 0; i < plan->terms.candidates; i++) {
        if (plan->ready_ns[i] > now_ns)
            first_ns = clock_earlier(first_ns, plan->ready_ns[i]);
    }
    return wait_to_tell_ms(now_ns, first_ns);
}

/* What is wrong with the request is told as its upstream said it; other sources have no part in that. */
static int64_t retry_after_ms(const struct plan *plan, const struct plan_lane *told, int64_t now_ns)
{
    enum attempt_class class = told->judgement.class;

    if (class == ATTEMPT_REQUEST)
        return wait_to_tell_ms(now_ns, plan->ready_ns[told->candidate]);
    return verdict_is_throttling(class) || class == ATTEMPT_TRANSIENT ? least_wait_ms(plan, now_ns)
                                                                      : -1;
}

/* With what the last failed round has to tell. */
static void end_as_told(struct plan *plan, int64_t now_ns)
{
    const struct plan_lane *lane = &plan->lanes[plan->told_lane];
    enum attempt_class class = lane->judgement.class;
    bool direct = !plan->terms.throttle_retries;
    struct plan_step step = {.lane = plan->told_lane,
                             .retry_after_ms = -1,
                             .should_retry = direct ? -1 : verdict_should_retry(&lane->judgement)};

    INVARIANT(lane->state == LANE_FAILED);
    if (verdict_is_throttling(class) && plan->terms.fallbacks > 0 &&
        now_ns < plan->terms.deadline_ns) {
        step.what = PLAN_FALLBACK;
    } else if (class == ATTEMPT_CREDENTIAL) {
        step.what = PLAN_FAIL;
        step.fail = PLAN_FAIL_CREDENTIAL;
    } else {
        step.what = lane->has_answer ? PLAN_ANSWER : PLAN_FAIL;
        step.fail = PLAN_FAIL_TRANSPORT;
    }
    if (!direct)
        step.retry_after_ms = retry_after_ms(plan, lane, now_ns);
    end(plan, step);
}

/* No candidate could be had, and none was asked before: the call was never sent. */
static void end_refused(struct plan *plan, int64_t now_ns)
{
    struct plan_step step = {.what = PLAN_FAIL, .fail = PLAN_FAIL_NO_SOURCE, .should_retry = -1};

    if (plan->refusal == PLAN_REFUSED_BUSY)
        step.fail = PLAN_FAIL_BUSY;
    else if (plan->refusal == PLAN_REFUSED_QUOTA && plan->terms.fallbacks > 0)
        step.what = PLAN_FALLBACK;
    step.retry_after_ms = wait_to_tell_ms(now_ns, plan->refused_until_ns);
    end(plan, step);
}

static void end_by_deadline(struct plan *plan)
{
    end(plan, (struct plan_step){.what = PLAN_FAIL,
                                 .fail = PLAN_FAIL_DEADLINE,
                                 .retry_after_ms = -1,
                                 .should_retry = -1});
}

static void give_up(struct plan *plan, int64_t now_ns)
{
    if (plan->rounds > 0)
        end_as_told(plan, now_ns);
    else
        end_refused(plan, now_ns);
}

/* ---- waits ------------------------------------------------------------------------------------ */

/* The longest wait that may be begun now; negative: none. */
static int64_t longest_wait_ns(const struct plan *plan, int64_t now_ns)
{
    const struct plan_terms *terms = &plan->terms;
    int64_t longest = CLOCK_NEVER;

    if (terms->deadline_ns != CLOCK_NEVER)
        longest = terms->deadline_ns - now_ns - 1;
    if (terms->retry_hold_ns != CLOCK_NEVER)
        longest = clock_earlier(longest, terms->retry_hold_ns - plan->hold_wait_ns);
    if (plan->free_round)
        longest =
            clock_earlier(longest, PLAN_THROTTLE_WAIT_MAX_MS * NS_PER_MS - plan->throttle_wait_ns);
    if (plan->free_round)
        longest = clock_earlier(longest, plan_flow_left_ns(plan));
    return longest;
}

static int64_t backoff_ns(struct plan *plan)
{
    const struct plan_terms *terms = &plan->terms;
    int64_t cap = terms->backoff_base_ns;

    for (unsigned n = 0; n < plan->backoffs && cap < terms->backoff_max_ns; n++)
        cap = later_ns(cap, cap);
    cap = clock_earlier(cap, terms->backoff_max_ns);
    return terms->backoff_least_ns + random_up_to(plan, cap - terms->backoff_least_ns);
}

/* Who is to be left alone for now. After a throttled round their flows see to that themselves. */
static uint64_t late(const struct plan *plan, int64_t now_ns)
{
    return plan->free_round && plan->terms.flow_keeps_pauses ? 0 : not_ready(plan, now_ns);
}

/* Begin the wait before a candidate is asked a second time. False: there is none, or the wait would
 * be too long, and is not begun. */
static bool go_back(struct plan *plan, int64_t now_ns)
{
    uint64_t back = allowed(plan) & plan->tried;
    uint64_t waits = late(plan, now_ns);
    int64_t longest = longest_wait_ns(plan, now_ns);
    int64_t floor = CLOCK_NEVER; /* what the first of them to be ready asks for */
    int64_t wait = 0;

    if (back == 0)
        return false;
    for (unsigned i = 0; i < plan->terms.candidates; i++) {
        if ((back & bit(i)) != 0)
            floor = clock_earlier(floor, (waits & bit(i)) != 0 ? plan->ready_ns[i] - now_ns : 0);
    }
    wait = backoff_ns(plan);
    /* Those who were told the same time do not all come back at that time. */
    if (wait < floor && floor <= longest)
        wait = floor + random_up_to(plan, clock_earlier(floor / 2, longest - floor));
    if (wait < floor || wait > longest)
        return false;
    plan->untried_only = false;
    plan->admission_wait_since_ns = CLOCK_NEVER;
    plan->backoffs++;
    plan->wait_until_ns = now_ns + wait;
    plan->hold_wait_ns = later_ns(plan->hold_wait_ns, wait);
    if (plan->free_round) {
        plan->throttle_wait_ns += wait;
        plan_waited_in_flow(plan, wait);
    }
    return true;
}

/* All that could serve have as many exchanges as they may: ask again in a moment, but not for ever. */
static void wait_for_admission(struct plan *plan, int64_t now_ns)
{
    int64_t since, until;

    if (plan->admission_wait_since_ns == CLOCK_NEVER)
        plan->admission_wait_since_ns = now_ns;
    since = plan->admission_wait_since_ns;
    until = clock_earlier(later_ms(since, PLAN_ADMISSION_WAIT_MAX_MS), plan->terms.deadline_ns);
    if (plan->rounds > 0 && plan->terms.retry_hold_ns != CLOCK_NEVER)
        until =
            clock_earlier(until, later_ns(now_ns, plan->terms.retry_hold_ns - plan->hold_wait_ns));
    if (now_ns >= until) {
        give_up(plan, now_ns);
        return;
    }
    until = clock_earlier(until, later_ms(now_ns, PLAN_ADMISSION_TICK_MS));
    if (plan->refused_until_ns > now_ns)
        until = clock_earlier(until, plan->refused_until_ns);
    if (plan->rounds > 0)
        plan->hold_wait_ns = later_ns(plan->hold_wait_ns, until - now_ns);
    plan->wait_until_ns = until;
}

/* ---- a failed round --------------------------------------------------------------------------- */

/* What the lane's failure says about its candidate and the account behind it. */
static void note_failure(struct plan *plan, const struct plan_lane *lane)
{
    const struct judgement *judgement = &lane->judgement;
    uint64_t account = account_of(plan, lane->candidate);
    bool throttled = judgement->class == ATTEMPT_THROTTLE;
    int64_t ready_ns = 0;

    if (judgement->retry_after_ms > 0)
        ready_ns = later_ms(lane->ended_ns, judgement->retry_after_ms);
    else if (judgement->class == ATTEMPT_QUOTA_DAY && judgement->out_ms > 0)
        ready_ns = later_ms(lane->ended_ns, judgement->out_ms);
    plan->excluded |= verdict_excludes(judgement, lane->candidate, account);
    /* Another key of a throttled account is no other source: it has been tried. */
    if (throttled)
        plan->tried |= account;
    for (unsigned i = 0; throttled && i < plan->terms.candidates; i++) {
        if ((account & bit(i)) != 0 && plan->ready_ns[i] < ready_ns)
            plan->ready_ns[i] = ready_ns;
    }
    plan->ready_ns[lane->candidate] = ready_ns;
}

/* May anything follow a round of this kind? */
static bool may_follow(const struct plan *plan, enum verdict_kind kind)
{
    const struct plan_terms *terms = &plan->terms;

    if (plan->stall_ns >= terms->stall_budget_ns)
        return false;
    switch (kind) {
    case VERDICT_REAL:
        return plan->budget_used < terms->retry_budget;
    case VERDICT_THROTTLED:
        return terms->throttle_retries && plan->throttle_retries < PLAN_THROTTLE_RETRIES_MAX;
    case VERDICT_ROTATE:
        return true; /* each such round excludes a candidate */
    case VERDICT_END:
        break;
    }
    return false;
}

static void judge_round(struct plan *plan, int64_t now_ns)
{
    bool unknown_too = plan->terms.retry_unknown_outcome && !plan->terms.is_image;
    int64_t ended_ns = 0;
    struct verdict verdict;

    verdict_of_round(plan->lanes, unknown_too, &verdict);
    plan->round_judged = true;
    plan->told_lane = verdict.lane;
    plan->free_round = verdict.kind != VERDICT_REAL;
    for (unsigned i = 0; i < PLAN_LANES; i++) {
        if (plan->lanes[i].state != LANE_FAILED)
            continue;
        note_failure(plan, &plan->lanes[i]);
        if (plan->lanes[i].ended_ns > ended_ns)
            ended_ns = plan->lanes[i].ended_ns;
    }
    if (!verdict.refund)
        plan->stall_ns += ended_ns - plan->lanes[0].started_ns;
    if (now_ns >= plan->terms.deadline_ns || !may_follow(plan, verdict.kind)) {
        end_as_told(plan, now_ns);
        return;
    }
    /* Another source first, at once; back to an old one only after a wait. */
    plan->untried_only = (allowed(plan) & ~plan->tried) != 0;
    if (!plan->untried_only && !go_back(plan, now_ns)) {
        end_as_told(plan, now_ns);
        return;
    }
    if (verdict.kind == VERDICT_REAL)
        plan->budget_used++;
    else if (verdict.kind == VERDICT_THROTTLED)
        plan->throttle_retries++;
}

/* ---- what now? -------------------------------------------------------------------------------- */

/* When the hedge of this round is due; CLOCK_NEVER = no more, or not before the deadline. */
static int64_t hedge_due_ns(const struct plan *plan)
{
    const struct plan_terms *terms = &plan->terms;
    int64_t due_ns;

    if (!terms->may_hedge || plan->hedge_done || plan->lanes[0].state != LANE_RUNNING)
        return CLOCK_NEVER;
    due_ns = later_ns(plan->lanes[0].started_ns, terms->hedge_after_ns);
    return due_ns < terms->deadline_ns ? due_ns : CLOCK_NEVER;
}

static struct plan_step start_hedge(const struct plan *plan, int64_t now_ns)
{
    uint64_t primary = bit(plan->lanes[0].candidate);
    uint64_t excluded = plan->excluded | primary | not_ready(plan, now_ns);
    bool untried = (allowed(plan) & ~plan->tried) != 0;

    /* A later round may have nobody new to hedge with: then those who failed before will do (D3). */
    return (struct plan_step){.what = PLAN_START,
                              .lane = 1,
                              .hedge = true,
                              .excluded = excluded,
                              .tried = untried ? plan->tried : primary};
}

static struct plan_step start_round(struct plan *plan, int64_t now_ns)
{
    uint64_t excluded = plan->excluded | (plan->untried_only ? plan->tried : late(plan, now_ns));
    bool untried = (allowed(plan) & ~plan->tried) != 0;

    plan->asked = allowed(plan) & ~excluded;
    /* When all have been tried, anybody but who failed last. */
    return (struct plan_step){.what = PLAN_START,
                              .excluded = excluded,
                              .tried = untried ? plan->tried : plan->last_round};
}

static struct plan_step cancel(unsigned lane, enum plan_why why)
{
    return (struct plan_step){.what = PLAN_CANCEL, .lane = lane, .why = why};
}

static struct plan_step wait_until(int64_t until_ns)
{
    return (struct plan_step){.what = PLAN_WAIT, .until_ns = until_ns};
}

/* Index of the first lane in that state; PLAN_LANES = none. */
static unsigned lane_that_is(const struct plan *plan, int state)
{
    unsigned i = 0;

    while (i < PLAN_LANES && (int)plan->lanes[i].state != state)
        i++;
    return i;
}

static struct plan_step next_of_running(struct plan *plan, unsigned lane, int64_t now_ns)
{
    int64_t due_ns = hedge_due_ns(plan);

    if (now_ns >= plan->terms.deadline_ns) {
        plan->deadline_fell = true;
        return cancel(lane, PLAN_DEADLINE);
    }
    if (now_ns >= due_ns)
        return start_hedge(plan, now_ns);
    return wait_until(clock_earlier(due_ns, plan->terms.deadline_ns));
}

struct plan_step plan_next(struct plan *plan, int64_t now_ns)
{
    unsigned winner = lane_that_is(plan, LANE_WON);
    unsigned running = lane_that_is(plan, LANE_RUNNING);

    if (plan->ended)
        return plan->end;
    if (winner < PLAN_LANES) {
        if (running < PLAN_LANES)
            return cancel(running, PLAN_LOST);
        plan->hedge_won = winner == 1;
        end(plan,
            (struct plan_step){
                .what = PLAN_COMMIT, .lane = winner, .retry_after_ms = -1, .should_retry = -1});
        return plan->end;
    }
    if (running < PLAN_LANES)
        return next_of_running(plan, running, now_ns);
    if (plan->deadline_fell)
        end_by_deadline(plan);
    else if (plan->rounds > 0 && !plan->round_judged)
        judge_round(plan, now_ns);
    else if (now_ns >= plan->terms.deadline_ns && plan->rounds == 0 &&
             plan->admission_wait_since_ns == CLOCK_NEVER)
        end_by_deadline(plan);
    else if (now_ns >= plan->terms.deadline_ns)
        give_up(plan, now_ns);
    if (plan->ended)
        return plan->end;
    if (now_ns < plan->wait_until_ns)
        return wait_until(plan->wait_until_ns);
    return start_round(plan, now_ns);
}

/* ---- what happened ---------------------------------------------------------------------------- */

void plan_started(struct plan *plan, unsigned lane, unsigned candidate, int64_t now_ns)
{
    REQUIRE(lane < PLAN_LANES && candidate < plan->terms.candidates && !plan->ended);
    REQUIRE(plan->lanes[lane].state != LANE_RUNNING);
    REQUIRE(lane == 0 || plan->lanes[0].state == LANE_RUNNING);
    if (lane == 0) {
        plan->admission_wait_since_ns = CLOCK_NEVER;
        plan->wait_until_ns = 0;
        plan->untried_only = false;
        plan->hedge_done = false;
        plan->round_judged = false;
        plan->lanes[1] = (struct plan_lane){.state = LANE_IDLE};
        plan->last_round = 0;
        plan->retries = plan->rounds++;
    } else {
        plan->hedge_done = true;
        plan->hedges++;
    }
    plan->tried |= bit(candidate);
    plan->last_round |= bit(candidate);
    plan->lanes[lane] =
        (struct plan_lane){.state = LANE_RUNNING, .candidate = candidate, .started_ns = now_ns};
}

void plan_not_admitted(struct plan *plan, unsigned lane, enum plan_refusal refusal,
                       int64_t earliest_ns, int64_t now_ns)
{
    REQUIRE(lane < PLAN_LANES && !plan->ended);
    if (lane == 1) {
        plan->hedge_done = true;
        plan->hedges_skipped++;
        return;
    }
    plan->refusal = refusal;
    plan->refused_until_ns = earliest_ns;
    if (plan->untried_only && go_back(plan, now_ns))
        return;
    if (refusal == PLAN_REFUSED_BUSY) {
        wait_for_admission(plan, now_ns);
        return;
    }
    /* Who could not be had now is not waited for; but others may have been left out of this START
     * only because their upstreams asked for a moment. */
    plan->excluded |= plan->asked;
    if (plan->untried_only || !go_back(plan, now_ns))
        give_up(plan, now_ns);
}

void plan_content(struct plan *plan, unsigned lane, int64_t now_ns)
{
    REQUIRE(lane < PLAN_LANES && plan->lanes[lane].state == LANE_RUNNING);
    (void)now_ns;
    /* The other one has won in the same moment: this one is about to be cancelled. */
    if (lane_that_is(plan, LANE_WON) == PLAN_LANES)
        plan->lanes[lane].state = LANE_WON;
}

void plan_failed(struct plan *plan, unsigned lane, const struct judgement *judgement,
                 bool has_answer, int64_t now_ns)
{
    struct plan_lane *failed = &plan->lanes[lane];

    REQUIRE(lane < PLAN_LANES && failed->state == LANE_RUNNING);
    REQUIRE(judgement->class != ATTEMPT_OK);
    failed->state = LANE_FAILED;
    failed->ended_ns = now_ns;
    failed->has_answer = has_answer;
    failed->judgement = *judgement;
}

void plan_cancelled(struct plan *plan, unsigned lane, int64_t now_ns)
{
    REQUIRE(lane < PLAN_LANES && plan->lanes[lane].state == LANE_RUNNING);
    plan->lanes[lane].state = LANE_LOST;
    plan->lanes[lane].ended_ns = now_ns;
}

void plan_taken_back(struct plan *plan, unsigned lane, int64_t now_ns)
{
    REQUIRE(lane == 1);
    plan_cancelled(plan, lane, now_ns);
    plan->hedges--;
}

struct plan_step plan_without_fallback(struct plan *plan, int64_t now_ns)
{
    REQUIRE(plan->ended && plan->end.what == PLAN_FALLBACK);
    plan->terms.fallbacks = 0;
    give_up(plan, now_ns);
    return plan->end;
}

int64_t plan_hold_left_ns(const struct plan *plan)
{
    if (plan->terms.retry_hold_ns == CLOCK_NEVER)
        return CLOCK_NEVER;
    return plan->hold_wait_ns < plan->terms.retry_hold_ns
               ? plan->terms.retry_hold_ns - plan->hold_wait_ns
               : 0;
}

void plan_held(struct plan *plan, int64_t wait_ns)
{
    plan->hold_wait_ns = later_ns(plan->hold_wait_ns, wait_ns);
}

int64_t plan_flow_left_ns(const struct plan *plan)
{
    if (!plan->terms.has_flow)
        return CLOCK_NEVER;
    return plan->flow_waited_ns < plan->terms.flow_wait_ns
               ? plan->terms.flow_wait_ns - plan->flow_waited_ns
               : 0;
}

void plan_waited_in_flow(struct plan *plan, int64_t wait_ns)
{
    plan->flow_waited_ns = later_ns(plan->flow_waited_ns, wait_ns);
}

bool plan_is_last_hope(const struct plan *plan)
{
    uint64_t others = allowed(plan);
    unsigned running = 0;

    for (unsigned i = 0; i < PLAN_LANES; i++) {
        /* A pair's failures are weighed against each other first (D13). */
        if (plan->lanes[i].state == LANE_FAILED)
            return false;
        if (plan->lanes[i].state != LANE_RUNNING)
            continue;
        running++;
        others &= ~bit(plan->lanes[i].candidate);
    }
    if (running > 1 || hedge_due_ns(plan) != CLOCK_NEVER || plan->terms.fallbacks > 0)
        return false;
    return !may_follow(plan, VERDICT_REAL) && !may_follow(plan, VERDICT_THROTTLED) &&
           (others == 0 || !may_follow(plan, VERDICT_ROTATE));
}
