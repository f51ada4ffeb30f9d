/* options_pair.c - what a source writes as NAME=VALUE: model aliases and headers; see
 * options_table.h. */
#include "worker/options_table.h"

#include <string.h>
#include <strings.h>

#define MODEL_MAX 255U /* bytes of a model's name, as intent.h keeps them */
#define HEADER_NAME_MAX 100U

#define ALIASES_ALLOWED "allowed: ASKED=SERVED, such as gpt-5=my-deployment"
#define HEADERS_ALLOWED "allowed: NAME=VALUE, such as x-team=search"

/* A pair whose halves are not judged yet. NULL as name: there is no = in it, or nothing on one of
 * its sides. */
static struct option_pair cut_pair(struct options_loader *loader, const char *item)
{
    struct option_pair pair = {.name = NULL};
    const char *equals = strchr(item, '=');
    size_t length = equals ? (size_t)(equals - item) : 0;

    while (length > 0 && (item[length - 1] == ' ' || item[length - 1] == '\t'))
        length--;
    if (length == 0)
        return pair;
    pair.value = equals + 1 + strspn(equals + 1, " \t");
    if (*pair.value)
        pair.name = options_keep_text(loader, item, length);
    return pair;
}

static size_t count_items(const char *const *items)
{
    size_t count = 0;

    while (items[count])
        count++;
    return count;
}

/* ---- aliases --------------------------------------------------------------------------------- */

/* What goes into a request body as one JSON string, without an escape. */
const char *option_model_problem(const char *name)
{
    if (strlen(name) > MODEL_MAX)
        return "is longer than 255 bytes";
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at < 0x20 || (unsigned char)*at >= 0x7f || *at == '"' || *at == '\\')
            return "has a character that no model's name has";
    return NULL;
}

static const char *alias_problem(const struct option_pair *pair, const struct option_pair *before,
                                 size_t before_count)
{
    const char *problem;

    if (!pair->name)
        return "is no pair of names";
    problem = option_model_problem(pair->name);
    if (!problem)
        problem = option_model_problem(pair->value);
    for (size_t i = 0; i < before_count && !problem; i++)
        if (strcmp(before[i].name, pair->name) == 0)
            problem = "is the second for the same model";
    return problem;
}

static void read_aliases(struct options_loader *loader, struct source_options *source,
                         const struct option_section *section)
{
    const struct option_row *row = option_row_of(OPTION_SECTION_source, "model_aliases");
    const char *const *items = source->model_aliases;
    struct option_pair *pairs = options_keep(loader, (count_items(items) + 1) * sizeof *pairs);
    size_t count = 0;
    char excerpt[OPTION_EXCERPT_SIZE];

    for (size_t i = 0; items[i] && pairs && !loader->out_of_memory; i++) {
        struct option_pair pair = cut_pair(loader, items[i]);
        const char *problem = alias_problem(&pair, pairs, count);

        if (loader->out_of_memory)
            return;
        if (problem)
            options_error(loader, option_subject(section, row), "\"%s\" %s; " ALIASES_ALLOWED,
                          option_excerpt(excerpt, items[i]), problem);
        else
            pairs[count++] = pair;
    }
    source->aliases = pairs;
}

/* ---- headers --------------------------------------------------------------------------------- */

/* Written by http_request.c for every call, about the one connection, or about the one body. */
static const char *const own_headers[] = {
    "Accept-Encoding",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "Expect",
    "Host",
    "Keep-Alive",
    "Proxy-Authorization",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
};

/* Those in which api_key goes, by dialect. */
static const char *const key_headers[] = {"Authorization", "X-Api-Key", "Api-Key",
                                          "X-Goog-Api-Key"};

static bool is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

/* A token of RFC 9110, 5.6.2. */
static bool is_token(const char *name)
{
    static const char letters[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

    return strspn(name, letters) == strlen(name);
}

static bool is_printable(const char *value)
{
    for (; *value; value++)
        if ((unsigned char)*value < 0x20 || (unsigned char)*value >= 0x7f)
            return false;
    return true;
}

static const char *header_problem(const struct source_options *source,
                                  const struct option_pair *pair, const struct option_pair *before,
                                  size_t before_count)
{
    if (!pair->name)
        return "is no name with a value";
    if (strlen(pair->name) > HEADER_NAME_MAX || !is_token(pair->name))
        return "has a name that no header can have";
    if (!is_printable(pair->value))
        return "has a character that is not printable ASCII";
    if (is_among(pair->name, own_headers, LENGTH(own_headers)))
        return "names a header that belongs to the connection or the body";
    if (*source->api_key && is_among(pair->name, key_headers, LENGTH(key_headers)))
        return "names a header for a key, and api_key is set";
    for (size_t i = 0; i < before_count; i++)
        if (strcasecmp(before[i].name, pair->name) == 0)
            return "is the second of this name";
    if (before_count == EXTRA_HEADERS_MAX)
        return "is one too many: 16 headers are the most";
    return NULL;
}

static void read_headers(struct options_loader *loader, struct source_options *source,
                         const struct option_section *section)
{
    struct option_subject subject =
        option_subject(section, option_row_of(OPTION_SECTION_source, "add_headers"));
    const char *const *items = source->add_headers;
    struct option_pair *pairs = options_keep(loader, (count_items(items) + 1) * sizeof *pairs);
    size_t count = 0;
    char excerpt[OPTION_EXCERPT_SIZE];

    for (size_t i = 0; items[i] && pairs && !loader->out_of_memory; i++) {
        struct option_pair pair = cut_pair(loader, items[i]);
        const char *problem = header_problem(source, &pair, pairs, count);

        if (loader->out_of_memory)
            return;
        if (problem) {
            /* The value may be a secret. */
            options_error(loader, subject, "\"%s\" %s; " HEADERS_ALLOWED,
                          option_excerpt(excerpt, pair.name ? pair.name : items[i]), problem);
            continue;
        }
        if (is_among(pair.name, key_headers, LENGTH(key_headers)))
            options_warning(loader, subject,
                            "whoever reads this file or penstockd -T sees the key in \"%s\"; use "
                            "api_key = @file:PATH",
                            option_excerpt(excerpt, pair.name));
        pairs[count++] = pair;
    }
    source->extra_headers = pairs;
}

void options_read_pairs(struct options_loader *loader, struct source_options *source)
{
    const struct option_section *section = option_section_of_source(loader->options, source);

    read_aliases(loader, source, section);
    if (!loader->out_of_memory)
        read_headers(loader, source, section);
}
