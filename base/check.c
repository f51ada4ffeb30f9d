/* check.c - the end of a program whose own rules were broken; see check.h. */
#include "base/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static struct iovec piece(const char *text)
{
    return (struct iovec){.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
}

void check_failed(const char *file, int line, const char *kind, const char *text)
{
    char digits[12];
    size_t at = sizeof digits;

    digits[--at] = '\0';
    do {
        digits[--at] = (char)('0' + line % 10);
        line /= 10;
    } while (line > 0);
    struct iovec pieces[] = {piece(file), piece(":"),  piece(digits + at), piece(": "),
                             piece(kind), piece(": "), piece(text),        piece("\n")};
    if (writev(STDERR_FILENO, pieces, (int)LENGTH(pieces)) < 0)
        abort();
    abort();
}
