/* answer_images.c - images/generations, images/edits, images/variations; Gemini's way of drawing.
 */
#include "tests/tools/upstream/answers.h"
#include "tests/tools/upstream/request.h"

#include <string.h>

#define PICTURE_TRAITS                                                                             \
    "\"background\":\"opaque\",\"output_format\":\"png\",\"quality\":\"high\",\"size\":"           \
    "\"1024x1024\""

static void picture_value(const struct call *call, struct body *body, uint64_t index)
{
    if (call->behaviour.url) {
        sim_body_printf(body, "\"url\":\"http://pictures.invalid/%llu-%llu.png\"",
                        (unsigned long long)sim_answer_seed(call), (unsigned long long)index);
        return;
    }
    sim_body_text(body, "\"b64_json\":\"");
    sim_answer_picture(call, body, index, false);
    sim_body_text(body, "\"");
}

/* Previews first, then one completed event per picture. */
static bool images_stream(const struct call *call, struct body *body, const char *family)
{
    bool partial = call->step < call->partials;
    uint64_t index = partial ? call->step : call->step - call->partials;
    bool last = !partial && index + 1 >= call->n;

    sim_body_printf(body, "event: %s.%s\ndata: {\"type\":\"%s.%s\",\"created_at\":%lld,", family,
                    partial ? "partial_image" : "completed", family,
                    partial ? "partial_image" : "completed", sim_answer_created(call));
    sim_body_text(body, PICTURE_TRAITS ",");
    if (partial) {
        sim_body_printf(body, "\"partial_image_index\":%llu,\"b64_json\":\"",
                        (unsigned long long)index);
        sim_answer_picture(call, body, index, true);
        sim_body_text(body, "\"}\n\n");
        return true;
    }
    picture_value(call, body, index);
    if (call->behaviour.usage && last) {
        sim_body_text(body, ",\"usage\":");
        sim_answer_image_usage(body, call->n);
    }
    sim_body_text(body, "}\n\n");
    if (last && call->behaviour.done == 1)
        sim_body_text(body, "data: [DONE]\n\n");
    return !last;
}

static bool images_json(const struct call *call, struct body *body)
{
    sim_body_printf(body, "{\"created\":%lld,", sim_answer_created(call));
    if (call->behaviour.stamp)
        sim_body_printf(body, "\"stamp\":\"t=%lld \",", (long long)call->now_ns);
    sim_body_text(body, PICTURE_TRAITS ",\"data\":[");
    for (uint64_t i = 0; i < call->n; i++) {
        sim_body_text(body, i ? ",{" : "{");
        picture_value(call, body, i);
        sim_body_text(body, "}");
    }
    sim_body_text(body, "]");
    if (call->behaviour.usage) {
        sim_body_text(body, ",\"usage\":");
        sim_answer_image_usage(body, call->n);
    }
    sim_body_text(body, "}");
    return false;
}

bool sim_answer_images(struct call *call, struct body *body)
{
    return call->sse ? images_stream(call, body, "image_generation") : images_json(call, body);
}

bool sim_answer_edits(struct call *call, struct body *body)
{
    return call->sse ? images_stream(call, body, "image_edit") : images_json(call, body);
}

static void gemini_pictures(const struct call *call, struct body *body)
{
    for (uint64_t i = 0; i < call->n; i++) {
        sim_body_text(body, ",{\"inlineData\":{\"mimeType\":\"image/png\",\"data\":\"");
        sim_answer_picture(call, body, i, false);
        sim_body_text(body, "\"}}");
    }
}

bool sim_answer_gemini(struct call *call, struct body *body)
{
    bool last = !call->sse || call->step >= sim_answer_events(call);
    unsigned long long drawn = call->image ? (unsigned long long)call->n * 1290 : 0;

    if (call->sse)
        sim_answer_event(body, NULL);
    sim_body_text(
        body,
        "{\"candidates\":[{\"index\":0,\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"");
    sim_answer_words(call, body);
    sim_body_text(body, "\"}");
    if (last && call->image)
        gemini_pictures(call, body);
    sim_body_text(body, "]}");
    sim_body_text(body, last ? ",\"finishReason\":\"STOP\"}]" : "}]");
    if (last && call->behaviour.usage)
        sim_body_printf(
            body,
            ",\"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":%llu,"
            "\"totalTokenCount\":%llu,\"candidatesTokensDetails\":[{\"modality\":\"%s\","
            "\"tokenCount\":%llu}]}",
            drawn + 8, drawn + 18, call->image ? "IMAGE" : "TEXT", call->image ? drawn : 8);
    sim_body_text(body, call->sse ? "}\n\n" : "}");
    return !last;
}

bool sim_answer_predict(struct call *call, struct body *body)
{
    sim_body_text(body, "{\"predictions\":[");
    for (uint64_t i = 0; i < call->n; i++) {
        sim_body_text(body, i ? "," : "");
        sim_body_text(body, "{\"mimeType\":\"image/png\",\"bytesBase64Encoded\":\"");
        sim_answer_picture(call, body, i, false);
        sim_body_text(body, "\"}");
    }
    sim_body_text(body, "]}");
    return false;
}
