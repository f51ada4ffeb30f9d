/* test_refuser.c - when every thread is busy somebody still says so (M15). Real sockets and threads;
 * that every thread is busy is said in the roster. */
#include "tests/shared/gate_fixture.h"

#include "shared/counters.h"
#include "worker/fastcgi_call.h"
#include "worker/refuser.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[] = "/tmp/penstock-refuser-XXXXXX";
static char address[sizeof folder + 16]; /* "unix:..." */
static struct segment segment;
static struct options options;
static struct worker worker;
static struct refuser refuser;

static struct roster_row *own_row(void)
{
    return &segment_core(&segment)->roster[worker.gate.self];
}

static int make(void **state)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    (void)state;
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(address, sizeof address, "unix:%s/fcgi", folder);
    fastcgi_init_process();
    fixture_open(&segment, &worker.gate, 1, 1);
    atomic_store(&own_row()->threads, 2);
    worker.options = &options;
    worker.segment = &segment;
    worker.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    worker.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (!text_copy(at.sun_path, sizeof at.sun_path, address + 5) ||
        bind(worker.listen_fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(worker.listen_fd, 5) != 0)
        return -1;
    return refuser_start(&refuser, &worker) ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    (void)eventfd_write(worker.stop_fd, 1);
    refuser_stop(&refuser);
    refuser_stop(&refuser); /* harmless */
    (void)close(worker.stop_fd);
    (void)close(worker.listen_fd);
    fixture_close(&segment);
    (void)unlink(address + 5);
    return rmdir(folder);
}

/* Ask as a web server would. False: nobody answered in time. */
static bool ask(struct fastcgi_reply *reply, int64_t timeout_ms)
{
    static const struct fastcgi_call_parameter parameters[] = {
        {"REQUEST_METHOD", "POST"},
        {"REQUEST_URI", "/v1/chat/completions"},
    };
    const struct fastcgi_call call = {
        .address = address,
        .parameters = parameters,
        .parameter_count = LENGTH(parameters),
        .timeout_ms = timeout_ms,
    };
    struct text why;
    bool answered;

    text_init(&why, 200);
    fastcgi_reply_init(reply, 65536);
    answered = fastcgi_call_make(&call, reply, &why);
    text_release(&why);
    return answered;
}

static uint64_t refused(void)
{
    return counter_value(&segment_instance(&segment)->counters, COUNTER_refused_busy);
}

static void m15_with_an_idle_thread_nobody_is_refused(void **state)
{
    struct fastcgi_reply reply;

    (void)state;
    atomic_store(&own_row()->threads_busy, 1);
    assert_false(ask(&reply, 1500)); /* the idle thread would have answered */
    assert_int_equal(refused(), 0);
    fastcgi_reply_release(&reply);
}

static void m15_with_every_thread_busy_it_says_so(void **state)
{
    struct fastcgi_reply reply;
    const char *id;

    (void)state;
    atomic_store(&own_row()->threads_busy, 2);
    while (refused() == 0) { /* the first may be that of the test above, who has left */
        assert_true(ask(&reply, 20000));
        assert_int_equal(reply.status, 503);
        assert_non_null(strstr(reply.body, "\"penstock_busy\""));
        assert_non_null(strstr(text_string(&reply.text), "\r\nRetry-After: 5\r\n"));
        id = strstr(text_string(&reply.text), "\r\nx-request-id: pst_");
        assert_non_null(id);
        assert_true(strspn(id + 20, "0123456789abcdef") >= 16);
        fastcgi_reply_release(&reply);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(m15_with_an_idle_thread_nobody_is_refused),
        cmocka_unit_test(m15_with_every_thread_busy_it_says_so),
    };

    return cmocka_run_group_tests(tests, make, drop);
}
