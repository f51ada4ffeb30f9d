/* gate_fixture.h - a gate on memory of the test's own, shared with the processes it forks. */
#ifndef TESTS_SHARED_GATE_FIXTURE_H
#define TESTS_SHARED_GATE_FIXTURE_H

#include "base/check.h"
#include "base/clock.h"
#include "shared/gate.h"
#include "shared/leases.h"
#include "shared/segment.h"
#include "shared/slots.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above first */
#include <cmocka.h>
#include <errno.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Skip a test in which somebody has to be certainly dead: valgrind knows no pidfds. */
static inline void fixture_needs_pidfds(void)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    if (fd < 0 && errno == ENOSYS)
        skip();
    (void)close(fd);
}

static inline void fixture_open(struct segment *segment, struct gate *gate, uint32_t limit,
                                uint32_t max_waiting)
{
    const struct gate_limits limits = {.limit = limit, .max_waiting = max_waiting, .on = true};
    struct roster_member member = {.role = PROCESS_WORKER, .generation = 1};
    struct text why;

    text_init(&why, 200);
    assert_true(segment_attach_anonymous(segment));
    assert_true(segment_join_instance(segment, "/nowhere", 0, &why));
    member.instance = segment->instance;
    assert_true(gate_join(gate, segment, &member, clock_monotonic_ns()));
    gate_set_limits(gate, &limits, clock_monotonic_ns(), 0);
    text_release(&why);
}

static inline void fixture_close(struct segment *segment)
{
    (void)semctl(segment_core(segment)->semaphore_id, 0, IPC_RMID);
    segment_detach(segment);
}

static inline struct gate_call fixture_call(bool may_wait)
{
    return (struct gate_call){
        .may_wait = may_wait,
        .wait_timeout_ns = 30 * NS_PER_S,
        .now_ns = clock_monotonic_ns(),
        .now_wall_ms = 1700000000000,
        .call_id = "pst_test",
        .class_name = "",
        .client = "",
        .scope = "",
        .model = "gpt-image-2",
        .endpoint = "images/generations",
    };
}

static inline enum gate_verdict fixture_arrive(struct gate *gate, bool may_wait,
                                               uint32_t *ret_place)
{
    struct gate_call call = fixture_call(may_wait);
    struct gate_answer answer;

    gate_arrive(gate, &call, &answer);
    *ret_place = answer.place;
    return answer.verdict;
}

static inline enum gate_verdict fixture_try(struct gate *gate, uint32_t place)
{
    struct gate_answer answer;

    gate_try(gate, place, clock_monotonic_ns(), &answer);
    return answer.verdict;
}

static inline void fixture_leave(struct gate *gate, uint32_t place, enum wait_state end)
{
    gate_leave(gate, place, end, clock_monotonic_ns(), NULL);
}

static inline struct slots_use fixture_use(struct gate *gate)
{
    struct slots_use use;

    gate_lock(gate);
    use = slots_use_locked(segment_core(gate->segment), clock_monotonic_ns());
    gate_unlock(gate);
    return use;
}

#endif
