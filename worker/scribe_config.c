/* scribe_config.c - the configuration as rows; see scribe_config.h. */
#include "worker/scribe_config.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void scribe_config_mask(char *text)
{
    static const char mask[] = "***";
    char *at = text;

    while ((at = strstr(at, "://")) != NULL) {
        size_t authority;
        char *end;

        at += strlen("://");
        authority = strcspn(at, "/?# \t,");
        end = memrchr(at, '@', authority);
        if (!end)
            continue;
        if ((size_t)(end - at) < strlen(mask)) { /* no room: nothing may stay of it */
            memset(at, '*', (size_t)(end - at));
            continue;
        }
        memcpy(at, mask, strlen(mask));
        memmove(at + strlen(mask), end, strlen(end) + 1);
    }
}

/* One line of `penstockd -T`: "section.key = value    [origin]". Cut in place. */
static bool put_line(struct ledger *ledger, char *line)
{
    char *value = strstr(line, " = ");
    char *origin = NULL;
    char *end;

    if (!value)
        return true;
    *value = '\0';
    value += strlen(" = ");
    for (char *at = strstr(value, "  ["); at; at = strstr(at + 1, "  ["))
        origin = at;
    if (origin) {
        end = origin;
        origin += strlen("  [");
        origin[strcspn(origin, "]\n")] = '\0';
    } else {
        end = value + strcspn(value, "\n");
    }
    while (end > value && end[-1] == ' ')
        end--;
    *end = '\0';
    scribe_config_mask(value);
    return ledger_put_config(ledger, line, value, origin ? origin : "");
}

static bool put_lines(struct ledger *ledger, char *dump)
{
    char *rest = NULL;

    for (char *line = strtok_r(dump, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (!put_line(ledger, line))
            return false;
    return true;
}

/* The word of the dialect as `penstockd -T` has it. */
static const char *dialect_word(int dialect)
{
    static const char *const words[] = {
        [DIALECT_OPENAI] = "openai", [DIALECT_DASHSCOPE] = "dashscope", [DIALECT_AZURE] = "azure",
        [DIALECT_GEMINI] = "gemini", [DIALECT_ANTHROPIC] = "anthropic", [DIALECT_PLAIN] = "plain",
    };

    return dialect >= 0 && (size_t)dialect < LENGTH(words) ? words[dialect] : "unknown";
}

static bool put_sources(struct ledger *ledger, const struct options *options, int64_t now_wall_ms)
{
    char url[1024];

    for (size_t i = 0; i < options->source_count; i++) {
        const struct source_options *source = &options->sources[i];
        const struct ledger_source row = {
            .name = source->name,
            .base_url = url,
            .dialect = dialect_word(source->dialect),
            .quota_group = *source->quota_group ? source->quota_group : source->name,
            .max_in_flight = source->max_in_flight,
            .loaded_wall_ms = now_wall_ms,
        };

        (void)text_copy(url, sizeof url, source->base_url);
        scribe_config_mask(url);
        if (!ledger_put_source(ledger, &row))
            return false;
    }
    return true;
}

bool scribe_config_write(struct ledger *ledger, const struct options *options, int64_t now_wall_ms)
{
    char *dump = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&dump, &size);
    bool ok;

    if (!out)
        return false;
    options_dump(options, out);
    if (fclose(out) != 0) {
        free(dump);
        return false;
    }
    ok = ledger_begin(ledger) && ledger_clear_config(ledger) && put_lines(ledger, dump) &&
         put_sources(ledger, options, now_wall_ms) && ledger_commit(ledger);
    if (!ok)
        ledger_rollback(ledger);
    free(dump);
    return ok;
}
