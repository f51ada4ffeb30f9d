/*
 * fuzz_fastcgi.c - bytes of a bad web server: neither we nor the libfcgi behind us may fall over,
 * and a body with a clean end is what its records say.
 *
 * Inputs are cut at what the first look at a connection covers; libfcgi's own weakness against
 * management records deep inside a body is known (docs: the socket belongs to the web server
 * alone).
 */
#include "base/check.h"
#include "worker/fastcgi.h"
#include "worker/fastcgi_head.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define UNTOLD SIZE_MAX
enum { INPUT_MAX = 16384, STALL_MS = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__lsan_default_suppressions(void);

/* libfcgi forgets a few bytes over a broken management record inside a body; ours are still told. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libfcgi.so";
}

static struct fastcgi *fcgi;
static int listen_fd = -1;
static struct sockaddr_un address;
static socklen_t address_bytes = sizeof address;

static void set_up(void)
{
    struct sockaddr_un any = {.sun_family = AF_UNIX};

    fastcgi_init_process();
    fcgi = fastcgi_new();
    REQUIRE(fcgi);
    listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    REQUIRE(listen_fd >= 0);
    REQUIRE(bind(listen_fd, (const void *)&any, sizeof any.sun_family) == 0);
    REQUIRE(listen(listen_fd, 16) == 0);
    REQUIRE(getsockname(listen_fd, (void *)&address, &address_bytes) == 0);
}

/* Another request's, or another one's beginning, which libfcgi refuses: it does not multiplex. Neither is
 * part of the body. */
static bool is_foreign(const struct fastcgi_record *record, uint16_t request_id)
{
    return record->type == FASTCGI_BEGIN_REQUEST || record->request_id != request_id;
}

/* The body that the records behind the head describe; its length, UNTOLD behind a management record. */
static size_t expected_body(const uint8_t *data, size_t size, const struct fastcgi_head *head,
                            char *out)
{
    size_t length = 0, at = head->bytes;

    for (;;) {
        struct fastcgi_record record;

        REQUIRE(size - at >= FASTCGI_HEADER_BYTES);
        record = fastcgi_record_read(data + at);
        at += FASTCGI_HEADER_BYTES;
        if (record.request_id == 0 && record.type != FASTCGI_BEGIN_REQUEST)
            return UNTOLD;
        if (!is_foreign(&record, head->request_id)) {
            REQUIRE(record.type == FASTCGI_STDIN);
            if (record.content_bytes == 0)
                return length;
            REQUIRE(size - at >= record.content_bytes + record.padding_bytes);
            memcpy(out + length, data + at, record.content_bytes);
            length += record.content_bytes;
        }
        at += record.content_bytes + record.padding_bytes;
    }
}

static void check_request(const uint8_t *data, size_t size)
{
    static char body[INPUT_MAX], expected[INPUT_MAX];
    struct fastcgi_head head;
    size_t got = 0;
    ssize_t n;

    REQUIRE(fastcgi_head_scan(data, size, &head) == FASTCGI_HEAD_WHOLE);
    for (char *const *param = fastcgi_params(fcgi); *param; param++)
        REQUIRE(strchr(*param, '=') || strlen(*param) < FASTCGI_HEAD_BYTES_MAX);
    do {
        n = fastcgi_read(fcgi, body + got, 1 + got % 1000, STALL_MS);
        if (n > 0)
            got += (size_t)n;
    } while (n > 0);
    REQUIRE(n != -2);
    if (n == 0) {
        size_t length = expected_body(data, size, &head, expected);

        REQUIRE(length == UNTOLD || (length == got && memcmp(body, expected, got) == 0));
    } else {
        REQUIRE(head.with_body_bytes == 0);
    }
    REQUIRE(fastcgi_client_gone(fcgi));
    (void)fastcgi_write(fcgi, "Status: 200\r\n\r\n", 15);
    (void)fastcgi_end(fcgi);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd;

    if (size > INPUT_MAX - 1024)
        return 0;
    if (!fcgi)
        set_up();
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0);
    REQUIRE(connect(fd, (const void *)&address, address_bytes) == 0);
    REQUIRE(size == 0 || send(fd, data, size, 0) == (ssize_t)size);
    REQUIRE(shutdown(fd, SHUT_WR) == 0);
    if (fastcgi_accept(fcgi, listen_fd, STALL_MS) == FASTCGI_REQUEST)
        check_request(data, size);
    fastcgi_finish(fcgi);
    close(fd);
    return 0;
}
