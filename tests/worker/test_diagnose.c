/* test_diagnose.c - limits and patterns are told from exchanges whose pattern is known (F12). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/diagnose_traffic.h"

static struct traffic traffic;

/* Looked at whole; the one limit that was met. */
static const struct diagnose_finding *look(enum diagnose_limit limit)
{
    assert_true(diagnose_look(&traffic.flow, TRAFFIC_BEGIN_MS));
    for (unsigned i = 0; i < DIAGNOSE_LIMITS; i++)
        if (i != (unsigned)limit && traffic.flow.findings[i].count > 0)
            fail_msg("%zu of %s", traffic.flow.findings[i].count,
                     diagnose_limit_name((enum diagnose_limit)i));
    assert_int_equal(traffic.flow.findings[limit].count, traffic.flow.refused);
    assert_int_equal(traffic.flow.attempts, traffic.flow.count);
    assert_string_equal(traffic.flow.findings[limit].code, "some_code");
    return &traffic.flow.findings[limit];
}

static void a_quota_per_minute_is_intermittent_F12(void **state)
{
    const struct diagnose_finding *finding;

    (void)state;
    traffic_begin(&traffic, 0, 0);
    traffic_of_a_used_up_minute(&traffic, "requests");
    finding = look(DIAGNOSE_RPM);
    assert_int_equal(finding->pattern, DIAGNOSE_INTERMITTENT);
    assert_int_equal(finding->count, 100);
    assert_int_equal(finding->minutes, 10);
    assert_int_equal(finding->sends_60s, 111); /* at the end of the first minute */
}

static void a_limit_per_second_is_met_at_surges_F12(void **state)
{
    (void)state;
    traffic_begin(&traffic, 0, 0);
    traffic_of_surges(&traffic, "requests");
    assert_int_equal(look(DIAGNOSE_RPS)->pattern, DIAGNOSE_AT_SURGES);
    assert_int_equal(traffic.flow.findings[DIAGNOSE_RPS].percent, 100);
    traffic_begin(&traffic, 0, 0);
    traffic_of_surges(&traffic, "tokens");
    assert_int_equal(look(DIAGNOSE_TPS)->pattern, DIAGNOSE_AT_SURGES);
}

static void growth_is_refused_at_starts_F12(void **state)
{
    (void)state;
    traffic_begin(&traffic, 0, 0);
    traffic_of_starts(&traffic, "burst");
    assert_int_equal(look(DIAGNOSE_BURST)->pattern, DIAGNOSE_AT_START);
    assert_int_equal(traffic.flow.findings[DIAGNOSE_BURST].percent, 100);
    assert_int_equal(traffic.flow.findings[DIAGNOSE_BURST].count, 48);
    traffic_begin(&traffic, 0, 0); /* the same with a code that does not say */
    traffic_of_starts(&traffic, "requests");
    assert_int_equal(look(DIAGNOSE_RPS)->pattern, DIAGNOSE_AT_START);
}

static void long_texts_are_told_by_their_length_F12(void **state)
{
    (void)state;
    traffic_begin(&traffic, 0, 0);
    traffic_of_long_texts(&traffic, "tpm");
    assert_int_equal(look(DIAGNOSE_TPM)->pattern, DIAGNOSE_LONG_TEXTS);
    assert_int_equal(traffic.flow.findings[DIAGNOSE_TPM].long_ratio_percent, 1000);
}

static void what_is_never_answered_again_is_told_F12(void **state)
{
    (void)state;
    traffic_begin(&traffic, 0, 0);
    for (unsigned i = 0; i < 50; i++)
        (void)traffic_good(&traffic, 3000);
    for (unsigned i = 0; i < 50; i++)
        (void)traffic_refused(&traffic, "money", 3000);
    assert_int_equal(look(DIAGNOSE_MONEY)->pattern, DIAGNOSE_ALL);
}

static void few_refusals_show_no_pattern(void **state)
{
    (void)state;
    traffic_begin(&traffic, 0, 0);
    for (unsigned i = 0; i < 50; i++)
        (void)traffic_good(&traffic, 3000);
    (void)traffic_refused(&traffic, "a word of a later version", 10);
    (void)traffic_refused(&traffic, "unknown", 10);
    (void)traffic_good(&traffic, 10);
    assert_int_equal(look(DIAGNOSE_UNKNOWN)->pattern, DIAGNOSE_FEW);
}

/* Who knows the quota needs no pattern: it was used, or it was not. */
static void a_known_quota_decides_F12(void **state)
{
    (void)state;
    traffic_begin(&traffic, 130, 0);
    traffic_of_a_used_up_minute(&traffic, "requests");
    assert_true(look(DIAGNOSE_RPM)->count == 100);
    traffic_begin(&traffic, 200, 0);
    traffic_of_a_used_up_minute(&traffic, "requests");
    assert_true(look(DIAGNOSE_RPS)->count == 100);
    traffic_begin(&traffic, 0, 13000); /* 120 a minute, of 100 tokens */
    traffic_of_a_used_up_minute(&traffic, "tokens");
    assert_true(look(DIAGNOSE_TPM)->count == 100);
    assert_int_equal(traffic.flow.findings[DIAGNOSE_TPM].tokens_60s, 11100);
    traffic_begin(&traffic, 0, 20000);
    traffic_of_a_used_up_minute(&traffic, "tokens");
    assert_true(look(DIAGNOSE_TPS)->count == 100);
}

static void what_was_told_apart_already_stays(void **state)
{
    (void)state;
    traffic_begin(&traffic, 1000, 0);
    traffic_of_a_used_up_minute(&traffic, "rpm");
    assert_int_equal(look(DIAGNOSE_RPM)->count, 100);
}

static void the_least_in_progress_is_known(void **state)
{
    (void)state;
    traffic_begin(&traffic, 0, 0);
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 8 + round; i++) /* all of them run for two seconds */
            (void)traffic_good(&traffic, 100);
        (void)traffic_refused(&traffic, "saturation", 5000);
    }
    assert_int_equal(look(DIAGNOSE_SATURATION)->in_progress, 9);
}

/* What came before the time that is asked for is no finding, but it was there. */
static void what_came_before_is_not_counted_and_not_forgotten(void **state)
{
    struct diagnose_finding *finding = &traffic.flow.findings[DIAGNOSE_BURST];

    (void)state;
    traffic_begin(&traffic, 0, 0);
    for (unsigned i = 0; i < 100; i++)
        (void)traffic_refused(&traffic, "burst", 500);
    (void)traffic_good(&traffic, 500);
    assert_true(diagnose_look(&traffic.flow, TRAFFIC_BEGIN_MS + 45000));
    assert_int_equal(traffic.flow.attempts, 11);
    assert_int_equal(finding->count, 10);
    assert_int_equal(finding->sends_60s, 91);
    assert_int_not_equal(finding->pattern, DIAGNOSE_AT_START); /* that was 45 seconds ago */
}

static void nothing_is_no_finding(void **state)
{
    (void)state;
    traffic_begin(&traffic, 0, 0);
    assert_true(diagnose_look(&traffic.flow, TRAFFIC_BEGIN_MS));
    assert_int_equal(traffic.flow.attempts, 0);
    for (unsigned i = 0; i < 40; i++) { /* more codes than are kept */
        char code[16] = {(char)('a' + i % 26), (char)('a' + i / 26), '\0'};

        assert_in_range(diagnose_code(&traffic.flow, code), i < DIAGNOSE_CODES ? i + 1 : 0,
                        i < DIAGNOSE_CODES ? i + 1 : 0);
    }
    assert_int_equal(diagnose_code(&traffic.flow, ""), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quota_per_minute_is_intermittent_F12),
        cmocka_unit_test(a_limit_per_second_is_met_at_surges_F12),
        cmocka_unit_test(growth_is_refused_at_starts_F12),
        cmocka_unit_test(long_texts_are_told_by_their_length_F12),
        cmocka_unit_test(what_is_never_answered_again_is_told_F12),
        cmocka_unit_test(few_refusals_show_no_pattern),
        cmocka_unit_test(a_known_quota_decides_F12),
        cmocka_unit_test(what_was_told_apart_already_stays),
        cmocka_unit_test(the_least_in_progress_is_known),
        cmocka_unit_test(what_came_before_is_not_counted_and_not_forgotten),
        cmocka_unit_test(nothing_is_no_finding),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
