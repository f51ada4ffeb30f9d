/* requests.h - for the tests of steps: one request of a worker that exists in memory only. The web
 * server is tests/fakes/fastcgi. */
#ifndef TESTS_WORKER_REQUESTS_H
#define TESTS_WORKER_REQUESTS_H

#include "base/clock.h"
#include "tests/fakes/fastcgi.h"
#include "worker/request.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct house {
    struct options options;
    struct source_options source;
    struct scope_member member;
    struct scope_options scope;
    struct route_options route;
    struct worker worker;
    struct bell_seat seat;
    struct request *request;
    struct fastcgi *fcgi; /* the request's */
};

/* Options as a plain installation has them: one route for /v1/ to one source, no gate, no key. */
static inline struct house *house_new(void)
{
    struct house *house = calloc(1, sizeof *house);

    REQUIRE(house != NULL);
    house->source = (struct source_options){.name = "a",
                                            .base_url = "https://a.example",
                                            .api_key = "",
                                            .ca_file = "",
                                            .dashscope_wait_ms = -1};
    house->member = (struct scope_member){.source = &house->source, .weight = 1};
    house->scope = (struct scope_options){
        .name = "r", .direct = true, .members = &house->member, .member_count = 1};
    house->route = (struct route_options){
        .name = "r", .path = "/v1/", .source = "a", .strip_prefix = "", .to = &house->scope};
    house->options.penstock.max_params_bytes = 65536;
    house->options.penstock.state_directory = "/nowhere";
    house->options.sources = &house->source;
    house->options.source_count = 1;
    house->options.routes = &house->route;
    house->options.route_count = 1;
    house->worker.options = &house->options;
    house->seat.event_fd = -1;
    house->request = request_new(&house->worker, &house->seat);
    REQUIRE(house->request != NULL);
    house->fcgi = house->request->fcgi;
    house->request->scope = &house->scope;
    house->request->attempt->source = &house->source;
    house->request->deadline_ns = CLOCK_NEVER;
    house->request->retry_after_ms = -1;
    house->request->should_retry = -1;
    house->request->route = &house->route;
    house->request->client_name = "";
    house->request->method = "POST";
    house->request->raw_target = "/v1/chat/completions";
    house->request->next_heartbeat_ns = CLOCK_NEVER;
    house->request->fault.retry_after_ms = -1;
    (void)text_copy(house->request->call_id, sizeof house->request->call_id, "pst_test");
    ticket_init(&house->request->ticket, &house->worker.gate);
    return house;
}

static inline void house_free(struct house *house)
{
    request_free(house->request);
    free(house);
}

static inline int make_house(void **state)
{
    *state = house_new();
    return 0;
}

static inline int drop_house(void **state)
{
    house_free(*state);
    return 0;
}

#define WITH_HOUSE(test) cmocka_unit_test_setup_teardown(test, make_house, drop_house)

#endif
