/* test_flow_call.c - calls of scopes with flow control: what they are charged, what each end of theirs
 * settles, and that none leaves a place behind (F4, F6, F8, F9). How they wait is in test_admission.c.
 * The web server is tests/fakes/fastcgi. */
#include "tests/worker/flow_house.h"

/* ---- what is charged -------------------------------------------------------------------------- */

static void f4_tokens_are_charged_with_or_without_what_is_predicted(void **state)
{
    struct flow_target target;
    int64_t input;

    (void)state;
    target = targets();
    input = now->house->request->flow_targets.prices[0].input;
    assert_true(now->house->request->reader.intent.est_input > 0);
    assert_true(input > 0);
    assert_true(target.cost > input);
    assert_int_equal(target.predicted, 0);
    now->house->scope.tpm_charge = TPM_CHARGE_INPUT;
    assert_int_equal(targets().cost, input);
    assert_int_equal(targets().predicted, target.cost - input);
}

static void f11_other_units_have_their_own_measure(void **state)
{
    (void)state;
    now->sources[0].flow_unit = FLOW_UNIT_IMAGES;
    assert_int_equal(targets().cost, 1);
    now->sources[0].flow_unit = FLOW_UNIT_TASKS;
    assert_int_equal(targets().cost, 1);
    now->sources[0].flow_unit = FLOW_UNIT_SECONDS;
    now->house->request->body.bytes = 160000; /* ten seconds of sound */
    assert_int_equal(targets().cost, 11);
    assert_int_equal(targets().predicted, 0);
}

static void f11_what_is_asked_for_is_charged(void **state)
{
    struct intent *intent = &now->house->request->reader.intent;

    (void)state;
    intent->choices = 4;
    intent->seconds = 8;
    now->sources[0].flow_unit = FLOW_UNIT_IMAGES;
    assert_int_equal(targets().cost, 4);
    now->sources[0].flow_unit = FLOW_UNIT_SECONDS;
    assert_int_equal(targets().cost, 8);
    now->sources[0].flow_unit = FLOW_UNIT_TASKS;
    assert_int_equal(targets().cost, 1);
    intent->choices = 1000; /* will be refused, and must not hold up the others for long */
    now->sources[0].flow_unit = FLOW_UNIT_IMAGES;
    assert_int_equal(targets().cost, 16);
}

static void each_model_has_its_own_limits_under_the_name_the_source_has(void **state)
{
    static const struct option_pair aliases[] = {{.name = "gpt-5", .value = "five"}, {NULL, NULL}};
    static const struct model_limit limits[] = {{.glob = "five", .rpm = 7, .tpm = 8}, {NULL, 0, 0}};

    (void)state;
    now->sources[0].aliases = aliases;
    now->sources[0].limits = limits;
    assert_string_equal(targets().model, "five");
    assert_int_equal(targets().terms->requests_quota, 7);
    assert_string_equal(now->house->request->flow_targets.list[1].model, "gpt-5");
    assert_int_equal(now->house->request->flow_targets.list[1].terms->requests_quota, 600000);
}

/* To look at what was made is no part of a quota of making. */
static void only_what_asks_for_work_is_controlled(void **state)
{
    (void)state;
    (void)targets();
    assert_true(now->house->request->flow_targets.any);
    now->house->request->method = "GET";
    (void)targets();
    assert_false(now->house->request->flow_targets.any);
    now->house->request->method = "POST";
    now->house->scope.flow = FLOW_STRATEGY_NONE;
    (void)targets();
    assert_false(now->house->request->flow_targets.any);
}

static void f8_a_class_is_claimed_by_header_as_far_as_the_operator_lets(void **state)
{
    static const struct {
        const char *claimed; /* NULL: no header */
        int highest, got;
    } cases[] = {
        {NULL, FLOW_INTERACTIVE, FLOW_NORMAL},
        {"bulk", CLASS_CLAIM_NONE, FLOW_NORMAL},
        {"interactive", CLASS_CLAIM_NONE, FLOW_NORMAL},
        {"interactive", FLOW_INTERACTIVE, FLOW_INTERACTIVE},
        {"Interactive", FLOW_INTERACTIVE, FLOW_INTERACTIVE},
        {"bulk", FLOW_INTERACTIVE, FLOW_BULK},
        {"interactive", FLOW_BULK, FLOW_NORMAL},
        {"normal", FLOW_BULK, FLOW_NORMAL},
        {"bulk", FLOW_BULK, FLOW_BULK},
        {"interactive", FLOW_NORMAL, FLOW_NORMAL},
        {"", FLOW_INTERACTIVE, FLOW_NORMAL},
        {"high", FLOW_INTERACTIVE, FLOW_NORMAL},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        fake_fastcgi_reset(now->house->fcgi);
        if (cases[i].claimed)
            fake_fastcgi_param(now->house->fcgi, "HTTP_X_PENSTOCK_CLASS", cases[i].claimed);
        now->house->scope.flow_class_header_max = cases[i].highest;
        flow_targets_make(now->house->request);
        assert_int_equal(flow_call_of(now->house->request).class, cases[i].got);
    }
}

/* ---- ends ------------------------------------------------------------------------------------- */

static void f6_a_call_is_settled_with_the_usage_it_tells(void **state)
{
    struct attempt_record rows[SCENE_ROWS];
    int64_t input;

    (void)targets();
    input = now->house->request->flow_targets.prices[0].input;
    scene_serve(now, 0, say_used);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_use("a", 1, 100);
    assert_int_equal(view_of("a").completed, 1);
    assert_true(view_of("a").estimate.ratio_samples > 0);
    assert_int_equal(view_of("b").use.sends, 0);
    assert_int_equal(scene_rows(now, false, rows), 1);
    assert_int_equal(rows[0].est_tokens, input);
    assert_int_equal(rows[0].settled_tokens, 100);
}

static void say_used_in_images(struct server *with)
{
    (void)server_answer(
        with, JSON_HEAD,
        "{\"created\":1,\"data\":[{\"b64_json\":\"AAAA\"},{\"b64_json\":\"AAAA\"}]}");
}

static void f11_pictures_are_settled_with_their_number(void **state)
{
    now->sources[0].flow_unit = FLOW_UNIT_IMAGES;
    now->house->options.image.active = true;
    scene_ask(now, "/v1/images/generations", IMAGE_BODY);
    scene_serve(now, 0, say_used_in_images);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_use("a", 1, 2);
}

/* Of three that were asked for two came; of what was cut nobody knows what was made. */
static void f11_pictures_that_did_not_come_are_given_back(void **state)
{
    now->sources[0].flow_unit = FLOW_UNIT_IMAGES;
    now->house->options.image.active = true;
    scene_ask(now, "/v1/images/generations",
              "{\"model\":\"gpt-image-2\",\"prompt\":\"a cat\",\"n\":3}");
    assert_int_equal(targets().cost, 3);
    scene_serve(now, 0, say_used_in_images);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_use("a", 1, 2);
}

static void cut_in_the_second(struct server *with)
{
    server_answer_once(with, JSON_HEAD "Content-Length: 1000\r\n\r\n{\"created\":1,\"data\":["
                                       "{\"b64_json\":\"AAAA\"},{\"b64_json\":\"AA");
}

static void f11_of_a_cut_answer_all_that_was_asked_for_stays(void **state)
{
    now->sources[0].flow_unit = FLOW_UNIT_IMAGES;
    now->house->options.image.active = true;
    scene_ask(now, "/v1/images/generations",
              "{\"model\":\"gpt-image-2\",\"prompt\":\"a cat\",\"n\":3}");
    scene_serve(now, 0, cut_in_the_second);
    assert_int_equal(scene_run(*state), STEP_FAULT);
    assert_use("a", 1, 3);
}

static void say_seconds(struct server *with)
{
    (void)server_answer(with, JSON_HEAD,
                        "{\"text\":\"hello\",\"usage\":{\"type\":\"duration\",\"seconds\":9}}");
}

static void f11_sound_is_settled_with_its_seconds(void **state)
{
    now->sources[0].flow_unit = FLOW_UNIT_SECONDS;
    scene_ask(now, "/v1/audio/transcriptions", "{\"model\":\"whisper-1\"}");
    assert_int_equal(targets().cost, 1);
    scene_serve(now, 0, say_seconds);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_use("a", 1, 9);
}

static void f6_an_answer_that_does_not_tell_is_settled_by_its_bytes(void **state)
{
    int64_t input;

    (void)targets();
    input = now->house->request->flow_targets.prices[0].input;
    scene_serve(now, 0, say_hello);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_use("a", 1, input + (int64_t)strlen("{\"from\":\"hello\"}") / 5);
    assert_int_equal(view_of("a").estimate.ratio_samples, 0);
}

static void f3_what_was_refused_costs_its_request_but_no_units(void **state)
{
    now->house->scope.member_count = 1;
    scene_serve(now, 0, say_429_for_two_minutes);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_use("a", 1, 0);
    assert_int_equal(view_of("a").refusals[ADAPTIVE_RPM], 1); /* no second is that long */
    assert_int_equal(view_of("a").completed, 0);
    assert_true(view_of("a").paused_for_ns > 50 * NS_PER_S); /* until it may be asked again */
    assert_true(scene_head_has(now, "Status: 429"));
}

static void stream_throttle(struct server *with)
{
    server_answer_once(
        with, STREAM_HEAD
        "data: "
        "{\"error\":{\"message\":\"no\",\"type\":\"requests\",\"code\":\"rate_limit_exceeded\"}}"
        "\n\n");
}

static void a_refusal_inside_a_stream_is_one(void **state)
{
    now->house->scope.member_count = 2;
    scene_ask(now, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(now, stream_throttle, stream_hello);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_string_equal(scene_attempts(now), "a:rate_limit_exceeded b:");
    assert_use("a", 1, 0);
    assert_int_equal(view_of("a").refusals[ADAPTIVE_RPS], 1);
    assert_int_equal(view_of("b").completed, 1);
}

static void what_was_never_sent_was_never_granted(void **state)
{
    scene_serve(now, 1, say_used); /* nobody listens at a's port 1 */
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_string_equal(scene_attempts(now), "a:upstream_connect b:");
    assert_use("a", 0, 0);
    assert_int_equal(view_of("a").cancelled, 1);
    assert_use("b", 1, 100);
}

static void a_request_that_cannot_be_built_gives_its_place_back(void **state)
{
    char *target = malloc(20000);

    assert_non_null(target);
    memset(target, 'a', 19999);
    target[19999] = '\0';
    memcpy(target, "/v1/", 4);
    now->house->request->raw_target = target;
    assert_int_equal(scene_run(*state), STEP_FAULT);
    scene_assert_fault(now, FAULT_headers_too_large);
    assert_use("a", 0, 0);
    assert_int_equal(view_of("a").cancelled, 1);
    free(target);
}

static void each_attempt_has_its_own_place(void **state)
{
    now->house->scope.member_count = 1;
    scene_serve(now, 0, say_500);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_string_equal(scene_attempts(now), "a:boom a:boom a:boom");
    assert_use("a", 3, 0);
}

/* ---- while it runs ---------------------------------------------------------------------------- */

static atomic_bool was_sent, was_charged;

static bool is_marked_sent(void)
{
    const struct layout_area *layout = segment_layout(&now->segment);

    for (uint32_t i = 0; i < FLOW_PLACES_MAX; i++)
        if (atomic_load(&layout->flow_places[i].state) == FLOW_PLACE_SENT)
            return true;
    return false;
}

static void look_and_say(struct server *with)
{
    int64_t until_ns = clock_monotonic_ns() + 10 * NS_PER_S;
    int fd = server_take(with);

    if (fd < 0)
        return;
    while (!is_marked_sent() && clock_monotonic_ns() < until_ns)
        clock_sleep_ns(NS_PER_MS);
    atomic_store(&was_sent, is_marked_sent()); /* whose process dies now has used it */
    (void)server_send(fd, JSON_HEAD "Connection: close\r\n\r\n" USED_BODY);
    close(fd);
}

static void a_request_counts_as_sent_from_its_first_byte(void **state)
{
    atomic_store(&was_sent, false);
    scene_serve(now, 0, look_and_say);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_true(atomic_load(&was_sent));
}

static void stream_long(struct server *with)
{
    int64_t until_ns = clock_monotonic_ns() + 10 * NS_PER_S;
    int fd = server_take(with);
    bool open = fd >= 0 && server_send(fd, STREAM_HEAD ROLE);

    while (open && !atomic_load(&was_charged) && clock_monotonic_ns() < until_ns) {
        open = server_send(fd, WORD("x") WORD("x") WORD("x"));
        clock_sleep_ns(NS_PER_MS);
        atomic_store(&was_charged, view_of("a").use.units > 200);
    }
    if (fd >= 0) {
        (void)server_send(fd, DONE);
        close(fd);
    }
}

static void f4_a_long_stream_is_charged_as_it_comes(void **state)
{
    atomic_store(&was_charged, false);
    now->house->scope.tpm_charge = TPM_CHARGE_INPUT;
    scene_ask(now, "/v1/chat/completions", STREAM_BODY);
    scene_serve(now, 0, stream_long);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_true(atomic_load(&was_charged));
    assert_true(view_of("a").use.units > 200);
    assert_int_equal(view_of("a").completed, 1);
}

/* ---- hedges ----------------------------------------------------------------------------------- */

static void hedge_soon(void)
{
    now->house->scope.hedge_after_ms = 30;
}

static void r12_the_estimate_of_a_hedge_that_lost_stays(void **state)
{
    struct flow_target target;

    hedge_soon();
    target = targets();
    scene_serve_two(now, read_and_hold, say_used);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_string_equal(scene_attempts(now), "a:hedge_cancelled +b:");
    assert_use("a", 1, target.cost);
    assert_int_equal(view_of("a").completed, 0);
    assert_use("b", 1, 100);
}

static void say_used_when_no_hedge_came(struct server *with)
{
    int64_t until_ns = clock_monotonic_ns() + 15 * NS_PER_S;
    int fd = server_take(with);

    if (fd < 0)
        return;
    while (now->house->request->plan.hedges_skipped == 0 && clock_monotonic_ns() < until_ns)
        clock_sleep_ns(NS_PER_MS);
    (void)server_send(fd, JSON_HEAD "Connection: close\r\n\r\n" USED_BODY);
    close(fd);
}

/* Where the other account has no room, there is no hedge; and nobody waits for one. */
static void h13_a_hedge_is_not_waited_for(void **state)
{
    struct flow_terms terms;
    struct flow_target target;
    struct flow_answer answer;
    const struct flow_call call = {
        .class = FLOW_NORMAL, .deadline_ns = CLOCK_NEVER, .now_ns = clock_monotonic_ns()};

    hedge_soon();
    now->sources[1].max_concurrency = 1;
    terms = options_flow_terms(&now->house->scope, &now->sources[1], "gpt-5");
    target = (struct flow_target){.quota_group = "b", .model = "gpt-5", .terms = &terms, .cost = 1};
    flow_arrive(&now->house->worker.gate, &target, &call, &answer);
    assert_int_equal(answer.verdict, FLOW_GRANTED);
    scene_serve_two(now, say_used_when_no_hedge_came, say_used);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_string_equal(scene_attempts(now), "a:");
    assert_int_equal(now->house->request->hedges, 0);
    assert_int_equal(now->house->request->hedges_skipped, 1);
    assert_int_equal(scene_asked(now, 1), 0);
    assert_int_equal(now->house->request->flow_refusal, FLOW_OPEN);
    flow_cancel(&now->house->worker.gate, &answer.place, clock_monotonic_ns());
}

static void say_429_then_use(struct server *with)
{
    (void)server_answer(with,
                        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n",
                        ERROR_BODY("requests", "rate_limit_exceeded"));
    say_used(with);
}

/* The options of the scope say a millisecond or two. */
static void f2_flow_retry_waits_for_a_second_at_least(void **state)
{
    const int64_t began_ns = clock_monotonic_ns();

    now->house->scope.member_count = 1;
    now->house->scope.flow = FLOW_STRATEGY_RETRY;
    scene_serve(now, 0, say_429_then_use);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_true(clock_monotonic_ns() - began_ns >= NS_PER_S);
    assert_string_equal(scene_body(now), USED_BODY);
    assert_int_equal(scene_asked(now, 0), 2);
}

/* ---- throttled: it waits again, within its bound (the plan on a clock of its own) ------------ */

static struct plan_terms within(int64_t flow_wait_ns)
{
    return (struct plan_terms){.throttle_retries = true,
                               .candidates = 1,
                               .hedge_after_ns = CLOCK_NEVER,
                               .stall_budget_ns = 1200 * NS_PER_S,
                               .has_flow = true,
                               .flow_keeps_pauses = true,
                               .flow_wait_ns = flow_wait_ns,
                               .retry_hold_ns = CLOCK_NEVER,
                               .deadline_ns = CLOCK_NEVER};
}

/* NS_PER_Sent at 0, and refused at 0. */
static struct plan_step throttled(struct plan *plan, const struct plan_terms *terms,
                                  int64_t retry_after_ms)
{
    const struct judgement judgement = {
        .class = ATTEMPT_THROTTLE, .retry_after_ms = retry_after_ms, .should_retry = -1};

    plan_begin(plan, terms, 1);
    assert_int_equal(plan_next(plan, 0).what, PLAN_START);
    plan_started(plan, 0, 0, 0);
    plan_failed(plan, 0, &judgement, true, 0);
    return plan_next(plan, 0);
}

static void f3_what_the_upstream_asks_for_is_waited_in_the_flow(void **state)
{
    struct plan_terms terms = within(5 * NS_PER_S);
    struct plan plan;
    struct plan_step step = throttled(&plan, &terms, 20000);

    (void)state;
    assert_int_equal(step.what, PLAN_START); /* into its line, where it is refused or waits */
    assert_int_equal(step.excluded, 0);
    plan_not_admitted(&plan, 0, PLAN_REFUSED_QUOTA, 20 * NS_PER_S, 0);
    step = plan_next(&plan, 0);
    assert_int_equal(step.what, PLAN_ANSWER);
    assert_int_equal(step.retry_after_ms, 20000);
    /* Where the flow does not keep it, the plan does, within the same bound. */
    terms.flow_keeps_pauses = false;
    assert_int_equal(throttled(&plan, &terms, 20000).what, PLAN_ANSWER);
    step = throttled(&plan, &terms, 3000);
    assert_int_equal(step.what, PLAN_WAIT);
    assert_in_range(step.until_ns, 3 * NS_PER_S, 5 * NS_PER_S);
    assert_in_range(plan_flow_left_ns(&plan), 0, 2 * NS_PER_S);
}

static void f9_waits_of_a_call_count_together(void **state)
{
    struct plan_terms terms = within(5 * NS_PER_S);
    struct plan plan;

    (void)state;
    plan_begin(&plan, &terms, 1);
    assert_int_equal(plan_flow_left_ns(&plan), 5 * NS_PER_S);
    plan_waited_in_flow(&plan, 3 * NS_PER_S);
    assert_int_equal(plan_flow_left_ns(&plan), 2 * NS_PER_S);
    plan_waited_in_flow(&plan, 3 * NS_PER_S);
    assert_int_equal(plan_flow_left_ns(&plan), 0);
    terms.has_flow = false;
    plan_begin(&plan, &terms, 1);
    assert_int_equal(plan_flow_left_ns(&plan), CLOCK_NEVER);
}

/* ---- likewise, a call ------------------------------------------------------------------------ */

static int64_t refused_ns;

static void say_429_then_answer(struct server *with)
{
    (void)server_answer(with,
                        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\n"
                        "Content-Type: application/json\r\n",
                        ERROR_BODY("requests", "rate_limit_exceeded"));
    refused_ns = clock_monotonic_ns();
    say_used(with);
}

static void f9_a_pause_longer_than_the_bound_is_not_waited_for(void **state)
{
    now->house->scope.member_count = 1;
    now->house->scope.flow = FLOW_STRATEGY_RATE;
    now->house->scope.backoff_base_ms = now->house->scope.backoff_max_ms = 1;
    for (unsigned i = 0; i < FLOW_CLASSES; i++)
        now->house->scope.max_wait_ms[i] = 500;
    scene_serve(now, 0, say_429_then_answer);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_true(scene_head_has(now, "Status: 429"));
    assert_string_equal(scene_attempts(now), "a:rate_limit_exceeded");
    assert_int_equal(view_of("a").refused_hopeless, 1); /* it stood in the line, and could not */
    assert_int_equal(view_of("a").in_flight, 0);
}

static void f3_a_retry_waits_in_its_flow_and_says_so(void **state)
{
    now->house->scope.member_count = 1;
    now->house->scope.flow = FLOW_STRATEGY_RATE;
    now->house->scope.backoff_base_ms = now->house->scope.backoff_max_ms = 1;
    scene_serve(now, 0, say_429_then_answer);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_string_equal(scene_attempts(now), "a:rate_limit_exceeded a:");
    assert_true(clock_monotonic_ns() - refused_ns >= 900 * NS_PER_MS); /* as it was asked to */
    assert_true(now->house->request->queue_ns >= 800 * NS_PER_MS);
    assert_true(plan_flow_left_ns(&now->house->request->plan) <= 30 * NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FLOW(f4_tokens_are_charged_with_or_without_what_is_predicted),
        WITH_FLOW(f11_other_units_have_their_own_measure),
        WITH_FLOW(f11_what_is_asked_for_is_charged),
        WITH_FLOW(each_model_has_its_own_limits_under_the_name_the_source_has),
        WITH_FLOW(only_what_asks_for_work_is_controlled),
        WITH_FLOW(f8_a_class_is_claimed_by_header_as_far_as_the_operator_lets),
        WITH_FLOW(f6_a_call_is_settled_with_the_usage_it_tells),
        WITH_FLOW(f11_pictures_are_settled_with_their_number),
        WITH_FLOW(f11_pictures_that_did_not_come_are_given_back),
        WITH_FLOW(f11_of_a_cut_answer_all_that_was_asked_for_stays),
        WITH_FLOW(f11_sound_is_settled_with_its_seconds),
        WITH_FLOW(f6_an_answer_that_does_not_tell_is_settled_by_its_bytes),
        WITH_FLOW(f3_what_was_refused_costs_its_request_but_no_units),
        WITH_FLOW(a_refusal_inside_a_stream_is_one),
        WITH_FLOW(what_was_never_sent_was_never_granted),
        WITH_FLOW(a_request_that_cannot_be_built_gives_its_place_back),
        WITH_FLOW(each_attempt_has_its_own_place),
        WITH_FLOW(a_request_counts_as_sent_from_its_first_byte),
        WITH_FLOW(f4_a_long_stream_is_charged_as_it_comes),
        WITH_FLOW(r12_the_estimate_of_a_hedge_that_lost_stays),
        WITH_FLOW(h13_a_hedge_is_not_waited_for),
        WITH_FLOW(f2_flow_retry_waits_for_a_second_at_least),
        cmocka_unit_test(f3_what_the_upstream_asks_for_is_waited_in_the_flow),
        cmocka_unit_test(f9_waits_of_a_call_count_together),
        WITH_FLOW(f9_a_pause_longer_than_the_bound_is_not_waited_for),
        WITH_FLOW(f3_a_retry_waits_in_its_flow_and_says_so),
    };

    return cmocka_run_group_tests(tests, scene_init_process, NULL);
}
