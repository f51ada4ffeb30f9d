/*
 * master.c - starts the monitor and the workers, starts them again when they die, reloads, stops.
 *
 *   SIGHUP, SIGUSR2  reload: the program on disk tests the configuration (-t); when it is good, the
 *                    master runs that program in its own place, with the same sockets; the new
 *                    generation starts, then the old one is told to drain. A binary upgrade is the
 *                    same.
 *   SIGQUIT          graceful stop. Where the sockets are the service manager's, the master leaves
 *                    at once and the workers drain by themselves: the next master can start meanwhile
 *   SIGTERM, SIGINT  fast stop
 *   SIGUSR1          everybody opens the log file again
 *
 * Nothing depends on the master's being alive or quick: burial, queue and ledger are done by the
 * workers and the monitor (M4). It takes no slot and, but for the load of limits, no lock.
 */
#include "worker/master.h"

#include "base/clock.h"
#include "base/log.h"
#include "shared/counters.h"
#include "shared/gate.h"
#include "worker/activation.h"
#include "worker/flow_reload.h"
#include "worker/flow_state.h"
#include "worker/generations.h"
#include "worker/monitor.h"
#include "worker/reload.h"
#include "worker/seat.h"
#include "worker/serve.h"
#include "worker/version.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN_MAX 128
#define TICK_MS 250
#define READY_PATIENCE_NS (20 * NS_PER_S)
#define BACKOFF_FIRST_NS (100 * NS_PER_MS)
#define BACKOFF_MAX_NS (30 * NS_PER_S)
#define BACKOFF_SERVED_MAX_NS (2 * NS_PER_S) /* of one that served: the others need it back */
#define LIVED_NS (10 * NS_PER_S)             /* whoever dies later did not die at once */
#define FAST_STOP_NS (8 * NS_PER_S)
#define KILL_GRACE_NS (5 * NS_PER_S) /* workers cut what still runs, and tell its clients */
#define STATUS_INTERVAL_NS (5 * NS_PER_S)
#define OLD_GENERATIONS_MAX 3 /* with the current one, four live at most (M7) */

enum child_kind { CHILD_MONITOR, CHILD_WORKER };

struct child {
    pid_t pid; /* 0 = not running */
    enum child_kind kind;
    bool ready; /* it serves */
    int64_t started_ns;
    int64_t start_at_ns; /* when to start it (again) */
    int64_t backoff_ns;
};

enum master_state {
    MASTER_STARTING,
    MASTER_SERVING,
    MASTER_DRAINING,
    MASTER_STOPPING,
    MASTER_OVER
};

struct master {
    const struct master_arguments *arguments;
    struct options *options;
    struct segment segment;
    struct gate gate;
    struct listeners listeners;
    struct child_context context;
    struct generations generations;
    int seat_fd;
    int signal_fd;
    int ready_pipe[2];
    struct child children[CHILDREN_MAX]; /* the monitor first */
    unsigned child_count;
    enum master_state state;
    int64_t started_ns;
    int64_t stop_until_ns;
    int64_t next_status_ns;
    int64_t next_watchdog_ns;
    pid_t tester; /* runs -t for a reload; 0 = none */
    bool reload_wanted;
};

static void event(struct master *master, const char *name, const char *detail)
{
    gate_journal_event(&master->gate, clock_wall_ms(), name, detail);
    log_event(LOG_LEVEL_NOTICE, name, "%s", detail);
}

/* ---- children -------------------------------------------------------------------------------- */

_Noreturn static void live_as_child(struct master *master, enum child_kind kind)
{
    sigset_t signals;

    (void)close(master->ready_pipe[0]);
    (void)close(master->signal_fd);
    (void)close(master->seat_fd); /* a child's close gives nothing away: the lock is the master's */
    /* Children take their signals through descriptors: they stay blocked. */
    (void)sigfillset(&signals);
    (void)sigdelset(&signals, SIGSEGV);
    (void)sigdelset(&signals, SIGBUS);
    (void)sigdelset(&signals, SIGFPE);
    (void)sigdelset(&signals, SIGILL);
    (void)sigdelset(&signals, SIGABRT);
    (void)sigprocmask(SIG_SETMASK, &signals, NULL);
    serve_exit(kind == CHILD_MONITOR ? monitor_main(&master->context)
                                     : serve_main(&master->context));
}

static void start_child(struct master *master, struct child *child, int64_t now_ns)
{
    pid_t pid = fork();

    if (pid == 0)
        live_as_child(master, child->kind);
    child->ready = false;
    child->started_ns = now_ns;
    if (pid > 0) {
        child->pid = pid;
        return;
    }
    log_event(LOG_LEVEL_ERROR, "fork_failed", "%s", strerror(errno));
    child->start_at_ns = now_ns + BACKOFF_MAX_NS / 30;
}

/* It has not been told to stop. */
static bool goes_on(const struct master *master)
{
    return master->state == MASTER_STARTING || master->state == MASTER_SERVING;
}

static void start_due_children(struct master *master, int64_t now_ns)
{
    if (!goes_on(master))
        return;
    for (unsigned i = 0; i < master->child_count; i++)
        if (master->children[i].pid == 0 && now_ns >= master->children[i].start_at_ns)
            start_child(master, &master->children[i], now_ns);
}

/* How long to wait before the next is started. One that was killed from outside, or that met a bad
 * request after a while, is needed back. One that ends again and again will hardly fare better at once,
 * least of all when it never came so far as to serve. */
static int64_t next_backoff_ns(const struct child *child, const siginfo_t *info, int64_t now_ns)
{
    const int64_t most_ns = child->ready ? BACKOFF_SERVED_MAX_NS : BACKOFF_MAX_NS;
    const bool killed = info->si_code == CLD_KILLED && info->si_status == SIGKILL;
    const bool lived = now_ns - child->started_ns >= LIVED_NS;

    if (child->backoff_ns == 0 || (child->ready && (killed || lived)))
        return BACKOFF_FIRST_NS;
    return child->backoff_ns < most_ns / 2 ? 2 * child->backoff_ns : most_ns;
}

static void child_ended(struct master *master, struct child *child, const siginfo_t *info)
{
    int64_t now_ns = clock_monotonic_ns();

    child->pid = 0;
    if (!goes_on(master))
        return;
    child->backoff_ns = next_backoff_ns(child, info, now_ns);
    child->start_at_ns = now_ns + child->backoff_ns;
    log_event(LOG_LEVEL_WARNING, "child_ended", "the %s %d %s %d; the next starts in %lld ms",
              child->kind == CHILD_MONITOR ? "monitor" : "worker", info->si_pid,
              info->si_code == CLD_EXITED ? "exited with" : "was killed by signal", info->si_status,
              (long long)(child->backoff_ns / NS_PER_MS));
}

static void finish_reload(struct master *master, const siginfo_t *info);

static void reap(struct master *master)
{
    siginfo_t info = {0};

    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
        /* The dead are buried by whoever sees it first: let it be before the pid can be used again. */
        generations_ring_workers(&master->generations);
        if (info.si_pid == master->tester)
            finish_reload(master, &info);
        for (unsigned i = 0; i < master->child_count; i++)
            if (master->children[i].pid == info.si_pid)
                child_ended(master, &master->children[i], &info);
        info = (siginfo_t){0};
    }
}

static unsigned children_alive(const struct master *master)
{
    unsigned alive = 0;

    for (unsigned i = 0; i < master->child_count; i++)
        alive += master->children[i].pid != 0;
    return alive;
}

static void signal_children(const struct master *master, int number)
{
    for (unsigned i = 0; i < master->child_count; i++)
        if (master->children[i].pid != 0)
            (void)kill(master->children[i].pid, number);
}

/* ---- reload ---------------------------------------------------------------------------------- */

/* The path this program was started by, so that an upgraded binary is what runs next. */
static const char *own_program(const struct master *master)
{
    return strchr(master->arguments->argv[0], '/') ? master->arguments->argv[0] : "/proc/self/exe";
}

/* A generation that still starts is waited for, unless it cannot: a new configuration may be the cure. */
static bool may_be_followed(const struct master *master)
{
    return master->state == MASTER_SERVING ||
           (master->state == MASTER_STARTING &&
            clock_monotonic_ns() - master->started_ns >= READY_PATIENCE_NS);
}

static void refuse_reload(struct master *master, const char *reason)
{
    event(master, "reload_refused", reason);
    counter_add(&segment_instance(&master->segment)->counters, COUNTER_reloads_refused, 1);
    activation_notify("READY=1");
}

static void test_configuration(struct master *master)
{
    const struct reload_program program = {
        .path = own_program(master),
        .name = master->arguments->argv[0],
        .config_path = master->arguments->config_path,
    };

    if (master->tester != 0 || !may_be_followed(master) ||
        generations_count_older(&master->generations) >= OLD_GENERATIONS_MAX ||
        !generations_have_room(&master->generations, master->child_count)) {
        master->reload_wanted = true; /* coalesced: done when what stands in the way is over */
        return;
    }
    master->reload_wanted = false;
    activation_notify_reloading(clock_monotonic_ns());
    master->tester = reload_test(&program, master->options);
    if (master->tester >= 0)
        return;
    master->tester = 0;
    refuse_reload(master, "no process can be made to test the configuration; the old one goes on");
}

static void run_again(struct master *master)
{
    event(master, "reload", "the configuration is good; a new generation starts");
    gate_resign(&master->gate, clock_monotonic_ns());
    activation_keep(&master->listeners);
    seat_keep(master->seat_fd);
    /* Signals stay blocked: one that comes now is for the program that follows. */
    (void)execv(own_program(master), master->arguments->argv);
    log_event(LOG_LEVEL_ERROR, "reload_failed", "cannot run %s: %s", own_program(master),
              strerror(errno));
    exit(EXIT_FAILURE); /* workers are orphans now: a new master finds them */
}

static void finish_reload(struct master *master, const siginfo_t *info)
{
    bool good = info->si_code == CLD_EXITED && info->si_status == 0;

    master->tester = 0;
    if (!goes_on(master))
        return;
    /* The program that follows could not find it, and must not make a second one. */
    if (good && !segment_is_linked(&master->segment))
        refuse_reload(master,
                      "the shared memory's name was removed: stop Penstock and start it again");
    else if (good)
        run_again(master);
    else
        refuse_reload(master, "the configuration has errors (see above); the old one goes on");
}

/* ---- signals, time --------------------------------------------------------------------------- */

static void stop(struct master *master, enum master_state state, int number, int64_t patience_ns)
{
    master->stop_until_ns = clock_monotonic_ns() + patience_ns;
    activation_notify("STOPPING=1");
    if (master->state != state)
        event(master, "stop", state == MASTER_DRAINING ? "graceful" : "fast");
    master->state = state;
    signal_children(master, number);
    generations_signal_older(&master->generations, number);
}

static void take_signal(struct master *master)
{
    struct signalfd_siginfo info;

    if (read(master->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    switch (info.ssi_signo) {
    case SIGHUP:
    case SIGUSR2:
        test_configuration(master);
        break;
    case SIGUSR1:
        log_reopen();
        signal_children(master, SIGUSR1);
        break;
    case SIGQUIT:
        stop(master, MASTER_DRAINING, SIGQUIT,
             master->options->penstock.stop_timeout_ms * NS_PER_MS + KILL_GRACE_NS);
        if (master->listeners.activated)
            master->state = MASTER_OVER; /* the workers end by themselves */
        break;
    case SIGTERM:
    case SIGINT:
        stop(master, MASTER_STOPPING, SIGTERM, FAST_STOP_NS);
        break;
    default:
        break; /* SIGCHLD: reap is called every turn */
    }
}

static void count_ready(struct master *master)
{
    pid_t pid;

    while (read(master->ready_pipe[0], &pid, sizeof pid) == (ssize_t)sizeof pid)
        for (unsigned i = 0; i < master->child_count; i++)
            if (master->children[i].pid == pid)
                master->children[i].ready = true;
}

static unsigned count_serving(const struct master *master, bool workers_only)
{
    unsigned count = 0;

    for (unsigned i = 0; i < master->child_count; i++) {
        const struct child *child = &master->children[i];

        count += child->ready && child->pid != 0 && (!workers_only || child->kind == CHILD_WORKER);
    }
    return count;
}

static void become_ready(struct master *master, int64_t now_ns)
{
    bool all = count_serving(master, false) == master->child_count;

    if (master->state != MASTER_STARTING)
        return;
    /* The older generation goes on as long as there is nobody who could follow it. */
    if (!all &&
        (now_ns - master->started_ns < READY_PATIENCE_NS || count_serving(master, true) == 0))
        return;
    master->state = MASTER_SERVING;
    generations_signal_older(&master->generations, SIGQUIT);
    flow_reload(&master->gate, master->options, now_ns);
    event(master, "ready", all ? "all children serve" : "some children serve");
    activation_notify("READY=1");
}

static void tell_status(struct master *master, int64_t now_ns)
{
    const struct core_area *core = segment_core(&master->segment);
    char lines[160];

    if (now_ns < master->next_status_ns)
        return;
    master->next_status_ns = now_ns + STATUS_INTERVAL_NS;
    (void)snprintf(lines, sizeof lines, "STATUS=image slots: %u of %u in use, %u waiting",
                   core->held_count + core->lease_count, core->limit,
                   segment_layout(&master->segment)->waiting);
    activation_notify(lines);
}

static void tell_watchdog(struct master *master, int64_t now_ns)
{
    int64_t interval_ms = activation_watchdog_ms();

    if (interval_ms == 0 || now_ns < master->next_watchdog_ns)
        return;
    master->next_watchdog_ns = now_ns + interval_ms * NS_PER_MS;
    activation_notify("WATCHDOG=1");
}

/* The monitor writes what the others leave, and then ends by itself. */
static void kill_children(const struct master *master, int64_t now_ns)
{
    bool all = now_ns >= master->stop_until_ns + KILL_GRACE_NS;

    for (unsigned i = 0; i < master->child_count; i++)
        if (master->children[i].pid != 0 && (all || master->children[i].kind == CHILD_WORKER))
            (void)kill(master->children[i].pid, SIGKILL);
}

static void run(struct master *master)
{
    while (master->state != MASTER_OVER) {
        struct pollfd look[] = {
            {.fd = master->signal_fd, .events = POLLIN},
            {.fd = master->ready_pipe[0], .events = POLLIN},
        };
        int64_t now_ns = clock_monotonic_ns();

        start_due_children(master, now_ns);
        (void)poll(look, LENGTH(look), TICK_MS);
        now_ns = clock_monotonic_ns();
        if (look[0].revents & POLLIN)
            take_signal(master);
        count_ready(master);
        reap(master);
        become_ready(master, now_ns);
        tell_status(master, now_ns);
        tell_watchdog(master, now_ns);
        if (master->reload_wanted)
            test_configuration(master);
        if (master->state != MASTER_DRAINING && master->state != MASTER_STOPPING)
            continue;
        if (children_alive(master) == 0)
            break;
        if (now_ns >= master->stop_until_ns)
            kill_children(master, now_ns);
    }
}

/* ---- start ----------------------------------------------------------------------------------- */

static bool block_signals(struct master *master)
{
    static const int wanted[] = {SIGHUP,  SIGUSR1, SIGUSR2, SIGQUIT,
                                 SIGTERM, SIGINT,  SIGCHLD, SIGPIPE};
    sigset_t signals;

    (void)sigemptyset(&signals);
    for (size_t i = 0; i < LENGTH(wanted); i++)
        (void)sigaddset(&signals, wanted[i]);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    master->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    return master->signal_fd >= 0 && pipe2(master->ready_pipe, O_CLOEXEC | O_NONBLOCK) == 0;
}

static bool attach_segment(struct master *master, struct text *why)
{
    const struct options *options = master->options;
    const struct segment_place place = {
        .gate = options->image.gate,
        .runtime_directory = options->penstock.runtime_directory,
    };

    return segment_attach(&master->segment, &place, why) &&
           segment_join_instance(&master->segment, options->penstock.state_directory,
                                 clock_wall_ms(), why);
}

/* From now on the workers of a killed master know that they are followed, and drain. */
static bool begin_generation(struct master *master, struct text *why)
{
    const struct options *options = master->options;
    struct gate_limits limits = {
        .limit = (uint32_t)options->image.max_concurrent_requests,
        .max_waiting = (uint32_t)options->image.max_waiting_requests,
        .on = options->image.active,
    };
    struct instance_row *instance = segment_instance(&master->segment);
    const struct roster_member member = {
        .role = PROCESS_MASTER,
        .instance = master->segment.instance,
        .generation = instance->generation + 1,
    };

    if (!gate_join(&master->gate, &master->segment, &member, clock_monotonic_ns())) {
        text_append_string(why, "the gate's roster of processes is full");
        return false;
    }
    memcpy(limits.classes, options->image.classes, sizeof limits.classes);
    gate_set_limits(&master->gate, &limits, clock_monotonic_ns(), clock_wall_ms());
    gate_lock(&master->gate);
    instance->generation = member.generation;
    instance->master_pid = getpid();
    gate_unlock(&master->gate);
    master->context.generation = member.generation;
    master->generations = (struct generations){.core = segment_core(&master->segment),
                                               .instance = member.instance,
                                               .current = member.generation};
    return true;
}

/* Flows that have served already know better than the file. */
static void restore_flows(struct master *master)
{
    struct text why;
    unsigned restored;

    text_init(&why, 800);
    restored = flow_state_restore(&master->gate, master->options, clock_monotonic_ns(),
                                  clock_wall_ms(), &why);
    if (why.length > 0)
        log_event(LOG_LEVEL_WARNING, "flow_state_unusable",
                  "%s/" FLOW_STATE_NAME " is not used, flow control begins without what it had "
                  "learned: %s",
                  master->options->penstock.state_directory, text_string(&why));
    if (restored > 0)
        log_event(LOG_LEVEL_NOTICE, "flow_state_restored", "flows=%u", restored);
    text_release(&why);
}

static void plan_children(struct master *master)
{
    int64_t workers = options_workers(master->options);

    master->children[master->child_count++].kind = CHILD_MONITOR;
    while (workers-- > 0 && master->child_count < CHILDREN_MAX)
        master->children[master->child_count++].kind = CHILD_WORKER;
}

static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static bool set_up(struct master *master, struct text *why)
{
    const struct options *options = master->options;

    raise_descriptor_limit();
    /* A core would delay undo and closes, and show what must not be shown (M13). */
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (!block_signals(master)) {
        text_printf(why, "signals: %s", strerror(errno));
        return false;
    }
    master->seat_fd = seat_take(options->penstock.state_directory, why);
    /* What can be refused comes before what takes the sockets from those that still serve. */
    if (master->seat_fd < 0 || !attach_segment(master, why) ||
        !activation_listen(options, &master->listeners, why) || !begin_generation(master, why))
        return false;
    master->context.options = options;
    master->context.segment = &master->segment;
    master->context.listen_fd = master->listeners.fcgi;
    master->context.status_fd = master->listeners.status;
    master->context.master_pid = getpid();
    master->context.master_pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    master->context.ready_fd = master->ready_pipe[1];
    restore_flows(master);
    plan_children(master);
    return true;
}

int master_main(const struct master_arguments *arguments, struct options *options)
{
    static struct master master;
    struct text why;

    master.arguments = arguments;
    master.options = options;
    master.started_ns = clock_monotonic_ns();
    text_init(&why, 800);
    if (!set_up(&master, &why)) {
        log_event(LOG_LEVEL_ERROR, "start_failed", "%s", text_string(&why));
        text_release(&why);
        return EXIT_FAILURE;
    }
    text_release(&why);
    event(&master, "start", "penstock " PENSTOCK_VERSION);
    run(&master);
    gate_resign(&master.gate, clock_monotonic_ns());
    segment_detach(&master.segment);
    options_free(options);
    log_event(LOG_LEVEL_NOTICE, "stopped", "the master ends");
    return EXIT_SUCCESS;
}
