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

/* Fill request->url, request->headers from the request and its source. False: too much. */
MUST_CHECK bool upstream_head_build(struct request *request);
/* Write the CGI head for the client from the upstream's into request->head. */
void upstream_head_translate(struct request *request, const struct http_head *head);

#endif
