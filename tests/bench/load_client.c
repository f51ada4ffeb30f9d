/*
 * load_client.c - the client of `make bench`: many connections to one port of 127.0.0.1, one
 * thread, epoll. load/plan.c has its command line. Prints one line of JSON: times, counts, errors.
 */
#include "base/clock.h"
#include "tests/bench/load/answer.h"
#include "tests/bench/load/plan.h"
#include "tests/bench/load/series.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MAX 1024
#define READ_BYTES 262144
#define FILE_PIECE_BYTES 1048576
#define STATUS_MAX 600
#define SWEEP_NS (50 * NS_PER_MS)
#define SWEEP_LEAVING_NS (2 * NS_PER_MS)

enum connection_state { IDLE, CONNECTING, SENDING, READING, SPENT };

struct connection {
    int fd; /* -1 = none */
    enum connection_state state;
    unsigned index;
    bool wants_write;
    uint64_t sent_bytes;
    int64_t planned_ns, begun_ns, first_ns;
    bool chunk_seen;
    struct answer answer;
};

enum failure { FAIL_CONNECT, FAIL_RESET, FAIL_SHORT, FAIL_TIMEOUT, FAIL_LEFT, FAILURES };
static const char *const failure_names[FAILURES] = {"connect", "reset", "short", "timeout", "left"};

struct client {
    struct plan plan;
    struct connection *connections;
    unsigned *idle; /* indices, the last used on top */
    unsigned idle_count;
    int epoll_fd;
    int64_t begun_ns, swept_ns;
    unsigned planned, finished, done_marked, in_flight, in_flight_max;
    unsigned long failures[FAILURES], statuses[STATUS_MAX], chunks, reconnects;
    uint64_t received_bytes, sent_bytes;
    struct series latency, first_byte, first_chunk, chunk_delay;
};

static double ms(int64_t ns)
{
    return (double)ns / (double)NS_PER_MS;
}

/* ---- one connection -------------------------------------------------------------------------- */
static void watch(struct client *client, struct connection *connection, bool write)
{
    struct epoll_event event = {.events = write ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                .data.u32 = connection->index};

    if (connection->wants_write == write)
        return;
    connection->wants_write = write;
    (void)epoll_ctl(client->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event);
}

static void hang_up(struct connection *connection)
{
    if (connection->fd >= 0)
        (void)close(connection->fd);
    connection->fd = -1;
}

static void write_log(struct client *client, const struct connection *connection, int64_t now,
                      const char *why)
{
    if (client->plan.log)
        (void)fprintf(client->plan.log, "%u %lld %lld %lld %u %s\n", connection->index,
                      (long long)connection->planned_ns, (long long)connection->first_ns,
                      (long long)now, connection->answer.status, why);
}

/* The request is over; the connection takes another one, unless each has only one. */
static void finish(struct client *client, struct connection *connection, bool keep)
{
    client->finished++;
    client->in_flight--;
    client->done_marked += connection->answer.done_marked;
    if (!keep || client->plan.mode == PLAN_ONCE)
        hang_up(connection);
    connection->state = client->plan.mode == PLAN_ONCE ? SPENT : IDLE;
    if (connection->state == IDLE)
        client->idle[client->idle_count++] = connection->index;
}

static void finish_well(struct client *client, struct connection *connection)
{
    int64_t now = clock_monotonic_ns();
    unsigned status = connection->answer.status;

    client->statuses[status < STATUS_MAX ? status : 0]++;
    series_add(&client->latency, ms(now - connection->planned_ns));
    write_log(client, connection, now, "ok");
    finish(client, connection,
           !connection->answer.close_after && connection->answer.state == ANSWER_DONE &&
               connection->sent_bytes == plan_request_bytes(&client->plan));
}

static void finish_badly(struct client *client, struct connection *connection, enum failure failure)
{
    client->failures[failure]++;
    write_log(client, connection, clock_monotonic_ns(), failure_names[failure]);
    finish(client, connection, false);
}

/* The next piece of the request to send. */
static const char *next_piece(struct client *client, const struct connection *connection,
                              size_t *ret_length)
{
    static char file[FILE_PIECE_BYTES];
    const struct plan *plan = &client->plan;
    uint64_t at = connection->sent_bytes, head = plan->head_bytes;
    uint64_t file_end = head + plan->upload_bytes;

    if (at < head) {
        plan_address(&client->plan, connection->index);
        *ret_length = (size_t)(head - at);
        return plan->head + at;
    }
    if (at < file_end) {
        *ret_length = file_end - at < sizeof file ? (size_t)(file_end - at) : sizeof file;
        return file;
    }
    *ret_length = (size_t)(plan_request_bytes(plan) - at);
    return plan->tail + (at - file_end);
}

static void send_on(struct client *client, struct connection *connection)
{
    uint64_t all = plan_request_bytes(&client->plan);

    while (connection->sent_bytes < all) {
        size_t length;
        const char *piece = next_piece(client, connection, &length);
        bool more = connection->sent_bytes + length < all;
        ssize_t sent =
            send(connection->fd, piece, length, MSG_NOSIGNAL | (more ? (int)MSG_MORE : 0));

        if (sent < 0 && errno == EAGAIN) {
            watch(client, connection, true);
            return;
        }
        if (sent < 0)
            break; /* an early answer may be there to read */
        connection->sent_bytes += (uint64_t)sent;
        client->sent_bytes += (uint64_t)sent;
    }
    connection->state = READING;
    watch(client, connection, false);
}

static bool dial(struct client *client, struct connection *connection)
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)client->plan.port)};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.u32 = connection->index};
    int one = 1;

    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection->fd < 0)
        return false;
    (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connection->state = CONNECTING;
    connection->wants_write = true;
    if (connect(connection->fd, (const struct sockaddr *)&name, sizeof name) != 0 &&
        errno != EINPROGRESS)
        return false;
    return epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) == 0;
}

static void begin(struct client *client, struct connection *connection, int64_t planned_ns)
{
    client->planned++;
    if (++client->in_flight > client->in_flight_max)
        client->in_flight_max = client->in_flight;
    answer_begin(&connection->answer);
    connection->planned_ns = planned_ns;
    connection->begun_ns = clock_monotonic_ns();
    connection->first_ns = 0;
    connection->sent_bytes = 0;
    connection->chunk_seen = false;
    if (connection->fd >= 0) {
        connection->state = SENDING;
        send_on(client, connection);
    } else if (!dial(client, connection)) {
        finish_badly(client, connection, FAIL_CONNECT);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */
struct chunk_reader {
    struct client *client;
    struct connection *connection;
    int64_t now_ns;
};

static void on_mark(void *context, int64_t made_ns)
{
    struct chunk_reader *reader = context;

    if (!reader->connection->chunk_seen)
        series_add(&reader->client->first_chunk, ms(reader->now_ns - reader->connection->begun_ns));
    reader->connection->chunk_seen = true;
    series_add(&reader->client->chunk_delay, ms(reader->now_ns - made_ns));
    reader->client->chunks++;
}

static void on_end_of_connection(struct client *client, struct connection *connection)
{
    if (connection->state == IDLE) { /* kept, not in use: the server's right */
        hang_up(connection);
        client->reconnects++;
    } else if (answer_ends_here(&connection->answer)) {
        finish_well(client, connection);
    } else {
        finish_badly(client, connection, FAIL_SHORT);
    }
}

/* Returns false when there is nothing more to read now. */
static bool read_once(struct client *client, struct connection *connection)
{
    static char bytes[READ_BYTES];
    ssize_t got = recv(connection->fd, bytes, sizeof bytes, 0);
    struct chunk_reader reader = {client, connection, clock_monotonic_ns()};

    if (got < 0 && errno == EAGAIN)
        return false;
    if (got < 0 && connection->state != IDLE) {
        finish_badly(client, connection, FAIL_RESET);
        return false;
    }
    if (got <= 0 || connection->state == IDLE) {
        on_end_of_connection(client, connection);
        return false;
    }
    client->received_bytes += (uint64_t)got;
    if (connection->first_ns == 0) {
        connection->first_ns = reader.now_ns;
        series_add(&client->first_byte, ms(reader.now_ns - connection->planned_ns));
    }
    switch (answer_feed(&connection->answer, bytes, (size_t)got, on_mark, &reader)) {
    case ANSWER_DONE:
        finish_well(client, connection);
        return false;
    case ANSWER_BAD:
        finish_badly(client, connection, FAIL_SHORT);
        return false;
    case ANSWER_HEAD:
    case ANSWER_BODY:
        break;
    }
    return (size_t)got > sizeof bytes / 2;
}

static void on_event(struct client *client, struct connection *connection, unsigned events)
{
    if (connection->fd < 0)
        return;
    if (connection->state == CONNECTING) {
        int error = 0;
        socklen_t size = sizeof error;

        (void)getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error) {
            finish_badly(client, connection, FAIL_CONNECT);
            return;
        }
        if (!(events & EPOLLOUT))
            return;
        connection->state = SENDING;
    }
    if (events & EPOLLOUT)
        send_on(client, connection);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        while (read_once(client, connection))
            ;
}

/* ---- the run --------------------------------------------------------------------------------- */
static int64_t due_ns(const struct client *client)
{
    if (client->plan.mode == PLAN_CLOSED || client->plan.rate <= 0)
        return 0;
    return client->begun_ns +
           (int64_t)((double)client->planned * (double)NS_PER_S / client->plan.rate);
}

static void begin_what_is_due(struct client *client)
{
    while (client->planned < client->plan.requests && client->idle_count > 0) {
        int64_t now = clock_monotonic_ns(), due = due_ns(client);

        if (due > now)
            return;
        begin(client, &client->connections[client->idle[--client->idle_count]],
              client->plan.mode == PLAN_RATE ? due : now);
    }
}

static void sweep(struct client *client)
{
    const struct plan *plan = &client->plan;
    int64_t now = clock_monotonic_ns();

    if (now - client->swept_ns < (plan->leave_every ? SWEEP_LEAVING_NS : SWEEP_NS))
        return;
    client->swept_ns = now;
    for (unsigned i = 0; i < plan->connections; i++) {
        struct connection *connection = &client->connections[i];

        if (connection->state == IDLE || connection->state == SPENT)
            continue;
        if (plan->leave_every && i % plan->leave_every == 0 &&
            now - connection->begun_ns >= plan->leave_ns)
            finish_badly(client, connection, FAIL_LEFT);
        else if (now - connection->begun_ns > plan->timeout_ns)
            finish_badly(client, connection, FAIL_TIMEOUT);
    }
}

static struct timespec patience(const struct client *client)
{
    int64_t wait = client->plan.leave_every ? NS_PER_MS : SWEEP_NS;

    if (client->planned < client->plan.requests && client->idle_count > 0) {
        int64_t left = due_ns(client) - clock_monotonic_ns();

        wait = left < 0 ? 0 : left < wait ? left : wait;
    }
    return (struct timespec){.tv_nsec = (long)wait};
}

static void run(struct client *client)
{
    static struct epoll_event events[EVENTS_MAX];

    client->begun_ns = clock_monotonic_ns();
    while (client->finished < client->plan.requests &&
           clock_monotonic_ns() - client->begun_ns < client->plan.duration_ns) {
        struct timespec wait;
        int count;

        begin_what_is_due(client);
        wait = patience(client);
        count = epoll_pwait2(client->epoll_fd, events, EVENTS_MAX, &wait, NULL);
        for (int i = 0; i < count; i++)
            on_event(client, &client->connections[events[i].data.u32], events[i].events);
        sweep(client);
    }
}

static void report(struct client *client)
{
    double seconds = (double)(clock_monotonic_ns() - client->begun_ns) / (double)NS_PER_S;
    struct timespec cpu;
    const char *comma = "";

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    (void)printf("{\"seconds\":%.4f,\"finished\":%u,\"unfinished\":%u,\"per_second\":%.1f,"
                 "\"received_bytes\":%llu,\"sent_bytes\":%llu,\"chunks\":%lu,\"done_marked\":%u,"
                 "\"in_flight_max\":%u,\"reconnects\":%lu,\"cpu_seconds\":%.4f,\"status\":{",
                 seconds, client->finished, client->planned - client->finished,
                 client->finished / seconds, (unsigned long long)client->received_bytes,
                 (unsigned long long)client->sent_bytes, client->chunks, client->done_marked,
                 client->in_flight_max, client->reconnects,
                 (double)cpu.tv_sec + (double)cpu.tv_nsec / (double)NS_PER_S);
    for (unsigned i = 0; i < STATUS_MAX; i++)
        if (client->statuses[i]) {
            (void)printf("%s\"%u\":%lu", comma, i, client->statuses[i]);
            comma = ",";
        }
    (void)printf("}");
    for (unsigned i = 0; i < FAILURES; i++)
        (void)printf(",\"fail_%s\":%lu", failure_names[i], client->failures[i]);
    (void)printf(",");
    series_print(&client->latency, "latency_ms", stdout);
    (void)printf(",");
    series_print(&client->first_byte, "first_byte_ms", stdout);
    (void)printf(",");
    series_print(&client->first_chunk, "first_chunk_ms", stdout);
    (void)printf(",");
    series_print(&client->chunk_delay, "chunk_delay_ms", stdout);
    (void)printf("}\n");
}

static bool client_init(struct client *client, int argc, char **argv)
{
    unsigned count;

    if (!plan_init(&client->plan, argc, argv))
        return false;
    count = client->plan.connections;
    client->connections = calloc(count, sizeof *client->connections);
    client->idle = calloc(count, sizeof *client->idle);
    client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!client->connections || !client->idle || client->epoll_fd < 0)
        return false;
    for (unsigned i = 0; i < count; i++) {
        client->connections[i].fd = -1;
        client->connections[i].index = i;
        client->idle[i] = count - 1 - i; /* number 0 goes first */
    }
    client->idle_count = count;
    return true;
}

int main(int argc, char **argv)
{
    static struct client client;
    bool fine;

    (void)signal(SIGPIPE, SIG_IGN);
    fine = client_init(&client, argc, argv);
    if (fine) {
        run(&client);
        report(&client);
    }
    series_release(&client.latency);
    series_release(&client.first_byte);
    series_release(&client.first_chunk);
    series_release(&client.chunk_delay);
    free(client.connections);
    free(client.idle);
    plan_release(&client.plan);
    return fine ? 0 : 64;
}
