/* upstream_id.c - ids of upstreams in one size; see upstream_id.h. */
#include "worker/upstream_id.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

#define HASH_DIGITS 16
#define HEAD_LENGTH (UPSTREAM_ID_SIZE - 1 - 1 - HASH_DIGITS)

void upstream_id_set(char id[UPSTREAM_ID_SIZE], const char *from, size_t length)
{
    if (length < UPSTREAM_ID_SIZE) {
        memcpy(id, from, length);
        id[length] = '\0';
        return;
    }
    memcpy(id, from, HEAD_LENGTH);
    (void)snprintf(id + HEAD_LENGTH, UPSTREAM_ID_SIZE - HEAD_LENGTH, "~%016llx",
                   (unsigned long long)hash_bytes(from, length));
}
