/*
 * test_plan.c - the plan's contract with its caller, its masks and its jitter. The rules of timing are
 * scenarios: tests/scenarios, where run_random.c shows what holds whatever happens.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "worker/plan.h"

#include <string.h>

#define S NS_PER_S

static struct plan_terms terms_of(unsigned candidates)
{
    return (struct plan_terms){.retry_budget = 2,
                               .throttle_retries = true,
                               .may_hedge = candidates > 1,
                               .candidates = candidates,
                               .hedge_after_ns = 2 * S,
                               .stall_budget_ns = 1200 * S,
                               .backoff_base_ns = S / 2,
                               .backoff_max_ns = 8 * S,
                               .retry_hold_ns = CLOCK_NEVER,
                               .deadline_ns = CLOCK_NEVER};
}

static const struct plan_terms direct_terms = {.candidates = 1,
                                               .hedge_after_ns = CLOCK_NEVER,
                                               .stall_budget_ns = CLOCK_NEVER,
                                               .retry_hold_ns = CLOCK_NEVER,
                                               .deadline_ns = CLOCK_NEVER};

static struct judgement judged(enum attempt_class class, int64_t retry_after_ms)
{
    return (struct judgement){.class = class, .retry_after_ms = retry_after_ms, .should_retry = -1};
}

static void fail_lane(struct plan *plan, unsigned lane, enum attempt_class class, int64_t now_ns)
{
    struct judgement judgement = judged(class, -1);

    plan_failed(plan, lane, &judgement, true, now_ns);
}

static void begin_started(struct plan *plan, const struct plan_terms *terms)
{
    plan_begin(plan, terms, 1);
    assert_int_equal(plan_next(plan, 0).what, PLAN_START);
    plan_started(plan, 0, 0, 0);
}

/* All waits with a slot count together: backoffs, and waits for an admission. */
static void n1_what_was_waited_with_a_slot_is_taken_from_what_may_be(void **state)
{
    struct plan_terms terms = terms_of(1);
    struct plan plan;

    (void)state;
    plan_begin(&plan, &terms, 1);
    plan_held(&plan, S);
    assert_int_equal(plan_hold_left_ns(&plan), CLOCK_NEVER);
    terms.retry_hold_ns = 5 * S;
    terms.backoff_base_ns = terms.backoff_max_ns = 0;
    begin_started(&plan, &terms);
    assert_int_equal(plan_hold_left_ns(&plan), 5 * S);
    plan_held(&plan, 2 * S);
    assert_int_equal(plan_hold_left_ns(&plan), 3 * S);
    plan_held(&plan, 4 * S);
    assert_int_equal(plan_hold_left_ns(&plan), 0);
    fail_lane(&plan, 0, ATTEMPT_TRANSIENT, S);
    assert_int_equal(plan_next(&plan, S).what, PLAN_ANSWER); /* no wait is left, not even of 0 */
}

static void a_call_asked_twice_without_news_the_plan_says_the_same(void **state)
{
    struct plan_terms terms = terms_of(3);
    struct plan plan;

    (void)state;
    plan_begin(&plan, &terms, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(plan_next(&plan, 0).what, PLAN_START);
    plan_started(&plan, 0, 0, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(plan_next(&plan, S).what, PLAN_WAIT);
        assert_int_equal(plan_next(&plan, S).until_ns, 2 * S);
    }
    for (int i = 0; i < 2; i++)
        assert_true(plan_next(&plan, 2 * S).hedge);
    plan_started(&plan, 1, 1, 2 * S);
    assert_int_equal(plan_next(&plan, 2 * S).until_ns, CLOCK_NEVER);
    plan_content(&plan, 1, 3 * S);
    for (int i = 0; i < 2; i++) {
        struct plan_step step = plan_next(&plan, 3 * S);

        assert_int_equal(step.what, PLAN_CANCEL);
        assert_int_equal(step.lane, 0);
        assert_int_equal(step.why, PLAN_LOST);
    }
    plan_cancelled(&plan, 0, 3 * S);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(plan_next(&plan, (3 + i) * S).what, PLAN_COMMIT);
        assert_int_equal(plan_next(&plan, (3 + i) * S).lane, 1);
        assert_int_equal(plan.end.should_retry, -1);
        assert_int_equal(plan.end.retry_after_ms, -1);
    }
}

static void b6_a_deadline_that_has_passed_before_the_first_attempt(void **state)
{
    struct plan_terms terms = terms_of(2);
    struct plan plan;

    (void)state;
    terms.deadline_ns = 5 * S;
    plan_begin(&plan, &terms, 1);
    assert_int_equal(plan_next(&plan, 5 * S).what, PLAN_FAIL);
    assert_int_equal(plan_next(&plan, 5 * S).fail, PLAN_FAIL_DEADLINE);
    assert_int_equal(plan.rounds, 0);
}

static void b6_woken_late_from_a_wait_nothing_starts_past_the_deadline(void **state)
{
    struct plan_terms terms = terms_of(1);
    struct plan plan;

    (void)state;
    terms.deadline_ns = 5 * S;
    begin_started(&plan, &terms);
    fail_lane(&plan, 0, ATTEMPT_TRANSIENT, S);
    assert_int_equal(plan_next(&plan, S).what, PLAN_WAIT);
    assert_int_equal(plan_next(&plan, 6 * S).what, PLAN_ANSWER);
}

static void d7_content_of_both_in_one_round_of_poll_is_the_primarys(void **state)
{
    struct plan_terms terms = terms_of(2);
    struct plan plan;

    (void)state;
    begin_started(&plan, &terms);
    plan_started(&plan, 1, 1, 2 * S);
    plan_content(&plan, 0, 3 * S);
    plan_content(&plan, 1, 3 * S);
    assert_int_equal(plan_next(&plan, 3 * S).what, PLAN_CANCEL);
    plan_cancelled(&plan, 1, 3 * S);
    assert_int_equal(plan_next(&plan, 3 * S).what, PLAN_COMMIT);
    assert_int_equal(plan.end.lane, 0);
    assert_false(plan.hedge_won);
}

/* The caller may learn of content while it admits the hedge: it then gives the permit back. */
static void d9_content_between_the_wish_for_a_hedge_and_its_start(void **state)
{
    struct plan_terms terms = terms_of(2);
    struct plan plan;

    (void)state;
    begin_started(&plan, &terms);
    assert_true(plan_next(&plan, 2 * S).hedge);
    plan_content(&plan, 0, 2 * S);
    assert_int_equal(plan_next(&plan, 2 * S).what, PLAN_COMMIT);
    assert_int_equal(plan.hedges, 0);
    assert_int_equal(plan.hedges_skipped, 0);
}

static void d9_a_hedge_taken_back_was_never_sent_and_is_the_only_one_of_its_round(void **state)
{
    struct plan_terms terms = terms_of(3);
    struct plan plan;

    (void)state;
    begin_started(&plan, &terms);
    plan_started(&plan, 1, 1, 2 * S);
    plan_content(&plan, 0, 3 * S);
    assert_int_equal(plan_next(&plan, 3 * S).what, PLAN_CANCEL);
    plan_taken_back(&plan, 1, 3 * S);
    assert_int_equal(plan_next(&plan, 3 * S).what, PLAN_COMMIT);
    assert_int_equal(plan.hedges, 0);
}

static void d16_masks_of_a_hedge_leave_out_primary_excluded_and_throttled(void **state)
{
    struct plan_terms terms = terms_of(5);
    struct judgement throttled = judged(ATTEMPT_THROTTLE, 30000);
    struct plan plan;
    struct plan_step step;

    (void)state;
    begin_started(&plan, &terms);
    fail_lane(&plan, 0, ATTEMPT_MONEY, S);
    step = plan_next(&plan, S);
    assert_int_equal(step.excluded, 0x01);
    plan_started(&plan, 0, 1, S);
    plan_failed(&plan, 0, &throttled, true, S);
    step = plan_next(&plan, S);
    assert_int_equal(step.excluded, 0x03); /* no going back yet */
    plan_started(&plan, 0, 2, S);
    step = plan_next(&plan, 3 * S);
    assert_true(step.hedge);
    assert_int_equal(step.lane, 1);
    assert_int_equal(step.excluded, 0x07);
    assert_int_equal(step.tried, 0x07);
}

static void h3_masks_of_going_back_leave_out_who_is_not_ready(void **state)
{
    struct plan_terms terms = terms_of(3);
    struct judgement soon = judged(ATTEMPT_THROTTLE, 1000);
    struct judgement late = judged(ATTEMPT_THROTTLE, 30000);
    struct plan plan;
    struct plan_step step;

    (void)state;
    begin_started(&plan, &terms);
    plan_failed(&plan, 0, &late, true, 0);
    assert_int_equal(plan_next(&plan, 0).what, PLAN_START);
    plan_started(&plan, 0, 1, 0);
    plan_failed(&plan, 0, &soon, true, 0);
    assert_int_equal(plan_next(&plan, 0).what, PLAN_START);
    plan_started(&plan, 0, 2, 0);
    plan_failed(&plan, 0, &late, true, 0);
    step = plan_next(&plan, 0);
    assert_int_equal(step.what, PLAN_WAIT);
    assert_in_range(step.until_ns, S, S + S / 2);
    step = plan_next(&plan, step.until_ns);
    assert_int_equal(step.what, PLAN_START);
    assert_int_equal(step.excluded, 0x05);
}

static void i30_a_throttled_account_is_left_alone_as_a_whole(void **state)
{
    static const uint64_t accounts[] = {0x03, 0x03, 0x04};
    struct plan_terms terms = terms_of(3);
    struct judgement throttled = judged(ATTEMPT_THROTTLE, 30000);
    struct plan plan;

    (void)state;
    terms.accounts = accounts;
    begin_started(&plan, &terms);
    plan_failed(&plan, 0, &throttled, true, 0);
    assert_int_equal(plan_next(&plan, 0).excluded, 0x03);
    plan_started(&plan, 0, 2, 0);
    fail_lane(&plan, 0, ATTEMPT_TRANSIENT, 0);
    assert_int_equal(plan_next(&plan, 0).what, PLAN_WAIT);
    assert_int_equal(plan_next(&plan, 10 * S).excluded, 0x03);
}

static void h1_a_full_source_is_asked_again_in_ticks(void **state)
{
    struct plan_terms terms = terms_of(1);
    struct plan plan;
    struct plan_step step = {.what = PLAN_START};
    int64_t now_ns = 0;
    unsigned asked = 0;

    (void)state;
    plan_begin(&plan, &terms, 1);
    while (now_ns < PLAN_ADMISSION_WAIT_MAX_MS * NS_PER_MS) {
        step = plan_next(&plan, now_ns);
        assert_int_equal(step.what, PLAN_START);
        asked++;
        plan_not_admitted(&plan, 0, PLAN_REFUSED_BUSY, CLOCK_NEVER, now_ns);
        step = plan_next(&plan, now_ns);
        assert_int_equal(step.what, PLAN_WAIT);
        assert_in_range(step.until_ns - now_ns, 1, PLAN_ADMISSION_TICK_MS * NS_PER_MS);
        now_ns = step.until_ns;
    }
    assert_int_equal(asked, PLAN_ADMISSION_WAIT_MAX_MS / PLAN_ADMISSION_TICK_MS);
    assert_int_equal(plan_next(&plan, now_ns).what, PLAN_START);
    plan_not_admitted(&plan, 0, PLAN_REFUSED_BUSY, now_ns + 3 * S, now_ns);
    step = plan_next(&plan, now_ns);
    assert_int_equal(step.fail, PLAN_FAIL_BUSY);
    assert_int_equal(step.retry_after_ms, 3000);
    plan_begin(&plan, &terms, 1); /* a refusal that knows of something sooner */
    assert_int_equal(plan_next(&plan, S).what, PLAN_START);
    plan_not_admitted(&plan, 0, PLAN_REFUSED_BUSY, S + 7, S);
    assert_int_equal(plan_next(&plan, S).until_ns, S + 7);
}

static void h3_times_beyond_all_measure_do_not_overflow(void **state)
{
    struct plan_terms terms = terms_of(PLAN_CANDIDATES_MAX);
    struct judgement judgement = judged(ATTEMPT_THROTTLE, INT64_MAX);
    struct plan plan;
    struct plan_step step;

    (void)state;
    terms.hedge_after_ns = CLOCK_NEVER - 1;
    terms.backoff_base_ns = CLOCK_NEVER - 1;
    terms.backoff_max_ns = CLOCK_NEVER;
    begin_started(&plan, &terms);
    assert_int_equal(plan_next(&plan, S).until_ns, CLOCK_NEVER - 1);
    plan_failed(&plan, 0, &judgement, true, S);
    step = plan_next(&plan, S);
    assert_int_equal(step.what, PLAN_START);
    plan_started(&plan, 0, PLAN_CANDIDATES_MAX - 1, S);
    assert_int_equal(plan.tried, UINT64_C(1) << 63 | 1);
    judgement.class = ATTEMPT_REQUEST;
    plan_failed(&plan, 0, &judgement, true, S);
    assert_int_equal(plan_next(&plan, S).what, PLAN_ANSWER);
}

/* Full jitter: anything from nothing to the bound, each as likely; not a little around it. */
static void h3_the_jitter_is_full(void **state)
{
    struct plan_terms terms = terms_of(1);
    unsigned quarters[4] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        struct plan plan;
        struct plan_step step;

        plan_begin(&plan, &terms, seed);
        assert_int_equal(plan_next(&plan, 0).what, PLAN_START);
        plan_started(&plan, 0, 0, 0);
        fail_lane(&plan, 0, ATTEMPT_TRANSIENT, 0);
        step = plan_next(&plan, 0);
        if (step.what == PLAN_START) /* a jitter of nothing */
            step.until_ns = 0;
        assert_in_range(step.until_ns, 0, terms.backoff_base_ns);
        quarters[step.until_ns * 4 / (terms.backoff_base_ns + 1)]++;
    }
    for (unsigned i = 0; i < 4; i++)
        assert_in_range(quarters[i], 900, 1100);
}

/* F2: and from the least to the bound where there is a least, also at the first wait. */
static void f2_no_wait_is_shorter_than_the_least(void **state)
{
    struct plan_terms terms = terms_of(1);
    int64_t shortest[2] = {CLOCK_NEVER, CLOCK_NEVER}, longest[2] = {0};

    (void)state;
    terms.backoff_least_ns = S;
    terms.backoff_base_ns = 2 * S;
    terms.backoff_max_ns = 60 * S;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct plan plan;
        int64_t now_ns = 0;

        plan_begin(&plan, &terms, seed);
        for (unsigned n = 0; n < 2; n++) {
            int64_t until_ns;

            assert_int_equal(plan_next(&plan, now_ns).what, PLAN_START);
            plan_started(&plan, 0, 0, now_ns);
            fail_lane(&plan, 0, ATTEMPT_THROTTLE, now_ns);
            until_ns = plan_next(&plan, now_ns).until_ns;
            shortest[n] = clock_earlier(shortest[n], until_ns - now_ns);
            longest[n] = until_ns - now_ns > longest[n] ? until_ns - now_ns : longest[n];
            now_ns = until_ns;
        }
    }
    for (unsigned n = 0; n < 2; n++) {
        const int64_t bound_ns = 2 * S << n, tenth_ns = (bound_ns - S) / 10;

        assert_in_range(shortest[n], S, S + tenth_ns);
        assert_in_range(longest[n], bound_ns - tenth_ns, bound_ns);
    }
}

/* base * 2^n, as far as backoff_max: with many seeds the longest wait comes close to its bound. */
static void h3_the_bound_of_the_jitter_doubles(void **state)
{
    static const int64_t bounds_ms[] = {500, 1000, 2000, 4000, 8000, 8000, 8000};
    enum { ROUNDS = sizeof bounds_ms / sizeof *bounds_ms };
    struct plan_terms terms = terms_of(1);
    int64_t longest_ms[ROUNDS] = {0};

    (void)state;
    terms.retry_budget = ROUNDS;
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct plan plan;
        struct plan_step step;
        int64_t now_ns = 0;

        plan_begin(&plan, &terms, seed);
        for (unsigned i = 0; i < ROUNDS; i++) {
            assert_int_equal(plan_next(&plan, now_ns).what, PLAN_START);
            plan_started(&plan, 0, 0, now_ns);
            fail_lane(&plan, 0, ATTEMPT_TRANSIENT, now_ns);
            step = plan_next(&plan, now_ns);
            if (step.what == PLAN_START)
                continue;
            assert_in_range(step.until_ns - now_ns, 1, bounds_ms[i] * NS_PER_MS);
            if ((step.until_ns - now_ns) / NS_PER_MS > longest_ms[i])
                longest_ms[i] = (step.until_ns - now_ns) / NS_PER_MS;
            now_ns = step.until_ns;
        }
    }
    for (unsigned i = 0; i < ROUNDS; i++)
        assert_in_range(longest_ms[i], bounds_ms[i] * 95 / 100, bounds_ms[i]);
}

static void h3_the_jitter_on_retry_after_is_upward_only(void **state)
{
    struct plan_terms terms = terms_of(1);
    struct judgement throttled = judged(ATTEMPT_THROTTLE, 10000);
    unsigned halves[2] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        struct plan plan;
        struct plan_step step;

        plan_begin(&plan, &terms, seed);
        assert_int_equal(plan_next(&plan, 0).what, PLAN_START);
        plan_started(&plan, 0, 0, 0);
        plan_failed(&plan, 0, &throttled, true, 0);
        step = plan_next(&plan, 0);
        assert_int_equal(step.what, PLAN_WAIT);
        assert_in_range(step.until_ns, 10 * S, 15 * S);
        halves[step.until_ns > 12 * S + S / 2]++;
    }
    assert_in_range(halves[0], 1800, 2200);
}

static void h20_without_a_fallback_that_can_serve_the_429_is_told(void **state)
{
    struct plan_terms terms = terms_of(1);
    struct judgement throttled = judged(ATTEMPT_THROTTLE, 90000);
    struct plan plan;
    struct plan_step step;

    (void)state;
    terms.fallbacks = 2;
    for (int has_answer = 0; has_answer < 2; has_answer++) {
        begin_started(&plan, &terms);
        plan_failed(&plan, 0, &throttled, has_answer, S);
        assert_int_equal(plan_next(&plan, S).what, PLAN_FALLBACK);
        step = plan_without_fallback(&plan, S);
        assert_int_equal(step.what, has_answer ? PLAN_ANSWER : PLAN_FAIL);
        assert_int_equal(step.retry_after_ms, 90000);
        assert_int_equal(step.should_retry, 1);
        assert_int_equal(plan_next(&plan, S).what, step.what);
    }
    plan_begin(&plan, &terms, 1);
    assert_int_equal(plan_next(&plan, S).what, PLAN_START);
    plan_not_admitted(&plan, 0, PLAN_REFUSED_QUOTA, CLOCK_NEVER, S);
    assert_int_equal(plan_next(&plan, S).what, PLAN_FALLBACK);
    assert_int_equal(plan_without_fallback(&plan, S).fail, PLAN_FAIL_NO_SOURCE);
}

/* ---- the last hope ---------------------------------------------------------------------------- */

static bool is_last(const struct plan_terms *terms)
{
    struct plan plan;

    begin_started(&plan, terms);
    return plan_is_last_hope(&plan);
}

static void h4_last_hope_is_when_nothing_could_follow(void **state)
{
    struct plan_terms terms = direct_terms;

    (void)state;
    assert_true(is_last(&terms));
    terms.retry_budget = 1;
    assert_false(is_last(&terms));
    terms = direct_terms;
    terms.throttle_retries = true;
    assert_false(is_last(&terms));
    terms = direct_terms;
    terms.candidates = 2; /* another account may have money */
    assert_false(is_last(&terms));
    terms = direct_terms;
    terms.fallbacks = 1;
    assert_false(is_last(&terms));
    terms = direct_terms;
    terms.candidates = 2;
    terms.stall_budget_ns = 0;
    assert_true(is_last(&terms));
    terms.may_hedge = true;
    terms.hedge_after_ns = 2 * S;
    assert_false(is_last(&terms));
    terms.deadline_ns = 2 * S; /* the hedge would come too late */
    assert_true(is_last(&terms));
}

static void h4_last_hope_after_the_budget_is_used_up(void **state)
{
    struct plan_terms terms = direct_terms;
    struct plan plan;

    (void)state;
    terms.retry_budget = 1;
    begin_started(&plan, &terms);
    assert_false(plan_is_last_hope(&plan));
    fail_lane(&plan, 0, ATTEMPT_TRANSIENT, S);
    assert_int_equal(plan_next(&plan, S).what, PLAN_START);
    plan_started(&plan, 0, 0, S);
    assert_true(plan_is_last_hope(&plan));
}

static void d5_neither_of_two_is_the_last_hope(void **state)
{
    struct plan_terms terms = terms_of(2);
    struct plan plan;

    (void)state;
    terms.retry_budget = 0;
    terms.stall_budget_ns = 0;
    begin_started(&plan, &terms);
    plan_started(&plan, 1, 1, 2 * S);
    assert_false(plan_is_last_hope(&plan));
    fail_lane(&plan, 0, ATTEMPT_REQUEST, 3 * S); /* would be told rather than the hedge's error */
    assert_false(plan_is_last_hope(&plan));
}

static void h4_last_hope_once_the_hedge_was_refused(void **state)
{
    struct plan_terms terms = terms_of(2);
    struct plan plan;

    (void)state;
    terms.stall_budget_ns = 0;
    begin_started(&plan, &terms);
    assert_false(plan_is_last_hope(&plan));
    plan_not_admitted(&plan, 1, PLAN_REFUSED_BUSY, CLOCK_NEVER, 2 * S);
    assert_true(plan_is_last_hope(&plan));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(n1_what_was_waited_with_a_slot_is_taken_from_what_may_be),
        cmocka_unit_test(a_call_asked_twice_without_news_the_plan_says_the_same),
        cmocka_unit_test(b6_a_deadline_that_has_passed_before_the_first_attempt),
        cmocka_unit_test(b6_woken_late_from_a_wait_nothing_starts_past_the_deadline),
        cmocka_unit_test(d7_content_of_both_in_one_round_of_poll_is_the_primarys),
        cmocka_unit_test(d9_content_between_the_wish_for_a_hedge_and_its_start),
        cmocka_unit_test(d9_a_hedge_taken_back_was_never_sent_and_is_the_only_one_of_its_round),
        cmocka_unit_test(d16_masks_of_a_hedge_leave_out_primary_excluded_and_throttled),
        cmocka_unit_test(h3_masks_of_going_back_leave_out_who_is_not_ready),
        cmocka_unit_test(i30_a_throttled_account_is_left_alone_as_a_whole),
        cmocka_unit_test(h1_a_full_source_is_asked_again_in_ticks),
        cmocka_unit_test(h3_times_beyond_all_measure_do_not_overflow),
        cmocka_unit_test(h3_the_jitter_is_full),
        cmocka_unit_test(f2_no_wait_is_shorter_than_the_least),
        cmocka_unit_test(h3_the_bound_of_the_jitter_doubles),
        cmocka_unit_test(h3_the_jitter_on_retry_after_is_upward_only),
        cmocka_unit_test(h20_without_a_fallback_that_can_serve_the_429_is_told),
        cmocka_unit_test(h4_last_hope_is_when_nothing_could_follow),
        cmocka_unit_test(h4_last_hope_after_the_budget_is_used_up),
        cmocka_unit_test(d5_neither_of_two_is_the_last_hope),
        cmocka_unit_test(h4_last_hope_once_the_hedge_was_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
