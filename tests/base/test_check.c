/* test_check.c - a broken rule of our own ends the program with one line that tells which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Run broken in a process of its own; what it wrote to standard error. It must have aborted. */
static void said_by(void (*broken)(void), char *said, size_t size)
{
    const struct rlimit no_core = {.rlim_cur = 0, .rlim_max = 0};
    size_t length = 0;
    ssize_t got;
    int status;
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)signal(SIGABRT, SIG_DFL); /* cmocka and sanitizers have their own */
        (void)dup2(ends[1], STDERR_FILENO);
        broken();
        _exit(EXIT_SUCCESS);
    }
    (void)close(ends[1]);
    while ((got = read(ends[0], said + length, size - 1 - length)) > 0)
        length += (size_t)got;
    said[length] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void break_contract(void)
{
    const int *nothing = NULL;

    REQUIRE(nothing != NULL);
}

static void break_invariant(void)
{
    INVARIANT(1 + 1 == 3);
}

static void break_unreachable(void)
{
    UNREACHABLE();
}

static void break_in_line_zero(void)
{
    check_failed("a.c", 0, "kind", "text");
}

static void break_in_last_line(void)
{
    check_failed("a.c", 2147483647, "kind", "text");
}

static void a_broken_rule_is_told_and_aborts(void **state)
{
    char said[512];

    (void)state;
    said_by(break_contract, said, sizeof said);
    assert_non_null(strstr(said, "test_check.c:"));
    assert_non_null(strstr(said, ": caller broke the contract: nothing != NULL\n"));
    said_by(break_invariant, said, sizeof said);
    assert_non_null(strstr(said, ": invariant does not hold: 1 + 1 == 3\n"));
    said_by(break_unreachable, said, sizeof said);
    assert_non_null(strstr(said, ": unreachable: \n"));
}

static void the_line_is_told_whatever_its_number(void **state)
{
    char said[512];

    (void)state;
    said_by(break_in_line_zero, said, sizeof said);
    assert_string_equal(said, "a.c:0: kind: text\n");
    said_by(break_in_last_line, said, sizeof said);
    assert_string_equal(said, "a.c:2147483647: kind: text\n");
}

/* Asked exactly once: conditions may have effects. */
static void what_holds_costs_nothing(void **state)
{
    int asked = 0;

    (void)state;
    REQUIRE(++asked == 1);
    INVARIANT(++asked == 2);
    assert_int_equal(asked, 2);
}

static void length_counts_entries(void **state)
{
    const char bytes[7] = "";
    const int64_t numbers[3] = {0};

    (void)state;
    (void)bytes;
    (void)numbers;
    assert_int_equal(LENGTH(bytes), 7);
    assert_int_equal(LENGTH(numbers), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_broken_rule_is_told_and_aborts),
        cmocka_unit_test(the_line_is_told_whatever_its_number),
        cmocka_unit_test(what_holds_costs_nothing),
        cmocka_unit_test(length_counts_entries),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
