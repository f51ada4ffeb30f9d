/* test_options_file.c - the lexer: the dialect, its line numbers, and files that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "worker/options_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* All lines of the bytes as text: "1 [section|name]", "2 key=value", "3 !what is wrong". */
static void read_lines(const char *bytes, size_t length, struct text *out)
{
    struct options_file file;
    struct options_line line;

    text_init(out, 65536);
    options_file_init(&file, bytes, length);
    while (options_file_next(&file, &line)) {
        text_printf(out, "%u ", line.number);
        if (line.kind == OPTIONS_LINE_SECTION)
            text_printf(out, "[%s|%s]\n", line.section, line.name);
        else if (line.kind == OPTIONS_LINE_VALUE)
            text_printf(out, "%s=%s\n", line.key, line.value);
        else
            text_printf(out, "%s%s%s%s\n", line.kind == OPTIONS_LINE_BAD_SECTION ? "[!" : "!",
                        line.key,
                        line.kind == OPTIONS_LINE_NO_VALUE ? "? "
                        : *line.key                        ? ": "
                                                           : "",
                        line.problem);
    }
}

struct lexer_case {
    const char *bytes;
    const char *lines;
};

static void check(const struct lexer_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct text out;

        read_lines(cases[i].bytes, strlen(cases[i].bytes), &out);
        assert_string_equal(text_string(&out), cases[i].lines);
        text_release(&out);
    }
}

static void test_sections_values_and_comments(void **state)
{
    static const struct lexer_case cases[] = {
        {"", ""},
        {"\n\n", ""},
        {"; c\n# c\n  ; c\n\t# c\n", ""},
        {"[penstock]\nworkers = 4\n", "1 [penstock|]\n2 workers=4\n"},
        {"[source a-b]", "1 [source|a-b]\n"},
        {"  [ source \t a ]  ", "1 [source|a]\n"},
        {"[source a b]", "1 [source|a b]\n"},
        {"key=value", "1 key=value\n"},
        {"  key\t=  two  words \t", "1 key=two  words\n"},
        {"key =", "1 key=\n"},
        {"a = b = c", "1 a=b = c\n"},
        {"url = http://x/;y ; no comment # nor this",
         "1 url=http://x/;y ; no comment # nor this\n"},
        {"a = 1\r\nb = 2\r\n", "1 a=1\n2 b=2\n"},
        {"\xef\xbb\xbf[penstock]\n", "1 [penstock|]\n"},
        {"a = \xc3\xa4\xff", "1 a=\xc3\xa4\xff\n"},
    };

    (void)state;
    check(cases, LENGTH(cases));
}

static void test_quotes(void **state)
{
    static const struct lexer_case cases[] = {
        {"a = \"\"", "1 a=\n"},
        {"a = \" b \"  ", "1 a= b \n"},
        {"a = \"b \\\"c\\\" \\\\d\"", "1 a=b \"c\" \\d\n"},
        {"a = b \"c\"", "1 a=b \"c\"\n"},
        {"a = \"b", "1 !a: the closing quote is missing\n"},
        {"a = \"b\\\"", "1 !a: the closing quote is missing\n"},
        {"a = \"b\\", "1 !a: in quotes a backslash stands only before \" or another backslash\n"},
        {"a = \"b\\n\"",
         "1 !a: in quotes a backslash stands only before \" or another backslash\n"},
        {"a = \"b\" ; c",
         "1 !a: something follows the closing quote; a comment must have a line of its "
         "own\n"},
    };

    (void)state;
    check(cases, LENGTH(cases));
}

static void test_lines_that_are_wrong(void **state)
{
    static const struct lexer_case cases[] = {
        {"\nhello\nb = 1",
         "2 !hello? this is neither [section], key = value nor a comment; write one of them, a "
         "comment with ; or # before it\n3 b=1\n"},
        {" = 1", "1 !the key before = is missing; write key = value\n"},
        {"[a", "1 [!the closing ] of the section is missing; write [section] or [section NAME]\n"},
        {"[]", "1 [!there is no section in the [ ]; write [section] or [section NAME]\n"},
        {"[a] ; c",
         "1 [!something follows the section's ]; a comment must have a line of its own\n"},
        {"a = b \\\nc = d", "1 !a: a line cannot be continued on the next (a value that ends in a "
                            "backslash must stand in quotes, with two of them)\n2 c=d\n"},
        {"a = b\001c", "1 !the line has a control character\n"},
        {"a = b\rc", "1 !the line has a control character\n"},
        {"a = b\177", "1 !the line has a control character\n"},
        {"wor\xc3\xa4kers = 1",
         "1 !a section or key has a character that is not plain ASCII (a pasted "
         "no-break space?)\n"},
        {"[a\xff]",
         "1 [!a section or key has a character that is not plain ASCII (a pasted no-break "
         "space?)\n"},
        {"[a b\xc2\xa0]", "1 [!a section or key has a character that is not plain ASCII (a pasted "
                          "no-break space?)\n"},
    };

    (void)state;
    check(cases, LENGTH(cases));
}

static void test_indented_line_is_a_line_of_its_own(void **state)
{
    static const struct lexer_case cases[] = {{"a = 1\n  b = 2\n", "1 a=1\n2 b=2\n"}};

    (void)state;
    check(cases, LENGTH(cases));
}

static void test_nul_byte_is_refused_and_counted_as_one_line(void **state)
{
    static const char bytes[] = "a = 1\nb = 2\0 3\nc = 4\n";
    struct text out;

    (void)state;
    read_lines(bytes, sizeof bytes - 1, &out);
    assert_string_equal(
        text_string(&out),
        "1 a=1\n2 !the line has a NUL byte (is this a text file in UTF-8?)\n3 c=4\n");
    text_release(&out);
}

static void test_long_lines_are_bounded(void **state)
{
    size_t lengths[] = {OPTIONS_LINE_MAX, OPTIONS_LINE_MAX + 1, 100000};

    (void)state;
    for (size_t i = 0; i < LENGTH(lengths); i++) {
        char *bytes = malloc(lengths[i] + 8);
        struct options_file file;
        struct options_line line;

        assert_non_null(bytes);
        memset(bytes, 'x', lengths[i]);
        bytes[1] = '=';
        memcpy(bytes + lengths[i], "\r\nb = 2", 7);
        options_file_init(&file, bytes, lengths[i] + 7);
        assert_true(options_file_next(&file, &line));
        if (lengths[i] <= OPTIONS_LINE_MAX) {
            assert_int_equal(line.kind, OPTIONS_LINE_VALUE);
            assert_int_equal(strlen(line.value), lengths[i] - 2);
        } else {
            assert_int_equal(line.kind, OPTIONS_LINE_BAD);
            assert_string_equal(line.problem, "the line is longer than 4096 bytes");
        }
        assert_true(options_file_next(&file, &line));
        assert_int_equal(line.number, 2);
        assert_string_equal(line.key, "b");
        assert_false(options_file_next(&file, &line));
        free(bytes);
    }
}

static void test_file_is_read_whole_or_refused(void **state)
{
    char folder[] = "build/test-options-XXXXXX";
    char path[64];
    char buffer[8];
    struct options_bytes bytes;
    const char *problem = NULL;
    int fd;

    (void)state;
    (void)mkdir("build", 0777);
    assert_non_null(mkdtemp(folder));
    assert_false(options_file_read(folder, buffer, sizeof buffer, &bytes, &problem));
    assert_string_equal(problem, "it is a directory, not a file");
    (void)snprintf(path, sizeof path, "%s/f", folder);
    assert_false(options_file_read(path, buffer, sizeof buffer, &bytes, &problem));
    assert_string_equal(problem, "No such file or directory");
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, "12345678", 8), 8);
    assert_true(options_file_read(path, buffer, sizeof buffer, &bytes, &problem));
    assert_int_equal(bytes.length, 8);
    assert_memory_equal(buffer, "12345678", 8);
    assert_false(bytes.world_readable);
    assert_int_equal(fchmod(fd, 0604), 0);
    assert_true(options_file_read(path, buffer, sizeof buffer, &bytes, &problem));
    assert_true(bytes.world_readable);
    assert_int_equal(write(fd, "9", 1), 1);
    assert_false(options_file_read(path, buffer, sizeof buffer, &bytes, &problem));
    assert_string_equal(problem, "it is larger than a file of its kind can be");
    (void)close(fd);
    (void)unlink(path);
    /* A pipe nobody writes to must not hold the start. */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(options_file_read(path, buffer, sizeof buffer, &bytes, &problem));
    assert_string_equal(problem, "it is not a regular file");
    (void)unlink(path);
    (void)rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sections_values_and_comments),
        cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_lines_that_are_wrong),
        cmocka_unit_test(test_indented_line_is_a_line_of_its_own),
        cmocka_unit_test(test_nul_byte_is_refused_and_counted_as_one_line),
        cmocka_unit_test(test_long_lines_are_bounded),
        cmocka_unit_test(test_file_is_read_whole_or_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
