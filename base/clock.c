/* clock.c - monotonic and wall time, true or false; see clock.h. */
#include "base/clock.h"

#include "base/check.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

static atomic_bool clock_is_false;
static _Atomic int64_t false_monotonic_ns;
static _Atomic int64_t false_wall_ms;

int64_t clock_monotonic_ns(void)
{
    struct timespec now;

    if (atomic_load_explicit(&clock_is_false, memory_order_relaxed))
        return atomic_load(&false_monotonic_ns);
    INVARIANT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

int64_t clock_wall_ms(void)
{
    struct timespec now;

    if (atomic_load_explicit(&clock_is_false, memory_order_relaxed))
        return atomic_load(&false_wall_ms);
    INVARIANT(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS;
}

int clock_poll_ms(int64_t now_ns, int64_t until_ns)
{
    int64_t left;

    if (until_ns == CLOCK_NEVER)
        return -1;
    if (until_ns <= now_ns)
        return 0;
    left = (until_ns - now_ns - 1) / NS_PER_MS + 1;
    return left > INT_MAX ? INT_MAX : (int)left;
}

void clock_sleep_ns(int64_t duration_ns)
{
    struct timespec left = {.tv_sec = duration_ns / NS_PER_S, .tv_nsec = duration_ns % NS_PER_S};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

void clock_iso(int64_t wall_ms, char *out)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    char day[sizeof "2026-11-30T10:00:00"];

    INVARIANT(gmtime_r(&seconds, &parts) != NULL);
    if (strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts) == 0)
        day[0] = '\0';
    (void)snprintf(out, CLOCK_ISO_SIZE, "%s.%03uZ", day, (unsigned)(wall_ms % 1000) % 1000U);
}

void clock_set_false(int64_t monotonic_ns, int64_t wall_ms)
{
    atomic_store(&false_monotonic_ns, monotonic_ns);
    atomic_store(&false_wall_ms, wall_ms);
    atomic_store(&clock_is_false, true);
}

void clock_advance_false(int64_t by_ns)
{
    atomic_fetch_add(&false_monotonic_ns, by_ns);
    atomic_fetch_add(&false_wall_ms, by_ns / NS_PER_MS);
}

void clock_set_true(void)
{
    atomic_store(&clock_is_false, false);
}
