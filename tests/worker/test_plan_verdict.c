/*
 * test_plan_verdict.c - the verdict of every class alone and of every pair (R20 to R23, D12, D13), and
 * whom a failure excludes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/plan_verdict.h"

static struct verdict verdict_of(enum attempt_class primary, enum attempt_class hedge,
                                 bool unknown_too)
{
    struct plan_lane lanes[PLAN_LANES] = {
        {.state = LANE_FAILED, .has_answer = true, .judgement = {.class = primary}},
        {.state = LANE_FAILED, .has_answer = true, .judgement = {.class = hedge}}};
    struct verdict verdict;

    if (hedge == ATTEMPT_OK) /* there was none */
        lanes[1].state = LANE_IDLE;
    verdict_of_round(lanes, unknown_too, &verdict);
    return verdict;
}

static const enum attempt_class alone = ATTEMPT_OK;

static void h2_h3_each_class_alone(void **state)
{
    static const struct {
        enum attempt_class class;
        enum verdict_kind kind;
        bool refund, throttling;
        int should_retry;
    } rows[] = {
        {ATTEMPT_THROTTLE, VERDICT_THROTTLED, true, true, 1},
        {ATTEMPT_QUOTA_DAY, VERDICT_ROTATE, true, true, 0},
        {ATTEMPT_MONEY, VERDICT_ROTATE, false, false, 0},
        {ATTEMPT_CREDENTIAL, VERDICT_ROTATE, false, false, 0},
        {ATTEMPT_REQUEST, VERDICT_END, false, false, -1},
        {ATTEMPT_TRANSIENT, VERDICT_REAL, false, false, 0},
        {ATTEMPT_UNSENT, VERDICT_REAL, false, false, 0},
        {ATTEMPT_UNKNOWN, VERDICT_REAL, false, false, 0},
        {ATTEMPT_OURS, VERDICT_END, false, false, -1},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct verdict verdict = verdict_of(rows[i].class, alone, true);

        assert_int_equal(verdict.kind, rows[i].kind);
        assert_int_equal(verdict.lane, 0);
        assert_int_equal(verdict.refund, rows[i].refund);
        assert_int_equal(verdict_is_throttling(rows[i].class), rows[i].throttling);
        for (int said = -1; said <= 1; said++) {
            const struct judgement judgement = {.class = rows[i].class, .should_retry = said};

            assert_int_equal(verdict_should_retry(&judgement),
                             rows[i].should_retry >= 0 ? rows[i].should_retry : said);
        }
    }
}

static void r22_r23_only_throttlings_are_free_and_refunded(void **state)
{
    static const enum attempt_class real[] = {ATTEMPT_TRANSIENT, ATTEMPT_UNSENT, ATTEMPT_UNKNOWN};
    struct verdict verdict = verdict_of(ATTEMPT_THROTTLE, ATTEMPT_THROTTLE, true);

    (void)state;
    assert_int_equal(verdict.kind, VERDICT_THROTTLED);
    assert_true(verdict.refund);
    for (size_t i = 0; i < LENGTH(real); i++) {
        for (size_t j = 0; j < LENGTH(real); j++)
            assert_int_equal(verdict_of(real[i], real[j], true).kind, VERDICT_REAL);
        verdict = verdict_of(real[i], ATTEMPT_THROTTLE, true);
        assert_int_equal(verdict.kind, VERDICT_REAL);
        assert_int_equal(verdict.lane, 0);
        assert_false(verdict.refund);
        verdict = verdict_of(ATTEMPT_THROTTLE, real[i], true);
        assert_int_equal(verdict.kind, VERDICT_REAL);
        assert_int_equal(verdict.lane, 1);
        assert_false(verdict.refund);
    }
}

static void d12_a_fault_of_the_request_ends_every_pair_and_is_told(void **state)
{
    (void)state;
    for (unsigned i = ATTEMPT_THROTTLE; i <= ATTEMPT_OURS; i++) {
        struct verdict verdict = verdict_of(ATTEMPT_REQUEST, (enum attempt_class)i, true);

        assert_int_equal(verdict.kind, VERDICT_END);
        assert_int_equal(verdict.lane, 0);
        assert_false(verdict.refund);
        verdict = verdict_of((enum attempt_class)i, ATTEMPT_REQUEST, true);
        assert_int_equal(verdict.kind, VERDICT_END);
        assert_int_equal(verdict.lane, i == ATTEMPT_REQUEST ? 0 : 1);
    }
}

static void n5_an_unknown_outcome_in_a_pair_bars_a_retry_unless_allowed(void **state)
{
    (void)state;
    for (unsigned i = ATTEMPT_THROTTLE; i <= ATTEMPT_OURS; i++) {
        enum attempt_class other = (enum attempt_class)i;
        enum verdict_kind allowed = other == ATTEMPT_REQUEST ? VERDICT_END : VERDICT_REAL;

        assert_int_equal(verdict_of(ATTEMPT_UNKNOWN, other, false).kind, VERDICT_END);
        assert_int_equal(verdict_of(other, ATTEMPT_UNKNOWN, false).kind, VERDICT_END);
        assert_int_equal(verdict_of(ATTEMPT_UNKNOWN, other, true).kind, allowed);
        assert_int_equal(verdict_of(other, ATTEMPT_UNKNOWN, true).kind, allowed);
    }
}

static void d13_who_is_told_of(void **state)
{
    /* Each is told rather than all that come after it. */
    static const enum attempt_class order[] = {ATTEMPT_REQUEST,  ATTEMPT_TRANSIENT,
                                               ATTEMPT_THROTTLE, ATTEMPT_QUOTA_DAY,
                                               ATTEMPT_MONEY,    ATTEMPT_OURS};

    (void)state;
    for (size_t i = 0; i < LENGTH(order); i++) {
        assert_int_equal(verdict_of(order[i], order[i], true).lane, 0);
        for (size_t j = i + 1; j < LENGTH(order); j++) {
            assert_int_equal(verdict_of(order[i], order[j], true).lane, 0);
            assert_int_equal(verdict_of(order[j], order[i], true).lane, 1);
        }
    }
}

static void d13_a_whole_answer_is_told_rather_than_none(void **state)
{
    struct plan_lane lanes[PLAN_LANES] = {
        {.state = LANE_FAILED, .judgement = {.class = ATTEMPT_UNSENT}},
        {.state = LANE_FAILED, .has_answer = true, .judgement = {.class = ATTEMPT_TRANSIENT}}};
    struct verdict verdict;

    (void)state;
    verdict_of_round(lanes, true, &verdict);
    assert_int_equal(verdict.lane, 1);
    lanes[1].judgement.class = ATTEMPT_THROTTLE; /* but not of a lower rank */
    verdict_of_round(lanes, true, &verdict);
    assert_int_equal(verdict.lane, 0);
}

static void our_own_failure_beside_another_does_not_count(void **state)
{
    struct verdict verdict = verdict_of(ATTEMPT_THROTTLE, ATTEMPT_OURS, true);

    (void)state;
    assert_int_equal(verdict.kind, VERDICT_THROTTLED);
    assert_int_equal(verdict.lane, 0);
    assert_true(verdict.refund);
    assert_int_equal(verdict_of(ATTEMPT_OURS, ATTEMPT_TRANSIENT, true).kind, VERDICT_REAL);
    assert_int_equal(verdict_of(ATTEMPT_OURS, ATTEMPT_OURS, true).kind, VERDICT_END);
    assert_false(verdict_of(ATTEMPT_OURS, ATTEMPT_OURS, true).refund);
}

static void i54_whom_a_failure_excludes(void **state)
{
    enum { self = 0x04, account = 0x0c };
    static const struct {
        enum attempt_class class;
        int64_t retry_after_ms;
        int should_retry;
        uint64_t excluded;
    } rows[] = {
        {ATTEMPT_THROTTLE, -1, -1, 0},
        {ATTEMPT_THROTTLE, PLAN_RETRY_AFTER_MAX_MS, -1, 0},
        {ATTEMPT_THROTTLE, PLAN_RETRY_AFTER_MAX_MS + 1, -1, account},
        {ATTEMPT_THROTTLE, -1, 0, self},
        {ATTEMPT_THROTTLE, -1, 1, 0},
        {ATTEMPT_TRANSIENT, PLAN_RETRY_AFTER_MAX_MS + 1, -1, self},
        {ATTEMPT_TRANSIENT, -1, 0, self},
        {ATTEMPT_TRANSIENT, -1, -1, 0},
        {ATTEMPT_UNSENT, -1, -1, 0},
        {ATTEMPT_MONEY, -1, -1, account},
        {ATTEMPT_QUOTA_DAY, -1, -1, account},
        {ATTEMPT_CREDENTIAL, -1, -1, self},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct judgement judgement = {.class = rows[i].class,
                                      .retry_after_ms = rows[i].retry_after_ms,
                                      .should_retry = rows[i].should_retry};

        assert_int_equal(verdict_excludes(&judgement, 2, account), rows[i].excluded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h2_h3_each_class_alone),
        cmocka_unit_test(r22_r23_only_throttlings_are_free_and_refunded),
        cmocka_unit_test(d12_a_fault_of_the_request_ends_every_pair_and_is_told),
        cmocka_unit_test(n5_an_unknown_outcome_in_a_pair_bars_a_retry_unless_allowed),
        cmocka_unit_test(d13_who_is_told_of),
        cmocka_unit_test(d13_a_whole_answer_is_told_rather_than_none),
        cmocka_unit_test(our_own_failure_beside_another_does_not_count),
        cmocka_unit_test(i54_whom_a_failure_excludes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
