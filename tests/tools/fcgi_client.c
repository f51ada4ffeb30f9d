/*
 * fcgi_client.c - a stand-in for the web server: sends requests to a Penstock socket over FastCGI, one, or
 * many at once whose clients may leave before the end, and tells what became of them.
 *
 *   fcgi_client -s SOCKET [options]
 *     -X METHOD -p PATH -H "Name: value" (repeat) -P NAME=VALUE (a raw parameter; repeat)
 *     -d BODY | -f FILE      request body (default: none, method GET; with one: POST)
 *     -L LENGTH              CONTENT_LENGTH to claim instead of the true one ("" = none)
 *     -w BYTES_PER_S         send the body this slowly
 *     -k BYTES               end stdin after this many body bytes without its end record, then close
 *     -r                     never read the answer (until -T)
 *     -c CLIENTS             clients at once (default 1)
 *     -n REQUESTS            in all (default 1)
 *     -S SECONDS             go on for so long instead of -n
 *     -R REQUESTS_PER_S      so many begin each second, as long as a client is free
 *     -l PERCENT             of the requests leave at a random time within -m ms
 *     -m MS                  (default 500)
 *     -T SECONDS             bound for one request (default 60)
 *     -e SEED
 *     -q CONNECTIONS         open so many first that say nothing, and hold them to the end
 *     -u                     number calls: the header "X-Call: <seed>-<number>" on each
 *     -o FILE                one request: its body goes there, only its head to standard output
 *     -t                     one request: a line "MS BYTES" on standard error whenever some of the
 *                            answer arrived: when, since the connection, and how much
 *   One request: prints its answer (head and body) and exits 0; exit 3 when the connection broke off
 *   before its end record, 4 when it could not connect, 5 on time-out.
 *   Several: prints lines "status N COUNT", "left COUNT", "broken COUNT", "refused COUNT" (no
 *   connection), "late COUNT" (time-out), "ended_with_error COUNT" for answers whose body has an
 *   error event or object, "events COUNT" (lines of event streams that begin with "data: "),
 *   "completed COUNT" (answers with a completed picture), "code NAME COUNT" (the first "code" of each
 *   answer that has one), and "slowest_ms N" of those answered.
 */
#include "base/clock.h"
#include "base/parse.h"
#include "base/text.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define RECORD_BYTES 32768
#define PARAMS_MAX 64
#define CODES_MAX 32

enum record { BEGIN = 1, END_OF_REQUEST = 3, PARAMS = 4, STDIN = 5, STDOUT = 6 };
enum fate { FATE_ANSWERED, FATE_LEFT, FATE_BROKEN, FATE_REFUSED, FATE_LATE, FATES };

static struct {
    const char *socket, *method, *path, *length, *body_file;
    const char *params[PARAMS_MAX];
    unsigned param_count;
    struct text body;
    uint64_t slow_bytes_per_s, cut_after, clients, requests, seconds, leave_percent, leave_ms,
        bound_s, silent, per_second;
    uint64_t seed;
    bool never_read, number_calls, tell_times;
} how = {.path = "/v1/models", .clients = 1, .requests = 1, .leave_ms = 500, .bound_s = 60};

static _Atomic uint64_t next_request;
static _Atomic uint64_t fates[FATES];
static _Atomic uint64_t statuses[600];
static _Atomic uint64_t error_bodies, event_lines, completed, slowest_ns;
static int64_t until_ns, storm_begun_ns;

/* The first "code" of answers, and how many had it. */
static struct {
    pthread_mutex_t mutex;
    struct {
        char name[64];
        uint64_t count;
    } rows[CODES_MAX];
} codes_seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct answer {
    struct text head_and_body;
    bool ended;
};

static void put_header(struct text *out, enum record type, size_t length)
{
    const char header[8] = {1, (char)type, 0, 1, (char)(length >> 8), (char)length, 0, 0};

    text_append(out, header, sizeof header);
}

static void put_length(struct text *out, size_t length)
{
    if (length < 128) {
        text_append_char(out, (char)length);
        return;
    }
    text_append_char(out, (char)(length >> 24 | 0x80));
    text_append_char(out, (char)(length >> 16));
    text_append_char(out, (char)(length >> 8));
    text_append_char(out, (char)length);
}

static void put_param(struct text *out, const char *name, const char *value)
{
    put_length(out, strlen(name));
    put_length(out, strlen(value));
    text_append_string(out, name);
    text_append_string(out, value);
}

/* "X-Call: 5" or "NAME=value" */
static void put_given(struct text *out, const char *given)
{
    char name[256] = "HTTP_";
    size_t colon = strcspn(given, ":=");
    size_t at = given[colon] == ':' ? 5 : 0;

    for (size_t i = 0; i < colon && at + 1 < sizeof name; i++) {
        char c = given[i];

        if (given[colon] == ':' && c == '-')
            c = '_';
        if (given[colon] == ':' && c >= 'a' && c <= 'z')
            c = (char)(c - 'a' + 'A');
        name[at++] = c;
    }
    name[at] = '\0';
    if (strcmp(name, "HTTP_CONTENT_TYPE") == 0)
        memmove(name, name + 5, strlen(name + 5) + 1);
    put_param(out, name,
              given[colon] == ':' ? given + colon + 1 + (given[colon + 1] == ' ')
                                  : given + colon + 1);
}

static void put_request(struct text *out, uint64_t number)
{
    static const char begin[8] = {0, 1, 0, 0, 0, 0, 0, 0};
    struct text params;
    char digits[48];

    text_init(&params, 65535);
    put_param(&params, "REQUEST_METHOD", how.method);
    put_param(&params, "REQUEST_URI", how.path);
    put_param(&params, "SERVER_PROTOCOL", "HTTP/1.1");
    (void)snprintf(digits, sizeof digits, "%zu", how.body.length);
    if (!how.length || *how.length)
        put_param(&params, "CONTENT_LENGTH", how.length ? how.length : digits);
    (void)snprintf(digits, sizeof digits, "%llu-%llu", (unsigned long long)how.seed,
                   (unsigned long long)number);
    if (how.number_calls)
        put_param(&params, "HTTP_X_CALL", digits);
    for (unsigned i = 0; i < how.param_count; i++)
        put_given(&params, how.params[i]);
    put_header(out, BEGIN, sizeof begin);
    text_append(out, begin, sizeof begin);
    put_header(out, PARAMS, params.length);
    text_append(out, text_string(&params), params.length);
    put_header(out, PARAMS, 0);
    text_release(&params);
}

static int dial(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && text_copy(address.sun_path, sizeof address.sun_path, how.socket) &&
        connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static bool send_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        bytes += sent;
        length -= (size_t)sent;
    }
    return true;
}

static bool send_body(int fd)
{
    size_t length = how.body.length;
    size_t step = RECORD_BYTES;
    struct text record;

    if (how.cut_after != UINT64_MAX && how.cut_after < length)
        length = (size_t)how.cut_after;
    if (how.slow_bytes_per_s > 0)
        step = how.slow_bytes_per_s / 20 + 1;
    text_init(&record, RECORD_BYTES + 16);
    for (size_t at = 0; at < length; at += step) {
        size_t size = length - at < step ? length - at : step;

        text_clear(&record);
        put_header(&record, STDIN, size);
        text_append(&record, text_string(&how.body) + at, size);
        if (!send_all(fd, text_string(&record), record.length)) {
            text_release(&record);
            return false;
        }
        if (how.slow_bytes_per_s > 0)
            clock_sleep_ns(50 * NS_PER_MS);
    }
    text_clear(&record);
    put_header(&record, STDIN, 0);
    if (how.cut_after == UINT64_MAX)
        (void)send_all(fd, text_string(&record), record.length);
    text_release(&record);
    return true;
}

/* Take whole records out of what was received; true when the end record was there. */
static bool take_records(struct text *raw, struct text *answer)
{
    size_t at = 0;
    bool ended = false;

    while (!ended && raw->length - at >= 8) {
        const unsigned char *header = (const unsigned char *)raw->bytes + at;
        size_t length = (size_t)header[4] << 8 | header[5];

        if (raw->length - at < 8 + length + header[6])
            break;
        if (header[1] == STDOUT)
            text_append(answer, raw->bytes + at + 8, length);
        ended = header[1] == END_OF_REQUEST;
        at += 8 + length + header[6];
    }
    memmove(raw->bytes, raw->bytes + at, raw->length - at);
    raw->length -= at;
    return ended;
}

static void tell_arrival(int64_t since_ns, size_t bytes)
{
    if (how.tell_times && bytes > 0)
        (void)fprintf(stderr, "%lld %zu\n",
                      (long long)(clock_monotonic_ns() - since_ns) / NS_PER_MS, bytes);
}

static enum fate receive(int fd, int64_t leave_at_ns, struct answer *answer)
{
    int64_t begun_ns = clock_monotonic_ns();
    int64_t bound_ns = begun_ns + (int64_t)how.bound_s * NS_PER_S;
    struct pollfd look = {.fd = fd, .events = how.never_read ? 0 : POLLIN};
    enum fate fate = FATE_BROKEN;
    struct text raw;

    text_init(&raw, SIZE_MAX / 2);
    for (;;) {
        char bytes[65536];
        int64_t now_ns = clock_monotonic_ns();
        size_t before = answer->head_and_body.length;
        ssize_t got;
        bool ended;

        if (now_ns >= leave_at_ns || now_ns >= bound_ns) {
            fate = now_ns >= leave_at_ns ? FATE_LEFT : FATE_LATE;
            break;
        }
        (void)poll(&look, 1,
                   clock_poll_ms(now_ns, leave_at_ns < bound_ns ? leave_at_ns : bound_ns));
        if (!look.revents)
            continue;
        got = recv(fd, bytes, sizeof bytes, 0);
        if (got <= 0)
            break;
        text_append(&raw, bytes, (size_t)got);
        ended = take_records(&raw, &answer->head_and_body);
        tell_arrival(begun_ns, answer->head_and_body.length - before);
        if (ended) {
            fate = FATE_ANSWERED;
            break;
        }
    }
    text_release(&raw);
    return fate;
}

static enum fate one_request(uint64_t number, unsigned *random, struct answer *answer)
{
    int64_t leave_at_ns = CLOCK_NEVER;
    enum fate fate = FATE_BROKEN;
    struct text request;
    int fd = dial();

    if (fd < 0)
        return FATE_REFUSED;
    if ((unsigned)rand_r(random) % 100 < how.leave_percent)
        leave_at_ns = clock_monotonic_ns() +
                      (int64_t)((unsigned)rand_r(random) % (how.leave_ms + 1)) * NS_PER_MS;
    text_init(&request, 131072);
    put_request(&request, number);
    if (send_all(fd, text_string(&request), request.length))
        (void)send_body(fd); /* the answer may come before the body has gone out */
    text_release(&request);
    if (how.cut_after != UINT64_MAX)
        (void)shutdown(fd, SHUT_WR);
    fate = receive(fd, leave_at_ns, answer);
    (void)close(fd);
    return fate;
}

static int status_of(const struct answer *answer)
{
    const char *text = text_string(&answer->head_and_body);
    uint64_t status = 200;

    if (strncmp(text, "Status: ", 8) == 0 && !parse_u64_bytes(text + 8, 3, &status))
        status = 0;
    return status < 600 ? (int)status : 0;
}

static uint64_t occurrences(const char *text, const char *what)
{
    uint64_t count = 0;

    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
        count++;
    return count;
}

static void count_code(const char *text)
{
    static const char before[] = "\"code\":\"";
    const char *at = strstr(text, before);
    char name[64] = "";

    if (!at)
        return;
    at += sizeof before - 1;
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "\""), at);
    (void)pthread_mutex_lock(&codes_seen.mutex);
    for (unsigned i = 0; i < CODES_MAX; i++) {
        if (codes_seen.rows[i].count && strcmp(codes_seen.rows[i].name, name) != 0)
            continue;
        (void)text_copy(codes_seen.rows[i].name, sizeof codes_seen.rows[i].name, name);
        codes_seen.rows[i].count++;
        break;
    }
    (void)pthread_mutex_unlock(&codes_seen.mutex);
}

static void count_answer(const struct answer *answer, int64_t took_ns)
{
    const char *text = text_string(&answer->head_and_body);
    uint64_t slowest = atomic_load(&slowest_ns);

    atomic_fetch_add(&statuses[status_of(answer)], 1);
    count_code(text);
    atomic_fetch_add(&error_bodies, strstr(text, "\"error\":{") != NULL);
    atomic_fetch_add(&event_lines, occurrences(text, "\ndata: "));
    atomic_fetch_add(&completed, strstr(text, "\nevent: image_generation.completed\n") != NULL);
    while ((uint64_t)took_ns > slowest &&
           !atomic_compare_exchange_weak(&slowest_ns, &slowest, (uint64_t)took_ns))
        continue;
}

/* With -R the n-th request has its own time. */
static void await_turn(uint64_t number)
{
    int64_t turn_ns, now_ns = clock_monotonic_ns();

    if (how.per_second == 0)
        return;
    turn_ns = storm_begun_ns + (int64_t)(number * (uint64_t)NS_PER_S / how.per_second);
    if (turn_ns > now_ns)
        clock_sleep_ns(turn_ns - now_ns);
}

static void *client(void *argument)
{
    unsigned random = (unsigned)(uintptr_t)argument * 7919U + (unsigned)how.seed;
    struct answer answer;

    text_init(&answer.head_and_body, SIZE_MAX / 2);
    for (;;) {
        uint64_t number = atomic_fetch_add(&next_request, 1);
        int64_t began_ns;
        enum fate fate;

        if (until_ns ? clock_monotonic_ns() >= until_ns : number >= how.requests)
            break;
        await_turn(number);
        began_ns = clock_monotonic_ns();
        text_clear(&answer.head_and_body);
        fate = one_request(number, &random, &answer);
        atomic_fetch_add(&fates[fate], 1);
        if (fate == FATE_REFUSED)
            clock_sleep_ns(10 * NS_PER_MS);
        if (fate == FATE_ANSWERED)
            count_answer(&answer, clock_monotonic_ns() - began_ns);
    }
    text_release(&answer.head_and_body);
    return NULL;
}

static int storm(void)
{
    static const char *const names[] = {"answered", "left", "broken", "refused", "late"};
    pthread_t *threads = calloc(how.clients, sizeof threads[0]);
    pthread_attr_t attributes;

    if (!threads || pthread_attr_init(&attributes) != 0)
        return 1;
    (void)pthread_attr_setstacksize(&attributes, 256 * 1024);
    storm_begun_ns = clock_monotonic_ns();
    if (how.seconds > 0)
        until_ns = storm_begun_ns + (int64_t)how.seconds * NS_PER_S;
    for (uint64_t i = 0; i < how.clients; i++)
        if (pthread_create(&threads[i], &attributes, client, (void *)(uintptr_t)(i + 1)) != 0)
            return 1;
    for (uint64_t i = 0; i < how.clients; i++)
        (void)pthread_join(threads[i], NULL);
    free(threads);
    for (int i = 0; i < 600; i++)
        if (statuses[i])
            (void)printf("status %d %llu\n", i, (unsigned long long)statuses[i]);
    for (int i = 1; i < FATES; i++)
        (void)printf("%s %llu\n", names[i], (unsigned long long)fates[i]);
    for (unsigned i = 0; i < CODES_MAX && codes_seen.rows[i].count; i++)
        (void)printf("code %s %llu\n", codes_seen.rows[i].name,
                     (unsigned long long)codes_seen.rows[i].count);
    (void)printf("ended_with_error %llu\nevents %llu\ncompleted %llu\nslowest_ms %llu\n",
                 (unsigned long long)error_bodies, (unsigned long long)event_lines,
                 (unsigned long long)completed, (unsigned long long)(slowest_ns / NS_PER_MS));
    return 0;
}

/* Head and body where they were asked for. */
static bool show(const struct text *answer)
{
    const char *all = text_string(answer);
    const char *blank = strstr(all, "\r\n\r\n");
    size_t head = blank ? (size_t)(blank - all) + 4 : answer->length;
    FILE *file;
    bool written;

    if (!how.body_file)
        return fwrite(all, 1, answer->length, stdout) == answer->length;
    (void)fwrite(all, 1, head, stdout);
    file = fopen(how.body_file, "wb");
    if (!file)
        return false;
    written = fwrite(all + head, 1, answer->length - head, file) == answer->length - head;
    return fclose(file) == 0 && written;
}

static int single(void)
{
    static const int codes[] = {[FATE_ANSWERED] = 0,
                                [FATE_LEFT] = 0,
                                [FATE_BROKEN] = 3,
                                [FATE_REFUSED] = 4,
                                [FATE_LATE] = 5};
    unsigned random = (unsigned)how.seed;
    struct answer answer;
    enum fate fate;

    text_init(&answer.head_and_body, SIZE_MAX / 2);
    fate = one_request(0, &random, &answer);
    if (!show(&answer.head_and_body))
        return 1;
    text_release(&answer.head_and_body);
    text_release(&how.body);
    return codes[fate];
}

static bool read_file(const char *path)
{
    char bytes[65536];
    FILE *file = fopen(path, "rb");
    size_t got;

    if (!file)
        return false;
    while ((got = fread(bytes, 1, sizeof bytes, file)) > 0)
        text_append(&how.body, bytes, got);
    (void)fclose(file);
    return true;
}

static uint64_t number(const char *string)
{
    uint64_t value;

    if (!parse_u64(string, &value)) {
        (void)fprintf(stderr, "fcgi_client: not a number: %s\n", string);
        exit(2);
    }
    return value;
}

static uint64_t *number_of(int letter)
{
    static const struct {
        int letter;
        uint64_t *place;
    } numbers[] = {
        {'w', &how.slow_bytes_per_s}, {'k', &how.cut_after},
        {'c', &how.clients},          {'n', &how.requests},
        {'S', &how.seconds},          {'R', &how.per_second},
        {'l', &how.leave_percent},    {'m', &how.leave_ms},
        {'T', &how.bound_s},          {'e', &how.seed},
        {'q', &how.silent},
    };

    for (size_t i = 0; i < LENGTH(numbers); i++)
        if (numbers[i].letter == letter)
            return numbers[i].place;
    return NULL;
}

static bool take_option(int letter, const char *value)
{
    uint64_t *place = number_of(letter);

    if (place) {
        *place = number(value);
        return true;
    }
    switch (letter) {
    case 's':
        how.socket = value;
        return true;
    case 'X':
        how.method = value;
        return true;
    case 'p':
        how.path = value;
        return true;
    case 'L':
        how.length = value;
        return true;
    case 'd':
        text_append_string(&how.body, value);
        return true;
    case 'f':
        return read_file(value);
    case 'r':
        how.never_read = true;
        return true;
    case 'u':
        how.number_calls = true;
        return true;
    case 'o':
        how.body_file = value;
        return true;
    case 't':
        how.tell_times = true;
        return true;
    case 'H':
    case 'P':
        if (how.param_count < PARAMS_MAX)
            how.params[how.param_count++] = value;
        return true;
    default:
        return false;
    }
}

int main(int argc, char **argv)
{
    int letter;

    text_init(&how.body, SIZE_MAX / 2);
    how.cut_after = UINT64_MAX;
    while ((letter = getopt(argc, argv, "s:X:p:L:d:f:w:k:rc:n:S:R:l:m:T:e:q:uo:tH:P:")) != -1)
        if (!take_option(letter, optarg))
            return 2;
    if (!how.socket || optind < argc)
        return 2;
    if (!how.method)
        how.method = how.body.length > 0 ? "POST" : "GET";
    for (; how.silent > 0; how.silent--)
        if (dial() < 0)
            return 4;
    return how.clients == 1 && how.requests == 1 && how.seconds == 0 ? single() : storm();
}
