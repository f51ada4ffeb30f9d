/* body.c - see body.h. */
#include "tests/tools/upstream/body.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DEFLATE_STORED_MAX 65535

static char filler[FILLER_BYTES];

void sim_filler_init(void)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t x = 20251130;

    for (size_t i = 0; i < FILLER_BYTES; i++) {
        x = x * 1664525 + 1013904223;
        filler[i] = letters[x >> 26];
    }
}

const char *sim_filler_bytes(void)
{
    return filler;
}

void sim_body_init(struct body *body)
{
    text_init(&body->text, BODY_TEXT_MAX);
    body->count = 0;
    body->length = 0;
}

void sim_body_release(struct body *body)
{
    text_release(&body->text);
    body->count = 0;
    body->length = 0;
}

void sim_body_clear(struct body *body)
{
    text_clear(&body->text);
    body->count = 0;
    body->length = 0;
}

/* Text was appended behind `before`: account for it in the last text span or a new one. */
static void note_text(struct body *body, size_t before)
{
    size_t added = body->text.length - before;

    if (added == 0)
        return;
    if (body->count == 0 || body->spans[body->count - 1].filler) {
        REQUIRE(body->count < BODY_SPANS_MAX);
        body->spans[body->count++] = (struct span){.offset = before};
    }
    body->spans[body->count - 1].length += added;
    body->length += added;
}

void sim_body_text(struct body *body, const char *string)
{
    size_t before = body->text.length;

    text_append_string(&body->text, string);
    note_text(body, before);
}

void sim_body_printf(struct body *body, const char *format, ...)
{
    char bytes[2048];
    va_list list;

    va_start(list, format);
    (void)vsnprintf(bytes, sizeof bytes, format, list);
    va_end(list);
    sim_body_text(body, bytes);
}

void sim_body_json(struct body *body, const char *string)
{
    size_t before = body->text.length;

    text_append_json(&body->text, string, strlen(string));
    note_text(body, before);
}

void sim_body_filler(struct body *body, uint64_t length, uint64_t seed)
{
    if (length == 0)
        return;
    REQUIRE(body->count < BODY_SPANS_MAX);
    body->spans[body->count++] = (struct span){
        .filler = true,
        .offset = (size_t)(seed * UINT64_C(0x9e3779b97f4a7c15) >> 44) % FILLER_BYTES,
        .length = length,
    };
    body->length += length;
}

static uint32_t crc32_of(uint32_t crc, const char *bytes, size_t length)
{
    static uint32_t table[256];

    if (table[1] == 0) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t entry = i;

            for (unsigned bit = 0; bit < 8; bit++)
                entry = entry & 1 ? entry >> 1 ^ 0xedb88320u : entry >> 1;
            table[i] = entry;
        }
    }
    crc = ~crc;
    for (size_t i = 0; i < length; i++)
        crc = table[(crc ^ (unsigned char)bytes[i]) & 0xff] ^ crc >> 8;
    return ~crc;
}

/* The whole content as plain bytes. */
static void flatten(const struct body *body, struct text *out)
{
    for (unsigned i = 0; i < body->count; i++) {
        const struct span *span = &body->spans[i];

        if (!span->filler) {
            text_append(out, body->text.bytes + span->offset, (size_t)span->length);
            continue;
        }
        for (uint64_t done = 0; done < span->length;) {
            size_t at = (size_t)((span->offset + done) % FILLER_BYTES);
            size_t run = FILLER_BYTES - at;

            if (run > span->length - done)
                run = (size_t)(span->length - done);
            text_append(out, filler + at, run);
            done += run;
        }
    }
}

static void append_little_endian(struct text *text, uint32_t number, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        text_append_char(text, (char)(unsigned char)(number >> (8 * i)));
}

static void append_stored(struct text *out, const char *bytes, size_t length, bool last)
{
    text_append_char(out, last ? 1 : 0);
    append_little_endian(out, (uint32_t)length, 2);
    append_little_endian(out, (uint32_t)~length & 0xffff, 2);
    text_append(out, bytes, length);
}

void sim_body_gzip(struct body *body, struct gzip *gzip, bool last)
{
    static const char header[10] = {'\x1f', '\x8b', 8, 0, 0, 0, 0, 0, 0, '\xff'};
    struct text plain;

    text_init(&plain, BODY_TEXT_MAX);
    flatten(body, &plain);
    sim_body_clear(body);
    if (!gzip->begun)
        text_append(&body->text, header, sizeof header);
    gzip->begun = true;
    for (size_t at = 0; at < plain.length;) {
        size_t run =
            plain.length - at < DEFLATE_STORED_MAX ? plain.length - at : DEFLATE_STORED_MAX;

        append_stored(&body->text, plain.bytes + at, run, false);
        at += run;
    }
    gzip->crc = crc32_of(gzip->crc, text_string(&plain), plain.length);
    gzip->length += (uint32_t)plain.length;
    if (last) {
        append_stored(&body->text, "", 0, true);
        append_little_endian(&body->text, gzip->crc, 4);
        append_little_endian(&body->text, gzip->length, 4);
    }
    note_text(body, 0);
    text_release(&plain);
}
