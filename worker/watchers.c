/* watchers.c - has the client left?; see watchers.h. */
#include "worker/watchers.h"

#include "base/clock.h"

#include <string.h>

/* nginx closes the FastCGI connection as soon as its client leaves, unless it was told to ignore that:
 * there is nothing to ask the kernel. With a thousand calls in flight the asking would cost a tenth of
 * a processor. */
static bool web_server_tells(const struct request *request)
{
    const char *software = fastcgi_param(request->fcgi, "SERVER_SOFTWARE");

    return software && strncmp(software, "nginx", 5) == 0;
}

void watchers_begin(struct request *request)
{
    if (request->watch_asked || !request->worker->options->penstock.client_watch)
        return;
    request->watch_asked = true;
    if (web_server_tells(request))
        return;
    client_watch_begin(&request->watch, fastcgi_param(request->fcgi, "SERVER_ADDR"),
                       fastcgi_param(request->fcgi, "SERVER_PORT"),
                       fastcgi_param(request->fcgi, "REMOTE_ADDR"),
                       fastcgi_param(request->fcgi, "REMOTE_PORT"));
}

void watchers_begin_late(struct request *request, int64_t now_ns)
{
    if (now_ns - request->attempt->started_ns >= CLIENT_WATCH_INTERVAL_MS * NS_PER_MS)
        watchers_begin(request);
}

int64_t watchers_next_ns(const struct request *request, int64_t now_ns)
{
    bool to_begin = !request->watch_asked && request->worker->options->penstock.client_watch;

    if (request->client_gone || (!request->watch.active && !to_begin))
        return CLOCK_NEVER;
    return now_ns + CLIENT_WATCH_INTERVAL_MS * NS_PER_MS;
}

bool watchers_client_gone(struct request *request, bool fd_ready)
{
    if (fd_ready && fastcgi_client_gone(request->fcgi))
        return true;
    return request->watch.active && client_watch_gone(&request->watch);
}
