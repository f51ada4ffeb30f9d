/* main.c - penstockd: arguments, configuration, then the master. See penstockd(8). */
#include "base/log.h"
#include "worker/master.h"
#include "worker/options.h"
#include "worker/reload.h"
#include "worker/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_CONFIG "/etc/penstock/penstock.conf"
#define REPORT_BYTES_MAX (256U << 10)

static const char usage[] =
    "usage: penstockd [-c FILE] [-t | -T] [-F]\n"
    "  -c FILE  configuration (default: " DEFAULT_CONFIG ", when it exists)\n"
    "  -t       test the configuration: report all errors, exit 0 or 78\n"
    "  -T       test it and print every option with its value and where it comes from\n"
    "  -F       stay in the foreground (it always does; accepted for php-fpm habits)\n"
    "  -v       print the version\n";

enum action { ACTION_RUN, ACTION_TEST, ACTION_DUMP };

/* Words for our own build, not for people: the example file and the manual's option lists. */
static int print_table(const char *word)
{
    if (strcmp(word, "--print-example") == 0)
        options_print_example(stdout);
    else if (strcmp(word, "--print-manual") == 0)
        options_print_manual(stdout);
    else
        return EXIT_FAILURE;
    return EXIT_SUCCESS;
}

static struct options *load(const char *path)
{
    struct options *options = NULL;
    struct text report;
    bool good;

    text_init(&report, REPORT_BYTES_MAX);
    good = options_load(path, &report, &options);
    (void)fputs(text_string(&report), stderr);
    text_release(&report);
    if (!good)
        exit(EXIT_BAD_CONFIGURATION);
    return options;
}

static const char *config_path(const char *given)
{
    if (given)
        return given;
    return access(DEFAULT_CONFIG, F_OK) == 0 ? DEFAULT_CONFIG : NULL;
}

static int run(const char *path, char *const *argv)
{
    struct options *options = load(path);
    const struct master_arguments arguments = {.config_path = path, .argv = argv};

    if (!log_open(options->penstock.log_file, (enum log_format)options->penstock.log_format,
                  (enum log_level)options->penstock.log_level)) {
        (void)fprintf(stderr, "penstockd: cannot open penstock.log_file\n");
        return EXIT_FAILURE;
    }
    return master_main(&arguments, options);
}

static void test(const struct options *options)
{
    struct text why;
    bool good;

    text_init(&why, REPORT_BYTES_MAX);
    good = reload_may_follow(options, &why);
    (void)fputs(good ? "penstockd: configuration is good\n" : text_string(&why), stderr);
    text_release(&why);
    if (!good)
        exit(EXIT_BAD_CONFIGURATION);
}

int main(int argc, char **argv)
{
    enum action action = ACTION_RUN;
    const char *given = NULL;
    struct options *options;
    int letter;

    if (argc == 2 && strncmp(argv[1], "--print-", 8) == 0)
        return print_table(argv[1]);
    while ((letter = getopt(argc, argv, "c:tTFvh")) != -1) {
        switch (letter) {
        case 'c':
            given = optarg;
            break;
        case 't':
            action = ACTION_TEST;
            break;
        case 'T':
            action = ACTION_DUMP;
            break;
        case 'F':
            break;
        case 'v':
            (void)puts("penstockd " PENSTOCK_VERSION);
            return EXIT_SUCCESS;
        case 'h':
            (void)fputs(usage, stdout);
            return EXIT_SUCCESS;
        default:
            (void)fputs(usage, stderr);
            return 2;
        }
    }
    if (optind < argc) {
        (void)fputs(usage, stderr);
        return 2;
    }
    if (action == ACTION_RUN)
        return run(config_path(given), argv);
    options = load(config_path(given));
    if (action == ACTION_DUMP)
        options_dump(options, stdout);
    else
        test(options);
    options_free(options);
    return EXIT_SUCCESS;
}
