/* test_flow_reload.c - a new configuration reaches the calls that stand in line (F9, R-reload). */
#include "tests/shared/flow_fixture.h"
#include "tests/worker/loading.h"

#include "worker/flow_reload.h"

#define LINE 12U

static struct segment segment;
static struct gate old_gate, new_gate;
static struct loading old_ones, new_ones;
static uint32_t places[LINE];
static int64_t now;

static int set_up(void **state)
{
    (void)state;
    fixture_open(&segment, &old_gate, 2, 5);
    now = clock_monotonic_ns();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unload(&old_ones);
    unload(&new_ones);
    fixture_close(&segment);
    return 0;
}

static struct loading configure(const char *scope)
{
    char lines[600];
    struct loading loading;

    (void)snprintf(lines, sizeof lines,
                   "[source acme]\nbase_url = http://127.0.0.1:1\n%s\n"
                   "[scope other]\nsources = acme\n" ROUTE_TO("other"),
                   scope);
    loading = load(lines);
    if (!loading.options)
        fail_msg("%s", report_of(&loading));
    return loading;
}

#define BULK(rpm, flow) "rpm = " rpm "\n[scope bulk]\nsources = acme\n" flow "\n" ROUTE_TO("bulk")

__attribute__((returns_nonnull)) static const struct scope_options *
bulk_of(const struct options *options)
{
    for (size_t i = 0; i < options->scope_count; i++)
        if (!options->scopes[i].direct && strcmp(options->scopes[i].name, "bulk") == 0)
            return &options->scopes[i];
    UNREACHABLE();
}

static struct flow_answer arrive(struct gate *gate, const struct options *options)
{
    const struct scope_options *scope = bulk_of(options);
    const struct flow_terms terms = options_flow_terms(scope, scope->members[0].source, "m");
    const struct flow_target target = {
        .quota_group = scope->members[0].source->quota_group, .model = "m", .terms = &terms};

    return fixture_flow_arrive(gate, &target, FLOW_BULK, now);
}

static void line_up(void)
{
    old_ones = configure(BULK("30", "flow = rate\nflow_initial = 0"));
    for (size_t i = 0; i < LINE; i++) {
        struct flow_answer answer = arrive(&old_gate, old_ones.options);

        assert_int_equal(answer.verdict, FLOW_QUEUED); /* one every 2 s */
        places[i] = answer.place;
    }
}

static void reload(const char *scope)
{
    const struct roster_member member = {.role = PROCESS_MASTER,
                                         .instance = segment.instance,
                                         .generation = 100 /* after the fixture's */};

    new_ones = configure(scope);
    assert_true(gate_join(&new_gate, &segment, &member, now));
    flow_reload(&new_gate, new_ones.options, now);
}

/* The time that those in line need, each when it is rung or due. */
static int64_t drain_ns(int64_t most_ns)
{
    const int64_t began_ns = now;
    size_t left = LINE;

    for (; left > 0 && now - began_ns < most_ns; now += 50 * NS_PER_MS) {
        gate_tick(&old_gate, now);
        for (size_t i = 0; i < LINE; i++)
            if (places[i] != NO_INDEX &&
                fixture_flow_try(&old_gate, places[i], now).verdict == FLOW_GRANTED) {
                flow_sent(&old_gate, places[i], now);
                fixture_flow_settle(&old_gate, &places[i], 0, now);
                left--;
            }
    }
    return left == 0 ? now - began_ns : INT64_MAX;
}

static void f9_a_higher_quota_reaches_those_in_line(void **state)
{
    (void)state;
    line_up();
    assert_false(flow_is_rung(&old_gate, places[1]));
    reload(BULK("600", "flow = rate\nflow_initial = 0"));
    assert_int_equal(fixture_flow(&old_gate)->requests_quota, 600);
    assert_true(flow_is_rung(&old_gate, places[0])); /* it asks for its new instant */
    assert_in_range(drain_ns(60 * NS_PER_S), 0, 2 * NS_PER_S);
}

static void f9_without_flow_control_they_go_at_once(void **state)
{
    (void)state;
    line_up();
    reload(BULK("30", "flow = none"));
    assert_in_range(drain_ns(60 * NS_PER_S), 0, 200 * NS_PER_MS);
    /* Calls that the old generation takes after it are not held back by its terms either. */
    assert_int_equal(arrive(&old_gate, old_ones.options).verdict, FLOW_GRANTED);
}

static void f9_a_lower_quota_does_too(void **state)
{
    (void)state;
    line_up();
    reload(BULK("3", "flow = rate\nflow_initial = 0"));
    now += 250 * NS_PER_MS;
    gate_tick(&old_gate, now);
    assert_int_equal(fixture_flow_try(&old_gate, places[0], now).verdict, FLOW_QUEUED);
    assert_int_equal(fixture_flow_try(&old_gate, places[LINE - 1], now).verdict,
                     FLOW_REFUSED_HOPELESS);
}

/* Its scope is gone, its account has others: what waits has nothing else to go by. */
static void f9_what_is_configured_no_more_stays_as_it_was(void **state)
{
    (void)state;
    line_up();
    reload("rpm = 600\n[scope else]\nsources = acme\nflow = rate\n" ROUTE_TO("else"));
    assert_int_equal(fixture_flow(&old_gate)->requests_quota, 30);
    assert_int_equal(fixture_flow(&old_gate)->strategy, FLOW_STRATEGY_RATE);
}

/* The flow of another Penstock on the host is none of this one's. */
static void f9_flows_of_other_instances_are_left_alone(void **state)
{
    (void)state;
    line_up();
    fixture_flow(&old_gate)->terms_instance = segment.instance + 1;
    reload(BULK("600", "flow = rate"));
    assert_int_equal(fixture_flow(&old_gate)->requests_quota, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(f9_a_higher_quota_reaches_those_in_line),
        TEST(f9_without_flow_control_they_go_at_once),
        TEST(f9_a_lower_quota_does_too),
        TEST(f9_what_is_configured_no_more_stays_as_it_was),
        TEST(f9_flows_of_other_instances_are_left_alone),
#undef TEST
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
