/* answer_error.c - refusals in the words of every dialect; see answers.h. */
#include "tests/tools/upstream/answers.h"

#include <stdio.h>
#include <string.h>

struct error_words {
    unsigned status;
    const char *type;
    const char *code;
    const char *message;
};

/* OpenAI's words; the row with status 0 ends the table and fits the rest. */
static const struct error_words openai_words[] = {
    {307, "redirect", "redirect", "Moved."},
    {400, "invalid_request_error", "invalid_value", "Invalid value in the request."},
    {401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."},
    {402, "billing_error", "insufficient_balance", "Insufficient balance."},
    {403, "invalid_request_error", "permission_denied", "Not allowed."},
    {404, "invalid_request_error", "not_found", "Not found."},
    {408, "timeout_error", "request_timeout", "The request timed out."},
    {409, "conflict_error", "conflict", "Conflict."},
    {413, "invalid_request_error", "request_too_large", "The request is too large."},
    {429, "requests", "rate_limit_exceeded", "Rate limit reached for requests."},
    {0, "server_error", "server_error", "The server had an error."},
};
static const struct error_words dashscope_words[] = {
    {400, "", "InvalidParameter", "Parameter is invalid."},
    {401, "", "InvalidApiKey", "Invalid API-key provided."},
    {403, "", "AccessDenied", "Access denied."},
    {404, "", "ModelNotFound", "Model can not be found."},
    {429, "", "Throttling.RateQuota", "Requests rate limit exceeded, please try again later."},
    {0, "", "InternalError", "An internal error has occured."},
};
static const struct error_words compatible_words[] = {
    {400, "invalid_request_error", "invalid_parameter_error", "Parameter is invalid."},
    {401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."},
    {429, "limit_requests", "limit_requests", "You exceeded your current requests list."},
    {0, "internal_error", "internal_error", "An internal error has occured."},
};
static const struct error_words gemini_words[] = {
    {400, "INVALID_ARGUMENT", "", "Request contains an invalid argument."},
    {401, "UNAUTHENTICATED", "", "API key not valid."},
    {403, "PERMISSION_DENIED", "", "Permission denied."},
    {404, "NOT_FOUND", "", "Model is not found."},
    {429, "RESOURCE_EXHAUSTED", "", "You exceeded your current quota."},
    {503, "UNAVAILABLE", "", "The model is overloaded."},
    {0, "INTERNAL", "", "An internal error has occurred."},
};
static const struct error_words anthropic_words[] = {
    {400, "invalid_request_error", "", "Invalid request."},
    {401, "authentication_error", "", "invalid x-api-key"},
    {404, "not_found_error", "", "Not found."},
    {429, "rate_limit_error", "", "This request would exceed your rate limit."},
    {529, "overloaded_error", "", "Overloaded"},
    {0, "api_error", "", "Internal server error"},
};

static const struct error_words *table_of(enum dialect dialect)
{
    switch (dialect) {
    case DIALECT_DASHSCOPE:
        return dashscope_words;
    case DIALECT_COMPATIBLE:
        return compatible_words;
    case DIALECT_GEMINI:
        return gemini_words;
    case DIALECT_ANTHROPIC:
        return anthropic_words;
    case DIALECT_OPENAI:
    case DIALECT_AZURE:
    case DIALECT_HTML:
    case DIALECT_PLAIN:
    case DIALECT_EMPTY:
        break;
    }
    return openai_words;
}

/* The status that the words are for: of an error in a stream, the one it would have had. */
static unsigned status_of(const struct call *call)
{
    return call->status < 300 && call->behaviour.status >= 300 ? (unsigned)call->behaviour.status
                                                               : call->status;
}

/* The words for this call, with what X-Mock put in their place. */
static struct error_words words_of(const struct call *call, enum dialect dialect)
{
    const struct behaviour *behaviour = &call->behaviour;
    const struct error_words *row = table_of(dialect);
    struct error_words words;

    while (row->status && row->status != status_of(call))
        row++;
    words = *row;
    if (behaviour->type[0])
        words.type = behaviour->type;
    if (behaviour->code[0])
        words.code = behaviour->code;
    if (behaviour->message[0])
        words.message = behaviour->message;
    return words;
}

static void named(struct body *body, const char *name, const char *value)
{
    sim_body_text(body, name);
    sim_body_json(body, value);
}

/* {"message":..,"type":..,"param":null,"code":..} */
static void openai_object(struct body *body, const struct error_words *words)
{
    named(body, "{\"message\":", words->message);
    named(body, ",\"type\":", words->type);
    named(body, ",\"param\":null,\"code\":", words->code);
    sim_body_text(body, "}");
}

static void gemini_error(const struct call *call, struct body *body,
                         const struct error_words *words)
{
    sim_body_printf(body, "{\"error\":{\"code\":%u,", status_of(call));
    named(body, "\"message\":", words->message);
    named(body, ",\"status\":", words->type);
    if (call->behaviour.retry_after[0]) {
        sim_body_text(body, ",\"details\":[");
        if (call->behaviour.quota_id[0]) {
            sim_body_text(body, "{\"@type\":\"type.googleapis.com/google.rpc.QuotaFailure\","
                                "\"violations\":[{\"quotaId\":");
            sim_body_json(body, call->behaviour.quota_id);
            sim_body_text(body, "}]},");
        }
        sim_body_text(body,
                      "{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"");
        sim_body_printf(body, "%ss\"}]", call->behaviour.retry_after);
    }
    sim_body_text(body, "}}");
}

static void anthropic_error(struct body *body, const struct error_words *words)
{
    named(body, "{\"type\":\"error\",\"error\":{\"type\":", words->type);
    named(body, ",\"message\":", words->message);
    if (words->code[0]) {
        named(body, ",\"details\":{\"error_code\":", words->code);
        sim_body_text(body, "}");
    }
    sim_body_text(body, "}}");
}

static void json_error(const struct call *call, struct body *body, const struct error_words *words)
{
    switch (call->behaviour.dialect) {
    case DIALECT_OPENAI:
        sim_body_text(body, "{\"error\":");
        openai_object(body, words);
        sim_body_text(body, "}");
        break;
    case DIALECT_AZURE:
        named(body, "{\"error\":{\"code\":",
              call->status == 429 && !call->behaviour.code[0] ? "429" : words->code);
        named(body, ",\"message\":", words->message);
        sim_body_text(body, "}}");
        break;
    case DIALECT_DASHSCOPE:
        named(body, "{\"code\":", words->code);
        named(body, ",\"message\":", words->message);
        sim_body_printf(body, ",\"request_id\":\"req-sim-%llu\"}",
                        (unsigned long long)sim_answer_seed(call));
        break;
    case DIALECT_COMPATIBLE:
        sim_body_text(body, "{\"error\":");
        openai_object(body, words);
        sim_body_printf(body, ",\"request_id\":\"req-sim-%llu\"}",
                        (unsigned long long)sim_answer_seed(call));
        break;
    case DIALECT_GEMINI:
        gemini_error(call, body, words);
        break;
    case DIALECT_ANTHROPIC:
        anthropic_error(body, words);
        break;
    case DIALECT_HTML:
        sim_body_printf(body,
                        "<html><head><title>%u</title></head><body><h1>%u</h1></body></html>\n",
                        call->status, call->status);
        break;
    case DIALECT_PLAIN:
        sim_body_printf(body, "upstream says %u\n", call->status);
        break;
    case DIALECT_EMPTY:
        break;
    }
}

bool sim_answer_error(struct call *call, struct body *body)
{
    struct error_words words = words_of(call, call->behaviour.dialect);

    json_error(call, body, &words);
    return false;
}

bool sim_answer_unknown(struct call *call, struct body *body)
{
    call->status = 404;
    return sim_answer_error(call, body);
}

const char *sim_answer_error_type(const struct call *call)
{
    if (call->behaviour.dialect == DIALECT_HTML)
        return "text/html";
    return call->behaviour.dialect == DIALECT_PLAIN ? "text/plain" : "application/json";
}

/* The Responses API has two ways to say it. */
static void response_error(const struct call *call, struct body *body,
                           const struct error_words *words)
{
    unsigned long long number = (unsigned long long)call->step;

    if (call->behaviour.failed) {
        sim_answer_event(body, "response.failed");
        sim_body_printf(body,
                        "{\"type\":\"response.failed\",\"sequence_number\":%llu,\"response\":{"
                        "\"id\":\"resp_sim%llu\",\"object\":\"response\",\"status\":\"failed\",",
                        number, (unsigned long long)sim_answer_seed(call));
        named(body, "\"error\":{\"code\":", words->code);
        named(body, ",\"message\":", words->message);
        sim_body_text(body, "},\"output\":[]}}\n\n");
        return;
    }
    sim_answer_event(body, "error");
    named(body, "{\"type\":\"error\",\"code\":", words->code);
    named(body, ",\"message\":", words->message);
    sim_body_printf(body, ",\"param\":null,\"sequence_number\":%llu}\n\n", number);
}

void sim_answer_error_event(const struct call *call, struct body *body)
{
    const char *family = call->endpoint->name;
    bool messages = strcmp(family, "messages") == 0;
    struct error_words words =
        words_of(call, messages ? DIALECT_ANTHROPIC : call->behaviour.dialect);

    if (strcmp(family, "responses") == 0) {
        response_error(call, body, &words);
        return;
    }
    sim_answer_event(body, call->endpoint->image || messages ? "error" : NULL);
    if (messages) {
        anthropic_error(body, &words);
    } else if (strcmp(family, "gemini") == 0) {
        gemini_error(call, body, &words);
    } else {
        sim_body_text(body,
                      call->endpoint->image ? "{\"type\":\"error\",\"error\":" : "{\"error\":");
        openai_object(body, &words);
        sim_body_text(body, "}");
    }
    sim_body_text(body, "\n\n");
}
