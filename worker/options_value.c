/* options_value.c - from a text to a value: types, units, ranges; see options_table.h. */
#include "base/parse.h"
#include "worker/options_table.h"

#include <inttypes.h>
#include <string.h>

#define LIST_ITEMS_MAX 256U

/* What the table's columns cannot say about what is allowed. */
static const struct {
    const char *key;
    const char *allowed; /* NULL: as the type says */
    const char *at_zero; /* the way to what 0 was meant to do */
    bool above_zero;     /* anything from min on, which is 0, but not 0 itself */
} exceptions[] = {
    {"dashscope_wait_s", "0, or 3 to 120 whole seconds", NULL, false},
    {"hedge_after_s", "more than 0, to 86400 seconds, or with a unit: ms, s, m, h, d",
     "; to send no second attempt leave it empty", true},
    {"image_stream_data_interval_timeout", "0, or 60 to 1800 seconds", NULL, false},
    {"max_waiting_requests", NULL, "; to refuse at once set overflow_mode = reject", false},
    {"wait_timeout_seconds", NULL, "; to refuse at once set overflow_mode = reject", false},
};

static const char *const type_words[] = {
    [OPTION_TYPE_BOOL] = "a switch",        [OPTION_TYPE_COUNT] = "a whole number",
    [OPTION_TYPE_SECONDS] = "a time",       [OPTION_TYPE_SIZE] = "a size",
    [OPTION_TYPE_STRING] = "a text",        [OPTION_TYPE_CHOICE] = "one of its words",
    [OPTION_TYPE_LIST] = "a list",          [OPTION_TYPE_SECRET] = "a reference to a secret",
    [OPTION_TYPE_MODE] = "an octal number",
};

/* ---- what is allowed ------------------------------------------------------------------------- */

static void append_size(struct text *out, int64_t bytes)
{
    static const char units[] = "kmgt";
    size_t unit = 0;

    if (bytes == 0 || bytes % 1024 != 0) {
        text_printf(out, "%" PRId64, bytes);
        return;
    }
    for (bytes /= 1024; bytes % 1024 == 0 && unit + 2 < sizeof units; unit++)
        bytes /= 1024;
    text_printf(out, "%" PRId64 "%c", bytes, units[unit]);
}

static void append_words(struct text *out, const char *const *words)
{
    for (size_t i = 0; words[i]; i++)
        text_printf(out, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
}

/* Below 0 stands for auto; see options_list.h. */
static int64_t least_count(const struct option_row *row)
{
    return row->min < 0 ? row->min + 2 : row->min;
}

static bool takes_thousands(const struct option_row *row)
{
    return row->max >= 1000000;
}

void option_append_allowed(const struct option_row *row, struct text *out)
{
    for (size_t i = 0; i < LENGTH(exceptions); i++) {
        if (exceptions[i].allowed && strcmp(exceptions[i].key, row->key) == 0) {
            text_append_string(out, exceptions[i].allowed);
            return;
        }
    }
    switch (row->type) {
    case OPTION_TYPE_BOOL:
        text_append_string(out, "true or false");
        break;
    case OPTION_TYPE_COUNT:
        text_printf(out, "%s%" PRId64 " to %" PRId64 "%s", row->min < 0 ? "auto, or " : "",
                    least_count(row), row->max,
                    takes_thousands(row) ? ", or with a unit: k (thousands), m (millions)" : "");
        break;
    case OPTION_TYPE_SECONDS:
        text_printf(out, "%" PRId64 " to %" PRId64 " seconds, or with a unit: ms, s, m, h, d",
                    row->min, row->max);
        break;
    case OPTION_TYPE_SIZE:
        append_size(out, row->min);
        text_append_string(out, " to ");
        append_size(out, row->max);
        text_append_string(out, " (bytes, or with a unit: k, m, g)");
        break;
    case OPTION_TYPE_CHOICE:
        append_words(out, row->words);
        break;
    case OPTION_TYPE_LIST:
        text_append_string(out, "entries separated by commas");
        break;
    case OPTION_TYPE_SECRET:
        text_append_string(out, "@credential:NAME, @file:PATH or @env:NAME");
        break;
    case OPTION_TYPE_MODE:
        text_printf(out, "0 to %04" PRIo64, (uint64_t)row->max);
        break;
    case OPTION_TYPE_STRING:
        text_append_string(out, "text");
        break;
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

enum number_verdict { NUMBER_GOOD, NUMBER_MALFORMED, NUMBER_OUT_OF_RANGE };

static bool is_above_zero(const struct option_row *row)
{
    for (size_t i = 0; i < LENGTH(exceptions); i++)
        if (exceptions[i].above_zero && strcmp(exceptions[i].key, row->key) == 0)
            return true;
    return false;
}

static enum number_verdict in_range(int64_t number, int64_t min, int64_t max)
{
    return number >= min && number <= max ? NUMBER_GOOD : NUMBER_OUT_OF_RANGE;
}

static bool parse_octal(const char *text, uint64_t *ret_number)
{
    uint64_t number = 0;
    size_t length = strlen(text);

    if (length == 0 || length > 6 || strspn(text, "01234567") != length)
        return false;
    for (; *text; text++)
        number = number * 8 + (uint64_t)(*text - '0');
    *ret_number = number;
    return true;
}

static bool parse_choice(const struct option_row *row, const char *text, int64_t *ret_index)
{
    for (size_t i = 0; row->words[i]; i++) {
        if (strcmp(row->words[i], text) == 0) {
            *ret_index = (int64_t)i;
            return true;
        }
    }
    return false;
}

bool option_thousands(const char *text, size_t length, uint64_t *ret_number)
{
    uint64_t unit = 1;

    if (length > 0 && (text[length - 1] == 'k' || text[length - 1] == 'm')) {
        unit = text[length - 1] == 'k' ? 1000 : 1000000;
        length--;
    }
    if (!parse_u64_bytes(text, length, ret_number))
        return false;
    *ret_number = *ret_number > UINT64_MAX / unit ? UINT64_MAX : *ret_number * unit;
    return true;
}

static enum number_verdict read_count(const struct option_row *row, const char *text, int64_t *ret)
{
    uint64_t number;

    if (row->min < 0 && strcmp(text, "auto") == 0) {
        *ret = -1;
        return NUMBER_GOOD;
    }
    if (takes_thousands(row) ? !option_thousands(text, strlen(text), &number)
                             : !parse_u64(text, &number))
        return NUMBER_MALFORMED;
    *ret = number > INT64_MAX ? INT64_MAX : (int64_t)number;
    return in_range(*ret, least_count(row), row->max);
}

static enum number_verdict read_seconds(const struct option_row *row, const char *text,
                                        int64_t *ret)
{
    if (*text == '\0' && *row->fallback == '\0') {
        *ret = -1;
        return NUMBER_GOOD;
    }
    if (!parse_duration_ms(text, 1000, ret))
        return NUMBER_MALFORMED;
    if (*ret == 0 && is_above_zero(row))
        return NUMBER_OUT_OF_RANGE;
    return in_range(*ret, row->min * 1000, row->max * 1000);
}

static enum number_verdict read_unsigned(const struct option_row *row, bool parsed, uint64_t number,
                                         int64_t *ret)
{
    if (!parsed)
        return NUMBER_MALFORMED;
    *ret = number > INT64_MAX ? INT64_MAX : (int64_t)number;
    return in_range(*ret, row->min, row->max);
}

static enum number_verdict read_number(const struct option_row *row, const char *text,
                                       int64_t *ret_number)
{
    uint64_t number = 0;
    bool flag = false;
    bool good;

    switch (row->type) {
    case OPTION_TYPE_BOOL:
        good = parse_bool(text, &flag);
        *ret_number = flag;
        return good ? NUMBER_GOOD : NUMBER_MALFORMED;
    case OPTION_TYPE_COUNT:
        return read_count(row, text, ret_number);
    case OPTION_TYPE_SECONDS:
        return read_seconds(row, text, ret_number);
    case OPTION_TYPE_SIZE:
        good = parse_size(text, &number);
        return read_unsigned(row, good, number, ret_number);
    case OPTION_TYPE_MODE:
        good = parse_octal(text, &number);
        return read_unsigned(row, good, number, ret_number);
    case OPTION_TYPE_CHOICE:
        return parse_choice(row, text, ret_number) ? NUMBER_GOOD : NUMBER_MALFORMED;
    case OPTION_TYPE_STRING:
    case OPTION_TYPE_LIST:
    case OPTION_TYPE_SECRET:
        break;
    }
    UNREACHABLE();
}

static void store_number(const struct option_row *row, void *target, int64_t number)
{
    char *member = (char *)target + row->offset;
    bool flag = number != 0;
    int index = (int)number;

    if (row->type == OPTION_TYPE_BOOL)
        memcpy(member, &flag, sizeof flag);
    else if (row->type == OPTION_TYPE_CHOICE)
        memcpy(member, &index, sizeof index);
    else
        memcpy(member, &number, sizeof number);
}

static void append_suggestion(const struct option_row *row, const char *text, struct text *out)
{
    struct option_suggestion suggestion;

    option_suggestion_init(&suggestion, text);
    if (row->type == OPTION_TYPE_BOOL) {
        option_suggestion_offer(&suggestion, "true");
        option_suggestion_offer(&suggestion, "false");
    }
    for (size_t i = 0; row->words && row->words[i]; i++)
        option_suggestion_offer(&suggestion, row->words[i]);
    if (row->type == OPTION_TYPE_COUNT && row->min < 0)
        option_suggestion_offer(&suggestion, "auto");
    option_suggestion_append(&suggestion, out);
}

static void refuse_number(struct options_loader *loader, const struct option_section *section,
                          const struct option_row *row, enum number_verdict verdict)
{
    const char *text = option_text(section, row);
    char excerpt[OPTION_EXCERPT_SIZE];
    struct text tail;

    text_init(&tail, 600);
    option_append_allowed(row, &tail);
    for (size_t i = 0; i < LENGTH(exceptions); i++)
        if (exceptions[i].at_zero && strcmp(text, "0") == 0 &&
            strcmp(exceptions[i].key, row->key) == 0)
            text_append_string(&tail, exceptions[i].at_zero);
    append_suggestion(row, text, &tail);
    if (strstr(text, " ;") || strstr(text, " #"))
        text_append_string(&tail, "; a comment must have a line of its own");
    if (*text == '\0')
        options_error(loader, option_subject(section, row), "the value is missing; allowed: %s",
                      text_string(&tail));
    else if (verdict == NUMBER_OUT_OF_RANGE)
        options_error(loader, option_subject(section, row), "%s is out of range; allowed: %s",
                      option_excerpt(excerpt, text), text_string(&tail));
    else
        options_error(loader, option_subject(section, row), "\"%s\" is not %s; allowed: %s",
                      option_excerpt(excerpt, text), type_words[row->type], text_string(&tail));
    text_release(&tail);
}

static void read_number_option(struct options_loader *loader, struct option_section *section,
                               const struct option_row *row)
{
    int64_t number;
    enum number_verdict verdict = read_number(row, option_text(section, row), &number);

    if (verdict != NUMBER_GOOD) {
        refuse_number(loader, section, row, verdict);
        /* Go on with the default, so that the checks to come have sane numbers. */
        verdict = read_number(row, row->fallback, &number);
        INVARIANT(verdict == NUMBER_GOOD);
    }
    store_number(row, section->target, number);
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* The kept text is cut into items in place; items points into it. False: an item is empty. */
static bool cut_items(char *text, const char **items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *comma = text + strcspn(text, ",");
        char *next = *comma ? comma + 1 : comma;

        while (*text == ' ' || *text == '\t')
            text++;
        while (comma > text && (comma[-1] == ' ' || comma[-1] == '\t'))
            comma--;
        *comma = '\0';
        if (*text == '\0')
            return false;
        items[i] = text;
        text = next;
    }
    return true;
}

/* NULL: *ret_items has them all. */
static const char *list_problem(struct options_loader *loader, const char *text,
                                const char ***ret_items)
{
    size_t length = strlen(text);
    size_t count = *text != '\0';
    char *copy = options_keep(loader, length + 1);

    for (const char *at = text; *at; at++)
        count += *at == ',';
    if (count > LIST_ITEMS_MAX)
        return "too many entries; allowed: 256";
    *ret_items = options_keep(loader, (count + 1) * sizeof **ret_items);
    if (!copy || !*ret_items)
        return NULL;
    memcpy(copy, text, length);
    return cut_items(copy, *ret_items, count)
               ? NULL
               : "an entry is empty; allowed: entries separated by single commas";
}

static void read_list_option(struct options_loader *loader, struct option_section *section,
                             const struct option_row *row)
{
    const char **items = NULL;
    const char *problem = list_problem(loader, option_text(section, row), &items);

    if (problem) {
        options_error(loader, option_subject(section, row), "%s", problem);
        problem = list_problem(loader, row->fallback, &items); /* as for numbers */
        INVARIANT(!problem);
    }
    memcpy((char *)section->target + row->offset, &items, sizeof items);
}

/* ---- any option ------------------------------------------------------------------------------ */

void option_read(struct options_loader *loader, struct option_section *section,
                 const struct option_row *row)
{
    const char *text = option_text(section, row);

    switch (row->type) {
    case OPTION_TYPE_BOOL:
    case OPTION_TYPE_COUNT:
    case OPTION_TYPE_SECONDS:
    case OPTION_TYPE_SIZE:
    case OPTION_TYPE_CHOICE:
    case OPTION_TYPE_MODE:
        read_number_option(loader, section, row);
        break;
    case OPTION_TYPE_LIST:
        read_list_option(loader, section, row);
        break;
    case OPTION_TYPE_SECRET:
        if (*text)
            text = option_secret_read(loader, option_subject(section, row), text);
        if (!text)
            text = "";
        memcpy((char *)section->target + row->offset, &text, sizeof text);
        break;
    case OPTION_TYPE_STRING:
        memcpy((char *)section->target + row->offset, &text, sizeof text);
        break;
    }
}
