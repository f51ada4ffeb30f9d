/*
 * flow_house.h - for the tests of calls of a scope with flow control: scope_house.h with an account for
 * each source, of plenty until a test says otherwise, and with the bell that wakes who waits.
 */
#ifndef TESTS_WORKER_FLOW_HOUSE_H
#define TESTS_WORKER_FLOW_HOUSE_H

#include "tests/worker/scope_house.h"

#include "shared/flow_estimate.h"

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
    worker->flow_waiters_max = 1;
    assert_true(bell_start(&worker->bell, &worker->gate, 1));
    now->house->request->seat = &worker->bell.seats[0];
    now->house->scope.flow = FLOW_STRATEGY_SHAPING;
    now->house->scope.flow_include_usage = true;
    now->house->scope.flow_drain_ms = 5000;
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

/* Before it runs: what the call would be charged at source a. */
static inline struct flow_target targets(void)
{
    struct gate *gate = &now->house->worker.gate;
    struct flow_targets *made = &now->house->request->flow_targets;
    struct flow_target target;

    candidates_make(now->house->request);
    target = made->list[0];
    if (target.claim) {
        gate_lock(gate);
        made->prices[0] =
            flow_price_locked(gate, flow_find_locked(gate, &target, clock_monotonic_ns()), &target);
        gate_unlock(gate);
        target.cost = made->prices[0].cost;
        target.predicted = made->prices[0].predicted;
    }
    return target;
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
    const struct flow_call call = {
        .class = FLOW_NORMAL, .deadline_ns = CLOCK_NEVER, .now_ns = clock_monotonic_ns()};
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

/* ---- others --------------------------------------------------------------------------------------- */

static uint32_t slot_holder, flow_holder; /* places of others */

static inline void flow_give(void)
{
    const struct flow_end end = {.now_ns = clock_monotonic_ns(), .units = 1};

    (void)flow_settle(&now->house->worker.gate, &flow_holder, &end);
}

static inline void flow_give_slot(void)
{
    fixture_leave(&now->house->worker.gate, slot_holder, WAIT_DONE);
    slot_holder = NO_INDEX;
}

static inline void flow_take(const char *model)
{
    struct flow_terms terms = options_flow_terms(&now->house->scope, &now->sources[0], model);
    const struct flow_target target = {
        .quota_group = "a", .model = model, .terms = &terms, .cost = 1};
    struct flow_answer answer;

    for (int i = 0; i < 2; i++) { /* the first teaches how long a call takes: next to nothing */
        const struct flow_call call = {
            .class = FLOW_NORMAL, .deadline_ns = CLOCK_NEVER, .now_ns = clock_monotonic_ns()};

        if (flow_holder != NO_INDEX)
            flow_give();
        clock_sleep_ns(NS_PER_MS); /* the pace of the quota */
        flow_arrive(&now->house->worker.gate, &target, &call, &answer);
        assert_int_equal(answer.verdict, FLOW_GRANTED);
        flow_holder = answer.place;
        flow_sent(&now->house->worker.gate, flow_holder, clock_monotonic_ns());
    }
}

static inline void flow_take_slot(void)
{
    assert_int_equal(fixture_arrive(&now->house->worker.gate, false, &slot_holder), GATE_GRANTED);
}

static inline void flow_ask_for_a_picture(void)
{
    now->house->options.image.active = true;
    scene_ask(now, "/v1/images/generations", IMAGE_BODY);
    assert_true(now->house->request->reader.intent.image);
}

static inline void flow_say_picture(struct server *with)
{
    (void)server_answer(with, JSON_HEAD, "{\"created\":1,\"data\":[{\"b64_json\":\"AAAA\"}]}");
}

/* ---- meanwhile -------------------------------------------------------------------------------- */

/* Something that happens once the call waits, done by a thread of its own. */
struct flow_meanwhile {
    void (*act)(void);
    pthread_t thread;
};

static inline bool flow_is_waited_for(void)
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

static inline void *flow_act(void *argument)
{
    const struct flow_meanwhile *meanwhile = argument;
    int64_t until_ns = clock_monotonic_ns() + 15 * NS_PER_S;

    while (!flow_is_waited_for() && clock_monotonic_ns() < until_ns)
        clock_sleep_ns(NS_PER_MS);
    meanwhile->act();
    return NULL;
}

static inline enum step_result flow_run_with(void (*act)(void))
{
    struct flow_meanwhile meanwhile = {.act = act};
    enum step_result result;

    assert_int_equal(pthread_create(&meanwhile.thread, NULL, flow_act, &meanwhile), 0);
    result = scene_run(now);
    assert_int_equal(pthread_join(meanwhile.thread, NULL), 0);
    assert_false(flow_is_waited_for());
    assert_int_equal(atomic_load(&now->house->request->seat->place), NO_INDEX);
    assert_int_equal(atomic_load(&now->house->request->seat->flow_place), NO_INDEX);
    return result;
}

static inline void flow_act_nothing(void)
{
}

static inline void flow_client_leaves(void)
{
    now->house->fcgi->gone = true;
    (void)eventfd_write(now->house->fcgi->fd, 1);
}

static inline void flow_stop_fast(void)
{
    (void)eventfd_write(now->house->worker.cut_fd, 1);
}

/* One call at a time for source a's account, which is all there is; its calls have been quick. */
static inline int joint_make(void **state)
{
    slot_holder = flow_holder = NO_INDEX;
    (void)flow_make(state);
    now->house->scope.member_count = 1;
    now->sources[0].max_concurrency = 1;
    now->house->options.image.overflow_mode = OVERFLOW_WAIT;
    now->house->options.image.wait_timeout_ms = 3600000;
    return 0;
}

static inline int joint_drop(void **state)
{
    if (flow_holder != NO_INDEX)
        flow_give();
    if (slot_holder != NO_INDEX)
        flow_give_slot();
    return flow_drop(state);
}

#define WITH_JOINT(test) cmocka_unit_test_setup_teardown(test, joint_make, joint_drop)

#endif
