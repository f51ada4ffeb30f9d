/*
 * adaptive.c - what happens to the controller from outside: calls sent, refused, idle time, memory;
 * and what it answers. What it does by itself is in adaptive_window.c, how it sees slowness in
 * adaptive_signals.c.
 */
#include "shared/adaptive.h"

#include "base/clock.h"
#include "shared/adaptive_inside.h"
#include "shared/bucket.h"

#define DRAINS_MAX 5U       /* doublings of the pause ... */
#define DRAINS_MAX_QUOTA 1U /* ... of a quota's: long silence would only cost growth afterwards */
#define DRAINS_NS (30 * NS_PER_S)
#define COOL_MAX_S 20.0
#define RETRY_AFTER_MIN_S 1.0
#define RETRY_AFTER_MAX_S 60.0
#define JITTER 0.25
#define FAULTS_OF_A_CAP 2U
#define MINUTE_ASKED_NS (5 * NS_PER_S)
#define GREW_BACK 1.1
#define CUT_MOST 0.2
#define USED_MOST 0.8 /* of a per-minute quota: below, a per-second limit refused */
#define OPEN_LEAST 0.1
#define IDLE_NS (10 * NS_PER_S)
#define IDLE_HALVINGS_MAX 60

/* ---- beginning ------------------------------------------------------------------------------ */

static void tell(struct adaptive_quota *quota, int64_t told, bool heard)
{
    double share = quota->told > 0 ? quota->used / (double)quota->told : 1;

    quota->heard = heard;
    if (quota->told == told)
        return;
    quota->told = told < 0                             ? 0
                  : told > (int64_t)ADAPTIVE_QUOTA_MAX ? (int64_t)ADAPTIVE_QUOTA_MAX
                                                       : told;
    quota->used = share * (double)quota->told;
    quota->ceiling = 0;
    quota->probe = 0;
}

void adaptive_init(struct adaptive_row *row, const struct adaptive_terms *terms, int64_t now_ns)
{
    tell(&row->requests, terms->requests_quota, terms->requests_heard);
    tell(&row->tokens, terms->tokens_quota, terms->tokens_heard);
    row->in_flight_max = terms->in_flight_max > 0 ? terms->in_flight_max : ADAPTIVE_IN_FLIGHT_MAX;
    row->server_queueing = terms->server_queueing;
    if (row->state == ADAPTIVE_NONE) {
        row->limit = ADAPTIVE_LIMIT_START;
        row->watermark = ADAPTIVE_WATERMARK_START;
        row->growth = ADAPTIVE_GROWTH_START;
        row->slowness = 1;
        row->answered_share = 1;
        row->pace = row->pace_learned =
            (adaptive_is_slow_start(row) ? 2 : 1) * adaptive_pace_start(row);
        row->second_ns = now_ns;
        adaptive_window_begin(row, now_ns);
        adaptive_set_state(row, ADAPTIVE_STARTUP, now_ns);
    }
    adaptive_keep(row);
}

/* ---- what it answers ------------------------------------------------------------------------ */

/* How open the rate is while the last minute holds more than what is used of the quota: what was
 * sent then counts upstream until it is a minute old. Nearly closed where it was refused. */
static double openness(const struct adaptive_quota *quota)
{
    double room = quota->ceiling - quota->used;

    if (room <= 0 || quota->minute <= quota->used)
        return 1;
    return adaptive_within((quota->ceiling - quota->minute) / room, OPEN_LEAST, 1);
}

/* Of what is used of the quota a little in hand, the whole as rate; of a quota that was told, never
 * more in any minute than it. */
static struct adaptive_budget budget(const struct adaptive_quota *quota)
{
    struct adaptive_budget budget = {0, 0};
    int64_t most;

    if (!(quota->used > 0))
        return budget;
    budget.capacity_micro = bucket_terms_strict((int64_t)quota->used).capacity_micro;
    budget.rate_micro = (int64_t)(openness(quota) * quota->used * (double)BUCKET_UNIT);
    most = quota->told > 0 ? bucket_terms_strict(quota->told).rate_micro : INT64_MAX;
    if (budget.rate_micro > most)
        budget.rate_micro = most;
    return budget;
}

struct adaptive_limits adaptive_may_send(struct adaptive_row *row, int64_t now_ns)
{
    struct adaptive_limits limits = {.in_flight = UINT32_MAX};

    if (row->state == ADAPTIVE_NONE)
        return limits;
    adaptive_tick(row, now_ns);
    limits.in_flight = (uint32_t)row->limit;
    limits.epoch = row->epoch;
    limits.interval_ns = (int64_t)(1e9 / row->pace);
    limits.drained_until_ns = row->state == ADAPTIVE_DRAIN ? row->drained_until_ns : 0;
    limits.requests = budget(&row->requests);
    limits.tokens = budget(&row->tokens);
    return limits;
}

int64_t adaptive_wait_ns(struct adaptive_row *row, uint32_t ahead, int64_t now_ns)
{
    double left = (double)ahead, pace = row->pace, most, seconds = 0;

    if (row->state == ADAPTIVE_NONE)
        return 0;
    adaptive_tick(row, now_ns);
    most = adaptive_most(adaptive_pace_most(row) / 1.1, adaptive_pace_least(row));
    if (row->state == ADAPTIVE_DRAIN)
        seconds = adaptive_seconds(row->drained_until_ns - now_ns);
    /* the ramp, then the quota */
    for (; left > pace && pace < most; seconds++) {
        left -= pace;
        pace = adaptive_pace_next(row, pace, row->answered_share * pace);
    }
    seconds += left / adaptive_least(pace, most);
    return (int64_t)(adaptive_within(seconds, 0, 1e6) * 1e9);
}

/* ---- what it is told ------------------------------------------------------------------------ */

void adaptive_waited(struct adaptive_row *row, enum adaptive_want want)
{
    switch (want) {
    case ADAPTIVE_WANT_PLACE:
        row->window.place_wanted++;
        break;
    case ADAPTIVE_WANT_PACE:
        row->window.pace_wanted++;
        row->second_pace_wanted++;
        break;
    case ADAPTIVE_WANT_BUDGET:
        row->window.budget_wanted++;
        break;
    }
}

void adaptive_set_in_flight(struct adaptive_row *row, uint32_t in_flight, int64_t now_ns)
{
    if (now_ns > row->counted_ns) {
        row->window.in_flight_s +=
            (double)row->in_flight * adaptive_seconds(now_ns - row->counted_ns);
        row->counted_ns = now_ns;
    }
    row->in_flight = in_flight;
    if (in_flight > row->window.peak)
        row->window.peak = in_flight;
}

void adaptive_set_minute(struct adaptive_row *row, int64_t requests_60s, int64_t tokens_60s)
{
    row->requests.minute = adaptive_within((double)requests_60s, 0, ADAPTIVE_QUOTA_MAX);
    row->tokens.minute = adaptive_within((double)tokens_60s, 0, ADAPTIVE_QUOTA_MAX);
}

void adaptive_sent(struct adaptive_row *row, int64_t now_ns)
{
    int64_t second = now_ns / NS_PER_S;

    if (row->state == ADAPTIVE_NONE)
        return;
    if (second - row->sends_second >= ADAPTIVE_SECONDS)
        row->sends_second = second - ADAPTIVE_SECONDS;
    while (row->sends_second < second)
        row->sends[++row->sends_second % ADAPTIVE_SECONDS] = 0;
    row->sends[second % ADAPTIVE_SECONDS]++;
    if (row->cut_sends < UINT32_MAX)
        row->cut_sends++;
}

/* An upstream that limits growth has forgotten us. */
static void begin_again(struct adaptive_row *row, int64_t idle_ns)
{
    double limit = row->limit, pace = row->pace;

    row->pace_learned = adaptive_most(row->pace, row->pace_learned);
    for (int64_t i = 0; i < idle_ns / IDLE_NS && i < IDLE_HALVINGS_MAX; i++) {
        limit /= 2;
        pace /= 2;
    }
    row->limit = adaptive_least(row->limit, adaptive_most(ADAPTIVE_LIMIT_START, limit));
    row->pace = adaptive_least(row->pace, adaptive_most(adaptive_pace_start(row), pace));
}

void adaptive_resume_after_idle(struct adaptive_row *row, int64_t idle_ns, int64_t now_ns)
{
    if (row->state == ADAPTIVE_NONE || row->state == ADAPTIVE_DRAIN || idle_ns < IDLE_NS)
        return;
    if (adaptive_limits_growth(row)) {
        begin_again(row, idle_ns);
    } else {
        row->limit = adaptive_faded(row->limit, ADAPTIVE_LIMIT_START, adaptive_seconds(idle_ns));
        adaptive_fade_pace(row, now_ns);
    }
    row->last_step = 0;
    row->second_pace_wanted = 0;
    row->second_answers = 0;
    row->second_ns = now_ns;
    adaptive_set_state(row, row->limit < row->watermark / 2 ? ADAPTIVE_STARTUP : ADAPTIVE_PROBING,
                       now_ns);
    adaptive_keep(row);
    adaptive_window_begin(row, now_ns);
}

/* ---- refusals ------------------------------------------------------------------------------- */

/* The pause after a refusal, before doublings. */
static const double cool_s[ADAPTIVE_KINDS] = {
    [ADAPTIVE_RPM] = 1.5,   [ADAPTIVE_TPM] = 1.5, [ADAPTIVE_RPS] = 1.0,   [ADAPTIVE_TPS] = 1.0,
    [ADAPTIVE_BURST] = 1.5, [ADAPTIVE_CAP] = 2.0, [ADAPTIVE_FAULT] = 2.0,
};

bool adaptive_asks_for_minute(int64_t retry_after_ns)
{
    return retry_after_ns >= MINUTE_ASKED_NS;
}

/* As fast as before the last cut, so that a limit per second may refuse again; below one call a second,
 * there is none to meet. */
static bool grew_back(const struct adaptive_row *row)
{
    return row->pace >= 1 && row->pace >= GREW_BACK * row->pace_cut;
}

/* Did a quota per minute refuse, and not a limit per second? Yes when it asks for a longer time than
 * such a limit needs; when cuts for such a limit did not help: it forgets in a second; and when most of
 * the known quota was used. Without a known one, when the last minute was as busy as the last seconds:
 * at a ramp, a limit per second comes first. */
static bool is_per_minute(const struct adaptive_row *row, const struct adaptive_quota *quota,
                          enum adaptive_kind per_second, const struct adaptive_refusal *refusal,
                          int64_t now_ns)
{
    int64_t used = per_second == ADAPTIVE_RPS ? refusal->requests_60s : refusal->tokens_60s;
    double known = quota->ceiling > 0 ? adaptive_least(quota->used, quota->ceiling) : quota->used;

    if (adaptive_asks_for_minute(refusal->retry_after_ns))
        return true;
    if (row->cuts > 0 && row->drain_kind == per_second && row->drains > 0 &&
        now_ns - row->drain_ns < DRAINS_NS && !grew_back(row))
        return true;
    if (known > 0)
        return (double)used >= USED_MOST * known;
    return 60 * adaptive_recent_pace(row, now_ns) <= 1.25 * (double)refusal->requests_60s;
}

enum adaptive_kind adaptive_refine(const struct adaptive_row *row,
                                   const struct adaptive_refusal *refusal, int64_t now_ns)
{
    switch (refusal->kind) {
    case ADAPTIVE_RPM:
    case ADAPTIVE_RPS:
        return is_per_minute(row, &row->requests, ADAPTIVE_RPS, refusal, now_ns) ? ADAPTIVE_RPM
                                                                                 : ADAPTIVE_RPS;
    case ADAPTIVE_TPM:
    case ADAPTIVE_TPS:
        return is_per_minute(row, &row->tokens, ADAPTIVE_TPS, refusal, now_ns) ? ADAPTIVE_TPM
                                                                               : ADAPTIVE_TPS;
    case ADAPTIVE_BURST:
    case ADAPTIVE_CAP:
    case ADAPTIVE_FAULT:
    case ADAPTIVE_KINDS:
        break;
    }
    return refusal->kind;
}

/* What was used when it was refused is the limit; the most we use is a little below. But it is not
 * believed at once that next to nothing is left: others may use the account for a moment. */
static void cut_quota(struct adaptive_quota *quota, int64_t used)
{
    double at = adaptive_most(adaptive_most((double)used, 1), CUT_MOST * quota->used);

    quota->used = ADAPTIVE_BELOW * (quota->used > 0 ? adaptive_least(quota->used, at) : at);
    quota->ceiling = at;
    quota->probe = 0;
}

/* recent: sends per second lately, when the pace was being doubled: then what was refused is the last
 * doubling, and no growth that is slower; 0 = it was not. */
static void cut_pace(struct adaptive_row *row, enum adaptive_kind kind, double recent)
{
    if (recent > 0)
        row->pace = adaptive_least(row->pace / 2, kind == ADAPTIVE_BURST ? recent : row->pace);
    else
        row->pace *= kind == ADAPTIVE_BURST ? 0.7 : 0.8;
    if (kind == ADAPTIVE_BURST)
        row->growth /= 2;
}

static void cut(struct adaptive_row *row, enum adaptive_kind kind,
                const struct adaptive_refusal *refusal, double recent)
{
    double floor = adaptive_least(row->pace, adaptive_pace_start(row) / 2);

    switch (kind) {
    case ADAPTIVE_RPM:
        cut_quota(&row->requests, refusal->requests_60s);
        row->pace = adaptive_most(floor, adaptive_least(row->pace, row->requests.used / 60));
        break;
    case ADAPTIVE_TPM:
        cut_quota(&row->tokens, refusal->tokens_60s);
        break;
    case ADAPTIVE_RPS:
    case ADAPTIVE_TPS:
    case ADAPTIVE_BURST:
        cut_pace(row, kind, recent);
        break;
    case ADAPTIVE_CAP:
    case ADAPTIVE_FAULT:
        row->watermark = 0.95 * (double)row->in_flight;
        row->limit = 0.7 * adaptive_least(row->limit, (double)row->in_flight + 1);
        break;
    case ADAPTIVE_KINDS:
        UNREACHABLE();
    }
    adaptive_keep(row);
    row->pace_learned = adaptive_least(row->pace, row->pace_learned);
    row->pace_cut = row->pace;
}

static double pause_s(const struct adaptive_row *row, enum adaptive_kind kind,
                      const struct adaptive_refusal *refusal)
{
    uint32_t most = kind == ADAPTIVE_RPM || kind == ADAPTIVE_TPM ? DRAINS_MAX_QUOTA : DRAINS_MAX;
    uint32_t doublings = row->drains < most ? row->drains : most;
    double seconds = refusal->retry_after_ns > 0
                         ? adaptive_within(adaptive_seconds(refusal->retry_after_ns),
                                           RETRY_AFTER_MIN_S, RETRY_AFTER_MAX_S)
                         : adaptive_least(COOL_MAX_S, cool_s[kind] * (double)(1U << doublings));

    return seconds * (1 + JITTER * (double)refusal->random / (double)UINT32_MAX);
}

bool adaptive_refused(struct adaptive_row *row, const struct adaptive_refusal *refusal,
                      int64_t now_ns)
{
    enum adaptive_kind kind;
    double recent;

    REQUIRE(refusal->kind < ADAPTIVE_KINDS);
    if (row->state == ADAPTIVE_NONE)
        return false;
    adaptive_tick(row, now_ns);
    recent = adaptive_is_slow_start(row) ? adaptive_recent_pace(row, now_ns) : 0;
    kind = adaptive_refine(row, refusal, now_ns);
    row->refusals[kind]++;
    if (kind == ADAPTIVE_FAULT && ++row->window.faults < FAULTS_OF_A_CAP)
        return false;
    row->window.refusals++;
    row->second_refusals++;
    if (refusal->epoch != row->epoch || row->state == ADAPTIVE_DRAIN)
        return false;
    if (row->cuts > 0 && row->drain_kind == kind && now_ns - row->drain_ns < DRAINS_NS)
        row->drains += row->drains < DRAINS_MAX;
    else
        row->drains = 0;
    cut(row, kind, refusal, recent);
    row->cuts++;
    row->cut_sends = 0;
    row->drain_kind = kind;
    row->drained_until_ns = now_ns + (int64_t)(pause_s(row, kind, refusal) * 1e9);
    adaptive_set_state(row, ADAPTIVE_DRAIN, now_ns);
    return true;
}

/* ---- memory --------------------------------------------------------------------------------- */

static double share(const struct adaptive_quota *quota)
{
    return quota->told > 0 ? quota->used / (double)quota->told : 1;
}

static double learned(const struct adaptive_quota *quota)
{
    return quota->told > 0 && !quota->heard ? 0 : quota->used;
}

struct adaptive_memory adaptive_export(const struct adaptive_row *row)
{
    return (struct adaptive_memory){
        .watermark = row->watermark,
        .pace = adaptive_most(row->pace, row->pace_learned),
        .growth = row->growth,
        .requests_share = share(&row->requests),
        .tokens_share = share(&row->tokens),
        .requests_learned = learned(&row->requests),
        .tokens_learned = learned(&row->tokens),
        .mean_output = row->mean_output,
        .tpt_base_s = adaptive_base_value(&row->tpt_base),
    };
}

static void remember(struct adaptive_quota *quota, double share, double learned)
{
    quota->used = quota->told > 0 ? share * (double)quota->told : learned;
    quota->ceiling = share < 1 || quota->told == 0 ? quota->used / ADAPTIVE_BELOW : 0;
}

static bool is_within(double value, double least, double most)
{
    return value >= least && value <= most;
}

bool adaptive_import(struct adaptive_row *row, const struct adaptive_memory *memory, int64_t age_ns,
                     int64_t now_ns)
{
    if (row->state != ADAPTIVE_STARTUP || age_ns < 0 || age_ns > ADAPTIVE_MEMORY_NS ||
        !is_within(memory->watermark, 1, 1e6) || !is_within(memory->pace, 0, ADAPTIVE_PACE_MAX) ||
        !is_within(memory->growth, ADAPTIVE_GROWTH_MIN, ADAPTIVE_GROWTH_MAX) ||
        !is_within(memory->requests_share, ADAPTIVE_SHARE_MIN, 1) ||
        !is_within(memory->tokens_share, ADAPTIVE_SHARE_MIN, 1) ||
        !is_within(memory->requests_learned, 0, ADAPTIVE_QUOTA_MAX) ||
        !is_within(memory->tokens_learned, 0, ADAPTIVE_QUOTA_MAX) ||
        !is_within(memory->mean_output, 0, 1e8) || !is_within(memory->tpt_base_s, 0, 1e3))
        return false;
    row->watermark = memory->watermark;
    row->limit = adaptive_most(ADAPTIVE_LIMIT_START, memory->watermark / 2);
    row->pace = adaptive_most(adaptive_pace_start(row), memory->pace / 2);
    row->pace_learned = adaptive_most(row->pace, memory->pace);
    row->growth = memory->growth;
    remember(&row->requests, memory->requests_share, memory->requests_learned);
    remember(&row->tokens, memory->tokens_share, memory->tokens_learned);
    row->mean_output = memory->mean_output;
    adaptive_base_add(&row->tpt_base, memory->tpt_base_s, now_ns);
    adaptive_keep(row);
    return true;
}

/* ---- for people ----------------------------------------------------------------------------- */

const char *adaptive_state_name(uint32_t state)
{
    static const char *const names[] = {
        [ADAPTIVE_NONE] = "none", [ADAPTIVE_STARTUP] = "startup", [ADAPTIVE_PROBING] = "probing",
        [ADAPTIVE_HOLD] = "hold", [ADAPTIVE_DRAIN] = "drain",     [ADAPTIVE_RECOVERY] = "recovery",
    };

    return state < LENGTH(names) ? names[state] : "?";
}

const char *adaptive_kind_name(enum adaptive_kind kind)
{
    static const char *const names[] = {
        [ADAPTIVE_RPM] = "rpm",     [ADAPTIVE_TPM] = "tpm",     [ADAPTIVE_RPS] = "rps",
        [ADAPTIVE_TPS] = "tps",     [ADAPTIVE_BURST] = "burst", [ADAPTIVE_CAP] = "saturation",
        [ADAPTIVE_FAULT] = "fault",
    };

    return (unsigned)kind < LENGTH(names) ? names[kind] : "?";
}
