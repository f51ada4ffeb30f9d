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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
