/*
 * watchers.h - has the client of a request left? The three tests side by side (product.md, "Client
 * gone"): the FastCGI connection, the result of every write (fastcgi.h), and, while nothing can be
 * written, the kernel's state of the client's own connection.
 */
#ifndef WORKER_WATCHERS_H
#define WORKER_WATCHERS_H

#include "worker/request.h"

/* Begin to watch the client's own connection, when the options allow it; once per request. */
void watchers_begin(struct request *request);
/* The same, once the upstream has been silent for a while: quick answers need no watch. */
void watchers_begin_late(struct request *request, int64_t now_ns);
/* When to ask again at the latest, if nothing else wakes the thread. */
int64_t watchers_next_ns(const struct request *request, int64_t now_ns);
/* Ask both. fd_ready: the FastCGI descriptor was reported ready. */
bool watchers_client_gone(struct request *request, bool fd_ready);

#endif
