/*
 * adaptive_pace.c - the pace in requests per second: where it begins, how it grows while it is wanted,
 * how it fades while it is not.
 */
#include "base/clock.h"
#include "shared/adaptive.h"
#include "shared/adaptive_inside.h"

#define PACE_START 1.0       /* without a configured quota */
#define PACE_DOUBLES 16.0    /* beyond, the usual growth: it may be the whole minute's quota */
#define FADE_HALF_S 60.0     /* what is not used halves in this time ... */
#define FADE_SHARE 0.25      /* ... to this share of what was learned ... */
#define FORGET_HALF_S 3600.0 /* ... which halves in this time */
#define HALVINGS_MAX 60

double adaptive_pace_start(const struct adaptive_row *row)
{
    const double told = 0.2 * (double)row->requests.told / 60;

    if (row->requests.told <= 0)
        return PACE_START;
    return row->requests.heard ? adaptive_least(PACE_START, told) : told;
}

double adaptive_pace_least(const struct adaptive_row *row)
{
    return adaptive_least(0.5, adaptive_pace_start(row) / 2);
}

double adaptive_pace_most(const struct adaptive_row *row)
{
    return row->requests.used > 0
               ? adaptive_most(1.1 * row->requests.used / 60, adaptive_pace_least(row))
               : ADAPTIVE_PACE_MAX;
}

bool adaptive_limits_growth(const struct adaptive_row *row)
{
    return row->refusals[ADAPTIVE_BURST] > 0 || row->growth < ADAPTIVE_GROWTH_START;
}

bool adaptive_is_slow_start(const struct adaptive_row *row)
{
    const struct adaptive_quota *quota = &row->requests;

    if (row->cuts > 0 || adaptive_limits_growth(row))
        return false;
    return quota->told > 0 ? quota->heard && quota->ceiling == 0 : quota->used == 0;
}

double adaptive_pace_next(const struct adaptive_row *row, double pace, double answers)
{
    const double usual = pace * (1 + row->growth) + 0.05;

    const double doubled = adaptive_least(pace + adaptive_least(pace, answers), PACE_DOUBLES);

    return adaptive_is_slow_start(row) ? adaptive_most(usual, doubled) : usual;
}

double adaptive_recent_pace(const struct adaptive_row *row, int64_t now_ns)
{
    int64_t second = now_ns / NS_PER_S;
    uint64_t sends = 0;

    for (int64_t i = second - ADAPTIVE_SECONDS + 1; i <= second; i++)
        if (i >= 0 && i <= row->sends_second && i > row->sends_second - ADAPTIVE_SECONDS)
            sends += row->sends[i % ADAPTIVE_SECONDS];
    return (double)sends / ADAPTIVE_SECONDS;
}

/* Within half a percent, without the mathematics library. */
static double halved(double value, double times)
{
    const double most = adaptive_within(times, 0, HALVINGS_MAX);
    const unsigned whole = (unsigned)most;
    const double part = most - whole;

    for (unsigned i = 0; i < whole; i++)
        value /= 2;
    return value * (1 - part * (0.672 - part * 0.172));
}

double adaptive_faded(double value, double least, double seconds)
{
    return adaptive_most(adaptive_least(value, least), halved(value, seconds / FADE_HALF_S));
}

/* An upstream that limits growth remembers what we send, not what we sent once; any other is as fast
 * after a pause as it was before. */
void adaptive_fade_pace(struct adaptive_row *row, int64_t now_ns)
{
    const double used = 1.5 * adaptive_recent_pace(row, now_ns) + 1;
    const double least = adaptive_most(adaptive_pace_start(row), used);
    const double seconds = adaptive_within(adaptive_seconds(now_ns - row->second_ns), 0, 1e9);

    row->pace_learned = adaptive_most(row->pace, row->pace_learned);
    if (adaptive_limits_growth(row))
        row->pace = adaptive_most(adaptive_pace_start(row), adaptive_least(row->pace, used));
    else
        row->pace = adaptive_faded(row->pace, adaptive_most(least, FADE_SHARE * row->pace_learned),
                                   seconds);
    row->pace_learned = halved(row->pace_learned, seconds / FORGET_HALF_S);
}

static void raise_pace(struct adaptive_row *row)
{
    if (row->second_refusals > 0)
        return;
    if (adaptive_is_slow_start(row))
        row->answered_share = adaptive_least(1, row->second_answers / row->pace);
    row->pace = adaptive_least(adaptive_pace_most(row),
                               adaptive_pace_next(row, row->pace, row->second_answers));
    row->pace_learned = adaptive_most(row->pace, row->pace_learned);
}

void adaptive_govern_pace(struct adaptive_row *row, int64_t now_ns)
{
    if (row->second_pace_wanted > 0)
        raise_pace(row);
    else
        adaptive_fade_pace(row, now_ns);
    row->second_pace_wanted = 0;
    row->second_refusals = 0;
    row->second_answers = 0;
    row->second_ns = now_ns;
    adaptive_keep(row);
}
