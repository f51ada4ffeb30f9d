/* lanes_stage.h - a scope that hedges, on the stage of scope_house.h; what scripts of servers tell each other.
 */
#ifndef TESTS_LANES_STAGE_H
#define TESTS_LANES_STAGE_H

#include "tests/worker/scope_house.h"

static atomic_bool primary_seen, hedge_seen, go;
static struct scene *on_stage; /* for scripts */

#define HEDGE_AFTER_MS 20

/* A scope that hedges, and a call that may be. */
static inline int make(void **state)
{
    atomic_store(&primary_seen, false);
    atomic_store(&hedge_seen, false);
    atomic_store(&go, false);
    (void)scene_make(state);
    on_stage = *state;
    on_stage->house->scope.hedge_after_ms = HEDGE_AFTER_MS;
    return 0;
}

#define WITH_HEDGE(test) cmocka_unit_test_setup_teardown(test, make, scene_drop)

static inline void assert_untouched(struct scene *scene, unsigned source)
{
    const struct source_view view = scene_source(scene, source);

    assert_int_equal(view.window_calls, 0);
    assert_int_equal(view.failures_in_a_row, 0);
    assert_int_equal(view.health_permille, 1000);
    assert_int_equal(view.latency_ms, 0);
}

/* The row of the source's only attempt. */
static inline struct attempt_record row_of(struct scene *scene, bool open, const char *source)
{
    struct attempt_record rows[SCENE_ROWS];
    unsigned count = scene_rows(scene, open, rows);

    for (unsigned i = 0; i < count; i++)
        if (strcmp(rows[i].source, source) == 0)
            return rows[i];
    fail_msg("no row of %s", source);
    return rows[0];
}

#endif
