/*
 * fastcgi.c - the web server's side of one request; see fastcgi.h.
 *
 * What is asked of libfcgi, and how it is held to it (2.4.2, read in its source):
 *   - FCGX_Accept_r begins with FCGX_Finish_r, accepts only while ipcFd < 0, and after a bad head
 *     closes the connection and accepts again. We accept ourselves, hand it the descriptor (ipcFd)
 * and no listening socket (-1: accept fails at once with EBADF), and let it keep what it did not
 * open (keepConnection). `detached` spares the two-second farewell that it gives to a bad head.
 *   - It answers by itself only through its two writers; they are freed (FCGX_Free) without ever
 *     being flushed, so that none of its records follows ours.
 *   - It reads 8 kB at a time and hides what it has read ahead; hence a poll before a read could
 * wait for bytes that are here already, and SO_RCVTIMEO bounds its reads instead.
 */
#include "worker/fastcgi.h"

#include "base/clock.h"
#include "worker/fastcgi_head.h"
#include "worker/fastcgi_pieces.h"

#include <errno.h>
#include <fcgiapp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    /* A multiple of eight, so that a full record stays aligned; no record of ours is padded: nginx
     * holds back a head whose padding has not come yet. */
    RECORD_BYTES_MAX = 65528,
    BUFFER_BYTES = 65536,
    PEEK_FIRST_BYTES = 16384,
    LIBFCGI_READ_BYTES = 8192,
    HEAD_WAIT_MAX_MS = 10000,
    LINGER_MS = 50,
    LINGER_IDLE_MS = 5000,
};

_Static_assert(FASTCGI_HEAD_BYTES_MAX <= BUFFER_BYTES, "the head is looked at in the buffer");
_Static_assert(RECORD_BYTES_MAX + FASTCGI_HEADER_BYTES <= BUFFER_BYTES,
               "one record fits the buffer");

enum body_state { BODY_OPEN, BODY_ENDED, BODY_BROKEN, BODY_TIMED_OUT };

struct fastcgi {
    FCGX_Request request;
    struct fastcgi_head head;
    int fd;    /* -1 = no connection */
    int epoll; /* -1 until a head came in pieces */
    int64_t stall_ms;
    int64_t read_timeout_ms; /* as SO_RCVTIMEO stands; 0 = none */
    enum body_state body;
    bool broken; /* nobody reads our answer any more */
    uint64_t sent_bytes;
    /* What came after the body: the record being skipped. */
    unsigned char late_header[FASTCGI_HEADER_BYTES];
    size_t late_have;
    size_t late_skip;
    bool aborted;
    bool lingers; /* ended, but the peer may still be sending */
    int64_t linger_ms;
    int linger_stop_fd;    /* -1 = none */
    size_t queued;         /* content bytes behind the place of one record header */
    unsigned char *buffer; /* owned, BUFFER_BYTES; before the first write it holds the head */
};

/* The words of FAULT_headers_too_large: to the client it is the same, whoever counts. */
#define RETRY_NAP_NS (5 * NS_PER_MS)
#define TOO_LARGE_BODY                                                                             \
    "{\"error\":{\"message\":\"The request headers are larger than this gateway accepts.\","       \
    "\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"penstock_headers_too_large\"}}"
#define TOO_LARGE_HEAD                                                                             \
    "Status: 431\r\nContent-Type: application/json\r\nContent-Length: 161\r\n"                     \
    "x-should-retry: false\r\n\r\n"
static const char too_large_answer[] = TOO_LARGE_HEAD TOO_LARGE_BODY;

_Static_assert(sizeof TOO_LARGE_BODY - 1 == 161, "the length that is announced");

void fastcgi_init_process(void)
{
    static const int signals[] = {SIGUSR1, SIGTERM};
    struct sigaction before[LENGTH(signals)];

    /* libfcgi installs handlers of its own; ours are put back. */
    for (size_t i = 0; i < LENGTH(signals); i++)
        INVARIANT(sigaction(signals[i], NULL, &before[i]) == 0);
    INVARIANT(FCGX_Init() == 0);
    for (size_t i = 0; i < LENGTH(signals); i++)
        INVARIANT(sigaction(signals[i], &before[i], NULL) == 0);
    INVARIANT(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
}

struct fastcgi *fastcgi_new(void)
{
    struct fastcgi *fcgi = calloc(1, sizeof *fcgi);

    if (!fcgi)
        return NULL;
    fcgi->fd = -1;
    fcgi->epoll = -1;
    fcgi->linger_ms = LINGER_MS;
    fcgi->linger_stop_fd = -1;
    fcgi->buffer = malloc(BUFFER_BYTES);
    if (!fcgi->buffer) {
        free(fcgi);
        return NULL;
    }
    INVARIANT(FCGX_InitRequest(&fcgi->request, -1, 0) == 0);
    return fcgi;
}

void fastcgi_free(struct fastcgi *fcgi)
{
    if (!fcgi)
        return;
    fastcgi_finish(fcgi);
    if (fcgi->epoll >= 0)
        close(fcgi->epoll);
    free(fcgi->buffer);
    free(fcgi);
}

static void close_connection(struct fastcgi *fcgi)
{
    if (fcgi->fd < 0)
        return;
    close(fcgi->fd);
    fcgi->fd = -1;
    fcgi->request.ipcFd = -1;
}

/* Ten parameters are asked for in each call, and most of the twenty begin differently. */
const char *fastcgi_param(const struct fastcgi *fcgi, const char *name)
{
    for (char *const *param = fastcgi_params(fcgi); *param; param++) {
        size_t at = 0;

        while (name[at] && (*param)[at] == name[at])
            at++;
        if (name[at] == '\0' && (*param)[at] == '=')
            return *param + at + 1;
    }
    return NULL;
}

char *const *fastcgi_params(const struct fastcgi *fcgi)
{
    static char *const none[] = {NULL};

    return fcgi->request.envp ? fcgi->request.envp : none;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void set_read_timeout(struct fastcgi *fcgi, int64_t timeout_ms)
{
    struct timeval wait;

    if (timeout_ms < 1)
        timeout_ms = 1; /* 0 would mean for ever */
    if (timeout_ms == fcgi->read_timeout_ms)
        return;
    wait.tv_sec = timeout_ms / 1000;
    wait.tv_usec = timeout_ms % 1000 * 1000;
    if (setsockopt(fcgi->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0)
        fcgi->read_timeout_ms = timeout_ms;
}

/* Copy what lies ready in libfcgi's stream. */
static size_t take_ready(FCGX_Stream *in, char *bytes, size_t size)
{
    size_t ready = (size_t)(in->stop - in->rdNext);

    if (ready > size)
        ready = size;
    if (ready == 0)
        return 0;
    return (size_t)FCGX_GetStr(bytes, (int)ready, in);
}

static enum body_state judge_end(FCGX_Stream *in)
{
    int error = FCGX_GetError(in);

    if (error == 0)
        return BODY_ENDED;
    return error == EAGAIN ? BODY_TIMED_OUT : BODY_BROKEN;
}

/* Has the kernel bytes for us, so that a read would not wait? */
static bool has_unread(const struct fastcgi *fcgi)
{
    int waiting = 0;

    return ioctl(fcgi->fd, FIONREAD, &waiting) == 0 && waiting > 0;
}

ssize_t fastcgi_read(struct fastcgi *fcgi, char *bytes, size_t size, int64_t timeout_ms)
{
    static const ssize_t results[] = {[BODY_ENDED] = 0, [BODY_BROKEN] = -1, [BODY_TIMED_OUT] = -2};
    FCGX_Stream *in = fcgi->request.in;
    bool all_here = fcgi->head.with_body_bytes > 0;
    size_t got = 0;

    REQUIRE(size > 0);
    if (!in || fcgi->fd < 0)
        return -1;
    while (fcgi->body == BODY_OPEN) {
        int c;

        got += take_ready(in, bytes + got, size - got);
        if (got == size || (got > 0 && !all_here && !has_unread(fcgi)))
            break;
        if (!all_here)
            set_read_timeout(fcgi, timeout_ms);
        c = FCGX_GetChar(in); /* one read at least, unless a record is in the stream's buffer */
        if (c == EOF)
            fcgi->body = judge_end(in);
        else
            bytes[got++] = (char)c;
    }
    return got > 0 ? (ssize_t)got : results[fcgi->body];
}

/* ---- is anybody there? ----------------------------------------------------------------------- */

int fastcgi_fd(const struct fastcgi *fcgi)
{
    return fcgi->fd;
}

/* Records behind the body: only an abort means something, the rest is skipped so that the
 * descriptor does not stay readable. */
static void take_late(struct fastcgi *fcgi, const unsigned char *bytes, size_t length)
{
    size_t at = 0;

    while (at < length) {
        size_t take = length - at;
        struct fastcgi_record record;

        if (fcgi->late_skip > 0) {
            take = take < fcgi->late_skip ? take : fcgi->late_skip;
            fcgi->late_skip -= take;
            at += take;
            continue;
        }
        if (take > FASTCGI_HEADER_BYTES - fcgi->late_have)
            take = FASTCGI_HEADER_BYTES - fcgi->late_have;
        memcpy(fcgi->late_header + fcgi->late_have, bytes + at, take);
        fcgi->late_have += take;
        at += take;
        if (fcgi->late_have < FASTCGI_HEADER_BYTES)
            return;
        fcgi->late_have = 0;
        record = fastcgi_record_read(fcgi->late_header);
        fcgi->late_skip = record.content_bytes + record.padding_bytes;
        if (record.type == FASTCGI_ABORT_REQUEST && record.request_id == fcgi->head.request_id)
            fcgi->aborted = true;
    }
}

/* The next record's header waits unread in front of the body's rest: is it an abort? */
static bool abort_is_next(const struct fastcgi *fcgi)
{
    unsigned char header[FASTCGI_HEADER_BYTES];
    struct fastcgi_record record;

    if (recv(fcgi->fd, header, sizeof header, MSG_PEEK | MSG_DONTWAIT) != sizeof header)
        return false;
    record = fastcgi_record_read(header);
    return record.version == 1 && record.type == FASTCGI_ABORT_REQUEST &&
           record.request_id == fcgi->head.request_id && record.content_bytes == 0;
}

bool fastcgi_client_gone(struct fastcgi *fcgi)
{
    struct pollfd peer = {.fd = fcgi->fd, .events = POLLIN | POLLRDHUP};
    unsigned char bytes[512];
    ssize_t n;

    if (fcgi->fd < 0 || fcgi->broken || fcgi->aborted)
        return true;
    if (poll(&peer, 1, 0) <= 0)
        return false;
    if (peer.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL))
        return true;
    if (fcgi->body != BODY_ENDED)
        return abort_is_next(fcgi);
    while ((n = recv(fcgi->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        take_late(fcgi, bytes, (size_t)n);
    return fcgi->aborted || n == 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Wait until the peer takes bytes again. */
static bool wait_writable(const struct fastcgi *fcgi)
{
    struct pollfd peer = {.fd = fcgi->fd, .events = POLLOUT};
    int64_t deadline_ns = clock_monotonic_ns() + fcgi->stall_ms * NS_PER_MS;
    int n;

    do
        n = poll(&peer, 1, clock_poll_ms(clock_monotonic_ns(), deadline_ns));
    while (n < 0 && errno == EINTR);
    return n > 0;
}

static bool send_pieces(struct fastcgi *fcgi, struct fastcgi_pieces *pieces)
{
    size_t at = 0;

    while (at < pieces->count && !fcgi->broken) {
        struct msghdr message = {.msg_iov = pieces->iov + at, .msg_iovlen = pieces->count - at};
        ssize_t n = sendmsg(fcgi->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0)
            fcgi->sent_bytes += fastcgi_pieces_sent(pieces, &at, (size_t)n);
        else if (errno == EAGAIN)
            fcgi->broken = !wait_writable(fcgi);
        else if (errno != EINTR)
            fcgi->broken = true;
    }
    pieces->count = 0;
    return !fcgi->broken;
}

/* What is queued, these bytes, and the end if asked for, in as few pieces as possible. */
static bool send_queued(struct fastcgi *fcgi, const char *bytes, size_t length, bool with_end)
{
    struct fastcgi_pieces pieces = {.count = 0};

    if (fcgi->queued > 0)
        fastcgi_pieces_add(&pieces, fcgi->head.request_id, fcgi->buffer, fcgi->queued);
    fcgi->queued = 0;
    while (length > 0) {
        size_t take = length < RECORD_BYTES_MAX ? length : RECORD_BYTES_MAX;

        if (pieces.count >= (size_t)2 * FASTCGI_RECORDS_PER_SEND && !send_pieces(fcgi, &pieces))
            return false;
        fastcgi_pieces_add(&pieces, fcgi->head.request_id, bytes, take);
        bytes += take;
        length -= take;
    }
    if (with_end)
        fastcgi_pieces_add_end(&pieces, fcgi->head.request_id);
    return send_pieces(fcgi, &pieces);
}

bool fastcgi_write(struct fastcgi *fcgi, const char *bytes, size_t length)
{
    if (fcgi->broken || fcgi->fd < 0)
        return false;
    if (length > RECORD_BYTES_MAX - fcgi->queued)
        return send_queued(fcgi, bytes, length, false);
    if (length > 0)
        memcpy(fcgi->buffer + fcgi->queued, bytes, length);
    fcgi->queued += length;
    return true;
}

bool fastcgi_flush(struct fastcgi *fcgi)
{
    if (fcgi->broken || fcgi->fd < 0)
        return false;
    return fcgi->queued == 0 || send_queued(fcgi, NULL, 0, false);
}

void fastcgi_set_linger(struct fastcgi *fcgi, int64_t most_ms, int stop_fd)
{
    fcgi->linger_ms = most_ms;
    fcgi->linger_stop_fd = stop_fd;
}

/* Closing while the peer still sends would destroy the answer on its way (a reset), and Caddy does not look
 * for one before it has sent the whole body: take what comes until it closes. Who sent too slowly has had
 * his time. */
static void linger(struct fastcgi *fcgi)
{
    int64_t now_ns = clock_monotonic_ns();
    const int64_t most_ms = fcgi->body == BODY_TIMED_OUT ? LINGER_MS : fcgi->linger_ms;
    const int64_t deadline_ns = now_ns + most_ms * NS_PER_MS;
    struct pollfd fds[] = {{.fd = fcgi->fd, .events = POLLIN},
                           {.fd = fcgi->linger_stop_fd, .events = POLLIN}};
    ssize_t n;

    do {
        int wait_ms =
            clock_poll_ms(now_ns, clock_earlier(deadline_ns, now_ns + LINGER_IDLE_MS * NS_PER_MS));

        if (wait_ms == 0 || poll(fds, LENGTH(fds), wait_ms) <= 0 || fds[1].revents)
            return;
        n = recv(fcgi->fd, fcgi->buffer, BUFFER_BYTES, MSG_DONTWAIT);
        now_ns = clock_monotonic_ns();
    } while (n > 0);
}

/* Everything the peer sent is out of the kernel's hands. */
static bool all_was_read(const struct fastcgi *fcgi)
{
    size_t whole = fcgi->head.with_body_bytes;

    return fcgi->body == BODY_ENDED || (whole > 0 && whole <= LIBFCGI_READ_BYTES);
}

/* The peer has the whole answer, and its end. */
static void begin_to_linger(struct fastcgi *fcgi)
{
    (void)shutdown(fcgi->fd, SHUT_WR);
    fcgi->lingers = true;
}

bool fastcgi_end(struct fastcgi *fcgi)
{
    bool sent;

    if (fcgi->fd < 0)
        return false;
    sent = !fcgi->broken && send_queued(fcgi, NULL, 0, true);
    if (sent && !all_was_read(fcgi))
        begin_to_linger(fcgi);
    else
        close_connection(fcgi);
    return sent;
}

void fastcgi_finish(struct fastcgi *fcgi)
{
    if (fcgi->lingers)
        linger(fcgi);
    fcgi->lingers = false;
    FCGX_Free(&fcgi->request, 0);
    fcgi->request.envp = NULL;
    close_connection(fcgi);
}

uint64_t fastcgi_sent_bytes(const struct fastcgi *fcgi)
{
    return fcgi->sent_bytes;
}

/* ---- accepting ------------------------------------------------------------------------------- */

static bool is_exhausted(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/* Wait until more arrives behind what is waiting unread already: only an edge tells. Returns the
 * events, 0 when the time is over or something failed. */
static uint32_t wait_for_more(struct fastcgi *fcgi, bool *watched, int64_t deadline_ns)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
    int n;

    if (!*watched) {
        if (fcgi->epoll < 0)
            fcgi->epoll = epoll_create1(EPOLL_CLOEXEC);
        if (fcgi->epoll < 0 || epoll_ctl(fcgi->epoll, EPOLL_CTL_ADD, fcgi->fd, &event) != 0) {
            clock_sleep_ns(RETRY_NAP_NS); /* out of descriptors or memory: so look again */
            return clock_monotonic_ns() < deadline_ns ? EPOLLIN : 0;
        }
        *watched = true;
    }
    do
        n = epoll_wait(fcgi->epoll, &event, 1, clock_poll_ms(clock_monotonic_ns(), deadline_ns));
    while (n < 0 && errno == EINTR);
    return n > 0 ? event.events : 0;
}

/* Look at the head without taking it until it can be judged. */
static enum fastcgi_head_state await_head(struct fastcgi *fcgi)
{
    int64_t wait_ms = fcgi->stall_ms < HEAD_WAIT_MAX_MS ? fcgi->stall_ms : HEAD_WAIT_MAX_MS;
    int64_t deadline_ns = clock_monotonic_ns() + wait_ms * NS_PER_MS;
    size_t size = PEEK_FIRST_BYTES;
    uint32_t events = EPOLLIN;
    bool watched = false;

    for (;;) {
        enum fastcgi_head_state state;
        ssize_t n = recv(fcgi->fd, fcgi->buffer, size, MSG_PEEK | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return FASTCGI_HEAD_BAD;
        state = fastcgi_head_scan(fcgi->buffer, n > 0 ? (size_t)n : 0, &fcgi->head);
        if (state != FASTCGI_HEAD_MORE)
            return state;
        if (n == (ssize_t)size) { /* never at the maximum: the scan would have judged */
            size = FASTCGI_HEAD_BYTES_MAX;
            continue;
        }
        if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
            return FASTCGI_HEAD_BAD; /* closed before this look, so nothing more will come */
        events = wait_for_more(fcgi, &watched, deadline_ns);
        if (events == 0)
            return FASTCGI_HEAD_BAD;
    }
}

/* Let libfcgi read the head that is known to be whole. */
static bool read_head(struct fastcgi *fcgi)
{
    fcgi->request.listen_sock = -1;
    fcgi->request.ipcFd = fcgi->fd;
    fcgi->request.keepConnection = 1;
    fcgi->request.detached = 1;
    if (FCGX_Accept_r(&fcgi->request) != 0) {
        fcgi->fd = -1; /* closed by libfcgi */
        return false;
    }
    fcgi->request.keepConnection = 0;
    return true;
}

/* Answer a request that libfcgi must not see. */
static void refuse(struct fastcgi *fcgi, enum fastcgi_head_state state)
{
    enum { UNKNOWN_ROLE = 3, PROTOCOL_STATUS_AT = 4 };
    unsigned char end[2 * FASTCGI_HEADER_BYTES] = {0};

    if (state == FASTCGI_HEAD_TOO_LARGE) {
        fastcgi_write(fcgi, too_large_answer, sizeof too_large_answer - 1);
        fastcgi_end(fcgi);
    } else if (state == FASTCGI_HEAD_OTHER_ROLE) {
        fastcgi_record_write(end, FASTCGI_END_REQUEST, fcgi->head.request_id, FASTCGI_HEADER_BYTES);
        end[FASTCGI_HEADER_BYTES + PROTOCOL_STATUS_AT] = UNKNOWN_ROLE;
        if (send(fcgi->fd, end, sizeof end, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof end)
            begin_to_linger(fcgi);
    }
    fastcgi_finish(fcgi);
}

enum fastcgi_accepted fastcgi_take(struct fastcgi *fcgi, int listen_fd, int64_t stall_ms)
{
    union {
        struct sockaddr any;
        struct sockaddr_storage room;
    } peer;
    socklen_t peer_bytes = sizeof peer;
    int one = 1;

    peer.any.sa_family = AF_UNSPEC;
    fastcgi_finish(fcgi);
    fcgi->fd = accept4(listen_fd, &peer.any, &peer_bytes, SOCK_CLOEXEC);
    if (fcgi->fd < 0)
        return is_exhausted(errno) ? FASTCGI_EXHAUSTED : FASTCGI_NOTHING;
    if (peer.any.sa_family == AF_INET || peer.any.sa_family == AF_INET6)
        (void)setsockopt(fcgi->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcgi->stall_ms = stall_ms;
    fcgi->read_timeout_ms = 0;
    fcgi->body = BODY_OPEN;
    fcgi->broken = false;
    fcgi->aborted = false;
    fcgi->late_have = fcgi->late_skip = 0;
    fcgi->sent_bytes = 0;
    fcgi->queued = 0;
    return FASTCGI_CONNECTION;
}

enum fastcgi_accepted fastcgi_read_head(struct fastcgi *fcgi)
{
    enum fastcgi_head_state state = await_head(fcgi);

    if (state == FASTCGI_HEAD_WHOLE)
        return read_head(fcgi) ? FASTCGI_REQUEST : FASTCGI_NOTHING;
    refuse(fcgi, state);
    return FASTCGI_NOTHING;
}

enum fastcgi_accepted fastcgi_accept(struct fastcgi *fcgi, int listen_fd, int64_t stall_ms)
{
    enum fastcgi_accepted taken = fastcgi_take(fcgi, listen_fd, stall_ms);

    return taken == FASTCGI_CONNECTION ? fastcgi_read_head(fcgi) : taken;
}
