/* refuser.c - 503 when every thread of the host is busy; see refuser.h. */
#include "worker/refuser.h"

#include "base/clock.h"
#include "shared/counters.h"
#include "worker/accept.h"
#include "worker/respond.h"

#include <poll.h>

#define LOOK_MS 100
#define BUSY_NS NS_PER_S
#define RETRY_AFTER_MS 5000

/* Does any worker of this instance that takes requests have an idle thread? */
static bool anybody_idle(const struct worker *worker)
{
    const struct core_area *core = segment_core(worker->segment);

    for (uint32_t i = 0; i < ROSTER_MAX; i++) {
        const struct roster_row *row = &core->roster[i];

        if (atomic_load(&row->pid) != 0 && row->role == PROCESS_WORKER && !row->draining &&
            row->instance == worker->segment->instance &&
            atomic_load(&row->threads_busy) < atomic_load(&row->threads))
            return true;
    }
    return false;
}

static void refuse_one(struct request *request)
{
    if (fastcgi_accept(request->fcgi, request->worker->listen_fd, 1000) != FASTCGI_REQUEST)
        return;
    request->response = RESPONSE_NONE;
    request->method = fastcgi_param(request->fcgi, "REQUEST_METHOD");
    request->scope = NULL;
    request->client_gone = false; /* the last one may have been */
    request->arrived_wall_ms = clock_wall_ms();
    accept_make_call_id(request);
    request->fault = (struct fault){.code = FAULT_NONE};
    fault_set(&request->fault, FAULT_busy, "%s", "");
    request->fault.retry_after_ms = RETRY_AFTER_MS;
    (void)respond_step(request);
    fastcgi_finish(request->fcgi);
    counter_add(&segment_instance(request->worker->segment)->counters, COUNTER_refused_busy, 1);
}

static void *run(void *argument)
{
    struct refuser *refuser = argument;
    struct worker *worker = refuser->worker;
    struct bell_seat nowhere = {.event_fd = -1, .place = NO_INDEX};
    struct request *request = request_new(worker, &nowhere);
    struct pollfd stop = {.fd = worker->stop_fd, .events = POLLIN};
    uint64_t seen_accepts = 0;
    int64_t since_ns = clock_monotonic_ns();

    while (request && poll(&stop, 1, LOOK_MS) == 0) {
        struct pollfd backlog = {.fd = worker->listen_fd, .events = POLLIN};
        uint64_t accepts = atomic_load(&worker->accepts);
        int64_t now_ns = clock_monotonic_ns();

        if (anybody_idle(worker) || accepts != seen_accepts) {
            seen_accepts = accepts;
            since_ns = now_ns;
        }
        if (now_ns - since_ns >= BUSY_NS && poll(&backlog, 1, 0) == 1)
            refuse_one(request);
    }
    request_free(request);
    return NULL;
}

bool refuser_start(struct refuser *refuser, struct worker *worker)
{
    *refuser = (struct refuser){.worker = worker};
    refuser->running = pthread_create(&refuser->thread, NULL, run, refuser) == 0;
    return refuser->running;
}

void refuser_stop(struct refuser *refuser)
{
    if (refuser->running)
        (void)pthread_join(refuser->thread, NULL);
    refuser->running = false;
}
