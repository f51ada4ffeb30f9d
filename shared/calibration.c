/*
 * calibration.c - moving averages of what calls really used; see calibration.h.
 *
 * The n-th call weighs 1/n until the weight has come down to CALIBRATION_ALPHA_PERMILLE, so that a
 * young average is the plain mean of what there is, and an old one follows changes.
 */
#include "shared/calibration.h"

#include <stdbool.h>

#define PPM 1000000
#define PARTS 1000
#define SAMPLES_FULL (1000 / CALIBRATION_ALPHA_PERMILLE)

static int64_t clamp(int64_t number, int64_t least, int64_t most)
{
    return number < least ? least : number > most ? most : number;
}

/* A weighted mean of both, rounded; samples: with this one. */
static int64_t average(int64_t mean, int64_t sample, uint32_t samples)
{
    int64_t step = sample - mean;
    int64_t weight = samples < SAMPLES_FULL ? samples : SAMPLES_FULL;

    return mean + (step + (step < 0 ? -weight : weight) / 2) / weight;
}

static uint32_t one_more(uint32_t samples)
{
    return samples < UINT32_MAX ? samples + 1 : samples;
}

int64_t calibration_input(const struct estimate_row *row, int64_t estimate)
{
    int64_t ratio_ppm = row->ratio_samples > 0 ? row->ratio_ppm : PPM;

    if (estimate <= 0)
        return 0;
    estimate = clamp(estimate, 1, CALIBRATION_TOKENS_MAX);
    return clamp((estimate * ratio_ppm + PPM / 2) / PPM, 1, INT64_MAX);
}

int64_t calibration_output(const struct estimate_row *row, int64_t max_output)
{
    int64_t parts =
        row->output_samples > 0 ? row->output_parts : (int64_t)CALIBRATION_OUTPUT_TOKENS * PARTS;
    int64_t tokens = (parts + PARTS / 2) / PARTS;

    return max_output >= 0 && tokens > max_output ? max_output : tokens;
}

void calibration_learn(struct estimate_row *row, int64_t estimate, int64_t input, int64_t output)
{
    if (estimate > 0 && input > 0) {
        int64_t used = clamp(input, 1, CALIBRATION_TOKENS_MAX);
        int64_t sample = clamp(used * PPM / clamp(estimate, 1, CALIBRATION_TOKENS_MAX),
                               CALIBRATION_RATIO_MIN_PPM, CALIBRATION_RATIO_MAX_PPM);

        row->ratio_samples = one_more(row->ratio_samples);
        row->ratio_ppm = (uint32_t)average(row->ratio_ppm, sample, row->ratio_samples);
    }
    if (output > 0) {
        int64_t sample = clamp(output, 1, CALIBRATION_TOKENS_MAX) * PARTS;

        row->output_samples = one_more(row->output_samples);
        row->output_parts = average(row->output_parts, sample, row->output_samples);
    }
}
