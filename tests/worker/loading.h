/* loading.h - for the tests of options_*.c: load a configuration from strings and look at it. */
#ifndef TESTS_WORKER_LOADING_H
#define TESTS_WORKER_LOADING_H

#include "base/text.h"
#include "worker/options.h"
#include "worker/options_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A source, so that its absence warns no one; errors then begin in line 3. */
#define WITH_SOURCE "[source a]\nbase_url = https://a.example\n"

/* So that a scope, a source is not one that no call comes to. */
#define ROUTE_TO(scope) "[route to-" scope "]\npath = /" scope "\nscope = " scope "\n"
#define ROUTE_PAST(source) "[route past-" source "]\npath = /" source "\nsource = " source "\n"

struct loading {
    struct text report;
    struct options *options; /* NULL: refused */
};

/* Load one file called t.conf; environment may be NULL. Secrets are followed. */
static inline struct loading load_with(const char *conf, const char *const *environment)
{
    struct options_input input = {.path = "t.conf", .bytes = conf, .length = strlen(conf)};
    struct options_surroundings around = {.environment = environment, .read_secrets = true};
    struct loading loading = {.options = NULL};

    text_init(&loading.report, 65536);
    if (!options_load_inputs(&input, 1, &around, &loading.report, &loading.options))
        loading.options = NULL;
    return loading;
}

static inline struct loading load(const char *conf)
{
    return load_with(conf, NULL);
}

static inline const char *report_of(const struct loading *loading)
{
    return text_string(&loading->report);
}

static inline void unload(struct loading *loading)
{
    options_free(loading->options);
    text_release(&loading->report);
}

/* What a function prints; the caller frees it. */
static inline char *dump_of(const struct options *options)
{
    char *bytes = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&bytes, &length);

    if (!out)
        return NULL;
    options_dump(options, out);
    (void)fclose(out);
    return bytes;
}

/* One configuration and all that is said about it. */
struct load_case {
    const char *conf;
    const char *report;
    bool refused;
};

#define assert_load_case(each)                                                                     \
    do {                                                                                           \
        struct loading loading_ = load((each)->conf);                                              \
        assert_string_equal(report_of(&loading_), (each)->report);                                 \
        assert_int_equal(loading_.options == NULL, (each)->refused);                               \
        unload(&loading_);                                                                         \
    } while (0)

#endif
