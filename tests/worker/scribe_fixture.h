/* scribe_fixture.h - a gate, a directory for its ledger, options, and somebody who reads meanwhile. */
#ifndef TESTS_WORKER_SCRIBE_FIXTURE_H
#define TESTS_WORKER_SCRIBE_FIXTURE_H

#include "shared/counters.h"
#include "shared/journal.h"
#include "tests/shared/gate_fixture.h"
#include "tests/shared/ledger_fixture.h"
#include "tests/worker/loading.h"
#include "worker/scribe.h"

struct stage {
    struct fixture *ledger; /* its directory; its ledger is not open */
    struct segment segment;
    struct gate gate;    /* of a worker with requests */
    struct gate monitor; /* whose scribe writes */
    struct gate other;   /* of one more process, when the test needs it */
    struct loading loading;
    struct scribe scribe;
};

static inline struct gate stage_join(struct stage *stage, enum process_role role)
{
    const struct roster_member member = {.role = role, .instance = stage->segment.instance};
    struct gate gate;

    assert_true(gate_join(&gate, &stage->segment, &member, clock_monotonic_ns()));
    return gate;
}

static inline struct loading stage_load(struct stage *stage, const char *more)
{
    static const char *const environment[] = {"KEY_OF_B=s3cr3t-k3y", NULL};
    struct loading loading;
    char conf[1024];

    (void)snprintf(conf, sizeof conf, WITH_SOURCE "[penstock]\nstate_directory = %s\n%s",
                   stage->ledger->directory, more);
    loading = load_with(conf, environment);
    if (!loading.options)
        fail_msg("%s", report_of(&loading));
    return loading;
}

/* Other options from now on. */
static inline void stage_reload(struct stage *stage, const char *more)
{
    struct loading loading = stage_load(stage, more);

    unload(&stage->loading);
    stage->loading = loading;
}

static inline int stage_open(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);

    assert_non_null(stage);
    assert_int_equal(set_up_directory((void **)&stage->ledger), 0);
    fixture_open(&stage->segment, &stage->gate, 1, 100);
    stage->monitor = stage_join(stage, PROCESS_MONITOR);
    stage->loading = stage_load(stage, "");
    *state = stage;
    return 0;
}

static inline int stage_close(void **state)
{
    struct stage *stage = *state;
    void *ledger = stage->ledger;

    scribe_stop(&stage->scribe);
    unload(&stage->loading);
    fixture_close(&stage->segment);
    free(stage);
    return tear_down(&ledger);
}

static inline void stage_start(struct stage *stage)
{
    assert_true(scribe_start(&stage->scribe, &stage->monitor, stage->loading.options, true));
}

static inline struct journal_area *stage_journal(struct stage *stage)
{
    return &segment_instance(&stage->segment)->journal;
}

/* A call arrives and must get the answer; its place. */
static inline uint32_t stage_arrive(struct stage *stage, const char *id, enum gate_verdict expected)
{
    struct gate_call call = fixture_call(true);
    struct gate_answer answer;

    call.call_id = id;
    call.now_wall_ms = clock_wall_ms();
    gate_arrive(&stage->gate, &call, &answer);
    assert_int_equal(answer.verdict, expected);
    return answer.place;
}

static inline void stage_calls(struct stage *stage, unsigned first, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct call_record record = call_of(first + i, clock_wall_ms());

        gate_journal_call(&stage->gate, &record, NULL);
    }
}

/* The answer as it is now; "" while there is no ledger. */
static inline bool stage_answers(struct stage *stage, const char *sql, const char *expected)
{
    struct fixture *fixture = stage->ledger;
    sqlite3_stmt *statement = NULL;
    bool ready;

    if (!fixture->reader) {
        if (access(fixture->path, F_OK) != 0 ||
            sqlite3_open_v2(fixture->path, &fixture->reader, SQLITE_OPEN_READONLY, NULL) !=
                SQLITE_OK)
            return false;
        (void)sqlite3_busy_timeout(fixture->reader, 10000);
    }
    ready = sqlite3_prepare_v2(fixture->reader, sql, -1, &statement, NULL) == SQLITE_OK;
    (void)sqlite3_finalize(statement);
    return ready && strcmp(ask(fixture, sql), expected) == 0;
}

static inline void stage_forget_reader(struct stage *stage)
{
    (void)sqlite3_close(stage->ledger->reader);
    stage->ledger->reader = NULL;
}

/* Twenty seconds are an anti-hang bound, not a figure. */
#define STAGE_WAIT(condition)                                                                      \
    do {                                                                                           \
        int64_t until_ns = clock_monotonic_ns() + 20 * NS_PER_S;                                   \
                                                                                                   \
        while (!(condition)) {                                                                     \
            if (clock_monotonic_ns() > until_ns)                                                   \
                fail_msg("%s did not come about", #condition);                                     \
            clock_sleep_ns(2 * NS_PER_MS);                                                         \
        }                                                                                          \
    } while (0)

static inline int64_t stage_expect(struct stage *stage, const char *sql, const char *expected)
{
    int64_t before_ns = clock_monotonic_ns();

    while (!stage_answers(stage, sql, expected)) {
        if (clock_monotonic_ns() - before_ns > 20 * NS_PER_S)
            fail_msg("%s: expected \"%s\", got \"%s\"", sql, expected, stage->ledger->answer);
        clock_sleep_ns(2 * NS_PER_MS);
    }
    return clock_monotonic_ns() - before_ns;
}

#endif
