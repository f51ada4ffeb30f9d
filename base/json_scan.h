/*
 * json_scan.h - a JSON reader that is fed bytes as they come and keeps constant memory.
 *
 * It exists because bodies carry 20 to 60 MB of base64 in one string: a tree of them costs 110 ms
 * and their size again in memory, this costs a memchr. It checks the whole grammar of RFC 8259 and
 * reports every value, with the path of keys that leads to it, to one function. Strings are
 * reported decoded (escapes resolved) up to JSON_SCAN_TEXT_MAX bytes, together with their full
 * length and a hash of all their raw bytes.
 *
 * On purpose it takes a little more than RFC 8259, because an upstream may: raw control bytes and
 * invalid UTF-8 inside strings, NaN/Infinity/-Infinity, a trailing comma, a leading UTF-8 byte
 * order mark. What it refuses, no reader we know of accepts.
 *
 * Threads: one at a time per scanner. No allocation.
 */
#ifndef BASE_JSON_SCAN_H
#define BASE_JSON_SCAN_H

#include "base/check.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_SCAN_DEPTH_MAX 128 /* nesting; deeper is JSON_SCAN_TOO_DEEP */
#define JSON_SCAN_KEY_MAX 63   /* decoded bytes of a key that are kept; longer keys match nothing */
#define JSON_SCAN_TEXT_MAX 511 /* decoded bytes of a string that are kept */

enum json_kind {
    JSON_OBJECT, /* reported when it begins */
    JSON_OBJECT_END,
    JSON_ARRAY, /* reported when it begins */
    JSON_ARRAY_END,
    JSON_STRING,
    JSON_NUMBER, /* text holds it as written */
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL,
};

enum json_scan_state {
    JSON_SCAN_MORE,     /* a value has begun or may begin; feed on */
    JSON_SCAN_DONE,     /* one whole value was read, only blanks followed so far */
    JSON_SCAN_INVALID,  /* not JSON; final */
    JSON_SCAN_TOO_DEEP, /* JSON so far, deeper than the bound; final */
};

/* What a reader wants to hear of: a tree of keys, constant data. A node may be reached by several
 * edges, also from below itself. */
struct json_node {
    unsigned id;                     /* the reader's number for it, > 0; comes with the value */
    bool hash;                       /* strings here are reported with raw_hash */
    const struct json_node *element; /* of each element when it is an array; NULL = unwanted */
    const struct json_edge *edges;   /* of its keys when it is an object */
    size_t edge_count;
};

struct json_edge {
    const char *key;
    size_t key_length;
    const struct json_node *node;
};

#define JSON_EDGE(key, node)                                                                       \
    {                                                                                              \
        (key), sizeof(key) - 1, (node)                                                             \
    }

/* One value as it is reported. Pointers are good only during the call. */
struct json_value {
    enum json_kind kind;
    unsigned id;      /* of its node; 0 when the scanner follows no tree */
    const char *text; /* STRING (decoded) and NUMBER, NUL-terminated; "" otherwise */
    size_t text_length;
    bool text_cut;       /* the string was longer than what is kept */
    uint64_t at;         /* its first byte (of a string: the quote) in the input; no END has it */
    uint64_t raw_length; /* STRING: bytes between the quotes as they stood in the input */
    uint64_t raw_hash;   /* STRING: their hash_bytes(); 0 where the node does not want it */
    bool empty;          /* OBJECT_END, ARRAY_END: there was nothing in it */
};

struct json_level {
    const struct json_node *node; /* of the container; NULL = unwanted */
    uint64_t index;               /* of the element or member being read */
    unsigned key_length;
    bool is_array;
    bool key_cut;
    char key[JSON_SCAN_KEY_MAX + 1];
};

struct json_scan;
typedef void json_value_function(void *context, const struct json_scan *scan,
                                 const struct json_value *value);

/* Decoded bytes of a key, a string or a number as they go by. Where texts are cut into pieces is of no
 * meaning: also within a character. The last piece of each may be empty. */
struct json_text {
    enum json_text_kind { JSON_TEXT_KEY, JSON_TEXT_STRING, JSON_TEXT_NUMBER } kind;
    const char *bytes;
    size_t length;
    bool begins, ends;   /* the first piece; the last one, which may be the first, too */
    uint64_t raw_length; /* when a key or string ends: its bytes as they stood in the input */
};
/* False: no more of this text but its end. scan's levels are the path to it; of a key, the one to its
 * object. */
typedef bool json_text_function(void *context, const struct json_scan *scan,
                                const struct json_text *piece);

struct json_scan {
    json_value_function *on_value;
    void *context;
    enum json_scan_state state;
    unsigned depth; /* number of open objects and arrays; levels[0..depth-1] is the path */
    uint64_t
        data_bytes; /* raw bytes of the long strings so far that are data (base64), not words */
    struct json_level levels[JSON_SCAN_DEPTH_MAX];
    /* What follows is the scanner's own. */
    struct json_scan_private {
        const struct json_node *root, *node; /* node: of the value being read */
        const char *literal;
        const char
            *feed; /* where the bytes being read begin; they stand at fed_bytes of the input */
        uint64_t fed_bytes, value_at;
        uint64_t raw_length;
        size_t text_length, text_max;
        unsigned unicode, high_surrogate;
        unsigned char expect, number, literal_at, unicode_digits, text_kind;
        bool in_key, text_cut, hashing;
        json_text_function *on_text;
        bool strings_only;
        bool text_open, listening, text_begins; /* of the text being read: its end is to be told */
        char text[JSON_SCAN_TEXT_MAX + 1];
        struct hash hash;
    } own;
};

/* on_value may be NULL (then it only validates). */
void json_scan_init(struct json_scan *scan, json_value_function *on_value, void *context);
/* Before the first feed: report only values that have a node in the tree under root (the node of
 * the top value). */
void json_scan_follow(struct json_scan *scan, const struct json_node *root);
/* Before the first feed: also hand over every text, wanted or not, of any length, with the context of
 * on_value. */
void json_scan_listen(struct json_scan *scan, json_text_function *on_text);
/* Likewise, but no keys and no numbers. */
void json_scan_listen_to_strings(struct json_scan *scan, json_text_function *on_text);
/* Read on. After a final state further bytes are ignored. */
enum json_scan_state json_scan_feed(struct json_scan *scan, const char *bytes, size_t length);
/* The input has ended (completes a number at top level): DONE, INVALID or TOO_DEEP. */
MUST_CHECK enum json_scan_state json_scan_end(struct json_scan *scan);

/* Is the value being reported at exactly this path? path is "a.b[].c": keys separated by ".", "[]"
 * is any element of an array, "" the top value. For OBJECT/ARRAY and their ENDs the path is that of
 * the container itself. */
bool json_scan_at(const struct json_scan *scan, const char *path);

#endif
