/*
 * http_client.c - exchanges with upstreams over libcurl; see http_client.h.
 *
 * The loop is our own (curl_multi_socket_action under one poll): curl_multi_poll and _perform ask
 * the kernel three times where once is enough.
 *
 * M12, no request is ever sent twice: libcurl does so by itself when a kept connection turns out
 * dead. It announces every sending through its pre-request callback, and before_sending refuses all
 * but the first unless nothing at all of the first had left. So a small body may lie in memory for
 * libcurl (head and body leave in one send); a large one is read through a callback that cannot
 * rewind.
 */
#include "worker/http_client.h"

#include "base/clock.h"
#include "worker/http_exchange.h"
#include "worker/http_pool.h"
#include "worker/http_request.h"
#include "worker/http_trust.h"

#include <curl/curl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    SOCKETS_MAX = 16,
    WATCHED_MAX = 8,
    REQUEST_BYTES_KEPT = 16384,
    RECEIVE_BYTES = 65536,
    CONNECTIONS_MAX = 8, /* idle ones, for each client */
    IDLE_MAX_S = 50,     /* web servers close after 60 to 75 */
};

_Static_assert(HTTP_ERROR_SIZE >= CURL_ERROR_SIZE, "libcurl writes its words there");

struct http_client {
    CURLM *multi;
    struct http_pool_link link;
    struct http_exchange *exchanges; /* started, not ended */
    struct http_exchange *spare;     /* ended; their handles are used again */
    struct pollfd sockets[SOCKETS_MAX];
    size_t socket_count;
    int64_t timer_ns;
    bool woken;
};

static const char *system_ca_file = "/etc/ssl/certs/ca-certificates.crt";

bool http_init_process(void)
{
    CURL *easy;
    char *path = NULL;

    /* OpenSSL writes without MSG_NOSIGNAL. */
    if (signal(SIGPIPE, SIG_IGN) == SIG_ERR || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return false;
    easy = curl_easy_init();
    if (!easy)
        return false;
    (void)curl_easy_getinfo(easy, CURLINFO_CAINFO, &path);
    system_ca_file = path ? path : system_ca_file; /* a constant of the library */
    curl_easy_cleanup(easy);
    return true;
}

/* ---- what libcurl calls ---------------------------------------------------------------------- */

static size_t on_header_line(char *bytes, size_t size, size_t count, void *context)
{
    struct http_exchange *exchange = context;
    size_t length = size * count;

    exchange->last_byte_ns = clock_monotonic_ns();
    if (exchange->head.state == HTTP_HEAD_FINAL)
        return length; /* a trailer */
    switch (http_head_reader_line(&exchange->head, bytes, length)) {
    case HTTP_HEAD_MORE:
        if (exchange->first_byte_ns == 0 && exchange->head.status >= 200)
            exchange->first_byte_ns = exchange->last_byte_ns;
        return length;
    case HTTP_HEAD_FINAL: {
        struct http_header headers[HTTP_HEADERS_MAX]; /* zeroed only here, not for each line */
        struct http_head head;

        http_head_reader_result(&exchange->head, headers, &head);
        if (exchange->sink.on_head(exchange->sink.context, &head))
            return length;
        exchange->outcome = HTTP_ABORTED;
        break;
    }
    case HTTP_HEAD_BAD:
        exchange->outcome = HTTP_BAD_ANSWER;
        exchange->own_error = "the response's head is malformed or too large";
        break;
    case HTTP_HEAD_NO_MEMORY:
        exchange->outcome = HTTP_OUT_OF_MEMORY;
        break;
    }
    return 0;
}

static size_t on_body_bytes(char *bytes, size_t size, size_t count, void *context)
{
    struct http_exchange *exchange = context;
    size_t length = size * count;

    exchange->last_byte_ns = clock_monotonic_ns();
    if (length == 0)
        return 0;
    switch (exchange->sink.on_body(exchange->sink.context, bytes, length)) {
    case HTTP_TAKEN:
        return length;
    case HTTP_PAUSE:
        exchange->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    case HTTP_ABORT:
        break;
    }
    exchange->outcome = HTTP_ABORTED;
    return 0;
}

static size_t give_body(char *bytes, size_t size, size_t count, void *context)
{
    struct http_exchange *exchange = context;
    ssize_t n;

    if (exchange->body_left == 0)
        return 0;
    n = http_request_read_body(&exchange->request, bytes, size * count, exchange->body_left);
    if (n < 0) {
        exchange->outcome = HTTP_BODY_FAILED;
        return CURL_READFUNC_ABORT;
    }
    exchange->body_left -= n;
    return (size_t)n;
}

/* The request goes out now: M12. */
static int before_sending(void *context, char *to, char *from, int to_port, int from_port)
{
    struct http_exchange *exchange = context;
    long sent_bytes = 1;

    (void)to, (void)from, (void)to_port, (void)from_port;
    curl_easy_getinfo(exchange->easy, CURLINFO_REQUEST_SIZE, &sent_bytes);
    if (exchange->sent && sent_bytes > 0) {
        exchange->sent_twice = true;
        return CURL_PREREQFUNC_ABORT;
    }
    exchange->sent = true;
    exchange->sent_ns = clock_monotonic_ns();
    return CURL_PREREQFUNC_OK;
}

static CURLcode trust(CURL *easy, void *ssl_ctx, void *context)
{
    const struct http_exchange *exchange = context;
    const char *ca_file = exchange->request.ca_file;

    (void)easy;
    if (http_trust_apply(ssl_ctx, ca_file && *ca_file ? ca_file : system_ca_file))
        return CURLE_OK;
    return CURLE_SSL_CACERT_BADFILE;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *of_socket)
{
    struct http_client *client = context;
    size_t at = 0;
    short events = 0;

    (void)easy, (void)of_socket;
    if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
        events |= POLLIN;
    if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
        events |= POLLOUT;
    while (at < client->socket_count && client->sockets[at].fd != fd)
        at++;
    if (what == CURL_POLL_REMOVE) {
        if (at < client->socket_count)
            client->sockets[at] = client->sockets[--client->socket_count];
        return 0;
    }
    if (at == SOCKETS_MAX)
        return -1;
    if (at == client->socket_count)
        client->socket_count++;
    client->sockets[at] = (struct pollfd){.fd = fd, .events = events};
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *context)
{
    struct http_client *client = context;

    (void)multi;
    client->timer_ns = timeout_ms < 0 ? CLOCK_NEVER : clock_monotonic_ns() + timeout_ms * NS_PER_MS;
    return 0;
}

/* ---- clients --------------------------------------------------------------------------------- */

static void free_exchange(struct http_exchange *exchange)
{
    curl_easy_cleanup(exchange->easy);
    text_release(&exchange->text);
    http_head_reader_release(&exchange->head);
    free(exchange->lines);
    free(exchange);
}

void http_client_free(struct http_client *client)
{
    REQUIRE(!client->exchanges);
    while (client->spare) {
        struct http_exchange *exchange = client->spare;

        client->spare = exchange->next;
        free_exchange(exchange);
    }
    curl_multi_cleanup(client->multi);
    free(client);
}

struct http_client *http_client_new(void)
{
    struct http_client *client = calloc(1, sizeof *client);
    CURLM *multi = curl_multi_init();

    if (!client || !multi) {
        curl_multi_cleanup(multi);
        free(client);
        return NULL;
    }
    client->multi = multi;
    client->timer_ns = CLOCK_NEVER;
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, client);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_MAX);
    curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    return client;
}

struct http_pool_link *http_client_pool_link(struct http_client *client)
{
    return &client->link;
}

void http_client_be_idle(struct http_client *client)
{
    REQUIRE(!client->exchanges);
    client->woken = false;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* What is the same for every request of every handle, where it is not the default (TCP_NODELAY is on
 * and redirects are not followed by default). */
static const struct {
    CURLoption option;
    long value;
} constants[] = {
    {CURLOPT_NOSIGNAL, 1},
    {CURLOPT_QUICK_EXIT, 1},
    {CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1},
    {CURLOPT_PATH_AS_IS, 1},
    {CURLOPT_HTTP_CONTENT_DECODING, 0},
    {CURLOPT_TCP_KEEPALIVE, 1},
    {CURLOPT_TCP_KEEPIDLE, 30},
    {CURLOPT_TCP_KEEPINTVL, 15},
    {CURLOPT_MAXAGE_CONN, IDLE_MAX_S},
    {CURLOPT_BUFFERSIZE, RECEIVE_BYTES},
};

static void set_constants(struct http_exchange *exchange)
{
    CURL *easy = exchange->easy;

    for (size_t i = 0; i < LENGTH(constants); i++)
        curl_easy_setopt(easy, constants[i].option, constants[i].value);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_CAINFO, NULL);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->error);
    curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, trust);
    curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, exchange);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header_line);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_body);
    curl_easy_setopt(easy, CURLOPT_READDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, before_sending);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
}

static struct http_exchange *new_exchange(void)
{
    struct http_exchange *exchange = calloc(1, sizeof *exchange);

    if (!exchange)
        return NULL;
    text_init(&exchange->text, HTTP_REQUEST_TEXT_MAX);
    http_head_reader_init(&exchange->head);
    exchange->lines = calloc(HTTP_LINES_MAX, sizeof *exchange->lines);
    exchange->easy = curl_easy_init();
    if (!exchange->lines || !exchange->easy) {
        free_exchange(exchange);
        return NULL;
    }
    set_constants(exchange);
    return exchange;
}

/* Link the lines that stand in the text; libcurl reads the list, it does not own it. */
static void link_lines(struct http_exchange *exchange, size_t count)
{
    char *at = exchange->text.bytes;

    INVARIANT(count <= HTTP_LINES_MAX);
    for (size_t i = 0; i < count; i++, at += strlen(at) + 1)
        exchange->lines[i] =
            (struct curl_slist){.data = at, .next = i + 1 < count ? &exchange->lines[i + 1] : NULL};
}

static void set_body(struct http_exchange *exchange, size_t small_body_at)
{
    const struct http_request *request = &exchange->request;
    CURL *easy = exchange->easy;
    bool small = request->body_bytes <= HTTP_SMALL_BODY_BYTES;

    curl_easy_setopt(easy, CURLOPT_NOBODY, 0L);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS,
                     small && request->body_bytes >= 0 ? exchange->text.bytes + small_body_at
                                                       : NULL);
    if (request->body_bytes >= 0) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
    } else if (strcmp(request->method, "HEAD") == 0) {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    } else {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    }
    exchange->body_left = small ? 0 : request->body_bytes;
}

/* Everything that differs from request to request. False: out of memory. */
static bool set_request(struct http_exchange *exchange)
{
    const struct http_request *request = &exchange->request;
    CURL *easy = exchange->easy;
    const char *ca_file = request->ca_file && *request->ca_file ? request->ca_file : NULL;
    struct http_request_text places;

    switch (http_request_write(request, &exchange->text, &places)) {
    case HTTP_WRITTEN:
        break;
    case HTTP_WRITTEN_BODY_FAILED:
        exchange->outcome = HTTP_BODY_FAILED;
        return true;
    case HTTP_WRITTEN_NO_MEMORY:
        return false;
    }
    link_lines(exchange, places.line_count);
    set_body(exchange, places.body_at);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, exchange->lines);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)request->connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, (long)request->fresh_connection);
    /* Not read (see trust), but libcurl compares it before it uses a connection again: one that was
     * made under other authorities is another one. */
    curl_easy_setopt(easy, CURLOPT_CAPATH, ca_file);
    return curl_easy_setopt(easy, CURLOPT_URL, request->url) == CURLE_OK;
}

static void reset_exchange(struct http_exchange *exchange, const struct http_request *request,
                           const struct http_sink *sink)
{
    exchange->request = *request;
    exchange->sink = *sink;
    exchange->outcome = HTTP_RUNNING;
    exchange->own_error = NULL;
    exchange->reported = false;
    exchange->paused = exchange->resume = false;
    exchange->sent = exchange->sent_twice = false;
    exchange->sent_ns = exchange->first_byte_ns = exchange->last_byte_ns = 0;
    exchange->error[0] = '\0';
    http_head_reader_reset(&exchange->head);
}

struct http_exchange *http_exchange_start(struct http_client *client,
                                          const struct http_request *request,
                                          const struct http_sink *sink)
{
    struct http_exchange *exchange = client->spare;

    if (exchange)
        client->spare = exchange->next;
    else if (!(exchange = new_exchange()))
        return NULL;
    exchange->client = client;
    reset_exchange(exchange, request, sink);
    if (!set_request(exchange))
        goto no_memory;
    if (exchange->outcome == HTTP_RUNNING) {
        if (curl_multi_add_handle(client->multi, exchange->easy) != CURLM_OK)
            goto no_memory;
        exchange->in_multi = true;
    }
    exchange->next = client->exchanges;
    client->exchanges = exchange;
    return exchange;

no_memory:
    exchange->next = client->spare;
    client->spare = exchange;
    return NULL;
}

void http_exchange_resume(struct http_exchange *exchange)
{
    exchange->resume = exchange->paused;
}

/* ---- outcomes -------------------------------------------------------------------------------- */

static enum http_outcome judge(const struct http_exchange *exchange, CURLcode code)
{
    bool has_head = exchange->head.state == HTTP_HEAD_FINAL;

    if (exchange->outcome != HTTP_RUNNING)
        return exchange->outcome; /* known where it happened */
    if (exchange->sent_twice)
        return HTTP_NO_ANSWER;
    if (code == CURLE_OK)
        return has_head ? HTTP_COMPLETE : HTTP_NO_ANSWER;
    if (code ==
        CURLE_OUT_OF_MEMORY) /* libcurl's word for a header line beyond its own bound, too */
        return exchange->head.started && !has_head ? HTTP_BAD_ANSWER : HTTP_OUT_OF_MEMORY;
    if (!exchange->sent)
        return code == CURLE_OPERATION_TIMEDOUT ? HTTP_CONNECT_TIMEOUT : HTTP_NOT_SENT;
    if (has_head)
        return HTTP_CUT;
    /* Bytes without a head are HTTP/0.9 to libcurl; the last is a header's name that it refuses. */
    if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_WEIRD_SERVER_REPLY ||
        code == CURLE_BAD_FUNCTION_ARGUMENT)
        return HTTP_BAD_ANSWER;
    return HTTP_NO_ANSWER;
}

static void finish(struct http_exchange *exchange, CURLcode code)
{
    exchange->outcome = judge(exchange, code);
    if (exchange->error[0] == '\0' && code != CURLE_OK)
        (void)text_copy(exchange->error, sizeof exchange->error, curl_easy_strerror(code));
    curl_multi_remove_handle(exchange->client->multi, exchange->easy);
    exchange->in_multi = false;
}

void http_exchange_end(struct http_exchange *exchange)
{
    struct http_client *client = exchange->client;
    struct http_exchange **link = &client->exchanges;

    if (exchange->in_multi)
        curl_multi_remove_handle(client->multi, exchange->easy); /* closes a connection in use */
    exchange->in_multi = false;
    while (*link != exchange)
        link = &(*link)->next;
    *link = exchange->next;
    if (exchange->text.capacity > REQUEST_BYTES_KEPT) {
        curl_easy_setopt(exchange->easy, CURLOPT_POSTFIELDS, NULL);
        text_release(&exchange->text);
    }
    exchange->next = client->spare;
    client->spare = exchange;
}

/* ---- running --------------------------------------------------------------------------------- */

void http_client_wake(struct http_client *client)
{
    client->woken = true;
}

static void resume_paused(struct http_client *client)
{
    for (struct http_exchange *exchange = client->exchanges; exchange; exchange = exchange->next) {
        CURLcode code;

        if (!exchange->resume || !exchange->in_multi)
            continue;
        exchange->resume = exchange->paused = false;
        code = curl_easy_pause(exchange->easy, CURLPAUSE_CONT); /* hands over what it held back */
        if (code != CURLE_OK)
            finish(exchange, code);
    }
}

static void act(struct http_client *client, curl_socket_t fd, int events)
{
    int running;

    if (fd == CURL_SOCKET_TIMEOUT)
        client->timer_ns = CLOCK_NEVER; /* set anew from inside, if needed */
    if (curl_multi_socket_action(client->multi, fd, events, &running) == CURLM_OK)
        return;
    for (struct http_exchange *exchange = client->exchanges; exchange; exchange = exchange->next)
        if (exchange->in_multi)
            finish(exchange, CURLE_OUT_OF_MEMORY);
}

/* Finish what libcurl is done with. Is there an outcome that nobody was told of? */
static bool take_finished(struct http_client *client)
{
    struct http_exchange *exchange;
    CURLMsg *message;
    int left;
    bool found = false;

    while ((message = curl_multi_info_read(client->multi, &left)) != NULL) {
        CURLcode code = message->data.result;
        char *of_handle = NULL;

        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &of_handle);
        exchange = (struct http_exchange *)(void *)of_handle;
        finish(exchange, code);
    }
    for (exchange = client->exchanges; exchange; exchange = exchange->next) {
        found |= !exchange->in_multi && !exchange->reported;
        exchange->reported = !exchange->in_multi;
    }
    return found;
}

/* One poll over libcurl's sockets and the caller's; acts on the former. */
static void poll_once(struct http_client *client, struct http_wait *wait)
{
    struct pollfd fds[SOCKETS_MAX + WATCHED_MAX];
    size_t count = client->socket_count, own = count;
    int64_t until_ns = wait->until_ns < client->timer_ns ? wait->until_ns : client->timer_ns;

    REQUIRE(wait->fd_count <= WATCHED_MAX);
    memcpy(fds, client->sockets, count * sizeof fds[0]);
    for (size_t i = 0; i < wait->fd_count; i++)
        fds[count++] = (struct pollfd){.fd = wait->fds[i], .events = POLLIN | POLLRDHUP};
    if (poll(fds, count, client->woken ? 0 : clock_poll_ms(clock_monotonic_ns(), until_ns)) <= 0)
        return;
    for (size_t i = 0; i < own; i++) {
        int events = 0;

        if (fds[i].revents & POLLIN)
            events |= CURL_CSELECT_IN;
        if (fds[i].revents & POLLOUT)
            events |= CURL_CSELECT_OUT;
        if (fds[i].revents & (POLLERR | POLLHUP | POLLNVAL))
            events |= CURL_CSELECT_ERR | CURL_CSELECT_IN;
        if (events)
            act(client, fds[i].fd, events);
    }
    for (size_t i = 0; i < wait->fd_count; i++)
        if (fds[own + i].revents)
            wait->ready |= 1U << i;
}

enum http_wake http_client_run(struct http_client *client, struct http_wait *wait)
{
    bool polled = false, over = false;

    wait->ready = 0;
    resume_paused(client);
    for (;;) {
        /* libcurl's timer alone may bring more and more: the caller's descriptors have their turn. */
        if (!client->woken && client->timer_ns <= clock_monotonic_ns())
            act(client, CURL_SOCKET_TIMEOUT, 0);
        if (take_finished(client)) {
            client->woken = false;
            return HTTP_WAKE_FINISHED;
        }
        if (polled && client->woken) {
            client->woken = false;
            return HTTP_WAKE_SINK;
        }
        if (wait->ready)
            return HTTP_WAKE_FD;
        if (over)
            return HTTP_WAKE_TIME;
        poll_once(client, wait);
        polled = true;
        over = wait->until_ns <= clock_monotonic_ns();
    }
}
