/* test_body_reader.c - several readers of one body, each with its own edit (H20). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/body_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char body[] = "0123456789";
#define BODY_BYTES ((int)sizeof body - 1)

static _Atomic int64_t total;
static char directory[] = "/tmp/penstock-body-reader.XXXXXX";

static void fill(struct spool *spool, struct spool_limits *limits, int64_t above_bytes)
{
    *limits = (struct spool_limits){.directory = directory,
                                    .above_bytes = above_bytes,
                                    .total_max_bytes = 1 << 20,
                                    .total_bytes = &total};
    spool_init(spool, limits);
    assert_int_equal(spool_write(spool, body, BODY_BYTES), SPOOL_OK);
    assert_true((spool->fd >= 0) == (above_bytes < BODY_BYTES));
}

static void assert_reads(struct body_reader *reader, const char *expected, size_t piece)
{
    char bytes[64];
    size_t got = 0;
    ssize_t n;

    assert_int_equal(body_reader_bytes(reader), strlen(expected));
    while ((n = body_reader_read(reader, bytes + got, piece)) > 0) {
        got += (size_t)n;
        assert_true(got + piece <= sizeof bytes);
    }
    assert_int_equal(n, 0);
    assert_int_equal(got, strlen(expected));
    assert_memory_equal(bytes, expected, got);
}

/* Every place and length of an edit, texts that are shorter, longer and empty, read in any pieces. */
static void H20_one_range_is_replaced_and_nothing_else(void **state)
{
    static const char *const texts[] = {"", "x", "xyz", "a longer text"};
    static const int64_t above[] = {100, 4}; /* in memory, in a file */

    (void)state;
    for (size_t a = 0; a < LENGTH(above); a++) {
        struct spool_limits limits;
        struct spool spool;

        fill(&spool, &limits, above[a]);
        for (int at = 0; at <= BODY_BYTES; at++)
            for (int bytes = 0; bytes <= BODY_BYTES - at; bytes++)
                for (size_t t = 0; t < LENGTH(texts); t++)
                    for (size_t piece = 1; piece < 30; piece += 1 + piece) {
                        const struct body_edit edit = {.at = at,
                                                       .bytes = bytes,
                                                       .text = texts[t],
                                                       .text_bytes = strlen(texts[t])};
                        struct body_reader reader;
                        char expected[64];

                        snprintf(expected, sizeof expected, "%.*s%s%s", at, body, texts[t],
                                 body + at + bytes);
                        body_reader_init(&reader, &spool, &edit);
                        assert_reads(&reader, expected, piece);
                    }
        spool_release(&spool);
    }
    assert_int_equal(atomic_load(&total), 0);
}

/* Two edits at any two places, insertions among them, given in any order. */
static void F6_two_ranges_are_replaced(void **state)
{
    static const char *const texts[] = {"", "x", "a longer text"};
    struct spool_limits limits;
    struct spool spool;

    (void)state;
    fill(&spool, &limits, 4);
    for (int at = 0; at <= BODY_BYTES; at++)
        for (int bytes = 0; bytes <= BODY_BYTES - at; bytes += 2)
            for (int second = at + bytes; second <= BODY_BYTES; second++)
                for (int n = 0; n < 18; n++) {
                    int more = n / 9 ? BODY_BYTES - second : 0;
                    const char *text = texts[n % 3], *other = texts[n / 3 % 3];
                    const struct body_edit edits[] = {
                        {.at = at, .bytes = bytes, .text = text, .text_bytes = strlen(text)},
                        {.at = second, .bytes = more, .text = other, .text_bytes = strlen(other)},
                    };
                    /* Of two at one place the first that is given comes first. */
                    bool swap = n % 2 && second > at;
                    struct body_reader reader;
                    char expected[64];

                    snprintf(expected, sizeof expected, "%.*s%s%.*s%s%s", at, body, text,
                             second - at - bytes, body + at + bytes, other, body + second + more);
                    body_reader_init(&reader, &spool, &edits[swap]);
                    body_reader_edit(&reader, &edits[!swap]);
                    assert_reads(&reader, expected, 1 + (size_t)n);
                }
    spool_release(&spool);
}

static void H10_readers_do_not_disturb_each_other(void **state)
{
    static const struct body_edit none = {.bytes = -1};
    static const struct body_edit edit = {.at = 3, .bytes = 2, .text = "abc", .text_bytes = 3};
    struct spool_limits limits;
    struct spool spool;
    struct body_reader plain, same, edited;
    char bytes[16];

    (void)state;
    fill(&spool, &limits, 4);
    body_reader_init(&plain, &spool, NULL);
    body_reader_init(&same, &spool, &none);
    body_reader_init(&edited, &spool, &edit);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(body_reader_read(&plain, bytes, 2), 2);
        assert_memory_equal(bytes, body + 2 * i, 2);
        assert_int_equal(body_reader_read(&edited, bytes, 1), 1);
        assert_int_equal(bytes[0], "012ab"[i]);
    }
    assert_int_equal(body_reader_read(&plain, bytes, 2), 0);
    assert_reads(&same, body, 3);
    assert_int_equal(body_reader_read(&edited, bytes, 16), 1);
    assert_int_equal(body_reader_read(&edited, bytes, 16), 5);
    assert_memory_equal(bytes, "56789", 5);
    spool_release(&spool);
}

static void a_lost_file_is_an_error(void **state)
{
    struct spool_limits limits;
    struct spool spool;
    struct body_reader reader;
    char bytes[16];

    (void)state;
    fill(&spool, &limits, 4);
    assert_int_equal(ftruncate(spool.fd, 5), 0);
    body_reader_init(&reader, &spool, NULL);
    assert_int_equal(body_reader_read(&reader, bytes, sizeof bytes), 5);
    assert_int_equal(body_reader_read(&reader, bytes, sizeof bytes), -1);
    spool_release(&spool);
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(H20_one_range_is_replaced_and_nothing_else),
        cmocka_unit_test(F6_two_ranges_are_replaced),
        cmocka_unit_test(H10_readers_do_not_disturb_each_other),
        cmocka_unit_test(a_lost_file_is_an_error),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
