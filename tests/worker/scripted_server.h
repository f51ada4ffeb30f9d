/*
 * scripted_server.h - an upstream of a few lines for the tests of worker/http_*.c: a thread that
 * runs one script over a loopback listener.
 */
#ifndef TESTS_WORKER_SCRIPTED_SERVER_H
#define TESTS_WORKER_SCRIPTED_SERVER_H

#include "base/text.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

struct server {
    int listen_fd;
    unsigned port;
    char url[64];
    pthread_t thread;
    void (*script)(struct server *server);
    atomic_int connections;
    atomic_int requests; /* whole ones */
    atomic_int opened;   /* connections on which at least one byte came */
    atomic_bool saw_close;
    atomic_bool stop;
    struct text last; /* the last request, as received; read it after server_stop */
    size_t last_head; /* of it */
};

static inline void server_listen(struct server *server, int backlog)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof in;

    server->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->listen_fd < 0 || bind(server->listen_fd, (const void *)&in, sizeof in) != 0 ||
        listen(server->listen_fd, backlog) != 0 ||
        getsockname(server->listen_fd, (void *)&in, &length) != 0)
        abort();
    server->port = ntohs(in.sin_port);
    (void)snprintf(server->url, sizeof server->url, "http://127.0.0.1:%u/v1/x?q=1", server->port);
}

static inline void *server_main(void *argument)
{
    struct server *server = argument;

    server->script(server);
    return NULL;
}

static inline struct server *server_start(void (*script)(struct server *))
{
    struct server *server = calloc(1, sizeof *server);

    if (!server)
        abort();
    text_init(&server->last, (size_t)64 << 20);
    server->script = script;
    server_listen(server, 16);
    if (pthread_create(&server->thread, NULL, server_main, server) != 0)
        abort();
    return server;
}

/* Join the script. */
static inline void server_stop(struct server *server)
{
    atomic_store(&server->stop, true);
    if (pthread_join(server->thread, NULL) != 0)
        abort();
}

static inline void server_free(struct server *server)
{
    close(server->listen_fd);
    text_release(&server->last);
    free(server);
}

/* -1 when the test is over. */
static inline int server_accept(struct server *server)
{
    struct pollfd listener = {.fd = server->listen_fd, .events = POLLIN};

    while (poll(&listener, 1, 10) <= 0)
        if (atomic_load(&server->stop))
            return -1;
    atomic_fetch_add(&server->connections, 1);
    return accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);
}

/* Read one request with its body (Content-Length). False when the connection ends before. */
static inline bool server_read(struct server *server, int fd)
{
    struct text *text = &server->last;
    char bytes[65536];
    size_t need = SIZE_MAX;

    text_clear(text);
    while (text->length < need) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        const char *end, *field;

        if (n <= 0) {
            atomic_store(&server->saw_close, true);
            return false;
        }
        if (text->length == 0)
            atomic_fetch_add(&server->opened, 1);
        text_append(text, bytes, (size_t)n);
        if (need != SIZE_MAX || !(end = strstr(text_string(text), "\r\n\r\n")))
            continue;
        server->last_head = (size_t)(end - text->bytes) + 4;
        field = strcasestr(text_string(text), "\ncontent-length:");
        need = server->last_head;
        if (field && field < end)
            need += strtoul(field + 16, NULL, 10);
    }
    atomic_fetch_add(&server->requests, 1);
    return true;
}

static inline bool server_send(int fd, const char *text)
{
    size_t length = strlen(text), at = 0;

    while (at < length) {
        ssize_t n = send(fd, text + at, length - at, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

/* Take the connection, answer one request with the text, close. */
static inline void server_answer_once(struct server *server, const char *text)
{
    int fd = server_accept(server);

    if (fd < 0)
        return;
    if (server_read(server, fd))
        (void)server_send(fd, text);
    close(fd);
}

/* Count whatever still comes until the test is over. */
static inline void server_count_the_rest(struct server *server)
{
    int fd;

    while ((fd = server_accept(server)) >= 0) {
        while (server_read(server, fd))
            continue;
        close(fd);
    }
}

#endif
