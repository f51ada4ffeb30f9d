/*
 * pictures.h - reads an answer as it goes by and tells what was delivered: pictures, tokens, model,
 * whether the stream ended as it should (G14). Never delays or changes a byte; constant memory.
 *
 * Pictures are counted from final output only: JSON data[] with b64_json or url, completed image
 * events, image_generation_call items with a result, chat images[], Gemini inlineData (not of parts
 * marked thought), DashScope results. A picture counts once: by item id, else call id, else the
 * hash of its bytes; entries of one data[] are always separate pictures.
 */
#ifndef WORKER_PICTURES_H
#define WORKER_PICTURES_H

#include "base/json_scan.h"
#include "worker/answer_text.h"
#include "worker/intent.h"
#include "worker/sse.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICTURES_KEYS_MAX 256 /* pictures told apart in one answer; what is beyond counts nothing */

/* What an answer said; -1 = it did not say. */
struct delivered {
    uint32_t pictures;
    int64_t tokens_in, tokens_out, tokens_cached, tokens_reasoning;
    int64_t image_tokens_in,
        image_tokens_out; /* tool_usage.image_gen, or usage details of images */
    int64_t seconds;      /* begun ones, of sound or film */
    char model[INTENT_MODEL_SIZE];
    char size[24], quality[16], format[16]; /* of the last picture; "" = not said */
    /* What the answer is or has made: the id of a response, task, file, batch, conversation, ..., for
     * a job's lease, and for owner_remember() (H11); as upstream_id_set() writes it. */
    char id[UPSTREAM_ID_SIZE];
    char status[24]; /* "status" / "task_status" of a response or task, as sent */
    /* Content for the client went by (H4): text, reasoning, a tool call, a refusal, sound, a finish,
     * the usage at the end, a picture, partial ones too. Not comments, pings, response.created, deltas
     * that are empty or only name the role, usage beside them, nor what comes in one event with an
     * error. */
    bool content_seen;
    bool finish_seen;          /* it said why it ends: at most its usage is still to come */
    bool error_seen;           /* an error object or event */
    bool error_before_content; /* and nothing was content before it: the attempt failed (I2) */
    /* The stream's own end: [DONE], response.completed/incomplete/failed, an image's completed event,
     * message_stop, Gemini's and DashScope's finish reason, an error event; for a JSON body: it was
     * whole. A chat's finish_reason is content, its end is [DONE]. */
    bool terminal_seen;
};

enum pictures_body { PICTURES_IGNORED, PICTURES_JSON, PICTURES_SSE };

struct pictures {
    struct delivered
        delivered; /* grows with every whole event or body; complete after pictures_end */
    enum endpoint endpoint;
    enum pictures_body body;
    bool counts_text;
    struct answer_text text; /* as far as it has come, where counted */
    /* What follows is the reader's own. */
    struct json_scan json;
    struct sse sse;
    /* Of the event or body being read: it counts only when it is whole. */
    struct pictures_event {
        struct delivered said;
        char type[64]; /* its "type"; "" = none */
        bool data_begun, line_begins, tool_usage_said, usage_said, choice_said;
        unsigned
            done_matched;   /* bytes of "[DONE]" that the data is so far; more = it is not that */
        uint32_t entries;   /* of data[] with a picture */
        uint32_t key_count; /* keys[] as it will be when the event counts */
        uint64_t root_picture; /* hash of b64_json or url at the top; 0 = none */
    } event;
    struct pictures_item { /* the one being read */
        bool is_other_type, has_picture, thought, is_image;
        uint64_t id, call_id, picture; /* hashes; 0 = none */
        int64_t tokens;
    } item;
    uint32_t entries; /* data[] of cumulative answers: the largest counts, not the sum */
    uint32_t key_count;
    struct pictures_key {
        uint64_t id, picture; /* hashes; id 0 = none */
    } keys[PICTURES_KEYS_MAX];
};

/* content_type and content_encoding are the answer's (NULL = absent): an encoded answer is ignored.
 * The body is read by what it says it is; "application/json" text that turns out to be something
 * else is simply not counted. */
void pictures_begin(struct pictures *pictures, enum endpoint endpoint, const char *content_type,
                    const char *content_encoding);
/* Before the first feed: also count the tokens of what the model writes. several: choices that come by
 * turns. */
void pictures_count_text(struct pictures *pictures, bool several);
void pictures_feed(struct pictures *pictures, const char *bytes, size_t length);
void pictures_end(struct pictures *pictures);

#endif
