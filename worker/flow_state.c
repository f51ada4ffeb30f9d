/* flow_state.c - what was learned, as a file; see flow_state.h. */
#include "worker/flow_state.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER "penstock flow state 3\n"
#define VALUE_SIZE 64

/* ---- fields ---------------------------------------------------------------------------------- */

enum field_type { FIELD_REAL, FIELD_NUMBER, FIELD_SMALL };

#define FIELD(type, name, member)                                                                  \
    {                                                                                              \
        FIELD_##type, name, offsetof(struct flow_memory, member)                                   \
    }
static const struct field {
    enum field_type type;
    const char *key;
    size_t offset; /* in struct flow_memory */
} fields[] = {
    FIELD(REAL, "watermark", learned.watermark),
    FIELD(REAL, "pace", learned.pace),
    FIELD(REAL, "growth", learned.growth),
    FIELD(REAL, "requests_share", learned.requests_share),
    FIELD(REAL, "tokens_share", learned.tokens_share),
    FIELD(REAL, "requests_learned", learned.requests_learned),
    FIELD(REAL, "tokens_learned", learned.tokens_learned),
    FIELD(REAL, "mean_output", learned.mean_output),
    FIELD(REAL, "seconds_per_token", learned.tpt_base_s),
    FIELD(REAL, "latin_latin", estimate.latin_latin),
    FIELD(REAL, "latin_script", estimate.latin_script),
    FIELD(REAL, "script_script", estimate.script_script),
    FIELD(REAL, "latin_used", estimate.latin_used),
    FIELD(REAL, "script_used", estimate.script_used),
    FIELD(SMALL, "ratio_samples", estimate.ratio_samples),
    FIELD(SMALL, "output_samples", estimate.output_samples),
    FIELD(NUMBER, "output_parts", estimate.output_parts),
    FIELD(NUMBER, "requests_told", requests_told),
    FIELD(NUMBER, "units_told", units_told),
};

static void write_field(const struct field *field, const struct flow_memory *memory,
                        struct text *out)
{
    const void *at = (const char *)memory + field->offset;
    double real;
    int64_t number;
    uint32_t small;

    switch (field->type) {
    case FIELD_REAL:
        memcpy(&real, at, sizeof real);
        text_printf(out, " %s=%.17g", field->key, real);
        return;
    case FIELD_NUMBER:
        memcpy(&number, at, sizeof number);
        text_printf(out, " %s=%" PRId64, field->key, number);
        return;
    case FIELD_SMALL:
        memcpy(&small, at, sizeof small);
        text_printf(out, " %s=%" PRIu32, field->key, small);
        return;
    }
    UNREACHABLE();
}

static bool read_real(const char *value, double *ret)
{
    char *end;

    *ret = strtod(value, &end);
    return end != value && *end == '\0' && isfinite(*ret);
}

static bool read_field(const struct field *field, const char *value, struct flow_memory *memory)
{
    void *at = (char *)memory + field->offset;
    uint64_t number = 0;
    double real = 0;

    switch (field->type) {
    case FIELD_REAL:
        if (!read_real(value, &real))
            return false;
        memcpy(at, &real, sizeof real);
        return true;
    case FIELD_NUMBER:
        if (!parse_u64(value, &number) || number > INT64_MAX)
            return false;
        memcpy(at, &(int64_t){(int64_t)number}, sizeof(int64_t));
        return true;
    case FIELD_SMALL:
        if (!parse_u64(value, &number) || number > UINT32_MAX)
            return false;
        memcpy(at, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
        return true;
    }
    UNREACHABLE();
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Everything but plain letters as %XX, so that a name has no spaces and no line ends. */
static void write_name(struct text *out, const char *name)
{
    static const char plain[] =
        "-_.:/ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

    for (; *name; name++) {
        if (strchr(plain, *name))
            text_append_char(out, *name);
        else
            text_printf(out, "%%%02X", (unsigned char)*name);
    }
}

static bool knows_something(const struct flow_view *view)
{
    return view->adaptive_state != ADAPTIVE_NONE || view->estimate.ratio_samples > 0 ||
           view->estimate.output_samples > 0 || view->requests_told > 0 || view->units_told > 0;
}

static void write_flow(const struct flow_view *view, int64_t now_wall_ms, struct text *out)
{
    const struct flow_memory memory = {.learned = view->learned,
                                       .estimate = view->estimate,
                                       .requests_told = view->requests_told,
                                       .units_told = view->units_told};

    text_append_string(out, "flow group=");
    write_name(out, view->quota_group);
    text_append_string(out, " model=");
    write_name(out, view->model);
    text_printf(out, " used_ms=%" PRId64, now_wall_ms - view->idle_ns / NS_PER_MS);
    for (size_t i = 0; i < LENGTH(fields); i++)
        write_field(&fields[i], &memory, out);
    text_append_char(out, '\n');
}

void flow_state_encode(const struct flow_view *views, unsigned count, int64_t now_wall_ms,
                       struct text *out)
{
    unsigned written = 0;

    text_append_string(out, HEADER);
    for (unsigned i = 0; i < count; i++) {
        if (!knows_something(&views[i]) || views[i].idle_ns > FLOW_ESTIMATE_MEMORY_NS)
            continue;
        write_flow(&views[i], now_wall_ms, out);
        written++;
    }
    text_printf(out, "end flows=%u check=%016" PRIx64 "\n", written,
                hash_bytes(text_string(out), out->length));
}

bool flow_state_save(const char *directory, const struct text *content, struct text *why)
{
    char path[PATH_MAX], new_path[PATH_MAX];
    const char *bytes = text_string(content);
    size_t left = content->length;
    bool ok;
    int fd;

    if ((size_t)snprintf(path, sizeof path, "%s/" FLOW_STATE_NAME, directory) >= sizeof path ||
        (size_t)snprintf(new_path, sizeof new_path, "%s/" FLOW_STATE_NAME ".new", directory) >=
            sizeof new_path) {
        text_append_string(why, "the path of state_directory is too long");
        return false;
    }
    fd = open(new_path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    ok = fd >= 0 && !content->overflowed;
    while (ok && left > 0) {
        ssize_t written = write(fd, bytes, left);

        ok = written > 0 || (written < 0 && errno == EINTR);
        bytes += written > 0 ? written : 0;
        left -= written > 0 ? (size_t)written : 0;
    }
    if (fd >= 0)
        ok = close(fd) == 0 && ok;
    ok = ok && rename(new_path, path) == 0;
    if (!ok) {
        text_printf(why, "%s cannot be written: %s", path,
                    content->overflowed ? "out of memory" : strerror(errno));
        if (fd >= 0)
            (void)unlink(new_path);
    }
    return ok;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The value behind " key=" at *at, which moves on behind it. */
static bool take_value(const char **at, const char *key, char *value, size_t size)
{
    size_t length = strlen(key);

    if (**at != ' ' || strncmp(*at + 1, key, length) != 0 || (*at)[1 + length] != '=')
        return false;
    *at += length + 2;
    length = strcspn(*at, " \n");
    if (length >= size)
        return false;
    memcpy(value, *at, length);
    value[length] = '\0';
    *at += length;
    return true;
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;

    return at ? (int)(at - digits) : -1;
}

static bool take_name(const char **at, const char *key, char name[NAME_SIZE])
{
    char value[3 * NAME_SIZE];
    size_t length = 0;

    if (!take_value(at, key, value, sizeof value))
        return false;
    for (const char *from = value; *from; from++) {
        int c = (unsigned char)*from;

        if (c == '%') {
            int high = hex_digit(from[1]);
            int low = high < 0 ? -1 : hex_digit(from[2]);

            c = low < 0 ? 0 : high * 16 + low;
            from += 2;
        }
        if (c == 0 || length + 1 >= NAME_SIZE)
            return false;
        name[length++] = (char)c;
    }
    name[length] = '\0';
    return true;
}

/* line: ends in \n. */
static bool read_flow(const char *line, int64_t now_wall_ms, struct flow_state_entry *entry)
{
    const char *at = line + strlen("flow");
    char value[VALUE_SIZE];
    uint64_t used_ms;

    *entry = (struct flow_state_entry){.quota_group = ""};
    if (!take_name(&at, "group", entry->quota_group) || !take_name(&at, "model", entry->model) ||
        !take_value(&at, "used_ms", value, sizeof value) || !parse_u64(value, &used_ms) ||
        used_ms > (uint64_t)INT64_MAX / 2)
        return false;
    entry->memory.age_ns = -1; /* from the future: not to be taken */
    if (now_wall_ms >= (int64_t)used_ms)
        entry->memory.age_ns = now_wall_ms - (int64_t)used_ms < INT64_MAX / NS_PER_MS
                                   ? (now_wall_ms - (int64_t)used_ms) * NS_PER_MS
                                   : INT64_MAX;
    for (size_t i = 0; i < LENGTH(fields); i++)
        if (!take_value(&at, fields[i].key, value, sizeof value) ||
            !read_field(&fields[i], value, &entry->memory))
            return false;
    return *at == '\n';
}

bool flow_state_decode(const char *bytes, int64_t now_wall_ms, struct flow_state_entry *entries,
                       unsigned *ret_count, struct text *why)
{
    const char *at = bytes;
    char end[80];
    unsigned count = 0;

    *ret_count = 0;
    if (strncmp(at, HEADER, strlen(HEADER)) != 0) {
        text_append_string(why, "it is no flow state of version 3");
        return false;
    }
    at += strlen(HEADER);
    while (strncmp(at, "flow ", strlen("flow ")) == 0) {
        if (count == FLOWS_MAX || !read_flow(at, now_wall_ms, &entries[count])) {
            text_printf(why, "line %u is damaged", count + 2);
            return false;
        }
        count++;
        at += strcspn(at, "\n") + 1;
    }
    (void)snprintf(end, sizeof end, "end flows=%u check=%016" PRIx64 "\n", count,
                   hash_bytes(bytes, (size_t)(at - bytes)));
    if (strcmp(at, end) != 0) {
        text_append_string(why, "it is damaged: its check sum is wrong");
        return false;
    }
    *ret_count = count;
    return true;
}

/* A NUL-terminated copy; NULL: there is none (why stays empty), or it cannot be read. */
static char *read_file(const char *path, struct text *why)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char *bytes = NULL;
    size_t length = 0;
    ssize_t got = -1;
    struct stat status;

    if (fd < 0) {
        if (errno != ENOENT)
            text_append_string(why, strerror(errno));
        return NULL;
    }
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        text_append_string(why, "it is no file");
    else if (status.st_size > (off_t)FLOW_STATE_BYTES_MAX)
        text_append_string(why, "it is too large");
    else if (!(bytes = malloc(FLOW_STATE_BYTES_MAX + 1)))
        text_append_string(why, "out of memory");
    while (bytes && length < FLOW_STATE_BYTES_MAX &&
           (got = read(fd, bytes + length, FLOW_STATE_BYTES_MAX - length)) > 0)
        length += (size_t)got;
    (void)close(fd);
    if (bytes)
        bytes[length] = '\0';
    return bytes;
}

unsigned flow_state_read(const char *directory, int64_t now_wall_ms,
                         struct flow_state_entry *entries, struct text *why)
{
    char path[PATH_MAX];
    char *bytes = NULL;
    unsigned count = 0;

    if ((size_t)snprintf(path, sizeof path, "%s/" FLOW_STATE_NAME, directory) < sizeof path)
        bytes = read_file(path, why);
    if (bytes && !flow_state_decode(bytes, now_wall_ms, entries, &count, why))
        count = 0;
    free(bytes);
    return count;
}

/* ---- taking over ----------------------------------------------------------------------------- */

/* A scope that sends calls of this model to the account, and the one source of it. */
static const struct source_options *source_of(const struct options *options,
                                              const struct flow_state_entry *entry,
                                              const struct scope_options **ret_scope)
{
    for (size_t i = 0; i < options->scope_count; i++) {
        const struct scope_options *scope = &options->scopes[i];

        for (size_t k = 0; scope->flow != FLOW_STRATEGY_NONE && k < scope->member_count; k++) {
            char group[NAME_SIZE];

            (void)text_copy(group, sizeof group, scope->members[k].source->quota_group);
            if (strcmp(group, entry->quota_group) == 0) {
                *ret_scope = scope;
                return scope->members[k].source;
            }
        }
    }
    return NULL;
}

static bool restore(struct gate *gate, const struct options *options,
                    const struct flow_state_entry *entry, int64_t now_ns)
{
    const struct scope_options *scope = NULL;
    const struct source_options *source = source_of(options, entry, &scope);
    struct flow_terms terms;
    struct flow_target target;

    if (!source)
        return false;
    terms = options_flow_terms(scope, source, entry->model);
    target = (struct flow_target){
        .quota_group = source->quota_group, .model = entry->model, .terms = &terms};
    return flow_restore(gate, &target, &entry->memory, now_ns);
}

unsigned flow_state_restore(struct gate *gate, const struct options *options, int64_t now_ns,
                            int64_t now_wall_ms, struct text *why)
{
    struct flow_state_entry *entries = calloc(FLOWS_MAX, sizeof *entries);
    unsigned count = 0;
    unsigned restored = 0;

    if (!entries)
        text_append_string(why, "out of memory");
    else
        count = flow_state_read(options->penstock.state_directory, now_wall_ms, entries, why);
    for (unsigned i = 0; i < count; i++)
        restored += restore(gate, options, &entries[i], now_ns);
    free(entries);
    return restored;
}
