/*
 * flow_client.c - the client of `make bench-flow`: chat calls that come at random (open loop, Poisson),
 * straight into a FastCGI socket, short and long ones mixed; nobody waits for another's answer.
 *
 *   flow_client -s SOCKET -P RATE:LONG_SHARE:SECONDS[,...] [-w SECONDS] [-e SEED] [-l FILE]
 *     -P  phases: so many calls a second, this share of them long, for so long
 *     -w  a client leaves after so many seconds (120); none begins after the last phase, and the run
 *         ends when all are answered or have left
 *     -e  same seed, same calls
 *     -l  one line a call: begun_ms is_long tokens_in tokens_out status first_ms end_ms fate, times
 *         since the start of the run and since the call; status 0: none; fate ok, refused, error, late
 *         or broken
 * Sizes: a short call has about 400 tokens in and 190 out (both log-normal), a long one 6,000 to
 * 10,000 in and 500 to 1,100 out. A token in is 4 bytes of body; X-Mock tells the simulated upstream
 * how many shall come out.
 * A call that waited long was begun with a comment and is refused in its stream: refused as well.
 * Prints one line of JSON: how many there were of each fate.
 */
#include "base/clock.h"
#include "base/parse.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PHASES_MAX 16
#define CALLS_MAX 8192U /* at once */
#define EVENTS_MAX 512
#define READ_BYTES 65536
#define RECORD_MAX 65528U
#define HEAD_KEPT 2048U
#define TAIL_KEPT 512U
#define BYTES_PER_TOKEN 4U
#define PI 3.14159265358979323846

enum record { BEGIN = 1, END_OF_REQUEST = 3, PARAMS = 4, STDIN = 5, STDOUT = 6 };
enum fate { FATE_OK, FATE_REFUSED, FATE_ERROR, FATE_LATE, FATE_BROKEN, FATES };
static const char *const fate_names[FATES] = {"ok", "refused", "error", "late", "broken"};

struct phase {
    double rate, long_share, seconds;
};

struct call {
    int fd; /* -1: none */
    unsigned next_free;
    bool is_long, head_seen, ended;
    unsigned tokens_in, tokens_out, status;
    int64_t begun_ns, first_ns;
    struct text out; /* what is still to be sent, from `sent` on */
    size_t sent;
    unsigned char record_head[8];
    unsigned record_head_length, content_left, padding_left;
    char head[HEAD_KEPT];
    unsigned head_length;
    char tail[TAIL_KEPT]; /* the last bytes of the answer */
};

static struct {
    const char *socket;
    struct phase phases[PHASES_MAX];
    unsigned phase_count;
    double patience_s;
    uint64_t random;
    FILE *log;
} how = {.patience_s = 120, .random = 1};

static struct call *calls;
static unsigned first_free, open_count, unsent_count;
static unsigned long fates[FATES], offered;
static int epoll_fd;
static int64_t begun_ns;
static char *words; /* text for bodies */

/* ---- chance ---------------------------------------------------------------------------------- */

/* In (0, 1); splitmix64. */
static double chance(void)
{
    uint64_t x = how.random += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return ((double)(x >> 11) + 0.5) / (double)(UINT64_C(1) << 53);
}

static double log_normal(double mean, double deviation)
{
    double first = chance();

    return exp(mean + deviation * sqrt(-2 * log(first)) * cos(2 * PI * chance()));
}

static unsigned between(double value, double least, double most)
{
    double bounded = fmin(fmax(value, least), most);

    return (unsigned)bounded;
}

/* ---- a request ------------------------------------------------------------------------------- */

static void put_record(struct text *out, enum record type, const char *bytes, size_t length)
{
    do {
        size_t part = length < RECORD_MAX ? length : RECORD_MAX;
        char head[8] = {1, (char)type, 0, 1, (char)(part >> 8), (char)(part & 0xff), 0, 0};

        text_append(out, head, sizeof head);
        text_append(out, bytes, part);
        bytes += part;
        length -= part;
    } while (length > 0);
}

static void put_length(struct text *out, size_t length)
{
    if (length >= 128) {
        text_append_char(out, (char)(length >> 24 | 0x80));
        text_append_char(out, (char)(length >> 16));
        text_append_char(out, (char)(length >> 8));
    }
    text_append_char(out, (char)length);
}

static void put_param(struct text *out, const char *name, const char *value)
{
    put_length(out, strlen(name));
    put_length(out, strlen(value));
    text_append_string(out, name);
    text_append_string(out, value);
}

static void build_request(struct call *call)
{
    static const char begin[8] = {0, 1};
    static const char open[] = "{\"model\":\"simulated\",\"stream\":true,"
                               "\"messages\":[{\"role\":\"user\",\"content\":\"";
    static const char close[] = "\"}]}";
    size_t length = (size_t)call->tokens_in * BYTES_PER_TOKEN;
    size_t frame = sizeof open + sizeof close - 2;
    struct text params, body;
    char number[48];

    text_init(&params, 8192);
    text_init(&body, (size_t)1 << 20);
    text_append_string(&body, open);
    if (length > frame)
        text_append(&body, words + (size_t)(chance() * 4096), length - frame);
    text_append_string(&body, close);
    put_param(&params, "REQUEST_METHOD", "POST");
    put_param(&params, "REQUEST_URI", "/v1/chat/completions");
    put_param(&params, "SERVER_PROTOCOL", "HTTP/1.1");
    put_param(&params, "CONTENT_TYPE", "application/json");
    put_param(&params, "HTTP_AUTHORIZATION", "Bearer bench");
    (void)snprintf(number, sizeof number, "%zu", body.length);
    put_param(&params, "CONTENT_LENGTH", number);
    (void)snprintf(number, sizeof number, "out_tokens=%u", call->tokens_out);
    put_param(&params, "HTTP_X_MOCK", number);
    text_clear(&call->out);
    put_record(&call->out, BEGIN, begin, sizeof begin);
    put_record(&call->out, PARAMS, params.bytes, params.length);
    put_record(&call->out, PARAMS, "", 0);
    put_record(&call->out, STDIN, body.bytes, body.length);
    put_record(&call->out, STDIN, "", 0);
    text_release(&params);
    text_release(&body);
    call->sent = 0;
}

/* ---- the end of a call ----------------------------------------------------------------------- */

static double ms_since(int64_t from_ns, int64_t at_ns)
{
    return at_ns ? (double)(at_ns - from_ns) / (double)NS_PER_MS : -1;
}

static void finish(struct call *call, enum fate fate)
{
    int64_t now = clock_monotonic_ns();

    fates[fate]++;
    if (how.log)
        (void)fprintf(how.log, "%.0f %d %u %u %u %.0f %.0f %s\n",
                      ms_since(begun_ns, call->begun_ns), call->is_long, call->tokens_in,
                      call->tokens_out, call->status, ms_since(call->begun_ns, call->first_ns),
                      ms_since(call->begun_ns, now), fate_names[fate]);
    if (call->fd >= 0)
        (void)close(call->fd);
    call->fd = -1;
    text_release(&call->out);
    call->next_free = first_free;
    first_free = (unsigned)(call - calls);
    open_count--;
}

static bool tail_has(const struct call *call, const char *word)
{
    return memmem(call->tail, TAIL_KEPT, word, strlen(word)) != NULL;
}

/* Its last event is an error that says: too much. */
static bool is_refused_in_stream(const struct call *call)
{
    static const char *const codes[] = {"limit_requests", "insufficient_quota", "limit_burst_rate",
                                        "ServiceUnavailable", "rate_limit"};

    for (size_t i = 0; i < LENGTH(codes) && tail_has(call, "\"error\":"); i++)
        if (tail_has(call, codes[i]))
            return true;
    return false;
}

static enum fate fate_of(const struct call *call)
{
    if (!call->ended)
        return FATE_BROKEN;
    if (call->status == 429 || call->status == 503 || is_refused_in_stream(call))
        return FATE_REFUSED;
    return call->status == 200 && tail_has(call, "[DONE]") ? FATE_OK : FATE_ERROR;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void keep_tail(struct call *call, const char *bytes, size_t length)
{
    size_t fresh = length < TAIL_KEPT ? length : TAIL_KEPT;

    memmove(call->tail, call->tail + fresh, TAIL_KEPT - fresh);
    memcpy(call->tail + TAIL_KEPT - fresh, bytes + length - fresh, fresh);
}

static void take_body(struct call *call, const char *bytes, size_t length)
{
    if (length == 0)
        return;
    if (call->first_ns == 0 && memchr(bytes, '{', length))
        call->first_ns = clock_monotonic_ns();
    keep_tail(call, bytes, length);
}

static void take_output(struct call *call, const char *bytes, size_t length)
{
    size_t room = HEAD_KEPT - 1 - call->head_length;
    size_t part = length < room ? length : room;
    const char *status, *end;
    size_t before = call->head_length;

    if (call->head_seen) {
        take_body(call, bytes, length);
        return;
    }
    memcpy(call->head + before, bytes, part);
    call->head_length += (unsigned)part;
    call->head[call->head_length] = '\0';
    end = strstr(call->head, "\r\n\r\n");
    if (!end)
        return;
    call->head_seen = true;
    status = strstr(call->head, "Status: ");
    call->status = status && status < end ? (unsigned)strtoul(status + 8, NULL, 10) : 200;
    part = (size_t)(end + 4 - call->head) - before;
    take_body(call, bytes + part, length - part);
}

static void take_bytes(struct call *call, const char *bytes, size_t length)
{
    while (length > 0) {
        size_t part;

        if (call->record_head_length < 8) {
            call->record_head[call->record_head_length++] = (unsigned char)*bytes++;
            length--;
            if (call->record_head_length == 8) {
                call->content_left =
                    (unsigned)call->record_head[4] << 8 | (unsigned)call->record_head[5];
                call->padding_left = call->record_head[6];
                call->ended = call->ended || call->record_head[1] == END_OF_REQUEST;
            }
        } else {
            part = call->content_left ? call->content_left : call->padding_left;
            part = part < length ? part : length;
            if (call->content_left && call->record_head[1] == STDOUT)
                take_output(call, bytes, part);
            if (call->content_left)
                call->content_left -= (unsigned)part;
            else
                call->padding_left -= (unsigned)part;
            bytes += part;
            length -= part;
        }
        if (call->record_head_length == 8 && call->content_left + call->padding_left == 0)
            call->record_head_length = 0;
    }
}

static void send_on(struct call *call)
{
    while (call->sent < call->out.length) {
        ssize_t sent = send(call->fd, call->out.bytes + call->sent, call->out.length - call->sent,
                            MSG_NOSIGNAL);

        if (sent <= 0)
            return;
        call->sent += (size_t)sent;
    }
}

static void on_event(struct call *call, unsigned events)
{
    static char bytes[READ_BYTES];
    ssize_t got = 0;

    if (call->fd < 0)
        return;
    if (events & EPOLLOUT)
        send_on(call);
    while (events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP | EPOLLERR) &&
           (got = recv(call->fd, bytes, sizeof bytes, 0)) > 0)
        take_bytes(call, bytes, (size_t)got);
    if (call->ended || (events != EPOLLOUT && (got == 0 || errno != EAGAIN)))
        finish(call, fate_of(call));
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool dial(struct call *call)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = call};

    call->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return call->fd >= 0 && text_copy(address.sun_path, sizeof address.sun_path, how.socket) &&
           connect(call->fd, (struct sockaddr *)&address, sizeof address) == 0 &&
           epoll_ctl(epoll_fd, EPOLL_CTL_ADD, call->fd, &event) == 0;
}

static void begin_call(const struct phase *phase)
{
    bool is_long = chance() < phase->long_share;
    struct call *call;

    offered++;
    if (first_free == CALLS_MAX) {
        unsent_count++;
        fates[FATE_BROKEN]++;
        return;
    }
    call = &calls[first_free];
    first_free = call->next_free;
    open_count++;
    *call = (struct call){.fd = -1, .is_long = is_long, .begun_ns = clock_monotonic_ns()};
    call->tokens_in =
        is_long ? between(6000 + 4000 * chance(), 1, 1e4) : between(log_normal(5.9, 0.5), 32, 2000);
    call->tokens_out =
        is_long ? between(500 + 600 * chance(), 1, 1e4) : between(log_normal(5.1, 0.5), 16, 1500);
    text_init(&call->out, (size_t)1 << 20);
    build_request(call);
    if (!dial(call))
        finish(call, FATE_BROKEN);
}

static void drop_late(int64_t now)
{
    int64_t patience_ns = (int64_t)(how.patience_s * (double)NS_PER_S);

    for (unsigned i = 0; i < CALLS_MAX && open_count > 0; i++)
        if (calls[i].fd >= 0 && now - calls[i].begun_ns > patience_ns)
            finish(&calls[i], FATE_LATE);
}

static void wait_until(int64_t until_ns)
{
    static struct epoll_event events[EVENTS_MAX];
    int64_t left = until_ns - clock_monotonic_ns();
    struct timespec wait = {.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
    struct timespec none = {0};
    int count = epoll_pwait2(epoll_fd, events, EVENTS_MAX, left > 0 ? &wait : &none, NULL);

    for (int i = 0; i < count; i++)
        on_event(events[i].data.ptr, events[i].events);
}

static void run_phase(const struct phase *phase, int64_t from_ns, int64_t until_ns)
{
    double due = (double)from_ns;
    int64_t swept_ns = from_ns;

    while (clock_monotonic_ns() < until_ns) {
        int64_t next_ns;

        due += phase->rate > 0 ? -log(chance()) / phase->rate * (double)NS_PER_S : 1e30;
        next_ns = due < (double)until_ns ? (int64_t)due : until_ns;
        while (clock_monotonic_ns() < next_ns)
            wait_until(next_ns);
        if (next_ns == until_ns)
            return;
        begin_call(phase);
        if (next_ns - swept_ns > NS_PER_S) {
            swept_ns = next_ns;
            drop_late(next_ns);
        }
    }
}

static void run(void)
{
    int64_t at_ns;

    begun_ns = at_ns = clock_monotonic_ns();
    for (unsigned i = 0; i < how.phase_count; i++) {
        int64_t until_ns = at_ns + (int64_t)(how.phases[i].seconds * (double)NS_PER_S);

        run_phase(&how.phases[i], at_ns, until_ns);
        at_ns = until_ns;
    }
    while (open_count > 0) {
        wait_until(clock_monotonic_ns() + NS_PER_S / 4);
        drop_late(clock_monotonic_ns());
    }
}

/* ---- the command line ------------------------------------------------------------------------ */

static bool read_phases(const char *text)
{
    while (how.phase_count < PHASES_MAX) {
        struct phase *phase = &how.phases[how.phase_count];
        int used = 0;

        if (sscanf(text, "%lf:%lf:%lf%n", &phase->rate, &phase->long_share, &phase->seconds,
                   &used) != 3)
            return false;
        how.phase_count++;
        text += used;
        if (*text++ != ',')
            return text[-1] == '\0';
    }
    return false;
}

static bool read_arguments(int argc, char **argv)
{
    int option;

    while ((option = getopt(argc, argv, "s:P:w:e:l:")) != -1) {
        if (option == 's')
            how.socket = optarg;
        else if (option == 'P' && read_phases(optarg))
            continue;
        else if (option == 'w')
            how.patience_s = strtod(optarg, NULL);
        else if (option == 'e' && parse_u64(optarg, &how.random))
            continue;
        else if (option == 'l' && (how.log = fopen(optarg, "we")) != NULL)
            continue;
        else
            return false;
    }
    return how.socket && how.phase_count > 0 && how.patience_s > 0 && optind == argc;
}

/* English words in no order, as many bytes as the longest body and some. */
static bool make_words(void)
{
    static const char *const list[] = {"water ",   "before ", "station ",  "a ",     "careful ",
                                       "of ",      "river ",  "the ",      "keeps ", "and ",
                                       "opening ", "small ",  "question ", "with ",  "gate, "};
    struct text text;

    text_init(&text, (size_t)1 << 18);
    while (text.length < 65536)
        text_append_string(&text, list[(size_t)(chance() * (double)LENGTH(list))]);
    words = text.bytes;
    return words != NULL;
}

int main(int argc, char **argv)
{
    struct rlimit limit;

    if (!read_arguments(argc, argv)) {
        (void)fputs("usage: flow_client -s SOCKET -P RATE:LONG_SHARE:SECONDS[,...] [-w SECONDS] "
                    "[-e SEED] [-l FILE]\n",
                    stderr);
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    calls = calloc(CALLS_MAX, sizeof *calls);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!calls || epoll_fd < 0 || !make_words())
        return 1;
    for (unsigned i = 0; i < CALLS_MAX; i++) {
        calls[i].fd = -1;
        calls[i].next_free = i + 1;
    }
    run();
    (void)printf("{\"offered\":%lu,\"unsent\":%u", offered, unsent_count);
    for (unsigned i = 0; i < FATES; i++)
        (void)printf(",\"%s\":%lu", fate_names[i], fates[i]);
    (void)printf("}\n");
    if (how.log)
        (void)fclose(how.log);
    free(words);
    free(calls);
    (void)close(epoll_fd);
    return 0;
}
