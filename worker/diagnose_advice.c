/* diagnose_advice.c - option lines for limits that were met; see diagnose_advice.h. */
#include "worker/diagnose_advice.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DASHSCOPE_WAIT "dashscope_wait_s = 30"
#define BELOW_PERCENT 95 /* of what was refused is used */
#define ADAPTIVE_SHARE_PERCENT 2

const char *const diagnose_beyond[] = {
    "raise the quota: providers grant more on request, and to accounts that are used and paid",
    "reserve throughput: provisioned units (PTU) have no rate limit shared with others",
    "send what can wait elsewhere: the provider's Batch API has quotas of its own, and is cheaper",
    "have a fallback model, and test it before it is needed: penstockctl try-fallback SCOPE",
};
const size_t diagnose_beyond_count = LENGTH(diagnose_beyond);

static const char *const strategy_words[] = {"none", "retry", "rate", "shaping", "adaptive"};

/* What one piece of advice is made of. */
struct advising {
    const struct options *options;
    const struct diagnose_flow *flow;
    struct diagnose_advice *advice;
    enum flow_strategy now; /* the strongest of the scopes that use the account */
    bool any_scope;
};

static void note(struct advising *advising, const char *format, ...) PRINTF_LIKE(2, 3);
static void note(struct advising *advising, const char *format, ...)
{
    struct diagnose_advice *advice = advising->advice;
    va_list arguments;

    if (advice->note_count == ADVICE_NOTES_MAX)
        return;
    va_start(arguments, format);
    (void)vsnprintf(advice->notes[advice->note_count++], sizeof advice->notes[0], format,
                    arguments);
    va_end(arguments);
}

struct place {
    const char *kind, *name; /* of the section */
};

static void line(struct advising *advising, struct place place, const char *text, const char *now)
{
    struct diagnose_advice *advice = advising->advice;
    struct advice_line new_line;
    unsigned at = 0;

    if (advice->line_count == ADVICE_LINES_MAX)
        return;
    (void)snprintf(new_line.section, sizeof new_line.section, "%s %.*s", place.kind, NAME_SIZE,
                   place.name);
    (void)snprintf(new_line.line, sizeof new_line.line, "%s", text);
    (void)snprintf(new_line.now, sizeof new_line.now, "%s", now);
    for (unsigned i = 0; i < advice->line_count; i++)
        if (strcmp(advice->lines[i].section, new_line.section) == 0)
            at = i + 1;
    if (at == 0)
        at = advice->line_count;
    memmove(&advice->lines[at + 1], &advice->lines[at],
            (advice->line_count - at) * sizeof advice->lines[0]);
    advice->lines[at] = new_line;
    advice->line_count++;
}

static void count_line(struct advising *advising, struct place place, const char *key,
                       int64_t value, int64_t now)
{
    char text[64], before[32];

    (void)snprintf(text, sizeof text, "%s = %" PRId64, key, value);
    (void)snprintf(before, sizeof before, "%" PRId64, now);
    line(advising, place, text, now > 0 ? before : "");
}

/* ---- what there is ------------------------------------------------------------------------------ */

static bool is_in_group(const struct source_options *source, const char *quota_group)
{
    char cut[NAME_SIZE];

    (void)text_copy(cut, sizeof cut, source->quota_group);
    return strcmp(cut, quota_group) == 0;
}

static bool uses_group(const struct scope_options *scope, const char *quota_group)
{
    for (size_t i = 0; i < scope->member_count; i++)
        if (is_in_group(scope->members[i].source, quota_group))
            return true;
    return false;
}

/* The model as this source calls it. */
static const char *model_at(const struct source_options *source, const char *model)
{
    for (const struct option_pair *alias = source->aliases; alias->name; alias++)
        if (strcmp(alias->name, model) == 0)
            return alias->value;
    return model;
}

struct model_limit diagnose_quota(const struct options *options, const char *quota_group,
                                  const char *model)
{
    for (size_t i = 0; options && i < options->source_count; i++)
        if (is_in_group(&options->sources[i], quota_group))
            return options_limit_of(&options->sources[i], model_at(&options->sources[i], model));
    return (struct model_limit){.glob = "*"};
}

const char *diagnose_source_model(const struct options *options, const char *quota_group,
                                  const char *model)
{
    for (size_t i = 0; options && i < options->source_count; i++)
        if (is_in_group(&options->sources[i], quota_group))
            return model_at(&options->sources[i], model);
    return model;
}

/* Could the scope be loaded with this strategy? (options_flow.c asks the same.) */
static bool has_quotas(const struct scope_options *scope, enum flow_strategy strategy)
{
    for (size_t i = 0; i < scope->member_count; i++) {
        const struct source_options *source = scope->members[i].source;
        bool needs_tpm =
            strategy == FLOW_STRATEGY_SHAPING && source->flow_unit != (int)FLOW_UNIT_TASKS;

        if ((source->rpm == 0 || (needs_tpm && source->tpm == 0)) &&
            !(source->rpm == 0 && source->tpm == 0 && source->limits->glob))
            return false;
        for (const struct model_limit *at = source->limits; at->glob; at++)
            if (at->rpm == 0 || (needs_tpm && at->tpm == 0))
                return false;
    }
    return true;
}

static bool share_an_account(const struct scope_options *a, const struct scope_options *b)
{
    for (size_t i = 0; i < a->member_count; i++)
        if (uses_group(b, a->members[i].source->quota_group))
            return true;
    return false;
}

/* It uses the account; or calls of it wait in one queue with those of a scope that does, so that both
 * must have the same strategy. */
static bool is_affected(const struct advising *advising, const struct scope_options *scope)
{
    const struct options *options = advising->options;

    if (uses_group(scope, advising->flow->quota_group))
        return true;
    for (size_t i = 0; i < options->scope_count; i++)
        if (scope->flow >= (int)FLOW_STRATEGY_RATE && !options->scopes[i].direct &&
            uses_group(&options->scopes[i], advising->flow->quota_group) &&
            share_an_account(scope, &options->scopes[i]))
            return true;
    return false;
}

static bool all_have_quotas(const struct advising *advising, enum flow_strategy strategy)
{
    for (size_t i = 0; i < advising->options->scope_count; i++)
        if (is_affected(advising, &advising->options->scopes[i]) &&
            !has_quotas(&advising->options->scopes[i], strategy))
            return false;
    return true;
}

static void find_scopes(struct advising *advising)
{
    for (size_t i = 0; advising->options && i < advising->options->scope_count; i++) {
        const struct scope_options *scope = &advising->options->scopes[i];

        if (!uses_group(scope, advising->flow->quota_group))
            continue;
        advising->any_scope = true;
        if (scope->flow > (int)advising->now)
            advising->now = (enum flow_strategy)scope->flow;
    }
}

static size_t met(const struct advising *advising, enum diagnose_limit limit)
{
    return advising->flow->findings[limit].count;
}

/* ---- what is needed ----------------------------------------------------------------------------- */

/* DashScope can keep a call that comes too early instead of refusing it: the first choice. True: that is
 * new, and all that is needed. */
static bool let_upstream_queue(struct advising *advising)
{
    bool lets = false;

    for (size_t i = 0; advising->options && i < advising->options->source_count; i++) {
        const struct source_options *source = &advising->options->sources[i];

        if (!is_in_group(source, advising->flow->quota_group) ||
            source->dialect != DIALECT_DASHSCOPE || source->dashscope_wait_ms > 0)
            continue;
        line(advising, (struct place){"source", source->name}, DASHSCOPE_WAIT,
             source->dashscope_wait_ms == 0 ? "0" : "");
        lets = true;
    }
    return lets;
}

static enum flow_strategy strategy_for(enum diagnose_limit limit)
{
    static const enum flow_strategy strategies[DIAGNOSE_LIMITS] = {
        [DIAGNOSE_RPM] = FLOW_STRATEGY_RATE,         [DIAGNOSE_RPS] = FLOW_STRATEGY_SHAPING,
        [DIAGNOSE_TPM] = FLOW_STRATEGY_SHAPING,      [DIAGNOSE_TPS] = FLOW_STRATEGY_SHAPING,
        [DIAGNOSE_BURST] = FLOW_STRATEGY_SHAPING,    [DIAGNOSE_SATURATION] = FLOW_STRATEGY_ADAPTIVE,
        [DIAGNOSE_DAY] = FLOW_STRATEGY_NONE,         [DIAGNOSE_MONEY] = FLOW_STRATEGY_NONE,
        [DIAGNOSE_UNKNOWN] = FLOW_STRATEGY_ADAPTIVE,
    };

    return strategies[limit];
}

static void quota_lines(struct advising *advising, const char *key, int64_t quota, int64_t most)
{
    for (size_t i = 0; advising->options && i < advising->options->source_count; i++) {
        const struct source_options *source = &advising->options->sources[i];
        int64_t now = key[0] == 'r' ? source->rpm : source->tpm;

        if (is_in_group(source, advising->flow->quota_group) && now == quota)
            count_line(advising, (struct place){"source", source->name}, key, most, now);
    }
}

static bool is_told_lower(int64_t quota, int64_t told)
{
    return told > 0 && told < quota;
}

/* The upstream itself says that the quota is lower. */
static void advise_told(struct advising *advising, const char *key, int64_t quota, int64_t told)
{
    if (!is_told_lower(quota, told) || advising->flow->refused == 0)
        return;
    quota_lines(advising, key, quota, told);
    note(advising, "Configured %s = %" PRId64 ", the upstream says %" PRId64 ".", key, quota, told);
}

/* The account was refused below the quota that the configuration has: it must be lower. */
static bool lower_quota(struct advising *advising, const char *key, int64_t refused_at,
                        int64_t quota)
{
    int64_t most = refused_at * BELOW_PERCENT / 100;

    if (quota <= 0 || most < 1 || most >= quota)
        return false;
    quota_lines(advising, key, quota, most);
    note(advising,
         "Configured %s = %" PRId64 ", refused at %" PRId64
         " in 60 s: the account is granted less, or somebody else uses it too; if so, "
         "flow = adaptive follows what is left.",
         key, quota, refused_at);
    return true;
}

/* A start that is slower than the one there is. True: there is one. */
static bool start_slowly(struct advising *advising, const struct scope_options *scope)
{
    const struct place place = {"scope", scope->name};
    char now[32];

    if (scope->flow_initial > 0) {
        (void)snprintf(now, sizeof now, "%" PRId64, scope->flow_initial);
        line(advising, place, "flow_initial = 0", now);
    }
    if (scope->flow_warmup_ms == 0)
        line(advising, place, "flow_warmup_s = 60", "0");
    return scope->flow_initial > 0 || scope->flow_warmup_ms == 0;
}

static bool all_start_slowly(struct advising *advising)
{
    bool slower = false;

    for (size_t i = 0; i < advising->options->scope_count; i++)
        if (!advising->options->scopes[i].direct &&
            uses_group(&advising->options->scopes[i], advising->flow->quota_group) &&
            start_slowly(advising, &advising->options->scopes[i]))
            slower = true;
    return slower;
}

/* Were there enough of them to change a number, or what is in force already? */
static bool is_enough(struct advising *advising, enum diagnose_limit limit)
{
    const struct diagnose_finding *finding = &advising->flow->findings[limit];

    if (finding->in_force >= DIAGNOSE_LEAST)
        return true;
    if (finding->in_force < finding->count)
        note(advising,
             "%s: %zu of %zu refusals were met under another configuration, before the present one "
             "was loaded; nothing is concluded from those.",
             diagnose_limit_name(limit), finding->count - finding->in_force, finding->count);
    else
        note(advising, "%s: %zu refused, too few to change anything for.",
             diagnose_limit_name(limit), finding->count);
    return false;
}

/* The strategy in force should have kept the limit, and did not. */
static enum flow_strategy step_up(struct advising *advising, enum diagnose_limit limit)
{
    const struct diagnose_finding *finding = &advising->flow->findings[limit];

    if (advising->now == FLOW_STRATEGY_ADAPTIVE)
        return FLOW_STRATEGY_ADAPTIVE;
    if ((limit == DIAGNOSE_RPM && is_told_lower(advising->flow->rpm, advising->flow->rpm_told)) ||
        (limit == DIAGNOSE_TPM && is_told_lower(advising->flow->tpm, advising->flow->tpm_told)))
        return advising->now; /* that number first (advise_told) */
    if (!is_enough(advising, limit))
        return advising->now;
    if (limit == DIAGNOSE_RPM &&
        lower_quota(advising, "rpm", finding->sends_in_force, advising->flow->rpm))
        return advising->now;
    if (limit == DIAGNOSE_TPM &&
        lower_quota(advising, "tpm", finding->tokens_in_force, advising->flow->tpm))
        return advising->now;
    if (limit == DIAGNOSE_BURST && advising->now == FLOW_STRATEGY_SHAPING &&
        all_start_slowly(advising))
        return advising->now;
    return advising->now == FLOW_STRATEGY_RATE ? FLOW_STRATEGY_SHAPING : FLOW_STRATEGY_ADAPTIVE;
}

static enum flow_strategy needed(struct advising *advising)
{
    enum flow_strategy most = FLOW_STRATEGY_NONE;

    for (unsigned i = 0; i < DIAGNOSE_LIMITS; i++) {
        enum diagnose_limit limit = (enum diagnose_limit)i;
        enum flow_strategy strategy = strategy_for(limit);

        if (met(advising, limit) == 0 || strategy == FLOW_STRATEGY_NONE ||
            (limit == DIAGNOSE_BURST && let_upstream_queue(advising)))
            continue;
        if (strategy <= advising->now)
            strategy = step_up(advising, limit);
        if (strategy > most)
            most = strategy;
    }
    return most;
}

/* ---- how it is written -------------------------------------------------------------------------- */

static void flow_line(struct advising *advising, struct place place, enum flow_strategy strategy,
                      enum flow_strategy now)
{
    char text[40];

    (void)snprintf(text, sizeof text, "flow = %s", strategy_words[strategy]);
    line(advising, place, text, strategy_words[now]);
}

/* A route that names a source has no scope that could have flow control. */
static void make_scope(struct advising *advising, const struct scope_options *direct,
                       enum flow_strategy strategy)
{
    const struct options *options = advising->options;
    const char *source = direct->members[0].source->name;
    char name[NAME_SIZE], text[NAME_SIZE + 16];

    (void)snprintf(name, sizeof name, "%.40s-flow", source);
    (void)snprintf(text, sizeof text, "sources = %.60s", source);
    for (size_t i = 0; i < options->route_count; i++) {
        char old[40], scope[NAME_SIZE + 16];

        if (options->routes[i].to != direct)
            continue;
        (void)snprintf(old, sizeof old, "source = %.30s", source);
        (void)snprintf(scope, sizeof scope, "scope = %s", name);
        line(advising, (struct place){"route", options->routes[i].name}, scope, old);
    }
    for (unsigned i = 0; i < advising->advice->line_count; i++)
        if (strncmp(advising->advice->lines[i].section, "scope ", 6) == 0 &&
            strcmp(advising->advice->lines[i].section + 6, name) == 0)
            return; /* for another route */
    line(advising, (struct place){"scope", name}, text, "");
    flow_line(advising, (struct place){"scope", name}, strategy, FLOW_STRATEGY_NONE);
}

static void write_flow(struct advising *advising, enum flow_strategy strategy)
{
    for (size_t i = 0; i < advising->options->scope_count; i++) {
        const struct scope_options *scope = &advising->options->scopes[i];

        if (!is_affected(advising, scope))
            continue;
        if (scope->direct) {
            if (strategy != FLOW_STRATEGY_NONE)
                make_scope(advising, scope, strategy);
            continue;
        }
        if (scope->flow != (int)strategy)
            flow_line(advising, (struct place){"scope", scope->name}, strategy,
                      (enum flow_strategy)scope->flow);
        if (strategy == FLOW_STRATEGY_SHAPING && met(advising, DIAGNOSE_BURST) > 0)
            (void)start_slowly(advising, scope);
    }
}

static void advise_flow(struct advising *advising)
{
    enum flow_strategy strategy = needed(advising);
    bool told = strategy == FLOW_STRATEGY_RATE || strategy == FLOW_STRATEGY_SHAPING;

    if (strategy == FLOW_STRATEGY_NONE)
        return;
    if (!advising->any_scope) {
        note(advising, "%s In each scope that uses this account: flow = %s%s.",
             advising->options ? "The configuration names this account no more."
                               : "The configuration could not be read.",
             strategy_words[strategy],
             told ? ", with rpm and tpm of its sources; or flow = adaptive, which learns them"
                  : "");
        return;
    }
    if (told && !all_have_quotas(advising, strategy)) {
        note(advising,
             "flow = %s would do, but needs %s of each source; adaptive learns them. Where the "
             "provider tells them, write them: it then starts with what is known.",
             strategy_words[strategy], strategy == FLOW_STRATEGY_RATE ? "rpm" : "rpm and tpm");
        strategy = FLOW_STRATEGY_ADAPTIVE;
    }
    if (strategy > advising->now)
        write_flow(advising, strategy);
}

static void advise_adaptive(struct advising *advising)
{
    const struct diagnose_flow *flow = advising->flow;
    size_t limited = flow->refused - met(advising, DIAGNOSE_DAY) - met(advising, DIAGNOSE_MONEY);

    if (advising->now != FLOW_STRATEGY_ADAPTIVE || limited == 0)
        return;
    if (limited < DIAGNOSE_LEAST || limited * 100 <= flow->attempts * ADAPTIVE_SHARE_PERCENT)
        note(advising,
             "flow = adaptive is on: some refusals are how it finds the limit; nothing is to be "
             "changed.");
    else
        note(advising,
             "flow = adaptive is on and still often refused: the limit changes fast, or others use "
             "the account. penstockctl flows tells what it has learned; max_concurrency of the "
             "source bounds it.");
}

static void advise_in_flight(struct advising *advising)
{
    static const enum diagnose_limit limits[] = {DIAGNOSE_RPS, DIAGNOSE_TPS, DIAGNOSE_SATURATION};

    for (size_t i = 0; i < LENGTH(limits); i++) {
        const struct diagnose_finding *finding = &advising->flow->findings[limits[i]];

        if (finding->in_force >= DIAGNOSE_LEAST && finding->in_progress > 1)
            note(advising,
                 "%s was never met with fewer than %" PRId64
                 " calls in progress: max_concurrency = %" PRId64
                 " of its sources, with any flow from rate on, bounds them as well.",
                 diagnose_limit_name(limits[i]), finding->in_progress, finding->in_progress - 1);
    }
}

void diagnose_advise(const struct options *options, const struct diagnose_flow *flow,
                     struct diagnose_advice *ret)
{
    struct advising advising = {.options = options, .flow = flow, .advice = ret};

    ret->line_count = ret->note_count = 0;
    find_scopes(&advising);
    advise_told(&advising, "rpm", flow->rpm, flow->rpm_told);
    advise_told(&advising, "tpm", flow->tpm, flow->tpm_told);
    advise_flow(&advising);
    advise_adaptive(&advising);
    advise_in_flight(&advising);
    if (met(&advising, DIAGNOSE_DAY) > 0)
        note(&advising, "The day's quota is spent: more of it, a source of another account in the "
                        "scope, or fallback in the scope; no flow control helps.");
    if (met(&advising, DIAGNOSE_MONEY) > 0)
        note(&advising,
             "The account has no money: pay; meanwhile a source with another quota_group "
             "in the scope answers. Then penstockctl undrain SOURCE lets calls go there "
             "again.");
}
