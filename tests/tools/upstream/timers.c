/* timers.c - see timers.h. */
#include "tests/tools/upstream/timers.h"

#include "base/check.h"
#include "base/clock.h"

#include <stdlib.h>

static void put(struct timers *timers, size_t place, struct timer *timer)
{
    timers->heap[place - 1] = timer;
    timer->place = place;
}

static void rise(struct timers *timers, struct timer *timer)
{
    size_t place = timer->place;

    while (place > 1 && timers->heap[place / 2 - 1]->due_ns > timer->due_ns) {
        put(timers, place, timers->heap[place / 2 - 1]);
        place /= 2;
    }
    put(timers, place, timer);
}

static void sink(struct timers *timers, struct timer *timer)
{
    size_t place = timer->place;

    while (2 * place <= timers->count) {
        size_t child = 2 * place;

        if (child < timers->count && timers->heap[child]->due_ns < timers->heap[child - 1]->due_ns)
            child++;
        if (timers->heap[child - 1]->due_ns >= timer->due_ns)
            break;
        put(timers, place, timers->heap[child - 1]);
        place = child;
    }
    put(timers, place, timer);
}

void sim_timers_set(struct timers *timers, struct timer *timer, int64_t due_ns)
{
    sim_timers_unset(timers, timer);
    if (timers->count == timers->capacity) {
        size_t capacity = timers->capacity ? 2 * timers->capacity : 1024;
        struct timer **heap = realloc(timers->heap, capacity * sizeof(struct timer *));

        if (!heap)
            abort();
        timers->heap = heap;
        timers->capacity = capacity;
    }
    timer->due_ns = due_ns;
    timers->count++;
    put(timers, timers->count, timer);
    rise(timers, timer);
}

void sim_timers_unset(struct timers *timers, struct timer *timer)
{
    struct timer *last;
    size_t place = timer->place;

    if (place == 0)
        return;
    INVARIANT(timers->heap[place - 1] == timer);
    last = timers->heap[timers->count - 1];
    timers->count--;
    timer->place = 0;
    if (last == timer)
        return;
    put(timers, place, last);
    rise(timers, last);
    sink(timers, last);
}

int64_t sim_timers_next_ns(const struct timers *timers)
{
    return timers->count ? timers->heap[0]->due_ns : CLOCK_NEVER;
}

struct timer *sim_timers_take_due(struct timers *timers, int64_t now_ns)
{
    struct timer *first;

    if (sim_timers_next_ns(timers) > now_ns)
        return NULL;
    first = timers->heap[0];
    sim_timers_unset(timers, first);
    return first;
}

void sim_timers_release(struct timers *timers)
{
    free(timers->heap);
    *timers = (struct timers){0};
}
