/* options_effect.c - flow control: does every option that is set have an effect, and the one that it
 * seems to have? See options_table.h. */
#include "worker/options_table.h"

#include <inttypes.h>

#define STRATEGY(name) (1U << FLOW_STRATEGY_##name)
#define COUNTS_CALLS (STRATEGY(RATE) | STRATEGY(SHAPING) | STRATEGY(ADAPTIVE))
#define COUNTS_TOKENS (STRATEGY(SHAPING) | STRATEGY(ADAPTIVE))
#define AT_GATE (1U << 31) /* or with classes at the image gate, whatever the strategy */
#define TOLD_LIMITS (STRATEGY(RATE) | STRATEGY(SHAPING))

static unsigned strategy_bit(const struct scope_options *scope)
{
    return 1U << scope->flow;
}

/* Whose turn it is at the image gate is a matter of class too. True also where it is not known. */
static bool gate_has_classes(const struct options *options)
{
    const struct option_section *section =
        option_section_find(options, OPTION_SECTION_image_concurrency, "");

    return (options->image.active && options->image.overflow_mode == OVERFLOW_WAIT &&
            options->image.class_weights[0]) ||
           option_is_one_wrong(section, OPTION_KEYS("enabled", "max_concurrent_requests",
                                                    "overflow_mode", "class_weights"));
}

/* ---- does it have an effect? ----------------------------------------------------------------- */

static const struct {
    const char *key;
    unsigned strategies; /* with one of which it does something */
    const char *words;
} scope_keys[] = {
    {"flow_initial", TOLD_LIMITS, "rate or shaping"},
    {"flow_warmup_s", STRATEGY(SHAPING), "shaping"},
    {"tpm_charge", COUNTS_TOKENS, "shaping or adaptive"},
    {"flow_class", COUNTS_CALLS | AT_GATE, "rate, shaping or adaptive"},
    {"flow_class_header_max", COUNTS_CALLS | AT_GATE, "rate, shaping or adaptive"},
    {"flow_weights", COUNTS_CALLS, "rate, shaping or adaptive"},
    {"flow_max_wait_s", COUNTS_CALLS, "rate, shaping or adaptive"},
    {"flow_max_waiting", COUNTS_CALLS, "rate, shaping or adaptive"},
    {"flow_max_waiting_per_client", COUNTS_CALLS, "rate, shaping or adaptive"},
    {"flow_include_usage", COUNTS_TOKENS, "shaping or adaptive"},
    {"flow_drain_s", COUNTS_TOKENS, "shaping or adaptive"},
};

static const struct {
    const char *key;
    unsigned strategies;
    const char *words;
} source_keys[] = {
    {"rpm", COUNTS_CALLS, "rate, shaping or adaptive"},
    {"tpm", COUNTS_TOKENS, "shaping or adaptive"},
    {"model_limits", COUNTS_CALLS, "rate, shaping or adaptive"},
    {"limit_headers", COUNTS_CALLS, "rate, shaping or adaptive"},
    {"max_concurrency", COUNTS_CALLS, "rate, shaping or adaptive"},
    {"flow_unit", COUNTS_TOKENS, "shaping or adaptive"},
};

/* A wrong strategy counts as none, and then nothing would have an effect. */
static void warn_idle_scope_keys(struct options_loader *loader, const struct scope_options *scope,
                                 const struct option_section *section)
{
    const unsigned here = strategy_bit(scope) | (gate_has_classes(loader->options) ? AT_GATE : 0);

    for (size_t i = 0; i < LENGTH(scope_keys); i++)
        if (!(scope_keys[i].strategies & here) && option_is_chosen(section, scope_keys[i].key) &&
            !option_is_wrong(section, scope_keys[i].key))
            options_warning(loader, option_subject_of(section, scope_keys[i].key),
                            "has no effect with flow = %s; set flow = %s, or take it away",
                            option_text(section, option_row_of(section->kind, "flow")),
                            scope_keys[i].words);
    if (strategy_bit(scope) & COUNTS_CALLS &&
        scope->flow_max_waiting_per_client > scope->flow_max_waiting &&
        !option_is_one_wrong(section,
                             OPTION_KEYS("flow_max_waiting", "flow_max_waiting_per_client")))
        options_warning(loader, option_subject_of(section, "flow_max_waiting_per_client"),
                        "%" PRId64 " has no effect, as flow_max_waiting is %" PRId64,
                        scope->flow_max_waiting_per_client, scope->flow_max_waiting);
}

/* The deadline ends waits too. Looked at are the classes that the scope's calls can have. */
static void warn_short_deadline(struct options_loader *loader, const struct scope_options *scope,
                                const struct option_section *section)
{
    int64_t longest_ms = scope->max_wait_ms[scope->flow_class];
    char deadline[OPTION_DURATION_SIZE];
    char longest[OPTION_DURATION_SIZE];

    if (option_is_one_wrong(section,
                            OPTION_KEYS("flow_max_wait_s", "flow_class", "flow_class_header_max")))
        return;
    for (size_t i = (size_t)scope->flow_class_header_max; i < FLOW_CLASSES; i++)
        if (scope->max_wait_ms[i] > longest_ms)
            longest_ms = scope->max_wait_ms[i];
    if (scope->call_deadline_ms >= 0 && scope->call_deadline_ms < longest_ms)
        options_warning(loader, option_subject_of(section, "call_deadline_s"),
                        "%s is less than the longest wait of flow_max_wait_s, %s, so no call waits "
                        "that long; raise it, or lower flow_max_wait_s",
                        option_duration(scope->call_deadline_ms, deadline),
                        option_duration(longest_ms, longest));
}

/* ---- each call that waits has a thread ------------------------------------------------------- */

static bool are_fewer_than_auto(const struct options *options)
{
    struct options undecided = *options;

    undecided.penstock.threads = -1;
    return options_threads(options) < options_threads(&undecided);
}

/* Who set flow_max_waiting is told there. Who set threads is told once, at that. */
static void warn_few_threads(struct options_loader *loader)
{
    const struct options *options = loader->options;
    const struct option_section *penstock =
        option_section_find(options, OPTION_SECTION_penstock, "");
    const int64_t workers = options_workers(options);
    const int64_t each = options_flow_waiters(options);
    bool told = !are_fewer_than_auto(options);

    if (options_are_threads_wrong(options))
        return;
    for (size_t i = 0; i < options->scope_count; i++) {
        const struct scope_options *scope = &options->scopes[i];
        const struct option_section *section =
            option_section_find(options, OPTION_SECTION_scope, scope->name);

        if (scope->direct || !(strategy_bit(scope) & COUNTS_CALLS) ||
            scope->flow_max_waiting <= workers * each ||
            option_is_wrong(section, "flow_max_waiting"))
            continue;
        if (option_is_chosen(section, "flow_max_waiting")) {
            options_warning(loader, option_subject_of(section, "flow_max_waiting"),
                            "%" PRId64 " calls wait at a time at most, as each of %" PRId64
                            " workers has threads for %" PRId64 "; raise threads",
                            workers * each, workers, each);
        } else if (!told) {
            options_warning(loader, option_subject_of(penstock, "threads"),
                            "only %" PRId64
                            " calls can wait in flows at a time, as each of %" PRId64
                            " workers has threads for %" PRId64 ", and [scope %s] lets %" PRId64
                            " of each class; set threads = auto, or more, or lower "
                            "flow_max_waiting",
                            workers * each, workers, each, scope->name, scope->flow_max_waiting);
            told = true;
        }
    }
}

/* ---- sources --------------------------------------------------------------------------------- */

static bool has_member(const struct scope_options *scope, const struct source_options *source)
{
    for (size_t i = 0; i < scope->member_count; i++)
        if (scope->members[i].source == source)
            return true;
    return false;
}

/* All strategies with which calls come to the source. */
static unsigned strategies_of(const struct options *options, const struct source_options *source)
{
    unsigned strategies = 0;

    for (size_t i = 0; i < options->scope_count; i++)
        if (has_member(&options->scopes[i], source))
            strategies |= strategy_bit(&options->scopes[i]);
    return strategies;
}

/* Is it known which scopes a source has, and with which strategy? */
static bool are_scopes_right(const struct options *options)
{
    for (size_t i = 0; i < options->scope_count; i++) {
        const struct option_section *section =
            option_section_find(options, OPTION_SECTION_scope, options->scopes[i].name);

        if (!options->scopes[i].direct &&
            (option_is_wrong(section, "flow") || option_is_wrong(section, "sources")))
            return false;
    }
    return true;
}

static void warn_idle_source_keys(struct options_loader *loader,
                                  const struct source_options *source)
{
    const struct option_section *section = option_section_of_source(loader->options, source);
    unsigned strategies = strategies_of(loader->options, source);

    for (size_t i = 0; i < LENGTH(source_keys); i++)
        if (!(source_keys[i].strategies & strategies) &&
            option_is_chosen(section, source_keys[i].key) &&
            !option_is_wrong(section, source_keys[i].key))
            options_warning(loader, option_subject_of(section, source_keys[i].key),
                            "has no effect: no [scope] with this source has flow = %s",
                            source_keys[i].words);
    if (source->flow_unit == FLOW_UNIT_TASKS && source->tpm > 0 && strategies & COUNTS_TOKENS)
        options_warning(loader, option_subject_of(section, "tpm"),
                        "has no effect with flow_unit = tasks, which rpm counts already");
}

/* ---- all of it ------------------------------------------------------------------------------- */

void options_check_effect(struct options_loader *loader)
{
    const struct options *options = loader->options;

    for (size_t i = 0; i < options->source_count && are_scopes_right(options); i++)
        warn_idle_source_keys(loader, &options->sources[i]);
    for (size_t i = 0; i < options->scope_count; i++) {
        const struct scope_options *scope = &options->scopes[i];
        const struct option_section *section =
            option_section_find(options, OPTION_SECTION_scope, scope->name);

        if (scope->direct || option_is_wrong(section, "flow"))
            continue;
        warn_idle_scope_keys(loader, scope, section);
        if (strategy_bit(scope) & COUNTS_CALLS)
            warn_short_deadline(loader, scope, section);
    }
    warn_few_threads(loader);
}
