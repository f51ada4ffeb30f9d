/*
 * killed.h - a process that is killed at a store into the segment that the test chooses; for run_killed*.c.
 *
 * The process sees the segment read-only. Each store ends in a signal: the handler opens the page, lets the
 * one instruction run (trap flag), counts it, and closes the page again. A first life tells which stores there
 * are; then one life after the other ends after each of them, and before those that follow a change of the
 * semaphore. Of an instruction that stores often the first and last rounds are met. One that has stored
 * KILLED_LOOP times goes on unwatched until another page is stored to: lists of thousands of places are built
 * that way, all alike.
 *
 * Rows that no scene reaches are left open.
 */
#ifndef TESTS_SCENARIOS_KILLED_H
#define TESTS_SCENARIOS_KILLED_H

#include "tests/shared/flow_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>

#define KILLED_PLACES 16U /* of each kind, as many as a scene may use */
#define KILLED_FLOWS 4U
#define KILLED_STORES_MAX 100000U
#define KILLED_ROUNDS 12U
#define KILLED_LOOP 100U
#define KILLED_PAGE UINT64_C(4096)
#define KILLED_TRAP_FLAG 0x100 /* of the x86 flags: one instruction, then SIGTRAP */

#ifdef __x86_64__
#define KILLED_RIP REG_RIP
#define KILLED_FLAGS REG_EFL
#else
#define KILLED_RIP 0
#define KILLED_FLAGS 0
#endif

/* One store, in the order of a life. */
struct killed_store {
    uintptr_t at;         /* the instruction */
    bool after_semaphore; /* the semaphore is another than at the store before */
};

/* What a process does; it lies in memory that the test shares with it. */
struct killed_life {
    struct segment *segment;
    uint32_t stores; /* so far */
    uint32_t last;   /* dies at this store ... */
    bool before;     /* ... before it, or after */
    uintptr_t open[4];
    uint32_t open_count;
    uintptr_t unwatched;   /* a page that a loop stores to; 0 = none */
    uint8_t rounds[65536]; /* by instruction, hashed; up to KILLED_LOOP */
    int semaphore;
    struct killed_store seen[KILLED_STORES_MAX];
};
static struct killed_life *killed_life;

/* ---- in the process -------------------------------------------------------------------------- */

static inline void killed_protect(uintptr_t from, uintptr_t to, int protection)
{
    from = (from + KILLED_PAGE - 1) & ~(KILLED_PAGE - 1);
    to &= ~(KILLED_PAGE - 1);
    if (to > from && mprotect((void *)from, to - from, protection) != 0)
        _exit(10);
}

static inline void killed_protect_all(int protection)
{
    const struct layout_area *layout = segment_layout(killed_life->segment);
    const uintptr_t begin = (uintptr_t)killed_life->segment->area;
    const uintptr_t end = begin + sizeof(struct segment_area);

    killed_protect(begin, end + KILLED_PAGE - 1, protection);
    if (protection & PROT_WRITE)
        return;
    killed_protect((uintptr_t)&layout->places[KILLED_PLACES],
                   (uintptr_t)&layout->places[PLACES_MAX], PROT_READ | PROT_WRITE);
    killed_protect((uintptr_t)&layout->flow_places[KILLED_PLACES],
                   (uintptr_t)&layout->flow_places[FLOW_PLACES_MAX], PROT_READ | PROT_WRITE);
    killed_protect((uintptr_t)&layout->flows[KILLED_FLOWS], (uintptr_t)&layout->flows[FLOWS_MAX],
                   PROT_READ | PROT_WRITE);
    killed_protect((uintptr_t)layout->flow_clients, (uintptr_t)&layout->flow_clients[FLOW_CLIENTS],
                   PROT_READ | PROT_WRITE);
}

static inline int killed_semaphore(void)
{
    return semctl(segment_core(killed_life->segment)->semaphore_id, 0, GETVAL);
}

/* True: it stores in a loop. */
static inline bool killed_loops(uintptr_t at)
{
    uint8_t *rounds = &killed_life->rounds[at * UINT64_C(0x9e3779b97f4a7c15) >> 48];

    if (*rounds == KILLED_LOOP)
        return true;
    ++*rounds;
    return false;
}

static inline void killed_set_page(uintptr_t page, int protection)
{
    if (mprotect((void *)page, KILLED_PAGE, protection) != 0)
        _exit(12);
}

/* The kernel writes into the lock that a dead process held: it must be able to. */
static inline void killed_dies(void)
{
    killed_protect_all(PROT_READ | PROT_WRITE);
    (void)kill(getpid(), SIGKILL);
    for (;;)
        (void)pause();
}

static inline void killed_before_store(int number, siginfo_t *info, void *context)
{
    struct killed_life *life = killed_life;
    ucontext_t *at = context;
    const uintptr_t page = (uintptr_t)info->si_addr & ~(KILLED_PAGE - 1);
    const uintptr_t begin = (uintptr_t)life->segment->area;
    const int error = errno;

    (void)number;
    if (page < begin || page >= begin + sizeof(struct segment_area) ||
        life->open_count == LENGTH(life->open) || life->stores == KILLED_STORES_MAX)
        _exit(11);
    if (life->unwatched != 0)
        killed_set_page(life->unwatched, PROT_READ);
    life->unwatched = 0;
    if (life->open_count == 0 && killed_loops((uintptr_t)at->uc_mcontext.gregs[KILLED_RIP])) {
        killed_set_page(page, PROT_READ | PROT_WRITE);
        life->unwatched = page;
        errno = error;
        return;
    }
    if (life->open_count == 0) { /* and not the second page of one store */
        const int semaphore = killed_semaphore();

        life->seen[life->stores] = (struct killed_store){
            .at = (uintptr_t)at->uc_mcontext.gregs[KILLED_RIP],
            .after_semaphore = semaphore != life->semaphore,
        };
        life->semaphore = semaphore;
        if (life->stores == life->last && life->before)
            killed_dies();
    }
    life->open[life->open_count++] = page;
    killed_set_page(page, PROT_READ | PROT_WRITE);
    at->uc_mcontext.gregs[KILLED_FLAGS] |= KILLED_TRAP_FLAG;
    errno = error;
}

static inline void killed_after_store(int number, siginfo_t *info, void *context)
{
    struct killed_life *life = killed_life;
    ucontext_t *at = context;
    const int error = errno;

    (void)number;
    (void)info;
    if (life->stores++ == life->last)
        killed_dies();
    while (life->open_count > 0)
        killed_set_page(life->open[--life->open_count], PROT_READ);
    at->uc_mcontext.gregs[KILLED_FLAGS] &= ~(long long)KILLED_TRAP_FLAG;
    errno = error;
}

static inline void killed_begin_watching(void)
{
    struct sigaction before = {.sa_sigaction = killed_before_store, .sa_flags = SA_SIGINFO};
    struct sigaction after = {.sa_sigaction = killed_after_store, .sa_flags = SA_SIGINFO};

    killed_life->stores = killed_life->open_count = 0;
    killed_life->unwatched = 0;
    memset(killed_life->rounds, 0, sizeof killed_life->rounds);
    killed_life->semaphore = killed_semaphore();
    if (sigaction(SIGSEGV, &before, NULL) != 0 || sigaction(SIGTRAP, &after, NULL) != 0)
        _exit(13);
    killed_protect_all(PROT_READ);
}

/* ---- in the test ----------------------------------------------------------------------------- */

struct killed_scene {
    void (*act)(struct gate *own);     /* NULL: it enters the roster, no more */
    void (*prepare)(struct gate *own); /* what it does before: not watched */
    uint64_t generation;               /* of its configuration; 0 = 1 */
    uint32_t rounds;                   /* of one instruction: so many first and last; 0 = 12 */
    void (*before)(void);              /* every life finds the same */
    void (*after)(void);               /* what holds after each */
};

static struct segment killed_segment;
static struct gate killed_gate; /* the test's own */
static struct roster_watch killed_watch;
static int64_t killed_now_ns; /* the clock of all: only the test moves it */

/* Whoever reads a failure wants to know. */
static struct {
    const struct killed_store *store;
    bool before;
} killed_at;

static inline struct journal_area *killed_journal(void)
{
    return &segment_instance(&killed_segment)->journal;
}

static inline enum gate_verdict killed_arrive(struct gate *of, uint32_t *ret_place)
{
    struct gate_call call = fixture_call(true);
    struct gate_answer answer;

    call.now_ns = killed_now_ns;
    gate_arrive(of, &call, &answer);
    *ret_place = answer.place;
    return answer.verdict;
}

static inline struct slots_use killed_use(void)
{
    struct slots_use use;

    gate_lock(&killed_gate);
    use = slots_use_locked(segment_core(&killed_segment), killed_now_ns);
    gate_unlock(&killed_gate);
    return use;
}

/* The process is dead already: it has not to be waited for. */
static inline void killed_bury(void)
{
    struct roster_death dead[8];
    struct gate_burial burial;
    unsigned count = roster_watch_dead(&killed_watch, segment_core(&killed_segment), dead,
                                       (unsigned)LENGTH(dead));

    for (unsigned i = 0; i < count; i++)
        assert_true(gate_bury(&killed_gate, &dead[i], killed_now_ns, 0, &burial));
}

static inline struct roster_member killed_member(const struct killed_scene *scene)
{
    return (struct roster_member){.role = PROCESS_WORKER,
                                  .instance = killed_segment.instance,
                                  .generation = scene->generation > 0 ? scene->generation : 1};
}

static inline void killed_live(const struct killed_scene *scene)
{
    const struct roster_member member = killed_member(scene);
    struct gate own;

    if (!scene->act)
        killed_begin_watching();
    if (!gate_join(&own, &killed_segment, &member, killed_now_ns))
        _exit(14);
    if (scene->prepare)
        scene->prepare(&own);
    if (scene->act) {
        killed_begin_watching();
        scene->act(&own);
    }
    killed_protect_all(PROT_READ | PROT_WRITE);
    if (own.self != NO_INDEX)
        gate_resign(&own, killed_now_ns);
    _exit(0);
}

/* One life. True: it was killed. */
static inline bool killed_run(const struct killed_scene *scene, uint32_t last, bool before)
{
    pid_t pid;
    int status;

    killed_now_ns += NS_PER_S; /* whatever goes by seconds is the same in each life */
    gate_tick(&killed_gate, killed_now_ns);
    if (scene->before)
        scene->before();
    killed_life->last = last;
    killed_life->before = before;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        killed_live(scene);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    else
        assert_int_equal(WTERMSIG(status), SIGKILL);
    killed_bury();
    scene->after();
    return WIFSIGNALED(status);
}

/* Of one instruction's many rounds those in the middle are left out. */
static inline bool killed_is_chosen(const struct killed_store *seen, uint32_t count, uint32_t index,
                                    uint32_t rounds)
{
    uint32_t earlier = 0, later = 0;

    for (uint32_t i = 0; i < index && earlier < rounds; i++)
        earlier += seen[i].at == seen[index].at;
    for (uint32_t i = index + 1; i < count && later < rounds; i++)
        later += seen[i].at == seen[index].at;
    return earlier < rounds || later < rounds;
}

/* Every store, least of them: so many a scene has at the least. */
static inline void killed_at_every_store(const struct killed_scene *scene, uint32_t least)
{
    static struct killed_store seen[KILLED_STORES_MAX];
    uint32_t count;

#ifndef __x86_64__
    skip(); /* one instruction at a time, as that one has it */
#endif
    fixture_needs_pidfds();
    assert_false(killed_run(scene, UINT32_MAX, false));
    count = killed_life->stores;
    assert_in_range(count, least, KILLED_STORES_MAX);
    memcpy(seen, killed_life->seen, count * sizeof seen[0]);
    for (uint32_t i = 0; i < count; i++) {
        if (!killed_is_chosen(seen, count, i, scene->rounds > 0 ? scene->rounds : KILLED_ROUNDS))
            continue;
        killed_at.store = &seen[i];
        killed_at.before = true;
        if (seen[i].after_semaphore)
            assert_true(killed_run(scene, i, true));
        killed_at.before = false;
        assert_true(killed_run(scene, i, false));
    }
    killed_at.store = NULL;
}

/* ---- what must hold afterwards; used: places that others hold -------------------------------- */

static inline void killed_check_image_queue(uint32_t used)
{
    const struct layout_area *layout = segment_layout(&killed_segment);
    uint32_t free_places = 0, taken = 0;

    for (uint32_t at = layout->free_head; at != NO_INDEX; at = layout->places[at].next)
        free_places++;
    for (uint32_t i = 0; i < PLACES_MAX; i++)
        taken += atomic_load(&layout->places[i].state) != PLACE_FREE;
    assert_int_equal(taken, used);
    assert_int_equal(free_places, PLACES_MAX - used);
    assert_int_equal(layout->waiting, 0);
    for (uint32_t c = 0; c < FLOW_CLASSES; c++)
        assert_int_equal(layout->queue_classes[c].waiting, 0);
}

static inline void killed_check_flow(uint32_t used)
{
    const struct layout_area *layout = segment_layout(&killed_segment);
    const struct flow_row *flow = fixture_flow(&killed_gate);
    uint32_t free_places = 0, taken = 0;

    for (uint32_t at = layout->flow_free_head; at != NO_INDEX; at = layout->flow_places[at].next)
        free_places++;
    for (uint32_t i = 0; i < FLOW_PLACES_MAX; i++)
        taken += atomic_load(&layout->flow_places[i].state) != FLOW_PLACE_FREE;
    assert_int_equal(taken, used);
    assert_int_equal(layout->flow_places_used, used);
    assert_int_equal(free_places, FLOW_PLACES_MAX - used);
    assert_int_equal(flow->in_flight, used);
    assert_int_equal(flow->waiting, 0);
    assert_int_equal(layout->flow_slot_waiters, 0);
    for (uint32_t c = 0; c < FLOW_CLASSES; c++) {
        assert_int_equal(flow->classes[c].waiting, 0);
        assert_int_equal(flow->classes[c].queued_cost, 0);
    }
}

static inline int killed_open(void **state)
{
    (void)state;
    fixture_open(&killed_segment, &killed_gate, 1, 100);
    roster_watch_init(&killed_watch);
    killed_now_ns = clock_monotonic_ns();
    killed_life =
        mmap(NULL, sizeof *killed_life, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (killed_life == MAP_FAILED)
        return 1;
    killed_life->segment = &killed_segment;
    return 0;
}

static inline int killed_close(void **state)
{
    extern const char __executable_start[];

    (void)state;
    if (killed_at.store)
        print_message("killed %s the store at %#lx\n", killed_at.before ? "before" : "after",
                      (unsigned long)(killed_at.store->at - (uintptr_t)__executable_start));
    killed_at.store = NULL;
    (void)munmap(killed_life, sizeof *killed_life);
    roster_watch_release(&killed_watch);
    fixture_close(&killed_segment);
    return 0;
}

#endif
