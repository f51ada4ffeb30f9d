/* adaptive_inside.h - what the files of the adaptive controller share; nobody else includes it. */
#ifndef SHARED_ADAPTIVE_INSIDE_H
#define SHARED_ADAPTIVE_INSIDE_H

#include "shared/layout.h"

#include <stdbool.h>
#include <stdint.h>

#define ADAPTIVE_LIMIT_START 4.0 /* also what idle does not go below */
#define ADAPTIVE_LIMIT_MIN 1.0
#define ADAPTIVE_WATERMARK_START 8.0
#define ADAPTIVE_WATERMARK_MIN 4.0
#define ADAPTIVE_GROWTH_START 0.07
#define ADAPTIVE_GROWTH_MIN 0.01
#define ADAPTIVE_GROWTH_MAX 0.10
#define ADAPTIVE_SHARE_MIN 0.01
#define ADAPTIVE_BELOW 0.97 /* of what was refused: what is used after */
#define ADAPTIVE_PACE_MAX 1e5
#define ADAPTIVE_QUOTA_MAX 4e8

static inline double adaptive_seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

/* In a range; also when it is not a number at all. */
static inline double adaptive_within(double value, double least, double most)
{
    return !(value >= least) ? least : value > most ? most : value;
}

static inline double adaptive_least(double one, double other)
{
    return one < other ? one : other;
}

static inline double adaptive_most(double one, double other)
{
    return one > other ? one : other;
}

/* adaptive_pace.c: the pace after a cold start and after long idle; the lowest that a cut leads to; the highest. */
double adaptive_pace_start(const struct adaptive_row *row);
double adaptive_pace_least(const struct adaptive_row *row);
double adaptive_pace_most(const struct adaptive_row *row);
/* Nobody configured a quota and nothing was ever refused: the pace doubles with what is answered. */
bool adaptive_is_slow_start(const struct adaptive_row *row);
/* It refused growth once: after a silence it is taken to have forgotten us. */
bool adaptive_limits_growth(const struct adaptive_row *row);
/* The pace after a second in which it was wanted and so many calls were answered. */
double adaptive_pace_next(const struct adaptive_row *row, double pace, double answers);
/* What was learned and is not used for so long goes by halves, not below least. */
double adaptive_faded(double value, double least, double seconds);
/* The pace that nobody needed since the last look at it. */
void adaptive_fade_pace(struct adaptive_row *row, int64_t now_ns);
/* Once per second. */
void adaptive_govern_pace(struct adaptive_row *row, int64_t now_ns);
/* Sends per second of the last ADAPTIVE_SECONDS. */
double adaptive_recent_pace(const struct adaptive_row *row, int64_t now_ns);

/* adaptive_signals.c: baselines and the window's signals. */
double adaptive_base_value(const struct adaptive_base *base); /* 0 = none */
void adaptive_base_add(struct adaptive_base *base, double value, int64_t now_ns);
void adaptive_window_begin(struct adaptive_row *row, int64_t now_ns);
bool adaptive_window_is_due(const struct adaptive_row *row, int64_t now_ns);
/* How much slower than their baselines tokens and first tokens came in this window; 1 = as fast, or
 * not known. Baselines learn when the state lets them. */
struct adaptive_slowness {
    double tokens, first;
};
struct adaptive_slowness adaptive_window_slowness(struct adaptive_row *row, int64_t now_ns);

/* adaptive_window.c: what a window, a second and the time alone change. */
void adaptive_set_state(struct adaptive_row *row, enum adaptive_state state, int64_t now_ns);
/* Every number in its range (invariants 7 and 12), after each change. */
void adaptive_keep(struct adaptive_row *row);

#endif
