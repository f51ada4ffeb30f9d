/* test_options_check.c - URLs, addresses, references between sections, the arithmetic of threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

#define IN_PENSTOCK WITH_SOURCE "[penstock]\n"
#define IN_IMAGE WITH_SOURCE "[image_concurrency]\n"
#define ADDRESS "; allowed: unix:/PATH, 127.0.0.1:PORT or [::1]:PORT\n"
#define LOCAL                                                                                      \
    "t.conf:4: warning: penstock.listen: any user of this host can connect to a TCP port; a unix " \
    "socket has permissions\n"
#define OPEN " is open to the network, and whoever connects is obeyed" ADDRESS

static void check_all(const struct load_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_load_case(&cases[i]);
}

static void test_addresses(void **state)
{
    static const struct load_case cases[] = {
        {IN_PENSTOCK "listen = unix:/run/x.sock", "", false},
        {IN_PENSTOCK "listen = 127.0.0.1:9000", LOCAL, false},
        {IN_PENSTOCK "listen = 127.8.8.8:1", LOCAL, false},
        {IN_PENSTOCK "listen = [::1]:65535", LOCAL, false},
        {IN_PENSTOCK "listen = 0.0.0.0:9000", "t.conf:4: penstock.listen: \"0.0.0.0:9000\"" OPEN,
         true},
        {IN_PENSTOCK "listen = [::]:9000", "t.conf:4: penstock.listen: \"[::]:9000\"" OPEN, true},
        {IN_PENSTOCK "listen = 192.168.1.1:9000",
         "t.conf:4: penstock.listen: \"192.168.1.1:9000\"" OPEN, true},
        {IN_PENSTOCK "listen = localhost:9000",
         "t.conf:4: penstock.listen: \"localhost:9000\" is not an address" ADDRESS, true},
        {IN_PENSTOCK "listen = 127.0.0.1",
         "t.conf:4: penstock.listen: \"127.0.0.1\" is not an address" ADDRESS, true},
        {IN_PENSTOCK "listen = 127.0.0.1:0",
         "t.conf:4: penstock.listen: \"127.0.0.1:0\" is not an address" ADDRESS, true},
        {IN_PENSTOCK "listen = 127.0.0.1:65536",
         "t.conf:4: penstock.listen: \"127.0.0.1:65536\" is not an address" ADDRESS, true},
        {IN_PENSTOCK "listen = ::1:9000",
         "t.conf:4: penstock.listen: \"::1:9000\" is not an address" ADDRESS, true},
        {IN_PENSTOCK "listen = []:9000",
         "t.conf:4: penstock.listen: \"[]:9000\" is not an address" ADDRESS, true},
        {IN_PENSTOCK "listen = [:9000",
         "t.conf:4: penstock.listen: \"[:9000\" is not an address" ADDRESS, true},
        {IN_PENSTOCK "listen =", "t.conf:4: penstock.listen: \"\" is not an address" ADDRESS, true},
        {IN_PENSTOCK "listen = unix:run/x.sock",
         "t.conf:4: penstock.listen: the path is not absolute" ADDRESS, true},
        {IN_PENSTOCK "status_listen = unix:/run/penstock/penstock.sock",
         "t.conf:4: penstock.status_listen: is the same as listen; allowed: a socket of its own\n",
         true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_unix_path_is_as_long_as_the_kernel_takes(void **state)
{
    (void)state;
    for (size_t length = 107; length <= 108; length++) {
        char conf[300] = IN_PENSTOCK "listen = unix:/";
        struct loading loading;

        memset(conf + strlen(conf), 'x', length - 1);
        loading = load(conf);
        assert_string_equal(report_of(&loading),
                            length == 107
                                ? ""
                                : "t.conf:4: penstock.listen: the path is longer than 107 "
                                  "bytes, the most a unix socket can have\n");
        unload(&loading);
    }
}

static void test_paths_and_gate_name(void **state)
{
    static const struct load_case cases[] = {
        {IN_PENSTOCK "state_directory = x",
         "t.conf:4: penstock.state_directory: not an absolute path; allowed: /PATH\n", true},
        {IN_PENSTOCK "runtime_directory =",
         "t.conf:4: penstock.runtime_directory: not an absolute path; allowed: /PATH\n", true},
        {IN_PENSTOCK "log_file = x.log",
         "t.conf:4: penstock.log_file: not an absolute path; allowed: /PATH, or empty\n", true},
        {IN_PENSTOCK "log_file =", "", false},
        {WITH_SOURCE "ca_file = ca.pem",
         "t.conf:3: source a.ca_file: not an absolute path; allowed: /PATH, or empty\n", true},
        {IN_IMAGE "gate = a/b",
         "t.conf:4: image_concurrency.gate: \"a/b\" cannot name a gate; allowed: 1 to 32 letters, "
         "digits, - and _\n",
         true},
        {IN_IMAGE "gate =",
         "t.conf:4: image_concurrency.gate: \"\" cannot name a gate; allowed: 1 to 32 letters, "
         "digits, - and _\n",
         true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_base_urls_that_are_good(void **state)
{
    static const struct {
        const char *written;
        const char *kept;
    } cases[] = {
        {"https://api.openai.com", "https://api.openai.com"},
        {"https://api.openai.com/", "https://api.openai.com"},
        {"http://[::1]:8080/x//", "http://[::1]:8080/x"},
        {"HTTPS://h.example:443/compatible-mode", "HTTPS://h.example:443/compatible-mode"},
        {"http://10.0.0.1:1/v11", "http://10.0.0.1:1/v11"},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        char conf[200];
        struct loading loading;

        (void)snprintf(conf, sizeof conf, "[source a]\nbase_url = %s\n", cases[i].written);
        loading = load(conf);
        assert_string_equal(report_of(&loading), "");
        assert_non_null(loading.options);
        assert_string_equal(loading.options->sources[0].base_url, cases[i].kept);
        unload(&loading);
    }
}

static void test_base_urls_that_are_bad(void **state)
{
    static const struct {
        const char *url;
        const char *problem;
    } cases[] = {
        {"api.openai.com", "the URL does not begin with http:// or https://"},
        {"ftp://h", "the URL does not begin with http:// or https://"},
        {"https://", "the host is missing"},
        {"https:///v", "the host is missing"},
        {"https://:443", "the host is missing"},
        {"https://u:secret@h", "a user or password must not stand in the URL; use api_key"},
        {"https://h?x=1", "the URL has a query (?)"},
        {"https://h/#f", "the URL has a fragment (#)"},
        {"https://h/a b",
         "the URL has a blank or another character that no URL has; a comment must "
         "have a line of its own"},
        {"https://h ; main", "the URL has a blank or another character that no URL has; a comment "
                             "must have a line of its own"},
        {"https://h\xc3\xa4.example", "the URL has a blank or another character that no URL has; a "
                                      "comment must have a line of its own"},
        {"https://h:0", "the port is not a number from 1 to 65535"},
        {"https://h:99999/", "the port is not a number from 1 to 65535"},
        {"https://h:", "the port is not a number from 1 to 65535"},
        {"https://h!x", "the host has a character that no host has"},
        {"https://[::1", "the address in [ ] is not an IPv6 address"},
        {"https://[]/", "the address in [ ] is not an IPv6 address"},
        {"https://[1.2.3.4]/", "the address in [ ] is not an IPv6 address"},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        char conf[200];
        char report[400];
        struct loading loading;

        (void)snprintf(conf, sizeof conf, "[source a]\nbase_url = %s\n", cases[i].url);
        (void)snprintf(report, sizeof report,
                       "t.conf:2: source a.base_url: %s; allowed: https://HOST[:PORT][/PATH]\n",
                       cases[i].problem);
        loading = load(conf);
        assert_string_equal(report_of(&loading), report);
        assert_null(strstr(report_of(&loading), "secret"));
        assert_null(loading.options);
        unload(&loading);
    }
}

static void test_sources(void **state)
{
    static const struct load_case cases[] = {
        {"[source a]\n",
         "t.conf:1: source a.base_url: is missing; allowed: an http:// or https:// URL, such as "
         "https://api.openai.com\n",
         true},
        {"[source a]\nbase_url = https://h/compatible-mode/v1/\n",
         "t.conf:2: source a.base_url: ends in /v1, but a call's path, which is appended, has it "
         "already; write base_url = https://h/compatible-mode\n",
         true},
        {"",
         "configuration: warning: there is no [source NAME] and no PENSTOCK_UPSTREAM: every call "
         "will be answered 503\n",
         false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_key_over_plain_http_is_a_warning_except_to_this_host(void **state)
{
    static const char *const environment[] = {"K=k", NULL};
    struct loading loading =
        load_with("[source a]\nbase_url = http://h.example\napi_key = @env:K\n"
                  "[source b]\nbase_url = http://127.0.0.1:1\napi_key = @env:K\n" ROUTE_PAST("a")
                      ROUTE_PAST("b"),
                  environment);

    (void)state;
    assert_string_equal(report_of(&loading),
                        "t.conf:2: warning: source a.base_url: api_key travels "
                        "unencrypted over http://; use https://\n");
    assert_non_null(loading.options);
    unload(&loading);
}

static void test_routes(void **state)
{
    static const struct load_case cases[] = {
        {WITH_SOURCE "[route r]\nsource = a", "", false},
        {WITH_SOURCE "[route r]",
         "t.conf:3: route r.source: is missing, and so is scope; write source = a\n", true},
        {"[source openai]\nbase_url = https://h\n[route r]\nsource = opnai",
         "t.conf:4: route r.source: there is no [source opnai]; allowed: openai; did you mean "
         "\"openai\"?\n",
         true},
        {WITH_SOURCE "[route r]\nsource = a\npath = v1",
         "t.conf:5: route r.path: \"v1\" does not begin with /; allowed: a path such as /v1/ or "
         "/v1/images/generations\n",
         true},
        {WITH_SOURCE "[route r]\nsource = a\npath = /a//",
         "t.conf:5: route r.path: \"/a//\" has an empty segment (//); allowed: a path such as /v1/ "
         "or /v1/images/generations\n",
         true},
        {WITH_SOURCE "[route r]\nsource = a\npath = /a/../",
         "t.conf:5: route r.path: \"/a/../\" has a dot segment; allowed: a path such as /v1/ or "
         "/v1/images/generations\n",
         true},
        {WITH_SOURCE "[route r]\nsource = a\npath = /a?b",
         "t.conf:5: route r.path: \"/a?b\" has a ?, #, % or blank in it; allowed: a path such as "
         "/v1/ or /v1/images/generations\n",
         true},
        {WITH_SOURCE "[route r]\nsource = a\n[route s]\nsource = a\npath = /v1/",
         "t.conf:7: route s.path: the same path as [route r] (t.conf:3) has; allowed: one route "
         "for each path\n",
         true},
        {WITH_SOURCE "[route r]\nsource = a\npath = /x/v1/\nstrip_prefix = /x", "", false},
        {WITH_SOURCE "[route r]\nsource = a\npath = /x/v1/\nstrip_prefix = /x/",
         "t.conf:6: route r.strip_prefix: \"/x/\" is not the beginning of path; allowed: its first "
         "segments, without a / at the end\n",
         true},
        {WITH_SOURCE "[route r]\nsource = a\npath = /xy/\nstrip_prefix = /x",
         "t.conf:6: route r.strip_prefix: \"/x\" is not the beginning of path; allowed: its first "
         "segments, without a / at the end\n",
         true},
        {"[route r]\nsource = a\n",
         "configuration: warning: there is no [source NAME] and no PENSTOCK_UPSTREAM: every call "
         "will be answered 503\nt.conf:2: route r.source: there is no [source a]; allowed: the "
         "name of a [source NAME], of which there is none\n",
         true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_F8_the_image_queue_has_classes_of_its_own(void **state)
{
#define WAITS                                                                                      \
    "[image_concurrency]\nenabled = true\nmax_concurrent_requests = 1\noverflow_mode = wait\n"
#define IN_SCOPE(more) "[scope s]\nsources = a\n" more
#define OF_GATE(line, what) "t.conf:" line ": image_concurrency.class_" what
    static const struct load_case cases[] = {
        {WITH_SOURCE WAITS "class_weights = 16, 4\n",
         OF_GATE("7", "weights: these are no weights; allowed: three whole numbers from 1 to 1000, "
                      "for interactive, normal and bulk, or nothing\n"),
         true},
        {WITH_SOURCE WAITS "class_max_waiting = 50, 4097, 1\n",
         OF_GATE("7", "max_waiting: these are no bounds; allowed: three whole numbers from 1 to "
                      "4096, for interactive, normal and bulk, or nothing\n"),
         true},
    };
    struct loading loading = load(WITH_SOURCE WAITS);
    const struct queue_terms *classes = loading.options->image.classes;

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++)
        assert_load_case(&cases[i]);
    assert_int_equal(classes[FLOW_INTERACTIVE].weight, 16);
    assert_int_equal(classes[FLOW_NORMAL].weight, 4);
    assert_int_equal(classes[FLOW_BULK].weight, 1);
    assert_int_equal(classes[FLOW_BULK].max_waiting, 0);
    unload(&loading);
    /* a class is worth saying where image calls wait, with whatever flow */
    loading = load(WITH_SOURCE IN_SCOPE("flow_class = bulk\nflow_class_header_max = normal\n") WAITS
                   "class_weights = 1000, 2, 2\nclass_max_waiting = 4096, 20, 1\n");
    assert_null(strstr(report_of(&loading), "flow_class"));
    assert_null(strstr(report_of(&loading), "class_weights"));
    classes = loading.options->image.classes;
    assert_int_equal(classes[FLOW_INTERACTIVE].weight, 1000);
    assert_int_equal(classes[FLOW_INTERACTIVE].max_waiting, 4096);
    assert_int_equal(classes[FLOW_BULK].weight, 2);
    assert_int_equal(classes[FLOW_BULK].max_waiting, 1);
    unload(&loading);
    /* and not where the order is that of arrival */
    loading = load(WITH_SOURCE IN_SCOPE("flow_class = bulk\n") WAITS
                   "class_weights =\nclass_max_waiting = 1, 1, 1\n");
    assert_non_null(strstr(report_of(&loading), "s.flow_class: has no effect"));
    assert_non_null(strstr(report_of(&loading), "class_max_waiting: has no effect"));
    classes = loading.options->image.classes;
    assert_int_equal(classes[FLOW_NORMAL].weight, 0);
    assert_int_equal(classes[FLOW_NORMAL].max_waiting, 0);
    unload(&loading);
}

static void test_image_options_that_surprise(void **state)
{
#define REJECTS                                                                                    \
    ": has no effect with overflow_mode = reject; set overflow_mode = wait, or take it away\n"
    static const struct load_case cases[] = {
        {IN_IMAGE "enabled = true",
         "t.conf:4: warning: image_concurrency.enabled: limits nothing while "
         "max_concurrent_requests is 0\n",
         false},
        {IN_IMAGE "enabled = true\nmax_concurrent_requests = 8\noverflow_mode = "
                  "wait\nwait_timeout_seconds = 301",
         "t.conf:7: warning: image_concurrency.wait_timeout_seconds: common clients give up after "
         "300 seconds without an answer\n",
         false},
        {IN_IMAGE "enabled = true\nmax_concurrent_requests = 8\nwait_timeout_seconds = 301\n"
                  "max_waiting_requests = 5",
         "t.conf:6: warning: image_concurrency.wait_timeout_seconds" REJECTS
         "t.conf:7: warning: image_concurrency.max_waiting_requests" REJECTS,
         false},
        {IN_IMAGE "max_concurrent_requests = 8",
         "t.conf:4: warning: image_concurrency.max_concurrent_requests: limits nothing without "
         "enabled = true\n",
         false},
        {IN_IMAGE "enabled = false\nmax_concurrent_requests = 8", "", false},
        {IN_IMAGE "image_stream_data_interval_timeout = 0", "", false},
        {IN_IMAGE "image_stream_data_interval_timeout = 60", "", false},
        {IN_IMAGE "image_stream_data_interval_timeout = 59",
         "t.conf:4: image_concurrency.image_stream_data_interval_timeout: less than a minute cuts "
         "streams that are merely drawing; allowed: 0, or 60 to 1800 seconds\n",
         true},
        {IN_IMAGE "enabled = true\nmax_concurrent_requests = 1\nimage_models =",
         "t.conf:6: warning: image_concurrency.image_models: is empty: only the paths of image "
         "endpoints tell image calls\n",
         false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

#define GATE "enabled = true\nmax_concurrent_requests = 8\noverflow_mode = wait\n"

static void test_the_largest_body_fits_a_workers_part_of_the_spool(void **state)
{
    static const struct load_case cases[] = {
        {IN_PENSTOCK "workers = 16\n", "", false},
        {IN_PENSTOCK "workers = 4\nspool_max = 512m\n",
         "t.conf:5: warning: penstock.spool_max: each of 4 workers has 134217728 bytes of it, and "
         "the "
         "largest body allowed has 268435456; raise spool_max to 1073741824 or lower "
         "max_multipart_body\n",
         false},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

static void test_threads_must_suffice_for_slots_queue_and_reserve(void **state)
{
    static const struct load_case cases[] = {
        /* (8 + 100) / 0.75 = 144 */
        {IN_PENSTOCK "workers = 2\nthreads = 72\n[image_concurrency]\n" GATE, "", false},
        {IN_PENSTOCK "workers = 2\nthreads = 71\n[image_concurrency]\n" GATE,
         "t.conf:5: penstock.threads: 2 workers * 71 threads = 142 are too few: 8 image slots + "
         "100 waiting, with a reserve of 25 % for other calls, need 144; set threads = auto or 72, "
         "or lower max_waiting_requests\n",
         true},
        {IN_PENSTOCK "workers = 2\nthreads = 1\n[image_concurrency]\nenabled = "
                     "true\nmax_concurrent_requests = 8\n",
         "t.conf:5: penstock.threads: 2 workers * 1 threads = 2 are too few: 8 image slots + 0 "
         "waiting, with a reserve of 25 % for other calls, need 11; set threads = auto or 6, or "
         "lower max_waiting_requests\n",
         true},
        /* the gate is off: any number does */
        {IN_PENSTOCK "workers = 2\nthreads = 1\n", "", false},
        {IN_PENSTOCK "workers = 1\nreserve_percent = 90\n[image_concurrency]\nmax_waiting_requests "
                     "= 4096\n" GATE,
         "t.conf:3: penstock.threads: 8 image slots + 4096 waiting, with a reserve of 90 % for "
         "other calls, need 41040 threads: 41040 for each of 1 workers, and 2000 is the most; "
         "raise workers or lower max_waiting_requests\n",
         true},
    };

    (void)state;
    check_all(cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_unix_path_is_as_long_as_the_kernel_takes),
        cmocka_unit_test(test_paths_and_gate_name),
        cmocka_unit_test(test_base_urls_that_are_good),
        cmocka_unit_test(test_base_urls_that_are_bad),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_key_over_plain_http_is_a_warning_except_to_this_host),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_F8_the_image_queue_has_classes_of_its_own),
        cmocka_unit_test(test_image_options_that_surprise),
        cmocka_unit_test(test_the_largest_body_fits_a_workers_part_of_the_spool),
        cmocka_unit_test(test_threads_must_suffice_for_slots_queue_and_reserve),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
