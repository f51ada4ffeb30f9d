/* http_idle.c - kept connections; see http_idle.h. */
#include "worker/http_idle.h"

#include "base/clock.h"

#include <string.h>

enum {
    CONNECTIONS_MAX = 8,
    OF_ONE_PEER_MAX =
        2, /* a client runs no more exchanges with one at a time; hedges open fresh ones */
    IDLE_MAX_S = 50, /* web servers close after 60 to 75 */
};

void http_idle_release(struct http_idle *idle)
{
    while (idle->first) {
        struct http_connection *connection = idle->first;

        idle->first = connection->next;
        http_connection_free(connection);
    }
}

static bool is_too_old(const struct http_connection *connection, int64_t now_ns)
{
    return now_ns - connection->idle_since_ns > IDLE_MAX_S * NS_PER_S;
}

struct http_connection *http_idle_take(struct http_idle *idle, const struct http_peer *peer)
{
    struct http_connection **link = &idle->first;

    while (*link) {
        struct http_connection *connection = *link;

        if (!http_connection_fits(connection, peer)) {
            link = &connection->next;
            continue;
        }
        *link = connection->next;
        if (!is_too_old(connection, clock_monotonic_ns()) && http_connection_is_alive(connection))
            return connection;
        http_connection_free(connection);
    }
    return NULL;
}

void http_idle_put(struct http_idle *idle, struct http_connection *connection, int64_t now_ns)
{
    const struct http_peer peer = {.origin = connection->origin,
                                   .origin_bytes = strlen(connection->origin),
                                   .ca_file = connection->ca_file};
    struct http_connection **link = &idle->first;
    size_t kept = 0, of_peer = 0;

    connection->idle_since_ns = now_ns;
    connection->next = idle->first;
    idle->first = connection;
    while (*link) {
        struct http_connection *each = *link;
        bool same = http_connection_fits(each, &peer);

        if (kept < CONNECTIONS_MAX && (!same || of_peer < OF_ONE_PEER_MAX) &&
            !is_too_old(each, now_ns)) {
            link = &each->next;
            kept++;
            of_peer += same;
        } else {
            *link = each->next;
            http_connection_free(each);
        }
    }
}
