/*
 * route.c - step 4: which source serves the call: the route with the longest matching path.

 */
#include "worker/route.h"

#include <string.h>

static bool path_matches(const char *pattern, const char *path)
{
    size_t length = strlen(pattern);

    if (strncmp(pattern, path, length) != 0)
        return false;
    return length > 0 && (pattern[length - 1] == '/' || path[length] == '\0');
}

static const enum call_kind kinds[] = {
    [ROUTE_KIND_AUTO] = CALL_OTHER,          [ROUTE_KIND_CHAT] = CALL_CHAT,
    [ROUTE_KIND_RESPONSES] = CALL_RESPONSES, [ROUTE_KIND_EMBEDDING] = CALL_EMBEDDING,
    [ROUTE_KIND_IMAGE] = CALL_IMAGE,         [ROUTE_KIND_OCR] = CALL_OCR,
    [ROUTE_KIND_OTHER] = CALL_OTHER,
};

enum step_result route_step(struct request *request)
{
    const struct options *options = request->worker->options;

    /* options keeps routes with the longest path first */
    for (size_t i = 0; i < options->route_count && !request->route; i++)
        if (path_matches(options->routes[i].path, request->path))
            request->route = &options->routes[i];
    if (!request->route) {
        fault_set(&request->fault, options->source_count ? FAULT_no_route : FAULT_no_source, "%s",
                  "");
        return STEP_FAULT;
    }
    request->source = request->route->to;
    if (request->route->kind != ROUTE_KIND_AUTO)
        request->kind = kinds[request->route->kind];
    if (request->kind == CALL_IMAGE)
        request->reader.intent.image =
            request->reader.intent.image || request->route->kind == ROUTE_KIND_IMAGE;
    return STEP_NEXT;
}
