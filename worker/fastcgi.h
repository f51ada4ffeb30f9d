/*
 * fastcgi.h - the web server's side of one request: the only door to libfcgi.
 *
 * libfcgi reads parameters and the body; the answer is written here, in FastCGI records of our own
 * with one sendmsg per piece (libfcgi writes 8 kB at a time and needs three more system calls to
 * end a request). A connection carries one request and is then closed, whatever the web server asks
 * for.
 *
 * Threads: one connection belongs to one thread. No write blocks longer than the stall time-out.
 */
#ifndef WORKER_FASTCGI_H
#define WORKER_FASTCGI_H

#include "base/check.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct fastcgi; /* one per thread, used again for every request */

/* Once per process, before any fastcgi_new. */
void fastcgi_init_process(void);

MUST_CHECK struct fastcgi *fastcgi_new(void); /* NULL: out of memory */
void fastcgi_free(struct fastcgi *fcgi);

enum fastcgi_accepted {
    FASTCGI_REQUEST,    /* a request; its parameters can be asked for */
    FASTCGI_CONNECTION, /* a connection, whose head is still to be read */
    FASTCGI_NOTHING,    /* another thread was faster, or the peer went away before a whole head */
    FASTCGI_EXHAUSTED,  /* out of descriptors or memory: sleep and come back */
};
/* The two steps of fastcgi_accept, for whom something is to be done between them: a connection that is
 * slow to say what it wants must not keep others waiting. take: CONNECTION, NOTHING or EXHAUSTED;
 * read_head, after CONNECTION: REQUEST or NOTHING. */
MUST_CHECK enum fastcgi_accepted fastcgi_take(struct fastcgi *fcgi, int listen_fd,
                                              int64_t stall_ms);
MUST_CHECK enum fastcgi_accepted fastcgi_read_head(struct fastcgi *fcgi);
/* Accept one connection from the non-blocking listen_fd and read its parameters, which it waits for
 * at most stall_ms (and ten seconds); stall_ms bounds every later write. A head beyond the bounds
 * of fastcgi_head.h is answered here (431) and a bad one closed; both are NOTHING. */
MUST_CHECK enum fastcgi_accepted fastcgi_accept(struct fastcgi *fcgi, int listen_fd,
                                                int64_t stall_ms);

/* Value of a parameter (REQUEST_URI, HTTP_AUTHORIZATION, ...), NULL when absent. Valid until
 * fastcgi_finish. */
const char *fastcgi_param(const struct fastcgi *fcgi, const char *name);
/* All parameters as "NAME=value", NULL-terminated. */
char *const *fastcgi_params(const struct fastcgi *fcgi);

/* Read up to size body bytes. Returns their number, 0 at a clean end, -1 when it broke off (or
 * ended without its end record), -2 when nothing came before the time-out; all but a number are
 * final. May return less than asked. */
ssize_t fastcgi_read(struct fastcgi *fcgi, char *bytes, size_t size, int64_t timeout_ms);

/* The descriptor to poll for POLLIN | POLLRDHUP while nothing is read: then ask
 * fastcgi_client_gone. */
int fastcgi_fd(const struct fastcgi *fcgi);
/* Has the web server closed the connection or sent FCGI_ABORT_REQUEST? Does not block. While the
 * body has not been read to its end the descriptor stays readable: read on, or watch POLLRDHUP
 * only. */
bool fastcgi_client_gone(struct fastcgi *fcgi);

/* Queue bytes of the CGI answer (head, then body). What is queued is sent by flush or end, or when
 * it outgrows a small buffer. False: nobody reads any more (closed, or stalled for stall_ms); all
 * later calls then do nothing and return false. */
bool fastcgi_write(struct fastcgi *fcgi, const char *bytes, size_t length);
bool fastcgi_flush(struct fastcgi *fcgi);
/* Everything queued and the end of the request in one piece. The connection is closed, unless the peer
 * may still be sending the request: then fastcgi_finish does it. */
bool fastcgi_end(struct fastcgi *fcgi);
/* Close, without an end where there was none. After an end that the peer may not have read yet, because
 * it is still sending, take what it sends until it closes, sends nothing for 5 s, or has had as long as
 * fastcgi_set_linger says (50 ms where the body came too slowly). Parameters are gone afterwards. */
void fastcgi_finish(struct fastcgi *fcgi);
/* most_ms: 50 at first. stop_fd: cuts it short when it becomes readable; -1 = nothing does. */
void fastcgi_set_linger(struct fastcgi *fcgi, int64_t most_ms, int stop_fd);
/* Bytes handed to fastcgi_write so far that were really sent. */
uint64_t fastcgi_sent_bytes(const struct fastcgi *fcgi);

#endif
