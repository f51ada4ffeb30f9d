/* test_options_effect.c - no option of flow control is without effect in silence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

/* The source's options begin in line 3, those of the scope two lines behind its last. */
#define SOURCE(more) "[source a]\nbase_url = https://a.example\n" more
#define SCOPE(more) "[scope s]\nsources = a\n" more
#define WARNING ": warning: "

static void check_all(const struct load_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_load_case(&cases[i]);
}

static void test_options_without_effect_are_named(void **state)
{
#define NO_SCOPE ": has no effect: no [scope] with this source has flow = "
#define COUNTS "rate, shaping or adaptive\n"
#define ADDS "shaping or adaptive\n"
#define IDLE(line, key, now, better)                                                               \
    "t.conf:" line WARNING "scope s." key ": has no effect with flow = " now                       \
    "; set flow = " better ", or take it away\n"
    static const struct load_case cases[] = {
        {SOURCE("rpm = 1\n"), "t.conf:3" WARNING "source a.rpm" NO_SCOPE COUNTS, false},
        {SOURCE("rpm = 0\n"), "", false},
        {SOURCE("rpm = 1\n") SCOPE(""), "t.conf:3" WARNING "source a.rpm" NO_SCOPE COUNTS, false},
        {SOURCE("rpm = 1\n") SCOPE("flow = retry"),
         "t.conf:3" WARNING "source a.rpm" NO_SCOPE COUNTS, false},
        {SOURCE("max_concurrency = 1\n") SCOPE("flow = retry"),
         "t.conf:3" WARNING "source a.max_concurrency" NO_SCOPE COUNTS, false},
        {SOURCE("model_limits = a:1:1\n") SCOPE(""),
         "t.conf:3" WARNING "source a.model_limits" NO_SCOPE COUNTS, false},
        {SOURCE("rpm = 1\ntpm = 1\nflow_unit = images\n") SCOPE("flow = rate"),
         "t.conf:4" WARNING "source a.tpm" NO_SCOPE ADDS "t.conf:5" WARNING
         "source a.flow_unit" NO_SCOPE ADDS,
         false},
        {SOURCE("rpm = 1\ntpm = 1\nflow_unit = tasks\n") SCOPE("flow = shaping"),
         "t.conf:4" WARNING "source a.tpm: has no effect with flow_unit = tasks, which rpm counts "
         "already\n",
         false},
        {SOURCE("") SCOPE("flow_warmup_s = 30"), IDLE("5", "flow_warmup_s", "none", "shaping"),
         false},
        {SOURCE("") SCOPE("flow_warmup_s = 60"), "", false},
        {SOURCE("rpm = 1\n") SCOPE("flow = rate\nflow_warmup_s = 30\ntpm_charge = input\n"),
         IDLE("7", "flow_warmup_s", "rate", "shaping")
             IDLE("8", "tpm_charge", "rate", "shaping or adaptive"),
         false},
        {SOURCE("") SCOPE("flow = adaptive\nflow_initial = 5"),
         IDLE("6", "flow_initial", "adaptive", "rate or shaping"), false},
        {SOURCE("") SCOPE("flow = retry\nflow_class = bulk\nflow_class_header_max = bulk\n"
                          "flow_weights = 1, 1, 1\nflow_max_wait_s = 1, 1, 1\n"
                          "flow_max_waiting = 1\nflow_max_waiting_per_client = 1\n"
                          "flow_include_usage = false\nflow_drain_s = 1\n"),
         IDLE("6", "flow_class", "retry", "rate, shaping or adaptive")
             IDLE("7", "flow_class_header_max", "retry", "rate, shaping or adaptive")
                 IDLE("8", "flow_weights", "retry", "rate, shaping or adaptive")
                     IDLE("9", "flow_max_wait_s", "retry", "rate, shaping or adaptive")
                         IDLE("10", "flow_max_waiting", "retry", "rate, shaping or adaptive")
                             IDLE("11", "flow_max_waiting_per_client", "retry",
                                  "rate, shaping or adaptive")
                                 IDLE("12", "flow_include_usage", "retry", "shaping or adaptive")
                                     IDLE("13", "flow_drain_s", "retry", "shaping or adaptive"),
         false},
        {SOURCE("") SCOPE("flow = adaptive\nflow_max_waiting = 5\nflow_max_waiting_per_client = 6"),
         "t.conf:7" WARNING "scope s.flow_max_waiting_per_client: 6 has no effect, as "
         "flow_max_waiting is 5\n",
         false},
        {SOURCE("") SCOPE("flow = adaptive\nflow_max_waiting = 5\nflow_max_waiting_per_client = 5"),
         "", false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_F9_threads_for_those_that_may_wait(void **state)
{
#define THREADS(number) "[penstock]\nworkers = 2\nthreads = " number "\n"
#define FEW(line, calls, each)                                                                     \
    "t.conf:" line WARNING "scope s.flow_max_waiting: " calls                                      \
    " calls wait at a time at most, as each of 2 workers has threads for " each                    \
    "; raise threads\n"
#define SPARE(calls, each)                                                                         \
    "t.conf:3" WARNING "penstock.threads: only " calls " calls can wait in flows at a time, as "   \
    "each of 2 workers has threads for " each ", and [scope s] lets 1000 of each class; set "      \
    "threads = auto, or more, or lower flow_max_waiting\n"
    static const struct load_case cases[] = {
        {THREADS("8") SOURCE("") SCOPE("flow = adaptive\nflow_max_waiting = 12"), "", false},
        {THREADS("8") SOURCE("") SCOPE("flow = adaptive\nflow_max_waiting = 13"),
         FEW("9", "12", "6"), false},
        /* Who wrote threads need not have thought of flow_max_waiting. */
        {THREADS("8") SOURCE("") SCOPE("flow = adaptive"), SPARE("12", "6"), false},
        {THREADS("8") SOURCE("") SCOPE("flow = adaptive\n") "[scope t]\nsources = a\n"
                                                            "flow = adaptive\n" ROUTE_TO("t")
                                                                ROUTE_TO("s"),
         SPARE("12", "6"), false},
        {THREADS("auto") SOURCE("") SCOPE("flow = adaptive"), "", false},
        {THREADS("2000") SOURCE("") SCOPE("flow = adaptive"), "", false},
        {THREADS("8") SOURCE("") SCOPE(""), "", false},
        {THREADS("0") SOURCE("") SCOPE("flow = adaptive\nflow_max_waiting = 5000"),
         "t.conf:3: penstock.threads: 0 is out of range; allowed: auto, or 1 to 2000\n", true},
        {THREADS("8") SOURCE("") SCOPE("flow = adaptive\nflow_max_waiting = 9k"),
         "t.conf:9: scope s.flow_max_waiting: \"9k\" is not a whole number; allowed: 1 to 8192\n",
         true},
        {THREADS("2") SOURCE("") SCOPE("flow = adaptive\nflow_max_waiting = 2"), "", false},
        {THREADS("8") SOURCE("") SCOPE("flow = retry"), "", false},
    };
#undef FEW
#undef THREADS

    (void)state;
    check_all(cases, LENGTH(cases));
}

/* F9: only classes that calls of the scope can have. */
static void test_F9_a_deadline_shorter_than_the_waits_warns(void **state)
{
#define DEADLINE(line, is, longest)                                                                \
    "t.conf:" line WARNING "scope s.call_deadline_s: " is " is less than the longest wait of "     \
    "flow_max_wait_s, " longest ", so no call waits that long; raise it, or lower "                \
    "flow_max_wait_s\n"
#define RATE SOURCE("rpm = 60\n") SCOPE("flow = rate\n")
    static const struct load_case cases[] = {
        {RATE, "", false},
        {RATE "call_deadline_s = 30", "", false},
        {RATE "call_deadline_s = 29500ms", DEADLINE("7", "29500 ms", "30 s"), false},
        {RATE "call_deadline_s = 29\nflow_class = interactive", "", false},
        {RATE "call_deadline_s = 60\nflow_class = bulk", DEADLINE("7", "60 s", "120 s"), false},
        {RATE "call_deadline_s = 60\nflow_class_header_max = normal",
         DEADLINE("7", "60 s", "120 s"), false},
        {RATE "call_deadline_s = 60\nflow_class_header_max = normal\nflow_max_wait_s = 5, 5, 60",
         "", false},
        {RATE "call_deadline_s = 60\nflow_max_wait_s = 5, 2m, 5", DEADLINE("7", "60 s", "120 s"),
         false},
        {SOURCE("") SCOPE("flow = adaptive\ncall_deadline_s = 10"), DEADLINE("6", "10 s", "30 s"),
         false},
        {SOURCE("") SCOPE("flow = retry\ncall_deadline_s = 10"), "", false},
        {SOURCE("") SCOPE("call_deadline_s = 10"), "", false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_without_effect_are_named),
        cmocka_unit_test(test_F9_threads_for_those_that_may_wait),
        cmocka_unit_test(test_F9_a_deadline_shorter_than_the_waits_warns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
