/* timers.h - a binary heap of deadlines; each timer is part of the object it wakes. */
#ifndef TESTS_TOOLS_UPSTREAM_TIMERS_H
#define TESTS_TOOLS_UPSTREAM_TIMERS_H

#include <stddef.h>
#include <stdint.h>

struct timer {
    int64_t due_ns;
    size_t place; /* in the heap, from 1; 0: not set */
    void *owner;
};

struct timers {
    struct timer **heap;
    size_t count;
    size_t capacity;
};

/* Set or move the timer. */
void sim_timers_set(struct timers *timers, struct timer *timer, int64_t due_ns);
void sim_timers_unset(struct timers *timers, struct timer *timer);
/* The earliest deadline; CLOCK_NEVER when there is none. */
int64_t sim_timers_next_ns(const struct timers *timers);
/* Take one timer that is due; NULL when none is. */
struct timer *sim_timers_take_due(struct timers *timers, int64_t now_ns);
void sim_timers_release(struct timers *timers);

#endif
