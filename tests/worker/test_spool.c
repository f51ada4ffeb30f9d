/* test_spool.c - bodies in memory and on disk, and the books over them (M16). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/spool.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic int64_t total;
static char directory[] = "/tmp/test_spool.XXXXXX";
static struct spool_limits limits;

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory); /* fails when a file is left in it */
}

static int set_up(void **state)
{
    static struct spool spool;

    limits = (struct spool_limits){.directory = directory,
                                   .above_bytes = 1000,
                                   .total_max_bytes = 100000,
                                   .total_bytes = &total};
    atomic_store(&total, 0);
    spool_init(&spool, &limits);
    *state = &spool;
    return 0;
}

static int tear_down(void **state)
{
    spool_release(*state);
    return atomic_load(&total) == 0 ? 0 : -1;
}

static char byte_at(size_t at)
{
    return (char)(at * 31 >> 2);
}

static enum spool_result write_bytes(struct spool *spool, size_t length)
{
    char *bytes = malloc(length);
    enum spool_result result;

    assert_non_null(bytes);
    for (size_t i = 0; i < length; i++)
        bytes[i] = byte_at((size_t)spool->bytes + i);
    result = spool_write(spool, bytes, length);
    free(bytes);
    return result;
}

static void assert_reads(struct spool *spool, size_t length, size_t piece)
{
    char bytes[4096];
    size_t got = 0;
    ssize_t n;

    assert_true(piece <= sizeof bytes);
    while ((n = spool_read_at(spool, (int64_t)got, bytes, piece)) > 0)
        for (ssize_t i = 0; i < n; i++, got++)
            assert_int_equal(bytes[i], byte_at(got));
    assert_int_equal(n, 0);
    assert_int_equal(got, length);
}

static void test_empty(void **state)
{
    struct spool *spool = *state;

    assert_reads(spool, 0, 10);
    assert_int_equal(spool_write(spool, NULL, 0), SPOOL_OK);
    assert_reads(spool, 0, 10);
}

static void test_small_stays_in_memory(void **state)
{
    struct spool *spool = *state;

    assert_int_equal(write_bytes(spool, 400), SPOOL_OK);
    assert_int_equal(write_bytes(spool, 600), SPOOL_OK);
    assert_int_equal(spool->fd, -1);
    assert_int_equal(atomic_load(&total), 0);
    assert_reads(spool, 1000, 7);
    assert_reads(spool, 1000, 999);
}

static void test_large_goes_to_an_unnamed_file(void **state)
{
    struct spool *spool = *state;
    struct stat status;

    assert_int_equal(write_bytes(spool, 1000), SPOOL_OK);
    assert_int_equal(write_bytes(spool, 1), SPOOL_OK);
    assert_int_equal(write_bytes(spool, 8000), SPOOL_OK);
    assert_true(spool->fd >= 0);
    assert_int_equal(fstat(spool->fd, &status), 0);
    assert_int_equal(status.st_nlink, 0);
    assert_int_equal(status.st_size, 9001);
    assert_true(fcntl(spool->fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(atomic_load(&total), 9001);
    assert_reads(spool, 9001, 4096);
    assert_reads(spool, 9001, 100);
}

/* While a call waits for its slot its body lies on the disk, not on both. */
static void test_a_file_leaves_little_in_memory(void **state)
{
    struct spool *spool = *state;

    limits.above_bytes = 90000;
    assert_int_equal(write_bytes(spool, 80000), SPOOL_OK);
    assert_true(spool->capacity >= 80000);
    assert_int_equal(write_bytes(spool, 15000), SPOOL_OK);
    assert_true(spool->fd >= 0);
    assert_int_equal(spool->capacity, 0);
    assert_reads(spool, 95000, 4096);
    spool_reset(spool);
    assert_int_equal(write_bytes(spool, 500), SPOOL_OK);
    assert_reads(spool, 500, 10);
}

static void test_reset_gives_everything_back(void **state)
{
    struct spool *spool = *state;
    char *memory;

    assert_int_equal(write_bytes(spool, 900), SPOOL_OK);
    memory = spool->memory;
    assert_int_equal(write_bytes(spool, 900), SPOOL_OK);
    spool_reset(spool);
    assert_int_equal(atomic_load(&total), 0);
    assert_int_equal(spool->fd, -1);
    spool_reset(spool);
    assert_int_equal(atomic_load(&total), 0);
    assert_reads(spool, 0, 10);
    assert_int_equal(write_bytes(spool, 500), SPOOL_OK);
    assert_ptr_equal(spool->memory, memory);
    assert_reads(spool, 500, 10);
}

static void test_budget_is_shared(void **state)
{
    struct spool *spool = *state;
    struct spool other;

    spool_init(&other, &limits);
    assert_int_equal(write_bytes(spool, 60000), SPOOL_OK);
    assert_int_equal(write_bytes(&other, 40001), SPOOL_FULL);
    assert_int_equal(write_bytes(&other, 40000), SPOOL_OK);
    assert_int_equal(write_bytes(&other, 1), SPOOL_FULL);
    assert_int_equal(atomic_load(&total), 100000);
    assert_reads(&other, 40000, 4096);
    spool_release(spool);
    assert_int_equal(atomic_load(&total), 40000);
    assert_int_equal(write_bytes(&other, 1), SPOOL_OK);
    spool_release(&other);
    spool_release(&other);
    assert_int_equal(atomic_load(&total), 0);
}

static void test_no_directory(void **state)
{
    struct spool *spool = *state;

    limits.directory = "/nonexistent/spool";
    assert_int_equal(write_bytes(spool, 1000), SPOOL_OK);
    assert_int_equal(write_bytes(spool, 1), SPOOL_FULL);
    assert_int_equal(atomic_load(&total), 0);
    assert_reads(spool, 1000, 100); /* what was there stays */
}

static void test_disk_full(void **state)
{
    struct spool *spool = *state;
    struct rlimit before, small;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 5000, .rlim_max = before.rlim_max};
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(write_bytes(spool, 3000), SPOOL_OK);
    assert_int_equal(write_bytes(spool, 3000), SPOOL_FULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(spool->bytes, 3000);
    spool_reset(spool);
    assert_int_equal(atomic_load(&total), 0);
}

static void test_lost_file_is_an_error(void **state)
{
    struct spool *spool = *state;
    char bytes[100];

    assert_int_equal(write_bytes(spool, 2000), SPOOL_OK);
    assert_int_equal(ftruncate(spool->fd, 50), 0);
    assert_int_equal(spool_read_at(spool, 0, bytes, sizeof bytes), 50);
    assert_int_equal(spool_read_at(spool, 50, bytes, sizeof bytes), -1);
}

static void *write_and_release(void *argument)
{
    struct spool spool;

    (void)argument;
    for (int i = 0; i < 200; i++) {
        spool_init(&spool, &limits);
        if (write_bytes(&spool, 30000) == SPOOL_OK && write_bytes(&spool, 30000) == SPOOL_OK)
            assert_reads(&spool, 60000, 4096);
        assert_true(atomic_load(&total) <= limits.total_max_bytes);
        spool_release(&spool);
    }
    return NULL;
}

static void test_books_balance_between_threads(void **state)
{
    pthread_t threads[4];

    (void)state;
    for (size_t i = 0; i < LENGTH(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_and_release, NULL), 0);
    for (size_t i = 0; i < LENGTH(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&total), 0);
}

/* As long as all of it stays in memory. */
static void test_bytes_can_be_read_to_their_place(void **state)
{
    static const size_t pieces[] = {10, 1, 600, 389}; /* 1000 together: no more may lie in memory */
    struct spool *spool = *state;

    for (size_t i = 0; i < LENGTH(pieces); i++) {
        char *place = spool_room(spool, pieces[i]);

        assert_non_null(place);
        for (size_t k = 0; k < pieces[i]; k++)
            place[k] = byte_at((size_t)spool->bytes + k);
        assert_int_equal(spool_write(spool, place, pieces[i]), SPOOL_OK);
    }
    assert_reads(spool, 1000, 7);
    assert_int_equal(spool->fd, -1);
    assert_null(spool_room(spool, 1));
    assert_int_equal(write_bytes(spool, 500), SPOOL_OK); /* the rest goes the other way */
    assert_null(spool_room(spool, 1));
    assert_reads(spool, 1500, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_empty, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_small_stays_in_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_large_goes_to_an_unnamed_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_file_leaves_little_in_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reset_gives_everything_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bytes_can_be_read_to_their_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_budget_is_shared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_directory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_disk_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lost_file_is_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_books_balance_between_threads, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("M16 spool", tests, make_directory, remove_directory);
}
