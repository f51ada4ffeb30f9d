/* test_relay.c - an exchange from its start to its end with an upstream of a few lines: what the client
 * reads of it, whatever the upstream does (N3, N4). The web server is tests/fakes/fastcgi. */
#include "tests/shared/gate_fixture.h"
#include "tests/worker/requests.h"
#include "tests/worker/scripted_server.h"

#include "worker/attempts.h"
#include "worker/relay.h"
#include "worker/respond.h"
#include "worker/upstream.h"

#include <sys/eventfd.h>

#define OK_HEAD "HTTP/1.1 200 OK\r\n"
#define JSON_HEAD OK_HEAD "Content-Type: application/json\r\n"
#define STREAM_HEAD OK_HEAD "Content-Type: text/event-stream\r\n"
#define CHUNK "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"

static struct segment segment;
static struct server *server;

/* A gate of one slot, and everything real but the web server; the exchange is in good order when
 * nothing comes of it for five seconds. */
static int make(void **state)
{
    struct house *house = house_new();
    struct worker *worker = &house->worker;
    const struct source_name only = {.name = "a", .quota_group = ""};

    *state = house;
    fixture_open(&segment, &worker->gate, 1, 2);
    worker->segment = &segment;
    worker->cut_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    worker->spool_limits = (struct spool_limits){.directory = "/nowhere", .above_bytes = 1 << 20};
    worker->pool = http_pool_new();
    house->fcgi->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    house->source.timeout_ms = 20000;
    house->source.connect_timeout_ms = 5000;
    house->source.stream_idle_timeout_ms = 5000;
    if (!sources_register(&worker->gate, &only, 1, worker->source_rows))
        return -1;
    house->request->reader.intent.endpoint = ENDPOINT_CHAT;
    house->request->arrived_ns = clock_monotonic_ns();
    house->request->announced_bytes = -1;
    return worker->pool ? 0 : -1;
}

static int drop(void **state)
{
    struct house *house = *state;

    upstream_close(house->request);
    ticket_give(&house->request->ticket, WAIT_DONE, NULL);
    assert_int_equal(fixture_use(&house->worker.gate).used, 0);
    if (server)
        server_free(server);
    server = NULL;
    http_pool_free(house->worker.pool);
    fixture_close(&segment);
    (void)close(house->worker.cut_fd);
    (void)close(house->fcgi->fd);
    house_free(house);
    return 0;
}

/* The steps from the attempt to the answer's end, against the script. */
static enum step_result run(struct house *house, void (*script)(struct server *))
{
    struct request *request = house->request;
    enum step_result result;
    char base[64];

    server = server_start(script);
    (void)snprintf(base, sizeof base, "http://127.0.0.1:%u", server->port);
    house->source.base_url = base;
    result = attempts_step(request);
    if (result == STEP_NEXT)
        result = relay_step(request);
    if (result != STEP_OVER)
        (void)respond_step(request);
    upstream_close(request);
    http_pool_free(house->worker.pool); /* closes what the script waits for */
    house->worker.pool = http_pool_new();
    assert_non_null(house->worker.pool);
    server_stop(server);
    house->source.base_url = "";
    return result;
}

/* What the client read behind the head. */
static const char *body_of(const struct house *house)
{
    const char *end = strstr(fake_fastcgi_out(house->fcgi), "\r\n\r\n");

    return end ? end + 4 : "";
}

static void give_slot(struct house *house)
{
    assert_int_equal(fixture_arrive(&house->worker.gate, false, &house->request->ticket.place),
                     GATE_GRANTED);
    house->request->ticket.granted = true;
    house->request->reader.intent.image = true;
    house->request->reader.intent.endpoint = ENDPOINT_IMAGES;
    house->options.image.active = true;
}

/* ---- streams that were cut -------------------------------------------------------------------- */

static void end_by_close(struct server *with)
{
    server_answer_once(with, STREAM_HEAD "\r\n" CHUNK);
}

static void end_by_close_in_another_coding(struct server *with)
{
    server_answer_once(with, STREAM_HEAD "Transfer-Encoding: identity\r\n\r\n" CHUNK);
}

static void end_whole(struct server *with)
{
    server_answer_once(with, STREAM_HEAD "\r\n" CHUNK "data: [DONE]\n\n");
}

static void n4_a_stream_that_only_its_connection_ends_was_cut(void **state)
{
    struct house *house = *state;

    assert_int_equal(run(house, end_by_close), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_upstream_cut);
    assert_non_null(strstr(body_of(house), CHUNK "event: error\ndata: {\"error\":"));
    assert_true(house->fcgi->ended);
}

/* Only chunks tell an end; any other transfer coding is ended by the connection (RFC 9112, 6.3). */
static void n4_a_transfer_coding_without_chunks_has_no_end(void **state)
{
    struct house *house = *state;

    assert_int_equal(run(house, end_by_close_in_another_coding), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_upstream_cut);
    assert_non_null(strstr(body_of(house), CHUNK "event: error\ndata: {\"error\":"));
}

static void a_stream_with_its_last_event_is_whole(void **state)
{
    struct house *house = *state;

    assert_int_equal(run(house, end_whole), STEP_NEXT);
    assert_string_equal(body_of(house), CHUNK "data: [DONE]\n\n");
    assert_true(house->fcgi->ended);
}

static void half_a_document(struct server *with)
{
    server_answer_once(with, JSON_HEAD "Transfer-Encoding: identity\r\n\r\n{\"a\":");
}

static void n4_half_a_document_gets_no_end(void **state)
{
    struct house *house = *state;

    assert_int_equal(run(house, half_a_document), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_upstream_cut);
    assert_false(house->fcgi->ended);
}

/* ---- a document for a client that was promised a stream --------------------------------------- */

/* Lines so short that their "data: " is more than they are. */
static void answer_in_short_lines(struct server *with)
{
    static char text[20000];
    size_t length = (size_t)snprintf(text, sizeof text, JSON_HEAD "Content-Length: 10002\r\n\r\n{");

    memset(text + length, '\n', 10000);
    memcpy(text + length + 10000, "}", 2);
    for (size_t i = length; i < length + 10000; i += 2)
        text[i] = ' ';
    server_answer_once(with, text);
}

static void a_wrapped_document_is_whole_however_short_its_lines(void **state)
{
    struct house *house = *state;
    const char *body;

    assert_true(respond_begin(house->request, RESPONSE_STREAM));
    assert_int_equal(run(house, answer_in_short_lines), STEP_NEXT);
    body = body_of(house);
    assert_memory_equal(body, "data: { \ndata:  \n", 17);
    assert_string_equal(body + strlen(body) - 9, "data: }\n\n");
}

static void answer_with_nul(struct server *with)
{
    static const char text[] = JSON_HEAD "Content-Length: 10\r\n\r\n{\"a\":\"\0b\"}";
    int fd = server_accept(with);

    if (fd < 0)
        return;
    if (server_read(with, fd))
        (void)!send(fd, text, sizeof text - 1, MSG_NOSIGNAL);
    close(fd);
}

static void a_wrapped_document_is_whole_whatever_its_bytes(void **state)
{
    static const char want[] = "data: {\"a\":\"\0b\"}\n\n";
    struct house *house = *state;

    assert_true(respond_begin(house->request, RESPONSE_STREAM));
    assert_int_equal(run(house, answer_with_nul), STEP_NEXT);
    assert_memory_equal(body_of(house), want, sizeof want);
}

/* ---- heads ------------------------------------------------------------------------------------ */

static void answer_shortly(struct server *with)
{
    server_answer_once(with, JSON_HEAD "Content-Length: 2\r\n\r\n{}");
}

static void a_head_that_finds_no_room_is_never_sent_in_part(void **state)
{
    struct house *house = *state;

    house->request->attempt->head.limit = 20;
    assert_int_equal(run(house, answer_shortly), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_out_of_memory);
    assert_false(house->request->client_gone);
}

static void answer_head_only(struct server *with)
{
    int fd = server_accept(with);

    if (fd < 0)
        return;
    if (server_read(with, fd))
        (void)server_send(fd, JSON_HEAD "Content-Length: 200\r\n\r\n");
    (void)server_read(with, fd); /* until the other side is content */
    close(fd);
}

/* Its answer has no body whatever is announced, and nobody waits for one. */
static void head_has_no_body_even_with_one_of_its_own(void **state)
{
    struct house *house = *state;

    house->request->method = "HEAD";
    house->request->announced_bytes = 3;
    assert_int_equal(spool_write(&house->request->body, "abc", 3), SPOOL_OK);
    assert_int_equal(run(house, answer_head_only), STEP_NEXT);
    assert_string_equal(body_of(house), "");
}

/* ---- slots ------------------------------------------------------------------------------------ */

static void g9_the_slot_is_free_when_the_answer_ends(void **state)
{
    struct house *house = *state;

    give_slot(house);
    assert_int_equal(run(house, answer_shortly), STEP_NEXT);
    assert_int_equal(house->request->ticket.place, NO_INDEX);
    assert_int_equal(fixture_use(&house->worker.gate).used, 0);
}

static void answer_nothing(struct server *with)
{
    int fd = server_accept(with);

    if (fd >= 0)
        close(fd);
}

static void g9_the_slot_is_free_when_the_upstream_fails(void **state)
{
    struct house *house = *state;

    give_slot(house);
    assert_int_equal(run(house, answer_nothing), STEP_FAULT);
    assert_int_equal(house->request->ticket.place, NO_INDEX);
}

static void g9_the_slot_is_free_when_the_client_takes_nothing(void **state)
{
    struct house *house = *state;

    give_slot(house);
    house->fcgi->room_bytes = 10;
    assert_int_equal(run(house, answer_shortly), STEP_OVER);
    assert_true(house->request->client_gone);
    assert_int_equal(house->request->fault.code, FAULT_client_gone);
    assert_int_equal(house->request->ticket.place, NO_INDEX);
}

/* ---- time ------------------------------------------------------------------------------------- */

static void answer_head_then_wait(struct server *with)
{
    int fd = server_accept(with);

    if (fd < 0)
        return;
    if (server_read(with, fd) && server_send(fd, JSON_HEAD "Content-Length: 2\r\n\r\n")) {
        clock_sleep_ns(300 * NS_PER_MS);
        (void)server_send(fd, "{}");
    }
    close(fd);
}

/* The bound on an image's first byte holds up to the body's; the one on silence is for streams. */
static void an_image_may_take_its_time_behind_an_early_head(void **state)
{
    struct house *house = *state;

    give_slot(house);
    house->source.stream_idle_timeout_ms = 100;
    house->options.image.image_first_byte_timeout_ms = 5000;
    assert_int_equal(run(house, answer_head_then_wait), STEP_NEXT);
    assert_string_equal(body_of(house), "{}");
}

static void an_images_first_byte_is_bounded_behind_an_early_head(void **state)
{
    struct house *house = *state;

    give_slot(house);
    house->options.image.image_first_byte_timeout_ms = 100;
    assert_int_equal(run(house, answer_head_then_wait), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_upstream_stalled);
    assert_false(house->fcgi->ended);
}

static void answer_in_pieces(struct server *with)
{
    int fd = server_accept(with);

    if (fd < 0)
        return;
    if (server_read(with, fd) &&
        server_send(fd, OK_HEAD "Content-Type: audio/mpeg\r\nTransfer-Encoding: chunked\r\n\r\n"
                                "1\r\na\r\n")) {
        clock_sleep_ns(100 * NS_PER_MS);
        (void)server_send(fd, "1\r\nb\r\n0\r\n\r\n");
    }
    close(fd);
}

/* Speech, JSON lists and lines stream without being event streams: no length, no waiting. */
static void what_has_no_length_is_sent_on_at_once(void **state)
{
    struct house *house = *state;

    assert_int_equal(run(house, answer_in_pieces), STEP_NEXT);
    assert_string_equal(body_of(house), "ab");
    assert_true(house->fcgi->flushes >= 2); /* one is the end's */
}

/* Never silent, never at its end, and faster than it is read. After a while the worker is to stop, if it
 * has a descriptor for that. */
static int stop_fd;
static void flood(struct server *with)
{
    static const uint64_t one = 1;
    static char numbers[262144];
    int fd = server_accept(with);

    if (fd < 0)
        return;
    for (size_t i = 0; i < sizeof numbers - 1; i++)
        numbers[i] = i % 2 == 0 ? '1' : ',';
    if (server_read(with, fd) && server_send(fd, STREAM_HEAD "\r\ndata: [") &&
        server_send(fd, numbers)) {
        if (stop_fd >= 0)
            (void)!write(stop_fd, &one, sizeof one);
        while (server_send(fd, numbers))
            continue;
    }
    close(fd);
}

/* T48: what comes all the time is no reason to go on for ever. */
static void a_flood_ends_with_its_time(void **state)
{
    struct house *house = *state;

    stop_fd = -1;
    house->source.timeout_ms = 1000; /* the head comes before that on a busy machine too */
    house->request->discard = true;  /* nobody reads it: nothing else would end it */
    assert_int_equal(run(house, flood), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_upstream_stalled);
}

static void a_flood_ends_with_a_fast_stop(void **state)
{
    struct house *house = *state;

    stop_fd = house->worker.cut_fd;
    house->request->discard = true;
    assert_int_equal(run(house, flood), STEP_FAULT);
    assert_int_equal(house->request->fault.code, FAULT_shutting_down);
}

#define WITH_UPSTREAM(test) cmocka_unit_test_setup_teardown(test, make, drop)

static int init_process(void **state)
{
    (void)state;
    return http_init_process() ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_UPSTREAM(n4_a_stream_that_only_its_connection_ends_was_cut),
        WITH_UPSTREAM(n4_a_transfer_coding_without_chunks_has_no_end),
        WITH_UPSTREAM(a_stream_with_its_last_event_is_whole),
        WITH_UPSTREAM(n4_half_a_document_gets_no_end),
        WITH_UPSTREAM(a_wrapped_document_is_whole_however_short_its_lines),
        WITH_UPSTREAM(a_wrapped_document_is_whole_whatever_its_bytes),
        WITH_UPSTREAM(a_head_that_finds_no_room_is_never_sent_in_part),
        WITH_UPSTREAM(head_has_no_body_even_with_one_of_its_own),
        WITH_UPSTREAM(g9_the_slot_is_free_when_the_answer_ends),
        WITH_UPSTREAM(g9_the_slot_is_free_when_the_upstream_fails),
        WITH_UPSTREAM(g9_the_slot_is_free_when_the_client_takes_nothing),
        WITH_UPSTREAM(an_image_may_take_its_time_behind_an_early_head),
        WITH_UPSTREAM(an_images_first_byte_is_bounded_behind_an_early_head),
        WITH_UPSTREAM(what_has_no_length_is_sent_on_at_once),
        WITH_UPSTREAM(a_flood_ends_with_its_time),
        WITH_UPSTREAM(a_flood_ends_with_a_fast_stop),
    };

    return cmocka_run_group_tests(tests, init_process, NULL);
}
