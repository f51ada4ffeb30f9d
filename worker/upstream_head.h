/*
 * upstream_head.h - headers across the gateway, both ways: which of the client's go upstream, which
 * of the upstream's go to the client.
 *
 * Everything end-to-end passes, with these exceptions: hop-by-hop headers, what the HTTP client
 * writes itself, what would tell the upstream of the client's network or of the site's cookies, and,
 * where the source has a key of its own, every header that could carry the client's key.
 */
#ifndef WORKER_UPSTREAM_HEAD_H
#define WORKER_UPSTREAM_HEAD_H

#include "worker/request.h"

/* Fill the attempt's url and headers from the request and the source. False: too much. */
MUST_CHECK bool upstream_head_build(struct attempt *attempt);
/* How long the upstream lets the call wait before it begins (F10): the client's own word, or the
 * source's; -1 = it was not asked to. */
int64_t upstream_head_server_wait_ms(const struct attempt *attempt);
/* Write the CGI head for the client from the upstream's into attempt->head, without our own headers
 * and without its end: those are known at the commit. */
void upstream_head_translate(struct attempt *attempt, const struct http_head *head);

#endif
