/* lock.c - the one lock of the segment; see lock.h for why it is taken this way. */
#include "shared/lock.h"

#include "shared/roster.h"

#include <errno.h>
#include <linux/futex.h>
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

/* The thread inside, 0 = none. Not lock->owner: whoever is stopped after it took the mutex and before it
 * wrote its name there, or the other way round at the end, holds it namelessly. The mutex's own word
 * cannot be wrong: in a robust one it must be the thread's id (get_robust_list(2)), glibc has it first. */
static pid_t thread_inside(struct lock_area *lock)
{
    const uint32_t word = (uint32_t)__atomic_load_n(&lock->mutex.__data.__lock, __ATOMIC_ACQUIRE);

    return word & FUTEX_OWNER_DIED ? 0 : (pid_t)(word & FUTEX_TID_MASK);
}

/* What a waiter has seen of the holder so far. */
struct holder_watch {
    pid_t thread;
    uint64_t acquisitions;
    int64_t unchanged_since_ns;
    int64_t last_look_ns;
};

/* The row's process, by a pidfd, if the thread is one of its: opened before the last look at the word, so
 * that what is killed was inside then. */
static bool kill_if_inside(struct lock_area *lock, const struct roster_row *row, pid_t thread)
{
    int32_t pid = atomic_load(&row->pid);
    bool inside;
    int pidfd;

    if (pid == 0 || syscall(SYS_tgkill, pid, thread, 0) != 0)
        return false;
    pidfd = roster_open_pidfd(row);
    inside =
        pidfd >= 0 && thread_inside(lock) == thread && syscall(SYS_tgkill, pid, thread, 0) == 0;
    if (inside)
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    if (pidfd >= 0)
        (void)close(pidfd);
    return inside;
}

/* Called about every LOCK_RETRY_NS while the lock cannot be had. */
static void look_at_holder(struct holder_watch *watch, struct lock_area *lock,
                           const struct roster_row *roster)
{
    pid_t thread = thread_inside(lock);
    uint64_t acquisitions = atomic_load(&lock->acquisitions);
    int64_t now_ns = monotonic_ns();
    bool killed = false;

    if (thread != watch->thread || acquisitions != watch->acquisitions ||
        now_ns - watch->last_look_ns > OWN_JUMP_NS) {
        watch->thread = thread;
        watch->acquisitions = acquisitions;
        watch->unchanged_since_ns = now_ns;
    }
    watch->last_look_ns = now_ns;
    if (thread == 0 || now_ns - watch->unchanged_since_ns < LOCK_STUCK_NS)
        return;
    for (uint32_t i = 0; i < ROSTER_MAX && !killed; i++)
        killed = kill_if_inside(lock, &roster[i], thread);
    watch->unchanged_since_ns = now_ns;
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
