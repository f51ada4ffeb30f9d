/* answers.c - see answers.h. */
#include "tests/tools/upstream/answers.h"

#include "base/clock.h"
#include "base/parse.h"
#include "tests/tools/upstream/request.h"

#include <stdio.h>
#include <string.h>

#define EVENTS_BY_DEFAULT 8
#define PRELUDE_STEP_NS (50 * NS_PER_MS)
#define PICTURE_BYTES_BY_DEFAULT 2048
#define PICTURES_MAX 24 /* of one call: two spans each must fit into a body */

/* The first row that fits wins; the last fits everything. */
static const struct endpoint endpoints[] = {
    {"chat", "POST", "*/chat/completions", false, true, sim_answer_chat},
    {"completions", "POST", "*/completions", false, true, sim_answer_completion},
    {"embeddings", "POST", "*/embeddings", false, false, sim_answer_embeddings},
    {"generations", "POST", "*/images/generations", true, true, sim_answer_images},
    {"edits", "POST", "*/images/edits", true, true, sim_answer_edits},
    {"variations", "POST", "*/images/variations", true, true, sim_answer_images},
    {"response_cancel", "POST", "*/responses/*/cancel", false, false, sim_answer_response_cancel},
    {"responses", "POST", "*/responses", false, true, sim_answer_responses},
    {"response_get", "GET", "*/responses/*", false, false, sim_answer_response_get},
    {"messages", "POST", "*/messages", false, true, sim_answer_messages},
    {"task_submit", "POST", "*/image-synthesis", true, false, sim_answer_task_submit},
    {"task_cancel", "POST", "*/tasks/*/cancel", false, false, sim_answer_task_cancel},
    {"task_get", "GET", "*/tasks/*", false, false, sim_answer_task_get},
    {"multimodal", "POST", "*/multimodal-generation/generation", false, false,
     sim_answer_multimodal},
    {"gemini", "POST", "*/models/*:*enerateContent", false, true, sim_answer_gemini},
    {"predict", "POST", "*/models/*:predict", true, false, sim_answer_predict},
    {"images", "POST", "*/images", true, true, sim_answer_images},
    {"models", "GET", "*/models*", false, false, sim_answer_models},
    {"other", "*", "*", false, false, sim_answer_unknown},
};

const struct endpoint *sim_endpoint_find(const char *method, const char *path)
{
    for (size_t i = 0; i + 1 < LENGTH(endpoints); i++)
        if (strcmp(method, endpoints[i].method) == 0 &&
            parse_glob_matches(endpoints[i].path, path, strlen(path)))
            return &endpoints[i];
    return &endpoints[LENGTH(endpoints) - 1];
}

size_t sim_endpoint_index(const struct endpoint *endpoint)
{
    return (size_t)(endpoint - endpoints);
}

const char *sim_endpoint_name(size_t index)
{
    return index < LENGTH(endpoints) ? endpoints[index].name : NULL;
}

bool sim_answer_is_image_call(const struct call *call)
{
    static const char *const models[] = {"*gpt-image-*", "*chatgpt-image-*", "*dall-e-*",
                                         "*imagen*",     "*-image*",         "*qwen-image*"};
    const char *name = call->endpoint->name;

    if (call->behaviour.image != NOT_GIVEN)
        return call->behaviour.image != 0;
    if (call->endpoint->image)
        return true;
    if (strcmp(call->method, "POST") != 0)
        return false;
    if (strcmp(name, "gemini") == 0)
        return sim_request_mentions(call, "\"IMAGE\"") || strstr(call->path, "-image") != NULL;
    if (strcmp(name, "responses") == 0 && sim_request_mentions(call, "\"image_generation\""))
        return true;
    if (strcmp(name, "chat") == 0 && sim_request_mentions(call, "\"modalities\"") &&
        sim_request_mentions(call, "\"image\""))
        return true;
    for (size_t i = 0; i < LENGTH(models); i++)
        if (parse_glob_matches(models[i], call->model, strlen(call->model)))
            return true;
    return false;
}

void sim_answer_begin(struct call *call)
{
    struct behaviour *behaviour = &call->behaviour;

    call->wall_s = clock_wall_ms() / 1000;
    call->now_ns = clock_monotonic_ns();
    call->status = behaviour->redirect ? 307 : (unsigned)behaviour->status;
    if (behaviour->n != NOT_GIVEN)
        call->n = behaviour->n;
    if (call->n > PICTURES_MAX)
        call->n = PICTURES_MAX;
    if (behaviour->partials != NOT_GIVEN)
        call->partials = behaviour->partials;
    if (behaviour->stream != NOT_GIVEN)
        call->stream = behaviour->stream != 0;
    if (strstr(call->path, ":streamGenerateContent"))
        call->stream = true;
    /* The error comes in the stream, after a good beginning. */
    if (behaviour->error_event != NOT_GIVEN && call->stream && behaviour->status >= 300)
        call->status = 200;
    call->sse = call->stream && call->endpoint->streams && call->status < 300 && !behaviour->echo &&
                !(behaviour->refuses && behaviour->error_event == NOT_GIVEN);
}

static bool answer_whole(struct call *call, struct body *body)
{
    if (call->bad_key[0]) {
        call->status = 400;
        sim_body_text(
            body,
            "{\"error\":{\"type\":\"simulated_upstream\",\"message\":\"bad X-Mock key\",\"key\":");
        sim_body_json(body, call->bad_key);
        sim_body_text(body, "}}");
        return false;
    }
    if (call->behaviour.echo)
        return sim_answer_echo(call, body);
    if (call->status >= 300 || call->behaviour.refuses)
        return sim_answer_error(call, body);
    if (call->behaviour.bad_event != NOT_GIVEN) {
        sim_body_text(body, "{\"broken\": [");
        return false;
    }
    return call->endpoint->answer(call, body);
}

/* How many steps of the family's stream come before any content. */
static uint64_t steps_before_content(const struct call *call)
{
    static const struct {
        const char *family;
        uint64_t steps;
    } rows[] = {{"chat", 1}, {"responses", 4}, {"messages", 1}};

    for (size_t i = 0; i < LENGTH(rows); i++)
        if (strcmp(call->endpoint->name, rows[i].family) == 0)
            return rows[i].steps;
    return 0;
}

/* Comments until prelude_ms have passed since the head. */
static bool prelude_lasts(struct call *call, struct body *body)
{
    int64_t left_ns = call->now_ns + (int64_t)call->behaviour.prelude_ms * NS_PER_MS;

    call->pause_ns = 0;
    if (call->behaviour.prelude_ms == 0 || call->step < steps_before_content(call))
        return false;
    left_ns -= clock_monotonic_ns();
    if (left_ns <= 0)
        return false;
    call->pause_ns = left_ns < PRELUDE_STEP_NS ? left_ns : PRELUDE_STEP_NS;
    sim_body_text(body, ": still thinking\n\n");
    return true;
}

static bool next_piece(struct call *call, struct body *body)
{
    const struct behaviour *behaviour = &call->behaviour;
    bool more;

    if (behaviour->endless_headers) {
        sim_body_printf(body, "X-Endless-%llu: ", (unsigned long long)call->step++);
        sim_body_filler(body, 64, call->step);
        sim_body_text(body, "\r\n");
        return true;
    }
    if (!call->sse)
        return answer_whole(call, body);
    if (call->comments_sent < behaviour->comments) {
        call->comments_sent++;
        sim_body_text(body, ": keep-alive\n\n");
        return true;
    }
    if (prelude_lasts(call, body))
        return true;
    if (call->step == behaviour->error_event) {
        sim_answer_error_event(call, body);
        return false;
    }
    if (call->events_sent++ == behaviour->bad_event) {
        sim_body_text(body, "data: {\"broken\": [\n\n");
        return true;
    }
    more = call->endpoint->answer(call, body);
    call->step++;
    return more;
}

bool sim_answer_next(struct call *call, struct body *body)
{
    bool more;

    sim_body_clear(body);
    more = next_piece(call, body);
    if (call->behaviour.gzip && !call->behaviour.endless_headers)
        sim_body_gzip(body, &call->gzip, !more);
    return more;
}

static const char *reason_of(unsigned status)
{
    static const struct {
        unsigned status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {201, "Created"},
                   {202, "Accepted"},
                   {204, "No Content"},
                   {307, "Temporary Redirect"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {402, "Payment Required"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {408, "Request Timeout"},
                   {409, "Conflict"},
                   {413, "Content Too Large"},
                   {429, "Too Many Requests"},
                   {500, "Internal Server Error"},
                   {502, "Bad Gateway"},
                   {503, "Service Unavailable"},
                   {504, "Gateway Timeout"}};

    for (size_t i = 0; i < LENGTH(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Status";
}

static void head_rates(const struct behaviour *behaviour, struct text *head)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"limit-requests", behaviour->limit_requests},
                   {"remaining-requests", behaviour->remaining_requests},
                   {"limit-tokens", behaviour->limit_tokens},
                   {"remaining-tokens", behaviour->remaining_tokens}};

    for (size_t i = 0; i < LENGTH(numbers); i++)
        if (numbers[i].value != NOT_GIVEN)
            text_printf(head, "x-ratelimit-%s: %llu\r\n", numbers[i].name,
                        (unsigned long long)numbers[i].value);
    if (behaviour->reset_requests[0])
        text_printf(head, "x-ratelimit-reset-requests: %s\r\n", behaviour->reset_requests);
    if (behaviour->reset_tokens[0])
        text_printf(head, "x-ratelimit-reset-tokens: %s\r\n", behaviour->reset_tokens);
    if (behaviour->retry_after[0])
        text_printf(head, "Retry-After: %s\r\n", behaviour->retry_after);
    if (behaviour->retry_after_ms != NOT_GIVEN)
        text_printf(head, "retry-after-ms: %llu\r\n",
                    (unsigned long long)behaviour->retry_after_ms);
}

static void head_extras(const struct call *call, struct text *head)
{
    const struct behaviour *behaviour = &call->behaviour;

    head_rates(behaviour, head);
    if (behaviour->should_retry != NOT_GIVEN)
        text_printf(head, "x-should-retry: %s\r\n", behaviour->should_retry ? "true" : "false");
    if (call->name[0])
        text_printf(head, "x-upstream-name: %s\r\n", call->name);
    if (behaviour->redirect)
        text_append_string(head, "Location: /redirected\r\n");
    if (behaviour->odd_headers)
        text_append_string(head, "Set-Cookie: session=secret\r\nServer: simulated\r\n"
                                 "Alt-Svc: h3=\":443\"\r\nKeep-Alive: timeout=5\r\n"
                                 "Strict-Transport-Security: max-age=31536000\r\n"
                                 "X-Unknown-Header: kept\r\n");
    if (behaviour->head_bytes) {
        size_t length =
            behaviour->head_bytes < FILLER_BYTES ? (size_t)behaviour->head_bytes : FILLER_BYTES;

        text_append_string(head, "X-Padding: ");
        text_append(head, sim_filler_bytes(), length);
        text_append_string(head, "\r\n");
    }
}

static const char *content_type_of(const struct call *call)
{
    if (call->behaviour.ctype[0])
        return call->behaviour.ctype;
    if (call->sse)
        return "text/event-stream; charset=utf-8";
    return call->status >= 300 ? sim_answer_error_type(call) : "application/json";
}

void sim_answer_head(const struct call *call, const struct framing *framing, struct text *head)
{
    for (uint64_t i = 0; i < call->behaviour.interim; i++)
        text_append_string(head, "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n");
    text_printf(head, "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nx-request-id: req_sim_%llu\r\n",
                call->status, reason_of(call->status), content_type_of(call),
                (unsigned long long)call->number);
    if (call->sse)
        text_append_string(head, "Cache-Control: no-cache\r\n");
    head_extras(call, head);
    if (framing->gzip)
        text_append_string(head, "Content-Encoding: gzip\r\n");
    if (framing->close)
        text_append_string(head, "Connection: close\r\n");
    if (framing->chunked)
        text_append_string(head, "Transfer-Encoding: chunked\r\n");
    else if (framing->has_length)
        text_printf(head, "Content-Length: %llu\r\n", (unsigned long long)framing->length);
    if (!call->behaviour.endless_headers)
        text_append_string(head, "\r\n");
}

uint64_t sim_answer_seed(const struct call *call)
{
    return call->behaviour.seed != NOT_GIVEN ? call->behaviour.seed : call->number;
}

long long sim_answer_created(const struct call *call)
{
    return call->behaviour.seed != NOT_GIVEN ? 1700000000 : (long long)call->wall_s;
}

void sim_answer_words(const struct call *call, struct body *body)
{
    if (call->name[0])
        sim_body_printf(body, "%s ", call->name);
    if (call->behaviour.stamp)
        sim_body_printf(body, "t=%lld ", (long long)clock_monotonic_ns());
    if (call->behaviour.size == NOT_GIVEN)
        sim_body_printf(body, "word%llu ", (unsigned long long)call->step);
    else
        sim_body_filler(body, call->behaviour.size, sim_answer_seed(call) + call->step);
}

void sim_answer_picture(const struct call *call, struct body *body, uint64_t index, bool partial)
{
    uint64_t size =
        call->behaviour.size != NOT_GIVEN ? call->behaviour.size : PICTURE_BYTES_BY_DEFAULT;

    sim_body_filler(body, size, sim_answer_seed(call) * 131 + index * 7 + (partial ? 3 : 0));
}

void sim_answer_event(struct body *body, const char *name)
{
    if (name)
        sim_body_printf(body, "event: %s\n", name);
    sim_body_text(body, "data: ");
}

uint64_t sim_answer_events(const struct call *call)
{
    return call->behaviour.events != NOT_GIVEN ? call->behaviour.events : EVENTS_BY_DEFAULT;
}

unsigned long long sim_answer_tokens_in(const struct call *call)
{
    return call->behaviour.in_tokens != NOT_GIVEN ? call->behaviour.in_tokens : 10;
}

unsigned long long sim_answer_tokens_out(const struct call *call, uint64_t usual)
{
    return call->behaviour.out_tokens != NOT_GIVEN ? call->behaviour.out_tokens : usual;
}

void sim_answer_image_usage(struct body *body, uint64_t pictures)
{
    unsigned long long tokens = (unsigned long long)pictures * 1056;

    sim_body_printf(
        body,
        "{\"input_tokens\":50,\"input_tokens_details\":{\"text_tokens\":10,\"image_tokens\":40},"
        "\"output_tokens\":%llu,\"output_tokens_details\":{\"image_tokens\":%llu,"
        "\"text_tokens\":0},\"total_tokens\":%llu}",
        tokens, tokens, tokens + 50);
}
