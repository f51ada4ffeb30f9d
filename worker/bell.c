/* bell.c - rings for waiting threads, burial and the tick; see bell.h. */
#include "worker/bell.h"

#include "base/clock.h"
#include "base/log.h"
#include "shared/admit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void ring_seats(struct bell *bell)
{
    const uint64_t one = 1;

    for (unsigned i = 0; i < bell->seat_count; i++) {
        uint32_t place = atomic_load(&bell->seats[i].place);
        uint32_t flow_place = atomic_load(&bell->seats[i].flow_place);

        if (admit_is_rung(bell->gate, place, flow_place) &&
            write(bell->seats[i].event_fd, &one, sizeof one) != (ssize_t)sizeof one)
            continue; /* the counter is full: the thread is awake anyway */
    }
}

static void bury_the_dead(struct bell *bell)
{
    struct roster_death dead[16];
    struct gate_burial burial;
    unsigned count = roster_watch_dead(&bell->watch, segment_core(bell->gate->segment), dead,
                                       (unsigned)LENGTH(dead));

    for (unsigned i = 0; i < count; i++) {
        struct log_line line;

        if (!gate_bury(bell->gate, &dead[i], clock_monotonic_ns(), clock_wall_ms(), &burial))
            continue;
        log_begin(&line, LOG_LEVEL_WARNING, "burial");
        log_number(&line, "pid", burial.pid);
        log_number(&line, "slots", burial.slots);
        log_number(&line, "places", burial.places);
        log_end(&line);
    }
}

static void *run(void *argument)
{
    struct bell *bell = argument;
    struct roster_row *own = &segment_core(bell->gate->segment)->roster[bell->gate->self];
    uint32_t seen = atomic_load(&own->bell);
    int64_t next_tick_ns = 0;

    while (!atomic_load(&bell->stop)) {
        int64_t now_ns = clock_monotonic_ns();

        ring_seats(bell);
        if (now_ns >= next_tick_ns) {
            bury_the_dead(bell);
            gate_tick(bell->gate, now_ns);
            next_tick_ns = now_ns + BELL_TICK_NS;
        }
        seen = roster_wait_bell(own, seen, BELL_TICK_NS);
    }
    return NULL;
}

static void free_seats(struct bell *bell)
{
    for (unsigned i = 0; bell->seats && i < bell->seat_count; i++)
        if (bell->seats[i].event_fd >= 0)
            (void)close(bell->seats[i].event_fd);
    free(bell->seats);
    bell->seats = NULL;
}

bool bell_start(struct bell *bell, struct gate *gate, unsigned seats)
{
    *bell = (struct bell){.gate = gate, .seat_count = seats};
    roster_watch_init(&bell->watch);
    bell->seats = calloc(seats, sizeof bell->seats[0]);
    if (!bell->seats)
        return false;
    for (unsigned i = 0; i < seats; i++) {
        bell->seats[i].event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        atomic_store(&bell->seats[i].place, NO_INDEX);
        atomic_store(&bell->seats[i].flow_place, NO_INDEX);
        if (bell->seats[i].event_fd < 0) {
            bell->seat_count = i + 1;
            goto fail;
        }
    }
    if (pthread_create(&bell->thread, NULL, run, bell) != 0)
        goto fail;
    bell->running = true;
    return true;

fail:
    free_seats(bell);
    return false;
}

void bell_stop(struct bell *bell)
{
    if (!bell->running)
        return;
    atomic_store(&bell->stop, true);
    roster_ring(&segment_core(bell->gate->segment)->roster[bell->gate->self]);
    (void)pthread_join(bell->thread, NULL);
    bell->running = false;
    roster_watch_release(&bell->watch);
    free_seats(bell);
}
