/* http_connection.c - libcurl as resolver, connector and TLS; see http_connection.h. */
#include "worker/http_connection.h"

#include "base/clock.h"
#include "base/text.h"
#include "worker/http_trust.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

/* A pair of libcurl's handles. A pair costs 30 kB and as many microseconds to make, so it is used again:
 * for the next connection once a plain one stands, or a TLS one has ended. The one given back last comes
 * first: it remembers names and TLS sessions. */
struct opener {
    struct opener *next;
    CURLM *multi;
    CURL *easy;
};

enum { OPENERS_KEPT = 16 };

static struct {
    pthread_mutex_t mutex;
    struct opener *first;
    unsigned count;
} openers = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void free_opener(struct opener *opener)
{
    curl_easy_cleanup(opener->easy);
    curl_multi_cleanup(opener->multi);
    free(opener);
}

static struct opener *new_opener(void)
{
    struct opener *opener = calloc(1, sizeof *opener);

    if (!opener)
        return NULL;
    opener->multi = curl_multi_init();
    opener->easy = curl_easy_init();
    if (!opener->multi || !opener->easy) {
        free_opener(opener);
        return NULL;
    }
    for (size_t i = 0; i < LENGTH(constants); i++)
        curl_easy_setopt(opener->easy, constants[i].option, constants[i].value);
    curl_easy_setopt(opener->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(opener->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(opener->easy, CURLOPT_CAINFO, NULL);
    curl_easy_setopt(opener->easy, CURLOPT_SSL_CTX_FUNCTION, trust);
    curl_multi_setopt(opener->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(opener->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    return opener;
}

static struct opener *take_opener(void)
{
    struct opener *opener;

    INVARIANT(pthread_mutex_lock(&openers.mutex) == 0);
    opener = openers.first;
    if (opener) {
        openers.first = opener->next;
        openers.count--;
    }
    INVARIANT(pthread_mutex_unlock(&openers.mutex) == 0);
    return opener ? opener : new_opener();
}

static void give_opener(struct opener *opener)
{
    bool kept;

    INVARIANT(pthread_mutex_lock(&openers.mutex) == 0);
    kept = openers.count < OPENERS_KEPT;
    if (kept) {
        opener->next = openers.first;
        openers.first = opener;
        openers.count++;
    }
    INVARIANT(pthread_mutex_unlock(&openers.mutex) == 0);
    if (!kept)
        free_opener(opener);
}

/* Begin to open. False: out of memory. */
static bool begin(struct http_connection *connection, int64_t timeout_ms)
{
    CURL *easy = connection->opener->easy;
    CURLM *multi = connection->opener->multi;

    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, connection->error);
    curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, connection);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)timeout_ms);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, connection);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, connection);
    /* CAPATH is not read (see trust), but libcurl compares it before it resumes a TLS session: one that
     * was made under other authorities is another one. */
    return curl_easy_setopt(easy, CURLOPT_CAPATH,
                            *connection->ca_file ? connection->ca_file : NULL) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_URL, connection->origin) == CURLE_OK &&
           curl_multi_add_handle(multi, easy) == CURLM_OK;
}

/* libcurl closes what it has opened, and may open the next. */
static void end_opener(struct http_connection *connection)
{
    struct opener *opener = connection->opener;

    if (!opener)
        return;
    curl_multi_remove_handle(opener->multi, opener->easy);
    curl_easy_setopt(opener->easy, CURLOPT_ERRORBUFFER, NULL);
    connection->opener = NULL;
    connection->socket_count = 0;
    connection->timer_ns = CLOCK_NEVER;
    give_opener(opener);
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

struct http_connection *http_connection_new(const struct http_peer *peer)
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
    connection->opener = take_opener();
    if (!connection->opener || !begin(connection, peer->connect_timeout_ms))
        goto no_memory;
    return connection;

no_memory:
    http_connection_free(connection);
    return NULL;
}

void http_connection_free(struct http_connection *connection)
{
    if (connection->fd >= 0 && !connection->tls)
        close(connection->fd);
    end_opener(connection);
    free(connection->origin);
    free(connection->ca_file);
    free(connection);
}

/* It stands. Of a plain one we keep the socket alone. */
static void take_over(struct http_connection *connection)
{
    curl_socket_t fd = CURL_SOCKET_BAD;

    (void)curl_easy_getinfo(connection->opener->easy, CURLINFO_ACTIVESOCKET, &fd);
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
        end_opener(connection);
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
    if (curl_multi_socket_action(connection->opener->multi, fd < 0 ? CURL_SOCKET_TIMEOUT : fd,
                                 events, &running) != CURLM_OK) {
        fail(connection, CURLE_OUT_OF_MEMORY);
        return;
    }
    message = curl_multi_info_read(connection->opener->multi, &left);
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
    code = curl_easy_send(connection->opener->easy, bytes, length, &n);
    return curl_result(code, n);
}

/* libcurl takes the end of the socket for the end of a TLS stream; only a goodbye is. */
static bool tls_has_ended(const struct http_connection *connection)
{
    const struct curl_tlssessioninfo *info = NULL;

    return curl_easy_getinfo(connection->opener->easy, CURLINFO_TLS_SSL_PTR, &info) == CURLE_OK &&
           info && info->internals && http_trust_heard_goodbye(info->internals);
}

static ssize_t receive_tls(const struct http_connection *connection, char *bytes, size_t size)
{
    size_t n = 0;
    CURLcode code = curl_easy_recv(connection->opener->easy, bytes, size, &n);

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
