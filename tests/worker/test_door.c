/* test_door.c - which threads wait at the socket: few, never none, and all come back when it closes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above first */
#include <cmocka.h>

#include "worker/door.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { THREADS = 12, CALLERS = 40 };

static struct door door;
static int listen_fd;
static int stop_fd;
static struct sockaddr_un address;
static _Atomic unsigned inside;
static _Atomic unsigned most_inside;
static _Atomic unsigned taken;

static int make(void **state)
{
    (void)state;
    address = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "penstock-door-%d", getpid());
    listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    atomic_store(&inside, 0);
    atomic_store(&most_inside, 0);
    atomic_store(&taken, 0);
    return bind(listen_fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                   listen(listen_fd, 128) == 0 && door_init(&door, listen_fd, stop_fd, THREADS)
               ? 0
               : -1;
}

static int drop(void **state)
{
    (void)state;
    door_release(&door);
    (void)close(listen_fd);
    (void)close(stop_fd);
    return 0;
}

/* Serve a caller: one byte in, one byte out, end. */
static void serve(int fd)
{
    unsigned now = atomic_fetch_add(&inside, 1) + 1;
    unsigned most = atomic_load(&most_inside);
    char byte;

    while (now > most && !atomic_compare_exchange_weak(&most_inside, &most, now))
        continue;
    if (read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1)
        atomic_fetch_add(&taken, 1);
    (void)close(fd);
    atomic_fetch_sub(&inside, 1);
}

static void *request_thread(void *argument)
{
    unsigned self = (unsigned)(uintptr_t)argument;

    for (;;) {
        bool open = !atomic_load(&door.closed);
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0 && !open)
            break;
        if (fd < 0) {
            door_wait(&door, self);
            continue;
        }
        door_entered(&door, self);
        serve(fd);
        if (!door_finished(&door))
            door_wait(&door, self);
    }
    return NULL;
}

static int call(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void start(pthread_t *threads)
{
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, request_thread, (void *)(uintptr_t)i),
                         0);
}

static void stop(pthread_t *threads)
{
    const uint64_t one = 1;

    assert_int_equal(write(stop_fd, &one, sizeof one), sizeof one);
    door_close(&door);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void all_threads_can_be_inside_at_once(void **state)
{
    pthread_t threads[THREADS];
    int fds[THREADS];
    char byte = 'x';

    (void)state;
    start(threads);
    for (unsigned i = 0; i < THREADS; i++)
        fds[i] = call();
    while (atomic_load(&inside) < THREADS) /* each waits for its caller's byte */
        clock_sleep_ns(NS_PER_MS);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(write(fds[i], &byte, 1), 1);
        assert_int_equal(read(fds[i], &byte, 1), 1);
        (void)close(fds[i]);
    }
    stop(threads);
    assert_int_equal(atomic_load(&most_inside), THREADS);
}

static void nobody_is_left_in_the_backlog(void **state)
{
    pthread_t threads[THREADS];
    char byte = 'x';

    (void)state;
    start(threads);
    for (int round = 0; round < 50; round++) {
        int fds[CALLERS];

        for (int i = 0; i < CALLERS; i++) {
            fds[i] = call();
            assert_int_equal(write(fds[i], &byte, 1), 1);
        }
        for (int i = 0; i < CALLERS; i++) {
            assert_int_equal(read(fds[i], &byte, 1), 1); /* hangs when nobody takes it */
            (void)close(fds[i]);
        }
    }
    stop(threads);
    assert_int_equal(atomic_load(&taken), 50 * CALLERS);
}

static void all_come_back_when_it_closes(void **state)
{
    pthread_t threads[THREADS];

    (void)state;
    start(threads);
    stop(threads);
    assert_int_equal(door.standing <= DOORMEN, true);
}

/* The kernel told it alone of a connection, and it ends before it takes it. */
static void *thread_that_is_killed(void *other_door)
{
    door_wait(other_door, 0);
    return NULL;
}

static void what_a_killed_thread_was_woken_for_is_taken(void **state)
{
    enum { ROUNDS = 5 };
    pthread_t threads[THREADS];
    struct door other;

    (void)state;
    door_release(&door);
    assert_true(door_init(&other, listen_fd, stop_fd, 1)); /* who was there first is woken first */
    assert_true(door_init(&door, listen_fd, stop_fd, THREADS));
    start(threads);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t killed;
        struct pollfd answer = {.events = POLLIN};
        char byte = 'x';

        assert_int_equal(pthread_create(&killed, NULL, thread_that_is_killed, &other), 0);
        clock_sleep_ns(5 *
                       NS_PER_MS); /* as a rule it waits by now; else this round proves nothing */
        answer.fd = call();
        assert_int_equal(write(answer.fd, &byte, 1), 1);
        assert_int_equal(poll(&answer, 1, 20 * DOOR_LOOK_MS), 1);
        (void)close(answer.fd);
        assert_int_equal(pthread_join(killed, NULL), 0);
    }
    stop(threads);
    door_release(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_threads_can_be_inside_at_once, make, drop),
        cmocka_unit_test_setup_teardown(nobody_is_left_in_the_backlog, make, drop),
        cmocka_unit_test_setup_teardown(all_come_back_when_it_closes, make, drop),
        cmocka_unit_test_setup_teardown(what_a_killed_thread_was_woken_for_is_taken, make, drop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
