/*
 * adaptive_window.c - what the controller does by itself: once per measuring window, and when a
 * DRAIN is over. What it does once per second is in adaptive_pace.c.
 */
#include "base/clock.h"
#include "shared/adaptive.h"
#include "shared/adaptive_inside.h"

#define SLOW_MUCH 2.0 /* so slow: HOLD at once ... */
#define SLOW_SOME 1.5 /* ... or in so many windows */
#define SLOW_WINDOWS 3U
#define SLOW_OVER 1.3 /* leaves HOLD */
#define SLOW_FIRST 3.0
#define SLOW_FIRST_WINDOWS 2U
#define HOLD_NS (10 * NS_PER_S)      /* then the bound leaks */
#define HOLD_MAX_NS (600 * NS_PER_S) /* then this is how fast it is */

#define REST_NS (10 * NS_PER_S) /* after a cut, before more of a quota is used ... */
#define REST_SENDS 100U /* ... and so many sends: tries that fail are a small part of them */
#define REST_MAX_NS (120 * NS_PER_S) /* ... or so long */
#define PROBE_SEEN 1.01   /* of what was refused: such a minute shows that the limit moved ... */
#define PROBE_UNSEEN 1.6  /* ... and until then no more than that is tried */
#define PROBE_FIRST 0.006 /* of the quota per second ... */
#define PROBE_GROWTH 0.15 /* ... growing so much per second ... */
#define PROBE_MOST 0.05   /* ... to this */
#define CALM_NS (30 * NS_PER_S) /* after a cut, before it is forgotten */
#define RECOVERY_NS (5 * NS_PER_S)

#define FULL_WINDOWS 3U
#define THRUST_MAX 6U

static void keep_quota(struct adaptive_quota *quota)
{
    double told = (double)quota->told;
    double used = quota->used;

    if (quota->told > 0)
        used = adaptive_within(used, ADAPTIVE_SHARE_MIN * told, told);
    else
        used = adaptive_within(used, 0, ADAPTIVE_QUOTA_MAX);
    quota->used = used;
    quota->ceiling = adaptive_within(quota->ceiling, 0, ADAPTIVE_QUOTA_MAX);
    quota->probe = adaptive_within(quota->probe, 0, ADAPTIVE_QUOTA_MAX);
}

void adaptive_keep(struct adaptive_row *row)
{
    row->limit = adaptive_within(row->limit, ADAPTIVE_LIMIT_MIN, (double)row->in_flight_max);
    row->watermark = adaptive_within(row->watermark, ADAPTIVE_WATERMARK_MIN, 1e6);
    row->growth = adaptive_within(row->growth, ADAPTIVE_GROWTH_MIN, ADAPTIVE_GROWTH_MAX);
    keep_quota(&row->requests);
    keep_quota(&row->tokens);
    row->pace = adaptive_within(row->pace, adaptive_pace_least(row), ADAPTIVE_PACE_MAX);
    row->pace_learned = adaptive_within(row->pace_learned, 0, ADAPTIVE_PACE_MAX);
    row->last_step = adaptive_within(row->last_step, 0, 1e6);
}

void adaptive_set_state(struct adaptive_row *row, enum adaptive_state state, int64_t now_ns)
{
    row->state = state;
    switch (state) {
    case ADAPTIVE_STARTUP:
        row->full = 0;
        row->best_throughput = 0;
        break;
    case ADAPTIVE_HOLD:
        row->hold_ns = now_ns;
        row->hold_limit = row->limit;
        break;
    case ADAPTIVE_DRAIN:
        row->drain_ns = now_ns;
        break;
    case ADAPTIVE_RECOVERY:
        row->recovery_ns = now_ns;
        row->epoch++;
        break;
    case ADAPTIVE_PROBING:
        row->slow = 0;
        row->slow_first = 0;
        break;
    case ADAPTIVE_NONE:
        break;
    }
}

/* ---- once per window ------------------------------------------------------------------------ */

/* After a refusal: quickly back to a little below where it was; there, as long as all of it is used
 * and more is wanted, beyond it in steps that grow. An upstream's limit is sharp: one that lets us
 * go beyond by some percent has moved, and by how much is not known. */
static void use_more(struct adaptive_quota *quota, bool wanted, double seconds)
{
    double plateau = quota->ceiling > 0 ? ADAPTIVE_BELOW * quota->ceiling : (double)quota->told;

    if (quota->used == 0)
        return;
    if (quota->used < plateau) {
        quota->used += (0.15 * (plateau - quota->used) + 0.01 * plateau) * seconds / 5;
        quota->used = adaptive_least(quota->used, plateau);
    } else if (wanted) {
        quota->probe = adaptive_within(quota->probe * (1 + PROBE_GROWTH * seconds),
                                       PROBE_FIRST * quota->used, PROBE_MOST * quota->used);
        quota->used += quota->probe * seconds;
        if (quota->minute > 0 && quota->minute < PROBE_SEEN * quota->ceiling)
            quota->used = adaptive_least(quota->used, PROBE_UNSEEN * quota->ceiling);
    } else {
        quota->ceiling *= 1 + 0.05 * seconds / 60; /* forgotten bit by bit */
    }
}

/* Which of the quotas somebody waited for: requests, when they were used up. */
static bool requests_bind(const struct adaptive_row *row, int64_t now_ns)
{
    return row->requests.used > 0 &&
           adaptive_recent_pace(row, now_ns) >= 0.85 * row->requests.used / 60;
}

static void forgive(struct adaptive_row *row, double seconds, int64_t now_ns)
{
    int64_t rest_ns = now_ns - row->drain_ns;
    bool bind = requests_bind(row, now_ns);
    bool budget = row->window.budget_wanted > 0;
    bool pace = row->window.pace_wanted > 0 && row->pace >= row->requests.used / 60;

    if (row->cuts == 0 || rest_ns > REST_MAX_NS ||
        (rest_ns > REST_NS && row->cut_sends >= REST_SENDS)) {
        use_more(&row->requests, bind && (budget || pace), seconds);
        use_more(&row->tokens, budget && !bind, seconds);
    }
    if (row->cuts == 0 || rest_ns > CALM_NS)
        row->growth *= 1 + 0.1 * seconds / 60;
}

static bool gets_slow(struct adaptive_row *row, struct adaptive_slowness slowness)
{
    row->slow = slowness.tokens >= SLOW_SOME ? row->slow + 1 : 0;
    row->slow_first = slowness.first >= SLOW_FIRST ? row->slow_first + 1 : 0;
    return slowness.tokens >= SLOW_MUCH || row->slow >= SLOW_WINDOWS ||
           row->slow_first >= SLOW_FIRST_WINDOWS;
}

/* What was fast once is no measure any more. */
static void learn_anew(struct adaptive_row *row, int64_t now_ns)
{
    row->tpt_base = (struct adaptive_base){0};
    row->whole_base = (struct adaptive_base){0};
    for (unsigned i = 0; i < ADAPTIVE_SIZES; i++)
        row->ttft_base[i] = (struct adaptive_base){0};
    adaptive_set_state(row, ADAPTIVE_PROBING, now_ns);
}

/* Slow for long: fewer in flight. When a quarter of them is as slow, it is not their number. */
static void leak(struct adaptive_row *row, struct adaptive_slowness slowness, int64_t now_ns)
{
    if (slowness.tokens >= SLOW_SOME)
        row->limit *= adaptive_most(0.8, SLOW_SOME / slowness.tokens);
    else if (slowness.first >= SLOW_FIRST)
        row->limit *= 0.9;
    else
        return;
    row->watermark = row->limit;
    if (row->limit <= adaptive_most(row->hold_limit / 4, ADAPTIVE_LIMIT_MIN))
        learn_anew(row, now_ns);
}

static void judge_slowness(struct adaptive_row *row, struct adaptive_slowness slowness,
                           int64_t now_ns)
{
    if (row->state != ADAPTIVE_HOLD) {
        if (gets_slow(row, slowness)) {
            adaptive_set_state(row, ADAPTIVE_HOLD, now_ns);
            row->watermark = row->mean_in_flight;
        }
    } else if (slowness.tokens < SLOW_OVER && slowness.first < SLOW_FIRST) {
        adaptive_set_state(row, ADAPTIVE_PROBING, now_ns);
    }
    if (row->state == ADAPTIVE_HOLD && now_ns - row->hold_ns > HOLD_NS)
        leak(row, slowness, now_ns);
    if (row->state == ADAPTIVE_HOLD && now_ns - row->hold_ns > HOLD_MAX_NS)
        learn_anew(row, now_ns);
}

/* Where STARTUP, and where spring and thrust pull the bound. */
static double pull(struct adaptive_row *row, int64_t now_ns)
{
    double limit = row->limit, tension, thrust;

    if (row->state == ADAPTIVE_STARTUP) {
        row->full = row->throughput < 1.25 * row->best_throughput ? row->full + 1 : 0;
        row->best_throughput = adaptive_most(row->best_throughput, row->throughput);
        if (row->full >= FULL_WINDOWS)
            adaptive_set_state(row, ADAPTIVE_PROBING, now_ns);
        return 2 * limit;
    }
    tension = adaptive_most(0, 1 - limit / row->watermark);
    thrust = adaptive_least(1 + 0.05 * limit, (double)(1U << row->thrust));
    if (limit < row->watermark)
        row->thrust = 0;
    else if (row->thrust < THRUST_MAX)
        row->thrust++;
    return adaptive_most(limit * (1 + 0.5 * tension), limit + thrust);
}

static void grow(struct adaptive_row *row, double seconds, int64_t now_ns)
{
    double limit = row->limit;
    double step = pull(row, now_ns) - limit;
    double most = adaptive_most(limit, 1.25 * row->mean_in_flight + 1); /* Little's law */

    step = adaptive_least(step, adaptive_most(1, 0.07 * limit * seconds));
    step = adaptive_least(step, 1.5 * row->last_step + 1);
    row->limit = adaptive_least(limit + step, adaptive_least(most, (double)row->in_flight_max));
    row->last_step = row->limit - limit;
}

static void close_window(struct adaptive_row *row, int64_t now_ns)
{
    struct adaptive_window *window = &row->window;
    double seconds = adaptive_within(adaptive_seconds(now_ns - window->from_ns), 1e-3, 10);
    bool clean = window->refusals == 0;
    bool limited =
        window->place_wanted > 0 && (double)window->peak >= 0.8 * (double)(uint32_t)row->limit;
    struct adaptive_slowness slowness = adaptive_window_slowness(row, now_ns);

    row->throughput = (double)window->completions / seconds;
    row->mean_in_flight =
        window->in_flight_s / adaptive_most(seconds, adaptive_seconds(now_ns - window->from_ns));
    row->slowness = slowness.tokens;
    if (clean)
        forgive(row, seconds, now_ns);
    if (window->queued_upstream > 0)
        row->growth /= 2;
    if (row->state == ADAPTIVE_RECOVERY && clean && now_ns - row->recovery_ns > RECOVERY_NS)
        adaptive_set_state(row, ADAPTIVE_PROBING, now_ns);
    judge_slowness(row, slowness, now_ns);
    if (clean && limited && row->state != ADAPTIVE_HOLD)
        grow(row, seconds, now_ns);
    if (clean && limited && slowness.tokens < SLOW_SOME)
        row->watermark = adaptive_most(row->watermark, (double)window->peak);
    if (row->state == ADAPTIVE_PROBING)
        row->watermark = adaptive_most(row->limit, row->watermark * (1 - 0.002 * seconds));
    adaptive_keep(row);
    adaptive_window_begin(row, now_ns);
}

/* ---- by time alone -------------------------------------------------------------------------- */

/* An upstream that limits growth forgets us in a silence: the longer, the slower we begin again. */
static double after_silence(double pace, double seconds)
{
    const double halves = adaptive_within(seconds / 10, 0, 4);
    const unsigned whole = (unsigned)halves;

    for (unsigned i = 0; i < whole; i++)
        pace /= 2;
    return pace * (1 - (halves - whole) / 2);
}

static void end_drain(struct adaptive_row *row, int64_t now_ns)
{
    row->pace = adaptive_most(adaptive_least(row->pace, adaptive_pace_start(row) / 2),
                              after_silence(row->pace, adaptive_seconds(now_ns - row->drain_ns)));
    row->second_pace_wanted = 0;
    row->second_refusals = 0;
    row->second_answers = 0;
    row->second_ns = now_ns;
    adaptive_set_state(row, ADAPTIVE_RECOVERY, now_ns);
    adaptive_keep(row);
    adaptive_window_begin(row, now_ns);
}

void adaptive_tick(struct adaptive_row *row, int64_t now_ns)
{
    if (row->state == ADAPTIVE_NONE)
        return;
    if (row->state == ADAPTIVE_DRAIN) {
        if (now_ns < row->drained_until_ns)
            return;
        end_drain(row, now_ns);
    }
    adaptive_set_in_flight(row, row->in_flight, now_ns); /* the integral up to now */
    if (adaptive_window_is_due(row, now_ns))
        close_window(row, now_ns);
    if (now_ns - row->second_ns >= NS_PER_S)
        adaptive_govern_pace(row, now_ns);
}
