/*
 * scope_house.h - for the tests of attempts: a request of a scope with up to three sources, each a
 * scripted server, on a gate and a journal of the test's own. The web server is tests/fakes/fastcgi.
 *
 * A script waits for what it depends on (flag_wait), never for a time that should do.
 */
#ifndef TESTS_WORKER_SCOPE_HOUSE_H
#define TESTS_WORKER_SCOPE_HOUSE_H

#include "tests/shared/sources_fixture.h"
#include "tests/worker/requests.h"
#include "tests/worker/scripted_server.h"

#include "base/log.h"
#include "shared/journal.h"
#include "worker/attempts.h"
#include "worker/lanes.h"
#include "worker/relay.h"
#include "worker/respond.h"
#include "worker/settle.h"
#include "worker/upstream.h"

#include <sys/eventfd.h>

enum { SCENE_SOURCES = 3, SCENE_ROWS = 16 };

#define CHAT_BODY "{\"model\":\"gpt-5\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define STREAM_BODY                                                                                \
    "{\"model\":\"gpt-5\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define IMAGE_BODY "{\"model\":\"gpt-image-2\",\"prompt\":\"a cat\"}"

#define JSON_HEAD "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
#define STREAM_HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
#define ROLE "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
#define WORD(text) "data: {\"choices\":[{\"delta\":{\"content\":\"" text "\"}}]}\n\n"
#define DONE "data: [DONE]\n\n"
#define ERROR_EVENT                                                                                \
    "data: "                                                                                       \
    "{\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\",\"code\":\"overloaded\"}}"   \
    "\n\n"

struct scene {
    struct house *house;
    struct segment segment;
    struct source_options sources[SCENE_SOURCES];
    struct scope_member members[SCENE_SOURCES];
    struct scope_options other; /* for fallbacks: source c alone */
    struct scope_member other_member;
    struct server *servers[SCENE_SOURCES];
    char bases[SCENE_SOURCES][64];
};

/* ---- conditions ------------------------------------------------------------------------------- */

/* False when it was not set within what nothing takes. */
static inline bool flag_wait(atomic_bool *flag)
{
    int64_t until_ns = clock_monotonic_ns() + 15 * NS_PER_S;

    while (!atomic_load(flag)) {
        if (clock_monotonic_ns() > until_ns)
            return false;
        clock_sleep_ns(NS_PER_MS);
    }
    return true;
}

/* ---- what servers do -------------------------------------------------------------------------- */

/* One answer with a length; false when the test is over. */
static inline bool server_answer(struct server *with, const char *head, const char *body)
{
    int fd = server_accept(with);
    char length[64];
    bool sent;

    if (fd < 0)
        return false;
    (void)snprintf(length, sizeof length, "Content-Length: %zu\r\n\r\n", strlen(body));
    sent = server_read(with, fd) && server_send(fd, head) && server_send(fd, length) &&
           server_send(fd, body);
    close(fd);
    return sent;
}

/* The connection of one request, read; -1 when the test is over. */
static inline int server_take(struct server *with)
{
    int fd = server_accept(with);

    if (fd >= 0 && server_read(with, fd))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Until the gateway closes it; server->saw_close says so. */
static inline void server_hold(struct server *with, int fd)
{
    while (server_read(with, fd))
        continue;
    close(fd);
}

#define ERROR_BODY(type, code)                                                                     \
    "{\"error\":{\"message\":\"no\",\"type\":\"" type "\",\"param\":null,\"code\":\"" code "\"}}"

static inline void say_500(struct server *with)
{
    while (server_answer(with,
                         "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n",
                         ERROR_BODY("server_error", "boom")))
        continue;
}

static inline void say_429(struct server *with)
{
    while (server_answer(with,
                         "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n",
                         ERROR_BODY("requests", "rate_limit_exceeded")))
        continue;
}

static inline void say_429_for_two_minutes(struct server *with)
{
    while (server_answer(with,
                         "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 120\r\n"
                         "x-should-retry: false\r\nContent-Type: application/json\r\n",
                         ERROR_BODY("requests", "rate_limit_exceeded")))
        continue;
}

static inline void say_hello(struct server *with)
{
    (void)server_answer(with, JSON_HEAD, "{\"from\":\"hello\"}");
}

static inline void stream_hello(struct server *with)
{
    server_answer_once(with, STREAM_HEAD ROLE WORD("hello") DONE);
}

static inline void read_and_hold(struct server *with)
{
    int fd = server_take(with);

    if (fd >= 0)
        server_hold(with, fd);
}

static inline void read_and_close(struct server *with)
{
    int fd;

    while ((fd = server_take(with)) >= 0)
        close(fd);
}

/* ---- the house -------------------------------------------------------------------------------- */

static inline void scene_sources(struct scene *scene)
{
    static const char *const names[] = {"a", "b", "c"};
    struct house *house = scene->house;
    struct source_name registered[SCENE_SOURCES];

    for (unsigned i = 0; i < SCENE_SOURCES; i++) {
        scene->sources[i] = (struct source_options){
            .dashscope_wait_ms = -1,
            .name = names[i],
            .base_url = "http://127.0.0.1:1",
            .api_key = "",
            .ca_file = "",
            .quota_group = names[i],
            .timeout_ms = 20000,
            .connect_timeout_ms = 5000,
            .stream_idle_timeout_ms = 20000,
            .index = i,
        };
        scene->members[i] = (struct scope_member){.source = &scene->sources[i], .weight = 1};
        registered[i] = (struct source_name){.name = names[i], .quota_group = names[i]};
    }
    assert_true(sources_register(&house->worker.gate, registered, SCENE_SOURCES,
                                 house->worker.source_rows));
}

/* As penstock.conf(5) has it, but for waits that are as short as can be. */
static inline void scene_scope(struct scene *scene)
{
    struct house *house = scene->house;

    house->scope = (struct scope_options){
        .name = "s",
        .members = scene->members,
        .member_count = 2,
        .retry_budget = 2,
        .backoff_base_ms = 1,
        .backoff_max_ms = 2,
        .hedge_after_ms = -1,
        .stall_budget_settled_ms = 60000,
        .breaker_failures = 5,
        .breaker_share_percent = 50,
        .breaker_share_calls = 20,
        .breaker_cooldown_ms = 5000,
        .breaker_cooldown_max_ms = 300000,
    };
    scene->other_member = (struct scope_member){.source = &scene->sources[2], .weight = 1};
    scene->other = house->scope;
    scene->other.name = "other";
    scene->other.members = &scene->other_member;
    scene->other.member_count = 1;
}

/* What the call asks for; path decides the endpoint. */
static inline void scene_ask(struct scene *scene, const char *path, const char *body)
{
    static const char *const image_models[] = {"gpt-image*", NULL};
    struct request *request = scene->house->request;
    const struct intent_request asked = {.method = request->method,
                                         .path = path,
                                         .content_type = "application/json",
                                         .image_models = image_models,
                                         .skip_estimate = !request->worker->flows};

    spool_reset(&request->body);
    intent_begin(&request->reader, &asked);
    if (*body) {
        assert_int_equal(spool_write(&request->body, body, strlen(body)), SPOOL_OK);
        intent_feed(&request->reader, body, strlen(body));
    }
    intent_end(&request->reader);
    request->raw_target = path;
    request->content_type = *body ? "application/json" : NULL;
    request->announced_bytes = (int64_t)strlen(body);
}

static inline int scene_make(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    struct worker *worker;

    REQUIRE(scene != NULL);
    scene->house = house_new();
    worker = &scene->house->worker;
    fixture_open(&scene->segment, &worker->gate, 1, 2);
    worker->segment = &scene->segment;
    worker->pid = 4711;
    worker->cut_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    worker->spool_limits = (struct spool_limits){.directory = "/nowhere", .above_bytes = 1 << 20};
    worker->pool = http_pool_new();
    REQUIRE(worker->pool != NULL);
    scene->house->fcgi->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    scene->house->options.penstock.ledger = true;
    scene->house->options.penstock.penstock_headers = true;
    scene->house->options.image.image_retry_hold_ms = 5000;
    scene_sources(scene);
    scene_scope(scene);
    scene->house->request->accepted = true;
    scene->house->request->arrived_ns = clock_monotonic_ns();
    scene_ask(scene, "/v1/chat/completions", CHAT_BODY);
    *state = scene;
    return 0;
}

static inline void scene_stop(struct scene *scene)
{
    struct worker *worker = &scene->house->worker;

    http_pool_free(worker->pool); /* closes what scripts wait for */
    worker->pool = http_pool_new();
    REQUIRE(worker->pool != NULL);
    for (unsigned i = 0; i < SCENE_SOURCES; i++)
        if (scene->servers[i] && scene->servers[i]->script) {
            server_stop(scene->servers[i]);
            scene->servers[i]->script = NULL;
        }
}

/* Whatever happened, nothing is held any more. */
static inline int scene_drop(void **state)
{
    struct scene *scene = *state;
    struct worker *worker = &scene->house->worker;

    upstream_close(scene->house->request);
    scene_stop(scene);
    assert_int_equal(fixture_use(&worker->gate).used, 0);
    assert_int_equal(segment_layout(&scene->segment)->flow_places_used, 0);
    for (unsigned i = 0; i < SCENE_SOURCES; i++) {
        assert_int_equal(
            fixture_view(&worker->gate, scene->sources[i].name, clock_monotonic_ns()).in_flight, 0);
        if (scene->servers[i])
            server_free(scene->servers[i]);
    }
    http_pool_free(worker->pool);
    fixture_close(&scene->segment);
    (void)close(worker->cut_fd);
    (void)close(scene->house->fcgi->fd);
    house_free(scene->house);
    free(scene);
    return 0;
}

#define WITH_SCENE(test) cmocka_unit_test_setup_teardown(test, scene_make, scene_drop)

static inline int scene_init_process(void **state)
{
    (void)state;
    return http_init_process() && log_open(NULL, LOG_FORMAT_LOGFMT, LOG_LEVEL_ERROR) ? 0 : -1;
}

/* ---- running ---------------------------------------------------------------------------------- */

static inline void scene_serve(struct scene *scene, unsigned source,
                               void (*script)(struct server *))
{
    scene->servers[source] = server_start(script);
    (void)snprintf(scene->bases[source], sizeof scene->bases[source], "http://127.0.0.1:%u",
                   scene->servers[source]->port);
    scene->sources[source].base_url = scene->bases[source];
}

static inline void scene_serve_two(struct scene *scene, void (*a)(struct server *),
                                   void (*b)(struct server *))
{
    scene_serve(scene, 0, a);
    scene_serve(scene, 1, b);
}

/* From the chosen answer to the end of the request. */
static inline enum step_result scene_finish(struct scene *scene, enum step_result result)
{
    struct request *request = scene->house->request;

    if (result == STEP_NEXT)
        result = relay_step(request);
    if (result != STEP_OVER)
        (void)respond_step(request);
    assert_int_equal(settle_step(request), STEP_NEXT);
    scene_stop(scene);
    return result;
}

static inline enum step_result scene_run(struct scene *scene)
{
    return scene_finish(scene, attempts_step(scene->house->request));
}

/* The gate's slot, as an image call has it. */
static inline void scene_give_slot(struct scene *scene)
{
    struct house *house = scene->house;

    assert_int_equal(fixture_arrive(&house->worker.gate, false, &house->request->ticket.place),
                     GATE_GRANTED);
    house->request->ticket.granted = true;
    house->options.image.active = true;
    scene_ask(scene, "/v1/images/generations", IMAGE_BODY);
    assert_true(house->request->reader.intent.image);
}

/* ---- what came of it -------------------------------------------------------------------------- */

static inline const char *scene_out(const struct scene *scene)
{
    return fake_fastcgi_out(scene->house->fcgi);
}

/* Behind the head. */
static inline const char *scene_body(const struct scene *scene)
{
    const char *end = strstr(scene_out(scene), "\r\n\r\n");

    return end ? end + 4 : "";
}

/* The line of the answer's head is there, once. */
static inline bool scene_head_has(const struct scene *scene, const char *line)
{
    const char *found = strcasestr(scene_out(scene), line);

    return found && found < scene_body(scene) && !strcasestr(found + 1, line);
}

static inline struct source_view scene_source(struct scene *scene, unsigned source)
{
    return fixture_view(&scene->house->worker.gate, scene->sources[source].name,
                        clock_monotonic_ns());
}

/* The attempt that its call's record tells. */
static inline struct attempt_record scene_told(const struct call_record *call)
{
    struct attempt_record told = {
        .started_wall_ms = call->arrived_wall_ms + call->attempt_start_ms,
        .ended_wall_ms = call->arrived_wall_ms + call->attempt_start_ms + call->attempt_ms,
        .ttft_ms = call->ttft_ms,
        .generation_ms = call->generation_ms,
        .est_tokens = call->est_tokens,
        .settled_tokens = call->tokens_in < 0    ? call->tokens_out
                          : call->tokens_out < 0 ? call->tokens_in
                                                 : call->tokens_in + call->tokens_out,
        .status = call->upstream_status,
        .pid = call->pid,
        .n = 1,
    };

    (void)text_copy(told.call_id, sizeof told.call_id, call->call_id);
    (void)text_copy(told.source, sizeof told.source, call->source);
    return told;
}

/* The journal's attempts, in order; open: those that were written while they ran, else the closed
 * ones, with the one that the call's record tells. Returns their number. */
static inline unsigned scene_rows(struct scene *scene, bool open,
                                  struct attempt_record rows[SCENE_ROWS])
{
    struct journal_area *journal = &segment_instance(&scene->segment)->journal;
    const struct attempt_record *row;
    unsigned count = 0;

    assert_true(journal_sit_down(journal));
    for (uint64_t i = 0; (row = journal_peek_attempt(journal, i)) != NULL; i++) {
        if ((row->ended_wall_ms == 0) != open)
            continue;
        assert_true(count < SCENE_ROWS);
        assert_string_equal(row->call_id, scene->house->request->call_id);
        assert_int_equal(row->pid, 4711);
        rows[count++] = *row;
    }
    if (!open && journal_peek_call(journal, 0) && journal_peek_call(journal, 0)->tells_attempt) {
        assert_int_equal(count, 0);
        rows[count++] = scene_told(journal_peek_call(journal, 0));
    }
    journal_stand_up(journal);
    return count;
}

/* "a:http_500 b:" for closed rows in order of n; a hedge has a + before it. Valid until the next
 * call. */
static inline const char *scene_attempts(struct scene *scene)
{
    static char text[400];
    struct attempt_record rows[SCENE_ROWS];
    unsigned count = scene_rows(scene, false, rows);

    text[0] = '\0';
    for (uint32_t n = 1; n <= SCENE_ROWS; n++)
        for (unsigned i = 0; i < count; i++)
            if (rows[i].n == n)
                (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s%s:%s",
                               *text ? " " : "", rows[i].hedge ? "+" : "", rows[i].source,
                               rows[i].error);
    return text;
}

/* The journal's only call. */
static inline struct call_record scene_call(struct scene *scene)
{
    struct journal_area *journal = &segment_instance(&scene->segment)->journal;
    struct call_record call;

    assert_true(journal_sit_down(journal));
    assert_non_null(journal_peek_call(journal, 0));
    assert_null(journal_peek_call(journal, 1));
    call = *journal_peek_call(journal, 0);
    journal_stand_up(journal);
    return call;
}

/* How often the source was really asked; after the run. */
static inline int scene_asked(const struct scene *scene, unsigned source)
{
    return scene->servers[source] ? atomic_load(&scene->servers[source]->requests) : 0;
}

/* The body of the last request that the source got. */
static inline const char *scene_got(const struct scene *scene, unsigned source)
{
    const struct server *server = scene->servers[source];

    return text_string(&server->last) + server->last_head;
}

/* The call ended with this fault of ours, told in the answer's body. */
static inline void scene_assert_fault(const struct scene *scene, enum fault_code code)
{
    assert_string_equal(fault_code_text(scene->house->request->fault.code), fault_code_text(code));
    assert_non_null(strstr(scene_body(scene), fault_code_text(code)));
}

/* Source b answered say_hello's words in the second attempt; attempts as of scene_attempts. */
static inline void scene_assert_second_answers(struct scene *scene, const char *attempts)
{
    struct call_record call;

    assert_int_equal(scene_run(scene), STEP_NEXT);
    assert_string_equal(scene_body(scene), "{\"from\":\"hello\"}");
    assert_string_equal(scene_attempts(scene), attempts);
    call = scene_call(scene);
    assert_string_equal(call.source, "b");
    assert_string_equal(call.outcome, "ok");
    assert_int_equal(call.attempts, 2);
    assert_int_equal(call.retries, 1);
    assert_int_equal(call.hedges, 0);
    assert_true(scene_head_has(scene, "x-penstock-source: b"));
    assert_true(scene_head_has(scene, "x-penstock-attempts: 2"));
}

#endif
