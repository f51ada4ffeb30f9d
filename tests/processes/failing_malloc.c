/*
 * failing_malloc.c - preloaded into penstockd by test_memory.sh: while the file named in
 * $FAILING_MALLOC_WHILE exists, every $FAILING_MALLOC_EVERY-th allocation of the process fails.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static _Atomic unsigned long count;

static int is_on(void)
{
    const char *path = getenv("FAILING_MALLOC_WHILE");

    return path && access(path, F_OK) == 0;
}

/* Looked at now and then only: access(2) costs more than an allocation. And before one fails: as soon as
 * the file is gone, none does. */
static int is_due(void)
{
    static _Atomic int on;
    static _Atomic unsigned long every;
    unsigned long n = atomic_fetch_add(&count, 1);

    if (n % 256 == 0) {
        const char *number = getenv("FAILING_MALLOC_EVERY");

        atomic_store(&every, number ? strtoul(number, NULL, 10) : 0);
        atomic_store(&on, is_on());
    }
    return atomic_load(&on) && atomic_load(&every) > 0 && n % atomic_load(&every) == 0 && is_on();
}

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t members, size_t size);
extern void *__libc_realloc(void *old, size_t size);

void *malloc(size_t size)
{
    if (is_due()) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}

void *calloc(size_t members, size_t size)
{
    if (is_due()) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_calloc(members, size);
}

void *realloc(void *old, size_t size)
{
    if (is_due()) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_realloc(old, size);
}
