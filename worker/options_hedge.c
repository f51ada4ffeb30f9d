/* options_hedge.c - can the second attempt that hedge_after_s asks for ever begin, and where would it
 * go (H16)? See options_table.h. */
#include "worker/options_table.h"

#include <inttypes.h>
#include <string.h>

/* The least of a time of the scope's sources, among those that set it; NULL: none does. */
static const struct source_options *quickest(const struct options *options,
                                             const struct scope_options *scope, const char *key,
                                             int64_t *ret_ms)
{
    const struct option_row *row = option_row_of(OPTION_SECTION_source, key);
    const struct source_options *found = NULL;

    for (size_t i = 0; i < scope->member_count; i++) {
        const struct source_options *source = scope->members[i].source;
        const struct option_section *section = option_section_of_source(options, source);
        int64_t ms;

        memcpy(&ms, (const char *)source + row->offset, sizeof ms);
        if (ms >= 0 && !option_is_wrong(section, key) && (!found || ms < *ret_ms)) {
            found = source;
            *ret_ms = ms;
        }
    }
    return found;
}

/* R35 to R37: what would end the first attempt before another is begun. */
static void check_hedge_times(struct options_loader *loader, const struct scope_options *scope,
                              struct option_subject subject)
{
    const struct source_options *source;
    char after[OPTION_DURATION_SIZE];
    char limit[OPTION_DURATION_SIZE];
    int64_t ms = 0;

    (void)option_duration(scope->hedge_after_ms, after);
    if (scope->call_deadline_ms >= 0 && scope->hedge_after_ms >= scope->call_deadline_ms)
        options_error(loader, subject,
                      "%s is not less than call_deadline_s, so no second attempt could begin; "
                      "allowed: less than %s",
                      after, option_duration(scope->call_deadline_ms, limit));
    source = quickest(loader->options, scope, "timeout_s", &ms);
    if (source && scope->hedge_after_ms >= ms)
        options_error(loader, subject,
                      "%s is not less than timeout_s of source %s, so no second attempt could "
                      "begin beside it; allowed: less than %s",
                      after, source->name, option_duration(ms, limit));
    source = quickest(loader->options, scope, "ttft_timeout_s", &ms);
    if (source && scope->hedge_after_ms >= ms)
        options_warning(loader, subject,
                        "%s is not less than ttft_timeout_s of source %s, which ends its streams "
                        "before a second attempt begins; set less than %s",
                        after, source->name, option_duration(ms, limit));
}

/* Silence for as long as stall_budget_s ends the attempts: a second one would come after that. */
static void check_hedge_stall(struct options_loader *loader, const struct scope_options *scope,
                              struct option_subject subject)
{
    char after[OPTION_DURATION_SIZE];
    char limit[OPTION_DURATION_SIZE];

    if (scope->stall_budget_ms >= 0 && scope->hedge_after_ms >= scope->stall_budget_ms)
        options_warning(loader, subject,
                        "%s is not less than stall_budget_s, after which no other attempt should "
                        "begin; set less than %s",
                        option_duration(scope->hedge_after_ms, after),
                        option_duration(scope->stall_budget_ms, limit));
}

/* R38: is there anybody to send a second attempt to? */
static void check_hedge_sources(struct options_loader *loader, const struct scope_options *scope,
                                struct option_subject subject)
{
    if (scope->member_count == 1) {
        options_warning(loader, subject,
                        "has no effect with one source; a second attempt goes to another one");
        return;
    }
    for (size_t i = 1; i < scope->member_count; i++)
        if (strcmp(scope->members[i].source->quota_group, scope->members[0].source->quota_group) !=
            0)
            return;
    if (scope->member_count > 0)
        options_warning(loader, subject,
                        "has no effect while all sources have the quota_group \"%s\"; a second "
                        "attempt goes to one of another",
                        scope->members[0].source->quota_group);
}

/* Whatever kinds of call the scope gets: it may get others tomorrow (R43). */
void options_check_hedge(struct options_loader *loader, struct scope_options *scope)
{
    const struct option_section *section = option_section_of_scope(loader->options, scope);
    struct option_subject subject = option_subject_of(section, "hedge_after_s");

    if (scope->hedge_after_ms >= 0) {
        check_hedge_times(loader, scope, subject);
        check_hedge_stall(loader, scope, subject);
        if (!option_is_wrong(section, "sources"))
            check_hedge_sources(loader, scope, subject);
    }
    if (scope->hedge_max_extra > 1)
        options_warning(loader, option_subject_of(section, "hedge_max_extra"),
                        "%" PRId64 " has the effect of 1: no more than one attempt runs beside the "
                        "first",
                        scope->hedge_max_extra);
    scope->hedge_max_extra = 1;
}
