/* activation.c - sockets handed over or made, and words to the service manager; see activation.h.
 */
#include "worker/activation.h"

#include "base/clock.h"
#include "base/parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_PASSED_FD 3 /* SD_LISTEN_FDS_START */
#define BACKLOG 4096
#define KEEP_VARIABLE "PENSTOCK_REEXEC_SOCKETS"

static int env_number(const char *name)
{
    const char *value = getenv(name);
    uint64_t number;

    if (!value || !parse_u64(value, &number) || number > 1000000)
        return -1;
    return (int)number;
}

static bool make_ready(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, 0) == 0;
}

/* systemd's: told apart by FileDescriptorName=; without names, in order. */
static void take_passed(struct listeners *listeners)
{
    const char *names = getenv("LISTEN_FDNAMES");
    int count = env_number("LISTEN_FDS");

    if (env_number("LISTEN_PID") != (int)getpid())
        count = 0;
    for (int i = 0; i < count; i++) {
        size_t length = names ? strcspn(names, ":") : 0;
        int fd = FIRST_PASSED_FD + i;
        bool status = names ? length == 6 && strncmp(names, "status", 6) == 0 : i == 1;

        if (status)
            listeners->status = fd;
        else if (listeners->fcgi < 0)
            listeners->fcgi = fd;
        if (names)
            names += length + (names[length] == ':');
    }
    listeners->activated = count > 0;
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
}

static void take_kept(struct listeners *listeners)
{
    const char *kept = getenv(KEEP_VARIABLE);
    int activated = 0;

    if (kept && sscanf(kept, "%d %d %d", &listeners->fcgi, &listeners->status, &activated) != 3)
        listeners->fcgi = listeners->status = -1;
    listeners->activated = activated != 0;
    (void)unsetenv(KEEP_VARIABLE);
}

void activation_keep(const struct listeners *listeners)
{
    char kept[48];

    (void)snprintf(kept, sizeof kept, "%d %d %d", listeners->fcgi, listeners->status,
                   listeners->activated);
    (void)setenv(KEEP_VARIABLE, kept, 1);
}

static bool set_owner(const char *path, const struct options *options, struct text *why)
{
    const char *name = options->penstock.listen_group;
    const struct group *group = *name ? getgrnam(name) : NULL;

    if (*name && !group) {
        text_printf(why, "penstock.listen_group: there is no group \"%s\"", name);
        return false;
    }
    if (chmod(path, (mode_t)options->penstock.listen_mode) != 0 ||
        (group && chown(path, (uid_t)-1, group->gr_gid) != 0)) {
        text_printf(why, "cannot set mode and group of %s: %s", path, strerror(errno));
        return false;
    }
    return true;
}

/* Made under another name and then put in the place of the old one, so that at no time a client finds
 * no socket, or one that is not yet its group's. The old one may still be served by an orphaned
 * generation, which takes what stands in its backlog. */
static int listen_unix(const char *path, const struct options *options, struct text *why)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (fd < 0)
        goto fail;
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s.new", path) >=
        (int)sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        goto fail;
    }
    if (unlink(address.sun_path) != 0 && errno != ENOENT)
        goto fail;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, BACKLOG) != 0)
        goto fail;
    if (!set_owner(address.sun_path, options, why)) {
        (void)unlink(address.sun_path);
        (void)close(fd);
        return -1;
    }
    if (rename(address.sun_path, path) == 0)
        return fd;

fail:
    text_printf(why, "cannot listen on unix:%s: %s", path, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static int listen_tcp(const char *listen_on, struct text *why)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};
    const char *colon = strrchr(listen_on, ':');
    char host[64] = "";
    uint64_t port = 0;
    const int one = 1;
    bool is_six = listen_on[0] == '[';
    int fd;

    if (!colon || !parse_u64(colon + 1, &port) || port > 65535 ||
        (size_t)(colon - listen_on) >= sizeof host ||
        (is_six && (colon < listen_on + 2 || colon[-1] != ']'))) {
        text_printf(why, "cannot listen on %s: not an address and port", listen_on);
        return -1;
    }
    memcpy(host, listen_on + is_six, (size_t)(colon - listen_on) - (is_six ? 2 : 0));
    six.sin6_port = htons((uint16_t)port);
    four.sin_port = htons((uint16_t)port);
    fd = socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    if (fd >= 0)
        errno = EINVAL; /* what inet_pton's refusal means */
    if (fd >= 0 &&
        inet_pton(is_six ? AF_INET6 : AF_INET, host,
                  is_six ? (void *)&six.sin6_addr : (void *)&four.sin_addr) == 1 &&
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, is_six ? (struct sockaddr *)&six : (struct sockaddr *)&four,
             is_six ? sizeof six : sizeof four) == 0 &&
        listen(fd, BACKLOG) == 0)
        return fd;
    text_printf(why, "cannot listen on %s: %s", listen_on, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static int listen_on(const char *where, const struct options *options, struct text *why)
{
    if (strncmp(where, "unix:", 5) == 0)
        return listen_unix(where + 5, options, why);
    return listen_tcp(where, why);
}

bool activation_listen(const struct options *options, struct listeners *ret_listeners,
                       struct text *why)
{
    struct listeners listeners = {.fcgi = -1, .status = -1};

    take_kept(&listeners);
    if (listeners.fcgi < 0)
        take_passed(&listeners);
    if (listeners.fcgi < 0)
        listeners.fcgi = listen_on(options->penstock.listen, options, why);
    if (listeners.fcgi >= 0 && listeners.status < 0)
        listeners.status = listen_on(options->penstock.status_listen, options, why);
    if (listeners.fcgi < 0 || listeners.status < 0)
        return false;
    if (!make_ready(listeners.fcgi) || !make_ready(listeners.status)) {
        text_printf(why, "a socket that was handed over cannot be used: %s", strerror(errno));
        return false;
    }
    *ret_listeners = listeners;
    return true;
}

void activation_notify(const char *lines)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path ? strlen(path) : 0;
    int fd;

    if (length < 2 || length >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    /* Best effort: a service manager that does not read must not stop us. */
    if (sendto(fd, lines, strlen(lines), MSG_NOSIGNAL, (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
        errno = 0;
    (void)close(fd);
}

void activation_notify_reloading(int64_t now_ns)
{
    char lines[64];

    /* The time is for Type=notify-reload (systemd 253 and later). */
    (void)snprintf(lines, sizeof lines, "RELOADING=1\nMONOTONIC_USEC=%lld",
                   (long long)(now_ns / NS_PER_US));
    activation_notify(lines);
}

int64_t activation_watchdog_ms(void)
{
    const char *value = getenv("WATCHDOG_USEC");
    uint64_t us;

    if (!value || !parse_u64(value, &us) || us > UINT64_C(86400000000))
        return 0;
    return (int64_t)(us / 2000);
}
