/* refusals.c - see refusals.h. The words are those that were seen or documented, provider by provider. */
#include "tests/tools/upstream/refusals.h"

#include "base/text.h"

#include <string.h>

static const struct refusal {
    const char *name;
    unsigned status;
    enum dialect dialect;
    const char *type, *code, *message;
    const char *retry_after;
    uint64_t retry_after_ms;
    const char *quota_id;
} refusals[] = {
    {"openai_requests", 429, DIALECT_OPENAI, "requests", "rate_limit_exceeded",
     "Rate limit reached for gpt-4o-mini on requests per min (RPM): Limit 3, Used 3, Requested 1. "
     "Please try again in 1s.",
     "1", 1000, ""},
    {"openai_tokens", 429, DIALECT_OPENAI, "tokens", "rate_limit_exceeded",
     "Rate limit reached for gpt-4o-mini on tokens per min (TPM): Limit 200000. Please try again "
     "in "
     "600ms.",
     "", 600, ""},
    {"openai_slow_down", 429, DIALECT_OPENAI, "rate_limit_error", "slow_down",
     "You are sending requests too fast; please slow down.", "", NOT_GIVEN, ""},
    {"openai_insufficient_quota", 429, DIALECT_OPENAI, "insufficient_quota", "insufficient_quota",
     "You exceeded your current quota, please check your plan and billing details.", "", NOT_GIVEN,
     ""},
    {"openai_overloaded", 503, DIALECT_OPENAI, "service_unavailable_error", "server_is_overloaded",
     "The server is currently overloaded with other requests.", "", NOT_GIVEN, ""},
    {"openai_server_error", 500, DIALECT_OPENAI, "server_error", "server_error",
     "The server had an error while processing your request.", "", NOT_GIVEN, ""},
    {"openai_key", 401, DIALECT_OPENAI, "invalid_request_error", "invalid_api_key",
     "Incorrect API key provided.", "", NOT_GIVEN, ""},
    {"openai_context", 400, DIALECT_OPENAI, "invalid_request_error", "context_length_exceeded",
     "This model's maximum context length is 128000 tokens.", "", NOT_GIVEN, ""},
    {"dashscope_rate", 429, DIALECT_DASHSCOPE, "", "Throttling.RateQuota",
     "Requests rate limit exceeded, please try again later.", "", NOT_GIVEN, ""},
    {"dashscope_allocation", 429, DIALECT_DASHSCOPE, "", "Throttling.AllocationQuota",
     "Allocated quota exceeded, please increase your quota limit.", "", NOT_GIVEN, ""},
    {"dashscope_burst", 429, DIALECT_DASHSCOPE, "", "Throttling.BurstRate",
     "Request rate increased too quickly.", "", NOT_GIVEN, ""},
    {"dashscope_arrearage", 400, DIALECT_DASHSCOPE, "", "Arrearage",
     "Access denied, please make sure your account is in good standing.", "", NOT_GIVEN, ""},
    {"dashscope_key", 401, DIALECT_DASHSCOPE, "", "InvalidApiKey", "Invalid API-key provided.", "",
     NOT_GIVEN, ""},
    {"dashscope_busy", 503, DIALECT_DASHSCOPE, "", "ServiceUnavailable",
     "Too many requests. Your requests are being throttled due to system capacity limits.", "",
     NOT_GIVEN, ""},
    {"compatible_requests", 429, DIALECT_COMPATIBLE, "limit_requests", "limit_requests",
     "You exceeded your current requests list.", "", NOT_GIVEN, ""},
    {"compatible_quota", 429, DIALECT_COMPATIBLE, "insufficient_quota", "insufficient_quota",
     "You exceeded your current quota, please check your plan and billing details.", "", NOT_GIVEN,
     ""},
    {"compatible_burst", 429, DIALECT_COMPATIBLE, "limit_burst_rate", "limit_burst_rate",
     "Request rate increased too quickly.", "", NOT_GIVEN, ""},
    {"compatible_busy", 503, DIALECT_COMPATIBLE, "ServiceUnavailable", "ServiceUnavailable",
     "Too many requests. Your requests are being throttled due to system capacity limits.", "",
     NOT_GIVEN, ""},
    {"compatible_arrearage", 400, DIALECT_COMPATIBLE, "Arrearage", "Arrearage",
     "Access denied, please make sure your account is in good standing.", "", NOT_GIVEN, ""},
    {"azure_requests", 429, DIALECT_AZURE, "", "429",
     "Requests to the ChatCompletions_Create Operation have exceeded the call rate limit. Please "
     "retry after 1 second.",
     "1", 700, ""},
    {"anthropic_rate", 429, DIALECT_ANTHROPIC, "rate_limit_error", "",
     "This request would exceed your organization's rate limit.", "1", NOT_GIVEN, ""},
    {"anthropic_spend", 429, DIALECT_ANTHROPIC, "rate_limit_error", "enforced_spend_limit_reached",
     "Your organization has reached its spend limit.", "", NOT_GIVEN, ""},
    {"anthropic_overloaded", 529, DIALECT_ANTHROPIC, "overloaded_error", "", "Overloaded", "",
     NOT_GIVEN, ""},
    {"gemini_minute", 429, DIALECT_GEMINI, "RESOURCE_EXHAUSTED", "",
     "You exceeded your current quota. Please retry in 1.5s.", "1.5", NOT_GIVEN,
     "GenerateRequestsPerMinutePerProjectPerModel"},
    {"gemini_day", 429, DIALECT_GEMINI, "RESOURCE_EXHAUSTED", "",
     "You exceeded your current quota.", "3600", NOT_GIVEN,
     "GenerateRequestsPerDayPerProjectPerModel"},
};

bool sim_refusal_apply(struct behaviour *behaviour, const char *name)
{
    for (size_t i = 0; i < LENGTH(refusals); i++) {
        const struct refusal *row = &refusals[i];

        if (strcmp(name, row->name) != 0)
            continue;
        behaviour->refuses = true;
        behaviour->status = row->status;
        behaviour->dialect = row->dialect;
        behaviour->retry_after_ms = row->retry_after_ms;
        return text_copy(behaviour->type, sizeof behaviour->type, row->type) &&
               text_copy(behaviour->code, sizeof behaviour->code, row->code) &&
               text_copy(behaviour->message, sizeof behaviour->message, row->message) &&
               text_copy(behaviour->retry_after, sizeof behaviour->retry_after, row->retry_after) &&
               text_copy(behaviour->quota_id, sizeof behaviour->quota_id, row->quota_id);
    }
    return false;
}
