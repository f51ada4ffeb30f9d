/* fastcgi_head.c - what of a FastCGI connection's beginning may reach libfcgi; see fastcgi_head.h.
 */
#include "worker/fastcgi_head.h"

#include "base/check.h"

enum { VERSION = 1, ROLE_RESPONDER = 1, BEGIN_BYTES = 8 };

/* Where the name-value pairs stand; they run on across records. */
struct pairs {
    size_t count;
    size_t skip;          /* bytes of names and values still to come */
    size_t lengths[2];    /* of the pair being read */
    unsigned length_at;   /* which of the two is being read; 2 = none */
    unsigned length_left; /* further bytes of a four-byte length */
};

struct fastcgi_record fastcgi_record_read(const unsigned char *header)
{
    return (struct fastcgi_record){
        .version = header[0],
        .type = header[1],
        .request_id = (uint16_t)(header[2] << 8 | header[3]),
        .content_bytes = (size_t)header[4] << 8 | header[5],
        .padding_bytes = header[6],
    };
}

void fastcgi_record_write(unsigned char *out, enum fastcgi_type type, uint16_t request_id,
                          size_t content_bytes)
{
    REQUIRE(content_bytes <= UINT16_MAX);
    out[0] = VERSION;
    out[1] = (unsigned char)type;
    out[2] = (unsigned char)(request_id >> 8);
    out[3] = (unsigned char)(request_id & 0xff);
    out[4] = (unsigned char)(content_bytes >> 8);
    out[5] = (unsigned char)(content_bytes & 0xff);
    out[6] = 0;
    out[7] = 0;
}

static bool between_pairs(const struct pairs *pairs)
{
    return pairs->skip == 0 && pairs->length_at == 0 && pairs->length_left == 0;
}

/* One byte of a length. False when the pair breaks the bounds. */
static bool take_length_byte(struct pairs *pairs, unsigned char byte)
{
    size_t *length = &pairs->lengths[pairs->length_at];

    if (pairs->length_left > 0) {
        *length = *length << 8 | byte;
        pairs->length_left--;
    } else if (byte & 0x80) {
        *length = byte & 0x7f;
        pairs->length_left = 3;
    } else {
        *length = byte;
    }
    if (pairs->length_left > 0)
        return true;
    if (*length > FASTCGI_HEAD_BYTES_MAX)
        return false;
    if (++pairs->length_at < 2)
        return true;
    pairs->length_at = 0;
    pairs->skip = pairs->lengths[0] + pairs->lengths[1];
    return ++pairs->count <= FASTCGI_PARAMS_MAX;
}

static bool take_pairs(struct pairs *pairs, const unsigned char *bytes, size_t length)
{
    size_t at = 0;

    while (at < length) {
        if (pairs->skip > 0) {
            size_t take = pairs->skip < length - at ? pairs->skip : length - at;

            pairs->skip -= take;
            at += take;
        } else if (!take_length_byte(pairs, bytes[at++])) {
            return false;
        }
    }
    return true;
}

/* Walk over the body's records that are here already. */
static enum fastcgi_head_state scan_body(const unsigned char *bytes, size_t length,
                                         struct fastcgi_head *head)
{
    size_t at = head->bytes;

    while (length - at >= FASTCGI_HEADER_BYTES) {
        struct fastcgi_record record = fastcgi_record_read(bytes + at);
        size_t whole = FASTCGI_HEADER_BYTES + record.content_bytes + record.padding_bytes;

        /* libfcgi answers management records from a buffer that they can overrun. */
        if (record.version != VERSION || record.request_id != head->request_id)
            return FASTCGI_HEAD_BAD;
        if (record.type != FASTCGI_STDIN)
            break;
        if (length - at < whole)
            break;
        at += whole;
        if (record.content_bytes == 0) {
            head->with_body_bytes = at;
            break;
        }
    }
    return FASTCGI_HEAD_WHOLE;
}

/* The first record. Returns WHOLE when it is well. */
static enum fastcgi_head_state scan_begin(const unsigned char *bytes, size_t length,
                                          struct fastcgi_head *head)
{
    const unsigned char *body = bytes + FASTCGI_HEADER_BYTES;
    struct fastcgi_record record;

    if (length < FASTCGI_HEADER_BYTES)
        return length > 0 && bytes[0] != VERSION ? FASTCGI_HEAD_BAD : FASTCGI_HEAD_MORE;
    record = fastcgi_record_read(bytes);
    if (record.version != VERSION || record.type != FASTCGI_BEGIN_REQUEST ||
        record.request_id == 0 || record.content_bytes != BEGIN_BYTES || record.padding_bytes > 0)
        return FASTCGI_HEAD_BAD;
    head->bytes = FASTCGI_HEADER_BYTES + BEGIN_BYTES;
    if (length < head->bytes)
        return FASTCGI_HEAD_MORE;
    head->request_id = record.request_id;
    return (body[0] << 8 | body[1]) == ROLE_RESPONDER ? FASTCGI_HEAD_WHOLE
                                                      : FASTCGI_HEAD_OTHER_ROLE;
}

enum fastcgi_head_state fastcgi_head_scan(const unsigned char *bytes, size_t length,
                                          struct fastcgi_head *ret_head)
{
    struct pairs pairs = {.count = 0};
    enum fastcgi_head_state state;

    *ret_head = (struct fastcgi_head){.bytes = 0};
    state = scan_begin(bytes, length, ret_head);
    if (state != FASTCGI_HEAD_WHOLE)
        return state;
    for (;;) {
        size_t at = ret_head->bytes;
        size_t here = length - at;
        struct fastcgi_record record;

        if (here < FASTCGI_HEADER_BYTES)
            break;
        record = fastcgi_record_read(bytes + at);
        if (record.version != VERSION || record.type != FASTCGI_PARAMS ||
            record.request_id != ret_head->request_id ||
            (record.content_bytes == 0 && record.padding_bytes > 0))
            return FASTCGI_HEAD_BAD;
        at += FASTCGI_HEADER_BYTES;
        here -= FASTCGI_HEADER_BYTES;
        if (!take_pairs(&pairs, bytes + at,
                        here < record.content_bytes ? here : record.content_bytes))
            return FASTCGI_HEAD_TOO_LARGE;
        if (here < record.content_bytes + record.padding_bytes)
            break;
        ret_head->bytes = at + record.content_bytes + record.padding_bytes;
        if (ret_head->bytes > FASTCGI_HEAD_BYTES_MAX)
            return FASTCGI_HEAD_TOO_LARGE;
        if (record.content_bytes == 0)
            return between_pairs(&pairs) ? scan_body(bytes, length, ret_head) : FASTCGI_HEAD_BAD;
    }
    return length >= FASTCGI_HEAD_BYTES_MAX ? FASTCGI_HEAD_TOO_LARGE : FASTCGI_HEAD_MORE;
}
