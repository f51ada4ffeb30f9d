/*
 * http_pool.h - what http_pool.c needs of a client; the pool itself is in http_client.h.
 */
#ifndef WORKER_HTTP_POOL_H
#define WORKER_HTTP_POOL_H

#include "worker/http_client.h"

/* In every client, for the pool alone. */
struct http_pool_link {
    struct http_client *next;
};

MUST_CHECK struct http_client *http_client_new(void); /* NULL: out of memory */
void http_client_free(struct http_client *client);
struct http_pool_link *http_client_pool_link(struct http_client *client);
/* No exchange is left and nothing is pending. */
void http_client_be_idle(struct http_client *client);

#endif
