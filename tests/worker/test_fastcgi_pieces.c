/* test_fastcgi_pieces.c - records of an answer, sent in any portions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above first */
#include <cmocka.h>

#include "worker/fastcgi_pieces.h"

#include <string.h>

static void fill(struct fastcgi_pieces *pieces)
{
    pieces->count = 0;
    fastcgi_pieces_add(pieces, 7, "hello", 5);
    fastcgi_pieces_add(pieces, 7, "you", 3);
    fastcgi_pieces_add_end(pieces, 7);
}

/* Take portions of so many bytes until all is sent; returns the content counted. */
static uint64_t drain(struct fastcgi_pieces *pieces, size_t portion, unsigned char *out,
                      size_t *length)
{
    uint64_t content = 0;
    size_t at = 0;

    *length = 0;
    while (at < pieces->count) {
        size_t left = portion;

        for (size_t i = at; i < pieces->count && left > 0; i++) {
            size_t take = pieces->iov[i].iov_len < left ? pieces->iov[i].iov_len : left;

            memcpy(out + *length, pieces->iov[i].iov_base, take);
            *length += take;
            left -= take;
        }
        content += fastcgi_pieces_sent(pieces, &at, portion - left);
    }
    return content;
}

static void any_portions_give_the_same_bytes(void **state)
{
    static const unsigned char wanted[] = {1,
                                           FASTCGI_STDOUT,
                                           0,
                                           7,
                                           0,
                                           5,
                                           0,
                                           0,
                                           'h',
                                           'e',
                                           'l',
                                           'l',
                                           'o',
                                           1,
                                           FASTCGI_STDOUT,
                                           0,
                                           7,
                                           0,
                                           3,
                                           0,
                                           0,
                                           'y',
                                           'o',
                                           'u',
                                           1,
                                           FASTCGI_STDOUT,
                                           0,
                                           7,
                                           0,
                                           0,
                                           0,
                                           0,
                                           1,
                                           FASTCGI_END_REQUEST,
                                           0,
                                           7,
                                           0,
                                           8,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0};

    (void)state;
    for (size_t portion = 1; portion <= sizeof wanted + 1; portion++) {
        struct fastcgi_pieces pieces;
        unsigned char out[sizeof wanted];
        size_t length;

        fill(&pieces);
        assert_int_equal(drain(&pieces, portion, out, &length), 8);
        assert_int_equal(length, sizeof wanted);
        assert_memory_equal(out, wanted, sizeof wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_portions_give_the_same_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
