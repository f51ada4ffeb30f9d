/*
 * images.c - the honest count of image calls that are open at once.
 *
 * A caller may close one call and open another at once; the two events travel on two sockets and
 * may reach us in any order. So before a new image call is counted, all open ones are asked whether
 * their peer has closed, and those are ended first. poll() tells this behind unread bytes, too.
 */
#include "tests/tools/upstream/connection.h"

#include "base/clock.h"

#include <stdlib.h>

static void end_closed(struct server *server)
{
    for (size_t i = 0; i < server->image_count; i++)
        server->polls[i] = (struct pollfd){.fd = server->images[i]->fd, .events = POLLRDHUP};
    if (server->image_count == 0 || poll(server->polls, server->image_count, 0) <= 0)
        return;
    /* From the end, because removing moves the last one into the gap. */
    for (size_t i = server->image_count; i-- > 0;)
        if (server->polls[i].revents & (POLLRDHUP | POLLHUP | POLLERR))
            sim_connection_close(server->images[i], END_ABORTED);
}

static void grow(struct server *server)
{
    size_t capacity = server->image_capacity ? 2 * server->image_capacity : 256;
    struct connection **images = realloc(server->images, capacity * sizeof(struct connection *));
    struct pollfd *polls = images ? realloc(server->polls, capacity * sizeof(struct pollfd)) : NULL;

    if (!images || !polls)
        abort();
    server->images = images;
    server->polls = polls;
    server->image_capacity = capacity;
}

void sim_images_add(struct connection *connection)
{
    struct server *server = connection->server;

    if (connection->image_place)
        return;
    end_closed(server);
    if (server->image_count == server->image_capacity)
        grow(server);
    server->images[server->image_count++] = connection;
    connection->image_place = server->image_count;
    sim_stats_image_open(&server->stats);
    sim_stats_drawn(
        &server->stats,
        server->image_count +
            (server->jobs.last ? sim_jobs_images_running(&server->jobs, clock_monotonic_ns()) : 0));
}

void sim_images_remove(struct connection *connection)
{
    struct server *server = connection->server;
    struct connection *last;

    if (!connection->image_place)
        return;
    last = server->images[--server->image_count];
    server->images[connection->image_place - 1] = last;
    last->image_place = connection->image_place;
    connection->image_place = 0;
    sim_stats_image_close(&server->stats);
}
