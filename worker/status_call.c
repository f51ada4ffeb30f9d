/* status_call.c - one call and its attempts as text and JSON; see status_call.h. */
#include "worker/status_call.h"

#include "shared/layout.h"
#include "shared/ledger_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BUSY_MS 100 /* for each of the few statements */

/* What is true or false in JSON, a number in the ledger. */
static const char *const yes_or_no[] = {"stream", "hedge_won", "fallback", "hedge", "kept_est"};

/* The table of attempts as text. */
static const struct text_column {
    const char *name;
    int width; /* negative: left-aligned */
} attempt_columns[] = {
    {"n", 3},       {"source", -20},       {"hedge", 5},  {"started_at", -24},
    {"ttft_ms", 8}, {"generation_ms", 13}, {"status", 6}, {"error", -24},
};

struct page {
    struct text *out;
    const char *id;
    bool json, call_written;
    size_t attempts;
};

bool status_call_is_id(const char *id, size_t length)
{
    static const char letters[] =
        "-_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

    return length > 0 && length < CALL_ID_SIZE && strspn(id, letters) >= length;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static bool is_yes_or_no(const char *name)
{
    for (size_t i = 0; i < LENGTH(yes_or_no); i++)
        if (strcmp(yes_or_no[i], name) == 0)
            return true;
    return false;
}

static void json_column(const struct ledger_column *column, struct text *out)
{
    text_append_json(out, column->name, strlen(column->name));
    text_append_char(out, ':');
    if (column->kind == LEDGER_COLUMN_NULL)
        text_append_string(out, "null");
    else if (column->kind == LEDGER_COLUMN_TEXT)
        text_append_json(out, column->text, strlen(column->text));
    else if (is_yes_or_no(column->name))
        text_append_string(out, column->number ? "true" : "false");
    else
        text_append_number(out, column->number);
}

static void json_columns(const struct ledger_column *columns, size_t count, struct text *out)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            text_append_char(out, ',');
        json_column(&columns[i], out);
    }
}

/* A call that has not ended, or whose worker died, has no row of its own. */
static void json_without_call(const struct page *page)
{
    text_append_string(page->out, "{\"ended\":false,\"call_id\":");
    text_append_json(page->out, page->id, strlen(page->id));
}

/* ---- text ------------------------------------------------------------------------------------ */

static void text_value(const struct ledger_column *column, int width, struct text *out)
{
    char number[32];
    const char *shown = column->text;

    if (column->kind == LEDGER_COLUMN_NUMBER) {
        (void)snprintf(number, sizeof number, "%" PRId64, column->number);
        shown = number;
    } else if (column->kind == LEDGER_COLUMN_NULL || !*shown) {
        shown = "-";
    }
    text_printf(out, "%*s", width, shown);
}

static void text_call(const struct ledger_column *columns, size_t count, struct text *out)
{
    for (size_t i = 0; i < count; i++) {
        text_printf(out, "%s:%*s", columns[i].name, (int)(21 - strlen(columns[i].name) % 21), "");
        text_value(&columns[i], 0, out);
        text_append_char(out, '\n');
    }
}

static void text_attempt(const struct page *page, const struct ledger_column *columns, size_t count)
{
    struct text *out = page->out;

    if (page->attempts == 0) {
        text_append_string(out, "\nattempts\n");
        for (size_t i = 0; i < LENGTH(attempt_columns); i++)
            text_printf(out, "  %*s", attempt_columns[i].width, attempt_columns[i].name);
        text_append_char(out, '\n');
    }
    for (size_t i = 0; i < LENGTH(attempt_columns); i++)
        for (size_t k = 0; k < count; k++)
            if (strcmp(columns[k].name, attempt_columns[i].name) == 0) {
                text_append_string(out, "  ");
                text_value(&columns[k], attempt_columns[i].width, out);
            }
    text_append_char(out, '\n');
}

/* ---- the page -------------------------------------------------------------------------------- */

static void take_call(struct page *page, const struct ledger_column *columns, size_t count)
{
    page->call_written = true;
    if (page->json) {
        text_append_string(page->out, "{\"ended\":true,");
        json_columns(columns, count, page->out);
    } else {
        text_call(columns, count, page->out);
    }
}

static void take_attempt(struct page *page, const struct ledger_column *columns, size_t count)
{
    if (!page->json) {
        if (!page->call_written && page->attempts == 0)
            text_printf(page->out, "%s has not ended, or its worker died\n", page->id);
        text_attempt(page, columns, count);
    } else {
        if (!page->call_written && page->attempts == 0)
            json_without_call(page);
        text_append_string(page->out, page->attempts == 0 ? ",\"attempts\":[{" : ",{");
        json_columns(columns, count, page->out);
        text_append_char(page->out, '}');
    }
    page->attempts++;
}

static void take_row(void *context, enum ledger_part part, const struct ledger_column *columns,
                     size_t count)
{
    struct page *page = context;

    if (part == LEDGER_PART_CALL)
        take_call(page, columns, count);
    else
        take_attempt(page, columns, count);
}

enum status_call_result status_call_write(const char *state_directory, const char *id, bool json,
                                          struct text *out, struct text *why)
{
    struct ledger_reader *reader = ledger_reader_open(state_directory, BUSY_MS, why);
    struct page page = {.out = out, .id = id, .json = json};
    size_t rows = 0;
    bool ok;

    if (!reader)
        return STATUS_CALL_UNREADABLE;
    ok = ledger_read_call(reader, id, take_row, &page, &rows);
    if (!ok)
        text_append_string(why, ledger_reader_error(reader));
    ledger_reader_close(reader);
    if (!ok)
        return STATUS_CALL_UNREADABLE;
    if (rows == 0)
        return STATUS_CALL_UNKNOWN;
    if (json)
        text_append_string(out, page.attempts == 0 ? ",\"attempts\":[]}\n" : "]}\n");
    return STATUS_CALL_FOUND;
}
