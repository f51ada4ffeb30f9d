/* options_report.c - the words of errors and warnings about the configuration; see options_table.h.
 */
#include "worker/options_table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SUGGESTION_DISTANCE_MAX 2U
#define SUGGESTION_WORD_MAX 160U /* longer words get no suggestion */

struct option_subject option_subject(const struct option_section *section,
                                     const struct option_row *row)
{
    const struct option_value *value = &section->values[row - option_rows];

    return (struct option_subject){.place = value->text ? &value->place : &section->declared,
                                   .section = section,
                                   .key = row->key};
}

struct option_subject option_subject_of(const struct option_section *section, const char *key)
{
    return option_subject(section, option_row_of(section->kind, key));
}

void option_place_text(const struct option_place *place, struct text *out)
{
    if (place->variable)
        text_printf(out, "environment: %s", place->variable);
    else if (place->file && place->line > 0)
        text_printf(out, "%s:%u", place->file, place->line);
    else
        text_append_string(out, place->file ? place->file : "default");
}

/* "file:12: warning: source openai.base_url: " */
static void append_head(struct text *report, const struct option_subject *subject, bool is_warning)
{
    const struct option_section *section = subject->section;
    char excerpt[OPTION_EXCERPT_SIZE];

    option_place_text(subject->place, report);
    text_append_string(report, is_warning ? ": warning: " : ": ");
    if (!section)
        return;
    text_append_string(report, option_section_words[section->kind]);
    if (*section->name)
        text_printf(report, " %s", section->name);
    if (subject->key)
        text_printf(report, ".%s", option_excerpt(excerpt, subject->key));
    text_append_string(report, ": ");
}

static void append_sentence(struct text *report, const char *format, va_list list)
    __attribute__((format(printf, 2, 0)));
static void append_sentence(struct text *report, const char *format, va_list list)
{
    char sentence[1400]; /* long enough for every message: values are cut before */

    (void)vsnprintf(sentence, sizeof sentence, format, list);
    text_append_string(report, sentence);
    text_append_char(report, '\n');
}

void option_mark_wrong(const struct option_section *section, const char *key)
{
    const struct option_row *row = section && key ? option_row_find(section->kind, key) : NULL;

    if (row)
        section->values[row - option_rows].wrong = true;
}

void options_error(struct options_loader *loader, struct option_subject subject, const char *format,
                   ...)
{
    va_list list;

    loader->error_count++;
    option_mark_wrong(subject.section, subject.key);
    append_head(loader->report, &subject, false);
    va_start(list, format);
    append_sentence(loader->report, format, list);
    va_end(list);
}

void options_warning(struct options_loader *loader, struct option_subject subject,
                     const char *format, ...)
{
    va_list list;

    append_head(loader->report, &subject, true);
    va_start(list, format);
    append_sentence(loader->report, format, list);
    va_end(list);
}

const char *option_excerpt(char out[OPTION_EXCERPT_SIZE], const char *value)
{
    size_t length = strlen(value);
    size_t kept = length < OPTION_EXCERPT_SIZE ? length : OPTION_EXCERPT_SIZE - 4;

    for (size_t i = 0; i < kept; i++)
        out[i] = value[i];
    for (size_t i = 0; i < kept; i++)
        if ((unsigned char)out[i] < 0x20 || (unsigned char)out[i] >= 0x7f)
            out[i] = '?';
    out[kept] = '\0';
    if (kept < length)
        memcpy(out + kept, "...", sizeof "...");
    return out;
}

const char *option_duration(int64_t ms, char out[OPTION_DURATION_SIZE])
{
    bool whole = ms % 1000 == 0;

    (void)snprintf(out, OPTION_DURATION_SIZE, "%" PRId64 " %s", whole ? ms / 1000 : ms,
                   whole ? "s" : "ms");
    return out;
}

/* ---- did you mean ---------------------------------------------------------------------------- */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Levenshtein distance, ASCII case ignored; two words as different as that in length are not
 * measured. */
static unsigned edit_distance(const char *left, const char *right)
{
    size_t left_length = strlen(left);
    size_t right_length = strlen(right);
    unsigned row[SUGGESTION_WORD_MAX + 1];

    if (left_length > SUGGESTION_WORD_MAX || right_length > SUGGESTION_WORD_MAX ||
        left_length > right_length + SUGGESTION_DISTANCE_MAX ||
        right_length > left_length + SUGGESTION_DISTANCE_MAX)
        return SUGGESTION_DISTANCE_MAX + 1;
    for (unsigned k = 0; k <= right_length; k++)
        row[k] = k;
    for (unsigned i = 1; i <= left_length; i++) {
        unsigned diagonal = row[0];

        row[0] = i;
        for (unsigned k = 1; k <= right_length; k++) {
            unsigned replaced = diagonal + (lower(left[i - 1]) != lower(right[k - 1]));

            diagonal = row[k];
            row[k] = least(replaced, least(row[k], row[k - 1]) + 1);
        }
    }
    return row[right_length];
}

void option_suggestion_init(struct option_suggestion *suggestion, const char *word)
{
    *suggestion = (struct option_suggestion){.word = word, .distance = SUGGESTION_DISTANCE_MAX + 1};
}

void option_suggestion_offer(struct option_suggestion *suggestion, const char *candidate)
{
    unsigned distance = edit_distance(suggestion->word, candidate);

    /* A word that is mostly edits resembles everything. */
    if (distance < suggestion->distance && distance < strlen(suggestion->word)) {
        suggestion->distance = distance;
        suggestion->best = candidate;
    }
}

void option_suggestion_append(const struct option_suggestion *suggestion, struct text *out)
{
    if (suggestion->best)
        text_printf(out, "; did you mean \"%s\"?", suggestion->best);
}
