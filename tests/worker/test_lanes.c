/* test_lanes.c - two exchanges side by side: who wins, who is cancelled, and what of it is booked (H12 to
 * H15, D5 to D15). What commits an answer is in test_attempt.c. */
#include "tests/worker/lanes_stage.h"

/* ---- the hedge wins --------------------------------------------------------------------------- */

static void assert_hedge_won(struct scene *scene)
{
    struct call_record call = scene_call(scene);

    assert_string_equal(scene_attempts(scene), "a:hedge_cancelled +b:");
    assert_string_equal(call.source, "b");
    assert_int_equal(call.hedges, 1);
    assert_int_equal(call.attempts, 2);
    assert_int_equal(call.retries, 0);
    assert_true(call.hedge_won);
    assert_true(scene_head_has(scene, "x-penstock-hedges: 1"));
    assert_true(row_of(scene, false, "a").kept_est);
    assert_false(row_of(scene, false, "b").kept_est);
    assert_untouched(scene, 0);
    assert_int_equal(scene_source(scene, 1).window_calls, 1);
    /* Of the winner's transport alone (R26). */
    assert_true(call.generation_ms >= 0);
    assert_true(call.generation_ms + HEDGE_AFTER_MS <= call.total_latency_ms);
}

static void h14_the_first_content_wins_and_the_loser_is_gone_before_it_is_sent(void **state)
{
    struct scene *scene = *state;
    enum step_result result;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(scene, read_and_hold, stream_hello);
    result = attempts_step(scene->house->request);
    assert_int_equal(result, STEP_NEXT);
    assert_true(flag_wait(&scene->servers[0]->saw_close));
    assert_string_equal(scene_out(scene), "");
    assert_int_equal(scene_finish(scene, result), STEP_NEXT);
    assert_string_equal(scene_body(scene), ROLE WORD("hello") DONE);
    assert_hedge_won(scene);
    /* Both have had a row since the hedge was sent, to be closed if this process had died. */
    assert_false(row_of(scene, true, "a").hedge);
    assert_true(row_of(scene, true, "b").hedge);
    assert_int_equal(row_of(scene, true, "a").n, 1);
    assert_int_equal(row_of(scene, true, "b").n, 2);
}

static char half_a_document[100 << 10];

static void send_half(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    memset(half_a_document, ' ', sizeof half_a_document - 1);
    half_a_document[0] = '{';
    (void)(server_send(fd, JSON_HEAD "Content-Length: 1000000\r\n\r\n") &&
           server_send(fd, half_a_document));
    atomic_store(&primary_seen, true);
    server_hold(with, fd);
}

static void say_hello_after_the_primary(struct server *with)
{
    if (flag_wait(&primary_seen))
        say_hello(with);
}

static void h14_the_first_whole_document_wins(void **state)
{
    struct scene *scene = *state;
    enum step_result result;

    scene_serve_two(scene, send_half, say_hello_after_the_primary);
    result = attempts_step(scene->house->request);
    /* What the loser had is not kept by the thread. */
    assert_true(scene->house->request->lanes[0]->held.capacity < sizeof half_a_document);
    assert_int_equal(scene_finish(scene, result), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{\"from\":\"hello\"}");
    assert_hedge_won(scene);
}

static void stream_then_break_off(struct server *with)
{
    server_answer_once(with, STREAM_HEAD WORD("hello"));
}

static void d15_a_winner_that_breaks_off_is_not_replaced(void **state)
{
    struct scene *scene = *state;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(scene, read_and_hold, stream_then_break_off);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    assert_int_equal(scene->house->request->fault.code, FAULT_upstream_cut);
    assert_non_null(strstr(scene_body(scene), "penstock_upstream_cut"));
    assert_null(strstr(scene_body(scene), DONE));
    assert_true(scene_call(scene).hedge_won);
    assert_string_equal(scene_attempts(scene), "a:hedge_cancelled +b:upstream_cut");
    assert_int_equal(scene_source(scene, 1).failures_in_a_row, 1);
    assert_untouched(scene, 0);
}

/* ---- it does not ------------------------------------------------------------------------------ */

static void say_hello_after_the_hedge(struct server *with)
{
    if (flag_wait(&hedge_seen))
        say_hello(with);
}

static void be_seen_and_hold(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    atomic_store(&hedge_seen, true);
    server_hold(with, fd);
}

static void h14_a_hedge_that_loses_is_cancelled(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, say_hello_after_the_hedge, be_seen_and_hold);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{\"from\":\"hello\"}");
    assert_string_equal(scene_attempts(scene), "a: +b:hedge_cancelled");
    assert_true(row_of(scene, false, "b").kept_est);
    assert_int_equal(scene_call(scene).hedges, 1);
    assert_false(scene_call(scene).hedge_won);
    assert_untouched(scene, 1);
    assert_true(atomic_load(&scene->servers[1]->saw_close));
}

/* "Connection: close": when the gateway closes it, it has read the failure. */
static void fail_and_let_go(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    (void)server_send(fd, "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n"
                          "Content-Length: 2\r\n\r\n{}");
    server_hold(with, fd);
    atomic_store(&hedge_seen, true);
}

static void d6_an_error_never_wins(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, say_hello_after_the_hedge, fail_and_let_go);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{\"from\":\"hello\"}");
    assert_string_equal(scene_attempts(scene), "a: +b:transient");
    assert_int_equal(scene_call(scene).retries, 0);
    assert_int_equal(scene_call(scene).attempts, 2);
    assert_int_equal(scene_source(scene, 1).failures_in_a_row, 1);
}

static void fail_after_the_hedge_and_let_go(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    if (flag_wait(&hedge_seen))
        (void)server_send(fd, "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n"
                              "Content-Length: 2\r\n\r\n{}");
    server_hold(with, fd);
    atomic_store(&go, true);
}

static void be_seen_and_say_hello(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    atomic_store(&hedge_seen, true);
    if (flag_wait(&go))
        (void)server_send(fd, JSON_HEAD "Content-Length: 16\r\n\r\n{\"from\":\"hello\"}");
    close(fd);
}

static void d5_a_failure_beside_a_running_hedge_starts_nothing(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, fail_after_the_hedge_and_let_go, be_seen_and_say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_attempts(scene), "a:transient +b:");
    assert_int_equal(scene_call(scene).retries, 0);
    assert_true(scene_call(scene).hedge_won);
    assert_int_equal(scene_source(scene, 0).failures_in_a_row, 1);
}

/* The primary answers when the hedge was seen, and lets the hedge answer when it was let go itself. */
static void say_and_let_go(struct server *with, const char *answer)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    if (flag_wait(&hedge_seen))
        (void)server_send(fd, answer);
    server_hold(with, fd);
    atomic_store(&go, true);
}

static void say_nonsense(struct server *with)
{
    say_and_let_go(with, JSON_HEAD "Connection: close\r\nContent-Length: 5\r\n\r\n{\"a\":");
}

/* Of whatever stands in front of the model. */
static void show_a_page(struct server *with)
{
    say_and_let_go(with, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
                         "Content-Length: 14\r\n\r\n<h1>Login</h1>");
}

static void h14_what_is_no_json_does_not_win(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, say_nonsense, be_seen_and_say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{\"from\":\"hello\"}");
    assert_string_equal(scene_attempts(scene), "a:empty_answer +b:");
}

static void h14_a_page_does_not_win(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, show_a_page, be_seen_and_say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{\"from\":\"hello\"}");
    assert_string_equal(scene_attempts(scene), "a:empty_answer +b:");
}

/* What is in a compressed body is between its ends: it is taken at its word. */
static void say_what_cannot_be_read(struct server *with)
{
    say_and_let_go(with, JSON_HEAD "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nzzzz");
}

static void h14_a_compressed_answer_wins(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, say_what_cannot_be_read, be_seen_and_hold);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), "zzzz");
    assert_string_equal(scene_attempts(scene), "a: +b:hedge_cancelled");
}

static void say_hello_when_the_hedge_was_skipped(struct server *with)
{
    int fd = server_take(with);
    const volatile unsigned *skipped = &on_stage->house->request->plan.hedges_skipped;

    if (fd < 0)
        return;
    for (int i = 0; i < 15000 && *skipped == 0; i++)
        clock_sleep_ns(NS_PER_MS);
    (void)server_send(fd, JSON_HEAD "Content-Length: 16\r\n\r\n{\"from\":\"hello\"}");
    close(fd);
}

static void h13_a_hedge_that_is_not_admitted_leaves_no_trace(void **state)
{
    struct scene *scene = *state;

    assert_true(source_drain(&scene->house->worker.gate, "b", true, 0));
    scene_serve(scene, 0, say_hello_when_the_hedge_was_skipped);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_attempts(scene), "a:");
    assert_int_equal(scene_call(scene).hedges, 0);
    assert_int_equal(scene->house->request->hedges_skipped, 1);
    assert_null(strcasestr(scene_out(scene), "x-penstock-hedges"));
}

/* ---- by hand ---------------------------------------------------------------------------------- */

/* Both lanes begun, nothing sent yet. */
static void begin_both(struct scene *scene)
{
    struct request *request = scene->house->request;
    const struct plan_terms terms = {
        .candidates = 2,
        .may_hedge = true,
        .hedge_after_ns = 1,
        .stall_budget_ns = NS_PER_S,
        .retry_hold_ns = CLOCK_NEVER,
        .deadline_ns = CLOCK_NEVER,
    };
    struct plan_step step;

    assert_true(upstream_open(request));
    candidates_make(request);
    plan_begin(&request->plan, &terms, 1);
    for (unsigned lane = 0; lane < PLAN_LANES; lane++) {
        step = plan_next(&request->plan, clock_monotonic_ns() + lane);
        assert_int_equal(step.what, PLAN_START);
        assert_int_equal(step.lane, lane);
        assert_true(lanes_start(request, &step));
    }
    assert_int_equal(request->attempts, 2);
    assert_int_equal(request->plan.hedges, 1);
    assert_int_equal(scene_source(scene, 1).in_flight, 1);
}

static bool has_content(const struct request *request, unsigned lane)
{
    return request->lanes[lane]->counting && request->lanes[lane]->pictures.delivered.content_seen;
}

static void d7_the_primary_wins_a_tie(void **state)
{
    struct scene *scene = *state;
    struct request *request = scene->house->request;
    int64_t until_ns = clock_monotonic_ns() + 15 * NS_PER_S;
    struct plan_step step;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(scene, stream_hello, stream_hello);
    begin_both(scene);
    while (!has_content(request, 0) || !has_content(request, 1)) {
        assert_true(clock_monotonic_ns() < until_ns);
        (void)upstream_run(request, until_ns);
    }
    lanes_attend(request);
    step = plan_next(&request->plan, clock_monotonic_ns());
    assert_int_equal(step.what, PLAN_CANCEL);
    assert_int_equal(step.why, PLAN_LOST);
    assert_int_equal(step.lane, 1);
    lanes_cancel(request, &step);
    step = plan_next(&request->plan, clock_monotonic_ns());
    assert_int_equal(step.what, PLAN_COMMIT);
    assert_int_equal(step.lane, 0);
    assert_false(request->plan.hedge_won);
    lanes_stop(request, "");
    assert_string_equal(scene_attempts(scene), "a: +b:hedge_cancelled");
}

static void d9_a_hedge_of_which_nothing_was_sent_never_was(void **state)
{
    const struct plan_step lost = {.what = PLAN_CANCEL, .lane = 1, .why = PLAN_LOST};
    struct scene *scene = *state;
    struct request *request = scene->house->request;

    scene_serve_two(scene, read_and_hold, read_and_hold);
    begin_both(scene);
    lanes_cancel(request, &lost);
    assert_int_equal(request->plan.hedges, 0);
    assert_int_equal(request->attempts, 1);
    assert_int_equal(scene_source(scene, 1).in_flight, 0);
    assert_null(request->lanes[1]->exchange);
    lanes_stop(request, "deadline");
    assert_string_equal(scene_attempts(scene), "a:deadline");
}

static void d9_nor_when_the_call_ends_at_that(void **state)
{
    struct scene *scene = *state;
    struct request *request = scene->house->request;

    scene_serve_two(scene, read_and_hold, read_and_hold);
    begin_both(scene);
    lanes_stop(request, "client_cancelled");
    assert_int_equal(request->plan.hedges, 0);
    assert_int_equal(request->attempts, 1);
    assert_string_equal(scene_attempts(scene), "a:client_cancelled");
    assert_false(row_of(scene, false, "a").kept_est); /* nothing was sent of it either */
}

/* ---- a hedge that cannot begin ---------------------------------------------------------------- */

static char long_path[20000];

static void h13_a_hedge_that_cannot_begin_is_dropped(void **state)
{
    struct scene *scene = *state;

    memset(long_path, 'x', sizeof long_path - 1); /* no URL may be that long */
    scene->sources[1].base_url = long_path;
    scene_serve(scene, 0, say_hello_when_the_hedge_was_skipped);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{\"from\":\"hello\"}");
    assert_string_equal(scene_attempts(scene), "a:");
    assert_int_equal(scene_call(scene).hedges, 0);
    assert_int_equal(scene_call(scene).attempts, 1);
    assert_int_equal(scene_source(scene, 1).in_flight, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HEDGE(h14_the_first_content_wins_and_the_loser_is_gone_before_it_is_sent),
        WITH_HEDGE(h14_the_first_whole_document_wins),
        WITH_HEDGE(d15_a_winner_that_breaks_off_is_not_replaced),
        WITH_HEDGE(h14_a_hedge_that_loses_is_cancelled),
        WITH_HEDGE(d6_an_error_never_wins),
        WITH_HEDGE(d5_a_failure_beside_a_running_hedge_starts_nothing),
        WITH_HEDGE(h14_what_is_no_json_does_not_win),
        WITH_HEDGE(h14_a_page_does_not_win),
        WITH_HEDGE(h14_a_compressed_answer_wins),
        WITH_HEDGE(h13_a_hedge_that_is_not_admitted_leaves_no_trace),
        WITH_HEDGE(d7_the_primary_wins_a_tie),
        WITH_HEDGE(d9_a_hedge_of_which_nothing_was_sent_never_was),
        WITH_HEDGE(d9_nor_when_the_call_ends_at_that),
        WITH_HEDGE(h13_a_hedge_that_cannot_begin_is_dropped),
    };

    return cmocka_run_group_tests(tests, scene_init_process, NULL);
}
