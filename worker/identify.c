/*
 * identify.c - step 2: who asks. Today everybody is let through with the key they bring
 * ("passthrough"), under no name; gateway keys come with the [client] section.
 *
 * For bounds that each client has to itself callers are told apart all the same: by the key they send,
 * without one by their address. What is kept of it is a hash, salted anew with every segment, and it
 * stays in the segment: not in the log, the ledger or a page (L7).
 */
#include "worker/identify.h"

#include "base/hash.h"
#include "shared/segment.h"

#include <string.h>

/* Where clients bring a key. */
static const char *const key_params[] = {
    "HTTP_AUTHORIZATION",
    "HTTP_X_API_KEY",
    "HTTP_API_KEY",
    "HTTP_X_GOOG_API_KEY",
};

static bool add_param(const struct request *request, struct hash *hash, const char *name)
{
    const char *value = fastcgi_param(request->fcgi, name);

    if (!value || !*value)
        return false;
    hash_add(hash, name, strlen(name) + 1);
    hash_add(hash, value, strlen(value) + 1);
    return true;
}

/* Gemini's clients may bring theirs in the query. */
static bool add_query_key(const struct request *request, struct hash *hash)
{
    const char *at = request->raw_target ? strchr(request->raw_target, '?') : NULL;

    for (; at; at = strchr(at + 1, '&')) {
        if (strncmp(at + 1, "key=", 4) == 0) {
            hash_add(hash, at + 1, strcspn(at + 1, "&#"));
            return true;
        }
    }
    return false;
}

uint64_t identify_mark(const struct request *request)
{
    const uint64_t salt = segment_core(request->worker->segment)->boot;
    struct hash hash;
    bool any = false;
    uint64_t mark;

    hash_init(&hash);
    hash_add(&hash, &salt, sizeof salt);
    for (size_t i = 0; i < LENGTH(key_params); i++)
        any |= add_param(request, &hash, key_params[i]);
    if (!any && !add_query_key(request, &hash))
        (void)add_param(request, &hash, "REMOTE_ADDR"); /* nor that: one client for all of them */
    mark = hash_value(&hash);
    return mark ? mark : 1;
}

enum step_result identify_step(struct request *request)
{
    request->client_name = "";
    return STEP_NEXT;
}
