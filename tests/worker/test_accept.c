/* test_accept.c - what the web server says of a request: taken when it can mean one thing only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/requests.h"
#include "worker/accept.h"

#include <stdio.h>
#include <string.h>

/* A POST for target; other parameters were added before. */
static enum step_result accept_target(struct house *house, const char *target)
{
    fake_fastcgi_param(house->fcgi, "REQUEST_METHOD", "POST");
    fake_fastcgi_param(house->fcgi, "REQUEST_URI", target);
    return accept_step(house->request);
}

/* The same as another request. */
static enum step_result accept_fresh(struct house *house, const char *target)
{
    fake_fastcgi_reset(house->fcgi);
    house->request->fault = (struct fault){.retry_after_ms = -1};
    return accept_target(house, target);
}

static void a_plain_request_is_taken(void **state)
{
    struct house *house = *state;
    struct request *request = house->request;

    clock_set_false(7 * NS_PER_S, 1700000000000);
    fake_fastcgi_param(house->fcgi, "CONTENT_TYPE", "application/json");
    fake_fastcgi_param(house->fcgi, "CONTENT_LENGTH", "12");
    assert_int_equal(accept_target(house, "/v1/chat/completions?a=%2F#x"), STEP_NEXT);
    clock_set_true();
    assert_true(request->accepted);
    assert_string_equal(request->method, "POST");
    assert_string_equal(request->path, "/v1/chat/completions");
    assert_string_equal(request->raw_target, "/v1/chat/completions?a=%2F#x");
    assert_string_equal(request->content_type, "application/json");
    assert_int_equal(request->announced_bytes, 12);
    assert_int_equal(request->arrived_ns, 7 * NS_PER_S);
    assert_int_equal(request->arrived_wall_ms, 1700000000000);
    assert_int_equal(request->fault.code, FAULT_NONE);
}

static void paths_are_decoded_once(void **state)
{
    static const struct {
        const char *target, *path;
    } cases[] = {
        {"/", "/"},
        {"/v1/a%20b", "/v1/a b"},
        {"/v1/%c3%A4", "/v1/\xc3\xa4"},
        {"/v1/%252F", "/v1/%2F"}, /* once: what is left is text */
        {"/v1/models/a:generateContent", "/v1/models/a:generateContent"},
        {"/v1/.hidden/..x/a..", "/v1/.hidden/..x/a.."},
        {"/v1/%0D%0A", "/v1/\r\n"},
        {"/v1/x?//../%2F%00%", "/v1/x"}, /* a query may hold anything */
        {"/v1/x#/../", "/v1/x"},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct house *house = *state;

        assert_int_equal(accept_fresh(house, cases[i].target), STEP_NEXT);
        assert_string_equal(house->request->path, cases[i].path);
    }
}

static void ambiguous_paths_are_refused(void **state)
{
    static const char *const targets[] = {
        "",         "v1/x",       "?x",           "*",        "http://a.example/v1/x",
        "/v1%2Fx",  "/v1%2fx",    "/v1/%5Cx",     "/v1/%5cx", "/v1\\..\\x",
        "/v1/%00",  "/v1/x%00/y", "//v1/x",       "/v1//x",   "/v1/x//",
        "/v1/./x",  "/v1/../x",   "/..",          "/.",       "/v1/x/.",
        "/v1/x/..", "/v1/%2e/x",  "/v1/%2E%2e/x", "/v1/.%2e", "/%2e%2e/v1",
        "/v1/%",    "/v1/%1",     "/v1/%g0",      "/v1/%0g",  "/v1/%%20",
        "/v1/x%?a", "/v1/x%4?1",  "/v1/% 1",      "/v1/%+1",
    };

    for (size_t i = 0; i < LENGTH(targets); i++) {
        struct house *house = *state;

        if (accept_fresh(house, targets[i]) != STEP_FAULT)
            fail_msg("taken: %s", targets[i]);
        assert_int_equal(house->request->fault.code, FAULT_bad_path);
    }
}

/* What is logged of a refused path is never another call's. */
static void a_refused_path_keeps_nothing_of_the_last(void **state)
{
    struct house *house = *state;

    assert_int_equal(accept_fresh(house, "/v1/somebody/elses"), STEP_NEXT);
    assert_int_equal(accept_fresh(house, "/v1/%00"), STEP_FAULT);
    assert_string_equal(house->request->path, "/v1/");
}

static void a_path_has_a_bound(void **state)
{
    struct house *house = *state;
    char target[3 * REQUEST_PATH_MAX + 1];

    memset(target, 'x', sizeof target);
    target[0] = '/';
    target[REQUEST_PATH_MAX - 1] = '\0';
    assert_int_equal(accept_fresh(house, target), STEP_NEXT);
    assert_string_equal(house->request->path, target);
    target[REQUEST_PATH_MAX - 1] = 'x';
    target[REQUEST_PATH_MAX] = '\0';
    assert_int_equal(accept_fresh(house, target), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_bad_path);
    /* the bound is on what it means, and a query is no path */
    target[REQUEST_PATH_MAX - 1] = '?';
    target[REQUEST_PATH_MAX] = 'x';
    target[sizeof target - 1] = '\0';
    assert_int_equal(accept_fresh(house, target), STEP_NEXT);
    assert_int_equal(strlen(house->request->path), REQUEST_PATH_MAX - 1);
}

static void announced_lengths_are_numbers_or_nothing(void **state)
{
    static const struct {
        const char *length;
        int64_t announced;
    } cases[] = {
        {NULL, -1},
        {"", -1},
        {"-1", -1},
        {"12", 12},
        {"0", 0},
        {"+1", -1},
        {"1 ", -1},
        {"0x1", -1},
        {"1,1", -1},
        {"9223372036854775807", INT64_MAX},
        {"9223372036854775808", -1},
        {"99999999999999999999", -1},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct house *house = *state;

        fake_fastcgi_reset(house->fcgi);
        if (cases[i].length)
            fake_fastcgi_param(house->fcgi, "CONTENT_LENGTH", cases[i].length);
        assert_int_equal(accept_target(house, "/v1/x"), STEP_NEXT);
        assert_int_equal(house->request->announced_bytes, cases[i].announced);
    }
}

static void an_empty_content_type_is_none(void **state)
{
    struct house *house = *state;

    fake_fastcgi_param(house->fcgi, "CONTENT_TYPE", "");
    assert_int_equal(accept_target(house, "/v1/x"), STEP_NEXT);
    assert_null(house->request->content_type);
    assert_int_equal(accept_fresh(house, "/v1/x"), STEP_NEXT);
    assert_null(house->request->content_type);
}

static void a_type_that_caddy_made_up_is_none(void **state)
{
    static const char made_up[] = "application/x-www-form-urlencoded";
    struct house *house = *state;

    fake_fastcgi_param(house->fcgi, "CONTENT_TYPE", made_up);
    assert_int_equal(accept_target(house, "/v1/x"), STEP_NEXT);
    assert_string_equal(house->request->content_type, made_up); /* another web server's word */
    fake_fastcgi_param(house->fcgi, "SERVER_SOFTWARE", "Caddy/v2.6.2");
    assert_int_equal(accept_target(house, "/v1/x"), STEP_NEXT);
    assert_null(house->request->content_type);
    fake_fastcgi_param(house->fcgi, "HTTP_CONTENT_TYPE", made_up);
    assert_int_equal(accept_target(house, "/v1/x"), STEP_NEXT);
    assert_string_equal(house->request->content_type, made_up); /* the client's own */
}

static void websocket_is_told_apart(void **state)
{
    static const struct {
        const char *upgrade;
        enum fault_code code;
    } cases[] = {
        {"websocket", FAULT_websocket},
        {"WebSocket", FAULT_websocket},
        {"h2c", FAULT_NONE},
        {"", FAULT_NONE},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct house *house = *state;

        fake_fastcgi_reset(house->fcgi);
        house->request->fault = (struct fault){.retry_after_ms = -1};
        fake_fastcgi_param(house->fcgi, "HTTP_UPGRADE", cases[i].upgrade);
        assert_int_equal(accept_target(house, "/v1/realtime"),
                         cases[i].code == FAULT_NONE ? STEP_NEXT : STEP_FAULT);
        assert_int_equal(house->request->fault.code, cases[i].code);
    }
    assert_int_equal(fault_status(FAULT_websocket), 426);
}

static void a_request_without_method_or_target_is_refused(void **state)
{
    struct house *house = *state;

    assert_int_equal(accept_step(house->request), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_bad_request);
    assert_int_equal(house->request->announced_bytes, -1);
    house->request->fault = (struct fault){.retry_after_ms = -1};
    fake_fastcgi_param(house->fcgi, "REQUEST_METHOD", "");
    fake_fastcgi_param(house->fcgi, "REQUEST_URI", "/v1/x");
    assert_int_equal(accept_step(house->request), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_bad_request);
    /* what is settled afterwards must not be the last request's */
    assert_string_equal(house->request->path, "");
    assert_string_equal(house->request->reader.intent.endpoint_name, "");
}

/* What would be another request line, or another request, to the upstream. */
static void only_a_token_is_a_method(void **state)
{
    static const struct {
        const char *method;
        enum fault_code code;
    } cases[] = {
        {"PATCH", FAULT_NONE},
        {"M-SEARCH", FAULT_NONE},
        {"!#$%&'*+-.^_`|~09az", FAULT_NONE},
        {"G ET", FAULT_bad_request},
        {"GET /v1/x HTTP/1.1\r\nX: y\r\n\r\nGET", FAULT_bad_request},
        {"GET\t", FAULT_bad_request},
        {"G:T", FAULT_bad_request},
        {"G\xc3\xa4T", FAULT_bad_request},
        /* the upstream's answer would be our key, or a tunnel */
        {"TRACE", FAULT_method},
        {"trace", FAULT_method},
        {"CONNECT", FAULT_method},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct house *house = *state;

        fake_fastcgi_reset(house->fcgi);
        house->request->fault = (struct fault){.retry_after_ms = -1};
        fake_fastcgi_param(house->fcgi, "REQUEST_METHOD", cases[i].method);
        fake_fastcgi_param(house->fcgi, "REQUEST_URI", "/v1/x");
        assert_int_equal(accept_step(house->request),
                         cases[i].code == FAULT_NONE ? STEP_NEXT : STEP_FAULT);
        assert_int_equal(house->request->fault.code, cases[i].code);
    }
}

static void a_target_has_no_blank_or_control_byte(void **state)
{
    static const char *const targets[] = {"/v1/a b",   "/v1/a\tb",  "/v1/a?b c",
                                          "/v1/a\x7f", "/v1/a\x01", "/v1/a HTTP/1.1\r\nX: y"};
    struct house *house = *state;

    for (size_t i = 0; i < LENGTH(targets); i++) {
        assert_int_equal(accept_fresh(house, targets[i]), STEP_FAULT);
        assert_int_equal(house->request->fault.code, FAULT_bad_request);
    }
    assert_int_equal(accept_fresh(house, "/v1/\xc3\xa4?\xc3\xa4"), STEP_NEXT);
}

static void parameters_have_a_bound(void **state)
{
    struct house *house = *state;
    size_t bytes = 0;

    house->options.penstock.max_params_bytes = 4096;
    for (unsigned i = 0; i < 40; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "HTTP_X_%02u", i);
        fake_fastcgi_param(house->fcgi, name,
                           "0123456789012345678901234567890123456789012345678901234567890123");
        bytes += strlen(name) + 1 + 64 + 1;
    }
    bytes += sizeof "REQUEST_METHOD=POST" + sizeof "REQUEST_URI=/v1/x";
    assert_true(bytes < 4096);
    house->options.penstock.max_params_bytes = (int64_t)bytes;
    assert_int_equal(accept_target(house, "/v1/x"), STEP_NEXT);
    house->options.penstock.max_params_bytes = (int64_t)bytes - 1;
    assert_int_equal(accept_step(house->request), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_headers_too_large);
    assert_true(house->request->accepted); /* it is settled all the same */
}

static int by_string(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void call_ids_are_unique(void **state)
{
    enum { CALLS = 20000 };
    struct house *house = *state;
    char(*ids)[CALL_ID_SIZE] = calloc(CALLS, sizeof *ids);

    assert_non_null(ids);
    fake_fastcgi_param(house->fcgi, "REQUEST_METHOD", "GET");
    fake_fastcgi_param(house->fcgi, "REQUEST_URI", "/v1/models");
    for (size_t i = 0; i < CALLS; i++) {
        assert_int_equal(accept_step(house->request), STEP_NEXT);
        assert_true(text_copy(ids[i], sizeof ids[i], house->request->call_id));
        assert_int_equal(strlen(ids[i]), 31);
        assert_int_equal(strspn(ids[i] + 4, "0123456789abcdef"), 27);
        assert_memory_equal(ids[i], "pst_", 4);
    }
    qsort(ids, CALLS, sizeof *ids, by_string);
    for (size_t i = 1; i < CALLS; i++)
        assert_string_not_equal(ids[i - 1], ids[i]);
    free(ids);
}

/* The ledger's index grows at its end (docs/why/ledger.md). */
static void call_ids_begin_with_their_time(void **state)
{
    struct house *house = *state;

    clock_set_false(0, 0x18bcfe5687b);
    assert_int_equal(accept_target(house, "/v1/models"), STEP_NEXT);
    clock_set_true();
    assert_memory_equal(house->request->call_id, "pst_18bcfe5687b", 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HOUSE(a_plain_request_is_taken),
        WITH_HOUSE(paths_are_decoded_once),
        WITH_HOUSE(ambiguous_paths_are_refused),
        WITH_HOUSE(a_refused_path_keeps_nothing_of_the_last),
        WITH_HOUSE(a_path_has_a_bound),
        WITH_HOUSE(announced_lengths_are_numbers_or_nothing),
        WITH_HOUSE(an_empty_content_type_is_none),
        WITH_HOUSE(a_type_that_caddy_made_up_is_none),
        WITH_HOUSE(websocket_is_told_apart),
        WITH_HOUSE(a_request_without_method_or_target_is_refused),
        WITH_HOUSE(only_a_token_is_a_method),
        WITH_HOUSE(a_target_has_no_blank_or_control_byte),
        WITH_HOUSE(parameters_have_a_bound),
        WITH_HOUSE(call_ids_are_unique),
        WITH_HOUSE(call_ids_begin_with_their_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
