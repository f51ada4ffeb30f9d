/*
 * control.c - penstockctl: asks the monitor over the status socket and prints what it says; advice
 * about hedging and limits it reads from the ledger itself.
 *
 * Exit status: 0 done, 1 not reachable or refused (with a sentence what to do), 2 wrong usage.
 */
#include "base/clock.h"
#include "base/parse.h"
#include "base/text.h"
#include "shared/layout.h"
#include "worker/control_ask.h"
#include "worker/diagnose_report.h"
#include "worker/hedge_advice.h"
#include "worker/options.h"
#include "worker/try_fallback.h"
#include "worker/version.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_USAGE 2
#define CONFIGURATION_PATH "/etc/penstock/penstock.conf"
#define REPORT_BYTES_MAX (80U << 20)
#define RELOAD_TIMEOUT_NS (15 * NS_PER_S)
#define RELOAD_LOOK_NS (100 * NS_PER_MS)
#define URI_SIZE 200
#define LAST_MS INT64_C(600000)
#define LAST_MS_MAX (30 * INT64_C(86400000))
#define NAME_LENGTH_MAX 100U /* of an argument in a URI: there is room for more */

struct control {
    const char *configuration;     /* -c, NULL = not given */
    struct control_socket monitor; /* its address: -s, or kept by options */
    struct options *options;
    bool json;
    int64_t last_ms;   /* --last */
    const char *model; /* --model, NULL = not given */
    /* The command and its argument, NULL = none; how many words there were. */
    const char *name, *argument;
    int word_count;
};

struct command {
    const char *name;
    const char *argument; /* what it takes, NULL = nothing; it can be left out when in [] */
    const char *uri;
    const char *help;
    int (*run)(struct control *control, const struct command *command);
};

static int run_page(struct control *control, const struct command *command);
static int run_metrics(struct control *control, const struct command *command);
static int run_limit(struct control *control, const struct command *command);
static int run_reload(struct control *control, const struct command *command);
static int run_call(struct control *control, const struct command *command);
static int run_drain(struct control *control, const struct command *command);
static int run_hedge_advice(struct control *control, const struct command *command);
static int run_diagnose(struct control *control, const struct command *command);
static int run_try_fallback(struct control *control, const struct command *command);

static const struct command commands[] = {
    {"status", NULL, "/penstock/status?full", "everything: slots, queue, processes, counters",
     run_page},
    {"queue", NULL, "/penstock/status?full&queue", "image calls that wait, in their order",
     run_page},
    {"slots", NULL, "/penstock/status?full&slots", "image calls that hold a slot", run_page},
    {"call", "ID", "/penstock/calls/", "one call and its attempts, from the ledger", run_call},
    {"sources", NULL, "/penstock/status?full&sources",
     "upstream sources: state, health, exchanges in flight", run_page},
    {"flows", NULL, "/penstock/status?full&flows",
     "flow control: limits, use, who waits, what was learned", run_page},
    {"drain", "SOURCE", "/penstock/control?drain=",
     "let no new call go to the source, until it is undrained", run_drain},
    {"undrain", "SOURCE",
     "/penstock/control?undrain=", "let calls go there again; also closes its breaker", run_drain},
    {"hedge-advice", "[SCOPE]", NULL, "thresholds for hedging, by the latencies in the ledger",
     run_hedge_advice},
    {"diagnose", NULL, NULL,
     "which limits upstreams refused for lately, and what to do (--last TIME)", run_diagnose},
    {"try-fallback", "SCOPE", NULL, "one small chat call to each entry of its fallback list",
     run_try_fallback},
    {"limit", "N", "/penstock/control?limit=",
     "let N image calls run at a time (0 = no limit) until the next reload", run_limit},
    {"reload", NULL, "/penstock/control?reload",
     "load the configuration anew and wait until it works", run_reload},
    {"metrics", NULL, "/penstock/metrics", "what Prometheus reads", run_metrics},
    {"ping", NULL, "/penstock/ping", "prints pong", run_metrics},
};

static int usage(FILE *out, int status)
{
    (void)fputs("usage: penstockctl [-c FILE] [-s SOCKET] [--json] COMMAND\n", out);
    for (size_t i = 0; i < LENGTH(commands); i++)
        (void)fprintf(out, "  %s %-*s %s\n", commands[i].name, 20 - (int)strlen(commands[i].name),
                      commands[i].argument ? commands[i].argument : "", commands[i].help);
    (void)fputs("  -c FILE     configuration that names the status socket; " CONFIGURATION_PATH "\n"
                "  -s SOCKET   the status socket: unix:PATH or ADDRESS:PORT\n"
                "  --json      status, queue, slots, sources, flows, call, hedge-advice and "
                "diagnose as JSON\n"
                "  --model M   the model that try-fallback asks other scopes for\n"
                "  --last TIME what diagnose looks at: 30s, 10m, 2h; 10m\n"
                "  --version   print the version\n",
                out);
    return status;
}

static int print_answer(const struct control *control, const char *method, const char *uri)
{
    return control_print(&control->monitor, method, uri) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- commands -------------------------------------------------------------------------------- */

static int run_page(struct control *control, const struct command *command)
{
    char uri[URI_SIZE];

    (void)snprintf(uri, sizeof uri, "%s%s", command->uri, control->json ? "&json" : "");
    return print_answer(control, "GET", uri);
}

static int run_metrics(struct control *control, const struct command *command)
{
    return print_answer(control, "GET", command->uri);
}

static int run_limit(struct control *control, const struct command *command)
{
    char uri[URI_SIZE];
    uint64_t limit;

    if (!parse_u64(control->argument, &limit)) {
        (void)fprintf(
            stderr,
            "penstockctl: limit: \"%s\" is no number of image calls; write a whole number "
            "from 0 (no limit) to %u\n",
            control->argument, HELD_MAX);
        return EXIT_USAGE;
    }
    (void)snprintf(uri, sizeof uri, "%s%" PRIu64, command->uri, limit);
    return print_answer(control, "POST", uri);
}

/* The argument behind the command's URI. Names of sources and ids of calls are such that they need no
 * escapes there. False: it is neither. */
static bool make_uri(const struct control *control, const struct command *command,
                     char uri[URI_SIZE])
{
    static const char letters[] =
        "-_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t length = strlen(control->argument);

    if (length == 0 || length > NAME_LENGTH_MAX || strspn(control->argument, letters) != length) {
        (void)fprintf(
            stderr, "penstockctl: %s: \"%s\" is no %s\n", command->name, control->argument,
            strcmp(command->argument, "ID") == 0
                ? "id of a call; write the x-request-id of its response, which begins with "
                  "pst_"
                : "name of a source; penstockctl sources lists them");
        return false;
    }
    (void)snprintf(uri, URI_SIZE, "%s%s", command->uri, control->argument);
    return true;
}

static int run_call(struct control *control, const struct command *command)
{
    char uri[URI_SIZE], whole[URI_SIZE + sizeof "?json"];

    if (!make_uri(control, command, uri))
        return EXIT_USAGE;
    (void)snprintf(whole, sizeof whole, "%s%s", uri, control->json ? "?json" : "");
    return print_answer(control, "GET", whole);
}

static int run_drain(struct control *control, const struct command *command)
{
    char uri[URI_SIZE];

    return make_uri(control, command, uri) ? print_answer(control, "POST", uri) : EXIT_USAGE;
}

/* The configuration tells where the ledger is; where a socket was named instead, or the configuration
 * may not be read, who answers there. */
static bool find_ledger(const struct control *control, char *directory, size_t size)
{
    struct fastcgi_reply reply;
    const char *value = NULL;
    size_t length = 0;

    if (control->options)
        return text_copy(directory, size, control->options->penstock.state_directory);
    if (control_ask(&control->monitor, "GET", "/penstock/status?summary", false, &reply))
        value = control_value_in(reply.body, "state directory:", &length);
    if (value && length < size) {
        memcpy(directory, value, length);
        directory[length] = '\0';
    }
    fastcgi_reply_release(&reply);
    return value && length < size;
}

static int run_hedge_advice(struct control *control, const struct command *command)
{
    char directory[PATH_MAX];
    const struct hedge_advice_wish wish = {
        .state_directory = directory,
        .scope = control->argument,
        .json = control->json,
        .now_wall_ms = clock_wall_ms(),
    };
    struct text out;
    struct text why;
    bool advised;

    (void)command;
    if (!find_ledger(control, directory, sizeof directory))
        return EXIT_FAILURE;
    text_init(&out, REPORT_BYTES_MAX);
    text_init(&why, 1000);
    advised = hedge_advice_report(&wish, &out, &why);
    (void)fputs(text_string(&out), stdout);
    if (!advised)
        (void)fprintf(stderr, "penstockctl: %s\n", text_string(&why));
    text_release(&out);
    text_release(&why);
    return advised ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Advice is for a configuration. Where a socket was named, it was not read yet. */
static const struct options *configuration_of(struct control *control)
{
    const char *path = control->configuration ? control->configuration : CONFIGURATION_PATH;

    if (!control->options && access(path, F_OK) == 0 &&
        !options_load_public(path, &control->monitor.report, &control->options))
        control->options = NULL;
    return control->options;
}

static int run_diagnose(struct control *control, const struct command *command)
{
    char directory[PATH_MAX];
    struct diagnose_wish wish = {
        .state_directory = directory,
        .last_ms = control->last_ms,
        .now_wall_ms = clock_wall_ms(),
        .json = control->json,
    };
    struct text out;
    struct text why;
    bool ok;

    (void)command;
    wish.options = configuration_of(control);
    if (!find_ledger(control, directory, sizeof directory))
        return EXIT_FAILURE;
    text_init(&out, REPORT_BYTES_MAX);
    text_init(&why, 1000);
    ok = diagnose_report(&wish, &out, &why);
    (void)fputs(text_string(&out), stdout);
    if (!ok)
        (void)fprintf(stderr, "penstockctl: %s\n", text_string(&why));
    text_release(&out);
    text_release(&why);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_try_fallback(struct control *control, const struct command *command)
{
    const struct options *options = configuration_of(control);
    struct text out;
    bool good;

    (void)command;
    if (!options) {
        (void)fprintf(stderr,
                      "penstockctl: the configuration tells what the fallback is, and could not be "
                      "read (-c names it)\n%s",
                      text_string(&control->monitor.report));
        return EXIT_FAILURE;
    }
    text_init(&out, REPORT_BYTES_MAX);
    good = try_fallback_run(options, control->argument, control->model, &out);
    (void)fputs(text_string(&out), stdout);
    text_release(&out);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* How far reloading is. */
struct standing {
    uint64_t generation; /* that serves; 0: no answer */
    uint64_t refused;    /* reloads, ever */
};

static struct standing standing_in(const struct fastcgi_reply *reply)
{
    return (struct standing){.generation = control_number_in(reply->body, "generation:"),
                             .refused = control_number_in(reply->body, "reloads refused:")};
}

static struct standing standing_now(const struct control *control)
{
    struct fastcgi_reply reply;
    struct standing standing = {0};

    if (control_ask(&control->monitor, "GET", "/penstock/status?summary", true, &reply))
        standing = standing_in(&reply);
    fastcgi_reply_release(&reply);
    return standing;
}

static void tell_no_reload(const struct standing *before, const struct standing *now)
{
    if (now->refused > before->refused)
        (void)fprintf(stderr,
                      "penstockctl: the master refused it, and generation %" PRIu64
                      " still serves: the configuration has errors, or changes what only a restart "
                      "can change. The log names them, and penstockd -t the errors.\n",
                      before->generation);
    else if (now->generation == 0)
        (void)fprintf(stderr, "penstockctl: the master was asked, but since then nobody answers at "
                              "the status socket; the log has the reason.\n");
    else
        (void)fprintf(stderr,
                      "penstockctl: the master was asked, but generation %" PRIu64
                      " still serves. Three older generations that still drain make it wait "
                      "(penstockctl status shows them); the log has the reason.\n",
                      before->generation);
}

static int run_reload(struct control *control, const struct command *command)
{
    int64_t until_ns = clock_monotonic_ns() + RELOAD_TIMEOUT_NS;
    struct standing before = {0}, now = {0};
    struct fastcgi_reply reply;
    bool asked = control_ask(&control->monitor, "POST", command->uri, false, &reply);

    if (asked)
        before = standing_in(&reply);
    fastcgi_reply_release(&reply);
    if (!asked)
        return EXIT_FAILURE;
    while (now.refused <= before.refused && clock_monotonic_ns() < until_ns) {
        now = standing_now(control);
        if (now.generation > before.generation) {
            (void)printf("reloaded: generation %" PRIu64 "\n", now.generation);
            return EXIT_SUCCESS;
        }
        clock_sleep_ns(RELOAD_LOOK_NS);
    }
    tell_no_reload(&before, &now);
    return EXIT_FAILURE;
}

/* ---- beginning ------------------------------------------------------------------------------- */

/* Where the status socket is: -s, else the configuration, else the default of it. An ordinary user
 * may not be allowed to read the configuration; then the default is worth a try. */
static bool find_address(struct control *control)
{
    const char *path = control->configuration;

    if (control->monitor.address)
        return true;
    if (!path && access(CONFIGURATION_PATH, F_OK) == 0)
        path = CONFIGURATION_PATH;
    if (options_load_public(path, &control->monitor.report, &control->options)) {
        text_clear(&control->monitor.report); /* warnings are the daemon's to tell */
        control->monitor.address = control->options->penstock.status_listen;
        return true;
    }
    if (control->configuration) {
        (void)fprintf(
            stderr, "%spenstockctl: %s has errors; mend them, or name the status socket with -s\n",
            text_string(&control->monitor.report), path);
        return false;
    }
    control->monitor.address = "unix:/run/penstock/status.sock";
    return true;
}

static const struct command *command_named(const char *name)
{
    for (size_t i = 0; i < LENGTH(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static bool takes(const struct command *command, int count)
{
    if (count == 0)
        return !command->argument || command->argument[0] == '[';
    return count == 1 && command->argument;
}

/* What is wrong with so many. */
static int tell_arguments(const struct command *command, int count)
{
    if (!command->argument)
        (void)fprintf(stderr, "penstockctl: %s takes no argument\n", command->name);
    else if (count > 1)
        (void)fprintf(stderr, "penstockctl: %s takes only one argument, %s\n", command->name,
                      command->argument);
    else
        (void)fprintf(stderr, "penstockctl: %s needs an argument: %s\n", command->name,
                      command->argument);
    (void)fprintf(stderr, "usage: penstockctl [-c FILE] [-s SOCKET] %s %s\n       %s\n",
                  command->name, command->argument ? command->argument : "", command->help);
    return EXIT_USAGE;
}

/* What it is, why it is none, what to write. */
static int tell_option(const char *word, const char *why)
{
    (void)fprintf(stderr,
                  "penstockctl: \"%s\" %s; there are -c FILE, -s SOCKET, --json, --model M, --last "
                  "TIME, --help and --version\n",
                  word, why);
    return EXIT_USAGE;
}

static bool take_socket(struct control *control, const char *address)
{
    bool is_path = !strchr(address, ':') && strchr(address, '/');

    control->monitor.address = address;
    if (fastcgi_address_is_valid(address))
        return true;
    (void)fprintf(stderr, "penstockctl: -s: \"%s\" is no address of a socket; write ", address);
    if (is_path)
        (void)fprintf(stderr, "-s unix:%s\n", address);
    else
        (void)fputs(
            "-s unix:PATH, such as unix:/run/penstock/status.sock, or -s ADDRESS:PORT, such "
            "as 127.0.0.1:9001\n",
            stderr);
    return false;
}

static bool take_last(struct control *control, const char *time)
{
    if (parse_duration_ms(time, 1000, &control->last_ms) && control->last_ms > 0 &&
        control->last_ms <= LAST_MS_MAX)
        return true;
    (void)fprintf(stderr,
                  "penstockctl: --last: \"%s\" is no time to look back; write one up to 30d, such "
                  "as 30s, 10m or 2h\n",
                  time);
    return false;
}

/* The command, then its argument. */
static void take_word(struct control *control, const char *word)
{
    if (control->word_count == 0)
        control->name = word;
    else if (control->word_count == 1)
        control->argument = word;
    control->word_count++;
}

/* -1: that is for its command to judge, not an option. */
static bool is_number(const char *word)
{
    return word && word[0] == '-' && word[1] >= '0' && word[1] <= '9';
}

/* -1: go on; else the exit status. */
static int take_option(struct control *control, int option, const char *word)
{
    switch (option) {
    case 'c':
        control->configuration = optarg;
        return -1;
    case 's':
        return take_socket(control, optarg) ? -1 : EXIT_USAGE;
    case 'j':
        control->json = true;
        return -1;
    case 'l':
        return take_last(control, optarg) ? -1 : EXIT_USAGE;
    case 'm':
        control->model = optarg;
        return -1;
    case 'h':
        return usage(stdout, EXIT_SUCCESS);
    case 'v':
        (void)puts("penstockctl " PENSTOCK_VERSION);
        return EXIT_SUCCESS;
    case ':':
        return tell_option(word, "needs a value behind it");
    default:
        return tell_option(word, "is no option");
    }
}

/* Options may stand before and behind the command and its argument. */
static int take_arguments(struct control *control, int count, char **arguments)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},        {"last", required_argument, NULL, 'l'},
        {"model", required_argument, NULL, 'm'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},     {NULL, 0, NULL, 0},
    };
    int status = -1;

    while (status < 0 && optind < count) {
        const char *word = arguments[optind];
        int option = is_number(word) ? 0 : getopt_long(count, arguments, "-:c:s:hv", options, NULL);

        if (option < 0)
            break;
        if (option == 0)
            optind++;
        if (option <= 1)
            take_word(control, word);
        else
            status = take_option(control, option, word);
    }
    for (; status < 0 && optind < count; optind++) /* behind -- */
        take_word(control, arguments[optind]);
    return status;
}

int main(int count, char **arguments)
{
    struct control control = {.last_ms = LAST_MS};
    const struct command *command;
    int status = take_arguments(&control, count, arguments);

    if (status >= 0)
        return status;
    if (control.word_count == 0)
        return usage(stderr, EXIT_USAGE);
    command = command_named(control.name);
    if (!command) {
        (void)fprintf(stderr, "penstockctl: there is no command \"%s\"\n", control.name);
        return usage(stderr, EXIT_USAGE);
    }
    if (!takes(command, control.word_count - 1))
        return tell_arguments(command, control.word_count - 1);
    text_init(&control.monitor.report, 65536);
    status = find_address(&control) ? command->run(&control, command) : EXIT_FAILURE;
    options_free(control.options);
    text_release(&control.monitor.report);
    return status;
}
