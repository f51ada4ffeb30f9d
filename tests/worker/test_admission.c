/* test_admission.c - an image call gets its slot, waits for it with the bell's help, or is refused;
 * whatever ends its wait leaves nothing behind (G9, N9); on a scope with flow control together with the flow's
 * grant and a source, or not at all (F8, F9, N1). */
#include "tests/worker/flow_house.h"

#include "worker/admission.h"

#include <sys/eventfd.h>
#include <unistd.h>

static struct segment segment;
static uint32_t holder; /* the place of a call that has the one slot */

/* One slot, two places in the queue, patience of an hour; everything real but the web server. */
static int make(void **state)
{
    struct house *house = house_new();
    struct worker *worker = &house->worker;

    *state = house;
    fixture_open(&segment, &worker->gate, 1, 2);
    worker->segment = &segment;
    worker->cut_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    house->fcgi->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(bell_start(&worker->bell, &worker->gate, 1));
    house->options.image = (struct image_concurrency_options){
        .active = true, .overflow_mode = OVERFLOW_WAIT, .wait_timeout_ms = 3600000};
    house->request->seat = &worker->bell.seats[0];
    house->request->reader.intent.image = true;
    house->request->arrived_ns = clock_monotonic_ns();
    holder = NO_INDEX;
    return 0;
}

static int drop(void **state)
{
    struct house *house = *state;

    ticket_give(&house->request->ticket, WAIT_DONE, NULL);
    if (holder != NO_INDEX)
        fixture_leave(&house->worker.gate, holder, WAIT_DONE);
    assert_int_equal(fixture_use(&house->worker.gate).used, 0);
    bell_stop(&house->worker.bell);
    fixture_close(&segment);
    (void)close(house->worker.cut_fd);
    (void)close(house->fcgi->fd);
    house_free(house);
    return 0;
}

static void take_the_slot(struct house *house)
{
    assert_int_equal(fixture_arrive(&house->worker.gate, false, &holder), GATE_GRANTED);
}

/* Something that happens once the call waits, done by a thread of its own. */
struct meanwhile {
    struct house *house;
    void (*act)(struct house *house);
    pthread_t thread;
};

static unsigned waiting(struct house *house)
{
    unsigned count;

    gate_lock(&house->worker.gate);
    count = segment_layout(&segment)->waiting;
    gate_unlock(&house->worker.gate);
    return count;
}

static void *act_when_waiting(void *argument)
{
    struct meanwhile *meanwhile = argument;

    while (waiting(meanwhile->house) == 0)
        clock_sleep_ns(NS_PER_MS);
    meanwhile->act(meanwhile->house);
    return NULL;
}

/* The step, with act while it waits. */
static enum step_result admit_with(struct house *house, void (*act)(struct house *house))
{
    struct meanwhile meanwhile = {.house = house, .act = act};
    enum step_result result;

    take_the_slot(house);
    assert_int_equal(pthread_create(&meanwhile.thread, NULL, act_when_waiting, &meanwhile), 0);
    result = admission_step(house->request);
    assert_int_equal(pthread_join(meanwhile.thread, NULL), 0);
    assert_int_equal(waiting(house), 0);
    assert_int_equal(atomic_load(&house->request->seat->place), NO_INDEX);
    return result;
}

static void free_the_slot(struct house *house)
{
    fixture_leave(&house->worker.gate, holder, WAIT_DONE);
    holder = NO_INDEX;
}

static void leave_as_client(struct house *house)
{
    house->fcgi->gone = true;
    (void)eventfd_write(house->fcgi->fd, 1);
}

static void cut_everything(struct house *house)
{
    (void)eventfd_write(house->worker.cut_fd, 1);
}

static void what_draws_nothing_passes(void **state)
{
    struct house *house = *state;

    take_the_slot(house);
    house->request->reader.intent.image = false;
    assert_int_equal(admission_step(house->request), STEP_NEXT);
    assert_int_equal(house->request->ticket.place, NO_INDEX);
    house->request->reader.intent.image = true;
    house->options.image.active = false;
    assert_int_equal(admission_step(house->request), STEP_NEXT);
    assert_int_equal(house->request->ticket.place, NO_INDEX);
}

static void a_free_slot_is_taken_at_once(void **state)
{
    struct house *house = *state;

    assert_int_equal(admission_step(house->request), STEP_NEXT);
    assert_true(house->request->ticket.granted);
    assert_int_equal(fixture_use(&house->worker.gate).used, 1);
    assert_int_equal(house->request->queue_ns, 0);
}

/* Retry-After is the predicted wait: a fault that is set afterwards must not wipe it out. */
static void g6_a_refusal_says_when_to_come_back(void **state)
{
    struct house *house = *state;

    take_the_slot(house);
    house->options.image.overflow_mode = OVERFLOW_REJECT;
    assert_int_equal(admission_step(house->request), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_image_limit);
    assert_true(house->request->fault.retry_after_ms >= 0);
    assert_string_equal(house->request->fault.detail,
                        "1 of 1 image calls are in progress, 0 wait.");
    assert_int_equal(house->request->ticket.place, NO_INDEX);
}

static void f8_a_call_comes_with_its_class_and_pictures(void **state)
{
    struct house *house = *state;
    const struct place_row *row;

    segment_layout(&segment)->queue_classes[FLOW_NORMAL].terms.weight = 4;
    house->scope.flow_class_header_max = FLOW_NORMAL;
    fake_fastcgi_param(house->fcgi, "HTTP_X_PENSTOCK_CLASS", "bulk");
    house->request->reader.intent.choices = 3;
    assert_int_equal(admission_step(house->request), STEP_NEXT);
    row = &segment_layout(&segment)->places[house->request->ticket.place];
    assert_true(row->class_index == FLOW_BULK && row->pictures == 3);
    assert_string_equal(row->record.class_name, "bulk");
}

static void a_full_queue_refuses_at_once(void **state)
{
    struct house *house = *state;
    uint32_t places[2];

    take_the_slot(house);
    assert_int_equal(fixture_arrive(&house->worker.gate, true, &places[0]), GATE_QUEUED);
    assert_int_equal(fixture_arrive(&house->worker.gate, true, &places[1]), GATE_QUEUED);
    assert_int_equal(admission_step(house->request), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_image_queue_full);
    assert_true(house->request->fault.retry_after_ms >= 0);
    fixture_leave(&house->worker.gate, places[0], WAIT_TIMED_OUT);
    fixture_leave(&house->worker.gate, places[1], WAIT_TIMED_OUT);
}

static void a_slot_that_becomes_free_wakes_who_waits(void **state)
{
    struct house *house = *state;

    assert_int_equal(admit_with(house, free_the_slot), STEP_NEXT);
    assert_true(house->request->ticket.granted);
    assert_int_equal(fixture_use(&house->worker.gate).used, 1);
    assert_true(house->request->queue_ns > 0);
}

static void g9_a_client_that_leaves_gives_its_place_back(void **state)
{
    struct house *house = *state;

    assert_int_equal(admit_with(house, leave_as_client), STEP_OVER);
    assert_true(house->request->client_gone);
    assert_int_equal(house->request->fault.code, FAULT_client_gone);
    assert_int_equal(house->request->ticket.place, NO_INDEX);
}

static void a_client_that_left_before_takes_nothing(void **state)
{
    struct house *house = *state;

    house->fcgi->gone = true;
    assert_int_equal(admission_step(house->request), STEP_OVER);
    assert_int_equal(fixture_use(&house->worker.gate).used, 0);
}

static void a_fast_stop_ends_the_wait(void **state)
{
    struct house *house = *state;

    assert_int_equal(admit_with(house, cut_everything), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_shutting_down);
    assert_int_equal(house->request->fault.retry_after_ms, 1000);
}

static void patience_ends_with_the_operators_time(void **state)
{
    struct house *house = *state;

    take_the_slot(house);
    house->options.image.wait_timeout_ms = 20;
    assert_int_equal(admission_step(house->request), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_image_queue_timeout);
    assert_true(house->request->fault.retry_after_ms >= 0);
    assert_true(house->request->queue_ns > 0);
    assert_int_equal(waiting(house), 0);
}

/* An SDK that gives up in 20 ms is not kept for an hour; nonsense changes nothing. */
static void patience_ends_with_the_clients_time_if_sooner(void **state)
{
    struct house *house = *state;

    take_the_slot(house);
    fake_fastcgi_param(house->fcgi, "HTTP_X_STAINLESS_TIMEOUT", "0.02");
    assert_int_equal(admission_step(house->request), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_image_queue_timeout);
}

static void a_longer_patience_of_the_client_changes_nothing(void **state)
{
    static const char *const values[] = {"9999", "0", "-1", "", "soon"};
    struct house *house = *state;

    take_the_slot(house);
    house->options.image.wait_timeout_ms = 20;
    for (size_t i = 0; i < LENGTH(values); i++) {
        fake_fastcgi_reset(house->fcgi);
        fake_fastcgi_param(house->fcgi, "HTTP_X_STAINLESS_TIMEOUT", values[i]);
        house->request->arrived_ns = clock_monotonic_ns();
        house->request->fault = (struct fault){.code = FAULT_NONE};
        assert_int_equal(admission_step(house->request), STEP_FAULT);
        assert_int_equal(house->request->fault.code, FAULT_image_queue_timeout);
        assert_true(house->request->queue_ns >= 10 * NS_PER_MS);
    }
}

/* The head of a stream that waits goes out while it waits, and finds the client gone. */
static void a_waiting_stream_is_kept_alive(void **state)
{
    struct house *house = *state;

    take_the_slot(house);
    house->request->reader.intent.stream = true;
    house->options.image.queue_stream_headers_after_ms = 1;
    house->options.image.queue_heartbeat_ms = 1;
    house->fcgi->room_bytes = 400; /* head and some comments */
    assert_int_equal(admission_step(house->request), STEP_OVER);
    assert_true(house->request->client_gone);
    assert_int_equal(house->request->response, RESPONSE_STREAM);
    assert_non_null(strstr(fake_fastcgi_out(house->fcgi), ": waiting\n\n: waiting\n\n"));
    assert_int_equal(waiting(house), 0);
}

static void drain_and_free_the_flow(void)
{
    assert_true(source_drain(&now->house->worker.gate, "a", true, clock_wall_ms()));
    flow_give();
}

/* ---- a flow ----------------------------------------------------------------------------------- */

static void f8_who_waits_goes_when_another_ends(void **state)
{
    (void)state;
    flow_take("gpt-5");
    scene_serve(now, 0, say_used);
    assert_int_equal(flow_run_with(flow_give), STEP_NEXT);
    assert_string_equal(scene_attempts(now), "a:");
    assert_int_equal(atomic_load(&now->house->worker.flow_waiters), 0);
    assert_true(now->house->request->queue_ns > 0);
    assert_int_equal(scene_call(now).queue_ms, now->house->request->queue_ns / NS_PER_MS);
    assert_int_equal(view_of("a").in_flight, 0);
}

static void who_need_not_wait_has_not_waited(void **state)
{
    (void)state;
    scene_serve(now, 0, say_used);
    assert_int_equal(scene_run(now), STEP_NEXT);
    assert_int_equal(now->house->request->queue_ns, 0);
    assert_true(scene_head_has(now, "x-penstock-wait-ms: 0"));
}

static void f8_a_client_that_leaves_while_waiting_costs_nothing(void **state)
{
    (void)state;
    flow_take("gpt-5");
    scene_serve(now, 0, say_used);
    assert_int_equal(flow_run_with(flow_client_leaves), STEP_OVER);
    assert_true(now->house->request->client_gone);
    assert_int_equal(scene_asked(now, 0), 0);
    assert_int_equal(view_of("a").in_flight, 1); /* the other's */
    assert_int_equal(view_of("a").use.sends, 2);
    assert_string_equal(scene_call(now).outcome, "client_gone");
}

/* Threads are left for calls that need not wait: no further one waits in a flow. */
static void f9_no_call_waits_that_has_no_thread_left(void **state)
{
    struct worker *worker = &now->house->worker;

    (void)state;
    atomic_store(&worker->flow_waiters, worker->flow_waiters_max);
    flow_take("gpt-5");
    assert_int_equal(scene_run(now), STEP_FAULT);
    scene_assert_fault(now, FAULT_rate_limit);
    assert_true(scene_head_has(now, "Status: 429"));
    assert_non_null(strstr(scene_body(now), "no thread left for it to wait in"));
    assert_true(scene_head_has(now, "x-ratelimit-limit-requests: 600000")); /* F7 */
    assert_in_range(told_seconds(), 1, 60);
    assert_int_equal(view_of("a").in_flight, 1); /* the other's */
    assert_int_equal(atomic_load(&worker->flow_waiters), worker->flow_waiters_max);
}

static void f9_who_need_not_wait_goes_without_a_thread_left(void **state)
{
    struct worker *worker = &now->house->worker;

    (void)state;
    atomic_store(&worker->flow_waiters, worker->flow_waiters_max);
    scene_serve(now, 0, say_used);
    assert_int_equal(scene_run(now), STEP_NEXT);
    assert_int_equal(atomic_load(&worker->flow_waiters), worker->flow_waiters_max);
}

static void a_fast_stop_ends_the_wait_for_a_flow(void **state)
{
    (void)state;
    flow_take("gpt-5");
    assert_int_equal(flow_run_with(flow_stop_fast), STEP_FAULT);
    scene_assert_fault(now, FAULT_shutting_down);
    assert_true(scene_head_has(now, "retry-after: 1"));
}

/* Nobody rings a place whose time is over. */
static void f9_the_patience_of_a_class_ends_by_itself(void **state)
{
    (void)state;
    now->house->scope.max_wait_ms[FLOW_NORMAL] = 60;
    flow_take("gpt-5");
    assert_int_equal(flow_run_with(flow_act_nothing), STEP_FAULT);
    scene_assert_fault(now, FAULT_rate_limit);
    assert_non_null(strstr(scene_body(now), "as long as it may"));
    assert_in_range(told_seconds(), 1, 60);
    assert_true(scene_head_has(now, "x-ratelimit-limit-requests: 600000")); /* F7 */
    assert_true(scene_head_has(now, "x-ratelimit-limit-tokens: 60000000"));
    assert_in_range(now->house->request->queue_ns / NS_PER_MS, 60, 5000);
    assert_int_equal(view_of("a").expired, 1);
    assert_string_equal(scene_call(now).outcome, "refused");
}

static void h6_the_calls_own_deadline_ends_the_wait(void **state)
{
    (void)state;
    now->house->request->deadline_ns = now->house->request->arrived_ns + 100 * NS_PER_MS;
    flow_take("gpt-5");
    assert_int_equal(flow_run_with(flow_act_nothing), STEP_FAULT);
    scene_assert_fault(now, FAULT_call_deadline);
    assert_true(scene_head_has(now, "Status: 504"));
}

static void a_source_that_is_drained_meanwhile_is_not_had(void **state)
{
    (void)state;
    flow_take("gpt-5");
    scene_serve(now, 0, say_used);
    assert_int_equal(flow_run_with(drain_and_free_the_flow), STEP_FAULT);
    scene_assert_fault(now, FAULT_sources_unavailable);
    assert_int_equal(scene_asked(now, 0), 0);
}

/* What was failed elsewhere is told when there is no turn for another try. */
static void what_the_upstream_said_is_told_when_a_retry_gets_no_turn(void **state)
{
    (void)state;
    now->house->scope.member_count = 2;
    now->house->scope.max_wait_ms[FLOW_NORMAL] = 1000;
    now->house->scope.retry_budget = 1;
    use_up("b", 1);
    scene_serve_two(now, say_500, say_used);
    assert_int_equal(scene_run(now), STEP_NEXT);
    assert_true(scene_head_has(now, "Status: 500"));
    assert_int_equal(scene_asked(now, 1), 0);
}

static void a_stream_that_waits_is_kept_alive(void **state)
{
    (void)state;
    now->house->options.image.queue_stream_headers_after_ms = 1;
    now->house->options.image.queue_heartbeat_ms = 1;
    now->house->fcgi->room_bytes = 500; /* head and some comments */
    scene_ask(now, "/v1/chat/completions", STREAM_BODY);
    flow_take("gpt-5");
    assert_int_equal(flow_run_with(flow_act_nothing), STEP_OVER);
    assert_true(now->house->request->client_gone);
    assert_int_equal(now->house->request->response, RESPONSE_STREAM);
    assert_non_null(strstr(scene_out(now), ": waiting\n\n: waiting\n\n"));
}

/* ---- a slot and a flow ------------------------------------------------------------------------ */

static atomic_bool held_nothing;

static bool no_slot_is_in_use(void)
{
    return fixture_use(&now->house->worker.gate).used == 0;
}

static void see_no_slot_and_free_the_flow(void)
{
    atomic_store(&held_nothing, no_slot_is_in_use());
    flow_give();
}

static void n9_who_waits_for_its_flow_holds_no_slot(void **state)
{
    (void)state;
    flow_ask_for_a_picture();
    flow_take("gpt-image-2");
    scene_serve(now, 0, flow_say_picture);
    atomic_store(&held_nothing, false);
    assert_int_equal(flow_run_with(see_no_slot_and_free_the_flow), STEP_NEXT);
    assert_true(atomic_load(&held_nothing));
    assert_string_equal(scene_attempts(now), "a:");
    assert_int_equal(view_of("a").in_flight, 0);
}

static void see_no_grant_and_free_the_slot(void)
{
    const struct flow_view view = view_of("a");

    atomic_store(&held_nothing, view.in_flight == 0 && view.waiting[FLOW_NORMAL] == 1);
    flow_give_slot();
}

static void n9_who_waits_for_a_slot_holds_no_flow(void **state)
{
    (void)state;
    flow_ask_for_a_picture();
    flow_take_slot();
    scene_serve(now, 0, flow_say_picture);
    atomic_store(&held_nothing, false);
    assert_int_equal(flow_run_with(see_no_grant_and_free_the_slot), STEP_NEXT);
    assert_true(atomic_load(&held_nothing));
    assert_string_equal(scene_attempts(now), "a:");
    assert_int_equal(view_of("a").use.sends, 1);
}

static void g9_a_client_that_leaves_gives_both_places_back(void **state)
{
    (void)state;
    flow_ask_for_a_picture();
    flow_take_slot();
    flow_take("gpt-image-2");
    assert_int_equal(flow_run_with(flow_client_leaves), STEP_OVER);
    assert_int_equal(now->house->request->ticket.place, NO_INDEX);
}

static void the_gates_patience_ends_the_wait_for_a_slot(void **state)
{
    (void)state;
    now->house->options.image.wait_timeout_ms = 60;
    flow_ask_for_a_picture();
    flow_take_slot();
    assert_int_equal(flow_run_with(flow_act_nothing), STEP_FAULT);
    scene_assert_fault(now, FAULT_image_queue_timeout);
    assert_true(told_seconds() >= 1);
}

static void where_nobody_waits_for_a_slot_the_gate_refuses(void **state)
{
    (void)state;
    now->house->options.image.overflow_mode = OVERFLOW_REJECT;
    flow_ask_for_a_picture();
    flow_take_slot();
    assert_int_equal(scene_run(now), STEP_FAULT);
    scene_assert_fault(now, FAULT_image_limit);
    assert_int_equal(view_of("a").waiting[FLOW_NORMAL], 0);
}

/* A retry keeps its slot, and the next one in the image queue waits for it: not for as long as the flow
 * would let it wait. */
static void n1_a_slot_is_not_held_for_long_while_a_flow_is_waited_for(void **state)
{
    (void)state;
    now->house->options.image.image_retry_hold_ms = 60;
    scene_give_slot(now);
    flow_take("gpt-image-2");
    assert_int_equal(flow_run_with(flow_act_nothing), STEP_FAULT);
    scene_assert_fault(now, FAULT_rate_limit);
    assert_in_range(now->house->request->queue_ns / NS_PER_MS, 60, 5000);
    assert_true(no_slot_is_in_use()); /* it was kept until the end, and then given back */
}

static void n1_a_slot_from_before_is_given_back_when_the_client_leaves(void **state)
{
    (void)state;
    scene_give_slot(now);
    flow_take("gpt-image-2");
    assert_int_equal(flow_run_with(flow_client_leaves), STEP_OVER);
    assert_true(no_slot_is_in_use());
}

static void look_and_say_picture(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    atomic_store(&held_nothing, no_slot_is_in_use());
    (void)server_send(fd, JSON_HEAD "Connection: close\r\n\r\n{\"created\":1,\"data\":[]}");
    close(fd);
}

static void n1_a_slot_from_before_outlives_a_refusal(void **state)
{
    static struct scope_fallback entry;

    (void)state;
    entry = (struct scope_fallback){.scope = &now->other};
    now->house->scope.fallbacks = &entry;
    now->house->scope.fallback_count = 1;
    scene_give_slot(now);
    use_up("a", 0);
    now->house->scope.max_wait_ms[FLOW_NORMAL] = 1000;
    scene_serve(now, 2, look_and_say_picture);
    atomic_store(&held_nothing, true);
    assert_int_equal(scene_run(now), STEP_NEXT);
    assert_string_equal(scene_attempts(now), "c:");
    assert_false(atomic_load(&held_nothing));
    assert_true(no_slot_is_in_use());
}

int main(void)
{
#define WITH_GATE(test) cmocka_unit_test_setup_teardown(test, make, drop)
    const struct CMUnitTest tests[] = {
        WITH_GATE(what_draws_nothing_passes),
        WITH_GATE(a_free_slot_is_taken_at_once),
        WITH_GATE(g6_a_refusal_says_when_to_come_back),
        WITH_GATE(f8_a_call_comes_with_its_class_and_pictures),
        WITH_GATE(a_full_queue_refuses_at_once),
        WITH_GATE(a_slot_that_becomes_free_wakes_who_waits),
        WITH_GATE(g9_a_client_that_leaves_gives_its_place_back),
        WITH_GATE(a_client_that_left_before_takes_nothing),
        WITH_GATE(a_fast_stop_ends_the_wait),
        WITH_GATE(patience_ends_with_the_operators_time),
        WITH_GATE(patience_ends_with_the_clients_time_if_sooner),
        WITH_GATE(a_longer_patience_of_the_client_changes_nothing),
        WITH_GATE(a_waiting_stream_is_kept_alive),
        WITH_JOINT(f8_who_waits_goes_when_another_ends),
        WITH_JOINT(who_need_not_wait_has_not_waited),
        WITH_JOINT(f8_a_client_that_leaves_while_waiting_costs_nothing),
        WITH_JOINT(f9_no_call_waits_that_has_no_thread_left),
        WITH_JOINT(f9_who_need_not_wait_goes_without_a_thread_left),
        WITH_JOINT(a_fast_stop_ends_the_wait_for_a_flow),
        WITH_JOINT(f9_the_patience_of_a_class_ends_by_itself),
        WITH_JOINT(h6_the_calls_own_deadline_ends_the_wait),
        WITH_JOINT(a_source_that_is_drained_meanwhile_is_not_had),
        WITH_JOINT(what_the_upstream_said_is_told_when_a_retry_gets_no_turn),
        WITH_JOINT(a_stream_that_waits_is_kept_alive),
        WITH_JOINT(n9_who_waits_for_its_flow_holds_no_slot),
        WITH_JOINT(n9_who_waits_for_a_slot_holds_no_flow),
        WITH_JOINT(g9_a_client_that_leaves_gives_both_places_back),
        WITH_JOINT(the_gates_patience_ends_the_wait_for_a_slot),
        WITH_JOINT(where_nobody_waits_for_a_slot_the_gate_refuses),
        WITH_JOINT(n1_a_slot_is_not_held_for_long_while_a_flow_is_waited_for),
        WITH_JOINT(n1_a_slot_from_before_is_given_back_when_the_client_leaves),
        WITH_JOINT(n1_a_slot_from_before_outlives_a_refusal),
    };

    return cmocka_run_group_tests(tests, scene_init_process, NULL);
}
