/* options_file.c - the lexer of configuration files; see options_file.h. */
#include "worker/options_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static char *skip_blanks(char *at)
{
    while (is_blank(*at))
        at++;
    return at;
}

/* Cut blanks off the end of start..end. */
static void trim_end(const char *start, char *end)
{
    while (end > start && is_blank(end[-1]))
        end--;
    *end = '\0';
}

static const char *non_ascii_problem(const char *word)
{
    for (; *word; word++)
        if ((unsigned char)*word >= 0x80)
            return "a section or key has a character that is not plain ASCII (a pasted no-break "
                   "space?)";
    return NULL;
}

const char *options_value_problem(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)bytes[i];

        if (c == '\0')
            return "the line has a NUL byte (is this a text file in UTF-8?)";
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return "the line has a control character";
    }
    return NULL;
}

void options_file_init(struct options_file *file, const char *bytes, size_t length)
{
    static const char byte_order_mark[] = "\xef\xbb\xbf";

    file->at = bytes;
    file->end = bytes + length;
    file->number = 0;
    if (length >= 3 && memcmp(bytes, byte_order_mark, 3) == 0)
        file->at += 3;
}

/* Take the quotes and escapes off a value in place. */
static const char *unquote(char *value)
{
    char *to = value;
    char *from = value + 1;

    for (; *from && *from != '"'; from++) {
        if (*from == '\\') {
            from++;
            if (*from != '"' && *from != '\\')
                return "in quotes a backslash stands only before \" or another backslash";
        }
        *to++ = *from;
    }
    if (*from != '"')
        return "the closing quote is missing";
    if (*skip_blanks(from + 1))
        return "something follows the closing quote; a comment must have a line of its own";
    *to = '\0';
    return NULL;
}

static const char *read_value(char *text, struct options_line *line)
{
    static const char key_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    char *equals = strchr(text, '=');
    char *value;
    size_t length;
    const char *problem;

    if (!equals) {
        line->kind = OPTIONS_LINE_NO_VALUE;
        line->key = text;
        text[strspn(text, key_letters)] = '\0';
        return "this is neither [section], key = value nor a comment; write one of them, a comment "
               "with ; or # before it";
    }
    trim_end(text, equals);
    if (*text == '\0')
        return "the key before = is missing; write key = value";
    problem = non_ascii_problem(text);
    if (problem)
        return problem;
    value = skip_blanks(equals + 1);
    length = strlen(value);
    trim_end(value, value + length);
    line->kind = OPTIONS_LINE_VALUE;
    line->key = text;
    line->value = value;
    if (*value == '"')
        return unquote(value);
    length = strlen(value);
    if (length > 0 && value[length - 1] == '\\')
        return "a line cannot be continued on the next (a value that ends in a backslash must "
               "stand in quotes, with two of them)";
    return NULL;
}

static const char *read_section(char *text, struct options_line *line)
{
    char *section = skip_blanks(text + 1);
    char *close = strchr(section, ']');
    char *name;

    if (!close)
        return "the closing ] of the section is missing; write [section] or [section NAME]";
    if (*skip_blanks(close + 1))
        return "something follows the section's ]; a comment must have a line of its own";
    trim_end(section, close);
    if (*section == '\0')
        return "there is no section in the [ ]; write [section] or [section NAME]";
    name = section + strcspn(section, " \t");
    if (*name) {
        *name = '\0';
        name = skip_blanks(name + 1);
    }
    line->kind = OPTIONS_LINE_SECTION;
    line->section = section;
    line->name = name;
    return non_ascii_problem(section) ? non_ascii_problem(section) : non_ascii_problem(name);
}

/* Copy the line at file->at into the buffer and step over it. */
static const char *take_line(struct options_file *file)
{
    size_t left = (size_t)(file->end - file->at);
    const char *start = file->at;
    const char *feed = memchr(start, '\n', left);
    size_t length = feed ? (size_t)(feed - start) : left;

    file->number++;
    file->at = feed ? feed + 1 : file->end;
    if (length > 0 && start[length - 1] == '\r')
        length--;
    file->buffer[0] = '\0';
    if (length > OPTIONS_LINE_MAX)
        return "the line is longer than 4096 bytes";
    memcpy(file->buffer, start, length);
    file->buffer[length] = '\0';
    return options_value_problem(start, length);
}

bool options_file_next(struct options_file *file, struct options_line *ret_line)
{
    while (file->at < file->end) {
        struct options_line line = {
            .kind = OPTIONS_LINE_BAD, .section = "", .name = "", .key = "", .value = ""};
        const char *problem = take_line(file);
        char *text = skip_blanks(file->buffer);

        if (!problem && (*text == '\0' || *text == ';' || *text == '#'))
            continue;
        if (!problem)
            problem = *text == '[' ? read_section(text, &line) : read_value(text, &line);
        if (problem && *text == '[')
            line.kind = OPTIONS_LINE_BAD_SECTION;
        else if (problem && line.kind != OPTIONS_LINE_NO_VALUE)
            line.kind = OPTIONS_LINE_BAD;
        line.problem = problem;
        line.number = file->number;
        *ret_line = line;
        return true;
    }
    return false;
}

static const char *read_open_file(int fd, char *buffer, size_t size, struct options_bytes *ret)
{
    struct stat facts;
    size_t length = 0;
    char more;

    if (fstat(fd, &facts) < 0)
        return strerror(errno);
    if (S_ISDIR(facts.st_mode))
        return "it is a directory, not a file";
    if (!S_ISREG(facts.st_mode))
        return "it is not a regular file";
    for (;;) {
        bool full = length == size;
        ssize_t got = full ? read(fd, &more, 1) : read(fd, buffer + length, size - length);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return strerror(errno);
        if (got == 0)
            break;
        if (full)
            return "it is larger than a file of its kind can be";
        length += (size_t)got;
    }
    ret->length = length;
    ret->world_readable = (facts.st_mode & S_IROTH) != 0;
    return NULL;
}

bool options_file_read(const char *path, char *buffer, size_t size, struct options_bytes *ret_bytes,
                       const char **ret_problem)
{
    /* O_NONBLOCK: a named pipe must not hold the start up. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const char *problem;

    if (fd < 0) {
        *ret_problem = strerror(errno);
        return false;
    }
    problem = read_open_file(fd, buffer, size, ret_bytes);
    (void)close(fd);
    if (problem)
        *ret_problem = problem;
    return !problem;
}
