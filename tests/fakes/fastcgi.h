/*
 * fastcgi.h - the web server's side of one request, in memory: what a test says the web server sent,
 * and what the step under test answered. Implements worker/fastcgi.h; linked before the library.
 */
#ifndef TESTS_FAKES_FASTCGI_H
#define TESTS_FAKES_FASTCGI_H

#include "base/text.h"
#include "worker/fastcgi.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define FAKE_PARAMS_MAX 1100

struct fastcgi {
    /* what the web server sends */
    char *params[FAKE_PARAMS_MAX + 1]; /* owned; NULL-terminated */
    size_t param_count;
    enum fastcgi_accepted accepted; /* answer of fastcgi_accept */
    const char *body;
    size_t body_length, body_at;
    size_t piece_bytes; /* the most one read returns; 0 = all there is */
    ssize_t body_end;   /* what reads return after the body: 0, -1 or -2 */
    bool gone;          /* the client has left */
    size_t room_bytes;  /* writes that would take more than this in all fail */
    int fd;             /* to poll; -1 = none */

    /* what was answered */
    struct text out; /* all that was written */
    size_t flushed;  /* bytes of it that were sent on */
    unsigned flushes;
    bool ended, finished;
};

/* Empty it for another request: no parameters, no body, a client that takes everything. */
void fake_fastcgi_reset(struct fastcgi *fcgi);
/* Add a parameter, "NAME" and "value". */
void fake_fastcgi_param(struct fastcgi *fcgi, const char *name, const char *value);
/* All that was answered so far. */
const char *fake_fastcgi_out(const struct fastcgi *fcgi);

#endif
