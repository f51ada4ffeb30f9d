/* test_heartbeat.c - signs of life come when the operator's options say so, and never otherwise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/requests.h"
#include "worker/heartbeat.h"

#include <string.h>

#define ARRIVED_NS (100 * NS_PER_S)

/* An image call in the queue, or one that streams nothing: everything is on. */
static struct house *image_call(void **state, bool stream)
{
    struct house *house = *state;

    house->options.image = (struct image_concurrency_options){
        .active = true,
        .queue_stream_headers_after_ms = 45000,
        .queue_heartbeat_ms = 15000,
        .nonstream_heartbeat_ms = 20000,
    };
    house->request->arrived_ns = ARRIVED_NS;
    house->request->reader.intent.image = true;
    house->request->reader.intent.stream = stream;
    house->request->ticket.place = 7;
    return house;
}

static void drop_ticket(struct house *house)
{
    house->request->ticket.place = NO_INDEX; /* there is no gate behind it */
}

static int64_t due_after_ms(const struct house *house)
{
    if (house->request->next_heartbeat_ns == CLOCK_NEVER)
        return -1;
    return (house->request->next_heartbeat_ns - ARRIVED_NS) / NS_PER_MS;
}

static void a_waiting_stream_is_begun_late_and_kept_alive(void **state)
{
    struct house *house = image_call(state, true);
    const char *out;

    heartbeat_begin(house->request);
    assert_int_equal(due_after_ms(house), 45000);
    assert_true(heartbeat_send(house->request, ARRIVED_NS + 45 * NS_PER_S - 1));
    assert_string_equal(fake_fastcgi_out(house->fcgi), ""); /* a refusal is still a status (T64) */
    assert_true(heartbeat_send(house->request, ARRIVED_NS + 45 * NS_PER_S));
    assert_int_equal(house->request->response, RESPONSE_STREAM);
    out = fake_fastcgi_out(house->fcgi);
    assert_non_null(strstr(out, "text/event-stream"));
    assert_non_null(strstr(out, "\r\n\r\n: waiting\n\n"));
    assert_int_equal(house->fcgi->flushed, strlen(out)); /* it is a probe, too */
    assert_int_equal(due_after_ms(house), 60000);
    fake_fastcgi_reset(house->fcgi);
    assert_true(heartbeat_send(house->request, ARRIVED_NS + 61 * NS_PER_S));
    assert_string_equal(fake_fastcgi_out(house->fcgi), ": waiting\n\n"); /* the head only once */
    assert_int_equal(due_after_ms(house), 76000);
    drop_ticket(house);
}

static void a_document_gets_blanks_before_it(void **state)
{
    struct house *house = image_call(state, false);

    heartbeat_begin(house->request);
    assert_int_equal(due_after_ms(house), 20000);
    assert_true(heartbeat_send(house->request, ARRIVED_NS + 20 * NS_PER_S));
    assert_int_equal(house->request->response, RESPONSE_HEARTBEAT);
    assert_non_null(strstr(fake_fastcgi_out(house->fcgi), "application/json"));
    assert_non_null(strstr(fake_fastcgi_out(house->fcgi), "\r\n\r\n "));
    fake_fastcgi_reset(house->fcgi);
    assert_true(heartbeat_send(house->request, ARRIVED_NS + 40 * NS_PER_S));
    assert_string_equal(fake_fastcgi_out(house->fcgi), " ");
    assert_int_equal(due_after_ms(house), 60000);
    drop_ticket(house);
}

static void nothing_is_due_where_nothing_was_asked_for(void **state)
{
    struct house *house = image_call(state, false);

    house->options.image.nonstream_heartbeat_ms = 0; /* the default: it would commit status 200 */
    heartbeat_begin(house->request);
    assert_int_equal(due_after_ms(house), -1);
    house->request->reader.intent.stream = true;
    house->options.image.queue_stream_headers_after_ms = 0;
    heartbeat_begin(house->request);
    assert_int_equal(due_after_ms(house), -1);
    house->options.image.queue_stream_headers_after_ms = 45000;
    house->request->ticket.granted = true; /* the upstream's own head is due */
    heartbeat_begin(house->request);
    assert_int_equal(due_after_ms(house), -1);
    house->request->ticket.granted = false;
    house->request->ticket.place = NO_INDEX; /* it never queued */
    heartbeat_begin(house->request);
    assert_int_equal(due_after_ms(house), -1);
    house->request->reader.intent = (struct intent){.image = false};
    house->options.image.nonstream_heartbeat_ms = 20000; /* other calls are left alone */
    heartbeat_begin(house->request);
    assert_int_equal(due_after_ms(house), -1);
}

/* "Default off changes nothing." */
static void an_inactive_gate_sends_none(void **state)
{
    struct house *house = image_call(state, false);

    house->options.image.active = false;
    heartbeat_begin(house->request);
    assert_int_equal(due_after_ms(house), -1);
    drop_ticket(house);
}

/* Flow control needs no gate; a document's early head would commit its status. */
static void whatever_streams_is_kept_alive_in_a_flow(void **state)
{
    struct house *house = image_call(state, false);

    drop_ticket(house);
    house->options.image.active = false;
    house->request->reader.intent.image = false;
    heartbeat_begin_in_flow(house->request);
    assert_int_equal(due_after_ms(house), -1);
    house->request->reader.intent.stream = true;
    heartbeat_begin_in_flow(house->request);
    assert_int_equal(due_after_ms(house), 45000);
    assert_true(heartbeat_send(house->request, ARRIVED_NS + 45 * NS_PER_S));
    assert_non_null(strstr(fake_fastcgi_out(house->fcgi), "\r\n\r\n: waiting\n\n"));
    assert_int_equal(due_after_ms(house), 60000);
}

static void beginning_again_does_not_put_it_off(void **state)
{
    struct house *house = image_call(state, false);

    heartbeat_begin(house->request);
    assert_true(heartbeat_send(house->request, ARRIVED_NS + 20 * NS_PER_S));
    heartbeat_begin(house->request); /* out of the queue, into the attempt */
    assert_int_equal(due_after_ms(house), 40000);
    drop_ticket(house);
}

static void a_client_that_left_is_found(void **state)
{
    struct house *house = image_call(state, true);

    heartbeat_begin(house->request);
    assert_true(heartbeat_send(house->request, ARRIVED_NS + 45 * NS_PER_S));
    house->fcgi->gone = true;
    assert_false(heartbeat_send(house->request, ARRIVED_NS + 60 * NS_PER_S));
    drop_ticket(house);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HOUSE(a_waiting_stream_is_begun_late_and_kept_alive),
        WITH_HOUSE(a_document_gets_blanks_before_it),
        WITH_HOUSE(nothing_is_due_where_nothing_was_asked_for),
        WITH_HOUSE(an_inactive_gate_sends_none),
        WITH_HOUSE(whatever_streams_is_kept_alive_in_a_flow),
        WITH_HOUSE(beginning_again_does_not_put_it_off),
        WITH_HOUSE(a_client_that_left_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
