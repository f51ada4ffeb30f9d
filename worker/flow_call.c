/* flow_call.c - a call's side of flow control; see flow_call.h. */
#include "worker/flow_call.h"

#include "base/clock.h"
#include "worker/flow_usage.h"
#include "worker/identify.h"
#include "worker/request.h"

#include <string.h>
#include <strings.h>

#define PROGRESS_NS NS_PER_S
#define SOUND_BYTES_PER_SECOND 16000 /* compressed as usual */
#define PICTURES_ASKED_MAX 16        /* no upstream draws more for one call: it would refuse */

/* ---- before ---------------------------------------------------------------------------------- */

static struct token_estimate estimate_of(const struct intent *intent)
{
    return (struct token_estimate){.tokens = intent->est_input, .script = intent->est_script};
}

static int64_t pictures_asked(const struct intent *intent)
{
    return intent->choices < PICTURES_ASKED_MAX ? intent->choices : PICTURES_ASKED_MAX;
}

/* As the request says, else by the length of the sound that it brings. */
static int64_t seconds_asked(const struct request *request)
{
    const struct intent *intent = &request->reader.intent;

    return intent->seconds > 0 ? intent->seconds : 1 + request->body.bytes / SOUND_BYTES_PER_SECOND;
}

/* What one unit is, is the source's word (F11). */
static void charge(struct request *request, size_t candidate)
{
    struct flow_targets *targets = &request->flow_targets;
    struct flow_target *target = &targets->list[candidate];
    const struct intent *intent = &request->reader.intent;

    target->cost = 1;
    switch (target->terms->unit) {
    case FLOW_UNIT_TOKENS:
        target->claim = &targets->claim;
        break;
    case FLOW_UNIT_SECONDS:
        target->cost = seconds_asked(request);
        break;
    case FLOW_UNIT_IMAGES:
        target->cost = pictures_asked(intent);
        break;
    case FLOW_UNIT_TASKS:
        break;
    }
    targets->prices[candidate] =
        (struct flow_price){.input = intent->est_input, .cost = target->cost};
}

/* Embeddings are no output. */
static struct flow_claim claim_of(const struct request *request)
{
    const struct intent *intent = &request->reader.intent;

    return (struct flow_claim){
        .estimate = estimate_of(intent),
        .output_max = intent->endpoint == ENDPOINT_EMBEDDINGS ? 0 : intent->max_output,
        .whole = request->scope->tpm_charge == TPM_CHARGE_PREDICTED,
    };
}

/* What asks for work counts; to look at what another call has made is no part of any quota. */
static bool asks_for_work(const struct request *request)
{
    return strcmp(request->method, "POST") == 0;
}

void flow_targets_make(struct request *request)
{
    const struct scope_options *scope = request->scope;
    struct flow_targets *targets = &request->flow_targets;

    targets->any = scope->flow != FLOW_STRATEGY_NONE && asks_for_work(request);
    if (targets->any) {
        targets->class = flow_class_of(request);
        targets->claim = claim_of(request);
    }
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

const char *flow_class_name(enum flow_class class)
{
    static const char *const names[] = {"interactive", "normal", "bulk"};

    return (size_t) class < LENGTH(names) ? names[class] : "unknown";
}

enum flow_class flow_class_of(const struct request *request)
{
    const char *claimed = fastcgi_param(request->fcgi, "HTTP_X_PENSTOCK_CLASS");
    int highest = request->scope->flow_class_header_max;

    if (!claimed || highest == CLASS_CLAIM_NONE)
        return (enum flow_class)request->scope->flow_class;
    for (int i = highest; i < (int)FLOW_CLASSES; i++) /* the first has the highest weight */
        if (strcasecmp(claimed, flow_class_name((enum flow_class)i)) == 0)
            return (enum flow_class)i;
    return (enum flow_class)request->scope->flow_class;
}

/* Until when it may wait. One that holds a slot of the image gate keeps others from it: as long as a
 * backoff may, no longer. */
static int64_t may_wait_until_ns(const struct request *request, int64_t now_ns)
{
    const int64_t deadline_ns = request->plan.terms.deadline_ns;
    int64_t hold_ns;

    if (!request->ticket.granted || request->ticket.place == NO_INDEX)
        return deadline_ns;
    hold_ns = plan_hold_left_ns(&request->plan);
    return hold_ns < deadline_ns - now_ns ? now_ns + hold_ns : deadline_ns;
}

struct flow_call flow_call_of(const struct request *request)
{
    const int64_t now_ns = clock_monotonic_ns();

    return (struct flow_call){
        .class = request->flow_targets.class,
        .client = request->scope->flow_max_waiting_per_client > 0 ? identify_mark(request) : 0,
        .may_wait = true,
        .deadline_ns = may_wait_until_ns(request, now_ns),
        .now_ns = now_ns,
    };
}

/* ---- while it runs --------------------------------------------------------------------------- */

void flow_call_sent(struct attempt *attempt)
{
    if (attempt->flow_place == NO_INDEX || attempt->flow_sent)
        return;
    attempt->flow_sent = true;
    flow_sent(&attempt->request->worker->gate, attempt->flow_place, clock_monotonic_ns());
}

void flow_call_progress(struct attempt *attempt)
{
    if (attempt->flow_place == NO_INDEX || !attempt->is_stream ||
        !flow_usage_counts_tokens(attempt) ||
        attempt->last_ns - attempt->flow_progress_ns < PROGRESS_NS)
        return;
    attempt->flow_progress_ns = attempt->last_ns;
    flow_progress(&attempt->request->worker->gate, attempt->flow_place, flow_usage_units(attempt),
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

/* Whether a minute's quota refused or a second's is told from our own use; without flow control, or
 * without knowing the quota, it is not. */
static bool is_refined(const struct attempt *attempt)
{
    const struct flow_terms *terms = attempt->request->flow_targets.list[attempt->candidate].terms;

    if (attempt->flow_place == NO_INDEX || !terms)
        return false;
    if (terms->strategy == FLOW_STRATEGY_ADAPTIVE)
        return true;
    return (attempt->judgement.dimension == THROTTLE_TOKENS ? terms->units_quota
                                                            : terms->requests_quota) > 0;
}

/* Of a throttle that our own use does not tell apart. */
static const char *throttle_word(const struct judgement *judgement)
{
    static const char *const words[] = {
        [THROTTLE_UNKNOWN] = "unknown",        [THROTTLE_REQUESTS] = "requests",
        [THROTTLE_TOKENS] = "tokens",          [THROTTLE_RAMP] = "burst",
        [THROTTLE_CONCURRENCY] = "saturation",
    };

    if (adaptive_asks_for_minute(judgement->retry_after_ms * NS_PER_MS)) {
        if (judgement->dimension == THROTTLE_REQUESTS)
            return adaptive_kind_name(ADAPTIVE_RPM);
        if (judgement->dimension == THROTTLE_TOKENS)
            return adaptive_kind_name(ADAPTIVE_TPM);
    }
    return words[judgement->dimension];
}

/* For the ledger: which limit of the upstream it ran into (F12); NULL: none. kind: as made right from
 * our own use, where refined. */
static const char *limit_word(const struct attempt *attempt, bool refined, enum adaptive_kind kind)
{
    switch (attempt->judgement.class) {
    case ATTEMPT_THROTTLE:
        return refined ? adaptive_kind_name(kind) : throttle_word(&attempt->judgement);
    case ATTEMPT_TRANSIENT:
        return attempt->status == 503 || attempt->status == 529 ? "saturation" : NULL;
    case ATTEMPT_QUOTA_DAY:
        return "day";
    case ATTEMPT_MONEY:
        return "money";
    case ATTEMPT_OK:
    case ATTEMPT_UNSENT:
    case ATTEMPT_UNKNOWN:
    case ATTEMPT_CREDENTIAL:
    case ATTEMPT_REQUEST:
    case ATTEMPT_OURS:
        return NULL;
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
    int64_t output = flow_usage_output(attempt);
    int64_t input = attempt->request->flow_targets.prices[attempt->candidate].input;

    if (delivered->tokens_in > 0)
        input = delivered->tokens_in - known(delivered->tokens_cached);
    *sample = (struct adaptive_sample){
        .input_tokens = input,
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

/* False: there is nothing to learn from. */
static bool take_usage(const struct attempt *attempt, struct flow_usage *usage)
{
    const struct delivered *delivered = &attempt->pictures.delivered;

    *usage = (struct flow_usage){.estimate = estimate_of(&attempt->request->reader.intent),
                                 .input = delivered->tokens_in,
                                 .output = delivered->tokens_out};
    return attempt->counting && flow_usage_is_whole(attempt) && flow_usage_counts_tokens(attempt) &&
           usage->input > 0;
}

/* The upstream said no, with an error's status or in an answer that is none: it did nothing. */
static bool was_refused(const struct attempt *attempt)
{
    switch (attempt->judgement.class) {
    case ATTEMPT_THROTTLE:
    case ATTEMPT_QUOTA_DAY:
    case ATTEMPT_MONEY:
    case ATTEMPT_CREDENTIAL:
    case ATTEMPT_REQUEST:
        return true;
    case ATTEMPT_OK:
    case ATTEMPT_TRANSIENT:
    case ATTEMPT_UNSENT:
    case ATTEMPT_UNKNOWN:
    case ATTEMPT_OURS:
        return attempt->status >= 400;
    }
    UNREACHABLE();
}

/* The end of one that was sent; end: without what was used and what is learned from it. */
static enum adaptive_kind give_back(struct attempt *attempt, bool lost, const struct flow_end *end)
{
    struct gate *gate = &attempt->request->worker->gate;
    struct flow_end settled = *end;
    struct adaptive_sample sample;
    struct flow_usage usage;

    if (lost)
        return flow_keep(gate, &attempt->flow_place, end);
    if (was_refused(attempt))
        return flow_refund(gate, &attempt->flow_place, end);
    settled.units = flow_usage_units(attempt);
    if (take_usage(attempt, &usage))
        settled.usage = &usage;
    if (attempt->judgement.class == ATTEMPT_OK && flow_usage_is_whole(attempt)) {
        take_sample(attempt, &sample);
        settled.sample = &sample;
    }
    return flow_settle(gate, &attempt->flow_place, &settled);
}

static int64_t paused_until_ns(const struct attempt *attempt, int64_t now_ns)
{
    struct request *request = attempt->request;

    return flow_paused_until_ns(&request->worker->gate,
                                &request->flow_targets.list[attempt->candidate], now_ns);
}

static enum adaptive_kind leave_flow(struct attempt *attempt, bool lost, int64_t now_ns)
{
    struct request *request = attempt->request;
    struct flow_end end = {
        .now_ns = now_ns,
        .kind = ADAPTIVE_FAULT,
        .random = (uint32_t)(request->random + (uint64_t)attempt->started_ns),
    };
    enum adaptive_kind kind;

    if (!attempt->flow_sent) {
        flow_cancel(&request->worker->gate, &attempt->flow_place, now_ns);
        return ADAPTIVE_FAULT;
    }
    if (attempt->judgement.retry_after_ms > 0)
        end.retry_after_ns = attempt->judgement.retry_after_ms * NS_PER_MS;
    end.refused = refusal_of(attempt, &end.kind);
    kind = give_back(attempt, lost, &end);
    if (end.refused)
        attempt->flow_paused_until_ns = paused_until_ns(attempt, now_ns);
    return kind;
}

void flow_call_end(struct attempt *attempt, bool lost, int64_t now_ns)
{
    const bool refined = is_refined(attempt);
    enum adaptive_kind kind = ADAPTIVE_FAULT;

    if (attempt->flow_place != NO_INDEX)
        kind = leave_flow(attempt, lost, now_ns);
    attempt->limit_kind = lost ? NULL : limit_word(attempt, refined, kind);
}
