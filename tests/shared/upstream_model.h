/*
 * upstream_model.h - an upstream with limits, and a client that obeys a controller, on a false
 * clock in steps of 50 ms. Only arithmetic: nothing is sent anywhere.
 *
 * The upstream has requests and tokens per sliding minute (input counts at admission, output at the
 * end), requests and tokens per second, a limit on growth (the last 5 s against the mean of the 30 s
 * before), and a number of calls in flight above which tokens come slower for everybody, up to one
 * above which it refuses. News of a refusal takes delay_ns to the client.
 */
#ifndef TESTS_SHARED_UPSTREAM_MODEL_H
#define TESTS_SHARED_UPSTREAM_MODEL_H

#include "base/clock.h"
#include "shared/adaptive.h"
#include "shared/bucket.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEP_NS (50 * NS_PER_MS)
#define STEP_S 0.05
#define BEGIN_NS (5000 * NS_PER_S)
#define TOKEN_S 0.02
#define JOBS_MAX 40000U
#define LOG_MAX 400000U
#define ACTIVE_MAX 400U
#define RUN_S_MAX 1200

struct model_job {
    int64_t arrived_ns, sent_ns, first_ns, ready_ns, news_ns;
    int32_t input, output;
    double prefill_left_s, left;
    int64_t estimate;
    uint32_t epoch, tries;
    enum adaptive_kind refused;
};

struct model_log { /* of amounts in time; what is older than its span has been taken off the sum */
    int64_t *at_ns;
    int32_t *amount;
    size_t head, tail;
    int64_t sum, span_ns;
};

struct model_limits {
    int64_t rpm, tpm;
    double second_requests, second_tokens; /* times a sixtieth of the minute's */
    double growth, growth_floor;
    uint32_t saturation, refuse_above;
    bool refusals_count;
};

struct model_upstream {
    struct model_limits limits;
    struct model_log requests, tokens, second_requests, second_tokens, five, thirty;
    uint32_t active[ACTIVE_MAX];
    size_t active_count;
};

struct model_random {
    uint64_t bits;
};

static inline double model_uniform(struct model_random *random)
{
    random->bits ^= random->bits << 13;
    random->bits ^= random->bits >> 7;
    random->bits ^= random->bits << 17;
    return (double)(random->bits >> 11) * 0x1p-53;
}

static inline double model_normal(struct model_random *random)
{
    double one = model_uniform(random) + 1e-300, other = model_uniform(random);

    return sqrt(-2 * log(one)) * cos(6.283185307179586 * other);
}

static inline void model_log_init(struct model_log *log, int64_t span_ns)
{
    log->at_ns = calloc(LOG_MAX, sizeof *log->at_ns);
    log->amount = calloc(LOG_MAX, sizeof *log->amount);
    if (!log->at_ns || !log->amount)
        abort();
    log->span_ns = span_ns;
}

static inline void model_log_release(struct model_log *log)
{
    free(log->at_ns);
    free(log->amount);
}

static inline int64_t model_log_sum(struct model_log *log, int64_t now_ns)
{
    for (; log->head < log->tail && log->at_ns[log->head] <= now_ns - log->span_ns; log->head++)
        log->sum -= log->amount[log->head];
    return log->sum;
}

static inline double model_log_total(struct model_log *log, int64_t now_ns)
{
    int64_t sum = model_log_sum(log, now_ns);

    return (double)sum;
}

static inline int32_t model_whole(double value, double least, double most)
{
    double within = fmax(least, fmin(most, value));

    return (int32_t)within;
}

static inline void model_log_add(struct model_log *log, int64_t now_ns, int32_t amount)
{
    if (log->tail == LOG_MAX)
        abort();
    log->at_ns[log->tail] = now_ns;
    log->amount[log->tail++] = amount;
    log->sum += amount;
}

static inline void model_upstream_init(struct model_upstream *upstream,
                                       const struct model_limits *limits)
{
    memset(upstream, 0, sizeof *upstream);
    upstream->limits = *limits;
    model_log_init(&upstream->requests, 60 * NS_PER_S);
    model_log_init(&upstream->tokens, 60 * NS_PER_S);
    model_log_init(&upstream->second_requests, NS_PER_S);
    model_log_init(&upstream->second_tokens, NS_PER_S);
    model_log_init(&upstream->five, 5 * NS_PER_S);
    model_log_init(&upstream->thirty, 35 * NS_PER_S);
}

static inline void model_upstream_release(struct model_upstream *upstream)
{
    model_log_release(&upstream->requests);
    model_log_release(&upstream->tokens);
    model_log_release(&upstream->second_requests);
    model_log_release(&upstream->second_tokens);
    model_log_release(&upstream->five);
    model_log_release(&upstream->thirty);
}

/* ADAPTIVE_KINDS: taken. */
static inline enum adaptive_kind model_upstream_ask(struct model_upstream *upstream, int32_t input,
                                                    int64_t now_ns)
{
    const struct model_limits *limits = &upstream->limits;
    int64_t five = model_log_sum(&upstream->five, now_ns);
    int64_t before = model_log_sum(&upstream->thirty, now_ns) - five;
    int64_t second_tokens = model_log_sum(&upstream->second_tokens, now_ns);
    enum adaptive_kind kind = ADAPTIVE_KINDS;

    model_log_add(&upstream->five, now_ns, 1);
    model_log_add(&upstream->thirty, now_ns, 1);
    if (model_log_sum(&upstream->requests, now_ns) >= limits->rpm)
        kind = ADAPTIVE_RPM;
    else if (model_log_sum(&upstream->tokens, now_ns) + input > limits->tpm)
        kind = ADAPTIVE_TPM;
    else if (model_log_total(&upstream->second_requests, now_ns) >=
             limits->second_requests * (double)limits->rpm / 60)
        kind = ADAPTIVE_RPS;
    else if (second_tokens > 0 &&
             (double)(second_tokens + input) > limits->second_tokens * (double)limits->tpm / 60)
        kind = ADAPTIVE_TPS;
    else if ((double)five >= fmax(limits->growth_floor, limits->growth * (double)before / 6))
        kind = ADAPTIVE_BURST;
    else if (upstream->active_count >= limits->refuse_above)
        kind = ADAPTIVE_CAP;
    if (kind == ADAPTIVE_KINDS || limits->refusals_count)
        model_log_add(&upstream->requests, now_ns, 1);
    if (kind != ADAPTIVE_KINDS)
        return kind;
    model_log_add(&upstream->second_requests, now_ns, 1);
    model_log_add(&upstream->tokens, now_ns, input);
    model_log_add(&upstream->second_tokens, now_ns, input);
    return kind;
}

/* ---- the client -------------------------------------------------------------------------------- */

enum model_client { MODEL_STATIC, MODEL_ADAPTIVE };

struct model_run {
    enum model_client client;
    struct model_limits limits;
    struct adaptive_terms terms; /* MODEL_ADAPTIVE */
    double static_rate;          /* MODEL_STATIC: share of the quotas ... */
    uint32_t static_in_flight;   /* ... and bound */
    double arrivals_per_s, long_share;
    /* Or so many short calls at once, every so many seconds, answered after 100 ms. */
    int32_t burst_calls, burst_every_s;
    int32_t idle_from_s, idle_to_s;
    int32_t change_s, back_s; /* the limits change, and come back; 0 = do not */
    struct model_limits changed;
    int32_t run_s;
    int64_t delay_ns;
    uint64_t seed;
    double wait_s_max;
    /* what came of it, by second */
    double done_tokens[RUN_S_MAX], done[RUN_S_MAX];
    double sends[RUN_S_MAX], refusals[RUN_S_MAX];
    double waited_s[RUN_S_MAX]; /* of those sent: sum */
    uint64_t refused_kinds[ADAPTIVE_KINDS];
    uint64_t holds, shed;
    uint64_t broken;     /* sent during a DRAIN or above the bound, or left over at the end */
    double worst_excess; /* of tokens charged in a minute, above quota and debt: never above 0 */
    double worst_minute_requests, worst_minute_tokens; /* of what was sent and used */
};

struct model_gateway {
    struct model_run *run;
    struct model_upstream upstream;
    struct adaptive_row row;
    struct bucket_row requests, tokens;
    struct model_random random;
    struct model_job *jobs;
    size_t jobs_count;
    uint32_t *queue; /* ring of job numbers, JOBS_MAX long; retried ones come again */
    size_t queue_head, queue_tail;
    uint32_t *late; /* refused: news on the way, or waiting for another try */
    size_t late_count;
    struct model_log own_requests, own_tokens, charged;
    int64_t next_send_ns, idle_since_ns;
    uint32_t in_flight;
    double mean_output;
    double queued_cost;
};

static inline void model_bursts(struct model_gateway *gateway)
{
    const struct model_run *run = gateway->run;

    for (int64_t second = 0; second < run->run_s; second += run->burst_every_s)
        for (int32_t i = 0; i < run->burst_calls; i++)
            if ((second < run->idle_from_s || second >= run->idle_to_s) &&
                gateway->jobs_count + 1 < JOBS_MAX)
                gateway->jobs[gateway->jobs_count++] = (struct model_job){
                    .arrived_ns = BEGIN_NS + second * NS_PER_S, .input = 50, .output = 2};
}

static inline void model_arrivals(struct model_gateway *gateway)
{
    const struct model_run *run = gateway->run;
    struct model_random *random = &gateway->random;
    double t = 0;

    for (;;) {
        struct model_job *job = &gateway->jobs[gateway->jobs_count];

        t += -log(model_uniform(random) + 1e-300) / run->arrivals_per_s;
        if (t >= run->idle_from_s && t < run->idle_to_s)
            continue;
        if (t >= run->run_s || gateway->jobs_count + 1 >= JOBS_MAX)
            return;
        job->arrived_ns = BEGIN_NS + (int64_t)(t * 1e9);
        job->input = model_whole(exp(5.9 + 0.5 * model_normal(random)), 1, 2000);
        job->output = model_whole(exp(5.1 + 0.5 * model_normal(random)), 16, 1500);
        if (model_uniform(random) < run->long_share) {
            job->input = model_whole(6000 + 4000 * model_uniform(random), 6000, 10000);
            job->output = model_whole(500 + 600 * model_uniform(random), 500, 1100);
        }
        gateway->jobs_count++;
    }
}

static inline int64_t model_predict(const struct model_gateway *gateway,
                                    const struct model_job *job)
{
    return job->input + model_whole(gateway->mean_output, 0, 4000);
}

static inline void model_enqueue(struct model_gateway *gateway, uint32_t number, int64_t now_ns)
{
    struct model_run *run = gateway->run;
    struct model_job *job = &gateway->jobs[number];
    uint32_t ahead = (uint32_t)(gateway->queue_tail - gateway->queue_head);
    int64_t wait_ns, balance_micro = bucket_balance_micro(&gateway->tokens, now_ns);
    double wait_s = 0, rate = (double)gateway->tokens.rate_micro / 60e6;

    if (run->client == MODEL_ADAPTIVE) {
        if (ahead == 0 && gateway->in_flight == 0)
            adaptive_resume_after_idle(&gateway->row, now_ns - gateway->idle_since_ns, now_ns);
        wait_ns = adaptive_wait_ns(&gateway->row, ahead, now_ns);
        wait_s = (double)wait_ns / 1e9;
    } else {
        wait_s = ahead / fmax(0.1, (double)gateway->requests.rate_micro / 60e6);
    }
    if (rate > 0)
        wait_s = fmax(wait_s, (gateway->queued_cost - (double)balance_micro / 1e6) / rate);
    if (wait_s > run->wait_s_max && job->tries == 0) {
        run->shed++;
        return;
    }
    job->estimate = model_predict(gateway, job);
    gateway->queued_cost += (double)job->estimate;
    gateway->queue[gateway->queue_tail++ % JOBS_MAX] = number;
}

static inline int model_second(int64_t now_ns)
{
    int64_t second = (now_ns - BEGIN_NS) / NS_PER_S;

    return second >= RUN_S_MAX ? RUN_S_MAX - 1 : (int)second;
}

static inline void model_send(struct model_gateway *gateway, uint32_t number, int64_t now_ns)
{
    struct model_run *run = gateway->run;
    struct model_upstream *upstream = &gateway->upstream;
    struct model_job *job = &gateway->jobs[number];
    int second = model_second(now_ns);

    job->sent_ns = now_ns;
    job->first_ns = 0;
    gateway->in_flight++;
    if (run->client == MODEL_ADAPTIVE)
        run->broken += gateway->row.state == ADAPTIVE_DRAIN ||
                       gateway->in_flight > (uint32_t)gateway->row.limit;
    model_log_add(&gateway->own_requests, now_ns, 1);
    model_log_add(&gateway->own_tokens, now_ns, job->input);
    run->sends[second]++;
    run->waited_s[second] += (double)(now_ns - job->arrived_ns) / 1e9;
    job->refused = model_upstream_ask(upstream, job->input, now_ns);
    if (job->refused == ADAPTIVE_KINDS) {
        job->prefill_left_s = run->burst_calls > 0 ? 0.05 : 0.3 + job->input * 1e-4;
        job->left = job->output;
        upstream->active[upstream->active_count++] = number;
        return;
    }
    run->refusals[second]++;
    job->news_ns = now_ns + run->delay_ns;
    job->ready_ns = 0;
    gateway->late[gateway->late_count++] = number;
}

/* Take the first of the queue as long as it may go. */
static inline void model_dispatch(struct model_gateway *gateway, int64_t now_ns)
{
    struct model_run *run = gateway->run;
    struct adaptive_limits limits = {.in_flight = run->static_in_flight};

    while (gateway->queue_head < gateway->queue_tail) {
        uint32_t number = gateway->queue[gateway->queue_head % JOBS_MAX];
        struct model_job *job = &gateway->jobs[number];

        if (now_ns - job->arrived_ns > 45 * NS_PER_S) {
            gateway->queue_head++;
            gateway->queued_cost -= (double)job->estimate;
            continue;
        }
        if (run->client == MODEL_ADAPTIVE) {
            adaptive_set_minute(&gateway->row, model_log_sum(&gateway->own_requests, now_ns),
                                model_log_sum(&gateway->own_tokens, now_ns));
            limits = adaptive_may_send(&gateway->row, now_ns);
            bucket_set_capacity(&gateway->requests, limits.requests.capacity_micro, now_ns);
            bucket_set_rate(&gateway->requests, limits.requests.rate_micro, now_ns);
            bucket_set_capacity(&gateway->tokens, limits.tokens.capacity_micro, now_ns);
            bucket_set_rate(&gateway->tokens, limits.tokens.rate_micro, now_ns);
        }
        if (limits.drained_until_ns > 0)
            return;
        if (gateway->in_flight >= limits.in_flight) {
            adaptive_waited(&gateway->row, ADAPTIVE_WANT_PLACE);
            return;
        }
        if (!bucket_has(&gateway->requests, BUCKET_UNIT, now_ns) ||
            !bucket_has(&gateway->tokens, job->estimate * BUCKET_UNIT, now_ns)) {
            adaptive_waited(&gateway->row, ADAPTIVE_WANT_BUDGET);
            return;
        }
        if (now_ns < gateway->next_send_ns) {
            adaptive_waited(&gateway->row, ADAPTIVE_WANT_PACE);
            return;
        }
        gateway->queue_head++;
        gateway->queued_cost -= (double)job->estimate;
        bucket_take(&gateway->requests, BUCKET_UNIT, now_ns);
        bucket_take(&gateway->tokens, job->estimate * BUCKET_UNIT, now_ns);
        model_log_add(&gateway->charged, now_ns, (int32_t)job->estimate);
        /* the queue looks more often than every 50 ms: the pace is not rounded up to steps */
        gateway->next_send_ns =
            limits.interval_ns +
            (gateway->next_send_ns > now_ns - STEP_NS ? gateway->next_send_ns : now_ns);
        job->epoch = limits.epoch;
        model_send(gateway, number, now_ns);
        adaptive_set_in_flight(&gateway->row, gateway->in_flight, now_ns);
        adaptive_sent(&gateway->row, now_ns);
    }
}

static inline void model_ended(struct model_gateway *gateway, int64_t now_ns)
{
    gateway->in_flight--;
    if (gateway->in_flight == 0)
        gateway->idle_since_ns = now_ns;
    adaptive_set_in_flight(&gateway->row, gateway->in_flight, now_ns);
}

static inline void model_done(struct model_gateway *gateway, uint32_t number, int64_t now_ns)
{
    struct model_run *run = gateway->run;
    const struct model_job *job = &gateway->jobs[number];
    int second = model_second(now_ns);
    struct adaptive_sample sample = {.epoch = job->epoch,
                                     .input_tokens = job->input,
                                     .output_tokens = job->output,
                                     .streamed_tokens = job->output - 1,
                                     .decode_ns = now_ns - job->first_ns,
                                     .ttft_ns = job->first_ns - job->sent_ns,
                                     .latency_ns = now_ns - job->sent_ns};

    run->done[second]++;
    run->done_tokens[second] += job->input + job->output;
    gateway->mean_output = 0.9 * gateway->mean_output + 0.1 * job->output;
    model_log_add(&gateway->own_tokens, now_ns, job->output);
    model_log_add(&gateway->upstream.tokens, now_ns, job->output);
    model_log_add(&gateway->charged, now_ns, job->input + job->output - (int32_t)job->estimate);
    bucket_settle(&gateway->tokens, job->estimate * BUCKET_UNIT,
                  (int64_t)(job->input + job->output) * BUCKET_UNIT, now_ns);
    model_ended(gateway, now_ns);
    adaptive_completed(&gateway->row, &sample, now_ns);
}

/* Everybody in flight shares what the upstream can compute. */
static inline void model_compute(struct model_gateway *gateway, int64_t now_ns)
{
    struct model_upstream *upstream = &gateway->upstream;
    double speed = upstream->active_count <= upstream->limits.saturation
                       ? 1
                       : (double)upstream->limits.saturation / (double)upstream->active_count;

    for (size_t i = 0; i < upstream->active_count;) {
        uint32_t number = upstream->active[i];
        struct model_job *job = &gateway->jobs[number];

        if (job->prefill_left_s > 0) {
            job->prefill_left_s -= STEP_S * speed;
            if (job->prefill_left_s <= 0)
                job->first_ns = now_ns;
        } else {
            job->left -= STEP_S * speed / TOKEN_S;
        }
        if (job->prefill_left_s > 0 || job->left > 0) {
            i++;
            continue;
        }
        upstream->active[i] = upstream->active[--upstream->active_count];
        model_done(gateway, number, now_ns);
    }
}

/* A refusal arrives; later its call tries again, five times at most. */
static inline void model_late(struct model_gateway *gateway, int64_t now_ns)
{
    size_t kept = 0, count = gateway->late_count;

    gateway->late_count = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t number = gateway->late[i];
        struct model_job *job = &gateway->jobs[number];

        if (job->ready_ns == 0 && now_ns >= job->news_ns) {
            struct adaptive_refusal refusal = {
                .kind = job->refused,
                .epoch = job->epoch,
                .requests_60s = model_log_sum(&gateway->own_requests, now_ns),
                .tokens_60s = model_log_sum(&gateway->own_tokens, now_ns),
                .random = (uint32_t)(model_uniform(&gateway->random) * 4e9)};

            gateway->run->refused_kinds[job->refused]++;
            /* it used nothing after all */
            model_log_add(&gateway->own_requests, now_ns, 0);
            model_log_add(&gateway->own_tokens, job->sent_ns, -job->input);
            model_log_add(&gateway->charged, now_ns, -(int32_t)job->estimate);
            bucket_give_back(&gateway->tokens, job->estimate * BUCKET_UNIT, now_ns);
            model_ended(gateway, now_ns);
            (void)adaptive_refused(&gateway->row, &refusal, now_ns);
            job->tries++;
            job->ready_ns =
                now_ns + NS_PER_S / 2 +
                (int64_t)(1e9 * model_uniform(&gateway->random) * (double)(1U << job->tries));
            if (job->tries > 5)
                continue;
        } else if (job->ready_ns > 0 && now_ns >= job->ready_ns) {
            model_enqueue(gateway, number, now_ns);
            continue;
        }
        gateway->late[kept++] = number;
    }
    gateway->late_count = kept;
}

static inline void model_gateway_init(struct model_gateway *gateway, struct model_run *run)
{
    struct bucket_terms requests = bucket_terms_strict(run->limits.rpm);
    struct bucket_terms tokens = bucket_terms_strict(run->limits.tpm);

    memset(gateway, 0, sizeof *gateway);
    gateway->run = run;
    gateway->random.bits = run->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    gateway->jobs = calloc(JOBS_MAX, sizeof *gateway->jobs);
    gateway->queue = calloc(JOBS_MAX, sizeof *gateway->queue);
    gateway->late = calloc(JOBS_MAX, sizeof *gateway->late);
    if (!gateway->jobs || !gateway->queue || !gateway->late)
        abort();
    gateway->mean_output = 200;
    gateway->idle_since_ns = BEGIN_NS;
    model_upstream_init(&gateway->upstream, &run->limits);
    model_log_init(&gateway->own_requests, 60 * NS_PER_S);
    model_log_init(&gateway->own_tokens, 60 * NS_PER_S);
    model_log_init(&gateway->charged, 60 * NS_PER_S);
    if (run->client == MODEL_ADAPTIVE) {
        adaptive_init(&gateway->row, &run->terms, BEGIN_NS);
    } else {
        requests.rate_micro = (int64_t)((double)(run->limits.rpm * BUCKET_UNIT) * run->static_rate);
        tokens.rate_micro = (int64_t)((double)(run->limits.tpm * BUCKET_UNIT) * run->static_rate);
        bucket_init(&gateway->requests, &requests, BEGIN_NS);
        bucket_init(&gateway->tokens, &tokens, BEGIN_NS);
    }
    if (run->burst_calls > 0)
        model_bursts(gateway);
    else
        model_arrivals(gateway);
}

static inline void model_gateway_release(struct model_gateway *gateway)
{
    model_upstream_release(&gateway->upstream);
    model_log_release(&gateway->own_requests);
    model_log_release(&gateway->own_tokens);
    model_log_release(&gateway->charged);
    free(gateway->jobs);
    free(gateway->queue);
    free(gateway->late);
}

static inline void model_step(struct model_gateway *gateway, int64_t now_ns)
{
    struct model_run *run = gateway->run;
    uint32_t state = gateway->row.state;
    double minute_requests, minute_tokens;

    model_compute(gateway, now_ns);
    model_late(gateway, now_ns);
    model_dispatch(gateway, now_ns);
    if (gateway->row.state == ADAPTIVE_HOLD && state != ADAPTIVE_HOLD)
        run->holds++;
    minute_requests = model_log_total(&gateway->own_requests, now_ns);
    minute_tokens = model_log_total(&gateway->own_tokens, now_ns);
    run->worst_minute_requests = fmax(run->worst_minute_requests, minute_requests);
    run->worst_minute_tokens = fmax(run->worst_minute_tokens, minute_tokens);
    run->worst_excess =
        fmax(run->worst_excess, model_log_total(&gateway->charged, now_ns) -
                                    (double)run->terms.tokens_quota +
                                    fmin(0, (double)gateway->tokens.balance_micro / 1e6));
}

static inline void model_go(struct model_run *run)
{
    static struct model_gateway gateway;
    size_t arrived = 0;

    model_gateway_init(&gateway, run);
    for (int64_t step = 0; step < (int64_t)run->run_s * NS_PER_S / STEP_NS; step++) {
        int64_t now_ns = BEGIN_NS + step * STEP_NS;
        int second = model_second(now_ns);

        if (run->change_s > 0 && second == run->change_s)
            gateway.upstream.limits = run->changed;
        if (run->back_s > 0 && second == run->back_s)
            gateway.upstream.limits = run->limits;
        for (; arrived < gateway.jobs_count && gateway.jobs[arrived].arrived_ns <= now_ns;
             arrived++)
            model_enqueue(&gateway, (uint32_t)arrived, now_ns);
        model_step(&gateway, now_ns);
    }
    model_gateway_release(&gateway);
}

/* Mean per second of [from, to). */
static inline double model_mean(const double *by_second, int from_s, int to_s)
{
    double sum = 0;

    for (int i = from_s; i < to_s; i++)
        sum += by_second[i];
    return sum / (to_s - from_s);
}

#endif
