/* segment.c - shared memory of one gate: made, attached, checked; see segment.h. */
#include "shared/segment.h"

#include "shared/journal.h"
#include "shared/lock.h"
#include "shared/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CREATOR_PATIENCE_TRIES 500 /* of 10 ms: another process is making the segment */

static uint64_t namespace_inode(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 ? (uint64_t)status.st_ino : 0;
}

static bool is_gate_name(const char *gate)
{
    size_t length =
        strspn(gate, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

    return length > 0 && length <= 40 && gate[length] == '\0';
}

/* Fill a zeroed area. The magic is written last: a half-made segment is made again. */
static bool area_create(struct segment_area *area)
{
    struct core_area *core = &area->core;
    uint64_t boot;

    if (getrandom(&boot, sizeof boot, 0) != (ssize_t)sizeof boot)
        boot = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    core->core_version = CORE_VERSION;
    core->creator_layout = LAYOUT_VERSION;
    core->total_bytes = sizeof *area;
    core->boot = boot >> 1; /* SQLite's integers are signed */
    core->pid_namespace = namespace_inode("/proc/self/ns/pid");
    core->ipc_namespace = namespace_inode("/proc/self/ns/ipc");
    core->next_incarnation = 1;
    core->next_arrival_seq = 1;
    core->next_grant_seq = 1;
    core->semaphore_id = -1;
    lock_init(&core->lock);
    if (!slots_create_locked(core))
        return false;
    area->layout.layout_version = LAYOUT_VERSION;
    atomic_store(&core->magic, SEGMENT_MAGIC);
    return true;
}

/* Is what we mapped ours to use? */
static bool area_fits(const struct segment_area *area, struct text *why)
{
    const struct core_area *core = &area->core;

    if (atomic_load(&core->magic) != SEGMENT_MAGIC) {
        text_append_string(why, "the shared memory object is not Penstock's");
        return false;
    }
    if (core->core_version != CORE_VERSION || area->layout.layout_version != LAYOUT_VERSION) {
        text_printf(
            why,
            "the segment in use has core version %u and layout %u, this program needs %u and "
            "%u: stop the processes of the other version first",
            core->core_version, area->layout.layout_version, CORE_VERSION, LAYOUT_VERSION);
        return false;
    }
    if (core->total_bytes != sizeof *area) { /* one more counter moves all that comes after it */
        text_append_string(why,
                           "the segment in use is of another build of Penstock, which sizes it "
                           "otherwise: stop its processes first");
        return false;
    }
    if (core->pid_namespace != namespace_inode("/proc/self/ns/pid") ||
        core->ipc_namespace != namespace_inode("/proc/self/ns/ipc")) {
        text_append_string(why, "the segment in use belongs to another PID or IPC namespace "
                                "(container, PrivateIPC=): one gate cannot span namespaces");
        return false;
    }
    return true;
}

/* /dev/shm is open to all: somebody else's object, or a shorter one, must not be mapped. */
static bool object_is_ours(const struct segment *segment, size_t size, struct text *why)
{
    struct stat status;

    if (fstat(segment->fd, &status) != 0 || status.st_uid != geteuid()) {
        text_printf(why, "/dev/shm%s belongs to another user", segment->name);
        return false;
    }
    if (status.st_size < (off_t)size) {
        text_printf(why, "/dev/shm%s is of another version of Penstock: stop its processes first",
                    segment->name);
        return false;
    }
    return true;
}

static bool map_object(struct segment *segment, bool create, struct text *why)
{
    const size_t size = sizeof(struct segment_area);
    void *at;

    segment->fd = shm_open(segment->name, O_RDWR | (create ? O_CREAT : 0), 0660);
    if (segment->fd < 0) {
        if (errno == ENOENT)
            text_printf(
                why,
                "the shared memory /dev/shm%s was removed while processes that use it still "
                "live: stop them first (two segments would be two limits)",
                segment->name);
        else
            text_printf(why, "cannot open /dev/shm%s: %s", segment->name, strerror(errno));
        return false;
    }
    if (create &&
        (ftruncate(segment->fd, (off_t)size) != 0 ||
         /* the instances' memory is made sure of when each joins */
         posix_fallocate(segment->fd, 0, (off_t)offsetof(struct segment_area, layout.instances)))) {
        text_printf(why, "no room for /dev/shm%s: %s", segment->name, strerror(errno));
        goto fail;
    }
    if (!object_is_ours(segment, size, why))
        goto fail;
    at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    if (at == MAP_FAILED) {
        text_printf(why, "cannot map /dev/shm%s: %s", segment->name, strerror(errno));
        goto fail;
    }
    segment->area = at;
    return true;

fail:
    (void)close(segment->fd);
    segment->fd = -1;
    return false;
}

/* Nobody lives who uses it: make it, or take over what is there when it fits. */
static bool attach_alone(struct segment *segment, struct text *why)
{
    struct text misfit;

    if (!map_object(segment, true, why))
        return false;
    text_init(&misfit, 400);
    if (!area_fits(segment->area, &misfit)) {
        /* half-made, of another version or of another boot: nobody uses it, so it is worth nothing
         */
        text_release(&misfit);
        (void)munmap(segment->area, sizeof *segment->area);
        segment->area = NULL; /* what fails below must not unmap what is mapped there by then */
        (void)close(segment->fd);
        (void)shm_unlink(segment->name);
        if (!map_object(segment, true, why))
            return false;
        if (!area_create(segment->area)) {
            text_printf(why, "cannot make the semaphore set: %s (see kernel.sem)", strerror(errno));
            return false;
        }
    }
    text_release(&misfit);
    return true;
}

/* Hold the presence lock: *ret_alone tells that it is held exclusively. */
static bool take_presence(struct segment *segment, const char *directory, bool *ret_alone,
                          struct text *why)
{
    char path[512];
    struct timespec nap = {.tv_nsec = 10000000};

    if (snprintf(path, sizeof path, "%s/gate-%s.presence", directory, segment->name + 10) >=
        (int)sizeof path) {
        text_append_string(why, "runtime_directory is too long");
        return false;
    }
    segment->presence_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0660);
    if (segment->presence_fd < 0) {
        text_printf(why, "cannot open %s: %s", path, strerror(errno));
        return false;
    }
    for (int tries = 0; tries < CREATOR_PATIENCE_TRIES; tries++) {
        *ret_alone = flock(segment->presence_fd, LOCK_EX | LOCK_NB) == 0;
        if (*ret_alone || flock(segment->presence_fd, LOCK_SH | LOCK_NB) == 0)
            return true;
        (void)nanosleep(&nap, NULL);
    }
    text_printf(why, "%s stays locked by a process that never finished making the segment", path);
    return false;
}

bool segment_attach(struct segment *segment, const struct segment_place *place, struct text *why)
{
    bool alone = false;

    *segment = (struct segment){.fd = -1, .presence_fd = -1, .instance = NO_INDEX};
    if (!is_gate_name(place->gate)) {
        text_append_string(why, "a gate's name has 1 to 40 letters, digits, _ and -");
        return false;
    }
    (void)snprintf(segment->name, sizeof segment->name, "/penstock-%s", place->gate);
    if (!take_presence(segment, place->runtime_directory, &alone, why))
        goto fail;
    if (alone ? !attach_alone(segment, why)
              : !map_object(segment, false, why) || !area_fits(segment->area, why))
        goto fail;
    /* Not atomic, and need not be: whoever comes in between finds a whole segment. */
    if (alone && flock(segment->presence_fd, LOCK_SH) != 0) {
        text_printf(why, "presence lock: %s", strerror(errno));
        goto fail;
    }
    return true;

fail:
    segment_detach(segment);
    return false;
}

void segment_detach(struct segment *segment)
{
    if (segment->area)
        (void)munmap(segment->area, sizeof *segment->area);
    if (segment->fd >= 0)
        (void)close(segment->fd);
    if (segment->presence_fd >= 0)
        (void)close(segment->presence_fd);
    *segment = (struct segment){.fd = -1, .presence_fd = -1, .instance = NO_INDEX};
}

/* Row of this state directory, else a free one, else NO_INDEX. Lock held. */
static uint32_t find_instance_locked(const struct layout_area *layout, const char *state_directory)
{
    uint32_t free_row = NO_INDEX;

    for (uint32_t i = 0; i < INSTANCES_MAX; i++) {
        const struct instance_row *row = &layout->instances[i];

        if (row->used && strcmp(row->state_directory, state_directory) == 0)
            return i;
        if (!row->used && free_row == NO_INDEX)
            free_row = i;
    }
    return free_row;
}

bool segment_join_instance(struct segment *segment, const char *state_directory,
                           int64_t now_wall_ms, struct text *why)
{
    struct core_area *core = segment_core(segment);
    struct layout_area *layout = segment_layout(segment);
    size_t offset = offsetof(struct segment_area, layout.instances);
    struct instance_row *row;
    uint32_t index;
    bool joined = false;
    int error = 0;

    if (lock_take(&core->lock, NO_INDEX, core->roster) == LOCK_OWNER_DIED)
        layout->lists_ready = 0; /* gate_lock builds them again */
    index = find_instance_locked(layout, state_directory);
    if (index == NO_INDEX) {
        text_printf(why, "more than %u instances share this gate", INSTANCES_MAX);
        goto out;
    }
    row = &layout->instances[index];
    if (segment->fd >= 0)
        error = posix_fallocate(segment->fd, (off_t)(offset + index * sizeof *row), sizeof *row);
    if (error || !text_copy(row->state_directory, sizeof row->state_directory, state_directory)) {
        text_printf(why, "no room in shared memory for this instance: %s",
                    error ? strerror(error) : "state_directory is too long");
        goto out;
    }
    if (!row->used) {
        journal_init_locked(&row->journal);
        row->since_wall_ms = now_wall_ms;
        row->used = 1;
    }
    segment->instance = index;
    joined = true;
out:
    lock_give(&core->lock);
    return joined;
}

bool segment_is_linked(const struct segment *segment)
{
    struct stat own;
    struct stat named;
    char path[sizeof segment->name + 16];

    if (segment->fd < 0)
        return true;
    (void)snprintf(path, sizeof path, "/dev/shm%s", segment->name);
    return fstat(segment->fd, &own) == 0 && stat(path, &named) == 0 && own.st_ino == named.st_ino &&
           own.st_dev == named.st_dev;
}

bool segment_attach_anonymous(struct segment *segment)
{
    void *at = mmap(NULL, sizeof(struct segment_area), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    *segment = (struct segment){.fd = -1, .presence_fd = -1, .instance = NO_INDEX};
    if (at == MAP_FAILED)
        return false;
    segment->area = at;
    return area_create(at);
}

void segment_unlink(const char *gate)
{
    char name[NAME_SIZE + 16];

    (void)snprintf(name, sizeof name, "/penstock-%s", gate);
    (void)shm_unlink(name);
}
