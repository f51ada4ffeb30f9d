/* test_admission_flow.c - the joint admission of calls on scopes: slot, flow and source at once or nothing,
 * waits with the bell's help, and whatever ends one leaves nothing behind (F3, F8, F9, G9, N1, N9). The web
 * server is tests/fakes/fastcgi. */
#include "tests/worker/flow_house.h"

#include "worker/admission.h"

static uint32_t slot_holder, flow_holder; /* places of others */

/* One call at a time for source a's account, which is all there is; its calls have been quick. */
static int make(void **state)
{
    slot_holder = flow_holder = NO_INDEX;
    (void)flow_make(state);
    now->house->scope.member_count = 1;
    now->sources[0].max_concurrency = 1;
    now->house->options.image.overflow_mode = OVERFLOW_WAIT;
    now->house->options.image.wait_timeout_ms = 3600000;
    return 0;
}

static void free_the_flow(void)
{
    const struct flow_end end = {.now_ns = clock_monotonic_ns(), .units = 1};

    (void)flow_settle(&now->house->worker.gate, &flow_holder, &end);
}

static void free_the_slot(void)
{
    fixture_leave(&now->house->worker.gate, slot_holder, WAIT_DONE);
    slot_holder = NO_INDEX;
}

static int drop(void **state)
{
    if (flow_holder != NO_INDEX)
        free_the_flow();
    if (slot_holder != NO_INDEX)
        free_the_slot();
    return flow_drop(state);
}

#define WITH_JOINT(test) cmocka_unit_test_setup_teardown(test, make, drop)

static void take_the_flow(const char *model)
{
    struct flow_terms terms = options_flow_terms(&now->house->scope, &now->sources[0], model);
    const struct flow_target target = {
        .quota_group = "a", .model = model, .terms = &terms, .cost = 1};
    struct flow_answer answer;

    for (int i = 0; i < 2; i++) { /* the first teaches how long a call takes: next to nothing */
        const struct flow_call call = {.class = FLOW_NORMAL,
                                       .client = "",
                                       .deadline_ns = CLOCK_NEVER,
                                       .now_ns = clock_monotonic_ns()};

        if (flow_holder != NO_INDEX)
            free_the_flow();
        clock_sleep_ns(NS_PER_MS); /* the pace of the quota */
        flow_arrive(&now->house->worker.gate, &target, &call, &answer);
        assert_int_equal(answer.verdict, FLOW_GRANTED);
        flow_holder = answer.place;
        flow_sent(&now->house->worker.gate, flow_holder, clock_monotonic_ns());
    }
}

static void take_the_slot(void)
{
    assert_int_equal(fixture_arrive(&now->house->worker.gate, false, &slot_holder), GATE_GRANTED);
}

static void ask_for_a_picture(void)
{
    now->house->options.image.active = true;
    scene_ask(now, "/v1/images/generations", IMAGE_BODY);
    assert_true(now->house->request->reader.intent.image);
}

static void say_picture(struct server *with)
{
    (void)server_answer(with, JSON_HEAD, "{\"created\":1,\"data\":[{\"b64_json\":\"AAAA\"}]}");
}

/* ---- meanwhile -------------------------------------------------------------------------------- */

/* Something that happens once the call waits, done by a thread of its own. */
struct meanwhile {
    void (*act)(void);
    pthread_t thread;
};

static bool waits(void)
{
    const struct layout_area *layout = segment_layout(&now->segment);
    bool found;

    gate_lock(&now->house->worker.gate);
    found = layout->waiting > 0;
    for (uint32_t i = 0; i < FLOWS_MAX; i++)
        found = found || (layout->flow_hashes[i] != 0 && layout->flows[i].waiting > 0);
    gate_unlock(&now->house->worker.gate);
    return found;
}

static void *act_when_waiting(void *argument)
{
    const struct meanwhile *meanwhile = argument;
    int64_t until_ns = clock_monotonic_ns() + 15 * NS_PER_S;

    while (!waits() && clock_monotonic_ns() < until_ns)
        clock_sleep_ns(NS_PER_MS);
    meanwhile->act();
    return NULL;
}

static enum step_result run_with(void (*act)(void))
{
    struct meanwhile meanwhile = {.act = act};
    enum step_result result;

    assert_int_equal(pthread_create(&meanwhile.thread, NULL, act_when_waiting, &meanwhile), 0);
    result = scene_run(now);
    assert_int_equal(pthread_join(meanwhile.thread, NULL), 0);
    assert_false(waits());
    assert_int_equal(atomic_load(&now->house->request->seat->place), NO_INDEX);
    assert_int_equal(atomic_load(&now->house->request->seat->flow_place), NO_INDEX);
    return result;
}

static void nothing(void)
{
}

static void leave_as_client(void)
{
    now->house->fcgi->gone = true;
    (void)eventfd_write(now->house->fcgi->fd, 1);
}

static void cut_everything(void)
{
    (void)eventfd_write(now->house->worker.cut_fd, 1);
}

static void drain_and_free_the_flow(void)
{
    assert_true(source_drain(&now->house->worker.gate, "a", true, clock_wall_ms()));
    free_the_flow();
}

/* ---- a flow ----------------------------------------------------------------------------------- */

static void f8_who_waits_goes_when_another_ends(void **state)
{
    (void)state;
    take_the_flow("gpt-5");
    scene_serve(now, 0, say_used);
    assert_int_equal(run_with(free_the_flow), STEP_NEXT);
    assert_string_equal(scene_attempts(now), "a:");
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
    take_the_flow("gpt-5");
    scene_serve(now, 0, say_used);
    assert_int_equal(run_with(leave_as_client), STEP_OVER);
    assert_true(now->house->request->client_gone);
    assert_int_equal(scene_asked(now, 0), 0);
    assert_int_equal(view_of("a").in_flight, 1); /* the other's */
    assert_int_equal(view_of("a").use.sends, 2);
    assert_string_equal(scene_call(now).outcome, "client_gone");
}

static void a_fast_stop_ends_the_wait(void **state)
{
    (void)state;
    take_the_flow("gpt-5");
    assert_int_equal(run_with(cut_everything), STEP_FAULT);
    scene_assert_fault(now, FAULT_shutting_down);
    assert_true(scene_head_has(now, "retry-after: 1"));
}

/* Nobody rings a place whose time is over. */
static void f9_the_patience_of_a_class_ends_by_itself(void **state)
{
    (void)state;
    now->house->scope.max_wait_ms[FLOW_NORMAL] = 60;
    take_the_flow("gpt-5");
    assert_int_equal(run_with(nothing), STEP_FAULT);
    scene_assert_fault(now, FAULT_rate_limit);
    assert_non_null(strstr(scene_body(now), "as long as it may"));
    assert_in_range(told_seconds(), 1, 60);
    assert_in_range(now->house->request->queue_ns / NS_PER_MS, 60, 5000);
    assert_int_equal(view_of("a").expired, 1);
    assert_string_equal(scene_call(now).outcome, "refused");
}

static void h6_the_calls_own_deadline_ends_the_wait(void **state)
{
    (void)state;
    now->house->request->deadline_ns = now->house->request->arrived_ns + 100 * NS_PER_MS;
    take_the_flow("gpt-5");
    assert_int_equal(run_with(nothing), STEP_FAULT);
    scene_assert_fault(now, FAULT_call_deadline);
    assert_true(scene_head_has(now, "Status: 504"));
}

static void a_source_that_is_drained_meanwhile_is_not_had(void **state)
{
    (void)state;
    take_the_flow("gpt-5");
    scene_serve(now, 0, say_used);
    assert_int_equal(run_with(drain_and_free_the_flow), STEP_FAULT);
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
    take_the_flow("gpt-5");
    assert_int_equal(run_with(nothing), STEP_OVER);
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
    free_the_flow();
}

static void n9_who_waits_for_its_flow_holds_no_slot(void **state)
{
    (void)state;
    ask_for_a_picture();
    take_the_flow("gpt-image-2");
    scene_serve(now, 0, say_picture);
    atomic_store(&held_nothing, false);
    assert_int_equal(run_with(see_no_slot_and_free_the_flow), STEP_NEXT);
    assert_true(atomic_load(&held_nothing));
    assert_string_equal(scene_attempts(now), "a:");
    assert_int_equal(view_of("a").in_flight, 0);
}

static void see_no_grant_and_free_the_slot(void)
{
    const struct flow_view view = view_of("a");

    atomic_store(&held_nothing, view.in_flight == 0 && view.waiting[FLOW_NORMAL] == 1);
    free_the_slot();
}

static void n9_who_waits_for_a_slot_holds_no_flow(void **state)
{
    (void)state;
    ask_for_a_picture();
    take_the_slot();
    scene_serve(now, 0, say_picture);
    atomic_store(&held_nothing, false);
    assert_int_equal(run_with(see_no_grant_and_free_the_slot), STEP_NEXT);
    assert_true(atomic_load(&held_nothing));
    assert_string_equal(scene_attempts(now), "a:");
    assert_int_equal(view_of("a").use.sends, 1);
}

static void g9_a_client_that_leaves_gives_both_places_back(void **state)
{
    (void)state;
    ask_for_a_picture();
    take_the_slot();
    take_the_flow("gpt-image-2");
    assert_int_equal(run_with(leave_as_client), STEP_OVER);
    assert_int_equal(now->house->request->ticket.place, NO_INDEX);
}

static void the_gates_patience_ends_the_wait_for_a_slot(void **state)
{
    (void)state;
    now->house->options.image.wait_timeout_ms = 60;
    ask_for_a_picture();
    take_the_slot();
    assert_int_equal(run_with(nothing), STEP_FAULT);
    scene_assert_fault(now, FAULT_image_queue_timeout);
    assert_true(told_seconds() >= 1);
}

static void where_nobody_waits_for_a_slot_the_gate_refuses(void **state)
{
    (void)state;
    now->house->options.image.overflow_mode = OVERFLOW_REJECT;
    ask_for_a_picture();
    take_the_slot();
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
    take_the_flow("gpt-image-2");
    assert_int_equal(run_with(nothing), STEP_FAULT);
    scene_assert_fault(now, FAULT_rate_limit);
    assert_in_range(now->house->request->queue_ns / NS_PER_MS, 60, 5000);
    assert_true(no_slot_is_in_use()); /* it was kept until the end, and then given back */
}

static void n1_a_slot_from_before_is_given_back_when_the_client_leaves(void **state)
{
    (void)state;
    scene_give_slot(now);
    take_the_flow("gpt-image-2");
    assert_int_equal(run_with(leave_as_client), STEP_OVER);
    assert_true(no_slot_is_in_use());
}

static void look_and_say_picture(struct server *with)
{
    atomic_store(&held_nothing, no_slot_is_in_use());
    say_picture(with);
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

/* ---- refused ---------------------------------------------------------------------------------- */

static void f9_what_is_hopeless_is_refused_at_once_with_its_wait(void **state)
{
    int64_t began_ns = clock_monotonic_ns();

    now->house->scope.max_wait_ms[FLOW_NORMAL] = 5000;
    now->house->scope.member_count = 2;
    use_up("a", 0);
    use_up("b", 1);
    scene_serve_two(now, say_used, say_used);
    assert_int_equal(scene_run(*state), STEP_FAULT);
    scene_assert_fault(now, FAULT_rate_limit);
    assert_true(clock_monotonic_ns() - began_ns < 4 * NS_PER_S);
    assert_true(scene_head_has(now, "Status: 429"));
    assert_in_range(told_seconds(), 6, 60);
    assert_int_equal(scene_asked(now, 0) + scene_asked(now, 1), 0);
    assert_true(view_of("a").refused_hopeless + view_of("b").refused_hopeless == 1);
    assert_string_equal(scene_call(now).outcome, "refused");
}

static void an_account_with_room_is_used_first(void **state)
{
    now->house->scope.member_count = 2;
    use_up("a", 0);
    scene_serve_two(now, say_used, say_used);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_int_equal(scene_asked(now, 0), 0);
    assert_use("b", 1, 100);
    assert_int_equal(now->house->request->queue_ns, 0);
}

/* What one scope's quota does not let through in time another may serve. */
static void h20_a_scope_that_is_full_falls_back(void **state)
{
    static struct scope_fallback entry;

    now->house->scope.max_wait_ms[FLOW_NORMAL] = 1000;
    entry = (struct scope_fallback){.scope = &now->other};
    now->house->scope.fallbacks = &entry;
    now->house->scope.fallback_count = 1;
    use_up("a", 0);
    scene_serve(now, 2, say_used);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_string_equal(scene_attempts(now), "c:");
    assert_int_equal(view_of("c").in_flight, UINT32_MAX); /* no flow there */
    assert_true(scene_call(now).fallback);
}

static void the_refusal_of_the_first_scope_is_told_when_no_other_helps(void **state)
{
    static struct scope_fallback entry;

    now->house->scope.max_wait_ms[FLOW_NORMAL] = 1000;
    entry = (struct scope_fallback){.scope = &now->other};
    now->house->scope.fallbacks = &entry;
    now->house->scope.fallback_count = 1;
    now->other.flow = FLOW_STRATEGY_SHAPING;
    use_up("a", 0);
    use_up("c", 2);
    assert_int_equal(scene_run(*state), STEP_FAULT);
    scene_assert_fault(now, FAULT_rate_limit);
    assert_in_range(told_seconds(), 2, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_JOINT(f8_who_waits_goes_when_another_ends),
        WITH_JOINT(who_need_not_wait_has_not_waited),
        WITH_JOINT(f8_a_client_that_leaves_while_waiting_costs_nothing),
        WITH_JOINT(a_fast_stop_ends_the_wait),
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
        WITH_JOINT(f9_what_is_hopeless_is_refused_at_once_with_its_wait),
        WITH_JOINT(an_account_with_room_is_used_first),
        WITH_JOINT(h20_a_scope_that_is_full_falls_back),
        WITH_JOINT(the_refusal_of_the_first_scope_is_told_when_no_other_helps),
    };

    return cmocka_run_group_tests(tests, scene_init_process, NULL);
}
