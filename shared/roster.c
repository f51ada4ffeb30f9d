/* roster.c - who lives; see roster.h. */
#include "shared/roster.h"

#include "base/clock.h"
#include "base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t roster_start_ticks(int32_t pid)
{
    char path[32];
    char stat[1024];
    const char *at;
    ssize_t length;
    uint64_t ticks = 0;
    int fd;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    length = read(fd, stat, sizeof stat - 1);
    (void)close(fd);
    if (length <= 0)
        return 0;
    stat[length] = '\0';
    at = strrchr(stat, ')'); /* the name may have blanks and brackets in it */
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at || !parse_u64_bytes(at + 1, strcspn(at + 1, " "), &ticks))
        return 0;
    return ticks;
}

uint32_t roster_enter_locked(struct core_area *core, const struct roster_member *member,
                             int64_t now_ns)
{
    for (uint32_t i = 0; i < ROSTER_MAX; i++) {
        struct roster_row *row = &core->roster[i];

        if (atomic_load(&row->pid) != 0)
            continue;
        row->role = member->role;
        row->incarnation = core->next_incarnation++;
        row->start_ticks = roster_start_ticks(getpid());
        row->instance = member->instance;
        row->layout = LAYOUT_VERSION;
        row->generation = member->generation;
        row->semaphore_epoch = core->semaphore_epoch;
        row->draining = 0;
        row->since_ns = now_ns;
        atomic_store(&row->threads, member->threads);
        atomic_store(&row->threads_busy, 0);
        atomic_store(&row->pid, getpid());
        return i;
    }
    return NO_INDEX;
}

void roster_leave_locked(struct core_area *core, uint32_t index)
{
    struct roster_row *row = &core->roster[index];

    atomic_store(&row->pid, 0);
    row->role = PROCESS_NONE;
    row->incarnation = 0;
    roster_ring(row); /* whoever sleeps on it looks again */
}

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

void roster_ring(struct roster_row *row)
{
    atomic_fetch_add(&row->bell, 1);
    (void)futex(&row->bell, FUTEX_WAKE, INT_MAX, NULL);
}

uint32_t roster_wait_bell(struct roster_row *row, uint32_t seen, int64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = timeout_ns / NS_PER_S, .tv_nsec = timeout_ns % NS_PER_S};

    if (atomic_load(&row->bell) == seen)
        (void)futex(&row->bell, FUTEX_WAIT, seen, &timeout);
    return atomic_load(&row->bell);
}

int roster_open_pidfd(const struct roster_row *row)
{
    int32_t pid = atomic_load(&row->pid);
    uint64_t ticks = row->start_ticks;
    uint64_t found;
    int fd;

    if (pid <= 0) {
        errno = EAGAIN; /* it is being taken or freed: nothing is known */
        return -1;
    }
    fd = (int)syscall(SYS_pidfd_open, pid, 0);
    found = fd >= 0 ? roster_start_ticks(pid) : 0;
    /* 0: /proc does not tell. It is mounted with hidepid (we are not dumpable, so that even our own
     * user's processes are hidden then), or no descriptor is left. That proves no death. */
    if (found != 0 && ticks != 0 && found != ticks) {
        (void)close(fd);
        errno = ESRCH;
        return -1;
    }
    return fd;
}

void roster_watch_init(struct roster_watch *watch)
{
    for (unsigned i = 0; i < ROSTER_MAX; i++) {
        watch->seen[i].fd = -1;
        watch->seen[i].incarnation = 0;
    }
}

void roster_watch_release(struct roster_watch *watch)
{
    for (unsigned i = 0; i < ROSTER_MAX; i++)
        if (watch->seen[i].fd >= 0)
            (void)close(watch->seen[i].fd);
    roster_watch_init(watch);
}

/* A row that cannot be opened belongs to a process that is gone, unless we are out of descriptors:
 * then nothing is claimed. */
static bool row_is_dead(struct roster_watch *watch, const struct roster_row *row, uint32_t index,
                        uint64_t incarnation)
{
    struct pollfd look = {.events = POLLIN};

    if (watch->seen[index].incarnation != incarnation || watch->seen[index].fd < 0) {
        if (watch->seen[index].fd >= 0)
            (void)close(watch->seen[index].fd);
        watch->seen[index].incarnation = incarnation;
        watch->seen[index].fd = roster_open_pidfd(row);
        if (watch->seen[index].fd < 0)
            return errno == ESRCH;
    }
    look.fd = watch->seen[index].fd;
    return poll(&look, 1, 0) == 1 && (look.revents & POLLIN);
}

unsigned roster_watch_dead(struct roster_watch *watch, struct core_area *core,
                           struct roster_death *dead, unsigned max)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < ROSTER_MAX && count < max; i++) {
        const struct roster_row *row = &core->roster[i];
        uint64_t incarnation = row->incarnation;

        if (atomic_load(&row->pid) == 0 || incarnation == 0) {
            if (watch->seen[i].fd >= 0)
                (void)close(watch->seen[i].fd);
            watch->seen[i].fd = -1;
            watch->seen[i].incarnation = 0;
            continue;
        }
        if (row_is_dead(watch, row, i, incarnation) && row->incarnation == incarnation) {
            dead[count].index = i;
            dead[count].incarnation = incarnation;
            count++;
        }
    }
    return count;
}
