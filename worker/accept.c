/*
 * accept.c - step 1: what the web server says of the request: method, path, types; and a call id.
 *
 * The path is taken from REQUEST_URI alone (the only parameter that means the same behind every web
 * server), its query cut off, percent-decoded once. What could mean another path to somebody else
 * (%2F, a backslash, //, a dot segment, NUL) is refused, and so is what could end the request line
 * that the upstream reads, or be another one.
 */
#include "worker/accept.h"

#include "base/clock.h"
#include "base/parse.h"

#include <string.h>
#include <strings.h>
#include <sys/random.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Decode raw (up to ? or #) into path. False: it is ambiguous or too long, and path is what comes
 * before the trouble. */
static bool decode_path(const char *raw, char *path, size_t size)
{
    size_t length = 0;

    path[0] = '\0';
    for (; *raw && *raw != '?' && *raw != '#'; raw++) {
        char c = *raw;

        if (c == '%') {
            int high = hex_digit(raw[1]);
            int low = high < 0 ? -1 : hex_digit(raw[2]);

            if (low < 0)
                return false;
            c = (char)(high * 16 + low);
            if (c == '/' || c == '\0')
                return false;
            raw += 2;
        }
        if (c == '\\' || length + 1 >= size)
            return false;
        path[length++] = c;
        path[length] = '\0';
    }
    return true;
}

static bool is_plain_path(const char *path)
{
    size_t length = strlen(path);

    return path[0] == '/' && !strstr(path, "//") && !strstr(path, "/./") && !strstr(path, "/../") &&
           !(length >= 2 && strcmp(path + length - 2, "/.") == 0) &&
           !(length >= 3 && strcmp(path + length - 3, "/..") == 0);
}

/* TRACE sends back what the upstream was sent, a source's key too; CONNECT asks for a tunnel. */
static bool is_passed_on(const char *method)
{
    return strcasecmp(method, "TRACE") != 0 && strcasecmp(method, "CONNECT") != 0;
}

static bool has_blank_or_control(const char *target)
{
    for (; *target; target++)
        if ((unsigned char)*target <= ' ' || *target == 0x7f)
            return true;
    return false;
}

/* 64 random bits from a generator of the thread's own, seeded by the kernel: an id names a call,
 * it keeps no secret. Generator: xorshift128+ (S. Vigna, 2014). */
static uint64_t next_random(void)
{
    static _Thread_local uint64_t state[2];
    uint64_t a;
    uint64_t b;

    if (state[0] == 0 && getrandom(state, sizeof state, 0) != (ssize_t)sizeof state)
        state[0] = (uint64_t)clock_monotonic_ns() | 1;
    a = state[0];
    b = state[1];
    state[0] = b;
    a ^= a << 23;
    state[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
    return state[1] + b;
}

/* The lowest digits of the number. */
static void put_hex(char *out, size_t digits, uint64_t number)
{
    for (; digits > 0; number >>= 4)
        out[--digits] = "0123456789abcdef"[number & 15];
}

_Static_assert(CALL_ID_SIZE >= 32, "pst_, 11 digits of time, 16 of chance, NUL");

void accept_make_call_id(struct request *request)
{
    char *id = request->call_id;

    /* Time first: ids in order keep the ledger's index growing at its end (docs/why/ledger.md). */
    memcpy(id, "pst_", 4);
    put_hex(id + 4, 11, (uint64_t)request->arrived_wall_ms);
    request->random = next_random();
    put_hex(id + 15, 16, request->random);
    id[31] = '\0';
}

static const char *param(const struct request *request, const char *name)
{
    return fastcgi_param(request->fcgi, name);
}

/* Caddy's FastCGI client says this for a request that came without a type; the client's own arrives as
 * HTTP_CONTENT_TYPE too. */
static bool is_made_up(const struct request *request)
{
    const char *server = param(request, "SERVER_SOFTWARE");

    return server && strncmp(server, "Caddy/", 6) == 0 && !param(request, "HTTP_CONTENT_TYPE") &&
           strcmp(request->content_type, "application/x-www-form-urlencoded") == 0;
}

static size_t params_bytes(const struct request *request)
{
    char *const *params = fastcgi_params(request->fcgi);
    size_t bytes = 0;

    for (size_t i = 0; params && params[i]; i++)
        bytes += strlen(params[i]) + 1;
    return bytes;
}

static enum step_result refuse(struct request *request, enum fault_code code, const char *detail)
{
    fault_set(&request->fault, code, "%s", detail);
    return STEP_FAULT;
}

/* Method and target: what becomes the upstream's request line. */
static enum step_result check_line(struct request *request)
{
    if (!request->method || !parse_is_token(request->method) || !request->raw_target)
        return refuse(request, FAULT_bad_request, "");
    if (!decode_path(request->raw_target, request->path, sizeof request->path) ||
        !is_plain_path(request->path))
        return refuse(request, FAULT_bad_path, "");
    if (has_blank_or_control(request->raw_target))
        return refuse(request, FAULT_bad_request, "Its target has a blank or control byte in it.");
    if (!is_passed_on(request->method))
        return refuse(request, FAULT_method, "");
    return STEP_NEXT;
}

enum step_result accept_step(struct request *request)
{
    const char *length = param(request, "CONTENT_LENGTH");
    const char *upgrade = param(request, "HTTP_UPGRADE");
    uint64_t announced;

    request->accepted = true;
    request->arrived_ns = clock_monotonic_ns();
    request->arrived_wall_ms = clock_wall_ms();
    accept_make_call_id(request);
    request->method = param(request, "REQUEST_METHOD");
    request->raw_target = param(request, "REQUEST_URI");
    request->content_type = param(request, "CONTENT_TYPE");
    if (request->content_type && (!*request->content_type || is_made_up(request)))
        request->content_type = NULL;
    /* Never trusted: absent, empty, "-1" and a number all occur for bodies of any length. */
    request->announced_bytes = -1;
    if (length && parse_u64(length, &announced) && announced <= INT64_MAX)
        request->announced_bytes = (int64_t)announced;
    request->path[0] = '\0';
    request->reader.intent = (struct intent){.kind = CALL_OTHER};

    if (params_bytes(request) > (size_t)request->worker->options->penstock.max_params_bytes)
        return refuse(request, FAULT_headers_too_large, "");
    if (check_line(request) != STEP_NEXT)
        return STEP_FAULT;
    if (upgrade && strcasecmp(upgrade, "websocket") == 0)
        return refuse(request, FAULT_websocket, "");
    return STEP_NEXT;
}
