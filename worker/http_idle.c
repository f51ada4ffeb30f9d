/* http_idle.c - kept connections; see http_idle.h. */
#include "worker/http_idle.h"

#include "base/clock.h"

enum {
    CONNECTIONS_MAX = 8,
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
    struct http_connection **link = &idle->first;
    size_t count = 1;

    connection->idle_since_ns = now_ns;
    connection->next = idle->first;
    idle->first = connection;
    while (*link && count <= CONNECTIONS_MAX && !is_too_old(*link, now_ns)) {
        link = &(*link)->next;
        count++;
    }
    /* those behind are older still */
    while (*link) {
        connection = *link;
        *link = connection->next;
        http_connection_free(connection);
    }
}
