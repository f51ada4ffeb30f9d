/* options_print.c - the table as text: penstockd -T, the manual's lists, the example file; see
 * options.h. */
#include "worker/options_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WRAP_COLUMNS 78U

static const char *const section_heads[OPTION_SECTION_KINDS] = {
    [OPTION_SECTION_penstock] = "[penstock]",
    [OPTION_SECTION_image_concurrency] = "[image_concurrency]",
    [OPTION_SECTION_source] = "[source NAME]",
    [OPTION_SECTION_scope] = "[scope NAME]",
    [OPTION_SECTION_route] = "[route NAME]",
};

static const char *const section_helps[OPTION_SECTION_KINDS] = {
    [OPTION_SECTION_penstock] = "This instance: sockets, processes, limits, log and ledger.",
    [OPTION_SECTION_image_concurrency] =
        "How many image calls may be in progress on this host, and what happens to the others.",
    [OPTION_SECTION_source] =
        "One section for each upstream endpoint with one account. Without any, the environment "
        "variable PENSTOCK_UPSTREAM is the URL of a source called default. At most 64.",
    [OPTION_SECTION_scope] =
        "One section for each set of sources that can answer the same calls: what one fails, "
        "another is asked.",
    [OPTION_SECTION_route] =
        "One section for each path with a scope or source of its own. Without any, everything "
        "under /v1/ goes to the first scope, or without a scope to the first source.",
};

/* ---- penstockd -T ---------------------------------------------------------------------------- */

/* With no limit told at all, adaptive begins from nothing. */
static bool learns_all(const struct option_section *section, const struct option_row *row)
{
    const struct scope_options *scope = section->target;

    if (row->section != OPTION_SECTION_scope || strcmp(row->key, "flow") != 0 ||
        scope->flow != FLOW_STRATEGY_ADAPTIVE)
        return false;
    for (size_t i = 0; i < scope->member_count; i++) {
        const struct source_options *source = scope->members[i].source;

        if (source->rpm > 0 || source->tpm > 0 || source->limits->glob)
            return false;
    }
    return true;
}

/* What the word stands for on this machine, in this configuration; "" when it stands for itself. */
static void append_meaning(const struct options *options, const struct option_section *section,
                           const struct option_row *row, struct text *out)
{
    if (learns_all(section, row))
        text_append_string(out, " (no source has rpm or tpm: all limits are learned)");
    if (row->section == OPTION_SECTION_penstock && strcmp(row->key, "workers") == 0 &&
        options->penstock.workers < 0)
        text_printf(out, " (%" PRId64 ")", options_workers(options));
    if (row->section == OPTION_SECTION_penstock && strcmp(row->key, "threads") == 0 &&
        options->penstock.threads < 0)
        text_printf(out, " (%" PRId64 ")", options_threads(options));
    if ((strcmp(row->key, "image_stream_data_interval_timeout") == 0 &&
         options->image.image_stream_data_interval_timeout_ms < 0) ||
        (strcmp(row->key, "image_first_byte_timeout_seconds") == 0 &&
         options->image.image_first_byte_timeout_ms < 0))
        text_append_string(out, " (idle: the gate is off)");
}

static void dump_row(const struct options *options, const struct option_section *section,
                     const struct option_row *row, FILE *out)
{
    const struct option_value *value = &section->values[row - option_rows];
    struct text line;
    struct text place;

    text_init(&line, 16384);
    text_init(&place, 8192);
    text_append_string(&line, option_section_words[section->kind]);
    if (*section->name)
        text_printf(&line, " %s", section->name);
    /* A secret's text is the reference to it, never the secret. */
    text_printf(&line, ".%s = %s", row->key, option_text(section, row));
    append_meaning(options, section, row, &line);
    option_place_text(&value->place, &place);
    (void)fprintf(out, "%-60s  [%s]\n", text_string(&line), text_string(&place));
    text_release(&line);
    text_release(&place);
}

void options_dump(const struct options *options, FILE *out)
{
    for (const struct option_section *at = options->own->sections; at; at = at->next)
        for (size_t i = 0; i < option_row_count; i++)
            if (option_rows[i].section == at->kind)
                dump_row(options, at, &option_rows[i], out);
}

void options_fixed(const struct options *options, struct text *out)
{
    for (const struct option_section *at = options->own->sections; at; at = at->next)
        for (size_t i = 0; i < option_row_count; i++)
            if (option_rows[i].section == at->kind && !option_rows[i].reloadable)
                text_printf(out, "%s.%s = %s\n", option_section_words[at->kind], option_rows[i].key,
                            option_text(at, &option_rows[i]));
}

/* ---- wrapped text ---------------------------------------------------------------------------- */

/* Print words with the prefix on every line; a sentence begins a new line where asked (mdoc). */
static void print_wrapped(FILE *out, const char *prefix, const char *words, bool by_sentence)
{
    size_t column = 0;

    while (*words) {
        size_t length = strcspn(words, " ");

        if (column > 0 && column + 1 + length > WRAP_COLUMNS) {
            (void)fputc('\n', out);
            column = 0;
        }
        (void)fputs(column == 0 ? prefix : " ", out);
        column += (column == 0 ? strlen(prefix) : 1) + length;
        (void)fwrite(words, 1, length, out);
        if (by_sentence && length > 0 && words[length - 1] == '.')
            column = WRAP_COLUMNS;
        words += length + strspn(words + length, " ");
    }
    if (column > 0)
        (void)fputc('\n', out);
}

/* "Help. Allowed: ... . Needs a restart." */
static void append_description(const struct option_row *row, struct text *out)
{
    char first = row->help[0];

    text_append_char(out, first >= 'a' && first <= 'z' ? (char)(first - 'a' + 'A') : first);
    text_append_string(out, row->help + 1);
    text_append_char(out, '.');
    if (row->type != OPTION_TYPE_STRING && row->type != OPTION_TYPE_CHOICE) {
        text_append_string(out, " Allowed: ");
        option_append_allowed(row, out);
        text_append_char(out, '.');
    }
    if (!row->reloadable)
        text_append_string(out, " A change needs a restart.");
}

/* ---- the manual ------------------------------------------------------------------------------ */

void options_print_manual(FILE *out)
{
    struct text description;

    text_init(&description, 4096);
    for (size_t kind = 0; kind < OPTION_SECTION_KINDS; kind++) {
        /* \& keeps mandoc from taking the ] for the end of a sentence. */
        (void)fprintf(out, ".Ss %s\\&\n", section_heads[kind]);
        print_wrapped(out, "", section_helps[kind], true);
        (void)fputs(".Bl -tag -width Ds\n", out);
        for (size_t i = 0; i < option_row_count; i++) {
            const struct option_row *row = &option_rows[i];

            if (row->section != kind)
                continue;
            text_clear(&description);
            append_description(row, &description);
            text_append_string(&description, " Default: ");
            text_append_string(&description, *row->fallback ? row->fallback : "empty");
            text_append_char(&description, '.');
            (void)fprintf(out, ".It Ic %s\n", row->key);
            print_wrapped(out, "", text_string(&description), true);
        }
        (void)fputs(".El\n", out);
    }
    text_release(&description);
}

/* ---- the example ----------------------------------------------------------------------------- */

static void print_example_row(const struct option_row *row, FILE *out)
{
    struct text description;

    text_init(&description, 4096);
    append_description(row, &description);
    (void)fputc('\n', out);
    print_wrapped(out, "# ", text_string(&description), false);
    (void)fprintf(out, ";%s =%s%s\n", row->key, *row->fallback ? " " : "", row->fallback);
    text_release(&description);
}

void options_print_example(FILE *out)
{
    (void)fputs("# penstock.conf - every option with its default; see penstock.conf(5).\n"
                "#\n"
                "# Take the ; away to set an option. Comments have a line of their own.\n"
                "# Files in conf.d beside this one are read after it and override it; so does\n"
                "# the environment: PENSTOCK__IMAGE_CONCURRENCY__ENABLED=true.\n"
                "# penstockd -t checks everything, penstockd -T shows what counts and why.\n",
                out);
    for (size_t kind = 0; kind < OPTION_SECTION_KINDS; kind++) {
        /* A [source] without its URL would be an error, so the named sections are comments too. */
        bool named = option_section_is_named((enum option_section_kind)kind);

        (void)fputc('\n', out);
        print_wrapped(out, "# ", section_helps[kind], false);
        (void)fprintf(out, "%s%s\n", named ? ";" : "", section_heads[kind]);
        for (size_t i = 0; i < option_row_count; i++)
            if (option_rows[i].section == kind)
                print_example_row(&option_rows[i], out);
    }
}
