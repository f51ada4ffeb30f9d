/*
 * options_table.h - options_list.h as data, and what the options_*.c files share while they load a
 * configuration. Nobody else includes it, except the fuzz target and the tests of these files.
 *
 * A configuration is a list of sections; each holds one text per row of the table that belongs to
 * it, with the place it was read from. Only when all files and the environment were read are the
 * texts turned into the members of struct options: what a later file overrides is not judged.
 */
#ifndef WORKER_OPTIONS_TABLE_H
#define WORKER_OPTIONS_TABLE_H

#include "base/check.h"
#include "base/text.h"
#include "worker/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPTIONS_SECTIONS_MAX 1024U /* sections with a name, together */
#define OPTIONS_DROP_INS_MAX 256U  /* files in conf.d */
#define OPTION_NAME_MAX 63U        /* bytes of a section's NAME */
#define OPTION_SECRET_MAX 8192U    /* bytes of a secret */
#define OPTION_EXCERPT_SIZE 84U
#define OPTION_DURATION_SIZE 32U

enum option_section_kind {
    OPTION_SECTION_penstock,
    OPTION_SECTION_image_concurrency,
    OPTION_SECTION_source, /* from here on sections have names */
    OPTION_SECTION_scope,
    OPTION_SECTION_route,
    OPTION_SECTION_KINDS,
};
static inline bool option_section_is_named(enum option_section_kind kind)
{
    return kind >= OPTION_SECTION_source;
}

enum option_type {
    OPTION_TYPE_BOOL,
    OPTION_TYPE_COUNT,
    OPTION_TYPE_SECONDS,
    OPTION_TYPE_SIZE,
    OPTION_TYPE_STRING,
    OPTION_TYPE_CHOICE,
    OPTION_TYPE_LIST,
    OPTION_TYPE_SECRET,
    OPTION_TYPE_MODE,
};

struct option_row {
    enum option_section_kind section;
    enum option_type type;
    const char *key;
    size_t offset; /* in the section's struct */
    const char *fallback;
    int64_t min;
    int64_t max;
    bool reloadable;
    const char *help;
    const char *const *words; /* CHOICE: NULL-terminated */
};

extern const struct option_row option_rows[];
extern const size_t option_row_count;
extern const char *const option_section_words[OPTION_SECTION_KINDS];

/* Where a text was read: file and line (0 = the file as a whole), a variable, or neither: default.
 */
struct option_place {
    const char *file;
    unsigned line;
    const char *variable;
};

struct option_value {
    const char *text; /* NULL: not set */
    struct option_place place;
    bool wrong; /* an error was told of it: what follows from that is not told as well */
};

struct option_section {
    struct option_section *next;
    enum option_section_kind kind;
    const char *name;          /* "" for sections there is one of */
    const char *variable_stem; /* "PENSTOCK__SOURCE__NAME__" */
    struct option_place declared;
    void *target;                /* the struct its values fill */
    struct option_value *values; /* index: that of option_rows */
};

struct option_block; /* see options_memory.c */

struct options_private {
    struct option_block *blocks;
    struct option_section *sections; /* penstock, image_concurrency, then in order of appearance */
    size_t section_count;
};

/* One configuration file that was read already. */
struct options_input {
    const char *path;
    const char *bytes;
    size_t length;
};

/* The world around the files. */
struct options_surroundings {
    const char *const *environment; /* as environ */
    bool read_secrets;              /* false: references are checked but not followed */
};

struct options_loader {
    struct options *options;
    const struct options_surroundings *around;
    struct text *report;
    struct option_section *implied_route; /* made because the files have none; NULL: they have */
    size_t error_count;
    bool out_of_memory;
};

/* options_load without the file system. */
MUST_CHECK bool options_load_inputs(const struct options_input *inputs, size_t count,
                                    const struct options_surroundings *around, struct text *report,
                                    struct options **ret_options);

/* Memory that lives as long as the options, zeroed; NULL and loader->out_of_memory when there is
 * none. */
void *options_keep(struct options_loader *loader, size_t size);
const char *options_keep_text(struct options_loader *loader, const char *bytes, size_t length);

/* What a message is about. */
struct option_subject {
    const struct option_place *place;
    const struct option_section *section; /* NULL: none */
    const char *key;                      /* NULL: none */
};
/* options_report.c: the words. */
struct option_subject option_subject(const struct option_section *section,
                                     const struct option_row *row);
struct option_subject option_subject_of(const struct option_section *section, const char *key);
/* Append one line to the report. */
void options_error(struct options_loader *loader, struct option_subject subject, const char *format,
                   ...) PRINTF_LIKE(3, 4);
void options_warning(struct options_loader *loader, struct option_subject subject,
                     const char *format, ...) PRINTF_LIKE(3, 4);
void option_place_text(const struct option_place *place, struct text *out);

/* "value" fit for a message: cut, without strange bytes. Returns out. */
const char *option_excerpt(char out[OPTION_EXCERPT_SIZE], const char *value);

/* "30 s" or "1500 ms". Returns out. */
const char *option_duration(int64_t ms, char out[OPTION_DURATION_SIZE]);

/* The nearest of the candidates offered so far, at most two edits away. */
struct option_suggestion {
    const char *word;
    const char *best; /* NULL: nothing near */
    unsigned distance;
};
void option_suggestion_init(struct option_suggestion *suggestion, const char *word);
void option_suggestion_offer(struct option_suggestion *suggestion, const char *candidate);
/* Append `; did you mean "best"?` when there is one. */
void option_suggestion_append(const struct option_suggestion *suggestion, struct text *out);

/* NULL: no such row. */
const struct option_row *option_row_find(enum option_section_kind kind, const char *key);
/* The same for a key that our own code names. */
const struct option_row *option_row_of(enum option_section_kind kind, const char *key)
    __attribute__((returns_nonnull));
struct option_section *option_section_find(const struct options *options,
                                           enum option_section_kind kind, const char *name);
/* That of a source, of a scope that was not made for a route. */
const struct option_section *option_section_of_source(const struct options *options,
                                                      const struct source_options *source)
    __attribute__((returns_nonnull));
const struct option_section *option_section_of_scope(const struct options *options,
                                                     const struct scope_options *scope)
    __attribute__((returns_nonnull));
/* The text that counts: the one set, else the default. */
const char *option_text(const struct option_section *section, const struct option_row *row);
bool option_is_set(const struct option_section *section, const struct option_row *row);
/* The operator set it to something other than what it is anyway. */
bool option_is_chosen(const struct option_section *section, const char *key);
bool option_is_wrong(const struct option_section *section, const char *key);
/* One of the keys, which NULL ends: what the checks see of it is its default. */
#define OPTION_KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})
bool option_is_one_wrong(const struct option_section *section, const char *const *keys);
/* The error is told elsewhere. A key that no option has is none. */
void option_mark_wrong(const struct option_section *section, const char *key);

/* A new section at the end of the list; NULL when there is no memory. */
struct option_section *option_section_add(struct options_loader *loader,
                                          enum option_section_kind kind, const char *name,
                                          struct option_place declared);

/* options_input.c: take over what the bytes, the file, the files in conf.d beside it say. */
void options_apply_input(struct options_loader *loader, const struct options_input *input);
void options_apply_file(struct options_loader *loader, const char *path);
void options_apply_drop_ins(struct options_loader *loader, const char *main_path);

/* options_env.c: PENSTOCK__* over what the files say. */
void options_apply_environment(struct options_loader *loader);
const char *options_variable(const struct options_surroundings *around, const char *name);
/* NAME as it stands in a variable: upper-case, - as _. Writes to out[size]. */
void option_variable_word(char *out, size_t size, const char *name);

/* options_value.c: turn the section's text for this row into the member of its struct. */
void option_read(struct options_loader *loader, struct option_section *section,
                 const struct option_row *row);
/* What the row takes, for messages and the manual. */
void option_append_allowed(const struct option_row *row, struct text *out);
/* 600, 600k or 2m: thousands and millions, not powers of 2. */
MUST_CHECK bool option_thousands(const char *text, size_t length, uint64_t *ret_number);

/* options_secret.c: the secret that the reference names, kept; NULL after an error was reported. */
const char *option_secret_read(struct options_loader *loader, struct option_subject subject,
                               const char *reference);

/* options_check.c: what no single value can tell. */
void options_check(struct options_loader *loader);
/* Is something wrong that decides how many threads there are, or how many image calls have one? */
bool options_are_threads_wrong(const struct options *options);

/* options_scope.c: what names something else, and whether it fits together: members and fallbacks
 * of scopes, where routes go. After options_check. */
void options_link(struct options_loader *loader);

/* options_hedge.c: can a second attempt ever begin, and where would it go (H16)? */
void options_check_hedge(struct options_loader *loader, struct scope_options *scope);

/* options_flow.c: quotas of the source, classes of the scope and of the image queue; then, with all
 * scopes known, whether each has what its strategy needs. */
void options_read_limits(struct options_loader *loader, struct source_options *source);
void options_read_classes(struct options_loader *loader, struct scope_options *scope);
void options_read_image_classes(struct options_loader *loader);
void options_check_flow(struct options_loader *loader);
/* options_effect.c: has each option of flow control an effect? After the other checks. */
void options_check_effect(struct options_loader *loader);

/* options_pair.c: take apart and check what the source writes as NAME=VALUE. */
void options_read_pairs(struct options_loader *loader, struct source_options *source);
/* NULL: the text can be a model's name. */
const char *option_model_problem(const char *name);

#endif
