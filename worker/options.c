/* options.c - the table, and the way from texts to a struct options; see options.h. */
#include "worker/options.h"

#include "worker/options_table.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The words of CHOICE options, in the order of their enums. */
static const char *const choices_penstock_log_level[] = {"error", "warning", "notice",
                                                         "info",  "debug",   NULL};
static const char *const choices_penstock_log_format[] = {"logfmt", "json", NULL};
static const char *const choices_image_concurrency_overflow_mode[] = {"reject", "wait", NULL};
static const char *const choices_image_concurrency_on_client_gone[] = {"cancel", "finish", NULL};
static const char *const choices_source_dialect[] = {"openai",    "dashscope", "azure", "gemini",
                                                     "anthropic", "plain",     NULL};
static const char *const choices_scope_balance[] = {"ordered", "weighted", NULL};
static const char *const choices_scope_when_all_open[] = {"try", "refuse", NULL};
static const char *const choices_source_limit_headers[] = {"believe", "rely", "ignore", NULL};
static const char *const choices_source_flow_unit[] = {"tokens", "images", "seconds", "tasks",
                                                       NULL};
static const char *const choices_scope_flow[] = {"none",    "retry",    "rate",
                                                 "shaping", "adaptive", NULL};
static const char *const choices_scope_tpm_charge[] = {"predicted", "input", NULL};
static const char *const choices_scope_flow_class[] = {"interactive", "normal", "bulk", NULL};
static const char *const choices_scope_flow_class_header_max[] = {"interactive", "normal", "bulk",
                                                                  "none", NULL};
static const char *const choices_route_kind[] = {"auto",  "chat", "responses", "embedding",
                                                 "image", "ocr",  "other",     NULL};

#define WORDS_BOOL(section, key) NULL
#define WORDS_COUNT(section, key) NULL
#define WORDS_SECONDS(section, key) NULL
#define WORDS_SIZE(section, key) NULL
#define WORDS_STRING(section, key) NULL
#define WORDS_CHOICE(section, key) choices_##section##_##key
#define WORDS_LIST(section, key) NULL
#define WORDS_SECRET(section, key) NULL
#define WORDS_MODE(section, key) NULL
#define IS_RELOADABLE_RELOAD true
#define IS_RELOADABLE_RESTART false

const struct option_row option_rows[] = {
#define OPTION(section, key, field, TYPE, fallback, min, max, reload, help)                        \
    {OPTION_SECTION_##section,                                                                     \
     OPTION_TYPE_##TYPE,                                                                           \
     #key,                                                                                         \
     offsetof(struct section##_options, field),                                                    \
     fallback,                                                                                     \
     min,                                                                                          \
     max,                                                                                          \
     IS_RELOADABLE_##reload,                                                                       \
     help,                                                                                         \
     WORDS_##TYPE(section, key)},
#include "worker/options_list.h"
#undef OPTION
};
const size_t option_row_count = LENGTH(option_rows);

const char *const option_section_words[OPTION_SECTION_KINDS] = {"penstock", "image_concurrency",
                                                                "source", "scope", "route"};

/* ---- sections -------------------------------------------------------------------------------- */

const struct option_row *option_row_find(enum option_section_kind kind, const char *key)
{
    for (size_t i = 0; i < option_row_count; i++)
        if (option_rows[i].section == kind && strcmp(option_rows[i].key, key) == 0)
            return &option_rows[i];
    return NULL;
}

const struct option_row *option_row_of(enum option_section_kind kind, const char *key)
{
    const struct option_row *row = option_row_find(kind, key);

    REQUIRE(row);
    return row;
}

struct option_section *option_section_find(const struct options *options,
                                           enum option_section_kind kind, const char *name)
{
    for (struct option_section *at = options->own->sections; at; at = at->next)
        if (at->kind == kind && strcmp(at->name, name) == 0)
            return at;
    return NULL;
}

const struct option_section *option_section_of_source(const struct options *options,
                                                      const struct source_options *source)
{
    const struct option_section *section =
        option_section_find(options, OPTION_SECTION_source, source->name);

    REQUIRE(section);
    return section;
}

const struct option_section *option_section_of_scope(const struct options *options,
                                                     const struct scope_options *scope)
{
    const struct option_section *section =
        option_section_find(options, OPTION_SECTION_scope, scope->name);

    REQUIRE(section && !scope->direct);
    return section;
}

const char *option_text(const struct option_section *section, const struct option_row *row)
{
    const char *text = section->values[row - option_rows].text;

    return text ? text : row->fallback;
}

bool option_is_set(const struct option_section *section, const struct option_row *row)
{
    return section->values[row - option_rows].text != NULL;
}

bool option_is_chosen(const struct option_section *section, const char *key)
{
    const struct option_row *row = option_row_of(section->kind, key);

    return option_is_set(section, row) && strcmp(option_text(section, row), row->fallback) != 0;
}

bool option_is_wrong(const struct option_section *section, const char *key)
{
    return section->values[option_row_of(section->kind, key) - option_rows].wrong;
}

bool option_is_one_wrong(const struct option_section *section, const char *const *keys)
{
    while (*keys && !option_is_wrong(section, *keys))
        keys++;
    return *keys;
}

/* Variables of this section begin so; NULL when there is no memory. */
static const char *variable_stem(struct options_loader *loader, enum option_section_kind kind,
                                 const char *name)
{
    char word[OPTION_NAME_MAX + 32];
    struct text stem;
    const char *kept;

    text_init(&stem, 2 * sizeof word);
    option_variable_word(word, sizeof word, option_section_words[kind]);
    text_printf(&stem, "PENSTOCK__%s__", word);
    option_variable_word(word, sizeof word, name);
    if (*name)
        text_printf(&stem, "%s__", word);
    loader->out_of_memory = loader->out_of_memory || stem.overflowed;
    kept = options_keep_text(loader, text_string(&stem), stem.length);
    text_release(&stem);
    return kept;
}

struct option_section *option_section_add(struct options_loader *loader,
                                          enum option_section_kind kind, const char *name,
                                          struct option_place declared)
{
    struct options_private *own = loader->options->own;
    struct option_section **end = &own->sections;
    struct option_section *section = options_keep(loader, sizeof *section);

    if (!section)
        return NULL;
    section->kind = kind;
    section->declared = declared;
    section->name = options_keep_text(loader, name, strlen(name));
    section->variable_stem = variable_stem(loader, kind, name);
    section->values = options_keep(loader, option_row_count * sizeof *section->values);
    if (loader->out_of_memory)
        return NULL;
    while (*end)
        end = &(*end)->next;
    *end = section;
    own->section_count++;
    return section;
}

/* ---- from texts to struct options ------------------------------------------------------------ */

static bool variable_begins(const struct options_surroundings *around, const char *stem)
{
    for (const char *const *at = around->environment; at && *at; at++)
        if (strncmp(*at, stem, strlen(stem)) == 0)
            return true;
    return false;
}

static struct option_section *first_section(const struct options *options,
                                            enum option_section_kind kind)
{
    struct option_section *at = options->own->sections;

    while (at && at->kind != kind)
        at = at->next;
    return at;
}

static size_t count_sections(const struct options *options, enum option_section_kind kind)
{
    size_t count = 0;

    for (const struct option_section *at = options->own->sections; at; at = at->next)
        count += at->kind == kind;
    return count;
}

static void set_value(struct option_section *section, const char *key, const char *text,
                      struct option_place place)
{
    const struct option_row *row = option_row_of(section->kind, key);

    section->values[row - option_rows] = (struct option_value){.text = text, .place = place};
}

/* Where a section stands that is in no file. */
static const struct option_place nowhere = {.file = "configuration"};

/* Without a [source], PENSTOCK_UPSTREAM is one; without a [route] there is one for all calls. */
static void add_implied_sections(struct options_loader *loader)
{
    const char *upstream = options_variable(loader->around, "PENSTOCK_UPSTREAM");
    struct option_place place = {.variable = "PENSTOCK_UPSTREAM"};
    struct option_section *section;

    if (!first_section(loader->options, OPTION_SECTION_source)) {
        if (*upstream || variable_begins(loader->around, "PENSTOCK__SOURCE__DEFAULT__")) {
            section = option_section_add(loader, OPTION_SECTION_source, "default", place);
            upstream = options_keep_text(loader, upstream, strlen(upstream));
            if (section && upstream && *upstream)
                set_value(section, "base_url", upstream, place);
        }
    } else if (*upstream) {
        options_warning(loader, (struct option_subject){.place = &place},
                        "ignored, because the configuration has a [source]; to override its URL "
                        "set PENSTOCK__SOURCE__NAME__BASE_URL");
    }
    if (first_section(loader->options, OPTION_SECTION_source) &&
        !first_section(loader->options, OPTION_SECTION_route))
        loader->implied_route =
            option_section_add(loader, OPTION_SECTION_route, "default", nowhere);
}

/* The implied route goes to the first scope, else to the first source, unless the environment sends
 * it elsewhere. */
static void aim_implied_route(struct options_loader *loader)
{
    struct option_section *route = loader->implied_route;
    const struct option_section *to = first_section(loader->options, OPTION_SECTION_scope);
    const char *key = "scope";

    if (!route || *option_text(route, option_row_of(OPTION_SECTION_route, "scope")) ||
        *option_text(route, option_row_of(OPTION_SECTION_route, "source")))
        return;
    if (!to) {
        to = first_section(loader->options, OPTION_SECTION_source);
        key = "source";
    }
    INVARIANT(to);
    set_value(route, key, to->name, (struct option_place){0});
}

/* Give every section the struct that its values fill; each route may need a scope of its own, behind
 * those of the files. */
static bool place_targets(struct options_loader *loader)
{
    struct options *options = loader->options;
    size_t source_count = count_sections(options, OPTION_SECTION_source);
    size_t scope_count = count_sections(options, OPTION_SECTION_scope);
    size_t route_count = count_sections(options, OPTION_SECTION_route);

    options->sources = options_keep(loader, (source_count + 1) * sizeof *options->sources);
    options->scopes =
        options_keep(loader, (scope_count + route_count + 1) * sizeof *options->scopes);
    options->routes = options_keep(loader, (route_count + 1) * sizeof *options->routes);
    if (!options->sources || !options->scopes || !options->routes)
        return false;
    for (struct option_section *at = options->own->sections; at; at = at->next) {
        switch (at->kind) {
        case OPTION_SECTION_penstock:
            at->target = &options->penstock;
            break;
        case OPTION_SECTION_image_concurrency:
            at->target = &options->image;
            break;
        case OPTION_SECTION_source:
            options->sources[options->source_count].name = at->name;
            at->target = &options->sources[options->source_count++];
            break;
        case OPTION_SECTION_scope:
            options->scopes[options->scope_count].name = at->name;
            at->target = &options->scopes[options->scope_count++];
            break;
        case OPTION_SECTION_route:
            options->routes[options->route_count].name = at->name;
            at->target = &options->routes[options->route_count++];
            break;
        case OPTION_SECTION_KINDS:
            UNREACHABLE();
        }
    }
    return true;
}

static int compare_routes(const void *left, const void *right)
{
    const struct route_options *a = left;
    const struct route_options *b = right;
    size_t a_length = strlen(a->path);
    size_t b_length = strlen(b->path);

    if (a_length != b_length)
        return a_length < b_length ? 1 : -1;
    return strcmp(a->path, b->path);
}

/* An image time-out the operator did not set does nothing while the gate is off (off changes
 * nothing). */
static void settle_image_timeouts(struct options *options)
{
    const struct option_section *section =
        option_section_find(options, OPTION_SECTION_image_concurrency, "");

    options->image.active = options->image.enabled && options->image.max_concurrent_requests > 0;
    if (options->image.active)
        return;
    if (!option_is_set(section, option_row_of(section->kind, "image_stream_data_interval_timeout")))
        options->image.image_stream_data_interval_timeout_ms = -1;
    if (!option_is_set(section, option_row_of(section->kind, "image_first_byte_timeout_seconds")))
        options->image.image_first_byte_timeout_ms = -1;
}

static void fill(struct options_loader *loader)
{
    struct options *options = loader->options;

    for (struct option_section *at = options->own->sections; at; at = at->next)
        for (size_t i = 0; i < option_row_count && !loader->out_of_memory; i++)
            if (option_rows[i].section == at->kind)
                option_read(loader, at, &option_rows[i]);
    if (loader->out_of_memory)
        return;
    settle_image_timeouts(options);
    options_check(loader);
    options_link(loader);
    if (options->route_count > 1)
        qsort(options->routes, options->route_count, sizeof *options->routes, compare_routes);
}

static void loader_begin(struct options_loader *loader, const struct options_surroundings *around,
                         struct text *report)
{
    *loader = (struct options_loader){.around = around, .report = report};
    loader->options = calloc(1, sizeof *loader->options);
    if (loader->options)
        loader->options->own = calloc(1, sizeof *loader->options->own);
    if (!loader->options || !loader->options->own) {
        loader->out_of_memory = true;
        return;
    }
    (void)option_section_add(loader, OPTION_SECTION_penstock, "", nowhere);
    (void)option_section_add(loader, OPTION_SECTION_image_concurrency, "", nowhere);
}

static bool loader_end(struct options_loader *loader, struct options **ret_options)
{
    bool good;

    if (!loader->out_of_memory)
        add_implied_sections(loader);
    if (!loader->out_of_memory)
        options_apply_environment(loader);
    if (!loader->out_of_memory)
        aim_implied_route(loader);
    if (!loader->out_of_memory && place_targets(loader))
        fill(loader);
    if (loader->out_of_memory)
        text_append_string(loader->report, "configuration: out of memory\n");
    good = !loader->out_of_memory && loader->error_count == 0;
    if (good)
        *ret_options = loader->options;
    else
        options_free(loader->options);
    return good;
}

bool options_load_inputs(const struct options_input *inputs, size_t count,
                         const struct options_surroundings *around, struct text *report,
                         struct options **ret_options)
{
    struct options_loader loader;

    loader_begin(&loader, around, report);
    for (size_t i = 0; i < count && !loader.out_of_memory; i++)
        options_apply_input(&loader, &inputs[i]);
    return loader_end(&loader, ret_options);
}

static bool load(const char *path, bool read_secrets, struct text *report,
                 struct options **ret_options)
{
    const struct options_surroundings around = {.environment = (const char *const *)environ,
                                                .read_secrets = read_secrets};
    struct options_loader loader;

    loader_begin(&loader, &around, report);
    if (path && !loader.out_of_memory) {
        options_apply_file(&loader, path);
        options_apply_drop_ins(&loader, path);
    }
    return loader_end(&loader, ret_options);
}

bool options_load(const char *path, struct text *report, struct options **ret_options)
{
    return load(path, true, report, ret_options);
}

bool options_load_public(const char *path, struct text *report, struct options **ret_options)
{
    return load(path, false, report, ret_options);
}

/* ---- workers and threads --------------------------------------------------------------------- */

/* Of each worker, when threads is auto. */
#define THREADS_LEAST 64
#define FLOW_THREADS 64 /* more where calls wait in flows */

static int64_t count_cpus(void)
{
    cpu_set_t set;
    long online;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? online : 1;
}

int64_t options_workers(const struct options *options)
{
    int64_t most = option_row_of(OPTION_SECTION_penstock, "workers")->max;
    int64_t cpus;

    if (options->penstock.workers > 0)
        return options->penstock.workers;
    cpus = count_cpus();
    if (cpus > most)
        return most;
    return cpus < 2 ? 2 : cpus;
}

static int64_t usable_percent(const struct options *options)
{
    return 100 - options->penstock.reserve_percent;
}

/* Image calls in progress and waiting, at most. */
static int64_t image_calls(const struct options *options)
{
    const struct image_concurrency_options *image = &options->image;

    if (!image->active)
        return 0;
    return image->max_concurrent_requests +
           (image->overflow_mode == OVERFLOW_WAIT ? image->max_waiting_requests : 0);
}

int64_t options_threads_needed(const struct options *options)
{
    const int64_t usable = usable_percent(options);

    return (image_calls(options) * 100 + usable - 1) / usable;
}

static bool may_hold_back(const struct options *options)
{
    for (size_t i = 0; i < options->scope_count; i++)
        if (options->scopes[i].flow >= FLOW_STRATEGY_RATE)
            return true;
    return false;
}

int64_t options_threads(const struct options *options)
{
    int64_t workers = options_workers(options);
    int64_t each = (options_threads_needed(options) + workers - 1) / workers;

    int64_t most = option_row_of(OPTION_SECTION_penstock, "threads")->max;

    if (options->penstock.threads > 0)
        return options->penstock.threads;
    each = each < THREADS_LEAST ? THREADS_LEAST : each;
    if (!may_hold_back(options) || each > most)
        return each;
    return each + FLOW_THREADS < most ? each + FLOW_THREADS : most;
}

int64_t options_flow_waiters(const struct options *options)
{
    int64_t workers = options_workers(options);
    int64_t images = (image_calls(options) + workers - 1) / workers;
    int64_t left = options_threads(options) * usable_percent(options) / 100 - images;

    return left < 1 ? 1 : left;
}
