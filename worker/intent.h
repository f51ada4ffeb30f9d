/*
 * intent.h - what a request asks for, read from its path, its type and its body as it comes in
 * (G1-G3).
 *
 * Fed with the body's bytes while they arrive; keeps constant memory whatever the body's size.
 * Pure: no I/O, no clock. The table of request shapes and their intent is
 * tests/worker/intent_cases.json.
 */
#ifndef WORKER_INTENT_H
#define WORKER_INTENT_H

#include "base/json_scan.h"
#include "worker/answer_options.h"
#include "worker/endpoint.h"
#include "worker/estimate.h"
#include "worker/multipart.h"
#include "worker/pin.h"
#include "worker/tool_choice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the body proved unfit for, on an endpoint whose intent lies in the body. */
enum intent_problem {
    INTENT_FINE,
    INTENT_TOO_DEEP, /* deeper than JSON_SCAN_DEPTH_MAX */
    INTENT_ENCODED,  /* Content-Encoding, UTF-16/32: cannot be read */
};

#define INTENT_MODEL_SIZE 256

struct intent {
    enum call_kind kind;
    enum endpoint endpoint;
    char endpoint_name[ENDPOINT_NAME_SIZE]; /* "images/generations", "responses", "responses/{id}",
                               "tasks/{id}",
                               ...: for ledger and log; "other" when unknown */
    bool image;                             /* counted by the gate (decided at intent_end) */
    bool bears_intent; /* intent of this endpoint lies in the body: problems matter when the gate is
                          on */
    enum intent_problem problem;
    bool stream;     /* the request asks for a stream (body "stream": true, part stream=true, Gemini
                        streamGenerateContent, DashScope's SSE header is the caller's to add) */
    bool background; /* responses with background: true; DashScope asynchronous calls; .../async:
                        the POST is short, the work goes on */
    bool body_is_json;             /* the body was one whole JSON value */
    char model[INTENT_MODEL_SIZE]; /* last one named, cut to fit; "" = none */
    /* Where the model's name stands in the body, so that an alias or a fallback can put another one
     * there and change nothing else: the last string at its place, in JSON with its quotes, in
     * multipart the part's whole value. -1: there is none, or the body is not whole. model_edit.h
     * makes the edit. */
    int64_t model_at, model_bytes;
    bool model_repeated; /* the key or part is there more than once: which of them counts differs
                            between readers, so it is not edited */
    bool model_in_path; /* Gemini, Azure's deployments: the path names a model, nothing is edited */
    /* What the call continues or refers to and only its owner has (H11): an earlier response, a
     * conversation, a file, a batch, a task, ...: no hedge, no failover. The strongest one: of the
     * path, then what is continued, then files, then the rest. */
    bool pinned;
    /* As upstream_id_set() writes it, to ask owner_of(); "" = none. */
    char pin_id[UPSTREAM_ID_SIZE];
    bool hosted_tools; /* chat, responses: tools[] has one of any type but function, custom */
    bool hedgeable; /* H11: chat completions, and responses, whole JSON, that draw nothing, are not
                          pinned, run no hosted tools and do not go on in the background */
    uint64_t body_text_bytes; /* bytes of the body that are not base64 or files */
    int64_t
        est_input; /* tokens of the input, estimated (estimate.h), not calibrated; -1: skipped */
    int64_t est_script; /* of them, those of texts in other scripts than Latin */
    int64_t max_output; /* the most tokens the answer may have, of all its choices together: what
                           max_completion_tokens, max_output_tokens, max_tokens say; -1: nothing */
    int64_t choices;    /* answers or pictures that it asks for: n and its like; 1: not said */
    int64_t seconds;    /* how long the sound or film it asks for is to last; -1: not said */
    enum usage_place usage; /* UNFIT also where it is no chat stream, or no whole JSON */
    int64_t usage_at, usage_bytes;
};

struct intent_request {
    const char *method;
    const char *path;                /* decoded once, without query */
    const char *content_type;        /* NULL = absent */
    const char *content_encoding;    /* NULL = absent */
    const char *const *image_models; /* globs, NULL-terminated */
    bool count_chat_images;
    bool dashscope_async; /* X-DashScope-Async: enable was sent */
    bool skip_estimate;   /* nobody asks for est_input: it costs 2 to 3 ns a byte of text */
};

/* The reader: fed while the body comes in. */
struct intent_reader {
    struct intent_request request;
    struct intent intent; /* final after intent_end */
    /* What follows is the reader's own. */
    enum intent_body { INTENT_BODY_IGNORED, INTENT_BODY_JSON, INTENT_BODY_MULTIPART } body;
    enum endpoint_rule rule;
    bool encoded;          /* a content coding other than identity was named */
    bool path_image_model; /* the path names the model, and it draws */
    bool image_model;      /* some "model" in the body draws */
    bool tool_listed;      /* tools[] has image_generation */
    bool modality_image;   /* modalities / responseModalities contain image */
    struct tool_choice tool_choice;
    bool model_seen;
    struct pin pin;
    bool tool_hosted; /* some entry of tools[] is not the client's own */
    struct intent_tool {
        bool of_client, hosted;
    } tool; /* the one being read */
    struct intent_input {
        bool is_reference;
        char id[UPSTREAM_ID_SIZE];
    } input; /* the item being read */
    struct answer_options answer;
    struct estimate estimate;
    uint64_t fed_bytes;
    unsigned char head[4]; /* first bytes: byte order marks */
    union {
        struct json_scan json;
        struct multipart multipart;
    } as;
};

/* The strings of request must outlive the reader. */
void intent_begin(struct intent_reader *reader, const struct intent_request *request);
void intent_feed(struct intent_reader *reader, const char *bytes, size_t length);
/* Decide; reader->intent is final. */
void intent_end(struct intent_reader *reader);

/* After intent_end: would it be an image call if the body named this model instead? For aliases and
 * fallbacks: a call that the gate has judged as one kind must not become the other. */
bool intent_image_with_model(const struct intent_reader *reader, const char *model);

/* Does the model draw? Globs match the whole name, or what follows any "prefix/" (G1). */
bool intent_is_image_model(const char *const *image_models, const char *model);

#endif
