/* test_options.c - what a loaded configuration is: defaults, routes, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/loading.h"

#include <unistd.h>

/* The one source of a route that names a source. */
static const struct source_options *source_of(const struct route_options *route)
{
    assert_int_equal(route->to->member_count, 1);
    return route->to->members[0].source;
}

/* "Default off changes nothing": no file, no variables. */
static void test_without_any_file_defaults_count(void **state)
{
    struct text report;
    struct options *options = NULL;

    (void)state;
    text_init(&report, 4096);
    assert_int_equal(unsetenv("PENSTOCK_UPSTREAM"), 0);
    assert_true(options_load(NULL, &report, &options));
    assert_non_null(strstr(text_string(&report), "warning: there is no [source NAME]"));
    assert_false(options->image.active);
    assert_int_equal(options->image.image_stream_data_interval_timeout_ms, -1);
    assert_int_equal(options->image.image_first_byte_timeout_ms, -1);
    assert_int_equal(options->source_count, 0);
    assert_int_equal(options->route_count, 0);
    options_free(options);

    text_clear(&report);
    assert_int_equal(setenv("PENSTOCK_UPSTREAM", "http://127.0.0.1:8080", 1), 0);
    assert_true(options_load(NULL, &report, &options));
    assert_string_equal(text_string(&report), "");
    assert_string_equal(options->sources[0].base_url, "http://127.0.0.1:8080");
    assert_int_equal(unsetenv("PENSTOCK_UPSTREAM"), 0);
    options_free(options);
    text_release(&report);
}

static void test_gate_is_active_only_with_enabled_and_a_limit(void **state)
{
    static const struct {
        const char *conf;
        bool active;
        int64_t interval_ms;
        int64_t first_byte_ms;
    } cases[] = {
        {WITH_SOURCE, false, -1, -1},
        {WITH_SOURCE "[image_concurrency]\nmax_concurrent_requests = 8", false, -1, -1},
        {WITH_SOURCE "[image_concurrency]\nenabled = on", false, -1, -1},
        {WITH_SOURCE "[image_concurrency]\nenabled = on\nmax_concurrent_requests = 8", true, 900000,
         900000},
        /* set by the operator: works while the gate is off */
        {WITH_SOURCE "[image_concurrency]\nimage_stream_data_interval_timeout = 60", false, 60000,
         -1},
        {WITH_SOURCE "[image_concurrency]\nimage_first_byte_timeout_seconds = 0", false, -1, 0},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct loading loading = load(cases[i].conf);
        const struct image_concurrency_options *image = &loading.options->image;

        assert_int_equal(image->active, cases[i].active);
        assert_int_equal(image->image_stream_data_interval_timeout_ms, cases[i].interval_ms);
        assert_int_equal(image->image_first_byte_timeout_ms, cases[i].first_byte_ms);
        unload(&loading);
    }
}

static void test_routes_stand_longest_first_and_know_their_source(void **state)
{
    struct loading loading =
        load("[source a]\nbase_url = https://a\n[source b]\nbase_url = https://b\n"
             "[route all]\nsource = a\n"
             "[route images]\nsource = b\npath = /v1/images/\nkind = image\n"
             "[route edits]\nsource = a\npath = /v1/images/edits\n");
    const struct options *options = loading.options;

    (void)state;
    assert_string_equal(report_of(&loading), "");
    assert_int_equal(options->route_count, 3);
    assert_string_equal(options->routes[0].name, "edits");
    assert_string_equal(options->routes[1].name, "images");
    assert_string_equal(options->routes[2].path, "/v1/");
    assert_ptr_equal(source_of(&options->routes[1]), &options->sources[1]);
    assert_ptr_equal(source_of(&options->routes[2]), &options->sources[0]);
    assert_int_equal(options->routes[1].kind, ROUTE_KIND_IMAGE);
    unload(&loading);
}

static void test_without_a_route_everything_goes_to_the_first_source(void **state)
{
    struct loading loading =
        load("[source z]\nbase_url = https://z\n[source a]\nbase_url = https://a\n");

    (void)state;
    assert_int_equal(loading.options->route_count, 1);
    assert_string_equal(loading.options->routes[0].path, "/v1/");
    assert_string_equal(source_of(&loading.options->routes[0])->name, "z");
    assert_true(loading.options->routes[0].to->direct);
    unload(&loading);
}

static void test_without_a_route_everything_goes_to_the_first_scope(void **state)
{
#define UNUSED(line, name)                                                                         \
    "t.conf:" line ": warning: scope " name                                                        \
    ".sources: no call comes to them: no route and no fallback names this scope\n"
    static const char *const elsewhere[] = {"PENSTOCK__ROUTE__DEFAULT__SOURCE=a", NULL};
    static const char *const second[] = {"PENSTOCK__ROUTE__DEFAULT__SCOPE=t", NULL};
    static const char *const empty[] = {"PENSTOCK__ROUTE__DEFAULT__SCOPE=", NULL};
    static const struct {
        const char *const *environment;
        const char *to;
        bool direct;
        const char *report;
    } cases[] = {
        {NULL, "s", false, UNUSED("6", "t")},
        {elsewhere, "default", true, UNUSED("4", "s") UNUSED("6", "t")},
        {second, "t", false, UNUSED("4", "s")},
        {empty, "s", false, UNUSED("6", "t")},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct loading loading = load_with(
            WITH_SOURCE "[scope s]\nsources = a\n[scope t]\nsources = a\n", cases[i].environment);

        assert_string_equal(report_of(&loading), cases[i].report);
        assert_int_equal(loading.options->route_count, 1);
        assert_string_equal(loading.options->routes[0].path, "/v1/");
        assert_string_equal(loading.options->routes[0].to->name, cases[i].to);
        assert_int_equal(loading.options->routes[0].to->direct, cases[i].direct);
        unload(&loading);
    }
}

static void test_threads_needed(void **state)
{
    static const struct {
        const char *image;
        int64_t needed;
        int64_t threads; /* of each of 2 workers */
    } cases[] = {
        {"", 0, 64},
        {"enabled = on\nmax_concurrent_requests = 8", 11, 64},
        {"enabled = on\nmax_concurrent_requests = 8\noverflow_mode = wait", 144, 72},
        {"enabled = on\nmax_concurrent_requests = 9\noverflow_mode = wait\n"
         "max_waiting_requests = 1000",
         1346, 673},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        char conf[400];
        struct loading loading;

        (void)snprintf(conf, sizeof conf,
                       WITH_SOURCE "[penstock]\nworkers = 2\n[image_concurrency]\n%s\n",
                       cases[i].image);
        loading = load(conf);
        assert_string_equal(report_of(&loading), "");
        assert_int_equal(options_threads_needed(loading.options), cases[i].needed);
        assert_int_equal(options_workers(loading.options), 2);
        assert_int_equal(options_threads(loading.options), cases[i].threads);
        unload(&loading);
    }
}

/* Every call that waits in a flow has a thread: the reserve and what images need are not for it. */
static void f9_threads_for_calls_that_wait_in_flows(void **state)
{
#define IMAGES "enabled = on\nmax_concurrent_requests = 8\noverflow_mode = wait"
    static const struct {
        const char *penstock, *image, *flow;
        int64_t threads, waiters; /* of each of 2 workers */
        const char *warned;       /* NULL: not */
    } cases[] = {
        {"", "", "none", 64, 48, NULL},
        {"", "", "retry", 64, 48, NULL},
        {"", "", "adaptive", 128, 96, NULL},
        {"", IMAGES, "none", 72, 1, NULL},
        {"", IMAGES, "adaptive", 136, 48, NULL},
        {"threads = 100", IMAGES, "adaptive", 100, 21, "only 42 calls can wait in flows"},
        {"threads = 72", IMAGES, "none", 72, 1, NULL},
        {"threads = 1\nreserve_percent = 90", "", "none", 1, 1, NULL},
    };
#undef IMAGES

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        char conf[400];
        struct loading loading;

        (void)snprintf(conf, sizeof conf,
                       WITH_SOURCE "[penstock]\nworkers = 2\n%s\n[image_concurrency]\n%s\n"
                                   "[scope s]\nsources = a\nflow = %s\n[route r]\nscope = s\n",
                       cases[i].penstock, cases[i].image, cases[i].flow);
        loading = load(conf);
        if (cases[i].warned)
            assert_non_null(strstr(report_of(&loading), cases[i].warned));
        else
            assert_string_equal(report_of(&loading), "");
        assert_int_equal(options_threads(loading.options), cases[i].threads);
        assert_int_equal(options_flow_waiters(loading.options), cases[i].waiters);
        unload(&loading);
    }
}

static void test_auto_workers_are_at_least_two(void **state)
{
    struct loading loading = load(WITH_SOURCE);

    (void)state;
    assert_in_range(options_workers(loading.options), 2, 100);
    unload(&loading);
}

/* ---- no memory ------------------------------------------------------------------------------- */

/* Under a sanitizer malloc is its own; there the tests below are skipped. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_FAIL_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAN_FAIL_MALLOC 0
#endif
#endif
#ifndef CAN_FAIL_MALLOC
#define CAN_FAIL_MALLOC 1
#endif

/* Of what malloc may do; -1: anything. Volatile: the compiler believes that malloc does not look here. */
static volatile long allocations_left = -1;

#if CAN_FAIL_MALLOC
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

static bool may_allocate(void)
{
    if (allocations_left == 0)
        return false;
    if (allocations_left > 0)
        allocations_left--;
    return true;
}

void *malloc(size_t size)
{
    return may_allocate() ? __libc_malloc(size) : NULL;
}

void *calloc(size_t count, size_t size)
{
    return may_allocate() ? __libc_calloc(count, size) : NULL;
}

void *realloc(void *old, size_t size)
{
    return may_allocate() ? __libc_realloc(old, size) : NULL;
}
#endif

/* Sanitizers and valgrind have a malloc of their own that nobody gets in front of. */
static void needs_failing_malloc(void)
{
    void *volatile bytes;

    allocations_left = 0;
    bytes = malloc(1);
    allocations_left = -1;
    if (!bytes)
        return;
    free(bytes);
    skip();
}

static void test_every_allocation_may_fail(void **state)
{
    static const char *const environment[] = {"PENSTOCK__SOURCE__A__TIMEOUT_S=5", "K=key",
                                              "PENSTOCK__SOURCE__A__API_KEY=@env:K", NULL};
    static const char conf[] = WITH_SOURCE "[penstock]\nworkers = 2\n"
                                           "[scope s]\nsources = a, b\nfallback = sonnet, s\n"
                                           "[route r]\nsource = a\npath = /v1/\n"
                                           "[route q]\nsource = ab\npath = /q/\n"
                                           "[image_concurrency]\nimage_models = a, b\n"
                                           "listen = 1\n"; /* with some errors, for their words */
    bool ran_out = true;
    long limit = 0;

    (void)state;
    needs_failing_malloc();
    for (; ran_out && limit < 10000; limit++) {
        struct loading loading;

        allocations_left = limit;
        loading = load_with(conf, environment);
        ran_out = allocations_left == 0;
        allocations_left = -1;
        /* Whatever failed, a faulty configuration is never taken for a good one. */
        assert_null(loading.options);
        unload(&loading);
    }
    assert_in_range(limit, 20, 9999);
}

static void test_good_configuration_without_memory_is_refused(void **state)
{
    bool ran_out = true;
    long limit = 0;

    (void)state;
    needs_failing_malloc();
    for (; ran_out && limit < 10000; limit++) {
        struct loading loading;

        allocations_left = limit;
        loading = load(WITH_SOURCE "model_aliases = m=n\nadd_headers = x=y\n"
                                   "[scope s]\nsources = a\nfallback = m\n"
                                   "[route all]\nsource = a\n"
                                   "[route some]\nscope = s\npath = /x\n");
        ran_out = allocations_left == 0;
        allocations_left = -1;
        if (loading.options) {
            assert_string_equal(loading.options->sources[0].base_url, "https://a.example");
            assert_string_equal(source_of(&loading.options->routes[0])->name, "a");
            assert_string_equal(loading.options->routes[1].to->name, "s");
            assert_int_equal(loading.options->routes[1].to->fallback_count, 1);
        } else {
            assert_true(ran_out);
        }
        unload(&loading);
    }
    assert_in_range(limit, 20, 9999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_any_file_defaults_count),
        cmocka_unit_test(test_gate_is_active_only_with_enabled_and_a_limit),
        cmocka_unit_test(test_routes_stand_longest_first_and_know_their_source),
        cmocka_unit_test(test_without_a_route_everything_goes_to_the_first_source),
        cmocka_unit_test(test_without_a_route_everything_goes_to_the_first_scope),
        cmocka_unit_test(test_threads_needed),
        cmocka_unit_test(f9_threads_for_calls_that_wait_in_flows),
        cmocka_unit_test(test_auto_workers_are_at_least_two),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_good_configuration_without_memory_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
