/* flow_told.c - what the upstream says of its quotas; see flow_told.h. */
#include "shared/flow_told.h"

#include "shared/bucket.h"
#include "shared/flow_inside.h"
#include "shared/flow_rows.h"

#define ABOUT_PARTS 20          /* limits within a twentieth are the same */
#define OPEN_LEAST 200          /* a fifth, as after refusals (adaptive.h) */
#define SLACK_PARTS 60          /* half of what is kept back anyway (bucket_terms_strict) */
#define LITTLE_PARTS 20         /* a twentieth of the quota is little */
#define FADE_NS (60 * NS_PER_S) /* the upstream's minute: what was left then says no more */
#define LEFT_MAX (BUCKET_AMOUNT_MAX / BUCKET_UNIT)
#define QUOTA_MAX (BUCKET_RATE_MAX / BUCKET_UNIT) /* more is no bound */

/* ---- the limit ------------------------------------------------------------------------------- */

/* Within 5 %. */
static bool is_about(int64_t value, int64_t other)
{
    const int64_t apart = value > other ? value - other : other - value;

    return apart * ABOUT_PARTS <= other;
}

/* One more answer told it; was more than it let through while it was told? */
static bool is_refuted(struct flow_quota_row *quota, int64_t passed, int64_t now_ns)
{
    if (now_ns - quota->other_ns > 60 * NS_PER_S) {
        quota->other_ns = now_ns;
        quota->other_passed = 0;
    }
    quota->other_passed += passed;
    return quota->other_passed > quota->other;
}

/* Another limit is told: how often in a row now? passed: what the call costs. */
static bool hear_other(struct flow_quota_row *quota, int64_t limit, int64_t passed, int64_t now_ns)
{
    if (quota->other == 0 || !is_about(limit, quota->other)) {
        quota->other = limit;
        quota->other_answers = 0;
        quota->other_passed = 0;
        quota->other_ns = now_ns;
    }
    if (is_refuted(quota, passed, now_ns)) {
        quota->other = 0;
        return false;
    }
    if (++quota->other_answers < FLOW_TOLD_TIMES)
        return false;
    quota->told = quota->other;
    quota->told_ns = now_ns;
    quota->other = 0;
    return true;
}

/* From the answer to a call that was let through. least: what can be. True: the told quota is another
 * now. */
static bool hear_limit(struct flow_quota_row *quota, int64_t limit, int64_t least, int64_t passed,
                       int64_t now_ns)
{
    if (limit < least)
        return false;
    if (quota->told > 0 && passed > quota->told) { /* one call alone was more */
        quota->told = quota->other = 0;
        return true;
    }
    limit = clock_earlier(limit, QUOTA_MAX);
    if (quota->told == 0 || !is_about(limit, quota->told))
        return hear_other(quota, limit, passed, now_ns);
    quota->told_ns = now_ns;
    quota->other = 0;
    return false;
}

int64_t flow_quota_of(const struct flow_quota_row *quota)
{
    if (quota->told == 0 || (quota->configured > 0 && quota->configured < quota->told))
        return quota->configured;
    return quota->told;
}

/* A quota that was not known is, in the middle of a minute: that counts, and is no start. */
static void begin_bounded(struct bucket_row *row, int64_t room, int64_t now_ns)
{
    const struct bucket_mark here = {.taken_micro = row->taken_micro, .at_ns = now_ns};
    const int64_t warmup_ns = row->warmup_ns;

    bucket_lower(row, flow_later(room, 0) * BUCKET_UNIT, &here, now_ns);
    bucket_set_warmup(row, 0, now_ns);
    bucket_set_warmup(row, warmup_ns, now_ns);
}

static void hear_limits(struct flow_row *flow, const struct flow_told *told, int64_t charged,
                        int64_t now_ns)
{
    const bool requests_bounded = flow->requests.capacity_micro > 0;
    const bool units_bounded = flow->units.capacity_micro > 0;
    const bool due = atomic_load(&flow->quotas_due) != 0;
    bool news[2];
    struct flow_use use;

    atomic_store(&flow->quotas_due, 1); /* who dies from here on leaves it to the next tick */
    news[0] =
        hear_limit(&flow->requests_known, told->requests.limit, FLOW_TOLD_REQUESTS_MIN, 1, now_ns);
    news[1] = hear_limit(&flow->units_known, told->units.limit, FLOW_TOLD_UNITS_MIN,
                         flow_later(charged, 1), now_ns);
    if (!due && !news[0] && !news[1]) {
        atomic_store(&flow->quotas_due, 0);
        return;
    }
    flow_set_quotas_locked(flow, now_ns);
    use = flow_use_locked(flow, now_ns);
    if (!requests_bounded)
        begin_bounded(&flow->requests, flow->requests_quota - use.sends, now_ns);
    if (!units_bounded)
        begin_bounded(&flow->units, flow->units_quota - use.units, now_ns);
}

/* ---- what is left ---------------------------------------------------------------------------- */

struct moments {
    int64_t sent_ns, now_ns; /* of the call, and of its answer */
};

/* Answers overtake each other: the one to the newest call counts. ours: our use of a minute, until the
 * call was sent. */
static void note_left(struct flow_quota_row *quota, int64_t left, int64_t ours,
                      const struct moments *at)
{
    if (left < 0 || (quota->left_ns > 0 && at->sent_ns < quota->left_sent_ns))
        return;
    quota->left = clock_earlier(left, LEFT_MAX);
    quota->left_ours = flow_later(ours, 0);
    quota->left_sent_ns = at->sent_ns;
    quota->left_ns = at->now_ns;
}

/* What is left and what of the minute was ours is what others leave us; and when next to nothing is
 * left, they are quicker than we know. */
int64_t flow_open_of(const struct flow_quota_row *quota, int64_t now_ns)
{
    const int64_t whole = flow_quota_of(quota);
    int64_t ours, open;

    if (quota->left_ns == 0 || whole == 0)
        return FLOW_OPEN_FULL;
    ours = quota->left + quota->left_ours + whole / SLACK_PARTS;
    open = clock_earlier(ours, quota->left * LITTLE_PARTS);
    open = flow_later(OPEN_LEAST, clock_earlier(open, whole) * FLOW_OPEN_FULL / whole);
    return open +
           (FLOW_OPEN_FULL - open) * clock_earlier(now_ns - quota->left_ns, FADE_NS) / FADE_NS;
}

static void lower(struct bucket_row *row, int64_t left, const struct bucket_mark *sent,
                  int64_t now_ns)
{
    if (left >= 0)
        bucket_lower(row, clock_earlier(left, LEFT_MAX) * BUCKET_UNIT, sent, now_ns);
}

static int64_t taken_since(const struct bucket_row *row, const struct bucket_mark *mark)
{
    return (int64_t)(row->taken_micro - mark->taken_micro) / BUCKET_UNIT;
}

static void hear_left(struct flow_row *flow, const struct flow_place_row *row,
                      const struct flow_told *told, int64_t now_ns)
{
    const struct flow_use use = flow_use_locked(flow, now_ns);
    const struct moments at = {.sent_ns = row->sent_ns, .now_ns = now_ns};
    const struct bucket_mark requests = {.taken_micro = row->requests_taken, .at_ns = row->sent_ns};
    struct bucket_mark units = {.taken_micro = row->units_taken, .at_ns = row->sent_ns};

    /* A refused call's units are not counted there; here they come back later. */
    if (told->refused)
        units.taken_micro -= (uint64_t)(row->charged * BUCKET_UNIT);
    note_left(&flow->requests_known, told->requests.left,
              use.sends - taken_since(&flow->requests, &requests), &at);
    note_left(&flow->units_known, told->units.left, use.units - taken_since(&flow->units, &units),
              &at);
    lower(&flow->requests, told->requests.left, &requests, now_ns);
    lower(&flow->units, told->units.left, &units, now_ns);
}

/* ---- both ------------------------------------------------------------------------------------ */

void flow_hear(struct gate *gate, uint32_t place, const struct flow_told *told, int64_t now_ns)
{
    const struct flow_place_row *row;
    struct flow_row *flow;

    if (place == NO_INDEX)
        return;
    gate_lock(gate);
    row = flow_own_place(gate, place);
    flow = flow_row_of(gate, row);
    if (flow_holds_back(flow) && atomic_load(&row->state) == FLOW_PLACE_SENT) {
        if (!told->refused)
            hear_limits(flow, told, row->charged, now_ns);
        hear_left(flow, row, told, now_ns);
        flow_ring_locked(gate, flow, now_ns);
    }
    gate_unlock(gate);
}

static void forget(struct flow_row *flow, struct flow_quota_row *quota)
{
    if (quota->told == 0 || flow->last_demand_ns - quota->told_ns <= FLOW_TOLD_NS)
        return;
    atomic_store(&flow->quotas_due, 1);
    quota->told = 0;
}

void flow_forget_told_locked(struct flow_row *flow, int64_t now_ns)
{
    forget(flow, &flow->requests_known);
    forget(flow, &flow->units_known);
    if (atomic_load(&flow->quotas_due) != 0)
        flow_set_quotas_locked(flow, now_ns);
}
