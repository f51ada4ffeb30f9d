/* sources_model.h - the rules of admission and breaker once more, as plainly as they can be said: what
 * test_sources.c compares the real ones with. Four sources, of which 1 and 2 share an account; all have the
 * fixture's terms. */
#ifndef TESTS_SHARED_SOURCES_MODEL_H
#define TESTS_SHARED_SOURCES_MODEL_H

#include "tests/shared/sources_fixture.h"

#define MODELS 4

struct model {
    bool drained;
    int64_t out_until, throttled_until, open_until, probe_until;
    enum breaker_state state;
    unsigned in_a_row, openings, in_flight;
    unsigned probe; /* 1 + index of the permit that is it, 0 = none */
    struct {
        int64_t second;
        bool failed;
    } outcomes[20000];
    unsigned outcome_count;
};
static inline void model_trip(struct model *model, int64_t now)
{
    int64_t seconds = 5;

    for (unsigned i = 0; i < model->openings; i++)
        seconds = 2 * seconds < 300 ? 2 * seconds : 300;
    model->openings++;
    model->state = BREAKER_OPEN;
    if (model->open_until < now + seconds * NS_PER_S)
        model->open_until = now + seconds * NS_PER_S;
}

static inline void model_note(struct model *model, bool failed, int64_t now)
{
    assert_true(model->outcome_count < LENGTH(model->outcomes));
    model->outcomes[model->outcome_count].second = now / NS_PER_S;
    model->outcomes[model->outcome_count++].failed = failed;
}

static inline bool model_share(const struct model *model, int64_t now)
{
    unsigned calls = 0;
    unsigned failures = 0;

    for (unsigned i = 0; i < model->outcome_count; i++) {
        bool in = model->outcomes[i].second > now / NS_PER_S - SOURCE_WINDOW_S;

        calls += in;
        failures += in && model->outcomes[i].failed;
    }
    return calls >= 20 && 2 * failures >= calls;
}

static inline void model_end(struct model *model, bool was_probe, bool last_resort,
                             enum source_end end, int64_t now)
{
    if (end == SOURCE_END_OUT && model->out_until < now + 60 * NS_PER_S)
        model->out_until = now + 60 * NS_PER_S;
    if (end == SOURCE_END_SUCCESS) {
        model_note(model, false, now);
        if (model->state == BREAKER_CLOSED)
            model->in_a_row = 0;
        else if (was_probe || last_resort) {
            model->state = BREAKER_CLOSED;
            model->in_a_row = model->openings = model->probe = 0;
            model->open_until = 0;
            model->outcome_count = 0;
            model_note(model, false, now);
        }
    }
    if (end == SOURCE_END_FAILURE) {
        model_note(model, true, now);
        model->in_a_row++;
        if (was_probe ||
            (model->state == BREAKER_CLOSED && (model->in_a_row >= 5 || model_share(model, now))))
            model_trip(model, now);
    }
}

static inline enum source_verdict model_look(const struct model *model,
                                             const struct source_wish *wish, unsigned i)
{
    const uint32_t bound = wish->candidates[i].max_in_flight;
    const int64_t now = wish->now_ns;

    if (model->drained || model->out_until > now)
        return SOURCE_OUT;
    if ((model->state == BREAKER_OPEN && model->open_until > now) ||
        (model->state == BREAKER_HALF_OPEN && model->probe && model->probe_until > now))
        return SOURCE_OPEN;
    if (wish->hedge && model->throttled_until > now)
        return SOURCE_WAITING;
    if (bound && model->in_flight >= bound)
        return SOURCE_BUSY;
    return SOURCE_ADMITTED;
}

static inline void model_undrain(struct model *model)
{
    model->state = BREAKER_CLOSED;
    model->in_a_row = model->openings = model->probe = model->outcome_count = 0;
    model->open_until = model->out_until = model->throttled_until = 0;
}

/* Lower is better: untried, not asked to wait, earlier. A last resort: untried, closing earlier. */
static inline int64_t model_rank(const struct model *model, const struct source_wish *wish,
                                 unsigned i, bool last_resort)
{
    const bool tried = wish->tried >> i & 1;

    if (last_resort)
        return model->open_until + tried * (INT64_MAX / 2);
    return 8 * tried + 4 * (model->throttled_until > wish->now_ns) + (int64_t)i;
}

static inline bool model_same_account(unsigned i, unsigned j)
{
    return i == j || (i + j == 3 && i * j != 0);
}

static inline bool model_may_ask(const struct source_wish *wish, unsigned i)
{
    if (wish->excluded >> i & 1)
        return false;
    return !wish->hedge || !(wish->tried >> i & 1 || model_same_account(i, wish->hedge_of));
}

/* The candidate that has to be chosen, or -verdict. */
static inline int model_choose(const struct model models[MODELS], const struct source_wish *wish,
                               bool *ret_last_resort)
{
    enum source_verdict hope = SOURCE_NONE;
    int best[2] = {-1, -1}; /* by right, as a last resort */

    for (unsigned i = 0; i < MODELS; i++) {
        const uint32_t bound = wish->candidates[i].max_in_flight;
        const enum source_verdict look = model_look(&models[i], wish, i);
        const bool resort = look == SOURCE_OPEN;

        if (!model_may_ask(wish, i))
            continue;
        if (look != SOURCE_ADMITTED && look > hope)
            hope = look;
        if (look != SOURCE_ADMITTED && (!resort || (bound && models[i].in_flight >= bound)))
            continue;
        if (best[resort] < 0 ||
            model_rank(&models[i], wish, i, resort) <
                model_rank(&models[best[resort]], wish, (unsigned)best[resort], resort))
            best[resort] = (int)i;
    }
    *ret_last_resort = false;
    if (best[0] >= 0)
        return best[0];
    if (hope != SOURCE_OPEN || !wish->last_resort || wish->hedge)
        return -(int)hope;
    *ret_last_resort = best[1] >= 0;
    return best[1] >= 0 ? best[1] : -SOURCE_BUSY;
}

#endif
