/* sending.c - an answer on its way out: framing, pace, and the ways of breaking it off; see
 * connection.h. */
#include "tests/tools/upstream/connection.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define IOV_MAX_HERE 64
#define TURN_BYTES                                                                                 \
    ((size_t)4 << 20) /* at most about so much in one go, then it is others' turn   \
                                      */
#define TURN_FRAMES 64
#define GARBAGE_BYTES 16384U /* more than is left of any chunk that is cut */
#define JSON_CHUNK ((uint64_t)32 << 10)

static void add_piece(struct sending *sending, const char *bytes, uint64_t length)
{
    REQUIRE(sending->count < PIECES_MAX);
    if (length)
        sending->pieces[sending->count++] = (struct piece){.bytes = bytes, .length = length};
}

/* Bytes [from, from + length) of the body. */
static void add_body(struct sending *sending, uint64_t from, uint64_t length)
{
    const struct body *body = &sending->body;

    for (unsigned i = 0; i < body->count && length > 0; i++) {
        const struct span *span = &body->spans[i];
        uint64_t run;

        if (from >= span->length) {
            from -= span->length;
            continue;
        }
        run = span->length - from < length ? span->length - from : length;
        if (span->filler)
            sending->pieces[sending->count++] = (struct piece){
                .filler_offset = (size_t)((span->offset + from) % FILLER_BYTES), .length = run};
        else
            add_piece(sending, body->text.bytes + span->offset + from, run);
        length -= run;
        from = 0;
    }
}

/* The head; false: nothing may follow it in the same write. */
static bool frame_head(struct connection *connection)
{
    struct sending *sending = &connection->sending;
    size_t length = sending->head.length;

    sending->head_framed = true;
    if (sending->cut.place == CUT_MIDHEAD) {
        sending->cut_reached = true;
        length /= 2;
    }
    add_piece(sending, sending->head.bytes, length);
    if (connection->call.behaviour.first_ms && !connection->control)
        sending->due_ns =
            clock_monotonic_ns() + (int64_t)connection->call.behaviour.first_ms * NS_PER_MS;
    return !sending->cut_reached && sending->due_ns == 0;
}

/* Length of the next frame of the present piece of body. */
static uint64_t frame_length(const struct connection *connection)
{
    const struct sending *sending = &connection->sending;
    uint64_t chunk = connection->call.behaviour.chunk;
    uint64_t left = sending->body.length - sending->framed;

    if (chunk == 0 && connection->call.behaviour.chunked && !connection->call.sse)
        chunk = JSON_CHUNK;
    return chunk && chunk < left ? chunk : left;
}

/* When the next frame may go, counted from when this one was due, so that a stream keeps its pace.
 */
static void set_pace(struct connection *connection, int64_t now_ns)
{
    struct sending *sending = &connection->sending;
    int64_t pause_ns = connection->call.pause_ns;
    int64_t pace_ns =
        pause_ns ? pause_ns : (int64_t)connection->call.behaviour.chunk_ms * NS_PER_MS;
    int64_t from_ns = sending->due_ns ? sending->due_ns : now_ns;

    if (connection->share.place != 0) {
        sim_capacity_pace(connection);
        return;
    }
    if (pace_ns == 0 || connection->control)
        return;
    sending->due_ns = from_ns + pace_ns > now_ns ? from_ns + pace_ns : now_ns;
}

static void frame_next(struct connection *connection)
{
    struct sending *sending = &connection->sending;
    uint64_t announced;
    uint64_t length;
    bool last;

    sending->first = sending->count = 0;
    if (!sending->head_framed && !frame_head(connection))
        return;
    if (sending->framed == sending->body.length && sending->more) {
        sending->more = sim_answer_next(&connection->call, &sending->body);
        sending->framed = 0;
    }
    announced = length = frame_length(connection);
    if (sending->cut.place == CUT_BODY && sending->body_bytes + length >= sending->cut.bytes) {
        length = sending->cut.bytes - sending->body_bytes;
        sending->cut_reached = true;
    }
    last = !sending->more && sending->framed + announced == sending->body.length;
    if (sending->chunked && length > 0) {
        (void)snprintf(sending->chunk_head, sizeof sending->chunk_head, "%llx\r\n",
                       (unsigned long long)announced);
        add_piece(sending, sending->chunk_head, strlen(sending->chunk_head));
    }
    add_body(sending, sending->framed, length);
    sending->framed += length;
    sending->body_bytes += length;
    if (sending->cut_reached)
        return;
    if (sending->chunked && length > 0)
        add_piece(sending, "\r\n", 2);
    if (sending->chunked && last)
        add_piece(sending, "0\r\n\r\n", 5);
    sending->finished = last;
    set_pace(connection, clock_monotonic_ns());
}

static int fill_iov(const struct sending *sending, struct iovec iov[IOV_MAX_HERE])
{
    int count = 0;

    for (unsigned i = sending->first; i < sending->count; i++) {
        const struct piece *piece = &sending->pieces[i];
        uint64_t done = 0;

        while (done < piece->length) {
            const char *from = piece->bytes;
            size_t run = (size_t)(piece->length - done);

            if (count == IOV_MAX_HERE)
                return count;
            if (!from) {
                size_t at = (size_t)((piece->filler_offset + done) % FILLER_BYTES);

                from = sim_filler_bytes() + at;
                run = run < FILLER_BYTES - at ? run : FILLER_BYTES - at;
            }
            iov[count].iov_base = (void *)(uintptr_t)from;
            iov[count++].iov_len = run;
            done += run;
        }
    }
    return count;
}

static void take_off(struct sending *sending, size_t written)
{
    while (written > 0) {
        struct piece *piece = &sending->pieces[sending->first];
        size_t run = written < piece->length ? written : (size_t)piece->length;

        if (piece->bytes)
            piece->bytes += run;
        else
            piece->filler_offset = (piece->filler_offset + run) % FILLER_BYTES;
        piece->length -= run;
        written -= run;
        if (piece->length == 0)
            sending->first++;
    }
}

enum written { WRITTEN_ALL, WRITTEN_PART, WRITTEN_FAILED };

static enum written write_pieces(struct connection *connection, size_t *turn_bytes)
{
    struct sending *sending = &connection->sending;
    struct iovec iov[IOV_MAX_HERE];

    while (sending->first < sending->count) {
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)fill_iov(sending, iov)};
        ssize_t written;

        if (*turn_bytes > TURN_BYTES) {
            sim_timers_set(&connection->server->timers, &connection->timer, clock_monotonic_ns());
            return WRITTEN_PART;
        }
        written = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
        if (written < 0)
            return errno == EAGAIN || errno == EINTR ? WRITTEN_PART : WRITTEN_FAILED;
        *turn_bytes += (size_t)written;
        connection->sent_bytes += (uint64_t)written;
        connection->server->stats.bytes_out += (uint64_t)written;
        take_off(sending, (size_t)written);
    }
    return WRITTEN_ALL;
}

void sim_sending_cut(struct connection *connection, enum cut_kind kind)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    switch (kind) {
    case CUT_BY_RESET:
        (void)setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        sim_connection_close(connection, END_CUT);
        break;
    case CUT_BY_CLOSE:
        sim_connection_close(connection, END_CUT);
        break;
    case CUT_BY_GARBAGE:
        (void)send(connection->fd, sim_filler_bytes(), GARBAGE_BYTES, MSG_NOSIGNAL);
        connection->state = CONNECTION_STALLED;
        break;
    case CUT_BY_STALL:
        connection->state = CONNECTION_STALLED;
        break;
    }
}

void sim_sending_pump(struct connection *connection)
{
    struct sending *sending = &connection->sending;
    size_t turn_bytes = 0;

    for (unsigned frames = 0; frames < TURN_FRAMES; frames++) {
        enum written written = write_pieces(connection, &turn_bytes);

        if (written == WRITTEN_FAILED)
            sim_connection_close(connection, END_ABORTED);
        if (written != WRITTEN_ALL)
            return;
        if (sending->cut_reached) {
            sim_sending_cut(connection, sending->cut_kind);
            return;
        }
        if (sending->finished) {
            sim_connection_finish(connection);
            return;
        }
        if (sending->due_ns > clock_monotonic_ns()) {
            sim_timers_set(&connection->server->timers, &connection->timer, sending->due_ns);
            return;
        }
        frame_next(connection);
    }
    sim_timers_set(&connection->server->timers, &connection->timer, clock_monotonic_ns());
}

static void choose_cut(struct sending *sending, const struct behaviour *behaviour)
{
    const struct {
        struct cut cut;
        enum cut_kind kind;
    } cuts[] = {{behaviour->reset, CUT_BY_RESET},
                {behaviour->close, CUT_BY_CLOSE},
                {behaviour->stall, CUT_BY_STALL},
                {behaviour->garble, CUT_BY_GARBAGE}};

    sending->cut = (struct cut){CUT_NONE, 0};
    for (size_t i = 0; i < LENGTH(cuts); i++) {
        if (cuts[i].cut.place != CUT_NONE) {
            sending->cut = cuts[i].cut;
            sending->cut_kind = cuts[i].kind;
            return;
        }
    }
}

static void begin_garbage(struct sending *sending)
{
    static const char bytes[] = "\x16\x03\x01\x02 this is not HTTP\r\n\r\n\x00\xff\xfe";

    add_piece(sending, bytes, sizeof bytes - 1);
    sending->head_framed = sending->finished = sending->close = true;
}

/* Control answers are always plain. */
static void begin_control(struct connection *connection)
{
    struct sending *sending = &connection->sending;

    text_printf(&sending->head,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %llu\r\n\r\n",
                (unsigned long long)sending->body.length);
    sending->close = connection->call.close;
}

static void begin_answer(struct connection *connection)
{
    struct sending *sending = &connection->sending;
    struct call *call = &connection->call;
    const struct behaviour *behaviour = &call->behaviour;
    struct framing framing = {.gzip = behaviour->gzip};
    bool no_body;

    sim_answer_begin(call);
    choose_cut(sending, behaviour);
    sending->more = true;
    if (!call->sse && !behaviour->endless_headers)
        sending->more = sim_answer_next(call, &sending->body);
    no_body = call->status == 204 || call->status == 304;
    if (no_body) {
        sim_body_clear(&sending->body);
        sending->more = false;
    }
    if (!behaviour->endless_headers && !no_body) {
        bool unbounded = behaviour->no_length || (call->http10 && call->sse);

        framing.chunked = (call->sse || behaviour->chunked) && !unbounded && !call->http10;
        framing.has_length = !framing.chunked && !unbounded;
        framing.length = sending->body.length;
        framing.close = unbounded;
    }
    framing.close = framing.close || call->close || behaviour->close_after || behaviour->early;
    sending->close = framing.close;
    sending->chunked = framing.chunked;
    sim_answer_head(call, &framing, &sending->head);
}

void sim_sending_begin(struct connection *connection)
{
    struct sending *sending = &connection->sending;

    connection->state = CONNECTION_SEND;
    text_clear(&sending->head);
    if (!connection->control)
        sim_body_clear(&sending->body);
    sending->first = sending->count = 0;
    sending->framed = sending->body_bytes = 0;
    sending->due_ns = 0;
    sending->head_framed = sending->more = sending->chunked = false;
    sending->finished = sending->close = sending->cut_reached = false;
    sending->cut = (struct cut){CUT_NONE, 0};
    if (connection->control)
        begin_control(connection);
    else if (connection->call.behaviour.garbage)
        begin_garbage(sending);
    else
        begin_answer(connection);
    if (sending->cut.place == CUT_HEAD) {
        sim_sending_cut(connection, sending->cut_kind);
        return;
    }
    sim_sending_pump(connection);
}
