/*
 * options_file.h - the lexer of configuration files: lines in, sections and "key = value" out.
 *
 * The dialect is that of php-fpm and systemd: [section] or [section NAME]; key = value; comments
 * begin with ; or # and have a line of their own; a value may stand in double quotes, in which \"
 * and
 * \\ are known; a line is never continued. It knows no option and opens no file but in
 * options_file_read. Why not a library: docs/why/ini-lexer.md.
 *
 * Threads: one at a time per reader. No allocation.
 */
#ifndef WORKER_OPTIONS_FILE_H
#define WORKER_OPTIONS_FILE_H

#include "base/check.h"

#include <stdbool.h>
#include <stddef.h>

#define OPTIONS_FILE_MAX ((size_t)1 << 20) /* bytes of one file */
#define OPTIONS_LINE_MAX 4096U             /* bytes of one line */

enum options_line_kind {
    OPTIONS_LINE_SECTION,     /* section and name */
    OPTIONS_LINE_VALUE,       /* key and value */
    OPTIONS_LINE_BAD,         /* problem; key, if one stands before = */
    OPTIONS_LINE_BAD_SECTION, /* problem; what follows belongs to no section */
    OPTIONS_LINE_NO_VALUE,    /* problem; key, the word that it begins with, may also be a secret */
};

/* One line that is neither blank nor a comment. Strings are good until the next line is read; they
 * hold no control characters, and section, name and key are plain ASCII. */
struct options_line {
    enum options_line_kind kind;
    unsigned number; /* from 1 */
    const char *section;
    const char *name; /* "" when the header has none */
    const char *key;
    const char *value;
    const char *problem; /* a sentence that never quotes the line: it may hold a secret */
};

struct options_file {
    const char *at;
    const char *end;
    unsigned number;
    char buffer[OPTIONS_LINE_MAX + 1];
};

/* The bytes stay the caller's and must outlive the reader. */
void options_file_init(struct options_file *file, const char *bytes, size_t length);
/* False at the end. */
MUST_CHECK bool options_file_next(struct options_file *file, struct options_line *ret_line);

/* What makes a value unusable wherever it comes from (a NUL, a control character); NULL = nothing.
 */
const char *options_value_problem(const char *bytes, size_t length);

struct options_bytes {
    size_t length;
    bool world_readable;
};
/* Read all of a regular file of at most size bytes into buffer[size]. On failure false and a
 * sentence in *ret_problem, good until the next call. */
MUST_CHECK bool options_file_read(const char *path, char *buffer, size_t size,
                                  struct options_bytes *ret_bytes, const char **ret_problem);

#endif
