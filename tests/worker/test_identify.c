/* test_identify.c - by what clients are told apart, and that nothing of a key is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shared/segment.h"
#include "tests/worker/requests.h"
#include "worker/identify.h"

#include <string.h>

static struct segment segment;

static int make(void **state)
{
    struct house *house = house_new();

    if (!segment_attach_anonymous(&segment))
        return -1;
    house->worker.segment = &segment;
    *state = house;
    return 0;
}

static int drop(void **state)
{
    segment_detach(&segment);
    house_free(*state);
    return 0;
}

#define PARAMS_MAX 3
struct caller {
    const char *params[PARAMS_MAX][2];
    const char *target; /* NULL = without a query */
};

static uint64_t mark_of(struct house *house, const struct caller *caller)
{
    fake_fastcgi_reset(house->fcgi);
    for (size_t i = 0; i < PARAMS_MAX && caller->params[i][0]; i++)
        fake_fastcgi_param(house->fcgi, caller->params[i][0], caller->params[i][1]);
    house->request->raw_target = caller->target ? caller->target : "/v1/chat/completions";
    assert_int_equal(identify_step(house->request), STEP_NEXT);
    assert_string_equal(house->request->client_name, "");
    assert_int_not_equal(identify_mark(house->request), 0);
    return identify_mark(house->request);
}

static void f8_clients_are_told_apart_by_key_then_by_address(void **state)
{
    static const struct caller others[] = {
        {.params = {{"HTTP_AUTHORIZATION", "Bearer anna"}, {"REMOTE_ADDR", "192.0.2.1"}}},
        {.params = {{"HTTP_AUTHORIZATION", "Bearer bert"}, {"REMOTE_ADDR", "192.0.2.1"}}},
        {.params = {{"HTTP_X_API_KEY", "anna"}}},
        {.params = {{"HTTP_API_KEY", "anna"}}},
        {.params = {{"HTTP_X_GOOG_API_KEY", "anna"}}},
        {.params = {{"HTTP_X_API_KEY", "anna"}, {"HTTP_AUTHORIZATION", "Bearer anna"}}},
        {.params = {{"HTTP_AUTHORIZATION", ""}, {"REMOTE_ADDR", "192.0.2.1"}}},
        {.params = {{"REMOTE_ADDR", "192.0.2.2"}}},
        {.target = "/v1beta/models/m:generateContent?alt=sse&key=anna"},
        {.target = "/v1beta/models/m:generateContent?key=bert&alt=sse"},
        {.target = "/v1/models"},
    };
    uint64_t marks[LENGTH(others)];

    for (size_t i = 0; i < LENGTH(others); i++) {
        marks[i] = mark_of(*state, &others[i]);
        for (size_t other = 0; other < i; other++)
            assert_int_not_equal(marks[i], marks[other]);
    }
}

static void f8_one_client_is_one_wherever_it_comes_from(void **state)
{
    static const struct caller pairs[][2] = {
        {{.params = {{"HTTP_AUTHORIZATION", "Bearer anna"}, {"REMOTE_ADDR", "192.0.2.1"}}},
         {.params = {{"REMOTE_ADDR", "192.0.2.2"}, {"HTTP_AUTHORIZATION", "Bearer anna"}},
          .target = "/v1/responses?key=other"}},
        {{.params = {{"REMOTE_ADDR", "192.0.2.1"}}},
         {.params = {{"REMOTE_ADDR", "192.0.2.1"}, {"HTTP_X_PENSTOCK_CLASS", "bulk"}},
          .target = "/v1/responses?monkey=1"}},
        {{.target = "/v1beta/models/m:generateContent?alt=sse&key=anna"},
         {.params = {{"REMOTE_ADDR", "192.0.2.1"}},
          .target = "/v1beta/models/n:generateContent?key=anna&alt=sse"}},
        {{.target = "/v1/models"}, {.params = {{"REMOTE_ADDR", ""}}}},
    };

    for (size_t i = 0; i < LENGTH(pairs); i++)
        assert_int_equal(mark_of(*state, &pairs[i][0]), mark_of(*state, &pairs[i][1]));
}

/* Who knows a key cannot tell whether it was here: another segment, another salt. */
static void l7_no_hash_of_a_key_outlives_its_segment(void **state)
{
    static const struct caller anna = {.params = {{"HTTP_AUTHORIZATION", "Bearer anna"}}};
    uint64_t mark = mark_of(*state, &anna);

    segment_core(&segment)->boot++;
    assert_int_not_equal(mark_of(*state, &anna), mark);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(f8_clients_are_told_apart_by_key_then_by_address, make,
                                        drop),
        cmocka_unit_test_setup_teardown(f8_one_client_is_one_wherever_it_comes_from, make, drop),
        cmocka_unit_test_setup_teardown(l7_no_hash_of_a_key_outlives_its_segment, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
