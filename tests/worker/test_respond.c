/* test_respond.c - a fault in the words that fit what was sent before: status, event, document, or a
 * connection that is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/requests.h"
#include "worker/reason.h"
#include "worker/respond.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *body_of(const struct house *house)
{
    const char *end = strstr(fake_fastcgi_out(house->fcgi), "\r\n\r\n");

    assert_non_null(end);
    return end + 4;
}

/* The value of a header of the answer, valid until the next call; NULL when it is not there. Fails
 * when it is there twice. */
static const char *header_of(const struct house *house, const char *name)
{
    static char value[200];
    const char *found = NULL;
    size_t length = strlen(name);

    for (const char *line = fake_fastcgi_out(house->fcgi); *line && *line != '\r';
         line = strstr(line, "\r\n") + 2) {
        if (strncasecmp(line, name, length) != 0 || line[length] != ':')
            continue;
        assert_null(found);
        found = line + length + 2;
        (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(found, "\r\n"), found);
    }
    return found ? value : NULL;
}

/* The JSON is one error object with all four keys and this code. */
static void assert_error(const char *json, enum fault_code code)
{
    json_object *read = json_tokener_parse(json);
    json_object *error = NULL;
    json_object *value = NULL;

    assert_non_null(read);
    assert_int_equal(json_object_object_length(read), 1);
    assert_true(json_object_object_get_ex(read, "error", &error));
    assert_int_equal(json_object_object_length(error), 4);
    assert_true(json_object_object_get_ex(error, "message", NULL));
    assert_true(json_object_object_get_ex(error, "type", NULL));
    assert_true(json_object_object_get_ex(error, "param", NULL));
    assert_true(json_object_object_get_ex(error, "code", &value));
    assert_string_equal(json_object_get_string(value), fault_code_text(code));
    json_object_put(read);
}

/* Another fault of another request. */
static void respond_fault(struct house *house, enum fault_code code, int64_t retry_after_ms)
{
    fake_fastcgi_reset(house->fcgi);
    house->request->response = RESPONSE_NONE;
    house->request->fault = (struct fault){.code = FAULT_NONE};
    fault_set(&house->request->fault, code, "%s", "");
    house->request->fault.retry_after_ms = retry_after_ms;
    assert_int_equal(respond_step(house->request), STEP_NEXT);
}

static void every_fault_is_a_status_before_anything_was_sent(void **state)
{
    static const enum fault_code codes[] = {
#define FAULT(name, status, type, should_retry, message) FAULT_##name,
#include "worker/fault_list.h"
#undef FAULT
    };
    struct house *house = *state;

    for (size_t i = 0; i < LENGTH(codes); i++) {
        char number[64];

        if (codes[i] == FAULT_client_gone)
            continue;
        respond_fault(house, codes[i], -1);
        (void)snprintf(number, sizeof number, "%d %s", fault_status(codes[i]),
                       reason_of(fault_status(codes[i])));
        assert_string_equal(header_of(house, "Status"), number);
        assert_int_equal(house->request->status, fault_status(codes[i]));
        assert_string_equal(header_of(house, "Content-Type"), "application/json");
        (void)snprintf(number, sizeof number, "%zu", strlen(body_of(house)));
        assert_string_equal(header_of(house, "Content-Length"), number);
        assert_string_equal(header_of(house, "x-request-id"), "pst_test");
        assert_error(body_of(house), codes[i]);
        assert_true(house->fcgi->ended);
    }
}

/* RFC 9110, 15.5.6 */
static void a_method_that_is_refused_is_told_which_are_not(void **state)
{
    struct house *house = *state;

    respond_fault(house, FAULT_method, -1);
    assert_string_equal(header_of(house, "Status"), "405 Method Not Allowed");
    assert_string_equal(header_of(house, "Allow"), "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    assert_string_equal(header_of(house, "x-should-retry"), "false");
    respond_fault(house, FAULT_bad_request, -1);
    assert_null(header_of(house, "Allow"));
}

/* 1..60 s: SDKs ignore anything longer. Rounded up, so that nobody comes back too early. */
static void retry_after_is_honest_and_within_its_bounds(void **state)
{
    static const struct {
        int64_t after_ms;
        const char *s, *ms;
    } cases[] = {
        {0, "1", "1000"},       {1, "1", "1000"},         {1000, "1", "1000"},
        {1001, "2", "1001"},    {30000, "30", "30000"},   {59001, "60", "59001"},
        {60000, "60", "60000"}, {3600000, "60", "60000"}, {INT64_MAX, "60", "60000"},
    };
    struct house *house = *state;

    for (size_t i = 0; i < LENGTH(cases); i++) {
        respond_fault(house, FAULT_image_queue_full, cases[i].after_ms);
        assert_string_equal(header_of(house, "Retry-After"), cases[i].s);
        assert_string_equal(header_of(house, "retry-after-ms"), cases[i].ms);
    }
}

/* product.md: 429 and 503 carry Retry-After; nothing else invents one. */
static void whoever_may_come_back_is_told_when(void **state)
{
    struct house *house = *state;

    respond_fault(house, FAULT_spool_full, -1);
    assert_string_equal(header_of(house, "Retry-After"), "5");
    respond_fault(house, FAULT_image_limit, -1);
    assert_string_equal(header_of(house, "Retry-After"), "5");
    respond_fault(house, FAULT_no_source, -1); /* only the operator can help */
    assert_null(header_of(house, "Retry-After"));
    respond_fault(house, FAULT_upstream_connect, -1);
    assert_null(header_of(house, "Retry-After"));
    assert_null(header_of(house, "retry-after-ms"));
}

static void should_retry_is_sent_only_where_it_is_known(void **state)
{
    struct house *house = *state;

    respond_fault(house, FAULT_upstream_timeout, -1);
    assert_string_equal(header_of(house, "x-should-retry"), "false"); /* could pay twice (N5) */
    respond_fault(house, FAULT_image_limit, 2000);
    assert_null(header_of(house, "x-should-retry"));
}

static void f7_who_is_turned_away_for_a_quota_is_told_of_it(void **state)
{
    struct house *house = *state;
    struct request *request = house->request;

    request->requests_standing =
        (struct flow_standing){.quota = 60, .left = 1, .full_ns = 1500 * NS_PER_MS};
    request->units_standing =
        (struct flow_standing){.quota = 90000, .left = 0, .full_ns = CLOCK_NEVER};
    request->standing_unit = FLOW_UNIT_TOKENS;
    respond_fault(house, FAULT_rate_limit, 2500);
    assert_string_equal(header_of(house, "Retry-After"), "3");
    assert_string_equal(header_of(house, "retry-after-ms"), "2500");
    assert_string_equal(header_of(house, "x-ratelimit-limit-requests"), "60");
    assert_string_equal(header_of(house, "x-ratelimit-remaining-requests"), "1");
    assert_string_equal(header_of(house, "x-ratelimit-reset-requests"), "1500ms");
    assert_string_equal(header_of(house, "x-ratelimit-limit-tokens"), "90000");
    assert_string_equal(header_of(house, "x-ratelimit-remaining-tokens"), "0");
    assert_string_equal(header_of(house, "x-ratelimit-reset-tokens"), "86400000ms");
    assert_null(header_of(house, "x-should-retry")); /* later it helps */
    request->standing_unit = FLOW_UNIT_IMAGES;
    request->requests_standing.quota = 0; /* not known */
    respond_fault(house, FAULT_rate_limit, 2500);
    assert_null(header_of(house, "x-ratelimit-limit-requests"));
    assert_null(header_of(house, "x-ratelimit-limit-tokens"));
    request->standing_unit = FLOW_UNIT_TOKENS;
    respond_fault(house, FAULT_source_busy, 2500); /* for another reason */
    assert_null(header_of(house, "x-ratelimit-limit-tokens"));
}

static void head_gets_the_head_of_a_fault_only(void **state)
{
    struct house *house = *state;

    house->request->method = "HEAD";
    respond_fault(house, FAULT_no_route, -1);
    assert_string_equal(body_of(house), "");
    assert_true(strtol(header_of(house, "Content-Length"), NULL, 10) > 50);
    assert_true(house->fcgi->ended);
    house->request->method = NULL; /* it may be missing: that is a fault, too */
    respond_fault(house, FAULT_bad_request, -1);
    assert_error(body_of(house), FAULT_bad_request);
}

static void what_the_operator_asked_for_is_told(void **state)
{
    struct house *house = *state;

    house->request->queue_ns = 1234567890;
    house->request->attempts = 2;
    respond_fault(house, FAULT_upstream_connect, -1);
    assert_null(header_of(house, "x-penstock-source"));
    house->options.penstock.penstock_headers = true;
    respond_fault(house, FAULT_upstream_connect, -1);
    assert_string_equal(header_of(house, "x-penstock-scope"), "r");
    assert_string_equal(header_of(house, "x-penstock-source"), "a");
    assert_string_equal(header_of(house, "x-penstock-wait-ms"), "1234");
    assert_string_equal(header_of(house, "x-penstock-attempts"), "2");
    house->request->attempt->source = NULL;
    respond_fault(house, FAULT_no_route, -1);
    assert_null(header_of(house, "x-penstock-source"));
}

/* Whole answers and nothing else: one event of the family, and never "[DONE]" after it. */
static void in_a_stream_a_fault_is_one_event_of_the_family(void **state)
{
    static const struct {
        enum endpoint endpoint;
        enum stream_family family;
    } cases[] = {
        {ENDPOINT_CHAT, STREAM_CHAT},      {ENDPOINT_COMPLETIONS, STREAM_CHAT},
        {ENDPOINT_IMAGES, STREAM_IMAGES},  {ENDPOINT_RESPONSES, STREAM_RESPONSES},
        {ENDPOINT_MESSAGES, STREAM_OTHER}, {ENDPOINT_OTHER, STREAM_OTHER},
    };
    struct house *house = *state;

    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct text event;

        fake_fastcgi_reset(house->fcgi);
        house->request->fault = (struct fault){.code = FAULT_NONE};
        house->request->response = RESPONSE_NONE;
        house->request->reader.intent.endpoint = cases[i].endpoint;
        assert_true(respond_begin(house->request, RESPONSE_STREAM));
        fault_set(&house->request->fault, FAULT_image_queue_timeout, "%s", "");
        assert_int_equal(respond_step(house->request), STEP_NEXT);
        text_init(&event, 4096);
        fault_append_event(&house->request->fault, cases[i].family, &event);
        assert_string_equal(body_of(house), text_string(&event));
        assert_true(house->fcgi->ended);
        assert_int_equal(house->request->status, 429); /* what the log and the ledger say */
        text_release(&event);
    }
}

/* The upstream stopped in the middle of a line: that line must not swallow our event (N4). */
static void n4_a_cut_stream_ends_in_an_event_of_its_own(void **state)
{
    struct house *house = *state;
    struct request *request = house->request;

    request->response = RESPONSE_STREAM;
    request->committed = true;
    request->attempt->counting = true;
    request->attempt->pictures.sse.at_boundary = false;
    (void)fastcgi_write(house->fcgi, "data: {\"half", 12);
    fault_set(&request->fault, FAULT_upstream_cut, "%s", "");
    assert_int_equal(respond_step(request), STEP_NEXT);
    assert_memory_equal(fake_fastcgi_out(house->fcgi), "data: {\"half\n\nevent: error\n", 27);
    assert_true(house->fcgi->ended);
}

static void a_stream_cut_between_events_gets_no_blank_lines_more(void **state)
{
    struct house *house = *state;
    struct request *request = house->request;

    request->response = RESPONSE_STREAM;
    request->committed = true;
    request->attempt->counting = true;
    request->attempt->pictures.body = PICTURES_SSE;
    request->attempt->pictures.sse.at_boundary = true;
    (void)fastcgi_write(house->fcgi, "data: 1\n\n", 9);
    fault_set(&request->fault, FAULT_upstream_cut, "%s", "");
    assert_int_equal(respond_step(request), STEP_NEXT);
    assert_memory_equal(fake_fastcgi_out(house->fcgi), "data: 1\n\nevent: error\n", 22);
}

/* What stands in the reader of a stream that is not read is another request's. */
static void n4_where_an_unread_stream_stopped_is_not_known(void **state)
{
    struct house *house = *state;
    struct request *request = house->request;

    request->response = RESPONSE_STREAM;
    request->committed = true;
    request->attempt->counting = true;
    request->attempt->pictures.body = PICTURES_IGNORED;
    request->attempt->pictures.sse.at_boundary = true;
    (void)fastcgi_write(house->fcgi, "half", 4);
    fault_set(&request->fault, FAULT_upstream_cut, "%s", "");
    assert_int_equal(respond_step(request), STEP_NEXT);
    assert_memory_equal(fake_fastcgi_out(house->fcgi), "half\n\nevent: error\n", 19);
}

static void after_heartbeats_a_fault_is_the_document(void **state)
{
    struct house *house = *state;

    assert_true(respond_begin(house->request, RESPONSE_HEARTBEAT));
    assert_string_equal(header_of(house, "Content-Type"), "application/json");
    assert_null(header_of(house, "Content-Length"));
    assert_true(fastcgi_write(house->fcgi, "  ", 2));
    fault_set(&house->request->fault, FAULT_upstream_timeout, "%s", "");
    assert_int_equal(respond_step(house->request), STEP_NEXT);
    assert_memory_equal(body_of(house), "  {", 3);
    assert_error(body_of(house), FAULT_upstream_timeout);
    assert_true(house->fcgi->ended);
    assert_int_equal(house->request->status, 504); /* logical: 200 was sent */
}

/* N4: never an end that looks like the upstream's own. */
static void n4_in_a_body_a_fault_cuts_the_connection(void **state)
{
    static const struct {
        enum response_state response;
        bool committed;
    } cases[] = {{RESPONSE_BODY, true}, {RESPONSE_BODY, false}, {RESPONSE_HEARTBEAT, true}};
    struct house *house = *state;

    for (size_t i = 0; i < LENGTH(cases); i++) {
        fake_fastcgi_reset(house->fcgi);
        (void)fastcgi_write(house->fcgi, "{\"half\":", 8);
        house->request->response = cases[i].response;
        house->request->committed = cases[i].committed;
        house->request->fault = (struct fault){.code = FAULT_NONE};
        fault_set(&house->request->fault, FAULT_upstream_cut, "%s", "");
        assert_int_equal(respond_step(house->request), STEP_NEXT);
        assert_false(house->fcgi->ended);
        assert_string_equal(fake_fastcgi_out(house->fcgi), "{\"half\":");
        assert_int_equal(house->request->status, 502);
    }
}

static void a_good_answer_is_ended_and_nothing_added(void **state)
{
    struct house *house = *state;

    house->request->response = RESPONSE_BODY;
    house->request->status = 200;
    (void)fastcgi_write(house->fcgi, "{}", 2);
    assert_int_equal(respond_step(house->request), STEP_NEXT);
    assert_true(house->fcgi->ended);
    assert_string_equal(fake_fastcgi_out(house->fcgi), "{}");
    assert_int_equal(house->request->status, 200);
    assert_false(house->request->client_gone);
}

static void a_client_that_left_before_the_end_is_noted(void **state)
{
    struct house *house = *state;

    house->fcgi->gone = true;
    house->request->response = RESPONSE_BODY;
    assert_int_equal(respond_step(house->request), STEP_NEXT);
    assert_true(house->request->client_gone);
    assert_false(house->fcgi->ended);
}

/* Web servers buffer streams unless told otherwise; caches must not keep them. */
static void an_early_head_says_what_comes(void **state)
{
    struct house *house = *state;

    assert_true(respond_begin(house->request, RESPONSE_STREAM));
    assert_int_equal(house->request->response, RESPONSE_STREAM);
    assert_int_equal(house->request->status, 200);
    assert_string_equal(header_of(house, "Content-Type"), "text/event-stream");
    assert_string_equal(header_of(house, "X-Accel-Buffering"), "no");
    assert_string_equal(header_of(house, "Cache-Control"), "no-cache");
    assert_string_equal(header_of(house, "x-request-id"), "pst_test");
    assert_string_equal(body_of(house), "");
}

static void an_early_head_finds_the_client_gone(void **state)
{
    struct house *house = *state;

    house->fcgi->room_bytes = 10;
    assert_false(respond_begin(house->request, RESPONSE_STREAM));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HOUSE(every_fault_is_a_status_before_anything_was_sent),
        WITH_HOUSE(a_method_that_is_refused_is_told_which_are_not),
        WITH_HOUSE(retry_after_is_honest_and_within_its_bounds),
        WITH_HOUSE(whoever_may_come_back_is_told_when),
        WITH_HOUSE(should_retry_is_sent_only_where_it_is_known),
        WITH_HOUSE(f7_who_is_turned_away_for_a_quota_is_told_of_it),
        WITH_HOUSE(head_gets_the_head_of_a_fault_only),
        WITH_HOUSE(what_the_operator_asked_for_is_told),
        WITH_HOUSE(in_a_stream_a_fault_is_one_event_of_the_family),
        WITH_HOUSE(n4_a_cut_stream_ends_in_an_event_of_its_own),
        WITH_HOUSE(a_stream_cut_between_events_gets_no_blank_lines_more),
        WITH_HOUSE(n4_where_an_unread_stream_stopped_is_not_known),
        WITH_HOUSE(after_heartbeats_a_fault_is_the_document),
        WITH_HOUSE(n4_in_a_body_a_fault_cuts_the_connection),
        WITH_HOUSE(a_good_answer_is_ended_and_nothing_added),
        WITH_HOUSE(a_client_that_left_before_the_end_is_noted),
        WITH_HOUSE(an_early_head_says_what_comes),
        WITH_HOUSE(an_early_head_finds_the_client_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
