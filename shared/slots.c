/* slots.c - how many slots are in use and whose: the System V semaphore; see slots.h. */
#include "shared/slots.h"

#include "shared/leases.h"
#include "shared/roster.h"

#include <errno.h>
#include <sys/ipc.h>
#include <sys/sem.h>

void slots_rebuild_locked(struct core_area *core)
{
    core->held_count = 0;
    for (uint32_t i = 0; i < HELD_MAX; i++)
        core->held_count += atomic_load(&core->held[i].held) != 0;
    core->lease_count = 0;
    for (uint32_t i = 0; i < LEASES_MAX; i++)
        core->lease_count += atomic_load(&core->leases[i].used) != 0;
    core->lease_next_expiry_ns = 0;
}

bool slots_create_locked(struct core_area *core)
{
    int id;

    core->semaphore_epoch++; /* first: nobody may take his share of the old set to be in the new one */
    id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0660);
    if (id < 0)
        return false;
    core->semaphore_id = id; /* a fresh set is right at 0: nothing is in use */
    return true;
}

static bool set_is_gone(int error)
{
    return error == EIDRM || error == EINVAL;
}

/* Change the set by the calling process's delta. */
static bool change(struct core_area *core, short delta)
{
    struct sembuf operation = {.sem_op = delta, .sem_flg = SEM_UNDO | IPC_NOWAIT};

    return semop(core->semaphore_id, &operation, 1) == 0;
}

/* Has every living process that may hold slots taken its share in the current set? */
static bool roll_call_is_open(const struct core_area *core)
{
    for (uint32_t i = 0; i < ROSTER_MAX; i++)
        if (atomic_load(&core->roster[i].pid) != 0 && core->roster[i].role == PROCESS_WORKER &&
            core->roster[i].semaphore_epoch != core->semaphore_epoch)
            return true;
    return false;
}

static void call_the_roll(struct core_area *core)
{
    if (!slots_create_locked(core))
        return; /* no set to be had now: the next look tries again; nothing is granted meanwhile */
    for (uint32_t i = 0; i < ROSTER_MAX; i++)
        if (atomic_load(&core->roster[i].pid) != 0)
            roster_ring(&core->roster[i]);
}

struct slots_use slots_use_locked(struct core_area *core, int64_t now_ns)
{
    struct slots_use use = {.held = core->held_count, .leases = lease_count_locked(core, now_ns)};
    int value = semctl(core->semaphore_id, 0, GETVAL);

    if (value < 0 && set_is_gone(errno)) {
        call_the_roll(core);
        value = 0;
        use.roll_call = true;
    }
    use.semaphore = value > 0 ? (uint32_t)value : 0;
    use.used = (use.semaphore > use.held ? use.semaphore : use.held) + use.leases;
    use.roll_call = use.roll_call || roll_call_is_open(core);
    if (core->limit == 0)
        use.free = UINT32_MAX;
    else if (!use.roll_call && value >= 0 && core->limit > use.used)
        use.free = core->limit - use.used;
    return use;
}

uint32_t slots_take_locked(struct core_area *core, uint32_t owner, uint32_t place, int64_t now_ns)
{
    uint32_t index = 0;
    struct held_row *row;

    while (index < HELD_MAX && atomic_load(&core->held[index].held))
        index++;
    if (index == HELD_MAX || !change(core, 1))
        return NO_INDEX;
    row = &core->held[index];
    row->owner = owner;
    row->incarnation = core->roster[owner].incarnation;
    row->place = place;
    row->layout = LAYOUT_VERSION;
    row->since_ns = now_ns;
    atomic_store(&row->held, 1);
    core->held_count++;
    return index;
}

void slots_give_locked(struct core_area *core, uint32_t held)
{
    struct held_row *row = &core->held[held];
    const struct roster_row *owner = &core->roster[row->owner];

    REQUIRE(held < HELD_MAX && atomic_load(&row->held));
    /* A share that was not yet taken again in a new set is not in it to be given back. */
    if (owner->semaphore_epoch == core->semaphore_epoch)
        (void)change(core, -1);
    atomic_store(&row->held, 0);
    core->held_count--;
}

unsigned slots_bury_locked(struct core_area *core, uint32_t owner, uint64_t incarnation)
{
    unsigned given = 0;

    for (uint32_t i = 0; i < HELD_MAX; i++) {
        struct held_row *row = &core->held[i];

        if (atomic_load(&row->held) && row->owner == owner && row->incarnation == incarnation) {
            atomic_store(&row->held, 0);
            core->held_count--;
            given++;
        }
    }
    return given;
}

void slots_answer_roll_call_locked(struct core_area *core, uint32_t owner)
{
    struct roster_row *self = &core->roster[owner];
    short own = 0;

    if (self->semaphore_epoch == core->semaphore_epoch)
        return;
    for (uint32_t i = 0; i < HELD_MAX; i++)
        if (atomic_load(&core->held[i].held) && core->held[i].owner == owner &&
            core->held[i].incarnation == self->incarnation)
            own++;
    if (own == 0 || change(core, own))
        self->semaphore_epoch = core->semaphore_epoch;
}
