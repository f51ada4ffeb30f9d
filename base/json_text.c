/* json_text.c - one text of a JSON document, decoded: the beginning is kept, all of it is handed over; see
 * json_text.h. */
#include "base/json_text.h"

#include <string.h>

#define UNWANTED_MAX 64 /* decoded bytes that are kept of a string nobody wants */

static bool is_listened_to(const struct json_scan *scan, enum json_text_kind kind)
{
    return scan->own.on_text && (kind == JSON_TEXT_STRING || !scan->own.strings_only);
}

static void tell(struct json_scan *scan, const char *bytes, size_t length, bool ends)
{
    const struct json_text piece = {
        .kind = (enum json_text_kind)scan->own.text_kind,
        .bytes = bytes,
        .length = length,
        .begins = scan->own.text_begins,
        .ends = ends,
        .raw_length = ends ? scan->own.raw_length : 0,
    };

    scan->own.text_begins = false;
    scan->own.listening = scan->own.on_text(scan->context, scan, &piece);
}

void json_text_end(struct json_scan *scan)
{
    if (!scan->own.text_open)
        return;
    tell(scan, "", 0, true);
    scan->own.text_open = false;
    scan->own.listening = false;
}

void json_text_whole(struct json_scan *scan, enum json_text_kind kind, const char *bytes,
                     size_t length)
{
    if (!is_listened_to(scan, kind))
        return;
    scan->own.text_kind = (unsigned char)kind;
    scan->own.text_begins = true;
    scan->own.raw_length = length;
    tell(scan, bytes, length, true);
    scan->own.listening = false;
}

void json_text_begin(struct json_scan *scan, enum json_text_kind kind)
{
    bool wanted = scan->own.node || !scan->own.root;

    scan->own.text_kind = (unsigned char)kind;
    scan->own.text_open = scan->own.listening = is_listened_to(scan, kind);
    scan->own.text_begins = true;
    scan->own.text_length = 0;
    scan->own.text_cut = false;
    scan->own.high_surrogate = 0;
    scan->own.text_max = kind == JSON_TEXT_KEY ? JSON_SCAN_KEY_MAX
                         : wanted              ? JSON_SCAN_TEXT_MAX
                                               : UNWANTED_MAX;
}

/* Where decoded bytes go: a key into its level, anything else into own.text. */
static char *text_of(struct json_scan *scan)
{
    return scan->own.in_key ? scan->levels[scan->depth - 1].key : scan->own.text;
}

void json_text_keep(struct json_scan *scan, const char *bytes, size_t length)
{
    size_t room = scan->own.text_max - scan->own.text_length;

    if (scan->own.listening && length > 0)
        tell(scan, bytes, length, false);
    if (scan->own.text_cut)
        return;
    if (length > room) {
        scan->own.text_cut = true;
        length = room;
    }
    memcpy(text_of(scan) + scan->own.text_length, bytes, length);
    scan->own.text_length += length;
}

/* One code point as UTF-8, whole or not at all. */
static void keep_code_point(struct json_scan *scan, unsigned code)
{
    char bytes[4];
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0x00, 0xC0, 0xE0, 0xF0};

    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3F));
    bytes[0] = (char)(lead[length] | code);
    if (length > scan->own.text_max - scan->own.text_length)
        scan->own.text_cut = true;
    json_text_keep(scan, bytes, length);
}

#define REPLACEMENT 0xFFFDU

void json_text_surrogate_end(struct json_scan *scan)
{
    if (scan->own.high_surrogate) {
        scan->own.high_surrogate = 0;
        keep_code_point(scan, REPLACEMENT);
    }
}

void json_text_unit(struct json_scan *scan, unsigned unit)
{
    if (unit >= 0xDC00 && unit <= 0xDFFF && scan->own.high_surrogate) {
        unsigned high = scan->own.high_surrogate - 0xD800;

        scan->own.high_surrogate = 0;
        keep_code_point(scan, 0x10000 + (high << 10) + (unit - 0xDC00));
        return;
    }
    json_text_surrogate_end(scan);
    if (unit >= 0xD800 && unit <= 0xDBFF)
        scan->own.high_surrogate = unit;
    else if (unit >= 0xDC00 && unit <= 0xDFFF)
        keep_code_point(scan, REPLACEMENT);
    else
        keep_code_point(scan, unit);
}
