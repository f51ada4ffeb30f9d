/* test_flow.c - when a call may go and what it is charged, on a clock that only the test moves. */
#include "tests/shared/flow_alone.h"

static void f1_none_and_no_terms_hold_nothing(void **state)
{
    const struct flow_terms none = fixture_flow_terms(FLOW_STRATEGY_NONE);

    (void)state;
    assert_int_equal(arrive(&none, 5, FLOW_NORMAL).verdict, FLOW_OPEN);
    assert_int_equal(arrive(NULL, 5, FLOW_NORMAL).verdict, FLOW_OPEN);
    assert_int_equal(segment_layout(&segment)->flow_places_used, 0);
    for (uint32_t i = 0; i < FLOWS_MAX; i++)
        assert_int_equal(segment_layout(&segment)->flow_hashes[i], 0);
}

static void f2_retry_counts_and_holds_nothing_back(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RETRY);
    uint32_t places[50];
    struct flow_use use;

    (void)state;
    terms.requests_quota = 1;
    terms.max_concurrent = 1;
    for (size_t i = 0; i < LENGTH(places); i++) {
        struct flow_answer answer = arrive(&terms, 1000, FLOW_BULK);

        assert_int_equal(answer.verdict, FLOW_GRANTED);
        places[i] = answer.place;
        flow_sent(&gate, places[i], now);
    }
    for (size_t i = 0; i < LENGTH(places); i++)
        fixture_flow_settle(&gate, &places[i], 1500, now);
    use = flow_use_locked(fixture_flow(&gate), now);
    assert_int_equal(use.sends, 50);
    assert_int_equal(use.units, 75000);
    assert_int_equal(fixture_flow(&gate)->in_flight, 0);
}

static void f3_rate_starts_full_then_goes_by_the_minute(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    struct flow_answer answer;
    struct flow_view views[FLOWS_MAX];

    (void)state;
    terms.requests_quota = 60;
    terms.units_quota = 10000;
    terms.initial_requests = 60;
    for (int i = 0; i < 60; i++)
        call_once(&terms, 1000000, 1000000); /* tokens do not count here */
    assert_int_equal(flow_views_locked(&gate, now, views), 1);
    assert_int_equal(views[0].requests_quota, 60);
    assert_int_equal(views[0].units_quota, 0); /* nor are they shown as if they did */
    assert_int_equal(views[0].units_origin, FLOW_QUOTA_UNKNOWN);
    answer = arrive(&terms, 1, FLOW_NORMAL);
    assert_int_equal(answer.verdict, FLOW_QUEUED);
    assert_int_equal(answer.due_ns, now + NS_PER_S);
    now = answer.due_ns - 1;
    assert_int_equal(fixture_flow_try(&gate, answer.place, now).verdict, FLOW_QUEUED);
    now++;
    assert_int_equal(fixture_flow_try(&gate, answer.place, now).verdict, FLOW_GRANTED);
    flow_cancel(&gate, &answer.place, now);
}

static void f9_who_has_no_thread_to_wait_in_is_counted(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    const struct flow_target target = fixture_target(&terms, 1);
    struct flow_call call = fixture_flow_call(FLOW_NORMAL, now);
    struct flow_answer answer;

    (void)state;
    terms.requests_quota = 60;
    terms.initial_requests = 1;
    call.no_thread = true;
    flow_arrive(&gate, &target, &call, &answer);
    assert_int_equal(answer.verdict, FLOW_GRANTED); /* it need not wait */
    flow_cancel(&gate, &answer.place, now);
    call_once(&terms, 1, 1);
    flow_arrive(&gate, &target, &call, &answer);
    assert_int_equal(answer.verdict, FLOW_REFUSED_THREADS);
    assert_int_equal(answer.predicted_wait_ns, NS_PER_S);
    call.may_wait = false; /* a hedge, which nobody misses */
    flow_arrive(&gate, &target, &call, &answer);
    assert_int_equal(answer.verdict, FLOW_REFUSED_BUSY);
    assert_int_equal(fixture_flow(&gate)->refused_threads, 1);
}

static void f3_concurrency_comes_after_the_rate_and_is_given_on(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    struct flow_answer first, second;

    (void)state;
    terms.max_concurrent = 1;
    first = arrive(&terms, 10, FLOW_NORMAL);
    assert_int_equal(first.verdict, FLOW_GRANTED);
    flow_sent(&gate, first.place, now);
    second = arrive(&terms, 10, FLOW_NORMAL);
    assert_int_equal(second.verdict, FLOW_QUEUED);
    assert_int_equal(second.due_ns, CLOCK_NEVER);
    assert_int_equal(second.position, 1);
    assert_false(flow_is_rung(&gate, second.place));
    fixture_flow_settle(&gate, &first.place, 10, now);
    assert_true(flow_is_rung(&gate, second.place));
    assert_int_equal(fixture_flow_try(&gate, second.place, now).verdict, FLOW_GRANTED);
    assert_false(flow_is_rung(&gate, second.place));
    flow_cancel(&gate, &second.place, now);
}

/* Its process lives and ticks, but its thread does not look. */
static void f8_who_does_not_answer_a_ring_is_passed_over(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    struct flow_answer holder, first, second;

    (void)state;
    terms.max_concurrent = 1;
    holder = arrive(&terms, 10, FLOW_NORMAL);
    first = arrive(&terms, 10, FLOW_NORMAL);
    second = arrive(&terms, 10, FLOW_NORMAL);
    flow_cancel(&gate, &holder.place, now);
    for (int i = 0; i < 5; i++) {
        assert_true(flow_is_rung(&gate, first.place));
        assert_int_equal(fixture_flow_try(&gate, second.place, now).verdict, FLOW_QUEUED);
        now += 110 * NS_PER_MS;
        gate_tick(&gate, now);
    }
    assert_true(flow_is_rung(&gate, second.place));
    assert_int_equal(fixture_flow_try(&gate, second.place, now).verdict, FLOW_GRANTED);
    flow_cancel(&gate, &second.place, now);
    assert_int_equal(fixture_flow_try(&gate, first.place, now).verdict, FLOW_GRANTED);
}

static void f4_shaping_spaces_requests_and_charges_units(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    struct flow_row *flow;

    (void)state;
    call_once(&terms, 1000, 1000);
    flow = fixture_flow(&gate);
    assert_int_equal(flow->next_send_ns, now + 100 * NS_PER_MS);
    assert_int_equal(bucket_balance_micro(&flow->units, now), 14000 * BUCKET_UNIT);
    now += 110 * NS_PER_MS;
    /* what was used more is owed, and the next ones pay */
    call_once(&terms, 1000, 100000);
    assert_true(bucket_balance_micro(&flow->units, now) < -70000 * BUCKET_UNIT);
    now += 110 * NS_PER_MS;
    assert_int_equal(arrive(&terms, 1000, FLOW_NORMAL).verdict, FLOW_QUEUED);
}

/* Each reads its clock before it has the lock; a slow one must not make a queue where nothing is lacking. */
static void f3_a_clock_read_before_the_others_decided_waits_for_nothing(void **state)
{
    static const enum flow_strategy strategies[] = {FLOW_STRATEGY_RATE, FLOW_STRATEGY_SHAPING};

    (void)state;
    for (size_t i = 0; i < LENGTH(strategies); i++) {
        struct flow_terms terms = fixture_flow_terms(strategies[i]);
        struct flow_answer first, second;

        terms.requests_quota = INT64_C(10000000);
        terms.initial_requests = 1000;
        terms.warmup_ns = 0;
        now += 10 * NS_PER_S;
        first = arrive(&terms, 1, FLOW_NORMAL);
        assert_int_equal(first.verdict, FLOW_GRANTED);
        now -= 20 * NS_PER_MS; /* as it was when the other one's thread was stopped */
        second = arrive(&terms, 1, FLOW_NORMAL);
        assert_int_equal(second.verdict, FLOW_GRANTED);
        now += 20 * NS_PER_MS;
        flow_cancel(&gate, &second.place, now);
        flow_cancel(&gate, &first.place, now);
    }
}

/* At a rate faster than timers calls go together, and none the more of them. */
static void f4_the_pace_has_a_slack_that_does_not_add_up(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    const int64_t interval_ns = 20 * INT64_C(1000);
    const int64_t begun_ns = now;
    unsigned granted = 0;

    (void)state;
    terms.requests_quota = 60 * NS_PER_S / interval_ns;
    terms.units_quota = 0;
    terms.initial_requests = terms.requests_quota / 2;
    for (unsigned i = 0; i < 100; i++) {
        struct flow_answer answer = arrive(&terms, 1, FLOW_NORMAL);

        if (answer.verdict != FLOW_GRANTED) {
            /* the one whose instant is a whole slack away is the first to wait */
            assert_int_equal(granted, 1 + i / 2 + FLOW_PACE_SLACK_NS / interval_ns);
            assert_int_equal(answer.due_ns, fixture_flow(&gate)->next_send_ns - FLOW_PACE_SLACK_NS);
            flow_cancel(&gate, &answer.place, now);
        } else {
            granted++;
            assert_int_equal(fixture_flow(&gate)->next_send_ns, begun_ns + granted * interval_ns);
            flow_sent(&gate, answer.place, now);
            fixture_flow_settle(&gate, &answer.place, 1, now);
        }
        now += interval_ns / 2;
    }
    assert_true(granted < 60);
}

static void f4_one_call_larger_than_the_bucket_goes_at_a_full_one(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);

    (void)state;
    call_once(&terms, 50000, 50000);
    assert_int_equal(bucket_balance_micro(&fixture_flow(&gate)->units, now), -35000 * BUCKET_UNIT);
}

static void f4_a_long_answer_is_charged_as_it_comes_and_once(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    struct flow_answer answer = arrive(&terms, 1000, FLOW_NORMAL);
    struct flow_row *flow = fixture_flow(&gate);

    (void)state;
    flow_sent(&gate, answer.place, now);
    flow_progress(&gate, answer.place, 900, now);
    assert_int_equal(bucket_balance_micro(&flow->units, now), 14000 * BUCKET_UNIT);
    flow_progress(&gate, answer.place, 4000, now);
    assert_int_equal(bucket_balance_micro(&flow->units, now), 11000 * BUCKET_UNIT);
    flow_progress(&gate, answer.place, 4000, now);
    assert_int_equal(bucket_balance_micro(&flow->units, now), 11000 * BUCKET_UNIT);
    assert_int_equal(flow_use_locked(flow, now).units, 4000);
    fixture_flow_settle(&gate, &answer.place, 3500, now);
    assert_int_equal(bucket_balance_micro(&flow->units, now), 11500 * BUCKET_UNIT);
    assert_int_equal(flow_use_locked(flow, now).units, 3500);
}

static void f6_every_exit_settles_once(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    struct flow_terms shaping = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    const struct flow_end end = {.units = 300};
    struct flow_end told = end;
    struct flow_answer answer;
    struct flow_row *flow;
    int64_t units;

    (void)state;
    (void)terms;
    shaping.requests_quota = 0;
    shaping.units_quota = 600000;
    answer = arrive(&shaping, 1000, FLOW_NORMAL);
    flow = fixture_flow(&gate);
    flow_cancel(&gate, &answer.place, now); /* never sent */
    assert_int_equal(answer.place, NO_INDEX);
    assert_int_equal(bucket_balance_micro(&flow->units, now), 15000 * BUCKET_UNIT);
    for (int exit = 0; exit < 3; exit++) {
        static const int64_t used[] = {300, 0, 1000};

        units = bucket_balance_micro(&flow->units, now);
        answer = arrive(&shaping, 1000, FLOW_NORMAL);
        assert_int_equal(answer.verdict, FLOW_GRANTED);
        flow_sent(&gate, answer.place, now);
        told.now_ns = now;
        for (int again = 0; again < 2; again++) { /* the second time does nothing */
            if (exit == 0)
                (void)flow_settle(&gate, &answer.place, &told);
            else if (exit == 1)
                (void)flow_refund(&gate, &answer.place, &told);
            else
                (void)flow_keep(&gate, &answer.place, &told);
            flow_cancel(&gate, &answer.place, now);
        }
        assert_int_equal(answer.place, NO_INDEX);
        assert_int_equal(bucket_balance_micro(&flow->units, now), units - used[exit] * BUCKET_UNIT);
        assert_int_equal(flow->in_flight, 0);
    }
    assert_int_equal(segment_layout(&segment)->flow_places_used, 0);
}

static void f3_a_refused_request_stays_spent_an_unsent_one_comes_back(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);
    struct flow_end end = {.now_ns = now, .refused = true, .kind = ADAPTIVE_RPM};
    struct flow_answer answer;
    struct flow_row *flow;

    (void)state;
    answer = arrive(&terms, 1000, FLOW_NORMAL);
    flow = fixture_flow(&gate);
    flow_sent(&gate, answer.place, now);
    assert_int_equal(flow_refund(&gate, &answer.place, &end), ADAPTIVE_RPS); /* one of 600 */
    assert_int_equal(bucket_balance_micro(&flow->requests, now), 599 * BUCKET_UNIT);
    assert_int_equal(flow->refusals[ADAPTIVE_RPS], 1);
    answer = arrive(&terms, 1000, FLOW_NORMAL);
    assert_int_equal(bucket_balance_micro(&flow->requests, now), 598 * BUCKET_UNIT);
    (void)flow_refund(&gate, &answer.place, &end); /* not sent: not refused by anybody */
    assert_int_equal(bucket_balance_micro(&flow->requests, now), 599 * BUCKET_UNIT);
    assert_int_equal(flow->refusals[ADAPTIVE_RPS], 1);
}

/* Configured 600, granted 60: what is refused for 52 s is no limit per second. */
static void f7_a_long_wait_is_that_of_a_minute(void **state)
{
    static const enum adaptive_kind kinds[][2] = {{ADAPTIVE_RPM, ADAPTIVE_RPM},
                                                  {ADAPTIVE_RPS, ADAPTIVE_RPM},
                                                  {ADAPTIVE_TPM, ADAPTIVE_TPM},
                                                  {ADAPTIVE_BURST, ADAPTIVE_BURST}};
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_RATE);

    (void)state;
    for (size_t i = 0; i < LENGTH(kinds); i++) {
        struct flow_answer answer;
        struct flow_end end = {
            .refused = true, .kind = kinds[i][0], .retry_after_ns = 52 * NS_PER_S};

        now += 120 * NS_PER_S;
        answer = arrive(&terms, 1, FLOW_NORMAL);
        assert_int_equal(answer.verdict, FLOW_GRANTED);
        flow_sent(&gate, answer.place, now);
        end.now_ns = now;
        assert_int_equal(flow_refund(&gate, &answer.place, &end), kinds[i][1]);
    }
}

static void f7_retry_after_stops_the_flow_for_a_minute_at_most(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    struct flow_end end = {.refused = true, .kind = ADAPTIVE_BURST};
    struct flow_answer answer = arrive(&terms, 10, FLOW_NORMAL);

    (void)state;
    flow_sent(&gate, answer.place, now);
    end.now_ns = now;
    end.retry_after_ns = 86400 * NS_PER_S;
    assert_int_equal(flow_refund(&gate, &answer.place, &end), ADAPTIVE_BURST);
    answer = arrive(&terms, 10, FLOW_NORMAL);
    assert_int_equal(answer.verdict, FLOW_QUEUED);
    assert_int_equal(answer.due_ns, now + 60 * NS_PER_S);
    assert_true(answer.predicted_wait_ns >= 60 * NS_PER_S);
    now += 60 * NS_PER_S;
    assert_int_equal(fixture_flow_try(&gate, answer.place, now).verdict, FLOW_GRANTED);
}

static void b4_a_storm_that_leaves_changes_no_balance(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    static uint32_t places[1000];
    struct fixture_balance before, after;

    (void)state;
    call_once(&terms, 30000, 30000); /* in debt: everybody waits */
    now += 10 * NS_PER_MS;
    before = fixture_balance(&gate, now);
    for (size_t i = 0; i < LENGTH(places); i++) {
        struct flow_answer answer =
            arrive(&terms, 10 + (int64_t)i, (enum flow_class)(i % FLOW_CLASSES));

        assert_int_equal(answer.verdict, FLOW_QUEUED);
        places[i] = answer.place;
    }
    for (size_t i = 0; i < LENGTH(places); i++) {
        if (i % 3 == 0) /* some ask before they leave */
            assert_int_equal(fixture_flow_try(&gate, places[i], now).verdict, FLOW_QUEUED);
        flow_cancel(&gate, &places[i], now);
    }
    after = fixture_balance(&gate, now);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(segment_layout(&segment)->flow_places_used, 0);
}

static void b4_a_grant_that_is_not_used_changes_no_balance(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    struct fixture_balance before, after;
    struct flow_answer answer;

    (void)state;
    call_once(&terms, 1000, 1000);
    now += 3 * NS_PER_S;
    before = fixture_balance(&gate, now);
    answer = arrive(&terms, 5000, FLOW_INTERACTIVE);
    assert_int_equal(answer.verdict, FLOW_GRANTED);
    flow_cancel(&gate, &answer.place, now);
    after = fixture_balance(&gate, now);
    /* but for virtual time, which only says that nobody may go back behind it */
    after.virtual_time = before.virtual_time;
    after.finish[0] = before.finish[0];
    assert_memory_equal(&before, &after, sizeof before);
}

static void f9_hopeless_ones_are_refused_with_the_true_wait(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    struct flow_answer answer;
    struct flow_answer last = {0};
    uint32_t waiters[20];
    int64_t told_ns;

    (void)state;
    terms.max_wait_ns[FLOW_INTERACTIVE] = 5 * NS_PER_S;
    terms.requests_quota = 0;
    call_once(&terms, 120000, 120000); /* 100,000 owed: 10 s and more of 580,000 a minute */
    answer = arrive(&terms, 1000, FLOW_INTERACTIVE);
    assert_int_equal(answer.verdict, FLOW_REFUSED_HOPELESS);
    assert_int_equal(answer.place, NO_INDEX);
    assert_in_range(answer.predicted_wait_ns / NS_PER_MS, 10000, 11000);
    assert_int_equal(fixture_flow(&gate)->waiting, 0);
    /* the wait that is told is the wait that comes */
    for (size_t i = 0; i < LENGTH(waiters); i++) {
        last = arrive(&terms, 10000, FLOW_NORMAL);
        assert_int_equal(last.verdict, FLOW_QUEUED);
        waiters[i] = last.place;
    }
    told_ns = now + last.predicted_wait_ns;
    for (size_t at = 0; at < LENGTH(waiters);) {
        answer = fixture_flow_try(&gate, waiters[at], now);
        at += answer.verdict == FLOW_GRANTED;
        now = answer.verdict == FLOW_GRANTED ? now : answer.due_ns;
    }
    assert_in_range(now, told_ns - NS_PER_S, told_ns + NS_PER_MS);
}

static void f8_bounds_of_class_and_client(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    const struct flow_target target = fixture_target(&terms, 10);
    struct flow_call call = fixture_flow_call(FLOW_NORMAL, now);
    struct flow_answer answer, first;

    (void)state;
    terms.max_waiting = 3;
    terms.max_waiting_per_client = 2;
    call_once(&terms, 30000, 30000);
    call.client = 1;
    flow_arrive(&gate, &target, &call, &first);
    flow_arrive(&gate, &target, &call, &answer);
    assert_int_equal(answer.verdict, FLOW_QUEUED);
    flow_arrive(&gate, &target, &call, &answer);
    assert_int_equal(answer.verdict, FLOW_REFUSED_CLIENT);
    call.client = 2;
    flow_arrive(&gate, &target, &call, &answer);
    assert_int_equal(answer.verdict, FLOW_QUEUED);
    flow_arrive(&gate, &target, &call, &answer);
    assert_int_equal(answer.verdict, FLOW_REFUSED_FULL);
    call.class = FLOW_BULK; /* another class has room */
    flow_arrive(&gate, &target, &call, &answer);
    assert_int_equal(answer.verdict, FLOW_QUEUED);
    flow_cancel(&gate, &first.place, now);
    call.client = 1;
    flow_arrive(&gate, &target, &call, &answer);
    assert_int_equal(answer.verdict, FLOW_QUEUED);
    call.may_wait = false;
    flow_arrive(&gate, &target, &call, &answer);
    assert_int_equal(answer.verdict, FLOW_REFUSED_BUSY);
}

static void f9_nobody_is_granted_after_his_deadline(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    const struct flow_target target = fixture_target(&terms, 10);
    struct flow_call call = fixture_flow_call(FLOW_NORMAL, now);
    struct flow_answer first, second;

    (void)state;
    call_once(&terms, 30000, 30000);
    call.now_ns = now;
    call.deadline_ns = now + 3 * NS_PER_S;
    flow_arrive(&gate, &target, &call, &first);
    assert_int_equal(first.verdict, FLOW_QUEUED);
    assert_int_equal(first.until_ns, call.deadline_ns);
    second = arrive(&terms, 10, FLOW_NORMAL);
    now = call.deadline_ns + 1;
    assert_int_equal(fixture_flow_try(&gate, first.place, now).verdict, FLOW_EXPIRED);
    assert_true(flow_is_rung(&gate, second.place)); /* it is in nobody's way */
    assert_int_equal(fixture_flow_try(&gate, second.place, now).verdict, FLOW_GRANTED);
    flow_cancel(&gate, &first.place, now);
    assert_int_equal(fixture_flow(&gate)->expired, 1);
}

static void f5_a_refusal_drains_an_adaptive_flow_and_it_comes_back(void **state)
{
    const struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_ADAPTIVE);
    struct flow_end end = {.refused = true, .kind = ADAPTIVE_BURST};
    struct flow_answer answer = arrive(&terms, 100, FLOW_NORMAL);
    struct flow_row *flow = fixture_flow(&gate);
    int64_t until;

    (void)state;
    assert_int_equal(answer.verdict, FLOW_GRANTED);
    flow_sent(&gate, answer.place, now);
    end.now_ns = now;
    assert_int_equal(flow_refund(&gate, &answer.place, &end), ADAPTIVE_BURST);
    assert_int_equal(flow->adaptive.state, ADAPTIVE_DRAIN);
    until = flow->adaptive.drained_until_ns;
    assert_true(until > now);
    answer = arrive(&terms, 100, FLOW_NORMAL);
    assert_int_equal(answer.verdict, FLOW_QUEUED);
    assert_int_equal(answer.due_ns, until);
    now = until;
    assert_int_equal(fixture_flow_try(&gate, answer.place, now).verdict, FLOW_GRANTED);
    assert_int_equal(flow->adaptive.state, ADAPTIVE_RECOVERY);
    flow_cancel(&gate, &answer.place, now);
    assert_int_equal(flow->adaptive.in_flight, 0);
}

/* Many waiters, driven as their threads would: rung, or due. */
struct waiter {
    uint32_t place;
    int64_t due_ns;
};

static void b2_no_60_seconds_carry_more_than_the_quota(void **state)
{
    struct flow_terms terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    static struct waiter waiters[60];
    static int64_t sent_ns[4000], units_of[4000];
    uint64_t seed = 7;
    size_t sent = 0, from = 0;
    int64_t sends = 0, units = 0;
    const int64_t end_ns = now + 300 * NS_PER_S;

    (void)state;
    terms.units_quota = 200000;
    for (size_t i = 0; i < LENGTH(waiters); i++)
        waiters[i].place = NO_INDEX;
    while (now < end_ns) {
        for (size_t i = 0; i < LENGTH(waiters); i++) {
            struct waiter *waiter = &waiters[i];
            const int64_t cost = 20 + fixture_random(&seed) % 1500;
            struct flow_answer answer = {.verdict = FLOW_QUEUED, .due_ns = waiter->due_ns};

            if (waiter->place == NO_INDEX) {
                answer = arrive(&terms, cost, (enum flow_class)(i % FLOW_CLASSES));
                waiter->place = answer.place;
            } else if (flow_is_rung(&gate, waiter->place) || waiter->due_ns <= now) {
                flow_try(&gate, waiter->place, now, &answer);
            }
            waiter->due_ns = answer.due_ns;
            if (answer.verdict != FLOW_GRANTED)
                continue;
            assert_true(sent < LENGTH(sent_ns));
            sent_ns[sent] = now;
            units_of[sent] = segment_layout(&segment)->flow_places[waiter->place].cost;
            flow_sent(&gate, waiter->place, now);
            units += units_of[sent];
            sends++;
            fixture_flow_settle(&gate, &waiter->place, units_of[sent], now);
            sent++;
        }
        while (from < sent && sent_ns[from] <= now - 60 * NS_PER_S) {
            units -= units_of[from++];
            sends--;
        }
        assert_true(sends <= terms.requests_quota);
        assert_true(units <= terms.units_quota + 1520); /* a call that goes into debt */
        now += 20 * NS_PER_MS;
    }
    /* and it is used: nothing idles while somebody waits */
    assert_true(units > terms.units_quota * 95 / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)
        TEST(f1_none_and_no_terms_hold_nothing),
        TEST(f2_retry_counts_and_holds_nothing_back),
        TEST(f3_rate_starts_full_then_goes_by_the_minute),
        TEST(f9_who_has_no_thread_to_wait_in_is_counted),
        TEST(f3_concurrency_comes_after_the_rate_and_is_given_on),
        TEST(f8_who_does_not_answer_a_ring_is_passed_over),
        TEST(f4_shaping_spaces_requests_and_charges_units),
        TEST(f4_the_pace_has_a_slack_that_does_not_add_up),
        TEST(f3_a_clock_read_before_the_others_decided_waits_for_nothing),
        TEST(f4_one_call_larger_than_the_bucket_goes_at_a_full_one),
        TEST(f4_a_long_answer_is_charged_as_it_comes_and_once),
        TEST(f6_every_exit_settles_once),
        TEST(f3_a_refused_request_stays_spent_an_unsent_one_comes_back),
        TEST(f7_a_long_wait_is_that_of_a_minute),
        TEST(f7_retry_after_stops_the_flow_for_a_minute_at_most),
        TEST(b4_a_storm_that_leaves_changes_no_balance),
        TEST(b4_a_grant_that_is_not_used_changes_no_balance),
        TEST(f9_hopeless_ones_are_refused_with_the_true_wait),
        TEST(f8_bounds_of_class_and_client),
        TEST(f9_nobody_is_granted_after_his_deadline),
        TEST(f5_a_refusal_drains_an_adaptive_flow_and_it_comes_back),
        TEST(b2_no_60_seconds_carry_more_than_the_quota),
#undef TEST
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
