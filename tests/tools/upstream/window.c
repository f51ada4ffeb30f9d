/* window.c - see window.h. */
#include "tests/tools/upstream/window.h"

#include <stdlib.h>

static void grow(struct window *window)
{
    size_t capacity = window->capacity ? window->capacity * 2 : 256;
    struct window_entry *entries = malloc(capacity * sizeof *entries);

    if (!entries)
        abort();
    for (size_t i = 0; i < window->count; i++)
        entries[i] = window->entries[(window->first + i) % window->capacity];
    free(window->entries);
    window->entries = entries;
    window->first = 0;
    window->capacity = capacity;
}

static void drop_old(struct window *window, int64_t now_ns)
{
    while (window->count > 0 && window->entries[window->first].at_ns <= now_ns - window->span_ns) {
        window->sum -= window->entries[window->first].amount;
        window->first = (window->first + 1) % window->capacity;
        window->count--;
    }
}

void sim_window_add(struct window *window, int64_t now_ns, uint64_t amount)
{
    drop_old(window, now_ns);
    if (window->count == window->capacity)
        grow(window);
    window->entries[(window->first + window->count++) % window->capacity] =
        (struct window_entry){now_ns, amount};
    window->sum += amount;
}

uint64_t sim_window_sum(struct window *window, int64_t now_ns)
{
    drop_old(window, now_ns);
    return window->sum;
}

int64_t sim_window_wait_ns(struct window *window, int64_t now_ns, uint64_t most)
{
    uint64_t sum = sim_window_sum(window, now_ns);

    for (size_t i = 0; i < window->count; i++) {
        const struct window_entry *entry = &window->entries[(window->first + i) % window->capacity];

        if (sum <= most)
            return i == 0 ? 0
                          : window->entries[(window->first + i - 1) % window->capacity].at_ns +
                                window->span_ns - now_ns;
        sum -= entry->amount;
    }
    return window->count && sim_window_sum(window, now_ns) > most
               ? window->entries[(window->first + window->count - 1) % window->capacity].at_ns +
                     window->span_ns - now_ns
               : 0;
}

void sim_window_clear(struct window *window)
{
    window->first = window->count = 0;
    window->sum = 0;
}

void sim_window_release(struct window *window)
{
    free(window->entries);
    *window = (struct window){.span_ns = window->span_ns};
}
