/* fastcgi_call.c - FastCGI from the web server's side; see fastcgi_call.h. */
#include "worker/fastcgi_call.h"

#include "base/clock.h"
#include "base/parse.h"
#include "worker/fastcgi_head.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define REQUEST_ID 1
#define RECORD_BYTES_MAX 65535U

/* ---- the request ----------------------------------------------------------------------------- */

static void append_record(struct text *out, enum fastcgi_type type, const char *content,
                          size_t length)
{
    unsigned char header[FASTCGI_HEADER_BYTES];

    fastcgi_record_write(header, type, REQUEST_ID, length);
    text_append(out, (const char *)header, sizeof header);
    text_append(out, content, length);
}

/* FastCGI 3.4: one byte, or four with the highest bit set. */
static void append_length(struct text *out, size_t length)
{
    if (length < 128) {
        text_append_char(out, (char)length);
        return;
    }
    text_append_char(out, (char)(0x80 | (length >> 24 & 0x7f)));
    text_append_char(out, (char)(length >> 16 & 0xff));
    text_append_char(out, (char)(length >> 8 & 0xff));
    text_append_char(out, (char)(length & 0xff));
}

bool fastcgi_call_encode(const struct fastcgi_call *call, struct text *out)
{
    static const char responder[8] = {0, 1, 0, 0, 0, 0, 0, 0}; /* role 1, close afterwards */
    size_t body_length = call->body ? strlen(call->body) : 0;
    struct text parameters;
    bool fits;

    text_init(&parameters, RECORD_BYTES_MAX);
    for (size_t i = 0; i < call->parameter_count; i++) {
        const struct fastcgi_call_parameter *parameter = &call->parameters[i];

        append_length(&parameters, strlen(parameter->name));
        append_length(&parameters, strlen(parameter->value));
        text_append_string(&parameters, parameter->name);
        text_append_string(&parameters, parameter->value);
    }
    fits = !parameters.overflowed && body_length <= RECORD_BYTES_MAX;
    if (fits) {
        append_record(out, FASTCGI_BEGIN_REQUEST, responder, sizeof responder);
        if (parameters.length > 0)
            append_record(out, FASTCGI_PARAMS, parameters.bytes, parameters.length);
        append_record(out, FASTCGI_PARAMS, "", 0);
        if (body_length > 0)
            append_record(out, FASTCGI_STDIN, call->body, body_length);
        append_record(out, FASTCGI_STDIN, "", 0);
    }
    text_release(&parameters);
    return fits && !out->overflowed;
}

/* ---- the answer ------------------------------------------------------------------------------ */

void fastcgi_reply_init(struct fastcgi_reply *reply, size_t limit)
{
    *reply = (struct fastcgi_reply){.state = FASTCGI_REPLY_MORE};
    text_init(&reply->text, limit);
}

void fastcgi_reply_release(struct fastcgi_reply *reply)
{
    text_release(&reply->text);
    fastcgi_reply_init(reply, reply->text.limit);
}

/* The Status header (RFC 3875, 6.3.3) among the head's lines. -1: there is one, but it is not a
 * status. */
static int status_of_head(const char *head, size_t length)
{
    static const char name[] = "Status:";
    const char *end = head + length;

    while (head < end) {
        const char *line_end = memchr(head, '\n', (size_t)(end - head));
        size_t line_length = (size_t)((line_end ? line_end : end) - head);
        uint64_t status;

        if (line_length >= sizeof name - 1 && strncasecmp(head, name, sizeof name - 1) == 0) {
            const char *value = head + sizeof name - 1;

            while (value < head + line_length && *value == ' ')
                value++;
            if (head + line_length - value < 3 || !parse_u64_bytes(value, 3, &status) ||
                status < 100 || status > 599)
                return -1;
            return (int)status;
        }
        head += line_length + 1;
    }
    return 200;
}

/* END_REQUEST has come: head and body. */
static enum fastcgi_reply_state finish(struct fastcgi_reply *reply)
{
    const char *all = text_string(&reply->text);
    const char *blank = strstr(all, "\r\n\r\n");
    size_t gap = 4;

    if (reply->end_length < 5 || reply->end_body[4] != 0 || reply->text.overflowed)
        return FASTCGI_REPLY_BAD;
    if (!blank) {
        blank = strstr(all, "\n\n");
        gap = 2;
    }
    if (!blank)
        return FASTCGI_REPLY_BAD;
    reply->status = status_of_head(all, (size_t)(blank - all));
    reply->body = blank + gap;
    reply->body_length = reply->text.length - (size_t)(reply->body - all);
    return reply->status < 0 ? FASTCGI_REPLY_BAD : FASTCGI_REPLY_DONE;
}

static void take_content(struct fastcgi_reply *reply, const char *bytes, size_t length)
{
    size_t room = sizeof reply->end_body - reply->end_length;

    switch (reply->header[1]) {
    case FASTCGI_STDOUT:
        text_append(&reply->text, bytes, length);
        break;
    case FASTCGI_END_REQUEST:
        memcpy(reply->end_body + reply->end_length, bytes, length < room ? length : room);
        reply->end_length += length < room ? length : room;
        break;
    default: /* STDERR and what is unknown */
        break;
    }
}

static enum fastcgi_reply_state record_begins(struct fastcgi_reply *reply)
{
    struct fastcgi_record record = fastcgi_record_read(reply->header);

    if (record.version != 1 || record.request_id != REQUEST_ID)
        return FASTCGI_REPLY_BAD;
    reply->content_left = record.content_bytes;
    reply->padding_left = record.padding_bytes;
    return FASTCGI_REPLY_MORE;
}

/* Take what belongs to one part of a record; returns how much. */
static size_t take_piece(struct fastcgi_reply *reply, const char *bytes, size_t length)
{
    size_t *left = reply->content_left > 0 ? &reply->content_left : &reply->padding_left;

    if (reply->header_length < sizeof reply->header) {
        reply->header[reply->header_length++] = (unsigned char)*bytes;
        if (reply->header_length == sizeof reply->header)
            reply->state = record_begins(reply);
        length = 1;
    } else {
        length = length < *left ? length : *left;
        if (left == &reply->content_left)
            take_content(reply, bytes, length);
        *left -= length;
    }
    if (reply->header_length == sizeof reply->header && reply->state == FASTCGI_REPLY_MORE &&
        reply->content_left == 0 && reply->padding_left == 0) {
        if (reply->header[1] == FASTCGI_END_REQUEST)
            reply->state = finish(reply);
        reply->header_length = 0;
    }
    return length;
}

enum fastcgi_reply_state fastcgi_reply_feed(struct fastcgi_reply *reply, const char *bytes,
                                            size_t length)
{
    while (length > 0 && reply->state == FASTCGI_REPLY_MORE) {
        size_t taken = take_piece(reply, bytes, length);

        bytes += taken;
        length -= taken;
    }
    return reply->state;
}

/* ---- the connection -------------------------------------------------------------------------- */

struct address {
    struct sockaddr_storage storage;
    socklen_t length;
};

static bool parse_unix(const char *path, struct address *ret_address)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    if (!*path || !text_copy(name.sun_path, sizeof name.sun_path, path))
        return false;
    memcpy(&ret_address->storage, &name, sizeof name);
    ret_address->length = sizeof name;
    return true;
}

static bool parse_address(const char *string, struct address *ret_address)
{
    struct sockaddr_in name4 = {.sin_family = AF_INET};
    struct sockaddr_in6 name6 = {.sin6_family = AF_INET6};
    const char *colon = strrchr(string, ':');
    char host[64];
    uint64_t port;

    *ret_address = (struct address){0};
    if (strncmp(string, "unix:", 5) == 0)
        return parse_unix(string + 5, ret_address);
    if (string[0] == '/')
        return parse_unix(string, ret_address);
    if (!colon || (size_t)(colon - string) >= sizeof host || !parse_u64(colon + 1, &port) ||
        port == 0 || port > 65535)
        return false;
    memcpy(host, string, (size_t)(colon - string));
    host[colon - string] = '\0';
    if (inet_pton(AF_INET, host, &name4.sin_addr) == 1) {
        name4.sin_port = htons((uint16_t)port);
        memcpy(&ret_address->storage, &name4, sizeof name4);
        ret_address->length = sizeof name4;
        return true;
    }
    if (host[0] != '[' || host[strlen(host) - 1] != ']')
        return false;
    host[strlen(host) - 1] = '\0';
    name6.sin6_port = htons((uint16_t)port);
    if (inet_pton(AF_INET6, host + 1, &name6.sin6_addr) != 1)
        return false;
    memcpy(&ret_address->storage, &name6, sizeof name6);
    ret_address->length = sizeof name6;
    return true;
}

bool fastcgi_address_is_valid(const char *address)
{
    struct address parsed;

    return parse_address(address, &parsed);
}

static bool connect_to(const struct fastcgi_call *call, int *ret_fd, struct text *why)
{
    /* also the longest wait for a place in the other side's backlog */
    struct timeval limit = {.tv_sec = call->timeout_ms / 1000,
                            .tv_usec = (call->timeout_ms % 1000) * 1000};
    struct address address;
    int fd;

    if (!parse_address(call->address, &address)) {
        text_printf(why, "\"%s\" is no socket address (unix:PATH or ADDRESS:PORT)", call->address);
        return false;
    }
    fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        connect(fd, (const struct sockaddr *)&address.storage, address.length) != 0) {
        text_printf(why, "cannot connect to %s: %s", call->address, strerror(errno));
        if (fd >= 0)
            (void)close(fd);
        return false;
    }
    *ret_fd = fd;
    return true;
}

static bool send_all(int fd, const struct text *request, struct text *why)
{
    for (size_t sent = 0; sent < request->length;) {
        ssize_t got = send(fd, request->bytes + sent, request->length - sent, MSG_NOSIGNAL);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            text_printf(why, "cannot send the request: %s", strerror(errno));
            return false;
        }
        sent += (size_t)got;
    }
    return true;
}

static bool receive_all(int fd, int64_t deadline_ns, struct fastcgi_reply *reply, struct text *why)
{
    char bytes[16384];

    while (reply->state == FASTCGI_REPLY_MORE) {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        int ready = poll(&readable, 1, clock_poll_ms(clock_monotonic_ns(), deadline_ns));
        ssize_t got;

        if (ready < 0 && errno == EINTR)
            continue;
        if (ready == 0) {
            text_append_string(why, "no answer in time");
            return false;
        }
        got = recv(fd, bytes, sizeof bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            text_printf(why, "the answer broke off%s%s", got < 0 ? ": " : "",
                        got < 0 ? strerror(errno) : "");
            return false;
        }
        (void)fastcgi_reply_feed(reply, bytes, (size_t)got);
    }
    if (reply->state == FASTCGI_REPLY_BAD)
        text_append_string(why, "what answers there does not speak FastCGI as Penstock does");
    return reply->state == FASTCGI_REPLY_DONE;
}

bool fastcgi_call_make(const struct fastcgi_call *call, struct fastcgi_reply *reply,
                       struct text *why)
{
    int64_t deadline_ns = clock_monotonic_ns() + call->timeout_ms * NS_PER_MS;
    struct text request;
    bool answered = false;
    int fd = -1;

    text_init(&request, (size_t)2 * RECORD_BYTES_MAX);
    if (!fastcgi_call_encode(call, &request)) {
        text_append_string(why, "the request is too large");
        goto out;
    }
    answered = connect_to(call, &fd, why) && send_all(fd, &request, why) &&
               receive_all(fd, deadline_ns, reply, why);
out:
    if (fd >= 0)
        (void)close(fd);
    text_release(&request);
    return answered;
}
