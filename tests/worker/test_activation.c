/* test_activation.c - sockets handed over by systemd or a re-exec, sockets made here, and words to
 * the service manager. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/activation.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/penstock-activation-XXXXXX";
static char fcgi_at[sizeof folder + 32];   /* "unix:..." */
static char status_at[sizeof folder + 32]; /* "unix:..." */
static struct text why;
static struct options options;

static int make_folder(void **state)
{
    (void)state;
    text_init(&why, 400);
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(fcgi_at, sizeof fcgi_at, "unix:%s/fcgi", folder);
    (void)snprintf(status_at, sizeof status_at, "unix:%s/status", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    text_release(&why);
    return rmdir(folder);
}

static int begin(void **state)
{
    (void)state;
    options = (struct options){.penstock = {
                                   .listen = fcgi_at,
                                   .status_listen = status_at,
                                   .listen_mode = 0660,
                                   .listen_group = "",
                               }};
    text_clear(&why);
    return 0;
}

static int end(void **state)
{
    (void)state;
    (void)unlink(fcgi_at + 5);
    (void)unlink(status_at + 5);
    return 0;
}

/* Can a client connect to what the address names? */
static bool answers(const char *unix_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool connected = text_copy(address.sun_path, sizeof address.sun_path, unix_path) &&
                     connect(fd, (struct sockaddr *)&address, sizeof address) == 0;

    (void)close(fd);
    return connected;
}

static void close_both(const struct listeners *listeners)
{
    (void)close(listeners->fcgi);
    (void)close(listeners->status);
}

/* ---- sockets made here ----------------------------------------------------------------------- */

static void sockets_are_made_with_their_mode(void **state)
{
    struct listeners listeners;
    struct stat status;

    (void)state;
    options.penstock.listen_mode = 0606;
    assert_true(activation_listen(&options, &listeners, &why));
    assert_false(listeners.activated);
    assert_int_equal(stat(fcgi_at + 5, &status), 0);
    assert_true(S_ISSOCK(status.st_mode));
    assert_int_equal(status.st_mode & 0777, 0606);
    assert_true(answers(fcgi_at + 5));
    assert_true(answers(status_at + 5));
    assert_true(fcntl(listeners.fcgi, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(listeners.status, F_GETFL) & O_NONBLOCK);
    assert_int_equal(fcntl(listeners.fcgi, F_GETFD) & FD_CLOEXEC, 0); /* kept over a re-exec */
    close_both(&listeners);
}

/* A socket left behind by a killed daemon must not keep the next one from starting. */
static void a_socket_left_behind_is_replaced(void **state)
{
    struct listeners old;
    struct listeners new;

    (void)state;
    assert_true(activation_listen(&options, &old, &why));
    close_both(&old);
    assert_false(answers(fcgi_at + 5));
    assert_true(activation_listen(&options, &new, &why));
    assert_true(answers(fcgi_at + 5));
    close_both(&new);
}

static void an_unknown_group_is_told(void **state)
{
    struct listeners listeners;

    (void)state;
    options.penstock.listen_group = "no-such-group-here";
    assert_false(activation_listen(&options, &listeners, &why));
    assert_string_equal(text_string(&why),
                        "penstock.listen_group: there is no group \"no-such-group-here\"");
}

static void what_cannot_be_listened_on_is_told_with_the_reason(void **state)
{
    static char long_path[200] = "unix:/";
    static const struct {
        const char *listen, *reason;
    } cases[] = {
        {"unix:/nowhere/at/all", "No such file or directory"},
        {long_path, "File name too long"},
        {"nonsense", "not an address and port"},
        {"127.0.0.1", "not an address and port"},
        {"127.0.0.1:x", "not an address and port"},
        {"127.0.0.1:65536", "not an address and port"},
        {"[::1]", "not an address and port"},
        {"[:80", "not an address and port"},
        {"[::1:80", "not an address and port"},
        {"localhost:80", "Invalid argument"}, /* names are not looked up */
        {"[127.0.0.1]:80", "Invalid argument"},
        {":80", "Invalid argument"},
        {"192.0.2.1:8080", "Cannot assign requested address"},
    };
    struct listeners listeners;

    (void)state;
    memset(long_path + 6, 'x', sizeof long_path - 7);
    for (size_t i = 0; i < LENGTH(cases); i++) {
        text_clear(&why);
        options.penstock.listen = cases[i].listen;
        assert_false(activation_listen(&options, &listeners, &why));
        if (!strstr(text_string(&why), cases[i].reason))
            fail_msg("%s: %s", cases[i].listen, text_string(&why));
        assert_non_null(strstr(text_string(&why), cases[i].listen));
    }
}

static uint16_t port_of(int fd, int family)
{
    struct sockaddr_in6 six = {.sin6_family = AF_UNSPEC};
    socklen_t length = sizeof six;

    assert_int_equal(getsockname(fd, (struct sockaddr *)&six, &length), 0);
    assert_int_equal(six.sin6_family, family);
    return ntohs(six.sin6_port); /* where sockaddr_in has it, too */
}

static void tcp_is_listened_on(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct listeners listeners;
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    options.penstock.listen = "127.0.0.1:0"; /* the kernel chooses */
    assert_true(activation_listen(&options, &listeners, &why));
    address.sin_port = htons(port_of(listeners.fcgi, AF_INET));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    (void)close(client);
    close_both(&listeners);
}

static void tcp_over_ipv6_is_listened_on(void **state)
{
    struct listeners listeners;

    (void)state;
    options.penstock.listen = "[::1]:0";
    if (!activation_listen(&options, &listeners, &why)) {
        assert_non_null(strstr(text_string(&why), "[::1]:0: ")); /* a host without IPv6 */
        skip();
    }
    assert_true(port_of(listeners.fcgi, AF_INET6) > 0);
    close_both(&listeners);
}

/* ---- sockets handed over --------------------------------------------------------------------- */

/* Descriptors 3, 4, ... belong to whoever started this program: everything about them happens in a
 * process of its own. The first wrong line is its exit status. */
#define CHILD_CHECK(truth)                                                                         \
    do {                                                                                           \
        if (!(truth))                                                                              \
            _exit(__LINE__ % 256);                                                                 \
    } while (0)

static void in_child(void (*run)(void))
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != 0)
        fail_msg("in line %d (mod 256)", WEXITSTATUS(status));
}

/* Listening sockets at 3 ... 3 + count - 1, announced as systemd does; names may be NULL. */
static void hand_over(int count, const char *names)
{
    char number[16];

    for (int i = 0; i < count; i++) {
        struct sockaddr_un any = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        /* the family alone: the kernel chooses an abstract name */
        CHILD_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof any.sun_family) == 0 &&
                    listen(fd, 1) == 0);
        CHILD_CHECK(fd == 3 + i || dup3(fd, 3 + i, O_CLOEXEC) == 3 + i);
    }
    (void)snprintf(number, sizeof number, "%d", count);
    (void)setenv("LISTEN_FDS", number, 1);
    (void)snprintf(number, sizeof number, "%d", (int)getpid());
    (void)setenv("LISTEN_PID", number, 1);
    if (names)
        (void)setenv("LISTEN_FDNAMES", names, 1);
}

static void check_named(void)
{
    struct listeners listeners;

    hand_over(2, "status:fcgi");
    CHILD_CHECK(activation_listen(&options, &listeners, &why));
    CHILD_CHECK(listeners.status == 3 && listeners.fcgi == 4 && listeners.activated);
    CHILD_CHECK(fcntl(3, F_GETFL) & O_NONBLOCK && fcntl(4, F_GETFL) & O_NONBLOCK);
    CHILD_CHECK(fcntl(3, F_GETFD) == 0 && fcntl(4, F_GETFD) == 0);
    CHILD_CHECK(access(fcgi_at + 5, F_OK) != 0 && access(status_at + 5, F_OK) != 0);
    /* they are ours: no child may take them for its own */
    CHILD_CHECK(!getenv("LISTEN_FDS") && !getenv("LISTEN_PID") && !getenv("LISTEN_FDNAMES"));
}

static void check_unnamed(void)
{
    struct listeners listeners;

    hand_over(2, NULL);
    CHILD_CHECK(activation_listen(&options, &listeners, &why));
    CHILD_CHECK(listeners.fcgi == 3 && listeners.status == 4 && listeners.activated);
}

/* Without FileDescriptorName= a socket has its unit's name. */
static void check_named_by_unit(void)
{
    struct listeners listeners;

    hand_over(1, "penstock.socket");
    CHILD_CHECK(activation_listen(&options, &listeners, &why));
    CHILD_CHECK(listeners.fcgi == 3 && listeners.activated);
    CHILD_CHECK(answers(status_at + 5)); /* the other is made here */
}

static void check_status_alone(void)
{
    struct listeners listeners;

    hand_over(1, "status");
    CHILD_CHECK(activation_listen(&options, &listeners, &why));
    CHILD_CHECK(listeners.status == 3);
    CHILD_CHECK(answers(fcgi_at + 5));
}

static void check_not_for_us(void)
{
    struct listeners listeners;

    hand_over(2, NULL);
    (void)setenv("LISTEN_PID", "1", 1);
    CHILD_CHECK(activation_listen(&options, &listeners, &why));
    CHILD_CHECK(!listeners.activated && answers(fcgi_at + 5) && answers(status_at + 5));
    CHILD_CHECK(!getenv("LISTEN_FDS"));
}

static void check_nonsense(void)
{
    struct listeners listeners;

    hand_over(0, "");
    (void)setenv("LISTEN_FDS", "-3", 1);
    CHILD_CHECK(activation_listen(&options, &listeners, &why));
    CHILD_CHECK(!listeners.activated && answers(fcgi_at + 5));
}

static void check_closed(void)
{
    struct listeners listeners;

    hand_over(2, NULL);
    (void)close(4);
    CHILD_CHECK(!activation_listen(&options, &listeners, &why));
    CHILD_CHECK(strstr(text_string(&why), "cannot be used: Bad file descriptor"));
}

static void sockets_are_told_apart_by_their_names(void **state)
{
    (void)state;
    in_child(check_named);
}

static void sockets_without_names_are_told_apart_by_their_order(void **state)
{
    (void)state;
    in_child(check_unnamed);
    in_child(check_named_by_unit);
    in_child(check_status_alone);
}

static void what_is_meant_for_another_process_is_left_alone(void **state)
{
    (void)state;
    in_child(check_not_for_us);
    in_child(check_nonsense);
}

static void a_socket_that_is_not_there_is_told(void **state)
{
    (void)state;
    in_child(check_closed);
}

/* O: nothing is refused while a daemon replaces itself: the new program takes over both sockets. */
static void a_reexec_takes_its_sockets_along(void **state)
{
    struct listeners before;
    struct listeners after;

    (void)state;
    assert_true(activation_listen(&options, &before, &why));
    before.activated = true;
    activation_keep(&before);
    options.penstock.listen = "unix:/nowhere/at/all"; /* not made anew */
    assert_true(activation_listen(&options, &after, &why));
    assert_int_equal(after.fcgi, before.fcgi);
    assert_int_equal(after.status, before.status);
    assert_true(after.activated);
    assert_true(answers(fcgi_at + 5));
    assert_null(getenv("PENSTOCK_REEXEC_SOCKETS"));
    close_both(&after);
}

static void nonsense_from_a_reexec_is_ignored(void **state)
{
    static const char *const kept[] = {"", "7", "x y z", "7 8"};

    (void)state;
    for (size_t i = 0; i < LENGTH(kept); i++) {
        struct listeners listeners;

        assert_int_equal(setenv("PENSTOCK_REEXEC_SOCKETS", kept[i], 1), 0);
        assert_true(activation_listen(&options, &listeners, &why));
        assert_false(listeners.activated);
        assert_true(answers(fcgi_at + 5));
        close_both(&listeners);
    }
}

/* ---- words to the service manager ------------------------------------------------------------ */

/* A service manager's socket at name; "@" is an abstract one. */
static int manager_at(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_true(text_copy(address.sun_path, sizeof address.sun_path, name));
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    assert_int_equal(bind(fd, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
                     0);
    return fd;
}

static void assert_heard(int fd, const char *lines)
{
    char heard[200];
    ssize_t length = recv(fd, heard, sizeof heard - 1, 0); /* a local datagram is there at once */

    assert_true(length >= 0);
    heard[length] = '\0';
    assert_string_equal(heard, lines);
}

static void words_reach_the_service_manager(void **state)
{
    char names[2][sizeof folder + 32];

    (void)state;
    (void)snprintf(names[0], sizeof names[0], "%s/notify", folder);
    (void)snprintf(names[1], sizeof names[1], "@penstock-test-%d", (int)getpid());
    for (size_t i = 0; i < LENGTH(names); i++) {
        int fd = manager_at(names[i]);

        assert_int_equal(setenv("NOTIFY_SOCKET", names[i], 1), 0);
        activation_notify("READY=1\nSTATUS=serving");
        activation_notify("STOPPING=1");
        assert_heard(fd, "READY=1\nSTATUS=serving");
        assert_heard(fd, "STOPPING=1");
        (void)close(fd);
    }
    assert_int_equal(unlink(names[0]), 0);
    (void)unsetenv("NOTIFY_SOCKET");
}

/* A manager that does not read, is not there, or has an absurd name must not stop the daemon. */
static void words_nobody_hears_cost_nothing(void **state)
{
    static char long_name[300] = "/";
    static const char *const names[] = {"", "/", "relative", "/nowhere/at/all", long_name};
    char name[64];
    int fd;

    (void)state;
    memset(long_name + 1, 'x', sizeof long_name - 2);
    activation_notify("READY=1"); /* no manager */
    for (size_t i = 0; i < LENGTH(names); i++) {
        assert_int_equal(setenv("NOTIFY_SOCKET", names[i], 1), 0);
        activation_notify("READY=1");
    }
    (void)snprintf(name, sizeof name, "@penstock-test-%d", (int)getpid());
    fd = manager_at(name);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    for (unsigned i = 0; i < 2000; i++) /* far more than its queue takes */
        activation_notify("STATUS=again");
    assert_heard(fd, "STATUS=again");
    (void)close(fd);
    (void)unsetenv("NOTIFY_SOCKET");
}

/* sd_watchdog_enabled(3): at half of the time the manager waits. */
static void the_watchdog_wants_half_its_time(void **state)
{
    static const struct {
        const char *us;
        int64_t ms;
    } cases[] = {
        {"30000000", 15000},
        {"2000", 1},
        {"0", 0},
        {"", 0},
        {"-5", 0},
        {"nonsense", 0},
        {"86400000000", 43200000},
        {"86400000001", 0},
        {"18446744073709551615", 0},
    };

    (void)state;
    (void)unsetenv("WATCHDOG_USEC");
    assert_int_equal(activation_watchdog_ms(), 0);
    for (size_t i = 0; i < LENGTH(cases); i++) {
        assert_int_equal(setenv("WATCHDOG_USEC", cases[i].us, 1), 0);
        assert_int_equal(activation_watchdog_ms(), cases[i].ms);
    }
    (void)unsetenv("WATCHDOG_USEC");
}

int main(void)
{
#define WITH_OPTIONS(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        WITH_OPTIONS(sockets_are_made_with_their_mode),
        WITH_OPTIONS(a_socket_left_behind_is_replaced),
        WITH_OPTIONS(an_unknown_group_is_told),
        WITH_OPTIONS(what_cannot_be_listened_on_is_told_with_the_reason),
        WITH_OPTIONS(tcp_is_listened_on),
        WITH_OPTIONS(tcp_over_ipv6_is_listened_on),
        WITH_OPTIONS(sockets_are_told_apart_by_their_names),
        WITH_OPTIONS(sockets_without_names_are_told_apart_by_their_order),
        WITH_OPTIONS(what_is_meant_for_another_process_is_left_alone),
        WITH_OPTIONS(a_socket_that_is_not_there_is_told),
        WITH_OPTIONS(a_reexec_takes_its_sockets_along),
        WITH_OPTIONS(nonsense_from_a_reexec_is_ignored),
        WITH_OPTIONS(words_reach_the_service_manager),
        WITH_OPTIONS(words_nobody_hears_cost_nothing),
        WITH_OPTIONS(the_watchdog_wants_half_its_time),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
