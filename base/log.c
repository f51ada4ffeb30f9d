/* log.c - structured lines to standard error or a file; see log.h. */
#include "base/log.h"

#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    atomic_int fd;
    _Atomic enum log_format format;
    _Atomic enum log_level up_to;
    atomic_bool journald;
    char path[PATH_MAX];
} target = {.fd = STDERR_FILENO, .up_to = LOG_LEVEL_INFO};

static const struct {
    const char *name;
    int priority; /* syslog(3) */
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", 3},   [LOG_LEVEL_WARNING] = {"warning", 4},
    [LOG_LEVEL_NOTICE] = {"notice", 5}, [LOG_LEVEL_INFO] = {"info", 6},
    [LOG_LEVEL_DEBUG] = {"debug", 7},
};

/* sd-journal tells which descriptor is its own as "device:inode" in $JOURNAL_STREAM. */
static bool is_journald(int fd)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat status;
    char own[64];

    if (!stream || fstat(fd, &status) != 0)
        return false;
    (void)snprintf(own, sizeof own, "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
    return strcmp(stream, own) == 0;
}

static bool open_target(const char *path)
{
    int fd = STDERR_FILENO;
    int old;

    if (*path) {
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
        if (fd < 0)
            return false;
    }
    atomic_store(&target.journald, is_journald(fd));
    old = atomic_load(&target.fd);
    /* A thread may be about to write to the old descriptor: its number is never let go, or the line
     * would reach whatever is opened next, a client's connection maybe. */
    if (old > STDERR_FILENO && dup3(fd, old, O_CLOEXEC) == old) {
        if (fd > STDERR_FILENO)
            (void)close(fd);
        return true;
    }
    atomic_store(&target.fd, fd);
    return true;
}

bool log_open(const char *path, enum log_format format, enum log_level up_to)
{
    if (!path)
        path = "";
    if (strlen(path) >= sizeof target.path) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (!open_target(path))
        return false;
    (void)text_copy(target.path, sizeof target.path, path);
    atomic_store(&target.format, format);
    atomic_store(&target.up_to, up_to);
    return true;
}

void log_reopen(void)
{
    if (!open_target(target.path))
        log_event(LOG_LEVEL_ERROR, "log_reopen_failed", "%s: %s", target.path, strerror(errno));
}

bool log_wants(enum log_level level)
{
    return level <= atomic_load_explicit(&target.up_to, memory_order_relaxed);
}

static size_t room_of(const struct log_line *line)
{
    return sizeof line->bytes - 2 - line->length; /* for "}\n" */
}

static void put(struct log_line *line, const char *bytes, size_t length)
{
    if (length > room_of(line))
        length = room_of(line);
    memcpy(line->bytes + line->length, bytes, length);
    line->length += (unsigned)length;
}

static void put_char(struct log_line *line, char c)
{
    line->bytes[line->length++] = c;
}

/* False: there is no room for the key and value_length bytes; a part of a pair would be no line that
 * programs can read, and a part of a number a lie. */
static bool put_key(struct log_line *line, const char *key, size_t value_length)
{
    size_t length = strlen(key);

    if (length + 4 + value_length > room_of(line))
        return false;
    if (line->length > line->first)
        put_char(line, line->json ? ',' : ' ');
    if (line->json)
        put_char(line, '"');
    put(line, key, length);
    if (line->json)
        put_char(line, '"');
    put_char(line, line->json ? ':' : '=');
    return true;
}

/* logfmt needs quotes around what has blanks, quotes, "=" or control bytes in it, or is empty. Returns
 * the value's length when it needs none; else 0. */
static size_t plain_length(const char *value)
{
    const char *at = value;

    while (*at > ' ' && *at != '"' && *at != '=' && *at != '\\' && *at != 0x7f)
        at++;
    return *at == '\0' ? (size_t)(at - value) : 0;
}

void log_begin(struct log_line *line, enum log_level level, const char *event)
{
    char stamp[CLOCK_ISO_SIZE];
    char priority[8];

    line->level = level;
    line->open = log_wants(level);
    line->length = 0;
    if (!line->open)
        return;
    line->json = atomic_load(&target.format) == LOG_FORMAT_JSON;
    if (atomic_load(&target.journald)) {
        (void)snprintf(priority, sizeof priority, "<%d>", levels[level].priority);
        put(line, priority, strlen(priority));
    }
    if (line->json)
        put_char(line, '{');
    line->first = line->length;
    if (!atomic_load(&target.journald)) {
        clock_iso(clock_wall_ms(), stamp);
        log_string(line, "time", stamp);
        log_string(line, "level", levels[level].name);
    }
    log_string(line, "event", event);
}

/* The value, or as much of its front as fits beside its key. */
static void put_quoted(struct log_line *line, const char *key, const char *value)
{
    size_t length = strlen(value);
    struct text quoted;

    text_init(&quoted, sizeof line->bytes);
    text_append_json(&quoted, value, length);
    while (length > 0 && strlen(key) + 4 + quoted.length > room_of(line)) {
        length -= length / 8 + 1;
        text_clear(&quoted);
        text_append_json(&quoted, value, length);
    }
    if (put_key(line, key, quoted.length))
        put(line, text_string(&quoted), quoted.length);
    text_release(&quoted);
}

void log_string(struct log_line *line, const char *key, const char *value)
{
    size_t plain;

    if (!line->open)
        return;
    plain = line->json ? 0 : plain_length(value);
    if (plain == 0)
        put_quoted(line, key, value);
    else if (put_key(line, key, 1))
        put(line, value, plain);
}

static void put_pair(struct log_line *line, const char *key, const char *value)
{
    size_t length = strlen(value);

    if (line->open && put_key(line, key, length))
        put(line, value, length);
}

void log_number(struct log_line *line, const char *key, int64_t value)
{
    char digits[TEXT_NUMBER_SIZE];

    put_pair(line, key, text_number(value, digits));
}

void log_bool(struct log_line *line, const char *key, bool value)
{
    put_pair(line, key, value ? "true" : "false");
}

void log_end(struct log_line *line)
{
    ssize_t written;

    if (!line->open)
        return;
    if (line->json)
        line->bytes[line->length++] = '}';
    line->bytes[line->length++] = '\n';
    written = write(atomic_load(&target.fd), line->bytes, line->length);
    (void)written; /* a full disk must cost no request */
    line->open = false;
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    struct log_line line;
    char message[1024];
    va_list list;

    log_begin(&line, level, event);
    if (!line.open)
        return;
    va_start(list, format);
    (void)vsnprintf(message, sizeof message, format, list);
    va_end(list);
    log_string(&line, "message", message);
    log_end(&line);
}
