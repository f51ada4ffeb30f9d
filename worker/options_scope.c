/* options_scope.c - what names something else: the sources of scopes, their fallbacks, where routes
 * go; see options_table.h. */
#include "base/parse.h"
#include "shared/layout.h"
#include "worker/options_table.h"

#include <string.h>

#define WEIGHT_MAX 1000U
#define NAMES_LISTED_BYTES 400U /* of the names a message offers */

/* ---- names of other sections ----------------------------------------------------------------- */

static const struct source_options *find_source(const struct options *options, const char *name)
{
    for (size_t i = 0; i < options->source_count; i++)
        if (strcmp(options->sources[i].name, name) == 0)
            return &options->sources[i];
    return NULL;
}

/* Those that stand in a file. */
static const struct scope_options *find_scope(const struct options *options, const char *name)
{
    for (size_t i = 0; i < options->scope_count; i++)
        if (!options->scopes[i].direct && strcmp(options->scopes[i].name, name) == 0)
            return &options->scopes[i];
    return NULL;
}

/* "a, b, c", or that there is none. */
static void append_names(const struct options *options, enum option_section_kind kind,
                         struct text *out)
{
    size_t begin = out->length;

    for (const struct option_section *at = options->own->sections; at; at = at->next) {
        if (at->kind != kind)
            continue;
        text_printf(out, "%s%s", out->length == begin ? "" : ", ", at->name);
        if (out->length - begin > NAMES_LISTED_BYTES) {
            text_append_string(out, ", ...");
            break;
        }
    }
    if (out->length == begin)
        text_printf(out, "the name of a [%s NAME], of which there is none",
                    option_section_words[kind]);
}

static void append_nearest(const struct options *options, enum option_section_kind kind,
                           const char *name, struct text *out)
{
    struct option_suggestion suggestion;

    option_suggestion_init(&suggestion, name);
    for (const struct option_section *at = options->own->sections; at; at = at->next)
        if (at->kind == kind)
            option_suggestion_offer(&suggestion, at->name);
    option_suggestion_append(&suggestion, out);
}

/* No section of this kind has the name. */
static void refuse_name(struct options_loader *loader, struct option_subject subject,
                        enum option_section_kind kind, const char *name)
{
    struct text tail;
    char excerpt[OPTION_EXCERPT_SIZE];

    text_init(&tail, 1000);
    append_names(loader->options, kind, &tail);
    append_nearest(loader->options, kind, name, &tail);
    options_error(loader, subject, "there is no [%s %s]; allowed: %s", option_section_words[kind],
                  option_excerpt(excerpt, name), text_string(&tail));
    text_release(&tail);
}

/* ---- members --------------------------------------------------------------------------------- */

/* NAME or NAME*WEIGHT; NULL when there is no memory. */
static const char *cut_weight(struct options_loader *loader, const char *item,
                              const char **ret_weight)
{
    const char *star = strchr(item, '*');
    size_t length = star ? (size_t)(star - item) : strlen(item);

    *ret_weight = star ? star + 1 + strspn(star + 1, " \t") : NULL;
    while (star && length > 0 && (item[length - 1] == ' ' || item[length - 1] == '\t'))
        length--;
    return options_keep_text(loader, item, length);
}

/* False: the entry is no member, and that was said. */
static bool read_member(struct options_loader *loader, struct option_subject subject,
                        const char *item, struct scope_member *ret_member)
{
    const char *weight;
    const char *name = cut_weight(loader, item, &weight);
    uint64_t number = 1;
    char excerpt[OPTION_EXCERPT_SIZE];

    if (!name)
        return false;
    ret_member->source = find_source(loader->options, name);
    if (!ret_member->source) {
        refuse_name(loader, subject, OPTION_SECTION_source, name);
        return false;
    }
    if (weight && (!parse_u64(weight, &number) || number < 1 || number > WEIGHT_MAX)) {
        options_error(loader, subject,
                      "\"%s\" has no weight; allowed: %s*WEIGHT with a whole number from 1 to 1000",
                      option_excerpt(excerpt, item), name);
        return false;
    }
    ret_member->weight = (uint32_t)number;
    return true;
}

static bool has_member(const struct scope_member *members, size_t count,
                       const struct source_options *source)
{
    for (size_t i = 0; i < count; i++)
        if (members[i].source == source)
            return true;
    return false;
}

/* Several sources in the scope's own order. */
static void link_members(struct options_loader *loader, struct scope_options *scope,
                         struct option_subject subject)
{
    struct scope_member *members;
    bool weighted = false;
    size_t count = 0;
    size_t kept = 0;

    while (scope->sources[count])
        count++;
    members = options_keep(loader, (count + 1) * sizeof *members);
    for (size_t i = 0; i < count && !loader->out_of_memory; i++) {
        struct scope_member member;

        if (!read_member(loader, subject, scope->sources[i], &member))
            continue;
        weighted = weighted || member.weight > 1;
        if (has_member(members, kept, member.source))
            options_error(loader, subject,
                          "%s stands in it twice; allowed: each source once, with a WEIGHT for a "
                          "larger share",
                          member.source->name);
        else
            members[kept++] = member;
    }
    scope->members = members;
    scope->member_count = kept;
    if (weighted && scope->balance == BALANCE_ORDERED &&
        !option_is_wrong(option_section_of_scope(loader->options, scope), "balance"))
        options_warning(loader, subject,
                        "weights have no effect with balance = ordered; set balance = weighted");
}

static void check_members(struct options_loader *loader, struct scope_options *scope)
{
    struct option_subject subject =
        option_subject_of(option_section_of_scope(loader->options, scope), "sources");
    struct text tail;

    if (scope->sources[0]) {
        link_members(loader, scope, subject);
        return;
    }
    if (option_is_wrong(option_section_of_scope(loader->options, scope), "sources"))
        return;
    text_init(&tail, 1000);
    append_names(loader->options, OPTION_SECTION_source, &tail);
    options_error(loader, subject, "is missing; allowed: NAME or NAME*WEIGHT, ... of: %s",
                  text_string(&tail));
    text_release(&tail);
}

/* An account that two scopes share; NULL: none. */
static const struct source_options *shared_account(const struct scope_options *scope,
                                                   const struct scope_options *other)
{
    for (size_t i = 0; i < other->member_count; i++)
        for (size_t k = 0; k < scope->member_count; k++)
            if (strcmp(other->members[i].source->quota_group,
                       scope->members[k].source->quota_group) == 0)
                return other->members[i].source;
    return NULL;
}

/* ---- fallbacks ------------------------------------------------------------------------------- */

static void warn_about_fallback(struct options_loader *loader, const struct scope_options *scope,
                                struct option_subject subject,
                                const struct scope_fallback *fallback)
{
    const struct source_options *shared;
    struct text near;
    char excerpt[OPTION_EXCERPT_SIZE];

    if (fallback->scope) {
        shared = shared_account(scope, fallback->scope);
        if (shared)
            options_warning(loader, subject,
                            "source %s of [scope %s] has the quota_group \"%s\", as one of this "
                            "scope has: where the one is throttled, so is the other",
                            shared->name, fallback->scope->name, shared->quota_group);
        return;
    }
    if (find_source(loader->options, fallback->model)) {
        options_warning(
            loader, subject,
            "\"%s\" is taken for a model, not for the [source] of that name; a fallback "
            "is a scope or a model",
            option_excerpt(excerpt, fallback->model));
        return;
    }
    text_init(&near, 200);
    append_nearest(loader->options, OPTION_SECTION_scope, fallback->model, &near);
    if (near.length > 0)
        options_warning(loader, subject,
                        "\"%s\" is taken for a model, as no [scope] has the name%s",
                        option_excerpt(excerpt, fallback->model), text_string(&near));
    text_release(&near);
}

/* NULL: it can be one. */
static const char *fallback_problem(const struct scope_options *scope,
                                    const struct scope_fallback *fallback, size_t before)
{
    for (size_t i = 0; i < before; i++) {
        const struct scope_fallback *other = &scope->fallbacks[i];

        if (fallback->scope ? other->scope == fallback->scope
                            : other->model && strcmp(other->model, fallback->model) == 0)
            return "stands in it twice";
    }
    if (fallback->scope == scope)
        return "is this scope itself";
    return fallback->model ? option_model_problem(fallback->model) : NULL;
}

static void link_fallbacks(struct options_loader *loader, struct scope_options *scope)
{
    struct option_subject subject =
        option_subject_of(option_section_of_scope(loader->options, scope), "fallback");
    struct scope_fallback *fallbacks;
    size_t count = 0;
    char excerpt[OPTION_EXCERPT_SIZE];

    while (scope->fallback[count])
        count++;
    fallbacks = options_keep(loader, (count + 1) * sizeof *fallbacks);
    if (!fallbacks)
        return;
    scope->fallbacks = fallbacks;
    for (size_t i = 0; i < count; i++) {
        const char *name = scope->fallback[i];
        struct scope_fallback *fallback = &fallbacks[scope->fallback_count];
        const char *problem;

        *fallback = (struct scope_fallback){.scope = find_scope(loader->options, name)};
        if (!fallback->scope)
            fallback->model = name;
        problem = fallback_problem(scope, fallback, scope->fallback_count);
        if (problem) {
            options_error(loader, subject,
                          "\"%s\" %s; allowed: other scopes, and models, each once",
                          option_excerpt(excerpt, name), problem);
            continue;
        }
        warn_about_fallback(loader, scope, subject, fallback);
        scope->fallback_count++;
    }
}

/* ---- scopes ---------------------------------------------------------------------------------- */

static void check_order(struct options_loader *loader, const struct option_section *section,
                        const char *largest_key, const char *key)
{
    const struct option_row *largest_row = option_row_of(section->kind, largest_key);
    const struct option_row *row = option_row_of(section->kind, key);
    const char *target = section->target;
    char is[OPTION_DURATION_SIZE];
    char least[OPTION_DURATION_SIZE];
    int64_t largest_ms;
    int64_t ms;

    memcpy(&largest_ms, target + largest_row->offset, sizeof largest_ms);
    memcpy(&ms, target + row->offset, sizeof ms);
    if (largest_ms < ms && !option_is_one_wrong(section, OPTION_KEYS(largest_key, key)))
        options_error(loader, option_subject(section, largest_row),
                      "%s is less than %s; allowed: %s or more", option_duration(largest_ms, is),
                      key, option_duration(ms, least));
}

static void settle_stall_budget(struct scope_options *scope)
{
    int64_t longest_ms = 0;

    for (size_t i = 0; i < scope->member_count; i++)
        if (scope->members[i].source->timeout_ms > longest_ms)
            longest_ms = scope->members[i].source->timeout_ms;
    scope->stall_budget_settled_ms =
        scope->stall_budget_ms >= 0 ? scope->stall_budget_ms : 2 * longest_ms;
}

/* The members of all scopes are known. */
static void link_scope(struct options_loader *loader, struct scope_options *scope)
{
    const struct option_section *section = option_section_of_scope(loader->options, scope);

    check_order(loader, section, "backoff_max_s", "backoff_base_s");
    check_order(loader, section, "breaker_cooldown_max_s", "breaker_cooldown_s");
    settle_stall_budget(scope);
    options_check_hedge(loader, scope);
    options_read_classes(loader, scope);
    link_fallbacks(loader, scope);
}

/* A section that is in no list, so that -T does not show it and no variable reaches it. */
static struct option_section *detached_section(struct options_loader *loader,
                                               struct scope_options *scope,
                                               const struct source_options *source)
{
    struct option_section *section = options_keep(loader, sizeof *section);
    size_t sources = (size_t)(option_row_of(OPTION_SECTION_scope, "sources") - option_rows);

    if (!section)
        return NULL;
    section->kind = OPTION_SECTION_scope;
    section->target = scope;
    section->values = options_keep(loader, option_row_count * sizeof *section->values);
    if (!section->values)
        return NULL;
    section->values[sources].text = source->name;
    return section;
}

/* The scope of a route that names a source; NULL when there is no memory. */
static const struct scope_options *implied_scope(struct options_loader *loader,
                                                 const struct route_options *route,
                                                 const struct source_options *source)
{
    struct options *options = loader->options;
    struct scope_options *scope = &options->scopes[options->scope_count];
    struct option_section *section = detached_section(loader, scope, source);
    struct scope_member *member = options_keep(loader, 2 * sizeof *member);

    for (size_t i = 0; i < option_row_count && !loader->out_of_memory; i++)
        if (option_rows[i].section == OPTION_SECTION_scope)
            option_read(loader, section, &option_rows[i]);
    if (loader->out_of_memory)
        return NULL;
    *member = (struct scope_member){.source = source, .weight = 1};
    scope->name = route->name;
    scope->direct = true;
    scope->retry_budget = 0;
    scope->members = member;
    scope->member_count = 1;
    settle_stall_budget(scope);
    options_read_classes(loader, scope);
    options->scope_count++;
    return scope;
}

/* ---- routes ---------------------------------------------------------------------------------- */

/* Neither or both of scope and source are there. */
static void refuse_aim(struct options_loader *loader, const struct route_options *route,
                       const struct option_section *section)
{
    const struct option_row *source = option_row_of(OPTION_SECTION_route, "source");
    struct text tail;

    text_init(&tail, 5000);
    if (*route->source) {
        option_place_text(&section->values[source - option_rows].place, &tail);
        options_error(loader, option_subject_of(section, "scope"),
                      "source is set as well (%s); allowed: one of them: scope for sources that "
                      "stand in for each other, source for one whose answers pass as they are",
                      text_string(&tail));
    } else {
        append_names(loader->options, OPTION_SECTION_source, &tail);
        if (loader->options->scope_count > 0) {
            text_append_string(&tail, "; or scope = ");
            append_names(loader->options, OPTION_SECTION_scope, &tail);
        }
        options_error(loader, option_subject(section, source),
                      "is missing, and so is scope; write source = %s", text_string(&tail));
    }
    text_release(&tail);
}

/* No section of the kind has the name, but one of the other kind may. */
static void refuse_target(struct options_loader *loader, const struct option_section *section,
                          enum option_section_kind kind, const char *name)
{
    enum option_section_kind other =
        kind == OPTION_SECTION_scope ? OPTION_SECTION_source : OPTION_SECTION_scope;
    struct option_subject subject = option_subject_of(section, option_section_words[kind]);

    if (option_section_find(loader->options, other, name))
        options_error(loader, subject, "there is no [%s %s], but a [%s %s]; write %s = %s",
                      option_section_words[kind], name, option_section_words[other], name,
                      option_section_words[other], name);
    else
        refuse_name(loader, subject, kind, name);
}

static void link_route(struct options_loader *loader, struct route_options *route)
{
    const struct options *options = loader->options;
    const struct option_section *section =
        option_section_find(options, OPTION_SECTION_route, route->name);
    const struct source_options *source;

    INVARIANT(section && route->scope && route->source); /* option_read fills every member */
    if (option_is_one_wrong(section, OPTION_KEYS("scope", "source")))
        return;
    if ((*route->scope != '\0') == (*route->source != '\0')) {
        refuse_aim(loader, route, section);
    } else if (*route->scope) {
        route->to = find_scope(options, route->scope);
        if (!route->to)
            refuse_target(loader, section, OPTION_SECTION_scope, route->scope);
    } else {
        source = find_source(options, route->source);
        if (source)
            route->to = implied_scope(loader, route, source);
        else
            refuse_target(loader, section, OPTION_SECTION_source, route->source);
    }
}

static bool is_used(const struct options *options, const struct scope_options *scope)
{
    for (size_t i = 0; i < options->route_count; i++)
        if (options->routes[i].to == scope)
            return true;
    for (size_t i = 0; i < options->scope_count; i++)
        for (size_t k = 0; k < options->scopes[i].fallback_count; k++)
            if (options->scopes[i].fallbacks[k].scope == scope)
                return true;
    return false;
}

static void warn_unused_scopes(struct options_loader *loader)
{
    const struct options *options = loader->options;

    for (size_t i = 0; i < options->scope_count; i++)
        if (!options->scopes[i].direct && !is_used(options, &options->scopes[i]))
            options_warning(
                loader,
                option_subject_of(option_section_of_scope(loader->options, &options->scopes[i]),
                                  "sources"),
                "no call comes to them: no route and no fallback names this scope");
}

static bool is_member(const struct options *options, const struct source_options *source)
{
    for (size_t i = 0; i < options->scope_count; i++)
        for (size_t k = 0; k < options->scopes[i].member_count; k++)
            if (options->scopes[i].members[k].source == source)
                return true;
    return false;
}

static void warn_unused_sources(struct options_loader *loader)
{
    const struct options *options = loader->options;

    for (size_t i = 0; i < options->source_count; i++)
        if (!is_member(options, &options->sources[i])) {
            const struct option_section *section =
                option_section_of_source(options, &options->sources[i]);

            options_warning(
                loader, (struct option_subject){.place = &section->declared, .section = section},
                "no call comes to it: no route and no scope names it");
        }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void link_sources(struct options_loader *loader)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    struct options *options = loader->options;
    char excerpt[OPTION_EXCERPT_SIZE];

    for (size_t i = 0; i < options->source_count && !loader->out_of_memory; i++) {
        struct source_options *source = &options->sources[i];
        const struct option_section *section = option_section_of_source(options, source);
        size_t length = strlen(source->quota_group);

        source->index = (unsigned)i;
        if (i == SOURCES_MAX)
            options_error(loader, (struct option_subject){.place = &section->declared},
                          "[source %s] is one too many; allowed: 64 sources", source->name);
        if (strspn(source->quota_group, letters) != length || length > OPTION_NAME_MAX)
            options_error(loader, option_subject_of(section, "quota_group"),
                          "\"%s\" cannot name a group; allowed: up to 63 letters, digits, -, _ "
                          "and .",
                          option_excerpt(excerpt, source->quota_group));
        if (length == 0)
            source->quota_group = source->name;
        options_read_pairs(loader, source);
        if (!loader->out_of_memory)
            options_read_limits(loader, source);
    }
}

void options_link(struct options_loader *loader)
{
    struct options *options = loader->options;
    size_t scopes = options->scope_count;

    link_sources(loader);
    for (size_t i = 0; i < scopes && !loader->out_of_memory; i++)
        check_members(loader, &options->scopes[i]);
    for (size_t i = 0; i < scopes && !loader->out_of_memory; i++)
        link_scope(loader, &options->scopes[i]);
    for (size_t i = 0; i < options->route_count && !loader->out_of_memory; i++)
        link_route(loader, &options->routes[i]);
    if (loader->out_of_memory)
        return;
    options_check_flow(loader);
    options_check_effect(loader);
    if (loader->error_count > 0)
        return;
    warn_unused_scopes(loader);
    warn_unused_sources(loader);
}
