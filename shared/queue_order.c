/* queue_order.c - whose turn it is between the classes at the image gate; see queue_order.h. */
#include "shared/queue_order.h"

/* Virtual time is pictures * TAG_SCALE / weight, so that weights up to 1000 lose nothing that shows. */
#define TAG_SCALE (INT64_C(1) << 24)

enum flow_class queue_class_heard(const struct layout_area *layout, enum flow_class class)
{
    return layout->queue_classes[FLOW_NORMAL].terms.weight > 0 ? class : FLOW_NORMAL;
}

/* What pictures take of their class's virtual time. */
static int64_t tag_of(const struct queue_class_row *class, uint64_t pictures)
{
    return (int64_t)pictures * (TAG_SCALE / (class->terms.weight > 0 ? class->terms.weight : 1));
}

static int64_t start_of(const struct layout_area *layout, const struct queue_class_row *class)
{
    return class->finish > layout->queue_virtual_time ? class->finish : layout->queue_virtual_time;
}

void queue_charge_locked(struct layout_area *layout, uint32_t place)
{
    const struct place_row *row = &layout->places[place];
    struct queue_class_row *class = &layout->queue_classes[row->class_index];

    layout->queue_virtual_time = start_of(layout, class);
    class->finish = layout->queue_virtual_time + tag_of(class, row->pictures);
}

void queue_walk_begin(struct queue_walk *walk, const struct layout_area *layout)
{
    walk->layout = layout;
    walk->place = NO_INDEX;
    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        walk->next[c] = layout->queue_classes[c].head;
        walk->start[c] = start_of(layout, &layout->queue_classes[c]);
    }
}

uint32_t queue_walk_next(struct queue_walk *walk)
{
    uint32_t best = FLOW_CLASSES;

    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        if (walk->next[c] != NO_INDEX &&
            (best == FLOW_CLASSES || walk->start[c] < walk->start[best]))
            best = c;
    if (best == FLOW_CLASSES)
        return NO_INDEX;
    walk->place = walk->next[best];
    walk->next[best] = walk->layout->places[walk->place].next;
    return walk->place;
}

void queue_walk_grants(struct queue_walk *walk)
{
    const struct place_row *row = &walk->layout->places[walk->place];

    walk->start[row->class_index] +=
        tag_of(&walk->layout->queue_classes[row->class_index], row->pictures);
}

bool queue_is_full_locked(const struct layout_area *layout, enum flow_class class, uint32_t free)
{
    const struct queue_class_row *row = &layout->queue_classes[queue_class_heard(layout, class)];

    return row->terms.max_waiting > 0 && row->waiting >= (uint64_t)row->terms.max_waiting + free;
}

/* Of the other class, those whose start tags come before the tag. */
static uint32_t before(const struct layout_area *layout, uint32_t other, int64_t tag,
                       bool equal_too)
{
    const struct queue_class_row *class = &layout->queue_classes[other];
    const int64_t ahead = tag - start_of(layout, class);
    int64_t each;
    int64_t calls;

    if (class->waiting == 0 || ahead < 0)
        return 0;
    each = tag_of(class, class->pictures_waiting) / class->waiting;
    calls = equal_too ? ahead / each + 1 : (ahead + each - 1) / each;
    return calls < class->waiting ? (uint32_t)calls : class->waiting;
}

uint32_t queue_ahead_locked(const struct layout_area *layout, enum flow_class class)
{
    const enum flow_class own = queue_class_heard(layout, class);
    const struct queue_class_row *row = &layout->queue_classes[own];
    const int64_t tag = start_of(layout, row) + tag_of(row, row->pictures_waiting);
    uint32_t ahead = row->waiting;

    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        if (c != own)
            ahead += before(layout, c, tag, c < own);
    return ahead;
}
