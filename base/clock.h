/*
 * clock.h - the only place that asks the system what time it is.
 *
 * Durations and deadlines are monotonic nanoseconds (CLOCK_MONOTONIC, the same for every process of
 * the host); what people read is wall time in milliseconds since 1970 UTC. Tests set a false clock
 * for their process; it then moves only when told.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define NS_PER_US INT64_C(1000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

/* A deadline that never falls. */
#define CLOCK_NEVER INT64_MAX

/* The earlier of two moments, the shorter of two durations. */
static inline int64_t clock_earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t clock_monotonic_ns(void);
int64_t clock_wall_ms(void);

/* Milliseconds from now_ns until until_ns, rounded up, 0 when past, at most INT_MAX; -1 (poll's
 * "for ever") for CLOCK_NEVER. */
int clock_poll_ms(int64_t now_ns, int64_t until_ns);

/* Sleep at least duration_ns, also through signals. Not for tests' guesses. */
void clock_sleep_ns(int64_t duration_ns);

#define CLOCK_ISO_SIZE sizeof "2026-11-30T10:00:00.000Z"
/* Write wall_ms as UTC ISO-8601 with milliseconds into out[CLOCK_ISO_SIZE]; times before 1970 and after
 * 9999 as the first and the last that there are. */
void clock_iso(int64_t wall_ms, char *out);

/* From now on both clocks of this process stand still at the given values. */
void clock_set_false(int64_t monotonic_ns, int64_t wall_ms);
/* Move both false clocks. */
void clock_advance_false(int64_t by_ns);
/* Back to the system's clocks. */
void clock_set_true(void);

#endif
