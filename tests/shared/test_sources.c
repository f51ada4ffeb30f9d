/* test_sources.c - admission to a source and its end, on passed-in times (H1, H7, H8, H13, R19, D10, D16,
 * I21-I36). Other threads and processes are in test_source_rows.c. */
#include "tests/shared/sources_model.h"

#include "shared/counters.h"
#include "shared/journal.h"

#include <stdlib.h>

#define NOW_NS FIXTURE_NOW_NS
enum { A, B, C, D };

static struct segment segment;
static struct gate gate;
static struct source_candidate all[4];
static struct source_wish wish;
/* b and c are two keys of one account */
static const struct source_name names[] = {
    {"a", ""}, {"b", "account"}, {"c", "account"}, {"d", ""}};

static int open_gate(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 2, 3);
    fixture_register(&gate, names, LENGTH(names), all);
    wish = fixture_wish(all, LENGTH(all), NOW_NS);
    return 0;
}

static int close_gate(void **state)
{
    (void)state;
    fixture_close(&segment);
    return 0;
}

static uint64_t bit(unsigned candidate)
{
    return UINT64_C(1) << candidate;
}

/* Whom does the wish get? The call is over at once, without a verdict. */
static int gets(void)
{
    struct source_answer answer = fixture_admit(&gate, &wish);

    if (answer.verdict != SOURCE_ADMITTED) {
        assert_int_equal(answer.permit.row, NO_INDEX);
        assert_true(answer.earliest_ns > wish.now_ns);
        return -(int)answer.verdict;
    }
    assert_int_equal(answer.permit.row, all[answer.candidate].row);
    fixture_end(&gate, &answer.permit, SOURCE_END_UNJUDGED, wish.now_ns);
    return (int)answer.candidate;
}

static void end_at(unsigned candidate, enum source_end end, int64_t out_ns)
{
    const struct source_wish one = fixture_wish(&all[candidate], 1, NOW_NS);
    struct source_answer answer = fixture_admit(&gate, &one);
    const struct source_outcome outcome = {.end = end,
                                           .terms = fixture_terms(),
                                           .reason = "no_money",
                                           .out_ns = out_ns,
                                           .now_ns = NOW_NS,
                                           .now_wall_ms = 1700000000000};

    assert_int_equal(answer.verdict, SOURCE_ADMITTED);
    source_release(&gate, &answer.permit, &outcome);
}

static void i29_order_and_what_was_tried(void **state)
{
    (void)state;
    assert_int_equal(gets(), A);
    wish.excluded = bit(A);
    assert_int_equal(gets(), B);
    wish.tried = bit(B);
    assert_int_equal(gets(), C);
    wish.tried = bit(B) | bit(C) | bit(D);
    assert_int_equal(gets(), B); /* no other can be had */
    wish.excluded = bit(A) | bit(B) | bit(C) | bit(D);
    assert_int_equal(gets(), -SOURCE_NONE);
    assert_int_equal(fixture_admit(&gate, &wish).earliest_ns, INT64_MAX);
    wish.count = 0;
    wish.excluded = 0;
    assert_int_equal(gets(), -SOURCE_NONE);
}

static void h13_throttled_ones_come_last_and_are_no_hedge(void **state)
{
    (void)state;
    end_at(C, SOURCE_END_THROTTLED, 30 * NS_PER_S);
    end_at(C, SOURCE_END_THROTTLED, 3 * NS_PER_S); /* does not shorten */
    wish.excluded = bit(A);
    assert_int_equal(gets(), D); /* b's account is c's */
    wish.excluded = bit(A) | bit(D);
    assert_int_equal(gets(), B); /* rather than none */
    wish.tried = bit(D);
    wish.excluded = bit(A);
    assert_int_equal(gets(), B); /* not tried yet comes before that */
    wish.tried = 0;
    wish.hedge = true;
    wish.hedge_of = A;
    wish.excluded = bit(D);
    assert_int_equal(gets(), -SOURCE_WAITING);
    assert_int_equal(fixture_admit(&gate, &wish).earliest_ns, NOW_NS + 30 * NS_PER_S);
    wish.now_ns = NOW_NS + 30 * NS_PER_S;
    assert_int_equal(gets(), B);

    end_at(A, SOURCE_END_THROTTLED, 0); /* for how long, it did not say */
    assert_int_equal(fixture_view(&gate, "a", NOW_NS).throttled_for_ns, NS_PER_S);
    end_at(A, SOURCE_END_THROTTLED, INT64_MAX);
    assert_int_equal(fixture_view(&gate, "a", NOW_NS).throttled_for_ns, 300 * NS_PER_S);
    assert_int_equal(fixture_view(&gate, "a", NOW_NS).window_calls, 0);
    assert_int_equal(fixture_view(&gate, "a", NOW_NS).health_permille, 1000);
}

static void d16_a_hedge_goes_to_another_account(void **state)
{
    (void)state;
    wish.hedge = true;
    wish.hedge_of = B;
    wish.excluded = bit(A);
    assert_int_equal(gets(), D); /* not b itself, not c */
    wish.excluded = bit(A) | bit(D);
    assert_int_equal(gets(), -SOURCE_NONE);
    wish.excluded = 0;
    wish.tried = bit(A) | bit(D);
    assert_int_equal(gets(), -SOURCE_NONE);
    wish.tried = 0;
    wish.last_resort = true;
    for (int i = 0; i < 4; i++)
        fixture_call_source(&gate, &all[A], SOURCE_END_FAILURE, NOW_NS);
    assert_int_equal(gets(), A);
    fixture_call_source(&gate, &all[A], SOURCE_END_FAILURE, NOW_NS);
    assert_int_equal(gets(), D);
    wish.excluded = bit(D);
    assert_int_equal(gets(), -SOURCE_OPEN); /* no last resort either */
}

/* How often of 4000 each is drawn. */
static void draw(unsigned ret_times[4])
{
    memset(ret_times, 0, 4 * sizeof *ret_times);
    wish.weighted = true;
    for (unsigned i = 0; i < 4000; i++) {
        wish.random = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);
        ret_times[gets()]++;
    }
}

static void h8_a_draw_goes_by_weight_health_and_speed(void **state)
{
    struct source_row *rows = segment_instance(&segment)->sources;
    unsigned times[4];

    (void)state;
    all[A].weight = 3;
    wish.excluded = bit(C) | bit(D);
    draw(times);
    assert_in_range(times[A], 2900, 3100);
    assert_int_equal(times[A] + times[B], 4000);

    atomic_store(&rows[all[A].row].health_permille, 333);
    draw(times);
    assert_in_range(times[A], 1900, 2100);
    atomic_store(&rows[all[A].row].health_permille, 0); /* a tenth is left to it */
    draw(times);
    assert_in_range(times[A], 823, 1023);

    atomic_store(&rows[all[A].row].health_permille, 1000);
    all[A].weight = 1;
    atomic_store(&rows[all[A].row].latency_ms, 9000);
    atomic_store(&rows[all[B].row].latency_ms, 1000);
    draw(times);
    assert_in_range(times[A], 1233, 1433); /* slower by nine times: half */
    wish.excluded = 0;
    end_at(B, SOURCE_END_THROTTLED, NS_PER_S);
    draw(times); /* under the lock now; c waits with b */
    assert_int_equal(times[B] + times[C], 0);
    assert_in_range(times[A], 1900, 2100); /* the fastest of a and d, where d is not known */
    wish.tried = bit(A) | bit(D);
    draw(times);
    assert_int_equal(times[B] + times[C], 4000);
}

static void h7_a_drained_or_unpaid_source_gets_no_call(void **state)
{
    struct source_outcome out = {.end = SOURCE_END_OUT, .out_ns = NS_PER_S};
    struct source_answer late;

    (void)state;
    wish.excluded = bit(C) | bit(D);
    wish.last_resort = true;
    assert_true(source_drain(&gate, "a", true, 0));
    assert_int_equal(gets(), B);
    end_at(B, SOURCE_END_OUT, 3600 * NS_PER_S);
    assert_int_equal(gets(), -SOURCE_OUT);
    assert_int_equal(fixture_admit(&gate, &wish).earliest_ns, NOW_NS + 3600 * NS_PER_S);
    assert_string_equal(fixture_view(&gate, "b", NOW_NS).out_reason, "no_money");
    assert_int_equal(fixture_view(&gate, "b", NOW_NS).window_calls, 0);
    wish.excluded |= bit(B);
    assert_int_equal(fixture_admit(&gate, &wish).earliest_ns, INT64_MAX);
    wish.excluded &= ~bit(B);
    assert_true(source_drain(&gate, "b", false, 0));
    assert_int_equal(gets(), B);
    late = fixture_admit(&gate, &wish);
    end_at(B, SOURCE_END_OUT, 10 * NS_PER_S);
    out.now_ns = NOW_NS;
    source_release(&gate, &late.permit, &out); /* does not shorten */
    wish.now_ns = NOW_NS + 10 * NS_PER_S - 1;
    assert_int_equal(gets(), -SOURCE_OUT);
    wish.now_ns++;
    assert_int_equal(gets(), B); /* by itself */
    assert_string_equal(fixture_view(&gate, "b", wish.now_ns).out_reason, "");
    assert_true(source_drain(&gate, "a", false, 0));
    assert_int_equal(gets(), A);
}

static void h1_no_more_in_flight_than_allowed(void **state)
{
    struct source_answer held[2];

    (void)state;
    wish.count = 1;
    all[A].max_in_flight = 2;
    for (int i = 0; i < 2; i++) {
        held[i] = fixture_admit(&gate, &wish);
        assert_int_equal(held[i].verdict, SOURCE_ADMITTED);
    }
    assert_int_equal(gets(), -SOURCE_BUSY);
    assert_int_equal(fixture_view(&gate, "a", NOW_NS).in_flight, 2);
    wish.count = 2;
    assert_int_equal(gets(), B);
    wish.count = 1;
    fixture_end(&gate, &held[0].permit, SOURCE_END_SUCCESS, NOW_NS);
    assert_int_equal(gets(), A);

    /* where an open one and one that is full are left, the full one is waited for */
    wish.count = 2;
    wish.last_resort = true;
    fixture_break(&gate, &all[B], NOW_NS);
    held[0] = fixture_admit(&gate, &wish);
    assert_int_equal(held[0].candidate, A);
    assert_int_equal(gets(), -SOURCE_BUSY);
    wish.tried = bit(A);
    assert_int_equal(gets(), -SOURCE_BUSY);
    fixture_end(&gate, &held[0].permit, SOURCE_END_UNJUDGED, NOW_NS);
    fixture_end(&gate, &held[1].permit, SOURCE_END_UNJUDGED, NOW_NS);
}

static void i27_one_probe_and_the_others_keep_off(void **state)
{
    struct source_answer probe;

    (void)state;
    wish.count = 1;
    fixture_break(&gate, &all[A], NOW_NS);
    assert_int_equal(gets(), -SOURCE_OPEN);
    assert_int_equal(fixture_admit(&gate, &wish).earliest_ns, NOW_NS + 5 * NS_PER_S);
    wish.now_ns = NOW_NS + 5 * NS_PER_S;
    probe = fixture_admit(&gate, &wish);
    assert_true(probe.permit.probe);
    assert_true(fixture_view(&gate, "a", wish.now_ns).probing);
    for (int i = 0; i < 10; i++)
        assert_int_equal(gets(), -SOURCE_OPEN);
    wish.count = 2;
    assert_int_equal(gets(), B);
    wish.count = 1;
    fixture_end(&gate, &probe.permit, SOURCE_END_FAILURE, wish.now_ns);
    fixture_end(&gate, &probe.permit, SOURCE_END_FAILURE, wish.now_ns); /* harmless */
    assert_int_equal(gets(), -SOURCE_OPEN);
    wish.now_ns += 10 * NS_PER_S;
    probe = fixture_admit(&gate, &wish);
    fixture_end(&gate, &probe.permit, SOURCE_END_SUCCESS, wish.now_ns);
    assert_false(fixture_admit(&gate, &wish).permit.probe);
    assert_int_equal(fixture_view(&gate, "a", wish.now_ns).breaker, BREAKER_CLOSED);
}

/* A hedge that lost, a client that left, the client's own fault, a throttle: none is a verdict, none keeps
 * the probe (I22-I26). */
static void d10_a_thousand_probes_without_a_verdict_leak_none(void **state)
{
    static const enum source_end ends[] = {SOURCE_END_UNJUDGED, SOURCE_END_THROTTLED};

    (void)state;
    fixture_break(&gate, &all[A], NOW_NS);
    wish.count = 1;
    wish.now_ns = NOW_NS + 5 * NS_PER_S;
    for (unsigned i = 0; i < 1000; i++) {
        struct source_answer probe = fixture_admit(&gate, &wish);

        assert_int_equal(probe.verdict, SOURCE_ADMITTED);
        assert_true(probe.permit.probe);
        assert_int_equal(probe.permit.probe_seq, i + 1);
        fixture_end(&gate, &probe.permit, ends[i % LENGTH(ends)], wish.now_ns);
    }
    assert_int_equal(fixture_view(&gate, "a", wish.now_ns).in_flight, 0);
    assert_int_equal(fixture_view(&gate, "a", wish.now_ns).breaker, BREAKER_HALF_OPEN);
    fixture_call_source(&gate, &all[A], SOURCE_END_SUCCESS, wish.now_ns);
    assert_int_equal(fixture_view(&gate, "a", wish.now_ns).breaker, BREAKER_CLOSED);
}

static void i21_the_verdict_of_an_expired_probe_is_ignored(void **state)
{
    struct source_answer old;
    struct source_answer probe;

    (void)state;
    wish.count = 1;
    fixture_break(&gate, &all[A], NOW_NS);
    wish.now_ns = NOW_NS + 5 * NS_PER_S;
    old = fixture_admit(&gate, &wish);
    wish.now_ns += wish.probe_ns;
    probe = fixture_admit(&gate, &wish);
    assert_true(probe.permit.probe);
    fixture_end(&gate, &old.permit, SOURCE_END_FAILURE, wish.now_ns);
    assert_true(fixture_view(&gate, "a", wish.now_ns).probing);
    assert_int_equal(fixture_view(&gate, "a", wish.now_ns).in_flight, 1);
    fixture_end(&gate, &probe.permit, SOURCE_END_SUCCESS, wish.now_ns);
    assert_int_equal(fixture_view(&gate, "a", wish.now_ns).breaker, BREAKER_CLOSED);
}

static void i35_when_all_are_open_the_one_that_closes_first_is_tried(void **state)
{
    struct source_answer last;

    (void)state;
    wish.count = 2;
    fixture_break(&gate, &all[A], NOW_NS + NS_PER_S);
    fixture_break(&gate, &all[B], NOW_NS);
    wish.now_ns = NOW_NS + NS_PER_S;
    assert_int_equal(gets(), -SOURCE_OPEN);
    wish.last_resort = true;
    assert_int_equal(gets(), B);
    wish.tried = bit(B);
    assert_int_equal(gets(), A);
    wish.tried = 0;
    for (int i = 0; i < 20; i++) { /* their failures double nothing */
        last = fixture_admit(&gate, &wish);
        assert_true(last.permit.last_resort && !last.permit.probe);
        fixture_end(&gate, &last.permit, SOURCE_END_FAILURE, wish.now_ns);
    }
    assert_int_equal(fixture_view(&gate, "b", wish.now_ns).open_for_ns, 4 * NS_PER_S);
    assert_true(source_drain(&gate, "b", true, 0)); /* the last that can be used is a */
    assert_int_equal(gets(), A);
    last = fixture_admit(&gate, &wish);
    fixture_end(&gate, &last.permit, SOURCE_END_SUCCESS, wish.now_ns);
    assert_int_equal(fixture_view(&gate, "a", wish.now_ns).breaker, BREAKER_CLOSED);
    assert_false(fixture_admit(&gate, &wish).permit.last_resort);
}

static void r19_what_is_not_judged_feeds_nothing(void **state)
{
    struct source_view before;
    struct source_view after;

    (void)state;
    fixture_call_source(&gate, &all[A], SOURCE_END_SUCCESS, NOW_NS);
    fixture_call_source(&gate, &all[A], SOURCE_END_FAILURE, NOW_NS);
    before = fixture_view(&gate, "a", NOW_NS);
    assert_int_equal(before.window_calls, 2);
    assert_int_equal(before.window_failures, 1);
    for (int i = 0; i < 1000; i++)
        fixture_call_source(&gate, &all[A], SOURCE_END_UNJUDGED, NOW_NS);
    after = fixture_view(&gate, "a", NOW_NS);
    assert_memory_equal(&before, &after, sizeof before);
    fixture_call_source(&gate, &all[B], SOURCE_END_SUCCESS, NOW_NS); /* feeds its source alone */
    after = fixture_view(&gate, "a", NOW_NS);
    assert_memory_equal(&before, &after, sizeof before);
}

static void a_source_that_is_well_costs_no_lock(void **state)
{
    struct lock_area *lock = &segment_core(&segment)->lock;
    uint64_t before;

    (void)state;
    all[D].max_in_flight = 1;
    wish.count = 3;
    before = atomic_load(&lock->acquisitions);
    for (unsigned i = 0; i < 1000; i++) {
        struct source_answer answer;

        wish.now_ns = NOW_NS + i * NS_PER_S / 10;
        wish.weighted = i % 2;
        wish.excluded = i % 3 == 0 ? bit(A) : 0;
        wish.random = i;
        answer = fixture_admit(&gate, &wish);
        fixture_end(&gate, &answer.permit, i % 5 ? SOURCE_END_SUCCESS : SOURCE_END_UNJUDGED,
                    wish.now_ns);
    }
    assert_int_equal(atomic_load(&lock->acquisitions), before);
    fixture_call_source(&gate, &all[A], SOURCE_END_FAILURE, wish.now_ns);
    fixture_call_source(&gate, &all[A], SOURCE_END_SUCCESS, wish.now_ns);
    before += 3; /* the failure, admission and success after it */
    assert_int_equal(atomic_load(&lock->acquisitions), before);
    fixture_call_source(&gate, &all[A], SOURCE_END_SUCCESS, wish.now_ns);
    assert_int_equal(atomic_load(&lock->acquisitions), before);
    fixture_call_source(&gate, &all[D], SOURCE_END_UNJUDGED, wish.now_ns);
    assert_int_equal(atomic_load(&lock->acquisitions), before + 1); /* it has a bound */
}

static void h7_changes_of_state_are_events(void **state)
{
    static const char *const events[][2] = {
        {"limit_changed", NULL},
        {"source_open", "source=a reason=http_500 for_ms=5000"},
        {"source_half_open", "source=a reason=http_500"},
        {"source_closed", "source=a"},
        {"source_out", "source=b reason=no_money for_ms=60000"},
        {"source_drained", "source=a"},
        {"source_undrained", "source=a"},
    };
    struct journal_area *journal = &segment_instance(&segment)->journal;

    (void)state;
    fixture_break(&gate, &all[A], NOW_NS);
    for (int i = 0; i < 2; i++) {
        fixture_call_source(&gate, &all[A], i ? SOURCE_END_SUCCESS : SOURCE_END_UNJUDGED,
                            NOW_NS + 5 * NS_PER_S);
    }
    end_at(B, SOURCE_END_OUT, 60 * NS_PER_S);
    assert_true(source_drain(&gate, "a", true, 5));
    assert_true(source_drain(&gate, "a", false, 5));
    assert_true(journal_sit_down(journal));
    for (uint64_t i = 0; i < LENGTH(events); i++) {
        const struct event_record *event = journal_peek_event(journal, i);

        assert_string_equal(event->name, events[i][0]);
        if (events[i][1])
            assert_string_equal(event->detail, events[i][1]);
    }
    assert_null(journal_peek_event(journal, LENGTH(events)));
    journal_stand_up(journal);
    assert_int_equal(counter_value(&segment_instance(&segment)->counters, COUNTER_source_openings),
                     1);
}

/* ---- against a model ------------------------------------------------------------------------- */

static struct model models[MODELS];
static struct held {
    struct source_permit permit;
    unsigned candidate;
    int64_t probe_until;
} held[24];

static void admit_as_the_model(unsigned round)
{
    bool last_resort;
    int expected = model_choose(models, &wish, &last_resort);
    struct source_answer answer = fixture_admit(&gate, &wish);
    int got = answer.verdict == SOURCE_ADMITTED ? (int)answer.candidate : -(int)answer.verdict;
    struct model *model;
    size_t at = 0;

    if (got != expected || answer.permit.last_resort != last_resort)
        fail_msg("round %u: %d (last resort %d), by the model %d (%d)", round, got,
                 answer.permit.last_resort, expected, last_resort);
    if (got < 0)
        return;
    while (held[at].permit.row != NO_INDEX)
        at++;
    model = &models[got];
    held[at] = (struct held){.permit = answer.permit,
                             .candidate = answer.candidate,
                             .probe_until = wish.now_ns + wish.probe_ns};
    model->in_flight++;
    assert_int_equal(answer.permit.probe, model->state != BREAKER_CLOSED && !last_resort);
    if (answer.permit.probe) {
        model->state = BREAKER_HALF_OPEN;
        model->probe = 1 + (unsigned)at;
        model->probe_until = held[at].probe_until;
    }
}

static void end_as_the_model(size_t at)
{
    /* failures come in spells, or no breaker would ever open or close */
    static const enum source_end ends[2][8] = {
        {SOURCE_END_SUCCESS, SOURCE_END_SUCCESS, SOURCE_END_SUCCESS, SOURCE_END_SUCCESS,
         SOURCE_END_UNJUDGED, SOURCE_END_THROTTLED, SOURCE_END_FAILURE, SOURCE_END_SUCCESS},
        {SOURCE_END_FAILURE, SOURCE_END_FAILURE, SOURCE_END_FAILURE, SOURCE_END_FAILURE,
         SOURCE_END_SUCCESS, SOURCE_END_OUT, SOURCE_END_UNJUDGED, SOURCE_END_FAILURE},
    };
    const bool spell = wish.now_ns / (100 * NS_PER_S) % 2;
    struct model *model = &models[held[at].candidate];
    const bool was_probe =
        held[at].permit.probe && model->probe == 1 + at && held[at].probe_until > wish.now_ns;
    const struct source_outcome outcome = {.end = ends[spell][random() % 8],
                                           .terms = fixture_terms(),
                                           .out_ns = 60 * NS_PER_S,
                                           .now_ns = wish.now_ns};

    if (model->probe == 1 + at)
        model->probe = 0;
    if (!held[at].permit.probe || was_probe) {
        model_end(model, was_probe, held[at].permit.last_resort, outcome.end, wish.now_ns);
        for (unsigned i = 0; i < MODELS && outcome.end == SOURCE_END_THROTTLED; i++)
            if (model_same_account(i, held[at].candidate))
                models[i].throttled_until = wish.now_ns + 60 * NS_PER_S;
    }
    model->in_flight--;
    source_release(&gate, &held[at].permit, &outcome);
}

static void compare_with_the_model(void)
{
    for (unsigned i = 0; i < MODELS; i++) {
        const struct source_row *row = &segment_instance(&segment)->sources[all[i].row];
        const struct source_view view = fixture_view(&gate, names[i].name, wish.now_ns);

        assert_int_equal(view.breaker, models[i].state);
        assert_int_equal(view.in_flight, models[i].in_flight);
        assert_int_equal(view.failures_in_a_row, models[i].in_a_row);
        assert_int_equal(row->open_until_ns, models[i].open_until);
        if (row->needs_lock == 0)
            assert_true(models[i].state == BREAKER_CLOSED && !models[i].drained &&
                        models[i].out_until <= wish.now_ns &&
                        models[i].throttled_until <= wish.now_ns && models[i].in_a_row == 0);
    }
}

static void h7_does_as_the_model_does(void **state)
{
    unsigned states_seen[3] = {0};

    (void)state;
    srandom(4711);
    memset(models, 0, sizeof models);
    for (size_t i = 0; i < LENGTH(held); i++)
        held[i].permit.row = NO_INDEX;
    all[C].max_in_flight = 2;
    all[D].max_in_flight = 5;
    wish.probe_ns = 20 * NS_PER_S;
    for (unsigned round = 0; round < 20000; round++) {
        const size_t at = (size_t)random() % LENGTH(held);
        const unsigned source = (unsigned)random() % MODELS;

        if (random() % 3 == 0)
            wish.now_ns += random() % (2 * NS_PER_S);
        wish.excluded = random() % 2 ? 0 : (uint64_t)random() % 16;
        wish.tried = random() % 2 ? 0 : (uint64_t)random() % 16;
        wish.hedge = random() % 4 == 0;
        wish.hedge_of = (unsigned)random() % MODELS;
        wish.last_resort = random() % 4 == 0;
        if (random() % 300 == 0) {
            models[source].drained = !models[source].drained;
            assert_true(source_drain(&gate, names[source].name, models[source].drained, 0));
            if (!models[source].drained)
                model_undrain(&models[source]);
        } else if (held[at].permit.row != NO_INDEX) {
            end_as_the_model(at);
        } else {
            admit_as_the_model(round);
        }
        compare_with_the_model();
        states_seen[models[source].state]++;
    }
    for (size_t i = 0; i < LENGTH(states_seen); i++)
        assert_true(states_seen[i] > 300);
}

#define SOURCES_TEST(name) cmocka_unit_test_setup_teardown(name, open_gate, close_gate)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SOURCES_TEST(i29_order_and_what_was_tried),
        SOURCES_TEST(h13_throttled_ones_come_last_and_are_no_hedge),
        SOURCES_TEST(d16_a_hedge_goes_to_another_account),
        SOURCES_TEST(h8_a_draw_goes_by_weight_health_and_speed),
        SOURCES_TEST(h7_a_drained_or_unpaid_source_gets_no_call),
        SOURCES_TEST(h1_no_more_in_flight_than_allowed),
        SOURCES_TEST(i27_one_probe_and_the_others_keep_off),
        SOURCES_TEST(d10_a_thousand_probes_without_a_verdict_leak_none),
        SOURCES_TEST(i21_the_verdict_of_an_expired_probe_is_ignored),
        SOURCES_TEST(i35_when_all_are_open_the_one_that_closes_first_is_tried),
        SOURCES_TEST(r19_what_is_not_judged_feeds_nothing),
        SOURCES_TEST(a_source_that_is_well_costs_no_lock),
        SOURCES_TEST(h7_changes_of_state_are_events),
        SOURCES_TEST(h7_does_as_the_model_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
