/* lock.c - the one lock of the segment; see lock.h for why it is taken this way. */
#include "shared/lock.h"

#include "shared/roster.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A waiter whose own loop was late by this much was stopped itself: what it saw standing still
 * proves nothing (the whole machine may have been paused). */
#define OWN_JUMP_NS (LOCK_RETRY_NS * 6)

/* ThreadSanitizer of gcc 12 knows every way to take a mutex but pthread_mutex_clocklock. */
#if defined(__SANITIZE_THREAD__)
void __tsan_mutex_pre_lock(void *address, unsigned flags);
void __tsan_mutex_post_lock(void *address, unsigned flags, int recursion);
static void tell_sanitizer_taken(pthread_mutex_t *mutex)
{
    __tsan_mutex_pre_lock(mutex, 0);
    __tsan_mutex_post_lock(mutex, 0, 0);
}
#else
static void tell_sanitizer_taken(pthread_mutex_t *mutex)
{
    (void)mutex;
}
#endif

void lock_init(struct lock_area *lock)
{
    pthread_mutexattr_t attributes;

    INVARIANT(pthread_mutexattr_init(&attributes) == 0);
    INVARIANT(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
    INVARIANT(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    INVARIANT(pthread_mutex_init(&lock->mutex, &attributes) == 0);
    (void)pthread_mutexattr_destroy(&attributes);
}

static int64_t monotonic_ns(void)
{
    struct timespec now;

    INVARIANT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* What a waiter has seen of the holder so far. */
struct holder_watch {
    uint32_t owner;
    uint64_t acquisitions;
    int64_t unchanged_since_ns;
    int64_t last_look_ns;
};

static void kill_holder(struct roster_row *row)
{
    int pidfd = roster_open_pidfd(row);

    if (pidfd < 0)
        return;
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    (void)close(pidfd);
}

/* Called about every LOCK_RETRY_NS while the lock cannot be had. */
static void look_at_holder(struct holder_watch *watch, const struct lock_area *lock,
                           struct roster_row *roster)
{
    uint32_t owner = atomic_load(&lock->owner);
    uint64_t acquisitions = atomic_load(&lock->acquisitions);
    int64_t now_ns = monotonic_ns();

    if (owner != watch->owner || acquisitions != watch->acquisitions ||
        now_ns - watch->last_look_ns > OWN_JUMP_NS) {
        watch->owner = owner;
        watch->acquisitions = acquisitions;
        watch->unchanged_since_ns = now_ns;
    }
    watch->last_look_ns = now_ns;
    if (owner > 0 && owner <= ROSTER_MAX && now_ns - watch->unchanged_since_ns >= LOCK_STUCK_NS) {
        kill_holder(&roster[owner - 1]);
        watch->unchanged_since_ns = now_ns;
    }
}

enum lock_result lock_take(struct lock_area *lock, uint32_t roster_index, struct roster_row *roster)
{
    struct holder_watch watch = {.last_look_ns = INT64_MIN / 2};
    int error = pthread_mutex_trylock(&lock->mutex);

    while (error == EBUSY || error == ETIMEDOUT) {
        int64_t until_ns = monotonic_ns() + LOCK_RETRY_NS;
        struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};

        error = pthread_mutex_clocklock(&lock->mutex, CLOCK_MONOTONIC, &until);
        if (error == ETIMEDOUT)
            look_at_holder(&watch, lock, roster);
        else
            tell_sanitizer_taken(&lock->mutex);
    }
    INVARIANT(error == 0 || error == EOWNERDEAD);
    atomic_store(&lock->owner, roster_index == NO_INDEX ? 0 : roster_index + 1);
    atomic_fetch_add(&lock->acquisitions, 1);
    if (error == 0)
        return LOCK_TAKEN;
    lock->owner_deaths++;
    INVARIANT(pthread_mutex_consistent(&lock->mutex) == 0);
    return LOCK_OWNER_DIED;
}

void lock_give(struct lock_area *lock)
{
    atomic_store(&lock->owner, 0);
    INVARIANT(pthread_mutex_unlock(&lock->mutex) == 0);
}
