/*
 * pictures.h - reads an answer as it goes by and tells what was delivered: pictures, tokens, model,
 * whether the stream ended as it should (G14). Never delays or changes a byte; constant memory.
 *
 * Pictures are counted from final output only: JSON data[] with b64_json or url, completed image
 * events, image_generation_call items with a result, chat images[], Gemini inlineData (not of parts
 * marked thought), DashScope results. A picture counts once: by item id, else call id, else the hash of
 * its bytes; entries of one data[] are always separate pictures.
 */
#ifndef WORKER_PICTURES_H
#define WORKER_PICTURES_H

#include "base/json_scan.h"
#include "worker/intent.h"
#include "worker/sse.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICTURES_KEYS_MAX 256 /* pictures told apart in one answer */

/* What an answer said; -1 = it did not say. */
struct delivered {
    uint32_t pictures;
    int64_t tokens_in, tokens_out, tokens_cached, tokens_reasoning;
    int64_t image_tokens_in, image_tokens_out; /* tool_usage.image_gen, or usage details of images */
    char model[INTENT_MODEL_SIZE];
    char size[24], quality[16], format[16]; /* of the last picture; "" = not said */
    char id[64];         /* the response's or task's id */
    char status[24];     /* "status" / "task_status" of a response or task, as sent */
    bool content_seen;   /* a content-bearing event or body went by (H4) */
    bool error_seen;     /* an error object or event */
    bool terminal_seen;  /* the stream's own end: [DONE], response.completed/failed/incomplete, last
                            image completed, finish_reason, message_stop */
};

enum pictures_body { PICTURES_IGNORED, PICTURES_JSON, PICTURES_SSE };

struct pictures {
    struct delivered delivered; /* grows as bytes go by; complete after pictures_end */
    enum endpoint endpoint;
    enum pictures_body body;
    /* What follows is the reader's own. */
    struct json_scan json;
    struct sse sse;
    char event_type[64]; /* of the event or object being read */
    struct pictures_item {
        bool is_call, has_picture, is_partial, thought;
        char id[64];
        uint64_t hash;
        uint64_t bytes;
    } item;
    uint32_t data_entries;
    uint32_t best_data_entries; /* data[] of cumulative answers: the largest counts, not the sum */
    uint64_t keys[PICTURES_KEYS_MAX];
    uint32_t key_count;
};

/* content_type and content_encoding are the answer's (NULL = absent): an encoded answer is ignored.
 * The body is read by what it says it is; "application/json" text that turns out to be something else
 * is simply not counted. */
void pictures_begin(struct pictures *pictures, enum endpoint endpoint, const char *content_type,
                    const char *content_encoding);
void pictures_feed(struct pictures *pictures, const char *bytes, size_t length);
void pictures_end(struct pictures *pictures);

#endif
