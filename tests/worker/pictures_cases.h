/*
 * pictures_cases.h - answers of all families and what they deliver, for test_pictures.c, which says
 * how the facts are written.
 */
#ifndef TESTS_WORKER_PICTURES_CASES_H
#define TESTS_WORKER_PICTURES_CASES_H

#include "worker/endpoint.h"

#define JSON "application/json; charset=utf-8"
#define SSE "text/event-stream"
#define EVENT(name, data) "event: " name "\ndata: " data "\n\n"
#define DATA(data) "data: " data "\n\n"
#define TYPED(type, rest) EVENT(type, "{\"type\":\"" type "\"" rest "}")
#define CALL(id, result)                                                                           \
    "{\"id\":\"" id "\",\"type\":\"image_generation_call\",\"status\":\"completed\","              \
    "\"size\":\"1024x1536\",\"quality\":\"high\",\"output_format\":\"png\",\"result\":\"" result   \
    "\"}"
#define BARE_CALL(result) "{\"type\":\"image_generation_call\",\"result\":\"" result "\"}"
#define PART(mime, data) "{\"inlineData\":{\"mimeType\":\"" mime "\",\"data\":\"" data "\"}}"
#define PARTS(list) "{\"candidates\":[{\"content\":{\"parts\":[" list "]}}]}"
#define CHUNK(delta)                                                                               \
    DATA("{\"id\":\"c1\",\"model\":\"gpt-4o\",\"choices\":[{\"delta\":" delta "}]}")

static const struct {
    const char *name;
    enum endpoint endpoint;
    const char *type, *body, *facts;
} cases[] = {
    /* ---- images, one document */
    {"one picture", ENDPOINT_IMAGES, JSON,
     "{\"created\":1,\"data\":[{\"b64_json\":\"AAAA\"}],\"size\":\"1024x1024\",\"quality\":\"low\","
     "\"output_format\":\"webp\",\"usage\":{\"input_tokens\":10,\"output_tokens\":20,"
     "\"input_tokens_details\":{\"text_tokens\":7,\"image_tokens\":3},"
     "\"output_tokens_details\":{\"image_tokens\":20},\"total_tokens\":30}}",
     "1 in=10 out=20 ii=3 io=20 s=1024x1024 q=low f=webp C T"},
    {"urls", ENDPOINT_IMAGES, JSON, "{\"data\":[{\"url\":\"http://a\"},{\"url\":\"http://b\"}]}",
     "2 C T"},
    {"identical entries are separate pictures", ENDPOINT_IMAGES, JSON,
     "{\"data\":[{\"b64_json\":\"AAAA\"},{\"b64_json\":\"AAAA\"},{\"b64_json\":\"AAAA\"}]}",
     "3 C T"},
    {"both spellings in one entry", ENDPOINT_IMAGES, JSON,
     "{\"data\":[{\"url\":\"http://a\",\"b64_json\":\"AAAA\"}]}", "1 C T"},
    {"empty and null are no pictures", ENDPOINT_IMAGES, JSON,
     "{\"data\":[{\"b64_json\":\"\"},{\"b64_json\":null,\"url\":null},{\"revised_prompt\":\"x\"},5]"
     "}",
     "0 C T"},
    {"no data", ENDPOINT_IMAGES, JSON, "{\"data\":[]}", "0 C T"},
    {"an error", ENDPOINT_IMAGES, JSON,
     "{\"error\":{\"message\":\"no\",\"type\":\"x\",\"param\":null,\"code\":null}}", "0 E T"},
    {"a cut document delivered nothing", ENDPOINT_IMAGES, JSON,
     "{\"data\":[{\"b64_json\":\"AAAA\"}],\"usage\":{\"input_to", "0"},
    {"no JSON", ENDPOINT_IMAGES, JSON, "<html>{\"data\":[{\"url\":\"x\"}]}</html>", "0"},
    {"another type", ENDPOINT_IMAGES, "image/png", "{\"data\":[{\"url\":\"x\"}]}", "0"},
    {"problem+json", ENDPOINT_IMAGES, "application/problem+json", "{\"error\":\"x\"}", "0 E T"},
    {"urls of others are no pictures", ENDPOINT_OTHER, JSON, "{\"data\":[{\"url\":\"http://a\"}]}",
     "0 C T"},
    {"a transcript's seconds", ENDPOINT_OTHER, JSON,
     "{\"text\":\"hello\",\"usage\":{\"type\":\"duration\",\"seconds\":9}}", "0 sec=9 C T"},
    {"a verbose one's", ENDPOINT_OTHER, JSON,
     "{\"task\":\"transcribe\",\"duration\":8.470000267028809,\"text\":\"hello\"}", "0 sec=9 C T"},
    {"in a string", ENDPOINT_OTHER, JSON, "{\"usage\":{\"duration\":\"5\"}}", "0 sec=5 C T"},
    {"no number of seconds", ENDPOINT_OTHER, JSON, "{\"duration\":\"short\",\"usage\":null}",
     "0 C T"},
    {"embeddings", ENDPOINT_EMBEDDINGS, JSON,
     "{\"data\":[{\"embedding\":[0.1,-2e-3]}],\"model\":\"e\",\"usage\":{\"prompt_tokens\":5,"
     "\"total_tokens\":5}}",
     "0 m=e in=5 C T"},
    {"text in data is no picture (#3196)", ENDPOINT_RESPONSES, JSON,
     "{\"data\":[{\"text\":\"x\"}],\"output\":[{\"type\":\"message\",\"content\":[{\"text\":\"hi\"}"
     "]}]}",
     "0 C T"},
    /* ---- images, stream */
    {"partials never count", ENDPOINT_IMAGES, SSE,
     TYPED("image_generation.partial_image",
           ",\"b64_json\":\"AAA1\",\"partial_image_index\":0,\"size\":\"9x9\"")
         TYPED("image_generation.partial_image", ",\"b64_json\":\"AAA2\""),
     "0 C"},
    {"a completed one does", ENDPOINT_IMAGES, SSE,
     TYPED("image_generation.partial_image", ",\"b64_json\":\"AAAA\"")
         TYPED("image_generation.completed",
               ",\"b64_json\":\"AAAA\",\"size\":\"1024x1024\",\"usage\":{\"input_tokens\":1,"
               "\"output_tokens\":2,\"output_tokens_details\":{\"image_tokens\":2}}"),
     "1 in=1 out=2 io=2 s=1024x1024 C T"},
    {"edits count as well", ENDPOINT_IMAGES, SSE,
     TYPED("image_edit.partial_image", ",\"b64_json\":\"A\"")
         TYPED("image_edit.completed", ",\"b64_json\":\"B\"") DATA("[DONE]"),
     "1 C T"},
    {"n of them", ENDPOINT_IMAGES, SSE,
     TYPED("image_generation.completed", ",\"b64_json\":\"A\"")
         TYPED("image_generation.completed", ",\"b64_json\":\"B\""),
     "2 C T"},
    {"the same one twice is one", ENDPOINT_IMAGES, SSE,
     TYPED("image_generation.completed", ",\"b64_json\":\"A\"")
         TYPED("image_generation.completed", ",\"b64_json\":\"A\""),
     "1 C T"},
    {"the type only in the event's name", ENDPOINT_IMAGES, SSE,
     EVENT("image_generation.completed", "{\"b64_json\":\"A\"}"), "1 C T"},
    {"a partial only by the event's name", ENDPOINT_IMAGES, SSE,
     EVENT("image_generation.partial_image", "{\"b64_json\":\"A\"}"), "0 C"},
    {"the type last", ENDPOINT_IMAGES, SSE,
     DATA("{\"b64_json\":\"A\",\"type\":\"image_edit.completed\"}"), "1 C T"},
    {"cut within the last event", ENDPOINT_IMAGES, SSE,
     "event: image_generation.completed\ndata: "
     "{\"type\":\"image_generation.completed\",\"b64_json\":\"A\"}\n",
     "0"},
    {"an event of broken JSON", ENDPOINT_IMAGES, SSE,
     DATA("{\"type\":\"image_generation.completed\",\"b64_json\":\"A\"") DATA("{\"x\":1}"), "0"},
    {"cumulative data: the most, not the sum", ENDPOINT_IMAGES, SSE,
     DATA("{\"data\":[{\"url\":\"a\"}]}") DATA("{\"data\":[{\"url\":\"a\"},{\"url\":\"b\"}]}")
         DATA("[DONE]"),
     "2 C T"},
    {"an error event", ENDPOINT_IMAGES, SSE,
     EVENT("error", "{\"type\":\"error\",\"error\":{\"message\":\"x\"}}"), "0 E T"},
    {"stream asked, document answered (T45)", ENDPOINT_IMAGES, JSON,
     "{\"data\":[{\"b64_json\":\"A\"}]}", "1 C T"},
    /* ---- responses */
    {"response", ENDPOINT_RESPONSES, JSON,
     "{\"id\":\"resp_1\",\"object\":\"response\",\"status\":\"completed\",\"error\":null,\"model\":"
     "\"gpt-5\","
     "\"tools\":[{\"type\":\"image_generation\",\"size\":\"auto\"}],"
     "\"output\":[{\"type\":\"reasoning\",\"id\":\"rs\"}," CALL("ig_1", "AAAA") "," CALL(
         "ig_2",
         "AAAA") "],"
                 "\"usage\":{\"input_tokens\":5,\"input_tokens_details\":{\"cached_tokens\":2},"
                 "\"output_tokens\":6,"
                 "\"output_tokens_details\":{\"reasoning_tokens\":4}},"
                 "\"tool_usage\":{\"image_gen\":{\"input_tokens\":70,\"output_tokens\":80}}}",
     "2 m=gpt-5 id=resp_1 st=completed in=5 out=6 ca=2 re=4 ii=70 io=80 s=1024x1536 q=high f=png C "
     "T"},
    {"tool usage beats details in either order (T94)", ENDPOINT_RESPONSES, JSON,
     "{\"tool_usage\":{\"image_gen\":{\"input_tokens\":70,\"output_tokens\":80}},\"usage\":{"
     "\"output_tokens_details\":{\"image_tokens\":1},\"input_tokens_details\":{\"image_tokens\":1}}"
     "}",
     "0 ii=70 io=80 C T"},
    {"items without a result", ENDPOINT_RESPONSES, JSON,
     "{\"output\":[{\"type\":\"image_generation_call\",\"status\":\"failed\",\"result\":null},{"
     "\"type\":\"image_generation_call\",\"result\":\"\"},"
     "{\"type\":\"code_interpreter_call\",\"result\":\"AAAA\"},{\"type\":\"message\",\"url\":\"x\"}"
     "]}",
     "0 C T"},
    {"call_id where there is no id", ENDPOINT_RESPONSES, JSON,
     "{\"output\":[{\"type\":\"image_generation_call\",\"call_id\":\"a\",\"result\":\"X\"},{"
     "\"type\":\"image_generation_call\",\"call_id\":\"b\",\"result\":\"X\"}]}",
     "2 C T"},
    {"no id: by the bytes", ENDPOINT_RESPONSES, JSON,
     "{\"output\":[" BARE_CALL("X") "," BARE_CALL("X") "," BARE_CALL("Y") "]}", "2 C T"},
    {"background accepted", ENDPOINT_RESPONSES, JSON,
     "{\"id\":\"resp_2\",\"status\":\"queued\",\"error\":null,\"output\":[]}",
     "0 id=resp_2 st=queued C T"},
    {"a failed response", ENDPOINT_RESPONSES, JSON,
     "{\"id\":\"r\",\"status\":\"failed\",\"error\":{\"code\":\"x\"}}", "0 id=r st=failed E T"},
    {"a poll tells id and status", ENDPOINT_OTHER, JSON,
     "{\"id\":\"resp_2\",\"status\":\"in_progress\"}", "0 id=resp_2 st=in_progress C T"},
    {"a poll of a finished one", ENDPOINT_OTHER, JSON,
     "{\"id\":\"resp_2\",\"status\":\"completed\",\"output\":[" CALL("ig_1", "A") "]}",
     "1 id=resp_2 st=completed s=1024x1536 q=high f=png C T"},
    {"stream: created is no content", ENDPOINT_RESPONSES, SSE,
     TYPED("response.created", ",\"response\":{\"id\":\"r\",\"status\":\"in_progress\",\"model\":"
                               "\"gpt-5\",\"output\":[],\"usage\":null,\"error\":null}")
         TYPED("response.in_progress", "")
             TYPED("response.output_item.added",
                   ",\"item\":{\"type\":\"image_generation_call\",\"id\":\"ig\",\"result\":null}")
                 TYPED("response.image_generation_call.in_progress", "")
                     TYPED("response.image_generation_call.generating", "") ": ping\n\n",
     "0 m=gpt-5 id=r st=in_progress"},
    {"stream: item done and completed are one picture", ENDPOINT_RESPONSES, SSE,
     TYPED("response.image_generation_call.partial_image",
           ",\"partial_image_b64\":\"P\",\"size\":\"1x1\"")
         TYPED("response.output_item.done", ",\"item\":" CALL("ig_1", "AAAA"))
             TYPED("response.completed",
                   ",\"response\":{\"id\":\"r\",\"status\":\"completed\",\"output\":[" CALL(
                       "ig_1", "AAAA") "],\"usage\":{\"input_tokens\":1,\"output_tokens\":2},"
                                       "\"tool_usage\":{\"image_gen\":{\"output_tokens\":9}}}"),
     "1 id=r st=completed in=1 out=2 io=9 s=1024x1536 q=high f=png C T"},
    {"stream: the id missing the second time", ENDPOINT_RESPONSES, SSE,
     TYPED("response.output_item.done", ",\"item\":" CALL("ig_1", "AAAA"))
         TYPED("response.completed", ",\"response\":{\"output\":[" BARE_CALL("AAAA") "]}"),
     "1 s=1024x1536 q=high f=png C T"},
    {"stream: a result in output_item.added is not final", ENDPOINT_RESPONSES, SSE,
     TYPED("response.output_item.added", ",\"item\":" CALL("ig", "A")), "0"},
    {"stream: a revised prompt that says partial_image", ENDPOINT_RESPONSES, SSE,
     TYPED("response.output_item.done",
           ",\"item\":{\"type\":\"image_generation_call\",\"revised_prompt\":\"partial_image\","
           "\"id\":\"i\",\"result\":\"A\"}"),
     "1 C"},
    {"stream: incomplete is an end (T47)", ENDPOINT_RESPONSES, SSE,
     TYPED("response.incomplete", ",\"response\":{\"status\":\"incomplete\"}"),
     "0 st=incomplete C T"},
    {"stream: failed", ENDPOINT_RESPONSES, SSE,
     TYPED("response.failed", ",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"x\"}}"),
     "0 st=failed E T"},
    {"stream: error", ENDPOINT_RESPONSES, SSE, TYPED("error", ",\"code\":\"x\",\"message\":\"y\""),
     "0 E T"},
    {"stream: text", ENDPOINT_RESPONSES, SSE,
     TYPED("response.output_text.delta", ",\"delta\":\"h\""), "0 C"},
    {"stream: reasoning", ENDPOINT_RESPONSES, SSE,
     TYPED("response.reasoning_summary_text.delta", ",\"delta\":\"h\""), "0 C"},
    {"stream: tool call", ENDPOINT_RESPONSES, SSE,
     TYPED("response.function_call_arguments.done", ",\"arguments\":\"{}\""), "0 C"},
    {"I7 what only accompanies is no content", ENDPOINT_RESPONSES, SSE,
     TYPED("response.queued", ",\"response\":{\"id\":\"r\",\"status\":\"queued\"}")
         TYPED("response.created", "") TYPED("response.output_item.added", ",\"item\":{}") TYPED(
             "response.content_part.added", ",\"part\":{\"type\":\"output_text\",\"text\":\"\"}")
             TYPED("response.web_search_call.searching", "") TYPED("keepalive", ""),
     "0 id=r st=queued"},
    {"I7 created, then an error", ENDPOINT_RESPONSES, SSE,
     TYPED("response.created", ",\"response\":{\"id\":\"r\",\"error\":null}")
         TYPED("response.failed",
               ",\"response\":{\"id\":\"r\",\"status\":\"failed\",\"usage\":{\"input_tokens\":1},"
               "\"error\":{\"code\":\"insufficient_quota\"}}"),
     "0 id=r st=failed in=1 E T"},
    {"H4 a refusal", ENDPOINT_RESPONSES, SSE, TYPED("response.refusal.delta", ",\"delta\":\"no\""),
     "0 C"},
    {"H4 an older delta's name", ENDPOINT_RESPONSES, SSE,
     TYPED("response.mcp_call.arguments_delta", ",\"delta\":\"{\""), "0 C"},
    {"H4 completed without deltas", ENDPOINT_RESPONSES, SSE,
     TYPED("response.completed", ",\"response\":{\"id\":\"r\",\"status\":\"completed\"}"),
     "0 id=r st=completed C T"},
    {"stream: unknown events say nothing", ENDPOINT_RESPONSES, SSE,
     TYPED("response.keepalive", ",\"data\":[{\"url\":\"x\"}]"), "0"},
    /* ---- chat */
    {"chat", ENDPOINT_CHAT, JSON,
     "{\"id\":\"c1\",\"model\":\"gpt-4o\",\"choices\":[{\"message\":{\"role\":\"assistant\","
     "\"content\":\"hi\"},\"finish_reason\":\"stop\"}],"
     "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"prompt_tokens_details\":{\"cached_"
     "tokens\":1},\"completion_tokens_details\":{\"reasoning_tokens\":2,\"image_tokens\":7}}}",
     "0 m=gpt-4o id=c1 in=3 out=4 ca=1 re=2 io=7 C T"},
    {"chat images", ENDPOINT_CHAT, JSON,
     "{\"choices\":[{\"message\":{\"images\":[{\"type\":\"image_url\",\"image_url\":{\"url\":"
     "\"data:image/png;base64,A\"}},{\"image_url\":{\"url\":\"data:B\"}}]}}]}",
     "2 C T"},
    {"chat stream: images once", ENDPOINT_CHAT, SSE,
     CHUNK("{\"images\":[{\"image_url\":{\"url\":\"data:A\"}}]}")
         CHUNK("{\"images\":[{\"image_url\":{\"url\":\"data:A\"}}]}") DATA("[DONE]"),
     "1 m=gpt-4o id=c1 C T"},
    {"chat stream: the role alone is no content", ENDPOINT_CHAT, SSE,
     CHUNK("{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"finish_reason\":null"),
     "0 m=gpt-4o id=c1"},
    {"chat stream: text", ENDPOINT_CHAT, SSE, CHUNK("{\"content\":\"h\"}"), "0 m=gpt-4o id=c1 C"},
    {"chat stream: reasoning", ENDPOINT_CHAT, SSE, CHUNK("{\"reasoning_content\":\"h\"}"),
     "0 m=gpt-4o id=c1 C"},
    {"chat stream: tool call", ENDPOINT_CHAT, SSE,
     CHUNK("{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\"}}]}"), "0 m=gpt-4o id=c1 C"},
    {"chat stream: refusal", ENDPOINT_CHAT, SSE, CHUNK("{\"refusal\":\"no\"}"),
     "0 m=gpt-4o id=c1 C"},
    {"chat stream: a finish is content, the end is [DONE]", ENDPOINT_CHAT, SSE,
     DATA("{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}"), "0 C"},
    {"chat stream: usage is content", ENDPOINT_CHAT, SSE,
     DATA("{\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}"),
     "0 in=1 out=2 C"},
    {"chat stream: usage null is not", ENDPOINT_CHAT, SSE, DATA("{\"choices\":[],\"usage\":null}"),
     "0"},
    {"chat stream: [DONE]", ENDPOINT_CHAT, SSE, DATA("[DONE]"), "0 T"},
    {"chat stream: [DONE] without its blank line", ENDPOINT_CHAT, SSE, "data: [DONE]\n", "0"},
    {"chat stream: not [DONE]", ENDPOINT_CHAT, SSE, DATA("[DONE]x") DATA("[DONE") DATA("[]"), "0"},
    {"chat stream: an error", ENDPOINT_CHAT, SSE, DATA("{\"error\":{\"message\":\"x\"}}"), "0 E T"},
    {"chat stream: one text over two data lines", ENDPOINT_CHAT, SSE,
     "data: {\"choices\":[{\"delta\":\ndata: {\"content\":\"h\"}}]}\n\n", "0 C"},
    {"chat stream: two texts in one event", ENDPOINT_CHAT, SSE,
     "data: {\"model\":\"m\"}\ndata: {\"choices\":[{\"delta\":{\"content\":\"h\"}}]}\n\n",
     "0 m=m C"},
    {"H4 usage beside an empty delta is not content", ENDPOINT_CHAT, SSE,
     DATA(
         "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":{\"prompt_"
         "tokens\":5,\"completion_tokens\":0}}"),
     "0 in=5 out=0"},
    {"H4 no choices but filter results are no content", ENDPOINT_CHAT, SSE,
     DATA("{\"id\":\"\",\"model\":\"\",\"choices\":[],\"prompt_filter_results\":[{\"prompt_index\":"
          "0,"
          "\"content_filter_results\":{}}]}"),
     "0"},
    {"H4 empty things are no content", ENDPOINT_CHAT, SSE,
     DATA(
         "{\"choices\":[{\"delta\":{\"content\":\"\",\"reasoning_content\":\"\",\"reasoning\":null,"
         "\"refusal\":\"\",\"tool_calls\":[],\"function_call\":{},\"audio\":{\"id\":\"a\","
         "\"transcript\":\"\"},\"images\":[],\"reasoning_details\":[]},\"finish_reason\":\"\"}]}")
         DATA("{\"choices\":[{\"delta\":{}}]}") DATA("{\"choices\":[]}") DATA("{}"),
     "0"},
    {"H4 reasoning by its other name", ENDPOINT_CHAT, SSE, CHUNK("{\"reasoning\":\"h\"}"),
     "0 m=gpt-4o id=c1 C"},
    {"H4 sound", ENDPOINT_CHAT, SSE, CHUNK("{\"audio\":{\"id\":\"a\",\"data\":\"AAAA\"}}"),
     "0 m=gpt-4o id=c1 C"},
    {"H4 the sound's words", ENDPOINT_CHAT, SSE, CHUNK("{\"audio\":{\"transcript\":\"h\"}}"),
     "0 m=gpt-4o id=c1 C"},
    {"H4 function call", ENDPOINT_CHAT, SSE,
     CHUNK("{\"content\":null,\"function_call\":{\"name\":\"f\",\"arguments\":\"\"}}"),
     "0 m=gpt-4o id=c1 C"},
    {"H4 thinking in parts", ENDPOINT_CHAT, SSE,
     CHUNK("{\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":\"h\"}]}"
           "]}"),
     "0 m=gpt-4o id=c1 C"},
    {"I16 comments and roles are no content", ENDPOINT_CHAT, SSE,
     ": ping\n\n" CHUNK("{\"role\":\"assistant\"}") ": ping\n\n" CHUNK("{\"content\":\"\"}"),
     "0 m=gpt-4o id=c1"},
    {"I2 an error beside a finish is no content", ENDPOINT_CHAT, SSE,
     DATA("{\"error\":{\"code\":502,\"message\":\"x\"},\"choices\":[{\"delta\":{\"content\":\"\"},"
          "\"finish_reason\":\"error\"}]}"),
     "0 E T"},
    {"I2 a finish that is an error", ENDPOINT_CHAT, SSE,
     DATA("{\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}"), "0 E T"},
    {"I2 an error object of its own", ENDPOINT_CHAT, SSE,
     DATA("{\"object\":\"error\",\"message\":\"x\",\"code\":500}"), "0 E T"},
    {"I2 an error behind the role", ENDPOINT_CHAT, SSE,
     CHUNK("{\"role\":\"assistant\"}") DATA("{\"error\":{\"message\":\"x\"}}"),
     "0 m=gpt-4o id=c1 E T"},
    {"I2 an error behind content", ENDPOINT_CHAT, SSE,
     CHUNK("{\"content\":\"h\"}") DATA("{\"error\":{\"message\":\"x\"}}"),
     "0 m=gpt-4o id=c1 C e T"},
    {"I2 content behind an error", ENDPOINT_CHAT, SSE,
     DATA("{\"error\":{\"message\":\"x\"}}") CHUNK("{\"content\":\"h\"}"),
     "0 m=gpt-4o id=c1 C E T"},
    {"I1 a malformed event is no error", ENDPOINT_CHAT, SSE,
     CHUNK("{\"content\":\"h\"}") DATA("{\"choices\":[{\"del") CHUNK("{\"content\":\"i\"}")
         DATA("[DONE]"),
     "0 m=gpt-4o id=c1 C T"},
    {"completions stream", ENDPOINT_COMPLETIONS, SSE,
     DATA("{\"choices\":[{\"text\":\"\"}]}") DATA("{\"choices\":[{\"text\":\"h\"}]}")
         DATA("[DONE]"),
     "0 C T"},
    /* ---- Anthropic */
    {"messages stream", ENDPOINT_MESSAGES, SSE,
     TYPED("message_start", ",\"message\":{\"id\":\"msg\",\"model\":\"claude\",\"usage\":{\"input_"
                            "tokens\":9,\"cache_read_input_tokens\":4,\"output_tokens\":1}}")
         TYPED("content_block_start", ",\"content_block\":{\"type\":\"text\",\"text\":\"\"}")
             TYPED("ping", ""),
     "0 m=claude id=msg in=9 out=1 ca=4"},
    {"messages stream: to its end", ENDPOINT_MESSAGES, SSE,
     TYPED("content_block_delta", ",\"delta\":{\"text\":\"h\"}")
         TYPED("message_delta", ",\"usage\":{\"output_tokens\":12}") TYPED("message_stop", ""),
     "0 out=12 C T"},
    {"I2 messages: overloaded first", ENDPOINT_MESSAGES, SSE,
     EVENT("error", "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}"), "0 E T"},
    {"I2 messages: overloaded behind the start", ENDPOINT_MESSAGES, SSE,
     TYPED("message_start", ",\"message\":{\"id\":\"msg\"}")
         TYPED("error", ",\"error\":{\"type\":\"overloaded_error\"}"),
     "0 id=msg E T"},
    {"H4 messages: thinking", ENDPOINT_MESSAGES, SSE,
     TYPED("content_block_delta", ",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"h\"}"),
     "0 C"},
    {"H4 messages: a tool's input", ENDPOINT_MESSAGES, SSE,
     TYPED("content_block_start", ",\"content_block\":{\"type\":\"tool_use\",\"name\":\"f\"}")
         TYPED("content_block_delta",
               ",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\"}"),
     "0 C"},
    {"messages: an error", ENDPOINT_MESSAGES, JSON,
     "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}", "0 E T"},
    /* ---- Gemini */
    {"Gemini", ENDPOINT_GEMINI, JSON,
     "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}," PART(
         "image/png", "AAAA") "]},\"finishReason\":\"STOP\"}],\"modelVersion\":\"gemini-3\","
                              "\"responseId\":\"g1\","
                              "\"usageMetadata\":{\"promptTokenCount\":3,\"candidatesTokenCount\":"
                              "1290,\"thoughtsTokenCount\":8,\"promptTokensDetails\":[{"
                              "\"modality\":\"TEXT\",\"tokenCount\":3}],"
                              "\"candidatesTokensDetails\":[{\"modality\":\"IMAGE\",\"tokenCount\":"
                              "1280},{\"modality\":\"TEXT\",\"tokenCount\":10}]}}",
     "1 m=gemini-3 id=g1 in=3 out=1290 re=8 io=1280 C T"},
    {"Gemini: thoughts do not count", ENDPOINT_GEMINI, JSON,
     PARTS("{\"thought\":true,\"inlineData\":{\"mimeType\":\"image/"
           "png\",\"data\":\"A\"}},{\"inline_data\":{\"mime_type\":\"image/"
           "png\",\"data\":\"B\"},\"thought\":false},"
           "{\"inlineData\":{\"data\":\"C\",\"mimeType\":\"image/png\"},\"thought\":true}"),
     "1 C T"},
    {"Gemini: sound is no picture", ENDPOINT_GEMINI, JSON,
     PARTS(PART("audio/L16", "AAAA") "," PART("image/png", "")), "0 C T"},
    {"Gemini stream", ENDPOINT_GEMINI, SSE,
     DATA(PARTS(PART("image/png", "A"))) DATA(PARTS(PART("image/png", "B")))
         DATA(PARTS(PART("image/png", "A"))),
     "2 C"},
    {"Gemini stream: the finish is the end", ENDPOINT_GEMINI, SSE,
     DATA("{\"candidates\":[{\"finishReason\":\"STOP\"}]}"), "0 C T"},
    {"H4 Gemini stream: the role and counts are no content", ENDPOINT_GEMINI, SSE,
     DATA("{\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"\"}]}}],"
          "\"usageMetadata\":{\"promptTokenCount\":4}}") DATA("{\"candidates\":[]}"),
     "0 in=4"},
    {"H4 Gemini stream: text", ENDPOINT_GEMINI, SSE, DATA(PARTS("{\"text\":\"h\"}")), "0 C"},
    {"H4 Gemini stream: a thought", ENDPOINT_GEMINI, SSE,
     DATA(PARTS("{\"thought\":true,\"text\":\"h\"}")), "0 C"},
    {"H4 Gemini stream: a call", ENDPOINT_GEMINI, SSE,
     DATA(PARTS("{\"functionCall\":{\"name\":\"f\"}}")), "0 C"},
    {"H4 Gemini stream: code", ENDPOINT_GEMINI, SSE,
     DATA(PARTS("{\"executableCode\":{\"code\":\"1\"}}")), "0 C"},
    {"H4 Gemini stream: a refused prompt", ENDPOINT_GEMINI, SSE,
     DATA("{\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}"), "0 C T"},
    {"I2 Gemini stream: an error", ENDPOINT_GEMINI, SSE,
     DATA("{\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}"), "0 E T"},
    {"Gemini stream as an array", ENDPOINT_GEMINI, JSON,
     "[" PARTS(PART("image/png", "A")) ",\n" PARTS(PART("image/png", "B")) "]", "2 C T"},
    {"Gemini predict", ENDPOINT_GEMINI, JSON,
     "{\"predictions\":[{\"mimeType\":\"image/"
     "png\",\"bytesBase64Encoded\":\"A\"},{\"bytesBase64Encoded\":\"A\"},{\"raiFilteredReason\":"
     "\"x\"}]}",
     "2 C T"},
    {"Gemini: an error", ENDPOINT_GEMINI, JSON,
     "{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\"}}", "0 E T"},
    /* ---- DashScope */
    {"DashScope: task accepted", ENDPOINT_DASHSCOPE, JSON,
     "{\"output\":{\"task_id\":\"t1\",\"task_status\":\"PENDING\"},\"request_id\":\"q\"}",
     "0 id=t1 st=PENDING C T"},
    {"DashScope: partial failure inside success", ENDPOINT_OTHER, JSON,
     "{\"output\":{\"task_id\":\"t1\",\"task_status\":\"SUCCEEDED\",\"results\":[{\"url\":\"http://"
     "a\"},{\"code\":\"InternalError\",\"message\":\"x\"},{\"url\":\"http://"
     "b\"}]},\"usage\":{\"image_count\":2}}",
     "2 id=t1 st=SUCCEEDED C T"},
    {"DashScope: multimodal", ENDPOINT_DASHSCOPE, JSON,
     "{\"output\":{\"choices\":[{\"finish_reason\":\"stop\",\"message\":{\"content\":[{\"image\":"
     "\"http://a\"},{\"text\":\"x\"}]}}]},\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}",
     "1 in=1 out=2 C T"},
    {"DashScope stream", ENDPOINT_DASHSCOPE, SSE,
     "id:1\nevent:result\n:HTTP_STATUS/"
     "200\ndata:{\"output\":{\"text\":\"h\",\"finish_reason\":\"null\"}}\n\n",
     "0 C"},
    {"DashScope stream: the end", ENDPOINT_DASHSCOPE, SSE,
     EVENT("result", "{\"output\":{\"choices\":[{\"message\":{\"content\":[{\"image\":\"http://"
                     "a\"}]},\"finish_reason\":\"stop\"}]}}"),
     "1 C T"},
    {"H4 DashScope stream: usage with every event is no content", ENDPOINT_DASHSCOPE, SSE,
     EVENT("result",
           "{\"output\":{\"text\":\"\",\"finish_reason\":\"null\"},\"usage\":{\"input_tokens\":"
           "3}}")
         EVENT("result",
               "{\"output\":{\"choices\":[{\"message\":{\"content\":\"\"},\"finish_reason\":"
               "\"null\"}]},\"usage\":{\"input_tokens\":3}}"),
     "0 in=3"},
    {"H4 DashScope stream: reasoning", ENDPOINT_DASHSCOPE, SSE,
     EVENT("result",
           "{\"output\":{\"choices\":[{\"message\":{\"content\":\"\",\"reasoning_content\":"
           "\"h\"},\"finish_reason\":\"null\"}]}}"),
     "0 C"},
    {"I2 DashScope stream: an error", ENDPOINT_DASHSCOPE, SSE,
     EVENT("error", "{\"code\":\"Throttling\",\"message\":\"x\"}"), "0 E T"},
    {"DashScope: an error", ENDPOINT_DASHSCOPE, JSON,
     "{\"code\":\"Throttling.RateQuota\",\"message\":\"x\",\"request_id\":\"q\"}", "0 E T"},
    /* ---- what has an id that a later call refers to */
    {"H11 a file", ENDPOINT_OTHER, JSON,
     "{\"id\":\"file-1\",\"object\":\"file\",\"status\":\"processed\"}",
     "0 id=file-1 st=processed C T"},
    {"H11 a batch", ENDPOINT_OTHER, JSON,
     "{\"id\":\"batch_1\",\"object\":\"batch\",\"errors\":null,\"input_file_id\":\"file-1\","
     "\"status\":"
     "\"validating\"}",
     "0 id=batch_1 st=validating C T"},
    {"H11 a conversation", ENDPOINT_OTHER, JSON,
     "{\"id\":\"conv_1\",\"object\":\"conversation\",\"metadata\":{\"id\":\"x\"}}",
     "0 id=conv_1 C T"},
    {"H11 a list has none", ENDPOINT_OTHER, JSON,
     "{\"object\":\"list\",\"data\":[{\"id\":\"file-1\"}],\"first_id\":\"file-1\"}", "0 C T"},
    {"H11 a response's id is the first that is told", ENDPOINT_RESPONSES, SSE,
     TYPED("response.created", ",\"response\":{\"id\":\"resp_1\"}")
         TYPED("response.output_item.done", ",\"item\":{\"id\":\"msg_1\",\"type\":\"message\"}")
             TYPED("response.completed", ",\"response\":{\"id\":\"resp_1\"}"),
     "0 id=resp_1 C T"},
    {"nothing at all", ENDPOINT_CHAT, JSON, "", "0"},
    {"no events", ENDPOINT_CHAT, SSE, ": ping\n\n: ping\n\n", "0"},
};

#endif
