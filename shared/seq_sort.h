/*
 * seq_sort.h - sort row numbers by the sequence numbers of their rows, in place: qsort may allocate,
 * and under the lock nothing may be waited for. For rebuilding a queue from its rows.
 */
#ifndef SHARED_SEQ_SORT_H
#define SHARED_SEQ_SORT_H

#include <stddef.h>
#include <stdint.h>

void seq_sort(uint16_t *rows, size_t count, uint64_t (*seq_of)(const void *table, uint16_t row),
              const void *table);

#endif
