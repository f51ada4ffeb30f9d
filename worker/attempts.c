/*
 * attempts.c - step 6: from the admitted call to an answer that commits it. The plan (plan.c) says what
 * to do next - try, wait, hedge, cancel, fall back, give up; here it is done, and the plan is told
 * what came of it.
 *
 * Nothing is sent twice that could be paid twice, unless the operator said so (N5). Nothing is tried
 * again after the first content went to the client (H4).
 */
#include "worker/attempts.h"

#include "base/clock.h"
#include "base/parse.h"
#include "worker/heartbeat.h"
#include "worker/lanes.h"
#include "worker/upstream.h"

#include <string.h>

/* ---- the plan's terms ------------------------------------------------------------------------ */

static int64_t option_ns(int64_t option_ms)
{
    return option_ms < 0 ? CLOCK_NEVER : option_ms * NS_PER_MS;
}

/* Until when the caller itself waits for an answer to begin: an SDK says so. Retrying beyond that
 * would be for nobody. */
static int64_t patience_ends_ns(const struct request *request)
{
    const char *text = fastcgi_param(request->fcgi, "HTTP_X_STAINLESS_TIMEOUT");
    int64_t ms;

    if (request->scope->direct || !text || !parse_duration_ms(text, 1000, &ms) || ms <= 0)
        return CLOCK_NEVER;
    return request->arrived_ns + ms * NS_PER_MS;
}

/* Asking for what is there already costs nothing, however often. */
static bool is_harmless(const struct request *request)
{
    return strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
}

/* flow = retry: random exponential waits of 1 to 60 s, the first up to 2 (F2). */
#define RETRY_LEAST_MS 1000
#define RETRY_BASE_MS 2000
#define RETRY_MAX_MS 60000

static int64_t at_least(int64_t ms, bool patient, int64_t patient_ms)
{
    return patient && ms < patient_ms ? patient_ms : ms;
}

/* F3, F9: a retry takes a new token, and all that the call waits for tokens is within its class's bound,
 * on whatever scope. An adaptive controller does not take every Retry-After for its own: there the plan
 * waits it out. */
static void add_flow(const struct request *request, struct plan_terms *terms)
{
    const struct scope_options *scope = request->scope;

    terms->has_flow = request->flow_targets.any && scope->flow >= FLOW_STRATEGY_RATE;
    if (!terms->has_flow)
        return;
    terms->flow_keeps_pauses = scope->flow != FLOW_STRATEGY_ADAPTIVE;
    terms->flow_wait_ns =
        scope->max_wait_ms[request->flow_targets.class] * NS_PER_MS - request->flow_waited_ns;
}

static void begin_plan(struct request *request)
{
    const struct scope_options *first = request->route->to, *scope = request->scope;
    const struct intent *intent = &request->reader.intent;
    int64_t patience_ns = patience_ends_ns(request);
    bool patient = scope->flow == FLOW_STRATEGY_RETRY;
    struct plan_terms terms = {
        .retry_budget = scope->direct ? 0 : (unsigned)scope->retry_budget,
        .throttle_retries = !scope->direct,
        .retry_unknown_outcome = scope->retry_unknown_outcome || is_harmless(request),
        .is_image = intent->image,
        .may_hedge = scope->hedge_after_ms > 0 && intent->hedgeable &&
                     candidates_allow_hedge(&request->candidates),
        .candidates = (unsigned)scope->member_count,
        .accounts = request->candidates.accounts,
        .hedge_after_ns = option_ns(scope->hedge_after_ms),
        .stall_budget_ns = scope->stall_budget_settled_ms * NS_PER_MS,
        .backoff_base_ns = at_least(scope->backoff_base_ms, patient, RETRY_BASE_MS) * NS_PER_MS,
        .backoff_least_ns = patient ? RETRY_LEAST_MS * NS_PER_MS : 0,
        .backoff_max_ns = at_least(scope->backoff_max_ms, patient, RETRY_MAX_MS) * NS_PER_MS,
        .retry_hold_ns = intent->image
                             ? request->worker->options->image.image_retry_hold_ms * NS_PER_MS
                             : CLOCK_NEVER,
        .deadline_ns = patience_ns < request->deadline_ns ? patience_ns : request->deadline_ns,
        .fallbacks = intent->pinned ? 0 : (unsigned)first->fallback_count - request->fallbacks,
    };

    add_flow(request, &terms);
    plan_begin(&request->plan, &terms, request->random + request->fallbacks);
    request->plan.excluded = request->candidates.barred;
}

/* Take over from a pass that is over what the ledger wants to know. */
static void end_plan(struct request *request)
{
    request->retries += request->plan.retries;
    request->hedges += request->plan.hedges;
    request->hedges_skipped += request->plan.hedges_skipped;
    request->flow_waited_ns += request->plan.flow_waited_ns;
    request->plan.flow_waited_ns = 0;
    request->plan.retries = request->plan.hedges = request->plan.hedges_skipped = 0;
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* The call is over without an answer of an upstream. */
static enum step_result give_up(struct request *request, const char *error)
{
    lanes_stop(request, error);
    end_plan(request);
    /* The upstream's connections are closed: only now does the slot go (N1). */
    ticket_give(&request->ticket, request->client_gone ? WAIT_CLIENT_GONE : WAIT_DONE, NULL);
    return request->client_gone ? STEP_OVER : STEP_FAULT;
}

static enum step_result stopped(struct request *request)
{
    return give_up(request, request->client_gone ? "client_cancelled" : "shutdown");
}

static void set_no_source(struct request *request)
{
    static const char *const why[] = {
        [FLOW_OPEN] = "",
        [FLOW_GRANTED] = "",
        [FLOW_QUEUED] = "",
        [FLOW_EXPIRED] = "It waited as long as it may.",
        [FLOW_REFUSED_BUSY] = "No more calls can wait.",
        [FLOW_REFUSED_THREADS] = "The worker that it came to has no thread left for it to wait in.",
        [FLOW_REFUSED_FULL] = "Too many calls wait already.",
        [FLOW_REFUSED_CLIENT] = "Too many calls of this client wait already.",
        [FLOW_REFUSED_HOPELESS] = "Its turn would come too late.",
    };

    if (request->flow_refusal != FLOW_OPEN)
        fault_set(&request->fault, FAULT_rate_limit, "%s", why[request->flow_refusal]);
    else
        fault_set(&request->fault, FAULT_sources_unavailable, "%s", "");
}

static enum step_result fail(struct request *request, const struct plan_step *step)
{
    struct attempt *attempt = request->lanes[step->lane];

    if (request->fault.code == FAULT_NONE) {
        switch (step->fail) {
        case PLAN_FAIL_DEADLINE:
            fault_set(&request->fault, FAULT_call_deadline, "%s", "");
            break;
        case PLAN_FAIL_TRANSPORT:
            request->attempt = attempt;
            fault_set(&request->fault,
                      attempt->fault != FAULT_NONE ? attempt->fault : FAULT_upstream_bad_answer,
                      "%s", "");
            break;
        case PLAN_FAIL_CREDENTIAL:
            fault_set(&request->fault, FAULT_upstream_credentials, "%s", "");
            break;
        case PLAN_FAIL_NO_SOURCE:
            set_no_source(request);
            break;
        case PLAN_FAIL_BUSY:
            fault_set(&request->fault, FAULT_source_busy, "%s", "");
            break;
        }
        request->fault.retry_after_ms = step->retry_after_ms;
        request->should_retry = request->scope->direct ? -1 : step->should_retry;
    }
    return give_up(request, "deadline");
}

/* Throttled by an upstream that does not say for how long: its flow knows how long it is held back. */
static int64_t told_wait_ms(const struct attempt *attempt, const struct plan_step *step)
{
    int64_t left_ns;

    if (step->retry_after_ms >= 0 || step->should_retry != 1 || attempt->flow_paused_until_ns == 0)
        return step->retry_after_ms;
    left_ns = attempt->flow_paused_until_ns - clock_monotonic_ns();
    return left_ns > 0 ? (left_ns + NS_PER_MS - 1) / NS_PER_MS : step->retry_after_ms;
}

/* This lane's answer goes to the client. */
static enum step_result choose(struct request *request, const struct plan_step *step)
{
    struct attempt *attempt = request->lanes[step->lane];

    end_plan(request);
    request->attempt = attempt;
    request->hedge_won = attempt->hedge && step->what == PLAN_COMMIT;
    request->retry_after_ms = told_wait_ms(attempt, step);
    request->should_retry = request->scope->direct ? -1 : step->should_retry;
    for (unsigned lane = 0; lane < PLAN_LANES; lane++)
        if (request->lanes[lane] && request->lanes[lane] != attempt)
            attempt_end(request->lanes[lane]);
    return STEP_NEXT;
}

/* ---- going on -------------------------------------------------------------------------------- */

/* The next entry of the fallback list that can serve the call; false: there is none. */
static bool fall_back(struct request *request)
{
    const struct scope_options *first = request->route->to;

    while (request->fallbacks < first->fallback_count) {
        const struct scope_fallback *entry = &first->fallbacks[request->fallbacks++];

        request->scope = entry->scope ? entry->scope : first;
        request->candidates.model = entry->model;
        candidates_make(request);
        if (!candidates_are_none(&request->candidates))
            return true;
    }
    request->scope = first;
    request->candidates.model = NULL;
    return false;
}

/* One step of the plan that is no end. False: the call is over, and *ret says how it goes on. */
static bool go_on(struct request *request, const struct plan_step *step, enum step_result *ret)
{
    if (step->what == PLAN_CANCEL) {
        lanes_cancel(request, step);
        return true;
    }
    if (step->what == PLAN_START) {
        if (lanes_start(request, step))
            return true;
        *ret = give_up(request, "gateway");
        return false;
    }
    if (upstream_run(request, lanes_next_look_ns(request, step->until_ns)) == UPSTREAM_STOPPED) {
        *ret = stopped(request);
        return false;
    }
    lanes_attend(request);
    return true;
}

/* A client that has left may have wanted what runs to be finished; nothing begins for it any more
 * (H6). */
static bool is_for_nobody(const struct request *request, const struct plan_step *step)
{
    bool runs = false;

    for (unsigned lane = 0; lane < PLAN_LANES; lane++)
        runs |= request->plan.lanes[lane].state == LANE_RUNNING;
    return request->client_gone && !runs &&
           (step->what == PLAN_START || step->what == PLAN_WAIT || step->what == PLAN_FALLBACK);
}

/* The call was throttled; or, later, the fallback cannot be had either, and nothing was sent to it.
 * told: how the call ends when no other can be had, with the throttled answer. */
static void take_fallback(struct request *request, struct plan_step *step, struct plan_step *told)
{
    if (step->what == PLAN_FALLBACK)
        *told = plan_without_fallback(&request->plan, clock_monotonic_ns());
    end_plan(request);
    *step = *told;
    if (!fall_back(request))
        return;
    begin_plan(request);
    *step = plan_next(&request->plan, clock_monotonic_ns());
}

static bool wants_fallback(const struct request *request, const struct plan_step *step)
{
    return step->what == PLAN_FALLBACK ||
           (step->what == PLAN_FAIL && request->fallbacks > 0 &&
            (step->fail == PLAN_FAIL_NO_SOURCE || step->fail == PLAN_FAIL_BUSY));
}

enum step_result attempts_step(struct request *request)
{
    enum step_result result = STEP_NEXT;
    struct plan_step told = {.what = PLAN_FAIL, .fail = PLAN_FAIL_NO_SOURCE, .retry_after_ms = -1};

    if (!upstream_open(request))
        return give_up(request, "gateway");
    candidates_make(request);
    if (candidates_are_none(&request->candidates)) {
        fault_set(&request->fault, FAULT_model_fixed, "%s", "");
        return give_up(request, "gateway");
    }
    begin_plan(request);
    heartbeat_begin(request);
    for (;;) {
        struct plan_step step = plan_next(&request->plan, clock_monotonic_ns());

        if (is_for_nobody(request, &step))
            return stopped(request);
        if (wants_fallback(request, &step))
            take_fallback(request, &step, &told);
        switch (step.what) {
        case PLAN_START:
        case PLAN_WAIT:
        case PLAN_CANCEL:
            if (!go_on(request, &step, &result))
                return result;
            break;
        case PLAN_FALLBACK: /* taken above */
            break;
        case PLAN_COMMIT:
        case PLAN_ANSWER:
            return choose(request, &step);
        case PLAN_FAIL:
            return fail(request, &step);
        }
    }
}
