/*
 * lanes.c - the exchanges of a call that run; see lanes.h.
 *
 * An answer is held back as long as something else could still be done (H4): an error until it can be
 * judged, a stream until its first content, a document on a scope that hedges until it is whole.
 * When nothing else could be done, the head commits.
 */
#include "worker/lanes.h"

#include "base/clock.h"
#include "worker/admission.h"
#include "worker/upstream.h"

#include <string.h>

/* ---- booking --------------------------------------------------------------------------------- */

static void journal(struct request *request, struct attempt *attempt)
{
    if (request->worker->options->penstock.ledger)
        gate_journal_attempt(&request->worker->gate, &attempt->record);
}

/* Book it and write its row; the exchange may still be open. */
static void close_row(struct request *request, struct attempt *attempt, enum source_end end,
                      const char *error)
{
    if (attempt->booked || !attempt->source)
        return;
    attempt_book(attempt, end, error);
    if (attempt->started_ns != 0)
        journal(request, attempt);
}

enum source_end lanes_source_end(const struct request *request, const struct attempt *attempt)
{
    switch (attempt->judgement.class) {
    case ATTEMPT_OK:
        return SOURCE_END_SUCCESS;
    case ATTEMPT_THROTTLE:
        return SOURCE_END_THROTTLED;
    case ATTEMPT_QUOTA_DAY:
        return request->scope->direct || attempt->judgement.out_ms == 0 ? SOURCE_END_UNJUDGED
                                                                        : SOURCE_END_QUOTA;
    case ATTEMPT_MONEY:
    case ATTEMPT_CREDENTIAL:
        /* A direct route has nowhere else to go: its caller hears it from the upstream itself. */
        return request->scope->direct || attempt->judgement.out_ms == 0 ? SOURCE_END_UNJUDGED
                                                                        : SOURCE_END_OUT;
    case ATTEMPT_TRANSIENT:
    case ATTEMPT_UNSENT:
    case ATTEMPT_UNKNOWN:
        return SOURCE_END_FAILURE;
    case ATTEMPT_REQUEST:
    case ATTEMPT_OURS:
        return SOURCE_END_UNJUDGED;
    }
    UNREACHABLE();
}

/* ---- beginning ------------------------------------------------------------------------------- */

static bool make_lane(struct request *request, unsigned lane)
{
    if (!request->lanes[lane])
        request->lanes[lane] = attempt_new(request, lane);
    return request->lanes[lane] != NULL;
}

/* Empty the lane. With a new round nothing that is left of the last one is wanted any more. */
static void begin_lane(struct request *request, const struct plan_step *step)
{
    for (unsigned lane = 0; lane < PLAN_LANES; lane++)
        if (request->lanes[lane] && (lane == step->lane || !step->hedge))
            attempt_end(request->lanes[lane]);
    attempt_clear(request->lanes[step->lane]);
}

static enum plan_refusal refusal_of(enum source_verdict verdict)
{
    switch (verdict) {
    case SOURCE_ADMITTED:
    case SOURCE_NONE:
        return PLAN_REFUSED_NONE;
    case SOURCE_OUT:
        return PLAN_REFUSED_OUT;
    case SOURCE_OUT_QUOTA:
        return PLAN_REFUSED_QUOTA;
    case SOURCE_OPEN:
        return PLAN_REFUSED_OPEN;
    case SOURCE_BUSY:
    case SOURCE_WAITING:
        return PLAN_REFUSED_BUSY;
    }
    UNREACHABLE();
}

/* Another number for each attempt. */
static uint64_t chance(const struct request *request)
{
    return request->random + request->attempts * UINT64_C(0x9e3779b97f4a7c15);
}

/* Answers may be long, so is a probe: it is void only when nobody can be waiting for it any more. */
#define PROBE_GRACE_NS (5 * NS_PER_S)

/* A direct route without flow control asks for a source alone, which costs no lock. */
static enum admission_result admit(struct request *request, const struct plan_step *step,
                                   struct admit_seat *seat, struct source_answer *ret)
{
    const struct scope_options *scope = request->scope;
    const struct candidates *candidates = &request->candidates;
    const struct source_wish wish = {
        .candidates = candidates->list,
        .count = candidates->count,
        .excluded = step->excluded | candidates->barred,
        .tried = step->tried,
        .weighted = scope->balance == BALANCE_WEIGHTED,
        .hedge = step->hedge,
        .hedge_of = step->hedge ? request->lanes[0]->candidate : 0,
        .insist = scope->direct,
        .last_resort = scope->direct || scope->when_all_open == ALL_OPEN_TRY,
        .random = chance(request),
        .now_wall_ms = clock_wall_ms(),
        .now_ns = clock_monotonic_ns(),
        .probe_ns = scope->members[0].source->timeout_ms * NS_PER_MS + PROBE_GRACE_NS,
    };

    if (request->flow_targets.any || (request->reader.intent.image && !scope->direct))
        return admission_take(request, &wish, seat, ret);
    source_admit(&request->worker->gate, &wish, ret);
    *seat = ADMIT_SEAT_EMPTY;
    seat->candidate = ret->candidate;
    seat->permit = ret->permit;
    return ret->verdict == SOURCE_ADMITTED ? ADMISSION_GRANTED : ADMISSION_REFUSED_SOURCE;
}

/* It could not begin. Without a hedge the call goes on as if none had been wanted; true then. */
static bool drop_hedge(struct request *request, struct attempt *attempt)
{
    attempt_end(attempt);
    attempt_book(attempt, SOURCE_END_UNJUDGED, "");
    if (!attempt->hedge)
        return false;
    request->fault = (struct fault){.code = FAULT_NONE, .retry_after_ms = -1};
    plan_not_admitted(&request->plan, attempt->lane, PLAN_REFUSED_BUSY, CLOCK_NEVER,
                      clock_monotonic_ns());
    return true;
}

static bool not_admitted(struct request *request, const struct plan_step *step,
                         enum plan_refusal refusal, int64_t earliest_ns)
{
    plan_not_admitted(&request->plan, step->lane, refusal, earliest_ns, clock_monotonic_ns());
    return true;
}

static bool begin(struct request *request, const struct plan_step *step,
                  const struct admit_seat *seat)
{
    struct attempt *attempt = request->lanes[step->lane];

    begin_lane(request, step);
    attempt->candidate = seat->candidate;
    attempt->source = request->scope->members[seat->candidate].source;
    attempt->permit = seat->permit;
    attempt->flow_place = seat->flow_place;
    attempt->hedge = step->hedge;
    if (request->plan.terms.hedge_after_ns != CLOCK_NEVER && !request_wants_stream(request) &&
        request->reader.intent.hedgeable)
        attempt->held.limit = ATTEMPT_ANSWER_HELD_MAX;
    if (!step->hedge)
        request->attempt = attempt;
    if (!attempt_begin(attempt))
        return drop_hedge(request, attempt);
    plan_started(&request->plan, step->lane, seat->candidate, attempt->started_ns);
    return true;
}

bool lanes_start(struct request *request, const struct plan_step *step)
{
    struct source_answer refusal;
    struct admit_seat seat;

    if (!make_lane(request, step->lane)) {
        if (step->hedge)
            return not_admitted(request, step, PLAN_REFUSED_BUSY, CLOCK_NEVER);
        fault_set(&request->fault, FAULT_out_of_memory, "%s", "");
        return false;
    }
    switch (admit(request, step, &seat, &refusal)) {
    case ADMISSION_GRANTED:
        return begin(request, step, &seat);
    case ADMISSION_REFUSED_SOURCE:
        return not_admitted(request, step, refusal_of(refusal.verdict), refusal.earliest_ns);
    case ADMISSION_REFUSED_FLOW:
        return not_admitted(request, step, PLAN_REFUSED_QUOTA, refusal.earliest_ns);
    case ADMISSION_OVER:
        return false;
    }
    UNREACHABLE();
}

/* ---- looking --------------------------------------------------------------------------------- */

/* What the plan is told goes into the ledger as well. */
static void failed(struct request *request, struct attempt *attempt, bool has_answer,
                   const char *error)
{
    plan_failed(&request->plan, attempt->lane, &attempt->judgement, has_answer,
                clock_monotonic_ns());
    if (!has_answer)
        attempt_end(attempt); /* closed before its permit goes to another */
    close_row(request, attempt, lanes_source_end(request, attempt), error);
}

static void failed_as(struct request *request, struct attempt *attempt, enum attempt_class class,
                      const char *error)
{
    attempt->judgement.class = class;
    (void)text_copy(attempt->judgement.error, sizeof attempt->judgement.error, error);
    failed(request, attempt, false, error);
}

/* Asks for nothing but an answer (RFC 9110, 9.2.1), got none, and was asked only once. An upstream may
 * close a kept connection in the very moment it is used again. */
static bool may_ask_again(const struct request *request, const struct attempt *attempt)
{
    return request->attempts == 1 && request->body.bytes == 0 &&
           http_exchange_outcome(attempt->exchange) == HTTP_NO_ANSWER &&
           (strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0);
}

/* True: it runs again, or has failed at that. */
static bool ask_again(struct request *request, struct attempt *attempt)
{
    if (!may_ask_again(request, attempt))
        return false;
    if (!attempt_ask_again(attempt)) {
        attempt->fault = request->fault.code;
        failed_as(request, attempt, ATTEMPT_OURS, "out_of_memory");
    }
    return true;
}

static bool other_lane_runs(const struct request *request, const struct attempt *attempt)
{
    const struct attempt *other = request->lanes[1 - attempt->lane];

    return other && other->exchange && !other->booked;
}

enum sight { SIGHT_NOTHING, SIGHT_CONTENT, SIGHT_ERROR_EVENT, SIGHT_OUTGROWN };

/* Of a running attempt whose head is here: does it commit? */
static enum sight look_at_answer(const struct request *request, const struct attempt *attempt)
{
    if (attempt->status / 100 == 3 ||
        (plan_is_last_hope(&request->plan) && (request->scope->direct || attempt->status < 400)))
        return SIGHT_CONTENT;
    if (attempt->status >= 400)
        return attempt->full ? SIGHT_OUTGROWN : SIGHT_NOTHING;
    if (!attempt->is_stream) {
        if (attempt->held.limit != ATTEMPT_ANSWER_HELD_MAX ||
            attempt->length > (int64_t)ATTEMPT_ANSWER_HELD_MAX)
            return SIGHT_CONTENT;
        return attempt->full ? SIGHT_CONTENT : SIGHT_NOTHING;
    }
    if (attempt->pictures.delivered.error_before_content)
        return SIGHT_ERROR_EVENT;
    if (!attempt_shows_content(attempt) || attempt->pictures.delivered.content_seen)
        return SIGHT_CONTENT;
    if (attempt->full || attempt->pictures.sse.events >= ATTEMPT_EVENTS_HELD_MAX)
        return other_lane_runs(request, attempt) ? SIGHT_OUTGROWN : SIGHT_CONTENT;
    return SIGHT_NOTHING;
}

/* A whole answer that promised something and brought nothing, or what is no answer. */
static bool is_empty_handed(const struct request *request, const struct attempt *attempt)
{
    if (attempt->status / 100 != 2 || request->reader.intent.image)
        return false;
    if (attempt->is_stream)
        return attempt_shows_content(attempt) && !attempt->pictures.delivered.content_seen;
    if (attempt->held.limit != ATTEMPT_ANSWER_HELD_MAX || attempt->is_encoded)
        return false;
    return attempt->pictures.body != PICTURES_JSON ||
           (attempt->pictures.json.state != JSON_SCAN_TOO_DEEP &&
            !attempt->pictures.delivered.terminal_seen);
}

/* Under 200: an event before any content, or a document that is held back. */
static bool holds_an_error(const struct attempt *attempt)
{
    const struct delivered *delivered = &attempt->pictures.delivered;

    return attempt->is_stream ? delivered->error_before_content
                              : attempt->held.limit == ATTEMPT_ANSWER_HELD_MAX &&
                                    attempt->counting && delivered->error_seen;
}

static void attend_finished(struct request *request, struct attempt *attempt)
{
    enum fault_code fault;

    if (ask_again(request, attempt))
        return;
    attempt_read_end(attempt);
    fault = attempt_outcome_fault(attempt);
    if (fault == FAULT_NONE && request->scope->direct) {
        plan_content(&request->plan, attempt->lane, clock_monotonic_ns()); /* whatever it says */
    } else if (attempt->status >= 400 || (fault == FAULT_NONE && holds_an_error(attempt) &&
                                          !plan_is_last_hope(&request->plan))) {
        attempt_judge(attempt);
        failed(request, attempt, fault == FAULT_NONE, attempt->judgement.error);
    } else if (fault != FAULT_NONE) {
        attempt_judge(attempt);
        failed(request, attempt, false, attempt->judgement.error);
    } else if (is_empty_handed(request, attempt)) {
        attempt->judgement.class = ATTEMPT_TRANSIENT;
        (void)text_copy(attempt->judgement.error, sizeof attempt->judgement.error, "empty_answer");
        failed(request, attempt, true, "empty_answer");
    } else {
        plan_content(&request->plan, attempt->lane, clock_monotonic_ns());
    }
}

/* Its time is over. Sent and not answered, what became of it is unknown (decisions, Calls); of an
 * error the head says enough. */
static void attend_time_out(struct request *request, struct attempt *attempt,
                            const struct attempt_deadline *deadline)
{
    bool sent = attempt_was_sent(attempt);

    attempt->fault = deadline->fault;
    if (attempt->status >= 400) {
        attempt_judge(attempt);
        failed(request, attempt, false, attempt->judgement.error);
        return;
    }
    failed_as(request, attempt, sent ? ATTEMPT_UNKNOWN : ATTEMPT_UNSENT, deadline->error);
}

/* An open row for each of the two, so that they can be closed if this process dies. */
static void open_rows(struct request *request)
{
    for (unsigned lane = 0; lane < PLAN_LANES; lane++) {
        struct attempt *attempt = request->lanes[lane];

        if (attempt->opened || attempt->booked || !attempt_was_sent(attempt))
            continue; /* not sent yet: the next look will see it */
        attempt->opened = true;
        attempt_fill_record(attempt, 0, "");
        journal(request, attempt);
    }
}

/* Nothing wakes when a hedge's request goes out; its row is due then. */
#define SENT_LOOK_NS (10 * NS_PER_MS)

static bool awaits_sending(const struct attempt *hedge)
{
    return hedge && hedge->exchange && !hedge->booked && !hedge->opened;
}

int64_t lanes_next_look_ns(const struct request *request, int64_t until_ns)
{
    int64_t look_ns = clock_monotonic_ns() + SENT_LOOK_NS;

    return awaits_sending(request->lanes[1]) && look_ns < until_ns ? look_ns : until_ns;
}

static void attend(struct request *request, struct attempt *attempt)
{
    struct attempt_deadline deadline = attempt_deadline(attempt);

    if (http_exchange_outcome(attempt->exchange) != HTTP_RUNNING) {
        attend_finished(request, attempt);
        return;
    }
    if (attempt->status != 0) {
        switch (look_at_answer(request, attempt)) {
        case SIGHT_NOTHING:
            break;
        case SIGHT_CONTENT:
            plan_content(&request->plan, attempt->lane, clock_monotonic_ns());
            return;
        case SIGHT_ERROR_EVENT:
            attempt_judge(attempt);
            failed(request, attempt, true, attempt->judgement.error);
            return;
        case SIGHT_OUTGROWN:
            if (attempt->status >= 400) {
                attempt_judge(attempt);
                failed(request, attempt, true, attempt->judgement.error);
            } else {
                failed_as(request, attempt, ATTEMPT_TRANSIENT, "outgrown");
            }
            return;
        }
    }
    if (clock_monotonic_ns() >= deadline.at_ns)
        attend_time_out(request, attempt, &deadline);
}

void lanes_attend(struct request *request)
{
    const struct attempt *hedge = request->lanes[1];

    if (hedge && !hedge->booked && attempt_was_sent(hedge))
        open_rows(request);
    for (unsigned lane = 0; lane < PLAN_LANES; lane++) {
        struct attempt *attempt = request->lanes[lane];

        if (attempt && attempt->exchange && !attempt->booked &&
            request->plan.lanes[lane].state == LANE_RUNNING)
            attend(request, attempt);
    }
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* Nothing of it was sent: it never was (D9). False: it was. */
static bool forget(struct request *request, struct attempt *attempt)
{
    if (!attempt->hedge || attempt->booked || attempt_was_sent(attempt))
        return false;
    attempt_book(attempt, SOURCE_END_UNJUDGED, "");
    request->attempts--;
    attempt_end(attempt);
    plan_taken_back(&request->plan, attempt->lane, clock_monotonic_ns());
    return true;
}

void lanes_cancel(struct request *request, const struct plan_step *step)
{
    struct attempt *attempt = request->lanes[step->lane];

    if (forget(request, attempt))
        return;
    /* Its connection is closed before its permit, the one probe perhaps, goes to another. That it lost
     * is known before: nothing of the closing can be taken for a failure. */
    attempt_end(attempt);
    close_row(request, attempt, SOURCE_END_UNJUDGED,
              step->why == PLAN_LOST ? "hedge_cancelled" : "deadline");
    plan_cancelled(&request->plan, step->lane, clock_monotonic_ns());
}

void lanes_stop(struct request *request, const char *error)
{
    for (unsigned lane = 0; lane < PLAN_LANES; lane++) {
        struct attempt *attempt = request->lanes[lane];

        if (!attempt || forget(request, attempt))
            continue;
        attempt_end(attempt);
        close_row(request, attempt, SOURCE_END_UNJUDGED, error);
    }
}
