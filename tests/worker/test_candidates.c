/* test_candidates.c - who may serve a call, and under what name of the model: aliases, pins, fallbacks
 * (H11, H20). The web server is tests/fakes/fastcgi. */
#include "tests/worker/flow_house.h"

#include "shared/owners.h"

/* ---- what is asked ---------------------------------------------------------------------------- */

static const struct option_pair aliases[] = {{"gpt-5", "deploy\"1"}, {NULL, NULL}};

static void h20_an_alias_changes_the_model_and_nothing_else(void **state)
{
    struct scene *scene = *state;

    scene->sources[1].aliases = aliases;
    scene_serve_two(scene, say_500, say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_got(scene, 0), CHAT_BODY);
    assert_string_equal(
        scene_got(scene, 1),
        "{\"model\":\"deploy\\\"1\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    assert_null(strcasestr(scene_out(scene), "x-penstock-model"));
}

static const struct option_pair extra_headers[] = {{"X-Team", "ours"}, {NULL, NULL}};

static void extra_headers_stand_in_the_place_of_the_clients(void **state)
{
    struct scene *scene = *state;
    const char *head;

    fake_fastcgi_param(scene->house->fcgi, "HTTP_X_TEAM", "theirs");
    scene->sources[1].extra_headers = extra_headers;
    scene_serve_two(scene, say_500, say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    head = text_string(&scene->servers[0]->last);
    assert_non_null(strcasestr(head, "\r\nx-team: theirs\r\n"));
    head = text_string(&scene->servers[1]->last);
    assert_non_null(strcasestr(head, "\r\nx-team: ours\r\n"));
    assert_null(strcasestr(head, "theirs"));
}

static void h11_a_pinned_call_goes_to_its_owner_and_to_nobody_else(void **state)
{
    struct scene *scene = *state;
    struct worker *worker = &scene->house->worker;

    owner_remember(&worker->gate, "resp_1", worker->source_rows[1], clock_monotonic_ns());
    scene_ask(scene, "/v1/responses",
              "{\"model\":\"gpt-5\",\"input\":\"hi\",\"previous_response_id\":\"resp_1\"}");
    scene_serve_two(scene, say_hello, say_500);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(scene_head_has(scene, "Status: 500"));
    assert_string_equal(scene_attempts(scene), "b:boom b:boom b:boom");
    assert_int_equal(scene_asked(scene, 0), 0);
}

/* What is continued lies with its owner: with no other scope, nor under another model. */
static void h11_a_pinned_call_falls_back_to_nobody(void **state)
{
    static const struct scope_fallback small[] = {{.model = "small"}};
    struct scene *scene = *state;

    scene->house->scope.fallbacks = small;
    scene->house->scope.fallback_count = 1;
    scene_ask(scene, "/v1/responses",
              "{\"model\":\"gpt-5\",\"input\":\"hi\",\"previous_response_id\":\"resp_9\"}");
    scene_serve(scene, 0, say_429_for_two_minutes);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(scene_head_has(scene, "Status: 429"));
    assert_int_equal(scene_asked(scene, 0), 1);
    assert_null(strcasestr(scene_out(scene), "x-penstock-model"));
}

/* ---- the list --------------------------------------------------------------------------------- */

static void the_list_is_the_scopes(void **state)
{
    struct scene *scene = *state;
    struct request *request = scene->house->request;

    scene->members[1].weight = 7;
    scene->sources[1].max_in_flight = 3;
    candidates_make(request);
    assert_int_equal(request->candidates.count, 2);
    assert_int_equal(request->candidates.list[0].row, request->worker->source_rows[0]);
    assert_int_equal(request->candidates.list[1].weight, 7);
    assert_int_equal(request->candidates.list[1].max_in_flight, 3);
    assert_true(candidates_allow_hedge(&request->candidates));
    assert_int_equal(request->candidates.accounts[0], 1);
    scene->sources[1].quota_group = "a";
    candidates_make(request);
    assert_int_equal(request->candidates.accounts[0], 3);
    assert_int_equal(request->candidates.accounts[1], 3);
}

static void with_all_but_one_barred_there_is_no_hedge(void **state)
{
    static const struct option_pair drawing[] = {{"gpt-5", "gpt-image-2"}, {NULL, NULL}};
    struct scene *scene = *state;
    struct request *request = scene->house->request;

    /* Under this name it would be an image call, which the gate was not asked for. */
    scene_ask(scene, "/v1/responses", "{\"model\":\"gpt-5\",\"input\":\"hi\"}");
    scene->sources[1].aliases = drawing;
    candidates_make(request);
    assert_int_equal(request->candidates.barred & 3, 2);
    assert_false(candidates_allow_hedge(&request->candidates));
    assert_false(candidates_are_none(&request->candidates));
    scene->sources[0].aliases = drawing;
    candidates_make(request);
    assert_true(candidates_are_none(&request->candidates));
}

static void a_model_that_nobody_can_be_given_is_refused(void **state)
{
    static const struct option_pair renamed[] = {{"gpt-5", "deployment"}, {NULL, NULL}};
    struct scene *scene = *state;

    scene_ask(scene, "/v1/chat/completions", "{\"model\":\"a\",\"model\":\"gpt-5\"}");
    scene->sources[0].aliases = scene->sources[1].aliases = renamed;
    scene_serve_two(scene, say_hello, say_hello);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    scene_assert_fault(scene, FAULT_model_fixed);
    assert_true(scene_head_has(scene, "Status: 400"));
    assert_int_equal(scene_asked(scene, 0) + scene_asked(scene, 1), 0);
}

/* ---- fallbacks -------------------------------------------------------------------------------- */

static const struct scope_fallback to_model[] = {{.model = "small"}};

static void say_429_then_hello(struct server *with)
{
    if (server_answer(with,
                      "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 120\r\n"
                      "Content-Type: application/json\r\n",
                      ERROR_BODY("requests", "rate_limit_exceeded")))
        say_hello(with);
}

static void h20_a_throttled_call_goes_to_another_model(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.member_count = 1;
    scene->house->scope.fallbacks = to_model;
    scene->house->scope.fallback_count = 1;
    scene_serve(scene, 0, say_429_then_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(
        scene_got(scene, 0),
        "{\"model\":\"small\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    assert_true(scene_head_has(scene, "x-penstock-model: small"));
    assert_true(scene_call(scene).fallback);
    assert_string_equal(scene_call(scene).model_asked, "gpt-5");
}

static void fall_back_to_other(struct scene *scene)
{
    static struct scope_fallback fallbacks[1];

    fallbacks[0] = (struct scope_fallback){.scope = &scene->other};
    scene->house->scope.member_count = 1;
    scene->house->scope.fallbacks = fallbacks;
    scene->house->scope.fallback_count = 1;
    scene->house->route.to = &scene->house->scope;
}

static void h20_a_throttled_call_goes_to_another_scope(void **state)
{
    struct scene *scene = *state;

    fall_back_to_other(scene);
    scene_serve(scene, 0, say_429_for_two_minutes);
    scene_serve(scene, 2, say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{\"from\":\"hello\"}");
    assert_string_equal(scene_got(scene, 2), CHAT_BODY);
    assert_true(scene_head_has(scene, "x-penstock-scope: other"));
    assert_string_equal(scene_attempts(scene), "a:rate_limit_exceeded c:");
}

static void say_429_lastly(struct server *with)
{
    while (server_answer(with,
                         "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 90\r\n"
                         "Content-Type: application/json\r\n",
                         ERROR_BODY("requests", "also_here")))
        continue;
}

static void h20_the_last_throttling_is_passed_on(void **state)
{
    struct scene *scene = *state;

    fall_back_to_other(scene);
    scene_serve(scene, 0, say_429_for_two_minutes);
    scene_serve(scene, 2, say_429_lastly);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_non_null(strstr(scene_body(scene), "also_here"));
    assert_true(scene_head_has(scene, "retry-after: 90"));
}

/* Out of service, it cannot answer; the call is throttled all the same, and no 503. */
static void h20_a_fallback_that_cannot_be_had_leaves_the_throttling(void **state)
{
    struct scene *scene = *state;

    fall_back_to_other(scene);
    assert_true(source_drain(&scene->house->worker.gate, "c", true, 0));
    scene_serve(scene, 0, say_429_for_two_minutes);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(scene_head_has(scene, "Status: 429"));
    assert_true(scene_head_has(scene, "retry-after: 120"));
    assert_true(scene_head_has(scene, "x-penstock-scope: s"));
}

static void say_half_a_429(struct server *with)
{
    server_answer_once(with, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 120\r\n"
                             "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
}

/* The model is named twice, so no other name can be put in; and there is no answer to pass on. */
static void h20_without_a_usable_fallback_and_an_answer_there_is_a_fault(void **state)
{
    struct scene *scene = *state;

    scene_ask(scene, "/v1/chat/completions", "{\"model\":\"a\",\"model\":\"b\",\"messages\":[]}");
    scene->house->scope.member_count = 1;
    scene->house->scope.fallbacks = to_model;
    scene->house->scope.fallback_count = 1;
    scene_serve(scene, 0, say_half_a_429);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    scene_assert_fault(scene, FAULT_upstream_cut);
}

static void h20_a_failure_falls_back_to_nobody(void **state)
{
    struct scene *scene = *state;

    fall_back_to_other(scene);
    scene->house->scope.retry_budget = 0;
    scene_serve(scene, 0, say_500);
    scene_serve(scene, 2, say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(scene_head_has(scene, "Status: 500"));
    assert_int_equal(scene_asked(scene, 2), 0);
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
        WITH_SCENE(h20_an_alias_changes_the_model_and_nothing_else),
        WITH_SCENE(extra_headers_stand_in_the_place_of_the_clients),
        WITH_SCENE(h11_a_pinned_call_goes_to_its_owner_and_to_nobody_else),
        WITH_SCENE(h11_a_pinned_call_falls_back_to_nobody),
        WITH_SCENE(the_list_is_the_scopes),
        WITH_SCENE(with_all_but_one_barred_there_is_no_hedge),
        WITH_SCENE(a_model_that_nobody_can_be_given_is_refused),
        WITH_SCENE(h20_a_throttled_call_goes_to_another_model),
        WITH_SCENE(h20_a_throttled_call_goes_to_another_scope),
        WITH_SCENE(h20_the_last_throttling_is_passed_on),
        WITH_SCENE(h20_a_fallback_that_cannot_be_had_leaves_the_throttling),
        WITH_SCENE(h20_without_a_usable_fallback_and_an_answer_there_is_a_fault),
        WITH_SCENE(h20_a_failure_falls_back_to_nobody),
        WITH_JOINT(f9_what_is_hopeless_is_refused_at_once_with_its_wait),
        WITH_JOINT(an_account_with_room_is_used_first),
        WITH_JOINT(h20_a_scope_that_is_full_falls_back),
        WITH_JOINT(the_refusal_of_the_first_scope_is_told_when_no_other_helps),
    };

    return cmocka_run_group_tests(tests, scene_init_process, NULL);
}
