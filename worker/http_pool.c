/*
 * http_pool.c - the clients of a process, the one given back last first: its connections are the
 * warmest, and those of the others may end undisturbed. See http_client.h.
 */
#include "worker/http_pool.h"

#include <pthread.h>
#include <stdlib.h>

struct http_pool {
    pthread_mutex_t mutex;
    struct http_client *first;
    size_t borrowed;
};

static void lock(struct http_pool *pool)
{
    INVARIANT(pthread_mutex_lock(&pool->mutex) == 0);
}

static void unlock(struct http_pool *pool)
{
    INVARIANT(pthread_mutex_unlock(&pool->mutex) == 0);
}

struct http_pool *http_pool_new(void)
{
    struct http_pool *pool = calloc(1, sizeof *pool);

    if (pool)
        INVARIANT(pthread_mutex_init(&pool->mutex, NULL) == 0);
    return pool;
}

void http_pool_free(struct http_pool *pool)
{
    if (!pool)
        return;
    REQUIRE(pool->borrowed == 0);
    while (pool->first) {
        struct http_client *client = pool->first;

        pool->first = http_client_pool_link(client)->next;
        http_client_free(client);
    }
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

struct http_client *http_client_borrow(struct http_pool *pool)
{
    struct http_client *client;

    lock(pool);
    client = pool->first;
    if (client)
        pool->first = http_client_pool_link(client)->next;
    pool->borrowed++;
    unlock(pool);
    if (client)
        return client;
    client = http_client_new();
    if (client)
        return client;
    lock(pool);
    pool->borrowed--;
    unlock(pool);
    return NULL;
}

void http_client_return(struct http_pool *pool, struct http_client *client)
{
    http_client_be_idle(client);
    lock(pool);
    REQUIRE(pool->borrowed > 0);
    http_client_pool_link(client)->next = pool->first;
    pool->first = client;
    pool->borrowed--;
    unlock(pool);
}
