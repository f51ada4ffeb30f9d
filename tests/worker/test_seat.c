/* test_seat.c - one master per instance, whatever death ends it (M7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "worker/seat.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/penstock-seat-XXXXXX";
static char path[sizeof folder + 16];
static struct text why;

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(path, sizeof path, "%s/master.seat", folder);
    text_init(&why, 400);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    text_release(&why);
    (void)unlink(path);
    return rmdir(folder);
}

/* A master in a process of its own: it sits when this returns, and stays until it is killed. With
 * worker, it has a child that inherited everything; the pid goes to *ret_worker. */
static pid_t start_master(pid_t *ret_worker)
{
    int ends[2];
    pid_t worker = 0;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (seat_take(folder, &why) < 0)
            _exit(1);
        if (ret_worker)
            worker = fork();
        (void)alarm(60); /* a failed test must leave neither behind */
        while (ret_worker && worker == 0)
            (void)pause();
        if (write(ends[1], &worker, sizeof worker) != (ssize_t)sizeof worker)
            _exit(1);
        for (;;)
            (void)pause();
    }
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &worker, sizeof worker), sizeof worker);
    (void)close(ends[0]);
    if (ret_worker)
        *ret_worker = worker;
    return pid;
}

static void end_master(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_taken_seat_is_refused_with_who_sits_there(void **state)
{
    pid_t master = start_master(NULL);
    char pid[32];

    (void)state;
    text_clear(&why);
    assert_int_equal(seat_take(folder, &why), -1);
    (void)snprintf(pid, sizeof pid, "pid %d ", (int)master);
    assert_non_null(strstr(text_string(&why), pid));
    assert_non_null(strstr(text_string(&why), folder));
    end_master(master);
}

static void m7_kill_frees_the_seat(void **state)
{
    int fd;

    (void)state;
    end_master(start_master(NULL));
    fd = seat_take(folder, &why);
    assert_true(fd >= 0);
    (void)close(fd);
}

/* Orphaned workers live on without their master; they must not keep its seat. */
static void m7_orphans_do_not_keep_the_seat(void **state)
{
    pid_t worker;
    int fd;

    (void)state;
    end_master(start_master(&worker));
    assert_int_equal(kill(worker, 0), 0);
    fd = seat_take(folder, &why);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(kill(worker, SIGKILL), 0);
}

/* The new program after a re-exec finds the descriptor by number; nobody else can sit down between. */
static void a_kept_seat_stays_taken(void **state)
{
    int fd = seat_take(folder, &why);
    int again;
    pid_t pid;
    int status;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    seat_keep(fd);
    again = seat_take(folder, &why);
    assert_int_equal(again, fd);
    assert_null(getenv("PENSTOCK_REEXEC_SEAT")); /* not for our children */
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(seat_take(folder, &why) < 0 ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    (void)close(fd);
}

static void a_kept_number_that_leads_nowhere_is_refused(void **state)
{
    (void)state;
    text_clear(&why);
    seat_keep(1000);
    assert_int_equal(seat_take(folder, &why), -1);
    assert_non_null(strstr(text_string(&why), "cannot lock"));
    assert_int_equal(setenv("PENSTOCK_REEXEC_SEAT", "nonsense", 1), 0);
    assert_true(seat_take(folder, &why) >= 0);
}

static void a_directory_that_is_not_there_is_told(void **state)
{
    (void)state;
    text_clear(&why);
    assert_int_equal(seat_take("/nowhere/at/all", &why), -1);
    assert_string_equal(text_string(&why),
                        "cannot open /nowhere/at/all/master.seat: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_taken_seat_is_refused_with_who_sits_there),
        cmocka_unit_test(m7_kill_frees_the_seat),
        cmocka_unit_test(m7_orphans_do_not_keep_the_seat),
        cmocka_unit_test(a_kept_seat_stays_taken),
        cmocka_unit_test(a_kept_number_that_leads_nowhere_is_refused),
        cmocka_unit_test(a_directory_that_is_not_there_is_told),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
