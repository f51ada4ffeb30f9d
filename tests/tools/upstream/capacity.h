/*
 * capacity.h - calls that were admitted under limits take their time, and share what the upstream can do:
 * above limits.shared_above in flight each goes slower, as on a saturated accelerator.
 *
 * Work is measured in seconds at full speed. One clock (work_s) tells how much each call in flight has
 * got; it runs slower the more there are, so that when a call comes or goes only the due times change.
 */
#ifndef TESTS_TOOLS_UPSTREAM_CAPACITY_H
#define TESTS_TOOLS_UPSTREAM_CAPACITY_H

#include "base/check.h"
#include "tests/tools/upstream/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct connection;
struct server;

struct capacity {
    double work_s;
    int64_t at_ns; /* when it was that */
    struct connection **working;
    size_t count, capacity;
};

/* The part of a connection. */
struct share {
    size_t place; /* in capacity.working, from 1; 0: none */
    struct limit_work work;
    double first_s, step_s, next_s, end_s; /* on the clock work_s */
};

/* A complete request: true when it waits for its first token or its end now, or when it is refused;
 * false: limits do not hold for it. */
MUST_CHECK bool sim_capacity_take(struct connection *connection);
/* It is over. */
void sim_capacity_leave(struct connection *connection, bool whole);
/* A piece of its answer is on its way: when the next is due. */
void sim_capacity_pace(struct connection *connection);
void sim_capacity_release(struct server *server);

#endif
