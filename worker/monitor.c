/*
 * monitor.c - the monitor process: status threads, housekeeping, its end; see monitor.h.
 *
 * Threads: two answer the status socket; the bell thread buries the dead and ticks the gate, as in
 * every worker; the scribe writes the ledger; the main thread waits for signals and looks whether
 * the segment's name is still there, and what the controllers of flow control do. A ledger that
 * blocks or a reader that stalls stops none of the others.
 *
 *   SIGQUIT, SIGTERM  end, when the last worker has gone or a newer monitor is there
 *   SIGUSR1           open the log file again
 * Without a master (it was killed) it goes on until a newer monitor of the instance is there; when
 * orphan_timeout_s has passed, it is as if it had been told to end.
 */
#include "worker/monitor.h"

#include "base/clock.h"
#include "base/log.h"
#include "worker/bell.h"
#include "worker/fastcgi.h"
#include "worker/flow_state.h"
#include "worker/flow_watch.h"
#include "worker/scribe.h"
#include "worker/serve.h"
#include "worker/status_answer.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define STATUS_THREADS 2U
#define STATUS_STALL_MS 5000
#define EXHAUSTED_NAP_NS (50 * NS_PER_MS)
#define LOOK_MS 250
#define ENDING_LOOK_MS 50
#define LINK_LOOK_NS NS_PER_S
#define FLOW_SAVE_NS (30 * NS_PER_S)

struct monitor {
    const struct child_context *context;
    struct gate gate;
    struct bell bell;
    struct scribe scribe;
    struct status_house house;
    pthread_t threads[STATUS_THREADS];
    unsigned thread_count;
    atomic_bool stop;
    int stop_fd;
    int signal_fd;
    int64_t orphan_since_ns; /* 0 = the master lives */
    int64_t next_link_look_ns;
    int64_t next_flow_save_ns;
    struct flow_view flow_views[FLOWS_MAX];
    struct flow_watch flow_watch;
    bool flow_save_failed;
    bool unlinked;
    bool ending; /* was told to, or has waited long enough for a master */
};

/* ---- one status request ---------------------------------------------------------------------- */

static const char *param(const struct fastcgi *fcgi, const char *name)
{
    const char *value = fastcgi_param(fcgi, name);

    return value ? value : "";
}

/* Is the process at the other end of the unix socket root's or our own user's? */
static bool is_trusted(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    int domain = 0;
    socklen_t domain_length = sizeof domain;

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_length) == 0 &&
           domain == AF_UNIX && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
           (peer.uid == 0 || peer.uid == geteuid());
}

static void answer_request(const struct monitor *monitor, struct fastcgi *fcgi)
{
    const struct status_question question = {
        .method = param(fcgi, "REQUEST_METHOD"),
        .uri = param(fcgi, "REQUEST_URI"),
        .accept = param(fcgi, "HTTP_ACCEPT"),
        .remote_address = param(fcgi, "REMOTE_ADDR"),
        .forwarded_for = param(fcgi, "HTTP_X_FORWARDED_FOR"),
        .vouched = strcmp(param(fcgi, "PENSTOCK_STATUS_ALLOW"), "1") == 0,
        .control = strcmp(param(fcgi, "PENSTOCK_CONTROL"), "1") == 0,
        .trusted = is_trusted(fastcgi_fd(fcgi)),
    };
    struct status_answer answer;
    struct text head;

    status_answer_init(&answer);
    text_init(&head, 4096);
    status_answer_make(&question, &monitor->house, &answer);
    status_answer_head(&answer, &head);
    (void)fastcgi_write(fcgi, text_string(&head), head.length);
    if (strcmp(question.method, "HEAD") != 0)
        (void)fastcgi_write(fcgi, text_string(&answer.body), answer.body.length);
    (void)fastcgi_end(fcgi);
    text_release(&head);
    status_answer_release(&answer);
}

/* ---- status threads -------------------------------------------------------------------------- */

static int make_epoll(const struct monitor *monitor)
{
    int status_fd = monitor->context->status_fd;
    struct epoll_event accept = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.fd = status_fd};
    struct epoll_event stop = {.events = EPOLLIN, .data.fd = monitor->stop_fd};
    int fd = epoll_create1(EPOLL_CLOEXEC);

    if (fd >= 0 && (epoll_ctl(fd, EPOLL_CTL_ADD, status_fd, &accept) != 0 ||
                    epoll_ctl(fd, EPOLL_CTL_ADD, monitor->stop_fd, &stop) != 0)) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

static void take_requests(struct monitor *monitor, struct fastcgi *fcgi, int epoll_fd)
{
    for (bool open = true; open;) {
        struct epoll_event event;
        enum fastcgi_accepted accepted;

        /* Why it looks without being woken, and once more after the end: door.h. */
        (void)epoll_wait(epoll_fd, &event, 1, LOOK_MS);
        open = !atomic_load(&monitor->stop);
        accepted = fastcgi_accept(fcgi, monitor->context->status_fd, STATUS_STALL_MS);
        if (accepted == FASTCGI_EXHAUSTED)
            clock_sleep_ns(EXHAUSTED_NAP_NS);
        if (accepted != FASTCGI_REQUEST)
            continue;
        answer_request(monitor, fcgi);
        fastcgi_finish(fcgi);
    }
}

static void *status_thread(void *argument)
{
    struct monitor *monitor = argument;
    struct fastcgi *fcgi = fastcgi_new();
    int epoll_fd = make_epoll(monitor);

    if (fcgi && epoll_fd >= 0)
        take_requests(monitor, fcgi, epoll_fd);
    else
        log_event(LOG_LEVEL_ERROR, "thread_failed", "a status thread could not start: %s",
                  strerror(errno));
    if (epoll_fd >= 0)
        (void)close(epoll_fd);
    fastcgi_free(fcgi);
    return NULL;
}

static bool start_status_threads(struct monitor *monitor)
{
    while (monitor->thread_count < STATUS_THREADS &&
           pthread_create(&monitor->threads[monitor->thread_count], NULL, status_thread, monitor) ==
               0)
        monitor->thread_count++;
    return monitor->thread_count > 0;
}

static void stop_status_threads(struct monitor *monitor)
{
    const uint64_t one = 1;

    atomic_store(&monitor->stop, true);
    if (write(monitor->stop_fd, &one, sizeof one) < 0)
        log_event(LOG_LEVEL_ERROR, "stop_failed", "%s", strerror(errno));
    for (unsigned i = 0; i < monitor->thread_count; i++)
        (void)pthread_join(monitor->threads[i], NULL);
}

/* ---- housekeeping ---------------------------------------------------------------------------- */

/* Somebody removed the segment's name: what runs goes on, but must be replaced all at once. */
static void look_at_link(struct monitor *monitor, int64_t now_ns)
{
    char detail[sizeof monitor->context->segment->name + 8];

    if (monitor->unlinked || now_ns < monitor->next_link_look_ns)
        return;
    monitor->next_link_look_ns = now_ns + LINK_LOOK_NS;
    if (segment_is_linked(monitor->context->segment))
        return;
    monitor->unlinked = true;
    log_event(LOG_LEVEL_ERROR, "segment_unlinked",
              "the shared memory %s was removed; running processes go on with it, but stop all "
              "Penstock processes that share the gate before the next start",
              monitor->context->segment->name);
    (void)snprintf(detail, sizeof detail, "name=%s", monitor->context->segment->name);
    gate_journal_event(&monitor->gate, clock_wall_ms(), "segment_unlinked", detail);
}

/* What controllers did goes into the ledger and the log. */
static void tell_congestion(void *context, const char *detail)
{
    struct monitor *monitor = context;

    log_event(LOG_LEVEL_NOTICE, "congestion", "%s", detail);
    gate_journal_event(&monitor->gate, clock_wall_ms(), "congestion", detail);
}

static unsigned look_at_flows(struct monitor *monitor, int64_t now_ns)
{
    const struct flow_watch_listener listener = {.tell = tell_congestion, .context = monitor};
    unsigned count;

    gate_lock(&monitor->gate);
    count = flow_views_locked(&monitor->gate, now_ns, monitor->flow_views);
    gate_unlock(&monitor->gate);
    flow_watch_look(&monitor->flow_watch, monitor->flow_views, count, now_ns, &listener);
    return count;
}

/* A failure is told once, until it works again. */
static void save_flows(struct monitor *monitor, unsigned count)
{
    struct text content, why;
    bool saved;

    text_init(&content, FLOW_STATE_BYTES_MAX);
    text_init(&why, 800);
    flow_state_encode(monitor->flow_views, count, clock_wall_ms(), &content);
    saved = flow_state_save(monitor->context->options->penstock.state_directory, &content, &why);
    if (!saved && !monitor->flow_save_failed)
        log_event(LOG_LEVEL_WARNING, "flow_state_unwritten",
                  "what flow control learns is lost with the next start of the machine: %s",
                  text_string(&why));
    monitor->flow_save_failed = !saved;
    text_release(&content);
    text_release(&why);
}

/* Only one monitor does it: a newer one takes over when this one is told to end. */
static void tend_flows(struct monitor *monitor, int64_t now_ns)
{
    unsigned count;

    if (monitor->ending)
        return;
    count = look_at_flows(monitor, now_ns);
    if (now_ns < monitor->next_flow_save_ns)
        return;
    monitor->next_flow_save_ns = now_ns + FLOW_SAVE_NS;
    if (count > 0)
        save_flows(monitor, count);
}

/* Does a process of this role and our instance live that was started after the one with this
 * incarnation? Incarnations only grow. */
static bool somebody_lives(struct monitor *monitor, enum process_role role, uint64_t newer_than)
{
    const struct roster_row *roster = segment_core(monitor->context->segment)->roster;
    bool lives = false;

    gate_lock(&monitor->gate);
    for (size_t i = 0; i < ROSTER_MAX; i++)
        lives = lives || (atomic_load(&roster[i].pid) != 0 && roster[i].role == role &&
                          roster[i].instance == monitor->context->segment->instance &&
                          roster[i].incarnation > newer_than);
    gate_unlock(&monitor->gate);
    return lives;
}

/* A newer monitor does our work; without one it is done when the last worker has gone, whose last rows
 * would stay in memory otherwise. */
static bool is_needed(struct monitor *monitor)
{
    const struct roster_row *roster = segment_core(monitor->context->segment)->roster;

    return !somebody_lives(monitor, PROCESS_MONITOR, roster[monitor->gate.self].incarnation) &&
           (!monitor->ending || somebody_lives(monitor, PROCESS_WORKER, 0));
}

/* The master is gone: for how long will it be waited for? */
static void look_for_master(struct monitor *monitor, int64_t now_ns)
{
    int64_t patience_ns = monitor->context->options->penstock.orphan_timeout_ms * NS_PER_MS;

    if (monitor->orphan_since_ns == 0) {
        monitor->orphan_since_ns = now_ns;
        log_event(LOG_LEVEL_WARNING, "orphaned",
                  "the master has ended; the monitor goes on until a newer one is there");
    }
    if (now_ns - monitor->orphan_since_ns >= patience_ns)
        monitor->ending = true;
}

/* At the end of all, not when a newer one goes on. */
static void save_last(struct monitor *monitor)
{
    const struct roster_row *roster = segment_core(monitor->context->segment)->roster;
    unsigned count = look_at_flows(monitor, clock_monotonic_ns());

    if (count > 0 &&
        !somebody_lives(monitor, PROCESS_MONITOR, roster[monitor->gate.self].incarnation))
        save_flows(monitor, count);
}

static void take_signal(struct monitor *monitor)
{
    struct signalfd_siginfo info;

    if (read(monitor->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    if (info.ssi_signo == SIGUSR1)
        log_reopen();
    else
        monitor->ending = true;
}

static void supervise(struct monitor *monitor)
{
    bool orphaned;

    do {
        struct pollfd look[] = {
            {.fd = monitor->signal_fd, .events = POLLIN},
            {.fd = monitor->orphan_since_ns ? -1 : monitor->context->master_pidfd,
             .events = POLLIN},
        };
        int64_t now_ns;

        (void)poll(look, LENGTH(look), monitor->ending ? ENDING_LOOK_MS : LOOK_MS);
        now_ns = clock_monotonic_ns();
        if (look[0].revents & POLLIN)
            take_signal(monitor);
        orphaned = (look[1].revents & POLLIN) || monitor->orphan_since_ns;
        if (orphaned)
            look_for_master(monitor, now_ns);
        look_at_link(monitor, now_ns);
        tend_flows(monitor, now_ns);
    } while (!(monitor->ending || orphaned) || is_needed(monitor));
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool set_up(struct monitor *monitor)
{
    const struct child_context *context = monitor->context;
    const struct roster_member member = {
        .role = PROCESS_MONITOR,
        .instance = context->segment->instance,
        .generation = context->generation,
        .threads = STATUS_THREADS,
    };
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGQUIT);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGUSR1);
    if (pthread_sigmask(SIG_BLOCK, &signals, NULL) != 0)
        return false;
    monitor->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    monitor->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fastcgi_init_process();
    return monitor->signal_fd >= 0 && monitor->stop_fd >= 0 &&
           gate_join(&monitor->gate, context->segment, &member, clock_monotonic_ns());
}

static bool start_all(struct monitor *monitor)
{
    monitor->house = (struct status_house){
        .gate = &monitor->gate,
        .options = monitor->context->options,
        .master_pidfd = monitor->context->master_pidfd,
    };
    /* one seat, which nobody takes: the monitor makes no image calls */
    return bell_start(&monitor->bell, &monitor->gate, 1) &&
           /* without a ledger it throws the records away, so that their rings do not fill */
           scribe_start(&monitor->scribe, &monitor->gate, monitor->context->options, true) &&
           start_status_threads(monitor);
}

int monitor_main(const struct child_context *context)
{
    static struct monitor monitor;

    monitor.context = context;
    monitor.next_flow_save_ns = clock_monotonic_ns() + FLOW_SAVE_NS;
    if (!set_up(&monitor) || !start_all(&monitor)) {
        log_event(LOG_LEVEL_ERROR, "monitor_failed", "the monitor could not start: %s",
                  strerror(errno));
        return EXIT_FAILURE;
    }
    child_ready(context);
    supervise(&monitor);
    save_last(&monitor);
    stop_status_threads(&monitor);
    if (monitor.scribe.running)
        scribe_stop(&monitor.scribe);
    bell_stop(&monitor.bell);
    gate_resign(&monitor.gate, clock_monotonic_ns());
    return EXIT_SUCCESS;
}
