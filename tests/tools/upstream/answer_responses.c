/*
 * answer_responses.c - the Responses API: whole, streamed, in the background.
 *
 * A stream is a script of steps: two openings, then either the text's steps or five steps and the
 * previews per picture, then the closing event. step_of() maps the running number to a step.
 */
#include "tests/tools/upstream/answers.h"
#include "tests/tools/upstream/jobs.h"
#include "tests/tools/upstream/request.h"

#include "base/clock.h"

#include <string.h>

enum step {
    STEP_CREATED,
    STEP_IN_PROGRESS,
    STEP_TEXT_ADDED,
    STEP_PART_ADDED,
    STEP_DELTA,
    STEP_TEXT_DONE,
    STEP_PART_DONE,
    STEP_ITEM_DONE,
    STEP_TOOL_ADDED,
    STEP_TOOL_DELTA,
    STEP_TOOL_ARGUMENTS,
    STEP_TOOL_DONE,
    STEP_PICTURE_ADDED,
    STEP_PICTURE_BEGUN,
    STEP_PICTURE_GENERATING,
    STEP_PICTURE_PARTIAL,
    STEP_PICTURE_COMPLETED,
    STEP_PICTURE_DONE,
    STEP_COMPLETED,
};

static const char *const step_events[] = {
    [STEP_CREATED] = "response.created",
    [STEP_IN_PROGRESS] = "response.in_progress",
    [STEP_TEXT_ADDED] = "response.output_item.added",
    [STEP_PART_ADDED] = "response.content_part.added",
    [STEP_DELTA] = "response.output_text.delta",
    [STEP_TEXT_DONE] = "response.output_text.done",
    [STEP_PART_DONE] = "response.content_part.done",
    [STEP_ITEM_DONE] = "response.output_item.done",
    [STEP_TOOL_ADDED] = "response.output_item.added",
    [STEP_TOOL_DELTA] = "response.function_call_arguments.delta",
    [STEP_TOOL_ARGUMENTS] = "response.function_call_arguments.done",
    [STEP_TOOL_DONE] = "response.output_item.done",
    [STEP_PICTURE_ADDED] = "response.output_item.added",
    [STEP_PICTURE_BEGUN] = "response.image_generation_call.in_progress",
    [STEP_PICTURE_GENERATING] = "response.image_generation_call.generating",
    [STEP_PICTURE_PARTIAL] = "response.image_generation_call.partial_image",
    [STEP_PICTURE_COMPLETED] = "response.image_generation_call.completed",
    [STEP_PICTURE_DONE] = "response.output_item.done",
    [STEP_COMPLETED] = "response.completed",
};

/* Which step the running number stands for; ret_index: of the picture, or of the preview. */
struct place {
    enum step step;
    uint64_t picture;
    uint64_t partial;
};

static struct place text_place(const struct call *call, uint64_t at)
{
    uint64_t events = sim_answer_events(call);

    if (at < 2)
        return (struct place){.step = at ? STEP_PART_ADDED : STEP_TEXT_ADDED};
    if (at < 2 + events)
        return (struct place){.step = STEP_DELTA};
    switch (at - 2 - events) {
    case 0:
        return (struct place){.step = STEP_TEXT_DONE};
    case 1:
        return (struct place){.step = STEP_PART_DONE};
    case 2:
        return (struct place){.step = STEP_ITEM_DONE};
    default:
        return (struct place){.step = STEP_COMPLETED};
    }
}

static struct place tool_place(uint64_t at)
{
    if (at == 0)
        return (struct place){.step = STEP_TOOL_ADDED};
    if (at <= TOOL_PIECES)
        return (struct place){.step = STEP_TOOL_DELTA, .partial = at - 1};
    if (at == TOOL_PIECES + 1)
        return (struct place){.step = STEP_TOOL_ARGUMENTS};
    return (struct place){.step = at == TOOL_PIECES + 2 ? STEP_TOOL_DONE : STEP_COMPLETED};
}

static struct place picture_place(const struct call *call, uint64_t at)
{
    uint64_t each = call->partials + 5;
    struct place place = {.picture = at / each};
    uint64_t within = at % each;

    if (place.picture >= call->n)
        place.step = STEP_COMPLETED;
    else if (within < 3)
        place.step = within == 0   ? STEP_PICTURE_ADDED
                     : within == 1 ? STEP_PICTURE_BEGUN
                                   : STEP_PICTURE_GENERATING;
    else if (within < 3 + call->partials)
        place = (struct place){STEP_PICTURE_PARTIAL, place.picture, within - 3};
    else
        place.step = within == 3 + call->partials ? STEP_PICTURE_COMPLETED : STEP_PICTURE_DONE;
    return place;
}

static struct place place_of(const struct call *call)
{
    if (call->step < 2)
        return (struct place){.step = call->step ? STEP_IN_PROGRESS : STEP_CREATED};
    if (sim_answer_calls_tool(call))
        return tool_place(call->step - 2);
    return call->image ? picture_place(call, call->step - 2) : text_place(call, call->step - 2);
}

/* What a response object needs to know; a call's own, or a job's. */
struct drawing {
    uint64_t number;
    const char *status;
    const char *model;
    bool image;
    bool complete; /* the output is there */
    uint64_t pictures;
};

static void picture_item(const struct call *call, struct body *body, uint64_t index, bool done)
{
    sim_body_printf(
        body, "{\"type\":\"image_generation_call\",\"id\":\"ig_sim%llu_%llu\",\"status\":\"%s\"",
        (unsigned long long)sim_answer_seed(call), (unsigned long long)index,
        done ? "completed" : "in_progress");
    if (done) {
        sim_body_text(
            body, ",\"action\":\"generate\",\"background\":\"opaque\",\"output_format\":\"png\","
                  "\"quality\":\"high\",\"size\":\"1024x1024\",\"result\":\"");
        sim_answer_picture(call, body, index, false);
        sim_body_text(body, "\"");
    }
    sim_body_text(body, "}");
}

static void text_item(const struct call *call, struct body *body, bool done)
{
    sim_body_printf(
        body,
        "{\"type\":\"message\",\"id\":\"msg_sim%llu\",\"role\":\"assistant\",\"status\":\"%s\","
        "\"content\":[",
        (unsigned long long)sim_answer_seed(call), done ? "completed" : "in_progress");
    if (done) {
        sim_body_text(body, "{\"type\":\"output_text\",\"annotations\":[],\"text\":\"");
        sim_answer_words(call, body);
        sim_body_text(body, "\"}");
    }
    sim_body_text(body, "]}");
}

static void tool_item(const struct call *call, struct body *body, bool done)
{
    unsigned long long number = (unsigned long long)sim_answer_seed(call);

    sim_body_printf(
        body,
        "{\"type\":\"function_call\",\"id\":\"fc_sim%llu\",\"call_id\":\"call_sim%llu\","
        "\"status\":\"%s\",\"name\":",
        number, number, done ? "completed" : "in_progress");
    sim_body_json(body, call->behaviour.tool);
    sim_body_text(body, ",\"arguments\":\"");
    if (done)
        sim_answer_tool_arguments(body);
    sim_body_text(body, "\"}");
}

static void response_object(const struct call *call, struct body *body,
                            const struct drawing *drawing)
{
    sim_body_printf(
        body,
        "{\"id\":\"resp_%llx\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\","
        "\"error\":null,\"incomplete_details\":%s,\"model\":",
        (unsigned long long)drawing->number, sim_answer_created(call), drawing->status,
        strcmp(drawing->status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    sim_body_json(body, drawing->model[0] ? drawing->model : "simulated");
    sim_body_text(body, ",\"output\":[");
    if (drawing->complete && drawing->image) {
        for (uint64_t i = 0; i < drawing->pictures; i++) {
            sim_body_text(body, i ? "," : "");
            picture_item(call, body, i, true);
        }
    } else if (drawing->complete && sim_answer_calls_tool(call)) {
        tool_item(call, body, true);
    } else if (drawing->complete) {
        text_item(call, body, true);
    }
    sim_body_text(body, "]");
    if (drawing->complete && call->behaviour.usage) {
        unsigned long long in = sim_answer_tokens_in(call);
        unsigned long long out = sim_answer_tokens_out(call, 8);

        sim_body_printf(
            body,
            ",\"usage\":{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":0},"
            "\"output_tokens\":%llu,\"output_tokens_details\":{\"reasoning_tokens\":0},"
            "\"total_tokens\":%llu}",
            in, out, in + out);
        if (drawing->image) {
            sim_body_text(body, ",\"tool_usage\":{\"image_gen\":");
            sim_answer_image_usage(body, drawing->pictures);
            sim_body_text(body, "}");
        }
    }
    sim_body_text(body, "}");
}

static void picture_event(const struct call *call, struct body *body, const struct place *place)
{
    unsigned long long index = (unsigned long long)place->picture;

    sim_body_printf(body, ",\"output_index\":%llu", index);
    if (place->step == STEP_PICTURE_ADDED || place->step == STEP_PICTURE_DONE) {
        sim_body_text(body, ",\"item\":");
        picture_item(call, body, place->picture, place->step == STEP_PICTURE_DONE);
        return;
    }
    sim_body_printf(body, ",\"item_id\":\"ig_sim%llu_%llu\"",
                    (unsigned long long)sim_answer_seed(call), index);
    if (place->step == STEP_PICTURE_PARTIAL) {
        sim_body_printf(
            body, ",\"partial_image_index\":%llu,\"size\":\"1024x1024\",\"partial_image_b64\":\"",
            (unsigned long long)place->partial);
        sim_answer_picture(call, body, place->picture * 16 + place->partial, true);
        sim_body_text(body, "\"");
    }
}

static void text_event(const struct call *call, struct body *body, enum step step)
{
    sim_body_text(body, ",\"output_index\":0");
    if (step == STEP_TEXT_ADDED || step == STEP_ITEM_DONE) {
        sim_body_text(body, ",\"item\":");
        text_item(call, body, step == STEP_ITEM_DONE);
        return;
    }
    sim_body_printf(body, ",\"content_index\":0,\"item_id\":\"msg_sim%llu\"",
                    (unsigned long long)sim_answer_seed(call));
    if (step == STEP_PART_ADDED || step == STEP_PART_DONE) {
        sim_body_text(body,
                      ",\"part\":{\"type\":\"output_text\",\"annotations\":[],\"text\":\"\"}");
        return;
    }
    sim_body_text(body, step == STEP_DELTA ? ",\"delta\":\"" : ",\"text\":\"");
    sim_answer_words(call, body);
    sim_body_text(body, "\"");
}

static void tool_event(const struct call *call, struct body *body, const struct place *place)
{
    sim_body_text(body, ",\"output_index\":0");
    if (place->step == STEP_TOOL_ADDED || place->step == STEP_TOOL_DONE) {
        sim_body_text(body, ",\"item\":");
        tool_item(call, body, place->step == STEP_TOOL_DONE);
        return;
    }
    sim_body_printf(body, ",\"item_id\":\"fc_sim%llu\",",
                    (unsigned long long)sim_answer_seed(call));
    sim_body_text(body, place->step == STEP_TOOL_DELTA ? "\"delta\":\"" : "\"arguments\":\"");
    if (place->step == STEP_TOOL_DELTA)
        sim_answer_tool_piece(body, place->partial);
    else
        sim_answer_tool_arguments(body);
    sim_body_text(body, "\"");
}

static bool responses_stream(const struct call *call, struct body *body, struct drawing *drawing)
{
    struct place place = place_of(call);
    bool last = place.step == STEP_COMPLETED;
    const char *event = step_events[place.step];

    if (last && call->behaviour.incomplete) {
        event = "response.incomplete";
        drawing->status = "incomplete";
    }
    sim_answer_event(body, event);
    sim_body_printf(body, "{\"type\":\"%s\",\"sequence_number\":%llu", event,
                    (unsigned long long)call->step);
    if (last || place.step == STEP_CREATED || place.step == STEP_IN_PROGRESS) {
        drawing->complete = last;
        drawing->status = last ? drawing->status : "in_progress";
        sim_body_text(body, ",\"response\":");
        response_object(call, body, drawing);
    } else if (place.step >= STEP_PICTURE_ADDED) {
        picture_event(call, body, &place);
    } else if (place.step >= STEP_TOOL_ADDED) {
        tool_event(call, body, &place);
    } else {
        text_event(call, body, place.step);
    }
    sim_body_text(body, "}\n\n");
    return !last;
}

static struct job *job_begin(const struct call *call)
{
    struct job *job = sim_jobs_add(call->jobs);

    job->begun_ns = call->now_ns;
    job->lasts_ns = (int64_t)call->behaviour.job_ms * NS_PER_MS;
    job->image = call->image;
    job->pictures = call->n;
    job->failing = call->behaviour.job_fail;
    job->size = call->behaviour.size;
    job->seed = sim_answer_seed(call);
    (void)text_copy(job->model, sizeof job->model, call->model);
    return job;
}

bool sim_answer_responses(struct call *call, struct body *body)
{
    struct drawing drawing = {
        .number = UINT64_C(0x5100000000) + sim_answer_seed(call),
        .status = call->behaviour.incomplete ? "incomplete" : "completed",
        .model = call->model,
        .image = call->image,
        .complete = true,
        .pictures = call->n,
    };

    if (call->background && !call->sse) {
        drawing.number = job_begin(call)->number;
        drawing.status = "queued";
        drawing.complete = false;
    }
    if (call->sse)
        return responses_stream(call, body, &drawing);
    response_object(call, body, &drawing);
    return false;
}

/* The id in ".../responses/ID" or ".../tasks/ID/cancel". */
static struct job *job_of_path(const struct call *call, const char *collection)
{
    char id[256];
    const char *at = strstr(call->path, collection);

    if (!at)
        return NULL;
    (void)text_copy(id, sizeof id, at + strlen(collection));
    id[strcspn(id, "/")] = '\0';
    return sim_jobs_find(call->jobs, id);
}

/* Let the call's pictures be those of the job, so that every poll shows the same ones. */
static void take_over(struct call *call, const struct job *job)
{
    call->behaviour.size = job->size;
    call->behaviour.seed = job->seed;
    call->image = job->image;
    call->n = job->pictures;
}

static bool response_answer(struct call *call, struct body *body, const struct job *job)
{
    static const char *const words[] = {
        [JOB_PENDING] = "queued", [JOB_RUNNING] = "in_progress", [JOB_SUCCEEDED] = "completed",
        [JOB_FAILED] = "failed",  [JOB_CANCELLED] = "cancelled",
    };
    enum job_state state;
    struct drawing drawing;

    if (!job) {
        call->status = 404;
        return sim_answer_error(call, body);
    }
    state = sim_job_state(job, call->now_ns);
    take_over(call, job);
    drawing = (struct drawing){
        .number = job->number,
        .status = words[state],
        .model = job->model,
        .image = job->image,
        .complete = state == JOB_SUCCEEDED,
        .pictures = job->pictures,
    };
    response_object(call, body, &drawing);
    return false;
}

bool sim_answer_response_get(struct call *call, struct body *body)
{
    return response_answer(call, body, job_of_path(call, "/responses/"));
}

bool sim_answer_response_cancel(struct call *call, struct body *body)
{
    struct job *job = job_of_path(call, "/responses/");

    if (job)
        (void)sim_job_cancel(job, call->now_ns, false);
    return response_answer(call, body, job);
}

/* ---- DashScope: tasks that are polled -------------------------------------------------------- */

static void task_id(struct body *body, const struct job *job)
{
    sim_body_printf(body, "\"task_id\":\"sim-task-%016llx\"", (unsigned long long)job->number);
}

bool sim_answer_task_submit(struct call *call, struct body *body)
{
    struct job *job;

    call->image = true;
    job = job_begin(call);
    sim_body_text(body, "{\"output\":{");
    task_id(body, job);
    sim_body_printf(body, ",\"task_status\":\"PENDING\"},\"request_id\":\"req-sim-%llu\"}",
                    (unsigned long long)sim_answer_seed(call));
    return false;
}

static void task_results(const struct job *job, struct body *body)
{
    unsigned long long failed = (unsigned long long)job->failing;
    unsigned long long all = (unsigned long long)job->pictures;

    sim_body_text(body, ",\"results\":[");
    for (unsigned long long i = 0; i < all; i++) {
        sim_body_text(body, i ? "," : "");
        if (i < failed)
            sim_body_text(body, "{\"code\":\"InternalError.Timeout\",\"message\":\"simulated\"}");
        else
            sim_body_printf(body, "{\"url\":\"http://pictures.invalid/%llx-%llu.png\"}",
                            (unsigned long long)job->number, i);
    }
    sim_body_printf(body, "],\"task_metrics\":{\"TOTAL\":%llu,\"SUCCEEDED\":%llu,\"FAILED\":%llu}",
                    all, all - failed, failed);
}

bool sim_answer_task_get(struct call *call, struct body *body)
{
    static const char *const words[] = {
        [JOB_PENDING] = "PENDING", [JOB_RUNNING] = "RUNNING",    [JOB_SUCCEEDED] = "SUCCEEDED",
        [JOB_FAILED] = "FAILED",   [JOB_CANCELLED] = "CANCELED",
    };
    const struct job *job = job_of_path(call, "/tasks/");
    enum job_state state = job ? sim_job_state(job, call->now_ns) : JOB_FAILED;

    sim_body_printf(body, "{\"request_id\":\"req-sim-%llu\",\"output\":{",
                    (unsigned long long)sim_answer_seed(call));
    if (!job) {
        sim_body_text(body, "\"task_id\":\"\",\"task_status\":\"UNKNOWN\"}}");
        return false;
    }
    task_id(body, job);
    sim_body_printf(body, ",\"task_status\":\"%s\"", words[state]);
    if (state == JOB_SUCCEEDED)
        task_results(job, body);
    if (state == JOB_FAILED)
        sim_body_text(body, ",\"code\":\"InternalError\",\"message\":\"simulated\"");
    sim_body_text(body, "}");
    if (state == JOB_SUCCEEDED)
        sim_body_printf(body, ",\"usage\":{\"image_count\":%llu}",
                        (unsigned long long)(job->pictures - job->failing));
    sim_body_text(body, "}");
    return false;
}

bool sim_answer_task_cancel(struct call *call, struct body *body)
{
    struct job *job = job_of_path(call, "/tasks/");

    if (job && sim_job_cancel(job, call->now_ns, true)) {
        sim_body_printf(body, "{\"request_id\":\"req-sim-%llu\"}",
                        (unsigned long long)sim_answer_seed(call));
        return false;
    }
    call->status = 400;
    sim_body_printf(body,
                    "{\"request_id\":\"req-sim-%llu\",\"code\":\"UnsupportedOperation\","
                    "\"message\":\"Failed to cancel the task.\"}",
                    (unsigned long long)sim_answer_seed(call));
    return false;
}

bool sim_answer_multimodal(struct call *call, struct body *body)
{
    sim_body_text(
        body,
        "{\"output\":{\"choices\":[{\"finish_reason\":\"stop\",\"message\":{\"role\":\"assistant\","
        "\"content\":[");
    for (uint64_t i = 0; call->image && i < call->n; i++)
        sim_body_printf(body, "%s{\"image\":\"http://pictures.invalid/%llu-%llu.png\"}",
                        i ? "," : "", (unsigned long long)sim_answer_seed(call),
                        (unsigned long long)i);
    if (!call->image) {
        sim_body_text(body, "{\"text\":\"");
        sim_answer_words(call, body);
        sim_body_text(body, "\"}");
    }
    sim_body_printf(body, "]}}]},\"usage\":{\"image_count\":%llu},\"request_id\":\"req-sim-%llu\"}",
                    call->image ? (unsigned long long)call->n : 0,
                    (unsigned long long)sim_answer_seed(call));
    return false;
}
