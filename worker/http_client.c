/*
 * http_client.c - begins exchanges with upstreams and runs them under one poll; see http_client.h.
 */
#include "worker/http_client.h"

#include "base/clock.h"
#include "worker/http_exchange.h"
#include "worker/http_pool.h"
#include "worker/http_request.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXCHANGES_MAX = 4, /* of one client at a time */
    WATCHED_MAX = 8,
    REQUEST_BYTES_KEPT = 16384,
};

struct http_client {
    struct http_pool_link link;
    struct http_exchange *exchanges; /* started, not ended */
    struct http_exchange *spare;     /* ended; their memory is used again */
    struct http_idle idle;
    bool woken;
};

bool http_init_process(void)
{
    return http_connection_init_process();
}

/* ---- clients --------------------------------------------------------------------------------- */

static void free_exchange(struct http_exchange *exchange)
{
    text_release(&exchange->text);
    http_response_release(&exchange->response);
    free(exchange->buffer);
    free(exchange->piece);
    free(exchange);
}

void http_client_free(struct http_client *client)
{
    REQUIRE(!client->exchanges);
    while (client->spare) {
        struct http_exchange *exchange = client->spare;

        client->spare = exchange->next;
        free_exchange(exchange);
    }
    http_idle_release(&client->idle);
    free(client);
}

struct http_client *http_client_new(void)
{
    return calloc(1, sizeof(struct http_client));
}

struct http_pool_link *http_client_pool_link(struct http_client *client)
{
    return &client->link;
}

void http_client_be_idle(struct http_client *client)
{
    REQUIRE(!client->exchanges);
    client->woken = false;
}

/* ---- starting -------------------------------------------------------------------------------- */

static struct http_exchange *new_exchange(void)
{
    struct http_exchange *exchange = calloc(1, sizeof *exchange);

    if (!exchange)
        return NULL;
    text_init(&exchange->text, HTTP_REQUEST_TEXT_MAX);
    http_response_init(&exchange->response);
    exchange->buffer = malloc(HTTP_RECEIVE_BYTES);
    if (!exchange->buffer) {
        free_exchange(exchange);
        return NULL;
    }
    return exchange;
}

static void reset_exchange(struct http_exchange *exchange, const struct http_request *request,
                           const struct http_sink *sink)
{
    exchange->request = *request;
    exchange->sink = *sink;
    exchange->outcome = HTTP_RUNNING;
    exchange->own_error = NULL;
    exchange->running = true;
    exchange->reported = false;
    exchange->paused = exchange->resume = false;
    exchange->reused = exchange->more = exchange->cannot_send = false;
    exchange->sent_ns = exchange->first_byte_ns = exchange->last_byte_ns = 0;
    exchange->in = (struct http_bytes){exchange->buffer, exchange->buffer};
    exchange->error[0] = '\0';
    http_response_reset(&exchange->response, strcmp(request->method, "HEAD") == 0);
}

/* An idle connection, or one that begins to open. False: out of memory. */
static bool find_connection(struct http_exchange *exchange)
{
    exchange->connection = NULL;
    if (!exchange->request.fresh_connection)
        exchange->connection = http_idle_take(exchange->idle, &exchange->peer);
    exchange->reused = exchange->connection != NULL;
    if (!exchange->connection)
        exchange->connection = http_connection_new(&exchange->peer);
    return exchange->connection != NULL;
}

/* Head and small body become what is to be sent. False: out of memory. */
static bool write_request(struct http_exchange *exchange)
{
    const struct http_request *request = &exchange->request;
    const struct http_place place = {
        .host = exchange->connection->host,
        .host_bytes = exchange->connection->host_bytes,
        .target = request->url + exchange->peer.origin_bytes,
    };

    switch (http_request_write(request, &place, &exchange->text)) {
    case HTTP_WRITTEN:
        break;
    case HTTP_WRITTEN_BODY_FAILED:
        http_exchange_finish(exchange, HTTP_BODY_FAILED);
        break;
    case HTTP_WRITTEN_NO_MEMORY:
        return false;
    }
    exchange->out = text_string(&exchange->text);
    exchange->out_bytes = exchange->text.length;
    exchange->body_left = request->body_bytes > HTTP_SMALL_BODY_BYTES ? request->body_bytes : 0;
    return true;
}

static bool begin(struct http_exchange *exchange)
{
    const struct http_request *request = &exchange->request;
    size_t origin_bytes;

    if (!http_request_split(request, &origin_bytes)) {
        exchange->own_error = "the URL or the method is malformed";
        exchange->connection = NULL;
        http_exchange_finish(exchange, HTTP_NOT_SENT);
        return true;
    }
    exchange->peer = (struct http_peer){
        .origin = request->url,
        .origin_bytes = origin_bytes,
        .ca_file = request->ca_file,
        .connect_timeout_ms = request->connect_timeout_ms,
    };
    return find_connection(exchange) && write_request(exchange);
}

static void put_spare(struct http_client *client, struct http_exchange *exchange)
{
    if (exchange->text.capacity > REQUEST_BYTES_KEPT)
        text_release(&exchange->text);
    free(exchange->piece);
    exchange->piece = NULL;
    exchange->next = client->spare;
    client->spare = exchange;
}

static size_t exchange_count(const struct http_client *client)
{
    size_t count = 0;

    for (const struct http_exchange *at = client->exchanges; at; at = at->next)
        count++;
    return count;
}

struct http_exchange *http_exchange_start(struct http_client *client,
                                          const struct http_request *request,
                                          const struct http_sink *sink)
{
    struct http_exchange *exchange = client->spare;

    REQUIRE(exchange_count(client) < EXCHANGES_MAX);
    if (exchange)
        client->spare = exchange->next;
    else if (!(exchange = new_exchange()))
        return NULL;
    exchange->client = client;
    exchange->idle = &client->idle;
    reset_exchange(exchange, request, sink);
    if (!begin(exchange)) {
        http_exchange_finish(exchange, HTTP_OUT_OF_MEMORY);
        put_spare(client, exchange);
        return NULL;
    }
    exchange->next = client->exchanges;
    client->exchanges = exchange;
    return exchange;
}

void http_exchange_resume(struct http_exchange *exchange)
{
    exchange->resume = exchange->paused;
}

void http_exchange_end(struct http_exchange *exchange)
{
    struct http_client *client = exchange->client;
    struct http_exchange **link = &client->exchanges;

    if (exchange->running)
        http_exchange_finish(exchange, HTTP_ABORTED); /* closes its connection */
    while (*link != exchange)
        link = &(*link)->next;
    *link = exchange->next;
    put_spare(client, exchange);
}

/* ---- running --------------------------------------------------------------------------------- */

void http_client_wake(struct http_client *client)
{
    client->woken = true;
}

/* Is there an outcome that nobody was told of? */
static bool has_news(struct http_client *client)
{
    bool found = false;

    for (struct http_exchange *exchange = client->exchanges; exchange; exchange = exchange->next) {
        found |= !exchange->running && !exchange->reported;
        exchange->reported = !exchange->running;
    }
    return found;
}

/* When poll must come back although nothing happened. */
static int64_t earliest(const struct http_client *client, int64_t until_ns)
{
    for (const struct http_exchange *at = client->exchanges; at; at = at->next) {
        if (client->woken)
            return 0;
        if (!at->running)
            continue;
        if (at->more && !at->paused)
            return 0;
        if (at->connection->timer_ns < until_ns)
            until_ns = at->connection->timer_ns;
    }
    return until_ns;
}

/* One poll over the exchanges' sockets and the caller's; acts on the former. */
static void poll_once(struct http_client *client, struct http_wait *wait, int64_t now_ns)
{
    struct pollfd fds[EXCHANGES_MAX * HTTP_CONNECTION_SOCKETS_MAX + WATCHED_MAX];
    size_t count = 0, own = 0;

    REQUIRE(wait->fd_count <= WATCHED_MAX);
    for (struct http_exchange *at = client->exchanges; at; at = at->next) {
        at->polled_at = own;
        at->polled_count = http_exchange_poll(at, fds + own);
        own += at->polled_count;
    }
    count = own;
    for (size_t i = 0; i < wait->fd_count; i++)
        fds[count++] = (struct pollfd){.fd = wait->fds[i], .events = POLLIN | POLLRDHUP};
    if (poll(fds, count, clock_poll_ms(now_ns, earliest(client, wait->until_ns))) <= 0)
        return;
    for (struct http_exchange *at = client->exchanges; at; at = at->next)
        http_exchange_polled(at, fds + at->polled_at, at->polled_count);
    for (size_t i = 0; i < wait->fd_count; i++)
        if (fds[own + i].revents)
            wait->ready |= 1U << i;
}

enum http_wake http_client_run(struct http_client *client, struct http_wait *wait)
{
    int64_t now_ns = clock_monotonic_ns();
    bool polled = false, over = false;

    wait->ready = 0;
    for (;;) {
        for (struct http_exchange *at = client->exchanges; at; at = at->next)
            http_exchange_advance(at, now_ns);
        if (has_news(client)) {
            client->woken = false;
            return HTTP_WAKE_FINISHED;
        }
        /* What came without a poll may go on so for long: the caller's descriptors have their turn. */
        if (polled && client->woken) {
            client->woken = false;
            return HTTP_WAKE_SINK;
        }
        if (wait->ready)
            return HTTP_WAKE_FD;
        if (over)
            return HTTP_WAKE_TIME;
        poll_once(client, wait, now_ns);
        polled = true;
        now_ns = clock_monotonic_ns();
        over = wait->until_ns <= now_ns;
    }
}
