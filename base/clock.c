/* clock.c - monotonic and wall time, true or false; see clock.h. */
#include "base/clock.h"

#include "base/check.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#define MS_PER_DAY 86400000

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

struct date {
    unsigned year, month, day;
};

/* The calendar repeats every 400 years; counted from 1 March of a year that such a span begins with, a
 * leap day is the last of its year, and months before and behind it lie alike. */
static struct date date_of(int64_t days_since_1970)
{
    enum { TO_1970 = 719468, SPAN = 146097 }; /* days from 0000-03-01; days of 400 years */
    uint64_t days = (uint64_t)(days_since_1970 + TO_1970);
    unsigned in_span = (unsigned)(days % SPAN);
    /* leap days are left out before the division by 365 */
    unsigned year = (in_span - in_span / 1460 + in_span / 36524 - in_span / (SPAN - 1)) / 365;
    unsigned in_year = in_span - (365 * year + year / 4 - year / 100);
    unsigned month = (5 * in_year + 2) / 153; /* 0 = March */

    return (struct date){
        .year = (unsigned)(days / SPAN) * 400 + year + (month >= 10),
        .month = month < 10 ? month + 3 : month - 9,
        .day = in_year - (153 * month + 2) / 5 + 1,
    };
}

/* The lowest digits of the number, then the mark. */
static char *put_digits(char *out, unsigned digits, unsigned number, char mark)
{
    for (unsigned at = digits; at-- > 0; number /= 10)
        out[at] = (char)('0' + number % 10);
    out[digits] = mark;
    return out + digits + 1;
}

/* By hand: each line of the log and each row of the ledger has one or two of them. */
void clock_iso(int64_t wall_ms, char *out)
{
    static const int64_t last_ms = INT64_C(253402300799999); /* of the year 9999 */
    int64_t ms = wall_ms < 0 ? 0 : wall_ms > last_ms ? last_ms : wall_ms;
    struct date date = date_of(ms / MS_PER_DAY);
    unsigned in_day = (unsigned)(ms % MS_PER_DAY);

    out = put_digits(out, 4, date.year, '-');
    out = put_digits(out, 2, date.month, '-');
    out = put_digits(out, 2, date.day, 'T');
    out = put_digits(out, 2, in_day / 3600000, ':');
    out = put_digits(out, 2, in_day / 60000 % 60, ':');
    out = put_digits(out, 2, in_day / 1000 % 60, '.');
    out = put_digits(out, 3, in_day % 1000, 'Z');
    *out = '\0';
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
