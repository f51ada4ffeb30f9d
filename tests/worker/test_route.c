/* test_route.c - the longest matching path serves the call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/requests.h"
#include "worker/route.h"

#include <string.h>

static struct scope_options other = {.name = "b"};
/* longest first, as options keeps them */
static struct route_options routes[] = {
    {.name = "exact", .path = "/v1/images/generations", .kind = ROUTE_KIND_IMAGE},
    {.name = "images", .path = "/v1/images/"},
    {.name = "scans", .path = "/ocr/v1/", .kind = ROUTE_KIND_OCR},
    {.name = "all", .path = "/v1/"},
};

static int make(void **state)
{
    struct house *house = house_new();

    *state = house;
    for (size_t i = 0; i < LENGTH(routes); i++)
        routes[i].to = i % 2 ? &other : &house->scope;
    house->options.routes = routes;
    house->options.route_count = LENGTH(routes);
    return 0;
}

/* Route another request; "" when no route serves it. */
static const char *route_of(struct house *house, const char *path)
{
    struct request *request = house->request;

    request->route = NULL;
    request->scope = NULL;
    request->fault = (struct fault){.code = FAULT_NONE};
    assert_true(text_copy(request->path, sizeof request->path, path));
    if (route_step(request) == STEP_FAULT)
        return "";
    assert_ptr_equal(request->scope, request->route->to);
    return request->route->name;
}

static void the_longest_matching_path_wins(void **state)
{
    static const struct {
        const char *path, *route;
    } cases[] = {
        {"/v1/images/generations", "exact"},
        {"/v1/images/generations/x", "images"},
        {"/v1/images/edits", "images"},
        {"/v1/images/", "images"},
        {"/v1/images", "all"},
        {"/v1/", "all"},
        {"/v1/chat/completions", "all"},
        {"/ocr/v1/chat/completions", "scans"},
    };

    for (size_t i = 0; i < LENGTH(cases); i++)
        assert_string_equal(route_of(*state, cases[i].path), cases[i].route);
}

/* Clients that were given a base URL without /v1. */
static void a_path_that_no_route_has_is_tried_with_v1(void **state)
{
    static const struct {
        const char *path, *route;
        bool added;
    } cases[] = {
        {"/images/generations", "exact", true}, {"/images/edits", "images", true},
        {"/chat/completions", "all", true},     {"/v1/chat/completions", "all", false},
        {"/ocr/v1/models", "scans", false},     {"/ocr/models", "all", true},
    };
    struct house *house = *state;

    for (size_t i = 0; i < LENGTH(cases); i++) {
        house->request->add_version = false;
        assert_string_equal(route_of(house, cases[i].path), cases[i].route);
        assert_int_equal(house->request->add_version, cases[i].added);
    }
}

static void paths_are_compared_whole_and_case_sensitively(void **state)
{
    static const char *const nowhere[] = {
        "/v1", "/v1/image", "/V1/images/x", "/", "/xv1/images/x", "/images", ""};
    struct house *house = *state;

    house->options.route_count = 2; /* only images */
    for (size_t i = 0; i < LENGTH(nowhere); i++)
        assert_string_equal(route_of(house, nowhere[i]), "");
}

static void a_route_at_the_root_serves_everything(void **state)
{
    static const struct route_options root = {.name = "root", .path = "/"};
    struct route_options only = root;
    struct house *house = *state;

    only.to = &house->scope;
    house->options.routes = &only;
    house->options.route_count = 1;
    assert_string_equal(route_of(house, "/"), "root");
    assert_string_equal(route_of(house, "/anything/at/all"), "root");
}

static void without_a_route_the_fault_says_whose_fault_it_is(void **state)
{
    struct house *house = *state;

    house->options.route_count = 2; /* only images */
    assert_string_equal(route_of(house, "/nowhere"), "");
    assert_int_equal(house->request->fault.code, FAULT_no_route);
    assert_null(house->request->scope);
    house->options.route_count = 0;
    house->options.source_count = 0;
    assert_string_equal(route_of(house, "/v1/chat/completions"), "");
    assert_int_equal(house->request->fault.code, FAULT_no_source);
}

static void a_route_may_say_what_kind_its_calls_are(void **state)
{
    struct house *house = *state;

    house->request->kind = CALL_CHAT;
    assert_string_equal(route_of(house, "/v1/chat/completions"), "all");
    assert_int_equal(house->request->kind, CALL_CHAT); /* auto: as it was told */
    assert_string_equal(route_of(house, "/ocr/v1/chat/completions"), "scans");
    assert_int_equal(house->request->kind, CALL_OCR);
    assert_false(house->request->reader.intent.image);
}

/* G1: a route can make its calls image calls; none can make an image call something uncounted. */
static void g1_a_route_adds_to_the_gate_and_never_takes_from_it(void **state)
{
    struct house *house = *state;

    house->request->kind = CALL_OTHER;
    assert_string_equal(route_of(house, "/v1/images/generations"), "exact");
    assert_int_equal(house->request->kind, CALL_IMAGE);
    assert_true(house->request->reader.intent.image);
    assert_string_equal(route_of(house, "/ocr/v1/responses"), "scans");
    assert_true(house->request->reader.intent.image);
}

/* G2: polls and questions below such a route draw nothing. */
static void g2_what_only_asks_is_no_image_call(void **state)
{
    static const char *const methods[] = {"GET", "HEAD", "DELETE", "OPTIONS"};
    struct house *house = *state;

    for (size_t i = 0; i < LENGTH(methods); i++) {
        house->request->kind = CALL_OTHER;
        house->request->method = methods[i];
        assert_string_equal(route_of(house, "/v1/images/generations"), "exact");
        assert_false(house->request->reader.intent.image);
    }
}

/* H5, B6: the nearer of the scope's deadline and the call's own, from its arrival. */
static void h5_a_call_may_bring_a_nearer_deadline(void **state)
{
    static const struct {
        int64_t scope_ms; /* -1: none */
        const char *header;
        int64_t ms; /* -1: no deadline */
    } cases[] = {
        {-1, NULL, -1},       {-1, "", -1},       {-1, "2", 2000},         {-1, "0.25", 250},
        {-1, "250ms", 250},   {-1, "1ms", 1},     {-1, "86400", 86400000}, {-1, "1d", 86400000},
        {30000, NULL, 30000}, {30000, "", 30000}, {30000, "29.5", 29500},  {30000, "1m", 30000},
    };
    struct house *house = *state;
    struct request *request = house->request;

    for (size_t i = 0; i < LENGTH(cases); i++) {
        fake_fastcgi_reset(house->fcgi);
        if (cases[i].header)
            fake_fastcgi_param(house->fcgi, "HTTP_X_PENSTOCK_DEADLINE", cases[i].header);
        house->scope.call_deadline_ms = cases[i].scope_ms;
        request->arrived_ns = 7 * NS_PER_S;
        request->deadline_ns = CLOCK_NEVER;
        assert_string_equal(route_of(house, "/v1/images/generations"), "exact");
        assert_true(
            request->deadline_ns ==
            (cases[i].ms < 0 ? CLOCK_NEVER : request->arrived_ns + cases[i].ms * NS_PER_MS));
    }
}

static void what_is_no_deadline_is_refused(void **state)
{
    static const char *const bad[] = {
        "soon",
        "-1",
        "0",
        "0.0001",
        "0ms",
        "nan",
        "inf",
        "1e3",
        "1,5",
        "5 s",
        " 5",
        "5;q=1",
        "5, 6",
        "2w",
        "0x10",
        "1.",
        ".5",
        "86400.001",
        "2d",
        "86401",
        "9999999",
        "1.5d",
        "1000000000000000000000",
        "+5",
        "\xC3\xA9",
    };
    struct house *house = *state;

    for (size_t i = 0; i < LENGTH(bad); i++) {
        fake_fastcgi_reset(house->fcgi);
        fake_fastcgi_param(house->fcgi, "HTTP_X_PENSTOCK_DEADLINE", bad[i]);
        house->request->deadline_ns = CLOCK_NEVER;
        if (*route_of(house, "/v1/images/generations"))
            fail_msg("\"%s\" was taken", bad[i]);
        assert_int_equal(house->request->fault.code, FAULT_bad_deadline);
    }
    house->options.route_count = 2; /* only images */
    assert_string_equal(route_of(house, "/nowhere"), "");
    assert_int_equal(house->request->fault.code, FAULT_no_route);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_longest_matching_path_wins, make, drop_house),
        cmocka_unit_test_setup_teardown(a_path_that_no_route_has_is_tried_with_v1, make,
                                        drop_house),
        cmocka_unit_test_setup_teardown(paths_are_compared_whole_and_case_sensitively, make,
                                        drop_house),
        cmocka_unit_test_setup_teardown(a_route_at_the_root_serves_everything, make, drop_house),
        cmocka_unit_test_setup_teardown(without_a_route_the_fault_says_whose_fault_it_is, make,
                                        drop_house),
        cmocka_unit_test_setup_teardown(a_route_may_say_what_kind_its_calls_are, make, drop_house),
        cmocka_unit_test_setup_teardown(g1_a_route_adds_to_the_gate_and_never_takes_from_it, make,
                                        drop_house),
        cmocka_unit_test_setup_teardown(g2_what_only_asks_is_no_image_call, make, drop_house),
        cmocka_unit_test_setup_teardown(h5_a_call_may_bring_a_nearer_deadline, make, drop_house),
        cmocka_unit_test_setup_teardown(what_is_no_deadline_is_refused, make, drop_house),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
