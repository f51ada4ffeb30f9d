/*
 * scribe.c - from the journal to the ledger; see scribe.h.
 *
 * Order of things, so that a death anywhere loses and doubles nothing: records are put, COMMIT, then the
 * journal's tail moves. Whoever sits down next puts again what lies between; every put is an upsert.
 *
 * When records were lost all the same (the journal was full, the file was deleted), the rows are set
 * right from what stands at the gate: `reconcile`. Attempts stand nowhere but in their worker: those of a
 * worker that has died are closed when its burial passes by, and by a look from time to time.
 */
#include "worker/scribe.h"

#include "base/clock.h"
#include "base/log.h"
#include "shared/journal.h"
#include "shared/ledger.h"
#include "worker/scribe_config.h"
#include "worker/scribe_repair.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS (100 * NS_PER_MS)      /* calls are written at least this often */
#define GATHER_NS (20 * NS_PER_MS)     /* between two transactions, so that many share one */
#define SEAT_LOOK_NS (100 * NS_PER_MS) /* how often one without the seat looks at it */
#define MONITOR_GONE_NS NS_PER_S       /* a worker's scribe waits so long for a monitor */
#define BUSY_MS 50                     /* then the lock of somebody else counts as a failure */
#define BACKOFF_FIRST_NS (50 * NS_PER_MS)
#define BACKOFF_LAST_NS NS_PER_S
#define FINISH_NS (2 * NS_PER_S) /* the last writing may take so long */
#define RETAIN_EVERY_NS (60 * NS_PER_S)
#define RETAIN_AGAIN_NS (200 * NS_PER_MS)
#define CHECKPOINT_EVERY_NS (5 * NS_PER_S)
#define RECONCILE_EVERY_NS (2 * NS_PER_S)
#define CLOSE_ATTEMPTS_EVERY_NS (2 * NS_PER_S)

/* Records of one transaction. */
#define BATCH 768U
#define BATCH_WAITS 384U
#define BATCH_EVENTS 64U
#define ROUND_BATCHES 32 /* enough for all that a full journal holds */

/* The write-ahead log grows while a reader has an old state open. From these sizes on rows stay in the
 * journal: first those of calls and attempts, then all. Between them and ledger_max. */
#define LOG_HOLD_LEAST INT64_C(16777216)
#define LOG_HOLD_MOST INT64_C(268435456)
#define LOG_CUT_ABOVE INT64_C(8388608) /* worth a checkpoint that truncates */

enum log_size { LOG_SMALL, LOG_HOLDS_CALLS, LOG_HOLDS_ALL };

/* The scribe thread's own. */
struct desk {
    struct scribe *scribe;
    struct journal_area *journal;
    struct ledger *ledger; /* NULL: not open */
    int64_t group;
    bool seated;
    bool failing;              /* logged */
    bool introduce, reconcile; /* to be done */
    enum log_size log_size;
    uint64_t lost_seen; /* of waits */
    uint64_t lost_at_failure;
    int64_t backoff_ns;
    int64_t monitor_seen_ns, last_write_ns;
    int64_t next_retain_ns, next_checkpoint_ns, next_reconcile_ns;
    int64_t next_close_ns; /* of attempts */
};

static struct segment *segment_of(const struct desk *desk)
{
    return desk->scribe->gate->segment;
}

static bool stops(const struct desk *desk)
{
    return atomic_load(&desk->scribe->stop);
}

/* Sleep; the end of the scribe wakes. */
static void pause_ns(struct desk *desk, int64_t duration_ns)
{
    struct scribe *scribe = desk->scribe;
    struct timespec until;

    INVARIANT(clock_gettime(CLOCK_MONOTONIC, &until) == 0);
    until.tv_sec += (duration_ns + until.tv_nsec) / NS_PER_S;
    until.tv_nsec = (duration_ns + until.tv_nsec) % NS_PER_S;
    INVARIANT(pthread_mutex_lock(&scribe->mutex) == 0);
    while (!stops(desk) &&
           pthread_cond_timedwait(&scribe->wake, &scribe->mutex, &until) != ETIMEDOUT)
        continue;
    INVARIANT(pthread_mutex_unlock(&scribe->mutex) == 0);
}

/* ---- the seat -------------------------------------------------------------------------------- */

static bool monitor_lives(const struct desk *desk, uint64_t newer_than)
{
    struct gate *gate = desk->scribe->gate;
    const struct roster_row *roster = segment_core(gate->segment)->roster;
    bool lives = false;

    gate_lock(gate);
    for (size_t i = 0; i < ROSTER_MAX; i++)
        lives = lives || (atomic_load(&roster[i].pid) != 0 && roster[i].role == PROCESS_MONITOR &&
                          roster[i].instance == gate->segment->instance &&
                          roster[i].incarnation > newer_than);
    gate_unlock(gate);
    return lives;
}

/* Incarnations only grow: a monitor with a greater one was started after us. */
static bool may_sit(struct desk *desk, int64_t now_ns)
{
    const struct gate *gate = desk->scribe->gate;

    if (desk->scribe->eager)
        return !monitor_lives(desk, segment_core(gate->segment)->roster[gate->self].incarnation);
    if (monitor_lives(desk, 0))
        desk->monitor_seen_ns = now_ns;
    return now_ns - desk->monitor_seen_ns > MONITOR_GONE_NS;
}

static void stand_up(struct desk *desk)
{
    ledger_close(desk->ledger);
    desk->ledger = NULL;
    journal_stand_up(desk->journal);
    desk->seated = false;
}

/* True: this thread has the seat. */
static bool take_seat(struct desk *desk)
{
    bool may = may_sit(desk, clock_monotonic_ns());

    if (desk->seated && !may)
        stand_up(desk);
    if (desk->seated || !may || !journal_sit_down(desk->journal))
        return desk->seated;
    desk->seated = true;
    desk->introduce = desk->scribe->eager;
    desk->reconcile = true;
    desk->next_reconcile_ns = 0;
    return true;
}

/* ---- the file -------------------------------------------------------------------------------- */

static void report_failure(struct desk *desk, const char *why)
{
    journal_count_failure(desk->journal);
    if (desk->failing)
        return;
    desk->failing = true;
    desk->lost_at_failure = atomic_load(&desk->journal->waits_lost);
    log_event(LOG_LEVEL_WARNING, "ledger_failed",
              "%s; calls go on, their rows wait in memory and are written later", why);
}

static void report_recovery(struct desk *desk)
{
    if (!desk->failing)
        return;
    desk->failing = false;
    log_event(LOG_LEVEL_NOTICE, "ledger_recovered",
              "the ledger is written again; rows of waits lost meanwhile: %" PRIu64,
              atomic_load(&desk->journal->waits_lost) - desk->lost_at_failure);
}

/* What failed is behind us only when the file is opened anew, except somebody else's lock. */
static bool fail(struct desk *desk)
{
    ledger_rollback(desk->ledger);
    report_failure(desk, ledger_error(desk->ledger));
    if (!ledger_is_busy(desk->ledger)) {
        ledger_close(desk->ledger);
        desk->ledger = NULL;
    }
    return false;
}

static bool open_ledger(struct desk *desk)
{
    struct text why;

    if (desk->ledger && ledger_is_linked(desk->ledger))
        return true;
    if (desk->ledger) {
        log_event(LOG_LEVEL_WARNING, "ledger_replaced",
                  "ledger.db was removed or replaced; it is opened anew");
        ledger_close(desk->ledger);
        desk->introduce = desk->scribe->eager;
        desk->reconcile = true;
        desk->next_reconcile_ns = 0;
    }
    text_init(&why, 1000);
    desk->ledger =
        ledger_open(desk->scribe->options->penstock.state_directory, BUSY_MS, desk->group, &why);
    if (!desk->ledger)
        report_failure(desk, text_string(&why));
    text_release(&why);
    return desk->ledger != NULL;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What the next transaction takes. */
static struct journal_count next_batch(const struct desk *desk)
{
    struct journal_count batch = journal_ready(desk->journal);

    uint64_t room;

    if (desk->log_size == LOG_HOLDS_ALL)
        return (struct journal_count){0};
    batch.waits = least(batch.waits, BATCH_WAITS);
    batch.events = least(batch.events, BATCH_EVENTS);
    /* A call and its last attempt were written together, and are read together. */
    room = desk->log_size == LOG_HOLDS_CALLS ? 0 : BATCH - batch.waits - batch.events;
    batch.calls = least(batch.calls, room / 2);
    batch.attempts = least(batch.attempts, room - batch.calls);
    return batch;
}

/* A process has died: what it was doing has ended. */
static bool is_burial(const struct event_record *event)
{
    return strcmp(event->name, "burial") == 0;
}

static bool put_calls(const struct desk *desk, uint64_t count)
{
    const struct call_record *group[LEDGER_GROUP];
    bool ok = true;

    for (uint64_t at = 0; ok && at < count; at += LEDGER_GROUP) {
        size_t size = (size_t)least(count - at, LEDGER_GROUP);

        for (size_t i = 0; i < size; i++)
            group[i] = journal_peek_call(desk->journal, at + i);
        ok = ledger_put_calls(desk->ledger, group, size);
    }
    return ok;
}

static bool put_batch(struct desk *desk, const struct journal_count *batch)
{
    for (uint64_t i = 0; i < batch->waits; i++)
        if (!ledger_put_wait(desk->ledger, journal_peek_wait(desk->journal, i)))
            return false;
    for (uint64_t i = 0; i < batch->events; i++) {
        const struct event_record *event = journal_peek_event(desk->journal, i);

        if (!ledger_put_event(desk->ledger, event))
            return false;
        if (is_burial(event))
            desk->next_close_ns = 0;
    }
    for (uint64_t i = 0; i < batch->attempts; i++)
        if (!ledger_put_attempt(desk->ledger, journal_peek_attempt(desk->journal, i)))
            return false;
    return put_calls(desk, batch->calls);
}

/* One transaction; true without one when there is nothing to write. */
static bool write_batch(struct desk *desk, bool *ret_more)
{
    struct journal_count batch = next_batch(desk);

    *ret_more = journal_count_sum(&batch) > 0;
    if (!*ret_more)
        return true;
    if (!ledger_begin(desk->ledger) || !put_batch(desk, &batch) || !ledger_commit(desk->ledger))
        return fail(desk);
    journal_advance(desk->journal, &batch);
    desk->last_write_ns = clock_monotonic_ns();
    return true;
}

static bool write_all(struct desk *desk)
{
    bool more = true;

    for (int i = 0; more && i < ROUND_BATCHES; i++)
        if (!write_batch(desk, &more))
            return false;
    return true;
}

/* ---- set right what was lost ----------------------------------------------------------------- */

/* Every call at the gate has its row, and no row is open whose call has gone. Between the copy and its
 * writing the journal is written, so that what ended before the copy has ended in the ledger too. */
static bool reconcile(struct desk *desk)
{
    uint64_t lost = atomic_load(&desk->journal->waits_lost);
    struct scribe_copy copy;
    bool ok = scribe_copy_gate(&copy, desk->scribe->gate);

    if (!ok) {
        report_failure(desk, "out of memory for the ledger");
    } else if (desk->log_size != LOG_HOLDS_ALL) {
        ok = write_all(desk) && (scribe_put_copy(&copy, desk->ledger) || fail(desk));
        if (ok) {
            desk->reconcile = false;
            desk->lost_seen = lost;
        }
    }
    scribe_copy_release(&copy);
    return ok;
}

/* No attempt is running whose process has gone. */
static bool close_attempts(struct desk *desk, int64_t now_ns)
{
    if (now_ns < desk->next_close_ns || desk->log_size == LOG_HOLDS_ALL)
        return true;
    desk->next_close_ns = now_ns + CLOSE_ATTEMPTS_EVERY_NS;
    return scribe_close_attempts(desk->scribe->gate, desk->ledger) || fail(desk);
}

/* ---- upkeep ---------------------------------------------------------------------------------- */

static void judge_log(struct desk *desk)
{
    static const char *const texts[] = {
        [LOG_SMALL] = "the ledger's log is small again; all rows are written",
        [LOG_HOLDS_CALLS] = "a reader keeps an old state of the ledger open and its log is large; "
                            "rows of calls wait in memory until the reader ends",
        [LOG_HOLDS_ALL] = "a reader keeps an old state of the ledger open and its log is too "
                          "large; all rows wait in memory until the reader ends",
    };
    int64_t hold = desk->scribe->options->penstock.ledger_max_bytes / 4;
    int64_t bytes = ledger_wal_bytes(desk->ledger);
    enum log_size size = LOG_SMALL;

    if (hold < LOG_HOLD_LEAST)
        hold = LOG_HOLD_LEAST;
    if (hold > LOG_HOLD_MOST)
        hold = LOG_HOLD_MOST;
    if (bytes > 2 * hold)
        size = LOG_HOLDS_ALL;
    else if (bytes > hold)
        size = LOG_HOLDS_CALLS;
    if (size == desk->log_size)
        return;
    desk->log_size = size;
    desk->next_checkpoint_ns = 0;
    log_event(size == LOG_SMALL ? LOG_LEVEL_NOTICE : LOG_LEVEL_WARNING, "ledger_log_size", "%s",
              texts[size]);
}

static void cut_log(struct desk *desk, int64_t now_ns)
{
    if (now_ns < desk->next_checkpoint_ns)
        return;
    desk->next_checkpoint_ns = now_ns + CHECKPOINT_EVERY_NS;
    if (desk->log_size != LOG_SMALL)
        desk->next_checkpoint_ns = now_ns + NS_PER_S;
    if (ledger_wal_bytes(desk->ledger) > LOG_CUT_ABOVE)
        ledger_checkpoint(desk->ledger);
}

/* Deleting makes the log grow too: not while a reader keeps it large. */
static bool retain(struct desk *desk, int64_t now_ns)
{
    const struct penstock_options *options = &desk->scribe->options->penstock;
    bool more = false;

    if (now_ns < desk->next_retain_ns || desk->log_size != LOG_SMALL)
        return true;
    desk->next_retain_ns = now_ns + RETAIN_EVERY_NS;
    if (!ledger_retain(desk->ledger, clock_wall_ms(), options->ledger_keep_ms,
                       options->ledger_max_bytes, &more))
        return fail(desk);
    if (more)
        desk->next_retain_ns = now_ns + RETAIN_AGAIN_NS;
    return true;
}

static bool upkeep(struct desk *desk)
{
    int64_t now_ns = clock_monotonic_ns();

    if (atomic_load(&desk->journal->waits_lost) != desk->lost_seen)
        desk->reconcile = true;
    if (desk->reconcile && now_ns >= desk->next_reconcile_ns) {
        desk->next_reconcile_ns = now_ns + RECONCILE_EVERY_NS;
        if (!reconcile(desk))
            return false;
    }
    if (!close_attempts(desk, now_ns))
        return false;
    cut_log(desk, now_ns);
    judge_log(desk);
    return retain(desk, now_ns);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static bool introduce(struct desk *desk)
{
    if (!desk->introduce)
        return true;
    if (!scribe_config_write(desk->ledger, desk->scribe->options, clock_wall_ms()))
        return fail(desk);
    desk->introduce = false;
    return true;
}

/* All there is to do now. False: something failed, try again later. */
static bool work(struct desk *desk)
{
    if (!desk->scribe->options->penstock.ledger) {
        journal_discard(desk->journal);
        return true;
    }
    if (!open_ledger(desk) || !introduce(desk) || !write_all(desk) || !upkeep(desk)) {
        desk->backoff_ns = desk->backoff_ns > 0 ? desk->backoff_ns * 2 : BACKOFF_FIRST_NS;
        if (desk->backoff_ns > BACKOFF_LAST_NS)
            desk->backoff_ns = BACKOFF_LAST_NS;
        return false;
    }
    desk->backoff_ns = 0;
    report_recovery(desk);
    return true;
}

/* The first record after a quiet time is written at once, further ones together. */
static void wait_for_records(struct desk *desk)
{
    int64_t since_ns = clock_monotonic_ns() - desk->last_write_ns;

    if (desk->log_size != LOG_SMALL) { /* what must wait would ring the bell for ever */
        pause_ns(desk, TICK_NS / 2);
        return;
    }
    if (since_ns < GATHER_NS)
        pause_ns(desk, GATHER_NS - since_ns);
    if (!stops(desk))
        journal_wait_doorbell(desk->journal, TICK_NS);
}

static bool is_written(const struct desk *desk)
{
    struct journal_count left = journal_ready(desk->journal);

    return journal_count_sum(&left) == 0;
}

/* What is there is still written, if nobody else does it and it does not take too long. */
static void finish(struct desk *desk)
{
    int64_t until_ns = clock_monotonic_ns() + FINISH_NS;

    if (!take_seat(desk))
        return;
    while ((!work(desk) || !is_written(desk)) && clock_monotonic_ns() < until_ns)
        clock_sleep_ns(GATHER_NS);
    stand_up(desk);
}

/* -1: nobody special may read. */
static int64_t find_group(const char *name)
{
    struct group group;
    struct group *found = NULL;
    char buffer[16384];

    if (!*name)
        return -1;
    if (getgrnam_r(name, &group, buffer, sizeof buffer, &found) != 0 || !found) {
        log_event(LOG_LEVEL_WARNING, "ledger_group_unknown",
                  "there is no group %s; only Penstock's own group can read the ledger", name);
        return -1;
    }
    if (geteuid() != 0 && !group_member(found->gr_gid)) {
        log_event(LOG_LEVEL_WARNING, "ledger_group_foreign",
                  "Penstock's user is not in the group %s (SupplementaryGroups= of the unit); only "
                  "Penstock's own group can read the ledger",
                  name);
        return -1;
    }
    return (int64_t)found->gr_gid;
}

static void *scribe_main(void *context)
{
    struct scribe *scribe = context;
    struct desk desk = {.scribe = scribe};

    desk.journal = &segment_instance(segment_of(&desk))->journal;
    desk.group = find_group(scribe->options->penstock.ledger_group);
    desk.monitor_seen_ns = clock_monotonic_ns();
    while (!stops(&desk)) {
        if (!take_seat(&desk))
            pause_ns(&desk, SEAT_LOOK_NS);
        else if (work(&desk))
            wait_for_records(&desk);
        else
            pause_ns(&desk, desk.backoff_ns);
    }
    finish(&desk);
    return NULL;
}

bool scribe_start(struct scribe *scribe, struct gate *gate, const struct options *options,
                  bool eager)
{
    pthread_condattr_t attributes;
    sigset_t all;
    sigset_t before;

    REQUIRE(!scribe->running);
    *scribe = (struct scribe){.gate = gate, .options = options, .eager = eager};
    if (pthread_mutex_init(&scribe->mutex, NULL) != 0 || pthread_condattr_init(&attributes) != 0)
        return false;
    if (pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) != 0 ||
        pthread_cond_init(&scribe->wake, &attributes) != 0)
        return false;
    (void)pthread_condattr_destroy(&attributes);
    /* No signal is this thread's: also SIGXFSZ must not be, which would end the process when the
     * file meets its size limit. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    scribe->running = pthread_create(&scribe->thread, NULL, scribe_main, scribe) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return scribe->running;
}

void scribe_stop(struct scribe *scribe)
{
    if (!scribe->running)
        return;
    INVARIANT(pthread_mutex_lock(&scribe->mutex) == 0);
    atomic_store(&scribe->stop, true);
    INVARIANT(pthread_cond_broadcast(&scribe->wake) == 0);
    INVARIANT(pthread_mutex_unlock(&scribe->mutex) == 0);
    journal_ring_doorbell(&segment_instance(scribe->gate->segment)->journal);
    INVARIANT(pthread_join(scribe->thread, NULL) == 0);
    (void)pthread_cond_destroy(&scribe->wake);
    (void)pthread_mutex_destroy(&scribe->mutex);
    scribe->running = false;
}
