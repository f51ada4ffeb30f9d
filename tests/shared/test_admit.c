/* test_admit.c - slot, flow and source in one decision: all or nothing, in order, nobody in the way. */
#include "tests/shared/flow_fixture.h"
#include "tests/shared/sources_fixture.h"

#include "shared/admit.h"
#include "shared/snapshot.h"
#include "shared/wait_queue.h"

static struct segment segment;
static struct gate gate;
static int64_t now;
static struct source_candidate candidates[2];
static struct flow_terms terms;
static struct flow_target targets[2];
static struct gate_call image;

static int make(void **state)
{
    static const struct source_name names[] = {{"one", "account-1"}, {"two", "account-2"}};

    (void)state;
    fixture_open(&segment, &gate, 1, 100);
    now = clock_monotonic_ns();
    fixture_register(&gate, names, LENGTH(names), candidates);
    terms = fixture_flow_terms(FLOW_STRATEGY_SHAPING);
    terms.requests_quota = 0;
    for (size_t i = 0; i < LENGTH(targets); i++)
        targets[i] = (struct flow_target){.model = "model", .terms = &terms, .cost = 1000};
    image = fixture_call(true);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    fixture_close(&segment);
    return 0;
}

/* A call by the first `count` candidates; image: it needs a slot. */
struct test_call {
    struct source_wish wish;
    struct admit_call call;
};

static const struct admit_call *call_of(struct test_call *test, size_t count, bool needs_slot)
{
    image.now_ns = now;
    test->wish = fixture_wish(candidates, count, now);
    test->call = (struct admit_call){.wish = &test->wish,
                                     .targets = targets,
                                     .flow = fixture_flow_call(FLOW_NORMAL, now),
                                     .image = needs_slot ? &image : NULL};
    return &test->call;
}

static struct admit_answer arrive(size_t count, bool needs_slot, struct admit_seat *seat)
{
    struct test_call test;
    struct admit_answer answer;

    *seat = ADMIT_SEAT_EMPTY;
    admit_arrive(&gate, call_of(&test, count, needs_slot), seat, &answer);
    return answer;
}

static enum admit_verdict attempt(size_t count, bool needs_slot, struct admit_seat *seat)
{
    struct test_call test;
    struct admit_answer answer;

    admit_try(&gate, call_of(&test, count, needs_slot), seat, &answer);
    return answer.verdict;
}

static void end(struct admit_seat *seat)
{
    flow_cancel(&gate, &seat->flow_place, now);
    fixture_end(&gate, &seat->permit, SOURCE_END_UNJUDGED, now);
    if (seat->image_place != NO_INDEX)
        gate_leave(&gate, seat->image_place, WAIT_DONE, now, NULL);
    *seat = ADMIT_SEAT_EMPTY;
}

static struct layout_area *layout(void)
{
    return segment_layout(&segment);
}

/* Makes the flow of account n owe: all further calls wait for its budget. */
static void exhaust(unsigned n, int64_t units)
{
    struct flow_target target = targets[0];
    struct flow_answer answer;

    target.quota_group = n == 0 ? "account-1" : "account-2";
    target.cost = 1; /* what it really used is owed */
    answer = fixture_flow_arrive(&gate, &target, FLOW_NORMAL, now);
    assert_int_equal(answer.verdict, FLOW_GRANTED);
    flow_sent(&gate, answer.place, now);
    fixture_flow_settle(&gate, &answer.place, units, now);
}

static void assert_nothing_is_held(void)
{
    assert_int_equal(fixture_use(&gate).used, 0);
    assert_int_equal(layout()->flow_places_used, 0);
    assert_int_equal(layout()->waiting, 0);
    assert_int_equal(fixture_view(&gate, "one", now).in_flight, 0);
    assert_int_equal(fixture_view(&gate, "two", now).in_flight, 0);
}

/* All records are in use: calls of further models wait in "*", also once there is room again. */
static void f1_who_waits_in_the_record_for_all_gets_its_source(void **state)
{
    struct layout_area *area = layout();
    struct admit_seat seat;
    struct flow_row *flow;

    (void)state;
    targets[0].model = "*";
    exhaust(0, 700000);
    for (unsigned i = 0; i < FLOWS_MAX; i++) {
        flow = &area->flows[i];
        if (area->flow_hashes[i] == 0) {
            area->flow_hashes[i] = 1;
            flow->last_used_ns = now;
            flow->in_flight = 1;
        }
    }
    targets[0].model = "made-up";
    assert_int_equal(arrive(1, false, &seat).verdict, ADMIT_QUEUED);
    flow = &area->flows[area->flow_places[seat.flow_place].flow];
    assert_string_equal(flow->model, "*");
    area->flows[FLOWS_MAX - 1].in_flight = 0; /* gives way to whoever looks for room */
    now += 600 * NS_PER_S;
    assert_int_equal(attempt(1, false, &seat), ADMIT_GRANTED);
    assert_int_equal(area->flow_hashes[FLOWS_MAX - 1], 1);
    end(&seat);
    assert_nothing_is_held();
}

static void b2_all_three_are_taken_at_once(void **state)
{
    struct admit_seat seat;

    (void)state;
    assert_int_equal(arrive(1, true, &seat).verdict, ADMIT_GRANTED);
    assert_true(seat.image_held && seat.flow_granted);
    assert_int_equal(seat.permit.row, candidates[0].row);
    assert_int_equal(fixture_use(&gate).used, 1);
    assert_int_equal(fixture_flow(&gate)->in_flight, 1);
    assert_string_equal(fixture_flow(&gate)->quota_group, "account-1");
    end(&seat);
    assert_nothing_is_held();
}

static void b2_a_refusal_of_the_source_charges_nothing(void **state)
{
    struct fixture_balance before, after;
    struct admit_seat seat;
    struct admit_answer answer;

    (void)state;
    exhaust(0, 10);
    before = fixture_balance(&gate, now);
    fixture_break(&gate, &candidates[0], now);
    answer = arrive(1, true, &seat);
    assert_int_equal(answer.verdict, ADMIT_REFUSED_SOURCE);
    assert_int_equal(answer.source.verdict, SOURCE_OPEN);
    assert_int_equal(answer.source.earliest_ns, now + 5 * NS_PER_S);
    after = fixture_balance(&gate, now);
    assert_memory_equal(&before, &after, sizeof before);
    assert_nothing_is_held();
}

static void b2_a_refusal_of_the_gate_or_the_flow_holds_nothing(void **state)
{
    struct admit_seat seat, holder;
    struct admit_answer answer;

    (void)state;
    assert_int_equal(arrive(1, true, &holder).verdict, ADMIT_GRANTED);
    image.may_wait = false;
    answer = arrive(1, true, &seat);
    assert_int_equal(answer.verdict, ADMIT_REFUSED_IMAGE);
    assert_int_equal(answer.image.verdict, GATE_REFUSED_LIMIT);
    image.may_wait = true;
    end(&holder);
    assert_nothing_is_held();
    exhaust(0, 500000);
    terms.max_wait_ns[FLOW_NORMAL] = NS_PER_S;
    answer = arrive(1, true, &seat);
    assert_int_equal(answer.verdict, ADMIT_REFUSED_FLOW);
    assert_int_equal(answer.flow.verdict, FLOW_REFUSED_HOPELESS);
    assert_true(answer.flow.predicted_wait_ns > 40 * NS_PER_S);
    assert_nothing_is_held();
}

static void f8_an_account_with_room_is_used_first(void **state)
{
    struct admit_seat seat, waiter;
    struct admit_answer answer;

    (void)state;
    exhaust(0, 30000);
    assert_int_equal(arrive(2, false, &seat).verdict, ADMIT_GRANTED);
    assert_int_equal(seat.candidate, 1);
    end(&seat);
    exhaust(1, 300000);
    answer = arrive(2, false, &waiter); /* the first has the shorter wait */
    assert_int_equal(answer.verdict, ADMIT_QUEUED);
    assert_int_equal(answer.wake_ns, answer.flow.due_ns);
    now = answer.wake_ns - 1;
    assert_int_equal(attempt(2, false, &waiter), ADMIT_QUEUED);
    now = answer.wake_ns;
    assert_int_equal(attempt(2, false, &waiter), ADMIT_GRANTED);
    assert_int_equal(waiter.candidate, 0);
    end(&waiter);
    assert_nothing_is_held();
}

static void f8_who_waits_in_a_flow_goes_to_a_source_of_it(void **state)
{
    struct admit_seat waiter;
    struct admit_answer answer;

    (void)state;
    exhaust(0, 300000);
    exhaust(1, 30000);
    answer = arrive(2, false, &waiter);
    assert_int_equal(answer.verdict, ADMIT_QUEUED);
    now = answer.wake_ns;
    assert_int_equal(attempt(2, false, &waiter), ADMIT_GRANTED);
    assert_int_equal(waiter.candidate, 1); /* though the other is preferred */
    end(&waiter);
    assert_nothing_is_held();
}

static void b2_waits_for_slot_and_flow_and_takes_both_or_neither(void **state)
{
    struct admit_seat holder, waiter;
    struct admit_answer answer;

    (void)state;
    assert_int_equal(arrive(1, true, &holder).verdict, ADMIT_GRANTED);
    exhaust(0, 30000);
    answer = arrive(1, true, &waiter);
    assert_int_equal(answer.verdict, ADMIT_QUEUED);
    assert_int_equal(layout()->waiting, 1);
    assert_int_equal(fixture_flow(&gate)->waiting, 1);
    end(&holder); /* a slot, but no budget: it learns when that comes */
    assert_true(admit_is_rung(&gate, waiter.image_place, waiter.flow_place));
    assert_int_equal(attempt(1, true, &waiter), ADMIT_QUEUED);
    assert_false(admit_is_rung(&gate, waiter.image_place, waiter.flow_place));
    assert_int_equal(fixture_use(&gate).used, 0);
    now += 2 * NS_PER_S; /* both */
    assert_int_equal(attempt(1, true, &waiter), ADMIT_GRANTED);
    assert_int_equal(fixture_use(&gate).used, 1);
    end(&waiter);
    assert_nothing_is_held();
}

static void b2_budget_alone_takes_nothing_and_the_slot_rings(void **state)
{
    struct admit_seat holder, waiter;

    (void)state;
    assert_int_equal(arrive(1, true, &holder).verdict, ADMIT_GRANTED);
    assert_int_equal(arrive(1, true, &waiter).verdict, ADMIT_QUEUED);
    assert_int_equal(attempt(1, true, &waiter), ADMIT_QUEUED);
    assert_false(admit_is_rung(&gate, waiter.image_place, waiter.flow_place));
    assert_int_equal(fixture_flow(&gate)->in_flight, 1);
    end(&holder);
    assert_true(admit_is_rung(&gate, waiter.image_place, waiter.flow_place));
    assert_int_equal(attempt(1, true, &waiter), ADMIT_GRANTED);
    end(&waiter);
    assert_nothing_is_held();
}

static void f8_a_call_without_slot_does_not_hold_up_its_flow(void **state)
{
    struct admit_seat holder, picture, text;

    (void)state;
    assert_int_equal(arrive(1, true, &holder).verdict, ADMIT_GRANTED);
    assert_int_equal(arrive(1, true, &picture).verdict, ADMIT_QUEUED);
    assert_int_equal(arrive(1, false, &text).verdict, ADMIT_GRANTED);
    end(&text);
    admit_leave(&gate, &picture, WAIT_CLIENT_GONE, now);
    assert_int_equal(picture.image_place, NO_INDEX);
    assert_int_equal(picture.flow_place, NO_INDEX);
    end(&holder);
    assert_nothing_is_held();
}

static void f8_a_slot_does_not_idle_for_a_call_whose_flow_is_not_ready(void **state)
{
    struct admit_seat first, other;
    uint32_t place;

    (void)state;
    exhaust(0, 95000);
    assert_int_equal(arrive(1, true, &first).verdict, ADMIT_QUEUED);
    assert_int_equal(fixture_arrive(&gate, true, &place), GATE_GRANTED); /* without a flow */
    fixture_leave(&gate, place, WAIT_DONE);
    for (unsigned i = 1; i < QUEUE_PASSES_MAX; i++) {
        targets[0].model = "another";
        assert_int_equal(arrive(1, true, &other).verdict, ADMIT_GRANTED);
        targets[0].model = "model";
        end(&other);
    }
    assert_int_equal(layout()->places[first.image_place].passed_over, QUEUE_PASSES_MAX);
    assert_int_equal(fixture_arrive(&gate, true, &place), GATE_GRANTED); /* it needs 8 s yet */
    fixture_leave(&gate, place, WAIT_DONE);
    /* passed over often enough: a second before its budget is there, the slot is kept for it */
    now += 7500 * NS_PER_MS;
    assert_int_equal(attempt(1, true, &first), ADMIT_QUEUED);
    targets[0].model = "another";
    assert_int_equal(arrive(1, true, &other).verdict, ADMIT_QUEUED);
    targets[0].model = "model";
    now += NS_PER_S;
    assert_int_equal(attempt(1, true, &first), ADMIT_GRANTED);
    end(&first);
    targets[0].model = "another";
    assert_true(admit_is_rung(&gate, other.image_place, other.flow_place));
    assert_int_equal(attempt(1, true, &other), ADMIT_GRANTED);
    end(&other);
    assert_nothing_is_held();
}

static void h1_a_busy_source_is_waited_for_aside(void **state)
{
    struct admit_seat holder, waiter, other;
    struct test_call test;
    struct admit_answer answer;

    (void)state;
    candidates[0].max_in_flight = 1;
    exhaust(0, 30000);
    assert_int_equal(arrive(1, false, &waiter).verdict, ADMIT_QUEUED);
    assert_int_equal(arrive(1, false, &other).verdict, ADMIT_QUEUED);
    holder = ADMIT_SEAT_EMPTY;
    {
        const struct source_wish wish = fixture_wish(candidates, 1, now);
        const struct source_answer direct = fixture_admit(&gate, &wish);

        assert_int_equal(direct.verdict, SOURCE_ADMITTED);
        holder.permit = direct.permit;
    }
    now += 3 * NS_PER_S;
    admit_try(&gate, call_of(&test, 1, false), &waiter, &answer);
    assert_int_equal(answer.verdict, ADMIT_QUEUED);
    assert_int_equal(answer.source.verdict, SOURCE_BUSY);
    assert_int_equal(answer.wake_ns, answer.source.earliest_ns);
    assert_true(flow_is_rung(&gate, other.flow_place)); /* may go before it meanwhile */
    end(&holder);
    now = answer.wake_ns;
    assert_int_equal(attempt(1, false, &waiter), ADMIT_GRANTED);
    end(&waiter);
    now += NS_PER_S;
    assert_int_equal(attempt(1, false, &other), ADMIT_GRANTED);
    end(&other);
    assert_nothing_is_held();
}

static void h7_a_source_that_opened_meanwhile_ends_the_wait(void **state)
{
    struct admit_seat waiter;

    (void)state;
    exhaust(0, 30000);
    assert_int_equal(arrive(1, true, &waiter).verdict, ADMIT_QUEUED);
    fixture_break(&gate, &candidates[0], now);
    now += 3 * NS_PER_S;
    assert_int_equal(attempt(1, true, &waiter), ADMIT_REFUSED_SOURCE);
    admit_leave(&gate, &waiter, WAIT_REFUSED, now);
    assert_nothing_is_held();
}

static void f3_a_retry_keeps_its_slot_and_takes_a_new_grant(void **state)
{
    struct admit_seat seat;
    struct test_call test;
    struct admit_answer answer;

    (void)state;
    assert_int_equal(arrive(1, true, &seat).verdict, ADMIT_GRANTED);
    flow_cancel(&gate, &seat.flow_place, now);
    fixture_end(&gate, &seat.permit, SOURCE_END_UNJUDGED, now);
    seat.flow_granted = false;
    exhaust(0, 30000);
    admit_arrive(&gate, call_of(&test, 1, true), &seat, &answer);
    assert_int_equal(answer.verdict, ADMIT_QUEUED);
    assert_int_equal(layout()->waiting, 0); /* for the flow only */
    assert_true(seat.image_held);
    now = answer.wake_ns;
    assert_int_equal(attempt(1, true, &seat), ADMIT_GRANTED);
    assert_int_equal(fixture_use(&gate).used, 1);
    end(&seat);
    assert_nothing_is_held();
}

static void d16_a_hedge_goes_at_once_or_not_at_all(void **state)
{
    struct test_call test;
    struct admit_answer answer;
    struct admit_seat seat = ADMIT_SEAT_EMPTY;

    (void)state;
    exhaust(1, 30000);
    (void)call_of(&test, 2, false);
    test.wish.hedge = true;
    test.wish.hedge_of = 0;
    test.wish.tried = 1;
    admit_arrive(&gate, &test.call, &seat, &answer);
    assert_int_equal(answer.verdict, ADMIT_REFUSED_FLOW);
    assert_int_equal(answer.flow.verdict, FLOW_REFUSED_BUSY);
    assert_nothing_is_held();
    now += 3 * NS_PER_S;
    (void)call_of(&test, 2, false);
    test.wish.hedge = true;
    test.wish.hedge_of = 0;
    test.wish.tried = 1;
    admit_arrive(&gate, &test.call, &seat, &answer);
    assert_int_equal(answer.verdict, ADMIT_GRANTED);
    assert_int_equal(seat.candidate, 1);
    end(&seat);
}

static void f1_without_flow_a_source_is_asked_as_before(void **state)
{
    struct test_call test;
    struct admit_answer answer;
    struct admit_seat seat = ADMIT_SEAT_EMPTY;

    (void)state;
    (void)call_of(&test, 2, false);
    test.call.targets = NULL;
    admit_arrive(&gate, &test.call, &seat, &answer);
    assert_int_equal(answer.verdict, ADMIT_GRANTED);
    assert_int_equal(seat.flow_place, NO_INDEX);
    assert_int_equal(layout()->flow_places_used, 0);
    end(&seat);
    /* an image call without flow waits for its slot alone */
    (void)call_of(&test, 1, true);
    test.call.targets = NULL;
    admit_arrive(&gate, &test.call, &seat, &answer);
    assert_int_equal(answer.verdict, ADMIT_GRANTED);
    {
        struct admit_seat second = ADMIT_SEAT_EMPTY;

        admit_arrive(&gate, &test.call, &second, &answer);
        assert_int_equal(answer.verdict, ADMIT_QUEUED);
        assert_int_equal(second.flow_place, NO_INDEX);
        end(&seat);
        admit_try(&gate, &test.call, &second, &answer);
        assert_int_equal(answer.verdict, ADMIT_GRANTED);
        end(&second);
    }
    assert_nothing_is_held();
}

static void g6_a_gate_switched_off_lets_waiters_go(void **state)
{
    const struct gate_limits off = {.limit = 1, .max_waiting = 100, .on = false};
    struct admit_seat holder, waiter;

    (void)state;
    assert_int_equal(arrive(1, true, &holder).verdict, ADMIT_GRANTED);
    assert_int_equal(arrive(1, true, &waiter).verdict, ADMIT_QUEUED);
    gate_set_limits(&gate, &off, now, 0);
    assert_true(admit_is_rung(&gate, waiter.image_place, waiter.flow_place));
    assert_int_equal(attempt(1, true, &waiter), ADMIT_GRANTED);
    end(&waiter);
    end(&holder);
    assert_nothing_is_held();
}

/* ---- Whoever waits for slot and flow waits as long as one may for a slot, and is told what it lacked. */

static struct admit_answer try_it(struct admit_seat *seat)
{
    struct test_call test;
    struct admit_answer answer;

    admit_try(&gate, call_of(&test, 1, true), seat, &answer);
    return answer;
}

static void leave(struct admit_seat *seat)
{
    admit_leave(&gate, seat, WAIT_TIMED_OUT, now);
}

static void f9_a_flow_that_comes_later_than_the_gates_patience_is_hopeless(void **state)
{
    struct admit_seat seat;
    struct admit_answer answer;

    (void)state;
    image.wait_timeout_ns = 20 * NS_PER_S;
    exhaust(0, 700000); /* more than a minute; the class may wait for ten */
    answer = arrive(1, true, &seat);
    assert_int_equal(answer.verdict, ADMIT_REFUSED_FLOW);
    assert_int_equal(answer.flow.verdict, FLOW_REFUSED_HOPELESS);
    assert_in_range(answer.flow.predicted_wait_ns, 60 * NS_PER_S, 80 * NS_PER_S);
    assert_int_equal(arrive(1, false, &seat).verdict, ADMIT_QUEUED); /* one that needs no slot */
    leave(&seat);
    assert_nothing_is_held();
}

static void f9_the_end_of_patience_is_told_in_the_name_of_what_lacks(void **state)
{
    struct admit_seat holder, lacks_flow, lacks_both;
    struct admit_answer answer;
    struct snapshot snapshot;

    (void)state;
    image.wait_timeout_ns = 20 * NS_PER_S;
    exhaust(0, 150000); /* 15 s */
    assert_int_equal(arrive(1, true, &lacks_flow).verdict, ADMIT_QUEUED);
    assert_int_equal(arrive(1, true, &lacks_both).verdict, ADMIT_QUEUED);
    assert_true(snapshot_take(&snapshot, &gate, now));
    assert_true(snapshot.places[0].for_flow); /* nobody holds a slot */
    snapshot_release(&snapshot);
    layout()->flows[layout()->flow_places[lacks_flow.flow_place].flow].units.balance_micro -=
        60000 * BUCKET_UNIT; /* a long answer */
    now += 20 * NS_PER_S + 1;
    answer = try_it(&lacks_flow);
    assert_int_equal(answer.verdict, ADMIT_REFUSED_FLOW);
    assert_int_equal(answer.flow.verdict, FLOW_EXPIRED);
    assert_in_range(answer.flow.predicted_wait_ns, NS_PER_S / 10, 10 * NS_PER_S);
    leave(&lacks_flow);
    targets[0].terms = NULL; /* one that only needs a slot takes it */
    assert_int_equal(arrive(1, true, &holder).verdict, ADMIT_GRANTED);
    assert_true(snapshot_take(&snapshot, &gate, now));
    assert_false(snapshot.places[1].for_flow);
    snapshot_release(&snapshot);
    targets[0].terms = &terms;
    answer = try_it(&lacks_both);
    assert_int_equal(answer.verdict, ADMIT_REFUSED_IMAGE);
    assert_int_equal(answer.image.verdict, GATE_REFUSED_HOPELESS);
    leave(&lacks_both);
    end(&holder);
    assert_nothing_is_held();
}

static void f9_a_pause_refuses_who_needs_a_slot_in_the_name_of_the_flow(void **state)
{
    struct admit_seat seat;
    struct admit_answer answer;

    (void)state;
    image.wait_timeout_ns = 20 * NS_PER_S;
    exhaust(0, 100000);
    assert_int_equal(arrive(1, true, &seat).verdict, ADMIT_QUEUED);
    layout()->flows[layout()->flow_places[seat.flow_place].flow].paused_until_ns =
        now + 50 * NS_PER_S;
    now += 250 * NS_PER_MS;
    gate_tick(&gate, now);
    answer = try_it(&seat);
    assert_int_equal(answer.verdict, ADMIT_REFUSED_FLOW);
    assert_int_equal(answer.flow.verdict, FLOW_REFUSED_HOPELESS);
    assert_in_range(answer.flow.predicted_wait_ns, 49 * NS_PER_S, 50 * NS_PER_S);
    leave(&seat);
    assert_nothing_is_held();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)
        TEST(b2_all_three_are_taken_at_once),
        TEST(f1_who_waits_in_the_record_for_all_gets_its_source),
        TEST(b2_a_refusal_of_the_source_charges_nothing),
        TEST(b2_a_refusal_of_the_gate_or_the_flow_holds_nothing),
        TEST(f8_an_account_with_room_is_used_first),
        TEST(f8_who_waits_in_a_flow_goes_to_a_source_of_it),
        TEST(b2_waits_for_slot_and_flow_and_takes_both_or_neither),
        TEST(b2_budget_alone_takes_nothing_and_the_slot_rings),
        TEST(f8_a_call_without_slot_does_not_hold_up_its_flow),
        TEST(f8_a_slot_does_not_idle_for_a_call_whose_flow_is_not_ready),
        TEST(h1_a_busy_source_is_waited_for_aside),
        TEST(h7_a_source_that_opened_meanwhile_ends_the_wait),
        TEST(f3_a_retry_keeps_its_slot_and_takes_a_new_grant),
        TEST(d16_a_hedge_goes_at_once_or_not_at_all),
        TEST(f1_without_flow_a_source_is_asked_as_before),
        TEST(g6_a_gate_switched_off_lets_waiters_go),
        TEST(f9_a_flow_that_comes_later_than_the_gates_patience_is_hopeless),
        TEST(f9_the_end_of_patience_is_told_in_the_name_of_what_lacks),
        TEST(f9_a_pause_refuses_who_needs_a_slot_in_the_name_of_the_flow),
#undef TEST
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
