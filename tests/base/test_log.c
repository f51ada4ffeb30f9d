/* test_log.c - one event is one line that programs can read, wherever it goes and however long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/penstock-log-XXXXXX";
static char path[sizeof folder + 16];
static char moved[sizeof folder + 16];
static char content[65536];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(path, sizeof path, "%s/log", folder);
    (void)snprintf(moved, sizeof moved, "%s/log.1", folder);
    clock_set_false(0, 1700000000123);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    clock_set_true();
    return log_open("", LOG_FORMAT_LOGFMT, LOG_LEVEL_INFO) && rmdir(folder) == 0 ? 0 : -1;
}

static int remove_logs(void **state)
{
    (void)state;
    (void)unsetenv("JOURNAL_STREAM");
    (void)unlink(path);
    (void)unlink(moved);
    return 0;
}

static const char *content_of(const char *file)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t length;

    assert_true(fd >= 0);
    length = read(fd, content, sizeof content - 1);
    assert_true(length >= 0);
    content[length] = '\0';
    (void)close(fd);
    return content;
}

#define STAMP "2023-11-14T22:13:20.123Z"

static void logfmt_quotes_only_what_needs_it(void **state)
{
    struct log_line line;

    (void)state;
    assert_true(log_open(path, LOG_FORMAT_LOGFMT, LOG_LEVEL_INFO));
    log_begin(&line, LOG_LEVEL_NOTICE, "start");
    log_string(&line, "plain", "a/b-c.d");
    log_string(&line, "shut", "<a>");
    log_string(&line, "open", "{");
    log_string(&line, "empty", "");
    log_string(&line, "blank", "a b");
    log_string(&line, "equals", "a=b");
    log_string(&line, "quote", "a\"b\\");
    log_string(&line, "two_lines", "a\nb\r");
    log_number(&line, "number", -9223372036854775807 - 1);
    log_bool(&line, "yes", true);
    log_bool(&line, "no", false);
    log_end(&line);
    assert_string_equal(
        content_of(path),
        "time=" STAMP " level=notice event=start plain=a/b-c.d shut=<a> open={ "
        "empty=\"\" "
        "blank=\"a b\" equals=\"a=b\" quote=\"a\\\"b\\\\\" "
        "two_lines=\"a\\nb\\u000d\" number=-9223372036854775808 yes=true no=false\n");
}

static void json_is_one_object_in_one_line(void **state)
{
    (void)state;
    assert_true(log_open(path, LOG_FORMAT_JSON, LOG_LEVEL_INFO));
    log_event(LOG_LEVEL_ERROR, "upstream", "%s is \"%d\"\n", "it", 7);
    assert_string_equal(content_of(path),
                        "{\"time\":\"" STAMP "\",\"level\":\"error\",\"event\":\"upstream\","
                        "\"message\":\"it is \\\"7\\\"\\n\"}\n");
}

static void what_is_not_wanted_costs_no_line(void **state)
{
    struct log_line line;

    (void)state;
    assert_true(log_open(path, LOG_FORMAT_LOGFMT, LOG_LEVEL_WARNING));
    assert_true(log_wants(LOG_LEVEL_ERROR));
    assert_true(log_wants(LOG_LEVEL_WARNING));
    assert_false(log_wants(LOG_LEVEL_NOTICE));
    log_event(LOG_LEVEL_INFO, "quiet", "%s", "x");
    log_begin(&line, LOG_LEVEL_DEBUG, "quiet");
    log_string(&line, "a", "b");
    log_number(&line, "n", 1);
    log_bool(&line, "b", true);
    log_end(&line);
    log_event(LOG_LEVEL_WARNING, "loud", "%s", "x");
    assert_string_equal(content_of(path), "time=" STAMP " level=warning event=loud message=x\n");
}

/* The last byte of a value must not take the end of the line, or of its JSON, with it. */
static void a_long_line_is_cut_but_whole(void **state)
{
    static char value[9000];

    (void)state;
    for (unsigned escaped = 0; escaped < 2; escaped++) {
        json_object *read;
        struct log_line line;

        memset(value, escaped ? '\1' : 'x', sizeof value - 1);
        assert_int_equal(remove_logs(NULL), 0);
        assert_true(log_open(path, LOG_FORMAT_JSON, LOG_LEVEL_INFO));
        log_begin(&line, LOG_LEVEL_INFO, "long");
        log_string(&line, "value", value);
        for (int i = 0; i < 100; i++)
            log_number(&line, "number", 1234567890);
        log_string(&line, "more", value);
        log_bool(&line, "last", true);
        log_end(&line);
        read = json_tokener_parse(content_of(path));
        assert_non_null(read);
        assert_true(strlen(content) <= sizeof line.bytes);
        assert_true(strlen(content) > 3000);
        assert_ptr_equal(strchr(content, '\n'), content + strlen(content) - 1);
        json_object_put(read);
    }
}

static void a_number_is_never_cut_in_two(void **state)
{
    static char value[3700];
    struct log_line line;

    (void)state;
    memset(value, 'x', sizeof value - 1);
    assert_true(log_open(path, LOG_FORMAT_LOGFMT, LOG_LEVEL_INFO));
    log_begin(&line, LOG_LEVEL_INFO, "long");
    log_string(&line, "value", value);
    for (int i = 0; i < 20; i++)
        log_number(&line, "n", 123456);
    log_end(&line);
    for (const char *at = strstr(content_of(path), " n="); at; at = strstr(at + 1, " n="))
        assert_memory_equal(at, " n=123456", 9);
    assert_int_equal(content[strlen(content) - 1], '\n');
}

/* sd-daemon(3): a priority in front; journald knows the time itself. */
static void under_journald_a_line_begins_with_its_priority(void **state)
{
    struct stat status;
    char stream[64];
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &status), 0);
    (void)close(fd);
    (void)snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)status.st_dev,
                   (uintmax_t)status.st_ino);
    assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
    assert_true(log_open(path, LOG_FORMAT_LOGFMT, LOG_LEVEL_DEBUG));
    log_event(LOG_LEVEL_ERROR, "a", "%s", "x");
    log_event(LOG_LEVEL_DEBUG, "b", "%s", "y z");
    assert_true(log_open(path, LOG_FORMAT_JSON, LOG_LEVEL_DEBUG));
    log_event(LOG_LEVEL_NOTICE, "c", "%s", "z");
    assert_string_equal(content_of(path), "<3>event=a message=x\n<7>event=b message=\"y z\"\n"
                                          "<5>{\"event\":\"c\",\"message\":\"z\"}\n");
}

static void another_stream_than_journalds_gets_the_time(void **state)
{
    (void)state;
    assert_int_equal(setenv("JOURNAL_STREAM", "1:2", 1), 0);
    assert_true(log_open(path, LOG_FORMAT_LOGFMT, LOG_LEVEL_INFO));
    log_event(LOG_LEVEL_INFO, "a", "%s", "x");
    assert_string_equal(content_of(path), "time=" STAMP " level=info event=a message=x\n");
}

static void a_rotated_file_is_opened_again(void **state)
{
    (void)state;
    assert_true(log_open(path, LOG_FORMAT_LOGFMT, LOG_LEVEL_INFO));
    log_event(LOG_LEVEL_INFO, "before", "%s", "x");
    assert_int_equal(rename(path, moved), 0);
    log_event(LOG_LEVEL_INFO, "between", "%s", "x");
    log_reopen();
    log_event(LOG_LEVEL_INFO, "after", "%s", "x");
    assert_non_null(strstr(content_of(moved), "event=before"));
    assert_non_null(strstr(content, "event=between"));
    assert_null(strstr(content, "event=after"));
    assert_non_null(strstr(content_of(path), "event=after"));
}

static void what_cannot_be_opened_leaves_the_old_target(void **state)
{
    static char long_path[5000];

    (void)state;
    assert_true(log_open(path, LOG_FORMAT_LOGFMT, LOG_LEVEL_INFO));
    assert_false(log_open("/nowhere/at/all", LOG_FORMAT_JSON, LOG_LEVEL_DEBUG));
    assert_int_equal(errno, ENOENT);
    memset(long_path, 'x', sizeof long_path - 1);
    assert_false(log_open(long_path, LOG_FORMAT_JSON, LOG_LEVEL_DEBUG));
    assert_int_equal(errno, ENAMETOOLONG);
    log_event(LOG_LEVEL_INFO, "still", "%s", "here");
    assert_non_null(strstr(content_of(path), "event=still message=here\n"));
}

/* The descriptor of this process that leads to the file at path. */
static int number_of_target(void)
{
    struct stat by_number;
    struct stat by_path;

    assert_int_equal(stat(path, &by_path), 0);
    for (int number = STDERR_FILENO + 1; number < 100; number++)
        if (fstat(number, &by_number) == 0 && by_number.st_ino == by_path.st_ino &&
            by_number.st_dev == by_path.st_dev)
            return number;
    return -1;
}

/* A thread may be about to write to the descriptor while the file is opened again. Were its number
 * let go, the line could reach a client's connection that has it next (N6). */
static void n6_the_descriptor_is_never_let_go(void **state)
{
    int number;

    (void)state;
    assert_true(log_open(path, LOG_FORMAT_LOGFMT, LOG_LEVEL_INFO));
    number = number_of_target();
    assert_true(number > STDERR_FILENO);
    assert_int_equal(rename(path, moved), 0);
    log_reopen();
    assert_int_equal(number_of_target(), number);
    assert_true(fcntl(number, F_GETFD) & FD_CLOEXEC);
    assert_true(log_open("", LOG_FORMAT_LOGFMT, LOG_LEVEL_INFO));
    assert_int_equal(number_of_target(), -1);
    assert_true(fcntl(number, F_GETFD) >= 0);
}

int main(void)
{
#define WITH_FILE(test) cmocka_unit_test_teardown(test, remove_logs)
    const struct CMUnitTest tests[] = {
        WITH_FILE(logfmt_quotes_only_what_needs_it),
        WITH_FILE(json_is_one_object_in_one_line),
        WITH_FILE(what_is_not_wanted_costs_no_line),
        WITH_FILE(a_long_line_is_cut_but_whole),
        WITH_FILE(a_number_is_never_cut_in_two),
        WITH_FILE(under_journald_a_line_begins_with_its_priority),
        WITH_FILE(another_stream_than_journalds_gets_the_time),
        WITH_FILE(a_rotated_file_is_opened_again),
        WITH_FILE(what_cannot_be_opened_leaves_the_old_target),
        WITH_FILE(n6_the_descriptor_is_never_let_go),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
