/* test_attempts.c - whole calls over several sources: tried again, given up, passed on, each with the rows
 * it leaves (H2, H3, H4). Hedges are in test_lanes.c, fallbacks in test_candidates.c, clients that leave
 * and time in test_upstream.c. The web server is tests/fakes/fastcgi. */
#include "tests/worker/scope_house.h"

static atomic_bool go;

static int make(void **state)
{
    atomic_store(&go, false);
    return scene_make(state);
}

#define WITH_SOURCES(test) cmocka_unit_test_setup_teardown(test, make, scene_drop)

/* ---- once more, elsewhere --------------------------------------------------------------------- */

static void h3_a_failure_is_tried_again_at_another_source(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, say_500, say_hello);
    scene_assert_second_answers(scene, "a:boom b:");
    assert_int_equal(scene_asked(scene, 0), 1);
    assert_int_equal(scene_source(scene, 0).failures_in_a_row, 1);
    assert_int_equal(scene_source(scene, 1).failures_in_a_row, 0);
    assert_string_equal(scene_got(scene, 0), CHAT_BODY);
    assert_string_equal(scene_got(scene, 1), CHAT_BODY);
}

static void h3_a_throttling_needs_no_budget_and_feeds_no_breaker(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.retry_budget = 0;
    scene_serve_two(scene, say_429, say_hello);
    scene_assert_second_answers(scene, "a:rate_limit_exceeded b:");
    assert_int_equal(scene_source(scene, 0).failures_in_a_row, 0);
    assert_int_equal(scene_source(scene, 0).window_calls, 0);
}

static void h3_a_refused_connection_is_no_answer(void **state)
{
    struct scene *scene = *state;

    scene_serve(scene, 1, say_hello); /* nobody listens at a's port 1 */
    scene_assert_second_answers(scene, "a:upstream_connect b:");
}

static void stream_error(struct server *with)
{
    server_answer_once(with, STREAM_HEAD ": hello\n\n" ROLE ERROR_EVENT);
}

static void i2_an_error_event_before_content_is_a_failed_attempt(void **state)
{
    struct scene *scene = *state;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(scene, stream_error, stream_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), ROLE WORD("hello") DONE);
    assert_string_equal(scene_attempts(scene), "a:overloaded b:");
    assert_int_equal(scene_source(scene, 0).failures_in_a_row, 1);
}

static void stream_created_then_error(struct server *with)
{
    server_answer_once(with, STREAM_HEAD
                       "event: response.created\ndata: "
                       "{\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\n\n"
                       "event: error\ndata: "
                       "{\"type\":\"error\",\"code\":\"server_error\",\"message\":\"no\"}\n\n");
}

#define RESPONSE_WORD                                                                              \
    "event: response.output_text.delta\n"                                                          \
    "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n"
#define RESPONSE_END                                                                               \
    "event: response.completed\n"                                                                  \
    "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n"

static void stream_response(struct server *with)
{
    server_answer_once(with, STREAM_HEAD RESPONSE_WORD RESPONSE_END);
}

static void i7_response_created_does_not_commit(void **state)
{
    struct scene *scene = *state;

    scene_ask(scene, "/v1/responses", "{\"model\":\"gpt-5\",\"stream\":true,\"input\":\"hi\"}");
    scene_serve_two(scene, stream_created_then_error, stream_response);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), RESPONSE_WORD RESPONSE_END);
}

/* ---- the end of trying ------------------------------------------------------------------------ */

static void say_500_later(struct server *with)
{
    while (server_answer(with,
                         "HTTP/1.1 500 Internal Server Error\r\nRetry-After: 7\r\n"
                         "x-should-retry: true\r\nContent-Type: application/json\r\n",
                         ERROR_BODY("server_error", "boom")))
        continue;
}

static void h3_what_failed_everywhere_is_passed_on_with_our_word_on_retrying(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.retry_budget = 1;
    scene_serve_two(scene, say_500, say_500_later);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), ERROR_BODY("server_error", "boom"));
    assert_true(scene_head_has(scene, "Status: 500"));
    assert_true(scene_head_has(scene, "x-should-retry: false"));
    assert_true(scene_head_has(scene, "retry-after: 7"));
    assert_string_equal(scene_attempts(scene), "a:boom b:boom");
    assert_string_equal(scene_call(scene).outcome, "upstream_error");
}

static void h3_a_call_that_reached_nobody_is_not_to_be_tried_again(void **state)
{
    struct scene *scene = *state;

    assert_int_equal(scene_run(scene), STEP_FAULT);
    scene_assert_fault(scene, FAULT_upstream_connect);
    assert_true(scene_head_has(scene, "x-should-retry: false"));
    assert_string_equal(scene_attempts(scene),
                        "a:upstream_connect b:upstream_connect a:upstream_connect");
}

static void i39_a_long_wait_is_not_begun_but_told(void **state)
{
    struct scene *scene = *state;
    int64_t began_ns = clock_monotonic_ns();

    scene->house->scope.member_count = 1;
    scene_serve(scene, 0, say_429_for_two_minutes);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(clock_monotonic_ns() - began_ns < 10 * NS_PER_S);
    assert_int_equal(scene_asked(scene, 0), 1);
    assert_true(scene_head_has(scene, "Status: 429"));
    assert_true(scene_head_has(scene, "retry-after: 120"));
    assert_true(scene_head_has(scene, "x-should-retry: false")); /* SDKs heed no wait of so long */
    assert_int_equal(scene->house->request->retries, 0);
}

/* As with our own refusals. */
static void f7_a_refusal_that_names_no_time_gets_one(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.member_count = 1;
    scene->house->scope.backoff_base_ms = scene->house->scope.backoff_max_ms = 300000;
    scene->house->request->deadline_ns = clock_monotonic_ns() + 5 * NS_PER_S;
    scene_serve(scene, 0, say_429);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(scene_head_has(scene, "Status: 429"));
    assert_true(scene_head_has(scene, "retry-after: 5"));
    assert_true(scene_head_has(scene, "retry-after-ms: 5000"));
    assert_true(scene_head_has(scene, "x-should-retry: true"));
}

static void h3_an_unknown_outcome_is_not_tried_again(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, read_and_close, say_hello);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    scene_assert_fault(scene, FAULT_upstream_no_answer);
    assert_int_equal(scene_asked(scene, 1), 0);
    assert_int_equal(scene_source(scene, 0).failures_in_a_row, 1);
}

static void h3_an_unknown_outcome_is_tried_again_when_the_operator_says_so(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.retry_unknown_outcome = true;
    scene_serve_two(scene, read_and_close, say_hello);
    scene_assert_second_answers(scene, "a:upstream_no_answer b:");
}

static void say_400(struct server *with)
{
    (void)server_answer(with, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n",
                        ERROR_BODY("invalid_request_error", "bad_value"));
}

static void i43_a_fault_of_the_request_is_passed_on_at_once(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, say_400, say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(scene_head_has(scene, "Status: 400"));
    assert_int_equal(scene_asked(scene, 1), 0);
    assert_int_equal(scene_source(scene, 0).failures_in_a_row, 0);
    assert_null(strcasestr(scene_out(scene), "x-should-retry"));
}

static void say_500_slowly(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    (void)server_send(fd, "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n"
                          "Content-Length: 100\r\n\r\n{");
    server_hold(with, fd);
}

/* The head says enough when the rest of an error does not come in time. */
static void h2_an_error_whose_body_hangs_is_what_its_head_says(void **state)
{
    struct scene *scene = *state;

    scene->sources[0].stream_idle_timeout_ms = 50;
    scene_serve_two(scene, say_500_slowly, say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{\"from\":\"hello\"}");
    assert_true(atomic_load(&scene->servers[0]->saw_close));
    assert_int_equal(scene_source(scene, 0).failures_in_a_row, 0);
}

/* ---- direct routes ---------------------------------------------------------------------------- */

static void say_429_with_words(struct server *with)
{
    (void)server_answer(with,
                        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n"
                        "x-should-retry: false\r\nContent-Type: application/json\r\n",
                        ERROR_BODY("requests", "rate_limit_exceeded"));
}

static void make_direct(struct scene *scene)
{
    scene->house->scope.direct = true;
    scene->house->scope.member_count = 1;
    scene->house->scope.retry_budget = 0;
}

static void h10_a_direct_route_passes_everything_untouched(void **state)
{
    struct scene *scene = *state;

    make_direct(scene);
    scene_serve(scene, 0, say_429_with_words);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(scene_head_has(scene, "Status: 429"));
    assert_true(scene_head_has(scene, "retry-after: 7"));
    assert_true(scene_head_has(scene, "x-should-retry: false"));
    assert_null(strcasestr(scene_out(scene), "retry-after-ms"));
    assert_int_equal(scene_asked(scene, 0), 1);
}

static void say_401(struct server *with)
{
    while (server_answer(with, "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n",
                         ERROR_BODY("invalid_request_error", "invalid_api_key")))
        continue;
}

/* Head and body come at once, in one piece: it is not a matter of timing. */
static void h10_a_direct_route_passes_a_refused_key_on(void **state)
{
    struct scene *scene = *state;

    make_direct(scene);
    scene->sources[0].api_key = "ours";
    scene_serve(scene, 0, say_401);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(scene_head_has(scene, "Status: 401"));
    assert_string_equal(scene_body(scene), ERROR_BODY("invalid_request_error", "invalid_api_key"));
    assert_int_equal(scene_source(scene, 0).out_for_ns, 0);
}

static void send_half_an_error(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    (void)(server_send(fd, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{") &&
           flag_wait(&go) && server_send(fd, "}"));
    close(fd);
}

static void h4_on_a_direct_route_an_errors_head_commits(void **state)
{
    struct scene *scene = *state;
    enum step_result result;

    make_direct(scene);
    scene_serve(scene, 0, send_half_an_error);
    result = attempts_step(scene->house->request);
    assert_int_equal(result, STEP_NEXT);
    atomic_store(&go, true);
    assert_int_equal(scene_finish(scene, result), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{}");
    assert_string_equal(scene_attempts(scene), "a:transient");
}

/* ---- keys ------------------------------------------------------------------------------------- */

static void h2_our_own_refused_key_is_nothing_for_the_caller(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.member_count = 1;
    scene->sources[0].api_key = "ours";
    scene_serve(scene, 0, say_401);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    scene_assert_fault(scene, FAULT_upstream_credentials);
    assert_true(scene_head_has(scene, "Status: 502"));
    assert_null(strstr(scene_out(scene), "invalid_api_key"));
    assert_true(scene_source(scene, 0).out_for_ns > 0);
    assert_string_equal(scene_source(scene, 0).out_reason, "invalid_api_key");
}

static void h2_another_source_has_another_key(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.retry_budget = 0;
    scene->sources[0].api_key = "ours";
    scene_serve_two(scene, say_401, say_hello);
    scene_assert_second_answers(scene, "a:invalid_api_key b:");
}

static void h2_the_callers_own_refused_key_is_his_affair(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, say_401, say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(scene_head_has(scene, "Status: 401"));
    assert_string_equal(scene_body(scene), ERROR_BODY("invalid_request_error", "invalid_api_key"));
    assert_true(scene_head_has(scene, "x-should-retry: false")); /* it will be refused again */
    assert_int_equal(scene_source(scene, 0).out_for_ns, 0);
    assert_int_equal(scene_asked(scene, 1), 0);
}

static void say_429_for_an_hour(struct server *with)
{
    (void)server_answer(with,
                        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3600\r\n"
                        "Content-Type: application/json\r\n",
                        ERROR_BODY("requests", "rate_limit_exceeded"));
}

static void h2_the_callers_own_quota_of_the_day_is_told_as_it_is(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.member_count = 1;
    scene_serve(scene, 0, say_429_for_an_hour);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(scene_head_has(scene, "Status: 429"));
    assert_true(scene_head_has(scene, "retry-after: 3600"));
    assert_true(scene_head_has(scene, "x-should-retry: false"));
    assert_int_equal(scene_source(scene, 0).out_for_ns, 0); /* other callers have other quotas */
}

static void h2_another_account_serves_who_has_used_up_his_day(void **state)
{
    struct scene *scene = *state;

    scene->sources[1].api_key = "ours";
    scene_serve_two(scene, say_429_for_an_hour, say_hello);
    scene_assert_second_answers(scene, "a:rate_limit_exceeded b:");
}

/* ---- a kept connection ------------------------------------------------------------------------ */

static void answer_then_die(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    (void)server_send(fd, JSON_HEAD "Content-Length: 2\r\n\r\n{}");
    (void)server_read(with, fd); /* the same connection once more: read, and gone */
    close(fd);
    say_hello(with);
}

/* A kept connection may be closed in the very moment it is used: a GET is asked once more, though
 * the scope would not. */
static void m12_a_get_is_asked_once_more_on_a_fresh_connection(void **state)
{
    struct scene *scene = *state;
    struct request *request = scene->house->request;

    scene->house->scope.member_count = 1;
    scene->house->scope.retry_budget = 0;
    request->method = "GET";
    scene_ask(scene, "/v1/models", "");
    scene_serve(scene, 0, answer_then_die);
    assert_int_equal(attempts_step(request), STEP_NEXT);
    assert_int_equal(relay_step(request), STEP_NEXT);
    upstream_close(request);
    attempt_book(request->attempt, SOURCE_END_SUCCESS, "");
    attempt_clear(request->attempt);
    request->attempts = 0;
    request->committed = false;
    request->response = RESPONSE_NONE;
    text_clear(&scene->house->fcgi->out);

    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{\"from\":\"hello\"}");
    assert_int_equal(scene_asked(scene, 0), 3);
    assert_int_equal(atomic_load(&scene->servers[0]->connections), 2);
}

/* ---- who is hedged ------------------------------------------------------------------------------ */

static void h11_what_may_not_be_hedged_is_not(void **state)
{
    static const struct {
        const char *path, *body;
        bool may;
    } cases[] = {
        {"/v1/chat/completions", CHAT_BODY, true},
        {"/v1/responses", "{\"model\":\"m\",\"input\":\"hi\"}", true},
        {"/v1/responses", "{\"model\":\"m\",\"input\":\"hi\",\"background\":true}", false},
        {"/v1/responses", "{\"model\":\"m\",\"input\":\"hi\",\"previous_response_id\":\"r\"}",
         false},
        {"/v1/embeddings", "{\"model\":\"m\",\"input\":\"hi\"}", false},
        {"/v1/images/generations", IMAGE_BODY, false},
    };
    struct scene *scene = *state;
    struct request *request = scene->house->request;

    scene->house->scope.hedge_after_ms = 20;
    request->deadline_ns = 0; /* over before it begins: the plan is made all the same */
    for (size_t i = 0; i < LENGTH(cases); i++) {
        scene_ask(scene, cases[i].path, cases[i].body);
        assert_int_equal(attempts_step(request), STEP_FAULT);
        assert_int_equal(request->fault.code, FAULT_call_deadline);
        assert_int_equal(request->plan.terms.may_hedge, cases[i].may);
        upstream_close(request);
        request->fault.code = FAULT_NONE;
    }
}

/* ---- images: the slot, and money -------------------------------------------------------------- */

static struct scene *on_stage; /* for scripts */

static void say_hello_while_the_slot_is_held(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    if (fixture_use(&on_stage->house->worker.gate).used == 1)
        (void)server_send(fd, JSON_HEAD "Content-Length: 16\r\n\r\n{\"from\":\"hello\"}");
    close(fd);
}

static void n1_an_image_keeps_its_slot_while_it_is_tried_again(void **state)
{
    struct scene *scene = *state;

    on_stage = scene;
    scene_give_slot(scene);
    scene_serve_two(scene, say_429, say_hello_while_the_slot_is_held);
    scene_assert_second_answers(scene, "a:rate_limit_exceeded b:");
    assert_int_equal(scene->house->request->ticket.place, NO_INDEX);
    assert_int_equal(fixture_use(&scene->house->worker.gate).used, 0);
}

static void say_504(struct server *with)
{
    (void)server_answer(with,
                        "HTTP/1.1 504 Gateway Timeout\r\nContent-Type: text/html\r\n"
                        "Server: nginx\r\n",
                        "<html>504</html>");
}

static void n5_an_image_that_may_be_paid_is_not_drawn_twice(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.retry_unknown_outcome = true;
    scene_give_slot(scene);
    scene_serve_two(scene, say_504, say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(scene_head_has(scene, "Status: 504"));
    assert_true(scene_head_has(scene, "x-should-retry: false"));
    assert_int_equal(scene_asked(scene, 1), 0);
}

static void n5_an_image_of_unknown_outcome_is_never_tried_again(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.retry_unknown_outcome = true;
    scene_give_slot(scene);
    scene_serve_two(scene, read_and_close, say_hello);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    scene_assert_fault(scene, FAULT_upstream_no_answer);
    assert_int_equal(scene_asked(scene, 1), 0);
    assert_int_equal(scene->house->request->ticket.place, NO_INDEX);
}

static void n5_an_image_of_which_nothing_was_sent_is_tried_again(void **state)
{
    struct scene *scene = *state;

    scene_give_slot(scene);
    scene_serve(scene, 1, say_hello);
    scene_assert_second_answers(scene, "a:upstream_connect b:");
}

static void say_429_for_five_seconds(struct server *with)
{
    while (server_answer(with,
                         "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 5\r\n"
                         "Content-Type: application/json\r\n",
                         ERROR_BODY("requests", "rate_limit_exceeded")))
        continue;
}

static void an_image_holds_its_slot_for_no_longer_than_it_may(void **state)
{
    struct scene *scene = *state;
    int64_t began_ns = clock_monotonic_ns();

    scene->house->options.image.image_retry_hold_ms = 1000;
    scene->house->scope.member_count = 1;
    scene_give_slot(scene);
    scene_serve(scene, 0, say_429_for_five_seconds);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(clock_monotonic_ns() - began_ns < 4 * NS_PER_S);
    assert_int_equal(scene_asked(scene, 0), 1);
    assert_true(scene_head_has(scene, "Status: 429"));
    assert_true(scene_head_has(scene, "retry-after: 5"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SOURCES(h3_a_failure_is_tried_again_at_another_source),
        WITH_SOURCES(h3_a_throttling_needs_no_budget_and_feeds_no_breaker),
        WITH_SOURCES(h3_a_refused_connection_is_no_answer),
        WITH_SOURCES(i2_an_error_event_before_content_is_a_failed_attempt),
        WITH_SOURCES(i7_response_created_does_not_commit),
        WITH_SOURCES(h3_what_failed_everywhere_is_passed_on_with_our_word_on_retrying),
        WITH_SOURCES(h3_a_call_that_reached_nobody_is_not_to_be_tried_again),
        WITH_SOURCES(i39_a_long_wait_is_not_begun_but_told),
        WITH_SOURCES(h3_an_unknown_outcome_is_not_tried_again),
        WITH_SOURCES(f7_a_refusal_that_names_no_time_gets_one),
        WITH_SOURCES(h3_an_unknown_outcome_is_tried_again_when_the_operator_says_so),
        WITH_SOURCES(i43_a_fault_of_the_request_is_passed_on_at_once),
        WITH_SOURCES(h2_an_error_whose_body_hangs_is_what_its_head_says),
        WITH_SOURCES(h10_a_direct_route_passes_everything_untouched),
        WITH_SOURCES(h10_a_direct_route_passes_a_refused_key_on),
        WITH_SOURCES(h4_on_a_direct_route_an_errors_head_commits),
        WITH_SOURCES(h2_our_own_refused_key_is_nothing_for_the_caller),
        WITH_SOURCES(h2_another_source_has_another_key),
        WITH_SOURCES(h2_the_callers_own_refused_key_is_his_affair),
        WITH_SOURCES(h2_the_callers_own_quota_of_the_day_is_told_as_it_is),
        WITH_SOURCES(h2_another_account_serves_who_has_used_up_his_day),
        WITH_SOURCES(m12_a_get_is_asked_once_more_on_a_fresh_connection),
        WITH_SOURCES(h11_what_may_not_be_hedged_is_not),
        WITH_SOURCES(n1_an_image_keeps_its_slot_while_it_is_tried_again),
        WITH_SOURCES(n5_an_image_that_may_be_paid_is_not_drawn_twice),
        WITH_SOURCES(n5_an_image_of_unknown_outcome_is_never_tried_again),
        WITH_SOURCES(n5_an_image_of_which_nothing_was_sent_is_tried_again),
        WITH_SOURCES(an_image_holds_its_slot_for_no_longer_than_it_may),
    };

    return cmocka_run_group_tests(tests, scene_init_process, NULL);
}
