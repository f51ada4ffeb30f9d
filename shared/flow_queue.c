/* flow_queue.c - places of calls in their flows, and whose turn it is; see flow_queue.h. */
#include "shared/flow_queue.h"

#include "base/clock.h"
#include "shared/flow_clients.h"
#include "shared/seq_sort.h"
#include "shared/wait_queue.h"

#include <string.h>

/* Virtual time is cost * TAG_SCALE / weight, so that weights up to 1000 lose nothing that shows. */
#define TAG_SCALE 4096

static struct flow_row *flow_of(struct layout_area *layout, const struct flow_place_row *row)
{
    return &layout->flows[row->flow];
}

static struct flow_class_row *class_of(struct layout_area *layout, const struct flow_place_row *row)
{
    return &flow_of(layout, row)->classes[row->class_index];
}

static bool has_state(const struct flow_place_row *row, enum flow_place_state state)
{
    return atomic_load(&row->state) == state;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void push_free(struct layout_area *layout, uint32_t place)
{
    layout->flow_places[place].next = layout->flow_free_head;
    layout->flow_free_head = place;
}

static void append(struct layout_area *layout, uint32_t place)
{
    struct flow_place_row *row = &layout->flow_places[place];
    struct flow_class_row *class = class_of(layout, row);

    row->next = NO_INDEX;
    row->previous = class->waiting > 0 ? class->tail : NO_INDEX;
    if (class->waiting == 0)
        class->head = place;
    else
        layout->flow_places[class->tail].next = place;
    class->tail = place;
    class->waiting++;
    class->plain += row->image_place == 0;
    class->queued_cost += row->cost;
    flow_of(layout, row)->waiting++;
    layout->flow_slot_waiters += row->image_place != 0;
    if (row->client_key)
        flow_clients_add_locked(layout, row->client_key);
}

static void unlink_waiting(struct layout_area *layout, uint32_t place)
{
    struct flow_place_row *row = &layout->flow_places[place];
    struct flow_class_row *class = class_of(layout, row);

    if (row->previous == NO_INDEX)
        class->head = row->next;
    else
        layout->flow_places[row->previous].next = row->next;
    if (row->next == NO_INDEX)
        class->tail = row->previous;
    else
        layout->flow_places[row->next].previous = row->previous;
    class->waiting--;
    class->plain -= row->image_place == 0;
    class->queued_cost -= row->cost;
    flow_of(layout, row)->waiting--;
    layout->flow_slot_waiters -= row->image_place != 0;
    if (row->client_key)
        flow_clients_remove_locked(layout, row->client_key);
}

/* ---- built again from the rows --------------------------------------------------------------- */

static void undo(struct layout_area *layout, struct flow_row *flow)
{
    uint32_t marked = atomic_load(&flow->undo.place);
    struct flow_place_row *row;

    if (marked == 0)
        return;
    row = &layout->flow_places[marked - 1];
    if (atomic_load(&row->state) != flow->undo.wanted_state) {
        row->charged = flow->undo.charged;
        flow->virtual_time = flow->undo.virtual_time;
        flow->classes[row->class_index].finish = flow->undo.finish;
        flow->next_send_ns = flow->undo.next_send_ns;
        flow->requests = flow->undo.requests;
        flow->units = flow->undo.units;
        flow->window[flow->undo.second_at] = flow->undo.second;
    }
    atomic_store(&flow->undo.place, 0);
}

static void clear_indexes(struct layout_area *layout)
{
    for (uint32_t i = 0; i < FLOWS_MAX; i++) {
        struct flow_row *flow = &layout->flows[i];

        undo(layout, flow);
        flow->in_flight = flow->waiting = 0;
        for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
            struct flow_class_row *class = &flow->classes[c];

            class->head = class->tail = NO_INDEX;
            class->waiting = class->plain = 0;
            class->queued_cost = 0;
        }
    }
    layout->flow_free_head = NO_INDEX;
    layout->flow_places_used = layout->flow_slot_waiters = 0;
    flow_clients_clear_locked(layout);
}

static uint64_t seq_of(const void *layout, uint16_t place)
{
    return ((const struct layout_area *)layout)->flow_places[place].seq;
}

_Static_assert(FLOW_PLACES_MAX <= UINT16_MAX, "places are sorted by 16-bit indices");

void flow_queue_rebuild_locked(struct layout_area *layout)
{
    uint16_t waiting[FLOW_PLACES_MAX];
    size_t count = 0;

    clear_indexes(layout);
    for (uint32_t i = FLOW_PLACES_MAX; i-- > 0;) {
        struct flow_place_row *row = &layout->flow_places[i];

        if (has_state(row, FLOW_PLACE_FREE)) {
            push_free(layout, i);
            continue;
        }
        layout->flow_places_used++;
        if (has_state(row, FLOW_PLACE_WAITING))
            waiting[count++] = (uint16_t)i;
        else
            flow_of(layout, row)->in_flight++;
    }
    seq_sort(waiting, count, seq_of, layout);
    for (size_t i = 0; i < count; i++)
        append(layout, waiting[i]);
}

/* ---- a place's life -------------------------------------------------------------------------- */

uint32_t flow_queue_new_place_locked(struct core_area *core, struct layout_area *layout,
                                     uint32_t owner)
{
    uint32_t place = layout->flow_free_head;
    struct flow_place_row *row;

    if (place == NO_INDEX)
        return NO_INDEX;
    row = &layout->flow_places[place];
    layout->flow_free_head = row->next;
    layout->flow_places_used++;
    *row = (struct flow_place_row){
        .owner = owner,
        .incarnation = core->roster[owner].incarnation,
        .seq = ++layout->next_flow_seq,
        .next = NO_INDEX,
        .previous = NO_INDEX,
    };
    return place;
}

void flow_queue_join_locked(struct layout_area *layout, uint32_t place)
{
    struct flow_place_row *row = &layout->flow_places[place];

    REQUIRE(has_state(row, FLOW_PLACE_FREE) && row->flow < FLOWS_MAX &&
            row->class_index < FLOW_CLASSES);
    append(layout, place);
    atomic_store(&row->state, FLOW_PLACE_WAITING);
}

/* So that calls count that use next to nothing: what a request costs on top of its units. */
static int64_t fixed_cost(const struct flow_row *flow)
{
    static const int64_t by_unit[] = {[FLOW_UNIT_TOKENS] = 100,
                                      [FLOW_UNIT_IMAGES] = 0,
                                      [FLOW_UNIT_SECONDS] = 1,
                                      [FLOW_UNIT_TASKS] = 0};

    return by_unit[flow->unit];
}

static int64_t tag_of(const struct flow_row *flow, const struct flow_class_row *class, int64_t cost)
{
    return ((cost > 0 ? cost : 1) + fixed_cost(flow)) * TAG_SCALE /
           (class->weight > 0 ? class->weight : 1);
}

static int64_t start_of(const struct flow_row *flow, const struct flow_class_row *class)
{
    return class->finish > flow->virtual_time ? class->finish : flow->virtual_time;
}

void flow_queue_grant_locked(struct layout_area *layout, uint32_t place)
{
    struct flow_place_row *row = &layout->flow_places[place];
    struct flow_row *flow = flow_of(layout, row);
    struct flow_class_row *class = class_of(layout, row);

    REQUIRE(has_state(row, FLOW_PLACE_FREE) || has_state(row, FLOW_PLACE_WAITING));
    if (has_state(row, FLOW_PLACE_WAITING))
        unlink_waiting(layout, place);
    row->tag_charged = tag_of(flow, class, row->cost);
    flow->virtual_time = start_of(flow, class);
    class->finish = flow->virtual_time + row->tag_charged;
    class->granted++;
    class->granted_cost += (uint64_t)row->cost;
    flow->in_flight++;
    row->rung_ns = row->due_ns = row->aside_until_ns = 0;
    row->image_place = row->hopeless = 0;
    atomic_store(&row->rung, 0);
    atomic_store(&row->state, FLOW_PLACE_GRANTED);
}

void flow_queue_free_place_locked(struct layout_area *layout, uint32_t place)
{
    struct flow_place_row *row = &layout->flow_places[place];

    if (has_state(row, FLOW_PLACE_WAITING))
        unlink_waiting(layout, place);
    else if (!has_state(row, FLOW_PLACE_FREE))
        flow_of(layout, row)->in_flight--;
    atomic_store(&row->rung, 0);
    atomic_store(&row->state, FLOW_PLACE_FREE); /* its owner's until then, or no burial finds it */
    layout->flow_places_used--;
    push_free(layout, place);
}

void flow_queue_correct_locked(struct layout_area *layout, uint32_t place, int64_t cost)
{
    struct flow_place_row *row = &layout->flow_places[place];
    struct flow_class_row *class = class_of(layout, row);
    int64_t tag = cost > 0 ? tag_of(flow_of(layout, row), class, cost) : 0;

    class->finish += tag - row->tag_charged;
    row->tag_charged = tag;
}

/* ---- whose turn ------------------------------------------------------------------------------ */

static bool is_silent(const struct layout_area *layout, const struct flow_place_row *row,
                      int64_t now_ns)
{
    return (row->rung_ns != 0 && now_ns - row->rung_ns > QUEUE_SILENT_NS) ||
           (row->due_ns != 0 && now_ns - row->due_ns > QUEUE_SILENT_NS) ||
           now_ns - layout->answered_ns[row->owner] > PROCESS_SILENT_NS;
}

bool flow_queue_is_passed_over(const struct layout_area *layout, const struct flow_place_row *row,
                               const struct flow_moment *moment)
{
    return row->aside_until_ns > moment->now_ns || row->deadline_ns < moment->now_ns ||
           (row->image_place != 0 && !moment->slot_free) || is_silent(layout, row, moment->now_ns);
}

static uint32_t first_of(const struct layout_area *layout, const struct flow_class_row *class,
                         const struct flow_moment *moment)
{
    uint32_t at = class->waiting > 0 ? class->head : NO_INDEX;

    if (class->plain == 0 && !moment->slot_free)
        return NO_INDEX;
    while (at != NO_INDEX && flow_queue_is_passed_over(layout, &layout->flow_places[at], moment))
        at = layout->flow_places[at].next;
    return at;
}

/* Of the classes that have somebody who can go, which starts first; among equals the higher one.
 * newcomer: somebody of that class came now; FLOW_CLASSES = nobody. */
static uint32_t next_of(const struct layout_area *layout, const struct flow_row *flow,
                        uint32_t newcomer, const struct flow_moment *moment, bool *ret_newcomer)
{
    uint32_t best = NO_INDEX;
    int64_t best_start = INT64_MAX;

    *ret_newcomer = false;
    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        const struct flow_class_row *class = &flow->classes[c];
        uint32_t first = first_of(layout, class, moment);

        if ((first == NO_INDEX && c != newcomer) || start_of(flow, class) >= best_start)
            continue;
        best = first;
        best_start = start_of(flow, class);
        *ret_newcomer = first == NO_INDEX;
    }
    return best;
}

uint32_t flow_queue_next_locked(const struct layout_area *layout, const struct flow_row *flow,
                                const struct flow_moment *moment)
{
    bool newcomer;

    return next_of(layout, flow, FLOW_CLASSES, moment, &newcomer);
}

bool flow_queue_is_next_new_locked(const struct layout_area *layout, const struct flow_row *flow,
                                   enum flow_class class, const struct flow_moment *moment)
{
    bool newcomer;

    (void)next_of(layout, flow, class, moment, &newcomer);
    return newcomer;
}

struct flow_ahead flow_queue_ahead_locked(const struct flow_row *flow, enum flow_class class,
                                          int64_t cost)
{
    const struct flow_class_row *own = &flow->classes[class];
    const int64_t fixed = fixed_cost(flow);
    const int64_t own_cost = own->queued_cost + cost + (own->waiting + 1) * fixed;
    struct flow_ahead ahead = {.calls = own->waiting, .cost = own->queued_cost};

    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        const struct flow_class_row *other = &flow->classes[c];
        const int64_t all = other->queued_cost + other->waiting * fixed;
        int64_t gets;

        if (c == class || other->waiting == 0)
            continue;
        gets = own_cost / (own->weight > 0 ? own->weight : 1) * other->weight;
        if (gets > all)
            gets = all;
        ahead.calls += all > 0 ? (uint32_t)((double)other->waiting * (double)gets / (double)all)
                               : other->waiting;
        ahead.cost += gets;
    }
    return ahead;
}

void flow_queue_forgive_locked(struct layout_area *layout, int64_t now_ns)
{
    for (uint32_t i = 0; i < FLOW_PLACES_MAX && layout->flow_places_used > 0; i++) {
        struct flow_place_row *row = &layout->flow_places[i];

        if (!has_state(row, FLOW_PLACE_WAITING))
            continue;
        if (row->rung_ns != 0)
            row->rung_ns = now_ns;
        if (row->due_ns != 0 && row->due_ns < now_ns)
            row->due_ns = now_ns;
    }
}
