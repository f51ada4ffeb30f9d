/* quota.c - see quota.h. */
#include "tests/tools/upstream/quota.h"

#include "base/clock.h"

bool sim_quota_take(struct quota *quota, uint64_t per_second, bool refused_count, int64_t now_ns,
                    int64_t *ret_wait_ns)
{
    uint64_t within = per_second < QUOTA_MAX ? per_second : QUOTA_MAX;
    bool passes = true;

    *ret_wait_ns = 0;
    if (quota->count >= within) {
        int64_t oldest_ns = quota->taken_ns[(quota->count - within) % QUOTA_MAX];

        passes = oldest_ns + NS_PER_S <= now_ns;
        if (!passes)
            *ret_wait_ns = oldest_ns + NS_PER_S - now_ns;
    }
    if (passes || refused_count)
        quota->taken_ns[quota->count++ % QUOTA_MAX] = now_ns;
    return passes;
}
