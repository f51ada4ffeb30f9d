/* fastcgi.c - the web server's side in memory; see fastcgi.h. */
#include "tests/fakes/fastcgi.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAKE_OUT_MAX (64 * 1024 * 1024)

void fastcgi_init_process(void)
{
}

struct fastcgi *fastcgi_new(void)
{
    struct fastcgi *fcgi = calloc(1, sizeof *fcgi);

    if (!fcgi)
        return NULL;
    text_init(&fcgi->out, FAKE_OUT_MAX);
    fake_fastcgi_reset(fcgi);
    return fcgi;
}

void fake_fastcgi_reset(struct fastcgi *fcgi)
{
    struct text out = fcgi->out;

    for (size_t i = 0; i < fcgi->param_count; i++)
        free(fcgi->params[i]);
    text_clear(&out);
    *fcgi = (struct fastcgi){.out = out, .room_bytes = SIZE_MAX, .fd = -1};
}

void fastcgi_free(struct fastcgi *fcgi)
{
    if (!fcgi)
        return;
    fake_fastcgi_reset(fcgi);
    text_release(&fcgi->out);
    free(fcgi);
}

void fake_fastcgi_param(struct fastcgi *fcgi, const char *name, const char *value)
{
    size_t size = strlen(name) + strlen(value) + 2;
    char *param = malloc(size);

    REQUIRE(param && fcgi->param_count < FAKE_PARAMS_MAX);
    (void)snprintf(param, size, "%s=%s", name, value);
    fcgi->params[fcgi->param_count++] = param;
}

const char *fake_fastcgi_out(const struct fastcgi *fcgi)
{
    return text_string(&fcgi->out);
}

enum fastcgi_accepted fastcgi_accept(struct fastcgi *fcgi, int listen_fd, int64_t stall_ms)
{
    (void)listen_fd;
    (void)stall_ms;
    return fcgi->accepted;
}

enum fastcgi_accepted fastcgi_take(struct fastcgi *fcgi, int listen_fd, int64_t stall_ms)
{
    enum fastcgi_accepted accepted = fastcgi_accept(fcgi, listen_fd, stall_ms);

    return accepted == FASTCGI_REQUEST ? FASTCGI_CONNECTION : accepted;
}

enum fastcgi_accepted fastcgi_read_head(struct fastcgi *fcgi)
{
    return fcgi->accepted;
}

const char *fastcgi_param(const struct fastcgi *fcgi, const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < fcgi->param_count; i++)
        if (strncmp(fcgi->params[i], name, length) == 0 && fcgi->params[i][length] == '=')
            return fcgi->params[i] + length + 1;
    return NULL;
}

char *const *fastcgi_params(const struct fastcgi *fcgi)
{
    return fcgi->params;
}

ssize_t fastcgi_read(struct fastcgi *fcgi, char *bytes, size_t size, int64_t timeout_ms)
{
    size_t left = fcgi->body_length - fcgi->body_at;

    (void)timeout_ms;
    if (left == 0)
        return fcgi->body_end;
    if (left > size)
        left = size;
    if (fcgi->piece_bytes > 0 && left > fcgi->piece_bytes)
        left = fcgi->piece_bytes;
    memcpy(bytes, fcgi->body + fcgi->body_at, left);
    fcgi->body_at += left;
    return (ssize_t)left;
}

int fastcgi_fd(const struct fastcgi *fcgi)
{
    return fcgi->fd;
}

bool fastcgi_client_gone(struct fastcgi *fcgi)
{
    return fcgi->gone;
}

bool fastcgi_write(struct fastcgi *fcgi, const char *bytes, size_t length)
{
    REQUIRE(!fcgi->ended && !fcgi->finished);
    if (fcgi->gone || fcgi->out.length + length > fcgi->room_bytes)
        fcgi->gone = true;
    if (fcgi->gone)
        return false;
    text_append(&fcgi->out, bytes, length);
    return true;
}

bool fastcgi_flush(struct fastcgi *fcgi)
{
    fcgi->flushes++;
    if (fcgi->gone)
        return false;
    fcgi->flushed = fcgi->out.length;
    return true;
}

bool fastcgi_end(struct fastcgi *fcgi)
{
    REQUIRE(!fcgi->ended && !fcgi->finished);
    fcgi->ended = fastcgi_flush(fcgi);
    return fcgi->ended;
}

void fastcgi_finish(struct fastcgi *fcgi)
{
    fcgi->finished = true;
}

uint64_t fastcgi_sent_bytes(const struct fastcgi *fcgi)
{
    return fcgi->flushed;
}
