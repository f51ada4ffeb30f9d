/* options_flow.c - flow control: has each strategy what it needs, and do sources of one account agree?
 * See options_table.h. */
#include "base/hash.h"
#include "base/parse.h"
#include "worker/options_table.h"

#include <inttypes.h>
#include <string.h>

#define LIMITS_ALLOWED "allowed: MODEL:RPM:TPM, such as qwen-max:1200:1m"
#define WEIGHTS_ALLOWED                                                                            \
    "allowed: three whole numbers from 1 to 1000, for interactive, normal and bulk"
#define BOUNDS_ALLOWED                                                                             \
    "allowed: three whole numbers from 1 to 4096, for interactive, normal and bulk"
#define WAITS_ALLOWED                                                                              \
    "allowed: three times up to 1 h, for interactive, normal and bulk, such as 5, 30, 2m"
#define WEIGHT_MAX 1000U
#define WAIT_MAX_MS INT64_C(3600000)
#define DASHSCOPE_WAIT_MIN_MS 3000

static bool counts_calls(const struct scope_options *scope)
{
    return scope->flow >= FLOW_STRATEGY_RATE;
}

/* It does not learn them by itself. */
static bool needs_limits(const struct scope_options *scope)
{
    return scope->flow == FLOW_STRATEGY_RATE || scope->flow == FLOW_STRATEGY_SHAPING;
}

static size_t count_items(const char *const *items)
{
    size_t count = 0;

    while (items[count])
        count++;
    return count;
}

/* ---- quotas of a source ---------------------------------------------------------------------- */

static bool read_quota(const char *text, size_t length, const char *key, int64_t *ret_quota)
{
    uint64_t number;

    if (!option_thousands(text, length, &number) ||
        number > (uint64_t)option_row_of(OPTION_SECTION_source, key)->max)
        return false;
    *ret_quota = (int64_t)number;
    return true;
}

/* MODEL:RPM:TPM; the model's name may have colons. NULL: *ret_limit is filled. */
static const char *limit_problem(struct options_loader *loader, const char *item,
                                 struct model_limit *ret_limit)
{
    const char *last = strrchr(item, ':');
    const char *middle = last;

    while (middle && middle > item && *--middle != ':')
        ;
    if (!middle || middle == item)
        return "is no MODEL:RPM:TPM";
    if (!read_quota(middle + 1, (size_t)(last - middle - 1), "rpm", &ret_limit->rpm))
        return "has no RPM";
    if (!read_quota(last + 1, strlen(last + 1), "tpm", &ret_limit->tpm))
        return "has no TPM";
    ret_limit->glob = options_keep_text(loader, item, (size_t)(middle - item));
    return ret_limit->glob ? option_model_problem(ret_limit->glob) : NULL;
}

static const char *limit_repeats(const struct model_limit *limits, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(limits[i].glob, limits[count].glob) == 0)
            return "is the second for the same model";
    return count == MODEL_LIMITS_MAX ? "is one too many: 64 are the most" : NULL;
}

/* The first that fits counts: this one never does where one before fits all that it fits. A star of
 * its own is fitted by a star alone. */
static void warn_covered(struct options_loader *loader, struct option_subject subject,
                         const struct model_limit *limits, size_t count)
{
    const char *glob = limits[count].glob;
    char excerpt[OPTION_EXCERPT_SIZE], before[OPTION_EXCERPT_SIZE];

    for (size_t i = 0; i < count; i++)
        if (!(strchr(limits[i].glob, '?') && strchr(glob, '*')) &&
            parse_glob_matches(limits[i].glob, glob, strlen(glob))) {
            options_warning(loader, subject,
                            "\"%s\" never counts, as \"%s\" stands before it and fits the same "
                            "models; write it first",
                            option_excerpt(excerpt, glob), option_excerpt(before, limits[i].glob));
            return;
        }
}

static void check_dashscope_wait(struct options_loader *loader, const struct source_options *source,
                                 const struct option_section *section)
{
    struct option_subject subject = option_subject_of(section, "dashscope_wait_s");
    char time[OPTION_DURATION_SIZE];
    int64_t ms = source->dashscope_wait_ms;

    if (ms < 0)
        return;
    if (source->dialect != DIALECT_DASHSCOPE && !option_is_wrong(section, "dialect"))
        options_error(loader, subject,
                      "only DashScope knows such a wait; set dialect = dashscope, or take it away");
    if (ms % 1000 != 0 || (ms > 0 && ms < DASHSCOPE_WAIT_MIN_MS))
        options_error(loader, subject, "%s cannot be; allowed: 0, or 3 to 120 whole seconds",
                      option_duration(ms, time));
}

void options_read_limits(struct options_loader *loader, struct source_options *source)
{
    const struct option_section *section = option_section_of_source(loader->options, source);
    const char *const *items = source->model_limits;
    struct model_limit *limits = options_keep(loader, (count_items(items) + 1) * sizeof *limits);
    size_t count = 0;
    char excerpt[OPTION_EXCERPT_SIZE];

    for (size_t i = 0; items[i] && limits && !loader->out_of_memory; i++) {
        const char *problem = limit_problem(loader, items[i], &limits[count]);

        if (loader->out_of_memory)
            return;
        if (!problem)
            problem = limit_repeats(limits, count);
        if (problem)
            options_error(loader, option_subject_of(section, "model_limits"),
                          "\"%s\" %s; " LIMITS_ALLOWED, option_excerpt(excerpt, items[i]), problem);
        else
            warn_covered(loader, option_subject_of(section, "model_limits"), limits, count++);
    }
    if (limits)
        limits[count] = (struct model_limit){.glob = NULL};
    source->limits = limits;
    check_dashscope_wait(loader, source, section);
}

struct model_limit options_limit_of(const struct source_options *source, const char *model)
{
    for (const struct model_limit *at = source->limits; at->glob; at++)
        if (parse_glob_matches(at->glob, model, strlen(model)))
            return *at;
    return (struct model_limit){.glob = "*", .rpm = source->rpm, .tpm = source->tpm};
}

/* ---- classes of a scope ---------------------------------------------------------------------- */

static bool read_numbers(const char *const *items, uint64_t max, uint32_t numbers[FLOW_CLASSES])
{
    uint64_t number;

    if (count_items(items) != FLOW_CLASSES)
        return false;
    for (size_t i = 0; i < FLOW_CLASSES; i++) {
        if (!parse_u64(items[i], &number) || number < 1 || number > max)
            return false;
        numbers[i] = (uint32_t)number;
    }
    return true;
}

static bool read_waits(const char *const *items, int64_t waits_ms[FLOW_CLASSES])
{
    if (count_items(items) != FLOW_CLASSES)
        return false;
    for (size_t i = 0; i < FLOW_CLASSES; i++)
        if (!parse_duration_ms(items[i], 1000, &waits_ms[i]) || waits_ms[i] > WAIT_MAX_MS)
            return false;
    return true;
}

static void warn_turned_round(struct options_loader *loader, struct option_subject subject,
                              const uint32_t weights[FLOW_CLASSES])
{
    if (weights[0] < weights[1] || weights[1] < weights[2])
        options_warning(loader, subject,
                        "gives interactive %" PRIu32 ", normal %" PRIu32 " and bulk %" PRIu32
                        ": one class has a larger share than another that is more urgent; they "
                        "stand in that order",
                        weights[0], weights[1], weights[2]);
}

/* Also for the scope made for a route, which has no section and only defaults. */
void options_read_classes(struct options_loader *loader, struct scope_options *scope)
{
    if (!read_numbers(scope->flow_weights, WEIGHT_MAX, scope->weights))
        options_error(
            loader,
            option_subject_of(option_section_of_scope(loader->options, scope), "flow_weights"),
            "these are no weights; " WEIGHTS_ALLOWED);
    else if (!scope->direct)
        warn_turned_round(
            loader,
            option_subject_of(option_section_of_scope(loader->options, scope), "flow_weights"),
            scope->weights);
    if (!read_waits(scope->flow_max_wait_s, scope->max_wait_ms))
        options_error(
            loader,
            option_subject_of(option_section_of_scope(loader->options, scope), "flow_max_wait_s"),
            "these are no times; " WAITS_ALLOWED);
}

void options_read_image_classes(struct options_loader *loader)
{
    struct image_concurrency_options *image = &loader->options->image;
    const struct option_section *section =
        option_section_find(loader->options, OPTION_SECTION_image_concurrency, "");
    const struct option_subject bounds = option_subject_of(section, "class_max_waiting");
    const struct option_subject shares = option_subject_of(section, "class_weights");
    uint32_t weights[FLOW_CLASSES] = {0};
    uint32_t most[FLOW_CLASSES] = {0};

    if (image->class_weights[0] && !read_numbers(image->class_weights, WEIGHT_MAX, weights))
        options_error(loader, shares, "these are no weights; " WEIGHTS_ALLOWED ", or nothing");
    else
        warn_turned_round(loader, shares, weights);
    if (image->class_max_waiting[0] && !read_numbers(image->class_max_waiting, WAITING_MAX, most))
        options_error(loader, bounds, "these are no bounds; " BOUNDS_ALLOWED ", or nothing");
    if (image->class_max_waiting[0] && !image->class_weights[0])
        options_warning(loader, bounds, "has no effect where class_weights is empty");
    for (size_t c = 0; c < FLOW_CLASSES && image->class_weights[0]; c++)
        image->classes[c] = (struct queue_terms){.weight = weights[c], .max_waiting = most[c]};
}

/* ---- for shared/flow.h ----------------------------------------------------------------------- */

uint64_t options_flow_origin(const struct scope_options *scope)
{
    return hash_bytes(scope->name, strlen(scope->name));
}

struct flow_terms options_flow_terms(const struct scope_options *scope,
                                     const struct source_options *source, const char *model)
{
    struct model_limit limit = options_limit_of(source, model);
    int64_t all = limit.rpm > 0 ? limit.rpm : FLOW_INITIAL_ALL;
    int64_t initial = scope->flow == FLOW_STRATEGY_RATE ? all : 0;
    struct flow_terms terms = {
        .origin = options_flow_origin(scope),
        .strategy = (enum flow_strategy)scope->flow,
        .unit = (enum flow_unit)source->flow_unit,
        .requests_quota = limit.rpm,
        .units_quota = source->flow_unit == FLOW_UNIT_TASKS ? 0 : limit.tpm,
        .ignores_told = source->limit_headers == LIMIT_HEADERS_IGNORE,
        .initial_requests = scope->flow_initial >= 0 ? scope->flow_initial : initial,
        .warmup_ns = scope->flow_warmup_ms * INT64_C(1000000),
        .max_concurrent = (uint32_t)source->max_concurrency,
        .server_queueing = source->dashscope_wait_ms > 0,
        .max_waiting = (uint32_t)scope->flow_max_waiting,
        .max_waiting_per_client = (uint32_t)scope->flow_max_waiting_per_client,
    };

    for (size_t i = 0; i < FLOW_CLASSES; i++) {
        terms.weights[i] = scope->weights[i];
        terms.max_wait_ns[i] = scope->max_wait_ms[i] * INT64_C(1000000);
    }
    return terms;
}

/* ---- has the strategy what it needs? --------------------------------------------------------- */

/* What of a quota is not known though the strategy needs it; NULL: nothing. */
static const char *lacking(const struct scope_options *scope, const struct source_options *source,
                           int64_t rpm, int64_t tpm)
{
    bool needs_tpm = scope->flow == FLOW_STRATEGY_SHAPING && source->flow_unit != FLOW_UNIT_TASKS;

    if (rpm == 0)
        return needs_tpm && tpm == 0 ? "rpm and tpm" : "rpm";
    return needs_tpm && tpm == 0 ? "tpm" : NULL;
}

static void check_quotas_known(struct options_loader *loader, const struct scope_options *scope,
                               const struct source_options *source, struct option_subject subject)
{
    const char *strategy = option_row_of(OPTION_SECTION_scope, "flow")->words[scope->flow];
    const char *missing = lacking(scope, source, source->rpm, source->tpm);
    bool none_at_all = source->rpm == 0 && source->tpm == 0;

    if (source->limit_headers == LIMIT_HEADERS_RELY ||
        option_is_one_wrong(
            option_section_of_source(loader->options, source),
            OPTION_KEYS("rpm", "tpm", "model_limits", "limit_headers", "flow_unit")))
        return;
    if (missing && none_at_all && source->limits->glob)
        options_warning(loader, subject,
                        "only the models in model_limits of [source %s] are kept within limits, as "
                        "it has no %s for the others",
                        source->name, missing);
    else if (missing)
        options_error(
            loader, subject,
            "%s needs %s of each source, and [source %s] does not say it; write %s = "
            "what the upstream grants per minute%s, limit_headers = rely if its answers tell "
            "it, or flow = adaptive, which learns it",
            strategy, missing, source->name, strncmp(missing, "rpm", 3) == 0 ? "rpm" : "tpm",
            strcmp(missing, "rpm and tpm") == 0 ? ", and tpm" : "");
    for (const struct model_limit *at = source->limits; at->glob; at++) {
        missing = lacking(scope, source, at->rpm, at->tpm);
        if (missing)
            options_error(loader, subject,
                          "%s needs %s of each model, and model_limits of [source %s] has 0 for "
                          "%s; write MODEL:RPM:TPM with what the upstream grants",
                          strategy, missing, source->name, at->glob);
    }
}

/* ---- one account, one word ------------------------------------------------------------------- */

static bool same_limits(const struct model_limit *a, const struct model_limit *b)
{
    for (; a->glob && b->glob; a++, b++)
        if (strcmp(a->glob, b->glob) != 0 || a->rpm != b->rpm || a->tpm != b->tpm)
            return false;
    return !a->glob && !b->glob;
}

/* The option in which sources of one account differ; NULL: they agree. */
static const char *disagreement(const struct source_options *a, const struct source_options *b)
{
    if (a->rpm != b->rpm)
        return "rpm";
    if (a->tpm != b->tpm)
        return "tpm";
    if (!same_limits(a->limits, b->limits))
        return "model_limits";
    if (a->limit_headers != b->limit_headers)
        return "limit_headers";
    if (a->max_concurrency != b->max_concurrency)
        return "max_concurrency";
    return a->flow_unit != b->flow_unit ? "flow_unit" : NULL;
}

/* Each with the first of its account. */
static void check_agreement(struct options_loader *loader, const struct source_options *source)
{
    const struct source_options *first = loader->options->sources;
    const char *key;

    while (strcmp(first->quota_group, source->quota_group) != 0)
        first++;
    key = disagreement(first, source);
    if (key && !option_is_wrong(option_section_of_source(loader->options, first), key) &&
        !option_is_wrong(option_section_of_source(loader->options, source), key))
        options_error(loader,
                      option_subject_of(option_section_of_source(loader->options, source), key),
                      "is not what [source %s] says, which has the quota_group \"%s\" too: the "
                      "limits belong to the account; write the same in both",
                      first->name, source->quota_group);
}

static const struct source_options *shared_account(const struct scope_options *a,
                                                   const struct scope_options *b)
{
    for (size_t i = 0; i < a->member_count; i++)
        for (size_t k = 0; k < b->member_count; k++)
            if (strcmp(a->members[i].source->quota_group, b->members[k].source->quota_group) == 0)
                return b->members[k].source;
    return NULL;
}

/* What two scopes with the same account say otherwise about its one bucket and queue; NULL: nothing.
 */
static const char *clash(const struct scope_options *a, const struct scope_options *b)
{
    if (a->flow != b->flow)
        return "flow";
    if (memcmp(a->weights, b->weights, sizeof a->weights) != 0)
        return "flow_weights";
    if (needs_limits(a) && a->flow_initial != b->flow_initial)
        return "flow_initial";
    return a->flow == FLOW_STRATEGY_SHAPING && a->flow_warmup_ms != b->flow_warmup_ms
               ? "flow_warmup_s"
               : NULL;
}

static void check_scope_pair(struct options_loader *loader, const struct scope_options *scope,
                             const struct scope_options *other)
{
    const struct source_options *account = shared_account(scope, other);
    const char *key;

    if (!account)
        return;
    key = clash(other, scope);
    if (key && !option_is_wrong(option_section_of_scope(loader->options, scope), key) &&
        !option_is_wrong(option_section_of_scope(loader->options, other), key))
        options_error(loader,
                      option_subject_of(option_section_of_scope(loader->options, scope), key),
                      "is not what [scope %s] says, which shares the quota_group \"%s\": calls of "
                      "both wait in one queue; write the same in both",
                      other->name, account->quota_group);
}

/* Calls that go past the queue. */
static void warn_uncounted(struct options_loader *loader, const struct scope_options *scope,
                           const struct scope_options *other)
{
    const struct source_options *account = shared_account(scope, other);

    if (account && (other->direct ||
                    !option_is_wrong(option_section_of_scope(loader->options, other), "flow")))
        options_warning(
            loader, option_subject_of(option_section_of_scope(loader->options, scope), "flow"),
            "calls of [%s %s] to the quota_group \"%s\" are not counted; %s",
            other->direct ? "route" : "scope", other->name, account->quota_group,
            other->direct ? "give it scope in place of source" : "set the same flow there");
}

static void check_scope(struct options_loader *loader, const struct scope_options *scope)
{
    const struct options *options = loader->options;
    const struct option_section *section = option_section_of_scope(loader->options, scope);
    bool before = true;

    if (!counts_calls(scope))
        return;
    for (size_t i = 0; i < scope->member_count; i++)
        if (needs_limits(scope))
            check_quotas_known(loader, scope, scope->members[i].source,
                               option_subject_of(section, "flow"));
    for (size_t i = 0; i < options->scope_count; i++) {
        const struct scope_options *other = &options->scopes[i];

        if (other == scope)
            before = false;
        else if (!counts_calls(other))
            warn_uncounted(loader, scope, other);
        else if (before)
            check_scope_pair(loader, scope, other);
    }
}

void options_check_flow(struct options_loader *loader)
{
    const struct options *options = loader->options;

    for (size_t i = 0; i < options->source_count; i++)
        check_agreement(loader, &options->sources[i]);
    for (size_t i = 0; i < options->scope_count; i++)
        if (!options->scopes[i].direct)
            check_scope(loader, &options->scopes[i]);
}
