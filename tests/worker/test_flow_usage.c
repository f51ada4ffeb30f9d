/* test_flow_usage.c - what answers are taken to have used that did not come whole, or did not tell (F6,
 * research 5.4). The web server is tests/fakes/fastcgi. */
#include "tests/worker/flow_house.h"

#include "shared/calibration.h"
#include "worker/flow_usage.h"

/* ---- cut short -------------------------------------------------------------------------------- */

#define SENTENCE " and so it goes on for a while, with one word after the other"

/* What a text is worth, in tokens of a tokenizer that gives so many times as many. */
static int64_t worth(const char *text, double ratio)
{
    struct token_count count = {0};

    token_count_add(&count, text, strlen(text));
    return (int64_t)((double)(token_count_parts(&count) / TOKEN_PARTS) * ratio + 0.5);
}

/* All flows have learned that their tokenizers give so many times as many. */
static void teach(int64_t percent)
{
    const struct token_estimate estimate = {.tokens = 100};
    struct layout_area *layout = segment_layout(&now->segment);

    for (uint32_t i = 0; i < FLOWS_MAX; i++)
        if (layout->flow_hashes[i] != 0)
            calibration_learn(&layout->flows[i].estimate, &estimate, percent, 0);
}

/* Few events with much text. */
static void stream_some_and_close(struct server *with)
{
    server_answer_once(with, STREAM_HEAD ROLE WORD(SENTENCE SENTENCE SENTENCE) WORD(SENTENCE));
}

/* What the call's input is taken for. */
static int64_t input_cost(void)
{
    (void)targets();
    return now->house->request->flow_targets.prices[0].input;
}

static void run_stream(void (*serve)(struct server *), enum step_result end)
{
    scene_ask(now, "/v1/chat/completions", STREAM_BODY);
    scene_serve(now, 0, serve);
    assert_int_equal(scene_run(now), end);
}

static void research_54_a_cut_stream_is_settled_by_what_came(void **state)
{
    const int64_t input = input_cost();

    (void)state;
    run_stream(stream_some_and_close, STEP_FAULT);
    scene_assert_fault(now, FAULT_upstream_cut);
    assert_use("a", 1, input + worth(SENTENCE SENTENCE SENTENCE SENTENCE, 1));
    assert_true(view_of("a").use.units > input + 50);
    assert_int_equal(view_of("a").estimate.ratio_samples, 0);
}

static void f6_what_was_learned_of_the_input_holds_for_the_text_that_comes(void **state)
{
    int64_t input;

    (void)targets();
    teach(170);
    scene_ask(now, "/v1/chat/completions", STREAM_BODY);
    input = input_cost();
    scene_serve(now, 0, stream_some_and_close);
    assert_int_equal(scene_run(*state), STEP_FAULT);
    assert_use("a", 1, input + worth(SENTENCE SENTENCE SENTENCE SENTENCE, 1.7));
}

static void stream_without_usage(struct server *with)
{
    server_answer_once(with, STREAM_HEAD ROLE WORD(SENTENCE) WORD(SENTENCE) DONE);
}

static void research_54_a_whole_stream_without_usage_is_settled_by_its_text(void **state)
{
    const int64_t input = input_cost();

    (void)state;
    run_stream(stream_without_usage, STEP_NEXT);
    assert_use("a", 1, input + worth(SENTENCE SENTENCE, 1));
    assert_int_equal(view_of("a").completed, 1);
    assert_int_equal(view_of("a").estimate.ratio_samples, 0);
    assert_int_equal(view_of("a").estimate.output_samples, 0);
}

static void say_without_usage(struct server *with)
{
    (void)server_answer(
        with, JSON_HEAD,
        "{\"id\":\"chatcmpl-0123456789\",\"object\":\"chat.completion\",\"choices\":[{"
        "\"message\":{\"content\":\"" SENTENCE "\"}}],\"system_fingerprint\":"
        "\"fp_0123456789abcdef0123456789abcdef0123456789abcdef\"}");
}

static void research_54_a_document_without_usage_too(void **state)
{
    const int64_t input = input_cost();

    scene_serve(now, 0, say_without_usage);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_use("a", 1, input + worth(SENTENCE, 1));
}

static void say_encoded(struct server *with)
{
    server_answer_once(with,
                       "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                       "Content-Encoding: gzip\r\nContent-Length: 100\r\n\r\n"
                       "0123456789012345678901234567890123456789012345678901234567890123456789"
                       "012345678901234567890123456789");
}

/* Never nothing, and never all of it back. */
static void research_54_what_cannot_be_read_is_settled_by_its_bytes(void **state)
{
    const int64_t input = input_cost();

    (void)state;
    run_stream(say_encoded, STEP_NEXT);
    assert_use("a", 1, input + 100 / 5);
}

static void say_vectors(struct server *with)
{
    (void)server_answer(with, JSON_HEAD,
                        "{\"data\":[{\"embedding\":[0.0123456789,-0.9876543210,0.0123456789,"
                        "-0.9876543210,0.0123456789,-0.9876543210,0.0123456789]}],"
                        "\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}");
}

static void f6_embeddings_have_no_output(void **state)
{
    struct flow_target target;

    scene_ask(now, "/v1/embeddings", "{\"model\":\"e\",\"input\":\"one two three\"}");
    target = targets();
    assert_int_equal(target.cost, now->house->request->flow_targets.prices[0].input);
    assert_int_equal(target.predicted, 0);
    assert_true(target.cost > 0);
    scene_serve(now, 0, say_vectors);
    assert_int_equal(scene_run(*state), STEP_NEXT);
    assert_use("a", 1, 8);
    assert_int_equal(view_of("a").estimate.ratio_samples, 1);
    assert_int_equal(view_of("a").estimate.output_samples, 0);
}

static void stream_early_usage_and_close(struct server *with)
{
    server_answer_once(
        with, STREAM_HEAD ROLE
        "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}],"
        "\"usage\":{\"prompt_tokens\":500,\"completion_tokens\":1}}\n\n" WORD(SENTENCE));
}

/* What a cut stream told of its usage is its beginning: taken where it is more than what was seen, and
 * nothing is learned from it. */
static void research_54_an_early_usage_is_no_lesson(void **state)
{
    (void)state;
    run_stream(stream_early_usage_and_close, STEP_FAULT);
    assert_use("a", 1, 500 + worth("x" SENTENCE, 1));
    assert_int_equal(view_of("a").estimate.ratio_samples, 0);
}

static void f6_of_an_answer_that_never_came_the_estimate_stays(void **state)
{
    struct flow_target target;

    now->house->request->deadline_ns = now->house->request->arrived_ns + 100 * NS_PER_MS;
    target = targets();
    scene_serve(now, 0, read_and_hold);
    assert_int_equal(scene_run(*state), STEP_FAULT);
    scene_assert_fault(now, FAULT_call_deadline);
    assert_use("a", 1, target.cost);
}

static void also_of_one_whose_output_was_not_charged_before(void **state)
{
    struct flow_target target;

    now->house->scope.tpm_charge = TPM_CHARGE_INPUT;
    now->sources[0].timeout_ms = 100;
    target = targets();
    scene_serve(now, 0, read_and_hold);
    assert_int_equal(scene_run(*state), STEP_FAULT);
    scene_assert_fault(now, FAULT_upstream_timeout);
    assert_use("a", 1, target.cost + target.predicted);
}

static void stream_two_and_hold(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    (void)server_send(fd, STREAM_HEAD ROLE WORD("x"));
    now->house->fcgi->gone = true;
    (void)eventfd_write(now->house->fcgi->fd, 1);
    server_hold(with, fd);
}

static void a_client_that_leaves_midway_leaves_what_it_used(void **state)
{
    const int64_t input = input_cost();

    (void)state;
    run_stream(stream_two_and_hold, STEP_OVER);
    assert_true(now->house->request->client_gone);
    assert_int_equal(view_of("a").in_flight, 0);
    assert_int_equal(view_of("a").use.sends, 1);
    assert_true(view_of("a").use.units >= input);
    assert_int_equal(view_of("a").estimate.ratio_samples, 0);
}

/* ---- a client that leaves near the end ------------------------------------------------------- */

#define FINISH "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
#define USAGE "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":70,\"completion_tokens\":30}}\n\n"

static bool comes_true(const volatile bool *condition)
{
    int64_t until_ns = clock_monotonic_ns() + 15 * NS_PER_S;

    while (!*condition && clock_monotonic_ns() < until_ns)
        clock_sleep_ns(NS_PER_MS);
    return *condition;
}

/* Once its gateway has read that the answer ends. */
static void client_leaves_at_the_end(void)
{
    assert_true(comes_true(&now->house->request->lanes[0]->pictures.delivered.finish_seen));
    assert_true(comes_true(&now->house->request->committed));
    now->house->fcgi->gone = true;
    (void)eventfd_write(now->house->fcgi->fd, 1);
}

/* Has the gateway noticed, and is it reading on? */
static bool reads_on(void)
{
    return comes_true(&now->house->request->discard);
}

static atomic_bool was_held;

static void finish_and_tell_late(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    (void)server_send(fd, STREAM_HEAD ROLE WORD(SENTENCE) FINISH);
    client_leaves_at_the_end();
    atomic_store(&was_held, reads_on() && view_of("a").in_flight == 1);
    (void)server_send(fd, USAGE DONE);
    close(fd);
}

static void research_545_a_stream_that_is_nearly_over_is_read_to_its_usage(void **state)
{
    (void)state;
    atomic_store(&was_held, false);
    run_stream(finish_and_tell_late, STEP_OVER);
    assert_true(now->house->request->client_gone);
    assert_true(atomic_load(&was_held)); /* its place, until the upstream was done */
    assert_use("a", 1, 100);
    assert_int_equal(view_of("a").estimate.ratio_samples, 1);
    assert_string_equal(scene_call(now).outcome, "client_gone");
    assert_int_equal(scene_call(now).tokens_out, 30);
}

static void finish_and_hold(struct server *with)
{
    int fd = server_take(with);

    if (fd < 0)
        return;
    (void)server_send(fd, STREAM_HEAD ROLE WORD(SENTENCE) FINISH);
    client_leaves_at_the_end();
    server_hold(with, fd);
}

static void research_545_but_not_for_long(void **state)
{
    const int64_t input = input_cost();

    (void)state;
    now->house->scope.flow_drain_ms = 50;
    run_stream(finish_and_hold, STEP_OVER);
    assert_true(now->house->request->discard);
    assert_use("a", 1, input + worth(SENTENCE, 1));
    assert_string_equal(scene_call(now).outcome, "client_gone");
}

static void finish_and_go_on_for_ever(struct server *with)
{
    static char words[65536];
    int fd = server_take(with);

    if (fd < 0)
        return;
    memset(words, 'x', sizeof words - 1);
    (void)server_send(fd, STREAM_HEAD ROLE WORD(SENTENCE) FINISH);
    client_leaves_at_the_end();
    if (reads_on())
        while (server_send(fd, "data: {\"choices\":[{\"delta\":{\"content\":\"") &&
               server_send(fd, words) && server_send(fd, "\"}}]}\n\n"))
            continue;
    close(fd);
}

static void research_545_and_not_whatever_comes(void **state)
{
    (void)state;
    now->house->scope.flow_drain_ms = 3600000;
    now->sources[0].timeout_ms = 3600000;
    run_stream(finish_and_go_on_for_ever, STEP_OVER);
    assert_true(now->house->request->attempt->bytes > 1 << 20);
    assert_true(now->house->request->attempt->bytes < 8 << 20);
    assert_int_equal(view_of("a").in_flight, 0);
}

static void research_545_only_where_the_operator_wants_it(void **state)
{
    (void)state;
    now->house->scope.flow_drain_ms = 0;
    run_stream(finish_and_hold, STEP_OVER); /* would hold for twenty seconds */
    assert_false(now->house->request->discard);
    assert_int_equal(view_of("a").in_flight, 0);
}

static void set_stream(struct attempt *attempt, const char *text, int64_t took_ms)
{
    pictures_begin(&attempt->pictures, ENDPOINT_CHAT, "text/event-stream", NULL);
    pictures_count_text(&attempt->pictures, false);
    pictures_feed(&attempt->pictures, text, strlen(text));
    attempt->counting = attempt->is_stream = true;
    attempt->status = 200;
    attempt->started_ns = NS_PER_S;
    attempt->ttft_ns = NS_PER_S;
    attempt->last_ns = 2 * NS_PER_S + took_ms * NS_PER_MS;
}

/* So many words came: of how many, and how fast? */
#define CAME 15

static void research_545_what_is_nearly_over(void **state)
{
    static const struct {
        int64_t max_output, expected, took_ms;
        bool expected_end;
    } rows[] = {
        {-1, 300, 100, false},      /* little has come */
        {18, 18, 60000, true},      /* 83 % of all there may be */
        {19, 19, 60000, false},     /* 79 %, and the rest in 16 s */
        {19, 19, 1000, true},       /* the rest in 0.3 s */
        {-1, 2 * CAME, 4900, true}, /* as long again */
        {-1, 2 * CAME, 5100, false}, {-1, 2 * CAME + 1, 100, false}, /* less than half: who knows */
        {-1, CAME, 100, false}, /* longer than expected: likewise */
        {1000, CAME, 100, false},
    };
    struct request *request = now->house->request;
    struct attempt *attempt = request->lanes[0];

    (void)state;
    scene_ask(now, "/v1/chat/completions", STREAM_BODY);
    (void)targets();
    attempt->flow_place = 0;
    assert_int_equal(worth(SENTENCE, 1), CAME);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        set_stream(attempt, WORD(SENTENCE), rows[i].took_ms);
        request->reader.intent.max_output = rows[i].max_output;
        request->flow_targets.prices[0].cost =
            request->flow_targets.prices[0].input + rows[i].expected;
        if (flow_usage_wants_end(attempt) != rows[i].expected_end)
            fail_msg("row %zu", i);
    }
    attempt->flow_place = NO_INDEX;
}

static void research_545_whose_end_is_not_waited_for(void **state)
{
    struct request *request = now->house->request;
    struct attempt *attempt = request->lanes[0];

    (void)state;
    scene_ask(now, "/v1/chat/completions", STREAM_BODY);
    (void)targets();
    attempt->flow_place = 0;
    set_stream(attempt, WORD(SENTENCE) FINISH, 100);
    assert_true(flow_usage_wants_end(attempt));
#define NOT_WITH(field, value)                                                                     \
    do {                                                                                           \
        __typeof__(field) before = (field);                                                        \
                                                                                                   \
        (field) = (value);                                                                         \
        assert_false(flow_usage_wants_end(attempt));                                               \
        (field) = before;                                                                          \
        assert_true(flow_usage_wants_end(attempt));                                                \
    } while (0)
    NOT_WITH(now->house->scope.flow, FLOW_STRATEGY_RATE);
    NOT_WITH(now->house->scope.flow_drain_ms, 0);
    NOT_WITH(request->reader.intent.image, true); /* has an option of its own */
    NOT_WITH(request->flow_targets.terms[0].unit, FLOW_UNIT_TASKS);
    NOT_WITH(attempt->flow_place, NO_INDEX);
    NOT_WITH(attempt->status, 400);
    NOT_WITH(attempt->is_stream, false);
#undef NOT_WITH
    attempt->flow_place = NO_INDEX;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FLOW(research_54_a_cut_stream_is_settled_by_what_came),
        WITH_FLOW(f6_what_was_learned_of_the_input_holds_for_the_text_that_comes),
        WITH_FLOW(research_54_a_whole_stream_without_usage_is_settled_by_its_text),
        WITH_FLOW(research_54_a_document_without_usage_too),
        WITH_FLOW(research_54_what_cannot_be_read_is_settled_by_its_bytes),
        WITH_FLOW(f6_embeddings_have_no_output),
        WITH_FLOW(research_54_an_early_usage_is_no_lesson),
        WITH_FLOW(f6_of_an_answer_that_never_came_the_estimate_stays),
        WITH_FLOW(also_of_one_whose_output_was_not_charged_before),
        WITH_FLOW(a_client_that_leaves_midway_leaves_what_it_used),
        WITH_FLOW(research_545_a_stream_that_is_nearly_over_is_read_to_its_usage),
        WITH_FLOW(research_545_but_not_for_long),
        WITH_FLOW(research_545_and_not_whatever_comes),
        WITH_FLOW(research_545_only_where_the_operator_wants_it),
        WITH_FLOW(research_545_what_is_nearly_over),
        WITH_FLOW(research_545_whose_end_is_not_waited_for),
    };

    return cmocka_run_group_tests(tests, scene_init_process, NULL);
}
