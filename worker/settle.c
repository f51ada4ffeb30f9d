/*
 * settle.c - step 9, on every path: give back whatever is still held, book the call, one log line.
 */
#include "worker/settle.h"

#include "base/clock.h"
#include "base/log.h"
#include "shared/counters.h"
#include "shared/owners.h"
#include "worker/lanes.h"
#include "worker/upstream.h"

#include <string.h>
#include <unistd.h>

#define STATUS_CLIENT_GONE 499 /* nginx's number for it; never sent */

/* The upstream itself ended its stream with an error. */
static bool has_error_event(const struct attempt *attempt)
{
    return attempt->counting && attempt->is_stream && attempt->pictures.delivered.error_seen;
}

static const char *outcome(const struct request *request)
{
    const struct attempt *attempt = request->attempt;

    if (request->client_gone)
        return "client_gone";
    /* What a direct route passes on is not judged. */
    if (request->fault.code == FAULT_NONE)
        return attempt->status / 100 == 2 && (request->scope->direct || !has_error_event(attempt))
                   ? "ok"
                   : "upstream_error";
    return request->attempts > 0 ? "upstream_failed" : "refused";
}

static enum counter outcome_counter(const struct request *request)
{
    if (request->client_gone)
        return COUNTER_requests_client_gone;
    if (request->fault.code == FAULT_NONE)
        return COUNTER_requests_ok;
    return request->attempts > 0 ? COUNTER_requests_upstream_failed : COUNTER_requests_refused;
}

/* Wall clock of the answering attempt's transport alone: no queueing, no backoff, no wait before a
 * hedge, no clean-up (H17). */
static int64_t generation_ms(const struct attempt *attempt)
{
    if (attempt->started_ns == 0 || attempt->last_ns == 0)
        return -1;
    return (attempt->last_ns - attempt->started_ns) / NS_PER_MS;
}

/* Does it only ask about work that another call created? */
static bool is_poll(const struct intent *intent)
{
    return intent->endpoint == ENDPOINT_OTHER && strstr(intent->endpoint_name, "{id}");
}

static void fill_record(const struct request *request, int64_t now_ns, struct call_record *record)
{
    const struct intent *intent = &request->reader.intent;
    const struct attempt *attempt = request->attempt;
    const struct delivered *delivered = &attempt->pictures.delivered;

    *record = (struct call_record){
        .arrived_wall_ms = request->arrived_wall_ms,
        .generation_ms = generation_ms(attempt),
        .total_latency_ms = (now_ns - request->arrived_ns) / NS_PER_MS,
        .queue_ms = request->queue_ns / NS_PER_MS,
        .ttft_ms = attempt->ttft_ns > 0 ? attempt->ttft_ns / NS_PER_MS : -1,
        .tokens_in = -1,
        .tokens_out = -1,
        .tokens_cached = -1,
        .tokens_reasoning = -1,
        .image_tokens_in = -1,
        .image_tokens_out = -1,
        .bytes_in = request->body.bytes,
        .bytes_out = (int64_t)fastcgi_sent_bytes(request->fcgi),
        .status = request->status,
        .upstream_status = attempt->status,
        .stream = attempt->status != 0 ? attempt->is_stream : request_wants_stream(request),
        .pid = request->worker->pid,
        .attempts = request->attempts,
        .retries = request->retries,
        .hedges = request->hedges,
        .hedge_won = request->hedge_won,
        .fallback = request->fallbacks > 0 && request->scope != NULL &&
                    (request->candidates.model || request->scope != request->route->to),
    };
    (void)text_copy(record->call_id, sizeof record->call_id, request->call_id);
    (void)text_copy(record->kind, sizeof record->kind, call_kind_name(request->kind));
    (void)text_copy(record->client, sizeof record->client, request->client_name);
    (void)text_copy(record->route, sizeof record->route,
                    request->route ? request->route->name : "");
    (void)text_copy(record->scope, sizeof record->scope,
                    request->scope ? request->scope->name : "");
    (void)text_copy(record->source, sizeof record->source,
                    attempt->source ? attempt->source->name : "");
    (void)text_copy(record->model_asked, sizeof record->model_asked, intent->model);
    (void)text_copy(record->endpoint, sizeof record->endpoint, intent->endpoint_name);
    (void)text_copy(record->outcome, sizeof record->outcome, outcome(request));
    (void)text_copy(record->error_code, sizeof record->error_code,
                    fault_code_text(request->fault.code));
    if (!attempt->counting)
        return;
    record->poll = is_poll(intent);
    if (record->poll || intent->background)
        (void)text_copy(record->upstream_id, sizeof record->upstream_id, delivered->id);
    record->images = delivered->pictures;
    record->tokens_in = delivered->tokens_in;
    record->tokens_out = delivered->tokens_out;
    record->tokens_cached = delivered->tokens_cached;
    record->tokens_reasoning = delivered->tokens_reasoning;
    record->image_tokens_in = delivered->image_tokens_in;
    record->image_tokens_out = delivered->image_tokens_out;
    (void)text_copy(record->model_served, sizeof record->model_served, delivered->model);
    (void)text_copy(record->image_size, sizeof record->image_size, delivered->size);
    (void)text_copy(record->image_quality, sizeof record->image_quality, delivered->quality);
    (void)text_copy(record->image_format, sizeof record->image_format, delivered->format);
}

static void add_counters(struct request *request, const struct call_record *record)
{
    struct counters_area *counters = &segment_instance(request->worker->segment)->counters;
    const struct attempt *attempt = request->attempt;

    counter_add(counters, COUNTER_requests, 1);
    counter_add(counters, outcome_counter(request), 1);
    counter_add(counters, COUNTER_bytes_out, (uint64_t)record->bytes_out);
    if (record->images > 0 && !record->poll)
        counter_add(counters, COUNTER_images_delivered, record->images);
    if (record->tokens_in > 0 && !record->poll)
        counter_add(counters, COUNTER_tokens_in, (uint64_t)record->tokens_in);
    if (record->tokens_out > 0 && !record->poll)
        counter_add(counters, COUNTER_tokens_out, (uint64_t)record->tokens_out);
    if (attempt->started_ns > 0 && attempt->last_ns > 0)
        histogram_add(&counters->upstream_time, attempt->last_ns - attempt->started_ns);
    if (attempt->ttft_ns > 0)
        histogram_add(&counters->first_byte, attempt->ttft_ns);
    counter_add(counters, COUNTER_attempts, request->attempts);
    if (request->retries > 0)
        counter_add(counters, COUNTER_retries, request->retries);
    if (request->hedges > 0)
        counter_add(counters, COUNTER_hedges_sent, request->hedges);
    if (request->hedge_won)
        counter_add(counters, COUNTER_hedges_won, 1);
    if (request->hedges_skipped > 0)
        counter_add(counters, COUNTER_hedges_skipped, request->hedges_skipped);
    if (record->fallback)
        counter_add(counters, COUNTER_fallbacks, 1);
}

static void log_call(const struct request *request, const struct call_record *record)
{
    struct log_line line WRITTEN_FIRST;

    log_begin(&line, LOG_LEVEL_INFO, "call");
    log_string(&line, "id", record->call_id);
    log_string(&line, "method", request->method ? request->method : "-");
    log_string(&line, "path", request->path);
    log_string(&line, "kind", record->kind);
    log_string(&line, "model", record->model_asked);
    log_string(&line, "source", record->source);
    log_number(&line, "status", request->client_gone ? STATUS_CLIENT_GONE : record->status);
    log_string(&line, "outcome", record->outcome);
    if (*record->error_code)
        log_string(&line, "code", record->error_code);
    if (*request->fault.detail)
        log_string(&line, "detail", request->fault.detail);
    if (*request->attempt->transport_error)
        log_string(&line, "upstream_error", request->attempt->transport_error);
    if (*request->attempt->judgement.error)
        log_string(&line, "error", request->attempt->judgement.error);
    if (record->attempts > 1)
        log_number(&line, "attempts", record->attempts);
    if (record->hedges > 0)
        log_number(&line, "hedges", record->hedges);
    log_bool(&line, "stream", record->stream);
    log_number(&line, "queue_ms", record->queue_ms);
    log_number(&line, "total_ms", record->total_latency_ms);
    log_number(&line, "in", record->bytes_in);
    log_number(&line, "out", record->bytes_out);
    if (record->images > 0)
        log_number(&line, "images", record->images);
    log_end(&line);
}

/* The fault in the ledger's word for an attempt: without the prefix that our codes have on the wire. */
static const char *word_of(enum fault_code code)
{
    static const char prefix[] = "penstock_";

    return code == FAULT_shutting_down ? "shutdown" : fault_code_text(code) + sizeof prefix - 1;
}

/* What becomes of the attempt whose answer was handed on: a cut after the commit is the source's
 * failure as well. */
static void book_last(struct request *request)
{
    struct attempt *attempt = request->attempt;
    enum source_end end = SOURCE_END_UNJUDGED;
    const char *error = "";

    if (request->client_gone || request->fault.code == FAULT_shutting_down ||
        request->fault.code == FAULT_out_of_memory) {
        error = request->client_gone ? "client_cancelled" : word_of(request->fault.code);
    } else if (request->fault.code == FAULT_call_deadline) {
        error = "deadline";
    } else if (attempt->status >= 400) {
        attempt_judge(attempt);
        end = lanes_source_end(request, attempt);
        error = attempt->judgement.error;
    } else if (request->fault.code != FAULT_NONE) {
        end = SOURCE_END_FAILURE;
        error = *attempt->judgement.error ? attempt->judgement.error : word_of(request->fault.code);
    } else if (has_error_event(attempt)) {
        attempt->judgement.class = ATTEMPT_TRANSIENT;
        (void)text_copy(attempt->judgement.error, sizeof attempt->judgement.error, "stream_error");
        error = attempt->judgement.error; /* whose fault it was is not known: feeds nothing */
    } else {
        end = SOURCE_END_SUCCESS;
    }
    attempt_book(attempt, end, error);
}

/* A later call may continue what this one made: it must find the same source. */
static void remember_owner(struct request *request)
{
    const struct attempt *attempt = request->attempt;
    const struct delivered *delivered = &attempt->pictures.delivered;

    if (request->scope && !request->scope->direct && attempt->counting && *delivered->id &&
        attempt->status / 100 == 2 && request->scope->member_count > 1)
        owner_remember(&request->worker->gate, delivered->id,
                       request->candidates.list[attempt->candidate].row, clock_monotonic_ns());
}

/* The call's own row tells all of its one attempt: not where that has an open row, ended in another way than
 * the call, or where a later poll may change the call's row. */
static void tell_attempt(struct call_record *call, const struct attempt *attempt)
{
    const struct attempt_record *record = &attempt->record;

    call->attempt_start_ms = record->started_wall_ms - call->arrived_wall_ms;
    call->attempt_ms = record->ended_wall_ms - record->started_wall_ms;
    call->est_tokens = record->est_tokens;
    call->tells_attempt = call->attempts == 1 && record->n == 1 && !record->hedge &&
                          !attempt->opened && !*record->error && !*record->limit_kind &&
                          !record->kept_est && !call->poll && !*call->upstream_id &&
                          call->attempt_start_ms >= 0 && call->attempt_ms >= 0;
}

static void journal(struct request *request, struct call_record *record, bool booked_here)
{
    const struct attempt *attempt = request->attempt;

    if (!request->worker->options->penstock.ledger)
        return;
    if (booked_here)
        tell_attempt(record, attempt);
    gate_journal_call(&request->worker->gate, record,
                      booked_here && !record->tells_attempt ? &attempt->record : NULL);
}

enum step_result settle_step(struct request *request)
{
    struct call_record record WRITTEN_FIRST;
    bool to_book = request->attempt->started_ns > 0 && !request->attempt->booked;

    if (!request->accepted)
        return STEP_NEXT;
    if (to_book)
        book_last(request);
    lanes_stop(request, "");
    upstream_close(request);
    ticket_give(&request->ticket, request->client_gone ? WAIT_CLIENT_GONE : WAIT_DONE, NULL);
    remember_owner(request);
    if (request->client_gone)
        request->status = STATUS_CLIENT_GONE;
    fill_record(request, clock_monotonic_ns(), &record);
    add_counters(request, &record);
    journal(request, &record, to_book);
    if (log_wants(LOG_LEVEL_INFO))
        log_call(request, &record);
    return STEP_NEXT;
}
