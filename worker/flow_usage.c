/* flow_usage.c - what an answer used; see flow_usage.h. */
#include "worker/flow_usage.h"

#include "base/clock.h"
#include "shared/calibration.h"
#include "worker/request.h"

#define JSON_BYTES_PER_TOKEN 5 /* of an answer that does not tell its usage and cannot be read */

bool flow_usage_counts_tokens(const struct attempt *attempt)
{
    return attempt->request->flow_targets.terms[attempt->candidate].unit == FLOW_UNIT_TOKENS;
}

/* It came to its end, and was a good one. */
bool flow_usage_is_whole(const struct attempt *attempt)
{
    return attempt->read_to_end && attempt->fault == FAULT_NONE && attempt->status / 100 == 2;
}

/* What was charged, or would be on top, for the answer. */
static int64_t output_predicted(const struct attempt *attempt)
{
    const struct flow_price *price = &attempt->request->flow_targets.prices[attempt->candidate];

    return price->cost + price->predicted - price->input;
}

/* Embeddings are no output. */
static bool has_output(const struct attempt *attempt)
{
    return attempt->request->reader.intent.endpoint != ENDPOINT_EMBEDDINGS;
}

bool flow_usage_counts_text(const struct attempt *attempt)
{
    return attempt->flow_place != NO_INDEX && flow_usage_counts_tokens(attempt) &&
           has_output(attempt);
}

/* Tokens of the text that came; of one that cannot be read, by its bytes. */
static int64_t text_seen(const struct attempt *attempt)
{
    const struct pictures *pictures = &attempt->pictures;
    struct token_estimate estimate = {.tokens = 0};

    if (pictures->counts_text) {
        estimate.tokens = answer_text_parts(&pictures->text, &estimate.script) / TOKEN_PARTS;
        estimate.script /= TOKEN_PARTS;
    }
    if (estimate.tokens == 0 && (pictures->body == PICTURES_IGNORED || !attempt->is_stream))
        return attempt->bytes / JSON_BYTES_PER_TOKEN;
    return calibration_tokens(attempt->request->flow_targets.prices[attempt->candidate].ratios,
                              &estimate);
}

/* Tokens of the answer, from what is known now: what it tells, else what its text is worth. What is
 * told in the middle of a stream may be its beginning; of a document that did not come, or not whole,
 * nothing is known but what was expected. */
int64_t flow_usage_output(const struct attempt *attempt)
{
    const struct delivered *delivered = &attempt->pictures.delivered;
    const bool good = attempt->counting && attempt->status / 100 == 2;
    const int64_t told = good && delivered->tokens_out > 0 ? delivered->tokens_out : 0;

    if (!has_output(attempt))
        return 0;
    if (told > 0 && (flow_usage_is_whole(attempt) || !attempt->is_stream))
        return told;
    if (good && (flow_usage_is_whole(attempt) || attempt->is_stream)) {
        const int64_t text = text_seen(attempt);

        return told > text ? told : text;
    }
    return output_predicted(attempt);
}

/* What the answer told, if it told anything; of one that is not whole at least what was asked for: the
 * upstream may have made all of it. */
static int64_t told_or_asked(const struct attempt *attempt, int64_t told)
{
    const int64_t asked = attempt->request->flow_targets.prices[attempt->candidate].cost;

    if (!attempt->counting || told <= 0)
        return asked;
    return flow_usage_is_whole(attempt) || told > asked ? told : asked;
}

/* Units used, from what is known now (research 5.4: never nothing, field by field). */
int64_t flow_usage_units(const struct attempt *attempt)
{
    const struct request *request = attempt->request;
    const struct flow_target *target = &request->flow_targets.list[attempt->candidate];
    const struct delivered *delivered = &attempt->pictures.delivered;
    int64_t input = request->flow_targets.prices[attempt->candidate].input;

    switch (target->terms->unit) {
    case FLOW_UNIT_TOKENS:
        if (attempt->counting && delivered->tokens_in > 0)
            input = delivered->tokens_in;
        return input + flow_usage_output(attempt);
    case FLOW_UNIT_IMAGES:
        return told_or_asked(attempt, delivered->pictures);
    case FLOW_UNIT_SECONDS:
        return told_or_asked(attempt, delivered->seconds);
    case FLOW_UNIT_TASKS:
        return target->cost;
    }
    UNREACHABLE();
}

/* ---- its client has left ---------------------------------------------------------------------- */

#define NEARLY_PERCENT 80 /* of max_tokens */

/* How long the rest of what was expected will take, as fast as the first part came: at least half of it,
 * or nobody knows. Nor of what is longer than expected. */
static int64_t rest_takes_ns(const struct attempt *attempt, int64_t seen)
{
    const int64_t expected = output_predicted(attempt);
    const int64_t took_ns = attempt->last_ns - attempt->started_ns - attempt->ttft_ns;

    if (seen <= 0 || seen * 2 < expected || seen >= expected || attempt->ttft_ns == 0)
        return CLOCK_NEVER;
    return (int64_t)((double)took_ns * (double)(expected - seen) / (double)seen);
}

bool flow_usage_wants_end(const struct attempt *attempt)
{
    const struct request *request = attempt->request;
    const int64_t most = request->reader.intent.max_output;
    int64_t seen;

    if (request->scope->flow_drain_ms <= 0 || request->reader.intent.image ||
        attempt->flow_place == NO_INDEX || !flow_usage_counts_tokens(attempt) ||
        request->scope->flow < FLOW_STRATEGY_SHAPING || !attempt->is_stream ||
        attempt->status / 100 != 2)
        return false;
    if (attempt->pictures.delivered.finish_seen)
        return true;
    seen = flow_usage_output(attempt);
    if (most > 0 && seen > most * NEARLY_PERCENT / 100)
        return true;
    return rest_takes_ns(attempt, seen) <= request->scope->flow_drain_ms * NS_PER_MS;
}
