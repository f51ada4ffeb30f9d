/* door.c - which threads wait at the listening socket; see door.h. */
#include "worker/door.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

static int make_post(int listen_fd, int stop_fd)
{
    struct epoll_event listening = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.fd = listen_fd};
    struct epoll_event stop = {.events = EPOLLIN, .data.fd = stop_fd};
    int fd = epoll_create1(EPOLL_CLOEXEC);

    if (fd >= 0 && (epoll_ctl(fd, EPOLL_CTL_ADD, listen_fd, &listening) != 0 ||
                    epoll_ctl(fd, EPOLL_CTL_ADD, stop_fd, &stop) != 0)) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

bool door_init(struct door *door, int listen_fd, int stop_fd, unsigned threads)
{
    *door = (struct door){.stop_fd = stop_fd, .thread_count = threads, .posts = {-1, -1}};
    door->threads = calloc(threads, sizeof door->threads[0]);
    door->parked = calloc(threads, sizeof door->parked[0]);
    if (!door->threads || !door->parked || pthread_mutex_init(&door->mutex, NULL) != 0)
        goto fail;
    for (unsigned i = 0; i < threads; i++)
        door->threads[i].post = -1;
    for (unsigned i = 0; i < DOORMEN; i++) {
        door->posts[i] = make_post(listen_fd, stop_fd);
        if (door->posts[i] < 0)
            goto fail;
    }
    return true;

fail:
    door_release(door);
    return false;
}

void door_release(struct door *door)
{
    for (unsigned i = 0; i < DOORMEN; i++)
        if (door->posts[i] >= 0)
            (void)close(door->posts[i]);
    free(door->threads);
    free(door->parked);
    *door = (struct door){.posts = {-1, -1}};
}

static void take_post(struct door *door, unsigned thread)
{
    for (int i = 0; i < DOORMEN; i++) {
        if (door->taken[i])
            continue;
        door->taken[i] = true;
        door->standing++;
        door->threads[thread].post = i;
        return;
    }
}

static void leave_post(struct door *door, unsigned thread)
{
    int post = door->threads[thread].post;

    if (post < 0)
        return;
    door->taken[post] = false;
    door->standing--;
    door->threads[thread].post = -1;
}

static void call(struct door_thread *thread)
{
    atomic_store(&thread->called, 1);
    (void)syscall(SYS_futex, &thread->called, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Are requests finished so fast that those who finish take the new ones too? */
static bool is_busy(struct door *door)
{
    int64_t now_ns = clock_monotonic_ns();
    uint64_t finished = atomic_load_explicit(&door->finished, memory_order_relaxed);
    int64_t since_ns = now_ns - atomic_exchange(&door->seen_ns, now_ns);
    uint64_t since = finished - atomic_exchange(&door->seen_finished, finished);

    return since_ns > 0 && (int64_t)since * NS_PER_MS > DOOR_BUSY_PER_MS * since_ns;
}

static void stand(struct door *door, int post)
{
    struct epoll_event event;
    bool busy;

    (void)epoll_wait(door->posts[post], &event, 1, DOOR_LOOK_MS);
    busy = is_busy(door);
    atomic_store_explicit(&door->busy, busy, memory_order_relaxed);
    if (busy && !atomic_load(&door->closed))
        clock_sleep_ns(DOOR_NAP_NS);
}

void door_wait(struct door *door, unsigned thread)
{
    struct door_thread *self = &door->threads[thread];
    bool parks;

    (void)pthread_mutex_lock(&door->mutex);
    if (self->post < 0 && door->standing < DOORMEN)
        take_post(door, thread);
    parks = self->post < 0 && !atomic_load(&door->closed);
    if (parks) {
        atomic_store(&self->called, 0);
        door->parked[door->parked_count++] = thread;
    }
    (void)pthread_mutex_unlock(&door->mutex);
    /* who calls has given this thread a post before */
    while (parks && !atomic_load(&door->closed) && atomic_load(&self->called) == 0)
        (void)syscall(SYS_futex, &self->called, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    if (!atomic_load(&door->closed))
        stand(door, self->post);
}

void door_entered(struct door *door, unsigned thread)
{
    struct door_thread *next = NULL;

    if (door->threads[thread].post < 0)
        return; /* it never left: it went from one request to the next */
    (void)pthread_mutex_lock(&door->mutex);
    leave_post(door, thread);
    if (door->standing == 0 && door->parked_count > 0) {
        unsigned called = door->parked[--door->parked_count];

        next = &door->threads[called];
        take_post(door, called);
    }
    (void)pthread_mutex_unlock(&door->mutex);
    if (next)
        call(next);
}

bool door_finished(struct door *door)
{
    atomic_fetch_add_explicit(&door->finished, 1, memory_order_relaxed);
    return atomic_load_explicit(&door->busy, memory_order_relaxed);
}

void door_close(struct door *door)
{
    atomic_store(&door->closed, true);
    for (unsigned i = 0; i < door->thread_count; i++)
        call(&door->threads[i]);
}
