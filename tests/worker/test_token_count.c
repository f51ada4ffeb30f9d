/*
 * test_token_count.c - tokens of plain texts: the same however a text is cut, near what tokenizers say
 * (F6). The counts beside the texts are those of o200k_base. Whole requests: test_estimate.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "worker/token_count.h"

#include <stdlib.h>
#include <string.h>

static int64_t parts_of(const char *text, size_t length, size_t piece)
{
    struct token_count count = {0};

    for (size_t at = 0; at < length; at += piece)
        token_count_add(&count, text + at, length - at < piece ? length - at : piece);
    return token_count_parts(&count);
}

static int64_t script_parts_of(const char *text, size_t length, size_t piece)
{
    struct token_count count = {0};

    for (size_t at = 0; at < length; at += piece)
        token_count_add(&count, text + at, length - at < piece ? length - at : piece);
    assert_true(count.script_parts <= count.parts + 1500);
    return token_count_script_parts(&count);
}

static void F6_nothing_costs_nothing(void **state)
{
    struct token_count count = {0};

    (void)state;
    assert_int_equal(token_count_parts(&count), 0);
    token_count_add(&count, "", 0);
    assert_int_equal(token_count_parts(&count), 0);
    token_count_break(&count);
    assert_int_equal(token_count_parts(&count), 0);
}

static void F6_words_numbers_marks(void **state)
{
    static const struct {
        const char *text;
        int64_t least, most; /* tokens */
    } rows[] = {
        {"word", 1, 1},
        {"two words", 2, 2},
        {"internationalization", 1, 3},
        {"getElementById", 3, 4},
        {"HTTP", 1, 1},
        {"123", 1, 1},
        {"1234567", 3, 3},
        {"a, b", 3, 4},
        {"\n", 1, 1},
        {"    return x;", 3, 4},
        {"================================", 1, 4},
        {"\xE4\xBD\xA0\xE5\xA5\xBD", 1, 2},                         /* two Han */
        {"\xD0\xBF\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82", 1, 3}, /* a Russian word */
        {"\xF0\x9F\x98\x80", 1, 2},                                 /* an emoji */
        {"f\xC3\xBCr", 1, 2},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        int64_t parts = parts_of(rows[i].text, strlen(rows[i].text), 100);
        int64_t tokens = (parts + TOKEN_PARTS / 2) / TOKEN_PARTS;

        if (tokens < rows[i].least || tokens > rows[i].most)
            print_error("\"%s\": %lld\n", rows[i].text, (long long)parts);
        assert_in_range(tokens, rows[i].least, rows[i].most);
    }
}

static void F6_however_it_is_cut(void **state)
{
    static const char letters[] = "aZ 0,\n\xE4\xBD\xA0\xC3\xBC\xF0\x9F\x98\x80";

    (void)state;
    srand(3);
    for (int round = 0; round < 3000; round++) {
        char text[64];
        size_t length = (size_t)rand() % sizeof text;

        /* Also bytes that are no UTF-8. */
        for (size_t i = 0; i < length; i++)
            text[i] = rand() % 8 ? letters[(size_t)rand() % (sizeof letters - 1)] : (char)rand();
        int64_t whole = parts_of(text, length, sizeof text);

        assert_true(whole >= 0 && whole <= (int64_t)length * 2500);
        for (size_t piece = 1; piece < 20; piece += 3)
            assert_int_equal(parts_of(text, length, piece), whole);
        for (size_t piece = 1; piece < 20; piece += 3)
            assert_int_equal(script_parts_of(text, length, piece),
                             script_parts_of(text, length, sizeof text));
    }
}

static void F6_scripts_are_counted_apart(void **state)
{
    static const struct {
        const char *text;
        int64_t script; /* percent of its tokens */
    } rows[] = {
        {"Plain English text, 123 {\"json\": true}\n", 0},
        {"f\xC3\xBCr \xC3\x89tudes", 0},                                 /* accents are Latin */
        {"\xE2\x80\x9Cquoted\xE2\x80\x9D \xE2\x80\x94 \xE2\x86\x92", 0}, /* quotes, dash, arrow */
        {"\xF0\x9F\x98\x80", 0},                                         /* an emoji */
        {"\xE4\xBD\xA0\xE5\xA5\xBD", 100},                               /* Han */
        {"\xE3\x81\x93\xE3\x82\x93\xEF\xBC\x81", 100},                   /* kana, a wide mark */
        {"\xD0\xBF\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82", 100},       /* Russian */
        {"\xD8\xB3\xD9\x84\xD8\xA7\xD9\x85", 100},                       /* Arabic */
        {"\xFF\xFE\xC0", 0},                                             /* no UTF-8 */
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct token_count count = {0};

        token_count_add(&count, rows[i].text, strlen(rows[i].text));
        assert_int_equal(token_count_script_parts(&count) * 100,
                         token_count_parts(&count) * rows[i].script);
        token_count_break(&count);
        assert_int_equal(token_count_script_parts(&count) * 100, count.parts * rows[i].script);
    }
    /* Both in one text: as much as each alone. */
    struct token_count count = {0}, han = {0};

    token_count_add(&han, "\xE4\xBD\xA0\xE5\xA5\xBD", 6);
    token_count_add(&count, "say \xE4\xBD\xA0\xE5\xA5\xBD to me", 16);
    assert_int_equal(token_count_script_parts(&count), token_count_parts(&han));
    assert_true(token_count_parts(&count) > token_count_parts(&han) + 2 * TOKEN_PARTS);
}

/* A copy goes on alone, and asking changes nothing. */
static void F6_a_copy_is_a_place_to_go_back_to(void **state)
{
    struct token_count count = {0}, copy;

    (void)state;
    token_count_add(&count, "some wor", 8);
    copy = count;
    token_count_add(&count, "ds and more", 11);
    (void)token_count_parts(&count);
    token_count_add(&copy, "ds and more", 11);
    assert_int_equal(token_count_parts(&count), token_count_parts(&copy));
}

static void F6_texts_apart_share_no_token(void **state)
{
    struct token_count count = {0};
    int64_t one = parts_of("word", 4, 4);

    (void)state;
    token_count_add(&count, "word", 4);
    token_count_break(&count);
    token_count_add(&count, "word", 4);
    assert_int_equal(token_count_parts(&count), 2 * one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F6_nothing_costs_nothing),
        cmocka_unit_test(F6_words_numbers_marks),
        cmocka_unit_test(F6_however_it_is_cut),
        cmocka_unit_test(F6_scripts_are_counted_apart),
        cmocka_unit_test(F6_a_copy_is_a_place_to_go_back_to),
        cmocka_unit_test(F6_texts_apart_share_no_token),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
