/* answer_text.c - chat and legacy completions, embeddings, Anthropic messages, models, echo. */
#include "tests/tools/upstream/answers.h"
#include "tests/tools/upstream/request.h"

#include <ctype.h>
#include <string.h>

static void model_name(const struct call *call, struct body *body)
{
    sim_body_json(body, call->model[0] ? call->model : "simulated");
}

static void chat_usage(const struct call *call, struct body *body)
{
    unsigned long long in = sim_answer_tokens_in(call);
    unsigned long long out = sim_answer_tokens_out(call, sim_answer_events(call));

    sim_body_printf(body,
                    "{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu", in,
                    out, in + out);
    if (call->image)
        sim_body_printf(body, ",\"completion_tokens_details\":{\"image_tokens\":%llu}",
                        (unsigned long long)call->n * 1056);
    sim_body_text(body, "}");
}

static void chat_images(const struct call *call, struct body *body)
{
    sim_body_text(body, "\"images\":[");
    for (uint64_t i = 0; i < call->n; i++) {
        sim_body_text(body, i ? "," : "");
        sim_body_text(body,
                      "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,");
        sim_answer_picture(call, body, i, false);
        sim_body_text(body, "\"}}");
    }
    sim_body_text(body, "]");
}

/* One chunk up to its choices; chat and legacy completions differ in the object's name only. */
static void chunk_open(const struct call *call, struct body *body, const char *object)
{
    sim_answer_event(body, NULL);
    sim_body_printf(body,
                    "{\"id\":\"chatcmpl-sim%llu\",\"object\":\"%s\",\"created\":%lld,\"model\":",
                    (unsigned long long)sim_answer_seed(call), object, sim_answer_created(call));
    model_name(call, body);
}

static const char *finish_reason(const struct call *call, bool chat)
{
    if (chat && sim_answer_calls_tool(call))
        return "tool_calls";
    return call->behaviour.incomplete ? "length" : "stop";
}

/* The last events: the finish, the usage when asked for, [DONE]. */
static bool chunk_finish(const struct call *call, struct body *body, const char *object)
{
    bool chat = strcmp(object, "text_completion") != 0;

    chunk_open(call, body, object);
    sim_body_printf(body, ",\"choices\":[{\"index\":0,%s,\"finish_reason\":\"%s\"}]}\n\n",
                    chat ? "\"delta\":{}" : "\"text\":\"\"", finish_reason(call, chat));
    if ((call->include_usage && call->behaviour.usage) || call->behaviour.usage == 2) {
        chunk_open(call, body, object);
        sim_body_text(body, ",\"choices\":[],\"usage\":");
        chat_usage(call, body);
        sim_body_text(body, "}\n\n");
    }
    if (call->behaviour.done != 0)
        sim_body_text(body, "data: [DONE]\n\n");
    return false;
}

static bool chat_stream(const struct call *call, struct body *body)
{
    static const char object[] = "chat.completion.chunk";
    bool tool = sim_answer_calls_tool(call);
    uint64_t content = tool ? 1 + TOOL_PIECES : sim_answer_events(call) + (call->image ? 1 : 0);

    if (call->step > content)
        return chunk_finish(call, body, object);
    chunk_open(call, body, object);
    sim_body_text(body, ",\"choices\":[{\"index\":0,\"delta\":{");
    if (call->step == 0) {
        sim_body_text(body, "\"role\":\"assistant\",\"content\":\"\"");
    } else if (tool) {
        sim_answer_tool_delta(call, body);
    } else if (call->image && call->step == content) {
        chat_images(call, body);
    } else {
        sim_body_text(body, "\"content\":\"");
        sim_answer_words(call, body);
        sim_body_text(body, "\"");
    }
    sim_body_text(body, "},\"finish_reason\":null}]}\n\n");
    return true;
}

static void object_open(const struct call *call, struct body *body, const char *object)
{
    sim_body_printf(body,
                    "{\"id\":\"chatcmpl-sim%llu\",\"object\":\"%s\",\"created\":%lld,\"model\":",
                    (unsigned long long)sim_answer_seed(call), object, sim_answer_created(call));
    model_name(call, body);
}

static void object_close(const struct call *call, struct body *body, bool chat)
{
    sim_body_printf(body, ",\"finish_reason\":\"%s\"}]", finish_reason(call, chat));
    if (call->behaviour.usage) {
        sim_body_text(body, ",\"usage\":");
        chat_usage(call, body);
    }
    sim_body_text(body, "}");
}

bool sim_answer_chat(struct call *call, struct body *body)
{
    if (call->sse)
        return chat_stream(call, body);
    object_open(call, body, "chat.completion");
    sim_body_text(body, ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",");
    if (call->image) {
        chat_images(call, body);
        sim_body_text(body, ",\"content\":\"\"");
    } else if (sim_answer_calls_tool(call)) {
        sim_answer_tool_message(call, body);
    } else {
        sim_body_text(body, "\"content\":\"");
        sim_answer_words(call, body);
        sim_body_text(body, "\"");
    }
    sim_body_text(body, "}");
    object_close(call, body, true);
    return false;
}

bool sim_answer_completion(struct call *call, struct body *body)
{
    static const char object[] = "text_completion";

    if (call->sse && call->step >= sim_answer_events(call))
        return chunk_finish(call, body, object);
    if (call->sse)
        chunk_open(call, body, object);
    else
        object_open(call, body, object);
    sim_body_text(body, ",\"choices\":[{\"index\":0,\"text\":\"");
    sim_answer_words(call, body);
    sim_body_text(body, "\"");
    if (call->sse)
        sim_body_text(body, ",\"finish_reason\":null}]}\n\n");
    else
        object_close(call, body, false);
    return call->sse;
}

bool sim_answer_embeddings(struct call *call, struct body *body)
{
    sim_body_text(body, "{\"object\":\"list\",\"data\":[");
    for (uint64_t i = 0; i < call->n; i++)
        sim_body_printf(
            body, "%s{\"object\":\"embedding\",\"index\":%llu,\"embedding\":[0.5,-0.25,0.125]}",
            i ? "," : "", (unsigned long long)i);
    sim_body_text(body, "],\"model\":");
    model_name(call, body);
    sim_body_printf(body, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}",
                    sim_answer_tokens_in(call), sim_answer_tokens_in(call));
    return false;
}

static bool messages_stream(const struct call *call, struct body *body)
{
    uint64_t events = sim_answer_events(call);

    if (call->step == 0) {
        sim_answer_event(body, "message_start");
        sim_body_printf(
            body,
            "{\"type\":\"message_start\",\"message\":{\"id\":\"msg_sim%llu\",\"type\":\"message\","
            "\"role\":\"assistant\",\"content\":[],\"model\":",
            (unsigned long long)sim_answer_seed(call));
        model_name(call, body);
        sim_body_printf(body, ",\"usage\":{\"input_tokens\":%llu,\"output_tokens\":1}}}\n\n",
                        sim_answer_tokens_in(call));
        sim_answer_event(body, "content_block_start");
        sim_body_text(
            body,
            "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\","
            "\"text\":\"\"}}\n\n");
        return true;
    }
    if (call->step <= events) {
        sim_answer_event(body, "content_block_delta");
        sim_body_text(
            body,
            "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\","
            "\"text\":\"");
        sim_answer_words(call, body);
        sim_body_text(body, "\"}}\n\n");
        return true;
    }
    sim_answer_event(body, "content_block_stop");
    sim_body_text(body, "{\"type\":\"content_block_stop\",\"index\":0}\n\n");
    sim_answer_event(body, "message_delta");
    sim_body_printf(body,
                    "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},"
                    "\"usage\":{\"output_tokens\":%llu}}\n\n",
                    sim_answer_tokens_out(call, events));
    sim_answer_event(body, "message_stop");
    sim_body_text(body, "{\"type\":\"message_stop\"}\n\n");
    return false;
}

bool sim_answer_messages(struct call *call, struct body *body)
{
    if (call->sse)
        return messages_stream(call, body);
    sim_body_printf(
        body, "{\"id\":\"msg_sim%llu\",\"type\":\"message\",\"role\":\"assistant\",\"model\":",
        (unsigned long long)sim_answer_seed(call));
    model_name(call, body);
    sim_body_text(body, ",\"content\":[{\"type\":\"text\",\"text\":\"");
    sim_answer_words(call, body);
    sim_body_printf(body,
                    "\"}],\"stop_reason\":\"end_turn\",\"usage\":{\"input_tokens\":%llu,"
                    "\"output_tokens\":%llu}}",
                    sim_answer_tokens_in(call), sim_answer_tokens_out(call, 8));
    return false;
}

bool sim_answer_models(struct call *call, struct body *body)
{
    static const char *const names[] = {"gpt-image-2", "gpt-image-1.5", "gpt-4o-mini",
                                        "text-embedding-3-small", "simulated"};

    (void)call;
    sim_body_text(body, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < LENGTH(names); i++)
        sim_body_printf(body,
                        "%s{\"id\":\"%s\",\"object\":\"model\",\"created\":1700000000,"
                        "\"owned_by\":\"simulated\"}",
                        i ? "," : "", names[i]);
    sim_body_text(body, "]}");
    return false;
}

/* One "name":"value" of the echo from one header line. */
static void echo_header(struct body *body, char *line, bool *first)
{
    char *colon = strchr(line, ':');

    if (!colon || line[0] == '\0')
        return;
    *colon = '\0';
    for (char *c = line; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    for (colon++; *colon == ' ';)
        colon++;
    colon[strcspn(colon, "\r")] = '\0';
    sim_body_text(body, *first ? "" : ",");
    *first = false;
    sim_body_json(body, line);
    sim_body_text(body, ":");
    sim_body_json(body, colon);
}

bool sim_answer_echo(struct call *call, struct body *body)
{
    bool first = true;
    struct text lines;
    char *rest = NULL;

    text_init(&lines, HEAD_MAX);
    text_append(&lines, call->head.bytes, call->head.length);
    sim_body_text(body, "{\"method\":");
    sim_body_json(body, call->method);
    sim_body_text(body, ",\"path\":");
    sim_body_json(body, call->path);
    sim_body_text(body, ",\"query\":");
    sim_body_json(body, call->query);
    sim_body_text(body, ",\"headers\":{");
    if (lines.bytes && strtok_r(lines.bytes, "\n", &rest))
        for (char *line; (line = strtok_r(NULL, "\n", &rest)) != NULL;)
            echo_header(body, line, &first);
    sim_body_printf(body, "},\"body_bytes\":%llu,\"sha256\":\"%s\",\"chunked\":%s}",
                    (unsigned long long)call->received, call->sha_hex,
                    call->chunked ? "true" : "false");
    text_release(&lines);
    return false;
}
