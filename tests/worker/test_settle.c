/* test_settle.c - what is booked of a call: its record, the row of its last attempt, counters, and the owner
 * of what it made (H11, H17, D15). The web server is tests/fakes/fastcgi. */
#include "tests/worker/scope_house.h"

#include "shared/counters.h"
#include "shared/owners.h"

static uint64_t counted(const struct scene *scene, enum counter which)
{
    return counter_value(&segment_instance(&scene->segment)->counters, which);
}

/* ---- the record ------------------------------------------------------------------------------- */

static void say_with_usage(struct server *with)
{
    (void)server_answer(
        with, JSON_HEAD,
        "{\"model\":\"gpt-5-2026\",\"choices\":[{\"message\":{\"content\":\"hi\"}}],"
        "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}");
}

static void say_response(struct server *with)
{
    (void)server_answer(with, JSON_HEAD, "{\"id\":\"resp_7\",\"object\":\"response\"}");
}

static void h17_a_call_is_booked_once_with_all_that_is_known(void **state)
{
    struct scene *scene = *state;
    struct attempt_record rows[SCENE_ROWS];
    struct call_record call;

    scene_serve_two(scene, say_500, say_with_usage);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    call = scene_call(scene);
    assert_string_equal(call.scope, "s");
    assert_string_equal(call.route, "r");
    assert_string_equal(call.source, "b");
    assert_string_equal(call.model_asked, "gpt-5");
    assert_string_equal(call.model_served, "gpt-5-2026");
    assert_string_equal(call.outcome, "ok");
    assert_string_equal(call.error_code, "");
    assert_int_equal(call.status, 200);
    assert_int_equal(call.tokens_in, 5);
    assert_int_equal(call.tokens_out, 7);
    assert_int_equal(call.attempts, 2);
    assert_int_equal(call.retries, 1);
    assert_int_equal(call.bytes_in, strlen(CHAT_BODY));
    assert_true(call.generation_ms >= 0 && call.generation_ms <= call.total_latency_ms);
    assert_int_equal(scene_rows(scene, false, rows), 2);
    assert_string_equal(rows[1].source, "b");
    assert_int_equal(rows[1].settled_tokens, 12);
    assert_int_equal(rows[1].est_tokens, (strlen(CHAT_BODY) + 3) / 4);
    assert_int_equal(rows[1].generation_ms, call.generation_ms);
    assert_int_equal(rows[1].status, 200);
    assert_false(rows[1].kept_est);
    assert_int_equal(counted(scene, COUNTER_requests), 1);
    assert_int_equal(counted(scene, COUNTER_requests_ok), 1);
    assert_int_equal(counted(scene, COUNTER_attempts), 2);
    assert_int_equal(counted(scene, COUNTER_retries), 1);
    assert_int_equal(counted(scene, COUNTER_hedges_sent), 0);
    assert_int_equal(counted(scene, COUNTER_tokens_in), 5);
}

/* Its own row tells it: one record is journalled, not two. */
static void a_plain_calls_attempt_needs_no_row_of_its_own_L3(void **state)
{
    struct scene *scene = *state;
    struct attempt_record rows[SCENE_ROWS];
    struct call_record call;

    scene->house->scope.member_count = 1;
    scene_serve(scene, 0, say_with_usage);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    call = scene_call(scene);
    assert_true(call.tells_attempt);
    assert_true(call.attempt_start_ms >= 0 && call.attempt_ms >= call.generation_ms - 1);
    assert_int_equal(call.est_tokens, (strlen(CHAT_BODY) + 3) / 4);
    assert_int_equal(scene_rows(scene, false, rows), 1);
    assert_string_equal(rows[0].source, "a");
    assert_int_equal(rows[0].settled_tokens, 12);
    assert_int_equal(rows[0].status, 200);
    assert_int_equal(counted(scene, COUNTER_attempts), 1);
}

/* What is not told by the call's row: a later poll changes that row. */
static void background_works_attempt_has_a_row_of_its_own_L3(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.member_count = 1;
    scene_ask(scene, "/v1/responses", "{\"model\":\"gpt-5\",\"input\":\"hi\",\"background\":true}");
    scene_serve(scene, 0, say_response);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_false(scene_call(scene).tells_attempt);
    assert_string_equal(scene_attempts(scene), "a:");
}

static void without_a_ledger_nothing_is_written_for_it(void **state)
{
    struct scene *scene = *state;
    struct journal_area *journal = &segment_instance(&scene->segment)->journal;

    scene->house->options.penstock.ledger = false;
    scene_serve_two(scene, say_500, say_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_true(journal_sit_down(journal));
    assert_null(journal_peek_call(journal, 0));
    assert_null(journal_peek_attempt(journal, 0));
    journal_stand_up(journal);
    assert_int_equal(counted(scene, COUNTER_attempts), 2);
}

/* Refused at the gate, say: no scope's source was ever chosen. */
static void a_call_that_tried_nothing_leaves_no_attempt(void **state)
{
    struct scene *scene = *state;
    struct request *request = scene->house->request;

    attempt_clear(request->attempt);
    fault_set(&request->fault, FAULT_image_limit, "%s", "");
    assert_int_equal(scene_finish(scene, STEP_FAULT), STEP_FAULT);
    assert_string_equal(scene_attempts(scene), "");
    assert_string_equal(scene_call(scene).source, "");
    assert_string_equal(scene_call(scene).outcome, "refused");
    assert_string_equal(scene_call(scene).error_code, "penstock_image_limit");
    assert_int_equal(scene_call(scene).generation_ms, -1);
    assert_int_equal(counted(scene, COUNTER_requests_refused), 1);
}

static void what_was_never_a_request_is_not_booked(void **state)
{
    struct scene *scene = *state;

    scene->house->request->accepted = false;
    assert_int_equal(settle_step(scene->house->request), STEP_NEXT);
    assert_int_equal(counted(scene, COUNTER_requests), 0);
}

/* ---- after the commit ------------------------------------------------------------------------- */

static void break_off(struct server *with)
{
    server_answer_once(with, STREAM_HEAD WORD("a"));
}

static void d15_a_cut_after_the_commit_is_the_sources_failure(void **state)
{
    struct scene *scene = *state;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(scene, break_off, stream_hello);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    assert_string_equal(scene_attempts(scene), "a:upstream_cut");
    assert_string_equal(scene_call(scene).outcome, "upstream_failed");
    assert_int_equal(scene_source(scene, 0).failures_in_a_row, 1);
    assert_int_equal(scene_asked(scene, 1), 0);
}

static void send_words_and_an_error(struct server *with)
{
    server_answer_once(with, STREAM_HEAD WORD("a") ERROR_EVENT);
}

static void i17_a_stream_that_ends_in_an_error_is_no_success(void **state)
{
    struct scene *scene = *state;

    scene_ask(scene, "/v1/chat/completions", STREAM_BODY);
    scene_serve_two(scene, send_words_and_an_error, stream_hello);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_attempts(scene), "a:stream_error");
    assert_string_equal(scene_call(scene).outcome, "upstream_error");
    assert_int_equal(scene_source(scene, 0).window_calls, 0);
}

static void h6_a_client_that_reads_no_more_blames_nobody(void **state)
{
    struct scene *scene = *state;

    scene->house->fcgi->room_bytes = 10;
    scene_serve_two(scene, say_hello, say_hello);
    assert_int_equal(scene_run(scene), STEP_OVER);
    assert_string_equal(scene_attempts(scene), "a:client_cancelled");
    assert_int_equal(scene_call(scene).status, 499);
    assert_string_equal(scene_call(scene).outcome, "client_gone");
    assert_int_equal(scene_source(scene, 0).window_calls, 0);
    assert_int_equal(counted(scene, COUNTER_requests_client_gone), 1);
}

/* The upstream's own error, passed on, has been booked when it was judged: not again. */
static void an_error_that_is_passed_on_has_one_row(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.member_count = 1;
    scene->house->scope.retry_budget = 0;
    scene_serve(scene, 0, say_500);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_attempts(scene), "a:boom");
    assert_string_equal(scene_call(scene).outcome, "upstream_error");
    assert_int_equal(scene_call(scene).upstream_status, 500);
    assert_int_equal(scene_source(scene, 0).failures_in_a_row, 1);
}

/* ---- owners ----------------------------------------------------------------------------------- */

static void h11_who_answered_owns_what_the_answer_names(void **state)
{
    struct scene *scene = *state;
    struct worker *worker = &scene->house->worker;

    scene_ask(scene, "/v1/responses", "{\"model\":\"gpt-5\",\"input\":\"hi\"}");
    scene_serve_two(scene, say_500, say_response);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_int_equal(owner_of(&worker->gate, "resp_7"), worker->source_rows[1]);
}

static void h11_with_one_source_there_is_nothing_to_remember(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.member_count = 1;
    scene_ask(scene, "/v1/responses", "{\"model\":\"gpt-5\",\"input\":\"hi\"}");
    scene_serve(scene, 0, say_response);
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_int_equal(owner_of(&scene->house->worker.gate, "resp_7"), NO_INDEX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCENE(h17_a_call_is_booked_once_with_all_that_is_known),
        WITH_SCENE(a_plain_calls_attempt_needs_no_row_of_its_own_L3),
        WITH_SCENE(background_works_attempt_has_a_row_of_its_own_L3),
        WITH_SCENE(without_a_ledger_nothing_is_written_for_it),
        WITH_SCENE(a_call_that_tried_nothing_leaves_no_attempt),
        WITH_SCENE(what_was_never_a_request_is_not_booked),
        WITH_SCENE(d15_a_cut_after_the_commit_is_the_sources_failure),
        WITH_SCENE(i17_a_stream_that_ends_in_an_error_is_no_success),
        WITH_SCENE(h6_a_client_that_reads_no_more_blames_nobody),
        WITH_SCENE(an_error_that_is_passed_on_has_one_row),
        WITH_SCENE(h11_who_answered_owns_what_the_answer_names),
        WITH_SCENE(h11_with_one_source_there_is_nothing_to_remember),
    };

    return cmocka_run_group_tests(tests, scene_init_process, NULL);
}
