/*
 * fastcgi_call.h - FastCGI from the web server's side: one request over one connection, as
 * penstockctl needs it. What comes back is not trusted: it is bounded and checked.
 */
#ifndef WORKER_FASTCGI_CALL_H
#define WORKER_FASTCGI_CALL_H

#include "base/check.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fastcgi_call_parameter {
    const char *name, *value;
};

struct fastcgi_call {
    const char *address; /* "unix:PATH" or "ADDRESS:PORT", numeric, [..] around IPv6 */
    const struct fastcgi_call_parameter *parameters;
    size_t parameter_count;
    const char *body;   /* NULL = none; at most one record, 65535 bytes */
    int64_t timeout_ms; /* for the whole exchange */
};

enum fastcgi_reply_state {
    FASTCGI_REPLY_MORE,
    FASTCGI_REPLY_DONE,
    FASTCGI_REPLY_BAD, /* not FastCGI, refused, or larger than the bound; final */
};

struct fastcgi_reply {
    enum fastcgi_reply_state state;
    int status;       /* DONE: from the Status header, 200 without one */
    const char *body; /* DONE: within text, NUL-terminated */
    size_t body_length;
    /* What follows is the reader's own. */
    struct text text; /* the CGI answer as it came */
    unsigned char header[8];
    size_t header_length;
    size_t content_left, padding_left;
    unsigned char end_body[8];
    size_t end_length;
};

/* Append the whole request. False: the parameters or the body are too large for one record. */
MUST_CHECK bool fastcgi_call_encode(const struct fastcgi_call *call, struct text *out);

void fastcgi_reply_init(struct fastcgi_reply *reply, size_t limit);
void fastcgi_reply_release(struct fastcgi_reply *reply);
enum fastcgi_reply_state fastcgi_reply_feed(struct fastcgi_reply *reply, const char *bytes,
                                            size_t length);

/* Has it the form of one? */
bool fastcgi_address_is_valid(const char *address);

/* Connect, ask, read the answer into reply (initialized). False: why gets one sentence. */
MUST_CHECK bool fastcgi_call_make(const struct fastcgi_call *call, struct fastcgi_reply *reply,
                                  struct text *why);

#endif
