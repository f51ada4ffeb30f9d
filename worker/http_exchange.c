/*
 * http_exchange.c - one exchange moves on: connect, send, receive; see http_exchange.h.
 *
 * M12, no request is ever sent twice: only when a kept connection refuses the very first byte does
 * the request go out over another.
 */
#include "worker/http_exchange.h"

#include "base/clock.h"
#include "worker/http_request.h"

#include <stdlib.h>

/* So many sends in a row, then it is everybody else's turn. */
#define SENDS_AT_ONCE 16

enum http_outcome http_exchange_outcome(const struct http_exchange *exchange)
{
    return exchange->running ? HTTP_RUNNING : exchange->outcome;
}

const char *http_exchange_error(const struct http_exchange *exchange)
{
    static const char *const texts[] = {
        [HTTP_RUNNING] = "",
        [HTTP_COMPLETE] = "",
        [HTTP_NOT_SENT] = "the connection could not be used",
        [HTTP_CONNECT_TIMEOUT] = "connecting took too long",
        [HTTP_NO_ANSWER] = "the connection ended without an answer",
        [HTTP_CUT] = "the connection ended before the answer did",
        [HTTP_BAD_ANSWER] = "the response's head is malformed or too large",
        [HTTP_BODY_FAILED] = "the request body could not be read",
        [HTTP_ABORTED] = "given up by ourselves",
        [HTTP_OUT_OF_MEMORY] = "out of memory",
    };
    enum http_outcome outcome = http_exchange_outcome(exchange);

    if (exchange->own_error)
        return exchange->own_error;
    if ((outcome == HTTP_NOT_SENT || outcome == HTTP_CONNECT_TIMEOUT) && *exchange->error)
        return exchange->error;
    return texts[outcome];
}

int64_t http_exchange_sent_ns(const struct http_exchange *exchange)
{
    return exchange->sent_ns;
}

int64_t http_exchange_first_byte_ns(const struct http_exchange *exchange)
{
    return exchange->first_byte_ns;
}

int64_t http_exchange_last_byte_ns(const struct http_exchange *exchange)
{
    return exchange->last_byte_ns;
}

/* What was agreed on the connection is done to the last byte, on both sides. */
static bool can_be_kept(const struct http_exchange *exchange, enum http_outcome outcome)
{
    return outcome == HTTP_COMPLETE && exchange->response.part == HTTP_PART_OVER &&
           exchange->response.head.keeps_alive && exchange->in.at == exchange->in.end &&
           exchange->out_bytes == 0 && exchange->body_left == 0;
}

void http_exchange_finish(struct http_exchange *exchange, enum http_outcome outcome)
{
    struct http_connection *connection = exchange->connection;

    exchange->outcome = outcome;
    exchange->running = false;
    exchange->connection = NULL;
    if (!connection)
        return;
    if (can_be_kept(exchange, outcome))
        http_idle_put(exchange->idle, connection, exchange->last_byte_ns);
    else
        http_connection_free(connection);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void give_head(struct http_exchange *exchange)
{
    struct http_header headers[HTTP_HEADERS_MAX] WRITTEN_FIRST;
    struct http_head head;

    http_head_reader_result(&exchange->response.head, headers, &head);
    if (!exchange->sink.on_head(exchange->sink.context, &head))
        http_exchange_finish(exchange, HTTP_ABORTED);
}

static void give_body(struct http_exchange *exchange, size_t length)
{
    switch (exchange->sink.on_body(exchange->sink.context, exchange->in.at, length)) {
    case HTTP_TAKEN:
        http_response_take(&exchange->response, &exchange->in, length);
        break;
    case HTTP_PAUSE:
        exchange->paused = true;
        break;
    case HTTP_ABORT:
        http_exchange_finish(exchange, HTTP_ABORTED);
        break;
    }
}

/* Hand over what was received. */
static void deliver(struct http_exchange *exchange)
{
    while (exchange->running && !exchange->paused) {
        size_t length = 0;

        switch (http_response_next(&exchange->response, &exchange->in, &length)) {
        case HTTP_PIECE_NONE:
            return;
        case HTTP_PIECE_HEAD:
            exchange->first_byte_ns = exchange->last_byte_ns;
            give_head(exchange);
            break;
        case HTTP_PIECE_BODY:
            give_body(exchange, length);
            break;
        case HTTP_PIECE_OVER:
            http_exchange_finish(exchange, HTTP_COMPLETE);
            break;
        case HTTP_PIECE_BAD_HEAD:
            http_exchange_finish(exchange, HTTP_BAD_ANSWER);
            break;
        case HTTP_PIECE_BAD_BODY:
            exchange->own_error = "the answer's chunks are malformed";
            http_exchange_finish(exchange, HTTP_CUT);
            break;
        case HTTP_PIECE_NO_MEMORY:
            http_exchange_finish(exchange, HTTP_OUT_OF_MEMORY);
            break;
        }
    }
}

/* Nothing more will come. */
static void end_of_stream(struct http_exchange *exchange, bool orderly)
{
    bool has_head = exchange->response.head.state == HTTP_HEAD_FINAL;

    if (orderly && has_head && http_response_ends_here(&exchange->response))
        http_exchange_finish(exchange, HTTP_COMPLETE);
    else
        http_exchange_finish(exchange, has_head ? HTTP_CUT : HTTP_NO_ANSWER);
}

static void receive(struct http_exchange *exchange)
{
    ssize_t n = http_connection_receive(exchange->connection, exchange->buffer, HTTP_RECEIVE_BYTES);

    exchange->more = false;
    if (n == HTTP_IO_WAIT)
        return;
    if (n <= 0) {
        end_of_stream(exchange, n == 0);
        return;
    }
    exchange->more = exchange->connection->tls;
    exchange->last_byte_ns = clock_monotonic_ns();
    exchange->in = (struct http_bytes){exchange->buffer, exchange->buffer + n};
    deliver(exchange);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* The next piece of a large body. */
static void read_piece(struct http_exchange *exchange)
{
    ssize_t n;

    if (!exchange->piece)
        exchange->piece = malloc(HTTP_PIECE_BYTES);
    if (!exchange->piece) {
        http_exchange_finish(exchange, HTTP_OUT_OF_MEMORY);
        return;
    }
    n = http_request_read_body(&exchange->request, exchange->piece, HTTP_PIECE_BYTES,
                               exchange->body_left);
    if (n < 0) {
        http_exchange_finish(exchange, HTTP_BODY_FAILED);
        return;
    }
    exchange->body_left -= n;
    exchange->out = exchange->piece;
    exchange->out_bytes = (size_t)n;
}

/* Over another connection, a new one: of the request nothing has left. */
static void connect_anew(struct http_exchange *exchange)
{
    http_connection_free(exchange->connection);
    exchange->reused = false;
    exchange->connection = http_connection_new(&exchange->peer);
    if (!exchange->connection)
        http_exchange_finish(exchange, HTTP_OUT_OF_MEMORY);
}

/* The connection takes no byte. */
static void sending_failed(struct http_exchange *exchange)
{
    if (exchange->sent_ns != 0)
        exchange->cannot_send = true;
    else if (exchange->reused)
        connect_anew(exchange);
    else
        http_exchange_finish(exchange, HTTP_NOT_SENT);
}

static bool has_to_send(const struct http_exchange *exchange)
{
    return exchange->out_bytes + (uint64_t)exchange->body_left > 0 && !exchange->cannot_send;
}

static void note_sent(struct http_exchange *exchange)
{
    exchange->sent_ns = clock_monotonic_ns();
    if (exchange->sink.on_sent)
        exchange->sink.on_sent(exchange->sink.context);
}

static void send_some(struct http_exchange *exchange)
{
    for (int i = 0; i < SENDS_AT_ONCE && has_to_send(exchange); i++) {
        ssize_t n;

        if (exchange->out_bytes == 0)
            read_piece(exchange);
        if (!exchange->running)
            return;
        n = http_connection_send(exchange->connection, exchange->out, exchange->out_bytes);
        if (n == HTTP_IO_WAIT)
            return;
        if (n < 0) {
            sending_failed(exchange);
            return;
        }
        if (exchange->sent_ns == 0)
            note_sent(exchange);
        exchange->out += n;
        exchange->out_bytes -= (size_t)n;
    }
}

/* ---- moving on ------------------------------------------------------------------------------- */

/* Act on the connection's being open, or not. */
static void judge_connection(struct http_exchange *exchange)
{
    switch (exchange->connection->state) {
    case HTTP_CONNECTION_OPENING:
        return;
    case HTTP_CONNECTION_OPEN:
        send_some(exchange);
        return;
    case HTTP_CONNECTION_TIMED_OUT:
    case HTTP_CONNECTION_FAILED:
        (void)text_copy(exchange->error, sizeof exchange->error, exchange->connection->error);
        http_exchange_finish(exchange, exchange->connection->state == HTTP_CONNECTION_TIMED_OUT
                                           ? HTTP_CONNECT_TIMEOUT
                                           : HTTP_NOT_SENT);
        return;
    }
    UNREACHABLE();
}

void http_exchange_advance(struct http_exchange *exchange, int64_t now_ns)
{
    struct http_connection *connection = exchange->connection;

    if (!exchange->running)
        return;
    if (connection->state == HTTP_CONNECTION_OPENING) {
        if (connection->timer_ns > now_ns)
            return;
        http_connection_act(connection, -1, 0);
    }
    if (exchange->sent_ns == 0 || connection->state != HTTP_CONNECTION_OPEN)
        judge_connection(exchange);
    if (exchange->running && exchange->resume) {
        exchange->resume = exchange->paused = false;
        deliver(exchange);
    }
    if (exchange->running && exchange->more && !exchange->paused)
        receive(exchange);
}

size_t http_exchange_poll(const struct http_exchange *exchange, struct pollfd *fds)
{
    const struct http_connection *connection = exchange->connection;

    if (!exchange->running)
        return 0;
    if (connection->state == HTTP_CONNECTION_OPENING) {
        for (size_t i = 0; i < connection->socket_count; i++)
            fds[i] = connection->sockets[i];
        return connection->socket_count;
    }
    /* A paused one is not looked at: its end would be told again and again. */
    fds[0] = (struct pollfd){.fd = exchange->paused ? -1 : connection->fd, .events = POLLIN};
    if (has_to_send(exchange))
        fds[0].events |= POLLOUT;
    return 1;
}

void http_exchange_polled(struct http_exchange *exchange, const struct pollfd *fds, size_t count)
{
    for (size_t i = 0; i < count && exchange->running; i++) {
        struct http_connection *connection = exchange->connection;

        if (fds[i].revents == 0)
            continue;
        if (connection->state == HTTP_CONNECTION_OPENING) {
            http_connection_act(connection, fds[i].fd, fds[i].revents);
            judge_connection(exchange);
            continue;
        }
        if (fds[i].revents & POLLOUT)
            send_some(exchange);
        /* Sending may have ended it, or gone over to a connection that does not stand yet. */
        if (exchange->running && exchange->connection->state == HTTP_CONNECTION_OPEN &&
            (fds[i].revents & ~POLLOUT))
            receive(exchange);
    }
}
