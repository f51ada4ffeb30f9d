/* attempt_book.c - an attempt's end in the books: permit and grant given back, its row for the ledger; see
 * attempt.h. */
#include "worker/attempt.h"

#include "base/clock.h"
#include "worker/flow_call.h"
#include "worker/request.h"

#include <string.h>

#define TOKEN_TEXT_BYTES 4 /* of a prompt, roughly, where nothing is estimated */

/* What the request was taken for when it was sent, in tokens of its input. */
static int64_t estimate_of(const struct attempt *attempt)
{
    const struct request *request = attempt->request;
    const struct intent *intent = &request->reader.intent;

    if (intent->est_input < 0)
        return (int64_t)((intent->body_text_bytes + TOKEN_TEXT_BYTES - 1) / TOKEN_TEXT_BYTES);
    return request->flow_targets.any ? request->flow_targets.prices[attempt->candidate].input
                                     : intent->est_input;
}

static int64_t tokens_of(const struct attempt *attempt)
{
    const struct delivered *delivered = &attempt->pictures.delivered;

    if (!attempt->counting || (delivered->tokens_in < 0 && delivered->tokens_out < 0))
        return -1;
    return (delivered->tokens_in > 0 ? delivered->tokens_in : 0) +
           (delivered->tokens_out > 0 ? delivered->tokens_out : 0);
}

void attempt_fill_record(struct attempt *attempt, int64_t ended_wall_ms, const char *error)
{
    struct request *request = attempt->request;

    attempt->record = (struct attempt_record){
        .started_wall_ms = attempt->started_wall_ms,
        .ended_wall_ms = ended_wall_ms,
        .ttft_ms = attempt->ttft_ns > 0 ? attempt->ttft_ns / NS_PER_MS : -1,
        .generation_ms =
            attempt->last_ns > 0 ? (attempt->last_ns - attempt->started_ns) / NS_PER_MS : -1,
        .est_tokens = estimate_of(attempt),
        .settled_tokens = tokens_of(attempt),
        .status = attempt->status,
        .pid = request->worker->pid,
        .n = attempt->n,
        .hedge = attempt->hedge,
    };
    (void)text_copy(attempt->record.call_id, sizeof attempt->record.call_id, request->call_id);
    (void)text_copy(attempt->record.source, sizeof attempt->record.source, attempt->source->name);
    (void)text_copy(attempt->record.error, sizeof attempt->record.error, error);
    if (attempt->limit_kind)
        (void)text_copy(attempt->record.limit_kind, sizeof attempt->record.limit_kind,
                        attempt->limit_kind);
}

static struct breaker_terms breaker_terms(const struct scope_options *scope)
{
    return (struct breaker_terms){
        .failures = (uint32_t)scope->breaker_failures,
        .share_percent = (uint32_t)scope->breaker_share_percent,
        .share_calls = (uint32_t)scope->breaker_share_calls,
        .cooldown_ns = scope->breaker_cooldown_ms * NS_PER_MS,
        .cooldown_max_ns = scope->breaker_cooldown_max_ms * NS_PER_MS,
    };
}

void attempt_book(struct attempt *attempt, enum source_end end, const char *error)
{
    struct request *request = attempt->request;
    int64_t now_ns = clock_monotonic_ns(), now_wall_ms = clock_wall_ms();
    struct source_outcome outcome = {
        .end = end,
        .transport_ns = attempt->last_ns - attempt->started_ns,
        .out_ns =
            (end == SOURCE_END_OUT || end == SOURCE_END_QUOTA ? attempt->judgement.out_ms
                                                              : attempt->judgement.retry_after_ms) *
            NS_PER_MS,
        .reason = attempt->judgement.error,
        .now_ns = now_ns,
        .now_wall_ms = now_wall_ms,
    };

    if (attempt->booked || !attempt->source)
        return;
    attempt->booked = true;
    outcome.terms = breaker_terms(request->scope);
    source_release(&request->worker->gate, &attempt->permit, &outcome);
    flow_call_end(attempt, strcmp(error, "hedge_cancelled") == 0, now_ns);
    attempt_fill_record(attempt, now_wall_ms, error);
    /* Cancelling does not undo what the upstream does: its reservation stays (R12). */
    attempt->record.kept_est = end == SOURCE_END_UNJUDGED && *error && attempt->status < 400 &&
                               attempt->judgement.class == ATTEMPT_OK && attempt_was_sent(attempt);
}
