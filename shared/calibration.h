/*
 * calibration.h - what the estimates of a model's requests have been worth (F6): the ratios of usage to
 * estimate, and the tokens an answer has, learned from the calls that told their usage. One struct
 * estimate_row per (quota group, model), in its struct flow_row.
 *
 * Two ratios, as tokenizers differ most in what they make of other scripts than Latin: usage is about
 * latin * (tokens - script) + script_ratio * script. They are the least squares of the relative errors,
 * of the newest calls of each kind; while all calls are of one kind both are the same.
 *
 * The sums are doubles; the ratios that come of them are always within their bounds. Under the lock of
 * whoever owns the row. Pure: no clock.
 */
#ifndef SHARED_CALIBRATION_H
#define SHARED_CALIBRATION_H

#include "base/check.h"
#include "shared/layout.h"

#include <stdbool.h>
#include <stdint.h>

#define CALIBRATION_SAMPLES 20 /* the newest call weighs as one of so many of its kind */
#define CALIBRATION_RATIO_MIN 0.4
#define CALIBRATION_RATIO_MAX 2.5
#define CALIBRATION_OUTPUT_TOKENS 300             /* predicted before any answer told */
#define CALIBRATION_TOKENS_MAX (INT64_C(1) << 40) /* what is larger is taken as this */

/* Tokens as they are estimated, without knowing the model. */
struct token_estimate {
    int64_t tokens;
    int64_t script; /* of them, those of texts in other scripts than Latin */
};

struct token_ratios {
    double latin, script;
};

struct token_ratios calibration_ratios(const struct estimate_row *row);
/* The tokens that an estimate means with these ratios. None of none. */
int64_t calibration_tokens(struct token_ratios ratios, const struct token_estimate *estimate);
/* The tokens an answer will have, never more than max_output (-1 = no bound). */
int64_t calibration_output(const struct estimate_row *row, int64_t max_output);
/* A call told its usage. estimate: of its input, as it was made. What is <= 0 was not told and teaches
 * nothing. */
void calibration_learn(struct estimate_row *row, const struct token_estimate *estimate,
                       int64_t input, int64_t output);
/* Can the row have come about by learning? For what was kept in a file. */
MUST_CHECK bool calibration_is_possible(const struct estimate_row *row);

#endif
