/*
 * scenario.h - a call with its sources on a false clock, as a scenario file tells it (the format is at
 * the top of run_scenarios.c), and what is expected of the plan.
 */
#ifndef TESTS_SCENARIOS_SCENARIO_H
#define TESTS_SCENARIOS_SCENARIO_H

#include "base/check.h"
#include "worker/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SCENARIO_SOURCES 8U
#define SCENARIO_TRIES 24U
#define SCENARIO_STEPS 48U
#define SCENARIO_TEXT 200U
#define SCENARIO_FILE_BYTES 65536U

/* Whatever came first: of reading, or of playing. "" = all is as expected. */
struct complaint {
    char text[4 * SCENARIO_TEXT];
};
/* Keeps the first. */
void complain(struct complaint *complaint, const char *format, ...) PRINTF_LIKE(2, 3);

/* A time, or the bounds of one that has jitter. */
struct span {
    int64_t least_ns, most_ns;
};

struct scenario_source {
    char name[16], account[16];
    bool refuses;
    enum plan_refusal refusal;
    int64_t refuses_from_ns, refuses_until_ns;
};

/* What an attempt does; times count from its start. */
struct scenario_try {
    unsigned source, n; /* the n-th attempt at that source, from 1 */
    enum { TRY_HANGS, TRY_CONTENT, TRY_FAILS } what;
    int64_t after_ns;
    int64_t sends_ns; /* when the first byte of the request goes out */
    int64_t done_ns;  /* CONTENT: the last byte of the answer */
    bool cut;         /* CONTENT: at done_ns it breaks off */
    bool has_answer;  /* FAILS */
    char word[16];    /* FAILS: the class, for the row */
    struct judgement judgement;
};

struct scenario_step {
    int line;
    struct span at;
    bool has_until;
    struct span until;
    char text[SCENARIO_TEXT]; /* "start hedge b" */
};

struct scenario {
    char name[SCENARIO_TEXT]; /* "hedge_trigger: R16 ..." */
    struct plan_terms terms;
    bool may_hedge_is_set;
    uint64_t seed;
    uint64_t accounts[SCENARIO_SOURCES];
    struct scenario_source sources[SCENARIO_SOURCES];
    unsigned source_count;
    struct scenario_try tries[SCENARIO_TRIES];
    unsigned try_count;
    struct scenario_step steps[SCENARIO_STEPS];
    unsigned step_count;
    char result[SCENARIO_TEXT], rows[SCENARIO_TEXT]; /* "" = not looked at */
    char breaks[SCENARIO_TEXT]; /* not "": this must be complained about, in such words */
    struct complaint unreadable;
};

/* Read the next scenario of the file; label: what its name begins with. False: there is none left. */
MUST_CHECK bool scenario_read(FILE *file, int *line, const char *label, struct scenario *ret);
/* "2.5" or "2.5..3" in seconds, for ret in nanoseconds; "2.5" in units of unit_ns. */
MUST_CHECK bool span_read(const char *word, int64_t unit_ns, struct span *ret);

/* Play it and compare. */
void scenario_play(const struct scenario *scenario, struct complaint *complaint);

#endif
