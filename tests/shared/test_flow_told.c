/* test_flow_told.c - the upstream's own words about its quotas (F7), to the last unit. */
#include "tests/shared/account_model.h"
#include "tests/shared/flow_alone.h"

#include "shared/flow_rows.h"
#include "shared/flow_told.h"

#define NOTHING                                                                                    \
    {                                                                                              \
        .limit = -1, .left = -1                                                                    \
    }

static uint32_t send(const struct flow_terms *terms, int64_t cost)
{
    struct flow_answer answer = arrive(terms, cost, FLOW_NORMAL);

    assert_int_equal(answer.verdict, FLOW_GRANTED);
    flow_sent(&gate, answer.place, now);
    return answer.place;
}

static void hear_requests(uint32_t place, int64_t limit, int64_t left)
{
    const struct flow_told told = {.requests = {.limit = limit, .left = left}, .units = NOTHING};

    flow_hear(&gate, place, &told, now);
}

static void hear_units(uint32_t place, int64_t limit, int64_t left)
{
    const struct flow_told told = {.requests = NOTHING, .units = {.limit = limit, .left = left}};

    flow_hear(&gate, place, &told, now);
}

/* So many calls, each with an answer that tells the limit. */
static void told_requests(const struct flow_terms *terms, int64_t limit, int times)
{
    for (int i = 0; i < times; i++) {
        uint32_t place;

        now += NS_PER_S; /* whatever the pace */
        place = send(terms, 10);
        hear_requests(place, limit, -1);
        fixture_flow_settle(&gate, &place, 10, now);
    }
}

static struct flow_terms unknown(enum flow_strategy strategy)
{
    struct flow_terms terms = fixture_flow_terms(strategy);

    terms.requests_quota = terms.units_quota = 0;
    terms.initial_requests = strategy == FLOW_STRATEGY_RATE ? FLOW_INITIAL_ALL : 0;
    return terms;
}

static int64_t balance(struct bucket_row *row)
{
    return bucket_balance_micro(row, now);
}

/* ---- limit ----------------------------------------------------------------------------------- */

static void f7_three_answers_make_a_quota_where_none_is_configured(void **state)
{
    struct flow_terms terms = unknown(FLOW_STRATEGY_SHAPING);
    struct flow_row *flow;

    (void)state;
    terms.warmup_ns = 60 * NS_PER_S;
    told_requests(&terms, 600, 2);
    flow = fixture_flow(&gate);
    assert_int_equal(flow->requests_quota, 0);
    assert_int_equal(flow->requests.capacity_micro, 0);
    told_requests(&terms, 600, 1);
    assert_int_equal(flow->requests_quota, 600);
    assert_int_equal(flow->units_quota, 0);
    assert_int_equal(flow->requests.capacity_micro, 15 * BUCKET_UNIT);
    assert_int_equal(flow->requests.rate_micro, 580 * BUCKET_UNIT);
    assert_int_equal(flow->interval_ns, 100 * NS_PER_MS);
    assert_int_equal(balance(&flow->requests), BUCKET_UNIT);
    now += NS_PER_S; /* no warm-up in the middle of work */
    assert_int_equal(balance(&flow->requests), BUCKET_UNIT + 580 * BUCKET_UNIT / 60);
    now += 61 * NS_PER_S;
    (void)send(&terms, 10); /* but after a pause, as configured */
    assert_int_equal(flow->requests.warming, 1);
}

static void f7_of_a_full_minute_what_was_used_is_missing(void **state)
{
    struct flow_terms terms = unknown(FLOW_STRATEGY_RATE);

    (void)state;
    told_requests(&terms, 600, 3);
    assert_int_equal(balance(&fixture_flow(&gate)->requests), 597 * BUCKET_UNIT);
}

static void f7_units_become_a_quota_too(void **state)
{
    const struct flow_terms terms = unknown(FLOW_STRATEGY_SHAPING);
    struct flow_row *flow;

    (void)state;
    for (int i = 0; i < 3; i++)
        hear_units(send(&terms, 50), 6000, -1);
    flow = fixture_flow(&gate);
    assert_int_equal(flow->units_quota, 6000);
    assert_int_equal(flow->units.capacity_micro, 150 * BUCKET_UNIT);
    assert_int_equal(balance(&flow->units), 150 * BUCKET_UNIT);
}

static void f7_never_more_than_configured(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    struct flow_row *flow;

    (void)state;
    told_requests(&terms, 6000, 5);
    flow = fixture_flow(&gate);
    assert_int_equal(flow->requests_quota, 600);
    told_requests(&terms, 300, 3);
    assert_int_equal(flow->requests_quota, 300);
    assert_int_equal(flow->interval_ns, 200 * NS_PER_MS);
    told_requests(&terms, 6000, 3);
    assert_int_equal(flow->requests_quota, 600);
}

static void f7_a_change_counts_when_it_is_told_three_times_in_a_row(void **state)
{
    struct flow_terms terms = unknown(FLOW_STRATEGY_RATE);
    struct flow_row *flow;

    (void)state;
    told_requests(&terms, 1000, 3);
    flow = fixture_flow(&gate);
    told_requests(&terms, 1050, 5); /* 5 % is no change */
    assert_int_equal(flow->requests_quota, 1000);
    told_requests(&terms, 1051, 2);
    told_requests(&terms, 1000, 1);
    told_requests(&terms, 1051, 2);
    assert_int_equal(flow->requests_quota, 1000);
    told_requests(&terms, 500, 1);
    told_requests(&terms, 1051, 2);
    assert_int_equal(flow->requests_quota, 1000);
    told_requests(&terms, 1051, 1);
    assert_int_equal(flow->requests_quota, 1051);
}

static void f7_values_that_cannot_be_do_nothing(void **state)
{
    struct flow_terms terms = unknown(FLOW_STRATEGY_SHAPING);
    static const int64_t limits[] = {0, -1, -5, INT64_MIN, 1, 2};
    struct flow_row *flow;
    uint32_t place;

    (void)state;
    for (size_t i = 0; i < LENGTH(limits); i++)
        told_requests(&terms, limits[i], 4);
    flow = fixture_flow(&gate);
    assert_int_equal(flow->requests_quota, 0);
    told_requests(&terms, INT64_MAX, 3);
    assert_int_equal(flow->requests_quota, BUCKET_RATE_MAX / BUCKET_UNIT);
    place = send(&terms, 10);
    hear_requests(place, INT64_MAX, INT64_MAX);
    hear_units(place, INT64_MAX, INT64_MAX);
    hear_units(place, INT64_MIN, INT64_MIN);
    assert_true(balance(&flow->requests) >= 0);
    assert_int_equal(flow_open_of(&flow->requests_known, now), FLOW_OPEN_FULL);
    flow_hear(&gate, NO_INDEX, &(struct flow_told){.refused = true}, now);
    told_requests(&terms, 3, 3); /* so few are possible */
    assert_int_equal(flow->requests_quota, 3);
}

static void f7_a_limit_is_not_believed_when_more_went_through(void **state)
{
    struct flow_terms terms = unknown(FLOW_STRATEGY_SHAPING);
    struct flow_told told = {.requests = NOTHING, .units = {.limit = 9000, .left = -1}};
    struct flow_row *flow;

    (void)state;
    for (int i = 0; i < 30; i++) { /* 4000 and 4000 and 4000 are more */
        uint32_t place;

        now += NS_PER_S;
        place = send(&terms, 4000);
        flow_hear(&gate, place, &told, now);
        fixture_flow_settle(&gate, &place, 4000, now);
    }
    flow = fixture_flow(&gate);
    assert_int_equal(flow->units_quota, 0);
    told.units.limit = 3999; /* one alone is */
    for (int i = 0; i < 5; i++) {
        now += 61 * NS_PER_S;
        flow_hear(&gate, send(&terms, 4000), &told, now);
    }
    assert_int_equal(flow->units_quota, 0);
    told.units.limit = 999; /* too few to be */
    for (int i = 0; i < 5; i++)
        flow_hear(&gate, send(&terms, 1), &told, now);
    assert_int_equal(flow->units_quota, 0);
    told.units.limit = 9000;
    told.refused = true; /* those did not go through */
    for (int i = 0; i < 5; i++)
        flow_hear(&gate, send(&terms, 10), &told, now);
    assert_int_equal(flow->units_quota, 0);
    told.refused = false;
    for (int i = 0; i < 3; i++)
        flow_hear(&gate, send(&terms, 3000), &told, now);
    assert_int_equal(flow->units_quota, 9000);
    now += 60 * NS_PER_S;
    flow_hear(&gate, send(&terms, 9001), &told, now); /* and went through */
    assert_int_equal(flow->units_quota, 0);
}

static void f7_a_limit_that_is_told_no_more_is_forgotten(void **state)
{
    struct flow_terms terms = unknown(FLOW_STRATEGY_RATE);
    struct flow_row *flow;

    (void)state;
    told_requests(&terms, 600, 3);
    flow = fixture_flow(&gate);
    for (int i = 0; i < 60; i++) {
        now += 60 * NS_PER_S;
        call_once(&terms, 10, 10);
    }
    gate_lock(&gate);
    flow_tick_locked(&gate, now);
    gate_unlock(&gate);
    assert_int_equal(flow->requests_quota, 600);
    now += NS_PER_S;
    call_once(&terms, 10, 10);
    gate_lock(&gate);
    flow_tick_locked(&gate, now);
    gate_unlock(&gate);
    assert_int_equal(flow->requests_quota, 0);
    call_once(&terms, 10, 10);
}

static void f7_the_operator_may_stop_it(void **state)
{
    struct flow_terms terms = unknown(FLOW_STRATEGY_RATE);

    (void)state;
    told_requests(&terms, 600, 3);
    terms.ignores_told = true;
    segment_core(&segment)->roster[gate.self].generation++;
    call_once(&terms, 10, 10);
    assert_int_equal(fixture_flow(&gate)->requests_quota, 0);
    assert_int_equal(fixture_flow(&gate)->requests.capacity_micro, 0);
}

/* ---- remaining ------------------------------------------------------------------------------- */

static void f7_what_is_left_lowers_the_budget_less_what_was_sent_since(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    uint32_t first = send(&terms, 10);
    struct bucket_row *requests = &fixture_flow(&gate)->requests;
    uint32_t second = send(&terms, 10);

    (void)state;
    (void)send(&terms, 10);
    assert_int_equal(balance(requests), 597 * BUCKET_UNIT);
    hear_requests(first, -1, 100);
    assert_int_equal(balance(requests), 98 * BUCKET_UNIT);
    hear_requests(second, -1, 99); /* the same, told again */
    assert_int_equal(balance(requests), 98 * BUCKET_UNIT);
    now += 2 * NS_PER_S;
    assert_int_equal(balance(requests), 118 * BUCKET_UNIT);
    hear_requests(second, -1, 99);
    assert_int_equal(balance(requests), 118 * BUCKET_UNIT);
    hear_requests(second, -1, 5000); /* never up */
    assert_int_equal(balance(requests), 118 * BUCKET_UNIT);
    hear_requests(second, -1, 0); /* sent 2 s ago, one since, 20 came in */
    assert_int_equal(balance(requests), 19 * BUCKET_UNIT);
}

static void f7_a_refused_call_is_not_counted_there(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    const struct flow_told told = {
        .requests = NOTHING, .units = {.limit = -1, .left = 100}, .refused = true};
    const struct flow_end end = {.now_ns = now};
    uint32_t place = send(&terms, 500);
    struct bucket_row *units = &fixture_flow(&gate)->units;

    (void)state;
    assert_int_equal(balance(units), 14500 * BUCKET_UNIT);
    flow_hear(&gate, place, &told, now);
    assert_int_equal(balance(units), -400 * BUCKET_UNIT);
    (void)flow_refund(&gate, &place, &end);
    assert_int_equal(balance(units), 100 * BUCKET_UNIT);
}

static int64_t requests_rate(struct flow_row *flow)
{
    (void)flow_limits_locked(flow, now);
    return flow->requests.rate_micro;
}

/* Of 600 a minute, the minute has 300 of ours. */
static uint32_t send_300(const struct flow_terms *terms)
{
    uint32_t place = NO_INDEX;

    for (int i = 0; i < 300; i++)
        place = send(terms, 10);
    return place;
}

static void f7_what_others_take_is_left_to_them(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    const uint32_t place = send_300(&terms);
    struct flow_row *flow = fixture_flow(&gate);

    (void)state;
    hear_requests(place, 600, 290); /* within a sixtieth */
    assert_int_equal(requests_rate(flow), 600 * BUCKET_UNIT);
    hear_requests(place, 600, 140); /* 140 and our 300, and ten */
    assert_int_equal(requests_rate(flow), 450 * BUCKET_UNIT);
    hear_requests(place, 600, 30);
    assert_int_equal(requests_rate(flow), INT64_C(600) * 566 * BUCKET_UNIT / 1000);
    hear_requests(place, 6000, 400); /* what we are granted is less, and is there */
    assert_int_equal(requests_rate(flow), 600 * BUCKET_UNIT);
}

static void f7_when_next_to_nothing_is_left_it_fills_more_slowly(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    const uint32_t place = send_300(&terms);
    struct flow_row *flow = fixture_flow(&gate);

    (void)state;
    hear_requests(place, -1, 14); /* of thirty */
    assert_int_equal(requests_rate(flow), INT64_C(600) * 466 * BUCKET_UNIT / 1000);
    hear_requests(place, -1, 0);
    assert_int_equal(requests_rate(flow), 120 * BUCKET_UNIT);
    now += 30 * NS_PER_S; /* the news gets old */
    assert_int_equal(requests_rate(flow), 360 * BUCKET_UNIT);
    now += 30 * NS_PER_S;
    assert_int_equal(requests_rate(flow), 600 * BUCKET_UNIT);
}

static void f7_the_pace_slows_down_with_it(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    const uint32_t place = send(&terms, 10);

    (void)state;
    hear_requests(place, -1, 0);
    assert_int_equal(flow_limits_locked(fixture_flow(&gate), now).interval_ns, 500 * NS_PER_MS);
}

static void f7_the_answer_to_the_newest_call_counts(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    const uint32_t older = send_300(&terms);
    struct flow_row *flow = fixture_flow(&gate);
    uint32_t newer;

    (void)state;
    now += NS_PER_S;
    newer = send(&terms, 10);
    hear_requests(newer, -1, 299);
    hear_requests(older, -1, 0);
    assert_int_equal(requests_rate(flow), 600 * BUCKET_UNIT);
    hear_requests(newer, -1, 0);
    hear_requests(older, -1, 300);
    assert_int_equal(requests_rate(flow), 120 * BUCKET_UNIT);
}

struct outcome {
    int sent, refused;
};

/* One that always wants more, for five minutes; others take so many a second. Counted are the last three. */
static struct outcome share_account(struct account *account, int others_per_s)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    struct outcome outcome = {0, 0};

    for (int tick = 0; tick < 300 * TICKS_PER_S; tick++) {
        struct flow_answer answer;
        bool admitted;

        now += NS_PER_S / TICKS_PER_S;
        account_tick(account);
        if (others_per_s > 0 && tick % (TICKS_PER_S / others_per_s) == 0)
            (void)account_admits(account);
        answer = arrive(&terms, 10, FLOW_NORMAL);
        if (answer.verdict != FLOW_GRANTED) {
            flow_cancel(&gate, &answer.place, now);
            continue;
        }
        flow_sent(&gate, answer.place, now);
        admitted = account_admits(account);
        hear_requests(answer.place, ACCOUNT, account_left(account));
        fixture_flow_settle(&gate, &answer.place, 10, now);
        if (tick >= 120 * TICKS_PER_S) {
            outcome.sent++;
            outcome.refused += !admitted;
        }
    }
    print_message("%s, others %d a second: %d sent, %d refused\n",
                  account->slides ? "sliding" : "bucket", others_per_s, outcome.sent,
                  outcome.refused);
    return outcome;
}

static void f7_another_consumer_of_the_account_is_made_room_for(void **state)
{
    struct account account = {.level = ACCOUNT};
    const struct outcome outcome = share_account(&account, 5);

    (void)state;
    assert_int_equal(outcome.refused, 0);
    assert_in_range(outcome.sent, 5 * 180 - 30, 5 * 180 + 30); /* what the other leaves */
}

static void f7_the_same_where_the_minute_slides(void **state)
{
    struct account account = {.slides = true};
    const struct outcome outcome = share_account(&account, 5);

    (void)state;
    assert_in_range(outcome.refused, 0, outcome.sent / 100);
    assert_in_range(outcome.sent, 5 * 180 * 9 / 10, 5 * 180 + 30);
}

static void f7_alone_on_an_account_it_costs_little(void **state)
{
    struct account bucket = {.level = ACCOUNT};
    struct account sliding = {.slides = true};
    struct outcome outcome = share_account(&bucket, 0);

    (void)state;
    assert_int_equal(outcome.refused, 0);
    assert_in_range(outcome.sent, 1735, 1740); /* 580 a minute */
    now += 3600 * NS_PER_S;
    outcome = share_account(&sliding, 0);
    assert_int_equal(outcome.refused, 0);
    assert_in_range(outcome.sent, 1680, 1740);
}

static void f7_retry_after_is_a_second_at_least_and_a_minute_at_most(void **state)
{
    static const int64_t asked_ns[] = {1, NS_PER_S / 2, 7 * NS_PER_S, 86400 * NS_PER_S, INT64_MAX};
    static const int64_t paused_s[] = {1, 1, 7, 60, 60};
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);

    (void)state;
    for (size_t i = 0; i < LENGTH(asked_ns); i++) {
        uint32_t place;
        struct flow_end end = {
            .refused = true, .kind = ADAPTIVE_RPM, .retry_after_ns = asked_ns[i]};

        now += 120 * NS_PER_S;
        place = send(&terms, 10);
        end.now_ns = now;
        (void)flow_refund(&gate, &place, &end);
        assert_int_equal(flow_limits_locked(fixture_flow(&gate), now).not_before_ns - now,
                         paused_s[i] * NS_PER_S);
    }
}

/* Whatever is told: no quota above the configured one, no budget above its capacity, and never closed. */
static void f7_nothing_that_is_told_does_harm(void **state)
{
    static const int64_t values[] = {INT64_MIN, -1,      0,
                                     1,         2,       3,
                                     1500,      60,      600,
                                     1000000,   1 << 30, INT64_C(1) << 50,
                                     599,       7,       INT64_MAX - 1,
                                     INT64_MAX};
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    struct flow_row *flow;
    uint64_t seed = 7;
    int waited = 0;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        const struct flow_told told = {
            .requests = {.limit = values[fixture_random(&seed) % LENGTH(values)],
                         .left = values[fixture_random(&seed) % LENGTH(values)]},
            .units = {.limit = values[fixture_random(&seed) % LENGTH(values)],
                      .left = values[fixture_random(&seed) % LENGTH(values)]},
            .refused = fixture_random(&seed) % 4 == 0};
        struct flow_answer answer;

        now += fixture_random(&seed) % (40 * NS_PER_S);
        answer = arrive(&terms, fixture_random(&seed) % 1000, FLOW_NORMAL);
        if (answer.verdict != FLOW_GRANTED) {
            flow_cancel(&gate, &answer.place, now);
            assert_true(++waited < 100); /* in a row: half an hour */
            continue;
        }
        waited = 0;
        flow_sent(&gate, answer.place, now);
        flow = fixture_flow(&gate);
        for (int k = 0; k < 4; k++) {
            const int64_t before = balance(&flow->requests);

            flow_hear(&gate, answer.place, &told, now);
            assert_true(balance(&flow->requests) <= before);
        }
        assert_in_range(flow->requests_quota, 3, 600);
        assert_in_range(flow->units_quota, 1000, 600000);
        assert_in_range(flow_open_of(&flow->requests_known, now), 200, 1000);
        assert_in_range(flow_open_of(&flow->units_known, now), 200, 1000);
        fixture_flow_settle(&gate, &answer.place, fixture_random(&seed) % 1000, now);
    }
    print_message("%d of 20000 calls went\n", (int)fixture_flow(&gate)->completed);
    assert_true(fixture_flow(&gate)->completed > 1000);
}

/* ---- other strategies ------------------------------------------------------------------------ */

static void f7_the_controller_is_told_and_begins_no_faster(void **state)
{
    const struct flow_terms terms = unknown(FLOW_STRATEGY_ADAPTIVE);
    struct flow_row *flow;
    struct flow_view views[FLOWS_MAX];

    (void)state;
    told_requests(&terms, 300, 3);
    flow = fixture_flow(&gate);
    assert_int_equal(flow->adaptive.requests.told, 300);
    (void)flow_limits_locked(flow, now);
    assert_int_equal(flow->requests.capacity_micro, 15 * BUCKET_UNIT / 2);
    assert_int_equal(flow->requests.rate_micro, 290 * BUCKET_UNIT);
    assert_int_equal(flow_views_locked(&gate, now, views), 1);
    assert_int_equal(views[0].requests_origin, FLOW_QUOTA_HEADERS);
    assert_int_equal(views[0].units_origin, FLOW_QUOTA_UNKNOWN);
    assert_float_equal(views[0].learned.requests_learned, 300, 1e-9); /* kept over a restart */
    told_requests(&terms, INT64_C(1) << 50, 3);
    now += 5 * NS_PER_S; /* nobody wants a pace: it stays that of a start */
    (void)flow_limits_locked(flow, now);
    assert_true(flow->adaptive.pace <= 2);
}

static void f7_only_who_keeps_a_quota_listens(void **state)
{
    const struct flow_terms retry = unknown(FLOW_STRATEGY_RETRY);
    const struct flow_terms rate = unknown(FLOW_STRATEGY_RATE);
    struct flow_view views[FLOWS_MAX];
    uint32_t place;

    (void)state;
    told_requests(&retry, 300, 5);
    assert_int_equal(fixture_flow(&gate)->requests_quota, 0);
    for (int i = 0; i < 3; i++) { /* a stricter strategy takes the record over */
        place = send(&rate, 10);
        hear_units(place, 300, -1);
        hear_requests(place, 300, -1);
    }
    assert_int_equal(fixture_flow(&gate)->requests_quota, 300);
    assert_int_equal(fixture_flow(&gate)->units.capacity_micro, 0);
    (void)flow_views_locked(&gate, now, views);
    assert_int_equal(views[0].requests_origin, FLOW_QUOTA_HEADERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)
        TEST(f7_three_answers_make_a_quota_where_none_is_configured),
        TEST(f7_of_a_full_minute_what_was_used_is_missing),
        TEST(f7_units_become_a_quota_too),
        TEST(f7_never_more_than_configured),
        TEST(f7_a_change_counts_when_it_is_told_three_times_in_a_row),
        TEST(f7_values_that_cannot_be_do_nothing),
        TEST(f7_a_limit_is_not_believed_when_more_went_through),
        TEST(f7_a_limit_that_is_told_no_more_is_forgotten),
        TEST(f7_the_operator_may_stop_it),
        TEST(f7_what_is_left_lowers_the_budget_less_what_was_sent_since),
        TEST(f7_a_refused_call_is_not_counted_there),
        TEST(f7_what_others_take_is_left_to_them),
        TEST(f7_when_next_to_nothing_is_left_it_fills_more_slowly),
        TEST(f7_the_pace_slows_down_with_it),
        TEST(f7_the_answer_to_the_newest_call_counts),
        TEST(f7_another_consumer_of_the_account_is_made_room_for),
        TEST(f7_the_same_where_the_minute_slides),
        TEST(f7_alone_on_an_account_it_costs_little),
        TEST(f7_retry_after_is_a_second_at_least_and_a_minute_at_most),
        TEST(f7_nothing_that_is_told_does_harm),
        TEST(f7_the_controller_is_told_and_begins_no_faster),
        TEST(f7_only_who_keeps_a_quota_listens),
#undef TEST
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
