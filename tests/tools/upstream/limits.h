/*
 * limits.h - the rate limits of an upstream as providers describe them: requests and tokens per minute,
 * both within a second, growth, saturation. Set and changed by GET /limits?KEY=VALUE&...; every key is
 * explained at the top of tests/tools/simulated_upstream.c.
 *
 * This file only judges and counts; capacity.c makes calls take their time.
 */
#ifndef TESTS_TOOLS_UPSTREAM_LIMITS_H
#define TESTS_TOOLS_UPSTREAM_LIMITS_H

#include "base/check.h"
#include "tests/tools/upstream/behaviour.h"
#include "tests/tools/upstream/body.h"
#include "tests/tools/upstream/window.h"

#include <stdbool.h>
#include <stdint.h>

#define LIMIT_SECONDS_MAX 8192 /* what happens later is counted in the totals alone */

enum limit_cause {
    LIMIT_NONE,
    LIMIT_RPM,
    LIMIT_TPM,
    LIMIT_RPS,
    LIMIT_TPS,
    LIMIT_BURST,
    LIMIT_SATURATED,
    LIMIT_CAUSES,
};

enum limit_dialect { LIMIT_COMPATIBLE, LIMIT_DASHSCOPE, LIMIT_OPENAI };

/* 0 switches a single limit off. */
struct limit_settings {
    bool on;
    uint64_t rpm, tpm;
    double rps_factor, tps_factor; /* of a sixtieth of rpm, of tpm, within a second */
    uint64_t burst_floor;          /* attempts within 5 s that are always free of the growth rule */
    double burst_gain;             /* else so many times the mean of the 30 s before */
    uint64_t shared_above;         /* calls in flight at full speed; more share it */
    uint64_t refused_above;        /* calls in flight; one more is refused with 503 */
    bool refusals_count;           /* refused calls count towards rpm and within a second */
    bool hints;                    /* Retry-After and x-ratelimit headers */
    double bytes_per_token;        /* of a request body, where in_tokens is not given */
    uint64_t first_ms;             /* until the first token, and so much more for each of input: */
    uint64_t input_us;
    uint64_t output_us; /* for each token of output */
    uint64_t tokens_per_event;
    int dialect; /* enum limit_dialect */
};

struct limit_second {
    bool seen;
    uint32_t attempts, admitted, done, in_flight;
    uint64_t admitted_tokens; /* in and out, of what was admitted within it */
    uint64_t good_tokens;     /* in and out, of what was answered to the end within it */
    uint32_t refused[LIMIT_CAUSES];
};

struct limits {
    struct limit_settings settings;
    struct window minute_calls, minute_tokens, second_calls, second_tokens, five_seconds,
        thirty_five_seconds;
    int64_t begun_ns;
    uint64_t calls_max, tokens_max; /* the most within any minute */
    struct limit_second total;
    struct limit_second seconds[LIMIT_SECONDS_MAX];
};

struct limit_work {
    uint64_t input, output;
};

void sim_limits_init(struct limits *limits, int64_t now_ns);
void sim_limits_release(struct limits *limits);
/* May this call begin? Otherwise behaviour becomes the refusal, in the dialect set. */
enum limit_cause sim_limits_admit(struct limits *limits, const struct limit_work *work,
                                  uint64_t in_flight, int64_t now_ns);
void sim_limits_refuse(struct limits *limits, enum limit_cause cause, struct behaviour *behaviour,
                       int64_t now_ns);
/* A call that was admitted is over; whole: it was answered to its end. */
void sim_limits_end(struct limits *limits, const struct limit_work *work, bool whole,
                    int64_t now_ns);
void sim_limits_note_in_flight(struct limits *limits, uint64_t in_flight, int64_t now_ns);
/* Headers that tell what is left. */
void sim_limits_hint(struct limits *limits, struct behaviour *behaviour, int64_t now_ns);

/* GET /limits?..., /limits/reset and /limits/seconds. */
void sim_limits_answer(struct limits *limits, const char *path, const char *query,
                       struct body *body);

#endif
