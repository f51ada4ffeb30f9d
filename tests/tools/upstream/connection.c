/* connection.c - reading requests and the life of a connection; see connection.h. */
#include "tests/tools/upstream/connection.h"

#include "base/clock.h"
#include "base/parse.h"
#include "tests/tools/upstream/refusals.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_READ_BYTES ((size_t)16 << 10)
#define TURN_READS 16
#define DRAIN_NS (2 * NS_PER_S)
#define SLOW_STEP_MS 20
#define KEPT_CAPACITY ((size_t)64 << 10) /* larger buffers are not kept between calls */

static void cut_at_accept(struct connection *connection)
{
    struct behaviour behaviour;

    sim_defaults_get(connection->server, &behaviour);
    if (behaviour.reset.place == CUT_ACCEPT)
        sim_sending_cut(connection, CUT_BY_RESET);
    else if (behaviour.close.place == CUT_ACCEPT)
        sim_sending_cut(connection, CUT_BY_CLOSE);
}

static struct connection *connection_make(struct server *server)
{
    struct connection *connection = server->spare;

    if (connection) {
        server->spare = connection->next;
        return connection;
    }
    connection = calloc(1, sizeof *connection);
    if (!connection)
        abort();
    text_init(&connection->held, HELD_MAX);
    text_init(&connection->sending.head, BODY_TEXT_MAX);
    sim_body_init(&connection->sending.body);
    connection->server = server;
    connection->call.jobs = &server->jobs;
    connection->call.name = server->name;
    connection->timer.owner = connection;
    connection->next_of_all = server->all;
    server->all = connection;
    return connection;
}

void sim_connection_new(struct server *server, int fd)
{
    struct connection *connection = connection_make(server);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    struct stats *stats = &server->stats;
    int one = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connection->fd = fd;
    connection->state = CONNECTION_HEAD;
    connection->input_waiting = connection->peer_closed = false;
    text_clear(&connection->held);
    sim_request_begin(&connection->call);
    stats->connections++;
    stats->connections_open++;
    if (stats->connections_open > stats->connections_open_max)
        stats->connections_open_max = stats->connections_open;
    event.data.ptr = connection;
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        sim_connection_close(connection, END_ABORTED);
    else if (strstr(server->default_mock, "=accept"))
        cut_at_accept(connection);
}

static void call_record(struct connection *connection, enum call_end end)
{
    const struct call *call = &connection->call;
    struct record *record = sim_stats_record(&connection->server->stats);

    record->number = call->number;
    (void)text_copy(record->method, sizeof record->method, call->method);
    (void)text_copy(record->path, sizeof record->path, call->path);
    (void)text_copy(record->query, sizeof record->query, call->query);
    (void)text_copy(record->call_id, sizeof record->call_id, call->call_id);
    (void)text_copy(record->authorization, sizeof record->authorization, call->authorization);
    (void)text_copy(record->mock, sizeof record->mock, call->mock);
    (void)text_copy(record->model, sizeof record->model, call->model);
    (void)text_copy(record->sha_hex, sizeof record->sha_hex, call->sha_hex);
    record->body_bytes = call->received;
    if (!call->behaviour.skip_sha && call->kept.length)
        (void)snprintf(record->body, sizeof record->body, "%s", text_string(&call->kept));
    record->sent_bytes = connection->sent_bytes;
    record->status = call->status;
    record->image = connection->image_place != 0;
    record->complete = connection->read_ns != 0;
    record->end = end;
    record->begun_ns = connection->begun_ns;
    record->read_ns = connection->read_ns;
    record->ended_ns = clock_monotonic_ns();
}

/* A line for -l; of a refusal nothing was used. */
static void call_log(const struct connection *connection, enum call_end end)
{
    static const char *const ends[] = {
        [END_DONE] = "done", [END_ABORTED] = "left", [END_CUT] = "cut"};
    const struct call *call = &connection->call;
    const struct limit_work *work = &connection->share.work;
    FILE *log = connection->server->log;
    bool used = call->status < 400;

    if (!log || connection->read_ns == 0 || strcmp(call->method, "POST") != 0)
        return;
    (void)fprintf(log, "%lld %lld %u %llu %llu %s %s\n", (long long)connection->read_ns,
                  (long long)clock_monotonic_ns(), call->status,
                  used ? (unsigned long long)work->input : 0,
                  used ? (unsigned long long)work->output : 0, ends[end],
                  *call->call_id ? call->call_id : "-");
}

static void call_close(struct connection *connection, enum call_end end)
{
    if (!connection->call_open)
        return;
    connection->call_open = false;
    call_record(connection, end);
    sim_capacity_leave(connection, end == END_DONE);
    call_log(connection, end);
    connection->server->stats.bytes_in += connection->call.received;
    sim_stats_call_close(&connection->server->stats, connection->call.endpoint, end);
    sim_images_remove(connection);
}

void sim_connection_close(struct connection *connection, enum call_end end)
{
    struct server *server = connection->server;

    if (connection->state == CONNECTION_DEAD)
        return;
    call_close(connection, end);
    sim_timers_unset(&server->timers, &connection->timer);
    (void)close(connection->fd);
    connection->fd = -1;
    connection->state = CONNECTION_DEAD;
    server->stats.connections_open--;
    connection->next = server->graveyard;
    server->graveyard = connection;
}

static void drain(struct connection *connection)
{
    ssize_t got;

    do {
        got = recv(connection->fd, connection->server->read_buffer, READ_BYTES, 0);
    } while (got > 0);
    if (got == 0 || (errno != EAGAIN && errno != EINTR))
        sim_connection_close(connection, END_DONE);
}

static void forget_large(struct connection *connection)
{
    if (connection->sending.body.text.capacity > KEPT_CAPACITY)
        sim_body_release(&connection->sending.body);
    if (connection->sending.head.capacity > KEPT_CAPACITY)
        text_release(&connection->sending.head);
    if (connection->held.capacity > KEPT_CAPACITY && connection->held.length == 0)
        text_release(&connection->held);
}

void sim_connection_finish(struct connection *connection)
{
    struct server *server = connection->server;
    bool early = connection->call.behaviour.early && !connection->control;

    call_close(connection, END_DONE);
    if (early) {
        (void)shutdown(connection->fd, SHUT_WR);
        connection->state = CONNECTION_DRAIN;
        text_clear(&connection->held);
        sim_timers_set(&server->timers, &connection->timer, clock_monotonic_ns() + DRAIN_NS);
        drain(connection);
        return;
    }
    if (connection->sending.close) {
        sim_connection_close(connection, END_DONE);
        return;
    }
    forget_large(connection);
    sim_request_begin(&connection->call);
    connection->state = CONNECTION_HEAD;
    if (connection->held.length || connection->input_waiting)
        sim_timers_set(&server->timers, &connection->timer, clock_monotonic_ns());
}

void sim_connections_bury(struct server *server)
{
    while (server->graveyard) {
        struct connection *connection = server->graveyard;

        server->graveyard = connection->next;
        forget_large(connection);
        connection->next = server->spare;
        server->spare = connection;
    }
}

void sim_connections_release(struct server *server)
{
    while (server->all) {
        struct connection *connection = server->all;

        server->all = connection->next_of_all;
        if (connection->state != CONNECTION_DEAD)
            (void)close(connection->fd);
        text_release(&connection->held);
        text_release(&connection->sending.head);
        sim_body_release(&connection->sending.body);
        sim_request_release(&connection->call);
        free(connection);
    }
    free(server->images);
    free(server->polls);
}

/* ---- from a complete request to its answer --------------------------------------------------- */

static void apply_mock(struct connection *connection, const char *string)
{
    struct server *server = connection->server;
    struct call *call = &connection->call;
    struct behaviour_source source = {string, strlen(string), sim_stats_tag_use, &server->stats};

    if (!sim_behaviour_apply(&call->behaviour, &source, call->bad_key) && !server->quiet)
        (void)fprintf(stderr, "simulated_upstream: bad X-Mock key '%s'\n", call->bad_key);
}

static void control_answer(struct connection *connection)
{
    struct server *server = connection->server;
    struct body *body = &connection->sending.body;
    const char *last = strstr(connection->call.query, "last=");
    uint64_t shown;

    sim_body_clear(body);
    if (strcmp(connection->call.path, "/ping") == 0)
        sim_body_text(body, "{\"ping\":\"pong\"}\n");
    else if (strcmp(connection->call.path, "/defaults") == 0)
        sim_defaults_answer(server, &connection->call, body);
    else if (strncmp(connection->call.path, "/limits", 7) == 0)
        sim_limits_answer(&server->limits, connection->call.path, connection->call.query, body);
    else
        sim_stats_write(&server->stats, body,
                        last && parse_u64(last + 5, &shown) ? shown : RECORDS_SHOWN);
    if (strcmp(connection->call.path, "/stats/reset") == 0)
        sim_stats_reset(&server->stats);
    sim_sending_begin(connection);
}

/* A share of the calls is slow, always the same ones of a run. */
static void maybe_hang(struct connection *connection)
{
    struct behaviour *behaviour = &connection->call.behaviour;
    uint64_t x = connection->server->random;

    if (behaviour->hang_share <= 0)
        return;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    connection->server->random = x;
    if ((double)(x >> 11) / (double)(UINT64_C(1) << 53) >= behaviour->hang_share)
        return;
    connection->server->stats.hung++;
    behaviour->delay_ms *= behaviour->hang_factor;
    behaviour->first_ms *= behaviour->hang_factor;
    behaviour->prelude_ms *= behaviour->hang_factor;
    behaviour->chunk_ms *= behaviour->hang_factor;
}

/* Beyond its quota a call is refused at once. */
static void keep_quota(struct connection *connection)
{
    struct behaviour *behaviour = &connection->call.behaviour;
    struct server *server = connection->server;
    int64_t wait_ns;

    if (behaviour->quota == NOT_GIVEN ||
        sim_quota_take(&server->quota, behaviour->quota, behaviour->quota_counts,
                       clock_monotonic_ns(), &wait_ns))
        return;
    server->stats.quota_refused++;
    behaviour->delay_ms = behaviour->first_ms = 0;
    if (!sim_refusal_apply(behaviour, behaviour->quota_error))
        behaviour->status = 429;
    if (behaviour->retry_after_ms == NOT_GIVEN)
        behaviour->retry_after_ms = (uint64_t)(wait_ns / NS_PER_MS) + 1;
}

static bool cut_here(struct connection *connection, enum cut_place place)
{
    const struct behaviour *behaviour = &connection->call.behaviour;

    if (behaviour->reset.place == place)
        sim_sending_cut(connection, CUT_BY_RESET);
    else if (behaviour->close.place == place)
        sim_sending_cut(connection, CUT_BY_CLOSE);
    else if (behaviour->stall.place == place)
        sim_sending_cut(connection, CUT_BY_STALL);
    else
        return false;
    return true;
}

static void request_complete(struct connection *connection)
{
    struct call *call = &connection->call;
    struct behaviour *behaviour = &call->behaviour;

    if (connection->control) {
        control_answer(connection);
        return;
    }
    sim_request_end(call);
    connection->read_ns = clock_monotonic_ns();
    if (strncmp(call->model, "mock:", 5) == 0)
        apply_mock(connection, call->model + 5);
    call->image = sim_answer_is_image_call(call);
    if (call->image)
        sim_images_add(connection);
    if (cut_here(connection, CUT_READ))
        return;
    maybe_hang(connection);
    keep_quota(connection);
    if (sim_capacity_take(connection))
        return;
    if (behaviour->delay_ms == 0) {
        sim_sending_begin(connection);
        return;
    }
    connection->state = CONNECTION_WAIT;
    sim_timers_set(&connection->server->timers, &connection->timer,
                   connection->read_ns + (int64_t)behaviour->delay_ms * NS_PER_MS);
}

static bool is_control(const char *path)
{
    return strcmp(path, "/stats") == 0 || strcmp(path, "/stats/reset") == 0 ||
           strcmp(path, "/ping") == 0 || strcmp(path, "/defaults") == 0 ||
           strcmp(path, "/limits") == 0 || strncmp(path, "/limits/", 8) == 0;
}

/* The head is read: from here on the call is open. */
static void call_begin(struct connection *connection, const char *prefix)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct server *server = connection->server;
    struct call *call = &connection->call;
    const int small = 16384;
    uint64_t mark;

    connection->control = is_control(call->path);
    connection->read_ns = 0;
    connection->sent_bytes = 0;
    connection->begun_ns = clock_monotonic_ns();
    connection->state = CONNECTION_BODY;
    sim_behaviour_init(&call->behaviour);
    call->behaviour.skip_sha = true;
    if (connection->control)
        return;
    sim_defaults_get(server, &call->behaviour);
    connection->share.work = (struct limit_work){0};
    call->number = ++server->calls;
    call->endpoint = sim_endpoint_find(call->method, call->path);
    apply_mock(connection, prefix);
    apply_mock(connection, call->mock);
    connection->call_open = true;
    sim_stats_call_open(&server->stats, call->endpoint);
    mark = call->behaviour.image;
    if (mark != NOT_GIVEN ? mark != 0 : call->endpoint->image)
        sim_images_add(connection);
    if (call->behaviour.slow_read)
        (void)setsockopt(connection->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (call->behaviour.early)
        request_complete(connection);
    else if (call->expects_continue && !call->behaviour.no_continue)
        (void)send(connection->fd, go_on, sizeof go_on - 1, MSG_NOSIGNAL);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_reading(const struct connection *connection)
{
    return connection->state == CONNECTION_HEAD || connection->state == CONNECTION_BODY;
}

/* Use what the bytes hold, at most up to the end of the head or of the request; returns how many.
 */
static size_t use_bytes(struct connection *connection, const char *bytes, size_t length)
{
    bool complete;
    size_t used;

    if (connection->state == CONNECTION_HEAD) {
        const char *end = memmem(bytes, length, "\r\n\r\n", 4);
        char prefix[512];

        used = end ? (size_t)(end + 4 - bytes) : 0;
        if (used == 0 && length < HEAD_MAX)
            return 0;
        if (used == 0 || !sim_request_read_head(&connection->call, bytes, used, prefix)) {
            connection->server->stats.bad_requests++;
            sim_connection_close(connection, END_ABORTED);
            return length;
        }
        call_begin(connection, prefix);
        if (connection->state != CONNECTION_BODY)
            return used;
        if (!connection->call.chunked && connection->call.content_length == 0)
            request_complete(connection);
        return used;
    }
    used = sim_request_read_body(&connection->call, bytes, length, &complete);
    if (complete)
        request_complete(connection);
    return used;
}

static void drop_held(struct text *held, size_t length)
{
    if (length >= held->length) {
        text_clear(held);
        return;
    }
    memmove(held->bytes, held->bytes + length, held->length - length);
    held->length -= length;
    held->bytes[held->length] = '\0';
}

static void use_held(struct connection *connection)
{
    while (is_reading(connection) && connection->held.length) {
        size_t used = use_bytes(connection, connection->held.bytes, connection->held.length);

        if (used == 0)
            break;
        if (connection->state != CONNECTION_DEAD)
            drop_held(&connection->held, used);
    }
}

/* Bytes have arrived; the body's go straight to the hash, everything else by way of `held`. */
static void use_arrived(struct connection *connection, const char *bytes, size_t length)
{
    size_t used = 0;

    if (connection->held.length == 0 && connection->state == CONNECTION_BODY)
        used = use_bytes(connection, bytes, length);
    if (connection->state == CONNECTION_DEAD)
        return;
    text_append(&connection->held, bytes + used, length - used);
    if (connection->held.overflowed)
        sim_connection_close(connection, END_ABORTED);
    else
        use_held(connection);
}

/* How much to ask for; 0: nothing now, the timer will say when. */
static size_t read_room(struct connection *connection)
{
    uint64_t slow = connection->call.behaviour.slow_read;

    if (connection->state == CONNECTION_HEAD)
        return HEAD_READ_BYTES;
    if (slow == 0)
        return READ_BYTES;
    slow = slow * SLOW_STEP_MS / 1000;
    if (slow == 0)
        slow = 1;
    return slow < READ_BYTES ? (size_t)slow : READ_BYTES;
}

static void read_on(struct connection *connection)
{
    struct server *server = connection->server;

    connection->input_waiting = false;
    use_held(connection);
    for (unsigned reads = 0; is_reading(connection); reads++) {
        size_t room = read_room(connection);
        bool slow = connection->state == CONNECTION_BODY && connection->call.behaviour.slow_read;
        ssize_t got;

        if (reads == TURN_READS || (slow && reads > 0)) {
            sim_timers_set(&server->timers, &connection->timer,
                           clock_monotonic_ns() + (slow ? SLOW_STEP_MS * NS_PER_MS : 0));
            return;
        }
        got = recv(connection->fd, server->read_buffer, room, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            sim_connection_close(connection, END_ABORTED);
            return;
        }
        use_arrived(connection, server->read_buffer, (size_t)got);
        if ((size_t)got < room && !connection->peer_closed && !slow)
            return;
    }
    /* What came behind the request is read when the answer is out. */
    connection->input_waiting = connection->state != CONNECTION_DEAD;
}

void sim_connection_event(struct connection *connection, uint32_t events)
{
    bool gone = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);

    if (gone)
        connection->peer_closed = true;
    switch (connection->state) {
    case CONNECTION_HEAD:
    case CONNECTION_BODY:
        if (connection->state == CONNECTION_BODY && connection->call.behaviour.slow_read) {
            if (gone)
                sim_connection_close(connection, END_ABORTED);
            else if (connection->timer.place == 0)
                read_on(connection);
        } else if (gone || events & EPOLLIN) {
            read_on(connection);
        }
        break;
    case CONNECTION_WAIT:
    case CONNECTION_SEND:
    case CONNECTION_STALLED:
        connection->input_waiting = connection->input_waiting || events & EPOLLIN;
        if (connection->state == CONNECTION_SEND && events & EPOLLOUT && !gone &&
            connection->timer.place == 0)
            sim_sending_pump(connection);
        break;
    case CONNECTION_DRAIN:
        drain(connection);
        break;
    case CONNECTION_DEAD:
        return;
    }
    /* A peer that closed, or half closed, while its answer is due has left. */
    if (connection->peer_closed && connection->state != CONNECTION_DEAD &&
        !is_reading(connection) && connection->state != CONNECTION_DRAIN)
        sim_connection_close(connection, END_ABORTED);
}

void sim_connection_timer(struct connection *connection)
{
    switch (connection->state) {
    case CONNECTION_HEAD:
    case CONNECTION_BODY:
        read_on(connection);
        break;
    case CONNECTION_WAIT:
        sim_sending_begin(connection);
        break;
    case CONNECTION_SEND:
        sim_sending_pump(connection);
        break;
    case CONNECTION_DRAIN:
        sim_connection_close(connection, END_DONE);
        break;
    case CONNECTION_STALLED:
    case CONNECTION_DEAD:
        break;
    }
}
