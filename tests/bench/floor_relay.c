/*
 * floor_relay.c - what FastCGI costs before a gateway's own code: a bare prefork relay on libfcgi.
 *
 *   floor_relay SOCKET WORKERS UPSTREAM_PORT
 * The reference "floor" of `make bench`, not a product: one request per process at a time, blocking
 * keep-alive HTTP to 127.0.0.1, no key, no limit, no check, no log.
 */
#include <arpa/inet.h>
#include <fcgiapp.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_MAX 8192
#define BODY_AT_ONCE 32768

struct relay {
    FCGX_Request *request;
    unsigned upstream_port;
    int fd;            /* kept open to the upstream, -1 = none */
    char bytes[65536]; /* what travels, in either direction */
    bool chunked, event_stream, over;
    long left; /* of the body, or of the chunk */
    enum { SIZE, SIZE_LINE, DATA, DATA_END, LAST_LINE } chunk_part;
};

static void hang_up(struct relay *relay)
{
    if (relay->fd >= 0)
        (void)close(relay->fd);
    relay->fd = -1;
}

static bool dial(struct relay *relay)
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)relay->upstream_port)};
    int one = 1;

    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    relay->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(relay->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return connect(relay->fd, (const struct sockaddr *)&name, sizeof name) == 0;
}

static bool send_all(struct relay *relay, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(relay->fd, bytes, length, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        bytes += sent;
        length -= (size_t)sent;
    }
    return true;
}

static const char *param(const struct relay *relay, const char *name)
{
    const char *value = FCGX_GetParam(name, relay->request->envp);

    return value ? value : "";
}

/* Head and body; a small body goes out with the head. */
static bool send_request(struct relay *relay)
{
    long left = strtol(param(relay, "CONTENT_LENGTH"), NULL, 10);
    int head = snprintf(relay->bytes, HEAD_MAX,
                        "%s %s HTTP/1.1\r\nHost: upstream\r\nContent-Type: %s\r\n"
                        "Content-Length: %ld\r\n\r\n",
                        param(relay, "REQUEST_METHOD"), param(relay, "REQUEST_URI"),
                        param(relay, "CONTENT_TYPE"), left);
    size_t filled = head > 0 && head < HEAD_MAX ? (size_t)head : 0;

    do {
        int room = left < BODY_AT_ONCE ? (int)left : BODY_AT_ONCE;
        int got = room > 0 ? FCGX_GetStr(relay->bytes + filled, room, relay->request->in) : 0;

        if (got < room || !send_all(relay, relay->bytes, filled + (size_t)got))
            return false;
        left -= got;
        filled = 0;
    } while (left > 0);
    return true;
}

/* Returns the bytes read, of which *ret_head are the head; 0 = the upstream is gone. */
static size_t receive_head(struct relay *relay, size_t *ret_head)
{
    size_t got = 0;

    for (;;) {
        ssize_t more = recv(relay->fd, relay->bytes + got, sizeof relay->bytes - 1 - got, 0);
        const char *end;

        if (more <= 0)
            return 0;
        got += (size_t)more;
        relay->bytes[got] = '\0';
        end = strstr(relay->bytes, "\r\n\r\n");
        if (end) {
            *ret_head = (size_t)(end + 4 - relay->bytes);
            return got;
        }
    }
}

static void pass_head(struct relay *relay, size_t head)
{
    const char *length;
    char next = relay->bytes[head];

    relay->bytes[head] = '\0'; /* the body is not to be searched */
    length = strcasestr(relay->bytes, "\ncontent-length:");
    relay->chunked = strcasestr(relay->bytes, "\ntransfer-encoding: chunked") != NULL;
    relay->event_stream = strcasestr(relay->bytes, "event-stream") != NULL;
    relay->left = length ? strtol(length + sizeof "\ncontent-length:" - 1, NULL, 10) : 0;
    relay->over = !relay->chunked && relay->left == 0;
    relay->chunk_part = SIZE;
    (void)FCGX_FPrintF(relay->request->out, "Status: %d\r\nContent-Type: %s\r\n",
                       (int)strtol(relay->bytes + sizeof "HTTP/1.1 " - 1, NULL, 10),
                       relay->event_stream ? "text/event-stream" : "application/json");
    if (!relay->chunked)
        (void)FCGX_FPrintF(relay->request->out, "Content-Length: %d\r\n", (int)relay->left);
    (void)FCGX_PutStr("\r\n", 2, relay->request->out);
    if (relay->event_stream)
        (void)FCGX_FFlush(relay->request->out);
    relay->bytes[head] = next;
    if (relay->chunked)
        relay->left = 0;
}

static size_t pass_data(struct relay *relay, const char *bytes, size_t length)
{
    size_t taken = (long)length < relay->left ? length : (size_t)relay->left;

    (void)FCGX_PutStr(bytes, (int)taken, relay->request->out);
    relay->left -= (long)taken;
    return taken;
}

static void read_frame(struct relay *relay, char c)
{
    bool line_end = c == '\n';

    switch (relay->chunk_part) {
    case SIZE:
        if (!line_end && c != '\r') {
            char digit[2] = {c, '\0'};

            relay->left = relay->left * 16 + strtol(digit, NULL, 16);
            break;
        }
        relay->chunk_part = SIZE_LINE;
        __attribute__((fallthrough));
    case SIZE_LINE:
        if (line_end)
            relay->chunk_part = relay->left ? DATA : LAST_LINE;
        break;
    case DATA_END:
        if (line_end)
            relay->chunk_part = SIZE;
        break;
    case LAST_LINE:
        relay->over = line_end;
        break;
    case DATA:
        break;
    }
}

static void pass_body(struct relay *relay, const char *bytes, size_t length)
{
    size_t at = 0;

    while (at < length && !relay->over) {
        if (!relay->chunked) {
            at += pass_data(relay, bytes + at, length - at);
            relay->over = relay->left == 0;
        } else if (relay->chunk_part == DATA) {
            at += pass_data(relay, bytes + at, length - at);
            if (relay->left == 0)
                relay->chunk_part = DATA_END;
        } else {
            read_frame(relay, bytes[at++]);
        }
    }
    if (relay->event_stream && FCGX_FFlush(relay->request->out) < 0)
        hang_up(relay); /* the client left */
}

static void serve(struct relay *relay)
{
    size_t head = 0, got = 0;

    if ((relay->fd >= 0 || dial(relay)) && send_request(relay))
        got = receive_head(relay, &head);
    if (got == 0) {
        hang_up(relay);
        (void)FCGX_FPrintF(relay->request->out,
                           "Status: 502\r\nContent-Type: text/plain\r\n\r\nno upstream\n");
        return;
    }
    pass_head(relay, head);
    pass_body(relay, relay->bytes + head, got - head);
    while (!relay->over && relay->fd >= 0) {
        ssize_t more = recv(relay->fd, relay->bytes, sizeof relay->bytes, 0);

        if (more <= 0)
            hang_up(relay);
        else
            pass_body(relay, relay->bytes, (size_t)more);
    }
}

static _Noreturn void work(int listen_fd, unsigned upstream_port)
{
    static struct relay relay;
    FCGX_Request request;

    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)FCGX_InitRequest(&request, listen_fd, 0);
    relay.request = &request;
    relay.upstream_port = upstream_port;
    relay.fd = -1;
    while (FCGX_Accept_r(&request) == 0) {
        serve(&relay);
        FCGX_Finish_r(&request);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    int listen_fd;
    long workers;

    if (argc != 4) {
        (void)fprintf(stderr, "usage: floor_relay SOCKET WORKERS UPSTREAM_PORT\n");
        return 64;
    }
    (void)unlink(argv[1]);
    (void)FCGX_Init();
    listen_fd = FCGX_OpenSocket(argv[1], 4096);
    if (listen_fd < 0 || chmod(argv[1], 0666) != 0)
        return 71;
    (void)signal(SIGPIPE, SIG_IGN);
    workers = strtol(argv[2], NULL, 10);
    for (long i = 0; i < workers; i++)
        if (fork() == 0)
            work(listen_fd, (unsigned)strtoul(argv[3], NULL, 10));
    for (;;)
        (void)pause();
}
