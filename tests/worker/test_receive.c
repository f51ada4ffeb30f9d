/* test_receive.c - what the body's coming in settles: the intent, with what only the target and the headers
 * tell. The reading itself is shown by tests/processes/test_bodies.sh. */
#include "tests/shared/gate_fixture.h"
#include "tests/worker/requests.h"

#include "worker/receive.h"

static struct segment segment;

static int make(void **state)
{
    static const char *const image_models[] = {"gpt-image-*", NULL};
    struct house *house = house_new();

    *state = house;
    fixture_open(&segment, &house->worker.gate, 1, 1);
    house->worker.segment = &segment;
    house->worker.spool_limits =
        (struct spool_limits){.directory = "/nowhere", .above_bytes = 1 << 20};
    house->options.image.image_models = image_models;
    house->options.penstock.max_json_body_bytes = 1 << 20;
    house->options.penstock.max_multipart_body_bytes = 1 << 20;
    house->options.penstock.body_read_timeout_ms = 60000;
    house->request->arrived_ns = clock_monotonic_ns();
    house->request->announced_bytes = -1;
    return 0;
}

static int drop(void **state)
{
    house_free(*state);
    fixture_close(&segment);
    return 0;
}

static bool streams(struct house *house, const char *target, const char *sse, const char *body)
{
    struct request *request = house->request;

    fake_fastcgi_reset(house->fcgi);
    spool_reset(&request->body);
    house->fcgi->body = body;
    house->fcgi->body_length = strlen(body);
    if (sse)
        fake_fastcgi_param(house->fcgi, "HTTP_X_DASHSCOPE_SSE", sse);
    request->raw_target = target;
    (void)text_copy(request->path, sizeof request->path, target);
    request->path[strcspn(request->path, "?")] = '\0';
    assert_int_equal(receive_step(request), STEP_NEXT);
    assert_int_equal(request->body.bytes, strlen(body));
    return request_wants_stream(request);
}

static void the_body_asks_for_a_stream(void **state)
{
    struct house *house = *state;

    assert_true(streams(house, "/v1/chat/completions", NULL, "{\"stream\":true}"));
    assert_false(streams(house, "/v1/chat/completions", NULL, "{\"stream\":false}"));
    assert_false(streams(house, "/v1/chat/completions?alt=sse", "enable", "{}"));
}

/* Its other answer is a list of JSON objects: no early head of an event stream may come before it. */
static void gemini_streams_events_only_when_asked(void **state)
{
    static const char events[] = "/v1beta/models/m:streamGenerateContent";
    static const struct {
        const char *query;
        bool stream;
    } cases[] = {{"", false},           {"?alt=sse", true},   {"?key=k&alt=sse", true},
                 {"?alt=json", false},  {"?alt=sse2", false}, {"?walt=sse", false},
                 {"?a=alt=sse", false}, {"?alt=sse&a", true}};
    struct house *house = *state;

    for (size_t i = 0; i < LENGTH(cases); i++) {
        char target[128];

        (void)snprintf(target, sizeof target, "%s%s", events, cases[i].query);
        assert_int_equal(streams(house, target, NULL, "{}"), cases[i].stream);
    }
    assert_false(streams(house, "/v1beta/models/m:generateContent?alt=sse", NULL, "{}"));
}

/* An early head of a document would not fit the events that follow. */
static void dashscopes_header_asks_for_a_stream(void **state)
{
    static const char draw[] = "/api/v1/services/aigc/multimodal-generation/generation";
    struct house *house = *state;

    assert_true(streams(house, draw, "enable", "{}"));
    assert_true(streams(house, draw, "Enable", "{}"));
    assert_false(streams(house, draw, "disable", "{}"));
    assert_false(streams(house, draw, NULL, "{}"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_body_asks_for_a_stream, make, drop),
        cmocka_unit_test_setup_teardown(gemini_streams_events_only_when_asked, make, drop),
        cmocka_unit_test_setup_teardown(dashscopes_header_asks_for_a_stream, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
