/* test_upstream.c - what else happens while upstreams are waited for: clients leave, time passes,
 * heartbeats are due (H5, H6). The web server is tests/fakes/fastcgi. */
#include "tests/worker/scope_house.h"

#include <time.h>

static atomic_bool go;

static int make(void **state)
{
    atomic_store(&go, false);
    return scene_make(state);
}

#define WITH_SOURCES(test) cmocka_unit_test_setup_teardown(test, make, scene_drop)

static struct scene *on_stage; /* for scripts */

static void leave(void)
{
    static const uint64_t one = 1;

    on_stage->house->fcgi->gone = true;
    (void)!write(on_stage->house->fcgi->fd, &one, sizeof one);
}

/* ---- the client, and time --------------------------------------------------------------------- */

/* The client leaves when the gateway has read all of the failure and closed the connection. */
static void say_500_and_see_the_client_leave(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    (void)server_send(fd, "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n"
                          "Content-Length: 2\r\n\r\n{}");
    server_hold(with, fd);
    leave();
}

static void h6_a_client_that_leaves_while_we_wait_ends_the_call(void **state)
{
    struct scene *scene = *state;

    on_stage = scene;
    scene->house->scope.member_count = 1;
    scene->house->scope.backoff_base_ms = scene->house->scope.backoff_max_ms = 60000;
    scene_serve(scene, 0, say_500_and_see_the_client_leave);
    assert_int_equal(scene_run(scene), STEP_OVER);
    assert_int_equal(scene_asked(scene, 0), 1);
    assert_string_equal(scene_attempts(scene), "a:transient");
    assert_string_equal(scene_call(scene).outcome, "client_gone");
    assert_int_equal(scene_call(scene).status, 499);
    assert_string_equal(scene_out(scene), "");
}

static void see_the_client_leave_and_say_500(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    leave();
    if (flag_wait(&go))
        (void)server_send(fd, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}");
    close(fd);
}

static void *go_when_it_was_noticed(void *argument)
{
    struct request *request = argument;

    while (*(volatile bool *)&request->discard == false)
        clock_sleep_ns(NS_PER_MS);
    atomic_store(&go, true);
    return NULL;
}

/* on_client_gone = finish reads what runs to its end; that is no reason to begin anew. */
static void h6_nothing_is_tried_again_for_a_client_that_left(void **state)
{
    struct scene *scene = *state;
    pthread_t thread;

    on_stage = scene;
    scene->house->options.image.on_client_gone = CLIENT_GONE_FINISH;
    scene_give_slot(scene);
    scene_serve_two(scene, see_the_client_leave_and_say_500, say_hello);
    assert_int_equal(pthread_create(&thread, NULL, go_when_it_was_noticed, scene->house->request),
                     0);
    assert_int_equal(scene_run(scene), STEP_OVER);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(scene_asked(scene, 0), 1);
    assert_int_equal(scene_asked(scene, 1), 0);
}

static void h5_the_calls_deadline_covers_everything(void **state)
{
    struct scene *scene = *state;

    scene->house->request->deadline_ns = clock_monotonic_ns() + 100 * NS_PER_MS;
    scene_serve_two(scene, read_and_hold, say_hello);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    scene_assert_fault(scene, FAULT_call_deadline);
    assert_true(scene_head_has(scene, "Status: 504"));
    assert_string_equal(scene_attempts(scene), "a:deadline");
    assert_int_equal(scene_source(scene, 0).failures_in_a_row, 0);
}

/* What an SDK says it waits for is a deadline for trying; direct routes do not look at it. */
static void h5_nothing_is_tried_beyond_the_callers_patience(void **state)
{
    struct scene *scene = *state;

    fake_fastcgi_param(scene->house->fcgi, "HTTP_X_STAINLESS_TIMEOUT", "0.1");
    scene_serve_two(scene, read_and_hold, say_hello);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    scene_assert_fault(scene, FAULT_call_deadline);
    assert_int_equal(scene_asked(scene, 1), 0);
}

static void h5_a_silent_attempt_is_of_unknown_outcome(void **state)
{
    struct scene *scene = *state;

    scene->sources[0].timeout_ms = 100;
    scene_serve_two(scene, read_and_hold, say_hello);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    scene_assert_fault(scene, FAULT_upstream_timeout);
    assert_string_equal(scene_attempts(scene), "a:timeout");
    assert_int_equal(scene_asked(scene, 1), 0);
    assert_int_equal(scene_source(scene, 0).failures_in_a_row, 1);
}

static void h7_when_all_are_out_nothing_is_sent(void **state)
{
    struct scene *scene = *state;

    assert_true(source_drain(&scene->house->worker.gate, "a", true, 0));
    assert_true(source_drain(&scene->house->worker.gate, "b", true, 0));
    scene_serve_two(scene, say_hello, say_hello);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    scene_assert_fault(scene, FAULT_sources_unavailable);
    assert_true(scene_head_has(scene, "Status: 503"));
    assert_string_equal(scene_attempts(scene), "");
    assert_string_equal(scene_call(scene).outcome, "refused");
}

static void send_half_a_500_for_an_image(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    (void)server_send(fd, "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"
                          "Content-Length: 2\r\n\r\n{");
    server_hold(with, fd);
}

/* While an error's head is held none of our heartbeats may come before it, and nothing is looked at
 * again and again for that. */
static void a_heartbeat_that_may_not_be_sent_costs_nothing(void **state)
{
    struct scene *scene = *state;
    struct timespec before, after;
    int64_t used_ns;

    scene->house->options.image.nonstream_heartbeat_ms = 1000000;
    scene->house->request->arrived_ns -= 999 * NS_PER_S; /* due one second after the arrival */
    scene->sources[0].stream_idle_timeout_ms = 1500;
    scene->house->scope.member_count = 1;
    scene->house->scope.retry_budget = 0;
    scene_give_slot(scene);
    scene_serve(scene, 0, send_half_a_500_for_an_image);
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before), 0);
    assert_int_equal(scene_run(scene), STEP_FAULT);
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after), 0);
    used_ns = (after.tv_sec - before.tv_sec) * NS_PER_S + after.tv_nsec - before.tv_nsec;
    assert_true(used_ns < 200 * NS_PER_MS);
    assert_true(scene_head_has(scene, "Status: 504"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SOURCES(h6_a_client_that_leaves_while_we_wait_ends_the_call),
        WITH_SOURCES(h6_nothing_is_tried_again_for_a_client_that_left),
        WITH_SOURCES(h5_the_calls_deadline_covers_everything),
        WITH_SOURCES(h5_nothing_is_tried_beyond_the_callers_patience),
        WITH_SOURCES(h5_a_silent_attempt_is_of_unknown_outcome),
        WITH_SOURCES(h7_when_all_are_out_nothing_is_sent),
        WITH_SOURCES(a_heartbeat_that_may_not_be_sent_costs_nothing),
    };

    return cmocka_run_group_tests(tests, scene_init_process, NULL);
}
