/* test_attempt_book.c - both of a pair fail, or are ended: what it costs, and what of it is booked (H15, R21 to
 * R23, D11). Who wins is in test_lanes.c. */
#include "tests/worker/lanes_stage.h"

/* ---- both fail -------------------------------------------------------------------------------- */

/* One answer, when the hedge was seen. */
static void answer_when_seen(struct server *with, const char *head)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    if (flag_wait(&hedge_seen))
        (void)(server_send(fd, head) &&
               server_send(fd, "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"));
    close(fd);
}

#define HEAD_500 "HTTP/1.1 500 Internal Server Error\r\n"
#define HEAD_429 "HTTP/1.1 429 Too Many Requests\r\n"

static void fail_once(struct server *with)
{
    answer_when_seen(with, HEAD_500);
    say_hello(with);
}

static void throttle_once(struct server *with)
{
    answer_when_seen(with, HEAD_429);
    say_hello(with);
}

static void be_seen_and_answer(struct server *with, const char *head)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    atomic_store(&hedge_seen, true);
    (void)(server_send(fd, head) &&
           server_send(fd, "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"));
    close(fd);
    say_hello(with);
}

static void be_seen_and_fail(struct server *with)
{
    be_seen_and_answer(with, HEAD_500);
}

static void be_seen_and_throttle(struct server *with)
{
    be_seen_and_answer(with, HEAD_429);
}

/* A pair that fails, then the answer: of whoever was not asked to wait, else of the first. */
static void run_pair(struct scene *scene, const char *pair)
{
    scene->house->scope.hedge_after_ms = 200; /* enough for an answer of the second round */
    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{\"from\":\"hello\"}");
    assert_memory_equal(scene_attempts(scene), pair, strlen(pair));
    assert_int_equal(scene_call(scene).retries, 1);
}

static void r21_a_pair_of_failures_costs_one_unit(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.retry_budget = 1;
    scene_serve_two(scene, fail_once, be_seen_and_fail);
    run_pair(scene, "a:transient +b:transient a:");
    assert_int_equal(scene->house->request->plan.budget_used, 1);
}

static void r22_a_pair_of_throttlings_is_free(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.retry_budget = 0;
    scene_serve_two(scene, throttle_once, be_seen_and_throttle);
    run_pair(scene, "a:throttle +b:throttle a:");
    assert_int_equal(scene->house->request->plan.budget_used, 0);
    assert_int_equal(scene->house->request->plan.stall_ns, 0);
}

static void r23_one_failure_of_a_pair_costs_as_much_as_two(void **state)
{
    struct scene *scene = *state;

    scene->house->scope.retry_budget = 1;
    scene_serve_two(scene, throttle_once, be_seen_and_fail);
    run_pair(scene, "a:throttle +b:transient b:");
    assert_int_equal(scene->house->request->plan.budget_used, 1);
    assert_true(scene->house->request->plan.stall_ns > 0);
}

static void fail_at_length(struct server *with)
{
    static char long_body[300 << 10];
    int fd = server_take(with);

    if (fd < 0)
        return;
    atomic_store(&hedge_seen, true);
    memset(long_body, ' ', sizeof long_body - 1);
    (void)(server_send(fd, HEAD_500 "Content-Length: 1000000\r\n\r\n") &&
           server_send(fd, long_body));
    server_hold(with, fd);
}

static void fail_once_and_wait_for_the_hedges_end(struct server *with)
{
    answer_when_seen(with, HEAD_500);
    if (flag_wait(&on_stage->servers[1]->saw_close))
        say_hello(with);
}

/* An error that is too long to be held waits with its connection open, as long as it may be passed on. */
static void h15_nothing_of_a_round_stays_open_in_the_next(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, fail_once_and_wait_for_the_hedges_end, fail_at_length);
    run_pair(scene, "a:transient +b:transient a:");
}

/* ---- ends of both ----------------------------------------------------------------------------- */

static void be_seen_and_see_the_client_leave(struct server *with)
{
    static const uint64_t one = 1;
    int fd = server_take(with);

    if (fd < 0)
        return;
    on_stage->house->fcgi->gone = true;
    (void)!write(on_stage->house->fcgi->fd, &one, sizeof one);
    server_hold(with, fd);
}

static void d11_a_client_that_leaves_cancels_both(void **state)
{
    struct scene *scene = *state;

    scene_serve_two(scene, read_and_hold, be_seen_and_see_the_client_leave);
    assert_int_equal(scene_run(scene), STEP_OVER);
    assert_string_equal(scene_attempts(scene), "a:client_cancelled +b:client_cancelled");
    assert_true(row_of(scene, false, "a").kept_est);
    assert_true(row_of(scene, false, "b").kept_est);
    assert_int_equal(scene_call(scene).hedges, 1);
    assert_untouched(scene, 0);
    assert_untouched(scene, 1);
}

static void d11_the_deadline_ends_both(void **state)
{
    struct scene *scene = *state;

    scene->house->request->deadline_ns = clock_monotonic_ns() + 400 * NS_PER_MS;
    scene_serve_two(scene, read_and_hold, read_and_hold);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    assert_int_equal(scene->house->request->fault.code, FAULT_call_deadline);
    assert_string_equal(scene_attempts(scene), "a:deadline +b:deadline");
    assert_untouched(scene, 0);
    assert_untouched(scene, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HEDGE(r21_a_pair_of_failures_costs_one_unit),
        WITH_HEDGE(r22_a_pair_of_throttlings_is_free),
        WITH_HEDGE(r23_one_failure_of_a_pair_costs_as_much_as_two),
        WITH_HEDGE(h15_nothing_of_a_round_stays_open_in_the_next),
        WITH_HEDGE(d11_a_client_that_leaves_cancels_both),
        WITH_HEDGE(d11_the_deadline_ends_both),
    };

    return cmocka_run_group_tests(tests, scene_init_process, NULL);
}
