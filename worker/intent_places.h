/*
 * intent_places.h - the places in a request's body that intent.c looks at, as one tree of keys. What
 * has no node here is skipped: passive mentions (namespaces and additional_tools that a client merely
 * declares) have none, so they cannot count. For intent.c alone.
 */
#ifndef WORKER_INTENT_PLACES_H
#define WORKER_INTENT_PLACES_H

#include "base/json_scan.h"

enum place {
    PLACE_SILENT = 1,
    PLACE_MODEL,
    PLACE_STREAM,
    PLACE_BACKGROUND,
    PLACE_TOOL_TYPE,
    PLACE_MODALITY,
    PLACE_CHOICE,
    PLACE_CHOICE_TOOL, /* tool_choice.tool: the choice again, one level down */
    PLACE_CHOICE_TYPE,
    PLACE_CHOICE_NAME,
    PLACE_CHOICE_NAMESPACE,
    PLACE_FUNCTION_NAME,
    PLACE_ALLOWED,
    PLACE_ALLOWED_TYPE,
    PLACE_ALLOWED_NAME,
    PLACE_TOOL,       /* an entry of tools[]: begins and ends */
    PLACE_INPUT_ITEM, /* an entry of input[]: begins and ends */
    PLACE_INPUT_TYPE,
    PLACE_INPUT_ID,
    PLACE_PIN_ITEM, /* strings that pin, by their rank */
    PLACE_PIN_TOOL,
    PLACE_PIN_FILE,
    PLACE_PIN_CONVERSATION,
    PLACE_PIN_RESPONSE,
    PLACE_BODY,       /* the body itself */
    PLACE_MAX_OUTPUT, /* a bound for the answer's tokens */
    PLACE_CHOICES,    /* how many choices or pictures the answer has */
    PLACE_SECONDS,    /* how long what is made lasts */
    PLACE_STREAM_OPTIONS,
    PLACE_INCLUDE_USAGE,
};

#define LEAF(place) (&(const struct json_node){.id = (place)})
#define NODE(place, list)                                                                          \
    {                                                                                              \
        .id = (place), .edges = (list), .edge_count = LENGTH(list)                                 \
    }

/* ---- what pins the call (H11) ---------------------------------------------------------------- */

static const struct json_edge id_of_item_edges[] = {JSON_EDGE("id", LEAF(PLACE_PIN_ITEM))};
static const struct json_node id_of_item_node = NODE(PLACE_SILENT, id_of_item_edges);

/* Messages, their parts and what these hold, however deep: a file_id anywhere in them. */
static const struct json_node refers_node;
#define REFERS_EDGES                                                                               \
    JSON_EDGE("content", &refers_node), JSON_EDGE("file_id", LEAF(PLACE_PIN_FILE)),                \
        JSON_EDGE("file", &refers_node), JSON_EDGE("source", &refers_node),                        \
        JSON_EDGE("output", &refers_node), JSON_EDGE("attachments", &refers_node),                 \
        JSON_EDGE("audio", &id_of_item_node)
static const struct json_edge refers_edges[] = {REFERS_EDGES};
static const struct json_node refers_node = {.id = PLACE_SILENT,
                                             .element = &refers_node,
                                             .edges = refers_edges,
                                             .edge_count = LENGTH(refers_edges)};

static const struct json_edge input_item_edges[] = {
    REFERS_EDGES,
    JSON_EDGE("type", LEAF(PLACE_INPUT_TYPE)),
    JSON_EDGE("id", LEAF(PLACE_INPUT_ID)),
};
static const struct json_node input_item_node = NODE(PLACE_INPUT_ITEM, input_item_edges);
static const struct json_node input_node = {.id = PLACE_SILENT, .element = &input_item_node};

static const struct json_node file_ids_node = {.id = PLACE_SILENT, .element = LEAF(PLACE_PIN_FILE)};
static const struct json_node store_ids_node = {.id = PLACE_SILENT,
                                                .element = LEAF(PLACE_PIN_TOOL)};
static const struct json_edge container_edges[] = {
    JSON_EDGE("id", LEAF(PLACE_PIN_TOOL)),
    JSON_EDGE("container_id", LEAF(PLACE_PIN_TOOL)),
    JSON_EDGE("file_ids", &file_ids_node),
};
/* Its id, or an object with it. */
static const struct json_node container_node = NODE(PLACE_PIN_TOOL, container_edges);
static const struct json_edge conversation_edges[] = {
    JSON_EDGE("id", LEAF(PLACE_PIN_CONVERSATION)),
};
static const struct json_node conversation_node = NODE(PLACE_PIN_CONVERSATION, conversation_edges);

/* ---- tools, modalities, tool_choice ---------------------------------------------------------- */

static const struct json_edge tool_edges[] = {
    JSON_EDGE("type", LEAF(PLACE_TOOL_TYPE)),    JSON_EDGE("container", &container_node),
    JSON_EDGE("environment", &container_node),   JSON_EDGE("vector_store_ids", &store_ids_node),
    JSON_EDGE("input_image_mask", &refers_node),
};
static const struct json_node tool_node = NODE(PLACE_TOOL, tool_edges);
static const struct json_node tools_node = {.id = PLACE_SILENT, .element = &tool_node};

static const struct json_node modalities_node = {.id = PLACE_MODALITY,
                                                 .element = LEAF(PLACE_MODALITY)};
static const struct json_edge generation_edges[] = {
    JSON_EDGE("maxOutputTokens", LEAF(PLACE_MAX_OUTPUT)),
    JSON_EDGE("max_output_tokens", LEAF(PLACE_MAX_OUTPUT)),
    JSON_EDGE("candidateCount", LEAF(PLACE_CHOICES)),
    JSON_EDGE("responseModalities", &modalities_node),
    JSON_EDGE("response_modalities", &modalities_node),
};
static const struct json_node generation_node = NODE(PLACE_SILENT, generation_edges);

static const struct json_edge function_edges[] = {
    JSON_EDGE("name", LEAF(PLACE_FUNCTION_NAME)),
    JSON_EDGE("namespace", LEAF(PLACE_CHOICE_NAMESPACE)),
};
static const struct json_node function_node = NODE(PLACE_SILENT, function_edges);

static const struct json_edge allowed_function_edges[] = {
    JSON_EDGE("name", LEAF(PLACE_ALLOWED_NAME)),
};
static const struct json_node allowed_function_node = NODE(PLACE_SILENT, allowed_function_edges);
static const struct json_edge allowed_entry_edges[] = {
    JSON_EDGE("type", LEAF(PLACE_ALLOWED_TYPE)),
    JSON_EDGE("name", LEAF(PLACE_ALLOWED_NAME)),
    JSON_EDGE("namespace", LEAF(PLACE_ALLOWED_NAME)),
    JSON_EDGE("function", &allowed_function_node),
};
static const struct json_node allowed_entry_node = NODE(PLACE_SILENT, allowed_entry_edges);
static const struct json_node allowed_list_node = {.id = PLACE_ALLOWED,
                                                   .element = &allowed_entry_node};
static const struct json_edge allowed_edges[] = {JSON_EDGE("tools", &allowed_list_node)};
static const struct json_node allowed_node = NODE(PLACE_ALLOWED, allowed_edges);

static const struct json_node choice_tool_node;
static const struct json_edge choice_edges[] = {
    JSON_EDGE("type", LEAF(PLACE_CHOICE_TYPE)),
    JSON_EDGE("name", LEAF(PLACE_CHOICE_NAME)),
    JSON_EDGE("namespace", LEAF(PLACE_CHOICE_NAMESPACE)),
    JSON_EDGE("function", &function_node),
    JSON_EDGE("tool", &choice_tool_node),
    JSON_EDGE("tools", &allowed_list_node),
    JSON_EDGE("allowed_tools", &allowed_node),
};
static const struct json_node choice_tool_node = NODE(PLACE_CHOICE_TOOL, choice_edges);
static const struct json_node choice_node = NODE(PLACE_CHOICE, choice_edges);

/* ---- what the answer is to be like ----------------------------------------------------------- */

static const struct json_edge stream_options_edges[] = {
    JSON_EDGE("include_usage", LEAF(PLACE_INCLUDE_USAGE)),
};
static const struct json_node stream_options_node =
    NODE(PLACE_STREAM_OPTIONS, stream_options_edges);
/* DashScope's own API; Gemini's :predict. */
static const struct json_edge parameters_edges[] = {
    JSON_EDGE("max_tokens", LEAF(PLACE_MAX_OUTPUT)),
    JSON_EDGE("n", LEAF(PLACE_CHOICES)),
    JSON_EDGE("duration", LEAF(PLACE_SECONDS)),
    JSON_EDGE("sampleCount", LEAF(PLACE_CHOICES)),
    JSON_EDGE("durationSeconds", LEAF(PLACE_SECONDS)),
};
static const struct json_node parameters_node = NODE(PLACE_SILENT, parameters_edges);

/* ---- the top --------------------------------------------------------------------------------- */

static const struct json_edge body_edges[] = {
    JSON_EDGE("model", LEAF(PLACE_MODEL)),
    JSON_EDGE("stream", LEAF(PLACE_STREAM)),
    JSON_EDGE("stream_options", &stream_options_node),
    JSON_EDGE("max_tokens", LEAF(PLACE_MAX_OUTPUT)),
    JSON_EDGE("max_completion_tokens", LEAF(PLACE_MAX_OUTPUT)),
    JSON_EDGE("max_output_tokens", LEAF(PLACE_MAX_OUTPUT)),
    JSON_EDGE("n", LEAF(PLACE_CHOICES)),
    JSON_EDGE("seconds", LEAF(PLACE_SECONDS)),
    JSON_EDGE("duration", LEAF(PLACE_SECONDS)),
    JSON_EDGE("parameters", &parameters_node),
    JSON_EDGE("background", LEAF(PLACE_BACKGROUND)),
    JSON_EDGE("tools", &tools_node),
    JSON_EDGE("tool_choice", &choice_node),
    JSON_EDGE("modalities", &modalities_node),
    JSON_EDGE("generationConfig", &generation_node),
    JSON_EDGE("generation_config", &generation_node),
    JSON_EDGE("messages", &refers_node),
    JSON_EDGE("input", &input_node),
    JSON_EDGE("previous_response_id", LEAF(PLACE_PIN_RESPONSE)),
    JSON_EDGE("conversation", &conversation_node),
    JSON_EDGE("image", &refers_node),
    JSON_EDGE("images", &refers_node),
    JSON_EDGE("mask", &refers_node),
    JSON_EDGE("file_id", LEAF(PLACE_PIN_FILE)),
    JSON_EDGE("file_ids", &file_ids_node),
    JSON_EDGE("input_file_id", LEAF(PLACE_PIN_FILE)),
    JSON_EDGE("training_file", LEAF(PLACE_PIN_FILE)),
    JSON_EDGE("validation_file", LEAF(PLACE_PIN_FILE)),
    JSON_EDGE("cachedContent", LEAF(PLACE_PIN_FILE)),
    JSON_EDGE("container", &container_node),
    JSON_EDGE("vector_store_ids", &store_ids_node),
    JSON_EDGE("assistant_id", LEAF(PLACE_PIN_TOOL)),
};
static const struct json_node body_node = NODE(PLACE_BODY, body_edges);

#endif
