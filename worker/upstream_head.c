/* upstream_head.c - headers across the gateway; see upstream_head.h. */
#include "worker/upstream_head.h"

#include "base/parse.h"
#include "worker/reason.h"
#include "worker/respond.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define HEADERS_ADDED 40 /* room for those that do not come from the client */

/* Parameters that never become an upstream header: hop-by-hop (RFC 9110, 7.6.1), set by
 * http_request.c, or telling about the client's network and the site it came through. */
static const char *const dropped_params[] = {
    "HTTP_CONNECTION",
    "HTTP_KEEP_ALIVE",
    "HTTP_PROXY_CONNECTION",
    "HTTP_TE",
    "HTTP_TRAILER",
    "HTTP_TRANSFER_ENCODING",
    "HTTP_UPGRADE",
    "HTTP_HOST",
    "HTTP_CONTENT_LENGTH",
    "HTTP_CONTENT_TYPE",
    "HTTP_EXPECT",
    "HTTP_PROXY",
    "HTTP_ACCEPT_ENCODING",
    "HTTP_PROXY_AUTHORIZATION",
    "HTTP_COOKIE",
    "HTTP_FORWARDED",
    "HTTP_VIA",
    "HTTP_X_REAL_IP",
    "HTTP_X_CLIENT_IP",
    "HTTP_TRUE_CLIENT_IP",
    "HTTP_CF_CONNECTING_IP",
    "HTTP_HTTP2_SETTINGS",
};

/* Caddy makes one up, empty, for a client that sent none. */
static const char *const user_agent = "HTTP_USER_AGENT";

/* The same, all that begin so. */
static const char *const dropped_param_prefixes[] = {"HTTP_X_FORWARDED_", "HTTP_X_PENSTOCK_"};

/* Headers in which clients bring a key. */
static const char *const key_params[] = {
    "HTTP_AUTHORIZATION",  "HTTP_X_API_KEY",           "HTTP_API_KEY",
    "HTTP_X_GOOG_API_KEY", "HTTP_OPENAI_ORGANIZATION", "HTTP_OPENAI_PROJECT",
};

static const struct {
    const char *name;
    const char *prefix;
} key_headers[] = {
    [DIALECT_OPENAI] = {"Authorization", "Bearer "},
    [DIALECT_DASHSCOPE] = {"Authorization", "Bearer "},
    [DIALECT_AZURE] = {"api-key", ""},
    [DIALECT_GEMINI] = {"x-goog-api-key", ""},
    [DIALECT_ANTHROPIC] = {"x-api-key", ""},
    [DIALECT_PLAIN] = {"Authorization", "Bearer "},
};

/* The parameter has more than the five letters of HTTP_, as all names here. */
static bool names_param(const char *param, size_t length, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (names[i][5] == param[5] && strlen(names[i]) == length &&
            memcmp(names[i], param, length) == 0)
            return true;
    return false;
}

static char header_letter(char c)
{
    if (c == '_')
        return '-';
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Does the value of a Connection header name this header or parameter (without "HTTP_")? Then it is
 * hop-by-hop too. */
static bool is_nominated(const char *connection, const char *name, size_t length)
{
    while (*connection) {
        size_t token = strcspn(connection, ", \t");
        size_t at = 0;

        while (at < token && at < length &&
               header_letter(connection[at]) == header_letter(name[at]))
            at++;
        if (token > 0 && at == token && at == length)
            return true;
        connection += token;
        connection += strspn(connection, ", \t");
    }
    return false;
}

/* Header bytes are collected in one text; pointers are made when it has stopped growing. */
static void add_header(struct attempt *attempt, const char *name, const char *prefix,
                       const char *value)
{
    text_append_string(&attempt->header_bytes, name);
    text_append_char(&attempt->header_bytes, '\0');
    text_append_string(&attempt->header_bytes, prefix);
    text_append_string(&attempt->header_bytes, value);
    text_append_char(&attempt->header_bytes, '\0');
    attempt->header_count++;
}

/* "HTTP_X_STAINLESS_LANG" -> "x-stainless-lang"; case does not matter in HTTP. */
static void add_param(struct attempt *attempt, const char *param, const char *equals)
{
    struct text *bytes = &attempt->header_bytes;
    size_t begin = bytes->length;

    text_append(bytes, param + 5, (size_t)(equals - param - 5));
    for (size_t at = begin; at < bytes->length; at++)
        bytes->bytes[at] = header_letter(bytes->bytes[at]);
    text_append_char(bytes, '\0');
    text_append(bytes, equals + 1, strlen(equals + 1) + 1);
    attempt->header_count++;
}

static bool is_dropped_param(const char *param, size_t length, const char *connection)
{
    for (size_t i = 0; i < LENGTH(dropped_param_prefixes); i++)
        if (strncmp(param, dropped_param_prefixes[i], strlen(dropped_param_prefixes[i])) == 0)
            return true;
    return names_param(param, length, dropped_params, LENGTH(dropped_params)) ||
           (connection && is_nominated(connection, param + 5, length - 5));
}

/* Does the source's configuration set this header? "HTTP_X_Y" is "x-y". */
static bool is_replaced(const struct source_options *source, const char *param, size_t length)
{
    for (const struct option_pair *pair = source->extra_headers; pair && pair->name; pair++) {
        size_t at = 0;

        while (pair->name[at] && at + 5 < length &&
               header_letter(pair->name[at]) == header_letter(param[at + 5]))
            at++;
        if (pair->name[at] == '\0' && at + 5 == length)
            return true;
    }
    return false;
}

/* False: more headers than go upstream; leaving one out unseen would change the call. */
static bool add_params(struct attempt *attempt)
{
    const struct request *request = attempt->request;
    char *const *params = fastcgi_params(request->fcgi);
    const char *connection = fastcgi_param(request->fcgi, "HTTP_CONNECTION");
    bool own_key = *attempt->source->api_key != '\0';

    for (size_t i = 0; params && params[i]; i++) {
        const char *equals = strchr(params[i], '=');
        size_t length = equals ? (size_t)(equals - params[i]) : 0;

        if (length <= 5 || strncmp(params[i], "HTTP_", 5) != 0 ||
            is_dropped_param(params[i], length, connection))
            continue;
        if (own_key && names_param(params[i], length, key_params, LENGTH(key_params)))
            continue;
        if (equals[1] == '\0' && names_param(params[i], length, &user_agent, 1))
            continue;
        if (is_replaced(attempt->source, params[i], length))
            continue;
        if (attempt->header_count >= HTTP_HEADERS_MAX - HEADERS_ADDED)
            return false;
        add_param(attempt, params[i], equals);
    }
    return true;
}

static bool has_line_break(const char *value)
{
    return strpbrk(value, "\r\n") != NULL;
}

/* Gemini's clients may bring their key in the query, where it would stand beside the source's own. */
static void drop_query_key(struct text *url)
{
    char *at = strchr(url->bytes, '?');

    while (at) { /* at: the ? or & before a word */
        size_t length = strcspn(at + 1, "&");

        if (strncmp(at + 1, "key=", 4) != 0) {
            at = strchr(at + 1, '&');
            continue;
        }
        if (*at == '?' && at[1 + length] == '&')
            memmove(at + 1, at + length + 2, strlen(at + length + 2) + 1); /* keeps the ? */
        else
            memmove(at, at + length + 1, strlen(at + length + 1) + 1);
        if (*at == '\0')
            break;
    }
    url->length = strlen(url->bytes);
}

static void build_url(struct attempt *attempt)
{
    const struct request *request = attempt->request;
    const struct source_options *source = attempt->source;
    const char *strip = request->route->strip_prefix;
    size_t strip_length = strlen(strip);
    struct text *url = &attempt->url;
    size_t path;

    text_clear(url);
    text_append_string(url, source->base_url);
    path = url->length;
    if (request->add_version)
        text_append_string(url, "/v1");
    text_append(url, request->raw_target, strcspn(request->raw_target, "#"));
    if (strip_length > 0 && strncmp(text_string(url) + path, strip, strip_length) == 0) {
        url->length -= strip_length;
        memmove(url->bytes + path, url->bytes + path + strip_length, url->length - path + 1);
    }
    if (source->dialect == DIALECT_GEMINI && *source->api_key && !url->overflowed)
        drop_query_key(url);
}

/* Pointers into the collected bytes. False: a name or value that no header may have. */
static bool point_at_headers(struct attempt *attempt)
{
    const char *at = text_string(&attempt->header_bytes);

    for (size_t i = 0; i < attempt->header_count; i++) {
        attempt->headers[i].name = at;
        at += strlen(at) + 1;
        attempt->headers[i].value = at;
        at += strlen(at) + 1;
        if (!parse_is_token(attempt->headers[i].name) || has_line_break(attempt->headers[i].value))
            return false;
    }
    return true;
}

static const char *client_wait(const struct request *request)
{
    return fastcgi_param(request->fcgi, "HTTP_X_DASHSCOPE_WAIT_TIMEOUT");
}

int64_t upstream_head_server_wait_ms(const struct attempt *attempt)
{
    const char *own;
    int64_t ms;

    if (attempt->source->dialect != DIALECT_DASHSCOPE)
        return -1;
    own = client_wait(attempt->request);
    if (own)
        return parse_duration_ms(own, 1000, &ms) ? ms : -1;
    return attempt->source->dashscope_wait_ms;
}

bool upstream_head_build(struct attempt *attempt)
{
    const struct source_options *source = attempt->source;

    build_url(attempt);
    text_clear(&attempt->header_bytes);
    attempt->header_count = 0;
    if (attempt->request->content_type)
        add_header(attempt, "Content-Type", "", attempt->request->content_type);
    if (!add_params(attempt))
        return false;
    /* The answer is read as it goes by, so it must not come compressed. */
    add_header(attempt, "Accept-Encoding", "", "identity");
    if (*source->api_key)
        add_header(attempt, key_headers[source->dialect].name, key_headers[source->dialect].prefix,
                   source->api_key);
    if (upstream_head_server_wait_ms(attempt) >= 0 && !client_wait(attempt->request)) {
        char seconds[24];

        (void)snprintf(seconds, sizeof seconds, "%lld",
                       (long long)(source->dashscope_wait_ms / 1000));
        add_header(attempt, "X-DashScope-Wait-Timeout", "", seconds);
    }
    for (const struct option_pair *pair = source->extra_headers;
         pair && pair->name && attempt->header_count < HTTP_HEADERS_MAX; pair++)
        add_header(attempt, pair->name, "", pair->value);
    if (attempt->url.overflowed || attempt->header_bytes.overflowed)
        return false;
    return point_at_headers(attempt);
}

/* Upstream headers that stop here: hop-by-hop, ours instead of theirs, about the upstream's own site,
 * or orders that web servers take from their own applications alone. */
static const char *const dropped_headers[] = {
    "connection",       "keep-alive",
    "proxy-connection", "te",
    "trailer",          "transfer-encoding",
    "upgrade",          "set-cookie",
    "alt-svc",          "strict-transport-security",
    "server",           "date",
    "status",           "x-reproxy-url",
    "content-length",
};
static const char *const dropped_header_prefixes[] = {"x-penstock-", "x-accel-", "x-sendfile",
                                                      "x-lighttpd-", "x-litespeed-"};

static bool is_dropped_header(const char *name)
{
    for (size_t i = 0; i < LENGTH(dropped_headers); i++)
        if (text_same_name(name, dropped_headers[i]))
            return true;
    for (size_t i = 0; i < LENGTH(dropped_header_prefixes); i++)
        if (strncasecmp(name, dropped_header_prefixes[i], strlen(dropped_header_prefixes[i])) == 0)
            return true;
    return false;
}

/* One header whose name or value is none costs the whole answer: nginx takes it for a bad upstream,
 * Apache answers 500. */
static bool is_malformed(const struct http_header *header)
{
    if (!parse_is_token(header->name))
        return true;
    for (const char *at = header->value; *at; at++)
        if (((unsigned char)*at < ' ' && *at != '\t') || *at == 0x7f)
            return true;
    return false;
}

static bool is_nominated_by(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->header_count; i++)
        if (text_same_name(head->headers[i].name, "connection") &&
            is_nominated(head->headers[i].value, name, strlen(name)))
            return true;
    return false;
}

/* With 200 a CGI answer's Location means "redirect", inside the web server even. */
static bool is_order_to_redirect(const struct http_head *head, const char *name)
{
    return head->status == 200 && text_same_name(name, "location");
}

static void add_line(struct text *head, const char *name, const char *value)
{
    text_append_string(head, name);
    text_append(head, ": ", 2);
    text_append_string(head, value);
    text_append(head, "\r\n", 2);
}

static void add_length(struct text *head, int64_t length)
{
    text_append_string(head, "Content-Length: ");
    text_append_number(head, length);
    text_append(head, "\r\n", 2);
}

/* What a scope says of trying again is its own: of all its sources, not of the one that answered. */
static bool is_told_anew(const struct request *request, const struct http_head *head,
                         const char *name)
{
    return !request->scope->direct && head->status >= 400 &&
           (text_same_name(name, "retry-after") || text_same_name(name, "retry-after-ms") ||
            text_same_name(name, "x-should-retry"));
}

void upstream_head_translate(struct attempt *attempt, const struct http_head *head)
{
    const struct request *request = attempt->request;

    text_clear(&attempt->head);
    /* No Status means 200 (RFC 3875, 6.3.3); some web servers pass the line on as a header. */
    if (head->status != 200)
        text_printf(&attempt->head, "Status: %d %s\r\n", head->status, reason_of(head->status));
    for (size_t i = 0; i < head->header_count; i++) {
        const char *name = head->headers[i].name;

        if (is_dropped_header(name) || is_nominated_by(head, name) ||
            is_order_to_redirect(head, name) || is_malformed(&head->headers[i]) ||
            is_told_anew(request, head, name))
            continue;
        if (text_same_name(name, "x-request-id"))
            name = "x-upstream-request-id";
        add_line(&attempt->head, name, head->headers[i].value);
    }
    /* 204 has no length, whatever the upstream says (RFC 9110, 8.6). */
    if (head->content_length >= 0 && !attempt->is_stream && head->status != 204)
        add_length(&attempt->head, head->content_length);
    if (attempt->is_stream)
        text_append_string(&attempt->head, "X-Accel-Buffering: no\r\n");
}
