/*
 * http_trust.h - which certificate authorities an upstream's certificate may come from: the only
 * door to OpenSSL's stores.
 *
 * One store per CA file and process, read at its first use and then shared by every connection: the
 * system's bundle costs 35 ms and 0.9 MB each time it is read.
 *
 * Threads: any.
 */
#ifndef WORKER_HTTP_TRUST_H
#define WORKER_HTTP_TRUST_H

#include "base/check.h"

#include <stdbool.h>

/* Let the SSL_CTX trust the authorities of ca_file, and no others. False: the file cannot be read
 * or holds none. */
MUST_CHECK bool http_trust_apply(void *ssl_ctx, const char *ca_file);

/* Did the other side of this SSL end its stream (close_notify)? Whoever cuts a connection cannot. */
MUST_CHECK bool http_trust_heard_goodbye(const void *ssl);

#endif
