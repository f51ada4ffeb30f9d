/* try_fallback.c - is the fallback any good? See try_fallback.h. */
#include "worker/try_fallback.h"

#include "base/clock.h"
#include "base/json_scan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CHAT_PATH "/v1/chat/completions"
#define ANSWER_BYTES_MAX (4U << 20)
#define TIMEOUT_MS 120000

/* ---- what is asked -------------------------------------------------------------------------------- */

static bool ends_in(const char *string, const char *end)
{
    size_t length = strlen(string);

    return length >= strlen(end) && strcmp(string + length - strlen(end), end) == 0;
}

/* A path for a chat call below the route's. */
static void chat_path(const struct route_options *route, char path[TRY_PATH_SIZE])
{
    if (strncmp(CHAT_PATH, route->path, strlen(route->path)) == 0 && ends_in(route->path, "/"))
        (void)snprintf(path, TRY_PATH_SIZE, "%s", CHAT_PATH);
    else if (!ends_in(route->path, "/"))
        (void)snprintf(path, TRY_PATH_SIZE, "%s", route->path);
    else
        (void)snprintf(path, TRY_PATH_SIZE, "%s%s", route->path,
                       ends_in(route->path, "/v1/") ? "chat/completions" : "v1/chat/completions");
}

/* The route that the path leads to: the first, as they are in order. */
static const struct route_options *route_of(const struct options *options, const char *path)
{
    for (size_t i = 0; i < options->route_count; i++) {
        const char *pattern = options->routes[i].path;

        if (strncmp(pattern, path, strlen(pattern)) == 0 &&
            (ends_in(pattern, "/") || path[strlen(pattern)] == '\0'))
            return &options->routes[i];
    }
    return NULL;
}

static bool find_path(const struct options *options, const struct scope_options *scope,
                      char path[TRY_PATH_SIZE])
{
    for (size_t i = 0; i < options->route_count; i++) {
        const struct route_options *route = &options->routes[i];

        if (route->to != scope ||
            (route->kind != ROUTE_KIND_AUTO && route->kind != ROUTE_KIND_CHAT))
            continue;
        chat_path(route, path);
        if (route_of(options, path) == route)
            return true;
    }
    return false;
}

bool try_fallback_plan(const struct fallback_trial *trial, const struct scope_fallback *entry,
                       struct fallback_try *ret, struct text *why)
{
    const struct scope_options *target = entry->scope ? entry->scope : trial->scope;
    const char *model = entry->model ? entry->model : trial->model;

    if (!model) {
        text_append_string(why,
                           "it gets the model that the caller asks for: name one with --model");
        return false;
    }
    if (!find_path(trial->options, target, ret->path)) {
        text_printf(why,
                    "no route for chat calls leads to scope %s, so it cannot be tried from outside",
                    target->name);
        return false;
    }
    return text_copy(ret->model, sizeof ret->model, model);
}

/* ---- what came ------------------------------------------------------------------------------------ */

struct answer {
    char model[TRY_MODEL_SIZE], message[300];
    bool content;
};

static void take(void *context, const struct json_scan *scan, const struct json_value *value)
{
    struct answer *answer = context;

    if (value->kind != JSON_STRING)
        return;
    if (json_scan_at(scan, "model"))
        (void)snprintf(answer->model, sizeof answer->model, "%.*s", (int)value->text_length,
                       value->text);
    else if (json_scan_at(scan, "error.message"))
        (void)snprintf(answer->message, sizeof answer->message, "%.*s", (int)value->text_length,
                       value->text);
    else if (json_scan_at(scan, "choices[].message.content"))
        answer->content = true;
}

/* Nothing that would steer a terminal. */
static void make_plain(char *string)
{
    for (; *string; string++)
        if (*string < ' ' || *string > '~')
            *string = '?';
}

bool try_fallback_judge(const struct fastcgi_reply *reply, struct text *out)
{
    struct answer answer = {.content = false};
    struct json_scan scan;
    bool whole;

    json_scan_init(&scan, take, &answer);
    (void)json_scan_feed(&scan, reply->body, reply->body_length);
    whole = json_scan_end(&scan) == JSON_SCAN_DONE;
    make_plain(answer.model);
    make_plain(answer.message);
    if (reply->status == 200 && whole && answer.content) {
        text_printf(out, "good: 200, answered by model %s", *answer.model ? answer.model : "-");
        return true;
    }
    text_printf(out, "bad: %d%s%s", reply->status, *answer.message ? ", " : "", answer.message);
    if (reply->status == 200)
        text_append_string(out, ", but no chat answer");
    return false;
}

/* ---- all of it ------------------------------------------------------------------------------------ */

static bool ask(const struct options *options, const struct fallback_try *try, struct text *out)
{
    struct text body, why;
    char length[24];
    struct fastcgi_reply reply;
    int64_t began_ns = clock_monotonic_ns();
    bool good = false;

    text_init(&body, 2000);
    text_init(&why, 500);
    text_append_string(&body, "{\"model\":");
    text_append_json(&body, try->model, strlen(try->model));
    text_append_string(&body, ",\"messages\":[{\"role\":\"user\",\"content\":\"Answer with the one "
                              "word: ready\"}]}");
    (void)snprintf(length, sizeof length, "%zu", body.length);
    const struct fastcgi_call_parameter parameters[] = {
        {"REQUEST_METHOD", "POST"},      {"REQUEST_URI", try->path},
        {"SCRIPT_NAME", try->path},      {"QUERY_STRING", ""},
        {"SERVER_PROTOCOL", "HTTP/1.1"}, {"CONTENT_TYPE", "application/json"},
        {"CONTENT_LENGTH", length},
    };
    const struct fastcgi_call call = {.address = options->penstock.listen,
                                      .parameters = parameters,
                                      .parameter_count = LENGTH(parameters),
                                      .body = text_string(&body),
                                      .timeout_ms = TIMEOUT_MS};

    fastcgi_reply_init(&reply, ANSWER_BYTES_MAX);
    if (!fastcgi_call_make(&call, &reply, &why))
        text_printf(out, "not asked: %s", text_string(&why));
    else
        good = try_fallback_judge(&reply, out);
    text_printf(out, " (%.1f s)", (double)(clock_monotonic_ns() - began_ns) / 1e9);
    fastcgi_reply_release(&reply);
    text_release(&body);
    text_release(&why);
    return good;
}

static bool run_entry(const struct fallback_trial *trial, const struct scope_fallback *entry,
                      struct text *out)
{
    struct fallback_try try;
    struct text why;
    bool good;

    text_init(&why, 500);
    if (entry->scope)
        text_printf(out, "scope %s: ", entry->scope->name);
    else
        text_printf(out, "model %s: ", entry->model);
    good = try_fallback_plan(trial, entry, &try, &why);
    if (good)
        good = ask(trial->options, &try, out);
    else
        text_printf(out, "not tried: %s", text_string(&why));
    text_append_char(out, '\n');
    text_release(&why);
    return good;
}

bool try_fallback_run(const struct options *options, const char *scope_name, const char *model,
                      struct text *out)
{
    struct fallback_trial trial = {.options = options, .model = model};
    const struct scope_options *scope = NULL;
    bool good = true;

    for (size_t i = 0; i < options->scope_count; i++)
        if (!options->scopes[i].direct && strcmp(options->scopes[i].name, scope_name) == 0)
            scope = &options->scopes[i];
    if (!scope) {
        text_printf(out, "there is no [scope %s]\n", scope_name);
        return false;
    }
    if (scope->fallback_count == 0) {
        text_printf(out, "[scope %s] has no fallback: write fallback = another scope, or a model\n",
                    scope_name);
        return false;
    }
    trial.scope = scope;
    for (size_t i = 0; i < scope->fallback_count; i++)
        good = run_entry(&trial, &scope->fallbacks[i], out) && good;
    return good;
}
