/*
 * calibration.h - what the estimates of a model's requests have been worth (F6): the ratio of usage to
 * estimate, and the tokens an answer has, both as moving averages over the calls that told their
 * usage. One struct estimate_row per (quota group, model), in its struct flow_row.
 *
 * Integers only. Under the lock of whoever owns the row. Pure: no clock.
 */
#ifndef SHARED_CALIBRATION_H
#define SHARED_CALIBRATION_H

#include "shared/layout.h"

#include <stdint.h>

#define CALIBRATION_ALPHA_PERMILLE 50     /* weight of the newest call, once there were 1000/50 */
#define CALIBRATION_RATIO_MIN_PPM 400000  /* 0.4 */
#define CALIBRATION_RATIO_MAX_PPM 2500000 /* 2.5 */
#define CALIBRATION_OUTPUT_TOKENS 300     /* predicted before any answer told */
#define CALIBRATION_TOKENS_MAX (INT64_C(1) << 40) /* what is larger is taken as this */

/* The tokens that an estimate means for this model. estimate <= 0: 0. */
int64_t calibration_input(const struct estimate_row *row, int64_t estimate);
/* The tokens an answer will have, never more than max_output (-1 = no bound). */
int64_t calibration_output(const struct estimate_row *row, int64_t max_output);
/* A call told its usage. estimate: uncalibrated, as it was made. What is <= 0 was not told and teaches
 * nothing. */
void calibration_learn(struct estimate_row *row, int64_t estimate, int64_t input, int64_t output);

#endif
