/* reload.c - what is tested before a master lets itself be followed; see reload.h. */
#include "worker/reload.h"

#include "shared/segment.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* To the test: the options that only a restart changes, as options_fixed writes them. */
#define IN_FORCE_VARIABLE "PENSTOCK_RELOAD_OF"
#define FIXED_BYTES_MAX 65536

pid_t reload_test(const struct reload_program *program, const struct options *in_force)
{
    struct text fixed;
    sigset_t none;
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    text_init(&fixed, FIXED_BYTES_MAX);
    options_fixed(in_force, &fixed);
    (void)setenv(IN_FORCE_VARIABLE, text_string(&fixed), 1);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (program->config_path)
        (void)execl(program->path, program->name, "-t", "-c", program->config_path, (char *)NULL);
    else
        (void)execl(program->path, program->name, "-t", (char *)NULL);
    _exit(127);
}

/* The line of lines that begins with the first length bytes of key; NULL = none. */
static const char *find_line(const char *lines, const char *key, size_t length)
{
    while (*lines && strncmp(lines, key, length) != 0) {
        lines += strcspn(lines, "\n");
        lines += *lines == '\n';
    }
    return *lines ? lines : NULL;
}

/* What the program in force does not know, it does not mind. */
static bool fixed_are_the_same(const char *wanted, const char *in_force, struct text *why)
{
    static const char equals[] = " = ";
    bool same = true;

    for (const char *line = wanted; *line; line += strcspn(line, "\n") + 1) {
        const char *at = strstr(line, equals);
        size_t key = at ? (size_t)(at - line) + strlen(equals) : 0;
        const char *other = at ? find_line(in_force, line, key) : NULL;
        size_t length = strcspn(line, "\n");

        if (!other || (strcspn(other, "\n") == length && strncmp(other, line, length) == 0))
            continue;
        text_append_string(why, "penstockd: ");
        text_append(why, line, length);
        text_append_string(why, ": only a restart changes this; in force is ");
        text_append(why, other + key, strcspn(other, "\n") - key);
        text_append_char(why, '\n');
        same = false;
    }
    return same;
}

/* A segment of another layout, or none under its name: better found out before than after. */
static bool segment_is_usable(const struct options *options, struct text *why)
{
    const struct segment_place place = {
        .gate = options->image.gate,
        .runtime_directory = options->penstock.runtime_directory,
    };
    struct segment segment;
    struct text reason;
    bool usable;

    text_init(&reason, 800);
    usable = segment_attach(&segment, &place, &reason);
    if (usable)
        segment_detach(&segment);
    else
        text_printf(why, "penstockd: %s\n", text_string(&reason));
    text_release(&reason);
    return usable;
}

bool reload_may_follow(const struct options *options, struct text *why)
{
    const char *in_force = getenv(IN_FORCE_VARIABLE);
    struct text fixed;
    bool may;

    if (!in_force)
        return true;
    text_init(&fixed, FIXED_BYTES_MAX);
    options_fixed(options, &fixed);
    may = fixed_are_the_same(text_string(&fixed), in_force, why) && segment_is_usable(options, why);
    text_release(&fixed);
    return may;
}
