/*
 * http_client.h - exchanges with upstreams.
 *
 * A process has one pool. A thread borrows a client from it (the one given back last first, because
 * its connections are the warmest), starts one exchange (later: two, when hedging) and runs them
 * until something happens. Data is handed to the exchange's sink from inside http_client_run, in
 * the caller's thread.
 *
 * No request is ever sent twice (M12). HTTP/1.1 only, over connections that libcurl opens
 * (http_connection.h). Redirects are not followed, responses not decoded, 1xx skipped, response
 * headers bounded (HTTP_HEAD_BYTES_MAX).
 */
#ifndef WORKER_HTTP_CLIENT_H
#define WORKER_HTTP_CLIENT_H

#include "base/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HTTP_HEAD_BYTES_MAX 262144
#define HTTP_HEADERS_MAX 200

struct http_pool;
struct http_client;
struct http_exchange;

MUST_CHECK bool http_init_process(void);
MUST_CHECK struct http_pool *http_pool_new(void);
void http_pool_free(struct http_pool *pool); /* all clients must be back */

/* NULL: out of memory. */
MUST_CHECK struct http_client *http_client_borrow(struct http_pool *pool);
/* Every exchange must have been ended. */
void http_client_return(struct http_pool *pool, struct http_client *client);

/* One "Name: value" line; not owned. */
struct http_header {
    const char *name;
    const char *value;
};

/* Gives the next bytes of the request body: their number, 0 at the end, -1 when they cannot be read
 * (the exchange fails before the upstream could take it for complete). */
typedef ssize_t http_body_function(void *context, char *bytes, size_t size);

struct http_request {
    const char *method;
    const char *url;
    const struct http_header *headers; /* complete: nothing is added but Host, and Content-Length */
    size_t header_count;
    int64_t body_bytes; /* -1 = no body at all (GET); 0 = an empty one */
    http_body_function *read_body;
    void *body_context;
    bool fresh_connection; /* never an idle one: calls that may be paid twice */
    int64_t connect_timeout_ms;
    const char *ca_file; /* "" = the system's */
};

/* The final head. Valid during on_head only. */
struct http_head {
    int status;
    const struct http_header *headers; /* in order, repeated ones apart */
    size_t header_count;
    int64_t content_length; /* -1 = not given */
};

enum http_take { HTTP_TAKEN, HTTP_PAUSE, HTTP_ABORT };

/* Called within http_client_run; they must not start or end exchanges. */
struct http_sink {
    void *context;
    /* The first byte of the request has gone out. NULL: not wanted. */
    void (*on_sent)(void *context);
    /* The final head is here. Return false to abort. */
    bool (*on_head)(void *context, const struct http_head *head);
    /* HTTP_PAUSE: not taken, offer it again after http_exchange_resume. */
    enum http_take (*on_body)(void *context, const char *bytes, size_t length);
};

/* Begin; nothing is sent before http_client_run (a small body is read at once). Strings must
 * live until http_exchange_end. NULL: out of memory. */
MUST_CHECK struct http_exchange *http_exchange_start(struct http_client *client,
                                                     const struct http_request *request,
                                                     const struct http_sink *sink);
void http_exchange_resume(struct http_exchange *exchange);

enum http_wake {
    HTTP_WAKE_FINISHED, /* an exchange has its outcome */
    HTTP_WAKE_FD,       /* one of the caller's descriptors is ready: see wait->ready */
    HTTP_WAKE_TIME,     /* until_ns has come */
    HTTP_WAKE_SINK,     /* a sink function called http_client_wake */
};
struct http_wait {
    const int *fds; /* at most 8, also watched, for POLLIN | POLLRDHUP; -1 entries are skipped */
    size_t fd_count;
    int64_t until_ns;
    unsigned ready; /* out, whatever woke: bit i set when fds[i] is ready */
};
enum http_wake http_client_run(struct http_client *client, struct http_wait *wait);
/* From a sink function: make http_client_run return when it has handed over what it has. */
void http_client_wake(struct http_client *client);

enum http_outcome {
    HTTP_RUNNING,
    HTTP_COMPLETE, /* head and whole body */
    HTTP_NOT_SENT, /* failed before any byte of the request was sent (resolve, connect, TLS) */
    HTTP_CONNECT_TIMEOUT, /* the same, by connect_timeout_ms */
    HTTP_NO_ANSWER,   /* sent (in part), connection ended before a final head: outcome unknown */
    HTTP_CUT,         /* the body broke off */
    HTTP_BAD_ANSWER,  /* not HTTP, or beyond our bounds */
    HTTP_BODY_FAILED, /* read_body returned -1 */
    HTTP_ABORTED,     /* a sink function said so */
    HTTP_OUT_OF_MEMORY,
};
enum http_outcome http_exchange_outcome(const struct http_exchange *exchange);
/* One sentence for the log; no URL, no secret. */
const char *http_exchange_error(const struct http_exchange *exchange);
/* Monotonic times, 0 = did not happen: first byte of the request sent, of the answer received; last
 * byte received. */
int64_t http_exchange_sent_ns(const struct http_exchange *exchange);
int64_t http_exchange_first_byte_ns(const struct http_exchange *exchange);
int64_t http_exchange_last_byte_ns(const struct http_exchange *exchange);
/* End it, whatever its state; an unfinished one has its connection closed before this returns. */
void http_exchange_end(struct http_exchange *exchange);

#endif
