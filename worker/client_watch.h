/*
 * client_watch.h - is the client's TCP connection to the web server still there? Asked of the
 * kernel (NETLINK_SOCK_DIAG), because Apache and Caddy tell a FastCGI application nothing while it
 * is silent (fastcgi.md 2). No capability is needed. IPv4 and IPv6.
 *
 * Used only when the first query says ESTABLISHED; the socket cookie of that answer is pinned, so
 * that a reused client port reads as gone (M14). A half-closed client reads as gone. HTTP/1.1 only.
 *
 * Threads: one watch per thread.
 */
#ifndef WORKER_CLIENT_WATCH_H
#define WORKER_CLIENT_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Time between two queries while nothing else tells. */
#define CLIENT_WATCH_INTERVAL_MS 100

struct client_watch {
    int netlink; /* -1 = not open; kept from request to request */
    bool active; /* the first query said ESTABLISHED */
    int family;
    unsigned char local[16], remote[16];
    uint16_t local_port, remote_port;
    uint32_t cookie[2];
};

void client_watch_init(struct client_watch *watch);
void client_watch_release(struct client_watch *watch);
/* First query. Addresses as the web server gives them (SERVER_ADDR, SERVER_PORT, REMOTE_ADDR,
 * REMOTE_PORT); any may be NULL or nonsense: then the watch stays inactive. server_addr NULL
 * (Caddy) tries the remote address itself when it is a loopback one, else the watch is inactive. */
void client_watch_begin(struct client_watch *watch, const char *server_addr,
                        const char *server_port, const char *remote_addr, const char *remote_port);
/* Has the client left? False when the watch is inactive or the kernel does not answer. */
bool client_watch_gone(struct client_watch *watch);

#endif
