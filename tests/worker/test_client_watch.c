/* test_client_watch.c - real connections over loopback, as the kernel tells of them (M14). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "worker/client_watch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair {
    int listen_fd, client, server; /* server: what the web server accepted */
    int listen_family, client_family;
    uint16_t port;        /* of the listener */
    uint16_t client_port; /* of the client's end */
    char server_port_text[8], client_port_text[8];
    struct client_watch watch;
};

static struct sockaddr_storage loopback(int family, uint16_t port, socklen_t *length)
{
    struct sockaddr_storage address;

    memset(&address, 0, sizeof address);
    if (family == AF_INET) {
        struct sockaddr_in in = {.sin_family = AF_INET,
                                 .sin_port = htons(port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

        *length = sizeof in;
        memcpy(&address, &in, sizeof in);
    } else {
        struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

        in6.sin6_addr = in6addr_loopback;
        *length = sizeof in6;
        memcpy(&address, &in6, sizeof in6);
    }
    return address;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage address;
    struct sockaddr_in in; /* the port stands at the same place in both families */
    socklen_t length = sizeof address;

    assert_int_equal(getsockname(fd, (void *)&address, &length), 0);
    memcpy(&in, &address, sizeof in);
    return ntohs(in.sin_port);
}

static void connect_pair(struct pair *pair)
{
    struct sockaddr_storage address;
    socklen_t length;
    int one = 1;

    pair->client = socket(pair->client_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(pair->client >= 0);
    assert_int_equal(setsockopt(pair->client, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    address = loopback(pair->client_family, pair->client_port, &length);
    assert_int_equal(bind(pair->client, (const void *)&address, length), 0);
    address = loopback(pair->client_family, pair->port, &length);
    assert_int_equal(connect(pair->client, (const void *)&address, length), 0);
    pair->server = accept4(pair->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(pair->server >= 0);
    pair->client_port = port_of(pair->client);
    (void)snprintf(pair->server_port_text, sizeof pair->server_port_text, "%u", pair->port);
    (void)snprintf(pair->client_port_text, sizeof pair->client_port_text, "%u", pair->client_port);
}

static int set_up_pair(void **state, int listen_family, int client_family)
{
    struct pair *pair = calloc(1, sizeof *pair);
    struct sockaddr_storage address;
    socklen_t length;
    int off = 0;

    assert_non_null(pair);
    pair->listen_family = listen_family;
    pair->client_family = client_family;
    pair->listen_fd = socket(listen_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(pair->listen_fd >= 0);
    address = loopback(listen_family, 0, &length);
    if (listen_family != client_family) { /* [::] takes IPv4 clients too */
        struct sockaddr_in6 any = {.sin6_family = AF_INET6};

        memcpy(&address, &any, sizeof any);
        assert_int_equal(setsockopt(pair->listen_fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off),
                         0);
    }
    assert_int_equal(bind(pair->listen_fd, (const void *)&address, length), 0);
    assert_int_equal(listen(pair->listen_fd, 8), 0);
    pair->port = port_of(pair->listen_fd);
    client_watch_init(&pair->watch);
    connect_pair(pair);
    *state = pair;
    return 0;
}

static int set_up_4(void **state)
{
    return set_up_pair(state, AF_INET, AF_INET);
}

static int set_up_6(void **state)
{
    return set_up_pair(state, AF_INET6, AF_INET6);
}

static int set_up_mapped(void **state)
{
    return set_up_pair(state, AF_INET6, AF_INET);
}

static int tear_down(void **state)
{
    struct pair *pair = *state;

    client_watch_release(&pair->watch);
    client_watch_release(&pair->watch);
    close(pair->listen_fd);
    if (pair->client >= 0)
        close(pair->client);
    if (pair->server >= 0)
        close(pair->server);
    free(pair);
    return 0;
}

static const char *address_text(const struct pair *pair)
{
    return pair->client_family == AF_INET ? "127.0.0.1" : "::1";
}

static void begin_watch(struct pair *pair)
{
    client_watch_begin(&pair->watch, address_text(pair), pair->server_port_text, address_text(pair),
                       pair->client_port_text);
}

static bool becomes_gone(struct client_watch *watch)
{
    int64_t deadline_ns = clock_monotonic_ns() + 5 * NS_PER_S;

    while (!client_watch_gone(watch))
        if (clock_monotonic_ns() > deadline_ns)
            return false;
    return true;
}

static void reset_connection(int *fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    assert_int_equal(setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    close(*fd);
    *fd = -1;
}

static void test_client_closes(void **state)
{
    struct pair *pair = *state;

    begin_watch(pair);
    assert_true(pair->watch.active);
    assert_false(client_watch_gone(&pair->watch));
    assert_false(client_watch_gone(&pair->watch));
    close(pair->client);
    pair->client = -1;
    assert_true(becomes_gone(&pair->watch));
    assert_true(client_watch_gone(&pair->watch));
}

static void test_client_half_closes(void **state)
{
    struct pair *pair = *state;

    begin_watch(pair);
    assert_int_equal(shutdown(pair->client, SHUT_WR), 0);
    assert_true(becomes_gone(&pair->watch));
}

static void test_client_resets(void **state)
{
    struct pair *pair = *state;

    begin_watch(pair);
    assert_true(pair->watch.active);
    reset_connection(&pair->client);
    assert_true(becomes_gone(&pair->watch));
}

/* M14: another connection from the same port is not the client we knew. */
static void test_reused_port_reads_as_gone(void **state)
{
    struct pair *pair = *state;
    uint16_t port = pair->client_port;

    begin_watch(pair);
    assert_true(pair->watch.active);
    reset_connection(&pair->client);
    close(pair->server);
    pair->client_port = port;
    connect_pair(pair);
    assert_int_equal(pair->client_port, port);
    assert_true(client_watch_gone(&pair->watch));
    /* and as there when it is watched itself */
    begin_watch(pair);
    assert_true(pair->watch.active);
    assert_false(client_watch_gone(&pair->watch));
}

static void test_mapped_address_texts(void **state)
{
    struct pair *pair = *state;

    client_watch_begin(&pair->watch, "::ffff:127.0.0.1", pair->server_port_text, "::ffff:127.0.0.1",
                       pair->client_port_text);
    assert_true(pair->watch.active);
    client_watch_begin(&pair->watch, "127.0.0.1", pair->server_port_text, "::ffff:127.0.0.1",
                       pair->client_port_text);
    assert_true(pair->watch.active);
    assert_false(client_watch_gone(&pair->watch));
}

static void test_without_a_server_address(void **state)
{
    struct pair *pair = *state;

    client_watch_begin(&pair->watch, NULL, pair->server_port_text, address_text(pair),
                       pair->client_port_text);
    assert_true(pair->watch.active);
    client_watch_begin(&pair->watch, "", pair->server_port_text, address_text(pair),
                       pair->client_port_text);
    assert_true(pair->watch.active);
    client_watch_begin(&pair->watch, NULL, pair->server_port_text, "192.0.2.1",
                       pair->client_port_text);
    assert_false(pair->watch.active);
}

static void test_what_stays_inactive(void **state)
{
    struct pair *pair = *state;
    const char *here = address_text(pair);
    const char *server = pair->server_port_text;
    const char *client = pair->client_port_text;
    const char *const cases[][4] = {
        {here, NULL, here, client},
        {here, server, NULL, client},
        {here, server, here, NULL},
        {here, server, here, "0"},
        {here, "65536", here, client},
        {here, "-1", here, client},
        {here, "80x", here, client},
        {"localhost", server, here, client},
        {here, server, "evil\n", client},
        {"::1", server, "127.0.0.1", client},
        {"192.0.2.1", server, here, client},
        {"", "", "", ""},
        {NULL, NULL, NULL, NULL},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        client_watch_begin(&pair->watch, cases[i][0], cases[i][1], cases[i][2], cases[i][3]);
        assert_false(pair->watch.active);
        assert_false(client_watch_gone(&pair->watch));
    }
    /* the other end of the same connection does exist */
    client_watch_begin(&pair->watch, here, client, here, server);
    assert_true(pair->watch.active);
}

/* Behind Apache the port comes from the Host header: the listener itself is no client. */
static void test_forged_port(void **state)
{
    struct pair *pair = *state;

    client_watch_begin(&pair->watch, address_text(pair), "9", address_text(pair),
                       pair->client_port_text);
    assert_false(pair->watch.active);
    client_watch_begin(&pair->watch, address_text(pair), pair->server_port_text, address_text(pair),
                       "1");
    assert_false(pair->watch.active);
}

#define TEST(function, before) cmocka_unit_test_setup_teardown(function, before, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_client_closes, set_up_4),
        TEST(test_client_closes, set_up_6),
        TEST(test_client_closes, set_up_mapped),
        TEST(test_client_half_closes, set_up_4),
        TEST(test_client_resets, set_up_4),
        TEST(test_client_resets, set_up_6),
        TEST(test_client_resets, set_up_mapped),
        TEST(test_reused_port_reads_as_gone, set_up_4),
        TEST(test_reused_port_reads_as_gone, set_up_6),
        TEST(test_mapped_address_texts, set_up_mapped),
        TEST(test_without_a_server_address, set_up_4),
        TEST(test_without_a_server_address, set_up_6),
        TEST(test_what_stays_inactive, set_up_4),
        TEST(test_forged_port, set_up_4),
    };

    return cmocka_run_group_tests_name("M14 client_watch", tests, NULL, NULL);
}
