/*
 * simulated_upstream.c - an OpenAI-compatible upstream for tests, `make run` and benchmarks.
 *
 *   simulated_upstream [-p PORT] [-b ADDRESS] [-d KEYS] [-n NAME] [-l FILE] [-q]
 *     -p  port, 0 or missing: any free one; "port N" is written to standard output when it listens
 *     -b  address, default 127.0.0.1
 *     -d  X-Mock keys that hold for every call, e.g. -d "delay_ms=20,skip_sha"
 *     -n  its name: begins every text, is X-Upstream-Name in every answer's head and name in /stats
 *     -l  a line in FILE for every POST whose request was read, when it has ended: "READ_NS ENDED_NS
 *         STATUS IN OUT END X-CALL": both times on CLOCK_MONOTONIC; status 0: it left before the
 *         head; tokens of who is within limits (on=1): out, as many as there were; end done, left or
 *         cut; "-" without X-Call
 *     -q  nothing on standard error
 * One process, one thread, HTTP/1.1 keep-alive, no TLS. SIGTERM and SIGINT end it. Parts: upstream/.
 *
 * Serves, with any prefix such as /v1, /compatible-mode/v1 or /openai/deployments/NAME:
 *   POST chat/completions, completions, embeddings, messages, responses (stream, background),
 *   images/generations, images/edits, images/variations, images;  GET models
 *   GET responses/ID, POST responses/ID/cancel
 *   DashScope: POST .../image-synthesis, GET tasks/ID, POST tasks/ID/cancel,
 *   POST .../multimodal-generation/generation
 *   Gemini: POST .../models/NAME:generateContent, :streamGenerateContent, :predict
 * Control, counted nowhere: GET /ping; GET /stats[?last=N] (50 calls, at most 4096); POST
 * /stats/reset (answers with the counts from before); POST /defaults: its body takes the place of -d.
 * "model", "stream", "n", "partial_images",
 * "background" and stream_options.include_usage are read from the first 64 KiB and last 4 KiB of
 * the body.
 *
 * Limits of an account, as providers describe them, for every POST: GET /limits?KEY=VALUE&... sets
 * and tells them, /limits/reset forgets what was counted, /limits/seconds tells what happened
 * second by second. Keys; 0 switches a single limit off:
 *   on=0|1              (0)
 *   rpm=N tpm=N         requests, and tokens, within any 60 s; input counts when a call is
 *                       admitted, output when it ends
 *   rps_factor=X tps_factor=X   so many times a 60th of them within any second
 *   burst_floor=N burst_gain=X  attempts within 5 s: at most N, or X times the mean of the 30 s
 *                       before, whichever is more
 *   shared_above=N      calls in flight at full speed; more share it
 *   refused_above=N     with so many in flight one more is answered 503
 *   refusals_count=0|1  refused calls count towards rpm
 *   dialect=compatible|dashscope|openai   the words of refusals
 *   hints=0|1           Retry-After and x-ratelimit headers
 *   bytes_per_token=X   of a request's body (4), unless in_tokens= says how many they are
 *   first_ms=N input_us=N output_us=N   time to the first token (300), more for each of input
 *                       (100), and for each of output (20000)
 *   tokens_per_event=N  (1) of a stream
 * A call says what it wants with out_tokens= and in_tokens= in X-Mock, which also is its usage.
 *
 * How one call is answered is said by X-Mock: KEY=VALUE,KEY=VALUE. The same may stand in -d, in the
 * path (/m/KEYS/v1/...: give this to a source as its base_url) and in the model name ("mock:KEYS");
 * later ones win in the order -d, path, header, model. "=1" may be left out. Sizes take k, m, g. A
 * key that is not known is answered with 400. X-Call: ID is kept for /stats.
 *
 * Pace
 *   delay_ms=N      before the head
 *   first_ms=N      between the head and the first byte of the body
 *   prelude_ms=N    a stream's first content comes so long after the head; what comes before content
 *                   (a role, response.created) at once, then comments
 *   chunk_ms=N      between events (SSE) or chunks
 *   hang_share=P    this share of calls (0 to 1) has all of these times hang_factor (10)
 *   slow_read=N     read the body with N bytes a second
 * Content
 *   events=N        content events of a text stream (8)
 *   size=N          bytes of a text or of a picture's base64 (2048)
 *   n=N             pictures (from the body, at most 24)
 *   partials=N      previews (from the body)
 *   line=N          one content event of that size (= events=1,size=N)
 *   stream=0|1      whatever the body says
 *   image=0|1       count as an image call, or not, and draw
 *   comments=N      N SSE comments first, chunk_ms apart
 *   stamp           texts begin with "t=CLOCK_MONOTONIC_ns "
 *   seed=N          same seed, same bytes (ids, times and pictures; otherwise new for each call)
 *   url             data[].url in place of b64_json
 *   usage=0         none; 2: also unasked in a chat stream
 *   in_tokens=N out_tokens=N   what usage says; see also limits
 *   done=0|1        without or with "data: [DONE]" (chat has it, images have not)
 *   incomplete      finish_reason length, response.incomplete
 *   error_event=N   after N events the family's error event, then the end
 *   bad_event=N     the event after N others is broken JSON; a document is broken as a whole
 *   tool=NAME       a text answer calls this tool, until the body holds its result
 *   echo            JSON with method, path, query, headers, body_bytes, sha256
 *   job_ms=N        how long a background response or task takes (300; a third of it queued)
 *   job_fail=N      so many of its pictures fail; all of them: it fails
 * Refusals
 *   status=N        with dialect=openai|azure|dashscope|compatible|gemini|anthropic|html|plain|empty,
 *                   type=, code=, message= instead of the dialect's own words
 *   error=NAME      a refusal as a certain provider words it, with its status, dialect and delay: the
 *                   names are in upstream/refusals.c; status=200 behind it: an error under 200; with
 *                   error_event: in the stream
 *   failed          that is response.failed, in a stream of responses
 *   quota=N         of all callers, so many within any second; what is beyond it is refused at
 *                   once, with 429 or quota_error=NAME; quota_counts: refused calls count as well
 *   should_retry=0|1 retry_after=TEXT retry_after_ms=N limit_requests=N remaining_requests=N
 *   reset_requests=TEXT limit_tokens=N remaining_tokens=N reset_tokens=TEXT
 *                   headers, on every status
 *   tag=T,times=K,...
 *                   the keys behind times= hold only for the first K calls with tag T since the last
 *                   reset: tag=a,times=1,status=429 refuses once and then answers
 * Transport
 *   close=WHERE     FIN; reset=WHERE RST; stall=WHERE silence for ever. WHERE: read (the request was
 *                   read, no answer), head (the same after delay_ms), midhead, body (1 byte), N bytes
 *                   of body; accept, only in -d and not for stall
 *   garble=N        after N bytes of the body bytes that are neither HTTP nor what was begun, then
 *                   silence
 *   chunked         a JSON body in chunks (of 32 KiB)
 *   chunk=N         size of a chunk, also of a stream
 *   no_length       the body ends with the connection
 *   close_after     Connection: close
 *   gzip            Content-Encoding: gzip (stored blocks)
 *   ctype=TEXT      Content-Type
 *   odd_headers     Set-Cookie, Server, Alt-Svc and the like
 *   interim=N       N times 103 first
 *   head_bytes=N    a header of that size
 *   endless_headers the head never ends
 *   garbage         not HTTP
 *   redirect        307 to /redirected
 *   early           answer as soon as the request's head is read, then close
 *   no_continue     do not say 100 Continue
 *   skip_sha        do not hash the body (for benchmarks)
 *
 * /stats: images_open_max is the most image calls that were open at once, from the reading of the
 * head until the last byte was handed to the kernel or the caller's close was seen; closes that
 * have already arrived are always seen before another call is counted. images_drawn_max adds
 * running jobs. A caller that half-closes is taken for gone.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/parse.h"
#include "tests/tools/upstream/connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_MAX 512
#define ACCEPTS_MAX 256 /* in one go */
#define BACKLOG 8192

static volatile sig_atomic_t stop_asked;

static void on_stop(int signal_number)
{
    (void)signal_number;
    stop_asked = 1;
}

/* SIGTERM and SIGINT arrive only while we wait, so none is lost between looking and waiting. */
static void catch_signals(sigset_t *ret_while_waiting)
{
    struct sigaction action = {.sa_handler = on_stop};
    sigset_t blocked;

    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, SIGTERM);
    (void)sigaddset(&blocked, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &blocked, ret_while_waiting);
    (void)sigdelset(ret_while_waiting, SIGTERM);
    (void)sigdelset(ret_while_waiting, SIGINT);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Bind and listen; the port in use is returned, 0 (errno set) on failure. */
static unsigned listen_at(struct server *server, const char *address, unsigned port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    bool is_six = inet_pton(AF_INET6, address, &six.sin6_addr) == 1;
    struct sockaddr *name = is_six ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    socklen_t size = is_six ? sizeof six : sizeof four;
    int one = 1;

    if (!is_six && inet_pton(AF_INET, address, &four.sin_addr) != 1) {
        errno = EINVAL;
        return 0;
    }
    server->listen_fd = socket(name->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (server->listen_fd < 0)
        return 0;
    (void)setsockopt(server->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(server->listen_fd, name, size) != 0 || listen(server->listen_fd, BACKLOG) != 0 ||
        getsockname(server->listen_fd, name, &size) != 0)
        return 0;
    return ntohs(is_six ? six.sin6_port : four.sin_port);
}

static void accept_all(struct server *server)
{
    for (unsigned i = 0; i < ACCEPTS_MAX; i++) {
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0)
            return;
        sim_connection_new(server, fd);
    }
}

static int wait_for_events(struct server *server, struct epoll_event *events,
                           const sigset_t *signals)
{
    int64_t next_ns = sim_timers_next_ns(&server->timers);
    int64_t now_ns = clock_monotonic_ns();
    int64_t left_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    struct timespec left = {.tv_sec = left_ns / NS_PER_S, .tv_nsec = left_ns % NS_PER_S};
    static bool no_pwait2; /* a kernel without it waits in whole milliseconds */
    int count = -1;

    if (!no_pwait2) {
        count = epoll_pwait2(server->epoll_fd, events, EVENTS_MAX,
                             next_ns == CLOCK_NEVER ? NULL : &left, signals);
        no_pwait2 = count < 0 && errno == ENOSYS;
    }
    if (no_pwait2)
        count = epoll_pwait(server->epoll_fd, events, EVENTS_MAX, clock_poll_ms(now_ns, next_ns),
                            signals);
    return count;
}

static void serve(struct server *server, const sigset_t *signals)
{
    static struct epoll_event events[EVENTS_MAX];

    while (!stop_asked) {
        int count = wait_for_events(server, events, signals);
        int64_t now_ns = clock_monotonic_ns();
        struct timer *timer;

        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr)
                sim_connection_event(events[i].data.ptr, events[i].events);
            else
                accept_all(server);
        }
        while ((timer = sim_timers_take_due(&server->timers, now_ns)) != NULL)
            sim_connection_timer(timer->owner);
        sim_connections_bury(server);
    }
}

struct arguments {
    unsigned port;
    const char *address;
    const char *mock;
    const char *name;
    const char *log;
    bool quiet;
};

static bool read_arguments(int argc, char **argv, struct arguments *arguments)
{
    uint64_t port;
    int option;

    while ((option = getopt(argc, argv, "p:b:d:n:l:q")) != -1) {
        switch (option) {
        case 'p':
            if (!parse_u64(optarg, &port) || port > 65535)
                return false;
            arguments->port = (unsigned)port;
            break;
        case 'b':
            arguments->address = optarg;
            break;
        case 'd':
            arguments->mock = optarg;
            break;
        case 'n':
            arguments->name = optarg;
            break;
        case 'l':
            arguments->log = optarg;
            break;
        case 'q':
            arguments->quiet = true;
            break;
        default:
            return false;
        }
    }
    return optind == argc;
}

/* Line by line: it can be read while calls go on. */
static bool open_log(struct server *server, const char *path)
{
    server->log = fopen(path, "we");
    if (!server->log) {
        perror(path);
        return false;
    }
    return setvbuf(server->log, NULL, _IOLBF, BUFSIZ) == 0;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.address = "127.0.0.1", .mock = "", .name = ""};
    struct epoll_event event = {.events = EPOLLIN};
    struct server *server;
    char bad_key[64];
    sigset_t signals;
    unsigned port;

    if (!read_arguments(argc, argv, &arguments)) {
        (void)fputs("usage: simulated_upstream [-p PORT] [-b ADDRESS] [-d KEYS] [-n NAME] "
                    "[-l FILE] [-q]\n",
                    stderr);
        return 2;
    }
    server = calloc(1, sizeof *server);
    if (!server)
        return 1;
    if (!sim_defaults_set(server, arguments.mock, bad_key)) {
        (void)fprintf(stderr, "simulated_upstream: bad key '%s'\n", bad_key);
        return 2;
    }
    server->name = server->stats.name = arguments.name;
    server->quiet = arguments.quiet;
    server->random = UINT64_C(88172645463325252);
    if (arguments.log && !open_log(server, arguments.log))
        return 1;
    sim_filler_init();
    sim_limits_init(&server->limits, clock_monotonic_ns());
    catch_signals(&signals);
    raise_file_limit();
    sim_stats_reset(&server->stats);
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    port = listen_at(server, arguments.address, arguments.port);
    if (port == 0 || epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->listen_fd, &event) != 0) {
        perror("simulated_upstream");
        return 1;
    }
    (void)printf("port %u\n", port);
    (void)fflush(stdout);
    serve(server, &signals);
    sim_connections_release(server);
    sim_capacity_release(server);
    sim_timers_release(&server->timers);
    if (server->log)
        (void)fclose(server->log);
    free(server);
    return 0;
}
