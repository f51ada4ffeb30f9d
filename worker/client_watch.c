/* client_watch.c - the kernel's view of the client's connection; see client_watch.h. */
#include "worker/client_watch.h"

#include "base/check.h"
#include "base/parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct address {
    int family;
    unsigned char bytes[16];
};

enum answer {
    ANSWER_NONE,        /* the kernel did not say */
    ANSWER_ESTABLISHED, /* with this cookie */
    ANSWER_GONE,        /* no such connection, or one that is being closed */
};

void client_watch_init(struct client_watch *watch)
{
    *watch = (struct client_watch){.netlink = -1};
}

void client_watch_release(struct client_watch *watch)
{
    if (watch->netlink >= 0)
        close(watch->netlink);
    client_watch_init(watch);
}

/* "127.0.0.1", "::1" or "::ffff:127.0.0.1"; the last is IPv4 to the kernel too. */
static bool read_address(const char *text, struct address *ret)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

    memset(ret, 0, sizeof *ret);
    if (!text)
        return false;
    ret->family = AF_INET;
    if (inet_pton(AF_INET, text, ret->bytes) == 1)
        return true;
    ret->family = AF_INET6;
    if (inet_pton(AF_INET6, text, ret->bytes) != 1)
        return false;
    if (memcmp(ret->bytes, mapped, sizeof mapped) == 0) {
        ret->family = AF_INET;
        memmove(ret->bytes, ret->bytes + sizeof mapped, 4);
        memset(ret->bytes + 4, 0, sizeof ret->bytes - 4);
    }
    return true;
}

static bool read_port(const char *text, uint16_t *ret)
{
    uint64_t port;

    if (!text || !parse_u64(text, &port) || port == 0 || port > UINT16_MAX)
        return false;
    *ret = (uint16_t)port;
    return true;
}

static bool is_loopback(const struct address *address)
{
    if (address->family == AF_INET)
        return address->bytes[0] == 127;
    return memcmp(address->bytes, &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

static bool send_query(struct client_watch *watch, uint32_t sequence)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 body;
    } query;

    memset(&query, 0, sizeof query);
    query.header.nlmsg_len = sizeof query;
    query.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    query.header.nlmsg_flags = NLM_F_REQUEST;
    query.header.nlmsg_seq = sequence;
    query.body.sdiag_family = (uint8_t)watch->family;
    query.body.sdiag_protocol = IPPROTO_TCP;
    query.body.idiag_states = UINT32_MAX;
    query.body.id.idiag_sport = htons(watch->local_port);
    query.body.id.idiag_dport = htons(watch->remote_port);
    memcpy(query.body.id.idiag_src, watch->local, sizeof watch->local);
    memcpy(query.body.id.idiag_dst, watch->remote, sizeof watch->remote);
    query.body.id.idiag_cookie[0] = query.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return send(watch->netlink, &query, sizeof query, MSG_NOSIGNAL) == (ssize_t)sizeof query;
}

static enum answer judge(const struct nlmsghdr *header, size_t length, uint32_t *ret_cookie)
{
    if (header->nlmsg_type == NLMSG_ERROR && length >= NLMSG_LENGTH(sizeof(struct nlmsgerr))) {
        struct nlmsgerr error;

        memcpy(&error, (const char *)header + NLMSG_HDRLEN, sizeof error);
        return error.error == -ENOENT ? ANSWER_GONE : ANSWER_NONE;
    }
    if (header->nlmsg_type == SOCK_DIAG_BY_FAMILY &&
        length >= NLMSG_LENGTH(sizeof(struct inet_diag_msg))) {
        struct inet_diag_msg message;

        memcpy(&message, (const char *)header + NLMSG_HDRLEN, sizeof message);
        memcpy(ret_cookie, message.id.idiag_cookie, sizeof message.id.idiag_cookie);
        return message.idiag_state == TCP_ESTABLISHED ? ANSWER_ESTABLISHED : ANSWER_GONE;
    }
    return ANSWER_NONE;
}

static enum answer query_kernel(struct client_watch *watch, uint32_t *ret_cookie)
{
    static _Thread_local uint32_t sequence;
    union {
        struct nlmsghdr header;
        char room[1024];
    } reply;
    ssize_t n;

    if (watch->netlink < 0)
        watch->netlink = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (watch->netlink < 0 || !send_query(watch, ++sequence))
        return ANSWER_NONE;
    /* The kernel answers within send; what is left of earlier queries is passed over. */
    while ((n = recv(watch->netlink, &reply, sizeof reply, MSG_DONTWAIT)) > 0)
        if ((size_t)n >= sizeof reply.header && reply.header.nlmsg_seq == sequence)
            return judge(&reply.header, (size_t)n, ret_cookie);
    return ANSWER_NONE;
}

void client_watch_begin(struct client_watch *watch, const char *server_addr,
                        const char *server_port, const char *remote_addr, const char *remote_port)
{
    struct address remote, server;
    const struct address *local = &remote;

    watch->active = false;
    if (!read_address(remote_addr, &remote) || !read_port(remote_port, &watch->remote_port) ||
        !read_port(server_port, &watch->local_port))
        return;
    if (server_addr && *server_addr) {
        if (!read_address(server_addr, &server) || server.family != remote.family)
            return;
        local = &server;
    } else if (!is_loopback(&remote)) {
        return;
    }
    watch->family = remote.family;
    memcpy(watch->local, local->bytes, sizeof watch->local);
    memcpy(watch->remote, remote.bytes, sizeof watch->remote);
    watch->active = query_kernel(watch, watch->cookie) == ANSWER_ESTABLISHED;
}

bool client_watch_gone(struct client_watch *watch)
{
    uint32_t cookie[LENGTH(watch->cookie)];
    enum answer answer;

    if (!watch->active)
        return false;
    answer = query_kernel(watch, cookie);
    return answer == ANSWER_GONE ||
           (answer == ANSWER_ESTABLISHED && memcmp(cookie, watch->cookie, sizeof cookie) != 0);
}
