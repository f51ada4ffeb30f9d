/* options_input.c - the files: each line to the section and option it belongs to; see
 * options_table.h. */
#include "worker/options_file.h"
#include "worker/options_table.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- one file -------------------------------------------------------------------------------- */

/* Letters, digits, - and _, a letter or digit at both ends. */
static bool is_name(const char *name)
{
    static const char inner[] = "-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t length = strlen(name);

    return length > 0 && length <= OPTION_NAME_MAX && strspn(name, inner) == length &&
           strchr(inner + 2, name[0]) && strchr(inner + 2, name[length - 1]);
}

static void refuse_section(struct options_loader *loader, struct option_subject subject,
                           const char *word)
{
    struct option_suggestion suggestion;
    struct text tail;
    char excerpt[OPTION_EXCERPT_SIZE];

    text_init(&tail, 200);
    option_suggestion_init(&suggestion, word);
    for (size_t i = 0; i < OPTION_SECTION_KINDS; i++)
        option_suggestion_offer(&suggestion, option_section_words[i]);
    option_suggestion_append(&suggestion, &tail);
    options_error(loader, subject,
                  "unknown section [%s]; allowed: [penstock], [image_concurrency], [source NAME], "
                  "[scope NAME], [route NAME]%s",
                  option_excerpt(excerpt, word), text_string(&tail));
    text_release(&tail);
}

static enum option_section_kind section_kind(const char *word)
{
    size_t kind = 0;

    while (kind < OPTION_SECTION_KINDS && strcmp(option_section_words[kind], word) != 0)
        kind++;
    return (enum option_section_kind)kind;
}

/* The section a header names, made when it is new; NULL after an error: its lines are skipped. */
static struct option_section *open_section(struct options_loader *loader,
                                           const struct options_line *line,
                                           const struct option_place *place)
{
    enum option_section_kind kind = section_kind(line->section);
    struct option_subject subject = {.place = place};
    bool named = option_section_is_named(kind);
    struct option_section *section;
    char excerpt[OPTION_EXCERPT_SIZE];

    if (kind == OPTION_SECTION_KINDS) {
        refuse_section(loader, subject, line->section);
        return NULL;
    }
    if (!named && *line->name) {
        options_error(loader, subject, "the section takes no name; allowed: [%s]", line->section);
        return NULL;
    }
    if (named && !is_name(line->name)) {
        options_error(loader, subject,
                      "[%s NAME] needs a name, not \"%s\"; allowed: 1 to 63 letters, digits, - and "
                      "_, with a letter or digit at both ends",
                      line->section, option_excerpt(excerpt, line->name));
        return NULL;
    }
    if (strcasecmp(line->name, "penstock") == 0) {
        options_error(loader, subject, "a section cannot be called PENSTOCK; take another name");
        return NULL;
    }
    section = option_section_find(loader->options, kind, line->name);
    if (section) {
        if (section->declared.line == 0)
            section->declared = *place;
        return section;
    }
    if (loader->options->own->section_count >= OPTIONS_SECTIONS_MAX + 2) {
        options_error(loader, subject,
                      "too many sections; allowed: 1024 [source], [scope] and [route]");
        return NULL;
    }
    return option_section_add(loader, kind, line->name, *place);
}

static void refuse_key(struct options_loader *loader, struct option_subject subject,
                       enum option_section_kind kind)
{
    struct option_suggestion suggestion;
    struct text tail;

    text_init(&tail, 400);
    option_suggestion_init(&suggestion, subject.key);
    for (size_t i = 0; i < option_row_count; i++)
        if (option_rows[i].section == kind)
            option_suggestion_offer(&suggestion, option_rows[i].key);
    for (size_t i = 0; i < option_row_count; i++) {
        if (option_rows[i].section != kind && strcmp(option_rows[i].key, subject.key) == 0) {
            text_printf(&tail, "; it belongs in [%s]",
                        option_section_words[option_rows[i].section]);
            break;
        }
    }
    option_suggestion_append(&suggestion, &tail);
    options_error(loader, subject, "unknown option%s", text_string(&tail));
    if (suggestion.best)
        option_mark_wrong(subject.section, suggestion.best);
    text_release(&tail);
}

/* An option of the section is known by its name, also in "overflow_mode wait". What follows is not
 * shown. */
static void refuse_line(struct options_loader *loader, struct option_subject subject,
                        const struct options_line *line)
{
    const struct option_row *row =
        subject.section ? option_row_find(subject.section->kind, line->key) : NULL;
    struct text allowed;

    subject.key = row ? row->key : NULL;
    if (!row || line->kind != OPTIONS_LINE_NO_VALUE) {
        options_error(loader, subject, "%s", line->problem);
        return;
    }
    text_init(&allowed, 600);
    option_append_allowed(row, &allowed);
    options_error(loader, subject,
                  "there is no = between the option and its value; write %s = VALUE; allowed: %s",
                  row->key, text_string(&allowed));
    text_release(&allowed);
}

static void take_value(struct options_loader *loader, struct option_section *section,
                       const struct options_line *line, const struct option_place *place)
{
    const struct option_row *row = option_row_find(section->kind, line->key);
    struct option_subject subject = {.place = place, .section = section, .key = line->key};
    struct option_value *value;
    const char *text;

    if (!row) {
        refuse_key(loader, subject, section->kind);
        return;
    }
    value = &section->values[row - option_rows];
    /* One kept string per file: the pointer tells whether it is the same file. */
    if (value->text && value->place.file == place->file) {
        options_error(loader, subject, "set twice in this file; the first time in line %u",
                      value->place.line);
        return;
    }
    text = options_keep_text(loader, line->value, strlen(line->value));
    if (text)
        *value = (struct option_value){.text = text, .place = *place};
}

void options_apply_input(struct options_loader *loader, const struct options_input *input)
{
    struct option_place place = {.file =
                                     options_keep_text(loader, input->path, strlen(input->path))};
    struct option_section *section = NULL;
    bool skipping = false; /* what is wrong about this section was said already */
    struct options_file file;
    struct options_line line;

    options_file_init(&file, input->bytes, input->length);
    while (!loader->out_of_memory && options_file_next(&file, &line)) {
        struct option_subject subject = {.place = &place, .section = section};

        place.line = line.number;
        switch (line.kind) {
        case OPTIONS_LINE_SECTION:
            section = open_section(loader, &line, &place);
            skipping = !section;
            break;
        case OPTIONS_LINE_VALUE:
            if (section)
                take_value(loader, section, &line, &place);
            else if (!skipping)
                options_error(loader, subject, "a value stands before the first [section]");
            skipping = !section;
            break;
        case OPTIONS_LINE_BAD:
        case OPTIONS_LINE_NO_VALUE:
            refuse_line(loader, subject, &line);
            break;
        case OPTIONS_LINE_BAD_SECTION:
            subject.section = section = NULL;
            refuse_line(loader, subject, &line);
            skipping = true;
            break;
        }
    }
}

/* ---- the file system ------------------------------------------------------------------------- */

void options_apply_file(struct options_loader *loader, const char *path)
{
    struct option_place place = {.file = path};
    struct options_input input = {.path = path};
    struct options_bytes bytes = {.length = 0};
    const char *problem;
    char *buffer = malloc(OPTIONS_FILE_MAX);

    if (!buffer) {
        loader->out_of_memory = true;
        return;
    }
    if (options_file_read(path, buffer, OPTIONS_FILE_MAX, &bytes, &problem)) {
        input.bytes = buffer;
        input.length = bytes.length;
        options_apply_input(loader, &input);
    } else {
        options_error(loader, (struct option_subject){.place = &place},
                      "cannot be read: %s; allowed: a text file of at most 1 MiB", problem);
    }
    free(buffer);
}

static int is_drop_in(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return entry->d_name[0] != '.' && length > 5 &&
           strcmp(entry->d_name + length - 5, ".conf") == 0;
}

/* By bytes: alphasort follows the locale. */
static int compare_names(const struct dirent **left, const struct dirent **right)
{
    return strcmp((*left)->d_name, (*right)->d_name);
}

void options_apply_drop_ins(struct options_loader *loader, const char *main_path)
{
    const char *slash = strrchr(main_path, '/');
    struct dirent **names = NULL;
    struct option_place place = {.file = NULL};
    struct text path;
    size_t folder;
    int count;

    text_init(&path, 4096);
    if (slash)
        text_append(&path, main_path, (size_t)(slash - main_path) + 1);
    text_append_string(&path, "conf.d");
    folder = path.length;
    count = scandir(text_string(&path), &names, is_drop_in, compare_names);
    place.file = text_string(&path);
    if (count < 0 && errno == ENOMEM)
        loader->out_of_memory = true;
    else if (count < 0 && errno != ENOENT)
        options_error(loader, (struct option_subject){.place = &place}, "cannot be read: %s",
                      strerror(errno));
    if (count > (int)OPTIONS_DROP_INS_MAX)
        options_error(loader, (struct option_subject){.place = &place},
                      "holds more than 256 *.conf files");
    for (int i = 0; i < count; i++) {
        if (i < (int)OPTIONS_DROP_INS_MAX && !loader->out_of_memory) {
            path.length = folder;
            text_append_char(&path, '/');
            text_append_string(&path, names[i]->d_name);
            loader->out_of_memory = loader->out_of_memory || path.overflowed;
            if (!path.overflowed)
                options_apply_file(loader, text_string(&path));
        }
        free(names[i]);
    }
    free(names);
    text_release(&path);
}
