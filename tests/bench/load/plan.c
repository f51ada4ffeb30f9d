/* plan.c - see plan.h. */
#include "tests/bench/load/plan.h"

#include "base/clock.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL_NUMBER "000000"
#define BOUNDARY "penstock-bench-boundary"

static const char usage[] =
    "load_client -p PORT -u PATH [-m closed|rate|once] [-c CONNECTIONS] [-n REQUESTS] [-r RATE]\n"
    "  -b BODY        JSON; or -F BYTES: upload such a file as multipart, -M MODEL beside it\n"
    "  -H 'K: V'      further headers      -L EVERY,MS  every so many-th client leaves after MS\n"
    "  -d SECONDS     longest run (120)    -w SECONDS   longest request (120)\n"
    "  -l FILE        one line a request: index planned first end (monotonic ns) status why\n";

struct words {
    const char *path, *body, *model;
    struct text headers;
};

static bool read_numbers(struct plan *plan, int option, const char *value)
{
    switch (option) {
    case 'p':
        plan->port = (unsigned)strtoul(value, NULL, 10);
        return true;
    case 'c':
        plan->connections = (unsigned)strtoul(value, NULL, 10);
        return plan->connections > 0 && plan->connections <= PLAN_CONNECTIONS_MAX;
    case 'n':
        plan->requests = (unsigned)strtoul(value, NULL, 10);
        return plan->requests <= PLAN_REQUESTS_MAX;
    case 'r':
        plan->rate = strtod(value, NULL);
        return plan->rate >= 0;
    case 'F':
        plan->upload_bytes = strtoull(value, NULL, 10);
        return true;
    case 'd':
        plan->duration_ns = (int64_t)(strtod(value, NULL) * (double)NS_PER_S);
        return true;
    case 'w':
        plan->timeout_ns = (int64_t)(strtod(value, NULL) * (double)NS_PER_S);
        return true;
    default:
        return false;
    }
}

static bool read_words(struct plan *plan, struct words *words, int option, const char *value)
{
    char *rest;

    switch (option) {
    case 'u':
        words->path = value;
        return true;
    case 'b':
        words->body = value;
        return true;
    case 'M':
        words->model = value;
        return true;
    case 'H':
        text_printf(&words->headers, "%s\r\n", value);
        return true;
    case 'm':
        plan->mode = value[0] == 'r' ? PLAN_RATE : value[0] == 'o' ? PLAN_ONCE : PLAN_CLOSED;
        return true;
    case 'l':
        plan->log = fopen(value, "we");
        return plan->log != NULL;
    case 'L':
        plan->leave_every = (unsigned)strtoul(value, &rest, 10);
        plan->leave_ns = *rest == ',' ? (int64_t)strtoul(rest + 1, NULL, 10) * NS_PER_MS : 0;
        return true;
    default:
        return read_numbers(plan, option, value);
    }
}

static void append_multipart(struct text *text, const struct words *words)
{
    text_printf(text,
                "--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n%s\r\n"
                "--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na cat\r\n"
                "--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"image\"; "
                "filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n",
                words->model);
}

static bool build_request(struct plan *plan, const struct words *words)
{
    struct text body, head;

    text_init(&body, PLAN_HEAD_MAX);
    text_init(&head, (size_t)PLAN_HEAD_MAX * 2);
    if (plan->upload_bytes) {
        append_multipart(&body, words);
        plan->tail = "\r\n--" BOUNDARY "--\r\n";
        plan->tail_bytes = strlen(plan->tail);
    } else {
        text_append_string(&body, words->body);
    }
    text_printf(&head,
                "POST %s HTTP/1.1\r\nX-Call: " CALL_NUMBER "\r\nHost: 127.0.0.1:%u\r\n%s"
                "Content-Type: %s\r\nContent-Length: %llu\r\n\r\n%s",
                words->path, plan->port, text_string(&words->headers),
                plan->upload_bytes ? "multipart/form-data; boundary=" BOUNDARY : "application/json",
                (unsigned long long)(body.length + plan->upload_bytes + plan->tail_bytes),
                text_string(&body));
    plan->head = head.overflowed || body.overflowed ? NULL : strdup(text_string(&head));
    plan->head_bytes = head.length;
    plan->call_number = plan->head ? strstr(plan->head, CALL_NUMBER) : NULL;
    text_release(&body);
    text_release(&head);
    return plan->head != NULL;
}

bool plan_init(struct plan *plan, int argc, char **argv)
{
    struct words words = {.path = "/", .body = "{}", .model = "mock"};
    bool fine = true;
    int option;

    *plan = (struct plan){.connections = 1,
                          .requests = 1,
                          .duration_ns = 120 * NS_PER_S,
                          .timeout_ns = 120 * NS_PER_S};
    text_init(&words.headers, PLAN_HEAD_MAX);
    while (fine && (option = getopt(argc, argv, "p:u:m:c:n:r:b:F:M:H:L:d:w:l:")) != -1)
        fine = option != '?' && read_words(plan, &words, option, optarg);
    if (plan->mode == PLAN_ONCE)
        plan->requests = plan->connections;
    if (plan->mode == PLAN_RATE && plan->rate <= 0)
        fine = false;
    fine = fine && plan->port > 0 && plan->port <= 65535 && build_request(plan, &words);
    text_release(&words.headers);
    if (!fine)
        (void)fputs(usage, stderr);
    return fine;
}

void plan_release(struct plan *plan)
{
    if (plan->log)
        (void)fclose(plan->log);
    free(plan->head);
}

uint64_t plan_request_bytes(const struct plan *plan)
{
    return plan->head_bytes + plan->upload_bytes + plan->tail_bytes;
}

void plan_address(struct plan *plan, unsigned index)
{
    for (size_t i = sizeof CALL_NUMBER - 1; i-- > 0; index /= 10)
        plan->call_number[i] = (char)('0' + index % 10);
}
