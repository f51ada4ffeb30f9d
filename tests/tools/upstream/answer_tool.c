/* answer_tool.c - chat completions that call a tool: tool=NAME in X-Mock; see answers.h. */
#include "tests/tools/upstream/answers.h"
#include "tests/tools/upstream/request.h"

/* The arguments come in two pieces, each inside a JSON string. */
static const char *const argument_pieces[] = {"{\\\"place\\\":", "\\\"weir\\\"}"};

bool sim_answer_calls_tool(const struct call *call)
{
    /* The caller comes back with the result: then there is something to say. */
    return call->behaviour.tool[0] && !call->image &&
           !sim_request_mentions(call, "\"role\":\"tool\"") &&
           !sim_request_mentions(call, "\"function_call_output\"");
}

void sim_answer_tool_arguments(struct body *body)
{
    for (size_t i = 0; i < TOOL_PIECES; i++)
        sim_body_text(body, argument_pieces[i]);
}

void sim_answer_tool_piece(struct body *body, uint64_t piece)
{
    sim_body_text(body, argument_pieces[piece % TOOL_PIECES]);
}

static void tool_call(const struct call *call, struct body *body)
{
    sim_body_printf(body, "\"id\":\"call_sim%llu\",\"type\":\"function\",\"function\":{\"name\":",
                    (unsigned long long)sim_answer_seed(call));
    sim_body_json(body, call->behaviour.tool);
    sim_body_text(body, ",\"arguments\":\"");
}

void sim_answer_tool_message(const struct call *call, struct body *body)
{
    sim_body_text(body, "\"content\":null,\"tool_calls\":[{");
    tool_call(call, body);
    sim_answer_tool_arguments(body);
    sim_body_text(body, "\"}}]");
}

void sim_answer_tool_delta(const struct call *call, struct body *body)
{
    sim_body_text(body, "\"tool_calls\":[{\"index\":0,");
    if (call->step == 1)
        tool_call(call, body);
    else {
        sim_body_text(body, "\"function\":{\"arguments\":\"");
        sim_answer_tool_piece(body, call->step - 2);
    }
    sim_body_text(body, "\"}}]");
}
