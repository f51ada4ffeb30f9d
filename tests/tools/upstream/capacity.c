/* capacity.c - see capacity.h. */
#include "tests/tools/upstream/capacity.h"

#include "base/clock.h"
#include "tests/tools/upstream/connection.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_PER_TOKEN_OUT 2U /* of base64, about what tokenizers make of it */

/* Seconds of work that one call gets in a second. */
static double speed(const struct server *server)
{
    uint64_t most = server->limits.settings.shared_above;
    size_t count = server->capacity.count;

    return most == 0 || count <= most ? 1.0 : (double)most / (double)count;
}

static void run_clock(struct server *server, int64_t now_ns)
{
    struct capacity *capacity = &server->capacity;

    capacity->work_s += (double)(now_ns - capacity->at_ns) / (double)NS_PER_S * speed(server);
    capacity->at_ns = now_ns;
}

static int64_t due_ns(const struct server *server, double work_s)
{
    double left_ns = (work_s - server->capacity.work_s) / speed(server) * (double)NS_PER_S;

    return server->capacity.at_ns + (left_ns > 0 ? (int64_t)left_ns + 1 : 0);
}

/* Speed has changed. */
static void move_due_times(struct server *server)
{
    for (size_t i = 0; i < server->capacity.count; i++) {
        struct connection *connection = server->capacity.working[i];
        int64_t due = due_ns(server, connection->share.next_s);

        if (connection->state == CONNECTION_SEND && connection->sending.due_ns > 0)
            connection->sending.due_ns = due;
        if (connection->timer.place != 0)
            sim_timers_set(&server->timers, &connection->timer, due);
    }
}

static void join(struct connection *connection, int64_t now_ns)
{
    struct server *server = connection->server;
    struct capacity *capacity = &server->capacity;

    if (capacity->count == capacity->capacity) {
        capacity->capacity = capacity->capacity ? capacity->capacity * 2 : 256;
        capacity->working =
            realloc(capacity->working, capacity->capacity * sizeof *capacity->working);
        if (!capacity->working)
            abort();
    }
    capacity->working[capacity->count++] = connection;
    connection->share.place = capacity->count;
    sim_limits_note_in_flight(&server->limits, capacity->count, now_ns);
}

/* How many tokens go in and come out, and in how many pieces. */
static void size_up(struct connection *connection)
{
    const struct limit_settings *is = &connection->server->limits.settings;
    struct call *call = &connection->call;
    struct behaviour *behaviour = &call->behaviour;
    struct limit_work *work = &connection->share.work;
    double tokens = (double)call->received / is->bytes_per_token;

    work->input = behaviour->in_tokens != NOT_GIVEN ? behaviour->in_tokens : (uint64_t)tokens + 1;
    if (behaviour->out_tokens == NOT_GIVEN)
        behaviour->out_tokens = behaviour->events != NOT_GIVEN ? behaviour->events : 8;
    work->output = behaviour->out_tokens;
    behaviour->in_tokens = work->input;
    if (behaviour->events == NOT_GIVEN)
        behaviour->events =
            work->output < is->tokens_per_event ? 1 : work->output / is->tokens_per_event;
    /* Of a document, or of each event. */
    if (behaviour->size == NOT_GIVEN)
        behaviour->size = work->output * BYTES_PER_TOKEN_OUT /
                          (call->stream && behaviour->events > 0 ? behaviour->events : 1);
}

static void plan_times(struct connection *connection)
{
    const struct limit_settings *is = &connection->server->limits.settings;
    struct share *share = &connection->share;
    double pieces = (double)connection->call.behaviour.events + 1; /* and the finish */
    double begin_s = connection->server->capacity.work_s;

    share->first_s =
        begin_s + (double)is->first_ms / 1e3 + (double)(share->work.input * is->input_us) / 1e6;
    share->end_s = share->first_s + (double)(share->work.output * is->output_us) / 1e6;
    share->step_s = (share->end_s - share->first_s) / pieces;
    share->next_s = connection->call.stream ? share->first_s : share->end_s;
}

bool sim_capacity_take(struct connection *connection)
{
    struct server *server = connection->server;
    struct behaviour *behaviour = &connection->call.behaviour;
    int64_t now_ns = clock_monotonic_ns();
    enum limit_cause cause;

    if (!server->limits.settings.on || strcmp(connection->call.method, "POST") != 0 ||
        behaviour->status >= 300 || behaviour->refuses)
        return false;
    size_up(connection);
    cause =
        sim_limits_admit(&server->limits, &connection->share.work, server->capacity.count, now_ns);
    if (cause != LIMIT_NONE) {
        sim_limits_refuse(&server->limits, cause, behaviour, now_ns);
        return false;
    }
    sim_limits_hint(&server->limits, behaviour, now_ns);
    run_clock(server, now_ns);
    join(connection, now_ns);
    plan_times(connection);
    connection->state = CONNECTION_WAIT;
    sim_timers_set(&server->timers, &connection->timer, due_ns(server, connection->share.next_s));
    move_due_times(server);
    return true;
}

void sim_capacity_pace(struct connection *connection)
{
    struct server *server = connection->server;
    struct share *share = &connection->share;

    run_clock(server, clock_monotonic_ns());
    share->next_s = fmin(share->next_s + share->step_s, share->end_s);
    connection->sending.due_ns = due_ns(server, share->next_s);
}

/* What of the output there was when it was broken off. */
static uint64_t output_made(const struct share *share, double work_s)
{
    double part = share->end_s > share->first_s
                      ? (work_s - share->first_s) / (share->end_s - share->first_s)
                      : 0;

    return part <= 0   ? 0
           : part >= 1 ? share->work.output
                       : (uint64_t)(part * (double)share->work.output);
}

void sim_capacity_leave(struct connection *connection, bool whole)
{
    struct server *server = connection->server;
    struct capacity *capacity = &server->capacity;
    struct share *share = &connection->share;
    int64_t now_ns = clock_monotonic_ns();

    if (share->place == 0)
        return;
    run_clock(server, now_ns);
    if (!whole)
        share->work.output = output_made(share, capacity->work_s);
    sim_limits_end(&server->limits, &share->work, whole, now_ns);
    capacity->working[share->place - 1] = capacity->working[--capacity->count];
    capacity->working[share->place - 1]->share.place = share->place;
    share->place = 0;
    sim_limits_note_in_flight(&server->limits, capacity->count, now_ns);
    move_due_times(server);
}

void sim_capacity_release(struct server *server)
{
    free(server->capacity.working);
    sim_limits_release(&server->limits);
}
