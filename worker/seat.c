/* seat.c - one master per instance; see seat.h. */
#include "worker/seat.h"

#include "base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP_VARIABLE "PENSTOCK_REEXEC_SEAT"

void seat_keep(int fd)
{
    char number[16];

    (void)snprintf(number, sizeof number, "%d", fd);
    (void)setenv(KEEP_VARIABLE, number, 1);
}

int seat_take(const char *state_directory, struct text *why)
{
    const char *kept = getenv(KEEP_VARIABLE);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    struct flock holder = lock;
    uint64_t number;
    char path[512];
    int fd = -1;

    if (kept && parse_u64(kept, &number) && number < 1048576)
        fd = (int)number;
    (void)unsetenv(KEEP_VARIABLE);
    (void)snprintf(path, sizeof path, "%s/master.seat", state_directory);
    if (fd < 0)
        fd = open(path, O_RDWR | O_CREAT, 0640); /* kept over exec on purpose */
    if (fd < 0) {
        text_printf(why, "cannot open %s: %s", path, strerror(errno));
        return -1;
    }
    if (fcntl(fd, F_SETLK, &lock) == 0)
        return fd;
    if (fcntl(fd, F_GETLK, &holder) == 0 && holder.l_type != F_UNLCK)
        text_printf(why, "another master of this instance runs: pid %d (state_directory %s)",
                    holder.l_pid, state_directory);
    else
        text_printf(why, "cannot lock %s: %s", path, strerror(errno));
    (void)close(fd);
    return -1;
}
