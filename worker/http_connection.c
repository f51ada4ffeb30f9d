/* http_connection.c - libcurl as resolver, connector and TLS; see http_connection.h. */
#include "worker/http_connection.h"

#include "base/clock.h"
#include "base/text.h"
#include "worker/http_trust.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

_Static_assert(HTTP_ERROR_SIZE >= CURL_ERROR_SIZE, "libcurl writes its words there");

/* libcurl tells of no byte until all it was given has left: given one record at a time, an unsent
 * request is one of which no record has left, and part of a record says nothing to anybody. */
enum { TLS_RECORD_BYTES = 16384 };

static const char *system_ca_file = "/etc/ssl/certs/ca-certificates.crt";

bool http_connection_init_process(void)
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

void *http_share_new(void)
{
    CURLSH *share = curl_share_init();

    if (!share)
        return NULL;
    curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS);
    curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
    return share;
}

void http_share_free(void *share)
{
    curl_share_cleanup(share);
}

/* ---- what libcurl calls ---------------------------------------------------------------------- */

static CURLcode trust(CURL *easy, void *ssl_ctx, void *context)
{
    const struct http_connection *connection = context;

    (void)easy;
    if (http_trust_apply(ssl_ctx, *connection->ca_file ? connection->ca_file : system_ca_file))
        return CURLE_OK;
    return CURLE_SSL_CACERT_BADFILE;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *of_socket)
{
    struct http_connection *connection = context;
    size_t at = 0;
    short events = 0;

    (void)easy, (void)of_socket;
    if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
        events |= POLLIN;
    if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
        events |= POLLOUT;
    while (at < connection->socket_count && connection->sockets[at].fd != fd)
        at++;
    if (what == CURL_POLL_REMOVE) {
        if (at < connection->socket_count)
            connection->sockets[at] = connection->sockets[--connection->socket_count];
        return 0;
    }
    if (at == HTTP_CONNECTION_SOCKETS_MAX)
        return -1;
    if (at == connection->socket_count)
        connection->socket_count++;
    connection->sockets[at] = (struct pollfd){.fd = fd, .events = events};
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *context)
{
    struct http_connection *connection = context;

    (void)multi;
    connection->timer_ns =
        timeout_ms < 0 ? CLOCK_NEVER : clock_monotonic_ns() + timeout_ms * NS_PER_MS;
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* What is not the default (TCP_NODELAY is on by default). */
static const struct {
    CURLoption option;
    long value;
} constants[] = {
    {CURLOPT_CONNECT_ONLY, 1},   {CURLOPT_NOSIGNAL, 1},
    {CURLOPT_QUICK_EXIT, 1},     {CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1},
    {CURLOPT_TCP_KEEPALIVE, 1},  {CURLOPT_TCP_KEEPIDLE, 30},
    {CURLOPT_TCP_KEEPINTVL, 15},
};

static void set_options(struct http_connection *connection, int64_t timeout_ms, void *share)
{
    CURL *easy = connection->easy;
    CURLM *multi = connection->multi;

    for (size_t i = 0; i < LENGTH(constants); i++)
        curl_easy_setopt(easy, constants[i].option, constants[i].value);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_CAINFO, NULL);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, connection->error);
    curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, trust);
    curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, connection);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(easy, CURLOPT_SHARE, share);
    /* Not read (see trust), but libcurl compares it before it resumes a TLS session: one that was
     * made under other authorities is another one. */
    curl_easy_setopt(easy, CURLOPT_CAPATH, *connection->ca_file ? connection->ca_file : NULL);
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, connection);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, connection);
}

/* Cut the scheme off the origin, and from its end the port that goes without saying. */
static void find_host(struct http_connection *connection)
{
    static const char *const schemes[] = {"http://", "https://"};
    static const char *const ports[] = {":80", ":443"};

    for (size_t i = 0; i < LENGTH(schemes); i++) {
        size_t scheme = strlen(schemes[i]), port = strlen(ports[i]);

        if (strncasecmp(connection->origin, schemes[i], scheme) != 0)
            continue;
        connection->tls = i == 1;
        connection->host = connection->origin + scheme;
        connection->host_bytes = strlen(connection->host);
        if (connection->host_bytes > port &&
            strcmp(connection->host + connection->host_bytes - port, ports[i]) == 0)
            connection->host_bytes -= port;
    }
}

static bool copy_peer(struct http_connection *connection, const struct http_peer *peer)
{
    connection->origin = strndup(peer->origin, peer->origin_bytes);
    connection->ca_file = strdup(peer->ca_file ? peer->ca_file : "");
    if (!connection->origin || !connection->ca_file)
        return false;
    find_host(connection);
    return true;
}

static void fail(struct http_connection *connection, CURLcode code)
{
    connection->state =
        code == CURLE_OPERATION_TIMEDOUT ? HTTP_CONNECTION_TIMED_OUT : HTTP_CONNECTION_FAILED;
    if (connection->error[0] == '\0')
        (void)text_copy(connection->error, sizeof connection->error, curl_easy_strerror(code));
}

struct http_connection *http_connection_new(const struct http_peer *peer, void *share)
{
    struct http_connection *connection = calloc(1, sizeof *connection);

    if (!connection)
        return NULL;
    connection->fd = -1;
    connection->timer_ns = CLOCK_NEVER;
    if (!copy_peer(connection, peer))
        goto no_memory;
    if (connection->host_bytes == 0) {
        fail(connection, CURLE_URL_MALFORMAT);
        return connection;
    }
    connection->multi = curl_multi_init();
    connection->easy = curl_easy_init();
    if (!connection->multi || !connection->easy)
        goto no_memory;
    set_options(connection, peer->connect_timeout_ms, share);
    if (curl_easy_setopt(connection->easy, CURLOPT_URL, connection->origin) != CURLE_OK ||
        curl_multi_add_handle(connection->multi, connection->easy) != CURLM_OK)
        goto no_memory;
    return connection;

no_memory:
    http_connection_free(connection);
    return NULL;
}

static void free_handles(struct http_connection *connection)
{
    if (connection->multi && connection->easy)
        curl_multi_remove_handle(connection->multi, connection->easy); /* closes its socket */
    curl_easy_cleanup(connection->easy);
    curl_multi_cleanup(connection->multi);
    connection->easy = connection->multi = NULL;
    connection->socket_count = 0;
    connection->timer_ns = CLOCK_NEVER;
}

void http_connection_free(struct http_connection *connection)
{
    if (connection->fd >= 0 && !connection->easy)
        close(connection->fd);
    free_handles(connection);
    free(connection->origin);
    free(connection->ca_file);
    free(connection);
}

/* It stands. Of a plain one we keep the socket alone. */
static void take_over(struct http_connection *connection)
{
    curl_socket_t fd = CURL_SOCKET_BAD;

    (void)curl_easy_getinfo(connection->easy, CURLINFO_ACTIVESOCKET, &fd);
    if (fd == CURL_SOCKET_BAD) {
        fail(connection, CURLE_COULDNT_CONNECT);
        return;
    }
    connection->fd = connection->tls ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (connection->fd < 0) {
        (void)text_copy(connection->error, sizeof connection->error, strerror(errno));
        connection->state = HTTP_CONNECTION_FAILED;
        return;
    }
    connection->state = HTTP_CONNECTION_OPEN;
    if (!connection->tls)
        free_handles(connection);
}

void http_connection_act(struct http_connection *connection, int fd, short revents)
{
    int events = 0, running, left;
    CURLMsg *message;

    REQUIRE(connection->state == HTTP_CONNECTION_OPENING);
    if (fd < 0)
        connection->timer_ns = CLOCK_NEVER; /* set anew from inside, if needed */
    if (revents & POLLIN)
        events |= CURL_CSELECT_IN;
    if (revents & POLLOUT)
        events |= CURL_CSELECT_OUT;
    if (revents & (POLLERR | POLLHUP | POLLNVAL))
        events |= CURL_CSELECT_ERR | CURL_CSELECT_IN;
    if (curl_multi_socket_action(connection->multi, fd < 0 ? CURL_SOCKET_TIMEOUT : fd, events,
                                 &running) != CURLM_OK) {
        fail(connection, CURLE_OUT_OF_MEMORY);
        return;
    }
    message = curl_multi_info_read(connection->multi, &left);
    if (!message)
        return;
    if (message->data.result == CURLE_OK)
        take_over(connection);
    else
        fail(connection, message->data.result);
}

bool http_connection_fits(const struct http_connection *connection, const struct http_peer *peer)
{
    return strncmp(connection->origin, peer->origin, peer->origin_bytes) == 0 &&
           connection->origin[peer->origin_bytes] == '\0' &&
           strcmp(connection->ca_file, peer->ca_file ? peer->ca_file : "") == 0;
}

/* ---- open ------------------------------------------------------------------------------------ */

static ssize_t io_result(ssize_t n)
{
    if (n >= 0)
        return n;
    return errno == EAGAIN || errno == EINTR ? HTTP_IO_WAIT : HTTP_IO_BROKEN;
}

static ssize_t curl_result(CURLcode code, size_t n)
{
    if (code == CURLE_OK)
        return (ssize_t)n;
    return code == CURLE_AGAIN ? HTTP_IO_WAIT : HTTP_IO_BROKEN;
}

static ssize_t send_plain(struct http_connection *connection, const char *bytes, size_t length)
{
    ssize_t n = send(connection->fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && errno != EAGAIN && errno != EINTR && errno != EPIPE)
        connection->reset = true;
    return io_result(n);
}

ssize_t http_connection_send(struct http_connection *connection, const char *bytes, size_t length)
{
    size_t n = 0;
    CURLcode code;

    if (!connection->tls)
        return send_plain(connection, bytes, length);
    if (length > TLS_RECORD_BYTES)
        length = TLS_RECORD_BYTES;
    code = curl_easy_send(connection->easy, bytes, length, &n);
    return curl_result(code, n);
}

/* libcurl takes the end of the socket for the end of a TLS stream; only a goodbye is. */
static bool tls_has_ended(const struct http_connection *connection)
{
    const struct curl_tlssessioninfo *info = NULL;

    return curl_easy_getinfo(connection->easy, CURLINFO_TLS_SSL_PTR, &info) == CURLE_OK && info &&
           info->internals && http_trust_heard_goodbye(info->internals);
}

static ssize_t receive_tls(const struct http_connection *connection, char *bytes, size_t size)
{
    size_t n = 0;
    CURLcode code = curl_easy_recv(connection->easy, bytes, size, &n);

    if (code == CURLE_OK && n == 0 && !tls_has_ended(connection))
        return HTTP_IO_BROKEN;
    return curl_result(code, n);
}

ssize_t http_connection_receive(struct http_connection *connection, char *bytes, size_t size)
{
    ssize_t n;

    if (connection->tls)
        return receive_tls(connection, bytes, size);
    n = recv(connection->fd, bytes, size, MSG_DONTWAIT);
    return n == 0 && connection->reset ? HTTP_IO_BROKEN : io_result(n);
}

bool http_connection_is_alive(struct http_connection *connection)
{
    char byte;
    ssize_t n = recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    /* Over TLS what waits may be a session ticket, or a goodbye: reading tells. */
    if (n > 0 && connection->tls)
        return http_connection_receive(connection, &byte, 1) == HTTP_IO_WAIT;
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}
