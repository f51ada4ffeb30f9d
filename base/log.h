/*
 * log.h - one event is one line, and one line is one write.
 *
 * Lines go to standard error or to a file, as logfmt (key=value) or JSON; under journald (the
 * descriptor named in $JOURNAL_STREAM) each begins with its <priority> and carries no time. Keys
 * keep the order in which they were given. No layer but worker/ logs. Never give it a key, a
 * prompt, a body or a URL's query (N6).
 *
 * Threads: every function may be called by any thread; log_open and log_reopen by one at a time.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/check.h"

#include <stdbool.h>
#include <stdint.h>

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_NOTICE,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG
};
enum log_format { LOG_FORMAT_LOGFMT, LOG_FORMAT_JSON };

/* Where lines go from now on: path NULL or "" is standard error. False (errno set) when the file
 * cannot be opened; the old target stays. */
MUST_CHECK bool log_open(const char *path, enum log_format format, enum log_level up_to);
/* Open the same path again (after logrotate). */
void log_reopen(void);
bool log_wants(enum log_level level);

/* One event without further keys; the message is a sentence. */
void log_event(enum log_level level, const char *event, const char *format, ...) PRINTF_LIKE(3, 4);

/* A line under construction; lives on the caller's stack, cut at its size. */
struct log_line {
    enum log_level level;
    bool json;
    bool open;      /* false: the level is not wanted, the setters do nothing */
    unsigned first; /* where the first pair begins */
    unsigned length;
    char bytes[3800];
};

void log_begin(struct log_line *line, enum log_level level, const char *event);
void log_string(struct log_line *line, const char *key, const char *value);
void log_number(struct log_line *line, const char *key, int64_t value);
void log_bool(struct log_line *line, const char *key, bool value);
void log_end(struct log_line *line);

#endif
