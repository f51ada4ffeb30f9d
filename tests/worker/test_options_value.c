/* test_options_value.c - every type's good and bad values, and the exact words of refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

#define IN_PENSTOCK WITH_SOURCE "[penstock]\n"
#define IN_IMAGE WITH_SOURCE "[image_concurrency]\n"

static void test_every_default_is_a_value_of_its_type(void **state)
{
    struct loading loading = load("[source a]\nbase_url = http://localhost:1\n");
    const struct options *options = loading.options;

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_non_null(options);
    assert_string_equal(options->penstock.listen, "unix:/run/penstock/penstock.sock");
    assert_int_equal(options->penstock.listen_mode, 0660);
    assert_int_equal(options->penstock.workers, -1);
    assert_int_equal(options->penstock.threads, -1);
    assert_int_equal(options->penstock.body_read_timeout_ms, 60000);
    assert_int_equal(options->penstock.max_json_body_bytes, 64 * 1024 * 1024);
    assert_int_equal(options->penstock.ledger_keep_ms, INT64_C(30) * 86400000);
    assert_int_equal(options->penstock.log_level, 3);
    assert_true(options->penstock.client_watch);
    assert_string_equal(options->penstock.log_file, "");
    assert_false(options->image.enabled);
    assert_int_equal(options->image.overflow_mode, OVERFLOW_REJECT);
    assert_string_equal(options->image.image_models[0], "gpt-image-*");
    assert_string_equal(options->image.image_models[8], "flux*");
    assert_null(options->image.image_models[9]);
    assert_int_equal(options->sources[0].dialect, DIALECT_OPENAI);
    assert_string_equal(options->sources[0].api_key, "");
    assert_int_equal(options->routes[0].kind, ROUTE_KIND_AUTO);
    unload(&loading);
}

static void test_numbers_in_all_their_forms(void **state)
{
    struct loading loading = load(IN_PENSTOCK "workers = 100\n"
                                              "threads = auto\n"
                                              "listen_mode = 666\n"
                                              "client_watch = No\n"
                                              "penstock_headers = 1\n"
                                              "body_read_timeout_s = 1500ms\n"
                                              "client_stall_timeout_seconds = 0.5m\n"
                                              "stop_timeout_s = 1d\n"
                                              "max_json_body = 4g\n"
                                              "max_params = 65536\n"
                                              "spool_above = 0\n"
                                              "spool_max = 512g\n"
                                              "log_level = debug\n"
                                              "log_format = \"json\"\n");

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_non_null(loading.options);
    assert_int_equal(loading.options->penstock.workers, 100);
    assert_int_equal(loading.options->penstock.threads, -1);
    assert_int_equal(loading.options->penstock.listen_mode, 0666);
    assert_false(loading.options->penstock.client_watch);
    assert_true(loading.options->penstock.penstock_headers);
    assert_int_equal(loading.options->penstock.body_read_timeout_ms, 1500);
    assert_int_equal(loading.options->penstock.client_stall_timeout_ms, 30000);
    assert_int_equal(loading.options->penstock.stop_timeout_ms, 86400000);
    assert_int_equal(loading.options->penstock.max_json_body_bytes, INT64_C(4) << 30);
    assert_int_equal(loading.options->penstock.max_params_bytes, 65536);
    assert_int_equal(loading.options->penstock.spool_above_bytes, 0);
    assert_int_equal(loading.options->penstock.spool_max_bytes, INT64_C(512) << 30);
    assert_int_equal(loading.options->penstock.log_level, 4);
    assert_int_equal(loading.options->penstock.log_format, 1);
    unload(&loading);
}

static const struct load_case bad_values[] = {
    {IN_PENSTOCK "workers = 0",
     "t.conf:4: penstock.workers: 0 is out of range; allowed: auto, or 1 to 100\n", true},
    {IN_PENSTOCK "workers = 101",
     "t.conf:4: penstock.workers: 101 is out of range; allowed: auto, or 1 to 100\n", true},
    {IN_PENSTOCK "workers = -1",
     "t.conf:4: penstock.workers: \"-1\" is not a whole number; allowed: auto, or 1 to 100\n",
     true},
    {IN_PENSTOCK "workers = 99999999999999999999",
     "t.conf:4: penstock.workers: \"99999999999999999999\" is not a whole number; allowed: "
     "auto, or 1 to 100\n",
     true},
    {IN_PENSTOCK "workers = 18446744073709551615",
     "t.conf:4: penstock.workers: 18446744073709551615 is out of range; allowed: auto, or 1 to "
     "100\n",
     true},
    {IN_PENSTOCK "workers = atuo",
     "t.conf:4: penstock.workers: \"atuo\" is not a whole number; allowed: auto, or 1 to 100; "
     "did you mean \"auto\"?\n",
     true},
    {IN_PENSTOCK "workers =",
     "t.conf:4: penstock.workers: the value is missing; allowed: auto, or 1 to 100\n", true},
    {IN_PENSTOCK "reserve_percent = 91",
     "t.conf:4: penstock.reserve_percent: 91 is out of range; allowed: 0 to 90\n", true},
    {IN_PENSTOCK "listen_mode = 0888",
     "t.conf:4: penstock.listen_mode: \"0888\" is not an octal number; allowed: 0 to 0777\n", true},
    {IN_PENSTOCK "listen_mode = 1777",
     "t.conf:4: penstock.listen_mode: 1777 is out of range; allowed: 0 to 0777\n", true},
    {IN_PENSTOCK "client_watch = ture",
     "t.conf:4: penstock.client_watch: \"ture\" is not a switch; allowed: true or false; did "
     "you mean \"true\"?\n",
     true},
    {IN_PENSTOCK "client_watch = true ; yes",
     "t.conf:4: penstock.client_watch: \"true ; yes\" is not a switch; allowed: true or false; "
     "a comment must have a line of its own\n",
     true},
    {IN_PENSTOCK "stop_timeout_s = 1 h",
     "t.conf:4: penstock.stop_timeout_s: \"1 h\" is not a time; allowed: 1 to 86400 seconds, "
     "or with a unit: ms, s, m, h, d\n",
     true},
    {IN_PENSTOCK "stop_timeout_s = 999ms",
     "t.conf:4: penstock.stop_timeout_s: 999ms is out of range; allowed: 1 to 86400 seconds, "
     "or with a unit: ms, s, m, h, d\n",
     true},
    {IN_PENSTOCK "max_params = 1k",
     "t.conf:4: penstock.max_params: 1k is out of range; allowed: 4k to 64k (bytes, or with a "
     "unit: k, m, g)\n",
     true},
    {IN_PENSTOCK "max_params = 1x",
     "t.conf:4: penstock.max_params: \"1x\" is not a size; allowed: 4k to 64k (bytes, or with a "
     "unit: k, m, g)\n",
     true},
    {IN_PENSTOCK "log_level = wraning",
     "t.conf:4: penstock.log_level: \"wraning\" is not one of its words; allowed: error, "
     "warning, notice, info or debug; did you mean \"warning\"?\n",
     true},
    {IN_PENSTOCK "log_level = Info",
     "t.conf:4: penstock.log_level: \"Info\" is not one of its words; allowed: error, warning, "
     "notice, info or debug; did you mean \"info\"?\n",
     true},
    {IN_IMAGE "overflow_mode = queue",
     "t.conf:4: image_concurrency.overflow_mode: \"queue\" is not one of its words; allowed: "
     "reject or wait\n",
     true},
    {IN_IMAGE "max_waiting_requests = 0",
     "t.conf:4: image_concurrency.max_waiting_requests: 0 is out of range; allowed: 1 to 4096; "
     "to refuse at once set overflow_mode = reject\n",
     true},
    {IN_IMAGE "wait_timeout_seconds = 0",
     "t.conf:4: image_concurrency.wait_timeout_seconds: 0 is out of range; allowed: 1 to 3600 "
     "seconds, or with a unit: ms, s, m, h, d; to refuse at once set overflow_mode = reject\n",
     true},
    {IN_IMAGE "image_stream_data_interval_timeout = 1801",
     "t.conf:4: image_concurrency.image_stream_data_interval_timeout: 1801 is out of range; "
     "allowed: 0, or 60 to 1800 seconds\n",
     true},
    {IN_IMAGE "image_models = a,,b",
     "t.conf:4: image_concurrency.image_models: an entry is empty; allowed: entries separated "
     "by single commas\n",
     true},
};

static void test_bad_values_say_what_is_allowed(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(bad_values); i++)
        assert_load_case(&bad_values[i]);
}

static void test_lists_are_cut_and_trimmed(void **state)
{
    struct loading loading = load(IN_IMAGE "image_models = a* , b\t,\"c\"");
    struct loading empty = load(IN_IMAGE "image_models =");

    (void)state;
    assert_non_null(loading.options);
    assert_string_equal(loading.options->image.image_models[0], "a*");
    assert_string_equal(loading.options->image.image_models[1], "b");
    assert_string_equal(loading.options->image.image_models[2], "\"c\"");
    assert_null(loading.options->image.image_models[3]);
    assert_non_null(empty.options);
    assert_null(empty.options->image.image_models[0]);
    unload(&loading);
    unload(&empty);
}

static void test_lists_are_bounded(void **state)
{
    char conf[2048] = IN_IMAGE "image_models = x";
    struct loading loading;

    (void)state;
    for (int i = 0; i < 256; i++)
        strcat(conf, ",x");
    loading = load(conf);
    assert_string_equal(report_of(&loading), "t.conf:4: image_concurrency.image_models: too many "
                                             "entries; allowed: 256\n");
    assert_null(loading.options);
    unload(&loading);
}

static void test_long_bad_value_is_cut_in_the_message(void **state)
{
    char conf[512] = IN_PENSTOCK "workers = ";
    struct loading loading;

    (void)state;
    memset(conf + strlen(conf), 'x', 300);
    loading = load(conf);
    assert_non_null(strstr(report_of(&loading), "xxx...\" is not a whole number"));
    assert_true(strlen(report_of(&loading)) < 250);
    unload(&loading);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_default_is_a_value_of_its_type),
        cmocka_unit_test(test_numbers_in_all_their_forms),
        cmocka_unit_test(test_bad_values_say_what_is_allowed),
        cmocka_unit_test(test_lists_are_cut_and_trimmed),
        cmocka_unit_test(test_lists_are_bounded),
        cmocka_unit_test(test_long_bad_value_is_cut_in_the_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
