/* options_env.c - what the environment says over the files: PENSTOCK__SECTION__KEY; see
 * options_table.h. */
#include "worker/options_file.h"
#include "worker/options_table.h"

#include <string.h>

#define VARIABLE_PREFIX "PENSTOCK__"
#define VARIABLE_MAX 200U /* bytes of a variable's name that can be one of ours */

const char *options_variable(const struct options_surroundings *around, const char *name)
{
    size_t length = strlen(name);

    for (const char *const *at = around->environment; at && *at; at++)
        if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
            return *at + length + 1;
    return "";
}

void option_variable_word(char *out, size_t size, const char *name)
{
    size_t at = 0;

    for (; name[at] && at + 1 < size; at++) {
        char c = name[at];

        if (c >= 'a' && c <= 'z')
            c = (char)(c - 'a' + 'A');
        out[at] = c == '-' ? '_' : c;
    }
    out[at] = '\0';
}

/* The whole variable that overrides this row of this section. */
static void variable_name(struct text *out, const struct option_section *section,
                          const struct option_row *row)
{
    char key[VARIABLE_MAX];

    option_variable_word(key, sizeof key, row->key);
    text_clear(out);
    text_append_string(out, section->variable_stem);
    text_append_string(out, key);
}

static void refuse_variable(struct options_loader *loader, struct option_subject subject,
                            const char *variable)
{
    struct option_suggestion suggestion;
    struct text candidate;
    struct text best;
    unsigned distance;

    text_init(&candidate, VARIABLE_MAX);
    text_init(&best, VARIABLE_MAX + 32);
    option_suggestion_init(&suggestion, variable);
    for (const struct option_section *at = loader->options->own->sections; at; at = at->next) {
        for (size_t i = 0; i < option_row_count; i++) {
            if (option_rows[i].section != at->kind)
                continue;
            variable_name(&candidate, at, &option_rows[i]);
            distance = suggestion.distance;
            option_suggestion_offer(&suggestion, text_string(&candidate));
            if (suggestion.distance < distance) {
                text_clear(&best);
                option_suggestion_append(&suggestion, &best);
            }
        }
    }
    options_error(
        loader, subject,
        "no such option; allowed: PENSTOCK__SECTION__KEY, or PENSTOCK__SECTION__NAME__KEY "
        "for a [source], [scope] or [route] of the configuration%s",
        text_string(&best));
    text_release(&candidate);
    text_release(&best);
}

/* The section and row a variable names: the section with the longest stem that fits. */
static const struct option_row *find_row(const struct options *options, const char *variable,
                                         struct option_section **ret_section)
{
    const struct option_row *found = NULL;

    for (struct option_section *at = options->own->sections; at; at = at->next) {
        size_t stem = strlen(at->variable_stem);

        if (strncmp(variable, at->variable_stem, stem) != 0)
            continue;
        for (size_t i = 0; i < option_row_count; i++) {
            char key[VARIABLE_MAX];

            if (option_rows[i].section != at->kind)
                continue;
            option_variable_word(key, sizeof key, option_rows[i].key);
            if (strcmp(variable + stem, key) == 0) {
                found = &option_rows[i];
                *ret_section = at;
            }
        }
    }
    return found;
}

static void apply_variable(struct options_loader *loader, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    struct option_place place = {.variable = NULL};
    struct option_section *section = NULL;
    const struct option_row *row;
    const char *problem;
    const char *text;
    char excerpt[OPTION_EXCERPT_SIZE];

    if (!equals || (size_t)(equals - assignment) > VARIABLE_MAX) {
        place.variable = option_excerpt(excerpt, assignment);
        options_error(loader, (struct option_subject){.place = &place}, "not an option's name");
        return;
    }
    place.variable = options_keep_text(loader, assignment, (size_t)(equals - assignment));
    text = options_keep_text(loader, equals + 1, strlen(equals + 1));
    if (!place.variable || !text)
        return;
    row = find_row(loader->options, place.variable, &section);
    if (!row) {
        text = place.variable;
        place.variable = option_excerpt(excerpt, text);
        refuse_variable(loader, (struct option_subject){.place = &place}, text);
        return;
    }
    problem = options_value_problem(text, strlen(text));
    if (problem || strlen(text) > OPTIONS_LINE_MAX) {
        options_error(
            loader, (struct option_subject){.place = &place, .section = section, .key = row->key},
            "%s",
            problem ? "the value has a control character" : "the value is longer than 4096 bytes");
        return;
    }
    section->values[row - option_rows] = (struct option_value){.text = text, .place = place};
}

/* Two names that one variable would mean. */
static void check_collisions(struct options_loader *loader)
{
    const struct option_section *first = loader->options->own->sections;

    for (const struct option_section *at = first; at; at = at->next)
        for (const struct option_section *before = first; before != at; before = before->next)
            if (before->kind == at->kind && strcmp(before->variable_stem, at->variable_stem) == 0)
                options_error(loader,
                              (struct option_subject){.place = &at->declared, .section = at},
                              "its variables %s* would be those of [%s %s] too; take another name",
                              at->variable_stem, option_section_words[before->kind], before->name);
}

void options_apply_environment(struct options_loader *loader)
{
    check_collisions(loader);
    for (const char *const *at = loader->around->environment; at && *at && !loader->out_of_memory;
         at++)
        if (strncmp(*at, VARIABLE_PREFIX, strlen(VARIABLE_PREFIX)) == 0)
            apply_variable(loader, *at);
}
