/* sources_fixture.h - sources of a gate on the test's own memory: wishes, outcomes, views. */
#ifndef TESTS_SHARED_SOURCES_FIXTURE_H
#define TESTS_SHARED_SOURCES_FIXTURE_H

#include "tests/shared/gate_fixture.h"

#include "shared/sources.h"

#include <string.h>

#define FIXTURE_NOW_NS (1000 * NS_PER_S)

static inline struct breaker_terms fixture_terms(void)
{
    return (struct breaker_terms){.failures = 5,
                                  .share_percent = 50,
                                  .share_calls = 20,
                                  .cooldown_ns = 5 * NS_PER_S,
                                  .cooldown_max_ns = 300 * NS_PER_S};
}

/* Sources without bound and of one weight. */
static inline void fixture_register(struct gate *gate, const struct source_name *names,
                                    size_t count, struct source_candidate *ret_candidates)
{
    uint32_t rows[SOURCE_ROWS];

    assert_true(sources_register(gate, names, count, rows));
    for (size_t i = 0; i < count; i++)
        ret_candidates[i] = (struct source_candidate){.row = rows[i], .weight = 1};
}

static inline struct source_wish fixture_wish(const struct source_candidate *candidates,
                                              size_t count, int64_t now_ns)
{
    return (struct source_wish){.candidates = candidates,
                                .count = count,
                                .now_ns = now_ns,
                                .now_wall_ms = 1700000000000,
                                .probe_ns = 600 * NS_PER_S};
}

static inline struct source_answer fixture_admit(struct gate *gate, const struct source_wish *wish)
{
    struct source_answer answer;

    source_admit(gate, wish, &answer);
    return answer;
}

static inline void fixture_end(struct gate *gate, struct source_permit *permit, enum source_end end,
                               int64_t now_ns)
{
    const struct source_outcome outcome = {.end = end,
                                           .terms = fixture_terms(),
                                           .reason = "http_500",
                                           .now_ns = now_ns,
                                           .now_wall_ms = 1700000000000};

    source_release(gate, permit, &outcome);
    assert_int_equal(permit->row, NO_INDEX);
}

/* One call at the candidate, from admission to its end. */
static inline void fixture_call_source(struct gate *gate, const struct source_candidate *candidate,
                                       enum source_end end, int64_t now_ns)
{
    const struct source_wish wish = fixture_wish(candidate, 1, now_ns);
    struct source_answer answer = fixture_admit(gate, &wish);

    assert_int_equal(answer.verdict, SOURCE_ADMITTED);
    fixture_end(gate, &answer.permit, end, now_ns);
}

/* Fail until the breaker opens. */
static inline void fixture_break(struct gate *gate, const struct source_candidate *candidate,
                                 int64_t now_ns)
{
    for (int i = 0; i < 5; i++)
        fixture_call_source(gate, candidate, SOURCE_END_FAILURE, now_ns);
}

/* Fails the test when the source is not shown. */
static inline struct source_view fixture_view(struct gate *gate, const char *name, int64_t now_ns)
{
    static struct source_view views[SOURCE_ROWS];
    unsigned count;

    gate_lock(gate);
    count = sources_view_locked(segment_instance(gate->segment), now_ns, views);
    gate_unlock(gate);
    for (unsigned i = 0; i < count; i++)
        if (strcmp(views[i].name, name) == 0)
            return views[i];
    fail_msg("no source %s", name);
    return views[0];
}

#endif
