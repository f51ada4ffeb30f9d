/*
 * route.c - step 4: which scope serves the call, and until when: the route with the longest matching path. A path that
 * no route has is tried again as if it began with /v1, and then goes upstream so.
 */
#include "worker/route.h"

#include "base/clock.h"
#include "base/parse.h"

#include <stdio.h>
#include <string.h>

#define DEADLINE_MAX_MS INT64_C(86400000) /* as call_deadline_s */

static bool path_matches(const char *pattern, const char *path)
{
    size_t length = strlen(pattern);

    if (strncmp(pattern, path, length) != 0)
        return false;
    return length > 0 && (pattern[length - 1] == '/' || path[length] == '\0');
}

/* options keeps routes with the longest path first */
static const struct route_options *find_route(const struct options *options, const char *path)
{
    for (size_t i = 0; i < options->route_count; i++)
        if (path_matches(options->routes[i].path, path))
            return &options->routes[i];
    return NULL;
}

static const enum call_kind kinds[] = {
    [ROUTE_KIND_AUTO] = CALL_OTHER,          [ROUTE_KIND_CHAT] = CALL_CHAT,
    [ROUTE_KIND_RESPONSES] = CALL_RESPONSES, [ROUTE_KIND_EMBEDDING] = CALL_EMBEDDING,
    [ROUTE_KIND_IMAGE] = CALL_IMAGE,         [ROUTE_KIND_OCR] = CALL_OCR,
    [ROUTE_KIND_OTHER] = CALL_OTHER,
};

/* The scope's deadline, or a nearer one that the call brings: seconds, from its arrival. False: what it
 * brings is not one, and who means a deadline must not find that there is none. */
static bool set_deadline(struct request *request)
{
    const char *text = fastcgi_param(request->fcgi, "HTTP_X_PENSTOCK_DEADLINE");
    int64_t ms = request->scope->call_deadline_ms, own_ms;

    if (text && *text) { /* CGI: an empty one is none */
        if (!parse_duration_ms(text, 1000, &own_ms) || own_ms <= 0 || own_ms > DEADLINE_MAX_MS)
            return false;
        if (ms <= 0 || own_ms < ms)
            ms = own_ms;
    }
    if (ms > 0)
        request->deadline_ns = request->arrived_ns + ms * NS_PER_MS;
    return true;
}

enum step_result route_step(struct request *request)
{
    const struct options *options = request->worker->options;

    request->route = find_route(options, request->path);
    if (!request->route) {
        char versioned[REQUEST_PATH_MAX + 4];

        (void)snprintf(versioned, sizeof versioned, "/v1%s", request->path);
        request->route = find_route(options, versioned);
        request->add_version = request->route != NULL;
    }
    if (!request->route) {
        fault_set(&request->fault, options->source_count ? FAULT_no_route : FAULT_no_source, "%s",
                  "");
        return STEP_FAULT;
    }
    request->scope = request->route->to;
    if (!set_deadline(request)) {
        fault_set(&request->fault, FAULT_bad_deadline, "%s", "");
        return STEP_FAULT;
    }
    if (request->route->kind != ROUTE_KIND_AUTO)
        request->kind = kinds[request->route->kind];
    /* What only asks or polls draws nothing (G2). */
    if (request->route->kind == ROUTE_KIND_IMAGE && strcmp(request->method, "POST") == 0)
        request->reader.intent.image = true;
    return STEP_NEXT;
}
