/* flow_call.c - a call's side of flow control; see flow_call.h. */
#include "worker/flow_call.h"

#include "base/clock.h"
#include "base/hash.h"
#include "shared/flow_estimate.h"
#include "worker/request.h"

#include <string.h>
#include <strings.h>

#define PROGRESS_NS NS_PER_S
#define JSON_BYTES_PER_TOKEN 5       /* of an answer's document, where it does not tell its usage */
#define SOUND_BYTES_PER_SECOND 16000 /* compressed as usual */

/* ---- before ---------------------------------------------------------------------------------- */

/* What one unit is, is the source's word (F11). */
static void charge(struct request *request, size_t candidate)
{
    struct flow_target *target = &request->flow_targets.list[candidate];
    const struct intent *intent = &request->reader.intent;
    bool whole = request->scope->tpm_charge == TPM_CHARGE_PREDICTED;
    struct flow_prediction prediction;

    target->predicted = 0;
    target->cost = 1;
    switch (target->terms->unit) {
    case FLOW_UNIT_TOKENS:
        prediction = flow_predict(&request->worker->gate, target, intent->est_input,
                                  intent->max_output, clock_monotonic_ns());
        request->flow_targets.inputs[candidate] = prediction.input;
        target->cost = prediction.input + (whole ? prediction.output : 0);
        target->predicted = whole ? 0 : prediction.output;
        break;
    case FLOW_UNIT_SECONDS:
        target->cost = 1 + request->body.bytes / SOUND_BYTES_PER_SECOND;
        break;
    case FLOW_UNIT_IMAGES:
    case FLOW_UNIT_TASKS:
        break;
    }
}

void flow_targets_make(struct request *request)
{
    const struct scope_options *scope = request->scope;
    struct flow_targets *targets = &request->flow_targets;

    targets->any = scope->flow != FLOW_STRATEGY_NONE;
    for (size_t i = 0; targets->any && i < scope->member_count; i++) {
        const struct source_options *source = scope->members[i].source;
        const char *model = candidates_model(request, i);

        (void)text_copy(targets->models[i], sizeof targets->models[i],
                        model ? model : request->reader.intent.model);
        targets->terms[i] = options_flow_terms(scope, source, targets->models[i]);
        targets->list[i] = (struct flow_target){.quota_group = source->quota_group,
                                                .model = targets->models[i],
                                                .terms = &targets->terms[i]};
        charge(request, i);
    }
}

static enum flow_class class_of(const struct request *request)
{
    static const char *const names[] = {"interactive", "normal", "bulk"};
    const char *claimed = fastcgi_param(request->fcgi, "HTTP_X_PENSTOCK_CLASS");
    int highest = request->scope->flow_class_header_max;

    if (!claimed || highest == CLASS_CLAIM_NONE)
        return (enum flow_class)request->scope->flow_class;
    for (int i = highest; i < (int)LENGTH(names); i++) /* the first has the highest weight */
        if (strcasecmp(claimed, names[i]) == 0)
            return (enum flow_class)i;
    return (enum flow_class)request->scope->flow_class;
}

struct flow_call flow_call_of(const struct request *request)
{
    return (struct flow_call){
        .class = class_of(request),
        .client = request->client_name,
        .may_wait = true,
        .deadline_ns = request->plan.terms.deadline_ns,
        .now_ns = clock_monotonic_ns(),
    };
}

/* ---- while it runs --------------------------------------------------------------------------- */

void flow_call_sent(struct attempt *attempt)
{
    if (attempt->flow_place == NO_INDEX || attempt->flow_sent)
        return;
    attempt->flow_sent = true;
    flow_sent(&attempt->request->worker->gate, attempt->flow_place, attempt->started_ns);
}

static bool counts_tokens(const struct attempt *attempt)
{
    return attempt->request->flow_targets.terms[attempt->candidate].unit == FLOW_UNIT_TOKENS;
}

/* Tokens of the answer as far as it has been seen: what it tells, else an event of a stream is one,
 * else its bytes. */
static int64_t output_seen(const struct attempt *attempt)
{
    const struct delivered *delivered = &attempt->pictures.delivered;

    if (!attempt->counting || attempt->status / 100 != 2)
        return 0;
    if (delivered->tokens_out > 0)
        return delivered->tokens_out;
    if (attempt->is_stream)
        return (int64_t)attempt->pictures.sse.events;
    return attempt->bytes / JSON_BYTES_PER_TOKEN;
}

/* Units used, from what is known now (research 5.4: never nothing, field by field). */
static int64_t units_used(const struct attempt *attempt)
{
    const struct request *request = attempt->request;
    const struct flow_target *target = &request->flow_targets.list[attempt->candidate];
    const struct delivered *delivered = &attempt->pictures.delivered;
    int64_t input = request->flow_targets.inputs[attempt->candidate];

    switch (target->terms->unit) {
    case FLOW_UNIT_TOKENS:
        if (attempt->counting && delivered->tokens_in > 0)
            input = delivered->tokens_in;
        return input + output_seen(attempt);
    case FLOW_UNIT_IMAGES:
        return attempt->counting && delivered->pictures > 0 ? delivered->pictures : target->cost;
    case FLOW_UNIT_SECONDS:
    case FLOW_UNIT_TASKS:
        return target->cost;
    }
    UNREACHABLE();
}

void flow_call_progress(struct attempt *attempt)
{
    if (attempt->flow_place == NO_INDEX || !attempt->is_stream || !counts_tokens(attempt) ||
        attempt->last_ns - attempt->flow_progress_ns < PROGRESS_NS)
        return;
    attempt->flow_progress_ns = attempt->last_ns;
    flow_progress(&attempt->request->worker->gate, attempt->flow_place, units_used(attempt),
                  attempt->last_ns);
}

/* ---- after ----------------------------------------------------------------------------------- */

/* The knob of the controller that this refusal turns (research 3.3). False: it says nothing of limits. */
static bool refusal_of(const struct attempt *attempt, enum adaptive_kind *ret)
{
    static const enum adaptive_kind kinds[] = {
        [THROTTLE_UNKNOWN] = ADAPTIVE_RPS,     [THROTTLE_REQUESTS] = ADAPTIVE_RPM,
        [THROTTLE_TOKENS] = ADAPTIVE_TPM,      [THROTTLE_RAMP] = ADAPTIVE_BURST,
        [THROTTLE_CONCURRENCY] = ADAPTIVE_CAP,
    };
    const struct judgement *judgement = &attempt->judgement;

    switch (judgement->class) {
    case ATTEMPT_THROTTLE:
        *ret = kinds[judgement->dimension];
        return true;
    case ATTEMPT_TRANSIENT:
        *ret = attempt->status == 503 || attempt->status == 529 ? ADAPTIVE_CAP : ADAPTIVE_FAULT;
        return attempt->bytes == 0 || attempt->status >= 500;
    case ATTEMPT_UNSENT:
    case ATTEMPT_UNKNOWN:
        *ret = ADAPTIVE_FAULT;
        return attempt->bytes == 0;
    case ATTEMPT_OK:
    case ATTEMPT_QUOTA_DAY:
    case ATTEMPT_MONEY:
    case ATTEMPT_CREDENTIAL:
    case ATTEMPT_REQUEST:
    case ATTEMPT_OURS:
        return false;
    }
    UNREACHABLE();
}

static int64_t known(int64_t tokens)
{
    return tokens > 0 ? tokens : 0;
}

static void take_sample(const struct attempt *attempt, struct adaptive_sample *sample)
{
    const struct delivered *delivered = &attempt->pictures.delivered;
    int64_t output = output_seen(attempt);

    *sample = (struct adaptive_sample){
        .input_tokens = attempt->request->reader.intent.est_input,
        .output_tokens = output,
        .streamed_tokens = -1,
        .ttft_ns = attempt->ttft_ns > 0 ? attempt->ttft_ns : -1,
        .latency_ns = attempt->last_ns - attempt->started_ns,
    };
    if (attempt->is_stream && attempt->ttft_ns > 0) {
        sample->streamed_tokens = output - known(delivered->tokens_reasoning);
        sample->decode_ns = sample->latency_ns - attempt->ttft_ns;
    }
}

static void learn_usage(const struct attempt *attempt)
{
    const struct request *request = attempt->request;
    const struct delivered *delivered = &attempt->pictures.delivered;
    const struct flow_prediction usage = {.input = delivered->tokens_in,
                                          .output = delivered->tokens_out};

    if (attempt->counting && attempt->status / 100 == 2 && counts_tokens(attempt) &&
        usage.input > 0)
        flow_learn(&request->worker->gate, attempt->flow_place, request->reader.intent.est_input,
                   &usage);
}

void flow_call_end(struct attempt *attempt, bool lost)
{
    struct gate *gate = &attempt->request->worker->gate;
    struct adaptive_sample sample;
    struct flow_end end = {
        .now_ns = clock_monotonic_ns(),
        .random = (uint32_t)hash_bytes(&attempt->started_ns, sizeof attempt->started_ns),
    };

    if (attempt->flow_place == NO_INDEX)
        return;
    if (attempt_was_sent(attempt))
        flow_call_sent(attempt);
    if (!attempt->flow_sent) {
        flow_cancel(gate, &attempt->flow_place, end.now_ns);
        return;
    }
    if (attempt->judgement.retry_after_ms > 0)
        end.retry_after_ns = attempt->judgement.retry_after_ms * NS_PER_MS;
    end.refused = refusal_of(attempt, &end.kind);
    if (lost) {
        (void)flow_keep(gate, &attempt->flow_place, &end);
    } else if (attempt->status >= 400) {
        (void)flow_refund(gate, &attempt->flow_place, &end);
    } else {
        learn_usage(attempt);
        end.units = units_used(attempt);
        if (attempt->judgement.class == ATTEMPT_OK && attempt->status / 100 == 2) {
            take_sample(attempt, &sample);
            end.sample = &sample;
        }
        (void)flow_settle(gate, &attempt->flow_place, &end);
    }
}
