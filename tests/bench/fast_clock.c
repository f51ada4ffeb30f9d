/*
 * fast_clock.c - preloaded into all programs of `make bench-flow`: time passes $FAST_CLOCK times as fast
 * for them, so that minutes of quotas fit into seconds and the product is measured unchanged.
 *
 * What they read from clocks is multiplied, what they wait is divided. CLOCK_MONOTONIC is multiplied from
 * boot on, so that all processes agree. Work is not faster: it seems $FAST_CLOCK times as expensive.
 */
#include <dlfcn.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS INT64_C(1000000000)
#define EXPORT __attribute__((visibility("default")))

/* Declared here: their headers make some of them inline or checked. */
EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t size);

static int64_t factor(void)
{
    static _Atomic int64_t known;

    if (known == 0) {
        const char *text = getenv("FAST_CLOCK");
        long number = text ? strtol(text, NULL, 10) : 1;

        known = number > 0 && number <= 1000 ? number : 1;
    }
    return known;
}

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}
/* The next function of that name; looked up once. */
#define REAL(name)                                                                                 \
    static __typeof__(name) *next;                                                                 \
    if (!next)                                                                                     \
    *(void **)&next = real(#name)

static int64_t true_ns(clockid_t clock)
{
    struct timespec at = {0};

    REAL(clock_gettime);
    (void)next(clock, &at);
    return at.tv_sec * NS + at.tv_nsec;
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS, .tv_nsec = ns % NS};
}

/* The wall clock is as far from the monotonic one as ever. */
static int64_t wall_offset_ns(void)
{
    static _Atomic int64_t known;

    if (known == 0)
        known = true_ns(CLOCK_REALTIME) - true_ns(CLOCK_MONOTONIC);
    return known;
}

static struct timespec shortened(const struct timespec *wait)
{
    return timespec_of((wait->tv_sec * NS + wait->tv_nsec) / factor());
}

/* A point of the fast clock as one of the true clock. */
static struct timespec true_point(clockid_t clock, const struct timespec *at)
{
    int64_t ns = at->tv_sec * NS + at->tv_nsec;
    int64_t offset = clock == CLOCK_REALTIME ? wall_offset_ns() : 0;

    return timespec_of((ns - offset) / factor() + offset);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

EXPORT int clock_gettime(clockid_t clock, struct timespec *ret)
{
    switch (clock) {
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        *ret = timespec_of(true_ns(CLOCK_MONOTONIC) * factor());
        return 0;
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        *ret = timespec_of(wall_offset_ns() + true_ns(CLOCK_MONOTONIC) * factor());
        return 0;
    default: {
        REAL(clock_gettime);
        return next(clock, ret);
    }
    }
}

EXPORT int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    *ret = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

EXPORT time_t time(time_t *ret)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}

/* ---- waits for a time ------------------------------------------------------------------------ */

EXPORT int nanosleep(const struct timespec *wait, struct timespec *left)
{
    struct timespec less = shortened(wait);
    int result;

    REAL(nanosleep);
    result = next(&less, left);
    if (result != 0 && left)
        *left = timespec_of((left->tv_sec * NS + left->tv_nsec) * factor());
    return result;
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wait,
                           struct timespec *left)
{
    struct timespec less = flags & TIMER_ABSTIME ? true_point(clock, wait) : shortened(wait);

    REAL(clock_nanosleep);
    return next(clock, flags, &less, left);
}

EXPORT int usleep(useconds_t us)
{
    struct timespec wait = timespec_of((int64_t)us * 1000);

    return nanosleep(&wait, NULL);
}

EXPORT unsigned sleep(unsigned seconds)
{
    struct timespec wait = {.tv_sec = seconds};

    return nanosleep(&wait, NULL) == 0 ? 0 : 1;
}

EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *wait,
                 const sigset_t *signals)
{
    struct timespec less;

    REAL(ppoll);
    if (wait)
        less = shortened(wait);
    return next(fds, count, wait ? &less : NULL, signals);
}

EXPORT int poll(struct pollfd *fds, nfds_t count, int ms)
{
    struct timespec wait = timespec_of((int64_t)ms * 1000000);

    return ppoll(fds, count, ms >= 0 ? &wait : NULL, NULL);
}

EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t size)
{
    (void)size;
    return poll(fds, count, ms);
}

EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int most, const struct timespec *wait,
                        const sigset_t *signals)
{
    struct timespec less;

    REAL(epoll_pwait2);
    if (wait)
        less = shortened(wait);
    return next(fd, events, most, wait ? &less : NULL, signals);
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int most, int ms,
                       const sigset_t *signals)
{
    struct timespec wait = timespec_of((int64_t)ms * 1000000);

    return epoll_pwait2(fd, events, most, ms >= 0 ? &wait : NULL, signals);
}

EXPORT int epoll_wait(int fd, struct epoll_event *events, int most, int ms)
{
    return epoll_pwait(fd, events, most, ms, NULL);
}

EXPORT int select(int count, fd_set *restrict in, fd_set *restrict out, fd_set *restrict other,
                  struct timeval *restrict wait)
{
    struct timeval less;

    REAL(select);
    if (wait) {
        int64_t us = (wait->tv_sec * 1000000 + wait->tv_usec) / factor();

        less = (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    }
    return next(count, in, out, other, wait ? &less : NULL);
}

/* ---- waits until a time ---------------------------------------------------------------------- */

/* A condition does not tell its clock; a wall clock is years ahead of one that began at boot. */
EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                                  const struct timespec *restrict until)
{
    bool is_wall = until->tv_sec * NS > wall_offset_ns() / 2;
    struct timespec at = true_point(is_wall ? CLOCK_REALTIME : CLOCK_MONOTONIC, until);

    REAL(pthread_cond_timedwait);
    return next(cond, mutex, &at);
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                                  clockid_t clock, const struct timespec *restrict until)
{
    struct timespec at = true_point(clock, until);

    REAL(pthread_cond_clockwait);
    return next(cond, mutex, clock, &at);
}

EXPORT int pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                   const struct timespec *until)
{
    struct timespec at = true_point(clock, until);

    REAL(pthread_mutex_clocklock);
    return next(mutex, clock, &at);
}

EXPORT int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until)
{
    struct timespec at = true_point(CLOCK_REALTIME, until);

    REAL(sem_timedwait);
    return next(sem, &at);
}

EXPORT int sem_clockwait(sem_t *restrict sem, clockid_t clock,
                         const struct timespec *restrict until)
{
    struct timespec at = true_point(clock, until);

    REAL(sem_clockwait);
    return next(sem, clock, &at);
}

/* FUTEX_WAIT takes how long, not until when. */
EXPORT long syscall(long number, ...)
{
    va_list list;
    long words[6];
    struct timespec less;

    va_start(list, number);
    for (unsigned i = 0; i < 6; i++)
        words[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_futex && (words[1] & FUTEX_CMD_MASK) == FUTEX_WAIT && words[3] != 0) {
        less = shortened((const struct timespec *)words[3]);
        words[3] = (long)&less;
    }
    REAL(syscall);
    return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
