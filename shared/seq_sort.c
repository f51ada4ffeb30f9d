/* seq_sort.c - row numbers in the order of their rows' sequence numbers; see seq_sort.h. */
#include "shared/seq_sort.h"

/* Shell sort with gaps 3k + 1 (Knuth, The Art of Computer Programming, 5.2.1). */
void seq_sort(uint16_t *rows, size_t count, uint64_t (*seq_of)(const void *table, uint16_t row),
              const void *table)
{
    size_t gap = 1;

    while (gap < count / 3)
        gap = gap * 3 + 1;
    for (; gap > 0; gap /= 3) {
        for (size_t i = gap; i < count; i++) {
            uint16_t moved = rows[i];
            uint64_t seq = seq_of(table, moved);
            size_t at = i;

            for (; at >= gap && seq_of(table, rows[at - gap]) > seq; at -= gap)
                rows[at] = rows[at - gap];
            rows[at] = moved;
        }
    }
}
