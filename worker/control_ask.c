/* control_ask.c - a question to the monitor, for penstockctl; see control_ask.h. */
#include "worker/control_ask.h"

#include "base/json_scan.h"
#include "base/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_BYTES_MAX (80U << 20)
#define CALL_TIMEOUT_MS 10000

static void take_message(void *context, const struct json_scan *scan,
                         const struct json_value *value)
{
    if (value->kind == JSON_STRING && json_scan_at(scan, "error.message"))
        text_append((struct text *)context, value->text, value->text_length);
}

/* The sentence of the error object that was answered. */
static void print_refusal(const struct fastcgi_reply *reply)
{
    struct json_scan scan;
    struct text message;

    text_init(&message, JSON_SCAN_TEXT_MAX);
    json_scan_init(&scan, take_message, &message);
    (void)json_scan_feed(&scan, reply->body, reply->body_length);
    if (json_scan_end(&scan) != JSON_SCAN_DONE || message.length == 0)
        (void)fprintf(stderr, "penstockctl: refused with status %d\n", reply->status);
    else
        (void)fprintf(stderr, "penstockctl: %s\n", text_string(&message));
    text_release(&message);
}

/* A relative path depends on where one stands. */
static void print_relative(const char *address)
{
    char here[PATH_MAX];

    if (strncmp(address, "unix:", 5) == 0 && address[5] != '/' && getcwd(here, sizeof here))
        (void)fprintf(stderr,
                      "The path does not begin with /, so %s/%s was tried; write -s unix:/PATH for "
                      "one that is the same everywhere.\n",
                      here, address + 5);
}

static void print_unreachable(const struct control_socket *monitor, const char *why)
{
    (void)fprintf(stderr, "penstockctl: %s\n", why);
    if (monitor->report.length > 0)
        (void)fprintf(stderr,
                      "The configuration could not be read, so the default socket was tried:\n%s",
                      text_string(&monitor->report));
    print_relative(monitor->address);
    (void)fputs(
        "Is penstockd running (systemctl status penstock)? May you use its socket (run this "
        "as root, or as a member of the socket's group)? Another socket is named with -s.\n",
        stderr);
}

bool control_ask(const struct control_socket *monitor, const char *method, const char *uri,
                 bool quiet, struct fastcgi_reply *reply)
{
    const char *mark = strchr(uri, '?');
    const struct fastcgi_call_parameter parameters[] = {
        {"REQUEST_METHOD", method},
        {"REQUEST_URI", uri},
        {"SCRIPT_NAME", uri},
        {"QUERY_STRING", mark ? mark + 1 : ""},
        {"SERVER_PROTOCOL", "HTTP/1.1"},
        {"PENSTOCK_CONTROL", "1"},
    };
    const struct fastcgi_call call = {
        .address = monitor->address,
        .parameters = parameters,
        .parameter_count = LENGTH(parameters),
        .timeout_ms = CALL_TIMEOUT_MS,
    };
    struct text why;
    bool good = false;

    fastcgi_reply_init(reply, ANSWER_BYTES_MAX);
    text_init(&why, 1000);
    if (!fastcgi_call_make(&call, reply, &why)) {
        if (!quiet)
            print_unreachable(monitor, text_string(&why));
    } else if (reply->status >= 300) {
        if (!quiet)
            print_refusal(reply);
    } else {
        good = true;
    }
    text_release(&why);
    return good;
}

bool control_print(const struct control_socket *monitor, const char *method, const char *uri)
{
    struct fastcgi_reply reply;
    const char *body;
    bool printed = false;

    if (control_ask(monitor, method, uri, false, &reply)) {
        body = reply.body;
        while (*body == '\n') /* a list that is asked for alone begins with its blank line */
            body++;
        (void)fputs(body, stdout);
        printed = fflush(stdout) == 0;
        if (!printed)
            (void)fprintf(stderr, "penstockctl: cannot write: %s\n", strerror(errno));
    }
    fastcgi_reply_release(&reply);
    return printed;
}

/* ---- lines of an answer ---------------------------------------------------------------------- */

const char *control_value_in(const char *text, const char *key, size_t *ret_length)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, strlen(key)) == 0) {
            line += strlen(key);
            line += strspn(line, " ");
            *ret_length = strcspn(line, "\n");
            return line;
        }
    }
    return NULL;
}

uint64_t control_number_in(const char *text, const char *key)
{
    size_t length = 0;
    const char *digits = control_value_in(text, key, &length);
    uint64_t number;

    return digits && parse_u64_bytes(digits, length, &number) ? number : 0;
}
