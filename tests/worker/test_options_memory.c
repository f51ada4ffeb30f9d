/* test_options_memory.c - what a configuration keeps: zeroed, aligned, apart, freed together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "worker/options_table.h"

#include <stdlib.h>
#include <string.h>

static struct options_loader begin(void)
{
    struct options_loader loader = {.options = calloc(1, sizeof *loader.options)};

    assert_non_null(loader.options);
    loader.options->own = calloc(1, sizeof *loader.options->own);
    assert_non_null(loader.options->own);
    return loader;
}

static void test_kept_memory_is_zeroed_aligned_and_apart(void **state)
{
    static const size_t sizes[] = {1, 7, 64, 4096, 100000};
    struct options_loader loader = begin();
    unsigned char *kept[LENGTH(sizes)];

    (void)state;
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        kept[i] = options_keep(&loader, sizes[i]);
        assert_non_null(kept[i]);
        assert_int_equal((uintptr_t)kept[i] % _Alignof(max_align_t), 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(kept[i][k], 0);
        memset(kept[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < LENGTH(sizes); i++)
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(kept[i][k], i + 1);
    assert_false(loader.out_of_memory);
    options_free(loader.options); /* the leak checkers watch that it takes all of them */
}

static void test_texts_end_with_nul_and_are_copies(void **state)
{
    struct options_loader loader = begin();
    char bytes[] = "qwen-image-plus";
    const char *kept = options_keep_text(&loader, bytes, strlen("qwen"));
    const char *empty = options_keep_text(&loader, bytes, 0);

    (void)state;
    memset(bytes, 'x', sizeof bytes);
    assert_string_equal(kept, "qwen");
    assert_string_equal(empty, "");
    options_free(loader.options);
}

static void test_free_takes_what_was_never_filled(void **state)
{
    (void)state;
    options_free(NULL);
    options_free(calloc(1, sizeof(struct options)));
    options_free(begin().options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_memory_is_zeroed_aligned_and_apart),
        cmocka_unit_test(test_texts_end_with_nul_and_are_copies),
        cmocka_unit_test(test_free_takes_what_was_never_filled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
