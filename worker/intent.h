/*
 * intent.h - what a request asks for, read from its path, its type and its body as it comes in (G1-G3).
 *
 * Fed with the body's bytes while they arrive; keeps constant memory whatever the body's size. Pure:
 * no I/O, no clock. The table of request shapes and their intent is tests/worker/intent_cases.json.
 */
#ifndef WORKER_INTENT_H
#define WORKER_INTENT_H

#include "base/json_scan.h"
#include "worker/multipart.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum call_kind { CALL_CHAT, CALL_RESPONSES, CALL_EMBEDDING, CALL_IMAGE, CALL_OCR, CALL_OTHER };
/* "chat", "responses", ... the words of the ledger. */
const char *call_kind_name(enum call_kind kind);

/* Families of endpoints: what the body and the answer look like. */
enum endpoint {
    ENDPOINT_OTHER,
    ENDPOINT_CHAT,        /* .../chat/completions */
    ENDPOINT_COMPLETIONS, /* .../completions */
    ENDPOINT_RESPONSES,   /* .../responses: POSTs that create */
    ENDPOINT_EMBEDDINGS,
    ENDPOINT_IMAGES,      /* images/generations, edits, variations; OpenRouter's /v1/images; .../async */
    ENDPOINT_GEMINI,      /* ...:generateContent, :streamGenerateContent, :predict */
    ENDPOINT_DASHSCOPE,   /* /api/v1/services/aigc/... */
    ENDPOINT_MESSAGES,    /* Anthropic's */
};

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
    char endpoint_name[64]; /* "images/generations", "responses", ...: for ledger and log */
    bool image;      /* counted by the gate (decided at intent_end) */
    bool bears_intent; /* intent of this endpoint lies in the body: problems matter when the gate is on */
    enum intent_problem problem;
    bool stream;     /* the request asks for a stream (body "stream": true, part stream=true, Gemini
                        streamGenerateContent, DashScope's SSE header is the caller's to add) */
    bool background; /* responses with background: true; DashScope asynchronous calls */
    bool body_is_json; /* the body was one whole JSON value */
    char model[INTENT_MODEL_SIZE]; /* last one named, cut to fit; "" = none */
    uint64_t body_text_bytes; /* bytes of the body that are not base64/data: a size for token estimates */
};

struct intent_request {
    const char *method;
    const char *path; /* decoded once, without query */
    const char *content_type;     /* NULL = absent */
    const char *content_encoding; /* NULL = absent */
    const char *const *image_models; /* globs, NULL-terminated */
    bool count_chat_images;
    bool dashscope_async; /* X-DashScope-Async: enable was sent */
};

/* The reader: fed while the body comes in. */
struct intent_reader {
    struct intent_request request;
    struct intent intent; /* final after intent_end */
    /* What follows is the reader's own. */
    enum { INTENT_BODY_IGNORED, INTENT_BODY_JSON, INTENT_BODY_MULTIPART } body;
    uint64_t fed_bytes;
    unsigned char head[4]; /* first bytes: byte order marks */
    struct json_scan json;
    struct multipart multipart;
    struct intent_findings {
        bool image_model;
        bool tool_listed;           /* tools[] has type image_generation */
        bool choice_none;           /* tool_choice "none" */
        bool choice_other;          /* selects another tool */
        bool choice_image;          /* selects image generation */
        bool choice_allowed;        /* allowed_tools ... */
        bool choice_allowed_image;  /* ... with image generation in it */
        bool choice_namespace_image;
        bool choice_name_imagegen;
        bool modality_image; /* modalities / responseModalities contain image */
        bool stream;
        bool background;
    } found;
};

/* The strings of request must outlive the reader. */
void intent_begin(struct intent_reader *reader, const struct intent_request *request);
void intent_feed(struct intent_reader *reader, const char *bytes, size_t length);
/* Decide; reader->intent is final. */
void intent_end(struct intent_reader *reader);

/* Does the model draw? Globs match the whole name, or what follows any "prefix/" (G1). */
bool intent_is_image_model(const char *const *image_models, const char *model);

#endif
