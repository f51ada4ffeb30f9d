/* quota.h - so many calls within any one second, all callers together: quota=N in X-Mock. */
#ifndef TESTS_TOOLS_UPSTREAM_QUOTA_H
#define TESTS_TOOLS_UPSTREAM_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#define QUOTA_MAX 4096U

struct quota {
    int64_t taken_ns[QUOTA_MAX]; /* the last calls that count, round and round */
    uint64_t count;
};

/* May one more call pass? ret_wait_ns: until the oldest of those that count is a second old.
 * refused_count: a call that is refused counts like one that is served. */
bool sim_quota_take(struct quota *quota, uint64_t per_second, bool refused_count, int64_t now_ns,
                    int64_t *ret_wait_ns);

#endif
