/*
 * answers.h - what is answered: from a complete request to a head and the pieces of a body.
 *
 * answers.c owns the table of endpoints, the head and what all families share; each answer_FAMILY.c
 * holds the answer_functions of one family, answer_error.c the refusals of every dialect.
 */
#ifndef TESTS_TOOLS_UPSTREAM_ANSWERS_H
#define TESTS_TOOLS_UPSTREAM_ANSWERS_H

#include "tests/tools/upstream/call.h"

#include <stddef.h>

#define ENDPOINTS_MAX 32

/* The endpoint of a request; never NULL (the last one is for unknown paths). */
const struct endpoint *sim_endpoint_find(const char *method, const char *path);
size_t sim_endpoint_index(const struct endpoint *endpoint);
const char *sim_endpoint_name(size_t index); /* NULL behind the last */

/* Is it an image call, by path, by mark or by what the body says? Good after request_end. */
bool sim_answer_is_image_call(const struct call *call);
/* Settle status, stream or not, counts; after sim_request_end, before the rest. */
void sim_answer_begin(struct call *call);
/* Write the next piece; true when another follows. */
bool sim_answer_next(struct call *call, struct body *body);

struct framing {
    bool chunked;
    bool has_length;
    uint64_t length;
    bool close;
    bool gzip;
};
/* The answer's whole head. */
void sim_answer_head(const struct call *call, const struct framing *framing, struct text *head);

/* Shared by the families. */
uint64_t sim_answer_seed(const struct call *call);
long long sim_answer_created(const struct call *call);
/* The words of a text answer, inside an open JSON string. */
void sim_answer_words(const struct call *call, struct body *body);
/* The base64 of picture `index`, inside an open JSON string; partial: of a preview. */
void sim_answer_picture(const struct call *call, struct body *body, uint64_t index, bool partial);
/* "event: NAME\ndata: "; without a name only "data: ". */
void sim_answer_event(struct body *body, const char *name);
/* Number of content events of a stream. */
uint64_t sim_answer_events(const struct call *call);
/* What usage says: as X-Mock or the limits have it, else 10 in, and `usual` out. */
unsigned long long sim_answer_tokens_in(const struct call *call);
unsigned long long sim_answer_tokens_out(const struct call *call, uint64_t usual);
/* Is the answer a call of the tool that X-Mock names? */
bool sim_answer_calls_tool(const struct call *call);
#define TOOL_PIECES 2U
/* Its arguments, and one piece of them, inside an open JSON string. */
void sim_answer_tool_arguments(struct body *body);
void sim_answer_tool_piece(struct body *body, uint64_t piece);
/* Members of a chat message; of the delta of step 1 to 1 + TOOL_PIECES. */
void sim_answer_tool_message(const struct call *call, struct body *body);
void sim_answer_tool_delta(const struct call *call, struct body *body);
void sim_answer_image_usage(struct body *body, uint64_t pictures);

answer_function sim_answer_chat, sim_answer_completion, sim_answer_embeddings, sim_answer_messages,
    sim_answer_models;
answer_function sim_answer_images, sim_answer_edits;
answer_function sim_answer_responses, sim_answer_response_get, sim_answer_response_cancel;
answer_function sim_answer_task_submit, sim_answer_task_get, sim_answer_task_cancel,
    sim_answer_multimodal;
answer_function sim_answer_gemini, sim_answer_predict;
answer_function sim_answer_echo, sim_answer_unknown;
/* The refusal that call->status stands for, in the dialect asked for. */
answer_function sim_answer_error;
/* The error event in the midst of a stream. */
void sim_answer_error_event(const struct call *call, struct body *body);
/* The content type that goes with an error's dialect. */
const char *sim_answer_error_type(const struct call *call);

#endif
