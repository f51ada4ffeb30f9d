/* flow_rows.c - the records of flows; see flow_rows.h and flow.h. */
#include "shared/flow_rows.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "shared/bucket.h"
#include "shared/flow_queue.h"
#include "shared/flow_told.h"

#include <string.h>

_Static_assert(FLOW_REFUSAL_KINDS >= ADAPTIVE_KINDS, "a counter for every kind");

/* ---- the last 60 s --------------------------------------------------------------------------- */

static struct flow_second *second_of(struct flow_row *flow, int64_t now_ns)
{
    const int64_t second = now_ns / NS_PER_S;
    struct flow_second *row = &flow->window[second % FLOW_WINDOW_S];

    if (row->second != second)
        *row = (struct flow_second){.second = second};
    return row;
}

void flow_count_grant_locked(struct flow_row *flow, int64_t units, int64_t now_ns)
{
    struct flow_second *row = second_of(flow, now_ns);

    row->sends++;
    row->units += units;
}

void flow_uncount_grant_locked(struct flow_row *flow, int64_t units, int64_t granted_ns)
{
    const int64_t second = granted_ns / NS_PER_S;
    struct flow_second *row = &flow->window[second % FLOW_WINDOW_S];

    if (row->second != second)
        return;
    row->sends--;
    row->units -= units;
}

void flow_count_units_locked(struct flow_row *flow, int64_t units, int64_t now_ns)
{
    second_of(flow, now_ns)->units += units;
}

struct flow_use flow_use_locked(const struct flow_row *flow, int64_t now_ns)
{
    const int64_t second = now_ns / NS_PER_S;
    struct flow_use use = {0};

    for (unsigned i = 0; i < FLOW_WINDOW_S; i++) {
        const struct flow_second *row = &flow->window[i];

        if (row->second > second - (int64_t)FLOW_WINDOW_S && row->second <= second) {
            use.sends += row->sends;
            use.units += row->units;
        }
    }
    return use;
}

/* ---- limits ---------------------------------------------------------------------------------- */

bool flow_holds_back(const struct flow_row *flow)
{
    return flow->strategy >= FLOW_STRATEGY_RATE;
}

/* The less is left of the quota upstream, the slower it fills here. */
static void set_rate(struct bucket_row *row, int64_t rate_micro, int64_t open, int64_t now_ns)
{
    bucket_set_rate(row,
                    rate_micro / FLOW_OPEN_FULL * open +
                        rate_micro % FLOW_OPEN_FULL * open / FLOW_OPEN_FULL,
                    now_ns);
}

static void set_budget(struct bucket_row *row, const struct adaptive_budget *budget, int64_t open,
                       int64_t now_ns)
{
    set_rate(row, budget->rate_micro, open, now_ns);
    bucket_set_capacity(row, budget->capacity_micro, now_ns);
}

struct flow_limits flow_limits_locked(struct flow_row *flow, int64_t now_ns)
{
    const int64_t requests_open = flow_open_of(&flow->requests_known, now_ns);
    const int64_t units_open = flow_open_of(&flow->units_known, now_ns);
    struct flow_limits limits = {
        .in_flight = flow->max_concurrent > 0 ? flow->max_concurrent : UINT32_MAX,
        .interval_ns = flow->interval_ns * FLOW_OPEN_FULL / requests_open,
        .not_before_ns = flow->paused_until_ns,
    };

    if (flow->strategy == FLOW_STRATEGY_ADAPTIVE) {
        const struct flow_use use = flow_use_locked(flow, now_ns);
        struct adaptive_limits learned;

        adaptive_set_minute(&flow->adaptive, use.sends, use.units);
        learned = adaptive_may_send(&flow->adaptive, now_ns);
        if (learned.in_flight < limits.in_flight)
            limits.in_flight = learned.in_flight;
        limits.epoch = learned.epoch;
        limits.interval_ns = learned.interval_ns;
        limits.not_before_ns = learned.drained_until_ns;
        set_budget(&flow->requests, &learned.requests, requests_open, now_ns);
        set_budget(&flow->units, &learned.tokens, units_open, now_ns);
        return limits;
    }
    if (flow->requests_known.left_ns > 0)
        set_rate(&flow->requests, flow->requests_rate_micro, requests_open, now_ns);
    if (flow->units_known.left_ns > 0)
        set_rate(&flow->units, flow->units_rate_micro, units_open, now_ns);
    return limits;
}

void flow_wake_locked(struct flow_row *flow, int64_t now_ns)
{
    const int64_t since_ns =
        flow->woken_ns > flow->last_demand_ns ? flow->woken_ns : flow->last_demand_ns;
    const int64_t idle_ns = now_ns - since_ns;

    if (flow->waiting > 0 || flow->in_flight > 0 || since_ns == 0)
        return;
    if (flow->strategy == FLOW_STRATEGY_ADAPTIVE && idle_ns >= ADAPTIVE_IDLE_NS) {
        adaptive_resume_after_idle(&flow->adaptive, idle_ns, now_ns);
        flow->woken_ns = now_ns;
    } else if (flow_holds_back(flow) && flow->strategy != FLOW_STRATEGY_ADAPTIVE &&
               idle_ns >= FLOW_IDLE_NS) {
        bucket_restart(&flow->requests, now_ns);
        flow->woken_ns = now_ns;
    }
}

/* ---- terms ----------------------------------------------------------------------------------- */

static uint64_t hash_terms(const struct flow_terms *terms)
{
    const int64_t all[] = {
        terms->strategy,         terms->unit,       terms->requests_quota, terms->units_quota,
        terms->initial_requests, terms->warmup_ns,  terms->max_concurrent, terms->server_queueing,
        terms->weights[0],       terms->weights[1], terms->weights[2],     terms->ignores_told};

    return hash_bytes(all, sizeof all);
}

static struct bucket_terms request_terms(const struct flow_row *flow)
{
    const int64_t quota_micro = flow->requests_quota * BUCKET_UNIT;
    struct bucket_terms bucket = {0};

    if (flow->requests_quota <= 0)
        return bucket;
    if (flow->strategy == FLOW_STRATEGY_RATE) {
        bucket.capacity_micro = bucket.rate_micro = quota_micro;
        bucket.initial_micro = flow->initial_requests * BUCKET_UNIT;
    } else if (flow->strategy == FLOW_STRATEGY_SHAPING) {
        bucket = bucket_terms_strict(flow->requests_quota);
        /* The first call never waits for a ramp that begins with it. */
        bucket.initial_micro =
            (flow->initial_requests > 1 ? flow->initial_requests : 1) * BUCKET_UNIT;
        bucket.warmup_ns = flow->warmup_ns;
    }
    return bucket;
}

/* The ramp of requests is one of units too: these start with what the capacity allows. */
static struct bucket_terms unit_terms(const struct flow_row *flow)
{
    struct bucket_terms bucket = {0};

    if (flow->units_quota > 0 && flow->strategy == FLOW_STRATEGY_SHAPING) {
        bucket = bucket_terms_strict(flow->units_quota);
        bucket.initial_micro = bucket.capacity_micro;
    }
    return bucket;
}

/* Calls in flight look back to what was taken. */
static void init_bucket(struct bucket_row *row, const struct bucket_terms *terms, int64_t now_ns)
{
    const uint64_t taken_micro = row->taken_micro;

    bucket_init(row, terms, now_ns);
    row->taken_micro = taken_micro;
}

static void change_bucket(struct bucket_row *row, const struct bucket_terms *terms, int64_t now_ns)
{
    if (row->capacity_micro == 0 || terms->capacity_micro == 0) {
        init_bucket(row, terms, now_ns);
        return;
    }
    bucket_set_rate(row, terms->rate_micro, now_ns);
    bucket_set_capacity(row, terms->capacity_micro, now_ns);
    row->initial_micro = terms->initial_micro;
    bucket_set_warmup(row, terms->warmup_ns, now_ns);
}

/* The controller's pace is the ramp: what the capacity has in hand does no harm. */
static void begin_full(struct bucket_row *row, const struct adaptive_budget *budget, int64_t now_ns)
{
    const struct bucket_terms terms = {.capacity_micro = budget->capacity_micro,
                                       .rate_micro = budget->rate_micro,
                                       .initial_micro = budget->capacity_micro};

    init_bucket(row, &terms, now_ns);
}

static void tell_adaptive(struct flow_row *flow, int64_t now_ns)
{
    const struct adaptive_terms known = {
        .requests_quota = flow->requests_quota,
        .tokens_quota = flow->units_quota,
        .requests_heard = flow->requests_quota != flow->requests_known.configured,
        .tokens_heard = flow->units_quota != flow->units_known.configured,
        .in_flight_max = flow->max_concurrent,
        .server_queueing = flow->adaptive.server_queueing != 0,
    };
    const bool first = flow->adaptive.state == ADAPTIVE_NONE;

    adaptive_init(&flow->adaptive, &known, now_ns);
    if (first) {
        const struct adaptive_limits limits = adaptive_may_send(&flow->adaptive, now_ns);

        begin_full(&flow->requests, &limits.requests, now_ns);
        begin_full(&flow->units, &limits.tokens, now_ns);
    }
}

void flow_set_quotas_locked(struct flow_row *flow, int64_t now_ns)
{
    struct bucket_terms requests, units;

    flow->requests_quota = flow_quota_of(&flow->requests_known);
    flow->units_quota = flow_quota_of(&flow->units_known);
    requests = request_terms(flow);
    units = unit_terms(flow);
    flow->requests_rate_micro = requests.rate_micro;
    flow->units_rate_micro = units.rate_micro;
    flow->interval_ns = flow->strategy == FLOW_STRATEGY_SHAPING && flow->requests_quota > 0
                            ? 60 * NS_PER_S / flow->requests_quota
                            : 0;
    if (flow->strategy == FLOW_STRATEGY_ADAPTIVE) {
        tell_adaptive(flow, now_ns);
        atomic_store(&flow->quotas_due, 0);
        return;
    }
    change_bucket(&flow->requests, &requests, now_ns);
    change_bucket(&flow->units, &units, now_ns);
    atomic_store(&flow->quotas_due, 0);
}

static void configure_quota(struct flow_quota_row *quota, int64_t configured, bool keeps_told)
{
    if (!keeps_told)
        *quota = (struct flow_quota_row){0};
    quota->configured = configured;
}

static void apply(struct flow_row *flow, const struct flow_terms *terms, int64_t now_ns)
{
    const bool keeps_told = !terms->ignores_told && flow->unit == terms->unit;

    configure_quota(&flow->requests_known, terms->requests_quota, !terms->ignores_told);
    configure_quota(&flow->units_known, terms->units_quota, keeps_told);
    flow->strategy = terms->strategy;
    flow->unit = terms->unit;
    flow->max_concurrent = terms->max_concurrent;
    flow->initial_requests = terms->initial_requests;
    flow->warmup_ns = terms->warmup_ns;
    if (terms->strategy != FLOW_STRATEGY_ADAPTIVE)
        flow->adaptive = (struct adaptive_row){0};
    flow->adaptive.server_queueing = terms->server_queueing;
    flow_set_quotas_locked(flow, now_ns);
    for (uint32_t i = 0; i < FLOW_CLASSES; i++)
        flow->classes[i].weight = terms->weights[i] > 0 ? terms->weights[i] : 1;
}

/* Two configurations may speak of one upstream: the newer one counts, and of one configuration's
 * scopes the one that holds back more. */
static void renew_terms(struct gate *gate, struct flow_row *flow, const struct flow_terms *terms,
                        int64_t now_ns)
{
    const struct roster_row *self = &segment_core(gate->segment)->roster[gate->self];
    const uint64_t known_hash = atomic_load(&flow->terms_hash);
    const bool known = known_hash != 0 && self->generation <= flow->terms_generation;
    uint64_t hash;

    if (known &&
        (self->generation < flow->terms_generation || (uint32_t)terms->strategy <= flow->strategy))
        return;
    hash = hash_terms(terms);
    if (known && hash == known_hash)
        return;
    if (hash != known_hash) {
        atomic_store(&flow->terms_hash, 0);
        if (known_hash == 0) /* or half begun by who died */
            flow->adaptive = (struct adaptive_row){0};
        apply(flow, terms, now_ns);
    }
    flow->terms_generation = self->generation;
    flow->terms_origin = terms->origin;
    flow->terms_instance = self->instance;
    atomic_store(&flow->terms_hash, hash);
}

/* ---- found or made --------------------------------------------------------------------------- */

/* The record of a group's models that have none of their own. */
#define CATCH_ALL "*"
#define CATCH_ALL_ROWS                                                                             \
    32U /* kept for such records: clients make up names of models, not of groups */

struct names {
    char group[NAME_SIZE], model[NAME_SIZE];
    uint64_t hash;
};

/* FNV-1a (Fowler, Noll, Vo): names are short, and two that collide cost a comparison. */
#define FNV_BASIS UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

static uint64_t cut_name(char out[NAME_SIZE], const char *name, uint64_t hash)
{
    size_t length = strnlen(name, NAME_SIZE - 1);

    memcpy(out, name, length);
    out[length] = '\0';
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)out[i]) * FNV_PRIME;
    return hash * FNV_PRIME;
}

static void cut_names(const char *group, const char *model, struct names *names)
{
    names->hash = cut_name(names->group, group, FNV_BASIS);
    names->hash = cut_name(names->model, model, names->hash);
    names->hash += names->hash == 0;
}

static uint32_t find(const struct layout_area *layout, const struct names *names)
{
    for (uint32_t i = 0; i < FLOWS_MAX; i++)
        if (layout->flow_hashes[i] == names->hash &&
            strcmp(layout->flows[i].quota_group, names->group) == 0 &&
            strcmp(layout->flows[i].model, names->model) == 0)
            return i;
    return NO_INDEX;
}

static bool is_catch_all(const char *model)
{
    return strcmp(model, CATCH_ALL) == 0;
}

/* Nothing that it knows would be missed: nobody is there, or looks at it in this very decision; and
 * either no answer ever came of it (a made-up name of a model costs no room), or nobody was there
 * within the window and nothing is owed. */
static bool gives_way(struct flow_row *flow, int64_t now_ns)
{
    if (flow->waiting > 0 || flow->in_flight > 0 || flow->last_used_ns >= now_ns)
        return false;
    return flow->completed == 0 ||
           (now_ns - flow->last_used_ns > (int64_t)FLOW_WINDOW_S * NS_PER_S &&
            bucket_balance_micro(&flow->units, now_ns) >= 0 && flow->paused_until_ns <= now_ns);
}

/* A free row, or else the one that gives way and was away for longest. */
static uint32_t room(struct layout_area *layout, bool catch_all, int64_t now_ns)
{
    uint32_t best = NO_INDEX;
    uint32_t unused = NO_INDEX;
    unsigned named = 0;

    for (uint32_t i = 0; i < FLOWS_MAX; i++) {
        struct flow_row *flow = &layout->flows[i];

        if (layout->flow_hashes[i] == 0) {
            unused = unused == NO_INDEX ? i : unused;
            continue;
        }
        if (is_catch_all(flow->model) && !catch_all)
            continue;
        named += !is_catch_all(flow->model);
        if (gives_way(flow, now_ns) &&
            (best == NO_INDEX || flow->last_used_ns < layout->flows[best].last_used_ns))
            best = i;
    }
    if (unused != NO_INDEX && (catch_all || named < FLOWS_MAX - CATCH_ALL_ROWS))
        return unused;
    return best;
}

static void make(struct layout_area *layout, uint32_t index, const struct names *names)
{
    struct flow_row *flow = &layout->flows[index];

    layout->flow_hashes[index] = 0;
    memset(flow, 0, sizeof *flow);
    (void)text_copy(flow->quota_group, sizeof flow->quota_group, names->group);
    (void)text_copy(flow->model, sizeof flow->model, names->model);
    layout->flow_hashes[index] = names->hash;
}

static uint32_t find_or_make(struct layout_area *layout, const struct names *names, int64_t now_ns)
{
    uint32_t index = find(layout, names);

    if (index == NO_INDEX) {
        index = room(layout, is_catch_all(names->model), now_ns);
        if (index != NO_INDEX)
            make(layout, index, names);
    }
    return index;
}

uint32_t flow_find_locked(struct gate *gate, const struct flow_target *target, int64_t now_ns)
{
    struct layout_area *layout = segment_layout(gate->segment);
    struct names names;
    struct flow_row *flow;
    uint32_t index;

    if (!target->terms || target->terms->strategy == FLOW_STRATEGY_NONE)
        return NO_INDEX;
    cut_names(target->quota_group, target->model, &names);
    index = find_or_make(layout, &names, now_ns);
    if (index == NO_INDEX) {
        cut_names(target->quota_group, CATCH_ALL, &names);
        index = find_or_make(layout, &names, now_ns);
    }
    if (index == NO_INDEX)
        return NO_INDEX;
    flow = &layout->flows[index];
    if (flow->last_used_ns < now_ns)
        flow->last_used_ns = now_ns;
    renew_terms(gate, flow, target->terms, now_ns);
    return index;
}

uint32_t flow_renew_locked(struct gate *gate, const struct flow_target *target, int64_t now_ns)
{
    struct layout_area *layout = segment_layout(gate->segment);
    struct names names;
    uint32_t index;

    cut_names(target->quota_group, target->model, &names);
    index = find(layout, &names);
    if (index != NO_INDEX)
        renew_terms(gate, &layout->flows[index], target->terms, now_ns);
    return index;
}

bool flow_serves_locked(struct gate *gate, uint32_t flow, const struct flow_target *target)
{
    const struct layout_area *layout = segment_layout(gate->segment);
    struct names names;

    if (!target->terms || target->terms->strategy == FLOW_STRATEGY_NONE)
        return flow == NO_INDEX;
    if (flow == NO_INDEX) /* one that is only counted goes without a place where there is none */
        return target->terms->strategy < FLOW_STRATEGY_RATE;
    cut_names(target->quota_group, target->model, &names);
    return strcmp(layout->flows[flow].quota_group, names.group) == 0 &&
           (strcmp(layout->flows[flow].model, names.model) == 0 ||
            is_catch_all(layout->flows[flow].model));
}

/* ---- for who is turned away ------------------------------------------------------------------- */

static struct flow_standing standing_of(struct bucket_row *row, int64_t quota, double learned,
                                        int64_t now_ns)
{
    struct flow_standing standing = {.quota = quota > 0 ? quota : (int64_t)learned};
    int64_t full_ns;

    if (standing.quota <= 0 || row->capacity_micro == 0)
        return (struct flow_standing){0};
    standing.left = bucket_balance_micro(row, now_ns) / BUCKET_UNIT;
    if (standing.left < 0)
        standing.left = 0;
    full_ns = bucket_due_ns(row, row->capacity_micro, now_ns);
    standing.full_ns = full_ns == CLOCK_NEVER ? CLOCK_NEVER : full_ns - now_ns;
    return standing;
}

void flow_tell_standing_locked(struct flow_row *flow, int64_t now_ns, struct flow_answer *answer)
{
    answer->requests =
        standing_of(&flow->requests, flow->requests_quota, flow->adaptive.requests.used, now_ns);
    answer->units =
        standing_of(&flow->units, flow->units_quota, flow->adaptive.tokens.used, now_ns);
    answer->unit = (enum flow_unit)flow->unit;
}

/* ---- for people ------------------------------------------------------------------------------ */

static int64_t whole(struct bucket_row *row, int64_t now_ns)
{
    return row->capacity_micro == 0 ? INT64_MAX : bucket_balance_micro(row, now_ns) / BUCKET_UNIT;
}

static enum flow_quota_origin origin_of(const struct flow_quota_row *quota, double learned)
{
    const int64_t in_force = flow_quota_of(quota);

    if (in_force > 0)
        return in_force == quota->configured ? FLOW_QUOTA_CONFIGURED : FLOW_QUOTA_HEADERS;
    return learned > 0 ? FLOW_QUOTA_REFUSALS : FLOW_QUOTA_UNKNOWN;
}

static int64_t left_of(const struct flow_quota_row *quota)
{
    return quota->left_ns > 0 ? quota->left : -1;
}

static void view(struct flow_row *flow, int64_t now_ns, struct flow_view *ret)
{
    const struct flow_limits limits = flow_limits_locked(flow, now_ns);
    const bool keeps_units = flow->strategy != FLOW_STRATEGY_RATE;

    *ret = (struct flow_view){
        .strategy = (enum flow_strategy)flow->strategy,
        .unit = (enum flow_unit)flow->unit,
        .requests_quota = flow->requests_quota,
        .units_quota = keeps_units ? flow->units_quota : 0,
        .requests_configured = flow->requests_known.configured,
        .units_configured = flow->units_known.configured,
        .requests_told = flow->requests_known.told,
        .units_told = flow->units_known.told,
        .requests_origin = origin_of(&flow->requests_known, flow->adaptive.requests.used),
        .units_origin = keeps_units ? origin_of(&flow->units_known, flow->adaptive.tokens.used)
                                    : FLOW_QUOTA_UNKNOWN,
        .requests_left = left_of(&flow->requests_known),
        .units_left = left_of(&flow->units_known),
        .requests_balance = whole(&flow->requests, now_ns),
        .units_balance = whole(&flow->units, now_ns),
        .use = flow_use_locked(flow, now_ns),
        .in_flight = flow->in_flight,
        .in_flight_limit = limits.in_flight,
        .paused_for_ns = limits.not_before_ns > now_ns ? limits.not_before_ns - now_ns : 0,
        .adaptive_state = flow->adaptive.state,
        .learned = adaptive_export(&flow->adaptive),
        .last_refusal_age_ns = flow->last_refusal_ns > 0 ? now_ns - flow->last_refusal_ns : -1,
        .last_refusal_kind = (enum adaptive_kind)flow->last_refusal_kind,
        .refused_full = flow->refused_full,
        .refused_client = flow->refused_client,
        .refused_hopeless = flow->refused_hopeless,
        .refused_threads = flow->refused_threads,
        .expired = flow->expired,
        .cancelled = flow->cancelled,
        .buried = flow->buried,
        .completed = flow->completed,
        .limit = flow->adaptive.limit,
        .cuts = flow->adaptive.cuts,
        .cut_kind = (enum adaptive_kind)flow->adaptive.drain_kind,
        .estimate = flow->estimate,
        .idle_ns = now_ns > flow->last_used_ns ? now_ns - flow->last_used_ns : 0,
        .terms_origin = flow->terms_origin,
        .terms_instance = flow->terms_instance,
    };
    (void)text_copy(ret->quota_group, sizeof ret->quota_group, flow->quota_group);
    (void)text_copy(ret->model, sizeof ret->model, flow->model);
    for (uint32_t i = 0; i < FLOW_CLASSES; i++) {
        ret->waiting[i] = flow->classes[i].waiting;
        ret->granted[i] = flow->classes[i].granted;
    }
    for (uint32_t i = 0; i < ADAPTIVE_KINDS; i++)
        ret->refusals[i] = flow->refusals[i];
}

unsigned flow_views_locked(struct gate *gate, int64_t now_ns, struct flow_view views[FLOWS_MAX])
{
    struct layout_area *layout = segment_layout(gate->segment);
    unsigned count = 0;

    for (uint32_t i = 0; i < FLOWS_MAX; i++)
        if (layout->flow_hashes[i] != 0)
            view(&layout->flows[i], now_ns, &views[count++]);
    return count;
}
