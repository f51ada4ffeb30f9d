/*
 * segment.h - the shared memory of one gate: made, attached, checked.
 *
 * Processes: the master calls segment_attach once, before it forks; children inherit the mapping.
 * The object is never unlinked by a program: it outlives restarts, so that old workers that still
 * drain and new ones that serve obey one limit. A presence lock (flock, shared, inherited by every
 * child) on <runtime directory>/gate-<name>.presence tells whether anybody lives who has it mapped:
 * a segment is created only under the exclusive lock, so that a removed name can never lead to a
 * second truth (M9).
 */
#ifndef SHARED_SEGMENT_H
#define SHARED_SEGMENT_H

#include "base/check.h"
#include "base/text.h"
#include "shared/layout.h"

#include <stdbool.h>

/* This process's handle. */
struct segment {
    struct segment_area *area;
    int fd;            /* of the object, kept to compare with what the name points to */
    int presence_fd;   /* holds the shared lock as long as this process or a child of it lives */
    uint32_t instance; /* NO_INDEX until segment_join_instance */
    char name[NAME_SIZE + 16]; /* "/penstock-<gate>" */
};

struct segment_place {
    const char *gate;              /* [A-Za-z0-9_-]{1,40} */
    const char *runtime_directory; /* where the presence lock lies */
};

/* Attach the gate's segment, or create it when nobody has one. On failure why gets one sentence for
 * the operator. A segment of another core version, of another pid or IPC namespace, or whose name
 * was removed while processes live that use it, is refused. */
MUST_CHECK bool segment_attach(struct segment *segment, const struct segment_place *place,
                               struct text *why);
/* Unmap and close; the object stays. */
void segment_detach(struct segment *segment);

/* Find or take the row of the instance whose state directory this is; sets segment->instance. Makes
 * sure all its memory is really there (a full /dev/shm is an error here, never a SIGBUS later). */
MUST_CHECK bool segment_join_instance(struct segment *segment, const char *state_directory,
                                      int64_t now_wall_ms, struct text *why);

/* Does the name still lead to the mapped object? */
bool segment_is_linked(const struct segment *segment);

/* For tests: a zeroed segment in ordinary memory that this process (and its children) share. */
MUST_CHECK bool segment_attach_anonymous(struct segment *segment);
/* Remove the name (tests, package purge). */
void segment_unlink(const char *gate);

static inline struct core_area *segment_core(const struct segment *segment)
{
    return &segment->area->core;
}

static inline struct layout_area *segment_layout(const struct segment *segment)
{
    return &segment->area->layout;
}

static inline struct instance_row *segment_instance(const struct segment *segment)
{
    REQUIRE(segment->instance < INSTANCES_MAX);
    return &segment->area->layout.instances[segment->instance];
}

#endif
