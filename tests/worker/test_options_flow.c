/* test_options_flow.c - the options of flow control (F1 to F11): what they mean, what each strategy
 * needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

/* The source's options begin in line 3, those of the scope two lines behind its last. */
#define SOURCE(more) "[source a]\nbase_url = https://a.example\n" more
#define SCOPE(more) "[scope s]\nsources = a\n" more
#define TWO(a_more, b_more, more)                                                                  \
    "[source a]\nbase_url = https://a.example\n" a_more                                            \
    "[source b]\nbase_url = https://b.example\n" b_more "[scope s]\nsources = a, b\n" more
#define WARNING ": warning: "

static void check_all(const struct load_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_load_case(&cases[i]);
}

static void test_F1_off_by_default(void **state)
{
    struct loading loading = load(SOURCE("") SCOPE("") "[route r]\nsource = a\n" ROUTE_TO("s"));
    const struct scope_options *scope = &loading.options->scopes[0];
    const struct source_options *source = &loading.options->sources[0];

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_int_equal(source->rpm, 0);
    assert_int_equal(source->tpm, 0);
    assert_int_equal(source->max_concurrency, 0);
    assert_int_equal(source->flow_unit, FLOW_UNIT_TOKENS);
    assert_int_equal(source->dashscope_wait_ms, -1);
    assert_null(source->limits->glob);
    for (unsigned i = 0; i < 2; i++, scope++) { /* the second is made for the route */
        assert_int_equal(scope->direct, i == 1);
        assert_int_equal(scope->flow, FLOW_STRATEGY_NONE);
        assert_int_equal(scope->flow_initial, -1);
        assert_int_equal(scope->flow_warmup_ms, 60000);
        assert_int_equal(scope->tpm_charge, TPM_CHARGE_PREDICTED);
        assert_int_equal(scope->flow_class, 1);
        assert_int_equal(scope->flow_class_header_max, CLASS_CLAIM_NONE);
        assert_int_equal(scope->flow_max_waiting, 1000);
        assert_int_equal(scope->flow_max_waiting_per_client, 0);
        assert_true(scope->flow_include_usage);
        assert_int_equal(scope->flow_drain_ms, 5000);
        assert_int_equal(scope->weights[0], 16);
        assert_int_equal(scope->weights[1], 4);
        assert_int_equal(scope->weights[2], 1);
        assert_int_equal(scope->max_wait_ms[0], 5000);
        assert_int_equal(scope->max_wait_ms[1], 30000);
        assert_int_equal(scope->max_wait_ms[2], 120000);
    }
    unload(&loading);
}

static void test_F8_what_is_written_arrives(void **state)
{
    struct loading loading =
        load(SOURCE("dialect = dashscope\nrpm = 1200\ntpm = 2m\nmax_concurrency = 60\n"
                    "flow_unit = images\ndashscope_wait_s = 30\n")
                 SCOPE("flow = shaping\nflow_initial = 0\nflow_warmup_s = 30\ntpm_charge = input\n"
                       "flow_class = bulk\nflow_class_header_max = interactive\n"
                       "flow_weights = 8, 2, 1\nflow_max_wait_s = 500ms, 10, 1h\n"
                       "flow_max_waiting = 10\nflow_max_waiting_per_client = 3\n"
                       "flow_include_usage = false\nflow_drain_s = 2500ms\n"));
    const struct scope_options *scope = &loading.options->scopes[0];
    const struct source_options *source = &loading.options->sources[0];

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_int_equal(source->rpm, 1200);
    assert_int_equal(source->tpm, 2000000);
    assert_int_equal(source->max_concurrency, 60);
    assert_int_equal(source->flow_unit, FLOW_UNIT_IMAGES);
    assert_int_equal(source->dashscope_wait_ms, 30000);
    assert_int_equal(scope->flow, FLOW_STRATEGY_SHAPING);
    assert_int_equal(scope->flow_initial, 0);
    assert_int_equal(scope->flow_warmup_ms, 30000);
    assert_int_equal(scope->tpm_charge, TPM_CHARGE_INPUT);
    assert_int_equal(scope->flow_class, 2);
    assert_int_equal(scope->flow_class_header_max, 0);
    assert_int_equal(scope->weights[0], 8);
    assert_int_equal(scope->weights[2], 1);
    assert_int_equal(scope->max_wait_ms[0], 500);
    assert_int_equal(scope->max_wait_ms[2], 3600000);
    assert_int_equal(scope->flow_max_waiting, 10);
    assert_int_equal(scope->flow_max_waiting_per_client, 3);
    assert_false(scope->flow_include_usage);
    assert_int_equal(scope->flow_drain_ms, 2500);
    unload(&loading);
}

static void test_numbers_of_thousands_and_millions(void **state)
{
#define RPM "t.conf:3: source a.rpm: "
#define RPM_ALLOWED "; allowed: 0 to 10000000, or with a unit: k (thousands), m (millions)\n"
    static const struct load_case bad[] = {
        {SOURCE("rpm = 1.5k\n") SCOPE("flow = adaptive"),
         RPM "\"1.5k\" is not a whole number" RPM_ALLOWED, true},
        {SOURCE("rpm = k\n") SCOPE("flow = adaptive"),
         RPM "\"k\" is not a whole number" RPM_ALLOWED, true},
        {SOURCE("rpm = 1 k\n") SCOPE("flow = adaptive"),
         RPM "\"1 k\" is not a whole number" RPM_ALLOWED, true},
        {SOURCE("rpm = 1g\n") SCOPE("flow = adaptive"),
         RPM "\"1g\" is not a whole number" RPM_ALLOWED, true},
        {SOURCE("rpm = 11m\n") SCOPE("flow = adaptive"), RPM "11m is out of range" RPM_ALLOWED,
         true},
        {SOURCE("rpm = 18446744073709551615m\n") SCOPE("flow = adaptive"),
         RPM "18446744073709551615m is out of range" RPM_ALLOWED, true},
        {SOURCE("max_concurrency = 1k\n") SCOPE("flow = adaptive"),
         "t.conf:3: source a.max_concurrency: \"1k\" is not a whole number; allowed: 0 to 8192\n",
         true},
        {SOURCE("") SCOPE("flow_initial = many"),
         "t.conf:5: scope s.flow_initial: \"many\" is not a whole number; allowed: auto, or 0 to "
         "10000000, or with a unit: k (thousands), m (millions)\n",
         true},
    };
    struct loading loading = load(SOURCE("rpm = 2k\ntpm = 10000m\n") SCOPE("flow = shaping\n"));

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_int_equal(loading.options->sources[0].rpm, 2000);
    assert_true(loading.options->sources[0].tpm == INT64_C(10000000000));
    unload(&loading);
    check_all(bad, LENGTH(bad));
}

static void assert_limit(const struct source_options *source, const char *model, int64_t rpm,
                         int64_t tpm)
{
    struct model_limit limit = options_limit_of(source, model);

    assert_int_equal(limit.rpm, rpm);
    assert_int_equal(limit.tpm, tpm);
}

static void test_F3_limits_of_single_models(void **state)
{
#define LIMITS "t.conf:3: source a.model_limits: "
#define LIMITS_ALLOWED "; allowed: MODEL:RPM:TPM, such as qwen-max:1200:1m\n"
    static const struct load_case bad[] = {
        {SOURCE("model_limits = qwen"), LIMITS "\"qwen\" is no MODEL:RPM:TPM" LIMITS_ALLOWED, true},
        {SOURCE("model_limits = q:1"), LIMITS "\"q:1\" is no MODEL:RPM:TPM" LIMITS_ALLOWED, true},
        {SOURCE("model_limits = :1:2"), LIMITS "\":1:2\" is no MODEL:RPM:TPM" LIMITS_ALLOWED, true},
        {SOURCE("model_limits = ::"), LIMITS "\"::\" is no MODEL:RPM:TPM" LIMITS_ALLOWED, true},
        {SOURCE("model_limits = q:x:2"), LIMITS "\"q:x:2\" has no RPM" LIMITS_ALLOWED, true},
        {SOURCE("model_limits = q::2"), LIMITS "\"q::2\" has no RPM" LIMITS_ALLOWED, true},
        {SOURCE("model_limits = q:11m:2"), LIMITS "\"q:11m:2\" has no RPM" LIMITS_ALLOWED, true},
        {SOURCE("model_limits = q:1:"), LIMITS "\"q:1:\" has no TPM" LIMITS_ALLOWED, true},
        {SOURCE("model_limits = q\"r:1:2"),
         LIMITS "\"q\"r:1:2\" has a character that no model's name has" LIMITS_ALLOWED, true},
        {SOURCE("model_limits = q:1:2, q:3:4"),
         LIMITS "\"q:3:4\" is the second for the same model" LIMITS_ALLOWED, true},
    };
    struct loading loading =
        load(SOURCE("rpm = 60\ntpm = 100k\nmodel_limits = qwen-max:1200:5m, qwen:7b:10:0, "
                    "qwen-*:600:1m\n") SCOPE("flow = rate\n"));
    const struct source_options *source = &loading.options->sources[0];

    (void)state;
    assert_limit(source, "qwen-max", 1200, 5000000);
    assert_limit(source, "QWEN-max", 1200, 5000000);
    assert_limit(source, "qwen:7b", 10, 0); /* as told: not that of the source */
    assert_limit(source, "qwen-plus", 600, 1000000);
    assert_limit(source, "wan2", 60, 100000);
    assert_limit(source, "", 60, 100000);
    unload(&loading);
    for (size_t i = 0; i < LENGTH(bad); i++) {
        loading = load(bad[i].conf);
        assert_null(loading.options);
        assert_string_equal(report_of(&loading), bad[i].report);
        unload(&loading);
    }
}

/* The first that fits counts. */
static void test_limits_that_are_never_reached_warn(void **state)
{
#define NEVER(glob, before)                                                                        \
    "t.conf:4: warning: source a.model_limits: \"" glob "\" never counts, as \"" before            \
    "\" stands before it and fits the same models; write it first\n"
#define LIMITED(list) SOURCE("rpm = 1\nmodel_limits = " list "\n") SCOPE("flow = rate")
    static const struct load_case cases[] = {
        {LIMITED("*:5:5, qwen*:3:3"), NEVER("qwen*", "*"), false},
        {LIMITED("qwen*:5:5, Qwen-max:3:3"), NEVER("Qwen-max", "qwen*"), false},
        {LIMITED("qwen*:5:5, qwen*-max:3:3"), NEVER("qwen*-max", "qwen*"), false},
        {LIMITED("qwen:5:5, QWEN:3:3"), NEVER("QWEN", "qwen"), false},
        {LIMITED("q?:5:5, q1:3:3, r:1:1"), NEVER("q1", "q?"), false},
        {LIMITED("a:1:1, *:5:5, b:1:1, c:1:1"), NEVER("b", "*") NEVER("c", "*"), false},
        {LIMITED("qwen-max:1:1, qwen*:3:3, *:5:5"), "", false},
        {LIMITED("qwen-*:5:5, qwen*:3:3"), "", false},
        {LIMITED("q?:5:5, q*:3:3"), "", false},
        {LIMITED("*-max:5:5, qwen*:3:3"), "", false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_64_model_limits_are_the_most(void **state)
{
    for (unsigned count = 64; count <= 65; count++) {
        struct text conf;
        struct loading loading;

        (void)state;
        text_init(&conf, 8192);
        text_append_string(&conf, SCOPE("flow = rate\n") SOURCE("rpm = 1\nmodel_limits = m0:1:1"));
        for (unsigned i = 1; i < count; i++)
            text_printf(&conf, ", m%u:1:1", i);
        loading = load(text_string(&conf));
        assert_string_equal(report_of(&loading),
                            count == 64 ? ""
                                        : "t.conf:7: source a.model_limits: \"m64:1:1\" is one too "
                                          "many: 64 are the most" LIMITS_ALLOWED);
        unload(&loading);
        text_release(&conf);
    }
}

static void test_F8_weights_and_waits_that_are_wrong(void **state)
{
    static const char *const weights[] = {"",         "16, 4",      "16, 4, 1, 1",
                                          "16, 4, 0", "1001, 4, 1", "a, b, c"};
    static const char *const waits[] = {"",         "5, 30",     "5, 30, 120, 1",
                                        "5, 30, x", "5, 30, 2h", "-1, 30, 120"};
    char conf[300];

    (void)state;
    for (size_t i = 0; i < LENGTH(weights) + LENGTH(waits); i++) {
        bool is_wait = i >= LENGTH(weights);
        struct loading loading;

        (void)snprintf(conf, sizeof conf, SOURCE("rpm = 1\n") SCOPE("flow = rate\n%s = %s\n"),
                       is_wait ? "flow_max_wait_s" : "flow_weights",
                       is_wait ? waits[i - LENGTH(weights)] : weights[i]);
        loading = load(conf);
        assert_null(loading.options);
        assert_string_equal(
            report_of(&loading),
            is_wait ? "t.conf:7: scope s.flow_max_wait_s: these are no times; allowed: three times "
                      "up to 1 h, for interactive, normal and bulk, such as 5, 30, 2m\n"
                    : "t.conf:7: scope s.flow_weights: these are no weights; allowed: three whole "
                      "numbers from 1 to 1000, for interactive, normal and bulk\n");
        unload(&loading);
    }
}

static void test_F8_weights_that_are_turned_round_warn(void **state)
{
#define ROUND(where, one, two, three)                                                              \
    "t.conf:" where ": gives interactive " one ", normal " two " and bulk " three                  \
    ": one class has a larger share than another that is more urgent; they stand in that order\n"
#define WEIGHTS(list) SOURCE("rpm = 1\n") SCOPE("flow = rate\nflow_weights = " list "\n")
#define GATE(list)                                                                                 \
    SOURCE("")                                                                                     \
    "[image_concurrency]\nenabled = true\nmax_concurrent_requests = 1\n"                           \
    "overflow_mode = wait\nclass_weights = " list "\n"
    static const struct load_case cases[] = {
        {WEIGHTS("1, 4, 16"), ROUND("7: warning: scope s.flow_weights", "1", "4", "16"), false},
        {WEIGHTS("16, 1, 4"), ROUND("7: warning: scope s.flow_weights", "16", "1", "4"), false},
        {WEIGHTS("4, 16, 1"), ROUND("7: warning: scope s.flow_weights", "4", "16", "1"), false},
        {WEIGHTS("1, 1, 1"), "", false},
        {WEIGHTS("9, 9, 1"), "", false},
        {GATE("1, 2, 3"), ROUND("7: warning: image_concurrency.class_weights", "1", "2", "3"),
         false},
        {GATE("3, 2, 1"), "", false},
        {GATE(""), "", false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

/* What follows from a value that is wrong is not told as well. */
static void test_one_mistake_is_told_once(void **state)
{
#define NOT_WHOLE(line, key, value, max)                                                           \
    "t.conf:" line ": source a." key ": \"" value "\" is not a whole number; allowed: 0 to " max   \
    ", or with a unit: k (thousands), m (millions)\n"
#define RPM_MAX "10000000"
#define TPM_MAX "10000000000"
#define NO_STRATEGY                                                                                \
    "scope s.flow: \"shapin\" is not one of its words; allowed: none, retry, rate, shaping or "    \
    "adaptive; did you mean \"shaping\"?\n"
    static const struct load_case cases[] = {
        {SOURCE("rpm = 1.5k\n") SCOPE("flow = rate"), NOT_WHOLE("3", "rpm", "1.5k", RPM_MAX), true},
        {SOURCE("rpm = -1\n") SCOPE("flow = rate"), NOT_WHOLE("3", "rpm", "-1", RPM_MAX), true},
        {SOURCE("rpm = 1\ntpm = abc\n") SCOPE("flow = shaping"),
         NOT_WHOLE("4", "tpm", "abc", TPM_MAX), true},
        {SOURCE("rpm = x\n"), NOT_WHOLE("3", "rpm", "x", RPM_MAX), true},
        {SOURCE("model_limits = m:0\n") SCOPE("flow = rate"),
         LIMITS "\"m:0\" is no MODEL:RPM:TPM" LIMITS_ALLOWED, true},
        {SOURCE("limit_headers = relay\n") SCOPE("flow = rate"),
         "t.conf:3: source a.limit_headers: \"relay\" is not one of its words; allowed: believe, "
         "rely or ignore; did you mean \"rely\"?\n",
         true},
        {SOURCE("rpm = 1\ntpm = 1\nflow_unit = images\n")
             SCOPE("flow = shapin\nflow_warmup_s = 5\nflow_class = bulk\ncall_deadline_s = 1"),
         "t.conf:8: " NO_STRATEGY, true},
        {SOURCE("rpm = 1\n") "[scope s]\nsources = aa\nflow = rate\n",
         "t.conf:5: scope s.sources: there is no [source aa]; allowed: a; did you mean \"a\"?\n",
         true},
        {TWO("quota_group = g\nrpm = 1\n", "quota_group = g\nrpm = x\n", "flow = rate"),
         "t.conf:8: source b.rpm: \"x\" is not a whole number; allowed: 0 to 10000000, or with a "
         "unit: k (thousands), m (millions)\n",
         true},
        {SOURCE("rpm = 1\n") SCOPE("flow = rate\n") "[scope t]\nsources = a\nflow = rat\n",
         "t.conf:9: scope t.flow: \"rat\" is not one of its words; allowed: none, retry, rate, "
         "shaping or adaptive; did you mean \"rate\"?\n",
         true},
        {SOURCE("rpm = 1\n") SCOPE("flow = rate\n") "[scope t]\nsources = a\nflow = rate\n"
                                                    "flow_weights = 1, 2\n",
         "t.conf:10: scope t.flow_weights: these are no weights; allowed: three whole numbers from "
         "1 to 1000, for interactive, normal and bulk\n",
         true},
        {SOURCE("rpm = 1\n") SCOPE("flow = rate\nflow_max_wait_s = 1, 2\ncall_deadline_s = 1\n"),
         "t.conf:7: scope s.flow_max_wait_s: these are no times; allowed: three times up to 1 h, "
         "for interactive, normal and bulk, such as 5, 30, 2m\n",
         true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_F3_F4_a_strategy_needs_its_limits(void **state)
{
#define FLOW(line) "t.conf:" line ": scope s.flow: "
#define OR_ADAPTIVE                                                                                \
    ", limit_headers = rely if its answers tell it, or flow = adaptive, which learns it\n"
#define SAYS_NOT " of each source, and [source a] does not say it; write "
#define GRANTS " = what the upstream grants per minute"
#define ONLY_THOSE                                                                                 \
    "only the models in model_limits of [source a] are kept within limits, as it has no "
    static const struct load_case cases[] = {
        {SOURCE("") SCOPE("flow = rate"),
         FLOW("5") "rate needs rpm" SAYS_NOT "rpm" GRANTS OR_ADAPTIVE, true},
        {SOURCE("rpm = 1\n") SCOPE("flow = rate"), "", false},
        {SOURCE("") SCOPE("flow = shaping"),
         FLOW("5") "shaping needs rpm and tpm" SAYS_NOT "rpm" GRANTS ", and tpm" OR_ADAPTIVE, true},
        {SOURCE("rpm = 1\n") SCOPE("flow = shaping"),
         FLOW("6") "shaping needs tpm" SAYS_NOT "tpm" GRANTS OR_ADAPTIVE, true},
        {SOURCE("tpm = 1\n") SCOPE("flow = shaping"),
         FLOW("6") "shaping needs rpm" SAYS_NOT "rpm" GRANTS OR_ADAPTIVE, true},
        {SOURCE("rpm = 1\ntpm = 1\n") SCOPE("flow = shaping"), "", false},
        /* F11: tasks are counted by rpm. */
        {SOURCE("rpm = 1\nflow_unit = tasks\n") SCOPE("flow = shaping"), "", false},
        {SOURCE("rpm = 1\nflow_unit = images\n") SCOPE("flow = shaping"),
         FLOW("7") "shaping needs tpm" SAYS_NOT "tpm" GRANTS OR_ADAPTIVE, true},
        /* F7: the upstream tells, and whoever says so knows. */
        {SOURCE("limit_headers = rely\n") SCOPE("flow = rate"), "", false},
        {SOURCE("limit_headers = rely\nrpm = 1\n") SCOPE("flow = shaping"), "", false},
        {SOURCE("limit_headers = ignore\n") SCOPE("flow = rate"),
         FLOW("6") "rate needs rpm" SAYS_NOT "rpm" GRANTS OR_ADAPTIVE, true},
        /* F5: learns. */
        {SOURCE("") SCOPE("flow = adaptive"), "", false},
        {SOURCE("rpm = 1\n") SCOPE("flow = adaptive"), "", false},
        {SOURCE("") SCOPE("flow = retry"), "", false},
        /* Each source. */
        {TWO("rpm = 1\n", "", "flow = rate"),
         FLOW("8") "rate needs rpm of each source, and [source b] does not say it; write rpm" GRANTS
             OR_ADAPTIVE,
         true},
        /* Models. */
        {SOURCE("model_limits = m:1:1\n") SCOPE("flow = shaping"),
         "t.conf:6: warning: scope s.flow: " ONLY_THOSE "rpm and tpm for the others\n", false},
        {SOURCE("model_limits = m:1:1\n") SCOPE("flow = rate"),
         "t.conf:6: warning: scope s.flow: " ONLY_THOSE "rpm for the others\n", false},
        {SOURCE("rpm = 1\nmodel_limits = m:0:1\n") SCOPE("flow = rate"),
         FLOW("7") "rate needs rpm of each model, and model_limits of [source a] has 0 for m; "
                   "write MODEL:RPM:TPM with what the upstream grants\n",
         true},
        {SOURCE("rpm = 1\ntpm = 1\nmodel_limits = m:1:0\n") SCOPE("flow = shaping"),
         FLOW("8") "shaping needs tpm of each model, and model_limits of [source a] has 0 for m; "
                   "write MODEL:RPM:TPM with what the upstream grants\n",
         true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_F5_the_dump_says_what_is_learned(void **state)
{
    static const char *const told[] = {"rpm = 1\n", "tpm = 1\n", "model_limits = m:1:1\n", ""};
    char conf[200];

    (void)state;
    for (size_t i = 0; i < LENGTH(told); i++) {
        struct loading loading;
        char *dump;

        (void)snprintf(conf, sizeof conf, SOURCE("%s") SCOPE("flow = adaptive\n"), told[i]);
        loading = load(conf);
        dump = dump_of(loading.options);
        assert_non_null(dump);
        assert_int_equal(strstr(dump,
                                "scope s.flow = adaptive (no source has rpm or tpm: all limits are "
                                "learned)") != NULL,
                         *told[i] == '\0');
        free(dump);
        unload(&loading);
    }
}

static void test_F4_sources_of_one_account_agree(void **state)
{
#define DIFFER(line, key)                                                                          \
    "t.conf:" line ": source b." key ": is not what [source a] says, which has the quota_group "   \
    "\"g\" too: the limits belong to the account; write the same in both\n"
#define G "quota_group = g\nrpm = 1\ntpm = 1\n"
    static const struct load_case cases[] = {
        {TWO(G, G, "flow = shaping"), "", false},
        {TWO(G, "quota_group = g\nrpm = 2\ntpm = 1\n", "flow = shaping"), DIFFER("9", "rpm"), true},
        {TWO(G, "quota_group = g\nrpm = 1\ntpm = 2\n", "flow = shaping"), DIFFER("10", "tpm"),
         true},
        {TWO(G, G "max_concurrency = 1\n", "flow = shaping"), DIFFER("11", "max_concurrency"),
         true},
        {TWO(G, G "flow_unit = images\n", "flow = shaping"), DIFFER("11", "flow_unit"), true},
        {TWO(G "model_limits = m:1:1\n", G "model_limits = m:1:1\n", "flow = shaping"), "", false},
        {TWO(G "model_limits = m:1:1\n", G "model_limits = m:1:2\n", "flow = shaping"),
         DIFFER("12", "model_limits"), true},
        {TWO(G "model_limits = m:1:1\n", G "model_limits = n:1:1\n", "flow = shaping"),
         DIFFER("12", "model_limits"), true},
        {TWO(G, G "model_limits = m:1:1\n", "flow = shaping"), DIFFER("11", "model_limits"), true},
        /* In any order. */
        {TWO(G, "quota_group = g\ntpm = 1\nrpm = 1\n", "flow = shaping"), "", false},
        /* Two accounts may differ. */
        {TWO("rpm = 1\n", "rpm = 2\n", "flow = rate"), "", false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_scopes_of_one_account_have_one_queue(void **state)
{
#define PAIR(s_more, t_more)                                                                       \
    SOURCE("rpm = 1\ntpm = 1\n")                                                                   \
    "[scope s]\nsources = a\n" s_more "[scope t]\nsources = "                                      \
    "a\n" t_more ROUTE_TO("s") ROUTE_TO("t")
#define CLASH(line, key)                                                                           \
    "t.conf:" line ": scope t." key ": is not what [scope s] says, which shares the quota_group "  \
    "\"a\": calls of both wait in one queue; write the same in both\n"
    static const struct load_case cases[] = {
        {PAIR("flow = shaping\n", "flow = shaping\n"), "", false},
        {PAIR("flow = shaping\n", "flow = shaping\nflow_class = bulk\ntpm_charge = input\n"
                                  "flow_max_wait_s = 1, 1, 1\nflow_max_waiting = 2\n"),
         "", false},
        {PAIR("flow = shaping\n", "flow = adaptive\n"), CLASH("10", "flow"), true},
        {PAIR("flow = shaping\n", "flow = shaping\nflow_weights = 1, 1, 1\n"),
         CLASH("11", "flow_weights"), true},
        {PAIR("flow = shaping\n", "flow = shaping\nflow_initial = 3\n"),
         CLASH("11", "flow_initial"), true},
        {PAIR("flow = shaping\n", "flow = shaping\nflow_warmup_s = 3\n"),
         CLASH("11", "flow_warmup_s"), true},
        /* What goes past the queue. */
        {PAIR("flow = shaping\n", "flow = retry\n"),
         "t.conf:7: warning: scope s.flow: calls of [scope t] to the quota_group \"a\" are not "
         "counted; set the same flow there\n",
         false},
        {PAIR("", "flow = shaping\n"),
         "t.conf:9: warning: scope t.flow: calls of [scope s] to the quota_group \"a\" are not "
         "counted; set the same flow there\n",
         false},
        {SOURCE("rpm = 1\n") SCOPE("flow = rate\n") "[route r]\nsource = a\n" ROUTE_TO("s"),
         "t.conf:6: warning: scope s.flow: calls of [route r] to the quota_group \"a\" are not "
         "counted; give it scope in place of source\n",
         false},
        {SOURCE("rpm = 1\n") SCOPE("flow = rate\n") "[route r]\nscope = s\n", "", false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_terms_for_the_segment(void **state)
{
    struct loading loading =
        load(SOURCE("dialect = dashscope\nrpm = 600\ntpm = 1m\nmodel_limits = m:60:10k\n"
                    "max_concurrency = 7\ndashscope_wait_s = 5\n")
                 SCOPE("flow = rate\nflow_max_waiting = 9\nflow_max_waiting_per_client = 8\n"));
    struct scope_options *scope = &loading.options->scopes[0];
    struct source_options *source = &loading.options->sources[0];
    struct flow_terms terms = options_flow_terms(scope, source, "m");

    (void)state;
    assert_int_equal(terms.strategy, FLOW_STRATEGY_RATE);
    assert_int_equal(terms.unit, FLOW_UNIT_TOKENS);
    assert_int_equal(terms.requests_quota, 60);
    assert_int_equal(terms.units_quota, 10000);
    assert_int_equal(terms.initial_requests, 60); /* full */
    assert_true(terms.warmup_ns == INT64_C(60000000000));
    assert_int_equal(terms.max_concurrent, 7);
    assert_true(terms.server_queueing);
    assert_int_equal(terms.weights[0], 16);
    assert_int_equal(terms.weights[2], 1);
    assert_true(terms.max_wait_ns[0] == INT64_C(5000000000));
    assert_int_equal(terms.max_waiting, 9);
    assert_int_equal(terms.max_waiting_per_client, 8);
    terms = options_flow_terms(scope, source, "other");
    assert_int_equal(terms.requests_quota, 600);
    assert_int_equal(terms.units_quota, 1000000);
    scope->flow = FLOW_STRATEGY_SHAPING;
    source->flow_unit = FLOW_UNIT_TASKS;
    source->dashscope_wait_ms = 0;
    terms = options_flow_terms(scope, source, "other");
    assert_int_equal(terms.initial_requests, 0); /* empty */
    assert_int_equal(terms.units_quota, 0);
    assert_false(terms.server_queueing);
    scope->flow_initial = 3;
    assert_int_equal(options_flow_terms(scope, source, "other").initial_requests, 3);
    unload(&loading);
}

static void test_F10_dashscope_wait(void **state)
{
#define WAIT "t.conf:4: source a.dashscope_wait_s: "
#define WAIT_ALLOWED "; allowed: 0, or 3 to 120 whole seconds\n"
    static const struct load_case cases[] = {
        {SOURCE("dialect = dashscope\ndashscope_wait_s = 0"), "", false},
        {SOURCE("dialect = dashscope\ndashscope_wait_s = 3"), "", false},
        {SOURCE("dialect = dashscope\ndashscope_wait_s = 2m"), "", false},
        {SOURCE("dialect = dashscope\ndashscope_wait_s ="), "", false},
        {SOURCE("dialect = dashscope\ndashscope_wait_s = 1"), WAIT "1 s cannot be" WAIT_ALLOWED,
         true},
        {SOURCE("dialect = dashscope\ndashscope_wait_s = 2999ms"),
         WAIT "2999 ms cannot be" WAIT_ALLOWED, true},
        {SOURCE("dialect = dashscope\ndashscope_wait_s = 3500ms"),
         WAIT "3500 ms cannot be" WAIT_ALLOWED, true},
        {SOURCE("dialect = dashscope\ndashscope_wait_s = 121"),
         WAIT "121 is out of range" WAIT_ALLOWED, true},
        {SOURCE("dialect = openai\ndashscope_wait_s = 30"),
         WAIT "only DashScope knows such a wait; set dialect = dashscope, or take it away\n", true},
        {SOURCE("dialect = azure\ndashscope_wait_s = 0"),
         WAIT "only DashScope knows such a wait; set dialect = dashscope, or take it away\n", true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_F1_off_by_default),
        cmocka_unit_test(test_F8_what_is_written_arrives),
        cmocka_unit_test(test_numbers_of_thousands_and_millions),
        cmocka_unit_test(test_F3_limits_of_single_models),
        cmocka_unit_test(test_limits_that_are_never_reached_warn),
        cmocka_unit_test(test_64_model_limits_are_the_most),
        cmocka_unit_test(test_F8_weights_and_waits_that_are_wrong),
        cmocka_unit_test(test_F8_weights_that_are_turned_round_warn),
        cmocka_unit_test(test_one_mistake_is_told_once),
        cmocka_unit_test(test_F3_F4_a_strategy_needs_its_limits),
        cmocka_unit_test(test_F5_the_dump_says_what_is_learned),
        cmocka_unit_test(test_F4_sources_of_one_account_agree),
        cmocka_unit_test(test_scopes_of_one_account_have_one_queue),
        cmocka_unit_test(test_terms_for_the_segment),
        cmocka_unit_test(test_F10_dashscope_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
