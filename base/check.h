/*
 * check.h - assertions that stay in the shipped program.
 *
 * REQUIRE states a caller's duty, INVARIANT a truth of our own, UNREACHABLE a branch that cannot be
 * taken. Nothing that comes from outside (a client, an upstream, a file) may ever reach one of
 * them: input is judged with ordinary code and answered with an error.
 */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

/* Write one line "file:line: kind: text" to standard error and abort. Async-signal-safe. */
_Noreturn void check_failed(const char *file, int line, const char *kind, const char *text);

#define REQUIRE(truth)                                                                             \
    ((truth) ? (void)0 : check_failed(__FILE__, __LINE__, "caller broke the contract", #truth))
#define INVARIANT(truth)                                                                           \
    ((truth) ? (void)0 : check_failed(__FILE__, __LINE__, "invariant does not hold", #truth))
#define UNREACHABLE() check_failed(__FILE__, __LINE__, "unreachable", "")

/* The result of the function must be looked at. */
#define MUST_CHECK __attribute__((warn_unused_result))
/* Of a large variable that is written before it is read: it is not made zero as all others are. */
#define WRITTEN_FIRST __attribute__((uninitialized))
#define PRINTF_LIKE(at, first) __attribute__((format(printf, at, first)))

/* Number of entries of an array (not of a pointer). */
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#endif
