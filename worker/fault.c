/* fault.c - the table of faults and their words on the wire; see fault.h. */
#include "worker/fault.h"

#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FAULT_RETRY_YES 1
#define FAULT_RETRY_NO 0
#define FAULT_RETRY_OPEN (-1)

static const struct fault_row {
    int status;
    int should_retry;
    const char *code;
    const char *type;
    const char *message;
} fault_rows[FAULT_CODES] = {
    [FAULT_NONE] = {0, FAULT_RETRY_OPEN, "", "", ""},
#define FAULT(name, status, type, should_retry, message)                                           \
    [FAULT_##name] = {status, FAULT_RETRY_##should_retry, "penstock_" #name, type, message},
#include "worker/fault_list.h"
#undef FAULT
};

static const struct fault_row *row_of(enum fault_code code)
{
    REQUIRE(code < FAULT_CODES);
    return &fault_rows[code];
}

void fault_set(struct fault *fault, enum fault_code code, const char *detail_format, ...)
{
    va_list list;

    REQUIRE(code > FAULT_NONE && code < FAULT_CODES);
    if (fault->code != FAULT_NONE)
        return;
    fault->code = code;
    fault->retry_after_ms = -1;
    va_start(list, detail_format);
    (void)vsnprintf(fault->detail, sizeof fault->detail, detail_format, list);
    va_end(list);
}

int fault_status(enum fault_code code)
{
    return row_of(code)->status;
}

const char *fault_code_text(enum fault_code code)
{
    return row_of(code)->code;
}

int fault_should_retry(enum fault_code code)
{
    return row_of(code)->should_retry;
}

static void append_pair(struct text *out, const char *key, const char *value)
{
    text_printf(out, "\"%s\":", key);
    text_append_json(out, value, strlen(value));
    text_append_char(out, ',');
}

static void append_message(const struct fault *fault, struct text *out)
{
    char message[sizeof fault->detail + 300];

    (void)snprintf(message, sizeof message, "%s%s%s", row_of(fault->code)->message,
                   fault->detail[0] ? " " : "", fault->detail);
    append_pair(out, "message", message);
}

/* {"message":...,"type":...,"param":null,"code":...} */
static void append_error(const struct fault *fault, struct text *out)
{
    text_append_char(out, '{');
    append_message(fault, out);
    append_pair(out, "type", row_of(fault->code)->type);
    text_printf(out, "\"param\":null,\"code\":\"%s\"}", row_of(fault->code)->code);
}

void fault_append_json(const struct fault *fault, struct text *out)
{
    text_append_string(out, "{\"error\":");
    append_error(fault, out);
    text_append_char(out, '}');
}

/* Readers of chat streams look for "error" in the data and some for nothing else: theirs has only
 * that. Readers of the others want the event's own type as well; those of Responses take no event
 * for theirs without a sequence_number, whose true value would need the upstream's last one. */
void fault_append_event(const struct fault *fault, enum stream_family family, struct text *out)
{
    text_append_string(out, "event: error\ndata: ");
    if (family == STREAM_CHAT) {
        fault_append_json(fault, out);
    } else {
        text_append_string(out, "{\"type\":\"error\",");
        append_pair(out, "code", row_of(fault->code)->code);
        append_message(fault, out);
        text_append_string(out, "\"param\":null,");
        if (family == STREAM_RESPONSES)
            text_append_string(out, "\"sequence_number\":0,");
        text_append_string(out, "\"error\":");
        append_error(fault, out);
        text_append_char(out, '}');
    }
    text_append_string(out, "\n\n");
}
