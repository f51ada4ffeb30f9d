/* window.h - what was counted within the last seconds: a sliding sum, exact. */
#ifndef TESTS_TOOLS_UPSTREAM_WINDOW_H
#define TESTS_TOOLS_UPSTREAM_WINDOW_H

#include <stddef.h>
#include <stdint.h>

struct window_entry {
    int64_t at_ns;
    uint64_t amount;
};

/* Zeroed and with span_ns set it is empty. */
struct window {
    int64_t span_ns;
    struct window_entry *entries; /* a ring; owned */
    size_t first, count, capacity;
    uint64_t sum;
};

void sim_window_add(struct window *window, int64_t now_ns, uint64_t amount);
/* Of (now - span, now]. */
uint64_t sim_window_sum(struct window *window, int64_t now_ns);
/* Until the oldest entries have left so that the sum is at most `most`; 0: it is already. */
int64_t sim_window_wait_ns(struct window *window, int64_t now_ns, uint64_t most);
void sim_window_clear(struct window *window);
void sim_window_release(struct window *window);

#endif
