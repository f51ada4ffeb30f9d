/*
 * flow_house.h - for the tests of calls of a scope with flow control: scope_house.h with an account for
 * each source, of plenty until a test says otherwise, and with the bell that wakes who waits.
 */
#ifndef TESTS_WORKER_FLOW_HOUSE_H
#define TESTS_WORKER_FLOW_HOUSE_H

#include "tests/worker/scope_house.h"

#define USED_BODY                                                                                  \
    "{\"choices\":[{\"message\":{\"content\":\"hi\"}}],"                                           \
    "\"usage\":{\"prompt_tokens\":70,\"completion_tokens\":30}}"
static const struct model_limit no_limits = {.glob = NULL};
static struct scene *now; /* for scripts: the one that runs */

/* Two accounts, each with its own flow of plenty. */
static inline int flow_make(void **state)
{
    struct worker *worker;

    (void)scene_make(state);
    now = *state;
    worker = &now->house->worker;
    worker->flows = true;
    assert_true(bell_start(&worker->bell, &worker->gate, 1));
    now->house->request->seat = &worker->bell.seats[0];
    now->house->scope.flow = FLOW_STRATEGY_SHAPING;
    now->house->scope.flow_include_usage = true;
    now->house->scope.flow_max_waiting = 10;
    now->house->scope.flow_class = FLOW_NORMAL;
    now->house->scope.flow_class_header_max = CLASS_CLAIM_NONE;
    for (unsigned i = 0; i < FLOW_CLASSES; i++) {
        now->house->scope.weights[i] = 1;
        now->house->scope.max_wait_ms[i] = 30000;
    }
    for (unsigned i = 0; i < SCENE_SOURCES; i++) {
        now->sources[i].limits = &no_limits;
        now->sources[i].rpm = 600000;
        now->sources[i].tpm = 60000000;
    }
    scene_ask(now, "/v1/chat/completions", CHAT_BODY);
    return 0;
}

static inline int flow_drop(void **state)
{
    bell_stop(&now->house->worker.bell);
    return scene_drop(state);
}

#define WITH_FLOW(test) cmocka_unit_test_setup_teardown(test, flow_make, flow_drop)

static inline struct flow_view view_of(const char *account)
{
    static struct flow_view views[FLOWS_MAX];
    struct gate *gate = &now->house->worker.gate;
    unsigned count;

    gate_lock(gate);
    count = flow_views_locked(gate, clock_monotonic_ns(), views);
    gate_unlock(gate);
    for (unsigned i = 0; i < count; i++)
        if (strcmp(views[i].quota_group, account) == 0)
            return views[i];
    return (struct flow_view){.in_flight = UINT32_MAX}; /* there is none */
}

/* Before it runs: what the call is charged at source a. */
static inline struct flow_target targets(void)
{
    candidates_make(now->house->request);
    return now->house->request->flow_targets.list[0];
}

static inline void assert_use(const char *account, int64_t sends, int64_t units)
{
    const struct flow_view view = view_of(account);

    assert_int_equal(view.in_flight, 0);
    assert_int_equal(view.use.sends, sends);
    assert_int_equal(view.use.units, units);
}

static inline void say_used(struct server *with)
{
    while (server_answer(with, JSON_HEAD, USED_BODY))
        continue;
}

/* All that the account grants in a minute has been used. */
static inline void use_up(const char *account, unsigned source)
{
    struct flow_terms terms;
    const struct flow_target target = {.quota_group = account,
                                       .model = now->house->request->reader.intent.model,
                                       .terms = &terms,
                                       .cost = 1000000};
    const struct flow_call call = {.class = FLOW_NORMAL,
                                   .client = "",
                                   .deadline_ns = CLOCK_NEVER,
                                   .now_ns = clock_monotonic_ns()};
    struct flow_answer answer;
    struct flow_end end = {.now_ns = clock_monotonic_ns(), .units = 1000000};

    now->sources[source].tpm = 1000000;
    terms = options_flow_terms(&now->house->scope, &now->sources[source], target.model);
    flow_arrive(&now->house->worker.gate, &target, &call, &answer);
    assert_int_equal(answer.verdict, FLOW_GRANTED);
    flow_sent(&now->house->worker.gate, answer.place, end.now_ns);
    (void)flow_settle(&now->house->worker.gate, &answer.place, &end);
}

static inline int64_t told_seconds(void)
{
    const char *line = strcasestr(scene_out(now), "\nretry-after: ");

    return line ? strtol(line + strlen("\nretry-after: "), NULL, 10) : -1;
}

#endif
