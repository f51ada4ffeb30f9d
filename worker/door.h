/*
 * door.h - which of a worker's threads wait at the listening socket.
 *
 * Letting all idle threads wait costs: each new connection wakes one of them although a thread that has
 * just finished would have taken it in a moment, and the kernel walks over all of them. So at most
 * DOORMEN wait at the socket; the others are parked, the last to park the first to come back. Who takes
 * a request and leaves nobody at the door wakes one parked thread to stand there. While there is much to
 * do, a thread that has finished tries the socket before it parks.
 *
 * While requests are finished at more than DOOR_BUSY_PER_MS, a doorman that is woken naps for
 * DOOR_NAP_NS first: the threads that finish take what has come, each without a wake-up.
 *
 * The kernel wakes one doorman for a connection and tells nobody else. So whoever was woken must try the
 * socket, also when the door was closed meanwhile; and since it may be killed or stopped before it does,
 * every doorman tries the socket every DOOR_LOOK_MS without being woken.
 *
 * Threads: all of a worker's request threads use one door.
 */
#ifndef WORKER_DOOR_H
#define WORKER_DOOR_H

#include "base/check.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DOORMEN 2
#define DOOR_BUSY_PER_MS 3
#define DOOR_NAP_NS (1000 * NS_PER_US)
#define DOOR_LOOK_MS 250

struct door_thread {
    _Atomic uint32_t called; /* futex word: 1 = stand at the door */
    int post;                /* index of the doorman's post, -1 = not at the door */
};

struct door {
    int stop_fd;
    int posts[DOORMEN]; /* epoll of listening socket and stop event; each for one doorman */
    bool taken[DOORMEN];
    unsigned standing; /* number of posts taken */
    pthread_mutex_t mutex;
    struct door_thread *threads; /* owned */
    unsigned *parked;            /* owned: a stack of thread indices */
    unsigned parked_count;
    unsigned thread_count;
    atomic_bool closed;
    atomic_bool busy;          /* as the doorman who was woken last found it */
    _Atomic uint64_t finished; /* requests, ever */
    _Atomic uint64_t seen_finished;
    _Atomic int64_t seen_ns;
};

/* stop_fd: an eventfd that becomes readable when the door is to be closed. */
MUST_CHECK bool door_init(struct door *door, int listen_fd, int stop_fd, unsigned threads);
void door_release(struct door *door);

/* The thread found nothing at the socket: wait until it is worth another try, or the door is closed.
 * Who comes back must try the socket, then too. */
void door_wait(struct door *door, unsigned thread);
/* The thread took a connection. */
void door_entered(struct door *door, unsigned thread);
/* It finished one. Returns whether another may have come meanwhile: worth a try before door_wait. */
MUST_CHECK bool door_finished(struct door *door);
/* Nobody is to take any more: everybody comes back from door_wait. */
void door_close(struct door *door);

#endif
