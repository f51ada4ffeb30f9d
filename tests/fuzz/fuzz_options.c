/*
 * fuzz_options.c - the whole way from bytes to options, without the file system.
 *
 * The input is files and variables apart by NUL bytes: a part that begins with "PENSTOCK" is a
 * variable, the others are configuration files in their order; a part that begins with "\1" is a
 * file in which \1 stands for NUL.
 */
#include "worker/options_table.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_MAX 16U

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One line of the report is one line: whoever reads it in the log relies on that. */
static void check_report(const char *report, size_t length)
{
    for (size_t i = 0; i < length; i++)
        REQUIRE(report[i] == '\n' || (report[i] >= 0x20 && report[i] < 0x7f));
}

static void check_pairs(const struct option_pair *pairs)
{
    for (; pairs->name; pairs++) {
        REQUIRE(*pairs->name && *pairs->value);
        REQUIRE(!strpbrk(pairs->name, "\r\n") && !strpbrk(pairs->value, "\r\n"));
    }
}

/* What those who plan a call rely on. */
static void check_scope(const struct options *options, const struct scope_options *scope)
{
    REQUIRE(scope->member_count >= 1 && scope->member_count <= 64);
    REQUIRE(!scope->direct || scope->member_count == 1);
    REQUIRE(scope->stall_budget_settled_ms > 0 && scope->hedge_max_extra == 1);
    REQUIRE(scope->backoff_base_ms <= scope->backoff_max_ms);
    REQUIRE(scope->hedge_after_ms == -1 || scope->hedge_after_ms > 0);
    REQUIRE(scope->call_deadline_ms == -1 || scope->hedge_after_ms < scope->call_deadline_ms);
    for (size_t i = 0; i < scope->member_count; i++) {
        const struct scope_member *member = &scope->members[i];

        REQUIRE(member->source == &options->sources[member->source->index]);
        REQUIRE(member->weight >= 1);
        REQUIRE(scope->hedge_after_ms < member->source->timeout_ms);
        for (size_t k = 0; k < i; k++)
            REQUIRE(scope->members[k].source != member->source);
    }
    for (size_t i = 0; i < scope->fallback_count; i++) {
        const struct scope_fallback *fallback = &scope->fallbacks[i];

        REQUIRE((fallback->scope != NULL) != (fallback->model != NULL));
        REQUIRE(fallback->scope != scope && (!fallback->scope || !fallback->scope->direct));
    }
}

static void check_options(const struct options *options)
{
    char *dump = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&dump, &length);

    for (size_t i = 0; i < options->route_count; i++) {
        REQUIRE(options->routes[i].to);
        REQUIRE(i == 0 || strlen(options->routes[i - 1].path) >= strlen(options->routes[i].path));
    }
    for (size_t i = 0; i < options->scope_count; i++)
        check_scope(options, &options->scopes[i]);
    for (size_t i = 0; i < options->source_count; i++) {
        REQUIRE(strncasecmp(options->sources[i].base_url, "http", 4) == 0);
        REQUIRE(*options->sources[i].quota_group);
        check_pairs(options->sources[i].aliases);
        check_pairs(options->sources[i].extra_headers);
    }
    REQUIRE(options_workers(options) * options_threads(options) >= options_threads_needed(options));
    if (out) {
        options_dump(options, out);
        (void)fclose(out);
    }
    free(dump);
}

static void load(const struct options_input *inputs, size_t count, const char *const *environment)
{
    struct options_surroundings around = {.environment = environment, .read_secrets = false};
    struct options *options = NULL;
    struct text report;

    text_init(&report, 1 << 20);
    if (options_load_inputs(inputs, count, &around, &report, &options)) {
        check_options(options);
        options_free(options);
    } else {
        REQUIRE(report.length > 0);
    }
    check_report(text_string(&report), report.length);
    text_release(&report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct options_input inputs[PARTS_MAX];
    const char *environment[PARTS_MAX + 1] = {NULL};
    size_t input_count = 0;
    size_t variable_count = 0;
    char *copy = malloc(size + 1);
    char *at = copy;

    if (!copy)
        return 0;
    if (size > 0)
        memcpy(copy, data, size);
    copy[size] = '\0';
    while (at < copy + size && input_count < PARTS_MAX && variable_count < PARTS_MAX) {
        size_t length = strlen(at);

        if (strncmp(at, "PENSTOCK", 8) == 0) {
            environment[variable_count++] = at;
        } else {
            for (size_t i = 0; at[0] == '\1' && i < length; i++)
                if (i > 0 && at[i] == '\1')
                    at[i] = '\0';
            inputs[input_count++] =
                (struct options_input){.path = "fuzz.conf", .bytes = at, .length = length};
        }
        at += length + 1;
    }
    load(inputs, input_count, environment);
    free(copy);
    return 0;
}
