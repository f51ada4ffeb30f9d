/* candidates.c - who may serve a call; see candidates.h. */
#include "worker/candidates.h"

#include "shared/owners.h"
#include "worker/model_edit.h"
#include "worker/request.h"

#include <string.h>

/* The name this source has for the model: an alias of its own, or the model as it is. */
static const char *served_name(const struct source_options *source, const char *model)
{
    for (const struct option_pair *pair = source->aliases; pair && pair->name; pair++)
        if (strcmp(pair->name, model) == 0)
            return pair->value;
    return model;
}

const char *candidates_model(const struct request *request, size_t candidate)
{
    const char *asked = request->reader.intent.model;
    const char *wanted = request->candidates.model ? request->candidates.model : asked;
    const char *served = served_name(request->scope->members[candidate].source, wanted);

    return strcmp(served, asked) == 0 ? NULL : served;
}

bool candidates_edit(struct attempt *attempt, struct body_edit *ret)
{
    const struct request *request = attempt->request;
    const char *model = candidates_model(request, attempt->candidate);

    *ret = (struct body_edit){.bytes = -1};
    return !model || model_edit(&request->reader.intent, model, &attempt->model, ret);
}

/* Can the body be given this name, and does the call stay what the gate took it for? */
static bool can_serve(const struct request *request, size_t candidate)
{
    const char *model = candidates_model(request, candidate);
    struct text text;
    struct body_edit edit;
    bool can;

    if (!model)
        return true;
    text_init(&text, MODEL_EDIT_TEXT_MAX);
    can = model_edit(&request->reader.intent, model, &text, &edit) &&
          intent_image_with_model(&request->reader, model) == request->reader.intent.image;
    text_release(&text);
    return can;
}

/* What a call continues lies with one source: the owner of the id, or the scope's first (H11). */
static void bar_all_but_owner(struct request *request)
{
    struct candidates *candidates = &request->candidates;
    const char *id = request->reader.intent.pin_id;
    uint32_t owner = *id ? owner_of(&request->worker->gate, id) : NO_INDEX;
    size_t kept = 0;

    for (size_t i = 0; i < candidates->count; i++)
        if (candidates->list[i].row == owner)
            kept = i;
    candidates->barred |= ~(UINT64_C(1) << kept);
}

static bool share_account(const struct source_options *a, const struct source_options *b)
{
    return a == b || (*a->quota_group && strcmp(a->quota_group, b->quota_group) == 0);
}

static uint64_t account_of(const struct scope_options *scope, size_t candidate)
{
    uint64_t account = 0;

    for (size_t i = 0; i < scope->member_count; i++)
        if (share_account(scope->members[candidate].source, scope->members[i].source))
            account |= UINT64_C(1) << i;
    return account;
}

void candidates_make(struct request *request)
{
    const struct scope_options *scope = request->scope;
    struct candidates *candidates = &request->candidates;

    REQUIRE(scope->member_count <= LENGTH(candidates->list));
    candidates->count = scope->member_count;
    candidates->barred = 0;
    for (size_t i = 0; i < scope->member_count; i++) {
        const struct scope_member *member = &scope->members[i];

        candidates->list[i] = (struct source_candidate){
            .row = request->worker->source_rows[member->source->index],
            .weight = member->weight,
            .max_in_flight = (uint32_t)member->source->max_in_flight,
        };
        candidates->accounts[i] = account_of(scope, i);
        if (!can_serve(request, i))
            candidates->barred |= UINT64_C(1) << i;
    }
    if (request->reader.intent.pinned && candidates->count > 1)
        bar_all_but_owner(request);
    flow_targets_make(request);
}

bool candidates_are_none(const struct candidates *candidates)
{
    return (~candidates->barred & (UINT64_MAX >> (SOURCES_MAX - candidates->count))) == 0;
}

bool candidates_allow_hedge(const struct candidates *candidates)
{
    size_t usable = 0;

    for (size_t i = 0; i < candidates->count; i++)
        usable += !(candidates->barred >> i & 1);
    return usable > 1;
}
