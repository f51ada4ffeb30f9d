/*
 * serve.c - one worker process: its threads, its signals, its end.
 *
 * Request threads are plain and blocking: each waits for the socket or the stop event in an epoll
 * of its own (EPOLLEXCLUSIVE: the last to sleep is the first to wake, which keeps warm threads
 * warm), takes a request and lives through it. Signals are blocked in them; the main thread waits
 * for signals and for the master's end.
 *
 *   SIGQUIT  drain: take nothing new, finish what runs, end
 *   SIGTERM  the same, and end what runs with an error
 *   SIGUSR1  open the log file again
 * Without a master (it was killed) a worker serves on until a new master of the instance is there,
 * or orphan_timeout_s has passed; then it drains.
 */
#include "worker/serve.h"

#include "base/clock.h"
#include "base/log.h"
#include "worker/bell.h"
#include "worker/refuser.h"
#include "worker/request.h"
#include "worker/scribe.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define THREAD_STACK_BYTES (512U << 10)
#define EXHAUSTED_NAP_NS (50 * NS_PER_MS)
#define CUT_GRACE_NS (3 * NS_PER_S)
#define LOOK_NS (250 * NS_PER_MS)
#define LINGER_MS 30000 /* for the rest of an upload that was refused early */

struct server {
    const struct child_context *context;
    struct worker worker;
    struct scribe scribe;
    struct refuser refuser;
    pthread_t *threads;
    unsigned thread_count;
    atomic_uint running;
    int signal_fd;
    int64_t drain_until_ns;  /* CLOCK_NEVER: not draining */
    int64_t orphan_since_ns; /* 0 = the master lives */
};

struct thread_start {
    struct server *server;
    struct bell_seat *seat;
};

void serve_exit(int status)
{
    /* exit, not _exit: leak checkers and coverage speak in exit handlers */
    exit(status);
}

void child_ready(const struct child_context *context)
{
    const pid_t self = getpid();

    if (context->ready_fd >= 0 &&
        write(context->ready_fd, &self, sizeof self) != (ssize_t)sizeof self)
        log_event(LOG_LEVEL_WARNING, "ready_failed", "%s", strerror(errno));
}

static void take_requests(struct worker *worker, struct request *request)
{
    struct roster_row *row = &segment_core(worker->segment)->roster[worker->gate.self];
    for (;;) {
        bool open = !atomic_load(&worker->draining);
        enum fastcgi_accepted accepted;

        atomic_fetch_add(&row->threads_busy, 1);
        accepted = request_run(request);
        atomic_fetch_sub(&row->threads_busy, 1);
        if (accepted == FASTCGI_REQUEST || accepted == FASTCGI_CONNECTION) {
            bool busy = door_finished(&worker->door);

            if (atomic_load(&worker->draining))
                return;
            if (!busy)
                door_wait(&worker->door, request->thread);
        } else if (!open) {
            return; /* having looked once more: a connection it was woken for nobody else knows of */
        } else if (accepted == FASTCGI_EXHAUSTED) {
            clock_sleep_ns(EXHAUSTED_NAP_NS);
        } else {
            door_wait(&worker->door, request->thread);
        }
    }
}

static void *request_thread(void *argument)
{
    struct thread_start start = *(struct thread_start *)argument;
    struct worker *worker = &start.server->worker;
    struct request *request = request_new(worker, start.seat);

    free(argument);
    if (request) {
        request->thread = (unsigned)(start.seat - worker->bell.seats);
        fastcgi_set_linger(request->fcgi, LINGER_MS, worker->cut_fd);
        take_requests(worker, request);
    } else {
        log_event(LOG_LEVEL_ERROR, "thread_failed", "a request thread could not start: %s",
                  strerror(errno));
    }
    request_free(request);
    atomic_fetch_sub(&start.server->running, 1);
    return NULL;
}

static bool start_threads(struct server *server)
{
    pthread_attr_t attributes;
    bool started = true;

    server->threads = calloc(server->thread_count, sizeof server->threads[0]);
    if (!server->threads || pthread_attr_init(&attributes) != 0)
        return false;
    (void)pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    for (unsigned i = 0; i < server->thread_count && started; i++) {
        struct thread_start *start = malloc(sizeof *start);

        started = start != NULL;
        if (!started)
            break;
        *start = (struct thread_start){.server = server, .seat = &server->worker.bell.seats[i]};
        atomic_fetch_add(&server->running, 1);
        if (pthread_create(&server->threads[i], &attributes, request_thread, start) != 0) {
            atomic_fetch_sub(&server->running, 1);
            free(start);
            server->thread_count = i;
            started = i > 0;
            /* or the refuser would wait for ever for the missing ones to be busy */
            atomic_store(
                &segment_core(server->worker.segment)->roster[server->worker.gate.self].threads, i);
            log_event(LOG_LEVEL_WARNING, "threads_missing", "only %u request threads could be made",
                      i);
            break;
        }
    }
    (void)pthread_attr_destroy(&attributes);
    return started;
}

static void begin_drain(struct server *server)
{
    struct worker *worker = &server->worker;
    const uint64_t one = 1;

    if (atomic_exchange(&worker->draining, true))
        return;
    segment_core(worker->segment)->roster[worker->gate.self].draining = 1;
    server->drain_until_ns =
        clock_monotonic_ns() + server->context->options->penstock.stop_timeout_ms * NS_PER_MS;
    if (write(worker->stop_fd, &one, sizeof one) < 0)
        log_event(LOG_LEVEL_ERROR, "stop_failed", "%s", strerror(errno));
    door_close(&worker->door);
}

static void cut_running(struct server *server)
{
    const uint64_t one = 1;

    if (write(server->worker.cut_fd, &one, sizeof one) < 0)
        log_event(LOG_LEVEL_ERROR, "stop_failed", "%s", strerror(errno));
    server->drain_until_ns = clock_monotonic_ns() + CUT_GRACE_NS;
}

static void take_signal(struct server *server)
{
    struct signalfd_siginfo info;

    if (read(server->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    switch (info.ssi_signo) {
    case SIGUSR1:
        log_reopen();
        break;
    case SIGTERM:
    case SIGINT:
        begin_drain(server);
        cut_running(server);
        break;
    default:
        begin_drain(server);
        break;
    }
}

/* The master is gone: has another taken its seat, or has it been too long? */
static void look_for_master(struct server *server, int64_t now_ns)
{
    const struct child_context *context = server->context;
    int64_t patience_ns = context->options->penstock.orphan_timeout_ms * NS_PER_MS;

    if (server->orphan_since_ns == 0) {
        server->orphan_since_ns = now_ns;
        log_event(LOG_LEVEL_WARNING, "orphaned", "the master has ended; serving on for a new one");
    }
    if (segment_instance(context->segment)->generation != context->generation ||
        now_ns - server->orphan_since_ns >= patience_ns)
        begin_drain(server);
}

static void supervise(struct server *server)
{
    bool cut = false;

    while (atomic_load(&server->running) > 0) {
        struct pollfd look[] = {
            {.fd = server->signal_fd, .events = POLLIN},
            {.fd = server->orphan_since_ns ? -1 : server->context->master_pidfd, .events = POLLIN},
        };
        int64_t now_ns;

        (void)poll(look, LENGTH(look), (int)(LOOK_NS / NS_PER_MS));
        now_ns = clock_monotonic_ns();
        if (look[0].revents & POLLIN)
            take_signal(server);
        if ((look[1].revents & POLLIN) || server->orphan_since_ns)
            look_for_master(server, now_ns);
        if (now_ns >= server->drain_until_ns) {
            if (cut)
                return; /* threads that do not end even now die with the process */
            cut_running(server);
            cut = true;
        }
    }
}

/* Where the sources of the configuration stand in the segment. */
static bool find_sources(struct worker *worker)
{
    const struct options *options = worker->options;
    struct source_name names[SOURCES_MAX];

    for (size_t i = 0; i < options->source_count && i < LENGTH(names); i++)
        names[i] = (struct source_name){.name = options->sources[i].name,
                                        .quota_group = options->sources[i].quota_group};
    return sources_register(&worker->gate, names, options->source_count, worker->source_rows);
}

static bool has_flows(const struct options *options)
{
    for (size_t i = 0; i < options->scope_count; i++)
        if (options->scopes[i].flow != FLOW_STRATEGY_NONE)
            return true;
    return false;
}

static bool set_up(struct server *server)
{
    const struct options *options = server->context->options;
    struct worker *worker = &server->worker;
    const struct roster_member member = {
        .role = PROCESS_WORKER,
        .instance = worker->segment->instance,
        .generation = server->context->generation,
        .threads = server->thread_count,
    };
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGQUIT);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGUSR1);
    server->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    worker->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    worker->cut_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    worker->spool_limits = (struct spool_limits){
        .directory = options->penstock.state_directory,
        .above_bytes = options->penstock.spool_above_bytes,
        .total_max_bytes = options->penstock.spool_max_bytes / options_workers(options),
        .total_bytes = &worker->spooled_bytes,
    };
    fastcgi_init_process();
    if (server->signal_fd < 0 || worker->stop_fd < 0 || worker->cut_fd < 0 || !http_init_process())
        return false;
    worker->pool = http_pool_new();
    return worker->pool &&
           gate_join(&worker->gate, worker->segment, &member, clock_monotonic_ns()) &&
           find_sources(worker);
}

static bool start_all(struct server *server)
{
    struct worker *worker = &server->worker;

    return door_init(&worker->door, worker->listen_fd, worker->stop_fd, server->thread_count) &&
           bell_start(&worker->bell, &worker->gate, server->thread_count) &&
           (!server->context->options->penstock.ledger ||
            scribe_start(&server->scribe, &worker->gate, server->context->options, false)) &&
           start_threads(server) && refuser_start(&server->refuser, worker);
}

int serve_main(const struct child_context *context)
{
    static struct server server;
    struct worker *worker = &server.worker;

    server.context = context;
    server.thread_count = (unsigned)options_threads(context->options);
    server.drain_until_ns = CLOCK_NEVER;
    worker->options = context->options;
    worker->flows = has_flows(context->options);
    worker->flow_waiters_max = (unsigned)options_flow_waiters(context->options);
    worker->pid = getpid();
    worker->segment = context->segment;
    worker->listen_fd = context->listen_fd;
    if (!set_up(&server) || !start_all(&server)) {
        log_event(LOG_LEVEL_ERROR, "worker_failed", "a worker could not start: %s",
                  strerror(errno));
        return EXIT_FAILURE;
    }
    child_ready(context);
    supervise(&server);
    if (atomic_load(&server.running) > 0)
        _exit(EXIT_FAILURE); /* what they hold is given back by their burial */
    for (unsigned i = 0; i < server.thread_count; i++)
        (void)pthread_join(server.threads[i], NULL);
    free(server.threads);
    refuser_stop(&server.refuser);
    if (server.scribe.running)
        scribe_stop(&server.scribe);
    bell_stop(&worker->bell);
    door_release(&worker->door);
    gate_resign(&worker->gate, clock_monotonic_ns());
    http_pool_free(worker->pool);
    return EXIT_SUCCESS;
}
