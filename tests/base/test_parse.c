/* test_parse.c - values as people write them: taken whole or refused, never guessed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/parse.h"

#include <stdio.h>
#include <string.h>

static void numbers_are_taken_whole(void **state)
{
    uint64_t number = 7;

    (void)state;
    assert_true(parse_u64("0", &number));
    assert_int_equal(number, 0);
    assert_true(parse_u64("0012", &number));
    assert_int_equal(number, 12);
    assert_true(parse_u64("18446744073709551615", &number));
    assert_true(number == UINT64_MAX);
    assert_true(parse_u64_bytes("123456", 3, &number));
    assert_int_equal(number, 123);
}

static void what_is_no_number_is_refused_untouched(void **state)
{
    static const char *const wrong[] = {"",        " 1",
                                        "1 ",      "+1",
                                        "-1",      "1.0",
                                        "0x10",    "1e3",
                                        "one",     "18446744073709551616",
                                        "12a",     "99999999999999999999999",
                                        "\xd9\xa1"};
    uint64_t number = 7;

    (void)state;
    for (size_t i = 0; i < LENGTH(wrong); i++)
        assert_false(parse_u64(wrong[i], &number));
    assert_false(parse_u64_bytes("1\0002", 3, &number));
    assert_false(parse_u64_bytes("", 0, &number));
    assert_int_equal(number, 7);
}

static void fractions_are_rounded_up(void **state)
{
    static const struct {
        const char *text;
        uint64_t number;
    } cases[] = {{"0", 0}, {"8", 8}, {"8.0", 8}, {"8.01", 9}, {"0.000001", 1}, {"1.99", 2}};
    static const char *const wrong[] = {
        "", ".", ".5", "5.", "1e1", "-1.5", "1.5.", "1.5s", "18446744073709551615.5"};
    uint64_t number = 7;

    (void)state;
    for (size_t i = 0; i < LENGTH(wrong); i++)
        assert_false(parse_rounded_up(wrong[i], strlen(wrong[i]), &number));
    assert_int_equal(number, 7);
    for (size_t i = 0; i < LENGTH(cases); i++) {
        assert_true(parse_rounded_up(cases[i].text, strlen(cases[i].text), &number));
        assert_int_equal(number, cases[i].number);
    }
    assert_true(parse_rounded_up("2.59", 3, &number));
    assert_int_equal(number, 3);
}

static void durations_have_units(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
    } cases[] = {
        {"250ms", 250},
        {"30s", 30000},
        {"5m", 300000},
        {"2h", 7200000},
        {"1d", 86400000},
        {"30", 30000},
        {"0", 0},
        {"0.5s", 500},
        {"1.5", 1500},
        {"1.25m", 75000},
        {"0.001s", 1},
        {"0.0009s", 0},
        {"0.1234567s", 123},
        {"10MS", 10},
        {"3H", 10800000},
        {"0.5ms", 0},
        {"0.25d", 21600000},
        {"99999999d", INT64_C(8639999913600000)},
    };
    int64_t ms;

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        ms = -1;
        assert_true(parse_duration_ms(cases[i].text, 1000, &ms));
        assert_int_equal(ms, cases[i].ms);
    }
    assert_true(parse_duration_ms("7", 1, &ms));
    assert_int_equal(ms, 7);
}

static void what_is_no_duration_is_refused_untouched(void **state)
{
    static const char *const wrong[] = {"",
                                        "s",
                                        " 1s",
                                        "1 s",
                                        "-1s",
                                        "+1s",
                                        "1.",
                                        "1.s",
                                        ".5s",
                                        "1.5.5s",
                                        "1x",
                                        "1ss",
                                        "1sm",
                                        "1,5",
                                        "1e3s",
                                        "1w",
                                        "1min",
                                        "18446744073709551616s",
                                        "1000000000001d",
                                        "999999999999d",
                                        "never"};
    int64_t ms = -7;

    (void)state;
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        if (parse_duration_ms(wrong[i], 1000, &ms))
            print_error("taken: %s\n", wrong[i]);
        assert_int_equal(ms, -7);
    }
}

static void sizes_are_powers_of_1024(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"65536", 65536},
        {"64k", 65536},
        {"64K", 65536},
        {"64kb", 65536},
        {"64KiB", 65536},
        {"1m", 1048576},
        {"1MB", 1048576},
        {"2g", 2147483648},
        {"1t", 1099511627776},
        {"5b", 5},
        {"1TiB", 1099511627776},
        {"16777215t", UINT64_C(16777215) << 40},
    };
    uint64_t bytes;

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        bytes = 1;
        assert_true(parse_size(cases[i].text, &bytes));
        assert_true(bytes == cases[i].bytes);
    }
}

static void what_is_no_size_is_refused_untouched(void **state)
{
    static const char *const wrong[] = {
        "",    "k",    " 1k",   "1 k", "-1",  "1.5m", "1ki",       "1kk",
        "1bb", "1kbb", "1kibb", "1p",  "1ib", "1kb ", "16777216t", "18446744073709551616"};
    uint64_t bytes = 7;

    (void)state;
    for (size_t i = 0; i < LENGTH(wrong); i++) {
        if (parse_size(wrong[i], &bytes))
            print_error("taken: %s\n", wrong[i]);
        assert_int_equal(bytes, 7);
    }
}

static void switches_have_eight_words(void **state)
{
    static const char *const yes[] = {"true", "yes", "on", "1", "TRUE", "Yes", "oN"};
    static const char *const no[] = {"false", "no", "off", "0", "False", "NO", "OFF"};
    static const char *const wrong[] = {"", "y", "n", "2", "01", "tru", "truee", " on", "none"};
    bool value;

    (void)state;
    for (size_t i = 0; i < LENGTH(yes); i++) {
        value = false;
        assert_true(parse_bool(yes[i], &value));
        assert_true(value);
    }
    for (size_t i = 0; i < LENGTH(no); i++) {
        value = true;
        assert_true(parse_bool(no[i], &value));
        assert_false(value);
    }
    for (size_t i = 0; i < LENGTH(wrong); i++)
        assert_false(parse_bool(wrong[i], &value));
    assert_false(value);
}

static void globs_match_the_whole_text(void **state)
{
    static const struct {
        const char *glob, *text;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"a", "", false},
        {"*", "", true},
        {"***", "", true},
        {"?", "", false},
        {"?", "a", true},
        {"?", "ab", false},
        {"gpt-image-*", "gpt-image-2", true},
        {"gpt-image-*", "gpt-image-", true},
        {"gpt-image-*", "gpt-image", false},
        {"GPT-Image-*", "gpt-iMAGE-1", true},
        {"gemini-*-image*", "gemini-3-pro-image-preview", true},
        {"gemini-*-image*", "gemini-image", false},
        {"*b", "aab", true},
        {"*b", "aabc", false},
        {"a*b*c", "abbbc", true},
        {"a*b*c", "acb", false},
        {"*ab*ab*", "abxab", true},
        {"*ab*ab*", "abab", true},
        {"*ab*ab*", "aba", false},
        {"a?c", "a*c", true},
        {"[a]", "a", false}, /* only * and ? are special */
        {"[a]", "[a]", true},
        {"a\\*", "a\\b", true},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++)
        if (parse_glob_matches(cases[i].glob, cases[i].text, strlen(cases[i].text)) !=
            cases[i].matches)
            fail_msg("\"%s\" and \"%s\"", cases[i].glob, cases[i].text);
    /* length rules, not a NUL */
    assert_true(parse_glob_matches("abc", "abcdef", 3));
    assert_false(parse_glob_matches("a", "a\0", 2));
    assert_true(parse_glob_matches("a?", "a\0", 2));
}

/* The glob that takes naive matchers exponential time; this one would not end before the run does. */
static void globs_take_bounded_time(void **state)
{
    char text[4000];

    (void)state;
    memset(text, 'a', sizeof text);
    assert_false(parse_glob_matches("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", text, sizeof text));
}

static void a_token_is_one_word_of_http(void **state)
{
    static const char *const tokens[] = {"GET", "x-request-id", "a", "!#$%&'*+-.^_`|~09azAZ"};
    static const char *const others[] = {"",    " ",     "a b",  "a:",    "a\r\nb",   "\ta",
                                         "a/b", "(a)",   "a;",   "a\x7f", "\xc3\xa4", "a@b",
                                         "a,b", "\"a\"", "a\\b", "{a}",   "a=b",      "[a]"};

    (void)state;
    for (size_t i = 0; i < LENGTH(tokens); i++)
        assert_true(parse_is_token(tokens[i]));
    for (size_t i = 0; i < LENGTH(others); i++)
        if (parse_is_token(others[i]))
            fail_msg("\"%s\"", others[i]);
}

static void words_are_told_without_the_blanks_around_them(void **state)
{
    static const char *const same[] = {"none", " none", "none\r\n", "\t none \n"};
    static const char *const others[] = {"", " ", "non", "nonet", "no ne", "None", "none\v"};
    const char *text = " \t\r\n";

    (void)state;
    for (size_t i = 0; i < LENGTH(same); i++)
        assert_true(parse_is_word(same[i], strlen(same[i]), "none"));
    for (size_t i = 0; i < LENGTH(others); i++)
        assert_false(parse_is_word(others[i], strlen(others[i]), "none"));
    assert_int_equal(parse_trim(&text, 4), 0);
    text = " a b ";
    assert_int_equal(parse_trim(&text, 5), 3);
    assert_int_equal(strncmp(text, "a b", 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_taken_whole),
        cmocka_unit_test(what_is_no_number_is_refused_untouched),
        cmocka_unit_test(fractions_are_rounded_up),
        cmocka_unit_test(durations_have_units),
        cmocka_unit_test(what_is_no_duration_is_refused_untouched),
        cmocka_unit_test(sizes_are_powers_of_1024),
        cmocka_unit_test(what_is_no_size_is_refused_untouched),
        cmocka_unit_test(switches_have_eight_words),
        cmocka_unit_test(globs_match_the_whole_text),
        cmocka_unit_test(globs_take_bounded_time),
        cmocka_unit_test(a_token_is_one_word_of_http),
        cmocka_unit_test(words_are_told_without_the_blanks_around_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
