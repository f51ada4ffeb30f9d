/*
 * http_idle.h - the connections of one client that wait for their next exchange, the one used last
 * first.
 *
 * One thread at a time, as its client.
 */
#ifndef WORKER_HTTP_IDLE_H
#define WORKER_HTTP_IDLE_H

#include "worker/http_connection.h"

struct http_idle {
    struct http_connection *first;
};

/* Close them all. */
void http_idle_release(struct http_idle *idle);
/* One that leads to the peer and is alive; NULL: there is none. */
MUST_CHECK struct http_connection *http_idle_take(struct http_idle *idle,
                                                  const struct http_peer *peer);
/* Keep it for later; too many (of one peer or of all), or too old ones, are closed. */
void http_idle_put(struct http_idle *idle, struct http_connection *connection, int64_t now_ns);

#endif
