/* pin.c - what ties a call to one source; see pin.h. */
#include "worker/pin.h"

#include "base/check.h"

#include <stdbool.h>
#include <string.h>

void pin_take(struct pin *pin, enum pin_rank rank, const char *id, size_t length)
{
    if (length == 0 || rank <= pin->rank)
        return;
    pin->rank = rank;
    upstream_id_set(pin->id, id, length);
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* What is followed by an id of its own. */
static const char *const collections[] = {
    "responses",     "conversations", "files",      "batches", "videos",
    "tasks",         "jobs",          "threads",    "runs",    "assistants",
    "vector_stores", "containers",    "uploads",    "evals",   "completions",
    "fine-tunes",    "checkpoints",   "operations", "skills",  "cachedContents",
};

/* What may follow instead: verbs. */
static const char *const words[] = {
    "async", "compact", "input_tokens", "generations", "edits", "extensions", "search", "upload",
};

struct segment {
    const char *text;
    size_t length;
};

static struct segment segment_at(const char *at)
{
    return (struct segment){at, strcspn(at, "/")};
}

/* The segment behind this one; empty at the end. */
static struct segment segment_after(struct segment segment)
{
    const char *end = segment.text + segment.length;

    return segment_at(*end ? end + 1 : end);
}

static bool is_among(struct segment segment, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(names[i]) == segment.length &&
            memcmp(names[i], segment.text, segment.length) == 0)
            return true;
    return false;
}

/* "v1", "v1beta", ... */
static bool is_version(struct segment segment)
{
    return segment.length >= 2 && segment.text[0] == 'v' && segment.text[1] >= '0' &&
           segment.text[1] <= '9';
}

/* What stands before the version is the web server's or the route's. */
static struct segment first_segment(const char *path)
{
    struct segment first = segment_at(path + (*path == '/'));

    for (struct segment segment = first; *segment.text; segment = segment_after(segment))
        if (is_version(segment))
            return segment_after(segment);
    return first;
}

void pin_take_path(struct pin *pin, const char *path)
{
    for (struct segment segment = first_segment(path); *segment.text;
         segment = segment_after(segment)) {
        struct segment id = segment_after(segment);

        if (id.length > 0 && is_among(segment, collections, LENGTH(collections)) &&
            !is_among(id, words, LENGTH(words)))
            pin_take(pin, PIN_PATH, id.text, id.length);
    }
}
