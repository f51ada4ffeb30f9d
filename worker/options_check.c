/* options_check.c - what no single value can tell: URLs, addresses, references, arithmetic; see
 * options_table.h. */
#include "base/parse.h"
#include "worker/options_table.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#define URL_MAX 2048U
#define CLIENT_PATIENCE_MS INT64_C(300000) /* Node's fetch gives up after 300 s without headers */
#define GATE_NAME_MAX 32U

static struct option_section *only_section(const struct options_loader *loader,
                                           enum option_section_kind kind)
{
    return option_section_find(loader->options, kind, "");
}

/* ---- addresses ------------------------------------------------------------------------------- */

#define ADDRESS_ALLOWED "allowed: unix:/PATH, 127.0.0.1:PORT or [::1]:PORT"

/* ADDRESS:PORT or [ADDRESS]:PORT. False: it is neither. */
static bool parse_tcp(const char *text, bool *ret_loopback)
{
    const char *colon = strrchr(text, ':');
    bool bracketed = text[0] == '[';
    char address[INET6_ADDRSTRLEN];
    size_t length;
    uint64_t port;
    struct in_addr v4;
    struct in6_addr v6;

    if (!colon || !parse_u64(colon + 1, &port) || port < 1 || port > 65535)
        return false;
    length = (size_t)(colon - text);
    if (bracketed) {
        if (length < 2 || text[length - 1] != ']')
            return false;
        text++;
        length -= 2;
    }
    if (length >= sizeof address)
        return false;
    memcpy(address, text, length);
    address[length] = '\0';
    if (bracketed) {
        if (inet_pton(AF_INET6, address, &v6) != 1)
            return false;
        *ret_loopback = IN6_IS_ADDR_LOOPBACK(&v6);
        return true;
    }
    if (inet_pton(AF_INET, address, &v4) != 1)
        return false;
    *ret_loopback = (ntohl(v4.s_addr) >> 24) == 127;
    return true;
}

static void check_address(struct options_loader *loader, const char *key, const char *value)
{
    struct option_section *section = only_section(loader, OPTION_SECTION_penstock);
    struct option_subject subject = option_subject_of(section, key);
    size_t path_max = sizeof((struct sockaddr_un){0}.sun_path) - 1;
    char excerpt[OPTION_EXCERPT_SIZE];
    bool loopback = false;

    if (strncmp(value, "unix:", 5) == 0) {
        if (value[5] != '/')
            options_error(loader, subject, "the path is not absolute; " ADDRESS_ALLOWED);
        else if (strlen(value + 5) > path_max)
            options_error(loader, subject,
                          "the path is longer than %zu bytes, the most a unix "
                          "socket can have",
                          path_max);
        return;
    }
    if (!parse_tcp(value, &loopback))
        options_error(loader, subject, "\"%s\" is not an address; " ADDRESS_ALLOWED,
                      option_excerpt(excerpt, value));
    else if (!loopback)
        options_error(
            loader, subject,
            "\"%s\" is open to the network, and whoever connects is obeyed; " ADDRESS_ALLOWED,
            option_excerpt(excerpt, value));
    else
        options_warning(loader, subject,
                        "any user of this host can connect to a TCP port; a unix socket has "
                        "permissions");
}

static void check_addresses(struct options_loader *loader)
{
    const struct penstock_options *penstock = &loader->options->penstock;
    const struct option_section *section = only_section(loader, OPTION_SECTION_penstock);

    check_address(loader, "listen", penstock->listen);
    check_address(loader, "status_listen", penstock->status_listen);
    if (strcmp(penstock->listen, penstock->status_listen) == 0 &&
        !option_is_one_wrong(section, OPTION_KEYS("listen", "status_listen")))
        options_error(loader, option_subject_of(section, "status_listen"),
                      "is the same as listen; allowed: a socket of its own");
}

/* ---- paths and names ------------------------------------------------------------------------- */

static void check_path(struct options_loader *loader, const struct option_section *section,
                       const char *key, bool may_be_empty)
{
    const struct option_row *row = option_row_of(section->kind, key);
    const char *value = option_text(section, row);

    if (*value == '\0' && may_be_empty)
        return;
    if (*value != '/')
        options_error(loader, option_subject(section, row),
                      "not an absolute path; allowed: /PATH%s", may_be_empty ? ", or empty" : "");
}

static void check_paths(struct options_loader *loader)
{
    const struct option_section *penstock = only_section(loader, OPTION_SECTION_penstock);

    check_path(loader, penstock, "state_directory", false);
    check_path(loader, penstock, "runtime_directory", false);
    check_path(loader, penstock, "log_file", true);
    for (const struct option_section *at = loader->options->own->sections; at; at = at->next)
        if (at->kind == OPTION_SECTION_source)
            check_path(loader, at, "ca_file", true);
}

static void check_gate_name(struct options_loader *loader)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    const char *gate = loader->options->image.gate;
    size_t length = strlen(gate);
    char excerpt[OPTION_EXCERPT_SIZE];

    if (length == 0 || length > GATE_NAME_MAX || strspn(gate, letters) != length)
        options_error(
            loader,
            option_subject_of(only_section(loader, OPTION_SECTION_image_concurrency), "gate"),
            "\"%s\" cannot name a gate; allowed: 1 to 32 letters, digits, - and _",
            option_excerpt(excerpt, gate));
}

/* ---- sources --------------------------------------------------------------------------------- */

/* The host and port of an URL; NULL when they are good. */
static const char *authority_problem(const char *authority, size_t length)
{
    static const char host_letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    const char *port = NULL;
    size_t host;
    uint64_t number;
    char address[INET6_ADDRSTRLEN];
    struct in6_addr v6;

    if (memchr(authority, '@', length))
        return "a user or password must not stand in the URL; use api_key";
    if (length > 0 && authority[0] == '[') {
        const char *close = memchr(authority, ']', length);

        host = close ? (size_t)(close - authority) + 1 : 0;
        if (host < 3 || host - 2 >= sizeof address)
            return "the address in [ ] is not an IPv6 address";
        memcpy(address, authority + 1, host - 2);
        address[host - 2] = '\0';
        if (inet_pton(AF_INET6, address, &v6) != 1)
            return "the address in [ ] is not an IPv6 address";
    } else {
        host = strspn(authority, host_letters);
        host = host < length ? host : length;
        if (host == 0)
            return "the host is missing";
    }
    if (host == length)
        return NULL;
    port = authority + host;
    if (*port != ':')
        return "the host has a character that no host has";
    if (!parse_u64_bytes(port + 1, length - host - 1, &number) || number < 1 || number > 65535)
        return "the port is not a number from 1 to 65535";
    return NULL;
}

/* NULL when the URL is good; *ret_rest is what follows the scheme. */
static const char *url_problem(const char *url, const char **ret_rest)
{
    const char *rest = NULL;

    if (strlen(url) > URL_MAX)
        return "the URL is longer than 2048 bytes";
    if (strncasecmp(url, "https://", 8) == 0)
        rest = url + 8;
    else if (strncasecmp(url, "http://", 7) == 0)
        rest = url + 7;
    if (!rest)
        return "the URL does not begin with http:// or https://";
    for (const char *at = rest; *at; at++) {
        if (*at == '?')
            return "the URL has a query (?)";
        if (*at == '#')
            return "the URL has a fragment (#)";
        if ((unsigned char)*at <= 0x20 || (unsigned char)*at >= 0x7f || *at == '\\' || *at == '"')
            return "the URL has a blank or another character that no URL has; a comment must have "
                   "a line of its own";
    }
    *ret_rest = rest;
    return authority_problem(rest, strcspn(rest, "/"));
}

/* Take slashes off the end: a call's path begins with one. */
static const char *without_last_slash(struct options_loader *loader, const char *url)
{
    size_t length = strlen(url);

    if (length == 0 || url[length - 1] != '/')
        return url;
    while (length > 0 && url[length - 1] == '/')
        length--;
    return options_keep_text(loader, url, length);
}

static void warn_plain_key(struct options_loader *loader, struct option_subject subject,
                           const char *url, const char *key)
{
    static const char *const near[] = {"localhost", "127.", "[::1]"};

    if (*key == '\0' || strncasecmp(url, "http://", 7) != 0)
        return;
    for (size_t i = 0; i < LENGTH(near); i++)
        if (strncasecmp(url + 7, near[i], strlen(near[i])) == 0)
            return;
    options_warning(loader, subject, "api_key travels unencrypted over http://; use https://");
}

static void check_source(struct options_loader *loader, struct source_options *source)
{
    const struct option_section *section = option_section_of_source(loader->options, source);
    struct option_subject subject = option_subject_of(section, "base_url");
    const char *rest;
    const char *problem;
    size_t length;

    if (*source->base_url == '\0') {
        options_error(loader, subject,
                      "is missing; allowed: an http:// or https:// URL, such as "
                      "https://api.openai.com");
        return;
    }
    problem = url_problem(source->base_url, &rest);
    if (problem) {
        options_error(loader, subject, "%s; allowed: https://HOST[:PORT][/PATH]", problem);
        return;
    }
    source->base_url = without_last_slash(loader, source->base_url);
    if (!source->base_url)
        return;
    length = strlen(source->base_url);
    if (length > 3 && strcmp(source->base_url + length - 3, "/v1") == 0) {
        options_error(loader, subject,
                      "ends in /v1, but a call's path, which is appended, has it already; write "
                      "base_url = %.*s",
                      (int)length - 3, source->base_url);
        return;
    }
    warn_plain_key(loader, subject, source->base_url, source->api_key);
}

static void check_sources(struct options_loader *loader)
{
    struct options *options = loader->options;

    for (size_t i = 0; i < options->source_count && !loader->out_of_memory; i++)
        check_source(loader, &options->sources[i]);
    if (options->source_count == 0 && loader->error_count == 0)
        options_warning(
            loader,
            (struct option_subject){.place = &(struct option_place){.file = "configuration"}},
            "there is no [source NAME] and no PENSTOCK_UPSTREAM: every call will be "
            "answered 503");
}

/* ---- routes ---------------------------------------------------------------------------------- */

static const char *route_path_problem(const char *path)
{
    if (path[0] != '/')
        return "does not begin with /";
    if (strchr(path, '?') || strchr(path, '#') || strchr(path, ' ') || strchr(path, '%'))
        return "has a ?, #, % or blank in it";
    if (strstr(path, "//"))
        return "has an empty segment (//)";
    if (strstr(path, "/./") || strstr(path, "/../"))
        return "has a dot segment";
    return NULL;
}

static void check_route(struct options_loader *loader, const struct route_options *route,
                        const struct option_section *section)
{
    const char *problem = route_path_problem(route->path);
    size_t stripped = strlen(route->strip_prefix);
    char excerpt[OPTION_EXCERPT_SIZE];

    if (problem)
        options_error(loader, option_subject_of(section, "path"),
                      "\"%s\" %s; allowed: a path such as /v1/ or /v1/images/generations",
                      option_excerpt(excerpt, route->path), problem);
    if (!problem && stripped > 0 &&
        (route->strip_prefix[0] != '/' || route->strip_prefix[stripped - 1] == '/' ||
         strncmp(route->path, route->strip_prefix, stripped) != 0 ||
         (route->path[stripped] != '/' && route->path[stripped] != '\0')))
        options_error(loader, option_subject_of(section, "strip_prefix"),
                      "\"%s\" is not the beginning of path; allowed: its first segments, without a "
                      "/ at the end",
                      option_excerpt(excerpt, route->strip_prefix));
}

static void check_routes(struct options_loader *loader)
{
    const struct options *options = loader->options;
    struct text where;

    text_init(&where, 4200);
    for (size_t i = 0; i < options->route_count; i++) {
        const struct route_options *route = &options->routes[i];
        const struct option_section *section =
            option_section_find(options, OPTION_SECTION_route, route->name);

        check_route(loader, route, section);
        for (size_t k = 0; k < i; k++) {
            const struct option_section *before =
                option_section_find(options, OPTION_SECTION_route, options->routes[k].name);

            if (strcmp(options->routes[k].path, route->path) != 0)
                continue;
            text_clear(&where);
            option_place_text(&before->declared, &where);
            options_error(loader, option_subject_of(section, "path"),
                          "the same path as [route %s] (%s) has; allowed: one route for each path",
                          before->name, text_string(&where));
            break;
        }
    }
    text_release(&where);
}

/* ---- the gate -------------------------------------------------------------------------------- */

/* What is set, and has no effect as long as something else is not. */
static void warn_idle_image_keys(struct options_loader *loader,
                                 const struct option_section *section)
{
    static const char *const waiting[] = {"wait_timeout_seconds", "max_waiting_requests",
                                          "class_weights", "class_max_waiting"};
    const struct image_concurrency_options *image = &loader->options->image;

    if (image->max_concurrent_requests > 0 && !image->enabled &&
        !option_is_set(section, option_row_of(section->kind, "enabled")))
        options_warning(loader, option_subject_of(section, "max_concurrent_requests"),
                        "limits nothing without enabled = true");
    if (image->overflow_mode == OVERFLOW_WAIT || option_is_wrong(section, "overflow_mode"))
        return;
    for (size_t i = 0; i < LENGTH(waiting); i++)
        if (option_is_chosen(section, waiting[i]) && !option_is_wrong(section, waiting[i]))
            options_warning(loader, option_subject_of(section, waiting[i]),
                            "has no effect with overflow_mode = reject; set overflow_mode = wait, "
                            "or take it away");
}

static void check_image(struct options_loader *loader)
{
    const struct image_concurrency_options *image = &loader->options->image;
    const struct option_section *section = only_section(loader, OPTION_SECTION_image_concurrency);
    int64_t interval_ms = image->image_stream_data_interval_timeout_ms;

    if (interval_ms > 0 && interval_ms < 60000)
        options_error(loader, option_subject_of(section, "image_stream_data_interval_timeout"),
                      "less than a minute cuts streams that are merely drawing; allowed: 0, or 60 "
                      "to 1800 seconds");
    if (image->enabled && image->max_concurrent_requests == 0 &&
        !option_is_wrong(section, "max_concurrent_requests"))
        options_warning(loader, option_subject_of(section, "enabled"),
                        "limits nothing while max_concurrent_requests is 0");
    options_read_image_classes(loader);
    warn_idle_image_keys(loader, section);
    if (image->active && image->overflow_mode == OVERFLOW_WAIT &&
        image->wait_timeout_ms > CLIENT_PATIENCE_MS)
        options_warning(loader, option_subject_of(section, "wait_timeout_seconds"),
                        "common clients give up after 300 seconds without an answer");
    if (image->count_chat_images && image->image_models[0] == NULL && image->active)
        options_warning(loader, option_subject_of(section, "image_models"),
                        "is empty: only the paths of image endpoints tell image calls");
}

bool options_are_threads_wrong(const struct options *options)
{
    return option_is_one_wrong(option_section_find(options, OPTION_SECTION_penstock, ""),
                               OPTION_KEYS("threads", "workers", "reserve_percent")) ||
           option_is_one_wrong(option_section_find(options, OPTION_SECTION_image_concurrency, ""),
                               OPTION_KEYS("enabled", "max_concurrent_requests", "overflow_mode",
                                           "max_waiting_requests"));
}

static void check_threads(struct options_loader *loader)
{
    const struct options *options = loader->options;
    const struct image_concurrency_options *image = &options->image;
    const struct option_section *section = only_section(loader, OPTION_SECTION_penstock);
    int64_t most = option_row_of(OPTION_SECTION_penstock, "threads")->max;
    int64_t workers = options_workers(options);
    int64_t threads = options_threads(options);
    int64_t needed = options_threads_needed(options);
    int64_t waiting = image->overflow_mode == OVERFLOW_WAIT ? image->max_waiting_requests : 0;
    int64_t each = (needed + workers - 1) / workers;

    if (options_are_threads_wrong(options))
        return;
    if (options->penstock.threads < 0 && threads > most)
        options_error(loader, option_subject_of(section, "threads"),
                      "%" PRId64 " image slots + %" PRId64 " waiting, with a reserve of %" PRId64
                      " %% for other calls, need %" PRId64 " threads: %" PRId64
                      " for each of %" PRId64 " workers, and %" PRId64
                      " is the most; raise workers or lower max_waiting_requests",
                      image->max_concurrent_requests, waiting, options->penstock.reserve_percent,
                      needed, threads, workers, most);
    else if (workers * threads < needed)
        options_error(loader, option_subject_of(section, "threads"),
                      "%" PRId64 " workers * %" PRId64 " threads = %" PRId64
                      " are too few: %" PRId64 " image slots + %" PRId64
                      " waiting, with a reserve of %" PRId64 " %% for other calls, need %" PRId64
                      "; set threads = auto or %" PRId64 ", or lower max_waiting_requests",
                      workers, threads, workers * threads, image->max_concurrent_requests, waiting,
                      options->penstock.reserve_percent, needed, each);
}

/* Each worker has its part of the spool: a body larger than that never fits. */
static void check_spool(struct options_loader *loader)
{
    const struct penstock_options *penstock = &loader->options->penstock;
    const struct option_section *section = only_section(loader, OPTION_SECTION_penstock);
    int64_t workers = options_workers(loader->options);
    int64_t largest = penstock->max_multipart_body_bytes > penstock->max_json_body_bytes
                          ? penstock->max_multipart_body_bytes
                          : penstock->max_json_body_bytes;

    if (penstock->spool_max_bytes / workers < largest &&
        !option_is_one_wrong(
            section, OPTION_KEYS("workers", "spool_max", "max_multipart_body", "max_json_body")))
        options_warning(loader, option_subject_of(section, "spool_max"),
                        "each of %" PRId64 " workers has %" PRId64
                        " bytes of it, and the largest body allowed has %" PRId64
                        "; raise spool_max to %" PRId64 " or lower max_multipart_body",
                        workers, penstock->spool_max_bytes / workers, largest, workers * largest);
}

void options_check(struct options_loader *loader)
{
    check_addresses(loader);
    check_paths(loader);
    check_threads(loader);
    check_spool(loader);
    check_gate_name(loader);
    check_image(loader);
    check_sources(loader);
    check_routes(loader);
}
