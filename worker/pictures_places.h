/*
 * pictures_places.h - the places in answers that pictures.c looks at, of all families in one tree: an
 * answer's shape tells its family, so no family needs a tree of its own. For pictures.c alone.
 */
#ifndef WORKER_PICTURES_PLACES_H
#define WORKER_PICTURES_PLACES_H

#include "base/json_scan.h"

enum place {
    PLACE_SILENT = 1, /* on the way to others */
    PLACE_TYPE,
    PLACE_MODEL,
    PLACE_ID,
    PLACE_STATUS,
    PLACE_ERROR,  /* anything but null */
    PLACE_OBJECT, /* "error" is one */
    PLACE_CODE,   /* DashScope's errors */
    PLACE_SIZE,
    PLACE_QUALITY,
    PLACE_FORMAT,
    PLACE_ROOT_PICTURE,
    PLACE_ENTRY, /* of data[]: begins and ends */
    PLACE_ENTRY_PICTURE,
    PLACE_ITEM, /* of output[], or "item": begins and ends */
    PLACE_ITEM_TYPE,
    PLACE_ITEM_ID,
    PLACE_ITEM_CALL_ID,
    PLACE_ITEM_PICTURE,
    PLACE_PICTURE,      /* counts by itself: chat images[], DashScope's results */
    PLACE_CONTENT_TEXT, /* content when a string that is not empty */
    PLACE_CONTENT,      /* content whatever it is, but null */
    PLACE_USAGE,        /* may be content, and is on the way to the tokens */
    PLACE_CHOICE,
    PLACE_FINISH, /* content; DashScope's also ends */
    PLACE_GEMINI_FINISH,
    PLACE_PART, /* Gemini's: begins and ends */
    PLACE_PART_THOUGHT,
    PLACE_PART_MIME,
    PLACE_PART_DATA,
    PLACE_TOKENS_IN,
    PLACE_TOKENS_OUT,
    PLACE_TOKENS_CACHED,
    PLACE_TOKENS_REASONING,
    PLACE_IMAGE_TOKENS_IN,
    PLACE_IMAGE_TOKENS_OUT,
    PLACE_TOOL_TOKENS_IN,
    PLACE_TOOL_TOKENS_OUT,
    PLACE_SECONDS,
    PLACE_MODALITY_IN, /* Gemini's token details: an entry begins and ends */
    PLACE_MODALITY_OUT,
    PLACE_MODALITY_NAME,
    PLACE_MODALITY_TOKENS,
    PLACE_COUNT,
};

#define LEAF(place) (&(const struct json_node){.id = (place)})
#define HASHED(place) (&(const struct json_node){.id = (place), .hash = true})
#define NODE(place, list)                                                                          \
    {                                                                                              \
        .id = (place), .edges = (list), .edge_count = LENGTH(list)                                 \
    }
#define LIST(of)                                                                                   \
    {                                                                                              \
        .id = PLACE_SILENT, .element = (of)                                                        \
    }

/* ---- usage ----------------------------------------------------------------------------------- */

static const struct json_edge in_details_edges[] = {
    JSON_EDGE("cached_tokens", LEAF(PLACE_TOKENS_CACHED)),
    JSON_EDGE("image_tokens", LEAF(PLACE_IMAGE_TOKENS_IN)),
};
static const struct json_node in_details_node = NODE(PLACE_SILENT, in_details_edges);
static const struct json_edge out_details_edges[] = {
    JSON_EDGE("reasoning_tokens", LEAF(PLACE_TOKENS_REASONING)),
    JSON_EDGE("image_tokens", LEAF(PLACE_IMAGE_TOKENS_OUT)),
};
static const struct json_node out_details_node = NODE(PLACE_SILENT, out_details_edges);
static const struct json_edge usage_edges[] = {
    JSON_EDGE("prompt_tokens", LEAF(PLACE_TOKENS_IN)),
    JSON_EDGE("input_tokens", LEAF(PLACE_TOKENS_IN)),
    JSON_EDGE("completion_tokens", LEAF(PLACE_TOKENS_OUT)),
    JSON_EDGE("output_tokens", LEAF(PLACE_TOKENS_OUT)),
    JSON_EDGE("cache_read_input_tokens", LEAF(PLACE_TOKENS_CACHED)),
    JSON_EDGE("prompt_tokens_details", &in_details_node),
    JSON_EDGE("input_tokens_details", &in_details_node),
    JSON_EDGE("completion_tokens_details", &out_details_node),
    JSON_EDGE("output_tokens_details", &out_details_node),
    JSON_EDGE("seconds", LEAF(PLACE_SECONDS)),
    JSON_EDGE("duration", LEAF(PLACE_SECONDS)),
};
static const struct json_node usage_node = NODE(PLACE_USAGE, usage_edges);
static const struct json_node quiet_usage_node = NODE(PLACE_SILENT, usage_edges);

static const struct json_edge image_gen_edges[] = {
    JSON_EDGE("input_tokens", LEAF(PLACE_TOOL_TOKENS_IN)),
    JSON_EDGE("output_tokens", LEAF(PLACE_TOOL_TOKENS_OUT)),
};
static const struct json_node image_gen_node = NODE(PLACE_SILENT, image_gen_edges);
static const struct json_edge tool_usage_edges[] = {JSON_EDGE("image_gen", &image_gen_node)};
static const struct json_node tool_usage_node = NODE(PLACE_SILENT, tool_usage_edges);

static const struct json_edge modality_edges[] = {
    JSON_EDGE("modality", LEAF(PLACE_MODALITY_NAME)),
    JSON_EDGE("tokenCount", LEAF(PLACE_MODALITY_TOKENS)),
};
static const struct json_node modality_in_node = NODE(PLACE_MODALITY_IN, modality_edges);
static const struct json_node modality_out_node = NODE(PLACE_MODALITY_OUT, modality_edges);
static const struct json_node modalities_in_node = LIST(&modality_in_node);
static const struct json_node modalities_out_node = LIST(&modality_out_node);
static const struct json_edge gemini_usage_edges[] = {
    JSON_EDGE("promptTokenCount", LEAF(PLACE_TOKENS_IN)),
    JSON_EDGE("candidatesTokenCount", LEAF(PLACE_TOKENS_OUT)),
    JSON_EDGE("cachedContentTokenCount", LEAF(PLACE_TOKENS_CACHED)),
    JSON_EDGE("thoughtsTokenCount", LEAF(PLACE_TOKENS_REASONING)),
    JSON_EDGE("promptTokensDetails", &modalities_in_node),
    JSON_EDGE("candidatesTokensDetails", &modalities_out_node),
};
static const struct json_node gemini_usage_node = NODE(PLACE_SILENT, gemini_usage_edges);

/* ---- OpenAI: images, responses --------------------------------------------------------------- */

static const struct json_edge entry_edges[] = {
    JSON_EDGE("b64_json", LEAF(PLACE_ENTRY_PICTURE)), JSON_EDGE("url", LEAF(PLACE_ENTRY_PICTURE)),
    JSON_EDGE("bytesBase64Encoded", LEAF(PLACE_ENTRY_PICTURE)), /* Gemini's predictions[] */
};
static const struct json_node entry_node = NODE(PLACE_ENTRY, entry_edges);
static const struct json_node entries_node = LIST(&entry_node);

static const struct json_edge item_edges[] = {
    JSON_EDGE("id", HASHED(PLACE_ITEM_ID)),
    JSON_EDGE("call_id", HASHED(PLACE_ITEM_CALL_ID)),
    JSON_EDGE("type", LEAF(PLACE_ITEM_TYPE)),
    JSON_EDGE("result", HASHED(PLACE_ITEM_PICTURE)),
    JSON_EDGE("b64_json", HASHED(PLACE_ITEM_PICTURE)),
    JSON_EDGE("url", HASHED(PLACE_ITEM_PICTURE)),
    JSON_EDGE("size", LEAF(PLACE_SIZE)),
    JSON_EDGE("quality", LEAF(PLACE_QUALITY)),
    JSON_EDGE("output_format", LEAF(PLACE_FORMAT)),
};
static const struct json_node item_node = NODE(PLACE_ITEM, item_edges);
static const struct json_node items_node = LIST(&item_node);

static const struct json_edge response_edges[] = {
    JSON_EDGE("id", LEAF(PLACE_ID)),           JSON_EDGE("model", LEAF(PLACE_MODEL)),
    JSON_EDGE("status", LEAF(PLACE_STATUS)),   JSON_EDGE("error", LEAF(PLACE_ERROR)),
    JSON_EDGE("output", &items_node),          JSON_EDGE("usage", &quiet_usage_node),
    JSON_EDGE("tool_usage", &tool_usage_node),
};
static const struct json_node response_node = NODE(PLACE_SILENT, response_edges);

/* ---- chat, DashScope ------------------------------------------------------------------------- */

static const struct json_edge url_edges[] = {JSON_EDGE("url", HASHED(PLACE_PICTURE))};
static const struct json_node url_node = NODE(PLACE_SILENT, url_edges);
static const struct json_edge image_edges[] = {JSON_EDGE("image_url", &url_node)};
static const struct json_node image_node = NODE(PLACE_SILENT, image_edges);
static const struct json_node images_node = LIST(&image_node);
static const struct json_node content_part_node;
static const struct json_node thinking_node = LIST(&content_part_node);
static const struct json_edge content_part_edges[] = {
    JSON_EDGE("text", LEAF(PLACE_CONTENT_TEXT)),
    JSON_EDGE("thinking", &thinking_node),
    JSON_EDGE("image", HASHED(PLACE_PICTURE)),
    JSON_EDGE("image_url", &url_node),
};
static const struct json_node content_part_node = NODE(PLACE_SILENT, content_part_edges);
static const struct json_node content_node = {.id = PLACE_CONTENT_TEXT,
                                              .element = &content_part_node};
static const struct json_node contents_node = LIST(LEAF(PLACE_CONTENT));
static const struct json_edge audio_edges[] = {
    JSON_EDGE("data", LEAF(PLACE_CONTENT_TEXT)),
    JSON_EDGE("transcript", LEAF(PLACE_CONTENT_TEXT)),
};
static const struct json_node audio_node = NODE(PLACE_SILENT, audio_edges);
static const struct json_edge function_edges[] = {
    JSON_EDGE("name", LEAF(PLACE_CONTENT_TEXT)),
    JSON_EDGE("arguments", LEAF(PLACE_CONTENT_TEXT)),
};
static const struct json_node function_node = NODE(PLACE_SILENT, function_edges);
static const struct json_edge message_edges[] = {
    JSON_EDGE("content", &content_node),
    JSON_EDGE("reasoning_content", LEAF(PLACE_CONTENT_TEXT)),
    JSON_EDGE("reasoning", LEAF(PLACE_CONTENT_TEXT)),
    JSON_EDGE("reasoning_details", &contents_node),
    JSON_EDGE("refusal", LEAF(PLACE_CONTENT_TEXT)),
    JSON_EDGE("tool_calls", &contents_node),
    JSON_EDGE("function_call", &function_node),
    JSON_EDGE("audio", &audio_node),
    JSON_EDGE("images", &images_node),
};
static const struct json_node message_node = NODE(PLACE_SILENT, message_edges);
static const struct json_edge choice_edges[] = {
    JSON_EDGE("delta", &message_node),
    JSON_EDGE("message", &message_node),
    JSON_EDGE("text", LEAF(PLACE_CONTENT_TEXT)),
    JSON_EDGE("finish_reason", LEAF(PLACE_FINISH)),
};
static const struct json_node choice_node = NODE(PLACE_CHOICE, choice_edges);
static const struct json_node choices_node = LIST(&choice_node);

static const struct json_node results_node = LIST(&url_node);
/* An array in Responses, an object in DashScope's answers. */
static const struct json_edge output_edges[] = {
    JSON_EDGE("task_id", LEAF(PLACE_ID)),        JSON_EDGE("task_status", LEAF(PLACE_STATUS)),
    JSON_EDGE("results", &results_node),         JSON_EDGE("choices", &choices_node),
    JSON_EDGE("text", LEAF(PLACE_CONTENT_TEXT)), JSON_EDGE("finish_reason", LEAF(PLACE_FINISH)),
};
static const struct json_node output_node = {.id = PLACE_SILENT,
                                             .element = &item_node,
                                             .edges = output_edges,
                                             .edge_count = LENGTH(output_edges)};

/* ---- Anthropic, Gemini ----------------------------------------------------------------------- */

static const struct json_edge start_edges[] = {
    JSON_EDGE("id", LEAF(PLACE_ID)),
    JSON_EDGE("model", LEAF(PLACE_MODEL)),
    JSON_EDGE("usage", &quiet_usage_node),
};
static const struct json_node start_node = NODE(PLACE_SILENT, start_edges);

static const struct json_edge inline_edges[] = {
    JSON_EDGE("mimeType", LEAF(PLACE_PART_MIME)),
    JSON_EDGE("mime_type", LEAF(PLACE_PART_MIME)),
    JSON_EDGE("data", HASHED(PLACE_PART_DATA)),
};
static const struct json_node inline_node = NODE(PLACE_CONTENT, inline_edges);
static const struct json_edge part_edges[] = {
    JSON_EDGE("text", LEAF(PLACE_CONTENT_TEXT)),
    JSON_EDGE("thought", LEAF(PLACE_PART_THOUGHT)),
    JSON_EDGE("functionCall", LEAF(PLACE_CONTENT)),
    JSON_EDGE("inlineData", &inline_node),
    JSON_EDGE("inline_data", &inline_node),
    JSON_EDGE("executableCode", LEAF(PLACE_CONTENT)),
    JSON_EDGE("codeExecutionResult", LEAF(PLACE_CONTENT)),
};
static const struct json_node part_node = NODE(PLACE_PART, part_edges);
static const struct json_node parts_node = LIST(&part_node);
static const struct json_edge gemini_content_edges[] = {JSON_EDGE("parts", &parts_node)};
static const struct json_node gemini_content_node = NODE(PLACE_SILENT, gemini_content_edges);
static const struct json_edge candidate_edges[] = {
    JSON_EDGE("content", &gemini_content_node),
    JSON_EDGE("finishReason", LEAF(PLACE_GEMINI_FINISH)),
};
static const struct json_node candidate_node = NODE(PLACE_SILENT, candidate_edges);
static const struct json_node candidates_node = LIST(&candidate_node);
/* A prompt that is refused has no candidates. */
static const struct json_edge feedback_edges[] = {
    JSON_EDGE("blockReason", LEAF(PLACE_GEMINI_FINISH)),
};
static const struct json_node feedback_node = NODE(PLACE_SILENT, feedback_edges);

/* ---- the top --------------------------------------------------------------------------------- */

/* The keys of ordinary chat first. */
static const struct json_edge answer_edges[] = {
    JSON_EDGE("id", LEAF(PLACE_ID)),
    JSON_EDGE("model", LEAF(PLACE_MODEL)),
    JSON_EDGE("choices", &choices_node),
    JSON_EDGE("usage", &usage_node),
    JSON_EDGE("type", LEAF(PLACE_TYPE)),
    JSON_EDGE("error", LEAF(PLACE_ERROR)),
    JSON_EDGE("object", LEAF(PLACE_OBJECT)),
    JSON_EDGE("item", &item_node),
    JSON_EDGE("response", &response_node),
    JSON_EDGE("output", &output_node),
    JSON_EDGE("tool_usage", &tool_usage_node),
    JSON_EDGE("status", LEAF(PLACE_STATUS)),
    JSON_EDGE("data", &entries_node),
    JSON_EDGE("b64_json", HASHED(PLACE_ROOT_PICTURE)),
    JSON_EDGE("url", HASHED(PLACE_ROOT_PICTURE)),
    JSON_EDGE("size", LEAF(PLACE_SIZE)),
    JSON_EDGE("quality", LEAF(PLACE_QUALITY)),
    JSON_EDGE("output_format", LEAF(PLACE_FORMAT)),
    JSON_EDGE("message", &start_node),
    JSON_EDGE("candidates", &candidates_node),
    JSON_EDGE("promptFeedback", &feedback_node),
    JSON_EDGE("usageMetadata", &gemini_usage_node),
    JSON_EDGE("modelVersion", LEAF(PLACE_MODEL)),
    JSON_EDGE("responseId", LEAF(PLACE_ID)),
    JSON_EDGE("predictions", &entries_node),
    JSON_EDGE("task_id", LEAF(PLACE_ID)),
    JSON_EDGE("code", LEAF(PLACE_CODE)),
    JSON_EDGE("duration", LEAF(PLACE_SECONDS)),
};
/* Gemini without alt=sse streams an array of answers. */
static const struct json_node answer_node;
static const struct json_node answer_node = {.id = PLACE_SILENT,
                                             .element = &answer_node,
                                             .edges = answer_edges,
                                             .edge_count = LENGTH(answer_edges)};

#endif
