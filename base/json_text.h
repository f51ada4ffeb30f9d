/*
 * json_text.h - the key, string or number that json_scan is reading, decoded: its beginning is kept for the
 * report, and who listens hears all of it. For json_scan.c alone.
 */
#ifndef BASE_JSON_TEXT_H
#define BASE_JSON_TEXT_H

#include "base/json_scan.h"

void json_text_begin(struct json_scan *scan, enum json_text_kind kind);
/* Decoded bytes. */
void json_text_keep(struct json_scan *scan, const char *bytes, size_t length);
/* One "\uXXXX"; pairs of surrogates are joined, single ones become U+FFFD. */
void json_text_unit(struct json_scan *scan, unsigned unit);
/* Something else than a unit follows: a high surrogate that waits for its low half gets none. */
void json_text_surrogate_end(struct json_scan *scan);
/* Tell who listens that it is over. */
void json_text_end(struct json_scan *scan);
/* Instead of all that: one without escapes, all of it; nothing of it is kept. */
void json_text_whole(struct json_scan *scan, enum json_text_kind kind, const char *bytes,
                     size_t length);

#endif
