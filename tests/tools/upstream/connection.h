/*
 * connection.h - one HTTP/1.1 connection of the simulated upstream, and the server that owns all of
 * them.
 *
 * States: HEAD and BODY read a request; WAIT lets delay_ms pass; SEND writes the answer piece by
 * piece; STALLED does nothing until the peer closes; DRAIN swallows what a peer still sends after
 * an early answer; DEAD is closed and waits in the graveyard until the present round of events is
 * over. Exactly one call is open from the moment its head was read until call_close().
 */
#ifndef TESTS_TOOLS_UPSTREAM_CONNECTION_H
#define TESTS_TOOLS_UPSTREAM_CONNECTION_H

#include "base/text.h"
#include "tests/tools/upstream/answers.h"
#include "tests/tools/upstream/capacity.h"
#include "tests/tools/upstream/jobs.h"
#include "tests/tools/upstream/quota.h"
#include "tests/tools/upstream/request.h"
#include "tests/tools/upstream/stats.h"
#include "tests/tools/upstream/timers.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define READ_BYTES ((size_t)256 << 10)
#define HELD_MAX ((size_t)1 << 20) /* bytes read and not yet used, of one connection */
#define PIECES_MAX (BODY_SPANS_MAX + 4)

enum connection_state {
    CONNECTION_HEAD,
    CONNECTION_BODY,
    CONNECTION_WAIT,
    CONNECTION_SEND,
    CONNECTION_STALLED,
    CONNECTION_DRAIN,
    CONNECTION_DEAD,
};

/* A run of bytes to be written: own bytes, or filler from an offset on (bytes NULL). */
struct piece {
    const char *bytes;
    size_t filler_offset;
    uint64_t length;
};

enum cut_kind { CUT_BY_RESET, CUT_BY_CLOSE, CUT_BY_STALL, CUT_BY_GARBAGE };

/* An answer on its way out. */
struct sending {
    struct text head;
    struct body body;
    struct piece pieces[PIECES_MAX];
    unsigned first, count;
    char chunk_head[24];
    bool head_framed, more, chunked, finished, close;
    uint64_t framed;     /* of body.length */
    uint64_t body_bytes; /* framed of the whole answer */
    struct cut cut;
    enum cut_kind cut_kind;
    bool cut_reached;
    int64_t due_ns; /* earliest time of the next frame; 0: at once */
};

struct connection {
    struct server *server;
    int fd;
    enum connection_state state;
    struct timer timer;
    struct connection *next; /* in the graveyard or among the spare ones */
    struct connection *next_of_all;
    struct text held;   /* bytes read and not yet used */
    bool input_waiting; /* bytes came while we were not reading */
    bool peer_closed;
    bool call_open;
    bool control;
    size_t image_place; /* in server->images, from 1; 0: no image call */
    int64_t begun_ns, read_ns;
    uint64_t sent_bytes;
    struct share share;
    struct call call;
    struct sending sending;
};

struct server {
    int epoll_fd;
    int listen_fd;
    bool quiet;
    FILE *log;               /* of -l, or NULL */
    const char *name;        /* of -n, or "" */
    char default_mock[1024]; /* of -d, or what POST /defaults put in its place */
    struct behaviour defaults;
    bool defaults_vary; /* they hold times= and are read anew for every call */
    struct timers timers;
    struct connection *graveyard, *spare;
    struct connection *all;     /* ever made; none is freed before the end */
    struct connection **images; /* those with an open image call */
    struct pollfd *polls;
    size_t image_count, image_capacity;
    uint64_t calls;
    uint64_t random;
    struct stats stats;
    struct jobs jobs;
    struct quota quota;
    struct limits limits;
    struct capacity capacity;
    char read_buffer[READ_BYTES];
};

/* connection.c */
void sim_connection_new(struct server *server, int fd);
/* Events of epoll, or the timer, for this connection. */
void sim_connection_event(struct connection *connection, uint32_t events);
void sim_connection_timer(struct connection *connection);
/* Close the socket; an open call ends in this way. */
void sim_connection_close(struct connection *connection, enum call_end end);
/* The answer is written; go on with the next request or close. */
void sim_connection_finish(struct connection *connection);
/* Move the dead ones to the spare ones; only between two rounds of events. */
void sim_connections_bury(struct server *server);
void sim_connections_release(struct server *server);

/* defaults.c */
MUST_CHECK bool sim_defaults_set(struct server *server, const char *keys, char ret_bad_key[64]);
void sim_defaults_get(struct server *server, struct behaviour *behaviour);
/* What POST /defaults does and says. */
void sim_defaults_answer(struct server *server, const struct call *call, struct body *body);

/* sending.c */
/* Build the answer of connection->call and begin to write it. */
void sim_sending_begin(struct connection *connection);
/* Write what can be written now. */
void sim_sending_pump(struct connection *connection);
/* Do what a cut does, now. */
void sim_sending_cut(struct connection *connection, enum cut_kind kind);

/* images.c: who has an image call open */
void sim_images_add(struct connection *connection);
void sim_images_remove(struct connection *connection);

#endif
