/* test_attempt.c - one exchange: what is held back until it commits (H4), its deadlines (H5), whose fault a
 * failure is (H2), that it is booked once, and the usage asked for and kept back (F6). The web server is tests/fakes/fastcgi. */
#include "tests/worker/flow_house.h"

static atomic_bool committed;

static int make(void **state)
{
    atomic_store(&committed, false);
    return scene_make(state);
}

#define WITH_ATTEMPT(test) cmocka_unit_test_setup_teardown(test, make, scene_drop)

/* The answer's end comes only when its beginning has committed: a call that waits for it fails. */
static void run_committing(struct scene *scene)
{
    enum step_result result = attempts_step(scene->house->request);

    assert_int_equal(result, STEP_NEXT);
    atomic_store(&committed, true);
    assert_int_equal(scene_finish(scene, result), STEP_NEXT);
    assert_string_equal(scene_attempts(scene), "a:");
}

/* ---- documents -------------------------------------------------------------------------------- */

static void send_head_then_the_rest(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    (void)(server_send(fd, JSON_HEAD "Content-Length: 2\r\n\r\n") && flag_wait(&committed) &&
           server_send(fd, "{}"));
    close(fd);
}

static void h4_the_head_of_a_document_commits(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, send_head_then_the_rest, say_hello);
    run_committing(scene);
    assert_string_equal(scene_body(scene), "{}");
}

enum { OUTGROWN_BYTES = (8 << 20) + 4096 };
static char outgrown[OUTGROWN_BYTES + 1];

static void send_more_than_is_held(struct server *with)
{
    char chunk[32];
    int fd = server_take(with);

    if (fd < 0)
        return;
    memset(outgrown, ' ', OUTGROWN_BYTES);
    (void)snprintf(chunk, sizeof chunk, "%x\r\n", (unsigned)OUTGROWN_BYTES);
    (void)(server_send(fd, JSON_HEAD "Transfer-Encoding: chunked\r\n\r\n") &&
           server_send(fd, chunk) && server_send(fd, outgrown) && flag_wait(&committed) &&
           server_send(fd, "\r\n2\r\n{}\r\n0\r\n\r\n"));
    close(fd);
}

static void h4_a_held_document_that_outgrows_its_bound_commits(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.hedge_after_ms = 15000;
    scene_serve_two(scene, send_more_than_is_held, say_hello);
    run_committing(scene);
    assert_int_equal(strlen(scene_body(scene)), OUTGROWN_BYTES + 2);
    assert_true(scene->house->request->lanes[0]->held.capacity < ATTEMPT_BODY_HELD_MAX);
}

static void announce_more_than_is_held(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    memset(outgrown, ' ', OUTGROWN_BYTES);
    if (server_send(fd, JSON_HEAD) &&
        dprintf(fd, "Content-Length: %d\r\n\r\n", OUTGROWN_BYTES) > 0 && flag_wait(&committed))
        (void)server_send(fd, outgrown);
    close(fd);
}

static void h4_one_that_will_outgrow_it_is_not_held_at_all(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.hedge_after_ms = 15000;
    scene_serve_two(scene, announce_more_than_is_held, say_hello);
    run_committing(scene);
}

/* A document deeper than is read cannot be told from a whole one, and may have been paid. */
static void say_what_is_too_deep(struct server *with)
{
    static char body[2001];

    memset(body, '[', 1000);
    memset(body + 1000, ']', 1000);
    (void)server_answer(with, JSON_HEAD, body);
}

static void h14_what_is_too_deep_to_be_read_counts_as_whole(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.hedge_after_ms = 15000;
    scene_serve_two(scene, say_what_is_too_deep, say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_int_equal(strlen(scene_body(scene)), 2000);
    assert_int_equal(scene_asked(scene, 1), 0);
}

static void say_an_error_under_200(struct server *with)
{
    (void)server_answer(with, JSON_HEAD, ERROR_BODY("server_error", "boom"));
}

static void h14_an_error_under_200_is_none_where_documents_are_held(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.hedge_after_ms = 15000;
    scene_serve_two(scene, say_an_error_under_200, say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{\"from\":\"hello\"}");
    assert_string_equal(scene_attempts(scene), "a:boom b:");
}

/* Though head and body came in one piece and could have been looked at. */
static void h4_elsewhere_its_head_has_committed_it(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, say_an_error_under_200, say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), ERROR_BODY("server_error", "boom"));
    assert_int_equal(scene_asked(scene, 1), 0);
}

/* ---- streams ---------------------------------------------------------------------------------- */

static void send_roles(struct server *with, int roles)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    if (server_send(fd, STREAM_HEAD)) {
        while (roles-- > 0 && server_send(fd, ROLE))
            continue;
        if (flag_wait(&committed))
            (void)server_send(fd, WORD("a") DONE);
    }
    close(fd);
}

static void send_64_roles(struct server *with)
{
    send_roles(with, ATTEMPT_EVENTS_HELD_MAX);
}

static void h4_a_stream_is_held_for_64_events_at_most(void **state)
{
    struct scene *scene = *state;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(scene, send_64_roles, stream_hello);
    run_committing(scene);
    assert_int_equal(strlen(scene_body(scene)), 64 * strlen(ROLE) + strlen(WORD("a") DONE));
}

static void send_comments(struct server *with)
{
    static char comments[300 << 10];
    int fd = server_take(with);

    if (fd < 0)
        return;
    memset(comments, ':', sizeof comments - 1);
    (void)(server_send(fd, STREAM_HEAD) && server_send(fd, comments) && flag_wait(&committed) &&
           server_send(fd, "\n\n" WORD("a") DONE));
    close(fd);
}

static void h4_a_stream_is_held_for_256_kilobytes_at_most(void **state)
{
    struct scene *scene = *state;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(scene, send_comments, stream_hello);
    run_committing(scene);
    assert_non_null(strstr(scene_body(scene), "\n\n" WORD("a") DONE));
}

static void send_words_then_the_rest(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    (void)(server_send(fd, STREAM_HEAD ": hello\n\n" ROLE WORD("a")) && flag_wait(&committed) &&
           server_send(fd, DONE));
    close(fd);
}

static void h4_the_first_content_of_a_stream_commits_and_takes_along_what_was_held(void **state)
{
    struct scene *scene = *state;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(scene, send_words_then_the_rest, stream_hello);
    run_committing(scene);
    assert_string_equal(scene_body(scene), ": hello\n\n" ROLE WORD("a") DONE);
}

/* 63 events and nothing more: whoever counts one too many has committed. */
static void send_63_roles_and_fail(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    if (server_send(fd, STREAM_HEAD)) {
        for (int i = 0; i < ATTEMPT_EVENTS_HELD_MAX - 1; i++)
            (void)server_send(fd, ROLE);
        (void)server_send(fd, ERROR_EVENT);
    }
    close(fd);
}

static void h4_before_that_another_source_may_answer(void **state)
{
    struct scene *scene = *state;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(scene, send_63_roles_and_fail, stream_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), ROLE WORD("hello") DONE);
}

static void stream_nothing(struct server *with)
{
    server_answer_once(with, STREAM_HEAD ": hello\n\n" ROLE DONE);
}

static void i10_a_stream_that_ends_without_content_has_failed(void **state)
{
    struct scene *scene = *state;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(scene, stream_nothing, stream_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), ROLE WORD("hello") DONE);
    assert_string_equal(scene_attempts(scene), "a:empty_answer b:");
}

static void send_words_and_an_error(struct server *with)
{
    server_answer_once(with, STREAM_HEAD WORD("a") ERROR_EVENT);
}

static void i6_after_content_an_error_is_passed_on(void **state)
{
    struct scene *scene = *state;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(scene, send_words_and_an_error, stream_hello);
    (void)scene_run(scene);
    assert_non_null(strstr(scene_body(scene), WORD("a") ERROR_EVENT));
    assert_int_equal(scene_asked(scene, 1), 0);
    assert_int_equal(scene->house->request->attempts, 1);
}

/* ---- time ------------------------------------------------------------------------------------- */

/* An attempt at source a that began at second 100, as if it were under way. */
static struct attempt *begun(struct scene *scene)
{
    struct attempt *attempt = scene->house->request->attempt;

    attempt->source = &scene->sources[0];
    attempt->started_ns = 100 * NS_PER_S;
    scene->sources[0].timeout_ms = 60000;
    scene->sources[0].ttft_timeout_ms = 5000;
    scene->sources[0].stream_idle_timeout_ms = 3000;
    return attempt;
}

static void assert_deadline(const struct attempt *attempt, int64_t at_s, const char *error)
{
    const struct attempt_deadline deadline = attempt_deadline(attempt);

    assert_int_equal(deadline.at_ns, at_s * NS_PER_S);
    assert_string_equal(deadline.error, error);
}

static void h5_the_watchdog_of_a_stream_runs_until_its_first_content(void **state)
{
    struct scene *scene = *state;
    struct attempt *attempt;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    attempt = begun(scene);
    assert_deadline(attempt, 105, "ttft_timeout");
    attempt->status = 200;
    attempt->is_stream = true;
    pictures_begin(&attempt->pictures, ENDPOINT_CHAT, "text/event-stream", NULL);
    attempt->counting = true;
    attempt->last_ns = 104 * NS_PER_S; /* bytes came, comments or a role */
    attempt->bytes = 10;
    assert_deadline(attempt, 105, "ttft_timeout");
    attempt->pictures.delivered.content_seen = true;
    assert_deadline(attempt, 107, "idle_timeout");
    assert_int_equal(attempt_deadline(attempt).fault, FAULT_upstream_stalled);
    attempt->last_ns = 159 * NS_PER_S;
    assert_deadline(attempt, 160, "timeout");
}

static void h5_the_watchdog_is_for_streams_alone(void **state)
{
    struct scene *scene = *state;

    assert_deadline(begun(scene), 160, "timeout");
    assert_int_equal(attempt_deadline(scene->house->request->attempt).fault,
                     FAULT_upstream_timeout);
}

static void h5_an_error_to_a_stream_has_no_first_content(void **state)
{
    struct scene *scene = *state;
    struct attempt *attempt;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    attempt = begun(scene);
    attempt->status = 500;
    attempt->last_ns = 104 * NS_PER_S;
    assert_deadline(attempt, 107, "idle_timeout");
}

/* ---- booking ---------------------------------------------------------------------------------- */

/* More headers than go upstream: nothing begins, and what was taken for it comes back. */
static void n2_a_call_that_cannot_begin_holds_no_permit(void **state)
{
    struct scene *scene = *state;

    for (int i = 0; i < 200; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "HTTP_X_NUMBER_%d", i);
        fake_fastcgi_param(scene->house->fcgi, name, "1");
    }
    scene_serve_two(scene, say_hello, say_hello);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    assert_int_equal(scene->house->request->fault.code, FAULT_headers_too_large);
    assert_int_equal(scene_source(scene, 0).in_flight, 0);
    assert_int_equal(scene_asked(scene, 0), 0);
    assert_int_equal(scene->house->request->attempts, 0);
}

static void an_attempt_is_booked_once(void **state)
{
    struct scene *scene = *state;
    struct request *request = scene->house->request;
    struct attempt *attempt = begun(scene);
    const struct source_candidate candidate = {.row = request->worker->source_rows[0], .weight = 1};
    const struct source_wish wish = fixture_wish(&candidate, 1, clock_monotonic_ns());

    attempt->permit = fixture_admit(&request->worker->gate, &wish).permit;
    assert_int_equal(scene_source(scene, 0).in_flight, 1);
    attempt->last_ns = attempt->started_ns + 250 * NS_PER_MS;
    attempt->ttft_ns = 100 * NS_PER_MS;
    attempt->status = 200;
    attempt->n = 3;
    attempt_book(attempt, SOURCE_END_SUCCESS, "");
    attempt_book(attempt, SOURCE_END_FAILURE, "late");
    assert_int_equal(scene_source(scene, 0).in_flight, 0);
    assert_int_equal(scene_source(scene, 0).failures_in_a_row, 0);
    assert_int_equal(scene_source(scene, 0).latency_ms, 250);
    assert_string_equal(attempt->record.error, "");
    assert_int_equal(attempt->record.generation_ms, 250);
    assert_int_equal(attempt->record.ttft_ms, 100);
    assert_int_equal(attempt->record.n, 3);
    assert_int_equal(attempt->record.settled_tokens, -1);
    assert_false(attempt->record.kept_est);
}

/* A call that was refused before any source was chosen has nothing to book. */
static void an_attempt_that_never_was_is_not_booked(void **state)
{
    struct scene *scene = *state;
    struct attempt *attempt = scene->house->request->attempt;

    attempt->source = NULL;
    attempt_book(attempt, SOURCE_END_UNJUDGED, "gateway");
    assert_false(attempt->booked);
}

/* ---- whose fault ------------------------------------------------------------------------------ */

static enum attempt_class class_of(struct scene *scene, int status, const char *body,
                                   const char *key)
{
    struct attempt *attempt = scene->house->request->attempt;

    attempt->source = &scene->sources[0];
    scene->sources[0].api_key = key;
    attempt->status = status;
    text_clear(&attempt->error_body);
    text_append_string(&attempt->error_body, body);
    judge_hints_begin(&attempt->hints);
    attempt_judge(attempt);
    return attempt->judgement.class;
}

static void h2_a_key_is_the_fault_of_who_brought_it(void **state)
{
    static const char no_money[] = ERROR_BODY("insufficient_quota", "insufficient_quota");
    static const char bad_key[] = ERROR_BODY("invalid_request_error", "invalid_api_key");
    struct scene *scene = *state;

    assert_int_equal(class_of(scene, 401, bad_key, "ours"), ATTEMPT_CREDENTIAL);
    assert_true(scene->house->request->attempt->judgement.out_ms > 0);
    assert_int_equal(class_of(scene, 401, bad_key, ""), ATTEMPT_REQUEST);
    assert_int_equal(scene->house->request->attempt->judgement.out_ms, 0);
    assert_int_equal(class_of(scene, 429, no_money, "ours"), ATTEMPT_MONEY);
    assert_int_equal(class_of(scene, 429, no_money, ""), ATTEMPT_REQUEST);
    assert_int_equal(class_of(scene, 500, "{}", ""), ATTEMPT_TRANSIENT);
}

static void n5_an_image_that_may_be_paid_is_of_unknown_outcome(void **state)
{
    struct scene *scene = *state;
    static const char error[] = ERROR_BODY("server_error", "server_error");

    assert_int_equal(class_of(scene, 502, error, ""), ATTEMPT_TRANSIENT);
    scene->house->request->reader.intent.image = true;
    assert_int_equal(class_of(scene, 502, error, ""), ATTEMPT_UNKNOWN);
    assert_int_equal(class_of(scene, 503, error, ""), ATTEMPT_TRANSIENT);
}

/* ---- usage ------------------------------------------------------------------------------------ */

#define USAGE "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":70,\"completion_tokens\":30}}\n\n"
#define ASKING_BODY                                                                                \
    "{\"model\":\"gpt-5\",\"stream\":true,\"stream_options\":{\"include_usage\":true},"            \
    "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"

static void stream_usage(struct server *with)
{
    while (true) {
        int fd = server_take(with);

        if (fd < 0)
            return;
        (void)server_send(fd, STREAM_HEAD ROLE WORD("hello") USAGE DONE);
        close(fd);
    }
}

static void f6_usage_is_asked_for_and_kept_to_ourselves(void **state)
{
    scene_ask(now, "/v1/chat/completions", STREAM_BODY);
    scene_serve(now, 0, stream_usage);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_non_null(strstr(scene_got(now, 0), "\"include_usage\":true"));
    assert_string_equal(scene_body(now), ROLE WORD("hello") DONE);
    assert_use("a", 1, 100);
    assert_int_equal(scene_call(now).tokens_out, 30);
}

static void f6_who_asks_for_usage_gets_it(void **state)
{
    scene_ask(now, "/v1/chat/completions", ASKING_BODY);
    scene_serve(now, 0, stream_usage);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_string_equal(scene_got(now, 0), ASKING_BODY);
    assert_string_equal(scene_body(now), ROLE WORD("hello") USAGE DONE);
    assert_use("a", 1, 100);
}

/* Nothing is changed where tokens do not count. */
static void f6_usage_is_not_asked_for_where_nobody_needs_it(void **state)
{
    static const enum flow_strategy strategies[] = {FLOW_STRATEGY_NONE, FLOW_STRATEGY_RETRY,
                                                    FLOW_STRATEGY_RATE};

    (void)state;
    scene_serve(now, 0, stream_usage);
    for (size_t i = 0; i < LENGTH(strategies) + 2; i++) {
        struct request *request = now->house->request;

        now->house->scope.flow =
            (int)(i < LENGTH(strategies) ? strategies[i] : FLOW_STRATEGY_SHAPING);
        now->house->scope.flow_include_usage = i != LENGTH(strategies);
        now->sources[0].flow_unit =
            i == LENGTH(strategies) + 1 ? FLOW_UNIT_TASKS : FLOW_UNIT_TOKENS;
        scene_ask(now, "/v1/chat/completions", STREAM_BODY);
        attempt_clear(request->attempt);
        request->attempts = 0;
        request->committed = false;
        request->response = RESPONSE_NONE;
        fake_fastcgi_reset(now->house->fcgi);
        assert_int_equal(attempts_step(request), STEP_NEXT);
        assert_int_equal(relay_step(request), STEP_NEXT);
        assert_int_equal(respond_step(request), STEP_NEXT);
        assert_int_equal(settle_step(request), STEP_NEXT);
        assert_string_equal(scene_body(now), ROLE WORD("hello") USAGE DONE);
    }
    scene_stop(now);
    assert_string_equal(scene_got(now, 0), STREAM_BODY);
    assert_int_equal(scene_asked(now, 0), LENGTH(strategies) + 2);
}

static void say_used_as_json(struct server *with)
{
    (void)server_answer(with, JSON_HEAD, USED_BODY);
}

static void f6_an_answer_that_is_no_stream_stays_as_it_is(void **state)
{
    scene_ask(now, "/v1/chat/completions", STREAM_BODY);
    scene_serve(now, 0, say_used_as_json);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_non_null(strstr(scene_got(now, 0), "\"include_usage\":true"));
    assert_string_equal(scene_body(now), USED_BODY);
    assert_use("a", 1, 100);
}

static void stream_error_with_usage(struct server *with)
{
    (void)server_answer(with, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/event-stream\r\n",
                        USAGE);
}

static void f6_an_error_stays_as_it_is(void **state)
{
    scene_ask(now, "/v1/chat/completions", STREAM_BODY);
    scene_serve(now, 0, stream_error_with_usage);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_string_equal(scene_body(now), USAGE);
    assert_use("a", 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_ATTEMPT(h4_the_head_of_a_document_commits),
        WITH_ATTEMPT(h4_a_held_document_that_outgrows_its_bound_commits),
        WITH_ATTEMPT(h4_one_that_will_outgrow_it_is_not_held_at_all),
        WITH_ATTEMPT(h14_what_is_too_deep_to_be_read_counts_as_whole),
        WITH_ATTEMPT(h14_an_error_under_200_is_none_where_documents_are_held),
        WITH_ATTEMPT(h4_elsewhere_its_head_has_committed_it),
        WITH_ATTEMPT(h4_a_stream_is_held_for_64_events_at_most),
        WITH_ATTEMPT(h4_a_stream_is_held_for_256_kilobytes_at_most),
        WITH_ATTEMPT(h4_the_first_content_of_a_stream_commits_and_takes_along_what_was_held),
        WITH_ATTEMPT(h4_before_that_another_source_may_answer),
        WITH_ATTEMPT(i10_a_stream_that_ends_without_content_has_failed),
        WITH_ATTEMPT(i6_after_content_an_error_is_passed_on),
        WITH_ATTEMPT(h5_the_watchdog_of_a_stream_runs_until_its_first_content),
        WITH_ATTEMPT(h5_the_watchdog_is_for_streams_alone),
        WITH_ATTEMPT(h5_an_error_to_a_stream_has_no_first_content),
        WITH_ATTEMPT(n2_a_call_that_cannot_begin_holds_no_permit),
        WITH_ATTEMPT(an_attempt_is_booked_once),
        WITH_ATTEMPT(an_attempt_that_never_was_is_not_booked),
        WITH_ATTEMPT(h2_a_key_is_the_fault_of_who_brought_it),
        WITH_ATTEMPT(n5_an_image_that_may_be_paid_is_of_unknown_outcome),
        WITH_FLOW(f6_usage_is_asked_for_and_kept_to_ourselves),
        WITH_FLOW(f6_who_asks_for_usage_gets_it),
        WITH_FLOW(f6_usage_is_not_asked_for_where_nobody_needs_it),
        WITH_FLOW(f6_an_answer_that_is_no_stream_stays_as_it_is),
        WITH_FLOW(f6_an_error_stays_as_it_is),
    };

    return cmocka_run_group_tests(tests, scene_init_process, NULL);
}
