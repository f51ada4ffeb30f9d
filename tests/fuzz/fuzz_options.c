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

static void check_options(const struct options *options)
{
    char *dump = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&dump, &length);

    for (size_t i = 0; i < options->route_count; i++) {
        REQUIRE(options->routes[i].to);
        REQUIRE(i == 0 || strlen(options->routes[i - 1].path) >= strlen(options->routes[i].path));
    }
    for (size_t i = 0; i < options->source_count; i++)
        REQUIRE(strncasecmp(options->sources[i].base_url, "http", 4) == 0);
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
