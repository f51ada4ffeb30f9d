/* test_upstream_head.c - which headers cross the gateway, both ways, and where a call goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/requests.h"
#include "worker/respond.h"
#include "worker/upstream_head.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The value of the one header of that name that goes upstream; NULL when there is none. */
static const char *sent(const struct house *house, const char *name)
{
    const struct attempt *attempt = house->request->attempt;
    const char *value = NULL;

    for (size_t i = 0; i < attempt->header_count; i++) {
        if (strcasecmp(attempt->headers[i].name, name) != 0)
            continue;
        assert_null(value);
        value = attempt->headers[i].value;
    }
    return value;
}

static void params(struct house *house, const char *const (*pairs)[2], size_t count)
{
    for (size_t i = 0; i < count; i++)
        fake_fastcgi_param(house->fcgi, pairs[i][0], pairs[i][1]);
}

/* ---- where it goes --------------------------------------------------------------------------- */

static void the_url_is_the_base_and_the_target_as_sent(void **state)
{
    static const struct {
        const char *base, *strip, *target;
        bool add_version;
        const char *url;
    } cases[] = {
        {"https://a.example", "", "/v1/chat/completions", false,
         "https://a.example/v1/chat/completions"},
        {"https://a.example", "", "/v1/x%20y?q=%2F&r=a+b", false,
         "https://a.example/v1/x%20y?q=%2F&r=a+b"}, /* never decoded and encoded again */
        {"https://a.example", "", "/v1/x?q#part", false, "https://a.example/v1/x?q"},
        {"https://a.example/sub", "/draw", "/draw/v1/x?k=1", false,
         "https://a.example/sub/v1/x?k=1"},
        {"https://a.example/sub", "/draw", "/draw", false, "https://a.example/sub"},
        {"https://a.example/sub", "/draw", "/draw?k=/draw", false,
         "https://a.example/sub?k=/draw"}, /* once, and only at the front */
        {"https://a.example", "/draw", "/other/draw/x", false, "https://a.example/other/draw/x"},
        {"https://a.example", "", "/models?a=1", true, "https://a.example/v1/models?a=1"},
        {"https://a.example", "/v1/gem", "/gem/x", true, "https://a.example/x"},
        {"http://[::1]:8080", "", "/v1/", false, "http://[::1]:8080/v1/"},
    };
    struct house *house = *state;

    for (size_t i = 0; i < LENGTH(cases); i++) {
        house->source.base_url = cases[i].base;
        house->route.strip_prefix = cases[i].strip;
        house->request->raw_target = cases[i].target;
        house->request->add_version = cases[i].add_version;
        assert_true(upstream_head_build(house->request->attempt));
        assert_string_equal(text_string(&house->request->attempt->url), cases[i].url);
    }
}

/* N6: a client's key must not reach an account that is not the client's. */
static void a_clients_key_in_the_query_goes_no_further_than_here(void **state)
{
    static const struct {
        const char *target, *url;
    } cases[] = {
        {"/v1/x?key=k", "https://a.example/v1/x"},
        {"/v1/x?key=", "https://a.example/v1/x"},
        {"/v1/x?alt=sse&key=k", "https://a.example/v1/x?alt=sse"},
        {"/v1/x?key=k&alt=sse&key=l", "https://a.example/v1/x?alt=sse"},
        {"/v1/x?a=1&key=k&&b=key=2&monkey=3&keys=4",
         "https://a.example/v1/x?a=1&&b=key=2&monkey=3&keys=4"},
        {"/v1/key=k/x", "https://a.example/v1/key=k/x"},
        {"/v1/x?key=k&key=l&", "https://a.example/v1/x?"},
        {"/v1/x?&a=1&", "https://a.example/v1/x?&a=1&"},
        {"/v1/x?", "https://a.example/v1/x?"},
        {"/v1/x", "https://a.example/v1/x"},
    };
    struct house *house = *state;

    house->source.dialect = DIALECT_GEMINI;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        house->source.api_key = "own";
        house->request->raw_target = cases[i].target;
        assert_true(upstream_head_build(house->request->attempt));
        assert_string_equal(text_string(&house->request->attempt->url), cases[i].url);
        assert_int_equal(house->request->attempt->url.length, strlen(cases[i].url));
    }
    house->source.api_key = "";
    house->request->raw_target = "/v1/x?key=k";
    assert_true(upstream_head_build(house->request->attempt));
    assert_string_equal(text_string(&house->request->attempt->url), "https://a.example/v1/x?key=k");
    house->source.api_key = "own";
    house->source.dialect = DIALECT_OPENAI; /* to whom it is a word like others */
    assert_true(upstream_head_build(house->request->attempt));
    assert_string_equal(text_string(&house->request->attempt->url), "https://a.example/v1/x?key=k");
}

static void a_url_beyond_its_bound_is_refused(void **state)
{
    static char target[20000];
    struct house *house = *state;

    memset(target, 'x', sizeof target - 1);
    target[0] = '/';
    house->request->raw_target = target;
    assert_false(upstream_head_build(house->request->attempt));
}

/* ---- what goes with it ----------------------------------------------------------------------- */

static void end_to_end_headers_pass_as_they_are(void **state)
{
    static const char *const pairs[][2] = {
        {"HTTP_AUTHORIZATION", "Bearer client"},
        {"HTTP_ACCEPT", "text/event-stream, application/json;q=0.9"},
        {"HTTP_USER_AGENT", "OpenAI/JS 6.1"},
        {"HTTP_X_STAINLESS_RETRY_COUNT", "0"},
        {"HTTP_OPENAI_BETA", "assistants=v2"},
        {"HTTP_IDEMPOTENCY_KEY", "a=b=c"},
        {"HTTP_CONTENT_ENCODING", "gzip"},
        {"HTTP_X_UNKNOWN", "\xc3\xa4"},
        {"HTTP_X_DASHSCOPE_ASYNC", "enable"},
        {"HTTP_ANTHROPIC_VERSION", "2023-06-01"},
    };
    struct house *house = *state;

    house->request->content_type = "multipart/form-data; boundary=xyz";
    params(house, pairs, LENGTH(pairs));
    assert_true(upstream_head_build(house->request->attempt));
    assert_string_equal(sent(house, "content-type"), "multipart/form-data; boundary=xyz");
    assert_string_equal(sent(house, "accept-encoding"), "identity");
    assert_int_equal(house->request->attempt->header_count, LENGTH(pairs) + 2);
    for (size_t i = 0; i < LENGTH(pairs); i++) {
        char name[64];

        assert_true(text_copy(name, sizeof name, pairs[i][0] + strlen("HTTP_")));
        for (char *at = name; *at; at++)
            *at = *at == '_' ? '-' : *at;
        assert_string_equal(sent(house, name), pairs[i][1]);
    }
}

static void what_is_the_clients_and_the_sites_own_stays_here(void **state)
{
    static const char *const pairs[][2] = {
        /* hop-by-hop, or made anew by the HTTP client */
        {"HTTP_CONNECTION", "keep-alive"},
        {"HTTP_KEEP_ALIVE", "timeout=5"},
        {"HTTP_PROXY_CONNECTION", "keep-alive"},
        {"HTTP_TE", "trailers"},
        {"HTTP_TRAILER", "x"},
        {"HTTP_TRANSFER_ENCODING", "chunked"},
        {"HTTP_UPGRADE", "h2c"},
        {"HTTP_HTTP2_SETTINGS", "x"},
        {"HTTP_HOST", "gateway.example"},
        {"HTTP_CONTENT_LENGTH", "5"},
        {"HTTP_CONTENT_TYPE", "text/plain"},
        {"HTTP_EXPECT", "100-continue"},
        {"HTTP_ACCEPT_ENCODING", "gzip, br"},
        {"HTTP_PROXY_AUTHORIZATION", "Basic eDp5"},
        {"HTTP_PROXY", "http://evil.example"},
        /* the client's network and the site's cookies */
        {"HTTP_COOKIE", "session=1"},
        {"HTTP_FORWARDED", "for=192.0.2.1"},
        {"HTTP_VIA", "1.1 x"},
        {"HTTP_X_FORWARDED_FOR", "192.0.2.1"},
        {"HTTP_X_FORWARDED_HOST", "x"},
        {"HTTP_X_FORWARDED_PROTO", "https"},
        {"HTTP_X_FORWARDED_SERVER", "x"},
        {"HTTP_X_FORWARDED_PORT", "443"},
        {"HTTP_X_FORWARDED_SSL", "on"},
        {"HTTP_X_REAL_IP", "192.0.2.1"},
        {"HTTP_X_CLIENT_IP", "192.0.2.1"},
        {"HTTP_TRUE_CLIENT_IP", "192.0.2.1"},
        {"HTTP_CF_CONNECTING_IP", "192.0.2.1"},
        /* orders to us, and what is no header at all */
        {"HTTP_X_PENSTOCK_ANYTHING", "x"},
        {"REMOTE_ADDR", "192.0.2.1"},
        {"REMOTE_USER", "me"},
        {"SERVER_NAME", "x"},
        {"HTTPS", "on"},
        {"HTTP_", "x"},
        {"SSL_CLIENT_CERT", "x"},
    };
    struct house *house = *state;

    params(house, pairs, LENGTH(pairs));
    assert_true(upstream_head_build(house->request->attempt));
    assert_int_equal(house->request->attempt->header_count, 1);
    assert_string_equal(sent(house, "accept-encoding"), "identity");
}

/* RFC 9110, 7.6.1: Connection names further hop-by-hop headers. */
static void what_connection_names_stays_here(void **state)
{
    static const char *const pairs[][2] = {
        {"HTTP_CONNECTION", "close ,X-Hop,\t x-other-hop"},
        {"HTTP_X_HOP", "1"},
        {"HTTP_X_OTHER_HOP", "1"},
        {"HTTP_X_HOP_NOT", "1"},
        {"HTTP_X_HO", "1"},
    };
    struct house *house = *state;

    params(house, pairs, LENGTH(pairs));
    assert_true(upstream_head_build(house->request->attempt));
    assert_null(sent(house, "x-hop"));
    assert_null(sent(house, "x-other-hop"));
    assert_string_equal(sent(house, "x-hop-not"), "1");
    assert_string_equal(sent(house, "x-ho"), "1");
}

static const char *const client_keys[][2] = {
    {"HTTP_AUTHORIZATION", "Bearer client"},
    {"HTTP_X_API_KEY", "client"},
    {"HTTP_API_KEY", "client"},
    {"HTTP_X_GOOG_API_KEY", "client"},
    {"HTTP_OPENAI_ORGANIZATION", "client"},
    {"HTTP_OPENAI_PROJECT", "client"},
};

/* The source's key replaces the client's in whatever header that came: never both. */
static void a_sources_key_replaces_every_key_of_the_client(void **state)
{
    static const struct {
        enum dialect_name dialect;
        const char *header, *value;
    } cases[] = {
        {DIALECT_OPENAI, "authorization", "Bearer the-key"},
        {DIALECT_DASHSCOPE, "authorization", "Bearer the-key"},
        {DIALECT_PLAIN, "authorization", "Bearer the-key"},
        {DIALECT_AZURE, "api-key", "the-key"},
        {DIALECT_GEMINI, "x-goog-api-key", "the-key"},
        {DIALECT_ANTHROPIC, "x-api-key", "the-key"},
    };
    struct house *house = *state;

    params(house, client_keys, LENGTH(client_keys));
    house->source.api_key = "the-key";
    for (size_t i = 0; i < LENGTH(cases); i++) {
        house->source.dialect = (int)cases[i].dialect;
        assert_true(upstream_head_build(house->request->attempt));
        assert_string_equal(sent(house, cases[i].header), cases[i].value);
        assert_int_equal(house->request->attempt->header_count, 2);
        assert_string_equal(sent(house, "accept-encoding"), "identity");
    }
}

static void without_a_key_of_its_own_the_clients_pass(void **state)
{
    struct house *house = *state;

    params(house, client_keys, LENGTH(client_keys));
    assert_true(upstream_head_build(house->request->attempt));
    assert_string_equal(sent(house, "authorization"), "Bearer client");
    assert_string_equal(sent(house, "x-goog-api-key"), "client");
    assert_int_equal(house->request->attempt->header_count, LENGTH(client_keys) + 1);
}

/* A header must not become two on the wire. */
static void line_breaks_are_refused(void **state)
{
    static const char *const values[] = {"a\r\nX-Evil: 1", "a\nX-Evil: 1", "a\rb", "\n"};

    for (size_t i = 0; i < LENGTH(values); i++) {
        struct house *house = *state;

        fake_fastcgi_reset(house->fcgi);
        house->request->content_type = NULL;
        house->source.api_key = "";
        fake_fastcgi_param(house->fcgi, "HTTP_X_A", values[i]);
        assert_false(upstream_head_build(house->request->attempt));
        fake_fastcgi_reset(house->fcgi);
        house->request->content_type = values[i];
        assert_false(upstream_head_build(house->request->attempt));
        house->request->content_type = NULL;
        house->source.api_key = values[i];
        assert_false(upstream_head_build(house->request->attempt));
        house->source.api_key = "";
        fake_fastcgi_param(house->fcgi, "HTTP_X\r\nEVIL", "1");
        assert_false(upstream_head_build(house->request->attempt));
        fake_fastcgi_reset(house->fcgi);
        fake_fastcgi_param(house->fcgi, "HTTP_TRANSFER_ENCODING:", "chunked");
        assert_false(upstream_head_build(house->request->attempt));
    }
}

/* Too many, or too long: refused, never a header less than the client sent. */
static void too_many_headers_are_refused_not_left_out(void **state)
{
    struct house *house = *state;
    unsigned passed = 0;

    for (unsigned i = 0; i < HTTP_HEADERS_MAX; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "HTTP_X_%03u", i);
        fake_fastcgi_param(house->fcgi, name, "v");
        if (!upstream_head_build(house->request->attempt))
            break;
        passed = i + 1;
        assert_int_equal(house->request->attempt->header_count, passed + 1);
    }
    assert_in_range(passed, 100, HTTP_HEADERS_MAX - 4);
}

static void headers_beyond_their_bound_are_refused(void **state)
{
    static char value[HTTP_HEAD_BYTES_MAX];
    struct house *house = *state;

    memset(value, 'x', sizeof value - 1);
    fake_fastcgi_param(house->fcgi, "HTTP_X_LONG", value);
    assert_false(upstream_head_build(house->request->attempt));
}

static void the_next_request_begins_empty(void **state)
{
    struct house *house = *state;

    fake_fastcgi_param(house->fcgi, "HTTP_X_A", "1");
    assert_true(upstream_head_build(house->request->attempt));
    fake_fastcgi_reset(house->fcgi);
    assert_true(upstream_head_build(house->request->attempt));
    assert_int_equal(house->request->attempt->header_count, 1);
}

/* ---- what comes back ------------------------------------------------------------------------- */

/* The CGI head made of the upstream's. */
static const char *translated(struct house *house, const struct http_head *head)
{
    struct attempt *attempt = house->request->attempt;

    upstream_head_translate(attempt, head);
    assert_true(respond_finish_head(house->request, &attempt->head));
    return text_string(&attempt->head);
}

static void a_documents_head_keeps_status_headers_and_length(void **state)
{
    static const struct http_header headers[] = {
        {"Content-Type", "application/json"},
        {"openai-processing-ms", "12"},
        {"x-ratelimit-remaining-requests", "9"},
        {"Content-Length", "17"},
        {"retry-after", "3"},
        {"Location", "https://a.example/jobs/1"},
        {"Link", "<a>"},
        {"Link", "<b>"}, /* repeated ones stay apart */
        {"Content-Encoding", "gzip"},
    };
    const struct http_head head = {
        .status = 429,
        .headers = headers,
        .header_count = LENGTH(headers),
        .content_length = 17,
    };

    assert_string_equal(translated(*state, &head),
                        "Status: 429 Too Many Requests\r\nContent-Type: application/json\r\n"
                        "openai-processing-ms: 12\r\nx-ratelimit-remaining-requests: 9\r\n"
                        "retry-after: 3\r\nLocation: https://a.example/jobs/1\r\n"
                        "Link: <a>\r\nLink: <b>\r\nContent-Encoding: gzip\r\n"
                        "Content-Length: 17\r\nx-request-id: pst_test\r\n\r\n");
}

/* A stream's end is told by its connection; a web server must not hold its bytes back. */
static void a_streams_head_has_no_length_and_asks_not_to_be_buffered(void **state)
{
    static const struct http_header headers[] = {
        {"Content-Type", "text/event-stream"},
        {"Content-Length", "17"},
        {"X-Accel-Buffering", "yes"},
    };
    const struct http_head head = {
        .status = 200,
        .headers = headers,
        .header_count = LENGTH(headers),
        .content_length = 17,
    };
    struct house *house = *state;

    house->request->attempt->is_stream = true;
    assert_string_equal(translated(house, &head), "Content-Type: text/event-stream\r\n"
                                                  "X-Accel-Buffering: no\r\n"
                                                  "x-request-id: pst_test\r\n\r\n");
}

static void without_a_length_none_is_told(void **state)
{
    const struct http_head head = {.status = 503, .content_length = -1};

    assert_string_equal(translated(*state, &head),
                        "Status: 503 Service Unavailable\r\nx-request-id: pst_test\r\n\r\n");
}

/* Both ids are told, and ours is the one the client is asked for. */
static void the_upstreams_request_id_gets_another_name(void **state)
{
    static const struct http_header headers[] = {{"X-Request-ID", "req_1"}};
    const struct http_head head = {
        .status = 404, .headers = headers, .header_count = 1, .content_length = -1};

    assert_string_equal(
        translated(*state, &head),
        "Status: 404 Not Found\r\nx-upstream-request-id: req_1\r\nx-request-id: pst_test\r\n\r\n");
}

static void what_is_the_upstreams_own_stops_here(void **state)
{
    static const struct http_header headers[] = {
        {"Connection", "close, X-Hop"},
        {"X-Hop", "1"},
        {"Keep-Alive", "timeout=5"},
        {"Proxy-Connection", "close"},
        {"TE", "x"},
        {"Trailer", "x"},
        {"Transfer-Encoding", "chunked"},
        {"Upgrade", "h2c"},
        {"Set-Cookie", "__cf_bm=1"},
        {"set-cookie", "b=2"},
        {"Alt-Svc", "h3=\":443\""},
        {"Strict-Transport-Security", "max-age=1"},
        {"Server", "cloudflare"},
        {"Date", "now"},
        /* orders to the web server in front of us */
        {"Status", "500"},
        {"X-Accel-Redirect", "/etc/passwd"},
        {"X-Accel-Expires", "60"},
        {"X-Accel-Limit-Rate", "1"},
        {"X-Sendfile", "/etc/passwd"},
        {"X-Sendfile2", "/etc/passwd 0-"},
        {"X-LIGHTTPD-send-file", "/etc/passwd"},
        {"X-Reproxy-URL", "http://a.example/"},
        {"X-Penstock-Source", "other"},
        {"Location", "/internal"},
        {"X-Evil", "a\r\nX-More: 1"},
        /* no header at all: web servers give up the whole answer for it */
        {"X Blank", "1"},
        {"X-A\rStatus", "500"},
        {"X-Control", "a\001b"},
        {"X-Control", "\177"},
        {"", "1"},
    };
    const struct http_head head = {
        .status = 200,
        .headers = headers,
        .header_count = LENGTH(headers),
        .content_length = -1,
    };

    assert_string_equal(translated(*state, &head), "x-request-id: pst_test\r\n\r\n");
}

static void bytes_that_are_no_control_pass(void **state)
{
    static const struct http_header headers[] = {{"X-Tab", "a\tb"}, {"X-High", "\xc3\xa4\xff"}};
    const struct http_head head = {
        .status = 200, .headers = headers, .header_count = 2, .content_length = -1};

    assert_string_equal(translated(*state, &head),
                        "X-Tab: a\tb\r\nX-High: \xc3\xa4\xff\r\nx-request-id: pst_test\r\n\r\n");
}

static void an_answer_without_content_has_no_length(void **state)
{
    const struct http_head head = {.status = 204, .content_length = 5};

    assert_string_equal(translated(*state, &head),
                        "Status: 204 No Content\r\nx-request-id: pst_test\r\n\r\n");
}

static void what_the_operator_asked_for_is_added(void **state)
{
    const struct http_head head = {.status = 201, .content_length = 0};
    struct house *house = *state;

    house->options.penstock.penstock_headers = true;
    house->request->attempts = 1;
    assert_string_equal(translated(house, &head),
                        "Status: 201 Created\r\nContent-Length: 0\r\nx-request-id: pst_test\r\n"
                        "x-penstock-scope: r\r\nx-penstock-source: a\r\nx-penstock-wait-ms: 0\r\n"
                        "x-penstock-attempts: 1\r\n\r\n");
}

/* F10: the source's wait goes along, the client's own wins, and other dialects know no such thing. */
static void f10_the_upstream_is_asked_to_let_calls_wait(void **state)
{
    struct house *house = *state;
    struct attempt *attempt = house->request->attempt;

    house->source.dashscope_wait_ms = 30000;
    assert_int_equal(upstream_head_server_wait_ms(attempt), -1);
    assert_true(upstream_head_build(attempt));
    assert_null(sent(house, "x-dashscope-wait-timeout"));
    house->source.dialect = DIALECT_DASHSCOPE;
    assert_int_equal(upstream_head_server_wait_ms(attempt), 30000);
    assert_true(upstream_head_build(attempt));
    assert_string_equal(sent(house, "x-dashscope-wait-timeout"), "30");
    fake_fastcgi_param(house->fcgi, "HTTP_X_DASHSCOPE_WAIT_TIMEOUT", "5");
    assert_int_equal(upstream_head_server_wait_ms(attempt), 5000);
    assert_true(upstream_head_build(attempt));
    assert_string_equal(sent(house, "x-dashscope-wait-timeout"), "5");
    house->source.dashscope_wait_ms = -1;
    assert_true(upstream_head_build(attempt));
    assert_string_equal(sent(house, "x-dashscope-wait-timeout"), "5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HOUSE(f10_the_upstream_is_asked_to_let_calls_wait),
        WITH_HOUSE(the_url_is_the_base_and_the_target_as_sent),
        WITH_HOUSE(a_clients_key_in_the_query_goes_no_further_than_here),
        WITH_HOUSE(a_url_beyond_its_bound_is_refused),
        WITH_HOUSE(end_to_end_headers_pass_as_they_are),
        WITH_HOUSE(what_is_the_clients_and_the_sites_own_stays_here),
        WITH_HOUSE(what_connection_names_stays_here),
        WITH_HOUSE(a_sources_key_replaces_every_key_of_the_client),
        WITH_HOUSE(without_a_key_of_its_own_the_clients_pass),
        WITH_HOUSE(line_breaks_are_refused),
        WITH_HOUSE(too_many_headers_are_refused_not_left_out),
        WITH_HOUSE(headers_beyond_their_bound_are_refused),
        WITH_HOUSE(the_next_request_begins_empty),
        WITH_HOUSE(a_documents_head_keeps_status_headers_and_length),
        WITH_HOUSE(a_streams_head_has_no_length_and_asks_not_to_be_buffered),
        WITH_HOUSE(without_a_length_none_is_told),
        WITH_HOUSE(the_upstreams_request_id_gets_another_name),
        WITH_HOUSE(what_is_the_upstreams_own_stops_here),
        WITH_HOUSE(bytes_that_are_no_control_pass),
        WITH_HOUSE(an_answer_without_content_has_no_length),
        WITH_HOUSE(what_the_operator_asked_for_is_added),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
