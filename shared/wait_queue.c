/* wait_queue.c - places at the gate and the order of those that wait; see wait_queue.h. */
#include "shared/wait_queue.h"

#include "shared/flow.h"
#include "shared/flow_queue.h"
#include "shared/roster.h"
#include "shared/seq_sort.h"

#include <string.h>

static void push_free(struct layout_area *layout, uint32_t place)
{
    layout->places[place].next = layout->free_head;
    layout->free_head = place;
}

static struct queue_class_row *class_of(struct layout_area *layout, const struct place_row *row)
{
    return &layout->queue_classes[row->class_index];
}

static void append(struct layout_area *layout, uint32_t place)
{
    struct place_row *row = &layout->places[place];
    struct queue_class_row *class = class_of(layout, row);

    row->next = NO_INDEX;
    row->previous = class->tail;
    if (class->tail == NO_INDEX)
        class->head = place;
    else
        layout->places[class->tail].next = place;
    class->tail = place;
    class->waiting++;
    class->pictures_waiting += row->pictures;
    layout->waiting++;
}

static void unlink_waiting(struct layout_area *layout, uint32_t place)
{
    struct place_row *row = &layout->places[place];
    struct queue_class_row *class = class_of(layout, row);

    if (row->previous == NO_INDEX)
        class->head = row->next;
    else
        layout->places[row->previous].next = row->next;
    if (row->next == NO_INDEX)
        class->tail = row->previous;
    else
        layout->places[row->next].previous = row->previous;
    class->waiting--;
    class->pictures_waiting -= row->pictures;
    layout->waiting--;
}

static uint32_t *waiting_of_layout(struct core_area *core)
{
    return &core->waiting_by_layout[LAYOUT_VERSION % LAYOUTS_MAX];
}

_Static_assert(PLACES_MAX <= UINT16_MAX, "places are sorted by 16-bit indices");

static uint64_t arrival_of(const void *layout, uint16_t place)
{
    return ((const struct layout_area *)layout)->places[place].record.arrival_seq;
}

/* The indices lie on the stack: thread-local memory would be paid by every request thread. */
void queue_rebuild_locked(struct core_area *core, struct layout_area *layout)
{
    uint16_t waiting[PLACES_MAX];
    size_t count = 0;

    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        struct queue_class_row *class = &layout->queue_classes[c];

        class->head = class->tail = NO_INDEX;
        class->waiting = 0;
        class->pictures_waiting = 0;
    }
    layout->free_head = NO_INDEX;
    layout->waiting = 0;
    for (uint32_t i = PLACES_MAX; i-- > 0;) {
        struct place_row *row = &layout->places[i];

        if (atomic_load(&row->state) == PLACE_FREE)
            push_free(layout, i);
        else if (atomic_load(&row->state) == PLACE_WAITING)
            waiting[count++] = (uint16_t)i;
    }
    seq_sort(waiting, count, arrival_of, layout);
    for (size_t i = 0; i < count; i++)
        append(layout, waiting[i]);
    *waiting_of_layout(core) = layout->waiting;
    layout->lists_ready = 1;
}

uint32_t queue_new_place_locked(struct core_area *core, struct layout_area *layout, uint32_t owner)
{
    uint32_t place = layout->free_head;
    struct place_row *row;

    if (place == NO_INDEX)
        return NO_INDEX;
    row = &layout->places[place];
    layout->free_head = row->next;
    row->owner = owner;
    row->incarnation = core->roster[owner].incarnation;
    row->next = row->previous = NO_INDEX;
    row->held = NO_INDEX;
    row->rung_ns = 0;
    row->flow_place = row->passed_over = 0;
    row->class_index = FLOW_NORMAL;
    row->pictures = 1;
    atomic_store(&row->rung, 0);
    memset(&row->record, 0, sizeof row->record);
    return place;
}

void queue_set_class_locked(struct layout_area *layout, uint32_t place, enum flow_class class,
                            int64_t pictures)
{
    struct place_row *row = &layout->places[place];

    REQUIRE(atomic_load(&row->state) == PLACE_FREE && class < FLOW_CLASSES);
    row->class_index = queue_class_heard(layout, class);
    if (pictures > QUEUE_PICTURES_MAX)
        row->pictures = QUEUE_PICTURES_MAX;
    else
        row->pictures = pictures > 1 ? (uint32_t)pictures : 1;
}

void queue_join_locked(struct core_area *core, struct layout_area *layout, uint32_t place)
{
    struct place_row *row = &layout->places[place];

    REQUIRE(atomic_load(&row->state) == PLACE_FREE);
    append(layout, place);
    *waiting_of_layout(core) = layout->waiting;
    atomic_store(&row->state, PLACE_WAITING);
}

void queue_hold_locked(struct core_area *core, struct layout_area *layout, uint32_t place,
                       uint32_t held)
{
    struct place_row *row = &layout->places[place];

    REQUIRE(atomic_load(&row->state) != PLACE_HELD);
    if (atomic_load(&row->state) == PLACE_WAITING) {
        unlink_waiting(layout, place);
        *waiting_of_layout(core) = layout->waiting;
    }
    row->held = held;
    row->rung_ns = 0;
    row->flow_place = 0;
    atomic_store(&row->rung, 0);
    atomic_store(&row->state, PLACE_HELD);
    if (held != NO_INDEX)
        queue_charge_locked(layout, place);
}

void queue_free_place_locked(struct core_area *core, struct layout_area *layout, uint32_t place)
{
    struct place_row *row = &layout->places[place];

    if (atomic_load(&row->state) == PLACE_WAITING) {
        unlink_waiting(layout, place);
        *waiting_of_layout(core) = layout->waiting;
    }
    atomic_store(&row->rung, 0);
    atomic_store(&row->state, PLACE_FREE); /* its owner's until then, or no burial finds it */
    push_free(layout, place);
}

void queue_answer_locked(struct layout_area *layout, uint32_t owner, int64_t now_ns)
{
    if (now_ns - layout->answered_last_ns > STANDSTILL_NS) {
        for (uint32_t i = 0; i < ROSTER_MAX; i++)
            layout->answered_ns[i] = now_ns;
        for (uint32_t c = 0; c < FLOW_CLASSES; c++)
            for (uint32_t at = layout->queue_classes[c].head; at != NO_INDEX;
                 at = layout->places[at].next)
                if (layout->places[at].rung_ns != 0)
                    layout->places[at].rung_ns = now_ns;
        flow_queue_forgive_locked(layout, now_ns);
    }
    /* now_ns was read before the lock was waited for: another thread may have been here since */
    if (now_ns > layout->answered_ns[owner])
        layout->answered_ns[owner] = now_ns;
    if (now_ns > layout->answered_last_ns)
        layout->answered_last_ns = now_ns;
}

static bool is_silent(const struct layout_area *layout, const struct place_row *row, int64_t now_ns)
{
    return (row->rung_ns != 0 && now_ns - row->rung_ns > QUEUE_SILENT_NS) ||
           now_ns - layout->answered_ns[row->owner] > PROCESS_SILENT_NS;
}

/* Whose turn it is in the flow that was looked at last: neighbours often wait for the same one. */
struct flow_glance {
    uint32_t flow, next;
    int64_t due_ns;
};
#define GLANCE_NONE ((struct flow_glance){.flow = NO_INDEX})

/* Would its flow not let it go now, even with a slot? */
static bool waits_for_flow(struct layout_area *layout, uint32_t place, int64_t now_ns,
                           struct flow_glance *glance)
{
    const struct place_row *row = &layout->places[place];
    const struct flow_place_row *in_flow;

    if (row->flow_place == 0)
        return false;
    in_flow = &layout->flow_places[row->flow_place - 1];
    if (atomic_load(&in_flow->state) != FLOW_PLACE_WAITING || in_flow->image_place != place + 1)
        return false; /* its holder died between the two */
    if (glance->flow != in_flow->flow) {
        glance->flow = in_flow->flow;
        glance->next = flow_due_locked(layout, in_flow->flow, now_ns, &glance->due_ns);
    }
    if (glance->next != row->flow_place - 1)
        return true;
    return glance->due_ns > now_ns &&
           (row->passed_over < QUEUE_PASSES_MAX || glance->due_ns - now_ns > QUEUE_KEEP_NS);
}

bool queue_is_first_locked(struct layout_area *layout, uint32_t place, int64_t now_ns)
{
    struct flow_glance glance = GLANCE_NONE;
    struct queue_walk walk;
    uint32_t at;

    queue_walk_begin(&walk, layout);
    while ((at = queue_walk_next(&walk)) != NO_INDEX && at != place)
        if (!is_silent(layout, &layout->places[at], now_ns) &&
            !waits_for_flow(layout, at, now_ns, &glance))
            return false;
    return at == place;
}

bool queue_has_answering_locked(struct layout_area *layout, int64_t now_ns)
{
    struct flow_glance glance = GLANCE_NONE;
    struct queue_walk walk;
    uint32_t at;

    queue_walk_begin(&walk, layout);
    while ((at = queue_walk_next(&walk)) != NO_INDEX)
        if (!is_silent(layout, &layout->places[at], now_ns) &&
            !waits_for_flow(layout, at, now_ns, &glance))
            return true;
    return false;
}

bool queue_pass_over_locked(struct layout_area *layout, uint32_t place)
{
    struct queue_walk walk;
    bool silent = false;
    uint32_t at;

    queue_walk_begin(&walk, layout);
    while ((at = queue_walk_next(&walk)) != NO_INDEX && at != place) {
        struct place_row *row = &layout->places[at];

        if (row->flow_place == 0)
            silent = true;
        else if (row->passed_over < QUEUE_PASSES_MAX)
            row->passed_over++;
    }
    return silent;
}

static bool some_gate_is_off(const struct layout_area *layout)
{
    for (uint32_t i = 0; i < INSTANCES_MAX; i++)
        if (layout->instances[i].used && !layout->instances[i].gate_on)
            return true;
    return false;
}

unsigned queue_ring_locked(struct core_area *core, struct layout_area *layout, uint32_t free,
                           int64_t now_ns)
{
    bool to_ring[ROSTER_MAX] = {false};
    bool any_off = some_gate_is_off(layout);
    struct flow_glance glance = GLANCE_NONE;
    struct queue_walk walk;
    unsigned rung = 0;
    uint32_t turns = 0;
    uint32_t at;

    queue_walk_begin(&walk, layout);
    while ((any_off || turns < free) && (at = queue_walk_next(&walk)) != NO_INDEX) {
        struct place_row *row = &layout->places[at];
        bool open = !layout->instances[core->roster[row->owner].instance].gate_on;
        bool turn = turns < free;

        if (!open && (!turn || waits_for_flow(layout, at, now_ns, &glance)))
            continue; /* the latter is rung by its flow */
        if (!open && !is_silent(layout, row, now_ns)) {
            queue_walk_grants(&walk);
            turns++;
        }
        if (atomic_load(&row->rung))
            continue;
        if (row->rung_ns == 0)
            row->rung_ns = now_ns;
        atomic_store(&row->rung, 1);
        to_ring[row->owner] = true;
        rung++;
    }
    for (uint32_t i = 0; rung > 0 && i < ROSTER_MAX; i++)
        if (to_ring[i])
            roster_ring(&core->roster[i]);
    return rung;
}

uint32_t queue_position_locked(const struct layout_area *layout, uint32_t place)
{
    struct queue_walk walk;
    uint32_t position = 1;
    uint32_t at;

    queue_walk_begin(&walk, layout);
    while ((at = queue_walk_next(&walk)) != NO_INDEX && at != place) {
        queue_walk_grants(&walk);
        position++;
    }
    return at == place ? position : 0;
}
