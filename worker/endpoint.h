/*
 * endpoint.h - what a path is: its family, the kind of call, and where its intent to draw lies.
 *
 * Paths are compared by their last segments, whole and case-sensitively, so that prefixes ("/v1",
 * "/compatible-mode/v1", "/openai/deployments/NAME") do not matter. Pure.
 */
#ifndef WORKER_ENDPOINT_H
#define WORKER_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>

#define ENDPOINT_NAME_SIZE 64

enum call_kind { CALL_CHAT, CALL_RESPONSES, CALL_EMBEDDING, CALL_IMAGE, CALL_OCR, CALL_OTHER };
/* "chat", "responses", ... the words of the ledger. */
const char *call_kind_name(enum call_kind kind);

/* Families of endpoints: what the body and the answer look like. */
enum endpoint {
    ENDPOINT_OTHER,       /* also all that only asks, polls or cancels: endpoint_name tells which */
    ENDPOINT_CHAT,        /* .../chat/completions */
    ENDPOINT_COMPLETIONS, /* .../completions */
    ENDPOINT_RESPONSES,   /* .../responses: POSTs that create */
    ENDPOINT_EMBEDDINGS,
    ENDPOINT_IMAGES, /* images/generations, edits, variations; OpenRouter's /v1/images; .../async */
    ENDPOINT_GEMINI, /* ...:generateContent, :streamGenerateContent, :predict */
    ENDPOINT_DASHSCOPE, /* /api/v1/services/aigc/... */
    ENDPOINT_MESSAGES,  /* Anthropic's */
};

/* When a call to it counts as an image call. */
enum endpoint_rule {
    ENDPOINT_RULE_NEVER,
    ENDPOINT_RULE_PATH, /* always: the path says so, whatever the body */
    ENDPOINT_RULE_RESPONSES,
    ENDPOINT_RULE_CHAT,
    ENDPOINT_RULE_GEMINI,
    ENDPOINT_RULE_PREDICT,
    ENDPOINT_RULE_MODEL, /* when the body's model draws */
};

struct endpoint_match {
    enum endpoint endpoint;
    enum call_kind kind; /* unless it turns out to draw */
    enum endpoint_rule rule;
    bool goes_on;                  /* answers at once and works on, like a background call */
    bool streams;                  /* by its path alone */
    char name[ENDPOINT_NAME_SIZE]; /* "images/generations", "responses/{id}", ..., "other" */
    const char *model;   /* that the path names (Gemini, Azure's deployments), within the path */
    size_t model_length; /* 0 = it names none */
};

/* path: decoded, without query. Never fails: what is unknown is ENDPOINT_OTHER. */
void endpoint_match(struct endpoint_match *match, const char *method, const char *path);

#endif
