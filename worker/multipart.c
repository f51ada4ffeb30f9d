/*
 * multipart.c - finds the boundaries and reads the heads between them; see multipart.h.
 *
 * The delimiter begins with CR and has no second one, so a match that fails can only begin again at
 * the byte where it failed: no byte is looked at twice, and a file is skipped from CR to CR.
 */
#include "worker/multipart.h"

#include "base/check.h"

#include <string.h>
#include <strings.h>

#define HEAD_MAX 16384 /* bytes of one part's head */
#define CRLF_LENGTH 2

enum state {
    IN_BODY, /* of a part, or the preamble: looking for the delimiter */
    AFTER_DELIMITER,
    AFTER_DASH,
    AFTER_PADDING_CR,
    IN_HEAD,
    IN_EPILOGUE,
};

/* ---- parameters: ; name=value; name="value" -------------------------------------------------- */

struct parameter {
    char name[16];
    char value[MULTIPART_BOUNDARY_MAX + 2];
    size_t value_length;
    bool value_cut;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void add_to_value(struct parameter *parameter, char c)
{
    if (parameter->value_length + 1 < sizeof parameter->value)
        parameter->value[parameter->value_length++] = c;
    else
        parameter->value_cut = true;
}

/* Old browsers send file names with bare backslashes: only \" and \\ are escapes. */
static const char *read_quoted(struct parameter *parameter, const char *at)
{
    for (at++; *at && *at != '"'; at++) {
        if (*at == '\\' && (at[1] == '"' || at[1] == '\\'))
            at++;
        add_to_value(parameter, *at);
    }
    return *at ? at + 1 : at;
}

static const char *skip_blanks(const char *at)
{
    while (is_blank(*at))
        at++;
    return at;
}

/* Read the next parameter and move *at behind it; false when there is none. */
static bool next_parameter(const char **at, struct parameter *parameter)
{
    const char *now = *at + strcspn(*at, ";");
    size_t length = 0;

    if (*now == '\0')
        return false;
    now = skip_blanks(now + 1);
    for (; *now && !strchr("=; \t", *now); now++)
        if (length + 1 < sizeof parameter->name)
            parameter->name[length++] = *now;
    parameter->name[length] = '\0';
    parameter->value_length = 0;
    parameter->value_cut = false;
    now = skip_blanks(now);
    if (*now == '=') {
        now = skip_blanks(now + 1);
        if (*now == '"')
            now = read_quoted(parameter, now);
        else
            for (; *now && !strchr("; \t", *now); now++)
                add_to_value(parameter, *now);
    }
    parameter->value[parameter->value_length] = '\0';
    *at = now;
    return true;
}

bool multipart_begin(struct multipart *multipart, const char *content_type,
                     multipart_field_function *on_field, void *context)
{
    static const char type[] = "multipart/form-data";
    struct multipart_private *own = &multipart->own;
    struct parameter parameter;

    multipart->on_field = on_field;
    multipart->context = context;
    multipart->ended = false;
    multipart->invalid = true;
    multipart->parts = 0;
    multipart->text_bytes = 0;
    own->on_text = NULL;
    content_type = content_type ? skip_blanks(content_type) : "";
    if (strncasecmp(content_type, type, sizeof type - 1) != 0 ||
        !strchr("; \t", content_type[sizeof type - 1]))
        return false;
    while (next_parameter(&content_type, &parameter)) {
        if (strcasecmp(parameter.name, "boundary") != 0)
            continue;
        if (parameter.value_length == 0 || parameter.value_length > MULTIPART_BOUNDARY_MAX ||
            strpbrk(parameter.value, "\r\n"))
            return false;
        memcpy(own->delimiter, "\r\n--", 4);
        memcpy(own->delimiter + 4, parameter.value, parameter.value_length + 1);
        own->delimiter_length = 4 + parameter.value_length;
        own->state = IN_BODY;
        own->in_part = false;
        own->is_file = false;
        own->fed_bytes = 0;
        own->padded = false;
        own->value_cut = false;
        own->matched = CRLF_LENGTH; /* the first delimiter may stand at the very beginning */
        own->virtual_crlf = true;
        multipart->invalid = false;
        return true;
    }
    return false;
}

void multipart_listen(struct multipart *multipart, multipart_text_function *on_text)
{
    multipart->own.on_text = on_text;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void begin_part(struct multipart_private *own)
{
    own->state = IN_HEAD;
    own->in_part = true;
    own->line_ended = true;
    own->line_cut = false;
    own->line_length = 0;
    own->head_bytes = 0;
    own->is_file = false;
    own->name_cut = false;
    own->name_length = 0;
    own->value_cut = false;
    own->value_length = 0;
}

static bool is_named(const struct multipart_private *own)
{
    return own->name_length > 0 && !own->name_cut;
}

static void tell_end(const struct multipart *multipart, uint64_t value_bytes)
{
    const struct multipart_private *own = &multipart->own;

    if (own->on_text && is_named(own))
        own->on_text(multipart->context, &(struct multipart_text){.name = own->name,
                                                                  .bytes = "",
                                                                  .is_file = own->is_file,
                                                                  .ends = true,
                                                                  .value_bytes = value_bytes});
}

static void end_part(struct multipart *multipart)
{
    struct multipart_private *own = &multipart->own;
    uint64_t value_bytes = own->match_at - own->value_at;

    if (!own->in_part)
        return;
    own->in_part = false;
    multipart->parts++;
    tell_end(multipart, value_bytes);
    if (own->is_file)
        return;
    multipart->text_bytes += value_bytes;
    own->value[own->value_length] = '\0';
    if (is_named(own))
        multipart->on_field(multipart->context,
                            &(struct multipart_field){.name = own->name,
                                                      .value = own->value,
                                                      .value_length = own->value_length,
                                                      .value_cut = own->value_cut,
                                                      .value_at = own->value_at,
                                                      .value_bytes = value_bytes});
}

static void add_text(struct multipart *multipart, const char *bytes, size_t length)
{
    struct multipart_private *own = &multipart->own;
    size_t room = MULTIPART_VALUE_MAX - own->value_length;

    if (own->on_text && length > 0 && is_named(own))
        own->on_text(multipart->context,
                     &(struct multipart_text){.name = own->name, .bytes = bytes, .length = length});
    if (own->value_cut)
        return;
    if (length > room) {
        own->value_cut = true;
        length = room;
    }
    memcpy(own->value + own->value_length, bytes, length);
    own->value_length += length;
}

/* Bytes that turned out to belong to what is between two delimiters. */
static inline void add_body(struct multipart *multipart, const char *bytes, size_t length)
{
    if (multipart->own.in_part && !multipart->own.is_file)
        add_text(multipart, bytes, length);
}

static void take_disposition(struct multipart_private *own, const char *parameters)
{
    struct parameter parameter;

    while (next_parameter(&parameters, &parameter)) {
        if (strcasecmp(parameter.name, "filename") == 0 ||
            strcasecmp(parameter.name, "filename*") == 0) {
            own->is_file = true;
        } else if (strcasecmp(parameter.name, "name") == 0) {
            own->name_cut = parameter.value_length > MULTIPART_NAME_MAX;
            own->name_length = own->name_cut ? 0 : parameter.value_length;
            memcpy(own->name, parameter.value, own->name_length);
            own->name[own->name_length] = '\0';
        }
    }
}

/* A whole line of a part's head, unfolded. */
static void take_line(struct multipart *multipart)
{
    static const char disposition[] = "content-disposition:";
    struct multipart_private *own = &multipart->own;

    own->line[own->line_length] = '\0';
    if (strncasecmp(own->line, disposition, sizeof disposition - 1) == 0) {
        if (own->line_cut)
            multipart->invalid = true;
        take_disposition(own, own->line + sizeof disposition - 1);
    }
    own->line_length = 0;
    own->line_cut = false;
}

static void end_head(struct multipart *multipart)
{
    take_line(multipart);
    multipart->own.state = IN_BODY;
    /* Some senders let an empty part's delimiter follow on the head's empty line. */
    multipart->own.matched = CRLF_LENGTH;
    multipart->own.virtual_crlf = true;
}

static void take_head(struct multipart *multipart, char c)
{
    struct multipart_private *own = &multipart->own;

    if (++own->head_bytes > HEAD_MAX) {
        multipart->invalid = true;
    } else if (c == '\n') {
        if (own->line_ended)
            end_head(multipart);
        own->line_ended = true;
    } else if (c != '\r') {
        /* The line before is over unless this one begins with a blank. */
        if (own->line_ended && !is_blank(c))
            take_line(multipart);
        own->line_ended = false;
        if (own->line_length + 1 < sizeof own->line)
            own->line[own->line_length++] = c;
        else
            own->line_cut = true;
    }
}

/* ---- delimiters ------------------------------------------------------------------------------ */

/* What was held back as a possible delimiter is body after all. */
static void give_up_match(struct multipart *multipart)
{
    struct multipart_private *own = &multipart->own;
    size_t skip = own->virtual_crlf ? CRLF_LENGTH : 0;

    add_body(multipart, own->delimiter + skip, own->matched - skip);
    own->value_cut = own->value_cut || own->padded; /* which blanks is forgotten */
    own->padded = false;
    own->matched = 0;
    own->virtual_crlf = false;
    own->state = IN_BODY;
}

static uint64_t place_of(const struct multipart_private *own, const char *at)
{
    return own->fed_bytes + (size_t)(at - own->feed);
}

/* Inside a part up to the end of its delimiter, or of what there is. */
static const char *read_body(struct multipart *multipart, const char *at, const char *end)
{
    struct multipart_private *own = &multipart->own;

    while (at < end) {
        if (own->matched == 0) {
            const char *found = memchr(at, '\r', (size_t)(end - at));

            add_body(multipart, at, (size_t)((found ? found : end) - at));
            if (!found)
                return end;
            own->matched = 1;
            own->match_at = place_of(own, found);
            at = found + 1;
        } else if (*at != own->delimiter[own->matched]) {
            give_up_match(multipart);
        } else {
            at++;
            if (++own->matched == own->delimiter_length) {
                own->state = AFTER_DELIMITER;
                return at;
            }
        }
    }
    return at;
}

static void accept_delimiter(struct multipart *multipart, bool last)
{
    end_part(multipart);
    multipart->own.matched = 0;
    multipart->own.virtual_crlf = false;
    multipart->own.padded = false;
    if (last) {
        multipart->ended = true;
        multipart->own.state = IN_EPILOGUE;
    } else {
        begin_part(&multipart->own);
    }
}

/* Behind "--boundary": a line end, blanks before it, or "--"; otherwise it only looked like one.
 * Returns how many bytes were used: the byte is read again as body when it ended a false delimiter. */
static size_t take_after_delimiter(struct multipart *multipart, const char *at)
{
    struct multipart_private *own = &multipart->own;
    char c = *at;

    if (c == '\n' && own->state != AFTER_DASH) {
        accept_delimiter(multipart, false);
    } else if (own->state == AFTER_DASH && c == '-') {
        accept_delimiter(multipart, true);
    } else if (own->state == AFTER_DELIMITER && c == '-') {
        own->state = AFTER_DASH;
    } else if (own->state == AFTER_DELIMITER && c == '\r') {
        own->state = AFTER_PADDING_CR;
    } else if (own->state == AFTER_DELIMITER && is_blank(c)) {
        own->padded = true;
    } else {
        enum state from = (enum state)own->state;

        give_up_match(multipart);
        if (from == AFTER_DASH)
            add_body(multipart, "-", 1);
        if (from == AFTER_PADDING_CR) {
            own->matched = 1; /* that CR may begin the true delimiter */
            own->match_at = place_of(own, at) - 1;
        }
        return 0;
    }
    return 1;
}

void multipart_feed(struct multipart *multipart, const char *bytes, size_t length)
{
    struct multipart_private *own = &multipart->own;
    const char *end = bytes + length;

    own->feed = bytes;
    for (const char *at = bytes; at < end && !multipart->invalid;) {
        switch ((enum state)own->state) {
        case IN_BODY:
            at = read_body(multipart, at, end);
            break;
        case AFTER_DELIMITER:
        case AFTER_DASH:
        case AFTER_PADDING_CR:
            at += take_after_delimiter(multipart, at);
            break;
        case IN_HEAD:
            take_head(multipart, *at++);
            own->value_at = own->match_at = place_of(own, at);
            break;
        case IN_EPILOGUE:
            return;
        }
    }
    own->fed_bytes += length;
}
