/* generations.c - the processes of one instance, by generation; see generations.h. */
#include "worker/generations.h"

#include "shared/roster.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_older(const struct generations *generations, const struct roster_row *row)
{
    return atomic_load(&row->pid) != 0 && row->instance == generations->instance &&
           row->generation != generations->current && row->role != PROCESS_MASTER;
}

unsigned generations_count_older(const struct generations *generations)
{
    uint64_t seen[ROSTER_MAX] = {0};
    unsigned count = 0;

    for (uint32_t i = 0; i < ROSTER_MAX; i++) {
        const struct roster_row *row = &generations->core->roster[i];
        bool known = false;

        if (!is_older(generations, row) || row->role != PROCESS_WORKER)
            continue;
        for (unsigned k = 0; k < count; k++)
            known = known || seen[k] == row->generation;
        if (!known)
            seen[count++] = row->generation;
    }
    return count;
}

void generations_signal_older(const struct generations *generations, int number)
{
    for (uint32_t i = 0; i < ROSTER_MAX; i++) {
        const struct roster_row *row = &generations->core->roster[i];
        int pidfd = is_older(generations, row) ? roster_open_pidfd(row) : -1;

        if (pidfd < 0)
            continue;
        /* asked again: the row may have become another's before the pidfd was opened */
        if (is_older(generations, row))
            (void)syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0);
        (void)close(pidfd);
    }
}

bool generations_have_room(const struct generations *generations, unsigned processes)
{
    unsigned free_rows = 0;

    for (uint32_t i = 0; i < ROSTER_MAX; i++)
        free_rows += atomic_load(&generations->core->roster[i].pid) == 0;
    return free_rows >= processes;
}

void generations_ring_workers(const struct generations *generations)
{
    for (uint32_t i = 0; i < ROSTER_MAX; i++) {
        struct roster_row *row = &generations->core->roster[i];

        if (atomic_load(&row->pid) != 0 && row->role == PROCESS_WORKER)
            roster_ring(row);
    }
}
